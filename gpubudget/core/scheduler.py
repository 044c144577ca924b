"""The scheduler: events in, decisions out.

``Scheduler.handle`` is the only mutator. First the event is checked: one that cannot be raises and changes nothing.
Then time moves to ``now``: the lookback window slides, protections and time limits end, dated changes take effect.
Then the event itself is taken, and last the passes that it made necessary. Everything is a function of the events and
their times alone, so the same events give the same decisions.
"""

from __future__ import annotations

from heapq import heappop
from typing import Any

from gpubudget.core import applying, check, explain, hosts, passes, snapshot
from gpubudget.core.budget import Tree
from gpubudget.core.decisions import Decision, Refuse
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    CheckpointReported,
    Event,
    Exited,
    HostReported,
    Moved,
    RequeueRequested,
    Submitted,
    Woke,
)
from gpubudget.core.lifecycle import cancel_waiting, end, protection_ended, stop, unclaim
from gpubudget.core.records import FAR, Attempt, Workload
from gpubudget.core.state import State, admission, arrive, place, rewait
from gpubudget.core.views import BudgetView, Explanation, HostView, PoolView, ReservationView, WorkloadView
from gpubudget.core.workload import StopReason, WorkloadSpec, WorkloadState
from gpubudget.errors import ConflictError, InvalidInputError, NotFoundError

_WAITING = frozenset({WorkloadState.PENDING, WorkloadState.HELD})


