"""GRPO on engines that others keep: one set of settings, under the names of TRL, verl and OpenRLHF (chapter 13).

``KNOBS`` is the table. What TRL is given is computed from it (``trl_arguments``), so that the table cannot lie; the names of
the others are for whoever moves on. Below it what the command asks of TRL's trainer: what a run needs, its checkpoints, an end
between two updates. The tables can be read without an engine.
"""

from __future__ import annotations

import importlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch

from rlbook_lib.checks import Count, Natural, Positive, Seed, checked, settings
from rlbook_lib.grpo import GRPOConfig, activation_memory
from rlbook_lib.training import interrupt_between_updates, learning_rate_share


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
    dtype: Literal["float32", "bfloat16"] = "float32"  #: of the arithmetic; weights that are trained stay in float32
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


@checked
def gradient_steps(config: EngineConfig) -> int:
    """Of one update: epochs times minibatches."""
    return config.epochs * config.minibatches


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
# fmt: off
KNOBS = (
    Knob("updates", ("max_steps", "logging_steps"), lambda c, n: (c.updates * gradient_steps(c), gradient_steps(c)),
         "trainer.total_training_steps", "num_episodes, max_samples", "TRL counts gradient steps"),
    Knob("prompts", ("generation_batch_size",), lambda c, n: (c.prompts * c.group,),
         "data.train_batch_size", "rollout_batch_size",
         "TRL counts answers, and takes each prompt once before one comes again"),
    Knob("group", ("num_generations",), lambda c, n: (c.group,), "rollout.n", "n_samples_per_prompt"),
    Knob("epochs", ("num_iterations",), lambda c, n: (c.epochs,), "actor.ppo_epochs", "max_epochs",
         "TRL cuts the minibatches once for all epochs"),
    Knob("minibatches", ("gradient_accumulation_steps",), lambda c, n: (_rows(c, n)[1],),
         "actor.ppo_mini_batch_size", "train_batch_size",
         "the others give the size, not the number; a minibatch of more than rows_at_once is accumulated"),
    Knob("rows_at_once", ("per_device_train_batch_size", "per_device_eval_batch_size"),
         lambda c, n: (_rows(c, n)[0],) * 2, "actor.ppo_micro_batch_size_per_gpu", "micro_train_batch_size"),
    Knob("learning_rate", ("learning_rate",), lambda c, n: (c.learning_rate,), "actor.optim.lr", "actor_learning_rate"),
    Knob("warmup", (), lambda c, n: (), "actor.optim.lr_warmup_steps", "lr_warmup_ratio", "set as a schedule"),
    Knob("final_share", (), lambda c, n: (), "actor.optim.min_lr_ratio", "-", "set as a schedule"),
    Knob("max_gradient_norm", ("max_grad_norm",), lambda c, n: (c.max_gradient_norm,), "actor.grad_clip", "max_norm"),
    Knob("clip", ("epsilon", "epsilon_high"), lambda c, n: c.clip,
         "actor.clip_ratio_low, clip_ratio_high", "eps_clip_low_high"),
    Knob("beta", ("beta",), lambda c, n: (c.beta,), "actor.use_kl_loss, kl_loss_coef", "use_kl_loss, init_kl_coef",
         "TRL weighs this term with the ratio unless use_bias_correction_kl=False, which is set"),
    Knob("kl", (), lambda c, n: (), "actor.kl_loss_type", "kl_estimator",
         "TRL has k3 only; another one is refused"),
    Knob("scale", ("scale_rewards",), lambda c, n: ("group" if c.scale == "std" else "none",),
         "algorithm.norm_adv_by_std_in_grpo; adv_estimator=rloo", "advantage_estimator=group_norm, dr_grpo, rloo",
         "leave_one_out is 'none' with reward_weights times G / (G - 1); TRL adds 1e-4 to the deviation, not 1e-6"),
    Knob("ddof", (), lambda c, n: (), "-", "-", "TRL and verl have 1 only; 0 is refused"),
    Knob("normalize", ("loss_type",),
         lambda c, n: ({"sequence": "grpo", "token": "dapo", "constant": "dr_grpo"}[c.normalize],),
         "actor.loss_agg_mode", "-",
         "dapo divides by the mean count of a round's minibatches, dr_grpo by max_completion_length"),
    Knob("temperature", ("temperature",), lambda c, n: (c.temperature,), "rollout.temperature", "temperature"),
    Knob("evaluate_every", ("eval_strategy", "eval_steps"),
         lambda c, n: ("steps" if c.evaluate_every else "no", (c.evaluate_every or 1) * gradient_steps(c)),
         "trainer.test_freq", "eval_steps", "TRL samples, this book's own loop is greedy"),
    Knob("max_new_tokens", ("max_completion_length",), lambda c, n: (c.max_new_tokens,),
         "data.max_response_length", "generate_max_len"),
    Knob("chat", (), lambda c, n: (), "-", "apply_chat_template", "TRL: prompts that are lists of messages"),
    Knob("lora_rank", (), lambda c, n: (), "model.lora_rank", "lora_rank", f"TRL: {ADAPTERS}"),
    Knob("dtype", ("bf16",), lambda c, n: (c.dtype == "bfloat16",), "rollout.dtype", "bf16"),
    Knob("vllm", ("use_vllm",), lambda c, n: (c.vllm,), "rollout.name", "vllm_num_engines"),
    Knob("seed", ("seed", "data_seed"), lambda c, n: (c.seed, c.seed), "-", "seed"),
    Knob("checkpoint_every", ("save_steps",), lambda c, n: (c.checkpoint_every * gradient_steps(c),),
         "trainer.save_freq", "save_steps"),
)
# fmt: on

