"""Hidden tests of assignment 2: Monte Carlo, TD, SARSA and Q-learning.

In order, question by question: reference, alternatives, mistakes, driver, cases; then the assignment itself. Whatever
is handed in as a student's cell (alternatives and mistakes) needs numpy only and no other function of this file.
"""

from __future__ import annotations

import functools

import numpy as np

from assignments.grader.comparing import close, judged, repeats
from assignments.grader.edits import edit
from assignments.grader.questions import Assignment, Case, Mistake, Question, Written

HIDDEN_MARKER = "RLBOOK-HIDDEN-02_td"


# ---------------------------------------------------------------------- q1: first-visit Monte Carlo


def first_visit_values_reference(episodes, n_states, gamma):
    """Forward: the return of every time step by its definition, and the first place of every state."""
    collected = [[] for _ in range(n_states)]
    for states, rewards in episodes:
        steps = len(rewards)
        powers = np.array([[gamma ** (k - t) if k >= t else 0.0 for k in range(steps)] for t in range(steps)])
        returns = powers @ np.asarray(rewards, dtype=float)
        for state, t in zip(*np.unique(states[:-1], return_index=True), strict=True):
            collected[state].append(returns[t])
    values = np.array([np.mean(one) if one else 0.0 for one in collected])
    return values, np.array([len(one) for one in collected])


def first_visit_values_plain(episodes, n_states, gamma):
    total, counts = np.zeros(n_states), np.zeros(n_states, dtype=int)
    for states, rewards in episodes:
        g, first = 0.0, {}
        for t in reversed(range(len(rewards))):
            g = rewards[t] + gamma * g
            first[int(states[t])] = g
        for s, g in first.items():
            total[s] += g
            counts[s] += 1
    return total / np.maximum(counts, 1), counts


def first_visit_values_seen(episodes, n_states, gamma):
    total, counts = np.zeros(n_states), np.zeros(n_states, dtype=int)
    for states, rewards in episodes:
        returns, g = np.zeros(len(rewards)), 0.0
        for t in reversed(range(len(rewards))):
            g = rewards[t] + gamma * g
            returns[t] = g
        seen = set()
        for t in range(len(rewards)):
            if int(states[t]) not in seen:
                seen.add(int(states[t]))
                total[states[t]] += returns[t]
                counts[states[t]] += 1
    return total / np.maximum(counts, 1), counts


def first_visit_values_forward(episodes, n_states, gamma):
    """For every state, look for it in every episode; lists in place of arrays."""
    values, counts = [0.0] * n_states, [0.0] * n_states
    for s in range(n_states):
        samples = []
        for states, rewards in episodes:
            places = [t for t in range(len(rewards)) if states[t] == s]
            if places:
                samples.append(sum(gamma**k * r for k, r in enumerate(rewards[places[0] :])))
        if samples:
            values[s], counts[s] = float(sum(samples) / len(samples)), len(samples)
    return np.array(values), np.array(counts)


def cases_q1(rng):
    """The last number is the terminal state; one state in each case is visited by no episode, most by some episodes."""

    def episode(n_states, again):
        inner = rng.permutation(n_states - 2)[: rng.integers(2, n_states - 1)]  # state n_states - 2 is never visited
        if again:  # a loop through the first state, then the rest with repetitions
            extra = rng.integers(0, n_states - 2, size=rng.integers(1, 5))
            inner = np.concatenate([inner[:2], inner[:1], inner[1:], extra])
        return [np.append(inner, n_states - 1), rng.normal(size=len(inner)) * 3]

    cases = []
    for again, part in ((False, "no state twice in an episode"), (True, "states visited again")):
        for _ in range(3):
            n_states = int(rng.integers(5, 9))
            episodes = [episode(n_states, again) for _ in range(rng.integers(2, 6))]
            short = [np.array([0, n_states - 1]), rng.normal(size=1)]  # one step, so that counts differ
            cases.append(Case(([short, *episodes], n_states, float(rng.uniform(0.4, 0.9))), part))
    for gamma in (0.0, 1.0):
        n_states = int(rng.integers(5, 9))
        cases.append(Case(([episode(n_states, True) for _ in range(3)], n_states, gamma), "gamma 0 and gamma 1"))
    return cases


Q1 = Question(
    name="q1",
    title="First-visit Monte Carlo",
    function="first_visit_values",
    parts={"no state twice in an episode": 5, "states visited again": 6, "gamma 0 and gamma 1": 3},
    shares=dict.fromkeys(("no state twice in an episode", "states visited again"), "entries"),
    reference=first_visit_values_reference,
    alternatives=(first_visit_values_plain, first_visit_values_seen, first_visit_values_forward),
    cases=cases_q1,
    mistakes=(
        Mistake(
            edit(
                first_visit_values_plain,
                "            first[int(states[t])] = g\n"
                "        for s, g in first.items():\n"
                "            total[s] += g\n"
                "            counts[s] += 1",
                "            total[states[t]] += g\n            counts[states[t]] += 1",
            ),
            "Every visit is counted. An episode gives one sample per state, the return after its first visit. Look at an"
            " episode that comes back to a state: how many samples of that state do you add?",
        ),
        Mistake(
            edit(first_visit_values_plain, "first[int(states[t])] = g", "first.setdefault(int(states[t]), g)"),
            "The return after the last visit of an episode is used, not after the first one. If you walk backward through"
            " the episode, the visit that you meet first is the last one.",
        ),
        Mistake(
            edit(first_visit_values_plain, "for s, g in first.items():", "for s in first:"),
            "Every state of an episode gets the return of the whole episode. A state gets the return that starts at its"
            " own first visit; rewards from before that time are not part of it.",
        ),
        Mistake(
            edit(first_visit_values_seen, "+= returns[t]", "+= gamma**t * returns[t]"),
            "The power of gamma counts from the start of the episode. In the return of a state, time counts from the visit"
            " to this state: the reward that follows the visit at once is not discounted.",
        ),
        Mistake(
            edit(first_visit_values_plain, "rewards[t] + gamma * g", "gamma * (rewards[t] + g)"),
            "All rewards are discounted once too often. The reward that follows a visit at once has the factor 1, the next"
            " one gamma, and so on.",
        ),
        Mistake(
            edit(
                first_visit_values_plain,
                "            g = rewards[t] + gamma * g\n            first[int(states[t])] = g",
                "            first[int(states[t])] = g\n            g = rewards[t] + gamma * g",
            ),
            "The reward that follows the visit at once is missing: the return starts one step too late. With this book's"
            " indices the reward of time t belongs to the return of time t.",
        ),
        Mistake(
            edit(first_visit_values_plain, "np.maximum(counts, 1)", "len(episodes)"),
            "The sum of returns is divided by the number of all episodes. Divide by the number of episodes that visited"
            " the state: an episode that never came there says nothing about it.",
        ),
        Mistake(
            edit(
                first_visit_values_plain,
                "for states, rewards in episodes",
                "for number, (states, rewards) in enumerate(episodes, 1)",
                "total[s] += g",
                "total[s] += (g - total[s]) / number",
                "total / np.maximum(counts, 1)",
                "total",
            ),
            "The running mean divides by the number of the episode. Count the visits of each state: an episode that never"
            " came there is no sample of it.",
        ),
        Mistake(
            edit(first_visit_values_plain, "0, {}", "0, {int(states[-1]): 0.0}"),
            "The last state of an episode is counted as a visit. No action is taken there and no reward follows, so there"
            " is no return to average. Compare your counts with the docstring.",
        ),
        Mistake(
            edit(
                first_visit_values_seen,
                "        seen = set()\n",
                "",
                "    for states, rewards",
                "    seen = set()\n    for states, rewards",
            ),
            "A state is counted in one episode only. What you use to remember the visited states has to be emptied at the"
            " start of each episode.",
        ),
        Mistake(
            edit(
                first_visit_values_plain,
                "np.zeros(n_states),",
                "np.zeros(n_states, dtype=int),",
                "total[s] += g",
                "total[s] = total[s] + g",
            ),
            "The returns are collected in an array of integers, which cuts off everything behind the decimal point. Make the"
            " array of the sums with floats; only the counts are whole numbers.",
        ),
        Mistake(
            edit(first_visit_values_plain, "gamma * g", "g"),
            "The discount is missing: what follows counts gamma times.",
        ),
        Mistake(
            edit(first_visit_values_plain, "total / np.maximum(counts, 1)", "total"),
            "The returns of a state are summed. Its value is their mean.",
        ),
    ),
)


