"""Tokens per CPU-second of a language model of 0.94 million parameters: sampling, scoring, training; and GRPO beside TRL.

    python tools/bench/tokens.py                     ours
    python tools/bench/tokens.py --peers FOLDER      beside a Llama of transformers and TRL's GRPOTrainer, found in FOLDER

``pip install --target FOLDER --no-deps transformers==5.23.0 trl==1.16.0``, and then the packages that they ask for, makes the folder.

One thread, CPU-seconds, all ways taking turns in one process, median of ``--repeats``. The ways:

    products        every layer a matrix product (MKL on x86)
    library         as the library does it: wide layers as one-pixel convolutions (oneDNN) where ``_Linear`` says so
    medium          matrix products with ``torch.set_float32_matmul_precision("medium")``: by oneDNN, which may round to bfloat16 and
                    does so where there is a matrix unit (AMX). It also takes the many tiny products inside attention, and is slow there.
    bfloat16        everything under ``torch.autocast``: fast, but what is sampled is no longer from the model that is trained

The last two are shown for comparison; ``error`` says how far the log-probabilities of the tokens are off. For each layer of the model the
second table has the GFLOP/s of its forward pass as a product, as a convolution, and in bfloat16. The third is a roofline: tokens per
CPU-second if only the products of matrices cost anything, and with the reading and writing of numbers between them; and the same for the
two parts of an update of GRPO, in milliseconds. Writes ``results/tokens.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import common  # fixes the number of threads: before numpy and torch

import numpy as np
import torch
import torch.nn.functional as F

from rlbook_lib import language_model
from rlbook_lib.devices import use_threads
from rlbook_lib.grpo import grpo_loss
from rlbook_lib.language_model import (
    CharTokenizer,
    Completions,
    HuggingFaceModel,
    Transformer,
    TransformerConfig,
    completion_log_probs,
    generate,
)
from rlbook_lib.text_tasks import Sorting
from rlbook_lib.training import Adam, gradient_step

TASK = Sorting()
ROWS, NEW, MINIBATCH = 512, 16, 64  # completions, tokens of each, and how many are scored or trained on at a time
LAYERS = {"query_key_value": (160, 480), "out": (160, 160), "up": (160, 640), "down": (640, 160), "head": (160, 14)}
LIBRARY = language_model._Linear.by_convolution  # before any way changes it


@contextlib.contextmanager
def products() -> Iterator[None]:
    language_model._Linear.by_convolution = False
    try:
        yield
    finally:
        language_model._Linear.by_convolution = LIBRARY


@contextlib.contextmanager
def medium() -> Iterator[None]:
    torch.set_float32_matmul_precision("medium")
    try:
        with products():
            yield
    finally:
        torch.set_float32_matmul_precision("highest")


WAYS: dict[str, Callable[[], Any]] = {
    "products": products,
    "library": contextlib.nullcontext,
    "medium": medium,
    "bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
}


def our_model() -> Transformer:
    """Untrained, and changed so that no completion ever ends: every row has as many tokens."""
    model = Transformer(CharTokenizer(TASK.alphabet), TransformerConfig(width=160, layers=3, heads=4), seed=0)
    with torch.no_grad():
        model.norm.bias.fill_(5.0)
        model.head.weight[model.tokenizer.eos] = -5.0
    return model


def llama(ends: bool = False) -> HuggingFaceModel:
    """A Llama of transformers of nearly the same size, behind the same sampler and the same loss; its answers never end unless asked."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = CharTokenizer(TASK.alphabet)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokenizer.size,
            hidden_size=160,
            intermediate_size=427,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )

    class NeverEnds(torch.nn.Module):
        def __init__(self, head: torch.nn.Module) -> None:
            super().__init__()
            self.head = head

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return self.head(hidden) - 1e4 * F.one_hot(torch.tensor(tokenizer.eos), tokenizer.size)

    wrapped = HuggingFaceModel(model, _Named(tokenizer), max_length=64)
    if not ends:
        model.set_output_embeddings(NeverEnds(model.get_output_embeddings()))
    return wrapped


class _Named:
    """Our tokenizer under the names of transformers."""

    def __init__(self, tokenizer: CharTokenizer) -> None:
        self.tokenizer, self.eos_token_id, self.pad_token_id = tokenizer, tokenizer.eos, tokenizer.pad

    def __len__(self) -> int:
        return self.tokenizer.size

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return self.tokenizer.encode(text)

    def decode(self, tokens: list[int], skip_special_tokens: bool = True) -> str:
        return self.tokenizer.decode(tokens)


