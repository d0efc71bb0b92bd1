"""Tests of ``rlbook_lib.evaluation``: statistics over many seeds."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from distributed import Client, LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st

import rlbook_lib.evaluation as evaluation
from rlbook_lib.evaluation import (
    bootstrap_interval,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
    stored_runs,
    sweep,
)
from tests.full_disk import no_file_longer_than

RLIABLE = {"improvement": 0.590625, "iqm": 0.2235508531988683, "profile": [0.9, 0.65, 0.375, 0.075]}


# ------------------------------------------------------------------ interquartile mean


def test_interquartile_mean_by_hand():
    assert interquartile_mean([100.0, 1.0, 3.0, 2.0]) == 2.5
    assert interquartile_mean([5.0, 1.0, -90.0]) == pytest.approx(-28.0)  # three runs: nothing to leave out
    assert isinstance(interquartile_mean([1, 2]), float)


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_interquartile_mean_is_the_trimmed_mean_of_scipy(runs, points, seed):
    x = np.random.default_rng(seed).standard_cauchy((runs, points))
    expected = scipy.stats.trim_mean(x, 0.25, axis=0)
    assert np.allclose(interquartile_mean(x), expected, rtol=1e-9)
    assert np.allclose(interquartile_mean(x.T, axis=1), expected, rtol=1e-9)


# ------------------------------------------------------------------ bootstrap interval


def plain_bootstrap(x, statistic, resamples, seed):
    """One resample at a time, one column at a time."""
    rng = np.random.default_rng(seed)
    results = []
    for _ in range(resamples):
        chosen = rng.integers(len(x), size=len(x))
        results.append([statistic(column[chosen]) for column in x.T])
    return np.quantile(results, [0.025, 0.975], axis=0)


@pytest.mark.parametrize("statistic", [np.mean, np.median, interquartile_mean])
def test_interval_equals_the_plain_loop(statistic):
    x = np.random.default_rng(0).normal(size=(12, 3))
    interval = bootstrap_interval(x, statistic, resamples=300, seed=5)
    assert np.allclose(interval, plain_bootstrap(x, statistic, 300, seed=5), atol=1e-12)


@pytest.mark.parametrize("statistic", [np.mean, np.median])
def test_memory_is_bounded_and_the_result_the_same(monkeypatch, statistic):
    x = np.random.default_rng(1).normal(size=(10, 7))
    whole = bootstrap_interval(x, statistic, resamples=500)
    sizes, original = [], evaluation._resampled

    def watched(x, statistic, chosen):
        sizes.append(len(chosen))
        return original(x, statistic, chosen)

    monkeypatch.setattr(evaluation, "CHUNK", 1000)
    monkeypatch.setattr(evaluation, "_resampled", watched)
    assert np.allclose(bootstrap_interval(x, statistic, resamples=500), whole, atol=1e-12)
    assert max(sizes) * x.size <= 1000 and sum(sizes) == 500


def test_axes_and_shapes():
    x = np.random.default_rng(2).normal(size=(9, 4, 2))
    low, high = bootstrap_interval(x, resamples=200)
    assert low.shape == high.shape == (4, 2) and (low < high).all()
    one = bootstrap_interval(x[:, 0, 0], resamples=200)
    assert all(isinstance(end, float) for end in one)
    assert np.allclose(one, (low[0, 0], high[0, 0]))  # every column sees the same drawn runs


def test_seed_decides_and_the_global_generator_is_left_alone():
    x = np.random.default_rng(3).normal(size=20)
    before = np.random.get_state()[1].copy()
    assert bootstrap_interval(x, seed=1) == bootstrap_interval(x, seed=1)
    assert bootstrap_interval(x, seed=1) != bootstrap_interval(x, seed=2)
    assert np.array_equal(np.random.get_state()[1], before)


def test_equal_runs_give_an_interval_of_no_width():
    assert bootstrap_interval(np.full(5, 2.5)) == pytest.approx((2.5, 2.5))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """2000 experiments of 30 normal runs. Theory: about 0.936; such a share has a standard error of 0.006."""
    x = np.random.default_rng(4).normal(1.5, 2.0, size=(30, 2000))  # (runs, experiments)
    low, high = bootstrap_interval(x, resamples=800, seed=6)
    assert 0.92 < ((low < 1.5) & (1.5 < high)).mean() < 0.955


def test_the_interval_shrinks_with_the_square_root_of_the_runs():
    rng = np.random.default_rng(7)
    widths = [
        np.subtract(*bootstrap_interval(rng.normal(size=(runs, 200)), resamples=500)[::-1]).mean() for runs in (25, 100)
    ]
    assert widths[0] / widths[1] == pytest.approx(2.0, rel=0.05)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "changes, error, word",
    [
        (dict(x=3.0), ValueError, "x has shape"),
        (dict(x=[1.0]), ValueError, "x holds 1 run"),
        (dict(x=[1.0, np.nan]), ValueError, "x holds NaN"),
        (dict(statistic="mean"), TypeError, "statistic is 'mean'; expected a function"),
        (dict(statistic=lambda x, axis: x), ValueError, "statistic returned shape"),
    ],
)
def test_bad_input_is_named(changes, error, word):
    arguments = dict(x=[1.0, 2.0, 3.0]) | changes
    with pytest.raises(error, match=word):
        bootstrap_interval(**arguments)


def test_bad_input_of_the_interquartile_mean_is_named():
    with pytest.raises(ValueError, match="x holds NaN or infinite"):
        interquartile_mean([np.inf, 1.0])
    with pytest.raises(ValueError, match="axis is 1"):
        interquartile_mean([1.0, 2.0], axis=1)


# ------------------------------------------------------------------ two methods, many tasks


def test_probability_of_improvement_counts_pairs():
    assert probability_of_improvement([1.0, 3.0], [2.0, 3.0, 0.0]) == (1 + (2 + 0.5)) / 6
    x, y = np.random.default_rng(0).integers(0, 5, (2, 7, 3))
    by_test = [scipy.stats.mannwhitneyu(x[:, task], y[:5, task]).statistic / 35 for task in range(3)]
    assert probability_of_improvement(x, y[:5]) == pytest.approx(np.mean(by_test))
    with pytest.raises(ValueError, match="y has shape \\(7, 2\\); expected \\(M, 3\\), like x"):
        probability_of_improvement(x, y[:, :2])


def test_values_of_the_authors_own_library():
    """rliable 1.2.0 on these numbers: metrics.probability_of_improvement, metrics.aggregate_iqm, library.create_performance_profile."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(0.3, 1, (10, 4)), rng.normal(0, 1, (8, 4))
    assert probability_of_improvement(x, y) == pytest.approx(RLIABLE["improvement"], abs=1e-12)
    assert performance_profile(x, [-1.0, 0.0, 0.5, 2.0]) == pytest.approx(RLIABLE["profile"], abs=1e-12)
    assert interquartile_mean(np.ravel(x)) == pytest.approx(RLIABLE["iqm"], abs=1e-12)


