"""The tokenizer, the transformer, sampling and log-probabilities: cached against uncached, sampler against trainer, padded against plain."""

import itertools
import math
import shutil

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rlbook_lib.language_model import (
    _positions,
    CharTokenizer,
    Completions,
    HuggingFaceModel,
    Transformer,
    TransformerConfig,
    _Linear,
    causal_attention,
    completion_log_probs,
    encode_completions,
    generate,
    left_pad,
    load_hugging_face,
    sequence_log_prob,
    temperature_log_probs,
    token_log_probs,
)
from tests.tiny_llama import save_tiny_llama

PROMPTS = ["41=", "5=", "70713="]


def small_model(seed: int = 0, alphabet: str = "0123456789=", **size: int) -> Transformer:
    model = Transformer(
        CharTokenizer(alphabet), TransformerConfig(**{"width": 32, "layers": 2, "heads": 2, **size}), seed=seed
    )
    with torch.no_grad():  # sharper than at the start, so that a wrong mask or position shows
        model.head.weight *= 3
    return model


# ------------------------------------------------------------------------------------------------------ tokenizer


def test_what_is_added_to_the_stream_starts_smaller_the_more_blocks_add():
    """The last layer of each half of a block is drawn with 1 / sqrt(fan in) over sqrt(2 blocks), all others without that."""
    for name, weight in small_model(width=64, layers=3).named_parameters():
        if name.startswith("blocks") and weight.dim() == 2:
            adds = name.split(".")[2] in ("out", "down")
            expected = weight.shape[1] ** -0.5 / (6**0.5 if adds else 1)
            assert weight.std().item() == pytest.approx(expected, rel=0.05), name


def test_the_first_real_token_has_position_0_and_the_last_place_is_used():
    mask = torch.tensor([[False, False, True, True], [True, True, True, True]])
    assert _positions(mask).tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
    model = small_model(max_length=6)
    assert model(torch.zeros(1, 6, dtype=torch.long), torch.ones(1, 6, dtype=torch.bool)).shape[1] == 6


def test_encode_and_decode_are_inverse():
    tokenizer = CharTokenizer("abc")
    assert tokenizer.size == 5
    assert tokenizer.encode("cab") == [4, 2, 3]
    assert tokenizer.decode([4, 2, 3]) == "cab"


def test_decode_stops_at_the_end_of_sequence_and_skips_padding():
    tokenizer = CharTokenizer("abc")
    assert tokenizer.decode([tokenizer.pad, 2, tokenizer.eos, 3]) == "a"


def test_an_unknown_character_is_named_with_its_place():
    with pytest.raises(ValueError, match=r"'4x1='.*'x' at position 1"):
        CharTokenizer("0123456789=").encode("4x1=")


@pytest.mark.parametrize(("alphabet", "error"), [("", ValueError), ("aa", ValueError), (["a"], TypeError)])
def test_bad_alphabets(alphabet, error):
    with pytest.raises(error, match="alphabet"):
        CharTokenizer(alphabet)


def test_left_pad():
    tokens, mask = left_pad([[5], [6, 7, 8]], pad=0)
    assert tokens.tolist() == [[0, 0, 5], [6, 7, 8]]
    assert mask.tolist() == [[False, False, True], [True, True, True]]


@pytest.mark.parametrize("rows", [[], [[1], []]])
def test_left_pad_refuses_nothing(rows):
    with pytest.raises(ValueError, match="empty"):
        left_pad(rows, 0)


# ------------------------------------------------------------------------------------------------------ the model


@pytest.mark.equation("eq-attention")
def test_attention_is_the_softmax_weighted_mean():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64) for _ in range(3))
    mask = torch.ones(4, 4, dtype=torch.bool).tril()[None, None]
    found = causal_attention(query, key, value, mask)
    for b, h, t in itertools.product(range(2), range(3), range(4)):
        scores = [float(query[b, h, t] @ key[b, h, s]) / math.sqrt(5) for s in range(t + 1)]
        weights = [math.exp(x) / sum(map(math.exp, scores)) for x in scores]
        by_hand = sum(w * value[b, h, s] for s, w in enumerate(weights))
        assert torch.allclose(found[b, h, t], by_hand, atol=1e-12)


