"""Hidden tests of assignment 1: MDPs, Bellman equations and the maze (chapters 2 and 3)."""

import numpy as np

from assignments.grader.comparing import close, judged
from assignments.grader.edits import edit
from assignments.grader.questions import Assignment, Case, Mistake, Question, Written

HIDDEN_MARKER = "RLBOOK-HIDDEN-01_mdps"


# ---------------------------------------------------------------------------------------------------------------------
# Worlds that several questions share
# ---------------------------------------------------------------------------------------------------------------------


def random_world(rng, states, actions, ends=0):
    """Dense random transitions and rewards; ``ends`` states are terminal and their rows hold anything."""
    transitions = rng.dirichlet(np.ones(states), size=(states, actions))
    rewards = rng.normal(size=(states, actions, states)) * 3
    terminal = np.zeros(states, dtype=bool)
    terminal[rng.choice(states, ends, replace=False)] = True
    return transitions, rewards, terminal


def sizes(rng):
    """Numbers of states and actions that differ."""
    states = int(rng.integers(4, 8))
    return states, int(rng.integers(2, states))


def random_rows(rng, states, actions):
    """A stochastic policy."""
    return rng.dirichlet(np.ones(actions), size=states)


def random_choices(rng, states, actions):
    """A deterministic policy, as rows."""
    return np.eye(actions)[rng.integers(actions, size=states)]


def corridor(rng, length):
    """Rooms in a row: action 0 takes a small prize and ends, action 1 goes on to the large prize at the far end.

    From "always 0", policy iteration needs one round per room: the news travels backward. The states are shuffled.
    """
    states = length + 1
    transitions, rewards = np.zeros((states, 2, states)), np.zeros((states, 2, states))
    for room in range(length):
        transitions[room, 0, length] = transitions[room, 1, room + 1] = 1
        rewards[room, 0, length] = rng.uniform(1, 2)
    # a room's own prize is worth more than the discounted one of the next room: each must wait for the news
    rewards[np.arange(length), 0, length] = np.sort(rewards[np.arange(length), 0, length])[::-1]
    rewards[length - 1, 1, length] = rng.uniform(20, 30)
    transitions[length, :, length] = 1
    terminal = np.arange(states) == length
    order = rng.permutation(states)
    return transitions[order][:, :, order], rewards[order][:, :, order], terminal[order]


# ---------------------------------------------------------------------------------------------------------------------
# Question 1: returns
# ---------------------------------------------------------------------------------------------------------------------


def drive_q1(function, rewards, gamma, final_value, look):
    returns = function(rewards, gamma, final_value)
    return {"returns": returns, "rewards": rewards} if look == "arguments" else returns


def reference_q1(rewards, gamma, final_value=0.0):
    """A matrix of powers instead of a recursion."""
    stream = np.append(np.asarray(rewards, dtype=float), final_value)
    distance = np.arange(len(stream))[None, :] - np.arange(len(stream))[:, None]
    weights = np.where(distance >= 0, float(gamma) ** np.maximum(distance, 0), 0.0)
    return (weights @ stream)[:-1]


def cases_q1(rng):
    lengths = [1, *rng.integers(2, 9, 4), 40]
    gammas = [0.7, 0.0, 1.0, *rng.uniform(0.3, 0.95, 3)]
    for length, gamma in zip(lengths, gammas, strict=True):
        yield Case((rng.normal(size=length) * 4, float(gamma), 0.0, "returns"), "episodes that ended")
    for length in (1, *rng.integers(2, 12, 3)):
        gamma, final = float(rng.uniform(0.4, 0.95)), float(rng.choice([-1, 1]) * rng.uniform(2, 9))
        yield Case((rng.normal(size=length), gamma, final, "returns"), "episodes that were cut off")
    for length in rng.integers(3, 9, 2):
        whole, gamma = rng.integers(1, 9, length) * 2 + 1, float(rng.uniform(0.3, 0.9))
        yield Case((whole, gamma, 0.0, "returns"), "whole numbers, and arguments left as they are")
    yield Case(
        (rng.normal(size=6), float(rng.uniform(0.3, 0.9)), 0.0, "arguments"),
        "whole numbers, and arguments left as they are",
    )


def discounted_returns_by_definition(rewards, gamma, final_value=0.0):
    stream = [float(reward) for reward in rewards] + [float(final_value)]
    T = len(rewards)
    return np.array([sum(gamma ** (k - t) * stream[k] for k in range(t, T + 1)) for t in range(T)])


def discounted_returns_recursive(rewards, gamma, final_value=0.0):
    def to_go(t):
        if t == len(rewards):
            return []
        rest = to_go(t + 1)
        return [rewards[t] + gamma * (rest[0] if rest else final_value), *rest]

    return np.array(to_go(0), dtype=float)


def discounted_returns_float32(rewards, gamma, final_value=0.0):
    G = np.empty(len(rewards) + 1, dtype=np.float32)
    G[-1] = final_value
    for t in range(len(rewards) - 1, -1, -1):
        G[t] = rewards[t] + gamma * G[t + 1]
    return G[:-1]


def discounted_returns_plain(rewards, gamma, final_value=0.0):
    returns, G = np.zeros(len(rewards)), final_value
    for t in reversed(range(len(rewards))):
        G = rewards[t] + gamma * G
        returns[t] = G
    return returns


