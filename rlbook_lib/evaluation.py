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
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from rlbook_lib.checks import Count, Floats, Seed, check, checked

FloatArray: TypeAlias = NDArray[np.float64]
Runs = dict[str, dict[str, FloatArray]]  # case -> curve -> (seeds, points)

IN_FLIGHT = 1000  # runs that a cluster is given at once, unless workers says fewer
CHUNK = 4_000_000  # numbers held at once while resampling: 32 MB


# ---------------------------------------------------------------------- many runs


@checked
def sweep(
    train: Callable[..., Mapping[str, Any]],
    configs: Mapping[str, Mapping[str, Any]],
    seeds: Iterable[int],
    *,
    folder: str | Path,
    workers: Count | None = None,
    backend: Literal["loky", "sequential", "dask", "ray"] = "loky",
    progress: bool = True,
) -> Runs:
    """Train with every config and every seed, side by side; keep each run in a file of its own, and return ``stored_runs``.

    Call it again to go on: a run whose file is there, made with the same config, is not made again. After a kill only
    the runs that were under way are lost. Each run has one thread, so that its numbers depend on its config and seed
    alone, not on ``workers`` or ``backend``. Two sweeps of one folder at once harm nothing, but may make a run twice:
    give each its seeds.

    Args:
        train: called as ``train(seed, **config)``; returns curves by name, numbers in a list or an array (points,).
            A cluster's workers get the function itself if it stands in a notebook or the main program, and else import
            it.
        configs: case -> keyword arguments of ``train``: numbers, strings, lists, and dataclasses of them.
        folder: one folder a case, one JSON file a seed; made where it is missing.
        workers: processes; default: one for each core.
        backend: "loky": processes here; "sequential": one after another, in this process; "dask" or "ray": on the
            cluster that this process is connected to. A cluster makes the run of a worker that died again elsewhere.

    Raises:
        TypeError: a config that JSON cannot hold.
        ValueError: the runs of a case returned curves of different names.
        RuntimeError: runs failed: the first is named, with its error and, as a note, where it was raised. All others are made
            and kept. Or a worker process died, which ends a sweep without a cluster; what had ended is kept.
        OSError: a result could not be written; it names the file. What was written before stays.
    """
    from tqdm.auto import tqdm

    folder, seeds = Path(folder), list(dict.fromkeys(check(f"seeds[{i}]", seed, Seed) for i, seed in enumerate(seeds)))
    if not seeds:
        raise ValueError("seeds is empty; expected one or more")
    arguments = {case: _described(case, config) for case, config in configs.items()}
    missing = [
        (case, seed)
        for seed in seeds
        for case in configs
        if kept_run(folder, case, seed).get("arguments") != arguments[case]
    ]
    calls = ((train, case, seed, dict(configs[case])) for case, seed in missing)
    failed, kept = [], 0
    with tqdm(
        (_rows_of_cluster if backend in ("dask", "ray") else _rows_here)(calls, backend, workers),
        desc="runs",
        total=len(missing),
        disable=not progress,
    ) as rows:
        try:
            for row in rows:
                if "error" in row:
                    failed.append(row)
                else:
                    keep_run(folder, {"arguments": arguments[row["case"]], **row})
                    kept += 1
        except BrokenExecutor as error:
            raise RuntimeError(
                f"a worker process died (was memory short?); {kept} of {len(missing)} runs were kept: "
                "call again to go on, with fewer workers"
            ) from error
    if failed:
        raise _failure(failed, len(missing))
    return {
        case: _curves({str(seed): _whole(folder, case, seed, arguments[case]) for seed in seeds}, case)
        for case in configs
    }


Call = tuple[Callable[..., Mapping[str, Any]], str, int, dict[str, Any]]  # the arguments of _one_run


def _rows_here(calls: Iterable[Call], backend: str, workers: int | None) -> Iterator[dict[str, Any]]:
    """The results as they come, from processes of this machine."""
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend, n_jobs=workers or -1, **({"inner_max_num_threads": 1} if backend == "loky" else {})):
        yield from Parallel(return_as="generator_unordered", batch_size=1)(delayed(_one_run)(*call) for call in calls)


