"""What the language-model chapters reach, and what it costs: supervised fine-tuning, GRPO, PPO, reward models, sampling speed.

    python tools/bench/language_model.py                     everything but the peer, seeds 0 to 4
    python tools/bench/language_model.py --only sft grpo     some parts
    python tools/bench/language_model.py --peers FOLDER      the peer's speed, too

CPU-seconds on one thread; evaluation is not counted. Accuracy is greedy, on 512 evaluation prompts, of which none is ever trained on. The
results go to ``results/language_model.json`` after every seed, and a second call goes on where the first one ended; ``--fresh`` starts anew.

The peer is TRL's GRPOTrainer on a model of the same size, with the same prompts, group and lengths. It is looked for in a folder of its
own, so that the book's environment stays as it is: ``pip install --target FOLDER trl==1.16.0`` (with torch and numpy left as they are:
``--no-deps`` and the packages that it then asks for).
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import common  # fixes the number of threads: before numpy and torch

import torch

from rlbook_lib.devices import use_threads
from rlbook_lib.fine_tuning import SFTConfig, iterate_sft
from rlbook_lib.training import frozen_copy
from rlbook_lib.grpo import GRPOConfig, iterate_grpo
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig, generate
from rlbook_lib.reward_model import RewardModel, iterate_reward_model, preference_accuracy
from rlbook_lib.rlhf import RLHFConfig, iterate_rlhf
from rlbook_lib.text_tasks import Sorting, evaluate_accuracy, hidden_score, preference_pairs, score_completions

TASK = Sorting()
BETAS = (0.0, 0.1, 0.3)
OVEROPTIMIZATION = GRPOConfig(updates=80, prompts=32, group=8, learning_rate=3e-4, scale="none")
FILE = common.RESULTS / "language_model.json"

# part -> what the book promises of it, as (name of the number, how the seeds are joined, sense, limit)
MARKS = {
    "sft": [("cpu_seconds", max, "<=", 40), ("accuracy", min, ">=", 0.25), ("accuracy", max, "<=", 0.50)],
    "grpo": [("cpu_seconds", max, "<=", 45), ("accuracy", min, ">=", 0.90), ("accuracy", statistics.mean, ">=", 0.94)],
    "grpo_long": [("cpu_seconds", max, "<=", 120), ("accuracy", statistics.mean, ">=", 0.98)],
    "rlhf": [("cpu_seconds", max, "<=", 90), ("accuracy", min, ">=", 0.93)],
    "reward_model": [("accuracy", min, ">=", 0.75)],
    "overoptimization": [
        ("true_change_at_0", statistics.mean, "<=", -0.5),
        ("model_change_at_0", statistics.mean, ">=", 0.5),
        ("best_true_change", statistics.mean, ">=", 0.0),
    ],
    "against_trl": [("ratio", statistics.median, ">=", 1.5)],
    "cache": [("ratio_10", statistics.median, ">=", 4.0), ("ratio_40", statistics.median, ">=", 8.0)],
}


def timed(updates: Any) -> tuple[float, list[dict[str, float]]]:
    """Run a trainer out: CPU-seconds and the metrics of each update."""
    begin = time.process_time()
    metrics = [update.metrics for update in updates]
    return time.process_time() - begin, metrics


def fine_tuned(seed: int, known: dict[int, Transformer] = {}) -> Transformer:  # noqa: B006  one model a seed, shared by all parts
    """A fresh copy of the supervised model of a seed."""
    if seed not in known:
        model = Transformer(CharTokenizer(TASK.alphabet), seed=seed)
        timed(iterate_sft(model, TASK, seed=seed))
        known[seed] = model
    copy = Transformer(CharTokenizer(TASK.alphabet), seed=seed)
    copy.load_state_dict(known[seed].state_dict())
    return copy


def sft(seed: int) -> dict[str, float]:
    model = Transformer(CharTokenizer(TASK.alphabet), seed=seed)
    seconds, _ = timed(iterate_sft(model, TASK, SFTConfig(), seed=seed))
    return {"cpu_seconds": seconds, "accuracy": evaluate_accuracy(model, TASK)}


def grpo(seed: int, updates: int = 80) -> dict[str, float]:
    model = fine_tuned(seed)
    before = evaluate_accuracy(model, TASK)
    begin, tokens = time.process_time(), 0
    for update in iterate_grpo(model, TASK, GRPOConfig(updates=updates), seed=seed):
        tokens = update.env_steps
    seconds = time.process_time() - begin
    return {"cpu_seconds": seconds, "before": before, "accuracy": evaluate_accuracy(model, TASK), "tokens": tokens}


def grpo_long(seed: int) -> dict[str, float]:
    return grpo(seed, updates=200)


def rlhf(seed: int) -> dict[str, float]:
    model = fine_tuned(seed)
    before = evaluate_accuracy(model, TASK)
    begin, tokens = time.process_time(), 0
    for update in iterate_rlhf(model, TASK, RLHFConfig(), seed=seed):
        tokens = update.env_steps
    seconds = time.process_time() - begin
    return {"cpu_seconds": seconds, "before": before, "accuracy": evaluate_accuracy(model, TASK), "tokens": tokens}


def trained_reward_model(seed: int) -> tuple[RewardModel, float]:
    model = fine_tuned(seed)
    pairs = preference_pairs(model, TASK, 600, seed=seed)
    reward_model = RewardModel(model)
    seconds, _ = timed(iterate_reward_model(reward_model, pairs, seed=seed))
    return reward_model, seconds


def reward_model(seed: int) -> dict[str, float]:
    model, seconds = trained_reward_model(seed)
    held_out = preference_pairs(fine_tuned(seed), TASK, 1000, seed=1000 + seed, split="eval")
    return {"cpu_seconds": seconds, "accuracy": preference_accuracy(model, held_out)}


def overoptimization(seed: int) -> dict[str, float]:
    """Both scores of samples before and after training against the reward model, at several prices of divergence."""
    judge, _ = trained_reward_model(seed)
    reference = frozen_copy(fine_tuned(seed))
    before, found = both_scores(reference, judge), {}
    for beta in BETAS:
        model = fine_tuned(seed)
        config = GRPOConfig(**{**OVEROPTIMIZATION.__dict__, "beta": beta})
        timed(iterate_grpo(model, TASK, config, seed=seed, reference=reference, reward=judge))
        after = both_scores(model, judge)
        found |= {f"true_change_at_{beta:g}": after[0] - before[0], f"model_change_at_{beta:g}": after[1] - before[1]}
    return found | {"best_true_change": max(found[f"true_change_at_{beta:g}"] for beta in BETAS)}


@torch.no_grad()
def both_scores(model: Transformer, judge: RewardModel) -> tuple[float, float]:
    """Mean hidden score and mean model's score of samples on 512 evaluation prompts."""
    import numpy as np

    prompts = TASK.prompts(512, np.random.default_rng(77), "eval")
    written = generate(model, prompts, max_new_tokens=TASK.max_new_tokens, seed=77)
    return float(score_completions(hidden_score, written).mean()), float(judge.scores(written).mean())