Q1 = Question(
    name="q1",
    title="Returns",
    function="discounted_returns",
    parts={
        "episodes that ended": 5,
        "episodes that were cut off": 4,
        "whole numbers, and arguments left as they are": 3,
    },
    reference=reference_q1,
    cases=lambda rng: list(cases_q1(rng)),
    driver=drive_q1,
    compare=close(1e-4, 1e-5),
    seconds=2.0,
    alternatives=(
        discounted_returns_plain,
        discounted_returns_by_definition,
        discounted_returns_recursive,
        discounted_returns_float32,
    ),
    mistakes=(
        Mistake(
            edit(discounted_returns_plain, "returns[t] = G", "returns[t] = gamma**t * G"),
            "The exponent counts from time 0, but the return G_t looks from time t: the reward that follows the action"
            " of time t is not discounted at all. Compare your last entry with the last reward.",
        ),
        Mistake(
            edit(discounted_returns_plain, "rewards[t] + gamma * G", "gamma * (rewards[t] + G)"),
            "Every reward is discounted once too often: the reward of the present step has exponent 0. Try a single"
            " reward: its return is that reward.",
        ),
        Mistake(
            edit(
                discounted_returns_plain,
                "        G = rewards[t] + gamma * G\n        returns[t] = G",
                "        returns[t] = G\n        G = rewards[t] + gamma * G",
            ),
            "The return at time t leaves out the reward at time t. In this book that reward follows the action of time"
            " t and belongs to G_t; some texts give the same reward the index t + 1.",
        ),
        Mistake(
            edit(discounted_returns_plain, "reversed(range(len(rewards)))", "range(len(rewards))"),
            "The sum runs over the rewards of the past. A return looks forward: start at the end of the episode and"
            " walk backward.",
        ),
        Mistake(
            edit(discounted_returns_plain, "return returns", "return returns[::-1]"),
            "The numbers are right, their order is not: walking backward collects the last return first. Entry t of"
            " the result belongs to time t.",
        ),
        Mistake(
            edit(discounted_returns_plain, "len(rewards)), final_value", "len(rewards)), 0.0"),
            "`final_value` is not used. An episode that was cut off would have gone on, and what is still to come is"
            " worth `final_value` at time T.",
        ),
        Mistake(
            edit(
                discounted_returns_plain,
                "len(rewards)), final_value",
                "len(rewards)), 0.0",
                "return returns",
                "return returns + final_value",
            ),
            "`final_value` is added without its discount. It is the return from time T on, so it stands T - t steps"
            " away from time t.",
        ),
        Mistake(
            edit(discounted_returns_plain, "gamma * G", "(1 if t == len(rewards) - 1 else gamma) * G"),
            "`final_value` is discounted once too little: it stands one step after the last reward, not in the same"
            " step.",
        ),
        Mistake(
            edit(discounted_returns_plain, "np.zeros(len(rewards))", "np.zeros_like(rewards)"),
            "Whole rewards give returns without decimals: an array made like an integer array holds integers and cuts"
            " the decimals off. Make the result an array of floats.",
        ),
        Mistake(
            edit(
                discounted_returns_plain,
                "np.zeros(len(rewards))",
                'rewards if rewards.dtype.kind == "f" else rewards.astype(float)',
            ),
            "The function changes the array `rewards` that it was given. Whoever called it still needs the rewards:"
            " write the result into a new array.",
        ),
        Mistake(
            edit(discounted_returns_plain, "return returns", "return returns[0]"),
            "Only the return from time 0 comes back. Asked for is an array with the returns of all times.",
        ),
        Mistake(
            edit(discounted_returns_plain, "gamma * G", "G"),
            "The discount is not used: the rewards are simply added up, as if gamma were 1.",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# Question 2: the maze as arrays
# ---------------------------------------------------------------------------------------------------------------------


def drive_q2(function, layout, slip, look):
    transitions, rewards, terminal = function(layout, slip)
    return {"transitions": transitions} if look == "transitions" else [transitions, rewards, terminal]


def judge_q2(raw):
    """Rewards of impossible transitions are never paid, so they do not count."""
    if isinstance(raw, dict):
        return raw
    transitions = np.asarray(raw[0], dtype=float)
    if (
        np.broadcast_shapes(transitions.shape, np.shape(raw[1])) != transitions.shape
    ):  # a column and a row would fill the memory
        raise ValueError("rewards have another shape than transitions")
    return [raw[2], (transitions * np.where(transitions > 0, raw[1], 0.0)).sum(axis=2)]


def reference_q2(layout, slip):
    """One matrix per direction from a padded map of cell numbers; then a mixture of the four."""
    grid = np.array([list(row) for row in layout])
    numbers = np.arange(grid.size).reshape(grid.shape)
    padded = np.pad(np.where(grid == "#", -1, numbers), 1, constant_values=-1)
    neighbors = [padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]]
    terminal = np.isin(grid, list("GT#")).ravel()
    identity = np.eye(grid.size)
    pushes = [identity[np.where((n < 0) | terminal.reshape(grid.shape), numbers, n).ravel()] for n in neighbors]
    h = slip / 2
    weights = np.array([[1 - slip, 0, h, h], [0, 1 - slip, h, h], [h, h, 1 - slip, 0], [h, h, 0, 1 - slip]])
    transitions = np.einsum("ab,bst->sat", weights, np.array(pushes))
    prize = 10.0 * (grid == "G").ravel() - 10.0 * (grid == "T").ravel()
    rewards = np.where(terminal[:, None, None], 0.0, np.broadcast_to(prize, transitions.shape))
    return transitions, rewards, terminal


def random_layout(rng):
    """More columns than rows, a start, two goals, two traps and two walls, free cells in between."""
    rows = int(rng.integers(3, 5))
    columns = rows + int(rng.integers(1, 3))
    cells = np.array(list("SGGTT##" + "." * (rows * columns - 7)))
    rng.shuffle(cells)
    grid = cells.reshape(rows, columns)
    return ["".join(row) for row in grid]


def cases_q2(rng):
    fixed = ["..#.G", "S.T..", "....."]  # has a wall, a goal and a trap beside free cells, whatever is drawn
    for layout in (fixed, random_layout(rng), random_layout(rng), ["S.G"]):
        yield Case((layout, 0.0, "transitions"), "moves without slip")
    for layout in (fixed, random_layout(rng), random_layout(rng), ["S", ".", "G"]):
        yield Case((layout, float(rng.uniform(0.1, 0.6)), "transitions"), "moves with slip")
    yield Case((fixed, 1.0, "transitions"), "moves with slip")
    for layout in (fixed, random_layout(rng), random_layout(rng)):
        yield Case((layout, 0.0, "rewards"), "rewards and ends")
    # with slip a prize is as large as without: in a corridor, where the sides do not matter
    yield Case((["T.G"], float(rng.uniform(0.2, 0.5)), "rewards"), "rewards and ends")


def build_maze_with_coordinates(layout, slip):
    height, width = len(layout), len(layout[0])
    number = {(i, j): i * width + j for i in range(height) for j in range(width)}
    open_cells = {place for place in number if layout[place[0]][place[1]] in "S."}
    P = np.zeros((height * width, 4, height * width))
    R = np.zeros_like(P)
    terminal = np.ones(height * width, dtype=bool)
    moves = {0: (-1, 0), 1: (1, 0), 2: (0, -1), 3: (0, 1)}
    for (i, j), s in number.items():
        terminal[s] = (i, j) not in open_cells
        for a, (di, dj) in moves.items():
            if terminal[s]:
                P[s, a, s] = 1.0
                continue
            for (ei, ej), w in (((di, dj), 1 - slip), ((dj, di), slip / 2), ((-dj, -di), slip / 2)):
                target = (i + ei, j + ej)
                if target not in number or layout[target[0]][target[1]] == "#":
                    target = (i, j)
                P[s, a, number[target]] += w
    cells = "".join(layout)
    for s in np.flatnonzero(~terminal):
        R[s, :, [t for t, cell in enumerate(cells) if cell == "G"]] = 10.0
        R[s, :, [t for t, cell in enumerate(cells) if cell == "T"]] = -10.0
    return P, R, terminal


def build_maze_with_matrices(layout, slip):
    grid = np.array([list(row) for row in layout])
    S = grid.size
    i, j = np.divmod(np.arange(S), grid.shape[1])
    kinds = grid.ravel()
    terminal = (kinds == "G") | (kinds == "T") | (kinds == "#")
    move = np.zeros((4, S, S))
    for b, (di, dj) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)]):
        y, x = np.clip(i + di, 0, grid.shape[0] - 1), np.clip(j + dj, 0, grid.shape[1] - 1)
        t = y * grid.shape[1] + x
        t = np.where(terminal | (kinds[t] == "#"), np.arange(S), t)
        move[b, np.arange(S), t] = 1
    side = {0: (2, 3), 1: (2, 3), 2: (0, 1), 3: (0, 1)}
    P = np.stack([(1 - slip) * move[a] + slip / 2 * (move[side[a][0]] + move[side[a][1]]) for a in range(4)], axis=1)
    prize = np.select([kinds == "G", kinds == "T"], [10.0, -10.0], 0.0)
    R = np.where((P > 0) & ~terminal[:, None, None], prize, 0.0)
    return P, R, terminal


