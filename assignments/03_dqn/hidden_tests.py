"""Hidden tests of assignment 3, deep Q-networks: replay memory, targets, loss, target network, training loop."""

from __future__ import annotations

import collections
import copy

import numpy as np
import torch
from torch import nn

from assignments.grader.comparing import close, judged, same
from assignments.grader.edits import edit
from assignments.grader.questions import Assignment, Case, Mistake, Question, Written

HIDDEN_MARKER = "RLBOOK-HIDDEN-03_dqn"
FLOAT32 = close(rtol=1e-4, atol=2e-5)


# ---------------------------------------------------------------------- q1: a replay memory


def drive_q1(function, what, capacity, transitions, draws, seed):
    import numpy as np

    names = ("observations", "actions", "rewards", "next_observations", "terminated")
    columns = [transitions[name] for name in names]
    count, size = columns[0].shape

    def fill(memory, lengths=None):
        old, new = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
        for k in range(count):  # the same two arrays again and again, as some environments do
            old[:], new[:] = columns[0][k], columns[3][k]
            memory.add(old, int(columns[1][k]), float(columns[2][k]), new, bool(columns[4][k]))
            if lengths is not None:
                lengths.append(len(memory))
        old[:], new[:] = -1.0, -1.0
        return memory

    def drawn(memory):
        return [np.asarray(column) for column in memory.sample(draws)]

    if what == "stored":
        lengths = []
        memory = fill(function(capacity, size, seed), lengths)
        return {"lengths": lengths, "drawn": drawn(memory)}
    if what == "start":
        memory = function(capacity, size, seed)
        first = len(memory)
        try:
            memory.sample(1)
            empty = "no error"
        except ValueError:
            empty = "ValueError"
        lengths = [first]
        fill(memory, lengths)
        return {"lengths": lengths, "drawn": drawn(memory), "empty": empty}
    if what == "two":
        one, other = function(capacity, size, seed), function(capacity, size, seed + 1)
        fill(one)
        return {"lengths": [len(one), len(other)]}
    if what == "draws":
        one, other = (fill(function(capacity, size, seed)) for _ in range(2))
        return {"one": [drawn(one)[0], drawn(one)[0]], "other": drawn(other)[0]}
    return {"batch": drawn(fill(function(capacity, size, seed)))}


def judge_q1(raw):
    """Which transitions are drawn; how often each, and whether draws repeat; types and shapes of a batch."""
    if "drawn" in raw:
        columns = [np.asarray(column, dtype=np.float64) for column in raw["drawn"]]
        return {**raw, "drawn": np.unique(np.column_stack(columns), axis=0)}
    if "one" in raw:
        first, second = raw["one"]
        counts = np.unique(first[:, 0], return_counts=True)[1]
        return {
            "shape": list(first.shape),
            "shares": np.round(counts * len(counts) / len(first)),
            "reproducible": same(first, raw["other"]),
            "repeats itself": same(first, second),
        }
    if "batch" in raw:
        return {
            "types": [str(column.dtype) for column in raw["batch"]],
            "shapes": [list(column.shape) for column in raw["batch"]],
        }
    return raw


def transitions_q1(rng, count, size):
    observations = rng.normal(size=(count, size)).astype(np.float32)
    observations[:, 0] = np.arange(1, count + 1)
    return {
        "observations": observations,
        "actions": rng.integers(1, 5, size=count),
        "rewards": (1.0 + rng.random(count)).astype(np.float32),
        "next_observations": rng.normal(size=(count, size)).astype(np.float32),
        "terminated": rng.permutation(np.arange(count) % 3 == 0),
    }


def cases_q1(rng):
    found = []
    for count_over in (1, int(rng.integers(2, 4)), int(rng.integers(7, 12))):
        capacity, size = int(rng.integers(4, 7)), int(rng.integers(1, 4))
        filled = transitions_q1(rng, capacity + count_over, size)
        found.append(
            Case(("stored", capacity, filled, 700, int(rng.integers(1000))), "a full memory forgets the oldest")
        )
    capacity, count, size = int(rng.integers(8, 12)), int(rng.integers(3, 6)), int(rng.integers(1, 4))
    some = transitions_q1(rng, count, size)
    found.append(Case(("start", capacity, some, 700, int(rng.integers(1000))), "a memory that is not full yet"))
    found.append(Case(("two", capacity, some, 10, int(rng.integers(1000))), "a memory that is not full yet"))
    capacity, size = int(rng.integers(5, 8)), int(rng.integers(2, 4))
    more = transitions_q1(rng, capacity + 3, size)
    found.append(Case(("draws", capacity, more, 3000, int(rng.integers(1000))), "random draws"))
    found.append(Case(("types", capacity, more, 4, int(rng.integers(1000))), "types and shapes"))
    return found


class ReplayMemory_reference:
    def __init__(self, capacity, observation_size, seed):
        self.queue = collections.deque(maxlen=capacity)
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.queue)

    def add(self, observation, action, reward, next_observation, terminated):
        row = (np.array(observation), action, reward, np.array(next_observation), terminated)
        self.queue.append(row)

    def sample(self, batch_size):
        if not self.queue:
            raise ValueError("the memory is empty")
        rows = [self.queue[i] for i in self.rng.integers(len(self.queue), size=batch_size)]
        kinds = (np.float32, np.int64, np.float32, np.float32, np.bool_)
        return tuple(np.array(column, dtype=kind) for column, kind in zip(zip(*rows), kinds))


class ReplayMemory_list:
    def __init__(self, capacity, observation_size, seed):
        self.capacity, self.items = capacity, []
        self.generator = np.random.Generator(np.random.PCG64(seed))

    def add(self, observation, action, reward, next_observation, terminated):
        if len(self.items) == self.capacity:
            self.items.pop(0)
        self.items.append([list(observation), action, reward, list(next_observation), terminated])

    def sample(self, batch_size):
        if len(self) == 0:
            raise ValueError("nothing to draw from")
        chosen = self.generator.choice(len(self), size=batch_size, replace=True)
        s = np.array([self.items[i][0] for i in chosen], dtype="float32")
        a = np.array([self.items[i][1] for i in chosen], dtype="int64")
        r = np.array([self.items[i][2] for i in chosen], dtype="float32")
        s_next = np.array([self.items[i][3] for i in chosen], dtype="float32")
        d = np.array([self.items[i][4] for i in chosen], dtype=bool)
        return [s, a, r, s_next, d]

    def __len__(self):
        return len(self.items)


class ReplayMemory_one_table:
    def __init__(self, capacity, observation_size, seed):
        self.width = observation_size
        self.table = np.zeros((0, 2 * observation_size + 3))
        self.capacity, self.rng = capacity, np.random.default_rng(seed)

    def __len__(self):
        return self.table.shape[0]

    def add(self, observation, action, reward, next_observation, terminated):
        row = np.concatenate((observation, [action, reward], next_observation, [terminated]))
        self.table = np.vstack((self.table, row))[-self.capacity :]

    def sample(self, batch_size):
        d = self.width
        lots = np.floor(self.rng.random(batch_size) * len(self)).astype(int)
        if len(self) < 1:
            raise ValueError("empty")
        rows = self.table[lots]
        return (
            rows[:, :d].astype(np.float32),
            rows[:, d].astype(np.int64),
            rows[:, d + 1].astype(np.float32),
            rows[:, d + 2 : -1].astype(np.float32),
            rows[:, -1] > 0.5,
        )


class ReplayMemory_plain:
    def __init__(self, capacity, observation_size, seed):
        self.capacity, self.rows, self.rng = capacity, [], np.random.default_rng(seed)

    def __len__(self):
        return len(self.rows)

    def add(self, observation, action, reward, next_observation, terminated):
        self.rows.append((np.array(observation), action, reward, np.array(next_observation), terminated))
        self.rows = self.rows[-self.capacity :]

    def sample(self, batch_size):
        rows = [self.rows[i] for i in self.rng.integers(len(self.rows), size=batch_size)]
        kinds = (np.float32, np.int64, np.float32, np.float32, bool)
        return tuple(np.array(column, dtype=kind) for column, kind in zip(zip(*rows), kinds))


