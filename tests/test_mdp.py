"""Tests of ``rlbook_lib.mdp``: the model, its samples and its trajectories."""

import itertools

import gymnasium
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook_lib.mdp import (
    MDP,
    enumerate_trajectories,
    expected_rewards,
    policy_rows,
    sample_episode,
    trajectory_probability,
)

UNIFORM = np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])


def small_mdp(gamma=0.9, **changes):
    """Three states, two actions, the last state terminal; every number is different so that a mix-up shows."""
    transitions = np.zeros((3, 2, 3))
    transitions[0] = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]]
    transitions[1] = [[0.3, 0.3, 0.4], [0.0, 0.0, 1.0]]
    transitions[2] = [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    rewards = np.arange(18, dtype=float).reshape(3, 2, 3)
    arguments = dict(transitions=transitions, rewards=rewards, gamma=gamma, terminal=[0, 0, 1], start=[0.6, 0.4, 0])
    return MDP(**{**arguments, **changes})


@st.composite
def random_mdps(draw):
    n_states, n_actions = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    transitions = rng.dirichlet(np.full(n_states, 0.5), size=(n_states, n_actions))
    return MDP(
        transitions,
        rng.normal(size=(n_states, n_actions, n_states)),
        0.9,
        np.arange(n_states) == n_states - 1,
        rng.dirichlet(np.ones(n_states)),
    )


# ------------------------------------------------------------------ the model


@pytest.mark.equation("eq-expected-reward")
def test_expected_reward_is_the_plain_triple_loop():
    mdp = small_mdp()
    for state, action in itertools.product(range(2), range(2)):
        by_hand = sum(
            mdp.transitions[state, action, after] * mdp.reward_table[state, action, after] for after in range(3)
        )
        assert mdp.rewards[state, action] == pytest.approx(by_hand, abs=1e-12)
    assert mdp.rewards[0, 0] == pytest.approx(0.7 * 0 + 0.2 * 1 + 0.1 * 2)
    assert not small_mdp(rewards=np.ones((3, 2))).rewards[2].any()  # an end pays nothing, whatever it says


def test_expected_rewards_agree_dense_and_sparse():
    mdp = small_mdp()
    dense = expected_rewards(mdp.transitions, mdp.reward_table)
    rows = sp.csr_array(mdp.transitions.reshape(6, 3))
    assert np.allclose(expected_rewards(rows, mdp.reward_table).reshape(3, 2), dense)
    assert np.allclose(expected_rewards(rows, sp.csr_array(mdp.reward_table.reshape(6, 3))).reshape(3, 2), dense)


def test_sparse_and_dense_are_the_same_process():
    dense = small_mdp()
    sparse = small_mdp(
        transitions=sp.coo_array(dense.transitions.reshape(6, 3)),
        rewards=sp.csr_array(dense.reward_table.reshape(6, 3)),
    )
    assert np.allclose(dense.rewards, sparse.rewards)
    assert np.allclose(dense.continuation.toarray(), sparse.continuation.toarray())
    assert np.allclose(dense.transitions.reshape(6, 3), sparse.transitions.toarray())
    for policy in (UNIFORM, [1, 0, 0]):
        assert np.allclose(dense.policy_transitions(policy).toarray(), sparse.policy_transitions(policy).toarray())
    assert dense.transition_reward(1, 0, 2) == sparse.transition_reward(1, 0, 2) == 8.0


def test_terminal_states_stay_put_and_pay_nothing():
    noise = small_mdp().transitions.copy()
    noise[2] = [[5, -1, 7], [0, 0, 0]]  # rows of a terminal state may say anything
    mdp = small_mdp(transitions=noise)
    assert np.array_equal(mdp.transitions[2], [[0, 0, 1], [0, 0, 1]])
    assert (mdp.rewards[2] == 0).all()
    assert mdp.continuation[[4, 5]].nnz == 0


def test_policy_matrices_average_over_actions():
    mdp, policy = small_mdp(), np.array([[0.25, 0.75], [1, 0], [0.5, 0.5]])
    matrix = mdp.policy_transitions(policy).toarray()
    assert np.allclose(matrix[0], 0.25 * mdp.transitions[0, 0] + 0.75 * mdp.transitions[0, 1])
    assert np.allclose(matrix[2], 0)
    assert mdp.policy_rewards(policy)[0] == pytest.approx(0.25 * mdp.rewards[0, 0] + 0.75 * mdp.rewards[0, 1])
    deterministic = np.array([1, 0, 0])
    assert np.allclose(
        mdp.policy_transitions(deterministic).toarray(), mdp.policy_transitions(np.eye(2)[deterministic]).toarray()
    )


def test_replace_changes_only_the_discount():
    mdp = small_mdp().replace(gamma=0.5)
    assert mdp.gamma == 0.5
    assert np.array_equal(mdp.reward_table, small_mdp().reward_table)
    assert np.array_equal(mdp.start, small_mdp().start)


def test_the_arrays_cannot_be_changed_by_accident():
    with pytest.raises(ValueError, match="read-only"):
        small_mdp().rewards[0, 0] = 1


def test_a_default_start_is_uniform_over_states_that_go_on():
    assert small_mdp(start=None).start.tolist() == [0.5, 0.5, 0.0]


# ------------------------------------------------------------------ samples


def test_samples_follow_the_transition_probabilities():
    mdp, rng, n = small_mdp(), np.random.default_rng(0), 4000
    counts = np.bincount([mdp.sample(0, 0, rng)[0] for _ in range(n)], minlength=3)
    chance = mdp.transitions[0, 0]
    assert (np.abs(counts / n - chance) < 4 * np.sqrt(chance * (1 - chance) / n)).all()


def test_a_sample_pays_the_reward_of_its_own_transition():
    mdp, rng = small_mdp(), np.random.default_rng(1)
    for _ in range(20):
        after, reward = mdp.sample(1, 0, rng)
        assert reward == mdp.reward_table[1, 0, after]


def test_the_same_seed_gives_the_same_episode_and_another_seed_another():
    first, second = (sample_episode(small_mdp(), UNIFORM, seed=3) for _ in range(2))
    assert np.array_equal(first.states, second.states) and np.array_equal(first.rewards, second.rewards)
    lengths = {len(sample_episode(small_mdp(), UNIFORM, seed=seed)) for seed in range(20)}
    assert len(lengths) > 3


def test_an_episode_says_whether_it_ended_or_was_cut():
    ended = sample_episode(small_mdp(), UNIFORM, seed=0)
    assert ended.terminated and not ended.truncated and ended.states[-1] == 2
    cut = sample_episode(small_mdp(), [0, 0, 0], seed=0, start=0, max_steps=1)
    assert len(cut) == 1 and cut.terminated == (cut.states[-1] == 2) and cut.truncated == (not cut.terminated)


# ------------------------------------------------------------------ trajectories


@pytest.mark.equation("eq-trajectory-probability")
def test_trajectory_probability_matches_frequencies_and_a_hand_computation():
    mdp = small_mdp()
    by_hand = 0.6 * 0.5 * 0.2 * 0.5 * 1.0  # start in 0, action 0, land in 1, action 1, land in 2
    assert trajectory_probability(mdp, UNIFORM, [0, 1, 2], [0, 1]) == pytest.approx(by_hand, abs=1e-15)
    n = 3000
    hits = 0
    for seed in range(n):
        episode = sample_episode(mdp, UNIFORM, seed=seed)
        hits += episode.states.tolist() == [0, 1, 2] and episode.actions.tolist() == [0, 1]
    assert abs(hits / n - by_hand) < 4 * np.sqrt(by_hand / n)


@pytest.mark.equation("eq-trajectory-probability")
@settings(max_examples=25, deadline=None)
@given(mdp=random_mdps(), horizon=st.integers(0, 3))
def test_trajectories_partition_what_can_happen(mdp, horizon):
    policy = np.full((mdp.n_states, mdp.n_actions), 1 / mdp.n_actions)
    found = enumerate_trajectories(mdp, policy, horizon)
    assert sum(t.probability for t in found) == pytest.approx(1, abs=1e-12)
    assert len({(t.states, t.actions) for t in found}) == len(found)
    for trajectory in found[:10]:
        assert trajectory.probability == pytest.approx(
            trajectory_probability(mdp, policy, trajectory.states, trajectory.actions), abs=1e-15
        )
        for t, reward in enumerate(trajectory.rewards):
            s, a, after = trajectory.states[t], trajectory.actions[t], trajectory.states[t + 1]
            assert reward == mdp.reward_table[s, a, after]


def test_an_impossible_trajectory_has_probability_zero():
    assert trajectory_probability(small_mdp(), UNIFORM, [0, 2], [1]) == 0


# ------------------------------------------------------------------ Gymnasium


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_a_gymnasium_table_is_read_entry_by_entry(env_id):
    env = gymnasium.make(env_id).unwrapped
    mdp = MDP.from_gymnasium(env_id, 0.9)
    for state in np.flatnonzero(~mdp.terminal):
        for action in range(mdp.n_actions):
            expected = np.zeros(mdp.n_states)
            mean_reward = 0.0
            for chance, after, reward, done in env.P[state][action]:
                expected[after] += chance
                mean_reward += chance * reward
                assert not done or mdp.terminal[after] or chance == 0
            row = mdp.continuation[[state * mdp.n_actions + action]].toarray()[0]
            assert np.allclose(row, expected)
            assert mdp.rewards[state, action] == pytest.approx(mean_reward)
    assert mdp.start.sum() == pytest.approx(1)


def test_only_states_that_an_episode_can_be_in_say_where_episodes_end():
    """Nobody comes to state 3, whose row claims that state 1 is an end."""

    class Table(gymnasium.Env):
        P = [[[(1.0, after, 1.0, done)]] for after, done in ((1, False), (2, True), (2, True), (1, True))]
        initial_state_distrib = np.array([1.0, 0.0, 0.0, 0.0])

    mdp = MDP.from_gymnasium(Table(), 0.9)
    assert mdp.terminal.tolist() == [False, False, True, False]


def test_an_environment_without_a_table_is_refused():
    with pytest.raises(ValueError, match="transition table P"):
        MDP.from_gymnasium("CartPole-v1", 0.9)


# ------------------------------------------------------------------ bad input


def with_entry(value):
    transitions = small_mdp().transitions.copy()
    transitions[0, 1] = value
    return transitions


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transitions": with_entry([0.5, 0.4, 0.0])}, "transitions for state 0, action 1 sum to 0.9; expected"),
        ({"transitions": with_entry([1.5, -0.5, 0.0])}, "transitions holds -0.5; expected probabilities"),
        ({"transitions": with_entry([np.nan, 1.0, 0.0])}, "transitions holds NaN"),
        ({"transitions": sp.csr_array(with_entry([np.nan, 1.0, 0.0]).reshape(6, 3))}, "transitions holds NaN"),
        ({"transitions": np.ones((3, 3))}, r"transitions has shape \(3, 3\); expected \(S, A, S\)"),
        ({"transitions": np.zeros((0, 2, 0))}, "transitions is empty"),
        ({"transitions": sp.csr_array(np.ones((5, 3)))}, r"transitions has shape \(5, 3\); expected \(S\*A, S\)"),
        ({"rewards": np.zeros((3, 3))}, r"rewards has shape \(3, 3\); expected \(3, 2\) or \(3, 2, 3\)"),
        ({"rewards": np.full((3, 2), np.nan)}, "rewards holds NaN"),
        ({"rewards": sp.csr_array((3, 3))}, r"rewards has shape \(3, 3\); expected \(6, 3\)"),
        ({"rewards": sp.csr_array(np.full((6, 3), np.inf))}, "rewards holds NaN or infinite"),
        ({"gamma": -0.1}, "gamma is -0.1; expected a number, from 0 to 1"),
        ({"terminal": [0, 1]}, r"terminal has shape \(2,\); expected \(3,\)"),
        ({"terminal": [0, 2, 1]}, "terminal holds values other than 0 and 1"),
        ({"start": [0.5, 0.6, 0]}, "start has a row that sums to 1.1"),
        ({"start": [1.0]}, r"start has shape \(1,\); expected \(3,\)"),
        ({"gamma": 1, "terminal": None}, "gamma = 1 needs a terminal state, and none"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        small_mdp(**changes)


@pytest.mark.parametrize("name", ["transitions", "rewards", "terminal", "start"])
def test_what_is_no_array_is_named(name):
    with pytest.raises(TypeError, match=f"^{name} is 'abc'; expected"):
        small_mdp(**{name: "abc"})


def test_gamma_one_names_the_state_that_cannot_end():
    transitions = np.zeros((3, 1, 3))
    transitions[[0, 1, 2], 0, [0, 2, 2]] = 1  # state 0 loops for ever
    with pytest.raises(ValueError, match="1 cannot reach one, the first is state 0"):
        MDP(transitions, np.zeros((3, 1)), 1.0, [0, 0, 1])


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([[0.5, 0.6], [1, 0], [1, 0]], "policy has a row that sums to 1.1"),
        ([[0.5, 0.5], [2, -1], [1, 0]], "policy holds -1; expected"),
        ([0, 1, 2], "policy holds actions 0 to 2; expected 0 to 1"),
        ([0.0, 0.5, 0.0], "policy holds fractions; expected whole numbers"),
        ([0, 1], r"policy has shape \(2,\); expected \(3,\)"),
    ],
)
def test_a_bad_policy_is_named(policy, message):
    for use in (
        lambda m: m.policy_rows(policy),
        lambda m: m.policy_transitions(policy),
        lambda m: policy_rows(policy, 3, 2),
        lambda m: sample_episode(m, policy, seed=0),
    ):
        with pytest.raises(ValueError, match=message):
            use(small_mdp())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.sample(2, 0, np.random.default_rng(0)), ValueError, "state is 2, a terminal state"),
        (
            lambda m: m.sample(3, 0, np.random.default_rng(0)),
            ValueError,
            "state is 3; expected a whole number from 0 to 2",
        ),
        (
            lambda m: m.sample(0, 2, np.random.default_rng(0)),
            ValueError,
            "action is 2; expected a whole number from 0 to 1",
        ),
        (lambda m: m.successors("0", 1), TypeError, "state is '0'; expected a whole number"),
        (lambda m: m.transition_reward(0, None, 1), TypeError, "action is None; expected a whole number"),
        (lambda m: m.transition_reward(0, 1, 3), ValueError, "next_state is 3; expected a whole number from 0 to 2"),
        (lambda m: sample_episode(m, UNIFORM, seed=0, start=2), ValueError, "start is 2; expected a state"),
        (lambda m: sample_episode(None, UNIFORM, seed=0), TypeError, "mdp is None; expected an MDP"),
        (lambda m: trajectory_probability(m, UNIFORM, [0, 1], [0, 1]), ValueError, "one more than actions"),
        (lambda m: trajectory_probability(m, UNIFORM, [2, 2], [0]), ValueError, "after a terminal state"),
        (lambda m: trajectory_probability(m, UNIFORM, [0, 3], [0]), ValueError, "states holds 3"),
        (lambda m: MDP.from_gymnasium(None, 0.9), TypeError, "env_or_id is None"),
    ],
)
def test_bad_calls_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(small_mdp())
