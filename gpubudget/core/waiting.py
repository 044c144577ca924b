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


class Row:
    """Entries in order. The first leave most often, and are only counted (``gone``) until half of the list is gone."""

    __slots__ = ("gone", "listed")

    def __init__(self) -> None:
        self.listed: list[Entry] = []
        self.gone = 0

    def __len__(self) -> int:
        return len(self.listed) - self.gone

    def entries(self) -> list[Entry]:
        """Those that are there."""
        return self.listed[self.gone :]

    def first(self) -> Workload:
        """The first; there must be one."""
        return self.listed[self.gone][3]

    def add(self, entry: Entry) -> None:
        """Put one in its place."""
        if len(self.listed) > self.gone and entry < self.listed[-1]:
            insort(self.listed, entry, self.gone)
        else:
            self.listed.append(entry)  # as mostly, since what comes last ranks last

    def remove(self, workload: Workload) -> None:
        """Take one out."""
        if self.listed[self.gone][3] is not workload:
            del self.listed[bisect_left(self.listed, workload.rank, self.gone)]
            return
        self.gone += 1
        if self.gone * 2 >= len(self.listed):
            del self.listed[: self.gone]
            self.gone = 0


class Queue:
    """The workloads of one budget and one shape that wait.

    ``row`` has all of them in order; ``groups`` the same by minimum runtime, and ``runtimes`` those that there are,
    shortest first.
    """

    __slots__ = ("gpus", "groups", "row", "runtimes")

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.row = Row()
        self.runtimes: list[int] = []
        self.groups: dict[int, Row] = {}

    def add(self, workload: Workload) -> None:
        """Put a workload in its place."""
        entry = (workload.priority, workload.submitted, workload.id, workload)
        self.row.add(entry)
        group = self.groups.get(workload.min_runtime)
        if group is None:
            group = self.groups[workload.min_runtime] = Row()
            insort(self.runtimes, workload.min_runtime)
        group.add(entry)

    def discard(self, workload: Workload) -> None:
        """Take a workload out."""
        self.row.remove(workload)
        group = self.groups[workload.min_runtime]
        group.remove(workload)
        if not len(group):
            del self.groups[workload.min_runtime]
            del self.runtimes[bisect_left(self.runtimes, workload.min_runtime)]

    def head(self) -> Workload:
        """The first in order."""
        return self.row.first()

    def shortest(self, but: Workload | None = None) -> Workload | None:
        """The first of those with the least minimum runtime, or of all others than ``but``; None if there are none."""
        for runtime in self.runtimes[:2]:
            group = self.groups[runtime]
            for entry in group.listed[group.gone : group.gone + 2]:
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
        if few * few < len(self.row):
            return min([self.groups[runtime].first() for runtime in self.runtimes[:few]], key=_rank)
        listed = self.row.listed
        places = range(self.row.gone, len(listed))
        return next(listed[place][3] for place in places if listed[place][3].min_runtime <= min_runtime)


def _rank(workload: Workload) -> Rank:
    return workload.rank
