"""What becomes of workloads, hosts and GPU-time when decisions are carried out, and what follows from them later.

The stage has no clock and knows no scheduler: it is told each decision with its time, and puts what follows (the end
of an attempt, its checkpoints, a repair) on the agenda, which the engine plays. Times are milliseconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heappush
from typing import Final

from gpubudget.core.decisions import (
    BudgetsChanged,
    Claim,
    Decision,
    Hold,
    HostChanged,
    Refuse,
    Requeue,
    Reserve,
    Start,
    Stop,
    Stopped,
)
from gpubudget.core.events import Cancelled, Event, RepairEnded, RepairStarted
from gpubudget.core.host import HostState
from gpubudget.core.workload import StopReason
from gpubudget.sim.meters import Meters, PoolMeter
from gpubudget.sim.played import Costs, Played, Standing
from gpubudget.sim.result import NO_BUDGET, End, Preemption, Row
from gpubudget.sim.submission import Failure, SimHost, Submission

# Looked up once: that takes a while, and they are asked for with every start and end.
_WAITING: Final = Standing.WAITING
_OVER: Final = Standing.OVER
_PREEMPTED: Final = StopReason.PREEMPTED
_CANCELLED: Final = StopReason.CANCELLED
_FINISHED: Final = End.FINISHED

_ENDS: Final = {
    StopReason.FAILED: End.FAILED,
    StopReason.CANCELLED: End.CANCELLED,
    StopReason.PREEMPTED: End.PREEMPTED,
}
"""How a workload has ended whose last attempt did so; at any other end, as at its longest run time, it has finished."""


@dataclass(slots=True)
class HostOnStage:
    """A host: its state, once it is known, and how long the repair takes that is to come."""

    meter: PoolMeter
    pool: str
    gpus: int
    state: HostState | None = None
    repair: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An attempt is due to save its work."""

    run: Played
    attempt: int


Due = Event | Failure | Played | Checkpoint
"""What comes later: an attempt's end is its ``Played``."""