# ---------------------------------------------------------------------- q2: TD(0)


def td_zero_reference(values, states, rewards, next_states, terminated, truncated, gamma, alpha):
    """Every update as a matrix: the new table is (I - alpha e_s (e_s - gamma e_s')^T) V + alpha r e_s."""
    size = len(values)
    table, unit = np.array(values, dtype=float), np.eye(size)
    for s, r, after, end in zip(states, rewards, next_states, terminated, strict=True):
        row = unit[s] - (0.0 if end else gamma) * unit[after]
        table = (unit - alpha * np.outer(unit[s], row)) @ table + alpha * r * unit[s]
    return table


def td_zero_as_mean(values, states, rewards, next_states, terminated, truncated, gamma, alpha):
    """A weighted mean of the old value and the target, in plain python."""
    v = [float(x) for x in values]
    for t in range(len(rewards)):
        target = rewards[t]
        if not terminated[t]:
            target = target + gamma * v[int(next_states[t])]
        v[int(states[t])] = (1 - alpha) * v[int(states[t])] + alpha * target
    return np.array(v)


def td_zero_masked(values, states, rewards, next_states, terminated, truncated, gamma, alpha):
    """The mask as a factor, and the TD error as a name of its own."""
    table = values.astype(float)
    for s, r, s_next, d in zip(states, rewards, next_states, terminated):
        delta = r + gamma * (1 - d) * table[s_next] - table[s]
        table[s] += alpha * delta
    return table


def drive_q2(function, watch, *arguments):
    """The new table; with ``watch`` also the table that was handed over, as it is after the call."""
    result = function(*arguments)
    return {"result": result, "argument": arguments[0]} if watch else {"result": result}


def judge_q2(raw):
    """Of the table that was handed over only this is asked: the part is about nothing else."""
    return {"argument": raw["argument"], "shape": np.shape(raw["result"])} if "argument" in raw else raw


def cases_q2(rng):
    """Walks over few states, so that updates meet; terminal states hold a value that must not be used."""

    def steps(length, ends, watch, part, rates=None):
        size = int(rng.integers(3, 6))
        states = rng.integers(0, size, length)
        next_states = np.append(states[1:], rng.integers(0, size))
        terminated, truncated = np.zeros(length, dtype=bool), np.zeros(length, dtype=bool)
        places = rng.permutation(np.arange(1, length - 1, 2))[:3]  # never two in a row
        for place, kind in zip(places, ends * 3, strict=False):
            terminated[place], truncated[place] = kind in ("terminated", "both"), kind in ("truncated", "both")
            next_states[place] = (states[place + 1] + 1) % size  # not where the next episode starts
        table = rng.uniform(1, 4, size) * rng.choice([-1, 1], size)
        gamma, alpha = rates or (float(rng.uniform(0.5, 1.0)), float(rng.uniform(0.1, 0.6)))
        arguments = (table, states, rng.normal(size=length) * 2, next_states, terminated, truncated, gamma, alpha)
        return Case((watch, *arguments), part)

    def length():
        return int(rng.integers(9, 20))

    return [
        steps(length(), [], False, "steps inside an episode"),
        steps(length(), [], False, "steps inside an episode"),
        steps(length(), ["terminated"], False, "terminations"),
        steps(length(), ["both"], False, "terminations"),
        steps(length(), ["truncated"], False, "truncations"),
        steps(length(), ["truncated"], False, "truncations"),
        steps(length(), [], True, "the given table stays as it is"),
        steps(length(), [], False, "steps inside an episode", rates=(1.0, 1.0)),
    ]


def td_zero_plain(values, states, rewards, next_states, terminated, truncated, gamma, alpha):
    v = values.copy()
    for t in range(len(rewards)):
        target = rewards[t] + gamma * (1 - terminated[t]) * v[next_states[t]]
        v[states[t]] += alpha * (target - v[states[t]])
    return v


