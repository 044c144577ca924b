"""How many events a second the scheduler core handles, in overload, on one core.

A cluster of 1,024 GPUs, 150 leaf budgets three levels deep, and a demand of 2.5 times the capacity, seeded. Events are
submissions, exits, ends of protection and changes at the window's edge, each with the pass it causes; wake-ups that
only look for changes of rank cost time but are not counted. Prints the rate, its parts and the largest passes.
"""

from __future__ import annotations

import argparse
import heapq
import random
import time
from fractions import Fraction

from gpubudget.core.budget import Budget, Policy, Pool, Shares, Tree
from gpubudget.core.decisions import Decision, Start, Stop
from gpubudget.core.events import BudgetsApplied, Event, Exited, HostReported, Outcome, Submitted, Woke
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadSpec
from gpubudget.units import DAY, HOUR, MINUTE, SECOND

SIZES = [1, 2, 4, 8, 16, 32, 64]
WEIGHTS = [50, 15, 12, 15, 5, 2, 1]


def tree(leaves: int = 150, hosts: int = 128) -> Tree:
    """5 programs of 6 projects of 5 researchers, with uneven shares."""
    programs = []
    for p, program_share in enumerate((30, 25, 20, 15, 10)):
        projects = []
        for j, project_share in enumerate((25, 20, 15, 15, 15, 10)):
            path = f"p{p}/j{j}"
            people = tuple(
                Budget(f"{path}/u{u}", Shares(Fraction(share, 100)), members=(f"p{p}j{j}u{u}",))
                for u, share in enumerate((30, 20, 20, 20, 10)[: leaves // 30])
            )
            projects.append(Budget(path, Shares(Fraction(project_share, 100)), children=people))
        programs.append(Budget(f"p{p}", Shares(Fraction(program_share, 100)), children=tuple(projects)))
    root = Budget("/", Shares(Fraction(1)), children=tuple(programs))
    return Tree(root, (Pool("h100", 8, hosts),), Policy())


class Load:
    """Draws workloads whose demand is ``times`` what ``gpus`` GPUs can serve."""

    def __init__(self, seed: int, gpus: int, times: float, paths: list[str]) -> None:
        self.random = random.Random(seed)
        self.paths = paths
        self.weights = [1 / (i + 1) ** 0.9 for i in range(len(paths))]
        self.random.shuffle(self.weights)
        mean = sum(s * w for s, w in zip(SIZES, WEIGHTS, strict=True)) / sum(WEIGHTS) * 3.0 * HOUR
        self.gap = mean / (gpus * times)
        self.count = 0

    def draw(self) -> tuple[int, int, WorkloadSpec]:
        """The time until the next submission, the run time, and the workload."""
        r = self.random
        runtime = max(30 * SECOND, int(r.lognormvariate(0, 1.6) * 3.0 * HOUR / 3.6))
        self.count += 1
        unallocated = r.random() < 0.15
        least = 0 if unallocated else min(8 * HOUR, max(MINUTE, runtime * r.randint(2, 10) // 10 // MINUTE * MINUTE))
        path = r.choices(self.paths, self.weights)[0]
        gpus = r.choices(SIZES, WEIGHTS)[0]
        spec = WorkloadSpec(f"w{self.count}", path, path, ("h100",), gpus, min_runtime=least, resumable=True)
        return int(r.expovariate(1 / self.gap)), runtime, spec


class Run:
    """Drives a scheduler through a load."""

    def __init__(self, load: Load, scheduler: Scheduler) -> None:
        self.load, self.scheduler = load, scheduler
        self.queue: list[tuple[int, int, Event]] = []
        self.number = 0
        self.left: dict[str, int] = {}
        self.started: dict[str, int] = {}
        self.counts = dict.fromkeys(("submitted", "exited", "stopped", "protection", "edge", "woke"), 0)
        self.passes: list[float] = []

    def push(self, at: int, event: Event) -> None:
        self.number += 1
        heapq.heappush(self.queue, (at, self.number, event))

    def submit_next(self, now: int) -> None:
        gap, runtime, spec = self.load.draw()
        self.left[spec.id] = runtime
        self.push(now + gap, Submitted(spec))

    def follow(self, decisions: list[Decision], now: int) -> None:
        for decision in decisions:
            if type(decision) is Start:
                self.started[decision.workload] = now
                self.counts["protection"] += decision.allocated
                self.counts["edge"] += 2
                self.push(now + self.left[decision.workload], Exited(decision.workload, decision.attempt, Outcome.FINISHED))
            elif type(decision) is Stop:
                self.counts["stopped"] += 1
                self.left[decision.workload] = max(1, self.left[decision.workload] - now + self.started[decision.workload])
                self.push(now + 5 * SECOND, Exited(decision.workload, decision.attempt, Outcome.STOPPED))

    def step(self) -> int:
        scheduler = self.scheduler
        wake = scheduler.next_wakeup()
        if wake is not None and wake < self.queue[0][0]:
            now, event = wake, Woke()
        else:
            now, _, event = heapq.heappop(self.queue)
        if type(event) is Exited:
            workload = scheduler.state.workloads.get(event.workload)
            attempt = workload.attempt if workload else None
            if attempt is None or attempt.number != event.attempt:
                return now
            if attempt.stopping and event.outcome is Outcome.FINISHED:
                return now
            self.counts["exited"] += 1
        elif type(event) is Submitted:
            self.counts["submitted"] += 1
            self.submit_next(now)
        else:
            self.counts["woke"] += 1
        start = time.perf_counter()
        decisions = scheduler.handle(event, now)
        self.passes.append(time.perf_counter() - start)
        self.follow(decisions, now)
        return now


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="check all invariants now and then")
    arguments = parser.parse_args()
    scheduler = Scheduler()
    shares = tree()
    scheduler.handle(BudgetsApplied(shares), 0)
    for number in range(128):
        scheduler.handle(HostReported(f"h{number:03}", "h100", 8), 0)
    paths = [budget.path for budget in shares.budgets() if not budget.children]
    run = Run(Load(arguments.seed, 1024, 2.5, paths), scheduler)
    run.submit_next(0)
    began, now, steps = time.perf_counter(), 0, 0
    while now < arguments.days * DAY:
        now = run.step()
        steps += 1
        if arguments.check and steps % 500 == 0:
            scheduler.check()
    wall = time.perf_counter() - began
    inside = sum(run.passes)
    edges = run.counts["edge"] - 2 * 0
    remaining = len(scheduler.state.pools["h100"].budgets.ledger.edges) + len(scheduler.state.pools["h100"].fillers.ledger.edges)
    events = run.counts["submitted"] + run.counts["exited"] + run.counts["protection"] + max(edges - remaining, 0)
    ordered = sorted(run.passes)
    print(f"core: {arguments.days} days, {len(paths)} leaf budgets, 1024 GPUs, demand x2.5, seed {arguments.seed}")
    print(f"  {run.counts}, waiting at the end {len(scheduler.state.workloads)}")
    print(f"  {events} events, {steps} calls; inside the core {inside:.2f} s, with the driver {wall:.2f} s")
    print(f"  {events / inside:,.0f} events/s; {run.counts['submitted'] / inside:,.0f} workloads/s")
    print(f"  a call: median {ordered[len(ordered) // 2] * 1e6:.0f} us, p99 {ordered[len(ordered) * 99 // 100] * 1e6:.0f} us, "
          f"largest {ordered[-1] * 1e3:.1f} ms")
    scheduler.check()


if __name__ == "__main__":
    main()
