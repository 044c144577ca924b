"""The engine: plays a scenario through a scheduler, jumping from one moment at which something happens to the next.

It is a shell like the daemon: it says what happened and carries out what is decided, and has no rule of scheduling.
The scheduler is the core's, or anything that takes the same events and gives the same decisions. What happens at one
moment comes in this order: exits and hosts, then submissions, then a wake-up where time alone could change something.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, merge
from typing import Final, Protocol, TextIO

from gpubudget.core import eventlog
from gpubudget.core.decisions import Decision
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    CheckpointReported,
    DrainRequested,
    Event,
    Exited,
    HostLost,
    HostReported,
    Outcome,
    Submitted,
    Woke,
)
from gpubudget.core.host import HostState
from gpubudget.sim.faults import drawn
from gpubudget.sim.meters import Meters
from gpubudget.sim.played import Costs, Played, Standing
from gpubudget.sim.result import NO_BUDGET, End, Refusal, Result
from gpubudget.sim.stage import Checkpoint, Stage
from gpubudget.sim.submission import Ending, Failure, Fault, Scenario, Submission
from gpubudget.units import HOUR

_NEVER: Final = 1 << 62

# Looked up once: that takes a while, and they are asked for with every event.
_WOKE: Final = Woke()
_RUNNING: Final = Standing.RUNNING
_WAITING: Final = Standing.WAITING
_ENDS_CANCELLED: Final = Ending.CANCELLED
_ENDS_FAILED: Final = Ending.FAILED
_FINISHED: Final = Outcome.FINISHED
_FAILED: Final = Outcome.FAILED
_STOPPED: Final = Outcome.STOPPED


class Decider(Protocol):
    """Anything that schedules: the core, or a policy to compare it with."""

    def handle(self, event: Event, now: int) -> list[Decision]:
        """Take what happened and say what follows."""

    def next_wakeup(self) -> int | None:
        """When time alone could change a decision."""


Log = Callable[[Event, list[Decision], int], None]
Progress = Callable[[int, int], None]
"""Told now and then: the simulated moment, and how many workloads have come."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a scenario is played. ``until`` ends it early; samples are ``sample_every`` apart, or more in long runs.

    The first ``warm_up`` milliseconds are played and left out of the result. ``named`` are the names and values of all
    that was chosen, for the report.
    """

    policy: str = "gpubudget"
    costs: Costs = field(default_factory=Costs)
    until: int | None = None
    sample_every: int = HOUR
    warm_up: int = 0
    named: tuple[tuple[str, str], ...] = ()


def simulate(
    scenario: Scenario,
    scheduler: Decider,
    settings: Settings | None = None,
    *,
    log: Log | None = None,
    progress: Progress | None = None,
) -> Result:
    """Play ``scenario`` and say what came of it.

    The run ends when all workloads have ended, or when those that are left can never start. Raises InvalidInputError if
    nothing comes after the warm-up.
    """
    settings = settings or Settings()
    with _collecting_less():
        result = _Run(scenario, scheduler, settings, log, progress).play()
    return result.since(result.start + settings.warm_up) if settings.warm_up else result


def log_to(stream: TextIO) -> Log:
    """What writes the public event log, one JSON object a line."""
    encode = json.JSONEncoder(ensure_ascii=False).encode

    def log(event: Event, decisions: list[Decision], now: int) -> None:
        stream.writelines([encode(line) + "\n" for line in eventlog.lines(event, decisions, now)])

    return log


@contextmanager
def _collecting_less() -> Iterator[None]:
    """Let Python hardly ever look for cycles: a run makes none, and most of what it makes is kept until its end.

    What is there when it begins and when it ends counts as old at once, so that nobody goes through it for nothing.
    """
    was = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 100)
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*was)
        gc.unfreeze()


class _Run:
    """One run."""

    def __init__(
        self,
        scenario: Scenario,
        scheduler: Decider,
        settings: Settings,
        log: Log | None,
        progress: Progress | None,
    ) -> None:
        self.scenario, self.settings = scenario, settings
        self.handle, self.next_wakeup = scheduler.handle, scheduler.next_wakeup
        self.log, self.progress = log, progress
        submissions = scenario.workloads.submissions
        self.start = submissions[0].at if submissions else 0
        self.failures = _failures(scenario, self.start)
        self.loaded_until = submissions[-1].at if submissions else 0
        pools = dict.fromkeys([*(pool.name for pool in scenario.tree.pools), *(host.pool for host in scenario.hosts)])
        paths = [*(budget.path for budget in scenario.tree.budgets()), NO_BUDGET]
        self.meters = Meters(tuple(pools), paths, self.start, settings.sample_every)
        self.meters.next += settings.warm_up
        self.stage = Stage(scenario.hosts, self.meters, settings.costs)
        self.events = self.wakes = self.host_failures = 0
        self.trees = [(self.start, scenario.tree)]

    def play(self) -> Result:
        """Run to the end."""
        now, stage = self.start, self.stage
        self.feed(BudgetsApplied(self.scenario.tree), now)
        for host in self.scenario.hosts:
            self.feed(HostReported(host.name, host.pool, host.gpus), now)
        for at, event in self.scenario.workloads.events:
            stage.push(max(at, now), event)
        self.next_failure()
        now = self.loop(now)
        self.meters.until(now)
        self.meters.take(now)
        for run in list(stage.live.values()):
            stage.finish(run, End.RUNNING if run.standing is _RUNNING else End.WAITING, now)
        return self.result(now)

    def loop(self, now: int) -> int:
        """Jump from moment to moment; the last one."""
        submissions, agenda, live = self.scenario.workloads.submissions, self.stage.agenda, self.stage.live
        meters, next_wakeup = self.meters, self.next_wakeup
        number, count = 0, len(submissions)
        coming = submissions[0].at if count else _NEVER
        end = _NEVER - 1 if self.settings.until is None else self.settings.until
        while number < count or live:
            at = due = agenda[0][0] if agenda else _NEVER
            if coming < at:  # noqa: PLR1730 - min() takes longer
                at = coming
            wake = next_wakeup() if at > now else None  # all else comes first, so nobody wakes at this very moment
            if wake is not None and wake < at:
                at = max(wake, now)
            if at > end:
                return now if at == _NEVER else max(end, now)
            if at > meters.next:
                self.sample(at, number)
            now = at
            if due == now:
                what = heappop(agenda)[2]
                if isinstance(what, Played):
                    self.exit(what, now)
                elif isinstance(what, Failure) and number == count and self.stuck():
                    return now
                else:
                    self.take(what, now)
            elif coming == now:
                self.submit(submissions[number], now)
                number += 1
                coming = submissions[number].at if number < count else _NEVER
            else:
                self.wakes += 1
                if not self.feed(_WOKE, now) and number == count and self.stuck():
                    return now
        return now

    def sample(self, now: int, number: int) -> None:
        """Take the samples that are due, and tell how far it is: so many workloads have come."""
        self.meters.until(now)
        if self.progress is not None:
            self.progress(now, number)

    def submit(self, submission: Submission, now: int) -> None:
        """A workload comes; it starts at once, or it waits."""
        run = self.stage.enter(submission, now)
        self.feed(Submitted(submission.spec), now)
        if run.standing is _WAITING:
            self.stage.queue(run, now)

    def stuck(self) -> bool:
        """Whether nothing can ever happen again but failures: what waits can never start."""
        if self.stage.away:
            return False
        for _, _, what in self.stage.agenda:  # noqa: SIM110 - all() takes twice as long, and wake-ups ask this
            if not isinstance(what, Failure):
                return False
        return True

    def feed(self, event: Event, now: int) -> list[Decision]:
        """Tell the scheduler, and carry out what it decides."""
        self.events += 1
        decisions = self.handle(event, now)
        if self.log is not None:
            self.log(event, decisions, now)
        if decisions:
            self.stage.carry_out(decisions, now)
        return decisions

    def take(self, what: Event | Failure | Checkpoint, now: int) -> None:
        """Let happen what is due, unless things have moved on."""
        match what:
            case Checkpoint(run, attempt):
                if run.attempt == attempt and run.standing is _RUNNING and not run.stopping:
                    self.feed(CheckpointReported(run.id, attempt), now)
                    self.stage.push(now + (self.settings.costs.checkpoint_every or _NEVER), what)
            case Failure():
                self.fail(what, now)
                self.next_failure()
            case Cancelled(workload):
                if workload in self.stage.live:
                    self.feed(what, now)
            case BudgetsApplied(tree):
                self.meters.apply([budget.path for budget in tree.budgets()], now)
                self.trees.append((now, tree))
                self.feed(what, now)
            case _:
                self.feed(what, now)

    def exit(self, run: Played, now: int) -> None:
        """An attempt's processes end, by themselves or since they were told to."""
        if run.exit_at != now or run.standing is not _RUNNING:
            return  # it was stopped before, or this was an earlier attempt's end
        if run.told is not None:
            self.feed(Exited(run.id, run.attempt, _STOPPED), now)
        elif run.ending is _ENDS_CANCELLED:
            self.feed(Cancelled(run.id, run.submission.spec.owner), now)
        else:
            self.feed(Exited(run.id, run.attempt, _FAILED if run.ending is _ENDS_FAILED else _FINISHED), now)

    def next_failure(self) -> None:
        """Put the next failure of a host on the agenda."""
        failure = next(self.failures, None)
        if failure is not None:
            self.stage.push(max(failure.at, self.start), failure)

    def fail(self, failure: Failure, now: int) -> None:
        """A host fails, if it is at work."""
        host = self.stage.hosts.get(failure.host)
        if host is None or host.state is not HostState.READY:
            return
        self.host_failures += 1
        repair = max(failure.repair, self.settings.costs.stop_time + 1)  # what is left of its gangs has ended by then
        if failure.fault is Fault.DRAIN:
            host.repair = repair
            self.feed(DrainRequested(failure.host, failure.cause or "a health check failed"), now)
        else:
            self.stage.push(now + repair, HostReported(failure.host, host.pool, host.gpus))
            self.feed(HostLost(failure.host), now)

    def result(self, now: int) -> Result:
        """All that the run leaves."""
        scenario, settings, stage, meters = self.scenario, self.settings, self.stage, self.meters
        return Result(
            policy=settings.policy,
            settings=settings.named,
            assumptions=scenario.workloads.sentences() + settings.costs.sentences(),
            bad_rows=scenario.workloads.bad_rows,
            trees=tuple(self.trees),
            hosts=scenario.hosts,
            start=self.start,
            loaded_until=min(self.loaded_until, now),
            end=now,
            pools=tuple(meters.pools),
            paths=tuple([path for path, _ in meters.paths]),
            paths_since=tuple([since for _, since in meters.paths]),
            sample_every=meters.every,
            samples=meters.padded(),
            rows=tuple([row for row in stage.rows if row is not None]),
            preemptions=tuple(stage.preemptions),
            refusals=tuple([Refusal(reason, count) for reason, count in stage.refusals.most_common()]),
            host_failures=self.host_failures,
            events=self.events,
            wakes=self.wakes,
        )


def _failures(scenario: Scenario, start: int) -> Iterator[Failure]:
    """Those that are told of, and those that are drawn, which go on for ever."""
    told = scenario.workloads.failures
    if scenario.failing is None:
        return iter(told)
    return merge(told, drawn(scenario.failing, scenario.hosts, start), key=lambda failure: failure.at)