class Stage:
    """All that goes on. ``agenda`` is a heap of (time, number, what); ``away`` counts hosts that are not ready.

    ``rows`` has an entry for every workload that has come, in that order: None until it is over.
    """

    def __init__(self, hosts: tuple[SimHost, ...], meters: Meters, costs: Costs) -> None:
        self.meters, self.costs = meters, costs
        self.hosts = {host.name: HostOnStage(meters.pools[host.pool], host.pool, host.gpus) for host in hosts}
        self.live: dict[str, Played] = {}
        self.agenda: list[tuple[int, int, Due]] = []
        self.rows: list[Row | None] = []
        self.preemptions: list[Preemption] = []
        self.refusals: Counter[str] = Counter()
        self.away = 0
        self._number = 0
        self._over: list[Played] = []

    def push(self, at: int, what: Due) -> None:
        """Put something on the agenda."""
        self._number += 1
        heappush(self.agenda, (at, self._number, what))

    def enter(self, submission: Submission, now: int) -> Played:
        """A workload comes; unless it starts at once it is to be queued."""
        spec, meters = submission.spec, self.meters
        home = meters.pools.get(spec.pools[0]) or next(iter(meters.pools.values()))
        place = meters.places.get(spec.budget or NO_BUDGET, 0)
        run = Played(submission, len(self.rows), home, place)
        self.rows.append(None)
        self.live[run.id] = run
        if submission.gives_up is not None:
            self.push(max(submission.gives_up, now), Cancelled(run.id, spec.owner))
        return run

    def queue(self, run: Played, now: int) -> None:
        """A workload waits."""
        run.queued = True
        run.home.wait(run.place, run.gpus, now, run.allocated)

    def _dequeue(self, run: Played, now: int) -> None:
        run.queued = False
        run.home.wait(run.place, -run.gpus, now, run.allocated)

    def carry_out(self, decisions: list[Decision], now: int) -> None:
        """Let happen what was decided."""
        for decision in decisions:  # their types are final, so nothing slower than this is needed
            if type(decision) is Start:
                self._start(decision, now)
            elif type(decision) is Stopped:
                self._stopped(decision, now)
            elif type(decision) is Stop:
                self._stop(decision, now)
            elif type(decision) is not Reserve and type(decision) is not Claim:  # nothing follows from these yet
                self._tell(decision, now)
        if self._over:
            for run in self._over:
                if run.standing is _OVER:  # it does not wait again
                    self.finish(run, run.end, now)
            self._over.clear()

    def _start(self, start: Start, now: int) -> None:
        run, pool, costs = self.live[start.workload], start.pool, self.costs
        if run.queued:
            self._dequeue(run, now)
        meter = run.meter = self.meters.pools[pool]
        meter.hold(run.place, run.gpus, now, run.allocated)
        run.pool, run.attempt, run.protected_until = pool, start.attempt, start.protected_until
        run.placement = start.placement
        if start.lane:
            run.lane = True
        self.push(run.start(now, costs.start_up), run)
        if costs.checkpoint_every is not None and run.submission.spec.resumable:
            first = now + costs.checkpoint_every + (costs.start_up if run.spans else 0)
            self.push(first, Checkpoint(run, run.attempt))

    def _stop(self, stop: Stop, now: int) -> None:
        run = self.live[stop.workload]
        if run.stop(now, 0 if stop.reason is _CANCELLED else self.costs.stop_time):
            self.push(run.exit_at, run)

    def _stopped(self, stopped: Stopped, now: int) -> None:
        """An attempt has ended; attempt 0 is a workload that is cancelled while it waits."""
        run, reason = self.live[stopped.workload], stopped.reason
        run.end = _ENDS.get(reason, _FINISHED)
        self._over.append(run)
        if stopped.attempt == 0:
            if run.queued:
                self._dequeue(run, now)
            run.standing = _OVER
            return
        run.meter.hold(run.place, -run.gpus, now, run.allocated)
        if self.away:
            self._strand(run, now)
        told, started = run.told, run.since
        lost = run.end_attempt(reason, now, self.costs)
        if reason is _PREEMPTED:
            self._preempted(run, stopped, now if told is None else told, started, lost)

    def _strand(self, run: Played, now: int) -> None:
        """What an attempt leaves on hosts that are not ready is nobody's."""
        for name, gpus in run.placement:
            if self.hosts[name].state is not HostState.READY:
                run.meter.lose(len(gpus), now)

    def _tell(self, decision: Decision, now: int) -> None:
        match decision:
            case Requeue(workload, _, held):
                run = self.live[workload]
                run.standing, run.reason = _WAITING, held
                self.queue(run, now)
            case Hold(workload, reason):
                self.live[workload].reason = reason
            case Refuse(workload, reason):
                run = self.live[workload]
                if run.queued:
                    self._dequeue(run, now)
                self.refusals[reason] += 1
                run.standing, run.reason = _OVER, reason
                self.finish(run, End.REFUSED, now)
            case HostChanged():
                self._host_changed(decision, now)
            case BudgetsChanged():
                self.meters.mark(now)

    def _preempted(self, run: Played, stopped: Stopped, told: int, started: int, lost: int) -> None:
        """Write down who made way for whom."""
        beneficiary = stopped.beneficiary or ""
        helped = self.live.get(beneficiary)
        self.preemptions.append(
            Preemption(
                told,
                stopped.workload,
                stopped.attempt,
                run.submission.spec.budget,
                run.allocated,
                run.gpus,
                started,
                run.protected_until,
                lost,
                beneficiary,
                None if helped is None else helped.submission.spec.budget,
            )
        )

    def _host_changed(self, change: HostChanged, now: int) -> None:
        """A host is in another state; one that is drained is repaired at once."""
        host, ready = self.hosts[change.host], change.state is HostState.READY
        if host.state is None:
            host.meter.add(host.gpus, now)
            self.away += 1
        if ready is not (host.state is HostState.READY):
            free = host.gpus - self._held(change.host)
            host.meter.lose(-free if ready else free, now)
            self.away += -1 if ready else 1
        host.state = change.state
        if change.state is HostState.DRAINED and host.repair is not None:
            self.push(now, RepairStarted(change.host))
            self.push(now + host.repair, RepairEnded(change.host, healthy=True))
            host.repair = None

    def _held(self, host: str) -> int:
        """GPUs of a host that attempts hold."""
        running = (run for run in self.live.values() if run.standing is Standing.RUNNING)
        return sum(len(gpus) for run in running for name, gpus in run.placement if name == host)

    def finish(self, run: Played, end: End, now: int) -> None:
        """A workload is over: only its row is kept."""
        self.rows[run.number] = run.row(end, now)
        del self.live[run.id]