def test_a_later_token_changes_nothing_before_it():
    model = small_model()
    tokens = torch.tensor([[3, 4, 5, 6]])
    mask = torch.ones_like(tokens, dtype=torch.bool)
    changed = tokens.clone()
    changed[0, 3] = 9
    before, after = model(tokens, mask), model(changed, mask)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_padding_on_the_left_changes_nothing():
    model = small_model()
    plain = torch.tensor([[3, 4, 5]])
    padded = torch.tensor([[0, 0, 3, 4, 5]])
    garbage = torch.tensor([[7, 8, 3, 4, 5]])  # what stands at masked columns must not matter
    mask = torch.tensor([[False, False, True, True, True]])
    expected = model(plain, torch.ones_like(plain, dtype=torch.bool))
    for tokens in (padded, garbage):
        assert torch.allclose(model(tokens, mask)[:, 2:], expected, atol=1e-5)


def test_the_seed_decides_and_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    one, two, other = small_model(0), small_model(0), small_model(1)
    generate(one, PROMPTS, max_new_tokens=3, seed=0)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("shape", [(300, 1), (20, 15)])
def test_a_linear_layer_as_a_convolution_has_the_same_values_and_gradients(monkeypatch, shape):
    torch.manual_seed(0)
    layer, x = _Linear(128, 160), torch.randn(*shape, 128, requires_grad=True)
    weights, found = torch.randn(*shape, 160), {}
    for convolved in (False, True):
        monkeypatch.setattr(_Linear, "by_convolution", convolved)
        out = layer(x)
        assert ("Convolution" in str(_ancestors(out))) == convolved  # both ways are really taken
        gradients = torch.autograd.grad((out * weights).sum(), [x, layer.weight, layer.bias])
        found[convolved] = [out.detach(), *gradients]
    for plain, other in zip(found[False], found[True], strict=True):
        torch.testing.assert_close(other, plain, rtol=1e-5, atol=1e-4)


def _ancestors(tensor: torch.Tensor) -> list[str]:
    """The names of what a tensor was computed with, from last to first."""
    names, node = [], tensor.grad_fn
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return names


@pytest.mark.parametrize("change", [{"rows": 255}, {"inputs": 127}, {"outputs": 127}, {"dtype": torch.float64}])
def test_small_layers_and_other_types_stay_matrix_products(monkeypatch, change):
    monkeypatch.setattr(_Linear, "by_convolution", True)
    size = {"rows": 256, "inputs": 128, "outputs": 128, "dtype": torch.float32, **change}
    layer = _Linear(size["inputs"], size["outputs"], dtype=size["dtype"])
    out = layer(torch.ones(size["rows"], size["inputs"], dtype=size["dtype"]))
    assert "Convolution" not in str(_ancestors(out))


