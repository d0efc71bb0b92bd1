"""The peak memory of a gradient step of GRPO, beside what ``grpo.training_memory`` and ``activation_memory`` foretell.

    python tools/bench/memory.py            three Llamas of transformers, on the CPU (needs the extra "pretrained")

Each size runs in a process of its own, whose allocator gives freed memory back at once (otherwise the peak is that of a heap with
holes). Two steps, so that Adam's means are there; the peak counts from what the process had with everything imported. When the
gradients grow, the activations shrink, so the models count with 12 bytes a weight, not 16. Writes ``results/memory.json``.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import common  # fixes the number of threads: before numpy and torch

import torch

from rlbook_lib.grpo import activation_memory, grpo_loss, training_memory
from rlbook_lib.language_model import Completions, HuggingFaceModel, completion_log_probs
from rlbook_lib.training import Adam, gradient_step

ROWS, PROMPT, ANSWER = 8, 64, 192
SIZES = {  # layers, width, inner, vocabulary
    "4 layers of 256": (4, 256, 1024, 1000),
    "4 layers of 512": (4, 512, 1408, 1000),
    "4 layers of 512, 32 thousand words": (4, 512, 1408, 32_000),
}


class Words:
    """As much of a tokenizer as counts here."""

    eos_token_id, pad_token_id = 1, 0

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def steps(layers: int, width: int, inner: int, words: int, rows: int, prompt: int, answer: int) -> int:
    """Two gradient steps; the model's parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = dict(num_hidden_layers=layers, hidden_size=width, intermediate_size=inner, vocab_size=words)
    model = HuggingFaceModel(LlamaForCausalLM(LlamaConfig(**size, num_attention_heads=width // 64)), Words(words))
    optimizer, whole = Adam(model.parameters(), 1e-6, fused=False), torch.ones(rows, answer, dtype=torch.bool)
    for _ in range(2):
        batch = Completions(
            prompts=["x"] * rows,
            prompt_tokens=torch.randint(2, words, (rows, prompt)),
            prompt_mask=torch.ones(rows, prompt, dtype=torch.bool),
            tokens=torch.randint(2, words, (rows, answer)),
            mask=whole,
            log_probs=torch.full((rows, answer), -5.0),
            texts=[""] * rows,
            finished=torch.ones(rows, dtype=torch.bool),
        )
        log_prob, _ = completion_log_probs(model, batch)
        loss = grpo_loss(log_prob, log_prob.detach(), torch.linspace(-1, 1, rows), whole, normalize="token")
        gradient_step(optimizer, loss, None, 1.0)
        del log_prob, loss
    return sum(p.numel() for p in model.parameters())


def peak() -> int:
    """Bytes, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    if len(sys.argv) > 1:
        steps(1, 64, 64, 16, 2, 2, 2)  # warm
        before = peak()
        parameters = steps(*SIZES[sys.argv[1]], ROWS, PROMPT, ANSWER)
        print(json.dumps({"parameters": parameters, "measured": peak() - before}))
        return
    found = {}
    for name, (layers, width, inner, words) in SIZES.items():
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
        done = subprocess.run(
            [sys.executable, __file__, name], check=True, env=environment, stdout=subprocess.PIPE, text=True
        )
        row = json.loads(done.stdout.splitlines()[-1])
        parts = activation_memory(ROWS * (PROMPT + ANSWER), layers=layers, width=width, inner=inner, vocabulary=words)
        models = training_memory(row["parameters"], frozen=0, weight_bytes=4, state_bytes=8)
        found[name] = {**row, "models": models, **parts, "foretold": models + sum(parts.values())}
        print(name, found[name], f"{found[name]['foretold'] / row['measured']:.2f}", flush=True)
    common.save("memory", {"machine": common.machine(["torch", "transformers"]), "sizes": found})


if __name__ == "__main__":
    main()
