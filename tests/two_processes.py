"""The command with answers that follow from the prompts, so that runs can be compared that draw in another order.

torchrun --nproc-per-node 2 -m tests.two_processes --model ...        (what tests/test_grpo_command.py starts)
"""

import sys
from collections import Counter
from typing import Any


def fix_completions(patch: Any = setattr) -> None:
    """The k-th answer to a prompt is always the same: one to three digits and an end of sequence."""
    import trl

    def written(self: Any, prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        seen, rows = Counter[tuple[int, ...]](), []
        for ids in prompt_ids:
            k = seen[tuple(ids)]
            seen[tuple(ids)] += 1
            rows.append([2 + (sum(ids) * n + k) % 10 for n in range(1 + (k + sum(ids)) % 3)] + [1])
        return rows, None

    patch(trl.GRPOTrainer, "_generate_single_turn", written)


if __name__ == "__main__":
    from rlbook_lib.grpo_command import main

    fix_completions()
    sys.exit(main(sys.argv[1:]))
