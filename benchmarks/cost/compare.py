"""How long comparing two arrays takes, against reading them once and against what others do.

    python benchmarks/cost/compare.py --elements 1e8

Every round times every row once, so that a busy machine slows all rows alike; the table gives
medians over the rounds, and ratios to the read pass of the same round. Memory is measured in runs
of their own: the growth of the resident set, sampled every millisecond, and tracemalloc's peak.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from benchmarks.support import results
from onnx_gate.numerics.compare import compare, max_ulp, scaled_error

Floats = NDArray[np.float32]

# Differences in the data below stay within ATOL + RTOL * |expected|, but not within either alone.
ATOL = RTOL = 1.2e-6


def arrays(size: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Return a pair that passes, with its largest relative differences near zero."""
    rng = np.random.default_rng(seed)
    expected = rng.standard_normal(size, dtype=np.float32)
    actual = rng.random(size, dtype=np.float32)
    actual -= np.float32(0.5)
    actual *= np.float32(2e-6)
    actual *= 1 + np.abs(expected)
    actual += expected
    return actual, expected


def read_pass(actual: Floats, expected: Floats, pool: ThreadPoolExecutor) -> None:
    """Read both arrays once.

    np.maximum.reduce on pieces of 6 MB was the fastest of the sums, extrema, bitwise and BLAS
    reductions of NumPy, in any number of pieces.
    """
    pieces = [p for a in (actual, expected) for p in np.array_split(a, max(1, a.size // 1_500_000))]
    for _ in pool.map(np.maximum.reduce, pieces):
        pass


def tutorial(actual: Floats, expected: Floats) -> None:
    """The usual three lines."""
    np.max(np.abs(actual - expected))
    np.max(np.abs(actual - expected) / (np.abs(expected) + 1e-12))
    np.allclose(actual, expected, rtol=RTOL, atol=ATOL)


def refuse(check: Callable[[], None]) -> None:
    """Run a check that may fail; failing is a result."""
    with contextlib.suppress(AssertionError):
        check()


def rows(
    actual: Floats, expected: Floats, threads: int, pool: ThreadPoolExecutor
) -> dict[str, Callable[[], object]]:
    relu = np.maximum(actual, 0), np.maximum(expected, 0)
    torches = torch.from_numpy(actual), torch.from_numpy(expected)
    return {
        f"one read pass over both (np.maximum.reduce, {threads} threads)": lambda: read_pass(
            actual, expected, pool
        ),
        f"compare, {threads} threads": lambda: compare(
            actual, expected, atol=ATOL, rtol=RTOL, threads=threads
        ),
        f"compare, {threads} threads, atol alone suffices": lambda: compare(
            actual, expected, atol=1e-3, rtol=RTOL, threads=threads
        ),
        f"compare, {threads} threads, nearly all elements exceed": lambda: compare(
            actual, expected, atol=1e-9, threads=threads
        ),
        f"compare, {threads} threads, half of the elements zero": lambda: compare(
            *relu, atol=ATOL, rtol=RTOL, threads=threads
        ),
        "compare, 1 thread": lambda: compare(actual, expected, atol=ATOL, rtol=RTOL),
        f"scaled_error, {threads} threads": lambda: scaled_error(actual, expected, 1.0, threads),
        "max_ulp": lambda: max_ulp(actual, expected),
        "three NumPy lines (max abs, max rel, allclose)": lambda: tutorial(actual, expected),
        "numpy.testing.assert_allclose": lambda: refuse(
            lambda: np.testing.assert_allclose(actual, expected, rtol=RTOL, atol=ATOL)
        ),
        "torch.testing.assert_close": lambda: refuse(
            lambda: torch.testing.assert_close(*torches, rtol=RTOL, atol=ATOL)
        ),
    }


def resident_growth(run: Callable[[], object]) -> int:
    """Return by how many bytes the resident set grew, at most, while ``run`` ran."""
    process = psutil.Process()
    before = process.memory_info().rss
    peak = before
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, process.memory_info().rss)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        run()
        peak = max(peak, process.memory_info().rss)
    finally:
        done.set()
        sampler.join()
    return peak - before


def traced_peak(run: Callable[[], object]) -> int:
    """Return the peak of what ``run`` allocated, in bytes, as tracemalloc saw it."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=float, default=1e8, help="elements of each array")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    results.add_option(parser)
    arguments = parser.parse_args()
    actual, expected = arrays(int(arguments.elements))
    with ThreadPoolExecutor(arguments.threads) as pool:
        table = rows(actual, expected, arguments.threads, pool)
        for run in table.values():
            run()
        times: dict[str, list[float]] = {name: [] for name in table}
        for _ in range(arguments.rounds):
            for name, run in table.items():
                times[name].append(seconds(run))
        memory = {name: (resident_growth(run), traced_peak(run)) for name, run in table.items()}
    reads = next(iter(times.values()))
    print(f"two float32 arrays of {actual.size:.0e} elements, {arguments.rounds} rounds\n")
    print("| | seconds, median | of the read pass | RSS growth, MiB | tracemalloc, MiB |")
    print("| --- | --- | --- | --- | --- |")
    kept = []
    for name, measured in times.items():
        ratio = statistics.median(t / r for t, r in zip(measured, reads, strict=True))
        resident, traced = (value / 2**20 for value in memory[name])
        median = statistics.median(measured)
        print(f"| {name} | {median:.3f} | {ratio:.1f} | {resident:.1f} | {traced:.1f} |")
        kept.append({"what": name, "seconds": median, "of a read pass": ratio, "MiB": resident})
    if arguments.save:
        results.save(__file__, "compare", kept)


if __name__ == "__main__":
    main()
