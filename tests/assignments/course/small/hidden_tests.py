"""A small assignment on which the grader is tested: two functions, a class with a driver, and a written question."""

from __future__ import annotations

import numpy as np

from assignments.grader.comparing import close
from assignments.grader.questions import Assignment, Case, Mistake, Question, Written

HIDDEN_MARKER = "RLBOOK-HIDDEN-small"


def discounted_sum_backwards(rewards, gamma):
    total = 0.0
    for reward in rewards[::-1]:
        total = reward + gamma * total
    return total


def discounted_sum_powers(rewards, gamma):
    return float(sum(gamma**t * reward for t, reward in enumerate(rewards)))


def discounted_sum_late(rewards, gamma):
    return float(sum(gamma ** (t + 1) * reward for t, reward in enumerate(rewards)))


def discounted_sum_plain(rewards, gamma):
    return float(np.sum(rewards))


def discounted_sum_mean(rewards, gamma):
    return float(np.mean(gamma ** np.arange(len(rewards)) * rewards))


def discounted_sum_reversed(rewards, gamma):
    return float(np.sum(gamma ** np.arange(len(rewards)) * rewards[::-1]))


def discounted_sum_sign(rewards, gamma):
    return -float(np.sum(gamma ** np.arange(len(rewards)) * rewards))


def q1_cases(rng):
    cases = [
        Case((rng.normal(size=rng.integers(3, 9)), float(rng.uniform(0.5, 0.95))), "random rewards") for _ in range(3)
    ]
    return [*cases, Case((rng.normal(size=4) + 3, 0.0), "gamma 0"), Case((rng.normal(size=1) + 3, 0.9), "gamma 0")]


def evaluate_solve(transitions, rewards, gamma):
    return np.linalg.solve(np.eye(len(rewards)) - gamma * transitions, rewards)


def evaluate_sweeps(transitions, rewards, gamma):
    values = np.zeros(len(rewards))
    for _ in range(2000):
        values = rewards + gamma * transitions @ values
    return values


def evaluate_transposed(transitions, rewards, gamma):
    return np.linalg.solve(np.eye(len(rewards)) - gamma * transitions.T, rewards)


def evaluate_once(transitions, rewards, gamma):
    return rewards + gamma * transitions @ rewards


def evaluate_no_discount(transitions, rewards, gamma):
    return np.linalg.solve(np.eye(len(rewards)) - 0.999 * transitions, rewards)


def evaluate_late(transitions, rewards, gamma):
    return gamma * np.linalg.solve(np.eye(len(rewards)) - gamma * transitions, rewards)


def evaluate_column(transitions, rewards, gamma):
    return np.linalg.solve(np.eye(len(rewards)) - gamma * transitions, rewards)[:, None]


def q2_cases(rng):
    cases = []
    for part in ("small chains", "small chains", "large chains"):
        size = int(rng.integers(3, 6)) if part == "small chains" else int(rng.integers(10, 20))
        transitions = rng.dirichlet(np.ones(size), size=size)
        cases.append(Case((transitions, rng.normal(size=size), float(rng.uniform(0.5, 0.9))), part))
    return cases


class RunningMean:
    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(value)
        return sum(self.values) / len(self.values)


class RunningMeanStep:
    def __init__(self):
        self.mean, self.count = 0.0, 0

    def add(self, value):
        self.count += 1
        self.mean += (value - self.mean) / self.count
        return self.mean


class RunningMeanSum:
    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(value)
        return sum(self.values)


class RunningMeanLast:
    def __init__(self):
        self.values = []

    def add(self, value):
        return value


class RunningMeanOneMore:
    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(value)
        return sum(self.values) / (len(self.values) + 1)


class RunningMeanBefore:
    def __init__(self):
        self.values = []

    def add(self, value):
        mean = sum(self.values) / max(1, len(self.values))
        self.values.append(value)
        return mean


class RunningMeanHalf:
    def __init__(self):
        self.mean, self.count = 0.0, 0

    def add(self, value):
        self.mean += (value - self.mean) / 2
        return self.mean


def drive_q3(function, numbers):
    import numpy as np

    mean = function()
    return np.array([mean.add(float(number)) for number in numbers])


def q3_cases(rng):
    return [Case((rng.normal(size=rng.integers(3, 8)) + 2,), "means") for _ in range(2)]


ASSIGNMENT = Assignment(
    title="A small assignment",
    questions=(
        Question(
            "q1",
            "Discounted sum",
            "discounted_sum",
            {"random rewards": 20, "gamma 0": 10},
            discounted_sum_backwards,
            q1_cases,
            (
                Mistake(discounted_sum_late, "Every reward is discounted once too often."),
                Mistake(discounted_sum_plain, "Nothing is discounted."),
                Mistake(discounted_sum_mean, "This is a mean, not a sum."),
                Mistake(discounted_sum_reversed, "The rewards are taken in the wrong order."),
                Mistake(discounted_sum_sign, "The sign is wrong."),
            ),
            (discounted_sum_powers,),
            seconds=2.0,
        ),
        Question(
            "q2",
            "Policy evaluation",
            "evaluate",
            {"small chains": 20, "large chains": 10},
            evaluate_solve,
            q2_cases,
            (
                Mistake(evaluate_transposed, "The matrix is transposed."),
                Mistake(evaluate_once, "One sweep is not enough."),
                Mistake(evaluate_no_discount, "The discount is not used."),
                Mistake(evaluate_late, "The first reward is discounted."),
                Mistake(evaluate_column, "The result is a column: flatten it."),
            ),
            (evaluate_sweeps,),
            compare=close(rtol=1e-4, atol=1e-6),
            seconds=2.0,
        ),
        Question(
            "q3",
            "Running mean",
            "RunningMean",
            {"means": 20},
            RunningMeanStep,
            q3_cases,
            (
                Mistake(RunningMeanSum, "This is the sum."),
                Mistake(RunningMeanLast, "This is the last value."),
                Mistake(RunningMeanOneMore, "The count is one too large."),
                Mistake(RunningMeanBefore, "The mean leaves the newest value out."),
                Mistake(RunningMeanHalf, "The step does not shrink."),
            ),
            (RunningMean,),
            driver=drive_q3,
            seconds=2.0,
        ),
    ),
    written=Written("written", "Why discount?", 20),
    seconds=30.0,
    memory_mb=400,
    cell_seconds=3.0,
)
