"""The scheduler core: one mutator, no clock, no randomness, no I/O."""

from __future__ import annotations

from gpubudget.core.decisions import Decision
from gpubudget.core.events import Event
from gpubudget.core.views import Explanation


class Scheduler:
    """Interface while the core is being built."""

    def handle(self, event: Event, now: int) -> list[Decision]:
        """Take one event at ``now`` (ms) and return what to do. Raises ConflictError etc. and changes nothing if illegal."""
        raise NotImplementedError

    def next_wakeup(self) -> int | None:
        """When (ms) time alone could change a decision; send Woke then."""
        raise NotImplementedError

    def explain(self, workload: str, now: int) -> Explanation:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError

    def snapshot(self) -> dict[str, object]:
        """JSON-able state."""
        raise NotImplementedError

    @classmethod
    def restore(cls, data: dict[str, object]) -> Scheduler:
        raise NotImplementedError

    # Views (all at a given now, pure):
    # workload(id) -> WorkloadView | None (None once ended);  workloads() -> list[WorkloadView]
    # hosts() -> list[HostView];  budgets(now) -> list[BudgetView];  pools(now) -> list[PoolView]
    # reservations() -> list[ReservationView]; ranking(pool, now) -> list[str] (waiting workload ids, best first)
    # properties: tree: Tree | None, commit: str, now: int (latest event time)