def build_maze_plain(layout, slip):
    cells, rows, columns = "".join(layout), len(layout), len(layout[0])
    S = len(cells)
    P, R = np.zeros((S, 4, S)), np.zeros((S, 4, S))
    terminal = np.array([cell in "GT#" for cell in cells])
    steps, sides = [(-1, 0), (1, 0), (0, -1), (0, 1)], [(2, 3), (2, 3), (0, 1), (0, 1)]
    for s in range(S):
        for a in range(4):
            if terminal[s]:
                P[s, a, s] = 1
                continue
            for b, weight in ((a, 1 - slip), (sides[a][0], slip / 2), (sides[a][1], slip / 2)):
                y, x = s // columns + steps[b][0], s % columns + steps[b][1]
                inside = 0 <= y < rows and 0 <= x < columns and cells[y * columns + x] != "#"
                t = y * columns + x if inside else s
                P[s, a, t] += weight
                R[s, a, t] = {"G": 10, "T": -10}.get(cells[t], 0)
    return P, R, terminal


Q2 = Question(
    name="q2",
    title="A maze as arrays",
    function="build_maze",
    parts={"moves without slip": 6, "moves with slip": 5, "rewards and ends": 5},
    reference=reference_q2,
    cases=lambda rng: list(cases_q2(rng)),
    driver=drive_q2,
    compare=judged(judge_q2, close(1e-5, 1e-6)),
    seconds=2.0,
    alternatives=(build_maze_plain, build_maze_with_coordinates, build_maze_with_matrices),
    mistakes=(
        Mistake(
            edit(
                build_maze_plain,
                "((a, 1 - slip), (sides[a][0], slip / 2), (sides[a][1], slip / 2))",
                "[(b, 1 - slip if b == a else slip / 3) for b in range(4)]",
            ),
            "The slip is shared by all three other directions. A slip goes to one of the two sides at a right angle,"
            " never backward.",
        ),
        Mistake(
            edit(
                build_maze_plain,
                "(sides[a][0], slip / 2), (sides[a][1], slip / 2)",
                "(sides[a][0], slip), (sides[a][1], slip)",
            ),
            "Each side gets the whole slip probability, so that the rows do not sum to 1. The two sides share it.",
        ),
        Mistake(
            edit(build_maze_plain, "sides[a][0]", "(a + 1) % 4", "sides[a][1]", "(a - 1) % 4"),
            "The sides are taken as the next and the previous action in the list. That works for directions listed"
            " clockwise; here the order is up, down, left, right, and the sides of up are left and right.",
        ),
        Mistake(
            edit(
                build_maze_plain,
                "(a, 1 - slip), (sides[a][0], slip / 2), (sides[a][1], slip / 2)",
                "(sides[a][0], slip / 2), (sides[a][1], slip / 2), (a, 1 - slip)",
                "+= weight",
                "= weight",
            ),
            "Where two pushes lead to the same cell, the second probability replaces the first. They must be added;"
            " look at the sum of the row of a corner cell.",
        ),
        Mistake(
            edit(build_maze_plain, "+= weight", "= weight"),
            "Where two pushes lead to the same cell, the probability of the slip replaces the one of the action itself,"
            " even if it is 0. They must be added; look at the sum of the row of a corner cell.",
        ),
        Mistake(
            edit(build_maze_plain, "0 <= y < rows and 0 <= x < columns", "0 <= y * columns + x < S"),
            "A move to the right from the last column arrives in the next row (and to the left in the row above)."
            " Check the row and the column of the neighbor, not only its number.",
        ),
        Mistake(
            edit(build_maze_plain, ' and cells[y * columns + x] != "#"', ""),
            "The agent walks into wall cells. A move into a wall leaves it where it is, like a move over the edge.",
        ),
        Mistake(
            edit(
                build_maze_plain,
                "[(-1, 0), (1, 0), (0, -1), (0, 1)]",
                "[(-1, 0), (0, 1), (1, 0), (0, -1)]",
                "[(2, 3), (2, 3), (0, 1), (0, 1)]",
                "[(1, 3), (0, 2), (1, 3), (0, 2)]",
            ),
            "The actions are in another order than asked for: 0 is up, 1 is down, 2 is left, 3 is right.",
        ),
        Mistake(
            edit(
                build_maze_plain,
                "            if terminal[s]:\n                P[s, a, s] = 1\n                continue\n",
                "",
            ),
            "The agent walks out of goals, traps or walls again. A terminal state leads to itself with probability 1"
            " and pays nothing.",
        ),
        Mistake(
            edit(
                build_maze_plain, "P[s, a, s] = 1", 'P[s, a, s], R[s, a, s] = 1, {"G": 10, "T": -10}.get(cells[s], 0)'
            ),
            "The prize is paid again for staying in the goal or the trap. It is paid once, for entering from an open"
            " cell; rewards of terminal states are 0.",
        ),
        Mistake(
            edit(
                build_maze_plain,
                "cells[t], 0)",
                "cells[s], 0)",
                "P[s, a, s] = 1",
                'P[s, a, s], R[s, a, s] = 1, {"G": 10, "T": -10}.get(cells[s], 0)',
            ),
            "The reward belongs to the state that is left. In this book it is paid for entering, so it depends on the"
            " next state.",
        ),
        Mistake(
            edit(build_maze_plain, "GT#", "GT", "terminal[s]:", 'cells[s] in "GT#":'),
            "Wall cells are not marked as terminal. Nobody is ever there, and marking them keeps their value at 0.",
        ),
        Mistake(
            edit(build_maze_plain, '"GT#"', '"GT"'),
            "Wall cells are treated like the floor: the arrays hold moves out of them. A wall is marked as terminal and"
            " leads to itself.",
        ),
        Mistake(
            edit(
                build_maze_plain,
                "(a, 1 - slip), (sides[a][0], slip / 2), (sides[a][1], slip / 2)",
                "(a, slip), (sides[a][0], (1 - slip) / 2), (sides[a][1], (1 - slip) / 2)",
            ),
            "`slip` and 1 - `slip` have changed places: `slip` is the probability that a move does not go where it was meant to go.",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# Question 3: from V to Q
# ---------------------------------------------------------------------------------------------------------------------


def drive_q3(function, transitions, rewards, gamma, terminal, values, look):
    q_values = function(transitions, rewards, gamma, terminal, values)
    return {"q_values": q_values, "values": values} if look == "arguments" else q_values


def reference_q3(transitions, rewards, gamma, terminal, values):
    """Term by term."""
    states, actions, _ = transitions.shape
    q_values = np.zeros((states, actions))
    for s in range(states):
        for a in range(actions):
            if not terminal[s]:
                for t in range(states):
                    to_come = 0.0 if terminal[t] else gamma * values[t]
                    q_values[s, a] += transitions[s, a, t] * (rewards[s, a, t] + to_come)
    return q_values


def cases_q3(rng):
    for gamma in (0.0, *rng.uniform(0.3, 0.99, 2)):
        states, actions = sizes(rng)
        world = random_world(rng, states, actions)
        arguments = (world[0], world[1], float(gamma), world[2], rng.normal(size=states) * 5)
        yield Case((*arguments, "q_values"), "worlds without an end")
    for gamma in (1.0, *rng.uniform(0.3, 0.99, 2)):
        states, actions = sizes(rng)
        world = random_world(rng, states, actions, ends=2)
        arguments = (world[0], world[1], float(gamma), world[2], rng.normal(size=states) * 5 + 3)
        yield Case((*arguments, "q_values"), "terminal states")
    states, actions = sizes(rng)
    world = random_world(rng, states, actions, ends=2)
    arguments = (world[0], world[1], float(rng.uniform(0.3, 0.9)), world[2], rng.normal(size=states) * 5 + 3)
    yield Case((*arguments, "arguments"), "arguments left as they are")


def q_from_values_by_loops(transitions, rewards, gamma, terminal, values):
    table = []
    for s in range(len(values)):
        row = []
        for a in range(transitions.shape[1]):
            worth = rewards[s, a] + gamma * values * (1 - terminal.astype(int))
            row.append(0.0 if terminal[s] else float(transitions[s, a] @ worth))
        table.append(row)
    return np.array(table)


def q_from_values_by_einsum(transitions, rewards, gamma, terminal, values):
    alive = ~terminal
    expected = np.einsum("sat,sat->sa", transitions, rewards)
    return (expected + gamma * np.einsum("sat,t->sa", transitions, values * alive)) * alive[:, None]


def q_from_values_plain(transitions, rewards, gamma, terminal, values):
    q_values = (transitions * (rewards + gamma * np.where(terminal, 0, values))).sum(axis=2)
    q_values[terminal] = 0
    return q_values


Q3 = Question(
    name="q3",
    title="One look ahead",
    function="q_from_values",
    parts={"worlds without an end": 5, "terminal states": 6, "arguments left as they are": 2},
    reference=reference_q3,
    cases=lambda rng: list(cases_q3(rng)),
    driver=drive_q3,
    compare=close(1e-5, 1e-6),
    seconds=2.0,
    alternatives=(q_from_values_plain, q_from_values_by_loops, q_from_values_by_einsum),
    mistakes=(
        Mistake(
            edit(q_from_values_plain, "np.where(terminal, 0, values)", "values"),
            "The table's entry of a terminal next state is used. Nothing is earned after the end, so a terminal state"
            " counts as 0 whatever the table says about it.",
        ),
        Mistake(
            edit(q_from_values_plain, "    q_values[terminal] = 0\n", ""),
            "The rows of terminal states are not 0. There the episode is over: no action earns anything.",
        ),
        Mistake(
            edit(q_from_values_plain, "np.where(terminal, 0, values)", "values", "    q_values[terminal] = 0\n", ""),
            "The argument `terminal` is not used. A terminal state is worth 0 as a next state, and its own row is 0"
            " too.",
        ),
        Mistake(
            edit(
                q_from_values_plain,
                "(rewards + gamma * np.where(terminal, 0, values))",
                "(rewards + gamma * values) * ~terminal",
            ),
            "The step into a terminal state pays nothing in your table. Only the value after the end is 0; the reward"
            " for the step that leads there counts in full.",
        ),
        Mistake(
            edit(q_from_values_plain, "rewards + gamma", "gamma * rewards + gamma"),
            "The reward is discounted too. It comes with the present step; gamma belongs to what follows.",
        ),
        Mistake(
            edit(
                q_from_values_plain,
                "(transitions * (rewards + gamma * np.where(terminal, 0, values))).sum(axis=2)",
                "rewards.sum(axis=2) + gamma * transitions @ np.where(terminal, 0, values)",
            ),
            "The rewards of all next states are added up without their probabilities. The expected reward weights each"
            " with P(s' | s, a).",
        ),
        Mistake(
            edit(
                q_from_values_plain,
                "(transitions * (rewards + gamma * np.where(terminal, 0, values))).sum(axis=2)",
                "rewards.mean(axis=2) + gamma * transitions @ np.where(terminal, 0, values)",
            ),
            "The rewards are averaged as if all next states were equally likely. Weight each with P(s' | s, a).",
        ),
        Mistake(
            edit(q_from_values_plain, "gamma * np.where", "np.where"),
            "The discount is missing: what follows counts gamma times.",
        ),
        Mistake(
            edit(q_from_values_plain, "np.where(terminal, 0, values)", "np.where(terminal, 0, values)[:, None, None]"),
            "The value of the present state s stands where that of the next state s' belongs, averaged with"
            " P(s' | s, a).",
        ),
        Mistake(
            edit(
                q_from_values_plain,
                "q_values = (transitions * (rewards + gamma * np.where(terminal, 0, values))).sum(axis=2)",
                'backward = np.einsum("tas,t->sa", transitions, np.where(terminal, 0, values))\n'
                "    q_values = (transitions * rewards).sum(axis=2) + gamma * backward",
            ),
            "The sum runs over the wrong axis of `transitions`: over where the step comes from. The last axis is the"
            " next state.",
        ),
        Mistake(
            edit(q_from_values_plain, "    q_values = (", "    values[terminal] = 0\n    q_values = ("),
            "The function writes zeros into the array `values` that it was given. Work on a copy.",
        ),
        Mistake(
            edit(q_from_values_plain, "np.where(terminal, 0, values)", "np.where(terminal, values, 0)"),
            "The mask is the wrong way round: the next states that are terminal count 0, all others count in full.",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# Question 4: exact values of a policy
# ---------------------------------------------------------------------------------------------------------------------


def reference_q4(transitions, rewards, gamma, terminal, policy):
    """The sum over all steps, r + M r + M^2 r + ..., its length doubled again and again."""
    states = len(terminal)
    M, total = np.zeros((states, states)), np.zeros(states)
    for s in range(states):
        if not terminal[s]:
            for a in range(transitions.shape[1]):
                M[s] += gamma * policy[s, a] * transitions[s, a]
                total[s] += policy[s, a] * (transitions[s, a] * rewards[s, a]).sum()
    for _ in range(25):
        total, M = total + M @ total, M @ M
    return total


def cases_q4(rng):
    for gamma in (0.0, float(rng.uniform(0.3, 0.9)), 0.99):
        states, actions = sizes(rng)
        P, R, terminal = random_world(rng, states, actions)
        yield Case((P, R, gamma, terminal, random_choices(rng, states, actions)), "deterministic policies")
    for gamma in (float(rng.uniform(0.3, 0.9)), float(rng.uniform(0.6, 0.9)), 0.99):
        states, actions = sizes(rng)
        P, R, terminal = random_world(rng, states, actions)
        yield Case((P, R, gamma, terminal, random_rows(rng, states, actions)), "stochastic policies")
    for gamma in (float(rng.uniform(0.6, 0.95)), 1.0, 1.0):
        states, actions = sizes(rng)
        P, R, terminal = random_world(rng, states, actions, ends=int(rng.integers(1, 3)))
        if gamma == 1.0:
            P[terminal] = np.eye(states)[terminal][:, None, :]
        yield Case((P, R, gamma, terminal, random_choices(rng, states, actions)), "terminal states, gamma up to 1")


def evaluate_policy_best_action(transitions, rewards, gamma, terminal, policy):
    values = np.zeros(len(terminal))
    for _ in range(300):
        q_values = (transitions * (rewards + gamma * values)).sum(axis=2)
        values = np.where(terminal, 0, q_values.max(axis=1))
    return values


def evaluate_policy_open_states_only(transitions, rewards, gamma, terminal, policy):
    open_states = np.flatnonzero(~terminal)
    P = (policy[:, :, None] * transitions).sum(axis=1)
    r = (policy[:, :, None] * transitions * rewards).sum(axis=(1, 2))
    values = np.zeros(len(terminal))
    A = np.eye(len(open_states)) - gamma * P[np.ix_(open_states, open_states)]
    values[open_states] = np.linalg.solve(A, r[open_states])
    return values


def evaluate_policy_inverse(transitions, rewards, gamma, terminal, policy):
    S, A, _ = transitions.shape
    matrix, right = np.eye(S), np.zeros(S)
    for s in range(S):
        for a in range(A):
            if not terminal[s]:
                matrix[s] -= gamma * policy[s, a] * transitions[s, a]
                right[s] += policy[s, a] * np.dot(transitions[s, a], rewards[s, a])
    return np.linalg.inv(matrix) @ right


def evaluate_policy_plain(transitions, rewards, gamma, terminal, policy):
    alive = ~terminal
    P = np.einsum("sa,sat->st", policy, transitions) * alive[:, None]
    r = np.einsum("sa,sat,sat->s", policy, transitions, rewards) * alive
    return np.linalg.solve(np.eye(len(P)) - gamma * P, r)


Q4 = Question(
    name="q4",
    title="Exact values of a policy",
    function="evaluate_policy",
    parts={"deterministic policies": 5, "stochastic policies": 5, "terminal states, gamma up to 1": 6},
    shares=dict.fromkeys(("deterministic policies", "stochastic policies"), "states"),
    reference=reference_q4,
    cases=lambda rng: list(cases_q4(rng)),
    compare=close(1e-5, 1e-6),
    seconds=2.0,
    alternatives=(evaluate_policy_plain, evaluate_policy_open_states_only, evaluate_policy_inverse),
    mistakes=(
        Mistake(
            edit(evaluate_policy_plain, " * alive[:, None]", "", "rewards) * alive", "rewards)"),
            "The rows of terminal states are used as if the episode went on there. Nothing follows an end: make these"
            " rows of the matrix of transitions, and their rewards, 0 before you solve.",
        ),
        Mistake(
            edit(
                evaluate_policy_plain, " * alive[:, None]", "", "rewards) * alive", "rewards)", "P, r)", "P, r) * alive"
            ),
            "The terminal values are set to 0 only after the system was solved. By then the other states have already"
            " counted on them; the zeros must be in the system itself.",
        ),
        Mistake(
            edit(
                evaluate_policy_plain,
                "alive[:, None]",
                "alive[:, None] * alive",
                "transitions, rewards)",
                "transitions * alive, rewards)",
            ),
            "The reward of the step into a terminal state is lost. What follows the end is worth 0; the step that"
            " leads there still pays.",
        ),
        Mistake(
            edit(
                evaluate_policy_plain,
                "    alive =",
                "    policy = np.full(policy.shape, 1 / policy.shape[1])\n    alive =",
            ),
            "All actions count alike, as if the policy were uniform. Weight them with the rows of `policy`.",
        ),
        Mistake(
            edit(
                evaluate_policy_plain,
                "    alive =",
                "    policy = np.eye(policy.shape[1])[policy.argmax(axis=1)]\n    alive =",
            ),
            "Only the likeliest action of each state is used. A stochastic policy takes every action of its row now"
            " and then: average over all of them.",
        ),
        Mistake(
            edit(evaluate_policy_plain, "gamma * P", "gamma * P.T"),
            "The matrix of transitions is transposed. Row s must hold where a step from s leads.",
        ),
        Mistake(
            edit(
                evaluate_policy_plain,
                "    return np.linalg.solve(np.eye(len(P)) - gamma * P, r)",
                "    values = np.zeros(len(P))\n"
                "    for _ in range(20):\n"
                "        values = r + gamma * P @ values\n"
                "    return values",
            ),
            "A fixed number of sweeps gives an approximation that is poor for gamma near 1. Solve the linear system"
            " instead.",
        ),
        Mistake(
            edit(
                evaluate_policy_plain, '"sa,sat,sat->s", policy, transitions, rewards', '"sa,sat->s", policy, rewards'
            ),
            "The rewards R(s, a, s') are added up over s' without their probabilities.",
        ),
        Mistake(
            edit(
                evaluate_policy_plain,
                '"sa,sat,sat->s", policy, transitions, rewards',
                '"sat,sat->s", transitions, rewards',
            ),
            "The rewards of all actions are added up. One step takes one action: average with the probabilities of the"
            " policy, as for the transitions.",
        ),
        Mistake(
            edit(evaluate_policy_plain, "np.eye(len(P)) - gamma * P", "gamma * P - np.eye(len(P))"),
            "All values have the wrong sign: the matrix of the system is I minus gamma P, in this order.",
        ),
        Mistake(
            edit(evaluate_policy_plain, "- gamma", "+ gamma"),
            "The matrix of the system is I plus gamma P. Bring gamma P V to the other side of V = r + gamma P V: its"
            " sign changes.",
        ),
        Mistake(
            edit(
                evaluate_policy_plain,
                'np.einsum("sa,sat,sat->s", policy, transitions, rewards)',
                "(transitions * rewards).sum(axis=2).mean(axis=1)",
            ),
            "The policy is used for the transitions only; the rewards are averaged as if all actions were equally"
            " likely. It enters in both.",
        ),
        Mistake(
            edit(evaluate_policy_plain, "rewards) * alive", "rewards)"),
            "The rows of terminal states are emptied in the matrix, but not in the rewards. An end earns nothing: its"
            " reward is 0 too.",
        ),
        Mistake(
            evaluate_policy_best_action,
            "These are the values of the best actions. Asked for are the values of the given policy, good or bad: an"
            " average over its actions, no maximum.",
        ),
        Mistake(
            edit(evaluate_policy_plain, "gamma * P", "P"), "The discount is missing: what follows counts gamma times."
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# Question 5: value iteration
# ---------------------------------------------------------------------------------------------------------------------


def drive_q5(function, transitions, rewards, gamma, terminal, tolerance, look):
    values, policy, sweeps = function(transitions, rewards, gamma, terminal, tolerance)
    return {"values": values, "policy": policy, "sweeps": [values, sweeps]}[look]


def reference_q5(transitions, rewards, gamma, terminal, tolerance):
    """State by state, with the bound multiplied out."""
    states, actions, _ = transitions.shape
    mean_rewards = np.einsum("sat,sat->sa", transitions, rewards)
    values = [0.0] * states
    sweeps = 0
    while True:
        before, sweeps = np.array(values), sweeps + 1
        values = [
            0.0 if terminal[s] else max(mean_rewards[s, a] + gamma * transitions[s, a] @ before for a in range(actions))
            for s in range(states)
        ]
        if gamma * max(abs(new - old) for new, old in zip(values, before, strict=True)) <= tolerance * (1 - gamma):
            break
    final = np.array(values)
    q_values = np.where(terminal[:, None], 0.0, mean_rewards + gamma * transitions @ final)
    policy = [min(a for a in range(actions) if q_values[s, a] == q_values[s].max()) for s in range(states)]
    return final, np.array(policy), sweeps


def tied_world(rng):
    """Sure moves, whole rewards, and in every state two or more equally good best actions: exact in binary numbers."""
    states, actions = 5, 5
    transitions, rewards = np.zeros((states, actions, states)), np.zeros((states, actions, states))
    terminal = np.arange(states) == int(rng.integers(states))
    for s in range(states):
        for a in range(actions):
            transitions[s, a, rng.integers(states)] = 1
            rewards[s, a] = rng.integers(-4, 1)
        first, second = np.sort(rng.choice(actions, 2, replace=False))
        rewards[s, first] = 40
        transitions[s, second], rewards[s, second] = transitions[s, first], rewards[s, first]
    return transitions, rewards, terminal


def impatient_world(rng):
    """A loose tolerance stops at once; what is then best by the new table is not what was best by the old one."""
    transitions, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    small, large = float(rng.uniform(1, 2)), float(rng.uniform(9, 12))
    transitions[0, 0, 2], rewards[0, 0, 2] = 1, small
    transitions[0, 1, 1] = 1
    transitions[1, :, 2], rewards[1, :, 2] = 1, large
    transitions[2, :, 2] = 1
    return transitions, rewards, np.array([False, False, True])


def cases_q5(rng):
    for ends, shift in ((0, 2.0), (0, -2.0), (1, 0.0), (2, 2.0)):
        P, R, terminal = random_world(rng, *sizes(rng), ends=ends)
        yield Case((P, R + shift, float(rng.uniform(0.5, 0.8)), terminal, 1e-6, "values"), "values")
    P, R, terminal = corridor(rng, int(rng.integers(3, 6)))
    yield Case((P, R, float(rng.uniform(0.8, 0.9)), terminal, 1e-6, "values"), "values")
    for ends in (0, 1):
        P, R, terminal = random_world(rng, *sizes(rng), ends=ends)
        yield Case((P, R, float(rng.uniform(0.5, 0.8)), terminal, 1e-5, "policy"), "the greedy policy, ties included")
    P, R, terminal = tied_world(rng)
    yield Case((P, R, 0.5, terminal, 1e-3, "policy"), "the greedy policy, ties included")
    P, R, terminal = impatient_world(rng)
    yield Case((P, R, 0.5, terminal, 100.0, "policy"), "the greedy policy, ties included")
    for ends, shift in ((0, 3.0), (0, -30.0), (1, -12.0), (2, 0.0)):
        P, R, terminal = random_world(rng, *sizes(rng), ends=ends)
        arguments = (P, R + shift, float(rng.uniform(0.75, 0.93)), terminal, float(rng.uniform(0.01, 0.1)), "sweeps")
        yield Case(arguments, "stopping in time")
    P, R, terminal = random_world(rng, *sizes(rng))
    yield Case((P, R, 0.0, terminal, 0.01, "sweeps"), "stopping in time")
    yield Case((P, R + 3.0, 0.97, terminal, 0.01, "sweeps"), "stopping in time")  # hundreds of sweeps


def value_iteration_in_place(transitions, rewards, gamma, terminal, tolerance):
    values, sweeps, bound = np.zeros(len(terminal)), 0, np.inf
    while bound > tolerance:
        change = 0.0
        for s in np.flatnonzero(~terminal):
            new = (transitions[s] * (rewards[s] + gamma * values)).sum(axis=1).max()
            change, values[s] = max(change, abs(new - values[s])), new
        bound, sweeps = gamma / (1 - gamma) * change, sweeps + 1
    q_values = (transitions * (rewards + gamma * values)).sum(axis=2)
    q_values[terminal] = 0
    return values, q_values.argmax(axis=1), sweeps


def value_iteration_by_loops(transitions, rewards, gamma, terminal, tolerance):
    S, A, _ = transitions.shape

    def look_ahead(table):
        return [
            [0.0 if terminal[s] else float(transitions[s, a] @ (rewards[s, a] + gamma * table)) for a in range(A)]
            for s in range(S)
        ]

    V, k = np.zeros(S), 0
    while True:
        old, k = V, k + 1
        V = np.array([max(row) for row in look_ahead(old)])
        if gamma / (1 - gamma) * np.max(np.abs(V - old)) <= tolerance:
            break
    Q = look_ahead(V)
    return V, np.array([row.index(max(row)) for row in Q]), k


def value_iteration_on_q(transitions, rewards, gamma, terminal, tolerance):
    alive = (~terminal).astype(float)
    r = (transitions * rewards).sum(axis=-1) * alive[:, None]
    P = gamma * transitions * alive[:, None, None]
    threshold = np.inf if gamma == 0 else tolerance * (1 - gamma) / gamma
    V, sweeps, residual = np.zeros(len(alive)), 0, np.inf
    while sweeps == 0 or residual > threshold:
        Q = r + P @ V
        residual = np.linalg.norm(Q.max(axis=1) - V, ord=np.inf)
        V = Q.max(axis=1)
        sweeps += 1
    return [V, (r + P @ V).argmax(axis=1).astype(np.int32), sweeps]


def value_iteration_plain(transitions, rewards, gamma, terminal, tolerance):
    values, sweeps, bound = np.zeros(len(terminal)), 0, np.inf
    while bound > tolerance:
        q_values = (transitions * (rewards + gamma * values)).sum(axis=2)
        new = np.where(terminal, 0, q_values.max(axis=1))
        bound, values, sweeps = gamma / (1 - gamma) * np.abs(new - values).max(), new, sweeps + 1
    q_values = (transitions * (rewards + gamma * values)).sum(axis=2)
    q_values[terminal] = 0
    return values, q_values.argmax(axis=1), sweeps


Q5 = Question(
    name="q5",
    title="Value iteration with a promise",
    function="value_iteration",
    parts={"values": 7, "the greedy policy, ties included": 6, "stopping in time": 7},
    shares={"values": "states"},
    reference=reference_q5,
    cases=lambda rng: list(cases_q5(rng)),
    driver=drive_q5,
    compare=close(1e-5, 1e-6),
    seconds=5.0,
    alternatives=(value_iteration_plain, value_iteration_by_loops, value_iteration_on_q),
    mistakes=(
        Mistake(
            edit(value_iteration_plain, "gamma / (1 - gamma) * np.abs", "np.abs"),
            "The loop stops when the last change is at most the tolerance. The tolerance is a promise about the error,"
            " and the error may be gamma / (1 - gamma) times the change.",
        ),
        Mistake(
            edit(value_iteration_plain, "gamma / (1 - gamma)", "1 / (1 - gamma)"),
            "The bound is that of the table before the last sweep: it lacks a factor gamma. The sweep itself brings"
            " the table closer, see the proof in chapter 3.",
        ),
        Mistake(
            edit(value_iteration_plain, "np.abs(new - values)", "(new - values)"),
            "The largest change is taken without its absolute value, so that falling values look like no change at"
            " all. The sup norm is the largest absolute value.",
        ),
        Mistake(
            value_iteration_in_place,
            "The table is overwritten during the sweep, so that later states already use new values. That converges"
            " too, but asked for are sweeps that read the old table only.",
        ),
        Mistake(
            edit(value_iteration_plain, "0, np.inf", "-1, np.inf"),
            "The last sweep is not counted: the number is one too small.",
        ),
        Mistake(
            edit(
                value_iteration_plain,
                "bound, values, sweeps = gamma",
                "bound, old, values, sweeps = gamma",
                "new, sweeps + 1",
                "values, new, sweeps + 1\n    values = old",
            ),
            "The table before the last sweep comes back. The bound speaks about the table after it.",
        ),
        Mistake(
            edit(
                value_iteration_plain,
                "bound, values, sweeps = gamma",
                "bound, old, values, sweeps = gamma",
                "new, sweeps + 1",
                "values, new, sweeps + 1\n    values, sweeps = old, sweeps - 1",
            ),
            "The table and the number are those of one sweep earlier: the loop ends one sweep too early, or its last sweep is"
            " thrown away and not counted. What counts is the bound with the largest change, and the table after that sweep.",
        ),
        Mistake(
            edit(value_iteration_plain, "while bound > tolerance:", "for _ in range(1):"),
            "The loop ends after one sweep. Are the old and the new table the same array? Then nothing seems to"
            " change; compare with a copy.",
        ),
        Mistake(
            edit(
                value_iteration_plain,
                "    q_values = (transitions * (rewards + gamma * values)).sum(axis=2)\n    q_values",
                "    q_values",
            ),
            "The policy is greedy for the table before the last sweep. Look ahead once more, with the values that you"
            " return.",
        ),
        Mistake(
            edit(
                value_iteration_plain,
                "q_values.argmax(axis=1)",
                "q_values.shape[1] - 1 - q_values[:, ::-1].argmax(axis=1)",
            ),
            "Of several best actions the last one is taken. Asked for is the first: the smallest number.",
        ),
        Mistake(
            edit(value_iteration_plain, "q_values.argmax", "q_values.argmin"),
            "The policy takes the worst action. Asked for is the one with the largest look-ahead value.",
        ),
        Mistake(
            edit(value_iteration_plain, "q_values.max", "q_values.mean"),
            "The values are averaged over the actions. That evaluates the uniform policy; the best value takes the"
            " maximum.",
        ),
        Mistake(
            edit(
                value_iteration_plain,
                "= np.where(terminal, 0, q_values.max(axis=1))",
                "= q_values.max(axis=1)",
                "\n    q_values = (transitions * (rewards + gamma * values)).sum(axis=2)\n    q_values[terminal] = 0",
                "",
            ),
            "Terminal states are treated like the others. Their value stays at 0 in every sweep, and their action is 0.",
        ),
        Mistake(
            edit(
                value_iteration_plain,
                "    values, sweeps, bound",
                "    rewards = gamma * rewards\n    values, sweeps, bound",
            ),
            "The reward is discounted too. It comes with the present step; gamma belongs to what follows.",
        ),
        Mistake(
            edit(value_iteration_plain, "q_values.max(axis=1)", "q_values.min(axis=1)"),
            "The smallest look-ahead is taken. The best action has the largest one.",
        ),
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# Question 6: policy iteration
# ---------------------------------------------------------------------------------------------------------------------


def drive_q6(function, transitions, rewards, gamma, terminal, look):
    policy, history = function(transitions, rewards, gamma, terminal)
    return {"best": [policy, history[-1]], "history": history, "all": [policy, history]}[look]


def reference_q6(transitions, rewards, gamma, terminal):
    """Evaluation by long sums instead of a solve, improvement state by state."""
    states, actions, _ = transitions.shape
    mean_rewards = np.einsum("sat,sat->sa", transitions, rewards)
    policy, history = [0] * states, []
    while True:
        M, values = np.zeros((states, states)), np.zeros(states)
        for s in np.flatnonzero(~terminal):
            M[s], values[s] = gamma * transitions[s, policy[s]], mean_rewards[s, policy[s]]
        for _ in range(25):
            values, M = values + M @ values, M @ M
        history.append(values)
        changed = False
        for s in np.flatnonzero(~terminal):
            q = [mean_rewards[s, a] + gamma * transitions[s, a] @ values for a in range(actions)]
            if q[policy[s]] < max(q) - 1e-9:
                policy[s], changed = q.index(max(q)), True
        if not changed:
            return np.array(policy), np.array(history)


def late_tie(rng):
    """At first action 2 is better in state 0; one round later action 1 is as good: no reason to change."""
    order = rng.permutation(4)
    start, slow, quick, end = order
    prize = float(rng.integers(2, 9) * 2)
    transitions, rewards = np.zeros((4, 3, 4)), np.zeros((4, 3, 4))
    transitions[start, 0, start] = transitions[start, 1, slow] = transitions[start, 2, quick] = 1
    transitions[[slow, quick, end], :, end] = 1
    rewards[slow, 1, end] = prize
    rewards[quick, :, end] = prize
    return transitions, rewards, np.arange(4) == end


def cases_q6(rng):
    for ends in (0, 1, 2):
        P, R, terminal = random_world(rng, *sizes(rng), ends=ends)
        yield Case((P, R, float(rng.uniform(0.5, 0.95)), terminal, "best"), "the best policy and its values")
    P, R, terminal = corridor(rng, 4)
    yield Case((P, R, float(rng.uniform(0.75, 0.9)), terminal, "best"), "the best policy and its values")
    for length in (3, int(rng.integers(4, 7))):
        P, R, terminal = corridor(rng, length)
        yield Case((P, R, float(rng.uniform(0.75, 0.9)), terminal, "history"), "the values of every round")
    for ends in (0, 1):
        P, R, terminal = random_world(rng, *sizes(rng), ends=ends)
        yield Case((P, R, float(rng.uniform(0.5, 0.95)), terminal, "history"), "the values of every round")
    for gamma in (0.5, 0.25):
        P, R, terminal = late_tie(rng)
        yield Case((P, R, gamma, terminal, "all"), "ties")


def policy_iteration_from_uniform(transitions, rewards, gamma, terminal):
    S, A, _ = transitions.shape
    alive = ~terminal
    r = (transitions * rewards).sum(axis=2) * alive[:, None]
    P = transitions * alive[:, None, None]
    rows, policy, history = np.full((S, A), 1 / A), np.zeros(S, dtype=int), []
    while True:
        M = np.einsum("sa,sat->st", rows, P)
        values = np.linalg.solve(np.eye(S) - gamma * M, (rows * r).sum(axis=1))
        history.append(values)
        q = r + gamma * P @ values
        new = np.where(q[np.arange(S), policy] < q.max(axis=1) - 1e-9, q.argmax(axis=1), policy)
        if (new == policy).all() and len(history) > 1:
            return policy, np.array(history)
        policy, rows = new, np.eye(A)[new]


def policy_iteration_by_loops(transitions, rewards, gamma, terminal):
    S, A, _ = transitions.shape
    chosen, tables = [0] * S, []
    changed = True
    while changed:
        matrix, right = np.eye(S), np.zeros(S)
        for s in range(S):
            if not terminal[s]:
                matrix[s] -= gamma * transitions[s, chosen[s]]
                right[s] = np.dot(transitions[s, chosen[s]], rewards[s, chosen[s]])
        V = np.linalg.inv(matrix) @ right
        tables.append(V)
        changed = False
        for s in range(S):
            if not terminal[s]:
                q = [np.dot(transitions[s, a], rewards[s, a] + gamma * V) for a in range(A)]
                if max(q) - q[chosen[s]] > 1e-9:
                    chosen[s] = int(np.argmax(q))
                    changed = True
    return np.array(chosen), np.stack(tables)


def policy_iteration_recursive(transitions, rewards, gamma, terminal):
    alive = (~terminal).astype(float)
    r = np.einsum("sat,sat,s->sa", transitions, rewards, alive)
    P = np.einsum("sat,s->sat", transitions, alive)

    def rounds(policy):
        rows = np.eye(P.shape[1])[policy]
        M = np.einsum("sa,sat->st", rows, P)
        V = np.linalg.solve(np.eye(len(M)) - gamma * M, (rows * r).sum(axis=1))
        Q = r + gamma * P @ V
        keep = (Q * rows).sum(axis=1) >= Q.max(axis=1) - 1e-9
        if keep.all():
            return policy, [V]
        best, tables = rounds(np.where(keep, policy, Q.argmax(axis=1)))
        return best, [V, *tables]

    policy, tables = rounds(np.zeros(len(alive), dtype=int))
    return policy, np.array(tables)


def policy_iteration_plain(transitions, rewards, gamma, terminal):
    S = len(terminal)
    here, alive = np.arange(S), ~terminal
    r = (transitions * rewards).sum(axis=2) * alive[:, None]
    P = transitions * alive[:, None, None]
    policy, history = np.zeros(S, dtype=int), []
    while True:
        values = np.linalg.solve(np.eye(S) - gamma * P[here, policy], r[here, policy])
        history.append(values)
        q = r + gamma * P @ values
        new = np.where(q[here, policy] < q.max(axis=1) - 1e-9, q.argmax(axis=1), policy)
        if (new == policy).all():
            return policy, np.array(history)
        policy = new


Q6 = Question(
    name="q6",
    title="Policy iteration",
    function="policy_iteration",
    parts={"the best policy and its values": 4, "the values of every round": 6, "ties": 3},
    reference=reference_q6,
    cases=lambda rng: list(cases_q6(rng)),
    driver=drive_q6,
    compare=close(1e-5, 1e-6),
    seconds=5.0,
    alternatives=(policy_iteration_plain, policy_iteration_by_loops, policy_iteration_recursive),
    mistakes=(
        Mistake(
            edit(
                policy_iteration_plain,
                "while True:",
                "for _ in range(2):",
                "np.where(q[here, policy] < q.max(axis=1) - 1e-9, q.argmax(axis=1), policy)",
                "np.where(alive, q.argmax(axis=1), 0)",
                "        if (new == policy).all():\n            return policy, np.array(history)\n        policy = new",
                "        policy = new\n    return policy, np.array(history)",
            ),
            "The policy is improved only once. Repeat until no state changes its action: in a corridor the news"
            " travels one room per round.",
        ),
        Mistake(
            edit(
                policy_iteration_plain,
                "while True:",
                "for _ in range(100):",
                "np.where(q[here, policy] < q.max(axis=1) - 1e-9, q.argmax(axis=1), policy)",
                "np.where(alive, q.argmax(axis=1), 0)",
                "            return policy, np.array(history)\n        policy = new",
                "            break\n        policy = new\n    return policy, np.array(history)",
            ),
            "A state changes to another action that is only equally good. Keep the old action unless a new one is"
            " better by more than the margin in the task; otherwise the loop may go round in circles.",
        ),
        Mistake(
            edit(
                policy_iteration_plain,
                "np.linalg.solve(np.eye(S) - gamma * P[here, policy], r[here, policy])",
                "r[here, policy] + gamma * P[here, policy] @ (history[-1] if history else np.zeros(S))",
            ),
            "The policy is evaluated by a single backup. That is value iteration in disguise; here each policy is"
            " evaluated exactly.",
        ),
        Mistake(
            edit(
                policy_iteration_plain,
                "\n        history.append(values)",
                "",
                "(history)",
                "(history or [np.zeros(S)])\n        history.append(values)",
            ),
            "The values of the last policy are missing from the history: the round that changes nothing is evaluated"
            " too, and its values are the ones that count.",
        ),
        Mistake(
            edit(
                policy_iteration_plain,
                "if (new == policy).all():",
                "if len(history) > 1 and np.allclose(history[-1], history[-2]):",
            ),
            "The last policy is evaluated twice. Stop as soon as no action changes; then its values are already in"
            " the history.",
        ),
        Mistake(
            edit(policy_iteration_plain, "q = r + gamma * P @ values", "q = r"),
            "The improvement looks at the expected reward of the next step only. Act greedily on Q, which adds the"
            " discounted value of what follows.",
        ),
        Mistake(
            policy_iteration_from_uniform,
            "The first policy that is evaluated is the uniform one. Asked for is a start with action 0 in every state.",
        ),
        Mistake(
            edit(
                policy_iteration_plain,
                "policy = new",
                "first = (new != policy).argmax()\n        policy[first] = new[first]",
            ),
            "Only one state changes its action in each round. That gets there too, but asked for is an improvement in"
            " all states at once.",
        ),
        Mistake(
            edit(
                policy_iteration_plain, "history.append(values)", "history.append((r + gamma * P @ values).max(axis=1))"
            ),
            "The history holds the maxima of Q, not the values of the policies. They agree for the last policy only.",
        ),
        Mistake(
            edit(policy_iteration_plain, "alive = np.arange(S), ~terminal", "alive = np.arange(S), np.ones(S)"),
            "Terminal states are treated like others. They are worth 0 and keep action 0.",
        ),
        Mistake(
            edit(policy_iteration_plain, "np.array(history)", "history[-1]"),
            "Only the values of the last policy come back. Asked for are those of every round, a row each.",
        ),
    ),
)

ASSIGNMENT = Assignment(
    title="MDPs, Bellman equations and the maze",
    questions=(Q1, Q2, Q3, Q4, Q5, Q6),
    written=Written("written", "A colleague's report", 10),
    seconds=20.0,
    memory_mb=512,
)