class ReplayMemory_ring:
    def __init__(self, capacity, observation_size, seed):
        self.capacity, self.count = capacity, 0
        self.rng = np.random.default_rng(seed)
        self.s, self.s_next = np.zeros((2, capacity, observation_size), dtype=np.float32)
        self.a, self.d = np.zeros(capacity, dtype=np.int64), np.zeros(capacity, dtype=bool)
        self.r = np.zeros(capacity, dtype=np.float32)

    def __len__(self):
        return min(self.count, self.capacity)

    def add(self, observation, action, reward, next_observation, terminated):
        i = self.count % self.capacity
        self.s[i], self.a[i], self.r[i] = observation, action, reward
        self.s_next[i], self.d[i] = next_observation, terminated
        self.count += 1

    def sample(self, batch_size):
        i = self.rng.integers(min(self.count, self.capacity), size=batch_size)
        return self.s[i], self.a[i], self.r[i], self.s_next[i], self.d[i]


Q1 = Question(
    "q1",
    "A replay memory",
    "ReplayMemory",
    parts={
        "a full memory forgets the oldest": 5.0,
        "a memory that is not full yet": 4.0,
        "random draws": 3.0,
        "types and shapes": 3.0,
    },
    reference=ReplayMemory_reference,
    cases=cases_q1,
    driver=drive_q1,
    compare=judged(judge_q1, FLOAT32),
    mistakes=(
        Mistake(
            edit(ReplayMemory_plain, "        self.rows = self.rows[-self.capacity :]\n", ""),
            "the memory keeps everything. It must hold `capacity` transitions at most; each further one pushes the oldest out.",
        ),
        Mistake(
            edit(
                ReplayMemory_plain,
                "        self.rows.append",
                "        if len(self.rows) == self.capacity:\n            return\n        self.rows.append",
            ),
            "a full memory takes nothing in any more. Then the agent would learn for ever from what a beginner did; the new transition must replace the oldest one.",
        ),
        Mistake(
            edit(
                ReplayMemory_plain,
                "        self.rows.append",
                "        self.rows = self.rows[: self.capacity - 1]\n        self.rows.append",
            ),
            "a full memory overwrites its newest transition. First in, first out: the one that leaves is the oldest.",
        ),
        Mistake(
            edit(ReplayMemory_ring, "integers(min(self.count, self.capacity)", "integers(self.capacity"),
            "while the memory is filling up, `sample` also draws rows in which nothing has been stored yet. Draw among the `len(self)` stored rows only.",
        ),
        Mistake(
            edit(ReplayMemory_ring, "return min(self.count, self.capacity)", "return self.count"),
            "`len` goes on counting after the memory is full. It is the number of transitions stored now, never more than the capacity.",
        ),
        Mistake(
            edit(ReplayMemory_plain, "integers(len(self.rows)", "integers(len(self.rows) - 1"),
            "one of the stored transitions is never drawn. The upper end of `integers` does not belong to the range already; nothing need be subtracted.",
        ),
        Mistake(
            edit(
                ReplayMemory_plain,
                "np.array(observation)",
                "observation",
                "np.array(next_observation)",
                "next_observation",
            ),
            "the memory stores the caller's arrays and not copies of them. If the caller writes into its array again, the stored transition changes with it.",
        ),
        Mistake(
            edit(
                ReplayMemory_plain,
                "    def __init__",
                "    rows = []\n\n    def __init__",
                "self.capacity, self.rows, self.rng = capacity, [], ",
                "self.rows.clear()\n        self.capacity, self.rng = capacity, ",
                "self.rows = self.rows[-self.capacity :]",
                "del self.rows[: -self.capacity]",
            ),
            "two memories share one storage. A list that is made in the body of the class belongs to all objects; make it in `__init__`.",
        ),
        Mistake(
            edit(
                ReplayMemory_plain,
                "        rows = [self.rows[i] for i in self.rng.integers(len(self.rows), size=batch_size)]",
                "        lots = [self.rng.integers(len(self.rows), size=batch_size) for _ in range(5)]\n"
                "        rows = [[self.rows[i][k] for k, i in enumerate(row)] for row in zip(*lots)]",
            ),
            "the five columns of a batch do not belong together. Draw the row numbers once and use them for all columns.",
        ),
        Mistake(
            edit(
                ReplayMemory_plain,
                "        rows =",
                '        if not self.rows:\n            raise ValueError("empty")\n        rows =',
                "integers(len(self.rows), size=batch_size)",
                "permutation(len(self.rows))[:batch_size]",
            ),
            "draws are made without replacement, so a batch cannot be larger than the memory. Each draw must be uniform over all stored transitions, whatever was drawn before.",
        ),
        Mistake(
            edit(
                ReplayMemory_plain,
                "self.rng = capacity, [], np.random.default_rng(seed)",
                "self.seed = capacity, [], seed",
                "self.rng.integers",
                "np.random.default_rng(self.seed).integers",
            ),
            "every call of `sample` returns the same rows. Make the generator once, in `__init__`, and go on with it.",
        ),
        Mistake(
            edit(ReplayMemory_plain, "default_rng(seed)", "default_rng()"),
            "the draws do not depend on the seed. Draw with a generator of your own, made from `seed`, and not with numpy's global one.",
        ),
        Mistake(
            edit(ReplayMemory_plain, "(np.float32, np.int64, np.float32, np.float32, bool)", "(np.float32,) * 5"),
            "all columns come back as float32. Actions are used as an index later, and ends as a mask: see the types in the docstring.",
        ),
        Mistake(
            edit(ReplayMemory_plain, "[-self.capacity :]", "[-self.capacity - 1 :]"),
            "the memory keeps one transition more than its capacity.",
        ),
    ),
    alternatives=(ReplayMemory_plain, ReplayMemory_ring, ReplayMemory_list, ReplayMemory_one_table),
)


# ---------------------------------------------------------------------- q2: the target of DQN


def drive_q2(function, what, rewards, next_q, terminated, truncated, gamma):
    import torch

    leaf = torch.tensor(next_q, dtype=torch.float32, requires_grad=True)
    given, r = 1.0 * leaf, torch.tensor(rewards, dtype=torch.float32)
    y = function(r, given, torch.tensor(terminated), torch.tensor(truncated), gamma)
    if what == "targets":
        return y
    tracked = torch._C.TensorBase.requires_grad.__get__(y)  # of the base class: torch.Tensor's own can be replaced
    (y.sum() + 0.0 * leaf.sum()).backward()
    return {"targets": y, "tracked": tracked, "gradient": leaf.grad, "next_q": given, "rewards": r}


def table_q2(rng, batch, actions):
    # well apart, so that no maximum is a tie
    values = rng.permuted(np.tile(np.arange(actions), (batch, 1)), axis=1) + rng.uniform(-0.3, 0.3, (batch, actions))
    return (values + rng.normal(0, 3, (batch, 1))).astype(np.float32)


def flags_q2(rng, batch):
    # at least one of each: goes on, terminated, truncated, both at once
    kinds = rng.permutation(np.concatenate((np.arange(4), rng.integers(4, size=batch - 4))))
    return (kinds == 1) | (kinds == 3), kinds >= 2


def judge_constant(raw):
    """Where it is asked whether the targets are constants, only their shape counts, not their values."""
    return {**raw, "targets": np.shape(raw["targets"])} if isinstance(raw, dict) else raw


def cases_q2(rng):
    found = []
    for batch, gamma in (
        (1, 0.9),
        (int(rng.integers(3, 8)), 1.0),
        (int(rng.integers(8, 20)), float(rng.uniform(0.3, 0.99))),
    ):
        none = np.zeros(batch, dtype=bool)
        table = table_q2(rng, batch, int(rng.integers(2, 6)))
        rewards = rng.normal(1, 2, batch).astype(np.float32)
        found.append(Case(("targets", rewards, table, none, none, gamma), "states that go on"))
    for batch, gamma in ((6, 1.0), (int(rng.integers(8, 20)), float(rng.uniform(0.5, 0.99))), (9, 0.0)):
        terminated, truncated = flags_q2(rng, batch)
        table = table_q2(rng, batch, int(rng.integers(2, 6))) + 2.0
        rewards = rng.normal(1, 2, batch).astype(np.float32)
        found.append(Case(("targets", rewards, table, terminated, truncated, gamma), "terminated and truncated"))
    batch, gamma = int(rng.integers(5, 12)), float(rng.uniform(0.5, 0.99))
    terminated, truncated = flags_q2(rng, batch)
    rewards = rng.normal(0, 2, batch).astype(np.float32)
    found.append(
        Case(
            ("constant", rewards, table_q2(rng, batch, 3), terminated, truncated, gamma), "a constant, nothing changed"
        )
    )
    return found