def jobs(model: Any) -> dict[str, tuple[Callable[[], Any], int]]:
    """Name to what is timed and how many tokens it handles: written ones when sampling, all that are read otherwise."""
    prompts = TASK.prompts(ROWS, np.random.default_rng(0))
    batch = generate(model, prompts, max_new_tokens=NEW, seed=0)
    written, read = int(batch.mask.sum()), int(batch.mask.sum() + batch.prompt_mask.sum())
    assert written == ROWS * NEW
    parts = [batch.take(rows) for rows in torch.arange(ROWS).split(MINIBATCH)]
    optimizer = Adam(model.parameters(), 0.0, betas=(0.9, 0.99), fused=False)  # lr 0: every repeat has the same numbers
    advantages = torch.linspace(-1, 1, MINIBATCH)

    @torch.no_grad()
    def score() -> torch.Tensor:
        return torch.cat([completion_log_probs(model, part)[0] for part in parts])

    def learn() -> None:
        for part in parts:
            log_probs, _ = completion_log_probs(model, part)
            loss = grpo_loss(log_probs, part.log_probs, advantages, part.mask, normalize="token")
            gradient_step(optimizer, loss, 0.0, 1.0)

    return {
        "generate": (lambda: generate(model, prompts, max_new_tokens=NEW, seed=0), written),
        "score": (score, read),
        "train": (learn, read),
    }


def inside(way: Callable[[], Any], run: Callable[[], Any]) -> Callable[[], Any]:
    def timed() -> Any:
        with way():
            return run()

    return timed


def rates(repeats: int, peer: bool, only: tuple[str, ...] = tuple(WAYS)) -> dict[str, dict[str, float]]:
    """Way to tokens per CPU-second of each job, and to the error of its scores."""
    ours, theirs = jobs(our_model()), jobs(llama()) if peer else {}
    found: dict[str, dict[str, float]] = {way: {} for way in [*only, *(["llama"] if peer else [])]}
    for name, (run, tokens) in ours.items():
        cases = {way: inside(WAYS[way], run) for way in only}
        if peer:
            cases["llama"] = theirs[name][0]
        seconds, last = common.cpu_seconds(cases, repeats)
        for way, times in seconds.items():
            found[way][name] = round((theirs[name][1] if way == "llama" else tokens) / statistics.median(times))
        if name == "score" and "products" in only:
            for way in only:
                found[way]["error"] = float(f"{float((last[way] - last['products']).abs().max()):.1e}")
    return found