def test_a_large_model_is_the_same_function_either_way(monkeypatch):
    model = small_model(width=128, max_length=32)
    prompts, found = ["41=", "5="] * 130, {}
    for convolved in (False, True):
        monkeypatch.setattr(_Linear, "by_convolution", convolved)
        completions = generate(model, prompts, max_new_tokens=4, greedy=True)
        found[convolved] = completions.texts, completion_log_probs(model, completions)[0]
    assert found[False][0] == found[True][0]
    torch.testing.assert_close(found[True][1], found[False][1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [{"width": 30, "heads": 4}, {"layers": 0}, {"max_length": -1}])
def test_bad_sizes(size):
    with pytest.raises(ValueError, match=next(iter(size))):
        TransformerConfig(**size)


# ------------------------------------------------------------------------------------------------------- sampling


@pytest.mark.parametrize("greedy", [True, False])
def test_with_and_without_cache_the_same_tokens(greedy):
    model = small_model()
    runs = [generate(model, PROMPTS * 4, max_new_tokens=8, greedy=greedy, seed=3, use_cache=c) for c in (True, False)]
    assert torch.equal(runs[0].tokens, runs[1].tokens)
    assert torch.allclose(runs[0].log_probs, runs[1].log_probs, atol=1e-5)


def test_the_cache_is_allocated_once_for_the_longest_answer():
    model = small_model()
    tokens, mask = left_pad([[2, 3, 4], [5]], model.tokenizer.pad)
    with torch.no_grad():
        _, cache = model.prefill(tokens, mask, room=5)
        first = [(keys.data_ptr(), values.data_ptr()) for keys, values in cache]
        for _ in range(5):
            mask = torch.cat([mask, torch.ones(2, 1, dtype=torch.bool)], 1)
            logits, cache = model.decode(torch.tensor([6, 7]), mask, cache)
            tokens = torch.cat([tokens, torch.tensor([[6], [7]])], 1)
            torch.testing.assert_close(logits, model(tokens, mask)[:, -1], rtol=0, atol=1e-5)
    assert [(keys.data_ptr(), values.data_ptr()) for keys, values in cache] == first
    assert {keys.shape for keys, _ in cache} == {(2, 2, 3 + 5, 16)}


def test_a_prompt_alone_and_in_a_batch_gives_the_same_greedy_completion():
    model = small_model()
    together = generate(model, PROMPTS, max_new_tokens=6, greedy=True).texts
    assert together == [generate(model, [prompt], max_new_tokens=6, greedy=True).texts[0] for prompt in PROMPTS]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_sampling_and_training_give_the_same_log_probs(temperature):
    model = small_model()
    sampled = generate(model, PROMPTS * 5, max_new_tokens=8, temperature=temperature, seed=1)
    trained, _ = completion_log_probs(model, sampled, temperature)
    assert torch.allclose(trained, sampled.log_probs, atol=1e-5)


def test_a_prompt_that_rows_share_is_read_once_and_changes_nothing():
    """The vectors that predict an answer, and the gradient, against one pass over prompts and answers together."""
    model = small_model().double()
    sampled = generate(model, ["41=", "5=", "41=", "777=", "5=", "41="], max_new_tokens=7, seed=1)
    tokens, mask = sampled.whole
    first, read, found = sampled.prompt_tokens.shape[1], [], []
    model.embed_token.register_forward_hook(lambda _, given, out: read.append(out.shape[0] * out.shape[1]))
    weights = torch.randn(*sampled.tokens.shape, model.width, dtype=torch.float64)
    for hidden in (model.hidden(tokens, mask)[:, first - 1 : -1], model.predicting(tokens, mask, first)):
        real = hidden[sampled.mask]
        found.append((real, torch.autograd.grad((real * weights[sampled.mask]).sum(), list(model.blocks.parameters()))))
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)
    assert read == [6 * tokens.shape[1], 3 * first, 6 * (sampled.tokens.shape[1] - 1)]
    short = sampled.take(torch.tensor([0, 2]))
    for length in (1, 2):  # of the answers
        one = [
            torch.cat(found, 1)
            for found in ((short.prompt_tokens, short.tokens[:, :length]), (short.prompt_mask, short.mask[:, :length]))
        ]
        torch.testing.assert_close(
            model.predicting(*one, first), model.hidden(*one)[:, first - 1 : -1], rtol=0, atol=1e-12
        )


def test_training_mode_changes_nothing_so_the_first_ratio_is_one():
    model = small_model()
    sampled = generate(model, PROMPTS, max_new_tokens=6, seed=0)
    one = completion_log_probs(model.train(), sampled)[0]
    two = completion_log_probs(model.eval(), sampled)[0]
    assert torch.equal(one, two)
    assert torch.equal((one - one.detach()).exp(), torch.ones_like(one))


def test_samples_follow_the_model():
    model = small_model(alphabet="ab")
    tokens, mask = left_pad([model.tokenizer.encode("a")], model.tokenizer.pad)
    chances = model(tokens, mask)[0, -1].softmax(0)
    drawn = generate(model, ["a"] * 20_000, max_new_tokens=1, seed=0).tokens[:, 0]
    shares = torch.bincount(drawn, minlength=4) / len(drawn)
    error = (chances * (1 - chances) / len(drawn)).sqrt()
    assert ((shares - chances).abs() < 4.5 * error + 1e-9).all()


