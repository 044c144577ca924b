"""Whether reservations are kept: once given a firm time, a workload is not put off without a cause that the rules know.

Causes are a host that is lost, drained or cordoned, other budgets, another workload that came to rank better, and an
attempt that takes longer than the grace period to leave. Work that runs on the hosts may come to rank better too, as
the window slides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpubudget.sim.ledger import Ledger, lineage
from gpubudget.sim.preemption import Judge
from gpubudget.sim.replay import Standing, Workload


@dataclass(slots=True)
class _Promise:
    workload: str
    start: int
    hosts: tuple[str, ...]
    estimate: bool
    excused: bool = False
    burdened: bool = False  # its own program was charged for others since, so that it may rank worse by now


class Promises:
    """The last reservation of each pool."""

    def __init__(self, ledger: Ledger, judge: Judge) -> None:
        self._ledger = ledger
        self._judge = judge
        self._promises: dict[str, _Promise] = {}

    def excuse(self, pool: str | None) -> None:
        """Something happened that may put off the reservation of a pool, or of all."""
        for name, promise in self._promises.items():
            if pool in {None, name}:
                promise.excused = True

    def close(self, workload: str) -> None:
        """The workload starts or ends."""
        for pool in [pool for pool, promise in self._promises.items() if promise.workload == workload]:
            del self._promises[pool]

    def taken(self, pool: str, workload: Workload, known: dict[str, Workload], now: int) -> None:
        """A workload is given GPUs of the pool: one that ranks better may put the reservation off."""
        promise = self._promises.get(pool)
        if promise and promise.workload in known and promise.workload != workload.id:
            other = known[promise.workload]
            promise.excused |= self._ranks_better(pool, workload, other, now)
            promise.burdened |= _program(workload) == _program(other)

    def reserve(
        self, pool: str, workload: Workload, now: int, start: int, hosts: Iterable[str], *, estimate: bool
    ) -> str:
        """A workload is promised GPUs by ``start``; what is wrong with that, or nothing.

        A promise whose time went by before now without a word is excused: nobody woke the scheduler at that time.
        """
        before = self._promises.get(pool)
        self._promises[pool] = _Promise(workload.id, start, tuple(hosts), estimate)
        if before is None or before.workload != workload.id or before.estimate or before.excused:
            return ""
        if start <= before.start or before.start < now:
            return ""
        if self._judge.outranked(workload, pool, before.hosts, now, before.start):
            return ""
        return f"{workload.id} was to start by {before.start} and is put off to {start} for no cause in the log"

    def missed(self, known: dict[str, Workload], now: int) -> Iterator[tuple[str, str]]:
        """Who still waits after all that the log has at the very time that was promised.

        Where it has nothing at that time, nobody may have been awake, and later is too late to judge.
        """
        for pool, promise in self._promises.items():
            workload = known.get(promise.workload)
            if workload is None or workload.standing is not Standing.WAITING or promise.start != now:
                continue
            if promise.estimate or promise.excused or promise.burdened:
                continue
            promise.excused = True
            if not self._judge.outranked(workload, pool, promise.hosts, now, promise.start):
                yield "reservation-missed", f"{promise.workload} was to start by {promise.start} and still waits"

    def _ranks_better(self, pool: str, one: Workload, other: Workload, now: int) -> bool:
        if not one.minimum or one.budget is None or other.budget is None:
            return False
        if one.budget == other.budget:
            return one.order < other.order
        ours, theirs = self._ledger.standings(pool, one.budget, other.budget, now)
        return ours.goes_first(theirs)


def _program(workload: Workload) -> str:
    return lineage(workload.budget or "")[:2][-1]