def dqn_targets_reference(rewards, next_q, terminated, truncated, gamma):
    found = []
    for r, row, end in zip(rewards.tolist(), next_q.tolist(), terminated.tolist()):
        found.append(r if end else r + gamma * max(row))
    return torch.tensor(found)


def dqn_targets_where(rewards, next_q, terminated, truncated, gamma):
    with torch.no_grad():
        best = torch.where(terminated, torch.zeros_like(rewards), next_q.amax(dim=1))
        return rewards + gamma * best


def dqn_targets_sorted(rewards, next_q, terminated, truncated, gamma):
    goes_on = torch.logical_not(terminated).to(rewards.dtype)
    best = next_q.detach().sort(dim=-1).values[:, -1]
    y = rewards.clone()
    y += gamma * goes_on * best
    return y


def dqn_targets_plain(rewards, next_q, terminated, truncated, gamma):
    return (rewards + gamma * (1 - terminated.float()) * next_q.max(1).values).detach()


Q2 = Question(
    "q2",
    "The target of DQN",
    "dqn_targets",
    parts={"states that go on": 4.0, "terminated and truncated": 5.0, "a constant, nothing changed": 3.0},
    reference=dqn_targets_reference,
    cases=cases_q2,
    driver=drive_q2,
    compare=judged(judge_constant, FLOAT32),
    mistakes=(
        Mistake(
            edit(dqn_targets_plain, " * (1 - terminated.float())", ""),
            "the target bootstraps past a termination. A terminated episode has no next value: the target is the reward alone.",
        ),
        Mistake(
            edit(dqn_targets_plain, "terminated.float()", "(terminated | truncated).float()"),
            "a time limit is treated as an end of the world. After a truncation the next state still has a value, so the target bootstraps; only `terminated` masks it.",
        ),
        Mistake(
            edit(dqn_targets_plain, "terminated.float()", "(terminated & ~truncated).float()"),
            "where both flags are set, the target bootstraps. A state that is an end is worth 0 whether or not the clock ran out in the same step.",
        ),
        Mistake(
            edit(
                dqn_targets_plain,
                "rewards + gamma * (1 - terminated.float()) * next_q.max(1).values",
                "(1 - terminated.float()) * (rewards + gamma * next_q.max(1).values)",
            ),
            "the mask also removes the reward of the last step. That reward was really received; only the next value is masked.",
        ),
        Mistake(
            edit(dqn_targets_plain, "(1 - terminated.float())", "terminated.float()"),
            "the mask is the wrong way round: the targets bootstrap at terminations, and only there. Check what the factor is where `terminated` is 0.",
        ),
        Mistake(
            edit(dqn_targets_plain, "max(1).values", "mean(1)"),
            "the next value is the mean over the actions. Q-learning values the next state by its best action.",
        ),
        Mistake(
            edit(dqn_targets_plain, "max(1).values", "max()"),
            "the maximum runs over the whole batch. Each transition has a next state of its own: one maximum per row, over the action axis.",
        ),
        Mistake(
            edit(dqn_targets_plain, "max(1)", "max(1, keepdim=True)"),
            "a column of shape (B, 1) was added to a vector of shape (B,), and broadcasting made a square of it. Take the maximum without `keepdim`, or drop the axis.",
        ),
        Mistake(
            edit(dqn_targets_plain, "max(1).values", "argmax(1)"),
            "the number of the best action stands where its value belongs. A maximum over an axis gives values and places; the target needs the values.",
        ),
        Mistake(
            edit(dqn_targets_plain, "rewards + gamma", "gamma * rewards + gamma"),
            "the reward is discounted too. It follows the action at once; only what comes after it is multiplied by gamma.",
        ),
        Mistake(
            edit(dqn_targets_plain, ".detach()", ""),
            "the target still carries a gradient. It is a constant in the loss: compute it without tracking, or cut it off at the end.",
        ),
        Mistake(
            edit(
                dqn_targets_where,
                "best = torch.where(terminated, torch.zeros_like(rewards), next_q.amax(dim=1))",
                "next_q[terminated] = 0.0",
                "gamma * best",
                "gamma * next_q.amax(dim=1)",
            ),
            "the function writes into its argument `next_q`. Somebody else may still need these values: multiply by a mask, or select, and leave the argument as it is.",
        ),
        Mistake(
            edit(dqn_targets_plain, "gamma * (1", "(1"), "the discount is missing: the next value counts gamma times."
        ),
        Mistake(
            edit(dqn_targets_plain, "terminated.float()", "truncated.float()"),
            "the mask is made of the wrong flag: only a termination means that nothing follows.",
        ),
        Mistake(
            edit(dqn_targets_plain, "max(1)", "min(1)"),
            "the smallest value of the next state is taken. The greedy action has the largest one.",
        ),
        Mistake(
            edit(dqn_targets_plain, "rewards + gamma", "gamma"),
            "the reward is missing: the target is the reward plus what follows.",
        ),
    ),
    alternatives=(dqn_targets_plain, dqn_targets_where, dqn_targets_sorted),
)


# ---------------------------------------------------------------------- q3: the target of double DQN


def drive_q3(function, what, rewards, next_q_online, next_q_target, terminated, gamma):
    import torch

    leaves = [torch.tensor(table, dtype=torch.float32, requires_grad=True) for table in (next_q_online, next_q_target)]
    online, target = (1.0 * leaf for leaf in leaves)
    y = function(torch.tensor(rewards, dtype=torch.float32), online, target, torch.tensor(terminated), gamma)
    if what == "targets":
        return y
    tracked = torch._C.TensorBase.requires_grad.__get__(y)  # of the base class: torch.Tensor's own can be replaced
    (y.sum() + 0.0 * sum(leaf.sum() for leaf in leaves)).backward()
    return {
        "targets": y,
        "tracked": tracked,
        "gradients": [leaf.grad for leaf in leaves],
        "online": online,
        "target": target,
    }


def tables_q3(rng, batch, actions):
    online, target = table_q2(rng, batch, actions), table_q2(rng, batch, actions)
    places = rng.choice(actions, 2, replace=False)  # in one row at least the two do not agree
    online[0, places[0]], target[0, places[1]] = online[0].max() + 1, target[0].max() + 1
    return online, target


def cases_q3(rng):
    found = []
    for batch, gamma in (
        (1, 0.9),
        (int(rng.integers(4, 9)), 1.0),
        (int(rng.integers(9, 20)), float(rng.uniform(0.3, 0.99))),
    ):
        online, target = tables_q3(rng, batch, int(rng.integers(3, 6)))
        rewards = rng.normal(1, 2, batch).astype(np.float32)
        found.append(
            Case(("targets", rewards, online, target, np.zeros(batch, dtype=bool), gamma), "who picks, who judges")
        )
    for batch, gamma in ((6, 1.0), (int(rng.integers(7, 14)), float(rng.uniform(0.5, 0.99)))):
        online, target = tables_q3(rng, batch, int(rng.integers(3, 6)))
        rewards = rng.normal(1, 2, batch).astype(np.float32)
        terminated = rng.permutation(np.arange(batch) % 2 == 0)
        found.append(Case(("targets", rewards, online, target, terminated, gamma), "terminal states"))
    batch = int(rng.integers(5, 9))
    online, target = tables_q3(rng, batch, 4)
    rewards, gamma = rng.normal(1, 2, batch).astype(np.float32), float(rng.uniform(0.5, 0.99))
    none = np.zeros(batch, dtype=bool)
    found.append(Case(("constant", rewards, online, target, none, gamma), "a constant, nothing changed"))
    return found


