import json

import numpy as np
from claims import CHAPTERS, cells

from rlbook_lib.evaluation import bootstrap_interval
from rlbook_lib.maze import Maze
from rlbook_lib.mdp import MDP
from rlbook_lib.temporal_difference import n_step_td_prediction, q_learning, sarsa

PAGE = "04_mc_and_td"


def without_exploration_stuck(seed):
    """With $\\varepsilon = 0$ the agent is stuck"""
    world = cells(PAGE, "mt-walks1", "mt-ex1a", "mt-ex02")["two_prizes"]
    learned = q_learning(world, episodes=200, gamma=0.9, alpha=0.5, epsilon=0.0, seed=seed, runs=300)
    return np.mean(learned.returns[:, -1] == 1.0) > 0.85


def _falling(first):
    return lambda episode: first * max(0.0, 1 - episode / 100)


def _earned(seed, epsilon):
    world = cells(PAGE, "mt-walks1", "mt-ex1a", "mt-ex02")["two_prizes"]
    learned = q_learning(world, episodes=200, gamma=0.9, alpha=0.5, epsilon=epsilon, seed=seed, runs=300)
    return (learned.returns * 0.9 ** (learned.lengths - 1)).mean()


def start_fully_random(seed):
    """*Falling*, the best is to start fully random"""
    earned = [_earned(seed, _falling(first)) for first in (0.1, 0.3, 0.5, 1.0)]
    return int(np.argmax(earned)) == 3


def _rows_from_the_edge(q):
    """How far above the cliff's edge a greedy path passes the cliff's middle; 0 for one that does not come there."""
    row, column = 3, 0
    for _ in range(40):
        down, right = [(-1, 0), (0, 1), (1, 0), (0, -1)][q[12 * row + column].argmax()]
        row, column = min(max(row + down, 0), 3), min(max(column + right, 0), 11)
        if column == 6:
            return 2 - row
    return 0


def sarsa_earns_more_on_the_cliff(seed):
    """It keeps a distance, and earns *more* while it learns."""
    rows, gaps = [], []
    for epsilon in (0.02, 0.1, 0.3):
        settings = dict(episodes=1200, gamma=1.0, alpha=0.1, epsilon=epsilon, seed=seed, runs=40)
        on, off = (learn("CliffWalking-v1", **settings) for learn in (sarsa, q_learning))
        late = [found.returns[:, 700:].mean(axis=1) for found in (on, off)]
        if bootstrap_interval(late[0])[0] < bootstrap_interval(late[1])[1]:
            return False
        rows.append(np.mean([_rows_from_the_edge(q) for q in on.q_values]))
        gaps.append(late[0].mean() - late[1].mean())
    return rows[0] > 0.8 and (np.diff(rows) > 0).all() and (np.diff(gaps) > 0).all()


def ten_walks_are_enough(seed):
    """After *ten* it goes straight to G"""
    page = cells(PAGE, "mt-mc02", "mt-pr01", "mt-pr03", "mt-pr05")
    steps = [len(page["act"](page["learn"](10, seed=1000 * seed + k)[0], seed=k)) - 1 for k in range(30)]
    return sum(n == 4 for n in steps) >= 24


def larger_steps_want_fewer(seed):
    """**More steps: more variance, and at first less bias. The larger the step size, the fewer steps are best.**"""
    page, best = cells(PAGE, "mt-mc02", "mt-ns02"), []
    for alpha in page["STEPS"]:
        settings = dict(episodes=3, gamma=0.9, alpha=alpha, seed=seed, runs=500)
        tables = [n_step_td_prediction(page["world"], page["uniform"], n=n, **settings).values for n in page["NS"]]
        bias = np.array([np.mean((t[:, page["FREE"]].mean(0) - page["TRUTH"]) ** 2) for t in tables])
        variance = np.array([t[:, page["FREE"]].var(0).mean() for t in tables])
        if bias[1] > bias[0] or (np.diff(variance) <= 0).any():
            return False
        best.append(np.argmin(bias + variance))
    return (np.diff(best) <= 0).all() and best[0] > best[-1]


def exploration_pays_most_if_it_starts_high_and_ends(seed):
    """Here it pays, and pays most if it starts high and then ends."""
    fixed = [_earned(seed, epsilon) for epsilon in (0.0, 0.3, 0.5, 0.7)]
    return fixed[0] < min(fixed) + 1e-9 and _earned(seed, _falling(1.0)) > max(fixed) + 1


def falling_from_a_small_start_is_worse_than_fixed(seed):
    """A falling $\\varepsilon$ that starts *small* is worse than a fixed one: it stops before it has found anything"""
    return _earned(seed, _falling(0.1)) < _earned(seed, 0.1)