Q2 = Question(
    name="q2",
    title="TD(0) with two flags",
    function="td_zero",
    parts={"steps inside an episode": 4, "terminations": 4, "truncations": 4, "the given table stays as it is": 2},
    reference=td_zero_reference,
    alternatives=(td_zero_plain, td_zero_as_mean, td_zero_masked),
    cases=cases_q2,
    driver=drive_q2,
    compare=judged(judge_q2, close()),
    mistakes=(
        Mistake(
            edit(td_zero_plain, " * (1 - terminated[t])", ""),
            "The target bootstraps past a termination. After a terminal state nothing follows, whatever number the table"
            " holds there, so the target is the reward alone.",
        ),
        Mistake(
            edit(td_zero_plain, "1 - terminated[t]", "1 - (terminated[t] or truncated[t])"),
            "A truncation is treated like a termination. When a recording is cut, the world goes on, and the next state"
            " still has a value: only `terminated` takes the bootstrap away.",
        ),
        Mistake(
            edit(td_zero_plain, "1 - terminated[t]", "1 - truncated[t]"),
            "The two flags have changed places: the target bootstraps at terminations and not at truncations. Read once"
            " more which of the two says that the world has ended.",
        ),
        Mistake(
            edit(td_zero_plain, "1 - terminated[t]", "1 - (terminated[t] and not truncated[t])"),
            "Where both flags are set the target bootstraps. A step with both flags set has terminated: the docstring says"
            " which flag wins.",
        ),
        Mistake(
            edit(td_zero_plain, "v[next_states[t]]", "values[next_states[t]]", "target - v", "target - values"),
            "All targets are computed from the table as it was at the beginning. TD(0) updates after every step, and each"
            " update works on the table that the one before left behind.",
        ),
        Mistake(
            edit(td_zero_plain, "values.copy()", "values"),
            "The table that was handed over is changed. Work on a copy: whoever called the function may still need the"
            " old values.",
        ),
        Mistake(
            edit(td_zero_plain, "next_states[t]", "states[t + 1] if t + 1 < len(states) else next_states[t]"),
            "The bootstrap reads the state of the next row in place of `next_states`. Where an episode ends or is cut, the"
            " next row already belongs to another episode.",
        ),
        Mistake(
            edit(td_zero_plain, "(target - v[states[t]])", "target"),
            "The step adds a fraction of the target, not of the error. Old estimate plus step size times (target minus old"
            " estimate): with your update the values grow without need.",
        ),
        Mistake(
            edit(td_zero_plain, "target - v[states[t]]", "v[states[t]] - target"),
            "The sign of the error is turned around: the estimate moves away from the target. The error is target minus"
            " estimate.",
        ),
        Mistake(
            edit(
                td_zero_plain,
                "rewards[t] + gamma * (1 - terminated[t]) * v[next_states[t]]",
                "(rewards[t] + gamma * v[next_states[t]]) * (1 - terminated[t])",
            ),
            "At a termination the reward is masked too. The last reward has really been received; only the value of what"
            " would come after it is 0.",
        ),
        Mistake(
            edit(td_zero_plain, "+= alpha * (", "+= ("),
            "The step size is not used: the estimate jumps to the target. Only the fraction alpha of the error is added.",
        ),
        Mistake(edit(td_zero_plain, "gamma * (1", "(1"), "The discount is missing: what follows counts gamma times."),
        Mistake(
            edit(td_zero_plain, "v[next_states[t]]", "v[states[t]]"),
            "The target contains the value of the state that was left. It belongs to the state that the step led to.",
        ),
        Mistake(
            edit(
                td_zero_plain,
                "rewards[t] + gamma * (1 - terminated[t]) * v[next_states[t]]",
                "gamma * (rewards[t] + (1 - terminated[t]) * v[next_states[t]])",
            ),
            "The reward is discounted too. It comes with the present step; gamma belongs to what follows.",
        ),
    ),
)


# ---------------------------------------------------------------------- q3: n-step targets


def n_step_targets_reference(rewards, next_values, terminated, truncated, gamma, n):
    from rlbook_lib.returns import n_step_returns

    return n_step_returns(rewards, next_values, terminated, truncated, gamma, n)


def n_step_targets_recursive(rewards, next_values, terminated, truncated, gamma, n):
    """G^(n)_t = r_t + gamma G^(n-1)_{t+1}, unless the path ends after step t."""

    def target(t, left):
        if terminated[t]:
            return rewards[t]
        if left == 1 or truncated[t] or t == len(rewards) - 1:
            return rewards[t] + gamma * next_values[t]
        return rewards[t] + gamma * target(t + 1, left - 1)

    return np.array([target(t, n) for t in range(len(rewards))])


def n_step_targets_sweeps(rewards, next_values, terminated, truncated, gamma, n):
    """n - 1 sweeps over whole arrays, each looking one step further ahead."""
    one_step = rewards + gamma * np.where(terminated, 0.0, next_values)
    stop = np.logical_or(terminated, truncated)
    stop[-1] = True
    targets = one_step.copy()
    for _ in range(n - 1):
        targets = np.where(stop, one_step, rewards + gamma * np.append(targets[1:], 0.0))
    return targets


def cases_q3(rng):
    def recording(lengths, kinds, n, part, gamma=None):
        """Episodes one after the other; kind "open" means that the recording stops without a flag."""
        size = int(sum(lengths))
        terminated, truncated = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        for last, kind in zip(np.cumsum(lengths) - 1, kinds, strict=True):
            terminated[last], truncated[last] = kind in ("terminated", "both"), kind in ("truncated", "both")
        gamma = float(rng.uniform(0.5, 0.9)) if gamma is None else gamma
        next_values = rng.uniform(1, 4, size) * rng.choice([-1, 1], size)
        return Case((rng.uniform(0.5, 2, size), next_values, terminated, truncated, gamma, n), part)

    def length():
        return int(rng.integers(5, 9))

    n = int(rng.integers(2, 5))
    several = "several episodes in one recording"
    return [
        recording([length()], ["open"], 1, "n = 1"),
        recording([3, length()], ["terminated", "open"], 1, "n = 1"),
        recording([length()], ["terminated"], n, "one episode that terminates"),
        recording([length()], ["terminated"], 30, "one episode that terminates"),
        recording([length()], ["both"], n, "one episode that terminates"),
        recording([length()], ["truncated"], n, "one episode that is cut"),
        recording([length()], ["truncated"], 30, "one episode that is cut"),
        recording([length()], ["open"], n, "one episode that is cut"),
        recording([length(), 2, length()], ["terminated", "truncated", "terminated"], n, several),
        recording([length(), 1, length()], ["truncated", "terminated", "open"], n + 1, several),
        recording([4, length()], ["truncated", "terminated"], 3, several, gamma=1.0),
        recording([4, length()], ["terminated", "truncated"], 3, several, gamma=0.0),
        recording([1, length()], ["truncated", "terminated"], 3, several),
    ]


def n_step_targets_plain(rewards, next_values, terminated, truncated, gamma, n):
    targets = np.zeros(len(rewards))
    for t in range(len(rewards)):
        for k in range(t, min(t + n, len(rewards))):
            targets[t] += gamma ** (k - t) * rewards[k]
            if terminated[k] or truncated[k]:
                break
        if not terminated[k]:
            targets[t] += gamma ** (k + 1 - t) * next_values[k]
    return targets