def cache(seed: int) -> dict[str, float]:
    """Tokens per CPU-second of sampling 512 completions, with the cache and without; no token ends a completion."""
    tokenizer = CharTokenizer(TASK.alphabet)
    model = Transformer(tokenizer, TransformerConfig(max_length=64), seed=seed)
    with torch.no_grad():
        model.head.weight[tokenizer.eos] = 0.0
        model.norm.bias.fill_(5.0)
        model.head.weight[tokenizer.eos] = -5.0
    prompts, found = ["1234567="] * 512, {}
    for tokens in (10, 40):
        rate = {}
        for use_cache in (True, False):
            begin = time.process_time()
            written = generate(model, prompts, max_new_tokens=tokens, seed=seed, use_cache=use_cache)
            assert int(written.mask.sum()) == 512 * tokens
            rate[use_cache] = 512 * tokens / (time.process_time() - begin)
        found |= {f"rate_{tokens}": rate[True], f"ratio_{tokens}": rate[True] / rate[False]}
    return found


ROUNDS, PROMPTS, GROUP, LONGEST = 5, 8, 8, 16  # of the comparison with the peer


def against_trl(seed: int) -> dict[str, float]:
    """Completion tokens per CPU-second of both trainers: about a million parameters, 8 prompts x 8 samples, at most 16 tokens."""
    ours, own = _our_rate(seed)
    theirs, size = _trl_rate(seed)
    return {"ours": ours, "trl": theirs, "ratio": ours / theirs, "parameters": own, "trl_parameters": size}


def memory_beside_trl(seed: int) -> dict[str, float]:
    """Peak resident memory of each trainer in a process of its own, in MB: in all, and above what the process had before training."""
    found = {}
    for side in ("ours", "trl"):
        command = [sys.executable, __file__, "--side", side, "--seeds", str(seed), "--peers", sys.path[-1]]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found |= {f"{side}_{name}": value for name, value in json.loads(said.splitlines()[-1]).items()}
    return found


