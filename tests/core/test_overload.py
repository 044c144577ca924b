"""A cluster of a usual size under more demand than it can serve: nothing that the audit can see goes wrong."""

from __future__ import annotations

import random
from fractions import Fraction
from heapq import heappop, heappush

import pytest

from gpubudget.core import eventlog
from gpubudget.core.budget import Budget, Pool, Shares, Tree
from gpubudget.core.decisions import Start, Stop
from gpubudget.core.events import BudgetsApplied, Event, Exited, HostReported, Outcome, Submitted, Woke
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadSpec
from gpubudget.sim.audit import Auditor
from gpubudget.sim.eventfile import Line, check
from gpubudget.units import HOUR, MINUTE, SECOND

HOSTS = 24


def tree() -> Tree:
    """Five programs of six people each."""
    programs = tuple(
        Budget(
            f"g{i}",
            Shares(Fraction(1, 5)),
            children=tuple(Budget(f"g{i}/u{j}", Shares(Fraction(1, 6))) for j in range(6)),
        )
        for i in range(5)
    )
    return Tree(Budget("/", Shares(Fraction(1)), children=programs), (Pool("p", 8, HOSTS),))


class Overload:
    """Submits at random, ends attempts after random times, leaves when told to within five seconds."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.scheduler = Scheduler()
        self.auditor = Auditor()
        self.now = 0
        self.lines = 0
        self.ends: list[tuple[int, str, int, Outcome]] = []
        self.alive: dict[tuple[str, int], bool] = {}  # whether it was told to stop
        self.send(BudgetsApplied(tree(), "c1"))
        for number in range(HOSTS):
            self.send(HostReported(f"h{number}", "p", 8))

    def send(self, event: Event) -> None:
        decisions = self.scheduler.handle(event, self.now)
        for decision in decisions:
            if isinstance(decision, Start):
                self.alive[decision.workload, decision.attempt] = False
                self.later(decision, self.chance.randint(MINUTE, 8 * HOUR), Outcome.FINISHED)
            elif isinstance(decision, Stop):
                self.alive[decision.workload, decision.attempt] = True
                self.later(decision, self.chance.randint(0, 5 * SECOND), Outcome.STOPPED)
        for data in eventlog.lines(event, decisions, self.now):
            self.lines += 1
            line = check(self.lines, data)
            assert isinstance(line, Line)
            self.auditor.take(line)
        assert self.auditor.findings == []

    def later(self, decision: Start | Stop, delay: int, outcome: Outcome) -> None:
        heappush(self.ends, (self.now + delay, decision.workload, decision.attempt, outcome))

    def end(self) -> None:
        """The next attempt ends, unless it has, or it was told to stop and would not end by itself before."""
        _, workload, attempt, outcome = heappop(self.ends)
        told = self.alive.get((workload, attempt))
        if told is not None and told == (outcome is Outcome.STOPPED):
            del self.alive[workload, attempt]
            self.send(Exited(workload, attempt, outcome))

    def submit(self, name: str) -> None:
        budget = f"g{self.chance.randrange(5)}/u{self.chance.randrange(6)}"
        unallocated = self.chance.random() < 0.2
        spec = WorkloadSpec(
            name,
            "ann",
            None if unallocated else budget,
            ("p",),
            self.chance.choice([1, 1, 2, 4, 8, 8, 16]),
            min_runtime=0 if unallocated else self.chance.choice([10 * MINUTE, HOUR, 4 * HOUR]),
            resumable=True,
        )
        self.send(Submitted(spec))

    def run(self, workloads: int) -> None:
        due = 0
        for number in range(workloads):
            while (moment := min(self.ends[0][0] if self.ends else due, self.scheduler.next_wakeup() or due)) < due:
                self.now = max(self.now, moment)
                if self.ends and self.ends[0][0] <= self.now:
                    self.end()
                else:
                    self.send(Woke())
            self.now = max(self.now, due)
            self.submit(f"w{number}")
            due += self.chance.randint(1, 8 * MINUTE)


@pytest.mark.parametrize("seed", range(3))
def test_the_log_of_an_overloaded_cluster_passes_the_audit(seed: int) -> None:
    """Each placement, charge and preemption of 500 workloads on 192 GPUs is right, and many waited."""
    overload = Overload(seed)
    overload.run(500)
    overload.scheduler.check()
    overload.auditor.finish()
    assert overload.auditor.findings == []
    assert overload.auditor.summary()["preemptions"] > 20
    assert len(overload.scheduler.ranking("p", overload.now)) > 10