Q3 = Question(
    name="q3",
    title="n-step targets",
    function="n_step_targets",
    parts={
        "n = 1": 3,
        "one episode that terminates": 4,
        "one episode that is cut": 4,
        "several episodes in one recording": 5,
    },
    reference=n_step_targets_reference,
    alternatives=(n_step_targets_plain, n_step_targets_recursive, n_step_targets_sweeps),
    cases=cases_q3,
    mistakes=(
        Mistake(
            edit(n_step_targets_plain, "        if not terminated[k]:\n            targets", "        targets"),
            "The target bootstraps past a termination. If the episode terminates within the n steps, the target is the sum"
            " of the rewards up to there, and no value is added.",
        ),
        Mistake(
            edit(n_step_targets_plain, "if not terminated[k]", "if not (terminated[k] or truncated[k])"),
            "At a truncation no value is added. The episode went on without being watched: take the rewards up to the cut,"
            " then bootstrap from the state at the cut.",
        ),
        Mistake(
            edit(
                n_step_targets_plain,
                "if not terminated[k]",
                "if not terminated[k] and (truncated[k] or k == t + n - 1)",
            ),
            "Where the recording stops before n rewards are collected, no value is added. The end of the recording is a"
            " cut like any other: bootstrap from the last state that was seen.",
        ),
        Mistake(
            edit(n_step_targets_plain, "            if terminated[k] or truncated[k]:\n                break\n", ""),
            "The sum runs on into the next episode. Whatever follows a set flag in the arrays belongs to another episode,"
            " so the sum has to stop there.",
        ),
        Mistake(
            edit(n_step_targets_plain, "gamma ** (k + 1 - t)", "gamma**n"),
            "The value is always discounted n times. Near the end fewer than n rewards are collected; the power of gamma"
            " is the number of rewards that stand before the value.",
        ),
        Mistake(
            edit(n_step_targets_plain, "k + 1 - t", "k - t"),
            "The value is discounted once too little: it gets the same power of gamma as the last reward. The value"
            " stands one step later than that reward.",
        ),
        Mistake(
            edit(n_step_targets_plain, "t + n", "t + n + 1"),
            "One reward too many is collected: n + 1 in place of n. Check with n = 1, where the target must be that of"
            " TD(0).",
        ),
        Mistake(
            edit(n_step_targets_plain, "next_values[k]", "next_values[min(k + 1, len(rewards) - 1)]"),
            "The value is read one row too late. `next_values` is already shifted: its row k holds the value of the state"
            " that step k led to.",
        ),
        Mistake(
            edit(n_step_targets_plain, "gamma ** (k - t) * rewards[k]", "rewards[k]"),
            "The rewards are added without discount. The k-th reward after time t has the factor gamma to the power k.",
        ),
        Mistake(
            edit(n_step_targets_plain, "terminated[k] or truncated[k]", "terminated[k]"),
            "A truncation does not end the sum. What stands behind it in the arrays belongs to another episode: take the value there and stop.",
        ),
        Mistake(
            edit(n_step_targets_plain, "if not terminated[k]", "if terminated[k]"),
            "The mask is the wrong way round: a value is added where the episode terminated, and only there.",
        ),
    ),
)


# ---------------------------------------------------------------------- q4: epsilon-greedy


@functools.cache
def epsilon_greedy_chances(action_values, epsilon):
    """The chances of the actions before and with each, (A,); one row is drawn from thousands of times."""
    from rlbook_lib.experience import epsilon_greedy_probabilities

    return np.cumsum(epsilon_greedy_probabilities(np.array(action_values), epsilon))


def epsilon_greedy_action_reference(action_values, epsilon, rng, turns={}):
    """Evenly spread in place of random: a golden-ratio sequence, counted per generator.

    So the frequencies are exact to about 0.001, and all the noise in a comparison is the student's own.
    """
    turn = turns.setdefault(id(rng), [rng, 0])  # keeps the generator, so that its id stays its own
    turn[1] += 1
    place = turn[1] * 0.6180339887498949 % 1.0
    chances = epsilon_greedy_chances(tuple(action_values), epsilon)
    return min(int(np.searchsorted(chances, place, side="right")), len(chances) - 1)


def epsilon_greedy_action_from_row(action_values, epsilon, rng):
    """The whole distribution, then one draw."""
    best = action_values == np.max(action_values)
    p = epsilon / len(action_values) + (1 - epsilon) * best / best.sum()
    return int(rng.choice(len(action_values), p=p))


def epsilon_greedy_action_shuffled(action_values, epsilon, rng):
    """Ties by a random order; a numpy integer comes back."""
    if rng.uniform() < epsilon:
        return rng.integers(0, action_values.size)
    order = rng.permutation(action_values.size)
    return order[np.argmax(action_values[order])]


def epsilon_greedy_action_never_greedy_at_random(action_values, epsilon, rng):
    best = np.flatnonzero(action_values == action_values.max())
    others = np.setdiff1d(np.arange(len(action_values)), best)
    if rng.random() < epsilon and len(others):
        return int(rng.choice(others))
    return int(rng.choice(best))


def drive_q4(function, look, action_values, epsilon, seed, draws):
    """The actions that are drawn; twice, with two generators of the same seed, if asked for."""
    import numpy as np

    def drawn():
        rng = np.random.default_rng(seed)
        return [int(function(action_values.copy(), epsilon, rng)) for _ in range(draws)]

    return {"runs": [drawn(), drawn()]} if look == "repeats" else drawn()


def judge_q4(raw):
    """How often each action is drawn; or whether both generators draw the same actions.

    Actions that do not exist count as one: with a place for each, the number of one fills the memory.
    """
    if isinstance(raw, dict):
        return {"repeats": repeats(raw["runs"])}
    return {
        "draws": len(raw),
        "frequencies": np.bincount(np.minimum(raw, MOST_ACTIONS), minlength=MOST_ACTIONS) / len(raw),
    }


DRAWS = 1300  # and a tolerance of 0.09: by Hoeffding's inequality a right frequency is outside once in 10^8 cases


MOST_ACTIONS = 5


def cases_q4(rng):
    def seed():
        return int(rng.integers(2**31))

    def row(n_actions, ties):
        """Distinct values of both signs, the best ones equal; gaps of 0.4 and more."""
        values = rng.permutation(n_actions) * 0.5 - rng.uniform(0, 2) + rng.uniform(0, 0.1, n_actions)
        order = np.argsort(values)
        values[order[n_actions - ties :]] = values[order[-1]]
        return values

    wide = int(rng.integers(4, MOST_ACTIONS + 1))
    found = [
        Case(("count", row(3, 1), float(rng.uniform(0.65, 0.8)), seed(), DRAWS), "one best action"),
        Case(("count", row(wide, 2), float(rng.uniform(0.1, 0.3)), seed(), DRAWS), "ties"),
        Case(("count", row(wide, 3), float(rng.uniform(0.1, 0.3)), seed(), DRAWS), "ties"),
        Case(("count", row(wide, 1), 0.0, seed(), 300), "epsilon 0 and epsilon 1"),
        Case(("count", row(wide - 1, 1), 1.0, seed(), DRAWS), "epsilon 0 and epsilon 1"),
        Case(("repeats", row(MOST_ACTIONS, 2), 0.5, seed(), 300), "the given generator"),
    ]
    close_call = row(3, 1)  # the second best is nearly as good, and no tie
    close_call[close_call.argsort()[-2]] = close_call.max() - 1e-6
    found.append(Case(("count", close_call, float(rng.uniform(0.1, 0.3)), seed(), DRAWS), "one best action"))
    found.append(Case(("count", row(1, 1), 0.5, seed(), 300), "epsilon 0 and epsilon 1"))
    return found


