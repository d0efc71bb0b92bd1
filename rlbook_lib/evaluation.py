"""Statistics over many seeds: what a learning curve may claim (every chapter with one).

One run of a learning algorithm is one draw from a distribution. A curve worth showing comes from many runs,
and says how far off its average could be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rlbook_lib.checks import Array, Count, Floats, OpenUnitInterval, Seed, checked, unchecked

__all__ = ["interquartile_mean", "bootstrap_interval", "stored_runs"]

CHUNK = 4_000_000  # numbers held at once while resampling: 32 MB


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
def stored_runs(path: str | Path) -> dict[str, dict[str, np.ndarray]]:
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