def test_the_completion_ends_with_the_end_of_sequence():
    model = small_model()
    found = generate(model, PROMPTS * 20, max_new_tokens=12, seed=2)
    eos, pad = model.tokenizer.eos, model.tokenizer.pad
    assert found.finished.any() and not found.finished.all()
    for row, mask, done in zip(found.tokens, found.mask, found.finished, strict=True):
        written = row[mask].tolist()
        assert (written[-1] == eos) == bool(done)
        assert eos not in written[:-1]
        assert set(row[~mask].tolist()) <= {pad}
    assert (found.log_probs[~found.mask] == 0).all()


def test_one_seed_one_sample_and_a_generator_goes_on():
    model = small_model()
    a, b, c = (generate(model, PROMPTS, max_new_tokens=8, seed=s).tokens.tolist() for s in (0, 0, 1))
    assert a == b != c
    stream = torch.Generator().manual_seed(0)
    first, second = (generate(model, PROMPTS, max_new_tokens=8, generator=stream).tokens.tolist() for _ in range(2))
    assert first == a != second


def test_the_global_model_mode_is_left_alone():
    model = small_model().train()
    generate(model, PROMPTS, max_new_tokens=2)
    assert model.training


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "empty"),
        (["4=", ""], {}, "prompt '' is empty"),
        (["4x="], {}, "'x' at position 1"),
        (["4" * 63 + "="], {}, "at most 64"),
        (["4="], {"max_new_tokens": 0}, "max_new_tokens"),
        (["4="], {"temperature": 0.0}, "temperature"),
        (["4="], {"temperature": math.nan}, "temperature"),
        (["4="], {"seed": -1}, "seed"),
    ],
)
def test_bad_input_to_generate(prompts, options, message):
    with pytest.raises(ValueError, match=message):
        generate(small_model(), prompts, **{"max_new_tokens": 4, **options})


def test_take_keeps_rows_together():
    model = small_model()
    whole = generate(model, PROMPTS * 4, max_new_tokens=8, seed=4)
    part = whole.take(torch.tensor([5, 2]))
    assert part.prompts == [whole.prompts[5], whole.prompts[2]]
    assert part.texts == [whole.texts[5], whole.texts[2]]
    width = part.tokens.shape[1]
    assert width == int(whole.lengths[[5, 2]].max())
    assert torch.equal(part.tokens, whole.tokens[[5, 2], :width])
    assert torch.allclose(completion_log_probs(model, part)[0], part.log_probs, atol=1e-5)


# --------------------------------------------------------------------------------------------- log-probabilities


def all_completions(model: Transformer, room: int) -> list[list[int]]:
    """Every completion of at most ``room`` tokens that ends, and every one that is cut off."""
    eos, characters = model.tokenizer.eos, [t for t in range(model.tokenizer.size) if t != model.tokenizer.eos]
    ended = [[*head, eos] for n in range(room) for head in itertools.product(characters, repeat=n)]
    return ended + [list(cut) for cut in itertools.product(characters, repeat=room)]


@pytest.mark.equation("eq-sequence-log-prob")
def test_the_chances_of_all_completions_sum_to_one():
    model = small_model(alphabet="ab", width=8).double()
    prompt = model.tokenizer.encode("ab")
    total = 0.0
    for completion in all_completions(model, room=3):
        tokens = torch.tensor([prompt + completion])
        log_probs = token_log_probs(model, tokens, torch.ones_like(tokens))
        total += log_probs[0, len(prompt) :].sum().exp().item()
    assert total == pytest.approx(1.0, abs=1e-12)


