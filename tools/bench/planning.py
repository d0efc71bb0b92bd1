"""Modified policy iteration against quantecon's sparse DiscreteDP, in CPU seconds on one thread.

    python tools/bench/planning.py                     # all problems, all sizes
    python tools/bench/planning.py --sizes 1000 --repeats 9
    python tools/bench/planning.py --peers FOLDER      # with mdpsolver, a solver in C++, too

Both get the same state-action matrix, discount (0.99) and accuracy: quantecon's epsilon = 1e-6 promises
values within epsilon / 2, so the library's tolerance is 5e-7. Errors are measured against a solution
of tolerance 1e-10, whose own Bellman residual is checked. mdpsolver runs on one thread with the method that is
its fastest on 10,000 states among those that keep this accuracy; every timing starts from values of zero, and
its lists are made before. ``pip install --target FOLDER mdpsolver==0.10.2 quantecon==0.11.4 numpy==2.4.6
scipy==1.17.1`` makes the folder. Results go to results/planning.json.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import common  # sets the number of threads, so it comes first
import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from rlbook_lib.dynamic_programming import (
    Solution,
    bellman_optimality_backup,
    modified_policy_iteration,
    value_iteration,
)
from rlbook_lib.maze import Maze
from rlbook_lib.mdp import MDP

try:
    from quantecon.markov import DiscreteDP
except ImportError:
    sys.exit("this benchmark needs quantecon, its peer; install it with: pip install -e .[bench]")

GAMMA = 0.99
EPSILON = 1e-6
ACTIONS, SUCCESSORS = 4, 5
OURS, PEER, PLAIN, COMPILED = "modified policy iteration", "quantecon", "value iteration", "mdpsolver"
UPDATES = {"random": "standard", "maze": "gs", "maze, step cost": "gs"}  # of mdpsolver's value iteration
TARGETS = {"random": 1.0, "maze": 1.4, "maze, step cost": 1.4}  # quantecon's time over ours, at least


def random_mdp(n_states: int, seed: int = 0) -> MDP:
    """Five successors drawn at random for each pair, with random probabilities and rewards in [0, 1]."""
    rng = np.random.default_rng(seed)
    pairs = n_states * ACTIONS
    successors = rng.integers(n_states, size=(pairs, SUCCESSORS))
    probabilities = rng.dirichlet(np.ones(SUCCESSORS), size=pairs)
    pointers = np.arange(0, pairs * SUCCESSORS + 1, SUCCESSORS)
    transitions = sp.csr_array((probabilities.ravel(), successors.ravel(), pointers), shape=(pairs, n_states))
    return MDP(transitions, rng.random((n_states, ACTIONS)), GAMMA)


def maze_layout(n_states: int, walls: float = 0.3, traps: float = 0.01, seed: int = 0) -> tuple[str, ...]:
    """A square of cells with random walls and traps, start and goal in its largest connected part."""
    rng = np.random.default_rng(seed)
    side = math.isqrt(n_states)
    cells = np.where(rng.random((side, side)) < walls, "#", ".")
    cells[(cells == ".") & (rng.random((side, side)) < traps)] = "T"
    inside = _largest_part(cells == ".")
    start, goal = rng.choice(inside, size=2, replace=False)
    cells.flat[start], cells.flat[goal] = "S", "G"
    return tuple("".join(row) for row in cells)


def _largest_part(free: np.ndarray) -> np.ndarray:
    """The cells of the largest connected set of free cells."""
    number = np.arange(free.size).reshape(free.shape)
    right, down = free[:, :-1] & free[:, 1:], free[:-1] & free[1:]
    source = np.concatenate((number[:, :-1][right], number[:-1][down]))
    target = np.concatenate((number[:, 1:][right], number[1:][down]))
    graph = sp.csr_array((np.ones(len(source)), (source, target)), shape=(free.size, free.size))
    labels = connected_components(graph, directed=False)[1]
    largest = np.bincount(labels[free.ravel()]).argmax()
    return np.flatnonzero(free.ravel() & (labels == largest))


def maze_mdp(n_states: int) -> MDP:
    """The book's maze: +10 at the goal, -10 at a trap, slip 0.2."""
    return Maze(maze_layout(n_states), slip=0.2).to_mdp(GAMMA)


def costly_maze_mdp(n_states: int) -> MDP:
    """A shortest-path maze: every step costs 1, no traps, slip 0.2."""
    maze = Maze(maze_layout(n_states, traps=0.0), slip=0.2).to_mdp(GAMMA)
    return MDP(maze.transitions, np.full((maze.n_states, maze.n_actions), -1.0), GAMMA, maze.terminal)


PROBLEMS = {"random": random_mdp, "maze": maze_mdp, "maze, step cost": costly_maze_mdp}


def peer_problem(mdp: MDP) -> Any:
    """The same process for quantecon: terminal states loop on themselves for nothing."""
    pairs = mdp.n_states * mdp.n_actions
    transitions = sp.csr_matrix(mdp.transitions)
    state, action = np.divmod(np.arange(pairs), mdp.n_actions)
    return DiscreteDP(mdp.rewards.ravel(), transitions, mdp.gamma, state, action)


