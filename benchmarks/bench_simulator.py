"""How many workloads a second the simulator plays, with the full policy, on one core and with the event log off.

Real traces from the folder that GPUBUDGET_SHARED names (skipped where it is not set), each in a process of its own so
that its peak of memory is its own; then what a workload costs at ten times the length and at ten times the queue. The
bars: 20,000 workloads a second (10,000 in the plain interpreter where a compiled build reaches them), the overloaded
trace no slower than twice the other, less than 500 MB, and growth of less than 1.5 times.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from gpubudget.core import scheduler as scheduler_module
from gpubudget.sim.engine import Settings, simulate
from gpubudget.sim.policies import policy
from gpubudget.sim.prepare import Choice, prepare
from gpubudget.sim.submission import Scenario, Submission, Workloads
from gpubudget.units import DAY

TRACES = (("philly28_704", 88), ("philly7_176", 22), ("philly_vc", 88), ("helios_venus_all", 128))
WEEKS = 7 * DAY
HEADER = f"{'trace':<24} {'hosts':>5} {'workloads':>9} {'events':>9} {'wall s':>7} {'CPU s':>7} {'per s':>8} {'MB':>5}"


def traces() -> Path | None:
    shared = os.environ.get("GPUBUDGET_SHARED")
    return Path(shared) / "traces" if shared else None


def scenario(name: str, hosts: int) -> Scenario:
    """A trace with a budget of each group; one whose name ends in ``*10`` comes ten times, one after the other."""
    folder = traces()
    assert folder is not None
    name, longer, times = name.partition("*")
    found = prepare(Choice(folder / f"{name}.csv.gz", from_groups=True, hosts=hosts))
    return replace(found, workloads=repeated(found.workloads, int(times))) if longer else found


def repeated(workloads: Workloads, times: int) -> Workloads:
    """The same weeks again and again, each with ids of its own."""
    submissions = workloads.submissions
    span = -(-(submissions[-1].at - submissions[0].at) // WEEKS) * WEEKS
    found = [
        Submission(each.at + turn * span, replace(each.spec, id=f"{each.spec.id}-{turn}"), each.run_time, each.ending)
        for turn in range(times)
        for each in submissions
    ]
    return replace(workloads, submissions=tuple(found))


def longest_queue(result_rows: list[tuple[int, int | None]]) -> int:
    """How many waited for their first start at once, at most."""
    changes = sorted((at, step) for came, began in result_rows for at, step in ((came, 1), (began or 1 << 62, -1)))
    most = now = 0
    for _, step in changes:
        now += step
        most = max(most, now)
    return most


def measure(name: str, hosts: int, scheduler: str) -> None:
    """Play one trace in this process, and print its line and, for the parent, workloads, CPU seconds and the queue."""
    found = scenario(name, hosts)
    workloads = len(found.workloads.submissions)
    began, cpu = time.perf_counter(), time.process_time()
    result = simulate(found, policy(scheduler).make(), Settings(scheduler))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    line = f"{name:<24} {hosts:>5} {workloads:>9,} {result.events:>9,} {wall:>7.2f} {cpu:>7.2f}"
    queue = longest_queue([(row.submitted, row.first_start) for row in result.rows])
    print(f"{line} {workloads / cpu:>8,.0f} {peak:>5}|{workloads} {cpu} {queue}")
    for refusal in result.refusals:
        print(f"  {refusal.workloads:,} refused: {refusal.reason}", file=sys.stderr)


def child(name: str, hosts: int, scheduler: str) -> tuple[int, float, int]:
    """The same in a process of its own; workloads, CPU seconds, longest queue."""
    command = [sys.executable, __file__, "--one", name, "--hosts", str(hosts), "--policy", scheduler]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    shown, _, figures = done.stdout.strip().partition("|")
    print(shown, flush=True)
    workloads, cpu, queue = figures.split()
    return int(workloads), float(cpu), int(queue)


def growth(scheduler: str) -> None:
    """What a workload costs when the trace is ten times as long, and when the queue is.

    Where the hosts suffice, ten times the weeks leave the queue as it is. Where they do not, it grows with them.
    """
    pairs = (
        ("10 times the length", "philly28_704", 88),
        ("10 times the queue", "philly7_176", 22),
    )
    lines = [f"\n{'':<24} {'workloads':>9} {'queue':>7} {'us each':>8} {'growth':>7}"]
    for label, name, hosts in pairs:
        first = 0.0
        for shown, trace in (("as it is", name), (label, f"{name}*10")):
            workloads, cpu, queue = child(trace, hosts, scheduler)
            each = cpu / workloads * 1e6
            first = first or each
            lines.append(f"{shown:<24} {workloads:>9,} {queue:>7,} {each:>8.0f} {each / first:>7.2f}")
    print("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", help="play this trace only")
    parser.add_argument("--hosts", type=int, default=88)
    parser.add_argument("--policy", default="gpubudget")
    arguments = parser.parse_args()
    if traces() is None:
        print("skipped: GPUBUDGET_SHARED is not set, and the traces are not here")
        return
    if arguments.one:
        measure(arguments.one, arguments.hosts, arguments.policy)
        return
    build = "compiled" if not scheduler_module.__file__.endswith(".py") else "plain interpreter"
    print(f"simulator ({build}), policy {arguments.policy}, event log off\n{HEADER}")
    costs = {}
    for name, hosts in TRACES:
        workloads, cpu, _ = child(name, hosts, arguments.policy)
        costs[name] = cpu / workloads
    print(f"overloaded against not: {costs['philly7_176'] / costs['philly28_704']:.2f} times the cost of a workload")
    growth(arguments.policy)


if __name__ == "__main__":
    main()