def test_sequence_log_prob_sums_the_real_tokens():
    log_prob = torch.tensor([[-1.0, -2.0, math.nan], [-0.5, math.inf, -7.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert sequence_log_prob(log_prob, mask).tolist() == [-3.0, -0.5]
    assert sequence_log_prob.__unchecked__(log_prob, mask.bool()).tolist() == [-3.0, -0.5]
    with pytest.raises(ValueError, match="mask has shape"):
        sequence_log_prob(log_prob, mask[:1])


def test_token_log_probs_agree_with_the_sampler_and_ignore_padding():
    model = small_model()
    sampled = generate(model, PROMPTS, max_new_tokens=6, seed=0)
    tokens = torch.cat([sampled.prompt_tokens, sampled.tokens], 1)
    mask = torch.cat([sampled.prompt_mask, sampled.mask], 1)
    found = token_log_probs(model, tokens, mask)
    width = sampled.prompt_tokens.shape[1]
    assert torch.allclose(found[:, width:], sampled.log_probs, atol=1e-5)
    assert (found[~mask] == 0).all()
    first = mask.long().argmax(1)
    assert (found[torch.arange(3), first] == 0).all()  # nothing predicts the first real token
    for garbage in (5, -100):  # no token at all, either
        assert torch.allclose(token_log_probs(model, torch.where(mask, tokens, garbage), mask), found, atol=1e-5)


@pytest.mark.parametrize(
    ("tokens", "mask", "message"),
    [
        (torch.tensor([2, 3]), torch.ones(2), "tokens has shape"),
        (torch.tensor([[2, 3]]), torch.ones(2), "mask has shape"),
        (torch.tensor([[2, 3], [2, 3]]), torch.tensor([[1, 1], [0, 0]]), "mask is empty in row 1"),
        (
            torch.tensor([[2, 99]]),
            torch.ones(1, 2),
            "tokens holds numbers of no token; expected whole numbers, 0 to 12",
        ),
    ],
)
def test_bad_input_to_token_log_probs(tokens, mask, message):
    with pytest.raises(ValueError, match=message):
        token_log_probs(small_model(), tokens, mask)


def test_entropies_are_those_of_the_rows():
    model = small_model()
    sampled = generate(model, PROMPTS, max_new_tokens=5, seed=0)
    _, entropies = completion_log_probs(model, sampled)
    tokens = torch.cat([sampled.prompt_tokens, sampled.tokens], 1)
    mask = torch.cat([sampled.prompt_mask, sampled.mask], 1)
    width = sampled.prompt_tokens.shape[1]
    rows = model(tokens, mask)[:, width - 1 : -1]
    expected = torch.distributions.Categorical(logits=rows).entropy()
    assert torch.allclose(entropies[sampled.mask], expected[sampled.mask], atol=1e-5)
    assert (entropies[~sampled.mask] == 0).all()


class LargestTable(TorchDispatchMode):
    """Watches every tensor that is made, on the way back too: the most numbers of those with V columns."""

    def __init__(self, words):
        super().__init__()
        self.words, self.most = words, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor) and x.dim() and x.shape[-1] == self.words:
                self.most = max(self.most, x.numel())
        return out


@pytest.mark.parametrize("logits_at_once", [1, 13 * 7, 13 * 40, 13 * 1000])
def test_logits_in_slices_give_the_same_numbers_and_gradients(logits_at_once):
    model = small_model().double()
    sampled = generate(model, PROMPTS * 5, max_new_tokens=6, seed=0)
    weight = torch.linspace(-1, 1, sampled.mask.numel(), dtype=torch.float64).view(sampled.mask.shape)

    def results(limit):
        model.zero_grad()
        with LargestTable(13) as table:
            log_probs, entropies = completion_log_probs(model, sampled, 0.7, limit)
            whole = token_log_probs(model, *sampled.whole, 0.7, limit)
            ((log_probs + entropies) * weight).sum().add(whole.square().sum()).backward()
        return [log_probs, entropies, whole, *(p.grad.clone() for p in model.parameters())], table.most

    found, most = results(logits_at_once)
    expected, full = results(2**26)
    assert most <= max(model.head.weight.numel(), logits_at_once) < full or logits_at_once >= full == most
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        assert not completion_log_probs(model, sampled, 0.7, logits_at_once)[0].requires_grad


def test_a_word_that_cannot_come_adds_nothing_to_the_entropy():
    model = small_model()
    never = torch.zeros(13).index_fill(0, torch.tensor([5, 9]), -math.inf)
    sampled = generate(model, PROMPTS, max_new_tokens=4, seed=0)
    sampled = Completions(**{**sampled.__dict__, "tokens": sampled.tokens.masked_fill(sampled.tokens % 4 == 1, 2)})
    rows = model(*sampled.whole)[:, sampled.prompt_tokens.shape[1] - 1 : -1] + never
    expected = torch.distributions.Categorical(rows.softmax(-1)).entropy() * sampled.mask
    model.head.register_forward_hook(lambda module, inputs, logits: logits + never)
    log_probs, entropies = completion_log_probs(model, sampled)
    assert torch.allclose(entropies, expected, atol=1e-5)
    (log_probs + entropies).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.equation("eq-temperature")
def test_temperature_is_a_power_of_the_probabilities():
    logits = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    for temperature in (0.3, 1.0, 2.5):
        powers = logits.softmax(0) ** (1 / temperature)
        assert torch.allclose(temperature_log_probs(logits, temperature).exp(), powers / powers.sum(), atol=1e-12)
    with pytest.raises(ValueError, match="temperature"):
        temperature_log_probs(logits, -1.0)


def test_bfloat16_logits_are_normalized_in_float32():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, 5000, generator=generator).bfloat16()
    found = temperature_log_probs(logits)
    assert found.dtype == torch.float32
    assert torch.allclose(found.exp().sum(1), torch.ones(64), atol=1e-4)
    exact = logits.double().log_softmax(1)
    assert (found - exact).abs().max() < 1e-4
    assert (logits.log_softmax(1).double() - exact).abs().max() > 1e-3  # what the float32 step avoids


def test_a_bfloat16_model_stays_near_its_float32_twin():
    model = small_model()
    sampled = generate(model, PROMPTS * 10, max_new_tokens=6, seed=0)
    half = small_model().bfloat16()
    error = (completion_log_probs(half, sampled)[0] - completion_log_probs(model, sampled)[0]).abs()
    assert 1e-4 < error.max() < 0.5


def test_encode_completions_has_the_end_of_sequence_and_the_texts():
    model = small_model()
    found = encode_completions(model, ["4=", "512="], ["4", "125"])
    assert [model.tokenizer.decode(row) for row in found.tokens.tolist()] == ["4", "125"]
    assert found.lengths.tolist() == [2, 4]
    assert found.finished.all()
    with pytest.raises(ValueError, match="same number"):
        encode_completions(model, ["4="], [])


def test_a_completion_ends_at_any_of_the_ends():
    """A Llama has an end of its turn and an end of the text."""
    model = small_model()
    model.tokenizer.ends = (1, 4)
    found = generate(model, PROMPTS * 20, max_new_tokens=6, seed=0)
    rows = [row[:n] for row, n in zip(found.tokens.tolist(), found.lengths.tolist())]
    assert {row[-1] for row, ended in zip(rows, found.finished.tolist()) if ended} == {1, 4}
    assert not any(
        token in (1, 4) for row, ended in zip(rows, found.finished.tolist()) for token in row[: len(row) - ended]
    )
    assert all("2" not in text for text in found.texts)  # token 4


def test_tokens_after_the_end_change_nothing():
    model = small_model()
    found = encode_completions(model, ["4=", "512="], ["4", "125"])
    garbage = Completions(**{**found.__dict__, "tokens": torch.where(found.mask, found.tokens, 7)})
    one, two = completion_log_probs(model, found)[0], completion_log_probs(model, garbage)[0]
    assert torch.equal(one, two)
    assert one[0, 1] != 0  # the end of sequence itself counts


# ------------------------------------------------------------------------------------------------- Hugging Face


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
    """A tiny model with its tokenizer, made on the spot and saved to a folder."""
    return save_tiny_llama(tmp_path_factory.mktemp("model"), "0123456789=")


def test_a_prompt_begins_as_the_tokenizer_would_begin_it(hugging_face):
    """A Llama's texts begin with a token of their own, once; a chat template has written it already."""
    from tokenizers.processors import TemplateProcessing

    model = load_hugging_face(str(hugging_face))
    tokenizer = model.tokenizer.tokenizer
    tokenizer.add_special_tokens({"bos_token": "<s>"})
    begin = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    again = HuggingFaceModel(model.model, tokenizer)
    for prompt in ("12=", "<s>12="):
        batch = encode_completions(again, [prompt], ["3"])
        assert batch.prompt_tokens.tolist() == [[begin, 3, 4, 12]] and batch.tokens.tolist() == [[5, 1]]
    assert encode_completions(model, ["12="], ["3"]).prompt_tokens.tolist() == [[3, 4, 12]]


def test_a_hugging_face_model_samples_and_trains_alike(hugging_face):
    model = load_hugging_face(str(hugging_face))
    assert isinstance(model, HuggingFaceModel)
    cached, plain = (generate(model, PROMPTS * 4, max_new_tokens=8, seed=0, use_cache=c) for c in (True, False))
    assert torch.equal(cached.tokens, plain.tokens)
    assert torch.allclose(completion_log_probs(model, cached)[0], cached.log_probs, atol=1e-5)
    alone = [generate(model, [prompt], max_new_tokens=6, greedy=True).texts[0] for prompt in PROMPTS]
    assert generate(model, PROMPTS, max_new_tokens=6, greedy=True).texts == alone


def test_a_hugging_face_model_reads_a_prompt_that_rows_share_once(hugging_face):
    """Log-probabilities and gradient against one pass over everything; a group of eight pays for its prompt once."""
    model, read, found = load_hugging_face(str(hugging_face)), [], []
    model.model.get_input_embeddings().register_forward_hook(lambda _, given, out: read.append(out[..., 0].numel()))
    prompts = [prompt for prompt in ("41=", "777777=") for _ in range(8)]
    sampled = generate(model, prompts, max_new_tokens=9, seed=1)
    columns = sampled.tokens.shape[1]
    assert read == [2 * 7] + [16] * (columns - 1)
    weights = torch.linspace(-1, 1, sampled.mask.numel()).view(sampled.mask.shape)
    for whole in (False, True):
        read.clear()
        log_probs, _ = completion_log_probs(model, sampled)
        assert read == ([16 * (7 + columns)] if whole else [2 * 7, 16 * (columns - 1)])
        assert torch.allclose(log_probs, sampled.log_probs, atol=1e-5)
        found.append((log_probs, torch.autograd.grad((log_probs * weights).sum(), list(model.parameters()))))
        model.train().model.activation_checkpointing_enable()  # which leaves no cache: everything in one pass
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="keeps no cache"):
        generate(model, prompts, max_new_tokens=9)
    model.eval()
    with torch.no_grad():
        one = [model.predicting(*(x[:, :8] for x in sampled.whole), 7), model.hidden(*sampled.whole)[:, 6:7]]
    torch.testing.assert_close(*one, rtol=0, atol=1e-5)  # answers of one token


def test_a_hugging_face_model_equals_its_own_logits(hugging_face):
    model = load_hugging_face(str(hugging_face))
    tokens = torch.tensor([model.tokenizer.encode("4127=")])
    mask = torch.ones_like(tokens, dtype=torch.bool)
    assert torch.allclose(model(tokens, mask), model.model(tokens).logits, atol=1e-6)


def test_a_folder_that_holds_no_whole_model_is_named(hugging_face, tmp_path):
    for name, keep in (
        ("tokenizer", lambda data: None),
        ("model.safetensors", lambda data: data[: len(data) // 2]),
        ("config", lambda data: None),
    ):
        damaged = shutil.copytree(hugging_face, tmp_path / name)
        for path in damaged.glob(f"{name}*"):
            data = keep(path.read_bytes())
            path.unlink() if data is None else path.write_bytes(data)
        with pytest.raises(
            ValueError, match=f"name_or_folder is '.*{name}'; expected a causal language model with its tokenizer"
        ):
            load_hugging_face(str(damaged))


def test_what_is_no_causal_model_is_refused():
    with pytest.raises(TypeError, match="causal language model"):
        HuggingFaceModel(torch.nn.Linear(2, 2), None)
