"""What a run looked like over time: who held the GPUs, and when attempts were stopped for others.

Averages from one moment to the next, never single readings, so nothing that happened in between is missed. GPUs are
fractions here, since a GPU that was held for half of the time counts half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise

from gpubudget.sim.figures import ratio
from gpubudget.sim.gputime import GpuTime
from gpubudget.sim.result import PoolSample
from gpubudget.sim.waits import program_of

MOST_POINTS = 240
BINS = 60

_REST: tuple[tuple[str, Callable[[PoolSample], int]], ...] = (
    ("unallocated", lambda pool: pool.unallocated_gpu_ms),
    ("idle, wanted", lambda pool: pool.unmet_gpu_ms),
    ("idle, no demand", lambda pool: pool.idle_gpu_ms - pool.unmet_gpu_ms),
    ("drained", lambda pool: pool.unavailable_gpu_ms),
)


@dataclass(frozen=True, slots=True)
class Layer:
    """GPUs of one kind, averaged from each edge of the series to the next."""

    name: str
    gpus: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Bin:
    """GPUs that were taken from ``at`` to the next bin: from funded attempts, and from unallocated ones."""

    at: int
    funded: int
    unallocated: int


@dataclass(frozen=True, slots=True)
class Series:
    """``programs`` (funded work, the program with the most GPU-time first) and ``rest`` add up to the capacity.

    ``edges`` has one entry more than each layer. ``rest`` is unallocated work, idle GPUs that were waited for, idle
    ones that nobody wanted, and drained ones. ``bins`` are ``bin_ms`` wide.
    """

    edges: tuple[int, ...]
    programs: tuple[Layer, ...]
    rest: tuple[Layer, ...]
    bin_ms: int
    bins: tuple[Bin, ...]


def series(time: GpuTime) -> Series:
    """The series of a run up to the last sample at which new work still came."""
    stride = max(1, -(-time.loaded // MOST_POINTS))
    places = [*range(0, time.loaded, stride), time.loaded]
    programs: dict[str, list[int]] = {}
    for path, its in time.accounts.items():
        programs.setdefault(program_of(path), []).extend(its)
    layers = [_layer(time, name, places, partial(_funded, mine)) for name, mine in programs.items()]
    layers.sort(key=lambda layer: (-sum(layer.gpus, Fraction(0)), layer.name))
    return Series(
        tuple(time.times[place] for place in places),
        tuple(layer for layer in layers if any(layer.gpus)),
        tuple(_layer(time, name, places, part) for name, part in _REST),
        *bins(time),
    )


def _funded(accounts: list[int], pool: PoolSample) -> int:
    return sum(pool.delivered[place] for place in accounts)


def _layer(time: GpuTime, name: str, places: list[int], part: Callable[[PoolSample], int]) -> Layer:
    sums = [sum(part(pool) for pool in time.result.samples[place].pools) for place in places]
    at = [time.times[place] for place in places]
    steps = pairwise(zip(sums, at, strict=True))
    return Layer(name, tuple(ratio(b - a, until - since) or Fraction(0) for (a, since), (b, until) in steps))


def bins(time: GpuTime) -> tuple[int, tuple[Bin, ...]]:
    """How wide a bin is, and the GPUs taken in each until the last submission; a bin is a whole number of samples."""
    start, until = time.times[0], time.times[time.loaded]
    step = time.result.sample_every
    width = max(step, -(-(until - start) // (BINS * step)) * step)
    taken = [[0, 0] for _ in range(start, until, width)]
    for one in time.result.preemptions:
        if start <= one.at < until:
            taken[(one.at - start) // width][0 if one.allocated else 1] += one.gpus
    return width, tuple(Bin(start + place * width, *both) for place, both in enumerate(taken))