# ------------------------------------------------------------------ sweep


def walk(seed, length=5, scale=1.0, pause=0.0):
    """A random walk for a training run."""
    time.sleep(pause)
    return {"place": scale * np.random.default_rng(seed).normal(size=length).cumsum(), "length": [length]}


def count_threads(seed):
    return {"threads": [torch.get_num_threads()]}


CONFIGS = {"short": {"length": 3}, "0.5, wide/deep": {"length": 4, "scale": 0.5}}


def test_a_sweep_holds_every_case_and_seed_and_leaves_the_threads_as_they_were(tmp_path):
    threads = torch.get_num_threads() + 1
    torch.set_num_threads(threads)
    runs = sweep(walk, CONFIGS, [4, 0], folder=tmp_path, backend="sequential", progress=False)
    assert list(runs) == list(CONFIGS) and torch.get_num_threads() == threads
    for case, config in CONFIGS.items():
        assert runs[case]["seeds"].tolist() == [0, 4]
        for row, seed in zip(runs[case]["place"], (0, 4), strict=True):
            assert np.array_equal(row, walk(seed, **config)["place"])
    assert len(list(tmp_path.rglob("*.json"))) == 4 and not list(tmp_path.rglob("*.part"))
    inside = sweep(count_threads, {"any": {}}, [0], folder=tmp_path / "threads", backend="sequential", progress=False)
    assert inside["any"]["threads"].tolist() == [[1]]  # runs that share a machine do not fight for it
    torch.set_num_threads(threads - 1)