def double_dqn_targets_reference(rewards, next_q_online, next_q_target, terminated, gamma):
    found = []
    for i in range(len(rewards)):
        row = next_q_online[i].tolist()
        judged = next_q_target[i].tolist()[row.index(max(row))]
        found.append(float(rewards[i]) + (0.0 if terminated[i] else gamma * judged))
    return torch.tensor(found)


def double_dqn_targets_fancy(rewards, next_q_online, next_q_target, terminated, gamma):
    with torch.no_grad():
        rows = torch.arange(rewards.shape[0])
        y = rewards + gamma * next_q_target[rows, next_q_online.argmax(-1)]
        return torch.where(terminated, rewards, y)


def double_dqn_targets_one_hot(rewards, next_q_online, next_q_target, terminated, gamma):
    actions = next_q_online.shape[1]
    chosen = torch.nn.functional.one_hot(next_q_online.max(dim=1).indices, actions)
    judged = (chosen * next_q_target).sum(dim=1)
    return (rewards + gamma * (~terminated) * judged).detach()


def double_dqn_targets_plain(rewards, next_q_online, next_q_target, terminated, gamma):
    judged = next_q_target.gather(1, next_q_online.argmax(1, keepdim=True)).squeeze(1)
    return (rewards + gamma * (1 - terminated.float()) * judged).detach()


Q3 = Question(
    "q3",
    "The target of double DQN",
    "double_dqn_targets",
    parts={"who picks, who judges": 6.0, "terminal states": 3.0, "a constant, nothing changed": 3.0},
    reference=double_dqn_targets_reference,
    cases=cases_q3,
    driver=drive_q3,
    compare=judged(judge_constant, FLOAT32),
    mistakes=(
        Mistake(
            edit(
                double_dqn_targets_plain,
                "next_q_target.gather(1, next_q_online",
                "next_q_online.gather(1, next_q_target",
            ),
            "the two networks have changed places. The online network picks the action; the target network says what it is worth.",
        ),
        Mistake(
            edit(
                double_dqn_targets_plain, "gather(1, next_q_online.argmax(1, keepdim=True)).squeeze(1)", "max(1).values"
            ),
            "this is the plain DQN target: the target network picks and judges. The choice must come from the online network.",
        ),
        Mistake(
            edit(double_dqn_targets_plain, "next_q_target.gather", "next_q_online.gather"),
            "the online network judges its own choice, so the target network has no part in the target. Take the value from the target network.",
        ),
        Mistake(
            edit(
                double_dqn_targets_plain,
                "next_q_target.gather(1, next_q_online.argmax(1, keepdim=True)).squeeze(1)",
                "torch.minimum(next_q_online.max(1).values, next_q_target.max(1).values)",
            ),
            "the target takes the smaller of two maxima. That is another idea (clipped double Q-learning); here one network picks and the other one judges that pick.",
        ),
        Mistake(
            edit(
                double_dqn_targets_plain,
                "next_q_target.gather(1, next_q_online.argmax(1, keepdim=True)).squeeze(1)",
                "(0.5 * (next_q_online + next_q_target)).max(1).values",
            ),
            "the two networks are averaged before the maximum. Then the same noise still picks and judges.",
        ),
        Mistake(
            edit(double_dqn_targets_plain, "(1 - terminated.float()) * ", ""),
            "the target bootstraps past a termination. Double DQN changes which next value is used, not where there is one.",
        ),
        Mistake(
            edit(
                double_dqn_targets_plain,
                "rewards + gamma * (1 - terminated.float()) * judged",
                "(1 - terminated.float()) * (rewards + gamma * judged)",
            ),
            "the mask also removes the reward of the last step. Only the next value is masked.",
        ),
        Mistake(
            edit(
                double_dqn_targets_plain,
                ".gather(1, next_q_online.argmax(1, keepdim=True)).squeeze(1)",
                "[:, next_q_online.argmax(1)]",
            ),
            "indexing with a colon and the chosen actions takes these columns for every row and gives a square. Pair each row with its own action.",
        ),
        Mistake(
            edit(
                double_dqn_targets_plain,
                ".gather(1, next_q_online.argmax(1, keepdim=True)).squeeze(1)",
                "[:, next_q_online.mean(0).argmax()]",
            ),
            "one action was picked for the whole batch. Each next state has a best action of its own: `argmax` over the action axis.",
        ),
        Mistake(
            edit(double_dqn_targets_plain, ".detach()", ""),
            "the target still carries a gradient. The choice has none anyway, but the judged value has: cut it off.",
        ),
        Mistake(
            edit(double_dqn_targets_plain, "gamma * (1", "(1"),
            "the discount is missing: the next value counts gamma times.",
        ),
        Mistake(
            edit(double_dqn_targets_plain, "(1 - terminated.float())", "terminated.float()"),
            "the mask is the wrong way round: the targets bootstrap at terminations, and only there.",
        ),
    ),
    alternatives=(double_dqn_targets_plain, double_dqn_targets_fancy, double_dqn_targets_one_hot),
)


# ---------------------------------------------------------------------- q4: the loss


def drive_q4(function, what, q_values, actions, targets, kappa):
    import torch

    q = torch.tensor(q_values, dtype=torch.float32, requires_grad=True)
    y = torch.tensor(targets, dtype=torch.float32, requires_grad=True)
    loss = function(q, torch.tensor(actions), y, kappa)
    if what == "value":
        return loss
    loss.backward()
    return {"q_values": q.grad, "targets": torch.zeros_like(y) if y.grad is None else y.grad}


def batch_q4(rng, kappa, batch):
    actions = int(rng.integers(3, 6))
    q_values = table_q2(rng, batch, actions)
    taken = rng.permutation(np.arange(batch) % actions)
    taken[0] = (int(q_values[0].argmax()) + 1) % actions  # at least once not the best one
    # errors on both sides of zero and of kappa, away from the kink
    size = np.where(np.arange(batch) % 2 == 0, rng.uniform(0.1, 0.8, batch), rng.uniform(1.3, 4, batch)) * (
        kappa or 1.0
    )
    sign = np.where(np.arange(batch) % 4 < 2, 1, -1)
    targets = q_values[np.arange(batch), taken] + size * sign
    return q_values, taken, targets.astype(np.float32), kappa


def cases_q4(rng):
    found = []
    for batch in (1, int(rng.integers(4, 8)), int(rng.integers(8, 20))):
        found.append(Case(("value", *batch_q4(rng, None, batch)), "half the mean square"))
    for kappa in (1.0, float(rng.uniform(0.3, 0.7)), float(rng.uniform(1.6, 3))):
        found.append(Case(("value", *batch_q4(rng, kappa, int(rng.integers(4, 12)))), "Huber's loss"))
    for kappa in (None, 1.0, None):  # a wrong use of the threshold has cost its points above
        found.append(Case(("gradient", *batch_q4(rng, kappa, int(rng.integers(4, 12)))), "the gradient"))
    return found


def dqn_loss_reference(q_values, actions, targets, kappa=None):
    chosen = torch.stack([q_values[i, int(a)] for i, a in enumerate(actions)])
    if kappa is None:
        return 0.5 * torch.nn.functional.mse_loss(chosen, targets.detach())
    return torch.nn.functional.huber_loss(chosen, targets.detach(), delta=kappa)


def dqn_loss_one_hot(q_values, actions, targets, kappa=None):
    mask = torch.nn.functional.one_hot(actions, q_values.shape[1]).to(q_values.dtype)
    error = (q_values * mask).sum(1) - targets.detach()
    if kappa is None:
        return (error**2).mean() / 2
    inside = error.clamp(-kappa, kappa)
    return (inside * (error - inside) + 0.5 * inside**2).mean()


def dqn_loss_rows(q_values, actions, targets, kappa=None):
    total = 0.0
    for row, a, y in zip(q_values, actions.tolist(), targets.tolist()):
        error = abs(y - row[a])
        if kappa is None or error <= kappa:
            total = total + 0.5 * error * error
        else:
            total = total + kappa * (error - 0.5 * kappa)
    return total / len(q_values)


def dqn_loss_mean_over_table(q_values, actions, targets, kappa=None):
    wanted = q_values.detach().clone()
    wanted[torch.arange(len(actions)), actions] = targets.detach()
    if kappa is None:
        return 0.5 * torch.nn.functional.mse_loss(q_values, wanted)
    return torch.nn.functional.huber_loss(q_values, wanted, delta=kappa)