def _rows_of_cluster(calls: Iterable[Call], backend: str, workers: int | None) -> Iterator[dict[str, Any]]:
    """The results as they come, from a cluster's own tasks: joblib's waits forever for a run whose workers die each time."""
    submit, wait, result = _dask() if backend == "dask" else _ray()
    under_way: dict[Any, Call] = {}

    def ended() -> Iterator[dict[str, Any]]:
        for task in wait(list(under_way)):
            _, case, seed, _ = under_way.pop(task)
            try:
                yield result(task)
            except Exception as error:  # _one_run raises nothing: what ran it died, again and again
                yield _failed(case, seed, error)

    for call in calls:
        under_way[submit(*call)] = call
        if len(under_way) == (workers or IN_FLIGHT):
            yield from ended()
    while under_way:
        yield from ended()


Cluster = tuple[Callable[..., Any], Callable[[list[Any]], Iterable[Any]], Callable[[Any], Any]]


def _dask() -> Cluster:
    """How the Dask cluster of this process takes a run, waits for any of several, and gives its result."""
    import distributed

    try:
        client = distributed.get_client()  # repeats the run of a worker that died, as often as allowed-failures says
    except ValueError as error:
        raise ValueError(
            "backend is 'dask', and this process is connected to no cluster; expected a distributed.Client"
        ) from error
    return (
        lambda *call: client.submit(_one_run, *call, pure=False),
        lambda tasks: distributed.wait(tasks, return_when="FIRST_COMPLETED").done,
        lambda task: task.result(),
    )


def _ray() -> Cluster:
    """The same of Ray."""
    import ray

    run = ray.remote(num_cpus=1, max_retries=3)(_one_run)
    return run.remote, lambda tasks: ray.wait(tasks)[0], ray.get


def _one_run(train: Callable[..., Mapping[str, Any]], case: str, seed: int, config: dict[str, Any]) -> dict[str, Any]:
    """One run on one thread; sent to a worker, so it returns plain data, of a run that failed too."""
    torch, began = sys.modules.get("torch"), time.process_time()
    threads = torch.get_num_threads() if torch else 1
    try:
        if torch:
            torch.set_num_threads(1)
        curves = {name: _plain_curve(name, values) for name, values in train(seed, **config).items()}
    except Exception as error:
        return _failed(case, seed, error)
    finally:
        if torch:
            torch.set_num_threads(threads)
    return {"case": case, "seed": seed, "curves": curves, "cpu_seconds": round(time.process_time() - began, 1)}


def _failed(case: str, seed: int, error: Exception) -> dict[str, Any]:
    """A run without a result."""
    said, where = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    return {"case": case, "seed": seed, "error": said, "where": where}


def _plain_curve(name: str, values: Any) -> list[float]:
    """One curve as a list; a number is a curve of one point."""
    if name in ("seeds", "cpu_seconds"):
        raise ValueError(
            f"train returned a curve with the name {name!r}; expected another name: sweep uses this one itself"
        )
    if np.ndim(values) > 1:
        raise ValueError(f"train returned the curve {name!r} of shape {np.shape(values)}; expected (points,)")
    return [float(x) for x in np.ravel(values)]


def _failure(failed: list[dict[str, Any]], of: int) -> RuntimeError:
    """What is raised when runs failed: the first of them, how many more, and where it was raised."""
    first = min(failed, key=lambda row: (row["seed"], row["case"]))
    others = f"; so did {len(failed) - 1} others of {of}" if len(failed) > 1 else ""
    error = RuntimeError(
        f"the run of case {first['case']!r} with seed {first['seed']} failed: {first['error']}{others}"
    )
    error.add_note(first["where"])
    return error