def test_what_is_kept_is_not_run_again_unless_its_config_changed(tmp_path):
    calls = []

    def noted(seed, **config):
        calls.append((config["length"], seed))
        return walk(seed, **config)

    def again(configs, seeds):
        calls.clear()
        return sweep(noted, configs, seeds, folder=tmp_path, backend="sequential", progress=False)

    again(CONFIGS, [0, 1])
    assert calls == [(3, 0), (4, 0), (3, 1), (4, 1)]
    again(CONFIGS, [0, 1, 2, 2])
    assert calls == [(3, 2), (4, 2)]
    again(CONFIGS | {"short": {"length": 7}}, [0])
    assert calls == [(7, 0)]
    next(tmp_path.rglob("1.json")).write_text("{", "utf-8")  # a torn file is no run
    again(CONFIGS | {"short": {"length": 7}}, [0])
    assert calls == []
    again(CONFIGS, [1])
    assert len(calls) == 1


def test_processes_give_the_same_numbers(tmp_path):
    here = sweep(walk, CONFIGS, range(3), folder=tmp_path / "a", backend="sequential", progress=False)
    there = sweep(walk, CONFIGS, range(3), folder=tmp_path / "b", workers=2, progress=False)
    for case in CONFIGS:
        for curve in ("place", "length", "seeds"):
            assert np.array_equal(here[case][curve], there[case][curve])


def test_a_run_that_fails_is_named_and_all_others_are_made(tmp_path):
    def broken(seed, **config):
        if seed in (1, 3):
            raise ZeroDivisionError("no such thing")
        return walk(seed, **config)

    with pytest.raises(
        RuntimeError, match="case 'short' with seed 1 failed: ZeroDivisionError: no such thing; so did 1 others of 5"
    ) as caught:
        sweep(broken, {"short": {}}, range(5), folder=tmp_path, backend="sequential", progress=False)
    assert "in broken" in caught.value.__notes__[0]  # where it was raised
    assert sorted(path.name for path in (tmp_path / "short").iterdir()) == ["0.json", "2.json", "4.json"]
    assert sweep(walk, {"short": {}}, range(5), folder=tmp_path, backend="sequential", progress=False)["short"][
        "place"
    ].shape == (5, 5)


def dies(seed, victim, once=None):
    """A run that takes its process along, each time or only once."""
    if seed == victim and not (once and os.path.exists(once)):
        if once:
            open(once, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return walk(seed, pause=0.2)


def test_without_a_cluster_a_dead_process_ends_the_sweep_and_what_had_ended_is_kept(tmp_path):
    with pytest.raises(RuntimeError, match="a worker process died .* of 4 runs were kept: call again to go on"):
        sweep(dies, {"a": {"victim": 3}}, range(4), folder=tmp_path, workers=2, progress=False)
    assert (tmp_path / "a" / "0.json").exists() and not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda seed: {"x": np.ones((2, 3))}, "the curve 'x' of shape \\(2, 3\\); expected \\(points,\\)"),
        (lambda seed: {"seeds": [1.0]}, "a curve with the name 'seeds'; expected another name"),
        (lambda seed: {"x": ["one"]}, "failed: ValueError"),
        (lambda seed: [1.0], "failed: AttributeError"),
        (
            lambda seed: {"x": [1.0]} if seed else {"x": [1.0], "y": [1.0]},
            "seed 1 has the curves \\['x'\\], that with seed 0 \\['x', 'y'\\]",
        ),
    ],
)
def test_a_run_that_returns_something_else_is_refused(tmp_path, returned, words):
    with pytest.raises((RuntimeError, ValueError), match=words):
        sweep(returned, {"a": {}}, range(2), folder=tmp_path, backend="sequential", progress=False)