def epsilon_greedy_action_plain(action_values, epsilon, rng):
    if rng.random() < epsilon:
        return int(rng.integers(len(action_values)))
    return int(rng.choice(np.flatnonzero(action_values == action_values.max())))


Q4 = Question(
    name="q4",
    title="epsilon-greedy choice",
    function="epsilon_greedy_action",
    parts={"one best action": 3, "ties": 4, "epsilon 0 and epsilon 1": 3, "the given generator": 2},
    reference=epsilon_greedy_action_reference,
    alternatives=(epsilon_greedy_action_plain, epsilon_greedy_action_from_row, epsilon_greedy_action_shuffled),
    cases=cases_q4,
    driver=drive_q4,
    compare=judged(judge_q4, close(rtol=0.0, atol=0.09)),
    sampled=True,
    mistakes=(
        Mistake(
            edit(
                epsilon_greedy_action_plain,
                "rng.choice(np.flatnonzero(action_values == action_values.max()))",
                "np.argmax(action_values)",
            ),
            "Of several best actions the first one is always taken. `np.argmax` does that. Actions that tie for the best"
            " are to be drawn with equal chances.",
        ),
        Mistake(
            epsilon_greedy_action_never_greedy_at_random,
            "The random share epsilon goes to the other actions only. It is spread over all actions, the greedy one"
            " included, so the greedy action is drawn more often than 1 - epsilon of the time.",
        ),
        Mistake(
            edit(epsilon_greedy_action_plain, "rng.random() <", "rng.random() >"),
            "Epsilon has become the probability of being greedy. With epsilon = 0 the agent has to be greedy always.",
        ),
        Mistake(
            edit(epsilon_greedy_action_plain, "action_values.max()", "action_values.min()"),
            "The greedy choice takes the smallest value. Values are rewards here, not costs: take the largest.",
        ),
        Mistake(
            edit(
                epsilon_greedy_action_plain,
                "    if rng.random() < epsilon:\n        return int(rng.integers(len(action_values)))\n",
                "",
            ),
            "The function never explores: epsilon has no effect. Draw any action with probability epsilon.",
        ),
        Mistake(
            edit(epsilon_greedy_action_plain, "    if rng", "    rng = np.random.default_rng(0)\n    if rng"),
            "A new generator is made in every call, so every call draws the same numbers. Use the generator that is"
            " handed over, and let it move on from call to call.",
        ),
        Mistake(
            edit(
                epsilon_greedy_action_plain,
                "    if rng",
                "    rng = np.random\n    if rng",
                "rng.integers",
                "rng.randint",
            ),
            "The random numbers do not come from `rng`: with the same seed the function draws other actions. Experiments"
            " cannot be repeated then. Use the methods of `rng` only.",
        ),
        Mistake(
            edit(epsilon_greedy_action_from_row, "best / best.sum()", "best"),
            "Every tied action gets the whole share 1 - epsilon, so the probabilities sum to more than 1. Tied actions"
            " have to share it.",
        ),
        Mistake(
            edit(
                epsilon_greedy_action_plain,
                "return int(rng.choice(np.flatnonzero(action_values == action_values.max())))",
                "p = np.exp(action_values - action_values.max())\n"
                "    return int(rng.choice(len(action_values), p=p / p.sum()))",
            ),
            "When it does not explore, the function draws from a softmax of the values. A greedy choice takes a best"
            " action, however close the others are.",
        ),
        Mistake(
            edit(
                epsilon_greedy_action_plain,
                "action_values == action_values.max()",
                "action_values > action_values.max() - 0.3",
            ),
            "Actions that are nearly as good count as best. Only those tie whose value equals the largest one.",
        ),
    ),
)


# ---------------------------------------------------------------------- q5: three targets for control


def control_targets_reference(rule, q_values, rewards, next_states, next_actions, terminated, gamma, epsilon):
    """Every rule as a policy at the next state, then one weighted sum."""
    from rlbook_lib.experience import epsilon_greedy_probabilities

    rows = q_values[next_states]
    if rule == "sarsa":
        weights = np.eye(rows.shape[1])[next_actions]
    else:
        weights = epsilon_greedy_probabilities(rows, epsilon if rule == "expected_sarsa" else 0.0)
    return rewards + gamma * np.einsum("na,na->n", weights, rows) * ~terminated


def control_targets_loop(rule, q_values, rewards, next_states, next_actions, terminated, gamma, epsilon):
    targets = []
    for i in range(len(rewards)):
        row = q_values[next_states[i]]
        best = max(row)
        if rule == "q_learning":
            after = best
        elif rule == "sarsa":
            after = row[next_actions[i]]
        else:
            m = sum(1 for x in row if x == best)
            p = [epsilon / len(row) + ((1 - epsilon) / m if x == best else 0.0) for x in row]
            after = sum(chance * x for chance, x in zip(p, row))
        targets.append(float(rewards[i] if terminated[i] else rewards[i] + gamma * after))
    return np.array(targets)


def control_targets_by_dictionary(rule, q_values, rewards, next_states, next_actions, terminated, gamma, epsilon):
    rows = np.take(q_values, next_states, axis=0)
    after = {
        "sarsa": np.take_along_axis(rows, next_actions[:, None], axis=1)[:, 0],
        "expected_sarsa": (1 - epsilon) * rows.max(axis=1) + epsilon * rows.mean(axis=1),
        "q_learning": rows.max(axis=1),
    }[rule]
    return np.where(terminated, rewards, rewards + gamma * after)


def cases_q5(rng):
    def batch(rule, part, ends, epsilon=None):
        n_states, n_actions, size = (int(rng.integers(4, 8)), int(rng.integers(3, 6)), int(rng.integers(6, 15)))
        q_values = rng.normal(size=(n_states, n_actions)) * 3 + 1
        q_values[1, :2] = q_values[1].max() + 1.0  # a tie for the best
        q_values[3] = rng.choice([-2.0, 2.0])  # all tie
        next_states = np.append(rng.integers(0, n_states, size), [0, 1, 2, 3])  # the tied rows are always there
        next_actions = rng.integers(0, n_actions, size + 4)
        next_actions[-4] = q_values[0].argmin()  # certainly not the greedy action
        terminated = rng.random(size + 4) < 0.4 if ends else np.zeros(size + 4, dtype=bool)
        terminated[[-4, -2]] = ends  # two certain ends
        rewards, gamma = rng.normal(size=size + 4), float(rng.uniform(0.6, 0.95))
        epsilon = float(rng.uniform(0.2, 0.6)) if epsilon is None else epsilon
        return Case((rule, q_values, rewards, next_states, next_actions, terminated, gamma, epsilon), part)

    return [
        batch("sarsa", "SARSA", False),
        batch("sarsa", "SARSA", False),
        batch("expected_sarsa", "expected SARSA", False),
        batch("expected_sarsa", "expected SARSA", False),
        batch("expected_sarsa", "expected SARSA", False, 0.0),
        batch("expected_sarsa", "expected SARSA", False, 1.0),
        batch("q_learning", "Q-learning", False),
        batch("q_learning", "Q-learning", False),
        *(batch(rule, "terminal states", True) for rule in ("sarsa", "expected_sarsa", "q_learning")),
    ]