def _whole(folder: Path, case: str, seed: int, arguments: Any) -> dict[str, Any]:
    """A run that was just kept, or was kept before."""
    row = kept_run(folder, case, seed)
    if row.get("arguments") != arguments:
        raise RuntimeError(
            f"{_path(folder, case, seed)} was changed while the sweep ran; expected no other program to write "
            "runs of another config there: give each sweep a folder of its own"
        )
    return row


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
    if not case.strip("."):
        raise ValueError(f"case is {case!r}; expected a name that a folder can have")
    return folder / quote(case, safe=" =,+") / f"{seed}.json"


@checked
def kept_run(folder: str | Path, case: str, seed: Seed) -> dict[str, Any]:
    """What a sweep stored of a run: "arguments", "curves" and "cpu_seconds"; nothing without a whole file."""
    try:
        row = json.loads(_path(Path(folder), case, seed).read_text("utf-8"))
        return row if isinstance(row, dict) and {"arguments", "curves", "cpu_seconds"} <= row.keys() else {}
    except (OSError, ValueError):
        return {}


@checked
def keep_run(folder: str | Path, row: dict[str, Any]) -> None:
    """Store a run as a sweep does, the whole file or none: its "case", "seed", "arguments", "curves" and "cpu_seconds".

    Raises:
        OSError: it could not be written, for want of space say; it names the file, and what was there stays.
    """
    path = _path(Path(folder), row["case"], row["seed"])
    path.parent.mkdir(parents=True, exist_ok=True)
    # of this call alone: another program may write the same run
    part = path.with_name(f"{path.stem}-{uuid.uuid4().hex}.part")
    try:
        part.write_text(json.dumps(row), "utf-8")
        os.replace(part, path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(
                error.errno, f"{error.strerror}; this run was not kept, those before it were", str(path)
            ) from error
        raise


@checked
def stored_runs(path: str | Path) -> Runs:
    """Curves of many seeds that ``tools/record_runs.py`` made.

    A path "runs/NAME.json" is found from any folder: what is not here is looked up among the runs that came with the library.

    Returns:
        Case -> curve -> (seeds, points); shorter runs are filled up with NaN. "seeds" (seeds,) and "cpu_seconds"
        (seeds,) stand beside the curves of each case.

    Raises:
        ValueError: the file is not such a record; it says what to run.
    """
    try:
        cases = json.loads(_found(Path(path)).read_text("utf-8"))["cases"]
        return {case: _curves(rows["runs"], case) for case, rows in cases.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"path is {str(path)!r}; expected a file made by: python tools/record_runs.py") from error


def _found(path: Path) -> Path:
    """This file, or the one of its name that came with the library: in its wheel, or in a copy of the book."""
    library = Path(__file__).resolve().parent
    places = [path, library / path, library.parent / "chapters" / path]
    return next((place for place in places if place.is_file()), path)


def _curves(runs: dict[str, Any], case: str) -> dict[str, FloatArray]:
    """Runs of one case side by side; each must have the same curves."""
    seeds = sorted(runs, key=int)
    for seed in seeds:
        if (names := sorted(runs[seed]["curves"])) != (first := sorted(runs[seeds[0]]["curves"])):
            raise ValueError(
                f"case {case!r}: the run with seed {seed} has the curves {names}, that with seed {seeds[0]} {first}; "
                "expected the same names from every run"
            )
    found = {
        "seeds": np.array([int(seed) for seed in seeds]),
        "cpu_seconds": np.array([runs[seed]["cpu_seconds"] for seed in seeds]),
    }
    for name in runs[seeds[0]]["curves"]:
        rows = [runs[seed]["curves"][name] for seed in seeds]
        found[name] = np.array([row + [math.nan] * (max(map(len, rows)) - len(row)) for row in rows])
    return found


# ---------------------------------------------------------------------- what they show


@checked
def interquartile_mean(x: Floats[FloatArray, "..."], axis: int = 0) -> Any:
    """The mean of the middle half: of n runs, along ``axis``, the floor(n / 4) lowest and as many highest are left out.

    Less easily moved by one lucky or broken run than the mean, and less noisy than the median.

    Source: Agarwal et al. (2021), section 4.
    """
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis is {axis}; expected one of the {x.ndim} axes of x")
    x = np.sort(np.moveaxis(x.astype(float), axis, 0), axis=0)  # (runs, ...)
    drop = x.shape[0] // 4
    middle = x[drop : x.shape[0] - drop].mean(axis=0)
    return float(middle) if middle.ndim == 0 else middle


@checked
def bootstrap_interval(
    x: Floats[FloatArray, "R ..."], statistic: Callable[..., Any] = np.mean, resamples: Count = 2000, seed: Seed = 0
) -> tuple[Any, Any]:
    """A 95 percent interval for a statistic over runs: draw the runs again with replacement, keep the middle.

    Every column of ``x`` (every point of a curve) sees the same drawn runs, so a curve stays a curve. This is
    the percentile interval. With few runs it is somewhat too narrow: for the mean of ten runs it covers the truth
    about 90 times in 100.

    Args:
        x: results, runs first, at least 2; for curves (runs, points).
        statistic: a function of an array and the keyword ``axis``, such as np.mean or interquartile_mean.
        resamples: how often the runs are drawn again.

    The low and the high end are each x without the axis of the runs; floats if nothing is left.

    Raises:
        ValueError: fewer than 2 runs, or a statistic that returns another shape.

    Source: Efron & Tibshirani (1993), chapter 13.
    """
    x = x.astype(float)
    if x.shape[0] < 2:
        raise ValueError("x holds 1 run; expected at least 2, since one run says nothing about the spread")
    rng = np.random.default_rng(seed)
    runs, curve = x.shape[0], x.shape[1:]
    at_once = max(1, CHUNK // x.size)  # resamples per pass, so that memory stays bounded
    results = np.empty((resamples,) + curve)
    for first in range(0, resamples, at_once):
        chosen = rng.integers(runs, size=(min(at_once, resamples - first), runs))  # (chunk, runs)
        results[first : first + len(chosen)] = _resampled(x, statistic, chosen)
    low, high = np.quantile(results, [0.025, 0.975], axis=0)
    return (float(low), float(high)) if low.ndim == 0 else (low, high)


def _resampled(x: FloatArray, statistic: Callable[..., Any], chosen: NDArray[np.int64]) -> FloatArray:
    """The statistic of each row of chosen runs: (chunk, ...)."""
    if statistic is np.mean:  # a weighted sum: one matrix product, with how often each run was drawn
        chunk, runs = chosen.shape
        flat = (chosen + runs * np.arange(chunk)[:, None]).ravel()
        counts = np.bincount(flat, minlength=chunk * runs).reshape(chunk, runs)
        means: FloatArray = (counts / runs @ x.reshape(runs, -1)).reshape((chunk,) + x.shape[1:])
        return means
    results = np.asarray(statistic(x[chosen], axis=1))  # x[chosen] is (chunk, runs, ...)
    expected = (len(chosen),) + x.shape[1:]
    if results.shape != expected:
        raise ValueError(f"statistic returned shape {results.shape}; expected {expected}, without the runs")
    return results


@checked
def probability_of_improvement(x: Floats[FloatArray, "N ..."], y: Floats[FloatArray, "M ..."]) -> float:
    """How often a run of one method beats a run of the other, drawn at random; a tie counts one half.

    The results are (runs,), or (runs, tasks): the mean over tasks is taken.

    Source: Agarwal et al. (2021), section 4.3.
    """
    wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)  # (N, M, tasks)
    return float(wins.mean())


@checked
def performance_profile(x: Floats[FloatArray, "..."], thresholds: Floats[FloatArray, "K"]) -> FloatArray:
    """The share of runs (and tasks) with a result above each threshold: the whole distribution as one falling curve.

    Source: Agarwal et al. (2021), section 4.2.
    """
    return np.asarray((x.reshape(-1)[:, None] > thresholds).mean(axis=0))