def test_runs_of_different_lengths_are_filled_up(tmp_path):
    runs = sweep(
        lambda seed: {"x": [seed] * (seed + 1), "y": 5},
        {"a": {}},
        range(2),
        folder=tmp_path,
        backend="sequential",
        progress=False,
    )
    assert np.array_equal(runs["a"]["x"], [[0, np.nan], [1, 1]], equal_nan=True) and runs["a"]["y"].tolist() == [
        [5],
        [5],
    ]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"arguments": {}}', "\0" * 40])
def test_a_damaged_file_is_made_again(tmp_path, damage):
    before = sweep(walk, {"a": {}}, [0, 1], folder=tmp_path, backend="sequential", progress=False)
    (tmp_path / "a" / "1.json").write_text(damage)
    after = sweep(walk, {"a": {}}, [0, 1], folder=tmp_path, backend="sequential", progress=False)
    assert np.array_equal(before["a"]["place"], after["a"]["place"])


def test_a_full_disk_is_named_and_costs_only_what_was_not_written(tmp_path):
    train = lambda seed: {"x": np.ones(1 if seed < 2 else 9000)}  # noqa: E731
    with (
        no_file_longer_than(10_000),
        pytest.raises(OSError, match="this run was not kept, those before it were: .*2.json"),
    ):
        sweep(train, {"a": {}}, range(3), folder=tmp_path, backend="sequential", progress=False)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["0.json", "1.json"]


def test_two_programs_may_write_the_same_run(tmp_path):
    row = {"case": "a", "seed": 0, "arguments": {}, "curves": {"x": [0.5] * 3000}, "cpu_seconds": 0.0}

    def write(_):
        for _ in range(100):
            evaluation.keep_run(tmp_path, row)
            assert evaluation.kept_run(tmp_path, "a", 0) == row

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["0.json"]