# TRL's names for what an option of the command decides in another way than by handing that argument on.
ELSEWHERE = {
    "reward_weights": "reward", "output_dir": "output", "use_cpu": "device", "disable_tqdm": "quiet",
    "num_train_epochs": "updates", "steps_per_generation": "minibatches", "fp16": "dtype", "resume_from_checkpoint": "output",
    "warmup_steps": "warmup", "lr_scheduler_type": "final_share", "lr_scheduler_kwargs": "final_share",
}  # fmt: skip

# And names that TRL's own script has besides.
SCRIPT = {
    "model_name_or_path": "model", "dataset_name": "task", "reward_funcs": "reward", "use_peft": "lora_rank",
    "lora_r": "lora_rank",
}  # fmt: skip

# What no setting of ours decides, and TRL's defaults must not: they change between versions.
# fmt: off
FIXED: dict[str, Any] = {
    "optim": "adamw_torch", "adam_beta1": 0.9, "adam_beta2": 0.99, "adam_epsilon": 1e-8, "weight_decay": 0.0,
    # whatever the model's own generation_config says (TRL issue 5783)
    "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0, "generation_kwargs": None,
    "num_generations_eval": 1, "shuffle_dataset": True, "disable_dropout": True, "mask_truncated_completions": False,
    "use_bias_correction_kl": False, "importance_sampling_level": "token", "delta": None, "off_policy_mask_threshold": None,
    "top_entropy_quantile": 1.0, "entropy_coef": 0.0, "use_adaptive_entropy": False, "router_aux_loss_coef": 0.0,
    "multi_objective_aggregation": "sum_then_normalize", "sync_ref_model": False, "cast_lm_head_to_fp32": False,
    "vllm_mode": "colocate", "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask", "vllm_importance_sampling_clip_max": 3.0,
    "save_strategy": "steps", "save_total_limit": 2, "save_only_model": False, "gradient_checkpointing": False,
    "logging_strategy": "steps", "logging_nan_inf_filter": False, "report_to": "none", "ddp_find_unused_parameters": False,
}
# fmt: on

