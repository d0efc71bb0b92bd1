"""How many CartPole steps a CPU-second? The book's batched CartPole against Gymnasium's vector CartPole, and compiled ones.

    python tools/bench/cartpole_steps.py
    python tools/bench/cartpole_steps.py --peers FOLDER --pufferlib pufferlib-3.0.0.tar.gz

Random actions, drawn beforehand; checks, resets and the book of finished episodes included. Repeats
alternate, CPU-seconds count, one thread, the median comes first. The peers:

    numba         the library's CartPole with its physics in one compiled loop (compiled.py): the same bits
    gymnax        jit and vmap, one call a step; "gymnax scan" has all steps in one call. float32, a draw for a reset in every step
    pufferlib     its C source, unchanged, compiled by gcc -O3 in a temporary folder and called once a step. float32, no checks

``pip install --target FOLDER jax==0.10.2 gymnax==0.0.9 numba==0.68.1 numpy==2.4.6``; the C source is in the source
distribution of pufferlib 3.0.0 on PyPI (the file of the second call). Writes ``tools/bench/results/cartpole_steps.json``.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from common import cpu_seconds, first_calls, machine, save, summary, table  # first: it fixes the number of threads

import gymnasium
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rlbook_lib.environments import BatchedCartPole, TorchCartPole  # noqa: E402

STEPS = {64: 4000, 1024: 1000, 16384: 60}  # of all copies together, in one timing
REPEATS = 7
# what stands between Python and pufferlib's functions: buffers in, one step of every copy
GLUE = """
#include "cartpole.h"
#define OPEN __attribute__((visibility("default")))
OPEN Cartpole* make(int n, float* observations, float* actions, float* rewards, unsigned char* ends) {
    Cartpole* all = calloc(n, sizeof(Cartpole));
    for (int i = 0; i < n; i++) {
        all[i].observations = observations + 4 * i;
        all[i].actions = actions + i;
        all[i].rewards = rewards + i;
        all[i].terminals = ends + i;
        init(all + i);
        c_reset(all + i);
    }
    return all;
}
OPEN void step(Cartpole* all, int n) {
    for (int i = 0; i < n; i++) c_step(all + i);
}
"""


def runs(copies: int, steps: int, peers: bool, pufferlib: ctypes.CDLL | None) -> dict:
    """One function per contender that takes the same actions."""
    actions = np.random.default_rng(0).integers(2, size=(steps, copies))
    actions_in_torch = torch.tensor(actions)
    ours, on_torch = BatchedCartPole(copies, seed=0), TorchCartPole(copies, seed=0, device="cpu")
    theirs = gymnasium.make_vec("CartPole-v1", num_envs=copies, vectorization_mode="vector_entry_point")

    def run(environment, rows):
        for row in rows:
            environment.step(row)
        if environment is not theirs:
            environment.pop_episodes()

    made = {"numpy": (ours, actions), "torch": (on_torch, actions_in_torch), "gymnasium": (theirs, actions)}
    if peers:
        import numba
        from compiled import LoopCartPole, cartpole_loop

        made["numba"] = (LoopCartPole(numba.njit(cartpole_loop), copies), actions)
    for environment, _ in made.values():
        environment.reset(**({"seed": 0} if environment is theirs else {}))
    cases = {name: lambda pair=pair: run(*pair) for name, pair in made.items()}
    if peers:
        cases |= gymnax_runs(actions)
    if pufferlib:
        cases["pufferlib"] = pufferlib_run(pufferlib, actions)
    return cases


def gymnax_runs(actions: np.ndarray) -> dict:
    """A compiled call for each step, and one for all of them."""
    import gymnax
    import jax

    environment, parameters = gymnax.make("CartPole-v1")
    copies = actions.shape[1]
    key, rows = jax.random.key(0), jax.device_put(actions.astype(np.int32))
    each_row = list(rows)

    def step(carry, row):
        key, state = carry
        key, now = jax.random.split(key)
        observations, state, rewards, ends, _ = jax.vmap(environment.step, (0, 0, 0, None))(
            jax.random.split(now, copies), state, row, parameters
        )
        return (key, state), (observations, rewards, ends)

    _, state = jax.vmap(environment.reset, (0, None))(jax.random.split(key, copies), parameters)
    one, all_steps = jax.jit(step), jax.jit(lambda carry: jax.lax.scan(step, carry, rows))

    def run():
        carry = (key, state)
        for row in each_row:
            carry, seen = one(carry, row)
        jax.block_until_ready((carry, seen))

    return {"gymnax": run, "gymnax scan": lambda: jax.block_until_ready(all_steps((key, state)))}


def compile_pufferlib(archive: str, folder: str) -> ctypes.CDLL:
    """The shared library of pufferlib's CartPole; its drawing functions, which need a screen, are left out by the linker."""
    with tarfile.open(archive) as source:
        wanted = [
            m
            for m in source.getmembers()
            if m.name.endswith(("ocean/cartpole/cartpole.h", "linux_amd64/include/raylib.h"))
        ]
        source.extractall(folder, wanted, filter="data")
    headers = [f"-I{path.parent}" for path in sorted(Path(folder).rglob("*.h"))]
    (Path(folder) / "glue.c").write_text(GLUE)
    subprocess.run(
        [
            "gcc",
            "-O3",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
            "-ffunction-sections",
            "-Wl,--gc-sections",
            *headers,
            "glue.c",
            "-o",
            "cartpole.so",
            "-lm",
        ],
        cwd=folder,
        check=True,
    )
    library = ctypes.CDLL(str(Path(folder) / "cartpole.so"))
    library.make.restype = ctypes.c_void_p
    return library