def _one_side(side: str, seed: int) -> dict[str, float]:
    """What ``memory_beside_trl`` runs in a process of its own. The peer's packages are imported before the first look."""
    if side == "trl":
        from transformers import LlamaForCausalLM  # noqa: F401
        from trl import GRPOTrainer  # noqa: F401

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    {"ours": _our_rate, "trl": _trl_rate}[side](seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak_mb": peak, "training_mb": peak - before}


def _our_rate(seed: int, model: Any = None) -> tuple[float, int]:
    """Our trainer's tokens per CPU-second after one round, and the model's parameters; by default our own model."""
    task = _LongerAnswers(LONGEST)
    model = model or Transformer(
        CharTokenizer(task.alphabet), TransformerConfig(width=160, layers=3, heads=4), seed=seed
    )
    config = GRPOConfig(updates=ROUNDS + 1, prompts=PROMPTS, group=GROUP, minibatches=1, normalize="token", scale="std")
    marks = []
    for update in iterate_grpo(model, task, config, seed=seed):
        marks.append((time.process_time(), update.env_steps))  # the first round warms up
    rate = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
    return rate, sum(p.numel() for p in model.parameters())


class _LongerAnswers(Sorting):
    """Sorting with room for sixteen tokens and a reward that an untrained model gets some of."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        object.__setattr__(self, "_longest", longest)

    @property
    def max_new_tokens(self) -> int:
        return self._longest

    def reward(self, prompt: str, text: str, finished: bool) -> float:
        return float(sum(character in prompt for character in text)) / self._longest


def _trl_rate(seed: int) -> tuple[float, int]:
    """TRL's GRPOTrainer on a Llama of the same width and depth: tokens per CPU-second after one round, and its parameters."""
    import numpy as np
    import pyarrow as pa
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig as TrlConfig
    from trl import GRPOTrainer

    task = _LongerAnswers(LONGEST)
    words = {word: k for k, word in enumerate(["<pad>", "<eos>", *task.alphabet])}
    plain = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(words),
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
    marks: list[tuple[float, int]] = []

    def reward(prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        before = marks[-1][1] if marks else 0
        marks.append((time.process_time(), before + sum(map(len, completion_ids))))
        return [task.reward(p, c, True) for p, c in zip(prompts, completions)]

    rng = np.random.default_rng(seed)
    column = pa.table({"prompt": task.prompts(PROMPTS * (ROUNDS + 2), rng)})
    data = Dataset(InMemoryTable(column), fingerprint="prompts")  # named, so that nothing has to be hashed
    with tempfile.TemporaryDirectory() as folder:
        options = TrlConfig(
            output_dir=folder,
            per_device_train_batch_size=PROMPTS * GROUP,
            num_generations=GROUP,
            max_steps=ROUNDS + 1,
            max_completion_length=LONGEST,
            beta=0.0,
            learning_rate=5e-4,
            loss_type="bnpo",
            report_to=[],
            save_strategy="no",
            logging_steps=1000,
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            seed=seed,
        )
        GRPOTrainer(
            model=model, reward_funcs=reward, args=options, train_dataset=data, processing_class=tokenizer
        ).train()
    # from the first round's reward to the last one's: the same number of updates as of samplings
    rate = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
    return rate, sum(p.numel() for p in model.parameters())


PARTS: dict[str, Callable[[int], dict[str, float]]] = {
    "sft": sft,
    "cache": cache,
    "reward_model": reward_model,
    "grpo": grpo,
    "rlhf": rlhf,
    "overoptimization": overoptimization,
    "grpo_long": grpo_long,
    "against_trl": against_trl,
    "memory_beside_trl": memory_beside_trl,
}


def report(record: dict[str, Any]) -> str:
    """One line for each mark: what was asked, what was reached, seed by seed."""
    rows = []
    for part, marks in MARKS.items():
        seeds = record["parts"].get(part, {})
        for name, join, sense, limit in marks:
            values = [row[name] for row in seeds.values()]
            if not values:
                continue
            joined = join(values)
            held = joined <= limit if sense == "<=" else joined >= limit
            rows.append(
                {
                    "part": part,
                    "number": name,
                    "mark": f"{join.__name__} {sense} {limit:g}",
                    "reached": f"{joined:.3g}",
                    "held": "yes" if held else "NO",
                    "seeds": " ".join(f"{value:.3g}" for value in values),
                }
            )
    return common.table(rows) if rows else "nothing measured yet"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts to run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--peers", help="a folder with trl and what it needs, for the parts that name it")
    parser.add_argument("--side", choices=["ours", "trl"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peers:
        sys.path.append(options.peers)
    else:
        options.only = [part for part in options.only if not part.endswith("_trl")]
    use_threads(1)
    if options.side:
        print(json.dumps(_one_side(options.side, options.seeds[0])))
        return
    record: dict[str, Any] = {"parts": {}}
    if FILE.exists() and not options.fresh:
        record = json.loads(FILE.read_text())
    record["machine"] = common.machine(["torch", "numpy"])
    for seed in options.seeds:
        for part in options.only:
            done = record["parts"].setdefault(part, {})
            if str(seed) in done:
                continue
            done[str(seed)] = {name: round(value, 4) for name, value in PARTS[part](seed).items()}
            common.save("language_model", record)
            print(f"{part}, seed {seed}: {done[str(seed)]}", flush=True)
    print("\n" + report(record))


if __name__ == "__main__":
    main()