# TRL's other names: what it does by default stays, unless ``--trl`` says otherwise.
LEFT_ALONE = {
    "can change a result": """
        average_tokens_across_devices tf32 full_determinism torch_compile torch_compile_backend torch_compile_mode
        pad_to_multiple_of cache_implementation chat_template_kwargs model_init_kwargs neftune_noise_alpha optim_args
        optim_target_modules train_sampling_strategy dataloader_drop_last auto_find_batch_size ignore_data_skip
        max_tool_calling_iterations""",
    "of what is off": """
        sapo_temperature_neg sapo_temperature_pos vespo_k_pos vespo_k_neg vespo_lambda_pos vespo_lambda_neg
        entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target ref_model_mixup_alpha ref_model_sync_steps
        use_transformers_continuous_batching transformers_continuous_batching_config use_transformers_paged
        label_smoothing_factor length_column_name load_best_model_at_end metric_for_best_model greater_is_better""",
    "of vLLM": """
        vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex vllm_server_base_url vllm_server_host
        vllm_server_port vllm_server_timeout vllm_group_port vllm_gpu_memory_utilization vllm_max_model_length
        vllm_tensor_parallel_size vllm_importance_sampling_clip_min vllm_importance_sampling_cap""",
    "of several cards": """
        fsdp fsdp_config deepspeed ds3_gather_for_generation parallelism_config accelerator_config ddp_backend ddp_timeout
        ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph local_rank""",
    "of memory and speed": """
        gradient_checkpointing_kwargs activation_checkpointing activation_checkpointing_kwargs use_liger_kernel
        liger_kernel_config torch_empty_cache_steps bf16_full_eval fp16_full_eval eval_accumulation_steps use_cache
        dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor
        dataloader_multiprocessing_context dataloader_in_order enable_jit_checkpoint skip_memory_metrics""",
    "of logs, evaluation and the hub": """
        log_completions log_multimodal num_completions_to_print log_unique_prompts log_completions_hub_repo log_level
        log_level_replica log_on_each_node logging_first_step include_num_input_tokens_seen run_name project
        trackio_space_id trackio_bucket_id trackio_static_space_id eval_delay eval_on_start eval_do_concat_batches
        eval_use_gather_object prediction_loss_only include_for_metrics batch_eval_metrics save_on_each_node
        restore_callback_states_from_checkpoint push_to_hub hub_token hub_private_repo hub_model_id hub_strategy
        hub_always_push hub_revision trust_remote_code remove_unused_columns label_names debug do_train do_eval do_predict""",
}

# Names of a line of metrics.jsonl, and TRL's: the first nine are drawn.
# fmt: off
METRICS = {
    "reward": "reward", "accuracy": "accuracy",
    "length": "completions/mean_length", "truncated": "completions/clipped_ratio",
    "zero_variance": "frac_reward_zero_std", "entropy": "entropy", "clipped": "clip_ratio/region_mean",
    "gradient_norm": "grad_norm", "kl": "kl",
    "clipped_low": "clip_ratio/low_mean", "clipped_high": "clip_ratio/high_mean", "loss": "loss",
    "learning_rate": "learning_rate", "tokens": "num_tokens",
}

# When it does not learn: a metric, on which side of which limit its mean over the last updates lies, and what that says.
SYMPTOMS: tuple[tuple[str, Literal[">", "<"], float, str], ...] = (
    ("truncated", ">", 0.5, "{:.0%} of the answers are cut off and earn nothing: raise max_new_tokens, or ask for shorter "
     "answers"),
    ("zero_variance", ">", 0.8, "{:.0%} of the groups have equal rewards and teach nothing: take easier or harder prompts, "
     "a larger group, or a reward with more steps"),
    ("clipped", ">", 0.3, "{:.0%} of the tokens are clipped: lower the learning rate, or take fewer steps an update"),
    ("kl", ">", 1.0, "{:.2f} nats a token away from the reference: raise beta, or lower the learning rate"),
    ("entropy", "<", 0.02, "{:.3f} nats a token of entropy, so all answers to a prompt are the same: raise the upper clip "
     "or the temperature"),
    ("gradient_norm", ">", 100.0, "{:.0f} is the gradient's length: lower the learning rate, and look at the rewards"),
)
# fmt: on


@checked
def trl_arguments(config: EngineConfig, processes: Count = 1, weights: Sequence[float] = (1.0,)) -> dict[str, Any]:
    """What ``trl.GRPOConfig`` is given: each name in ``KNOBS`` and in ``FIXED``, and ``reward_weights``.

    The weights of the reward functions are stretched as ``scale`` wants it. ``processes`` share an update; where it cannot be
    shared evenly, there is a ValueError.
    """
    given = dict(FIXED)
    for knob in KNOBS:
        given |= dict(zip(knob.trl, knob.values(config, processes), strict=True))
    return given | {"reward_weights": [reward_stretch(config) * weight for weight in weights]}


@checked
def option_for(name: str) -> str | None:
    """The command's option for a name of TRL's: its own one, "trl" where none decides it, None where TRL has no such name."""
    decided = SCRIPT | ELSEWHERE | {name: knob.ours for knob in KNOBS for name in knob.trl}
    free = {*FIXED, *" ".join(LEFT_ALONE.values()).split()}
    return decided[name].replace("_", "-") if name in decided else "trl" if name in free else None


@checked
def other_arguments(given: Sequence[str]) -> dict[str, Any]:
    """Arguments for ``trl.GRPOConfig``, name=value each, from JSON or as a text; an option's, or none of TRL's, is a ValueError."""
    found = dict[str, Any]()
    for text in given:
        name, sign, value = text.partition("=")
        if (option := option_for(name)) not in (None, "trl"):
            raise ValueError(f"--trl {text}: {name} follows from --{option}")
        if not sign or option is None:
            raise ValueError(f"--trl {text}; expected name=value, an argument of trl.GRPOConfig")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


