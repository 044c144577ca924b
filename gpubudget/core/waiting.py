"""What waits in one budget for one shape: in order, and by minimum runtime. Knows nothing of hosts or budgets."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubudget.core.records import Workload

Rank = tuple[int | str, ...]
"""Order inside a budget: minus priority, time of submission, id."""


Entry = tuple[int, int, str, "Workload"]
"""The parts of a rank, which no two workloads share, and the workload: flat, since that is quicker to compare."""


class Queue:
    """The workloads of one budget and one shape that wait.

    ``entries`` are all of them in order; ``groups`` the same by minimum runtime, and ``runtimes`` those that there are,
    shortest first.
    """

    __slots__ = ("entries", "gpus", "groups", "runtimes")

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.entries: list[Entry] = []
        self.runtimes: list[int] = []
        self.groups: dict[int, list[Entry]] = {}

    def add(self, workload: Workload) -> None:
        """Put a workload in its place."""
        entry = (workload.priority, workload.submitted, workload.id, workload)
        _insert(self.entries, entry)
        group = self.groups.get(workload.min_runtime)
        if group is None:
            self.groups[workload.min_runtime] = [entry]
            insort(self.runtimes, workload.min_runtime)
        else:
            _insert(group, entry)

    def discard(self, workload: Workload) -> None:
        """Take a workload out."""
        _remove(self.entries, workload)
        group = self.groups[workload.min_runtime]
        _remove(group, workload)
        if not group:
            del self.groups[workload.min_runtime]
            del self.runtimes[bisect_left(self.runtimes, workload.min_runtime)]

    def head(self) -> Workload:
        """The first in order."""
        return self.entries[0][3]

    def shortest(self, but: Workload | None = None) -> Workload | None:
        """The first of those with the least minimum runtime, or of all others than ``but``; None if there are none."""
        for runtime in self.runtimes[:2]:
            for entry in self.groups[runtime][:2]:
                if entry[3] is not but:
                    return entry[3]
        return None

    def least(self) -> int:
        """The smallest commitment of those that wait (GPU-milliseconds)."""
        return self.gpus * self.runtimes[0]

    def first_within(self, min_runtime: int) -> Workload:
        """The first in order of those whose minimum runtime is at most ``min_runtime``; there must be one.

        Few runtimes are asked for the first of each, many by looking through all: about the square root of their
        number of steps.
        """
        few = bisect_left(self.runtimes, min_runtime + 1)
        if few * few < len(self.entries):
            return min([self.groups[runtime][0] for runtime in self.runtimes[:few]])[3]
        return next(entry[3] for entry in self.entries if entry[3].min_runtime <= min_runtime)


def _insert(entries: list[Entry], entry: Entry) -> None:
    if entries and entry < entries[-1]:
        insort(entries, entry)
    else:
        entries.append(entry)  # as mostly, since what comes last ranks last


def _remove(entries: list[Entry], workload: Workload) -> None:
    del entries[0 if entries[0][3] is workload else bisect_left(entries, workload.rank)]