def twenty_episodes_and_then_none(seed):
    """full exploration for 20 episodes and then none earns"""
    ten, twenty = (_earned(seed, lambda k, last=last: float(k <= last)) for last in (10, 20))
    return twenty > max(ten, _earned(seed, _falling(1.0)))


def a_falling_step_settles(seed):
    """The other two have it in all 30; the falling step scatters less than the constant one."""
    settings = dict(episodes=1000, gamma=0.9, epsilon=0.5, seed=seed, runs=30)
    slippery = Maze(("S...", ".#.G", "...T"), slip=0.2)
    first = [q_learning(slippery, alpha=alpha, **settings).q_values[:, 0] for alpha in (1.0, 0.1, lambda k: k**-0.7)]
    right, scatter = [np.sum(q.argmax(1) == 3) for q in first], [q.std(0)[[1, 3]] for q in first]
    return right[0] < 27 and right[1:] == [30, 30] and (scatter[2] < scatter[1]).all()


def news_travels_n_cells_a_walk(seed):
    """Along a walk that never turns back, news of a prize travels one cell with TD(0), $n$ cells with $n$ steps"""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        length, n, walks = rng.integers(4, 12), int(rng.integers(1, 5)), int(rng.integers(1, 4))
        moves, pays = np.zeros((length + 1, 1, length + 1)), np.zeros((length + 1, 1, length + 1))
        moves[np.arange(length), 0, np.arange(length) + 1] = 1
        pays[length - 1, 0, length] = rng.normal()
        way = MDP(moves, pays, 0.9, terminal=np.arange(length + 1) == length, start=np.arange(length + 1) == 0)
        settings = dict(episodes=walks, gamma=0.9, alpha=rng.uniform(0.1, 0.9), n=n, seed=seed)
        values = n_step_td_prediction(way, np.ones((length + 1, 1)), **settings).values
        if np.count_nonzero(values[..., :length]) != min(length, n * walks):
            return False
    return True


def the_crossing_is_joined(seed):
    """**TD joins paths where they meet; Monte Carlo learns from each walk alone.**"""
    watch, rng = cells(PAGE, "mt-mc02", "mt-ep02")["watch"], np.random.default_rng(seed)
    alpha = rng.uniform(0.36, 0.85)  # so that Monte Carlo's second step outweighs its first
    before, after = (watch("TD(0)", alpha=alpha)[k][0][10] for k in (8, 9))
    return after > before and watch("Monte Carlo", alpha=alpha)[-1][0][6] < 0 < watch("TD(0)", alpha=alpha)[-1][0][6]


def the_next_prediction_is_nearer_over_forty_rides(seed):
    """Now the first app is nearer"""
    forty = cells(PAGE, "mt-ride00", "mt-ride02")["forty"]
    left, right = (np.abs(forty(waits, seed=seed) - 33).mean() for waits in (False, True))
    return left < right - 0.1


def sarsa_comes_to_rest_near_its_own_table(seed):
    """the picture comes within 3 of both"""
    settings = dict(episodes=1200, gamma=1.0, alpha=0.1, epsilon=0.1, seed=seed, runs=30)
    late = [learn("CliffWalking-v1", **settings).returns[:, 700:].mean() for learn in (sarsa, q_learning)]
    return abs(late[0] + 20.7) < 3 and abs(late[1] + 50.8) < 3


def small_steps_long_traces(seed):
    """As with $n$: **small steps, long traces.**"""
    errors = cells(PAGE, "mt-mc02", "mt-ns02", "mt-tr02")["square_errors"]
    small, large = (errors(0.8, alpha, seed=seed) - errors(0, alpha, seed=seed) for alpha in (0.1, 0.4))
    return bootstrap_interval(small)[1] < 0 < bootstrap_interval(large)[0]


def one_line_makes_it_sarsa(seed):
    """Q-learning's nine run along the edge. SARSA's leave it"""
    lines = {
        cell["id"]: "".join(cell["source"])
        for cell in json.loads((CHAPTERS / f"{PAGE}.ipynb").read_text("utf-8"))["cells"]
    }
    found = []
    for best in ("max(q[after])", "q[after][later]"):
        page = cells(PAGE, "mt-pr01", "mt-on5a").copy()
        exec(lines["mt-on5c"].partition("\n\n\nagents")[0].replace("max(q[after])", best), page)
        tables, late = zip(*[page["train"](9 * seed + k) for k in range(9)])
        along = 0  # greedy paths that pass above the middle of the cliff
        for Q in tables:
            cell, seen = (3, 0), set()
            while cell not in seen and cell != (3, 11):
                seen.add(cell)
                cell = page["cliff_step"](cell, Q[cell].index(max(Q[cell])))[0]
            along += (2, 6) in seen
        found.append((along, sum(late) / 9))
    (edge, paid), (kept, less) = found
    return edge == 9 and kept <= 3 and less > paid + 8