def dqn_loss_plain(q_values, actions, targets, kappa=None):
    chosen = q_values.gather(1, actions[:, None]).squeeze(1)
    if kappa is None:
        return 0.5 * ((targets.detach() - chosen) ** 2).mean()
    return torch.nn.functional.huber_loss(chosen, targets.detach(), delta=kappa)


def dqn_loss_by_hand(q_values, actions, targets, kappa=None):
    error = targets.detach() - q_values.gather(1, actions[:, None]).squeeze(1)
    if kappa is None:
        return 0.5 * (error**2).mean()
    size = error.abs()
    return torch.where(size <= kappa, 0.5 * error**2, kappa * (size - 0.5 * kappa)).mean()


Q4 = Question(
    "q4",
    "The loss and its gradient",
    "dqn_loss",
    parts={"half the mean square": 4.0, "Huber's loss": 5.0, "the gradient": 6.0},
    reference=dqn_loss_reference,
    cases=cases_q4,
    driver=drive_q4,
    compare=FLOAT32,
    mistakes=(
        Mistake(
            edit(dqn_loss_plain, ".mean()", ".sum()", "delta=kappa", 'delta=kappa, reduction="sum"'),
            "the loss is the sum over the batch and not the mean. Then the step size would grow with the batch.",
        ),
        Mistake(
            dqn_loss_mean_over_table,
            "the mean divides by the number of table entries, batch times actions. Only one action per row was taken: divide by the number of rows.",
        ),
        Mistake(
            edit(
                dqn_loss_by_hand,
                "targets.detach() - q_values.gather(1, actions[:, None]).squeeze(1)",
                "targets.detach()[:, None] - q_values",
            ),
            "all actions are pulled to the target. Only the action that was taken has one; the others must get no gradient.",
        ),
        Mistake(
            edit(dqn_loss_plain, "gather(1, actions[:, None]).squeeze(1)", "max(1).values"),
            "the prediction is the value of the best action. The target belongs to the action that was taken.",
        ),
        Mistake(
            edit(dqn_loss_by_hand, ".squeeze(1)", ""),
            "a column of shape (B, 1) was subtracted from a vector of shape (B,): every target met every prediction. Drop the extra axis after `gather`.",
        ),
        Mistake(
            edit(dqn_loss_by_hand, "0.5 * (error**2)", "(error**2)", "torch.where", "2 * torch.where"),
            "the factor one half is missing. With it the gradient is the plain TD error, and the two pieces of Huber's loss meet.",
        ),
        Mistake(
            edit(dqn_loss_plain, "(targets.detach() -", "(targets -", "chosen, targets.detach()", "chosen, targets"),
            "the gradient also flows into the targets. They are constants: this must be a semi-gradient.",
        ),
        Mistake(
            edit(
                dqn_loss_by_hand,
                "torch.where(size <= kappa, 0.5 * error**2, kappa * (size - 0.5 * kappa))",
                "(0.5 * error.clamp(-kappa, kappa) ** 2)",
            ),
            "the error was clipped before it was squared. Beyond the threshold the gradient is then zero, and the worst predictions never improve. Huber's loss clips the gradient instead.",
        ),
        Mistake(
            edit(dqn_loss_plain, "huber_loss", "smooth_l1_loss", "delta=", "beta="),
            "this is `smooth_l1_loss`, which divides by its threshold. It equals Huber's loss only where the threshold is 1.",
        ),
        Mistake(
            edit(dqn_loss_by_hand, "(size - 0.5 * kappa)", "size"),
            "the two pieces of Huber's loss do not meet: at the threshold the line must have the value of the half square. Look at the constant of the linear piece.",
        ),
        Mistake(
            edit(
                dqn_loss_plain,
                "q_values.gather",
                "q_values.detach().gather",
                "(targets.detach() -",
                "(targets -",
                "chosen, targets.detach()",
                "chosen, targets",
            ),
            "the gradient flows into the wrong side: the prediction is cut off and the target is not. The network learns through the prediction only.",
        ),
        Mistake(
            edit(dqn_loss_plain, "if kappa is None", "if True"),
            "`kappa` is not used: with it, errors beyond the threshold cost their distance and not its square.",
        ),
        Mistake(
            edit(
                dqn_loss_plain, "((targets.detach() - chosen) ** 2).mean()", "(targets.detach() - chosen).abs().mean()"
            ),
            "the error is not squared: without `kappa` the loss is half the mean of the squares.",
        ),
    ),
    alternatives=(dqn_loss_plain, dqn_loss_by_hand, dqn_loss_one_hot, dqn_loss_rows),
)


# ---------------------------------------------------------------------- q5: the target network


def drive_q5(function, what, sizes, online_start, target_start, changes, first, interval, tau):
    import numpy as np
    import torch

    def network(flat):
        layers = torch.nn.Sequential(
            torch.nn.Linear(sizes[0], sizes[1]), torch.nn.Tanh(), torch.nn.Linear(sizes[1], sizes[2])
        )
        torch.nn.utils.vector_to_parameters(torch.tensor(flat, dtype=torch.float32), layers.parameters())
        return layers

    def flat(module):
        return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy().copy()

    online, target = network(online_start), network(target_start)
    if what == "memory":
        target.requires_grad_(False)
    tensors, path = list(target.parameters()), []
    for k, change in enumerate(changes):
        with torch.no_grad():
            for p, part in zip(online.parameters(), network(change).parameters()):
                p += part
        function(online, target, first + k, interval=interval, tau=tau)
        path.append(flat(target))
    if what == "path":
        return np.stack(path)
    with torch.no_grad():
        for p in online.parameters():
            p += 1.0
    sum(p.sum() for p in target.parameters()).add(0.0 * sum(p.sum() for p in online.parameters())).backward()
    return {
        "gradients": torch.cat([p.grad.reshape(-1) for p in online.parameters()]),
        "target": flat(target),
        "online": flat(online),
        "tensors it was made of": torch.cat([p.detach().reshape(-1) for p in tensors]),
        "tracked": [torch._C.TensorBase.requires_grad.__get__(p) for p in target.parameters()],
    }


def start_q5(rng, updates):
    sizes = [int(n) for n in rng.integers(2, 5, size=3)]
    count = sizes[0] * sizes[1] + sizes[1] + sizes[1] * sizes[2] + sizes[2]
    online, target = rng.normal(0, 1, (2, count)).astype(np.float32)
    changes = rng.normal(0, 0.5, (updates, count)).astype(np.float32)
    return sizes, online, target, changes


def cases_q5(rng):
    found = []
    for interval, begin in ((int(rng.integers(3, 6)), 1), (1, 4), (int(rng.integers(2, 5)), int(rng.integers(1, 12)))):
        found.append(Case(("path", *start_q5(rng, 2 * interval + 2), begin, interval, None), "a copy now and then"))
    for tau in (float(rng.uniform(0.05, 0.3)), float(rng.uniform(0.6, 0.9)), 1.0):
        begin = int(rng.integers(1, 12))
        found.append(Case(("path", *start_q5(rng, int(rng.integers(3, 7))), begin, None, tau), "a moving average"))
    interval = int(rng.integers(2, 4))
    found.append(Case(("memory", *start_q5(rng, interval), 1, interval, None), "in place, nothing shared"))
    found.append(Case(("memory", *start_q5(rng, 2), 1, None, float(rng.uniform(0.1, 0.4))), "in place, nothing shared"))
    return found


def move_target_reference(online, target, update, interval=None, tau=None):
    if tau is None:
        tau = 1.0 if update % interval == 0 else 0.0
    ours, theirs = (torch.nn.utils.parameters_to_vector(m.parameters()).detach() for m in (target, online))
    mixed = ours + tau * (theirs - ours)
    begin = 0
    for p in target.parameters():
        p.detach().copy_(mixed[begin : begin + p.numel()].view_as(p))
        begin += p.numel()


@torch.no_grad()
def move_target_lerp(online, target, update, interval=None, tau=None):
    if interval is not None and update % interval:
        return
    for ours, theirs in zip(target.parameters(), online.parameters()):
        ours.lerp_(theirs, tau if interval is None else 1.0)


