"""GRPO on engines that others keep: one set of settings, under the names of TRL, verl and OpenRLHF (chapter 13).

``KNOBS`` is the table. What TRL is given is computed from it (``trl_arguments``), so that the table cannot lie; the names of
the others are for whoever moves on. Nothing here imports an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

from rlbook_lib.checks import Count, Natural, Positive, Seed, checked, settings
from rlbook_lib.grpo import GRPOConfig
from rlbook_lib.training import learning_rate_share


@settings
class EngineConfig(GRPOConfig):
    """Settings of GRPO for a pretrained model: other defaults than ``GRPOConfig``, and what sampling and saving need."""

    updates: Count = 200  #: rounds of sampling and training
    prompts: Count = 16  #: P, prompts a round; 8 to 512
    minibatches: Count = 1  #: gradient steps a pass; must divide P G
    rows_at_once: Natural = 8  #: answers that one process reads at once
    learning_rate: Positive = 1e-6  #: of AdamW at its highest; 1e-5 with LoRA
    ddof: Literal[0, 1] = 1  #: 1, the only one that TRL has
    max_new_tokens: Count = 512  #: longest answer; what has not ended there earns nothing
    chat: bool = False  #: put each prompt into the tokenizer's chat template, as an instruct model wants it
    lora_rank: Natural = 0  #: train low-rank adapters of this rank, not the weights; 0 trains the weights; 8 to 64
    dtype: Literal["float32", "bfloat16"] = (
        "float32"  #: of the arithmetic; the weights that are trained stay in float32
    )
    vllm: bool = False  #: sample with vLLM, where it is installed
    seed: Seed = 0  #: of prompts, sampling and adapters
    checkpoint_every: Count = 10  #: updates

    def check_together(self) -> None:
        """Minibatches fit, and TRL has what is asked for."""
        super().check_together()
        if self.beta > 0 and self.kl != "k3":
            raise ValueError(f"kl is {self.kl!r}, which TRL does not have; expected 'k3'")
        if self.scale == "std" and self.ddof == 0:
            raise ValueError("ddof is 0, which TRL does not have; expected 1: it divides by G - 1")


class Knob(NamedTuple):
    """One setting: its name here, the arguments of ``trl.GRPOConfig`` that it decides, and its names elsewhere."""

    ours: str
    trl: tuple[str, ...]
    values: Callable[[EngineConfig, int], tuple[Any, ...]]  # of config and processes: the values of those arguments
    verl: str
    openrlhf: str
    differs: str = ""  # what is not the same under the other name


@checked
def reward_stretch(config: EngineConfig) -> float:
    """What rewards are multiplied by so that R minus the group's mean is R minus the mean of the others: G / (G - 1)."""
    return config.group / (config.group - 1) if config.scale == "leave_one_out" else 1.0


def _steps(c: EngineConfig) -> int:
    """Gradient steps an update."""
    return c.epochs * c.minibatches


def _rows(c: EngineConfig, processes: int) -> tuple[int, int]:
    """Rows that a process reads at once, and how many times before a gradient step."""
    share, rest = divmod(c.prompts * c.group, c.minibatches * processes)
    if rest:
        raise ValueError(
            f"prompts * group is {c.prompts * c.group}; expected a multiple of minibatches * processes = "
            f"{c.minibatches * processes}"
        )
    at_once = next(n for n in range(min(c.rows_at_once or share, share), 0, -1) if share % n == 0)
    return at_once, share // at_once


