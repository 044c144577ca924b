"""What becomes of workloads, hosts and GPU-time when decisions are carried out, and what follows from them later.

The stage has no clock and knows no scheduler: it is told each decision with its time, and puts what follows (the end
of an attempt, its checkpoints, a repair) on the agenda, which the engine plays. Times are milliseconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heappush

from gpubudget.core.decisions import Decision, Hold, HostChanged, Refuse, Requeue, Start, Stop, Stopped
from gpubudget.core.events import Cancelled, Event, RepairEnded, RepairStarted
from gpubudget.core.host import HostState
from gpubudget.core.workload import StopReason
from gpubudget.sim.meters import Meters, PoolMeter
from gpubudget.sim.played import Costs, Played, Standing
from gpubudget.sim.result import NO_BUDGET, End, Preemption, Row
from gpubudget.sim.submission import Failure, SimHost, Submission

_ENDS = {
    StopReason.FAILED: End.FAILED,
    StopReason.CANCELLED: End.CANCELLED,
    StopReason.PREEMPTED: End.PREEMPTED,
}


@dataclass(slots=True)
class HostOnStage:
    """A host: GPUs that attempts hold, its state once it is known, and how long a repair takes that is to come."""

    meter: PoolMeter
    pool: str
    gpus: int
    held: int = 0
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
    """All that goes on. ``agenda`` is a heap of (time, number, what); ``away`` counts hosts that are not ready."""

    def __init__(self, hosts: tuple[SimHost, ...], meters: Meters, costs: Costs) -> None:
        self.meters, self.costs = meters, costs
        self.hosts = {host.name: HostOnStage(meters.pools[host.pool], host.pool, host.gpus) for host in hosts}
        self.live: dict[str, Played] = {}
        self.agenda: list[tuple[int, int, Due]] = []
        self.rows: list[tuple[int, Row]] = []
        self.preemptions: list[Preemption] = []
        self.refusals: Counter[str] = Counter()
        self.away = 0
        self._number = 0
        self._over: list[tuple[Played, End]] = []

    def push(self, at: int, what: Due) -> None:
        """Put something on the agenda."""
        self._number += 1
        heappush(self.agenda, (at, self._number, what))

    def enter(self, number: int, submission: Submission, now: int) -> None:
        """A workload comes and waits."""
        spec, meters = submission.spec, self.meters
        home = meters.pools.get(spec.pools[0]) or next(iter(meters.pools.values()))
        place = meters.places.get(spec.budget or NO_BUDGET, 0)
        run = self.live[spec.id] = Played(submission, number, home, place)
        home.wait(place, run.gpus, now, allocated=run.allocated)
        if submission.gives_up is not None:
            self.push(max(submission.gives_up, now), Cancelled(spec.id, spec.owner))

    def carry_out(self, decisions: list[Decision], now: int) -> None:
        """Let happen what was decided."""
        for decision in decisions:
            match decision:
                case Start():
                    self._start(decision, now)
                case Stopped():
                    self._stopped(decision, now)
                case Stop(workload, _, reason):
                    run = self.live[workload]
                    if run.stop(now, 0 if reason is StopReason.CANCELLED else self.costs.stop_time):
                        self.push(run.exit_at, run)
                case _:
                    self._tell(decision, now)
        if self._over:
            for run, end in self._over:
                if run.standing is Standing.OVER:
                    self.finish(run, end, now)
            self._over.clear()

    def _tell(self, decision: Decision, now: int) -> None:
        match decision:
            case Requeue(workload, _, held):
                run = self.live[workload]
                run.standing, run.reason = Standing.WAITING, held
                run.home.wait(run.place, run.gpus, now, allocated=run.allocated)
            case Hold(workload, reason):
                self.live[workload].reason = reason
            case Refuse(workload, reason):
                self._refuse(self.live[workload], reason, now)
            case HostChanged():
                self._host_changed(decision, now)

    def _start(self, start: Start, now: int) -> None:
        """An attempt starts."""
        run = self.live[start.workload]
        run.home.wait(run.place, -run.gpus, now, allocated=run.allocated)
        run.meter = self.meters.pools[start.pool]
        run.pool, run.attempt, run.protected_until = start.pool, start.attempt, start.protected_until
        run.placement = start.placement
        run.lane |= start.lane
        self.push(run.start(now, self.costs.start_up), run)
        if self.costs.checkpoint_every is not None and run.submission.spec.resumable:
            first = now + self.costs.checkpoint_every + (self.costs.start_up if run.attempts > 1 else 0)
            self.push(first, Checkpoint(run, start.attempt))
        self._occupy(run, 1, now)

    def _stopped(self, stopped: Stopped, now: int) -> None:
        """An attempt has ended; attempt 0 is a workload that is cancelled while it waits."""
        run = self.live[stopped.workload]
        self._over.append((run, _ENDS.get(stopped.reason, End.FINISHED)))
        if stopped.attempt == 0:
            run.home.wait(run.place, -run.gpus, now, allocated=run.allocated)
            run.withdraw(now)
            return
        self._occupy(run, -1, now)
        told, started = run.told, run.since
        lost = run.end_attempt(stopped.reason, now, self.costs)
        if stopped.reason is StopReason.PREEMPTED:
            self._preempted(run, stopped, now if told is None else told, started, lost)

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

    def _refuse(self, run: Played, reason: str, now: int) -> None:
        """A workload is not accepted."""
        self.refusals[reason] += 1
        run.home.wait(run.place, -run.gpus, now, allocated=run.allocated)
        run.withdraw(now)
        run.reason = reason
        self.finish(run, End.REFUSED, now)

    def _occupy(self, run: Played, sign: int, now: int) -> None:
        """Give an attempt its GPUs (1), or take them back (-1)."""
        meter = run.meter
        meter.hold(run.place, sign * run.gpus, now, allocated=run.allocated)
        for name, gpus in run.placement:
            host, count = self.hosts[name], sign * len(gpus)
            host.held += count
            if host.state is HostState.READY:
                meter.idle -= count
            else:
                meter.unavailable -= count

    def _host_changed(self, change: HostChanged, now: int) -> None:
        """A host is in another state; one that is drained is repaired at once."""
        host, ready = self.hosts[change.host], change.state is HostState.READY
        meter, free = host.meter, host.gpus - host.held
        meter.advance(now)
        if host.state is None:
            meter.capacity += host.gpus
        elif host.state is HostState.READY:
            meter.idle -= free
        else:
            meter.unavailable -= free
            self.away -= 1
        if ready:
            meter.idle += free
        else:
            meter.unavailable += free
            self.away += 1
        host.state = change.state
        if change.state is HostState.DRAINED and host.repair is not None:
            self.push(now, RepairStarted(change.host))
            self.push(now + host.repair, RepairEnded(change.host, healthy=True))
            host.repair = None

    def finish(self, run: Played, end: End, now: int) -> None:
        """A workload is over: only its row is kept."""
        self.rows.append((run.number, run.row(end, now)))
        del self.live[run.submission.spec.id]
