"""What waits in one budget for one shape: in order, and by minimum runtime. Knows nothing of hosts or budgets."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubudget.core.records import Workload

Rank = tuple[int | str, ...]
"""Order inside a budget: minus priority, time of submission, id."""


class Queue:
    """The workloads of one budget and one shape that wait: in order, and by minimum runtime.

    Entries are flat, since tuples in tuples are slow to compare: the rank, which no two have in common, then the
    workload; ``by_runtime`` has the minimum runtime before them.
    """

    __slots__ = ("by_runtime", "entries", "gpus")

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.entries: list[tuple[int, int, str, Workload]] = []
        self.by_runtime: list[tuple[int, int, int, str, Workload]] = []

    def add(self, workload: Workload) -> None:
        """Put a workload in its place."""
        first, second, third = workload.priority, workload.submitted, workload.id
        entry = (first, second, third, workload)
        if self.entries and entry < self.entries[-1]:
            insort(self.entries, entry)
        else:
            self.entries.append(entry)  # as most do, since they came last
        insort(self.by_runtime, (workload.min_runtime, first, second, third, workload))

    def discard(self, workload: Workload) -> None:
        """Take a workload out."""
        entries, runtimes = self.entries, self.by_runtime
        del entries[0 if entries[0][3] is workload else bisect_left(entries, workload.rank)]
        del runtimes[bisect_left(runtimes, (workload.min_runtime, *workload.rank))]

    def head(self) -> Workload:
        """The first in order."""
        return self.entries[0][3]

    def shortest(self, but: Workload | None = None) -> Workload | None:
        """The first of those with the least minimum runtime, or of all others than ``but``; None if there are none."""
        for entry in self.by_runtime[:2]:
            if entry[4] is not but:
                return entry[4]
        return None

    def least(self) -> int:
        """The smallest commitment of those that wait (GPU-milliseconds)."""
        return self.gpus * self.by_runtime[0][0]

    def first_within(self, min_runtime: int) -> Workload:
        """The first in order of those whose minimum runtime is at most ``min_runtime``; there must be one.

        Few are found among themselves, many by looking through all: about the square root of their number of steps.
        """
        few = bisect_left(self.by_runtime, (min_runtime + 1,))
        if few * few < len(self.entries):
            return min([entry[1:] for entry in self.by_runtime[:few]])[3]
        return next(entry[3] for entry in self.entries if entry[3].min_runtime <= min_runtime)