ADAPTERS = "peft.LoraConfig(r=...), alpha twice the rank, all linear layers"
KNOBS = (
    Knob(
        "updates",
        ("max_steps", "logging_steps"),
        lambda c, n: (c.updates * _steps(c), _steps(c)),
        "trainer.total_training_steps",
        "num_episodes, max_samples",
        "TRL counts gradient steps",
    ),
    Knob(
        "prompts",
        ("generation_batch_size",),
        lambda c, n: (c.prompts * c.group,),
        "data.train_batch_size",
        "rollout_batch_size",
        "TRL counts answers, and takes each prompt once before one comes again",
    ),
    Knob("group", ("num_generations",), lambda c, n: (c.group,), "rollout.n", "n_samples_per_prompt"),
    Knob(
        "epochs",
        ("num_iterations",),
        lambda c, n: (c.epochs,),
        "actor.ppo_epochs",
        "max_epochs",
        "TRL cuts the minibatches once for all epochs",
    ),
    Knob(
        "minibatches",
        ("gradient_accumulation_steps",),
        lambda c, n: (_rows(c, n)[1],),
        "actor.ppo_mini_batch_size",
        "train_batch_size",
        "the others give the size, not the number",
    ),
    Knob(
        "rows_at_once",
        ("per_device_train_batch_size", "per_device_eval_batch_size"),
        lambda c, n: (_rows(c, n)[0],) * 2,
        "actor.ppo_micro_batch_size_per_gpu",
        "micro_train_batch_size",
    ),
    Knob("learning_rate", ("learning_rate",), lambda c, n: (c.learning_rate,), "actor.optim.lr", "actor_learning_rate"),
    Knob("warmup", (), lambda c, n: (), "actor.optim.lr_warmup_steps", "lr_warmup_ratio", "set as a schedule"),
    Knob("final_share", (), lambda c, n: (), "actor.optim.min_lr_ratio", "-", "set as a schedule"),
    Knob("max_gradient_norm", ("max_grad_norm",), lambda c, n: (c.max_gradient_norm,), "actor.grad_clip", "max_norm"),
    Knob(
        "clip",
        ("epsilon", "epsilon_high"),
        lambda c, n: c.clip,
        "actor.clip_ratio_low, clip_ratio_high",
        "eps_clip_low_high",
    ),
    Knob(
        "beta",
        ("beta",),
        lambda c, n: (c.beta,),
        "actor.use_kl_loss, kl_loss_coef",
        "use_kl_loss, init_kl_coef",
        "TRL weighs this term with the ratio unless use_bias_correction_kl=False, which is set",
    ),
    Knob("kl", (), lambda c, n: (), "actor.kl_loss_type", "kl_estimator", "TRL has k3 only; another one is refused"),
    Knob(
        "scale",
        ("scale_rewards", "reward_weights"),
        lambda c, n: ("group" if c.scale == "std" else "none", [reward_stretch(c)]),
        "algorithm.norm_adv_by_std_in_grpo; adv_estimator=rloo",
        "advantage_estimator=group_norm, dr_grpo, rloo",
        "leave_one_out is 'none' with rewards times G / (G - 1); TRL adds 1e-4 to the deviation, not 1e-6",
    ),
    Knob("ddof", (), lambda c, n: (), "-", "-", "TRL and verl have 1 only; 0 is refused"),
    Knob(
        "normalize",
        ("loss_type",),
        lambda c, n: ({"sequence": "grpo", "token": "dapo", "constant": "dr_grpo"}[c.normalize],),
        "actor.loss_agg_mode",
        "-",
        "dapo divides by the mean count of a round's minibatches, dr_grpo by max_completion_length",
    ),
    Knob("temperature", ("temperature",), lambda c, n: (c.temperature,), "rollout.temperature", "temperature"),
    Knob(
        "evaluate_every",
        ("eval_strategy", "eval_steps"),
        lambda c, n: ("steps" if c.evaluate_every else "no", (c.evaluate_every or 1) * _steps(c)),
        "trainer.test_freq",
        "eval_steps",
        "TRL samples, this book's own loop is greedy",
    ),
    Knob(
        "max_new_tokens",
        ("max_completion_length",),
        lambda c, n: (c.max_new_tokens,),
        "data.max_response_length",
        "generate_max_len",
    ),
    Knob("chat", (), lambda c, n: (), "-", "apply_chat_template", "TRL: prompts that are lists of messages"),
    Knob("lora_rank", (), lambda c, n: (), "model.lora_rank", "lora_rank", f"TRL: {ADAPTERS}"),
    Knob("dtype", ("bf16",), lambda c, n: (c.dtype == "bfloat16",), "rollout.dtype", "bf16"),
    Knob("vllm", ("use_vllm",), lambda c, n: (c.vllm,), "rollout.name", "vllm_num_engines"),
    Knob("seed", ("seed", "data_seed"), lambda c, n: (c.seed, c.seed), "-", "seed"),
    Knob(
        "checkpoint_every",
        ("save_steps",),
        lambda c, n: (c.checkpoint_every * _steps(c),),
        "trainer.save_freq",
        "save_steps",
    ),
)

# What no setting of ours decides, and TRL's defaults must not: they change between versions.
FIXED: dict[str, Any] = {
    "optim": "adamw_torch",
    "adam_beta1": 0.9,
    "adam_beta2": 0.99,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    # whatever the model's own generation_config says (TRL issue 5783)
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
    "repetition_penalty": 1.0,
    "generation_kwargs": None,
    "num_generations_eval": 1,
    "use_bias_correction_kl": False,
    "importance_sampling_level": "token",
    "delta": None,
    "off_policy_mask_threshold": None,
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "mask_truncated_completions": False,
    "multi_objective_aggregation": "sum_then_normalize",
    "router_aux_loss_coef": 0.0,
    "sync_ref_model": False,
    "cast_lm_head_to_fp32": False,
    "disable_dropout": True,
    "shuffle_dataset": True,
    "gradient_checkpointing": False,
    "vllm_mode": "colocate",
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0,
    "save_strategy": "steps",
    "save_total_limit": 2,
    "save_only_model": False,
    "logging_strategy": "steps",
    "logging_nan_inf_filter": False,
    "report_to": "none",
    "ddp_find_unused_parameters": False,
}