def move_target_state(online, target, update, interval=None, tau=None):
    new, old = online.state_dict(), target.state_dict()
    if interval is not None:
        if update % interval == 0:
            target.load_state_dict(new)
    else:
        target.load_state_dict({name: (1 - tau) * old[name] + tau * new[name] for name in old})


def move_target_plain(online, target, update, interval=None, tau=None):
    with torch.no_grad():
        for ours, theirs in zip(target.parameters(), online.parameters()):
            if tau is not None:
                ours.copy_((1 - tau) * ours + tau * theirs)
            elif update % interval == 0:
                ours.copy_(theirs)


Q5 = Question(
    "q5",
    "The target network",
    "move_target",
    parts={"a copy now and then": 5.0, "a moving average": 5.0, "in place, nothing shared": 4.0},
    reference=move_target_reference,
    cases=cases_q5,
    driver=drive_q5,
    compare=FLOAT32,
    mistakes=(
        Mistake(
            edit(move_target_plain, "ours.copy_(theirs)", "ours.data = theirs.data"),
            "after the copy both networks share their memory, so every later step of the online network moves the target too. Copy the numbers, not the tensor.",
        ),
        Mistake(
            edit(move_target_plain, "(1 - tau) * ours + tau * theirs", "tau * ours + (1 - tau) * theirs"),
            "the two weights of the average have changed places. With a small tau the target must move a little, so most of it stays what it was.",
        ),
        Mistake(
            edit(move_target_plain, "update %", "(update - 1) %"),
            "the copy comes one update late. It belongs to those updates whose number is a multiple of the interval.",
        ),
        Mistake(
            edit(move_target_plain, "elif update % interval == 0:", "else:"),
            "the target is copied after every update, whatever the interval. Between two copies it must not move.",
        ),
        Mistake(
            edit(move_target_plain, "% interval == 0", ">= interval"),
            "once the interval has passed, the target is copied after every update. Ask whether the number of the update is a multiple of the interval.",
        ),
        Mistake(
            edit(
                move_target_plain,
                "if tau",
                "if ours.dim() == 2 and tau",
                "elif update",
                "elif ours.dim() == 2 and update",
            ),
            "only the weight matrices are moved and the biases stay behind. All parameters belong to the network.",
        ),
        Mistake(
            edit(
                move_target_plain,
                "zip(target.parameters(), online.parameters())",
                "zip(online.parameters(), target.parameters())",
            ),
            "the online network is moved toward the target. It is the other way round: the target follows, and the online network stays as it is.",
        ),
        Mistake(
            edit(move_target_plain, "ours.copy_((1 - tau) * ours + tau * theirs)", "ours.add_(tau * theirs)"),
            "something is added to the target, but nothing of the old target is taken away. The two weights of an average sum to one.",
        ),
        Mistake(
            edit(
                move_target_plain,
                "ours.copy_((1 - tau) * ours + tau * theirs)",
                "ours = (1 - tau) * ours + tau * theirs",
            ),
            "the moving average is computed and then lost: an assignment to the loop's variable gives a new tensor a name and leaves the network alone. Write into the parameter.",
        ),
        Mistake(
            edit(move_target_plain, "ours.copy_(theirs)", "target = online"),
            "the copy is lost: an assignment to the argument `target` renames it inside the function, and the caller's network stays as it was. Write into its parameters.",
        ),
        Mistake(
            edit(move_target_plain, "torch.no_grad()", "torch.enable_grad()"),
            "the update of the target is tracked by autograd. That ends in an error, or in a target that drags the whole history along: do it under `torch.no_grad()`.",
        ),
    ),
    alternatives=(move_target_plain, move_target_lerp, move_target_state),
)


# ---------------------------------------------------------------------- q6: the whole algorithm


def drive_q6(function, what, setup):
    import copy

    import numpy as np
    import torch

    class Script:
        """An environment that plays a written sequence, whatever the actions are."""

        def __init__(self):
            self.first, self.next = setup["first"], setup["next"]
            self.rewards, self.terminated, self.truncated = setup["rewards"], setup["terminated"], setup["truncated"]
            self.resets = self.clock = 0
            self.running, self.received = False, []

        def reset(self):
            self.running, self.resets = True, self.resets + 1
            return self.first[(self.resets - 1) % len(self.first)].copy()

        def step(self, action):
            if not self.running:
                raise RuntimeError("the episode is over: reset first")
            t, self.clock = self.clock, self.clock + 1
            self.received.append(int(action))
            self.running = not (self.terminated[t] or self.truncated[t])
            flags = bool(self.terminated[t]), bool(self.truncated[t])
            return self.next[t].copy(), float(self.rewards[t]), *flags

    class World:
        """A small world with a time limit; one-hot observations."""

        def __init__(self):
            self.moves, self.pays, self.ends = setup["moves"], setup["pays"], setup["ends"]
            self.limit, self.rng = setup["limit"], np.random.default_rng(setup["seed"])
            self.running = False

        def seen(self):
            row = np.zeros(len(self.moves), dtype=np.float32)
            row[self.state] = 1.0
            return row

        def reset(self):
            self.state, self.clock, self.running = int(self.rng.choice(np.flatnonzero(~self.ends))), 0, True
            return self.seen()

        def step(self, action):
            if not self.running:
                raise RuntimeError("the episode is over: reset first")
            reward = float(self.pays[self.state, action])
            self.state, self.clock = int(self.moves[self.state, action]), self.clock + 1
            terminated, truncated = bool(self.ends[self.state]), self.clock >= self.limit
            self.running = not (terminated or truncated)
            return self.seen(), reward, terminated, truncated

    class Memory:
        """Keeps everything; draws at random, or hands out written batches."""

        def __init__(self):
            self.rows, self.sizes, self.rng = [], [], np.random.default_rng(7)

        def __len__(self):
            return len(self.rows)

        def add(self, observation, action, reward, next_observation, terminated):
            row = (np.array(observation), int(action), float(reward), np.array(next_observation), bool(terminated))
            self.rows.append(row)

        def sample(self, batch_size):
            self.sizes.append(batch_size)
            if "batches" in setup:
                return tuple(
                    column.copy() for column in setup["batches"][(len(self.sizes) - 1) % len(setup["batches"])]
                )
            rows = [self.rows[i] for i in self.rng.integers(len(self.rows), size=batch_size)]
            kinds = (np.float32, np.int64, np.float32, np.float32, np.bool_)
            return tuple(np.array(column, dtype=kind) for column, kind in zip(zip(*rows), kinds))

    def linear(weights):
        module = torch.nn.Linear(weights.shape[1], weights.shape[0], bias=False)
        with torch.no_grad():
            module.weight.copy_(torch.tensor(weights))
        return module

    env, memory = (World() if what == "values" else Script()), Memory()
    online = linear(setup["online"])
    target = linear(setup["target"]) if "target" in setup else copy.deepcopy(online)
    optimizer = torch.optim.SGD(online.parameters(), lr=setup["rate"])
    chances = {t: float(e) for t, e in enumerate(setup["epsilon"], start=1)}
    returns = function(
        env,
        online,
        target,
        optimizer,
        memory,
        lambda t: chances[t],
        steps=len(chances),
        learning_starts=setup["learning_starts"],
        batch_size=setup["batch_size"],
        gamma=setup["gamma"],
        interval=setup["interval"],
        double=setup["double"],
        rng=np.random.default_rng(setup["seed"]),
    )
    weights = online.weight.detach().numpy().copy()
    if what == "values":
        return {"values": weights[:, ~setup["ends"]]}
    if what == "update":
        return {"online": weights, "target": target.weight.detach().numpy().copy(), "sizes": memory.sizes}
    if what == "stored":
        rows = [np.concatenate((s, [r], after, [d])) for s, _, r, after, d in memory.rows]
        actions = [row[1] for row in memory.rows]
        found = {"rows": np.stack(rows), "actions": [actions, env.received], "resets": env.resets}
        return found | {"returns": np.asarray(returns, dtype=np.float64)}
    seen = np.concatenate((setup["first"][:1], setup["next"]))
    return {"received": env.received, "weights": weights, "seen": seen, "greedy": setup["epsilon"] == 0}