@checked
def learning_rate_schedule(config: EngineConfig) -> Callable[[int], float]:
    """The share of the learning rate at a gradient step, as ``training.learning_rate_share`` has it for an update."""
    last, steps = config.updates - 1, gradient_steps(config)
    return lambda step: learning_rate_share(min(step // steps, last), config.updates, config.warmup, config.final_share)


@checked
def trl_names() -> dict[str, list[str]]:
    """The command's options, and what each decides: the names that ``trl.GRPOConfig`` and TRL's own script have for it."""
    names = {knob.ours: list(knob.trl) for knob in KNOBS}
    for name, option in (ELSEWHERE | SCRIPT).items():
        names.setdefault(option, []).append(name)
    return names


@checked
def names_table(engine: Literal["TRL", "others"] = "TRL") -> str:
    """A table in Markdown of our names and TRL's, and below it what differs; or of our names, verl's and OpenRLHF's."""
    if engine == "others":
        rows = [["here", "verl", "OpenRLHF"], ["---"] * 3]
        rows += [[f"`{knob.ours}`", _code(knob.verl), _code(knob.openrlhf)] for knob in KNOBS]
    else:
        rows = [["here", "TRL"], ["---"] * 2]
        rows += [[f"`{ours}`", _code(", ".join(names) or "-")] for ours, names in trl_names().items()]
    table = ["| " + " | ".join(row) + " |" for row in rows]
    notes = [] if engine == "others" else ["", *(f"- `{k.ours}`: {k.differs}." for k in KNOBS if k.differs)]
    return "\n".join(table + notes)


def _code(names: str) -> str:
    return names if names == "-" else ", ".join(f"`{name}`" for name in names.split(", "))


@checked
def symptoms(lines: Sequence[Mapping[str, float]]) -> list[str]:
    """What is wrong with a run, in words: ``SYMPTOMS`` on the last five lines of its metrics; fewer say nothing.

    The lines are those of ``metrics.jsonl``, or of a history turned into rows.
    """
    found = []
    for name, side, limit, words in SYMPTOMS:
        values = [float(line[name]) for line in lines[-5:] if name in line]
        if len(values) == 5 and (fmean(values) > limit if side == ">" else fmean(values) < limit):
            found.append(words.format(fmean(values)))
    return found


# ------------------------------------------------------------------------------------------------- a run of TRL's trainer


@runtime_checkable
class Trainer(Protocol):
    """What is asked of ``trl.GRPOTrainer``."""

    model: Any
    args: Any
    accelerator: Any
    processing_class: Any
    is_fsdp_enabled: bool
    is_deepspeed_enabled: bool

    def add_callback(self, callback: Any) -> None:
        """Call this one, too, between gradient steps."""


@checked
def adapters(config: EngineConfig) -> Any:
    """What ``trl.GRPOTrainer`` takes as ``peft_config``: None without LoRA."""
    if not config.lora_rank:
        return None
    from peft import LoraConfig

    rank = config.lora_rank
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")


@checked
def foretold(trainer: Trainer, config: EngineConfig, longest: Count) -> str:
    """What a run will need, in words, if every answer is as long as it may be: memory by arithmetic, time by a trial.

    Args:
        trainer: of TRL, ready to train.
        longest: tokens of a prompt.
    """
    model, at, processes = trainer.model, trainer.accelerator.device, trainer.accelerator.num_processes
    rows, tokens = config.prompts * config.group // processes, longest + config.max_new_tokens
    at_once, size = trainer.args.per_device_train_batch_size, model.config.get_text_config()
    n, learns = model.num_parameters(), sum(p.numel() for p in model.parameters() if p.requires_grad)
    # float32 weights, and for those that learn a gradient and Adam's two means; a reference where there is no adapter to lift off
    models = 4 * n + 12 * learns + (4 * n if config.beta and not config.lora_rank else 0)
    parts = activation_memory(
        at_once * tokens,
        layers=size.num_hidden_layers,
        width=size.hidden_size,
        inner=getattr(size, "intermediate_size", None) or 4 * size.hidden_size,
        vocabulary=size.vocab_size,
        number_bytes=2 if config.dtype == "bfloat16" else 4,
        logits_at_once=4096 * size.vocab_size,  # TRL's slices
    )
    heads = getattr(size, "num_key_value_heads", None) or size.num_attention_heads
    head = getattr(size, "head_dim", None) or size.hidden_size // size.num_attention_heads
    keys, learning = rows * tokens * size.num_hidden_layers * 2 * heads * head * 4, sum(parts.values())
    said = (
        f"{n:,} parameters, {learns:,} of them learn; {processes} process(es), {at}. Memory of each, about: "
        f"{_size(models + max(learning, keys))} (models {_size(models)}; learning {_size(learning)}, of it logits "
        f"{_size(parts['logits'])}; writing {_size(keys)})."
    )
    if config.vllm or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        return said + " The time is not foretold with vLLM, FSDP or DeepSpeed."
    write, learn = _seconds_an_update(trainer, config, rows, longest)
    whole = config.updates * (write + learn)
    return (
        f"{said} Time, the computing alone, about: {write + learn:.3g} s an update (writing {write:.3g}, learning "
        f"{learn:.3g}), {f'{whole / 60:.2g} minutes' if whole < 3600 else f'{whole / 3600:.2g} hours'} in all."
    )


@torch.no_grad()
def _seconds_an_update(trainer: Trainer, config: EngineConfig, rows: int, longest: int) -> tuple[float, float]:
    """To write and to learn, by a trial: some tokens, and one pass over the rows that are read at once."""
    model, at, end = trainer.model.eval(), trainer.accelerator.device, trainer.processing_class.eos_token_id
    at_once = trainer.args.per_device_train_batch_size

    def seconds(work: Callable[[], Any]) -> float:
        began = time.perf_counter()
        work()
        if at.type == "cuda":
            torch.cuda.synchronize(at)
        return time.perf_counter() - began

    def write(count: int) -> float:
        asked = torch.full((rows, longest), end, device=at)
        how = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}
        return seconds(lambda: model.generate(input_ids=asked, attention_mask=torch.ones_like(asked), **how))

    with trainer.accelerator.autocast():
        write(1)
        first = write(1)
        writing = first + max(0.0, write(5) - first) / 4 * (config.max_new_tokens - 1)
        read = torch.full((at_once, longest + config.max_new_tokens), end, device=at)
        passes = 3 * config.epochs + (config.beta > 0) + (gradient_steps(config) > 1)
        return writing, seconds(lambda: model(input_ids=read)) * passes * rows / at_once


def _size(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e8 else f"{count / 1e6:.2g} MB"


@checked
def last_whole_checkpoint(folder: Path, processes: Count = 1, before: Count | None = None) -> Path | None:
    """The last checkpoint that every process wrote to its end; a kill in the middle of one costs the updates since the one before.

    Args:
        before: gradient steps; from a checkpoint of the last one transformers would take one more.
    """
    streams = ["rng_state.pth"] if processes == 1 else [f"rng_state_{number}.pth" for number in range(processes)]

    def whole(path: Path) -> bool:
        try:
            json.loads((path / "trainer_state.json").read_text("utf-8"))  # written last by process 0
        except (OSError, ValueError):
            return False
        return all((path / stream).exists() for stream in streams)

    found = {int(path.name.split("-")[1]): path for path in folder.glob("checkpoint-*")}
    steps = sorted(step for step in found if (before is None or step < before) and whole(found[step]))
    return found[steps[-1]] if steps else None


@checked
@contextmanager
def whole_or_nothing(folder: Path) -> Iterator[None]:
    """A folder that is written to its end, or removed, so that a full disk leaves room for another try.

    Raises:
        OSError: one sentence, whatever kind of error the library that was writing met.
    """
    try:
        yield
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        why = str(error).strip().partition("\n")[0]
        raise OSError(
            f"{folder} cannot be written ({why}); with more room the same command goes on from the checkpoint before"
        ) from error


@checked
@contextmanager
def stop_between_updates(trainer: Trainer, config: EngineConfig) -> Iterator[Callable[[], bool]]:
    """Ctrl-C in any process lets the update end and saves it; a second one stops at once. Whether it came."""
    base: Any = importlib.import_module("transformers").TrainerCallback

    class Stop(base):  # type: ignore[misc]
        came = False  # in any process

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % gradient_steps(config) == 0:
                flags = trainer.accelerator.gather(torch.tensor([here()], device=trainer.accelerator.device))
                if bool(flags.any()) and state.global_step < state.max_steps:
                    self.came = control.should_save = control.should_training_stop = True

    stop = Stop()
    trainer.add_callback(stop)
    with interrupt_between_updates() as here:
        yield lambda: stop.came