# Names of a line of metrics.jsonl, and TRL's: the first are those of ``train_grpo``.
METRICS = {
    "reward": "reward",
    "accuracy": "accuracy",
    "length": "completions/mean_length",
    "truncated": "completions/clipped_ratio",
    "zero_variance": "frac_reward_zero_std",
    "entropy": "entropy",
    "clipped": "clip_ratio/region_mean",
    "clipped_low": "clip_ratio/low_mean",
    "clipped_high": "clip_ratio/high_mean",
    "kl": "kl",
    "gradient_norm": "grad_norm",
    "loss": "loss",
    "learning_rate": "learning_rate",
    "tokens": "num_tokens",
}

# When it does not learn: a metric, on which side of which limit its mean over the last updates lies, and what that says.
SYMPTOMS: tuple[tuple[str, Literal[">", "<"], float, str], ...] = (
    (
        "truncated",
        ">",
        0.5,
        "{:.0%} of the answers are cut off and earn nothing: raise max_new_tokens, or ask for shorter answers",
    ),
    (
        "zero_variance",
        ">",
        0.8,
        "{:.0%} of the groups have equal rewards and teach nothing: take easier or harder prompts, a larger group, or a "
        "reward with more steps",
    ),
    ("clipped", ">", 0.3, "{:.0%} of the tokens are clipped: lower the learning rate, or take fewer steps an update"),
    ("kl", ">", 1.0, "{:.2f} nats a token away from the reference: raise beta, or lower the learning rate"),
    (
        "entropy",
        "<",
        0.02,
        "{:.3f} nats a token of entropy, so all answers to a prompt are the same: raise the upper clip or the temperature",
    ),
    ("gradient_norm", ">", 100.0, "{:.0f} is the gradient's length: lower the learning rate, and look at the rewards"),
)


@checked
def trl_arguments(config: EngineConfig, processes: Count = 1, weights: Sequence[float] = (1.0,)) -> dict[str, Any]:
    """What ``trl.GRPOConfig`` is given: one entry for each name in ``KNOBS`` and in ``FIXED``.

    Args:
        processes: that share an update.
        weights: of the reward functions.

    Raises:
        ValueError: an update cannot be shared evenly.
    """
    given = dict(FIXED)
    for knob in KNOBS:
        given |= dict(zip(knob.trl, knob.values(config, processes), strict=True))
    return given | {"reward_weights": [reward_stretch(config) * weight for weight in weights]}


@checked
def learning_rate_schedule(config: EngineConfig) -> Callable[[int], float]:
    """The share of the learning rate at a gradient step, as ``training.learning_rate_share`` has it for an update."""
    last, steps = config.updates - 1, _steps(config)
    return lambda step: learning_rate_share(min(step // steps, last), config.updates, config.warmup, config.final_share)


@checked
def names_table() -> str:
    """``KNOBS`` in Markdown: a table of our names, TRL's, verl's and OpenRLHF's, and below it what differs."""
    rows = [["here", "TRL", "verl", "OpenRLHF"], ["---"] * 4]
    rows += [[f"`{k.ours}`", _code(", ".join(k.trl) or "-"), _code(k.verl), _code(k.openrlhf)] for k in KNOBS]
    table = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*table, "", *(f"- `{k.ours}`: {k.differs}." for k in KNOBS if k.differs)])


def _code(names: str) -> str:
    return names if names == "-" else ", ".join(f"`{name}`" for name in names.split(", "))


@checked
def symptoms(lines: Sequence[Mapping[str, float]], over: Count = 5) -> list[str]:
    """What is wrong with a run, in words: ``SYMPTOMS`` on the last lines of its metrics.

    Args:
        lines: of ``metrics.jsonl``, or of a history turned into rows.
        over: how many; fewer say nothing.
    """
    found = []
    for name, side, limit, words in SYMPTOMS:
        values = [float(line[name]) for line in lines[-over:] if name in line]
        if len(values) == over and (fmean(values) > limit if side == ">" else fmean(values) < limit):
            found.append(words.format(fmean(values)))
    return found