def script_q6(rng, steps, size):
    return {
        "first": rng.normal(size=(steps, size)).astype(np.float32),
        "next": rng.normal(size=(steps, size)).astype(np.float32),
        "rewards": rng.normal(1, 1, size=steps).astype(np.float32),
        "terminated": np.zeros(steps, dtype=bool),
        "truncated": np.zeros(steps, dtype=bool),
        "online": rng.normal(0, 1, (int(rng.integers(2, 4)), size)).astype(np.float32),
        "rate": 0.1,
        "learning_starts": steps + 1,
        "batch_size": 4,
        "gamma": 0.9,
        "interval": 5,
        "double": False,
        "epsilon": np.ones(steps),
        "seed": int(rng.integers(1000)),
    }


def stored_q6(rng):
    steps = int(rng.integers(16, 24))
    setup = script_q6(rng, steps, int(rng.integers(2, 4)))
    # ends of each kind, not all at equal distances, never at the last step; one episode has length 1
    places = 1 + rng.permutation(steps // 3 - 1)[:4] * 3
    kinds = [(True, False), (False, True), (True, True), (False, True)]
    for place, (terminated, truncated) in zip(places, kinds):
        setup["terminated"][place], setup["truncated"][place] = terminated, truncated
    setup["terminated"][0] = True
    return setup


def acting_q6(rng):
    setup = script_q6(rng, 250, 3)
    epsilon = np.zeros(250)
    epsilon[30:] = 1.0  # first greedy, then random in one place, where greed would always do the same
    epsilon[30::10] = 0.0  # now and then greedy again: who is one step behind draws there
    setup["next"][30:] = setup["next"][30]
    return setup | {"epsilon": epsilon}


def update_q6(rng, double):
    steps, size, batch = int(rng.integers(10, 13)), 3, int(rng.integers(4, 7))
    setup = script_q6(rng, steps, size) | {
        "double": double,
        "batch_size": batch,
        "gamma": float(rng.uniform(0.7, 0.95)),
    }
    actions = len(setup["online"])
    setup |= {"target": rng.normal(0, 1, (actions, size)).astype(np.float32)}
    starts = int(rng.integers(2, 4))
    setup |= {"learning_starts": starts, "interval": starts + int(rng.integers(1, 3))}
    batches = []
    for _ in range(steps):
        s, after = rng.normal(size=(2, batch, size)).astype(np.float32)
        a, r = rng.integers(actions, size=batch), rng.normal(size=batch).astype(np.float32)
        batches.append([s, a, r, after, rng.permutation(np.arange(batch) % 3 == 0)])
    setup["batches"] = batches
    setup["terminated"][[2, 6]] = True
    return setup


def values_q6(rng):
    states, actions = int(rng.integers(3, 5)), 2
    ends = np.arange(states + 1) == states
    moves = rng.integers(states, size=(states + 1, actions))
    for s in range(states):  # in every state one action leads round a loop, so that episodes can be long
        moves[s, 0] = (s + 1) % states
    moves[int(rng.integers(states)), 1] = states  # the only way out
    pays = rng.uniform(0.5, 1.5, (states + 1, actions)).astype(np.float32)
    return {
        "moves": moves,
        "pays": pays,
        "ends": ends,
        "limit": int(rng.integers(3, 5)),
        "online": np.zeros((actions, states + 1), dtype=np.float32),
        "rate": 3.0,
        "learning_starts": 25,
        "batch_size": 32,
        "gamma": float(rng.uniform(0.6, 0.7)),
        "interval": 4,
        "double": bool(rng.integers(2)),
        "epsilon": np.ones(180),
        "seed": int(rng.integers(1000)),
    }


def cases_q6(rng):
    return [
        Case(("acting", acting_q6(rng)), "acting"),
        Case(("stored", stored_q6(rng)), "what is stored"),
        Case(("stored", stored_q6(rng)), "what is stored"),
        Case(("update", update_q6(rng, False)), "updates and copies"),
        Case(("update", update_q6(rng, True)), "updates and copies"),
        Case(("values", values_q6(rng)), "values that are learned"),
    ]


def acted_q6(raw, given):
    """Whether the greedy actions were the best ones, and how often each was drawn; what was given is the reference's.

    Actions that do not exist count as one: with a place for each, the number of one fills the memory.
    """
    received, greedy = np.array(raw["received"]), given["greedy"]
    best = (given["seen"][:-1] @ given["weights"].T).argmax(axis=1)
    drawn, actions = received[~greedy], len(given["weights"])
    return {
        "greedy": (received == best)[greedy],
        "shares": np.round(np.bincount(np.minimum(drawn, actions), minlength=actions) * actions / len(drawn)),
    }


def compare_q6(got, want):
    if "values" in want:
        return close(rtol=0.0, atol=0.1)(got, want)  # learned, against exact values between 0.5 and 5
    if "received" in want:
        got, want = acted_q6(got, want), acted_q6(want, want)
    if "actions" in want:
        got, want = ({**raw, "actions": same(*raw["actions"])} for raw in (got, want))
    return FLOAT32(got, want)


def train_dqn_reference(
    env, online, target, optimizer, memory, epsilon, *, steps, learning_starts, batch_size, gamma, interval, double, rng
):
    """Linear networks, the gradient by hand; where the world is known, its exact values instead of learned ones."""
    rate, w, w_target = optimizer.param_groups[0]["lr"], online.weight.data, target.weight.data
    returns, total, observation = [], 0.0, env.reset()
    for t in range(1, steps + 1):
        values = (w.numpy() @ observation).tolist()
        action = int(rng.integers(len(values))) if rng.random() < epsilon(t) else values.index(max(values))
        after, reward, terminated, truncated = env.step(action)
        memory.add(observation, action, reward, after, terminated)
        total += reward
        if terminated or truncated:
            returns.append(total)
            total, after = 0.0, env.reset()
        observation = after
        if t < learning_starts or hasattr(env, "moves"):
            continue
        s, a, r, s_next, d = memory.sample(batch_size)
        step = np.zeros(w.shape)
        for i in range(batch_size):
            judged = w_target.numpy() @ s_next[i]
            picked = w.numpy() @ s_next[i] if double else judged
            y = r[i] + (0.0 if d[i] else gamma * judged[picked.argmax()])
            step[a[i]] += (y - w.numpy()[a[i]] @ s[i]) * s[i] / batch_size
        w += rate * torch.tensor(step, dtype=w.dtype)
        if t % interval == 0:
            w_target.copy_(w)
    if hasattr(env, "moves"):
        q = np.zeros(env.moves.shape)
        for _ in range(200):
            q = env.pays + gamma * np.where(env.ends[env.moves], 0.0, q[env.moves].max(-1))
        w.copy_(torch.tensor(q.T))
    return returns


def train_dqn_functions(
    env, online, target, optimizer, memory, epsilon, *, steps, learning_starts, batch_size, gamma, interval, double, rng
):
    def choose(x, chance):
        with torch.no_grad():
            row = online(torch.as_tensor(x, dtype=torch.float32))
        return int(rng.integers(row.numel())) if rng.random() < chance else int(row.argmax())

    def learn():
        s, a, r, s_next, d = map(torch.as_tensor, memory.sample(batch_size))
        with torch.no_grad():
            judge = target(s_next)
            pick = (online if double else target)(s_next).max(1).indices
            y = torch.where(d, r, r + gamma * judge[torch.arange(len(r)), pick])
        error = online(s)[torch.arange(len(r)), a] - y
        online.zero_grad()
        error.square().mean().mul(0.5).backward()
        optimizer.step()

    finished, rewards, x = [], [], env.reset()
    t = 0
    while t < steps:
        t += 1
        action = choose(x, epsilon(t))
        x_next, reward, terminated, truncated = env.step(action)
        rewards.append(reward)
        memory.add(x, action, reward, x_next, terminated)
        x = x_next
        if terminated or truncated:
            finished.append(sum(rewards))
            rewards, x = [], env.reset()
        if t >= learning_starts:
            learn()
            if t % interval == 0:
                target.load_state_dict(online.state_dict())
    return finished


def train_dqn_gradient(
    env, online, target, optimizer, memory, epsilon, *, steps, learning_starts, batch_size, gamma, interval, double, rng
):
    returns, so_far, over = [], 0.0, True
    for t in range(1, steps + 1):
        if over:
            state, so_far = env.reset(), 0.0
        q = online(torch.tensor(state)[None])[0].detach().numpy()
        n = len(q)
        probabilities = np.full(n, epsilon(t) / n)
        probabilities[q.argmax()] += 1 - epsilon(t)
        action = int(rng.choice(n, p=probabilities / probabilities.sum()))
        following, reward, terminated, truncated = env.step(action)
        memory.add(state, action, reward, following, terminated)
        so_far, state, over = so_far + reward, following, terminated or truncated
        if over:
            returns.append(so_far)
        if t >= learning_starts:
            batch = [torch.from_numpy(np.asarray(column)) for column in memory.sample(batch_size)]
            value = target(batch[3]).detach()
            choice = online(batch[3]).detach() if double else value
            value = value.gather(1, choice.argmax(1, keepdim=True))[:, 0]
            y = batch[2] + gamma * (1 - batch[4].float()) * value
            q_taken = online(batch[0]).gather(1, batch[1][:, None])[:, 0]
            gradients = torch.autograd.grad(0.5 * ((y - q_taken) ** 2).mean(), list(online.parameters()))
            for p, g in zip(online.parameters(), gradients):
                p.grad = g
            optimizer.step()
            if t % interval == 0:
                with torch.no_grad():
                    for ours, theirs in zip(target.parameters(), online.parameters()):
                        ours.copy_(theirs)
    return np.array(returns)


def train_dqn_plain(
    env, online, target, optimizer, memory, epsilon, *, steps, learning_starts, batch_size, gamma, interval, double, rng
):
    returns, total, x = [], 0.0, env.reset()
    for t in range(1, steps + 1):
        q = online(torch.as_tensor(x)[None]).detach()[0]
        random = rng.random() < epsilon(t)
        action = int(rng.integers(len(q))) if random else int(q.argmax())
        x_next, reward, terminated, truncated = env.step(action)
        memory.add(x, action, reward, x_next, terminated)
        x, total = x_next, total + reward
        if terminated or truncated:
            returns.append(total)
            x, total = env.reset(), 0.0
        if t >= learning_starts:
            s, a, r, s_next, d = (torch.as_tensor(c) for c in memory.sample(batch_size))
            with torch.no_grad():
                judge = target(s_next)
                pick = (online(s_next) if double else judge).argmax(1, keepdim=True)
                y = r + gamma * (1 - d.float()) * judge.gather(1, pick).squeeze(1)
            loss = 0.5 * ((y - online(s).gather(1, a[:, None]).squeeze(1)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if t % interval == 0:
                target.load_state_dict(online.state_dict())
    return returns


Q6 = Question(
    "q6",
    "The whole algorithm",
    "train_dqn",
    parts={"acting": 4.0, "what is stored": 5.0, "updates and copies": 6.0, "values that are learned": 5.0},
    reference=train_dqn_reference,
    cases=cases_q6,
    driver=drive_q6,
    compare=compare_q6,
    mistakes=(
        Mistake(
            edit(train_dqn_plain, "x_next, terminated)", "x_next, terminated or truncated)"),
            "a time limit is stored as a termination. The targets then stop there, and the values come out too small; store `terminated` alone.",
        ),
        Mistake(
            edit(
                train_dqn_plain,
                "        memory.add(x, action, reward, x_next, terminated)\n        x, total = x_next",
                "        x_before, x, total = x, x_next",
                "        if t >=",
                "        memory.add(x_before, action, reward, x, terminated)\n        if t >=",
            ),
            "at the end of an episode the stored next observation is the first one of the next episode. Store the transition before you reset.",
        ),
        Mistake(
            edit(train_dqn_plain, "memory.add(x, action", "memory.add(x_next, action"),
            "the stored transition starts at the observation it leads to: the variable was overwritten before the transition was stored.",
        ),
        Mistake(
            edit(train_dqn_plain, "terminated or truncated", "terminated"),
            "after a truncation the loop goes on without a reset. Both ways to end an episode ask for a new one; they differ only in what is stored.",
        ),
        Mistake(
            edit(train_dqn_plain, "int(rng.integers(len(q))) if random else int(q.argmax())", "int(q.argmax())"),
            "the agent never explores. With probability epsilon(t) the action must be drawn uniformly from all actions.",
        ),
        Mistake(
            edit(train_dqn_plain, "rng.random() <", "rng.random() >"),
            "epsilon is the wrong way round: the action is greedy with this probability and random otherwise.",
        ),
        Mistake(
            edit(train_dqn_plain, "range(1, steps + 1)", "range(steps)"),
            "the steps are counted from 0. They run from 1 to `steps`, the last one included; the schedule and the copies depend on it.",
        ),
        Mistake(
            edit(
                train_dqn_plain,
                "            if t % interval == 0:\n                target.load_state_dict(online.state_dict())\n",
                "",
            ),
            "the target network never moves, so all targets are one backup of the first random network. Copy after the updates whose step is a multiple of `interval`.",
        ),
        Mistake(
            edit(train_dqn_plain, "if t % interval == 0:\n                target", "target"),
            "the target network is copied after every update. It must rest for `interval` steps.",
        ),
        Mistake(
            edit(train_dqn_plain, "            optimizer.zero_grad()\n", ""),
            "the gradients of all updates pile up. PyTorch adds to `.grad`: clear it before each backward pass.",
        ),
        Mistake(
            edit(train_dqn_plain, "judge = target(s_next)", "judge = online(s_next)"),
            "the online network makes its own targets. The next state's value comes from the target network (with `double`, the choice of the action does not).",
        ),
        Mistake(
            edit(train_dqn_plain, "(online(s_next) if double else judge)", "judge"),
            "the argument `double` has no effect. If it is true, the online network picks the next action.",
        ),
        Mistake(
            edit(train_dqn_plain, "if t >= learning_starts", "if t >= learning_starts and (terminated or truncated)"),
            "an update is made only at the end of an episode. Look at the indentation: one update belongs to every step from `learning_starts` on.",
        ),
        Mistake(
            edit(train_dqn_plain, "if t >= learning_starts", "if len(memory) > 0"),
            "updates begin before `learning_starts`. Until then the memory only fills.",
        ),
        Mistake(
            edit(
                train_dqn_plain,
                "returns, total, x = [], 0.0, env",
                "returns, total, power, x = [], 0.0, 1.0, env",
                "total = x_next, total + reward",
                "total, power = x_next, total + power * reward, power * gamma",
                "x, total = env.reset(), 0.0",
                "x, total, power = env.reset(), 0.0, 1.0",
            ),
            "the returns that the function reports are discounted. It is asked for the plain sums of the rewards; the discount belongs into the targets.",
        ),
        Mistake(
            edit(
                train_dqn_plain,
                "0.5 * ((y - online(s).gather(1, a[:, None]).squeeze(1)) ** 2).mean()",
                "torch.nn.functional.huber_loss(online(s).gather(1, a[:, None]).squeeze(1), y, delta=1.0)",
            ),
            "the loss is Huber's. This loop asks for half the mean squared error: `dqn_loss` with `kappa=None`.",
        ),
        Mistake(
            edit(train_dqn_plain, "0.5 * ((y", "((y"),
            "the steps are twice as large as they should be: the factor one half of the loss is missing.",
        ),
        Mistake(
            edit(
                train_dqn_plain,
                "judge = target(s_next)",
                "judge = online(s_next) if double else target(s_next)",
                "(online(s_next) if double else judge)",
                "target(s_next)",
            ),
            "with `double` the two networks have changed places. The online network picks the next action and the target network judges it.",
        ),
        Mistake(
            edit(train_dqn_plain, "gamma * (1", "(1"), "the discount is missing: the next value counts gamma times."
        ),
    ),
    alternatives=(train_dqn_plain, train_dqn_functions, train_dqn_gradient),
    seconds=20.0,
)


ASSIGNMENT = Assignment(
    title="Deep Q-networks",
    questions=(Q1, Q2, Q3, Q4, Q5, Q6),
    written=Written("written", "What the two repairs do, and what they do not", 12.0),
    seconds=120.0,
    memory_mb=2048,
)
