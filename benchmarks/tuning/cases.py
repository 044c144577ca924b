"""The runs of the tuning study: what is played, and the figures that are kept of it.

A run is known by its settings and the source of scheduler and simulator, so nothing stale is taken. It ends with the
last submission: what waits then counts with the time that it has waited.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from gpubudget.core.budget import DebugLane, Tree
from gpubudget.core.workload import WorkloadSpec
from gpubudget.sim.assume import Assumed
from gpubudget.sim.engine import Settings, simulate
from gpubudget.sim.figures import nearest_rank
from gpubudget.sim.gputime import GpuTime
from gpubudget.sim.measures import Measures, debug_waits, measure
from gpubudget.sim.policies import policy
from gpubudget.sim.prepare import POOL, Choice, Rules, prepare
from gpubudget.sim.result import Result, Row
from gpubudget.sim.submission import Scenario, Submission
from gpubudget.sim.sweep import Keys, Point
from gpubudget.sim.synthetic import people
from gpubudget.sim.waits import Waits, first_wait
from gpubudget.units import DAY, HOUR, MINUTE, SECOND

NO_LIMIT = 10_000 * DAY
CHEAT = "cheat"
PIECE = 15 * MINUTE
WAYS = {"long": 12 * HOUR, "pieces": PIECE, "chain": PIECE}
"""Workloads of 12 hours (with 4 hours of minimum runtime), ordinary ones of 15 minutes, and such debug workloads."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run. ``cluster`` is ``lab-88``, ``lab`` or a trace with its hosts.

    ``sessions`` are debug sessions a person and working day. ``cheats`` people ask for GPUs all the time, and for
    nothing else: ``how`` says how many, in which of the ``WAYS`` (``4 long``, or two of them: ``4 long + 8 chain``).
    In a ``crowd`` everybody else asks for 4 GPUs all the time, too.
    """

    cluster: str
    seed: int = 1
    days: int = 7
    load: str = "5/2"
    sessions: str = "1/5"
    lane: int = 8
    per_person: int = 1
    allowance: int = 4 * HOUR
    lookback: int = 7 * DAY
    longest: int = 8 * HOUR
    unallocated: str = "0"
    policy: str = "gpubudget"
    cheats: int = 0
    how: str = ""
    crowd: bool = False

    @property
    def choice(self) -> Choice:
        """What the simulator is to play, but for the lane and those who cheat."""
        assumed = Assumed(self.seed, unallocated=Fraction(self.unallocated))
        rules, sessions = Rules(self.lookback, self.longest, self.lane), Fraction(self.sessions)
        if self.cluster in {"lab", "lab-88"}:
            return Choice(
                preset=self.cluster, days=self.days, load=Fraction(self.load), debug_sessions=sessions,
                assumed=assumed, rules=rules,
            )  # fmt: skip
        name, _, hosts = self.cluster.partition(" on ")
        return Choice(
            Path(os.environ["GPUBUDGET_SHARED"]) / "traces" / f"{name}.csv.gz", from_groups=True, hosts=int(hosts),
            debug_sessions=sessions, assumed=assumed, rules=rules,
        )  # fmt: skip

    def scenario(self) -> Scenario:
        """What is played."""
        found = prepare(self.choice)
        lane = DebugLane(self.lane, min(8, self.lane), PIECE, self.per_person, self.allowance) if self.lane else None
        tree = replace(found.tree, policy=replace(found.tree.policy, debug=lane))
        return cheated(replace(found, tree=tree), self) if self.cheats else replace(found, tree=tree)

    def play(self) -> Result:
        """The result of the run."""
        found = self.scenario()
        end = found.workloads.submissions[-1].at
        return simulate(found, policy(self.policy).make(), Settings(self.policy, until=end))


def cheaters(tree: Tree, many: int) -> list[tuple[str, str]]:
    """So many people and their budgets, spread evenly over the tree."""
    everybody = people(tree)
    return [(each.name, each.budget) for each in everybody[len(everybody) // (2 * many) :: len(everybody) // many]][
        :many
    ]


def cheated(scenario: Scenario, case: Case) -> Scenario:
    """The scenario in which some people do nothing but ask for long work, in the way of the case."""
    who = cheaters(scenario.tree, case.cheats)
    span = scenario.workloads.submissions[-1].at
    if case.crowd:
        everybody = [(each.name, each.budget) for each in people(scenario.tree)]
        rest = [each for each in scenario.workloads.submissions if each.spec.debug]
        work = [each for one in everybody if one not in who for each in _steady(one, 0, "4 long", span, "crowd")]
    else:
        rest, work = list(scenario.workloads.submissions), []
    names = {name for name, _ in who}
    work += [each for each in rest if each.spec.owner not in names]
    work += [each for one in who for part in enumerate(case.how.split(" + ")) for each in _steady(one, *part, span)]
    work.sort(key=lambda each: (each.at, each.spec.id))
    return replace(scenario, workloads=replace(scenario.workloads, submissions=tuple(work)))


def _steady(who: tuple[str, str], number: int, how: str, span: int, what: str = CHEAT) -> list[Submission]:
    """One person's workloads in one way, one after the other for all of the time."""
    gpus, way = how.split()
    (name, budget), every = who, WAYS[way]
    spec = WorkloadSpec(
        "", name, budget, (POOL,), int(gpus),
        min_runtime=min(4 * HOUR, every), max_runtime=None if way == "long" else PIECE, debug=way == "chain",
        resumable=way == "long",
    )  # fmt: skip
    return [
        Submission(at, replace(spec, id=f"{what}-{name}-{number}-{at // every}"), every - SECOND)
        for at in range(0, span, every)
    ]


