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

from gpubudget.core import scheduler as scheduler_module
from gpubudget.core.budget import Budget, Policy, Pool, Shares, Tree
from gpubudget.core.decisions import Decision, Start, Stop
from gpubudget.core.events import BudgetsApplied, Event, Exited, HostReported, Outcome, Submitted, Woke
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadSpec
from gpubudget.units import DAY, HOUR, MINUTE, SECOND

SIZES = [1, 2, 4, 8, 16, 32, 64]
WEIGHTS = [50, 15, 12, 15, 5, 2, 1]


def tree(hosts: int) -> Tree:
    """5 programs of 6 projects of 5 researchers, with uneven shares."""
    programs = []
    for p, program_share in enumerate((30, 25, 20, 15, 10)):
        projects = []
        for j, project_share in enumerate((25, 20, 15, 15, 15, 10)):
            path = f"p{p}/j{j}"
            people = tuple(
                Budget(f"{path}/u{u}", Shares(Fraction(share, 100)), members=(f"p{p}j{j}u{u}",))
                for u, share in enumerate((30, 20, 20, 20, 10))
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
        self.calls: list[float] = []

    def push(self, at: int, event: Event) -> None:
        self.number += 1
        heapq.heappush(self.queue, (at, self.number, event))

    def submit_next(self, now: int) -> None:
        gap, runtime, spec = self.load.draw()
        self.left[spec.id] = runtime
        self.push(now + gap, Submitted(spec))

    def follow(self, decisions: list[Decision], now: int) -> None:
        for decision in decisions:
            if isinstance(decision, Start):
                self.started[decision.workload] = now
                self.counts["protection"] += decision.allocated
                self.counts["edge"] += 2
                self.push(
                    now + self.left[decision.workload], Exited(decision.workload, decision.attempt, Outcome.FINISHED)
                )
            elif isinstance(decision, Stop):
                self.counts["stopped"] += 1
                self.left[decision.workload] = max(
                    1, self.left[decision.workload] - now + self.started[decision.workload]
                )
                self.push(now + 5 * SECOND, Exited(decision.workload, decision.attempt, Outcome.STOPPED))

    def step(self) -> int:
        scheduler = self.scheduler
        wake = scheduler.next_wakeup()
        event: Event
        if wake is not None and wake < self.queue[0][0]:
            now, event = wake, Woke()
        else:
            now, _, event = heapq.heappop(self.queue)
        if isinstance(event, Exited):
            workload = scheduler.state.workloads.get(event.workload)
            attempt = workload.attempt if workload else None
            if attempt is None or attempt.number != event.attempt:
                return now
            if attempt.stopping and event.outcome is Outcome.FINISHED:
                return now
            self.counts["exited"] += 1
        elif isinstance(event, Submitted):
            self.counts["submitted"] += 1
            self.submit_next(now)
        else:
            self.counts["woke"] += 1
        start = time.perf_counter()
        decisions = scheduler.handle(event, now)
        self.calls.append(time.perf_counter() - start)
        self.follow(decisions, now)
        return now


def leaving(scheduler: Scheduler) -> int:
    """Changes of occupancy that are still inside the window."""
    pool = scheduler.state.pools["h100"]
    return len(pool.budgets.ledger.edges) + len(pool.fillers.ledger.edges)


def main() -> None:
    """Warm up until the window is full, then measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warm-up", type=int, default=7, help="days before measuring: the lookback window")
    parser.add_argument("--days", type=int, default=3, help="days to measure")
    parser.add_argument("--hosts", type=int, default=128, help="hosts of 8 GPUs")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    scheduler = Scheduler()
    shares = tree(arguments.hosts)
    scheduler.handle(BudgetsApplied(shares), 0)
    for number in range(arguments.hosts):
        scheduler.handle(HostReported(f"h{number:03}", "h100", 8), 0)
    paths = [budget.path for budget in shares.budgets() if not budget.children]
    run = Run(Load(arguments.seed, 8 * arguments.hosts, 2.5, paths), scheduler)
    run.submit_next(0)
    now = 0
    while now < arguments.warm_up * DAY:
        now = run.step()
    before, inside, run.calls = dict(run.counts), leaving(scheduler), []
    began, cpu = time.perf_counter(), time.process_time()
    while now < (arguments.warm_up + arguments.days) * DAY:
        now = run.step()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    counts = {name: count - before[name] for name, count in run.counts.items()}
    counts["edge"] += inside - leaving(scheduler)
    report(f"{8 * arguments.hosts:,} GPUs", counts, sorted(run.calls), wall, cpu, len(scheduler.state.workloads))
    scheduler.check()


def report(size: str, counts: dict[str, int], calls: list[float], wall: float, cpu: float, waiting: int) -> None:
    """Print what was measured."""
    build = "compiled" if not scheduler_module.__file__.endswith(".py") else "plain interpreter"
    events = counts["submitted"] + counts["exited"] + counts["protection"] + counts["edge"]
    inside = sum(calls)
    print(f"core ({build}): 150 leaf budgets, {size}, demand x2.5, {waiting} workloads at the end")
    parts = {
        "submissions": counts["submitted"],
        "exits": counts["exited"],
        "ends of protection": counts["protection"],
        "changes at the window's edge": counts["edge"],
    }
    print(f"  {events:,} events: " + ", ".join(f"{count:,} {name}" for name, count in parts.items()))
    print(f"  {counts['stopped']:,} attempts were told to stop")
    print(
        f"  {events / inside:,.0f} events/s, {counts['submitted'] / inside:,.0f} workloads/s inside the core; "
        f"{inside:.2f} s, with this driver {wall:.2f} s wall, {cpu:.2f} s CPU"
    )
    print(
        f"  a call: median {calls[len(calls) // 2] * 1e6:.0f} us, p99 {calls[len(calls) * 99 // 100] * 1e6:.0f} us, "
        f"largest {calls[-1] * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main()
