"""What tests of language models share: a small model, a task, and one completion at a time in plain torch."""

import torch

from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig
from rlbook_lib.text_tasks import Sorting

torch.set_num_threads(1)


def small_model(seed: int = 0, alphabet: str = Sorting().alphabet) -> Transformer:
    return Transformer(CharTokenizer(alphabet), TransformerConfig(width=16, layers=1, heads=2), seed=seed)


def weights(model) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


class Letter:
    """Write "b": a bandit of one token and an end of sequence."""

    alphabet, max_new_tokens = "ab", 2

    def prompts(self, count, rng, split="train"):
        return ["a"] * count

    def demonstration(self, prompt, rng):
        return "a"

    def reward(self, prompt, text, finished):
        return float(text == "b" and finished)


def alone(model, completions, i, temperature=1.0):
    """Row i without padding: log-probabilities of its tokens (n,), the rows they come from (n, V), V's inputs (n + 1, D)."""
    prompt, written = (
        completions.prompt_tokens[i][completions.prompt_mask[i]],
        completions.tokens[i][completions.mask[i]],
    )
    tokens = torch.cat([prompt, written])[None]
    hidden = model.hidden(tokens, torch.ones_like(tokens, dtype=torch.bool))[0, len(prompt) - 1 :]
    rows = (model.head(hidden[:-1]) / temperature).log_softmax(-1)
    return rows[torch.arange(len(written)), written], rows, hidden


def descend(optimizer, loss, learning_rate, longest):
    """One step of torch's own optimizer down the gradient, shortened to a length; the length before."""
    optimizer.zero_grad()
    loss.backward()
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = sum(float((g**2).sum()) for g in gradients) ** 0.5
    for g in gradients:
        g *= min(1.0, longest / norm)
    optimizer.param_groups[0]["lr"] = learning_rate
    optimizer.step()
    return norm


def same_weights(one, other):
    """To seven digits, of models in float64 whose samples kept float32 log-probabilities."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.allclose(a, b, rtol=1e-6, atol=1e-7) for a, b in pairs)
