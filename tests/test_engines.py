"""Tests of rlbook_lib.engines: the table of names is the mapping, and TRL computes what our loss computes."""

import dataclasses
import math
import re

import pytest
import torch

from rlbook_lib.engines import (
    ELSEWHERE,
    FIXED,
    KNOBS,
    LEFT_ALONE,
    METRICS,
    SYMPTOMS,
    EngineConfig,
    learning_rate_schedule,
    names_table,
    other_arguments,
    reward_stretch,
    symptoms,
    trl_arguments,
)
from rlbook_lib.grpo_command import _parser, main
from rlbook_lib.grpo import GRPOConfig, group_advantages, grpo_loss
from rlbook_lib.training import learning_rate_share
from tests.tiny_llama import save_tiny_llama


def test_every_setting_is_a_row_of_the_table_and_every_row_is_printed():
    assert sorted(knob.ours for knob in KNOBS) == sorted(field.name for field in dataclasses.fields(EngineConfig))
    assert {field.name for field in dataclasses.fields(GRPOConfig)} <= {knob.ours for knob in KNOBS}
    table, notes = (part.splitlines() for part in names_table().split("\n\n"))
    ours = [knob.ours for knob in KNOBS]
    assert [row.split("`")[1] for row in table[2:]] == [*ours, "reward", "output", "device", "quiet", "model", "task"]
    assert {name for _, _, *names in (re.split(r"`(?:, )?`?", row) for row in table[2:]) for name in names} >= {
        name for knob in KNOBS for name in knob.trl
    } | set(ELSEWHERE)
    assert [note.split("`")[1] for note in notes] == [knob.ours for knob in KNOBS if knob.differs]
    others = names_table("others").splitlines()
    assert [row.split("`")[1] for row in others[2:]] == ours and all(row.count(" | ") == 2 for row in others)


def test_the_arguments_follow_from_the_settings():
    config = EngineConfig(
        updates=10, prompts=6, group=4, epochs=2, minibatches=3, rows_at_once=3, clip=(0.1, 0.3), beta=0.05, warmup=2
    )
    found = trl_arguments(config, processes=2, weights=[1.0, 0.5])
    wanted = {
        "max_steps": 60, "logging_steps": 6, "generation_batch_size": 24, "num_generations": 4, "num_iterations": 2,
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "epsilon": 0.1, "epsilon_high": 0.3,
        "beta": 0.05, "use_bias_correction_kl": False, "scale_rewards": "group", "reward_weights": [1.0, 0.5],
        "loss_type": "dapo", "save_steps": 60, "top_k": 0, "top_p": 1.0, "disable_dropout": True, "bf16": False,
    }  # fmt: skip
    assert wanted.items() <= found.items()
    assert not set(FIXED) & {name for knob in KNOBS for name in knob.trl}
    stretched = trl_arguments(EngineConfig(group=4, scale="leave_one_out"), weights=[1.0, 0.5])
    assert stretched["reward_weights"] == pytest.approx([4 / 3, 2 / 3]) and stretched["scale_rewards"] == "none"


def test_other_arguments_are_those_that_no_option_decides():
    found = other_arguments(["fsdp=full_shard", "top_p=0.9", 'chat_template_kwargs={"enable_thinking": false}'])
    assert found == {"fsdp": "full_shard", "top_p": 0.9, "chat_template_kwargs": {"enable_thinking": False}}
    for name, option in {**ELSEWHERE, "epsilon": "clip", "num_iterations": "epochs"}.items():
        with pytest.raises(ValueError, match=f"{name} follows from --{option.replace('_', '-')}$"):
            other_arguments([f"{name}=1"])


def test_a_name_of_trl_is_answered_with_the_option_it_has_here(capsys):
    base = "--model none --task none --output none".split()
    words = {"--num_generations": "--group", "--num-iterations=2": "--epochs", "--epsilon_high": "--clip"}
    words |= {"--lora_r": "--lora-rank", "--model_name_or_path": "--model", "--top_k": "--trl"}
    for word, option in words.items():
        with pytest.raises(SystemExit):
            main([*base, word, "1"])
        assert f": error: {word.partition('=')[0]} is {option} here" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*base, "--num_generations", "8", "--max_completion_length=4"])
    said = capsys.readouterr().err
    assert said.endswith("--num_generations is --group here; --max_completion_length is --max-new-tokens here\n")
    assert said.count("\n") == 2  # usage, and this
    names = {name for knob in KNOBS for name in knob.trl} | {
        n for n, o in ELSEWHERE.items() if hasattr(EngineConfig(), o)
    }
    assert names <= set(re.findall(r"\w+", _parser().format_help()))
    with pytest.raises(SystemExit):
        main([*base, "--nonsense", "1"])
    assert capsys.readouterr().err.endswith("error: unrecognized arguments: --nonsense 1\n")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ddof": 0}, "ddof is 0"),
        ({"beta": 0.1, "kl": "k2"}, "kl is 'k2'"),
        ({"minibatches": 3, "prompts": 4}, "minibatches is 3"),
        ({"prompts": 3, "group": 3}, "expected a multiple of minibatches \\* processes = 2"),
    ],
)
def test_what_trl_does_not_have_is_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        trl_arguments(EngineConfig(**settings), processes=2)


