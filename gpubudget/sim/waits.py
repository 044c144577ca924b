"""How long workloads waited: quantiles by group, and who waited longest.

A workload that never started counts with the time that it had waited when it ended, gave up or
the simulation was over: leaving it out would flatter. Refused workloads waited for nothing and are not counted.
Times are milliseconds. Nothing here knows of shares or of GPU-time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from gpubudget.core.budget import ROOT
from gpubudget.sim.figures import nearest_rank, ratio
from gpubudget.sim.result import End, Row
from gpubudget.units import MINUTE

NOBODY = "(no budget)"
"""How unallocated work that names no budget is called in a report."""

SIZES: tuple[tuple[int, str], ...] = (
    (1, "1 GPU"),
    (4, "2-4 GPUs"),
    (8, "5-8 GPUs"),
    (32, "9-32 GPUs"),
    (128, "33-128 GPUs"),
)
LARGEST = "over 128 GPUs"

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Waits of a group; None where nobody is in it. ``within_minute`` is the share that waited at most one minute."""

    p50_ms: int | None
    p90_ms: int | None
    p95_ms: int | None
    p99_ms: int | None
    largest_ms: int | None
    within_minute: Fraction | None


@dataclass(frozen=True, slots=True)
class Waits:
    """A group's waits: for the first start, and in all (again after each requeue). ``started`` of ``workloads`` did."""

    name: str
    workloads: int
    started: int
    first: Quantiles
    total: Quantiles


@dataclass(frozen=True, slots=True)
class Longest:
    """The longest that any workload waited at a stretch; ``until_ms`` is None if it still did when the run was over."""

    workload: str
    budget: str
    gpus: int
    since_ms: int
    until_ms: int | None
    waited_ms: int


def program_of(path: str | None) -> str:
    """The budget below the root that a path belongs to; the root itself for what it keeps, or nobody."""
    if not path:
        return NOBODY
    return path if path == ROOT else path.split("/", 1)[0]


def size_of(gpus: int) -> str:
    """The class of a gang's size."""
    return next((name for most, name in SIZES if gpus <= most), LARGEST)


def quantiles(values: Iterable[int]) -> Quantiles:
    """The quantiles of waits."""
    ordered = sorted(values)
    soon = sum(1 for wait in ordered if wait <= MINUTE)
    p50, p90, p95, p99 = (nearest_rank(ordered, percent) for percent in (50, 90, 95, 99))
    return Quantiles(p50, p90, p95, p99, ordered[-1] if ordered else None, ratio(soon, len(ordered)))


def first_wait(row: Row, end: int) -> int:
    """How long it waited for its first start, or in vain."""
    until = row.first_start if row.first_start is not None else row.ended if row.ended is not None else end
    return until - row.submitted


def waits(name: str, rows: Sequence[Row], end: int) -> Waits:
    """The waits of these workloads as one group; ``end`` is when the simulation was over."""
    counted = [row for row in rows if row.end is not End.REFUSED]
    return Waits(
        name,
        len(counted),
        sum(1 for row in counted if row.first_start is not None),
        quantiles(first_wait(row, end) for row in counted),
        quantiles(row.wait_ms for row in counted),
    )


def grouped(rows: Iterable[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    """The workloads by what ``key`` says of each, groups in the order of their first workload."""
    groups: defaultdict[K, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)


def by_size(rows: Iterable[Row], end: int) -> tuple[Waits, ...]:
    """Waits by the size of the gang, small to large; sizes that do not occur are left out."""
    groups = grouped(rows, lambda row: size_of(row.gpus))
    names = [*(name for _, name in SIZES), LARGEST]
    return tuple(waits(name, groups[name], end) for name in names if name in groups)


def longest(rows: Iterable[Row], end: int) -> Longest | None:
    """Who waited longest at a stretch, for its first start or after a requeue; the earlier one of equals."""
    best: tuple[int, int, Row] | None = None
    for row in rows:
        if row.end is End.REFUSED:
            continue
        for begin, until in gaps(row, end):
            if best is None or until - begin > best[0]:
                best = (until - begin, begin, row)
    if best is None:
        return None
    waited, since, row = best
    still = row.end is End.WAITING and since + waited == end
    return Longest(row.id, row.budget or NOBODY, row.gpus, since, None if still else since + waited, waited)


def gaps(row: Row, end: int) -> list[tuple[int, int]]:
    """From when to when it waited: before its first attempt, between attempts, and after the last if it still does."""
    stretches, since = [], row.submitted
    for span in row.spans:
        stretches.append((since, span.started))
        since = span.ended
    if row.end is End.WAITING:
        stretches.append((since, end))
    elif row.ended is not None and row.ended > since:  # it was cancelled while it waited
        stretches.append((since, row.ended))
    return stretches
