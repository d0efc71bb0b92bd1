"""Statistics over many seeds: what a learning curve may claim (every chapter with one).

One run of a learning algorithm is one draw from a distribution. A curve worth showing comes from many runs,
and says how far off its average could be.

In order: make many runs (``sweep``), read the stored ones, and sum them up.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from rlbook_lib.checks import Array, Count, Floats, OpenUnitInterval, Seed, check, checked, unchecked

__all__ = [
    "sweep", "kept_run", "keep_run", "stored_runs", "interquartile_mean", "bootstrap_interval", "probability_of_improvement", "performance_profile",
]  # fmt: skip

Runs = dict[str, dict[str, np.ndarray]]  # case -> curve -> (seeds, points)

CHUNK = 4_000_000  # numbers held at once while resampling: 32 MB


# ---------------------------------------------------------------------- many runs

@checked
def sweep(
    train: Callable[..., Mapping[str, Any]], configs: Mapping[str, Mapping[str, Any]], seeds: Iterable[int], *,
    folder: str | Path, workers: Count | None = None, backend: str = "loky", progress: bool = True,
) -> Runs:
    """Train with every config and every seed, side by side, and keep each run in a file of its own.

    Call it again to go on: a run whose file is there, made with the same config, is not made again. After a kill only the
    runs that were under way are lost. Each run has one thread, so that its numbers depend on its config and seed alone,
    not on ``workers`` or ``backend``.

    Args:
        train: called as ``train(seed, **config)``; returns curves by name, numbers in a list or an array (points,).
        configs: case -> keyword arguments of ``train``: numbers, strings, lists, and dataclasses of them.
        seeds: non-negative integers.
        folder: one folder a case, one JSON file a seed; made where it is missing.
        workers: processes; default: one for each core.
        backend: of joblib. "loky": processes here; "sequential": one after another, in this process; "dask" or "ray": on the
            cluster that this process is connected to.
        progress: show a progress bar.

    Returns:
        What ``stored_runs`` returns: case -> curve -> (seeds, points).

    Raises:
        TypeError: a config that JSON cannot hold.
        RuntimeError: a run failed: its case and seed are named, and its own error is the cause. The others are kept.
    """
    from joblib import Parallel, delayed, parallel_config
    from tqdm.auto import tqdm

    folder, seeds = Path(folder), [check(f"seeds[{i}]", seed, Seed) for i, seed in enumerate(seeds)]
    if not seeds:
        raise ValueError("seeds is empty; expected one or more")
    arguments = {case: _described(case, config) for case, config in configs.items()}
    missing = [(case, seed) for seed in seeds for case in configs
               if kept_run(folder, case, seed).get("arguments") != arguments[case]]
    if backend == "ray":
        from ray.util.joblib import register_ray

        register_ray()
    with parallel_config(backend, n_jobs=workers or -1, **({"inner_max_num_threads": 1} if backend == "loky" else {})):
        rows = Parallel(return_as="generator_unordered", batch_size=1)(
            delayed(_one_run)(train, case, seed, dict(configs[case])) for case, seed in missing)
        for row in tqdm(rows, desc="runs", total=len(missing), disable=not progress):
            keep_run(folder, {"arguments": arguments[row["case"]], **row})
    return {case: _curves({str(seed): kept_run(folder, case, seed) for seed in seeds}) for case in configs}


def _one_run(train: Callable[..., Mapping[str, Any]], case: str, seed: int, config: dict[str, Any]) -> dict[str, Any]:
    """One run on one thread; sent to a worker, so it returns plain data."""
    torch, began = sys.modules.get("torch"), time.process_time()
    threads = torch.get_num_threads() if torch else 1
    try:
        if torch:
            torch.set_num_threads(1)
        curves = {name: [float(x) for x in np.ravel(values)] for name, values in train(seed, **config).items()}
    except Exception as error:
        raise RuntimeError(f"the run of case {case!r} with seed {seed} failed: {type(error).__name__}: {error}") from error
    finally:
        if torch:
            torch.set_num_threads(threads)
    return {"case": case, "seed": seed, "curves": curves, "cpu_seconds": round(time.process_time() - began, 1)}


def _described(case: str, config: Mapping[str, Any]) -> Any:
    """A config as JSON gives it back, to compare it with a stored one."""
    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"configs[{case!r}] holds {value!r}; expected numbers, strings, lists, or dataclasses of them")
    return json.loads(json.dumps(config, default=plain))


def _path(folder: Path, case: str, seed: int) -> Path:
    return folder / quote(case, safe=" =,+") / f"{seed}.json"


@checked
def kept_run(folder: str | Path, case: str, seed: Seed) -> dict[str, Any]:
    """What a sweep stored of a run.

    Args:
        folder: of the sweep.
        case: of its configs.
        seed: of the run.

    Returns:
        "arguments", "curves" and "cpu_seconds"; nothing if there is no file, or no whole one.
    """
    try:
        row = json.loads(_path(Path(folder), case, seed).read_text("utf-8"))
        return row if isinstance(row, dict) and {"arguments", "curves", "cpu_seconds"} <= row.keys() else {}
    except (OSError, ValueError):
        return {}


@checked
def keep_run(folder: str | Path, row: dict[str, Any]) -> None:
    """Store a run as a sweep does: the whole file or none.

    Args:
        folder: of the sweep.
        row: "case", "seed", "arguments", "curves" and "cpu_seconds".
    """
    path = _path(Path(folder), row["case"], row["seed"])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(row), "utf-8")
    os.replace(part, path)


@checked
def stored_runs(path: str | Path) -> Runs:
    """Curves of many seeds that ``tools/record_runs.py`` made.

    Args:
        path: a JSON file of ``chapters/runs``. "runs/NAME.json" is found from any folder: what is not here is looked up
            among the runs that came with the library.

    Returns:
        Case -> curve -> (seeds, points); shorter runs are filled up with NaN. "seeds" (seeds,) and "cpu_seconds" (seeds,)
        stand beside the curves of each case.

    Raises:
        ValueError: the file is not such a record; it says what to run.
    """
    try:
        cases = json.loads(_found(Path(path)).read_text("utf-8"))["cases"]
        return {case: _curves(rows["runs"]) for case, rows in cases.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"path is {str(path)!r}; expected a file made by: python tools/record_runs.py") from error


def _found(path: Path) -> Path:
    """This file, or the one of its name that came with the library: in its wheel, or in a copy of the book."""
    library = Path(__file__).resolve().parent
    places = [path, library / path, library.parent / "chapters" / path]
    return next((place for place in places if place.is_file()), path)


def _curves(runs: dict[str, Any]) -> dict[str, np.ndarray]:
    seeds = sorted(runs, key=int)
    found = {"seeds": np.array([int(seed) for seed in seeds]), "cpu_seconds": np.array([runs[seed]["cpu_seconds"] for seed in seeds])}
    for name in runs[seeds[0]]["curves"]:
        rows = [runs[seed]["curves"][name] for seed in seeds]
        found[name] = np.array([row + [math.nan] * (max(map(len, rows)) - len(row)) for row in rows])
    return found


# ---------------------------------------------------------------------- what they show

@checked
def interquartile_mean(x: Floats[Array, "..."], axis: int | None = 0) -> Any:
    """The mean of the middle half: the lowest and the highest quarter of the runs are left out.

    Less easily moved by one lucky or broken run than the mean, and less noisy than the median.

    Args:
        x: results, with the runs along ``axis``; n runs, of which floor(n / 4) are dropped at each end.
        axis: the axis of the runs; None takes all numbers together.

    Returns:
        x without that axis; a float if nothing is left.

    Raises:
        ValueError: no such axis.

    Source: Agarwal et al. (2021), section 4.
    """
    x = np.sort(x.reshape(-1) if axis is None else _runs_first(x, axis), axis=0)  # (runs, ...)
    drop = x.shape[0] // 4
    middle = x[drop : x.shape[0] - drop].mean(axis=0)
    return float(middle) if middle.ndim == 0 else middle


@checked
def bootstrap_interval(
    x: Floats[Array, "..."],
    statistic: Callable[..., Any] = np.mean,
    level: OpenUnitInterval = 0.95,
    resamples: Count = 2000,
    seed: Seed = 0,
    axis: int = 0,
) -> tuple[Any, Any]:
    """An interval for a statistic over runs: draw the runs again with replacement, keep the middle.

    Every column of ``x`` (every point of a curve) sees the same drawn runs, so a curve stays a curve. This is
    the percentile interval. With few runs it is somewhat too narrow: for the mean of ten runs, a level of
    0.95 covers the truth about 90 times in 100.

    Args:
        x: results, with the runs along ``axis``, at least 2; for curves (runs, points).
        statistic: a function of an array and the keyword ``axis``, such as np.mean or interquartile_mean.
        level: the probability the interval aims at, in (0, 1).
        resamples: how often the runs are drawn again, 1 or more.
        seed: 0 or more; the same seed gives the same interval.
        axis: the axis of the runs.

    Returns:
        (low, high), each x without the axis of the runs; floats if nothing is left.

    Raises:
        ValueError: fewer than 2 runs, no such axis, or a statistic that returns another shape.

    Source: Efron & Tibshirani (1993), chapter 13.
    """
    x = _runs_first(x, axis)
    if x.shape[0] < 2:
        raise ValueError("x holds 1 run; expected at least 2, since one run says nothing about the spread")
    rng = np.random.default_rng(seed)
    runs, curve = x.shape[0], x.shape[1:]
    at_once = max(1, CHUNK // x.size)  # resamples per pass, so that memory stays bounded
    results = np.empty((resamples,) + curve)
    for first in range(0, resamples, at_once):
        chosen = rng.integers(runs, size=(min(at_once, resamples - first), runs))  # (chunk, runs)
        results[first : first + len(chosen)] = _resampled(x, unchecked(statistic), chosen)
    low, high = np.quantile(results, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    return (float(low), float(high)) if low.ndim == 0 else (low, high)


def _resampled(x: np.ndarray, statistic: Callable[..., Any], chosen: np.ndarray) -> np.ndarray:
    """The statistic of each row of chosen runs: (chunk, ...)."""
    if statistic is np.mean:  # a weighted sum: one matrix product, with how often each run was drawn
        chunk, runs = chosen.shape
        flat = (chosen + runs * np.arange(chunk)[:, None]).ravel()
        counts = np.bincount(flat, minlength=chunk * runs).reshape(chunk, runs)
        return (counts / runs @ x.reshape(runs, -1)).reshape((chunk,) + x.shape[1:])
    results = np.asarray(statistic(x[chosen], axis=1))  # x[chosen] is (chunk, runs, ...)
    expected = (len(chosen),) + x.shape[1:]
    if results.shape != expected:
        raise ValueError(f"statistic returned shape {results.shape}; expected {expected}, without the runs")
    return results


def _runs_first(x: np.ndarray, axis: int) -> np.ndarray:
    """The results in double precision, with the runs along the first axis: (runs, ...)."""
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis is {axis}; expected one of the {x.ndim} axes of x")
    return np.moveaxis(x.astype(float), axis, 0)


@checked
def probability_of_improvement(x: Floats[Array, "N ..."], y: Floats[Array, "M ..."]) -> float:
    """How often a run of one method beats a run of the other, drawn at random; a tie counts one half.

    Args:
        x: results of the first method, (N,) runs, or (N, tasks): the mean over tasks is taken.
        y: results of the second, (M,) or (M, tasks).

    Returns:
        A probability; 0.5 says that neither is better.

    Raises:
        ValueError: x and y have other tasks.

    Source: Agarwal et al. (2021), section 4.3.
    """
    wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)                            # (N, M, tasks)
    return float(wins.mean())


@checked
def performance_profile(x: Floats[Array, "..."], thresholds: Floats[Array, "K"]) -> np.ndarray:
    """The share of runs (and tasks) with a result above each threshold: the whole distribution as one falling curve.

    Args:
        x: results, any shape.
        thresholds: (K,).

    Returns:
        Shares in [0, 1], (K,).

    Source: Agarwal et al. (2021), section 4.2.
    """
    return np.asarray((x.reshape(-1)[:, None] > thresholds).mean(axis=0))