def test_the_schedule_is_that_of_the_update_a_step_belongs_to():
    config = EngineConfig(updates=8, minibatches=2, epochs=3, warmup=3, final_share=0.2)
    share = learning_rate_schedule(config)
    assert [share(step) for step in range(50)] == [
        learning_rate_share(min(step // 6, 7), 8, 3, 0.2) for step in range(50)
    ]


def test_stretched_rewards_measure_from_the_mean_of_the_others():
    rewards = torch.rand(3, 5, dtype=torch.float64)
    stretched = reward_stretch(EngineConfig(group=5, scale="leave_one_out")) * rewards
    wanted = group_advantages(rewards, "leave_one_out")
    assert torch.allclose(group_advantages(stretched, "none"), wanted, atol=1e-12)
    assert reward_stretch(EngineConfig(group=5)) == 1.0


def test_a_symptom_is_said_in_words_and_only_where_it_lasts():
    well = {"truncated": 0.1, "zero_variance": 0.3, "clipped": 0.05, "kl": 0.02, "entropy": 0.5, "gradient_norm": 0.8}
    ill = {"truncated": 0.9, "zero_variance": 0.95, "clipped": 0.5, "kl": 3.0, "entropy": 0.001, "gradient_norm": 500.0}
    assert symptoms([well] * 9) == [] and symptoms([ill] * 4) == []
    assert len(symptoms([well] * 4 + [ill] * 5)) == len(SYMPTOMS) == 6
    assert symptoms([well | {"truncated": 0.9}] * 5) == [
        "90% of the answers are cut off and earn nothing: raise max_new_tokens, or ask for shorter answers"
    ]


# --------------------------------------------------------------------------------------------------- beside the engine

pytestmark = pytest.mark.filterwarnings("ignore")  # what the engine's packages say about each other


def test_each_argument_of_trl_stands_in_one_table_and_no_other_does():
    trl = pytest.importorskip("trl", reason="an optional engine")
    tables = [[name for knob in KNOBS for name in knob.trl], FIXED, ELSEWHERE, *map(str.split, LEFT_ALONE.values())]
    names = [name for table in tables for name in table]
    known = {field.name for field in dataclasses.fields(trl.GRPOConfig)}
    assert set(names) == known, "TRL has other arguments now: which of them change a result?"
    assert len(names) == len(known)
    assert set(trl_arguments(EngineConfig())) < known
    options = {name.replace("-", "_") for name in re.findall(r"--([a-z-]+)", _parser().format_help())}
    assert {*ELSEWHERE.values(), *(knob.ours for knob in KNOBS)} <= options
    assert set(METRICS.values()) >= {"frac_reward_zero_std", "completions/clipped_ratio"}


@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("normalize", ["sequence", "token", "constant"])
def test_a_batch_of_the_engine_has_our_loss_and_gradient(tmp_path, beta, normalize):
    """TRL's trainer samples and takes steps; the last minibatch of an update, where the ratio is not 1, is compared."""
    trl, datasets = (pytest.importorskip(name, reason="an optional engine") for name in ("trl", "datasets"))
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = save_tiny_llama(tmp_path / "llama", "0123456789+=")
    config = EngineConfig(
        updates=1, prompts=4, group=4, minibatches=2, rows_at_once=0, learning_rate=3e-3, warmup=0, clip=(0.2, 0.28),
        beta=beta, normalize=normalize, temperature=0.7, max_new_tokens=6,
    )  # fmt: skip
    seen = []

    class Trainer(trl.GRPOTrainer):
        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            seen.append((loss, inputs, {n: p.detach().clone() for n, p in model.named_parameters()}))
            return loss

        def training_step(self, model, inputs, num_items_in_batch=None):
            out = super().training_step(model, inputs, num_items_in_batch)
            seen[-1] += ({n: p.grad.clone() for n, p in model.named_parameters()},)
            return out

    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=trl.GRPOConfig(str(tmp_path / "run"), use_cpu=True, disable_tqdm=True, **trl_arguments(config)),
        processing_class=AutoTokenizer.from_pretrained(folder),
        train_dataset=datasets.Dataset.from_dict({"prompt": ["1+2=", "3+14=", "5+6=", "7+8="]}),
        reward_funcs=lambda completions, **_: [float(len(set(text))) for text in completions],
    )
    trainer.train()
    loss, inputs, weights, gradient = seen[-1]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.load_state_dict(weights, strict=False)
    tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    written = inputs["completion_mask"].bool()
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    logits = model(input_ids=tokens, attention_mask=mask, position_ids=positions).logits / config.temperature
    rows = logits[:, -written.shape[1] - 1 : -1].log_softmax(-1)
    log_prob = rows.gather(-1, inputs["completion_ids"][..., None])[..., 0]
    # the divisors that differ, as the table says: dapo's is the round's count over its minibatches
    divisor = {"sequence": None, "constant": len(written) * 6.0, "token": float(inputs["num_items_in_batch"]) / 2}
    ours = grpo_loss(
        log_prob, inputs["old_per_token_logps"], inputs["advantages"], written, clip=config.clip, beta=beta,
        log_prob_ref=inputs["ref_per_token_logps"] if beta else None, normalize=normalize, denominator=divisor[normalize],
    )  # fmt: skip
    ours.backward()
    assert not torch.equal(log_prob, inputs["old_per_token_logps"])  # a step was taken in between
    assert math.isclose(float(ours), float(loss), abs_tol=2e-7)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradient[name], rtol=0, atol=5e-6)
