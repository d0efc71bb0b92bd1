"""A small language model: characters in, next-character probabilities out, and sampling from them (chapter 11).

A batch of B prompts of different lengths is padded on the LEFT, so that all prompts end in the same column
and the completions start side by side:

    tokens            mask
    . . 4 1 =  1 4 $  0 0 1 1 1  1 1 1
    9 0 9 2 =  0 2 9  1 1 1 1 1  1 1 1

P is the width of the padded prompts, N the number of completion columns, V the size of the vocabulary. A mask
is True at real tokens. Padding is never looked at: positions are counted from the first real token, and
attention skips masked columns. A completion ends with the end-of-sequence token, which belongs to it; the
columns after it are padding.

Everything that samples or trains talks to a model through five things, which ``Transformer`` has and which
``HuggingFaceModel`` gives to any causal language model of that library: ``hidden``, ``predicting``, ``head``,
``prefill`` and ``decode``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rlbook_lib.checks import Array, Count, Flags, Floats, Integers, Mask, MaskedFloats, Positive, Seed
from rlbook_lib.checks import checked, settings

PerToken: TypeAlias = MaskedFloats[Array, "B N"]  # what stands at masked positions, NaN included, changes nothing
RealTokens: TypeAlias = Mask[Array, "B N"]  # True up to the end of sequence, which is included; no row empty

# --------------------------------------------------------------------------------------------- text to tokens


class CharTokenizer:
    """One token for each character (the first is 2), and two without: padding (0) and end of sequence (1)."""

    pad = 0
    eos = 1
    ends = (eos,)  # whichever of these is written ends a completion

    @checked
    def __init__(self, alphabet: str) -> None:
        if not alphabet or len(set(alphabet)) != len(alphabet):
            raise ValueError(f"alphabet is {alphabet!r}; expected one or more characters, each once")
        self.alphabet = alphabet
        self._token = {character: k + 2 for k, character in enumerate(alphabet)}

    @property
    def size(self) -> int:
        """How many tokens there are, padding and end of sequence included."""
        return len(self.alphabet) + 2

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; no end-of-sequence token is added, and an unknown character is a ValueError."""
        for place, character in enumerate(text):
            if character not in self._token:
                raise ValueError(
                    f"text {text!r} holds {character!r} at position {place}; expected characters of {self.alphabet!r}"
                )
        return [self._token[character] for character in text]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text up to the first end-of-sequence token; padding is left out."""
        written = itertools.takewhile(lambda token: token not in self.ends, tokens)
        return "".join(self.alphabet[token - 2] for token in written if token != self.pad)


@checked
def left_pad(
    sequences: Sequence[Sequence[int]], pad: int, device: str | torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """B sequences, none empty, as one batch whose rows all end in the last column: tokens (B, P) and mask (B, P)."""
    if not sequences:
        raise ValueError("sequences is empty; expected at least one prompt")
    for row, sequence in enumerate(sequences):
        if not sequence:
            raise ValueError(f"sequence {row} is empty; expected at least one token")
    width = max(len(sequence) for sequence in sequences)
    rows = [[pad] * (width - len(sequence)) + list(sequence) for sequence in sequences]
    mask = [[False] * (width - len(sequence)) + [True] * len(sequence) for sequence in sequences]
    return torch.tensor(rows, device=device), torch.tensor(mask, device=device)


# -------------------------------------------------------------------------------------------------- the model


class LanguageModel(Protocol):
    """What sampling and training ask of a model."""

    tokenizer: Any  # .pad, .eos, .ends, .size, .encode(text), .decode(tokens)
    max_length: int  # prompt and completion together, in tokens
    width: int  # D, of the hidden vectors

    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, L) tokens and mask to (B, L, D): the vector at column t has seen the columns up to t."""

    def predicting(self, tokens: Tensor, mask: Tensor, first: int) -> Tensor:
        """(B, L) tokens and mask to (B, L - first, D): the vectors that predict the columns from ``first`` on."""

    def head(self, hidden: Tensor) -> Tensor:
        """(..., D) to logits (..., V) for the NEXT token."""

    def prefill(self, tokens: Tensor, mask: Tensor, room: int) -> tuple[Tensor, Any]:
        """Read the prompts: logits (B, V) after the last column, and a cache with room for that many tokens."""

    def decode(self, tokens: Tensor, mask: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """One more token a row, (B,); mask (B, L) covers all columns so far, this one too. Logits (B, V), cache."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters, as of any torch module."""


@settings
class TransformerConfig:
    """The size of a Transformer."""

    width: Count = 64  #: D, of the vectors between the blocks; a multiple of heads; 896 in a 0.5B model
    layers: Count = 2  #: number of blocks
    heads: Count = 4  #: attention heads in a block
    max_length: Count = 64  #: the longest prompt and completion together, in tokens

    def check_together(self) -> None:
        """Each head gets as many columns."""
        if self.width % self.heads:
            raise ValueError(f"width is {self.width} and heads is {self.heads}; expected a multiple of heads")


@checked(arrays="tensors")
def causal_attention(
    query: Floats[Array, "B H T d"],
    key: Floats[Array, "B H S d"],
    value: Floats[Array, "B H S e"],
    mask: Flags[Array, "..."],
) -> Array:
    """Scaled dot-product attention: each query takes a weighted mean (B, H, T, e) of the values it may look at.

    Equation: eq-attention

    The mask broadcasts to (B, H, T, S), and is True where the query may look.

    Source: Vaswani et al. (2017), equation 1.
    """
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


class _Linear(nn.Linear):
    """A linear layer, by the faster of two ways to the same sums.

    A convolution whose kernel is one pixel wide is a linear layer on every pixel. PyTorch gives matrix products
    to MKL and convolutions to oneDNN. On AMD processors with AVX-512 MKL leaves half of each register empty and
    oneDNN does not: from about 256 rows of 128 numbers on it takes half the time (``tools/bench/tokens.py``). The two
    differ by rounding.
    """

    _found = torch.cpu.get_capabilities()
    _amd_with_avx512 = _found.get("avx512_f", False) and str(_found.get("cpu_name", "")).startswith("AMD")
    by_convolution = bool(torch.backends.mkldnn.is_available() and _amd_with_avx512)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        rows, narrow = x.numel() // self.in_features, min(self.in_features, self.out_features)
        if not self.by_convolution or x.device.type != "cpu" or x.dtype != torch.float32 or rows < 256 or narrow < 128:
            return super().forward(x)
        image = x.reshape(1, rows, 1, self.in_features).permute(0, 3, 1, 2)  # each row a pixel, nothing is moved
        # the dilation does nothing to a kernel of one pixel; without it PyTorch's own, slow code runs on one thread
        out = F.conv2d(image, self.weight[:, :, None, None], self.bias, dilation=2)
        return out.permute(0, 2, 3, 1).reshape(*x.shape[:-1], self.out_features)


class _Block(nn.Module):
    """One transformer block: attention, then a two-layer network, each added to what came in (pre-norm)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, self.heads = config.width, config.heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = _Linear(width, 3 * width)
        self.out = _Linear(width, width)
        self.norm_network = nn.LayerNorm(width)
        self.up = _Linear(width, 4 * width)
        self.down = _Linear(4 * width, width)

    def forward(
        self, x: Tensor, mask: Tensor, past: tuple[Tensor, Tensor] | None, start: int, asked: slice
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, steps, width = x.shape
        together = self.query_key_value(self.norm_attention(x))  # (B, T, 3 D)
        split = together.view(batch, steps, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # three times (B, H, T, d)
        if past is not None:  # look at all columns so far
            key, value = _append(past[0], key, start), _append(past[1], value, start)
        x = x[:, asked]  # the other columns were wanted for their keys and values only
        attended = causal_attention(query[:, :, asked], key, value, mask[:, :, asked])
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm_network(x)))), (key, value)


def _append(past: Tensor, new: Tensor, start: int) -> Tensor:
    """Columns of keys or values, (B, H, start, d) and (B, H, T, d), as one. Where there is room behind the past it is written into."""
    if past.shape[2] == start:
        return torch.cat([past, new], 2)
    end = start + new.shape[2]
    past[:, :, start:end] = new
    return past[:, :, :end]


# keys and values (B, H, columns, d) of the columns read so far, by block
_Cache: TypeAlias = list[tuple[Tensor, Tensor]]


class Transformer(nn.Module):
    """A decoder-only transformer with learned positions and no dropout.

    Without dropout the model that samples and the model that is trained are the same function, so the first
    probability ratio of an update is exactly 1. ``seed`` is of the initial weights.
    """

    @checked
    def __init__(self, tokenizer: CharTokenizer, config: TransformerConfig | None = None, *, seed: Seed) -> None:
        super().__init__()
        self.tokenizer, self.config = tokenizer, config or TransformerConfig()
        self.width, self.max_length = self.config.width, self.config.max_length
        with torch.random.fork_rng(devices=[]):  # the layers' own initialization draws, and is then overwritten
            self.embed_token = nn.Embedding(tokenizer.size, self.width)
            self.embed_position = nn.Embedding(self.max_length, self.width)
            self.blocks = nn.ModuleList(_Block(self.config) for _ in range(self.config.layers))
            self.norm = nn.LayerNorm(self.width)
            self.head = nn.Linear(self.width, tokenizer.size, bias=False)
        self._initialize(torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def _initialize(self, generator: torch.Generator) -> None:
        for name, parameter in self.named_parameters():
            if name.startswith("embed"):
                parameter.normal_(std=0.02, generator=generator)
            elif parameter.dim() == 2:
                parameter.normal_(std=1 / math.sqrt(parameter.shape[1]), generator=generator)
                if "out." in name or "down." in name:  # what is added to the stream: smaller the more blocks add
                    parameter.div_(math.sqrt(2 * self.config.layers))
            elif name.endswith("bias"):
                parameter.zero_()

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, L) tokens and mask to logits (B, L, V); column t predicts the token of column t + 1."""
        logits: Tensor = self.head(self.hidden(tokens, mask))
        return logits

    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, L) tokens and mask to hidden vectors (B, L, D)."""
        return self._read(tokens, mask)[0]

    def predicting(self, tokens: Tensor, mask: Tensor, first: int) -> Tensor:
        """(B, L) tokens and mask to (B, L - first, D): the vectors that predict the columns from ``first`` on."""
        last, cache = self._read_prompts(tokens[:, :first], mask[:, :first])
        if tokens.shape[1] == first + 1:
            return last
        return torch.cat([last, self._read(tokens[:, first:-1], mask[:, :-1], cache)[0]], 1)

    def prefill(self, tokens: Tensor, mask: Tensor, room: int) -> tuple[Tensor, _Cache]:
        """Read the prompts (B, P): logits (B, V) after the last column, and a cache with room for ``room`` more."""
        last, cache = self._read_prompts(tokens, mask)
        return self.head(last[:, -1]), [(F.pad(k, (0, 0, 0, room)), F.pad(v, (0, 0, 0, room))) for k, v in cache]

    def _read_prompts(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, _Cache]:
        """The last column's vectors (B, 1, D), and the cache. A prompt that several rows begin with is read once."""
        prompts, which = torch.unique(tokens.masked_fill(~mask, -1), dim=0, return_inverse=True)
        last, cache = self._read(prompts.clamp_min(0), prompts >= 0, asked=slice(-1, None))
        return last[which], [(keys[which], values[which]) for keys, values in cache]

    def decode(self, tokens: Tensor, mask: Tensor, cache: _Cache) -> tuple[Tensor, _Cache]:
        """One more token a row, (B,); mask (B, L) covers all columns so far. Logits (B, V) and the cache."""
        last, _ = self._read(tokens[:, None], mask, cache)
        return self.head(last[:, -1]), cache

    def _read(
        self, tokens: Tensor, mask: Tensor, cache: _Cache | None = None, asked: slice = slice(None)
    ) -> tuple[Tensor, _Cache]:
        """Hidden vectors of the columns asked for, and the cache with all; mask (B, S) covers the cached columns, too."""
        steps, columns = tokens.shape[1], mask.shape[1]
        start = columns - steps
        positions = _positions(mask)[:, start:]
        column = torch.arange(columns, device=tokens.device)  # (S,), and the queries' own (T, 1): no future
        own = column[start:, None]
        may_look = (mask[:, None, :] & (column <= own)) | (column == own)  # (B, T, S); padding sees itself, else NaN
        x, read = self.embed_token(tokens) + self.embed_position(positions), []
        for k, block in enumerate(self.blocks):
            kept = asked if k == len(self.blocks) - 1 else slice(None)
            x, columns_of_block = block(x, may_look[:, None], None if cache is None else cache[k], start, kept)
            read.append(columns_of_block)
        normed: Tensor = self.norm(x)
        return normed, read


