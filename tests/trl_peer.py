"""TRL's own GRPO loss on tensors of ours: its method is called on a stand-in trainer whose model returns our log-probabilities."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


def trl_loss(
    log_prob: Tensor,
    log_prob_old: Tensor,
    log_prob_ref: Tensor,
    advantages: Tensor,
    mask: Tensor,
    loss_type: str,
    beta: float,
) -> Tensor:
    """The loss of ``trl.GRPOTrainer`` for one batch that is also the whole generation batch."""
    from trl import GRPOTrainer

    def gather(x: Any) -> Any:
        return x

    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **options: (log_prob, torch.zeros_like(log_prob), None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        beta=beta,
        loss_type=loss_type,
        epsilon_low=0.2,
        epsilon_high=0.2,
        use_vllm=False,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        max_completion_length=log_prob.shape[1],
        _entropy_bonus_enabled=False,
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        accelerator=SimpleNamespace(
            num_processes=1, gather=gather, gather_for_metrics=gather, reduce=lambda x, reduction: x
        ),
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
    )
    whole = torch.ones_like(mask)
    inputs = {
        "prompt_ids": whole[:, :1],
        "prompt_mask": whole[:, :1],
        "completion_ids": whole,
        "completion_mask": mask.long(),
        "advantages": advantages,
        "old_per_token_logps": log_prob_old,
        "ref_per_token_logps": log_prob_ref,
        "num_items_in_batch": mask.sum(),
    }
    loss: Tensor = GRPOTrainer._compute_loss(trainer, None, inputs)
    return loss