class Scheduler:
    """Decides who runs where, and until when. See the module's docstring."""

    __slots__ = ("state",)

    def __init__(self, state: State | None = None) -> None:
        self.state = State() if state is None else state

    # The mutator

    def handle(self, event: Event, now: int) -> list[Decision]:
        """Take ``event`` at ``now`` (milliseconds since 1970, not before the last event) and say what follows.

        Raises a GpuBudgetError, and changes nothing, where the event is impossible: an unknown workload or host, a
        step that its state does not allow, or a time that lies before the last one.
        """
        state = self.state
        if now < state.now:
            raise InvalidInputError(f"time goes back from {state.now} to {now} ms")
        attempt = self._check(event)
        state.decisions = []
        state.cause = event
        state.now = now
        self._advance(now)
        if attempt is None:
            self._take(event)
        else:
            self._take_of(attempt, event)
        passes.run(state)
        return state.decisions

    def _check(self, event: Event) -> Attempt | None:
        """Raise where an event cannot be; the attempt whose processes it is about."""
        state = self.state
        match event:
            case Woke():
                pass
            case Exited():
                return self._attempt(event.workload, event.attempt)
            case Submitted():
                if event.spec.id in state.workloads:
                    raise ConflictError(f"there is a workload {event.spec.id!r} already")
            case CheckpointReported():
                return self._attempt(event.workload, event.attempt)
            case RequeueRequested(workload):
                return self._running(workload)
            case Cancelled(workload):
                self._known(workload)
            case Moved(workload, budget):
                self._check_move(self._known(workload), budget)
            case HostReported():
                hosts.check_report(state, event)
            case BudgetsApplied():
                pass
            case _:
                hosts.check_event(state, event)
        return None

    def _known(self, name: str) -> Workload:
        workload = self.state.workloads.get(name)
        if workload is None:
            raise NotFoundError(f"there is no workload {name!r} that has not ended")
        return workload

    def _running(self, name: str) -> Attempt:
        workload = self._known(name)
        if workload.state is not WorkloadState.RUNNING or workload.attempt is None:
            raise ConflictError(f"workload {name} is {workload.state}", hint="only a running one can be requeued")
        return workload.attempt

    def _attempt(self, name: str, number: int) -> Attempt:
        attempt = self._known(name).attempt
        if attempt is None or attempt.started is None or attempt.number != number:
            raise ConflictError(f"attempt {number} of workload {name} is not running")
        return attempt

    def _check_move(self, workload: Workload, budget: str) -> None:
        if workload.state not in _WAITING:
            raise ConflictError(
                f"workload {workload.spec.id} is {workload.state}",
                hint="only a waiting one can be moved; requeue it first",
            )
        if budget not in self.state.paths:
            raise NotFoundError(f"there is no budget {budget!r}")

    def _advance(self, now: int) -> None:
        """Let all happen that time alone brings."""
        state = self.state
        for pool in state.pools.values():
            pool.slide(now)
        protections = state.protections
        while protections and protections[0][0] <= now:
            attempt = heappop(protections)[2]
            if attempt.workload.attempt is attempt:
                protection_ended(state, attempt)
        limits = state.limits
        while limits and limits[0][0] <= now:
            attempt = heappop(limits)[2]
            if attempt.workload.attempt is attempt and attempt.stopping is None:
                stop(state, attempt, StopReason.LIMIT)
        while state.patience and state.patience[0][0] <= now:
            workload = state.workloads.get(heappop(state.patience)[1])
            if workload is not None and workload.state is WorkloadState.PENDING:
                rewait(state, workload)
        if state.tree is not None and state.next_date is not None and state.next_date <= now:
            applying.redate(state)

    def _take(self, event: Event) -> None:
        """Let an event that was checked happen."""
        state = self.state
        match event:
            case Woke() | Exited() | CheckpointReported() | RequeueRequested():
                pass  # what happens to an attempt: see below
            case Submitted():
                self._submit(Workload(event.spec, state.now))
            case Cancelled(workload):
                self._cancel(self._known(workload))
            case Moved(workload, budget):
                moved = self._known(workload)
                moved.budget = budget
                rewait(state, moved)
            case BudgetsApplied(tree, commit):
                applying.apply(state, tree, commit)
            case HostReported():
                hosts.reported(state, event)
            case _:
                hosts.take(state, event)

    def _take_of(self, attempt: Attempt, event: Event) -> None:
        """The same for what happens to an attempt."""
        match event:
            case Exited():
                end(self.state, attempt, event.outcome)
            case CheckpointReported():
                attempt.saved = self.state.now
            case _:
                if attempt.stopping is None:
                    stop(self.state, attempt, StopReason.FORCED)

    def _submit(self, workload: Workload) -> None:
        state = self.state
        workload.shapes, reason = admission(state, workload.spec)
        if not workload.shapes:
            workload.become(WorkloadState.REFUSED)
            state.decisions.append(Refuse(workload.id, reason, state.cause))
            return
        state.workloads[workload.id] = workload
        arrive(state, workload)
        if workload.debug:
            place(state, workload)

    def _cancel(self, workload: Workload) -> None:
        state, attempt = self.state, workload.attempt
        if attempt is not None and attempt.started is not None:
            if attempt.stopping is None:
                stop(state, attempt, StopReason.CANCELLED)
            attempt.stopping, attempt.beneficiary = StopReason.CANCELLED, None
            return
        if attempt is not None:
            unclaim(state, attempt, "cancelled")
        cancel_waiting(state, workload)

    # When to wake

    def next_wakeup(self) -> int | None:
        """When time alone could change a decision (milliseconds); None while nothing could."""
        state = self.state
        protections, limits = state.protections, state.limits
        while protections:
            attempt = protections[0][2]
            if attempt.workload.attempt is attempt:
                break
            heappop(protections)
        while limits:
            attempt = limits[0][2]
            if attempt.workload.attempt is attempt and attempt.stopping is None:
                break
            heappop(limits)
        found, interval = FAR, state.policy.rebalance_interval
        for pool in state.pools.values():
            if pool.budgets.root.mask and pool.last_pass + interval < found:  # allocated work waits
                found = pool.last_pass + interval
        if protections and (found < FAR or state.draining) and protections[0][0] < found:
            found = protections[0][0]
        if limits and limits[0][0] < found:
            found = limits[0][0]
        if state.patience and state.patience[0][0] < found:
            found = state.patience[0][0]
        if state.next_date is not None and state.next_date < found:
            found = state.next_date
        return max(found, state.now) if found < FAR else None

    # What it shows

    def refusal(self, spec: WorkloadSpec) -> str:
        """Why a workload would be refused if it were submitted now, with the numbers; empty if it would not."""
        shapes, reason = admission(self.state, spec)
        return "" if shapes else reason

    @property
    def now(self) -> int:
        """The time of the last event."""
        return self.state.now

    @property
    def tree(self) -> Tree | None:
        """The tree in force."""
        return self.state.tree

    @property
    def commit(self) -> str:
        """The commit of the tree in force."""
        return self.state.commit

    def workload(self, name: str) -> WorkloadView | None:
        """A workload that has not ended, or None."""
        found = self.state.workloads.get(name)
        return None if found is None else explain.workload_view(found)

    def workloads(self) -> list[WorkloadView]:
        """All workloads that have not ended, in order of submission."""
        return [explain.workload_view(workload) for workload in self.state.workloads.values()]

    def hosts(self) -> list[HostView]:
        """All hosts, by name."""
        return [explain.host_view(host) for _, host in sorted(self.state.hosts.items())]

    def budgets(self, now: int) -> list[BudgetView]:
        """How each budget stands in each pool at ``now`` (milliseconds, not before the last event)."""
        return [view for pool in self.state.pools.values() for view in explain.budget_views(pool, now)]

    def pools(self, now: int) -> list[PoolView]:
        """The pools, and how their GPU-time was spent until ``now``."""
        return [explain.pool_view(pool, now) for pool in self.state.pools.values()]

    def reservations(self) -> list[ReservationView]:
        """The reservations in force."""
        found = (explain.reservation_view(pool) for pool in self.state.pools.values())
        return [view for view in found if view is not None]

    def ranking(self, pool: str, now: int) -> list[str]:
        """The ids of all that waits in ``pool``, best-ranked first: allocated, unallocated, without a budget."""
        if pool not in self.state.pools:
            raise NotFoundError(f"there is no pool {pool!r}")
        return [workload.spec.id for workload in explain.ranking(self.state.pools[pool], now)]

    def explain(self, workload: str, now: int) -> Explanation:
        """Why a workload that has not ended is where it is, and when it can start at the latest."""
        return explain.explain(self.state, self._known(workload), now)

    def check(self) -> None:
        """Raise BrokenInvariantError where an invariant does not hold."""
        check.check(self.state)

    def snapshot(self) -> dict[str, Any]:
        """All state as plain data."""
        return snapshot.save(self.state)

    @classmethod
    def restore(cls, data: dict[str, Any]) -> Scheduler:
        """The scheduler that a snapshot was taken of; it goes on exactly as that one would."""
        return cls(snapshot.load(data))
