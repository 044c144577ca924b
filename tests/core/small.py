"""A small cluster to try one thing on: hosts of 8 GPUs in one pool, budgets by path and share, minutes as time."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

from gpubudget.core.budget import ROOT, Budget, Policy, Pool, Shares, Tree, parent_path
from gpubudget.core.decisions import Claim, Decision, Start, Stop, Stopped
from gpubudget.core.events import BudgetsApplied, Event, Exited, HostReported, Outcome, Submitted, Woke
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.views import BudgetView, WorkloadView
from gpubudget.core.workload import WorkloadSpec
from gpubudget.units import MINUTE


def tree(shares: dict[str, str], policy: Policy | None = None, hosts: int = 1) -> Tree:
    """A tree from the path and the share of each budget but the root; parents first."""

    def budget(path: str, share: str) -> Budget:
        children = tuple(budget(p, s) for p, s in shares.items() if p != ROOT and parent_path(p) == path)
        return Budget(path, Shares(Fraction(share)), members=("ann",), children=children)

    return Tree(budget(ROOT, "1"), (Pool("p", 8, hosts),), policy or Policy())


class Small:
    """Drives a scheduler; ``now`` is in minutes, and each answer is the list of decisions in short words."""

    def __init__(self, shares: dict[str, str], hosts: int = 1, policy: Policy | None = None) -> None:
        self.scheduler = Scheduler()
        self.now = 1_000_000
        self.tree = tree(shares, policy, hosts)
        self.last: list[Decision] = []
        self.do(BudgetsApplied(self.tree, "c1"))
        for number in range(1, hosts + 1):
            self.do(HostReported(f"h{number}", "p", 8))

    def do(self, event: Event) -> list[str]:
        self.last = self.scheduler.handle(event, self.now * MINUTE)
        self.scheduler.check()
        return [word for word in map(short, self.last) if word]

    def wait(self, minutes: int) -> list[str]:
        """Let time pass; the scheduler is woken when it asks for it."""
        until, words = (self.now + minutes) * MINUTE, []
        while (due := self.scheduler.next_wakeup()) is not None and due < until:
            self.last = self.scheduler.handle(Woke(), due)
            words += [word for word in map(short, self.last) if word]
        self.now += minutes
        return words + self.do(Woke())

    def submit(self, name: str, budget: str | None, gpus: int, minutes: int, **more: Any) -> list[str]:  # noqa: ANN401 - any field
        spec = WorkloadSpec(name, "ann", budget, ("p",), gpus, min_runtime=minutes * MINUTE, resumable=True)
        return self.do(Submitted(replace(spec, **more)))

    def exit(self, name: str, outcome: Outcome = Outcome.STOPPED, attempt: int | None = None) -> list[str]:
        number = attempt or self.view(name).attempts
        return self.do(Exited(name, number, outcome))

    def view(self, name: str) -> WorkloadView:
        found = self.scheduler.workload(name)
        assert found is not None
        return found

    def budget(self, path: str) -> BudgetView:
        return next(view for view in self.scheduler.budgets(self.now * MINUTE) if view.path == path)

    def usage(self, path: str) -> int:
        """Usage in GPU-minutes."""
        return self.budget(path).usage // MINUTE

    def ranking(self) -> list[str]:
        return self.scheduler.ranking("p", self.now * MINUTE)

    def restart(self) -> None:
        self.scheduler = Scheduler.restore(json.loads(json.dumps(self.scheduler.snapshot())))


def short(decision: Decision) -> str:
    """The decisions about attempts in short words; nothing for the others."""
    match decision:
        case Start(workload, attempt):
            return f"start {workload}/{attempt}"
        case Claim(workload):
            return f"claim {workload}"
        case Stop(workload, attempt, reason, beneficiary):
            return f"stop {workload}/{attempt} {reason}" + (f" for {beneficiary}" if beneficiary else "")
        case Stopped(workload, attempt, reason):
            return f"stopped {workload}/{attempt} {reason}"
        case _:
            return ""


def stops(words: list[str]) -> list[str]:
    """Who is told to stop."""
    return [word.split()[1] for word in words if word.startswith("stop ")]


def starts(words: list[str]) -> list[str]:
    """Who starts."""
    return [word.split()[1] for word in words if word.startswith("start ")]
