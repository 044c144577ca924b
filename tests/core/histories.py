"""Random histories of a small cluster, with every property of the scheduler checked after every event.

``History`` plays the world (people, hosts, processes) for one ``Scheduler``, keeps the brute-force ``Record`` beside
it, and a twin that is restored from a snapshot at random moments. The choices come from a ``Chance``: hypothesis drives
it in ``test_properties.py``; ``play`` drives it from a seed, for long runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpubudget.core import eventlog
from gpubudget.core.decisions import Decision
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    CheckpointReported,
    Cordoned,
    DrainRequested,
    Event,
    Exited,
    HostLost,
    HostRemoved,
    HostReported,
    Moved,
    Outcome,
    RepairEnded,
    RepairStarted,
    RequeueRequested,
    Submitted,
    Uncordoned,
    Woke,
)
from gpubudget.core.host import HostState
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import ENDED, WorkloadState
from gpubudget.errors import BrokenInvariantError, GpuBudgetError
from gpubudget.sim.audit import Auditor
from gpubudget.sim.eventfile import Line, check
from tests.core import invariants, judgements
from tests.core.oracles import WAITING, Record, Run
from tests.core.worlds import STEPS, Chance, Forest, Seeded, flip, workload

BEGIN = 1_700_000_000_000
_S = HostState


class History:
    """One random history: each method does one thing that can happen, and checks all that must hold after it."""

    def __init__(self, chance: Chance, *, audited: bool = True) -> None:
        self.chance = chance
        self.scheduler = Scheduler()
        self.twin = Scheduler()
        self.record = Record()
        self.forest = Forest(chance)
        self.now = BEGIN
        self.inputs: list[tuple[Event, int]] = []
        self.decisions: list[list[Decision]] = []
        self.log: list[eventlog.Line] = []
        self.auditor = Auditor() if audited else None
        self._names = 0
        self._hosts = 0
        self.apply()
        self.most_hosts = chance.pick([1, 1, 2, 2, 3, 3, 4, 5, 8, 12])
        for _ in range(self.most_hosts):
            self.add_host()

    # Sending, and what must hold afterwards

    def send(self, event: Event) -> list[Decision]:
        """Hand an event to the scheduler and its twin, and check everything."""
        before = self.record.now
        self.inputs.append((event, self.now))
        lanes = {view.name: view.lane for view in self.scheduler.hosts()}
        decisions = self.scheduler.handle(event, self.now)
        self.decisions.append(decisions)
        assert self.twin.handle(event, self.now) == decisions, "7: a restored scheduler decides differently"
        late = self.now - before >= 60_000 or isinstance(event, BudgetsApplied)
        self.record.lanes = {view.name: min(view.lane, lanes.get(view.name, 0)) for view in self.scheduler.hosts()}
        judgements.take(self.record, event, decisions, self.now)
        self.scheduler.check()
        for invariant in invariants.OFTEN:
            invariant(self.record, self.scheduler, self.now)
        self.record.reserved = {view.pool: view for view in self.scheduler.reservations()}
        if late and self.record.tree:
            invariants.nobody_is_overlooked(self.record, self.scheduler, self.now)
        self._audit(event, decisions)
        assert self.twin.handle(Woke(), self.now) == [], "4: waking again decides something"
        return decisions

    def refused(self, event: Event, *, silent: bool = False) -> None:
        """An event that is illegal now raises (a late report may be passed over in silence) and changes nothing."""
        before = self.scheduler.snapshot()
        decisions: list[Decision] = []
        try:
            decisions = self.scheduler.handle(event, self.now)
        except BrokenInvariantError:
            raise
        except GpuBudgetError:
            pass
        else:
            assert silent, f"{event} is illegal and was taken: {decisions}"
        assert decisions == []
        assert self.scheduler.snapshot() == before, f"{event} was refused and changed something"

    def _audit(self, event: Event, decisions: list[Decision]) -> None:
        lines = eventlog.lines(event, decisions, self.now)
        for data in lines:
            self.log.append(data)
            line = check(len(self.log), json.loads(json.dumps(data)))
            assert isinstance(line, Line), line
            if self.auditor:
                self.auditor.take(line)
        if self.auditor:
            assert self.auditor.findings == [], self.auditor.findings

    # People

    def submit(self) -> None:
        assert self.record.tree
        self._names += 1
        spec = workload(self.chance, f"w{self._names}", self.record.tree)
        try:
            self.send(Submitted(spec))
        except GpuBudgetError as error:
            if isinstance(error, BrokenInvariantError) or self.record.fits_somewhere(spec):
                raise
            self.inputs.pop()

    def submit_nonsense(self) -> None:
        assert self.record.tree
        good = workload(self.chance, "nonsense", self.record.tree)
        wrong: list[dict[str, Any]] = [
            {"gpus": 0},
            {"gpus": -3},
            {"gpus": 10**30},
            {"hosts": 0},
            {"hosts": 5, "gpus": 7},
            {"min_runtime": -1},
            {"min_runtime": 10**30, "budget": "/"},
            {"pools": ()},
            {"pools": ("nowhere",)},
            {"budget": "no/such/budget"},
            {"budget": None, "min_runtime": 1},
        ]
        self.nonsense(Submitted(replace(good, **self.chance.pick(wrong))))

    def nonsense(self, event: Submitted) -> None:
        """A workload that cannot be accepted: an error that changes nothing, or a decision that refuses it."""
        self.send(Woke())  # so that nothing else is due
        before = self.scheduler.snapshot()
        try:
            decisions = self.scheduler.handle(event, self.now)
        except BrokenInvariantError:
            raise
        except GpuBudgetError:
            assert self.scheduler.snapshot() == before
            return
        assert [type(decision).__name__ for decision in decisions] == ["Refuse"], (event, decisions)
        self.scheduler = Scheduler.restore(before)

    def cancel(self) -> None:
        self._for_job(lambda state: state not in ENDED, lambda name: self.send(Cancelled(name, "ann")))

    def requeue(self) -> None:
        self._for_job(lambda state: state is WorkloadState.RUNNING, lambda name: self.send(RequeueRequested(name)))

    def move(self) -> None:
        path = self.chance.pick(sorted(self.record.budget_paths()))
        self._for_job(lambda state: state in WAITING, lambda name: self.send(Moved(name, path, "ann")))

    def apply(self) -> None:
        if self.record.tree:
            self.forest.change()
        self.send(BudgetsApplied(self.forest.tree(self.now), f"c{len(self.inputs)}"))

    # Processes

    def exit_stopping(self) -> None:
        run = self._run(lambda run: run.stopping is not None)
        if run:
            outcome = self.chance.pick([Outcome.STOPPED, Outcome.STOPPED, Outcome.FINISHED, Outcome.FAILED])
            self.send(Exited(run.workload, run.attempt, outcome))

    def exit_running(self) -> None:
        run = self._run(lambda run: run.stopping is None)
        if run:
            outcome = self.chance.pick(
                [Outcome.FINISHED, Outcome.FINISHED, Outcome.FAILED, Outcome.FAILED, Outcome.STOPPED]
            )
            self.send(Exited(run.workload, run.attempt, outcome))

    def checkpoint(self) -> None:
        run = self._run(lambda _: True)
        if run:
            self.send(CheckpointReported(run.workload, run.attempt))

    # Hosts

    def add_host(self) -> None:
        assert self.record.tree
        if len(self.record.machines) < self.most_hosts:
            pool = self.chance.pick(self.record.tree.pools)
            self._hosts += 1
            gpus = max(1, pool.gpus_per_host // 2) if flip(self.chance, 10) else pool.gpus_per_host
            self.send(HostReported(f"h{self._hosts}", pool.name, gpus))

    def host(self) -> None:
        """Something legal happens to a host."""
        if not self.record.machines:
            self.add_host()
            return
        name = self.chance.pick(sorted(self.record.machines))
        machine = self.record.machines[name]
        back = HostReported(name, machine.pool, machine.gpus)
        drain, lost = DrainRequested(name, "ECC errors", "ann"), HostLost(name)
        choices: dict[HostState, list[Event]] = {
            _S.READY: [drain, drain, Cordoned(name, "noise", "ann"), lost, back],
            _S.CORDONED: [drain, Uncordoned(name), Uncordoned(name), lost],
            _S.DRAINING: [Uncordoned(name), lost],
            _S.DRAINED: [RepairStarted(name), RepairStarted(name), Uncordoned(name), HostRemoved(name), lost],
            _S.REPAIRING: [RepairEnded(name, healthy=True), RepairEnded(name, healthy=False), lost],
            _S.LOST: [back, back, back, HostRemoved(name)],
        }
        event = self.chance.pick(choices[machine.state])
        if isinstance(event, HostRemoved) and self.record.live(name):
            return  # it is given up when what ran on it is known to be gone
        self.send(event)

    # Time

    def wait(self) -> None:
        """Time passes as in a good shell: the scheduler is woken whenever it asked for it."""
        until = self.now + self.chance.pick(STEPS)
        if flip(self.chance, 60):
            for run in self.record.live():
                if run.stopping and run.live:
                    self.send(Exited(run.workload, run.attempt, Outcome.STOPPED))
        for _ in range(30):
            due = self.scheduler.next_wakeup()
            if due is None or due > until:
                break
            self._wake(due)
        self.now = until
        self.send(Woke())

    def next_wakeup(self) -> None:
        """Time goes on to the next moment that matters."""
        due = self.scheduler.next_wakeup()
        if due is not None:
            self._wake(due)

    def _wake(self, due: int) -> None:
        """Wake at the time that was asked for, or later if that was overslept; before it nothing would be decided."""
        assert due > self.record.now, f"the next wake-up {due} is not after {self.record.now}"
        early = self.chance.between(self.record.now, due - 1)
        copy = Scheduler.restore(self.scheduler.snapshot())
        assert copy.handle(Woke(), early) == [], f"something was due before next_wakeup() = {due}"
        self.now = max(self.now, due)
        self.send(Woke())

    def oversleep(self) -> None:
        """Time passes and nobody wakes the scheduler."""
        self.now += self.chance.pick([1, 1000, 5 * 60_000, 3_600_000])

    def long_sleep(self) -> None:
        """More than a whole window passes."""
        assert self.record.tree
        self.now += self.record.tree.policy.lookback + self.chance.between(0, 3_600_000)
        self.send(Woke())

    # Restarts

    def restart(self) -> None:
        """Go on from a snapshot that went through JSON."""
        snapshot = self.scheduler.snapshot()
        self.twin = Scheduler.restore(json.loads(json.dumps(snapshot)))
        assert self.twin.snapshot() == snapshot, "7: a snapshot of what was restored is another"
        self.twin.check()
        if flip(self.chance, 50):
            self.scheduler, self.twin = self.twin, self.scheduler

    # What is illegal

    def illegal(self) -> None:
        """Something that cannot happen now."""
        self._names += 1
        past = [run for run in self.record.runs if run.ended is not None]
        live = self.record.live()
        pending = [name for name, job in self.record.jobs.items() if job.state is WorkloadState.PENDING]
        ended = [name for name, job in self.record.jobs.items() if job.state in ENDED]
        running = [run.workload for run in live if not run.stopping]
        ready = [name for name, machine in self.record.machines.items() if machine.state is _S.READY]
        events: list[Event] = [
            Cancelled("nobody"),
            RequeueRequested("nobody"),
            Exited("nobody", 1, Outcome.FINISHED),
            HostLost("nowhere"),
            DrainRequested("nowhere", "x"),
            Uncordoned("nowhere"),
            RepairStarted("nowhere"),
            RepairEnded("nowhere", healthy=True),
            HostRemoved("nowhere"),
            HostReported("hx", "p", 0),
        ]
        events += [Exited(run.workload, run.attempt + 1, Outcome.FINISHED) for run in live[:2]]
        events += [RequeueRequested(name) for name in pending[:1]]
        events += [event for name in ended[:1] for event in (Cancelled(name), RequeueRequested(name), Moved(name, "/"))]
        events += [Moved(name, "/") for name in running[:1]]
        events += [Moved(name, "no/such") for name in pending[:1]]
        events += [
            event
            for name in ready[:1]
            for event in (RepairStarted(name), RepairEnded(name, healthy=True), HostRemoved(name), Uncordoned(name))
        ]
        late = [Exited(run.workload, run.attempt, Outcome.FINISHED) for run in past[-3:]]
        late_checkpoints = [CheckpointReported(run.workload, run.attempt) for run in past[-3:]]
        if late and flip(self.chance, 40):
            reports: list[Event] = [*late, *late_checkpoints]
            self.refused(self.chance.pick(reports), silent=True)
        elif self.record.jobs and flip(self.chance, 10):
            known = [job for job in self.record.jobs.values() if job.state not in ENDED]
            if known:
                self.refused(Submitted(self.chance.pick(known).spec))
        else:
            self.refused(self.chance.pick(events))

    def clock_back(self) -> None:
        """Time goes back."""
        keep, self.now = self.now, self.record.now - 1
        self.refused(Woke())
        self.now = keep

    def _for_job(self, which: Callable[[WorkloadState], bool], do: Callable[[str], object]) -> None:
        names = [name for name, job in self.record.jobs.items() if which(job.state)]
        if names:
            do(self.chance.pick(names))

    def _run(self, which: Callable[[Run], bool]) -> Run | None:
        runs = [run for run in self.record.live() if which(run)]
        return self.chance.pick(runs) if runs else None

    # The end

    def close(self) -> None:
        """The same events give the same decisions again, and the log is right as a whole."""
        again = Scheduler()
        for (event, now), decisions in zip(self.inputs, self.decisions, strict=True):
            assert again.handle(event, now) == decisions, "7: the same events, other decisions"
        if self.auditor:
            self.auditor.finish()
            assert self.auditor.findings == [], self.auditor.findings
            for pool in self.record.capacity:
                for path in self.record.budget_paths():
                    used = self.record.total(self.record.own_usage(pool, self.record.now), path)
                    assert self.auditor.usage(pool, path, self.record.now) == used, (
                        "the audit's ledger differs from the brute force"
                    )


ACTIONS: tuple[tuple[int, Callable[[History], None]], ...] = (
    (34, History.submit),
    (7, History.exit_running),
    (14, History.exit_stopping),
    (14, History.wait),
    (12, History.next_wakeup),
    (4, History.oversleep),
    (1, History.long_sleep),
    (3, History.cancel),
    (2, History.requeue),
    (2, History.move),
    (2, History.apply),
    (3, History.checkpoint),
    (5, History.host),
    (1, History.add_host),
    (2, History.illegal),
    (1, History.submit_nonsense),
    (1, History.clock_back),
    (2, History.restart),
)
_WEIGHTED = tuple(action for weight, action in ACTIONS for _ in range(weight))


def play(seed: int, events: int) -> History:
    """A whole history of at least so many events, from a seed."""
    chance = Seeded(seed)
    history = History(chance)
    while len(history.inputs) < events:
        chance.pick(_WEIGHTED)(history)
    history.close()
    return history