def layer_speeds(repeats: int) -> dict[str, dict[str, float]]:
    """Layer, and rows, to GFLOP/s of the forward pass."""
    found = {}
    for name, (inputs, outputs) in LAYERS.items():
        for rows in (64, 512, 1536):
            x, w, b = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
            image, kernel = x.view(1, rows, 1, inputs).permute(0, 3, 1, 2), w[:, :, None, None]
            halves = [t.bfloat16() for t in (x, w, b)]
            many = range(max(10, 300_000_000 // (rows * inputs * outputs)))
            cases = {
                "product": lambda: [F.linear(x, w, b) for _ in many],
                "convolution": lambda: [F.conv2d(image, kernel, b, dilation=2) for _ in many],
                "bfloat16": lambda: [F.linear(*halves) for _ in many],
            }
            with torch.no_grad():
                seconds, _ = common.cpu_seconds(cases, repeats)
            work = 2e-9 * len(many) * rows * inputs * outputs
            found[f"{name} {inputs} to {outputs}, {rows} rows"] = {
                way: round(work / statistics.median(t)) for way, t in seconds.items()
            }
    return found


def beside_trl(seeds: range, turns: int = 3) -> list[dict[str, float]]:
    """GRPO's tokens per CPU-second, seed by seed: as the library does it, on TRL's own model, and TRL's. They take turns; medians."""
    from language_model import _our_rate, _trl_rate

    ways: dict[str, Callable[[int], float]] = {
        "library": lambda seed: _our_rate(seed)[0],
        "trl": lambda seed: _trl_rate(seed)[0],
        "llama": lambda seed: _our_rate(seed, llama(ends=True))[0],
    }
    rows = []
    for seed in seeds:
        rates = [{name: run(seed) for name, run in ways.items()} for _ in range(turns)]
        found = {name: float(round(statistics.median(turn[name] for turn in rates))) for name in ways}
        ratios = {"ratio": found["library"] / found["trl"], "llama_ratio": found["llama"] / found["trl"]}
        rows.append(found | {name: round(ratio, 2) for name, ratio in ratios.items()})
    return rows


def an_update(model: Transformer) -> dict[str, Callable[[], Any]]:
    """The two parts of an update of GRPO as long as it can be, sixteen tokens an answer; and the same calls for one answer."""
    from language_model import GROUP, LONGEST, PROMPTS

    prompts = [prompt for prompt in TASK.prompts(PROMPTS, np.random.default_rng(0)) for _ in range(GROUP)]
    batch = generate(model, prompts, max_new_tokens=LONGEST, seed=0)
    optimizer = Adam(model.parameters(), 0.0, betas=(0.9, 0.99), fused=False)

    def write(rows: int) -> Completions:
        return generate(model, prompts[:rows], max_new_tokens=LONGEST, seed=0)

    def learn(part: Completions) -> None:
        log_probs, _ = completion_log_probs(model, part)
        loss = grpo_loss(log_probs, part.log_probs, torch.linspace(-1, 1, len(part)), part.mask, normalize="token")
        gradient_step(optimizer, loss, 0.0, 1.0)

    one = batch.take(torch.tensor([0]))
    return {
        "write, reached": lambda: write(len(prompts)),
        "write, one_answer": lambda: write(1),
        "learn, reached": lambda: learn(batch),
        "learn, one_answer": lambda: learn(one),
    }


def roofline(repeats: int, reached: dict[str, float]) -> dict[str, Any]:
    """What this machine allows: each job's products of matrices alone, timed by the library's own layers at the model's shapes.

    What need not be read is not counted: a prompt that several answers share more than once, the last block of a prompt's columns
    but for the keys, the values and the last column, the last token of an answer. Above that come the numbers that a pass reads
    and writes between its products, at this machine's rate of a sum in float32: of a layer and a token 30 D (two norms 4 D, heads
    split and put together 8 D, attention 4 D, two sums 6 D, GELU 8 D); a backward pass has twice as many; and all weights once
    for each call of the model. Of GRPO a round as long as it can be: all answers have sixteen tokens.
    """
    from language_model import GROUP, LONGEST, PROMPTS

    model, block, width = our_model(), our_model().blocks[0], 160
    layers, blocks = [block.query_key_value, block.out, block.up, block.down], len(model.blocks)
    prompts = TASK.prompts(ROWS, np.random.default_rng(0))
    first = generate(model, prompts, max_new_tokens=1).prompt_tokens.shape[1]

    def products(rows: int, times: int, learn: bool, layers: list[Any] = layers) -> Callable[[], None]:
        given = [torch.randn(rows, layer.in_features, requires_grad=learn) for layer in layers]

        def run() -> None:
            for _ in range(times):
                for layer, x in zip(layers, given):
                    y = layer(x)
                    if learn:
                        torch.autograd.grad(y, [x, layer.weight], y.detach())

        return run

    def reading(prompts: int, answers: int, steps: int, calls: int, learn: bool = False) -> tuple[list[Any], float]:
        """Prompts, and then answers of so many tokens in so many calls: the products, and the tokens that pass all blocks."""
        runs = [
            products(prompts * first, blocks - 1, learn),
            products(prompts * first, 1, learn, layers[:1]),
            products(prompts, 1, learn, layers[1:]),
            products(answers * steps // calls, blocks * calls, learn),
        ]
        return runs, prompts * (first * (blocks - 1) + 1) / blocks + answers * steps

    def together(parts: int, *jobs: tuple[list[Any], float]) -> Callable[[], None]:
        return lambda: [run() for _ in range(parts) for runs, _ in jobs for run in runs] and None

    answers, parts = PROMPTS * GROUP, ROWS // MINIBATCH
    whole, numbers = {"generate": ROWS * NEW, "grpo": answers * LONGEST}, torch.randn(1536, 4 * width)
    whole["score"] = whole["train"] = round(sum(jobs(model)["score"][1:]))
    write, read = reading(ROWS, ROWS, NEW - 1, NEW - 1), reading(MINIBATCH, MINIBATCH, NEW - 1, 1)
    learn = reading(MINIBATCH, MINIBATCH, NEW - 1, 1, learn=True)
    round_ = (
        reading(PROMPTS, answers, LONGEST - 1, LONGEST - 1),
        reading(PROMPTS, answers, LONGEST - 1, 1, learn=True),
    )
    cases = {
        "generate": together(1, write),
        "score": together(parts, read),
        "train": together(parts, learn),
        "grpo": together(1, *round_),
    }
    parts_of_it = {"write": together(1, round_[0]), "learn": together(1, round_[1])}
    # tokens that pass through the model, a backward pass twice; calls of the model, likewise
    passes = {
        "generate": (write[1], NEW),
        "score": (parts * read[1], 2 * parts),
        "train": (3 * parts * learn[1], 6 * parts),
        "grpo": (round_[0][1] + 3 * round_[1][1], LONGEST + 6),
        "write": (round_[0][1], LONGEST),
        "learn": (3 * round_[1][1], 6),
    }
    square = torch.randn(1024, 1024)
    others = {"square": lambda: square @ square, "sum": lambda: [numbers + numbers for _ in range(20)]}
    seconds, _ = common.cpu_seconds(cases | parts_of_it | an_update(our_model()) | others, repeats)
    took = {name: statistics.median(times) for name, times in seconds.items()}
    weights = 4 * sum(p.numel() for p in model.parameters())
    bytes_a_pass, rate = 30 * width * len(model.blocks) * 4, 3 * 4 * numbers.numel() * 20 / took["sum"]
    found: dict[str, Any] = {
        "operations_a_token_and_pass": 2 * len(model.blocks) * sum(layer.weight.numel() for layer in layers),
        "bytes_a_token_and_pass": bytes_a_pass,
        "gflops_of_a_large_product": round(2e-9 * 1024**3 / took["square"]),
        "gigabytes_a_second": round(rate / 1e9, 1),
    }
    traffic = {name: (tokens * bytes_a_pass + calls * weights) / rate for name, (tokens, calls) in passes.items()}
    for name in cases:
        both = took[name] + traffic[name]
        found[name] = {"products": round(whole[name] / took[name]), "with_traffic": round(whole[name] / both)}
        if name in reached:
            found[name] |= {"reached": reached[name], "share": round(reached[name] * both / whole[name], 2)}
    if "trl" in reached:
        found["grpo"] |= {
            "twice_trl": 2 * reached["trl"],
            "share_of_twice_trl": round(2 * reached["trl"] / found["grpo"]["with_traffic"], 2),
        }
    found["milliseconds_of_an_update"] = {
        name: {
            kind: round(1e3 * seconds, 1)
            for kind, seconds in (
                ("products", took[name]),
                ("with_traffic", took[name] + traffic[name]),
                ("reached", took[f"{name}, reached"]),
                ("one_answer", took[f"{name}, one_answer"]),
            )
        }
        for name in parts_of_it
    }
    return found


def terms(repeats: int) -> dict[str, dict[str, float]]:
    """Where an update's time goes, in milliseconds: its parts, each alone at the update's shapes; a part that learns, both ways."""
    from language_model import GROUP, LONGEST, PROMPTS

    model, answers, width = our_model(), PROMPTS * GROUP, 160
    blocks, steps = list(model.blocks), LONGEST - 1
    first = generate(model, TASK.prompts(PROMPTS, np.random.default_rng(0)), max_new_tokens=1).prompt_tokens.shape[1]
    whole = first + steps

    def both_ways(run: Callable[..., torch.Tensor], *given: torch.Tensor) -> Callable[[], Any]:
        given = tuple(x.requires_grad_() for x in given)

        def timed() -> None:
            for _ in blocks:
                out = run(*given)
                torch.autograd.grad(out, given, out.detach())

        return timed

    def heads(columns: int) -> torch.Tensor:
        return torch.randn(answers, 4, columns, width // 4)

    def writing(run: Callable[[int, int], Any]) -> Callable[[], Any]:
        @torch.no_grad()
        def timed() -> None:
            for step in range(first, whole):
                for block in range(len(blocks)):
                    run(block, step)

        return timed

    one, wide, query = torch.randn(answers, 1, width), torch.randn(answers, 1, 4 * width), heads(1)
    room = [(heads(whole + 1), heads(whole + 1)) for _ in blocks]
    seen = torch.ones(answers, 1, 1, whole, dtype=torch.bool)
    may_look = torch.ones(answers, 1, steps, whole, dtype=torch.bool).tril(first)
    draws, logits = torch.Generator().manual_seed(0), torch.randn(answers, model.tokenizer.size)

    def draw(_: int, __: int) -> None:  # a third of it a block
        rows = language_model.temperature_log_probs(logits, 1.0)
        rows.gather(1, language_model._draw(rows, draws)[:, None])

    optimizer = Adam(model.parameters(), 0.0, betas=(0.9, 0.99), fused=False)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)

    def move() -> None:
        torch.nn.utils.clip_grad_norm_(list(model.parameters()), 1.0, foreach=True)
        optimizer.step()

    attention = language_model.causal_attention
    cases = {
        "write, attention": writing(
            lambda b, s: attention(query, room[b][0][:, :, : s + 1], room[b][1][:, :, : s + 1], seen[..., : s + 1])
        ),
        "write, GELU and norms": writing(
            lambda b, s: [F.gelu(wide), blocks[b].norm_attention(one), blocks[b].norm_network(one)]
        ),
        "write, keys and values": writing(lambda b, s: [language_model._append(part, query, s) for part in room[b]]),
        "write, drawing": writing(lambda b, s: draw(b, s) if b == 0 else None),
        "learn, attention": both_ways(
            lambda q, k, v: attention(q, k, v, may_look), heads(steps), heads(whole), heads(whole)
        ),
        "learn, GELU": both_ways(F.gelu, torch.randn(answers, steps, 4 * width)),
        "learn, norms": both_ways(
            lambda x: blocks[0].norm_network(blocks[0].norm_attention(x)), torch.randn(answers, steps, width)
        ),
        "learn, optimizer": move,
    }
    seconds, _ = common.cpu_seconds(cases, repeats)
    found: dict[str, dict[str, float]] = {"write": {}, "learn": {}}
    for name, times in seconds.items():
        part, _, term = name.partition(", ")
        found[part][term] = round(1e3 * statistics.median(times), 1)
    return found


def rows_of(found: dict[str, dict[str, float]]) -> str:
    names = sorted(
        {name for row in found.values() for name in row},
        key=["generate", "score", "train", "error", *WAYS, "product", "convolution"].index,
    )
    return common.table(
        [{"": key} | {name: f"{row[name]:g}" if name in row else "" for name in names} for key, row in found.items()]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--peers", help="a folder with transformers, trl and what they need")
    parser.add_argument("--grpo", action="store_true", help="the roofline and what it needs; the rest stays as stored")
    options = parser.parse_args()
    if options.peers:
        sys.path.append(options.peers)
    use_threads(1)
    peers = ["transformers", "trl"] if options.peers else []
    machine = common.machine(["torch", "numpy", *peers]) | {"load": round(os.getloadavg()[0], 1)}
    record: dict[str, Any] = {"machine": machine, "convolutions": bool(LIBRARY)}
    if options.grpo:
        record = json.loads((common.RESULTS / "tokens.json").read_text()) | {"roofline_machine": machine}
        reached = rates(options.repeats, False, ("library",))["library"]
    else:
        record["tokens_per_cpu_second"] = rates(options.repeats, bool(options.peers))
        record["gflops"] = layer_speeds(options.repeats)
        print(rows_of(record["tokens_per_cpu_second"]), rows_of(record["gflops"]), sep="\n\n", flush=True)
        reached = dict(record["tokens_per_cpu_second"]["library"])
    if options.peers:
        record["grpo_tokens_per_cpu_second"] = beside_trl(range(5))
        for name in ("ratio", "llama_ratio"):
            middle = statistics.median(row[name] for row in record["grpo_tokens_per_cpu_second"])
            record[f"grpo_{name}"] = round(middle, 2)
        print(json.dumps(record["grpo_tokens_per_cpu_second"]), record["grpo_ratio"])
        for name, column in (("grpo", "library"), ("trl", "trl")):
            reached[name] = statistics.median(row[column] for row in record["grpo_tokens_per_cpu_second"])
    record["roofline"] = roofline(options.repeats, reached)
    record["terms_in_milliseconds"] = terms(options.repeats)
    print(json.dumps({key: record[key] for key in ("roofline", "terms_in_milliseconds")}, indent=1))
    common.save("tokens", record)


if __name__ == "__main__":
    main()