def control_targets_plain(rule, q_values, rewards, next_states, next_actions, terminated, gamma, epsilon):
    rows = q_values[next_states]
    if rule == "sarsa":
        after = rows[np.arange(len(rows)), next_actions]
    elif rule == "q_learning":
        after = rows.max(axis=1)
    else:
        after = (1 - epsilon) * rows.max(axis=1) + epsilon * rows.mean(axis=1)
    return rewards + gamma * (1 - terminated) * after


Q5 = Question(
    name="q5",
    title="SARSA, expected SARSA and Q-learning",
    function="control_targets",
    parts={"SARSA": 4, "expected SARSA": 5, "Q-learning": 4, "terminal states": 3},
    reference=control_targets_reference,
    alternatives=(control_targets_plain, control_targets_loop, control_targets_by_dictionary),
    cases=cases_q5,
    mistakes=(
        Mistake(
            edit(control_targets_plain, " * (1 - terminated)", ""),
            "The targets of steps that terminated still contain a value of the next state. Nothing follows a terminal"
            " state: there the target is the reward alone, for all three rules.",
        ),
        Mistake(
            edit(control_targets_plain, '"q_learning"', '"other"', '"sarsa"', '"q_learning"', '"other"', '"sarsa"'),
            "SARSA and Q-learning have changed places. Ask whose next action is in the target: the one that was really"
            " taken (SARSA), or the best one (Q-learning)?",
        ),
        Mistake(
            edit(control_targets_plain, 'if rule == "sarsa"', 'if rule != "expected_sarsa"'),
            "Q-learning uses the next action that was taken. That is SARSA's target under another name. Q-learning takes"
            " the maximum over the actions of the next state.",
        ),
        Mistake(
            edit(
                control_targets_plain,
                "after = (1 - epsilon) * rows.max(axis=1) + epsilon * rows.mean(axis=1)",
                "p = epsilon / rows.shape[1] + (1 - epsilon) * (rows == rows.max(axis=1, keepdims=True))\n"
                "        after = (p * rows).sum(axis=1)",
            ),
            "Expected SARSA is wrong where actions tie for the best: each of them gets the whole greedy share. The"
            " probabilities of a state must sum to 1.",
        ),
        Mistake(
            edit(
                control_targets_plain,
                "        after = (1 - epsilon) * rows.max(axis=1) + epsilon * rows.mean(axis=1)",
                "        p = np.full(rows.shape, epsilon / (rows.shape[1] - 1))\n"
                "        p[np.arange(len(rows)), rows.argmax(axis=1)] = 1 - epsilon\n"
                "        after = (p * rows).sum(axis=1)",
            ),
            "In expected SARSA the share epsilon goes to the actions that are not greedy. This book's epsilon-greedy"
            " policy spreads it over all actions, the greedy one included.",
        ),
        Mistake(
            edit(
                control_targets_plain,
                "(1 - epsilon) * rows.max(axis=1) + epsilon * rows.mean(axis=1)",
                "rows.mean(axis=1)",
            ),
            "Expected SARSA averages all actions with equal weights. The average is over the epsilon-greedy policy: most"
            " of the weight belongs to the best action.",
        ),
        Mistake(
            edit(control_targets_plain, '    elif rule == "q_learning":\n        after = rows.max(axis=1)\n', ""),
            "Q-learning's target depends on epsilon. It does not ask how the agent behaves: only the largest value of the"
            " next state is in it.",
        ),
        Mistake(
            edit(control_targets_plain, "after = rows.max", "after = rows.argmax"),
            "Q-learning uses the number of the best action where its value is needed: argmax in place of max.",
        ),
        Mistake(
            edit(control_targets_plain, "after = rows.max(axis=1)", "after = q_values.max()"),
            "The maximum is taken over the whole table. It runs over the actions of the one next state of each"
            " transition: one maximum per row.",
        ),
        Mistake(
            edit(
                control_targets_plain,
                "rewards + gamma * (1 - terminated) * after",
                "gamma * (rewards + (1 - terminated) * after)",
            ),
            "The reward is discounted. It follows the action at once and has the factor 1; only the value of the next"
            " state is multiplied by gamma.",
        ),
        Mistake(
            edit(control_targets_plain, "gamma * (1", "(1"), "The discount is missing: what follows counts gamma times."
        ),
        Mistake(
            edit(control_targets_plain, "after = rows.max(axis=1)", "after = rows.min(axis=1)"),
            "Q-learning takes the smallest value of the next state. Values are rewards: take the largest.",
        ),
        Mistake(
            edit(
                control_targets_plain,
                "(1 - epsilon) * rows.max(axis=1) + epsilon *",
                "epsilon * rows.max(axis=1) + (1 - epsilon) *",
            ),
            "In expected SARSA the two shares have changed places: epsilon is the share of the random choice.",
        ),
    ),
)


# ---------------------------------------------------------------------- q6: the agent


def q_learning_agent_reference(env, episodes, gamma, alpha, epsilon, seed, initial_value=0.0):
    """The same agent on lists, as a weighted mean, with one uniform number for every choice."""
    rng = np.random.default_rng([seed, 1])
    table = [[float(initial_value)] * int(env.action_space.n) for _ in range(int(env.observation_space.n))]
    returns = []
    for episode in range(episodes):
        state, _ = env.reset(seed=seed) if episode == 0 else env.reset()
        going, collected = True, []
        while going:
            row = table[state]
            places = [a for a, value in enumerate(row) if value == max(row)]
            if rng.random() < epsilon:
                places = list(range(len(row)))
            action = places[int(rng.random() * len(places))]
            after, reward, terminated, truncated, _ = env.step(action)
            target = reward if terminated else reward + gamma * max(table[after])
            row[action] = (1 - alpha) * row[action] + alpha * target
            collected.append(reward)
            going, state = not (terminated or truncated), after
        returns.append(sum(collected))
    return np.array(table), np.array(returns)


def q_learning_agent_by_policy(env, episodes, gamma, alpha, epsilon, seed, initial_value=0.0):
    """Draws from the whole epsilon-greedy distribution."""
    rng = np.random.default_rng(seed)
    q = np.full((env.observation_space.n, env.action_space.n), initial_value, dtype=float)
    returns = np.zeros(episodes)
    for i in range(episodes):
        s, _ = env.reset(seed=None if i else seed)
        while True:
            best = q[s] == q[s].max()
            p = epsilon / len(best) + (1 - epsilon) * best / best.sum()
            a = rng.choice(len(best), p=p)
            s_next, r, terminated, truncated, _ = env.step(a)
            delta = r + gamma * q[s_next].max() * (not terminated) - q[s, a]
            q[s, a] += alpha * delta
            returns[i] += r
            s = s_next
            if terminated or truncated:
                break
    return q, returns


