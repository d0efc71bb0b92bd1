"""Mazes, models, and the few functions of the library that the tabular programs of lessons 1 to 4 call, for the Python of the page."""

import re

ACTIONS = ["up", "down", "left", "right"]
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
LAYOUTS = {"L1": ("S..", ".TG"), "L2": ("S..", "T.G"), "L3": ("S.G", "..T"), "L4": ("S#T", "..G")}


class MDP:
    """A model; rewards are R(s, a, s') or already r(s, a)."""

    def __init__(self, transitions, rewards, gamma, terminal=None, start=None):
        self.transitions, self.gamma, self.start = array(transitions), gamma, None if start is None else array(start)
        self.n_states, self.n_actions = self.transitions.shape[:2]
        self.paid, self._drawn = array(rewards), {}  # as it was given; what may follow what
        expected = (self.transitions * self.paid).sum(axis=2) if self.paid.ndim == 3 else self.paid
        self.terminal = full(self.n_states, False) if terminal is None else array(terminal).astype(bool)
        self.rewards = expected * numpy.where(self.terminal, 0.0, 1.0)[:, None]

    def replace(self, gamma):
        return MDP(self.transitions, self.paid, gamma, self.terminal, self.start)

    def successors(self, s, a):
        after = numpy.flatnonzero(self.transitions[s, a])
        return after, self.transitions[s, a][after]

    def sample(self, s, a, rng):
        if (s, a) not in self._drawn:
            after = [t for t, p in enumerate(self.transitions[s, a].data) if p]
            self._drawn[s, a] = after, self.transitions[s, a][after].data
        after, chances = self._drawn[s, a]
        t = after[rng.choice(len(after), p=chances)]
        return t, float(self.paid[s, a, t] if self.paid.ndim == 3 else self.paid[s, a])


class Maze:
    def __init__(self, layout="L1", slip=0.0):
        rows = tuple(LAYOUTS.get(layout, layout) if isinstance(layout, str) else layout)
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            raise ValueError("the rows of the maze have different lengths")
        cells = "".join(rows)
        if cells.count("S") != 1 or any(cell not in "SGT#." for cell in cells):
            raise ValueError("a maze has one S, and otherwise only G, T, # and .")
        self.layout, self.columns, self.cells, self.slip = rows, len(rows[0]), cells, slip
        self.n_states, self.n_actions, self.start_state = len(cells), 4, cells.index("S")

    def cell(self, s):
        return divmod(s, self.columns)

    def ends(self, s):
        return self.cells[s] in "GT#"

    def lead(self, s, a):
        """Where a push leads: a wall and the edge leave the walker where it is."""
        i, j = s // self.columns + MOVES[a][0], s % self.columns + MOVES[a][1]
        if self.ends(s) or not (0 <= i < len(self.layout) and 0 <= j < self.columns):
            return s
        return s if self.layout[i][j] == "#" else i * self.columns + j

    def pays(self, s):
        return {"G": 10.0, "T": -10.0}.get(self.cells[s], 0.0)

    def to_mdp(self, gamma):
        n = self.n_states
        moves, ends = zeros((n, 4, n)), [self.ends(s) for s in range(n)]
        for s in range(n):
            for a in range(4):
                for push, chance in [(a, 1 - self.slip)] + [(b, self.slip / 2) for b in ((2, 3) if a < 2 else (0, 1))]:
                    moves.data[(4 * s + a) * n + self.lead(s, push)] += chance
        paid = ndarray(
            [0.0 if ends[s] else self.pays(t) for s in range(n) for _ in range(4) for t in range(n)], (n, 4, n)
        )
        return MDP(moves, paid, gamma, ends, eye(n)[self.start_state])

    def reset(self, seed=None):
        if seed is not None:
            random.seed(seed)
        self.state = self.start_state
        return self.state, {}

    def step(self, a):
        if random.random() < self.slip:
            a = (2 if a < 2 else 0) + (random.random() < 0.5)
        self.state = self.lead(self.state, a)
        return self.state, self.pays(self.state), self.ends(self.state), False, {}


class dp:
    """Dynamic programming, under the library's names."""

    def q_from_values(mdp, V):
        return mdp.rewards + mdp.gamma * ((mdp.transitions @ V) * numpy.where(mdp.terminal, 0.0, 1.0)[:, None])

    def policy_evaluation(mdp, policy):
        policy, cells = array(policy), arange(mdp.n_states)
        if policy.ndim == 1:
            P, r = mdp.transitions[cells, policy], mdp.rewards[cells, policy]
        else:
            P, r = einsum("sa,sat->st", policy, mdp.transitions), (policy * mdp.rewards).sum(axis=1)
        return solve(eye(mdp.n_states) - mdp.gamma * P * numpy.where(mdp.terminal, 0.0, 1.0)[:, None], r)

    def policy_iteration(mdp):
        policy = zeros(mdp.n_states, int)
        while True:
            V = dp.policy_evaluation(mdp, policy)
            Q = dp.q_from_values(mdp, V)
            best, kept = Q.max(axis=1), Q[arange(mdp.n_states), policy]
            better = numpy.where(best > kept + 1e-10, Q.argmax(axis=1), policy)
            if better.data == policy.data:
                return _Named(values=V, q_values=Q, policy=policy)
            policy = better

    def value_iteration(mdp):
        return dp.policy_iteration(mdp)


def sample_episode(mdp, policy, seed=0, start=None, max_steps=1000):
    rng, policy = Generator(seed), array(policy)
    s = rng.choice(mdp.n_states, p=mdp.start) if start is None else start
    states, rewards, rows, alive = [], [], list(policy), [not end for end in mdp.terminal]
    while alive[s] and len(states) < max_steps:
        a = rng.choice(mdp.n_actions, p=rows[s]) if policy.ndim == 2 else rows[s]
        states.append(s)
        s, r = mdp.sample(s, a, rng)
        rewards.append(r)
    return _Named(states=states + [s], rewards=rewards)


def discounted_returns(rewards, gamma):
    G, found = 0.0, []
    for r in reversed(rewards):
        G = r + gamma * G
        found.append(G)
    return array(found[::-1])


def known_to_programs():
    """What the cells of lessons 1 to 4 have imported or made before the programs that run on the page."""
    maze = Maze("L1")
    return dict(np=numpy, MDP=MDP, Maze=Maze, dp=dp, ACTIONS=ACTIONS, maze=maze, NAMES="ABCDEF", firm=maze.to_mdp(0.9),
                slippery=Maze("L1", slip=0.4).to_mdp(0.9), sample_episode=sample_episode, discounted_returns=discounted_returns,
                policy_evaluation=dp.policy_evaluation, value_iteration=dp.value_iteration, re=re)  # fmt: skip