def _positions(mask: Tensor) -> Tensor:
    """Counted from the first real token, so that padding on the left changes nothing."""
    return (mask.long().cumsum(1) - 1).clamp_min(0)


class HuggingFaceModel(nn.Module):
    """Any causal language model of the transformers library, behind the same methods.

    Args:
        model: a ``...ForCausalLM``, with ``base_model`` and output embeddings.
        tokenizer: its tokenizer, with an end-of-sequence token, which also pads (masked, so never seen) if none else does.
        max_length: the longest prompt and completion; default: the model's own limit.
    """

    @checked
    def __init__(self, model: Any, tokenizer: Any, max_length: Count | None = None) -> None:
        super().__init__()
        if not hasattr(model, "base_model") or getattr(model, "get_output_embeddings", lambda: None)() is None:
            raise TypeError(f"model is {type(model).__name__}; expected a causal language model of transformers")
        declared = getattr(getattr(model, "generation_config", None), "eos_token_id", None)  # none, one, or several
        ends = declared if isinstance(declared, list) else [] if declared is None else [declared]
        self.model, self.tokenizer = model, _HuggingFaceTokenizer(tokenizer, ends)
        self.width = int(model.config.hidden_size)
        self.max_length = max_length or int(getattr(model.config, "max_position_embeddings", 1 << 30))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, L) tokens and mask to logits (B, L, V)."""
        return self.head(self.hidden(tokens, mask))

    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, L) tokens and mask to hidden vectors (B, L, D)."""
        return self._read(tokens, mask, use_cache=False)[0]

    def predicting(self, tokens: Tensor, mask: Tensor, first: int) -> Tensor:
        """(B, L) tokens and mask to (B, L - first, D): the vectors that predict the columns from ``first`` on."""
        made_again = self.training and any(getattr(m, "gradient_checkpointing", False) for m in self.model.modules())
        last, cache = (None, None) if made_again else self._read_prompts(tokens[:, :first], mask[:, :first])
        if last is None or cache is None:  # activations are made again on the way back, or the model keeps no cache
            return self.hidden(tokens, mask)[:, first - 1 : -1]
        if tokens.shape[1] == first + 1:
            return last
        return torch.cat([last, self._read(tokens[:, first:-1], mask[:, :-1], past_key_values=cache)[0]], 1)

    def head(self, hidden: Tensor) -> Tensor:
        """(..., D) to logits (..., V)."""
        logits: Tensor = self.model.get_output_embeddings()(hidden)
        return logits

    def prefill(self, tokens: Tensor, mask: Tensor, room: int) -> tuple[Tensor, Any]:
        """Read the prompts (B, P): logits (B, V) after the last column, and the library's cache, which grows."""
        last, cache = self._read_prompts(tokens, mask)
        return self.head(last[:, -1]), cache

    def decode(self, tokens: Tensor, mask: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """One more token a row, (B,); mask (B, L) covers all columns so far. Logits (B, V) and the cache."""
        if cache is None:
            raise ValueError("the model keeps no cache; call model.eval(), or generate with use_cache=False")
        last, cache = self._read(tokens[:, None], mask, past_key_values=cache)
        return self.head(last[:, -1]), cache

    @checked
    def save(self, folder: str | Path) -> None:
        """Save the model and its tokenizer as transformers does; the folder is made where it is missing."""
        self.model.save_pretrained(folder)
        self.tokenizer.tokenizer.save_pretrained(folder)

    def _read_prompts(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Any]:
        """The last column's vectors (B, 1, D), and the cache. A prompt that several rows begin with is read once."""
        prompts, which = torch.unique(tokens.masked_fill(~mask, -1), dim=0, return_inverse=True)
        last, cache = self._read(prompts.clamp_min(0), prompts >= 0)
        if cache is not None:
            cache.reorder_cache(which)  # as beam search does
        return last[which, -1:], cache

    def _read(self, tokens: Tensor, mask: Tensor, use_cache: bool = True, **cache: Any) -> tuple[Tensor, Any]:
        """Hidden vectors of the tokens; mask (B, S) covers the cached columns, too. And the cache with these columns."""
        positions = _positions(mask)[:, mask.shape[1] - tokens.shape[1] :]
        output = self.model.base_model(
            input_ids=tokens, attention_mask=mask.long(), position_ids=positions, use_cache=use_cache, **cache
        )
        return output.last_hidden_state, getattr(output, "past_key_values", None)


class _HuggingFaceTokenizer:
    """The names that this book's code uses, over a tokenizer of transformers; ``ends`` are the model's, besides its own."""

    def __init__(self, tokenizer: Any, ends: Sequence[int] = ()) -> None:
        if tokenizer.eos_token_id is None:
            raise ValueError("tokenizer has no end-of-sequence token; set tokenizer.eos_token first")
        self.tokenizer, self.eos = tokenizer, int(tokenizer.eos_token_id)
        self.ends = tuple(sorted({self.eos, *ends}))
        self.pad = int(self.eos if tokenizer.pad_token_id is None else tokenizer.pad_token_id)
        begin = getattr(tokenizer, "bos_token_id", None)  # what every text of a Llama begins with, and of a Qwen not
        self.start = [begin] if begin is not None and list(tokenizer("a")["input_ids"])[:1] == [begin] else []

    @property
    def size(self) -> int:
        return len(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        kept = list(itertools.takewhile(lambda token: token not in self.ends, tokens))
        return str(self.tokenizer.decode(kept, skip_special_tokens=True))


@checked
def load_hugging_face(name_or_folder: str, *, device: str | torch.device = "cpu") -> HuggingFaceModel:
    """A pretrained causal language model without dropout, in float32, from a local folder or by its name on the hub.

    A hub name downloads once.

    Raises:
        ImportError: transformers is not installed; the message says how to install it.
        ValueError: what is there is not a whole model with its tokenizer; the cause says what transformers met.
    """
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise ImportError("loading pretrained models needs an extra package: pip install transformers") from error
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(name_or_folder, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(name_or_folder)
    except Exception as error:  # its kind depends on what is missing or damaged
        first = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"name_or_folder is {name_or_folder!r}; expected a causal language model with its tokenizer, as transformers "
            f"saves them ({type(error).__name__}: {first})"
        ) from error
    return HuggingFaceModel(model.to(device), tokenizer)


# --------------------------------------------------------------------------------------------------- sampling


@dataclass(frozen=True)
class Completions:
    """Prompts and what a model wrote after them."""

    prompts: list[str]  #: B texts
    prompt_tokens: Tensor  #: (B, P) int64, left padded
    prompt_mask: Tensor  #: (B, P) bool
    tokens: Tensor  #: (B, N) int64; padding after the end-of-sequence token
    mask: Tensor  #: (B, N) bool; True up to the end-of-sequence token, which is included
    log_probs: Tensor  #: (B, N) of the tokens when they were sampled, temperature included; 0 where masked
    texts: list[str]  #: B completions, without the end-of-sequence token
    finished: Tensor  #: (B,) bool; the end-of-sequence token was written, so the completion is not cut off

    @property
    def whole(self) -> tuple[Tensor, Tensor]:
        """(B, P + N) tokens and mask of prompts and completions together, as a model reads them."""
        return torch.cat([self.prompt_tokens, self.tokens], 1), torch.cat([self.prompt_mask, self.mask], 1)

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def lengths(self) -> Tensor:
        """(B,) tokens of each completion, end of sequence included."""
        return self.mask.sum(1)

    def take(self, rows: Tensor) -> Completions:
        """Some of the rows, cut to their longest completion."""
        width = int(self.mask[rows].sum(1).max())
        index = rows.tolist()
        return replace(
            self,
            prompts=[self.prompts[i] for i in index],
            texts=[self.texts[i] for i in index],
            prompt_tokens=self.prompt_tokens[rows],
            prompt_mask=self.prompt_mask[rows],
            tokens=self.tokens[rows, :width],
            mask=self.mask[rows, :width],
            log_probs=self.log_probs[rows, :width],
            finished=self.finished[rows],
        )


@checked
@torch.no_grad()
def generate(
    model: LanguageModel,
    prompts: Sequence[str],
    *,
    max_new_tokens: Count,
    temperature: Positive = 1.0,
    greedy: bool = False,
    seed: Seed = 0,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Completions:
    """Sample one completion for each prompt, token by token, until all have ended or the room is used up.

    Args:
        prompts: B texts, none empty.
        max_new_tokens: N, the most tokens a completion may have, end of sequence included.
        temperature: divides the logits; 1 samples the model itself.
        greedy: take the most probable token instead; log_probs are then still those of the temperature.
        seed: of the sampling; unused if a generator is given.
        generator: a torch generator on the model's device, to continue a stream of random numbers.
        use_cache: keep keys and values of the columns read so far. False reads everything again for each
            token: the same tokens, slower.

    Returns:
        The completions, cut to the longest of them.

    Raises:
        ValueError: no prompt, an empty prompt, a prompt that leaves no room, an unknown character.
    """
    device = next(model.parameters()).device
    prompt_tokens, prompt_mask = _encode_prompts(model, prompts, max_new_tokens, device)
    if generator is None:
        generator = torch.Generator(device).manual_seed(seed)

    batch, width = prompt_tokens.shape
    tokens = torch.full((batch, width + max_new_tokens), model.tokenizer.pad, device=device)  # (B, P + N)
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    tokens[:, :width], mask[:, :width] = prompt_tokens, prompt_mask
    log_probs = torch.zeros(batch, max_new_tokens, device=device)
    going = torch.ones(batch, dtype=torch.bool, device=device)  # not ended yet
    ends = torch.tensor(model.tokenizer.ends, device=device)  # end-of-sequence tokens: a Llama has three

    logits, cache = model.prefill(prompt_tokens, prompt_mask, max_new_tokens if use_cache else 0)
    for column in range(width, width + max_new_tokens):
        rows = temperature_log_probs(logits, temperature)  # (B, V)
        drawn = rows.argmax(1) if greedy else _draw(rows, generator)
        tokens[:, column] = torch.where(going, drawn, model.tokenizer.pad)
        log_probs[:, column - width] = rows.gather(1, drawn[:, None])[:, 0] * going
        mask[:, column] = going
        going &= (drawn[:, None] != ends).all(1)
        if column == width + max_new_tokens - 1 or not going.any():
            break
        so_far = slice(0, column + 1)
        if use_cache:
            logits, cache = model.decode(tokens[:, column], mask[:, so_far], cache)
        else:
            logits = model.head(model.hidden(tokens[:, so_far], mask[:, so_far])[:, -1])

    longest = int(mask[:, width:].sum(1).max())
    written, written_mask = tokens[:, width : width + longest], mask[:, width : width + longest]
    return Completions(
        prompts=list(prompts),
        prompt_tokens=prompt_tokens,
        prompt_mask=prompt_mask,
        tokens=written,
        mask=written_mask,
        log_probs=log_probs[:, :longest],
        texts=[model.tokenizer.decode(row) for row in written.tolist()],
        finished=~going,
    )


@checked
def encode_completions(model: LanguageModel, prompts: Sequence[str], texts: Sequence[str]) -> Completions:
    """Prompts with given completions (demonstrations, preference pairs) in the form that ``generate`` returns.

    The end-of-sequence token is added. log_probs are 0, for no model has sampled them.

    Raises:
        ValueError: lists of different lengths, an empty prompt, too long a text, an unknown character.
    """
    if len(prompts) != len(texts):
        raise ValueError(f"prompts has {len(prompts)} entries and texts {len(texts)}; expected the same number")
    device, tokenizer = next(model.parameters()).device, model.tokenizer
    rows = [[*tokenizer.encode(text), tokenizer.eos] for text in texts]
    longest = max((len(row) for row in rows), default=1)
    prompt_tokens, prompt_mask = _encode_prompts(model, prompts, longest, device)
    tokens = torch.tensor([row + [tokenizer.pad] * (longest - len(row)) for row in rows], device=device)
    mask = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows], device=device)
    return Completions(
        prompts=list(prompts),
        prompt_tokens=prompt_tokens,
        prompt_mask=prompt_mask,
        tokens=tokens,
        mask=mask,
        log_probs=torch.zeros(tokens.shape, device=device),
        texts=list(texts),
        finished=torch.ones(len(rows), dtype=torch.bool, device=device),
    )


def _encode_prompts(
    model: LanguageModel, prompts: Sequence[str], room: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Left-padded prompts (B, P) that leave room for the completion."""
    rows, start = [model.tokenizer.encode(prompt) for prompt in prompts], getattr(model.tokenizer, "start", [])
    for prompt, row in zip(prompts, rows):
        if not row:
            raise ValueError(f"prompt {prompt!r} is empty; expected at least one character")
        row[:0] = [] if row[: len(start)] == start else start  # a chat template has written it already
        if len(row) + room > model.max_length:
            raise ValueError(
                f"prompt {prompt!r} has {len(row)} tokens and the completion may have {room}; "
                f"expected at most {model.max_length} together"
            )
    return left_pad(rows, model.tokenizer.pad, device)


def _draw(log_probs: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row, (B, V) to (B,): the largest of p / Exponential(1) is distributed as p."""
    noise = torch.empty_like(log_probs).exponential_(generator=generator)
    return (log_probs - noise.log()).argmax(1)


# ------------------------------------------------------------------------------------------ log-probabilities

LOGITS_AT_ONCE = 2**26  # a table of 256 MiB in float32; the model of this book never makes as many


@checked(arrays="tensors")
def temperature_log_probs(logits: Floats[Array, "... V"], temperature: Positive = 1.0) -> Array:
    """Log-probabilities of the policy that divides the logits by a temperature: log softmax(z / temperature).

    Equation: eq-temperature

    In float32 at least: the sum of many bfloat16 exponentials would lose digits.
    """
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return F.log_softmax(exact / temperature, -1)


@checked
def completion_log_probs(
    model: LanguageModel, completions: Completions, temperature: Positive = 1.0, logits_at_once: Count = LOGITS_AT_ONCE
) -> tuple[Tensor, Tensor]:
    """Log-probability of each completion token, and the entropy of the distribution that it was drawn from.

    (B, N) each, 0 where masked; gradients flow. The temperature is that of the sampling. More logits than
    ``logits_at_once`` are never held together; those of a slice are made again on the way back.
    """
    hidden = model.predicting(*completions.whole, completions.prompt_tokens.shape[1])
    log_probs, entropies = _read_off(model, hidden, completions.tokens, temperature, logits_at_once)
    return log_probs.masked_fill(~completions.mask, 0.0), entropies.masked_fill(~completions.mask, 0.0)


def _read_off(
    model: LanguageModel, hidden: Tensor, tokens: Tensor, temperature: float, logits_at_once: int
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of tokens (B, N), and entropies, by the hidden vectors (B, N, D) that predict them."""

    def read(hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        rows = temperature_log_probs(model.head(hidden), temperature)  # (..., V)
        log_probs = rows.gather(-1, tokens[..., None])[..., 0]
        chances, least = rows.exp(), torch.finfo(rows.dtype).min  # a word that cannot come adds nothing: 0 log 0 = 0
        return log_probs, -(chances * rows.clamp_min(least)).sum(-1)

    at_once = max(1, logits_at_once // model.tokenizer.size)
    if tokens.numel() <= at_once:
        return read(hidden, tokens)
    slices = zip(hidden.flatten(0, 1).split(at_once), tokens.flatten().split(at_once))
    parts = [checkpoint(read, *part, use_reentrant=False, preserve_rng_state=False) for part in slices]
    log_probs, entropies = (torch.cat(part).view(tokens.shape) for part in zip(*parts))
    return log_probs, entropies


@checked(arrays="tensors")
def token_log_probs(
    model: LanguageModel,
    tokens: Integers[Array, "B L"],
    mask: Mask[Array, "B L"],
    temperature: Positive = 1.0,
    logits_at_once: Count = LOGITS_AT_ONCE,
) -> Array:
    """Log-probability of every token given those before it; gradients flow.

    Equation: eq-sequence-log-prob

    (B, L): entry t belongs to ``tokens[:, t]``. 0 where masked, and at the first real token, which
    nothing predicts. Its sum over a completion's columns is the log-probability of the completion.

    Raises:
        ValueError: a token that the vocabulary does not have.
    """
    tokens = torch.where(mask, tokens, model.tokenizer.pad)
    if int(tokens.min()) < 0 or int(tokens.max()) >= model.tokenizer.size:
        raise ValueError(f"tokens holds numbers of no token; expected whole numbers, 0 to {model.tokenizer.size - 1}")
    hidden = model.hidden(tokens, mask)[:, :-1]  # column t predicts the token of column t + 1
    found, _ = _read_off(model, hidden, tokens[:, 1:], temperature, logits_at_once)  # (B, L - 1)
    predicted = mask[:, 1:] & mask[:, :-1].cumsum(1).bool()  # real tokens with a real token before them
    return F.pad(found.masked_fill(~predicted, 0.0), (1, 0))


@checked(arrays="tensors")
def sequence_log_prob(log_probs: PerToken, mask: RealTokens) -> Array:
    """log pi(o | q), (B,): the sum of the log-probabilities of a completion's tokens.

    Equation: eq-sequence-log-prob
    """
    return log_probs.masked_fill(~mask, 0.0).sum(1)