def q_learning_agent_by_steps(env, episodes, gamma, alpha, epsilon, seed, initial_value=0.0):
    """One loop over steps, which starts the next episode itself."""
    rng = np.random.default_rng(seed)
    n_states, n_actions = env.observation_space.n, env.action_space.n
    q_values = np.zeros((n_states, n_actions)) + initial_value
    returns, total = [], 0.0
    state = env.reset(seed=seed)[0]
    while len(returns) < episodes:
        greedy = rng.choice(np.flatnonzero(np.isclose(q_values[state], q_values[state].max(), rtol=0, atol=1e-12)))
        action = int(rng.integers(n_actions)) if rng.random() < epsilon else int(greedy)
        next_state, reward, terminated, truncated, info = env.step(action)
        bootstrap = 0.0 if terminated else np.max(q_values[next_state])
        q_values[state, action] += alpha * (reward + gamma * bootstrap - q_values[state, action])
        total += reward
        state = next_state
        if terminated or truncated:
            returns.append(total)
            total = 0.0
            state = env.reset()[0]
    return q_values, np.array(returns)


def q_learning_agent_sarsa(env, episodes, gamma, alpha, epsilon, seed, initial_value=0.0):
    rng = np.random.default_rng(seed)
    q = np.full((env.observation_space.n, env.action_space.n), float(initial_value))
    returns = np.zeros(episodes)

    def draw(s):
        if rng.random() < epsilon:
            return int(rng.integers(q.shape[1]))
        return int(rng.choice(np.flatnonzero(q[s] == q[s].max())))

    for i in range(episodes):
        s, over = env.reset(seed=seed if i == 0 else None)[0], False
        a = draw(s)
        while not over:
            after, r, terminated, truncated, _ = env.step(a)
            b = draw(after)
            q[s, a] += alpha * (r + gamma * (not terminated) * q[after, b] - q[s, a])
            returns[i] += r
            s, a, over = after, b, terminated or truncated
    return q, returns


def drive_q6(function, look, world, episodes, *setting):
    """Let the agent learn in a small table world, and look at one thing.

    ``look``: "all" gives table and returns, "learned" the table, "actions" the actions that were taken, "repeats" what
    two agents with the same arguments learn, and the seeds that the first one's resets were given.
    """
    import numpy as np
    from gymnasium.spaces import Discrete

    class World:
        """Deterministic moves; a step may terminate wherever it leads; ``limit`` truncates."""

        def __init__(self):
            n_states, n_actions = world["next_state"].shape
            self.observation_space, self.action_space = Discrete(n_states), Discrete(n_actions)
            self.actions, self.seeds, self.running = [], [], False

        def reset(self, *, seed=None, options=None):
            self.seeds.append(seed)
            self.state, self.steps, self.running = 0, 0, True
            return 0, {}

        def step(self, action):
            if not self.running:
                raise RuntimeError("step() after the end: call reset() first")
            action = int(action)
            if not 0 <= action < self.action_space.n:
                raise ValueError("no such action")
            self.actions.append(action)
            reward = float(world["reward"][self.state, action])
            terminated = bool(world["terminated"][self.state, action])
            self.state, self.steps = int(world["next_state"][self.state, action]), self.steps + 1
            truncated = self.steps >= world["limit"] and not terminated
            self.running = not (terminated or truncated)
            return self.state, reward, terminated, truncated, {}

    env = World()
    q_values, returns = function(env, episodes, *setting)
    if look == "all":
        return {"table": q_values, "returns": returns}
    if look == "learned":
        return {"learned": q_values}
    if look == "actions":
        return {"actions": env.actions}
    return {"runs": [[q_values, returns], function(World(), episodes, *setting)], "seeds": env.seeds}


ARMS = 3


def judge_q6(raw):
    """How often each action was taken after the first 200 steps; whether both agents learned the same."""
    if "actions" in raw:  # those that do not exist count as one, see judge_q4
        return {
            "frequencies": np.bincount(np.minimum(raw["actions"][200:], ARMS), minlength=ARMS)
            / (len(raw["actions"]) - 200)
        }
    if "runs" in raw:
        first, *later = raw["seeds"]
        return {
            "repeats": repeats(raw["runs"]),
            "seed": first,
            "later seeds": [seed for seed in later if seed is not None],
        }
    return raw


def compare_q6(got, want):
    """Exact where there is no choice; 0.01 for values after long learning; 0.2 for frequencies of 1200 steps."""
    got, want = judge_q6(got), judge_q6(want)
    if "learned" in want:
        return close(rtol=0.0, atol=0.01)(got, want)
    if "frequencies" in want:  # two samples: each is off by 0.1 or more once in 10^10 cases (Hoeffding)
        return close(rtol=0.0, atol=0.2)(got, want)
    return close(rtol=1e-4, atol=1e-5)(got, want)


def cases_q6(rng):
    def seed():
        return int(rng.integers(2**31))

    def line(size, limit, terminates):
        """One action only, so nothing is left to chance: around a circle, and its last step may terminate."""
        next_state = ((np.arange(size) + 1) % size)[:, None]
        terminated = np.zeros((size, 1), dtype=bool)
        terminated[-1] = terminates
        reward = rng.uniform(0.5, 2, (size, 1)) * rng.choice([-1, 1], (size, 1))
        return {"next_state": next_state, "reward": reward, "terminated": terminated, "limit": limit}

    def bandit(n_actions):
        """One state, one step: the best arm pays twice as much as any other."""
        zeros, reward = np.zeros((1, n_actions)), rng.uniform(0.2, 0.5, (1, n_actions))
        reward[0, rng.integers(n_actions)] = rng.uniform(1, 2)
        return {"next_state": zeros.astype(int), "reward": reward, "terminated": zeros == 0, "limit": 50}

    def town():
        """Four states on a circle; three actions stay, or lead one or two on; one step ends the episode."""
        next_state = np.stack([(s + rng.permutation(3)) % 4 for s in range(4)])
        reward, terminated = rng.uniform(-1, 1, (4, 3)), np.zeros((4, 3), dtype=bool)
        terminated[3, np.flatnonzero(next_state[3] == 0)[0]] = True
        reward[terminated] = 3.0
        return {"next_state": next_state, "reward": reward, "terminated": terminated, "limit": int(rng.integers(8, 13))}

    def numbers():
        """gamma, alpha, epsilon"""
        return float(rng.uniform(0.6, 0.9)), float(rng.uniform(0.2, 0.6)), float(rng.uniform(0.1, 0.9))

    def start():
        return float(rng.uniform(1, 3) * rng.choice([-1, 1]))

    size, cut = int(rng.integers(3, 6)), int(rng.integers(3, 6))
    updates, limits = "updates, with one action", "time limits, with one action"
    return [
        Case(("all", line(size, 100, True), int(rng.integers(2, 6)), *numbers(), seed(), start()), updates),
        Case(("all", line(size + 1, 100, True), int(rng.integers(2, 6)), *numbers(), seed(), start()), updates),
        Case(("all", line(cut, cut + 2, False), int(rng.integers(3, 6)), *numbers(), seed(), start()), limits),
        Case(("all", line(4, 2, False), int(rng.integers(3, 6)), *numbers(), seed(), start()), limits),
        Case(("actions", bandit(ARMS), 1400, 0.9, 0.5, float(rng.uniform(0.45, 0.55)), seed(), 0.0), "exploration"),
        Case(("repeats", town(), 8, 0.7, 0.5, 0.5, seed(), 0.0), "the same seed, the same table"),
        Case(("learned", town(), 150, 0.6, 0.9, 1.0, seed(), 0.0), "what the agent has learned"),
        Case(("learned", town(), 150, 0.6, 0.9, 0.8, seed(), 4.0), "what the agent has learned"),
    ]