def test_a_run_that_another_sweep_overwrites_is_not_passed_off_as_ours(tmp_path):
    def train(seed):
        if seed == 1:
            evaluation.keep_run(
                tmp_path,
                {"case": "a", "seed": 0, "arguments": {"x": 1}, "curves": {"place": [9.0] * 5}, "cpu_seconds": 0.0},
            )
        return walk(seed)

    with pytest.raises(RuntimeError, match="0.json was changed while the sweep ran"):
        sweep(train, {"a": {}}, [0, 1], folder=tmp_path, backend="sequential", progress=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seeds": []}, "seeds is"),
        ({"seeds": [-1]}, "seeds\\[0\\] is -1"),
        ({"seeds": [True]}, "seeds\\[0\\] is True"),
        ({"workers": 0}, "workers is 0"),
        ({"backend": "slurm"}, "backend is 'slurm'"),
        ({"configs": {"..": {}}}, "case is '..'"),
        ({"backend": "dask"}, "connected to no cluster; expected a distributed.Client"),
        ({"configs": {"a": {"x": object()}}}, "configs\\['a'\\] holds"),
    ],
)
def test_a_sweep_says_what_it_cannot_take(tmp_path, arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        sweep(walk, **{"configs": {"a": {}}, "seeds": [0], "folder": tmp_path, "progress": False} | arguments)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def dask_cluster():
    """Two worker processes."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster),
    ):
        yield cluster


@pytest.fixture
def ray_cluster():
    """Two worker processes, where Ray is installed."""
    ray = pytest.importorskip("ray")
    here = {"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}}  # so that the workers can import this module
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=here)
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_a_cluster_gives_the_same_numbers_when_a_worker_is_killed(tmp_path, dask_cluster):
    """One of two is killed while it works, and its run is made again elsewhere."""
    expected = sweep(walk, CONFIGS, range(6), folder=tmp_path / "here", backend="sequential", progress=False)
    slow = {case: config | {"pause": 0.3} for case, config in CONFIGS.items()}
    first = next(iter(dask_cluster.workers.values())).pid
    killer = threading.Timer(0.8, os.kill, (first, signal.SIGKILL))
    killer.start()
    found = sweep(walk, slow, range(6), folder=tmp_path / "there", backend="dask", progress=False)
    assert killer.finished.is_set()
    for case in CONFIGS:
        assert np.array_equal(expected[case]["place"], found[case]["place"])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_on_a_cluster_a_run_that_kills_its_worker_once_is_made_again_and_one_that_always_does_is_named(
    tmp_path, backend, request
):
    request.getfixturevalue(f"{backend}_cluster")
    expected = sweep(walk, {"a": {}}, range(6), folder=tmp_path / "here", backend="sequential", progress=False)
    once = {"a": {"victim": 2, "once": str(tmp_path / "once")}}
    found = sweep(dies, once, range(6), folder=tmp_path / "once-folder", backend=backend, progress=False)
    assert (tmp_path / "once").exists() and np.array_equal(expected["a"]["place"], found["a"]["place"])
    with pytest.raises(RuntimeError, match="the run of case 'a' with seed 2 failed: (KilledWorker|WorkerCrashedError)"):
        sweep(
            dies, {"a": {"victim": 2}}, range(6), folder=tmp_path / "always", backend=backend, workers=2, progress=False
        )
    assert sorted(path.stem for path in (tmp_path / "always" / "a").iterdir()) == ["0", "1", "3", "4", "5"]


def in_a_process_of_its_own(folder, pause):
    """A sweep of two workers, in a program that can be killed."""
    code = (
        "import sys\nfrom tests.test_evaluation import CONFIGS, sweep, walk\n"
        "sweep(walk, {case: config | {'pause': float(sys.argv[2])} for case, config in CONFIGS.items()}, range(6), folder=sys.argv[1],"
        " workers=2, progress=False)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(pause)], start_new_session=True, stderr=subprocess.DEVNULL
    )


@pytest.mark.slow
@pytest.mark.parametrize("signals", [[signal.SIGKILL], [signal.SIGINT]])
def test_a_whole_sweep_that_is_killed_goes_on(tmp_path, signals):
    """The program alone is killed, or it and its workers get a Ctrl-C: nothing goes on writing, and what had ended stays."""
    expected = sweep(walk, CONFIGS, range(6), folder=tmp_path / "here", backend="sequential", progress=False)
    victim = in_a_process_of_its_own(tmp_path / "there", 0.4)
    while not (kept := list((tmp_path / "there").rglob("*.json"))):
        time.sleep(0.05)
    (os.kill if signals == [signal.SIGKILL] else os.killpg)(victim.pid, signals[0])
    assert victim.wait(timeout=20) != 0
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "there").rglob("*.json")}
    assert set(kept) <= times.keys() and len(times) < 12
    slow = {case: config | {"pause": 0.4} for case, config in CONFIGS.items()}
    found = sweep(walk, slow, range(6), folder=tmp_path / "there", workers=2, progress=False)
    assert all(path.stat().st_mtime_ns == when for path, when in times.items())  # nothing is made again
    for case in CONFIGS:
        assert np.array_equal(expected[case]["place"], found[case]["place"])


def test_stored_runs_are_found_from_every_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "none" in stored_runs("runs/ppo_lines.json")