def pufferlib_run(library: ctypes.CDLL, actions: np.ndarray):
    """Every action is copied to where the C code reads it, as pufferlib does."""
    copies = actions.shape[1]
    kinds = [((copies, 4), np.float32), (copies, np.float32), (copies, np.float32), (copies, np.uint8)]
    buffers = [np.zeros(*kind) for kind in kinds]
    carts = ctypes.c_void_p(library.make(copies, *(ctypes.c_void_p(buffer.ctypes.data) for buffer in buffers)))

    def run():
        for row in actions:
            buffers[1][:] = row
            library.step(carts, copies)
        return buffers[0]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", help="a folder with jax, gymnax and numba")
    parser.add_argument("--pufferlib", help="the source distribution of pufferlib")
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = machine(["numpy", "torch", "gymnasium", *(["jax", "gymnax", "numba"] if options.peers else [])])
    if options.pufferlib:
        gcc = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
        versions["versions"] |= {"pufferlib": Path(options.pufferlib).name, "gcc": gcc}
    record = {
        "what": "CartPole steps per CPU-second, one thread",
        "repeats": REPEATS,
        "machine": versions,
        "copies": {},
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        pufferlib = compile_pufferlib(options.pufferlib, folder) if options.pufferlib else None
        for copies, steps in STEPS.items():
            cases = runs(copies, steps, bool(options.peers), pufferlib)
            first = first_calls(cases)
            seconds, _ = cpu_seconds(cases, REPEATS)
            speed = {name: copies * steps / summary(taken)["median_s"] for name, taken in seconds.items()}
            ratio = float(np.median(np.array(seconds["gymnasium"]) / np.array(seconds["numpy"])))
            record["copies"][str(copies)] = {
                "steps": steps,
                "seconds": {name: summary(taken) | first[name] for name, taken in seconds.items()},
                "steps_per_second": {name: round(value) for name, value in speed.items()},
                "numpy_over_gymnasium": round(ratio, 3),
            }
            rows.append(
                {
                    "copies": str(copies),
                    **{name: f"{value / 1e6:.2f} M" for name, value in speed.items()},
                    "numpy / gymnasium": f"{ratio:.2f}",
                }
            )
    print(table(rows))
    save("cartpole_steps", record)


if __name__ == "__main__":
    main()