# What is told of a run


def figures(case: Case) -> dict[str, Any]:
    """The figures of a run, as plain numbers: waits in milliseconds, GPU-time in GPU-hours, the rest as parts of 1."""
    result = case.play()
    measures, end = measure(result), result.end
    honest = replace(result, rows=tuple(row for row in result.rows if not row.id.startswith(CHEAT)))
    cheats = [row for row in result.rows if row.id.startswith(CHEAT)]
    others = [row for row in honest.rows if not row.debug]
    sizes = {gpus: [row for row in honest.rows if row.debug and row.gpus == gpus] for gpus in (1, 2, 4, 8)}
    found = {_short(one): _told(one) for one in debug_waits(GpuTime(honest))}
    found |= {f"debug {gpus}": _quantiles(first_wait(row, end) for row in rows) for gpus, rows in sizes.items() if rows}
    found["others"] = _quantiles(first_wait(row, end) for row in others)
    return {
        **found,
        "others GPU-h": gpu_hours(others, end),
        "debug GPU-h": gpu_hours((row for row in honest.rows if row.debug), end),
        "cheats GPU-h": gpu_hours(cheats, end),
        "cheats in the lane": gpu_hours((row for row in cheats if row.lane), end),
        **_of_all(measures),
        "programs": {each.path: _part(each.delivered_gpu_ms, each.entitled_gpu_ms) for each in measures.programs},
        "program waits": {each.path: each.waits.first.p50_ms for each in measures.programs},
    }


def _of_all(measures: Measures) -> dict[str, Any]:
    fair = measures.fairness
    return {
        "occupancy": _number(measures.pyramid.occupancy),
        "impact": _number(measures.pyramid.impact),
        "share error": _number(fair.programs.mean_error),
        "Jain": _number(fair.programs.jain),
        "no later than alone": _number(fair.finish_times.no_worse),
        "preemptions": measures.preemptions.count,
        "lost GPU-h": measures.lost_gpu_ms / HOUR,
    }


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _part(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _short(one: Waits) -> str:
    return one.name.removeprefix("debug, ")


def _told(one: Waits) -> dict[str, Any]:
    return {"n": one.workloads, "p50": one.first.p50_ms, "p90": one.first.p90_ms, "p99": one.first.p99_ms}


def _quantiles(waits: Iterable[int]) -> dict[str, Any]:
    ordered = sorted(waits)
    return {"n": len(ordered), **{f"p{percent}": nearest_rank(ordered, percent) for percent in (50, 90, 99)}}


def gpu_hours(rows: Iterable[Row], end: int) -> float:
    """The GPU-hours that they held until ``end``."""
    return sum(row.gpus * (min(span.ended, end) - span.started) for row in rows for span in row.spans) / HOUR


# Playing


def played(cases: Sequence[Case], path: Path, processes: int) -> dict[Case, dict[str, Any]]:
    """The figures of all cases, those of the file and those that are missing there."""
    keys = Keys()
    wanted = {f"{keys.of(Point((), case.seed, case.policy, case.choice))} {case}": case for case in cases}
    known = {}
    if path.exists():
        known = {line["key"]: line["figures"] for line in map(json.loads, path.read_text().splitlines())}
    missing = [key for key in wanted if key not in known]
    with path.open("a") as file, ProcessPoolExecutor(processes) as pool:
        playing = {pool.submit(figures, wanted[key]): key for key in missing}
        for number, done in enumerate(as_completed(playing), start=1):
            key = playing[done]
            known[key] = done.result()
            file.write(json.dumps({"key": key, "case": asdict(wanted[key]), "figures": known[key]}) + "\n")
            file.flush()
            print(f"{number} of {len(missing)}: {wanted[key]}", flush=True)
    return {case: known[key] for key, case in wanted.items()}