def q_learning_agent_plain(env, episodes, gamma, alpha, epsilon, seed, initial_value=0.0):
    rng = np.random.default_rng(seed)
    q = np.full((env.observation_space.n, env.action_space.n), float(initial_value))
    returns = np.zeros(episodes)
    for i in range(episodes):
        s, over = env.reset(seed=seed if i == 0 else None)[0], False
        while not over:
            a = rng.choice(np.flatnonzero(q[s] == q[s].max()))
            if rng.random() < epsilon:
                a = rng.integers(q.shape[1])
            after, r, terminated, truncated, _ = env.step(int(a))
            q[s, a] += alpha * (r + gamma * (not terminated) * q[after].max() - q[s, a])
            returns[i] += r
            s, over = after, terminated or truncated
    return q, returns


Q6 = Question(
    name="q6",
    title="The Q-learning agent",
    function="q_learning_agent",
    parts={
        "updates, with one action": 5,
        "time limits, with one action": 4,
        "exploration": 2,
        "the same seed, the same table": 2,
        "what the agent has learned": 5,
    },
    reference=q_learning_agent_reference,
    alternatives=(q_learning_agent_plain, q_learning_agent_by_policy, q_learning_agent_by_steps),
    cases=cases_q6,
    driver=drive_q6,
    compare=compare_q6,
    mistakes=(
        Mistake(
            edit(q_learning_agent_plain, " * (not terminated)", ""),
            "The agent bootstraps past a termination. It shows as soon as the table does not hold 0 for the state that the"
            " last step leads to: start it with another `initial_value` and look.",
        ),
        Mistake(
            edit(q_learning_agent_plain, "(not terminated)", "(not (terminated or truncated))"),
            "The agent does not bootstrap when the time limit cuts an episode. `truncated` ends the loop, but it does not"
            " take the value of the next state out of the target.",
        ),
        Mistake(
            edit(q_learning_agent_plain, "terminated or truncated", "terminated"),
            "The loop goes on after a truncation. An episode is over when either flag is set; then the environment has to"
            " be reset before the next step.",
        ),
        Mistake(
            q_learning_agent_sarsa,
            "The target uses the next action that the agent takes, so this is SARSA. With exploration its values settle"
            " elsewhere, and keep jumping. Q-learning takes the maximum over the next actions.",
        ),
        Mistake(
            edit(
                q_learning_agent_plain,
                "            if rng.random() < epsilon:\n                a = rng.integers(q.shape[1])\n",
                "",
            ),
            "The agent never explores. Pass epsilon to the choice of the action, in every step.",
        ),
        Mistake(
            edit(
                q_learning_agent_plain,
                "            a = rng.choice(np.flatnonzero(q[s] == q[s].max()))\n"
                "            if rng.random() < epsilon:\n"
                "                a =",
                "            a =",
            ),
            "The agent learns, but it never uses what it has learned: all actions are taken equally often. With probability"
            " 1 - epsilon it has to take a best action of its table.",
        ),
        Mistake(
            edit(q_learning_agent_plain, "float(initial_value)", "0.0"),
            "The table starts at 0 and not at `initial_value`.",
        ),
        Mistake(
            edit(
                q_learning_agent_plain, "        s, over = env", "        q[:] = initial_value\n        s, over = env"
            ),
            "The table is made anew in every episode, so that the agent forgets what it has learned. Make it once, before"
            " the loop over the episodes.",
        ),
        Mistake(
            edit(q_learning_agent_plain, "+= alpha * (", "+= ("),
            "The target replaces the old value, as if the step size were 1. Move by the fraction alpha of the error only.",
        ),
        Mistake(
            edit(
                q_learning_agent_plain,
                "s, over = env",
                "s, over, weight = env",
                "[0], False",
                "[0], False, 1.0",
                "+= r",
                "+= weight * r\n            weight *= gamma",
            ),
            "The returns that are handed back are discounted. The docstring asks for the plain sum of the rewards of each"
            " episode.",
        ),
        Mistake(
            edit(q_learning_agent_plain, "q[after].max()", "q[s].max()"),
            "The maximum in the target is taken at the state that the agent left. The target needs the state in which it"
            " arrived.",
        ),
        Mistake(
            edit(q_learning_agent_plain, "s, over = after, terminated", "over = terminated"),
            "After a step the next state does not become the current one, so every step of an episode is booked on its"
            " first state.",
        ),
        Mistake(
            edit(q_learning_agent_plain, "default_rng(seed)", "default_rng()"),
            "The same seed does not give the same table. Make the generator from `seed`, once, and take all random numbers"
            " from it.",
        ),
        Mistake(
            edit(q_learning_agent_plain, "seed=seed if i == 0 else None", ""),
            "The environment gets no seed. Chance can be on its side too: pass `seed` to the first reset, or the same seed"
            " does not give the same table.",
        ),
        Mistake(
            edit(q_learning_agent_plain, "seed if i == 0 else None", "seed"),
            "Every reset is given the seed, so that a random environment plays the same episode again and again. Pass it to"
            " the first reset only.",
        ),
        Mistake(
            edit(q_learning_agent_plain, "gamma * (not", "(not"),
            "The discount is missing: what follows counts gamma times.",
        ),
    ),
)


ASSIGNMENT = Assignment(
    title="Monte Carlo, TD, SARSA and Q-learning",
    questions=(Q1, Q2, Q3, Q4, Q5, Q6),
    written=Written(name="written", title="Who stumbles: the agent or the world?", points=10),
    seconds=60.0,
    memory_mb=1024,
)