def mdpsolver_run(mdp: MDP, update: str) -> Any:
    """A function that solves the same process with mdpsolver, whose arguments are nested lists."""
    import mdpsolver

    transitions, start = sp.csr_matrix(mdp.transitions), [0.0] * mdp.n_states

    def by_state(array: np.ndarray) -> list[list[list[Any]]]:
        rows = [row.tolist() for row in np.split(array, transitions.indptr[1:-1])]
        return [rows[i : i + mdp.n_actions] for i in range(0, len(rows), mdp.n_actions)]

    model = mdpsolver.model()
    model.mdp(
        discount=mdp.gamma,
        rewards=mdp.rewards.tolist(),
        tranMatProbs=by_state(transitions.data),
        tranMatColumns=by_state(transitions.indices),
    )

    def solve() -> Solution:
        model.solve(algorithm="vi", update=update, tolerance=EPSILON / 2, initValueVector=start, parallel=False)
        return Solution(np.array(model.getValueVector()), np.empty(0), np.array(model.getPolicy()), 0, EPSILON / 2)

    return solve


def reference(mdp: MDP) -> np.ndarray:
    """Values far more exact than what is asked of the solvers, checked by their Bellman residual."""
    solution = modified_policy_iteration(mdp, tolerance=1e-10)
    residual = np.abs(bellman_optimality_backup(mdp, solution.values) - solution.values).max()
    assert residual / (1 - mdp.gamma) < EPSILON / 20, f"the reference is too coarse: {residual:.1e}"
    return solution.values


def compare(problem: str, n_states: int, repeats: int, compiled: bool) -> dict[str, Any]:
    """Time all solvers on one problem."""
    mdp = PROBLEMS[problem](n_states)
    peer, values = peer_problem(mdp), reference(mdp)

    def solve_peer() -> Solution:
        answer = peer.solve(method="modified_policy_iteration", epsilon=EPSILON, max_iter=100_000)
        return Solution(answer.v, np.empty(0), answer.sigma, answer.num_iter, EPSILON / 2)

    cases = {
        OURS: lambda: modified_policy_iteration(mdp, tolerance=EPSILON / 2),
        PEER: solve_peer,
        PLAIN: lambda: value_iteration(mdp, tolerance=EPSILON / 2),
    }
    if compiled:
        cases[COMPILED] = mdpsolver_run(mdp, UPDATES[problem])
    first = common.first_calls(cases)
    seconds, answers = common.cpu_seconds(cases, repeats)
    record: dict[str, Any] = {"problem": problem, "states": mdp.n_states, "solvers": {}}
    for name, answer in answers.items():
        error = float(np.abs(answer.values - values).max())
        record["solvers"][name] = (
            common.summary(seconds[name])
            | first[name]
            | {"iterations": int(answer.iterations) or None, "error": error, "error_bound": float(answer.error_bound)}
        )
        assert error <= EPSILON * 0.55, f"{name} is off by {error:.1e} on {problem}, {n_states} states"
    ours, theirs = record["solvers"][OURS]["median_s"], record["solvers"][PEER]["median_s"]
    return record | {"times_as_fast": theirs / ours, "target": TARGETS[problem]}


def growth(records: list[dict[str, Any]], problem: str, solver: str) -> float:
    """The exponent p in time ~ S^p between the smallest and the largest size."""
    own = [record for record in records if record["problem"] == problem]
    first, last = own[0], own[-1]
    if first is last:
        return math.nan
    times = [record["solvers"][solver]["median_s"] for record in (first, last)]
    return math.log(times[1] / times[0]) / math.log(last["states"] / first["states"])


def rows(record: dict[str, Any]) -> list[dict[str, str]]:
    """One line of the printed table per solver."""
    peer = record["solvers"][PEER]["median_s"]
    return [
        {
            "problem": record["problem"],
            "states": str(record["states"]),
            "solver": name,
            "median ms": f"{1e3 * s['median_s']:.2f}",
            "min ms": f"{1e3 * s['min_s']:.2f}",
            "max ms": f"{1e3 * s['max_s']:.2f}",
            "x quantecon": f"{peer / s['median_s']:.2f}",
            "iterations": str(s["iterations"] or "not told"),
            "error": f"{s['error']:.1e}",
            "bound": f"{s['error_bound']:.1e}",
        }
        for name, s in record["solvers"].items()
    ]


def main() -> None:
    """Run, print the table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--dry", action="store_true", help="do not write the results")
    parser.add_argument("--peers", help="a folder with mdpsolver (and quantecon, where it is not installed)")
    arguments = parser.parse_args()
    records = [
        compare(problem, size, arguments.repeats, bool(arguments.peers))
        for problem in arguments.problems
        for size in sorted(arguments.sizes)
    ]
    print(common.table([row for record in records for row in rows(record)]))
    exponents = {p: {s: growth(records, p, s) for s in (OURS, PEER, PLAIN)} for p in arguments.problems}
    for problem, of_solver in exponents.items():
        print(f"growth, {problem}: " + ", ".join(f"{s} S^{p:.2f}" for s, p in of_solver.items()))
    missed = [record for record in records if record["times_as_fast"] < record["target"]]
    for record in missed:
        print(
            f"MISSED: {record['problem']}, {record['states']} states: {record['times_as_fast']:.2f} "
            f"times as fast, target {record['target']}"
        )
    if not arguments.dry:
        common.save(
            "planning",
            {
                "setting": {"gamma": GAMMA, "epsilon": EPSILON, "repeats": arguments.repeats},
                "machine": common.machine(["numpy", "scipy", "quantecon", *(["mdpsolver"] if arguments.peers else [])]),
                "results": records,
                "growth": exponents,
            },
        )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
