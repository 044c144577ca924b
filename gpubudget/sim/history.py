"""Our own event log as a trace: what people really submitted, so that last month can be replayed under other rules.

How long each workload needs is recovered from when it started and stopped; under which budgets and on which hosts it
came stands in the log. Knows the public format only. What a log cannot say is flagged, as for every trace. The story
that is read on the way also says what became of each workload, for ``happened.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from gpubudget.core.budget import ROOT, Budget, DebugLane, Policy, Pool, Shares, Tree, parent_path
from gpubudget.core.events import BudgetsApplied
from gpubudget.core.workload import WorkloadSpec
from gpubudget.errors import InvalidInputError
from gpubudget.sim.eventfile import Finding, Line, lines_of, read
from gpubudget.sim.played import Costs
from gpubudget.sim.result import Preemption, Span
from gpubudget.sim.submission import BadRow, Ending, Failure, Fault, Scenario, SimHost, Submission, Workloads
from gpubudget.sim.traces import unpacked
from gpubudget.units import MINUTE, count, format_duration

_KEEPS = frozenset({"preempted", "drained", "forced"})
_AWAY = {"lost": Fault.LOST, "draining": Fault.DRAIN}
_STILL_AWAY = 365 * 24 * 60 * MINUTE


@dataclass(slots=True)
class Told:
    """A workload as far as the log has told of it, in milliseconds.

    ``started`` is when its attempt had started up, ``done`` the run time that counts. ``begun`` is the line of its
    attempt's start, ``reasons`` are those of all its stops, ``over`` is when it ended.
    """

    at: int
    spec: WorkloadSpec
    line: int
    budget: str | None
    started: int | None = None
    leaving: int | None = None
    saved: int | None = None
    done: int = 0
    ran: bool = False
    ending: Ending | None = None
    cut: bool = False
    gives_up: int | None = None
    refused: str = ""
    begun: Line | None = None
    spans: list[Span] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    over: int | None = None
    pool: str = ""
    lane: bool = False
    why: str = ""
    """Why it is held."""


@dataclass(slots=True)
class _Away:
    """A host that is not at work: since when, since when it is empty, and why."""

    at: int
    fault: Fault
    reason: str
    empty: int | None = None


@dataclass(slots=True)
class Story:
    """All that the log has told so far."""

    start_up: int
    trees: list[tuple[int, Tree]] = field(default_factory=list)
    hosts: dict[str, SimHost] = field(default_factory=dict)
    away: dict[str, _Away] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    workloads: dict[str, Told] = field(default_factory=dict)
    preemptions: list[Preemption] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    pools: dict[str, None] = field(default_factory=dict)
    begin: int | None = None
    end: int = 0
    lines: int = 0
    strange: int = 0
    """Lines about workloads of which nothing had been told."""


def read_history(path: Path, start_up: int = Costs().start_up) -> Scenario:
    """The scenario that an event log tells of: its budgets, hosts, workloads and what happened to its hosts.

    ``start_up`` is for how long an attempt that is not the first is taken to have done nothing yet.
    """
    story = read_story(path, start_up)
    for name in list(story.away):
        _back(story, name, max(story.end, story.away[name].at) + _STILL_AWAY)
    found, assumptions = _submissions(story)
    if not found:
        raise InvalidInputError(f"{path} tells of no workload that ran", hint="replay a log of a longer time")
    events = tuple((at, BudgetsApplied(tree)) for at, tree in story.trees[1:])
    failures = tuple(sorted(story.failures, key=lambda failure: failure.at))
    bad = tuple(sorted(story.bad, key=lambda row: row.line))
    workloads = Workloads(path.name, found, assumptions, bad, failures, events)
    return Scenario(story.trees[0][1], tuple(story.hosts.values()), workloads)


def read_story(
    path: Path, start_up: int = Costs().start_up, heard: Callable[[Line], None] = lambda _line: None
) -> Story:
    """All that an event log tells; InvalidInputError where that is no budgets, no hosts or no workloads.

    ``heard`` is called with each sound line.
    """
    story = Story(start_up)
    with unpacked(path) as file:
        _listen(story, lines_of(file), heard)
    if not story.trees or not story.hosts or not story.workloads:
        what = "budgets" if not story.trees else "hosts" if not story.hosts else "workloads"
        first = f"; line {story.bad[0].line}: {story.bad[0].why}" if story.bad else ""
        raise InvalidInputError(
            f"{path} tells of no {what}{first}", hint="`gpubudget get events -o jsonl` prints a whole log"
        )
    return story


def _listen(story: Story, lines: Iterable[bytes], heard: Callable[[Line], None]) -> None:
    for line in read(lines):
        if isinstance(line, Finding):
            story.bad.append(BadRow(line.line, line.message))
            continue
        heard(line)
        story.lines += 1
        story.begin = line.at if story.begin is None else story.begin
        story.end = line.at
        if line.kind == "budgets_applied":
            try:
                story.trees.append((line.at, _tree(line.data)))
            except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
                story.bad.append(BadRow(line.number, "its pools, budgets or policy make no tree"))
        elif line.kind == "host":
            _host(story, line)
        elif line.kind == "submitted":
            data = line.data
            story.workloads[data["workload"]] = Told(line.at, _spec(data), line.number, data["budget"])
        elif (told := story.workloads.get(line.data.get("workload", ""))) is not None:
            _tell(story, told, line)
        else:
            story.strange += 1


def _tell(story: Story, told: Told, line: Line) -> None:
    data = line.data
    match line.kind:
        case "started":
            told.started = line.at + (story.start_up if told.ran else 0)
            told.saved, told.leaving, told.ran = None, None, True
            told.begun, told.pool = line, data.get("pool") or told.spec.pools[0]
            story.pools[told.pool] = None
            told.lane = told.lane or bool(data.get("lane"))
        case "checkpoint":
            told.saved = line.at
        case "stopping":
            told.leaving = line.at
        case "moved":
            told.budget = data["budget"]
        case "refused":
            told.refused, told.over = data["reason"], line.at
        case "held":
            told.why = data["reason"]
        case "requeued":
            told.ending, told.cut, told.over = None, False, None
            told.why = data.get("held", "")
            if data.get("reason") == "failed":
                told.done = 0
                told.spans = [span._replace(lost=span.ended - span.started) for span in told.spans]
        case "stopped":
            before, leaving = told.done, told.leaving
            _stopped(told, line.at, data)
            if data["attempt"]:
                _span(story, told, line, told.done - before, leaving)
            told.over = line.at
        case _:
            pass


def _span(story: Story, told: Told, line: Line, brought: int, leaving: int | None) -> None:
    """Write down what an attempt held, and who made way for whom; ``brought`` is what it brought the workload forward.

    What ends preempted has nothing to show for it.
    """
    begun, reason = told.begun, line.data["reason"]
    if begun is None:
        return
    held = line.at - begun.at
    lost = held if told.cut or brought < 0 else min(held, max(0, held - brought))
    told.spans.append(Span(begun.at, line.at, lost))
    told.reasons.append(reason)
    told.begun = None
    if reason == "preempted":
        name, spec = line.data.get("for") or "", told.spec
        helped = story.workloads.get(name)
        story.preemptions.append(
            Preemption(
                line.at if leaving is None else leaving, spec.id, line.data["attempt"], told.budget,
                begun.data["allocated"], spec.gpus, begun.at, begun.data["protected_until_ms"], lost * spec.gpus,
                name, None if helped is None else helped.budget,
            )
        )  # fmt: skip


def _stopped(told: Told, at: int, data: dict[str, Any]) -> None:
    """An attempt is over: how much of it counts for how long the workload needs."""
    reason = data["reason"]
    if data["attempt"] == 0 or told.started is None:
        told.gives_up, told.ending = at, Ending.CANCELLED
        return
    started, told.started = told.started, None
    if reason in {"finished", "failed", "cancelled"}:
        until = told.leaving if reason == "cancelled" and told.leaving is not None else at
        told.done += max(0, until - started)
        told.ending = Ending(reason)
        return
    kept = told.saved if told.saved is not None else told.leaving if reason in _KEEPS else None
    if told.spec.resumable:
        told.done += max(0, (started if kept is None else kept) - started)
    else:
        told.cut = reason == "preempted"
        told.done = max(0, at - started) if told.cut else 0
    told.ending = Ending.FINISHED if told.cut else None


def _submissions(story: Story) -> tuple[tuple[Submission, ...], tuple[str, ...]]:
    """The workloads whose run time is known or can be guessed, in order; the others are bad rows."""
    found: list[Submission] = []
    still = cut = 0
    for told in story.workloads.values():
        done, ending = told.done, told.ending or Ending.FINISHED
        if told.started is not None:
            done += max(0, story.end - told.started)
        if told.gives_up is not None:
            done = max(done, told.gives_up - told.at)
        if told.refused or (not told.ran and told.gives_up is None):
            why = f"it was refused: {told.refused}" if told.refused else "it had not started when the log ended"
            story.bad.append(BadRow(told.line, f"workload {told.spec.id}: {why}; nobody knows how long it runs"))
            continue
        still += told.ending is None
        cut += told.cut
        spec = told.spec if told.budget == told.spec.budget else _charged(told.spec, told.budget)
        found.append(Submission(told.at, spec, max(1, done), ending, told.gives_up))
    again = format_duration(story.start_up)
    needs = f"without what was lost when it was stopped, and without {again} of each start but the first"
    notes = [f"How long each workload needs is what it ran in the log, {needs}."]
    if still:
        notes.append(f"{count(still, 'workload')} had not ended in the log: taken to need no more than they had run.")
    notes += strangers(story)
    if cut:
        notes.append(
            f"{count(cut, 'workload')} ended preempted in the log: taken to need what they had run until then."
        )
    if any(told.gives_up is not None for told in story.workloads.values()):
        notes.append(
            "Workloads that were cancelled while they waited are cancelled at the same moment, whatever they do."
        )
    return tuple(found), tuple(notes)


def strangers(story: Story) -> list[str]:
    """That lines were left out, if any were."""
    told = f"{count(story.strange, 'line')} left out, about workloads of which nothing was told before."
    return [told] if story.strange else []


def _charged(spec: WorkloadSpec, budget: str | None) -> WorkloadSpec:
    return WorkloadSpec(
        spec.id, spec.owner, budget, spec.pools, spec.gpus, spec.hosts, spec.min_runtime, spec.max_runtime,
        spec.resumable, spec.debug, spec.priority,
    )  # fmt: skip


def _spec(data: dict[str, Any]) -> WorkloadSpec:
    pools = data.get("pools") or [data.get("pool") or "default"]
    hosts = data.get("hosts")
    if hosts is None and data.get("gpus_per_host"):
        hosts = max(1, data["gpus"] // data["gpus_per_host"])
    return WorkloadSpec(
        data["workload"],
        str(data.get("owner") or ""),
        data["budget"],
        tuple(pools),
        data["gpus"],
        hosts,
        data["min_runtime_ms"],
        data.get("max_runtime_ms"),
        resumable=bool(data.get("resumable")),
        debug=bool(data.get("debug")),
        priority=data.get("priority", 0),
    )


def _host(story: Story, line: Line) -> None:
    name, state = line.data["host"], line.data["state"]
    if "pool" in line.data and "gpus" in line.data:
        story.pools[line.data["pool"]] = None
        story.hosts.setdefault(name, SimHost(name, line.data["pool"], line.data["gpus"]))
    if state == "ready":
        _back(story, name, line.at)
    elif state in _AWAY and name not in story.away:
        story.away[name] = _Away(line.at, _AWAY[state], str(line.data.get("reason", "")))
    elif state == "drained" and name in story.away:
        story.away[name].empty = line.at


def _back(story: Story, name: str, at: int) -> None:
    """A host is at work again: it failed, and its repair took from when it was empty until now."""
    away = story.away.pop(name, None)
    if away is not None:
        since = away.at if away.empty is None or away.fault is Fault.LOST else away.empty
        story.failures.append(Failure(away.at, name, away.fault, at - since, away.reason))


def _tree(data: dict[str, Any]) -> Tree:
    """The tree of a ``budgets_applied`` line."""
    below: dict[str, list[dict[str, Any]]] = {}
    rows = {row["path"]: row for row in data["budgets"]}
    for path, row in rows.items():
        if path != ROOT:
            below.setdefault(parent_path(path), []).append(row)
    pools = [Pool(str(p["pool"]), int(p["gpus_per_host"]), int(p["hosts"])) for p in data.get("pools", [])]
    root = rows.get(ROOT, {"path": ROOT, "share": "1/1"})
    return Tree(_budget(root, below), tuple(pools), _policy(data["policy"]), str(data.get("cluster", "cluster")))


def _budget(row: dict[str, Any], below: dict[str, list[dict[str, Any]]]) -> Budget:
    by_pool = tuple((pool, Fraction(share)) for pool, share in (row.get("shares") or {}).items())
    return Budget(
        row["path"],
        Shares(Fraction(row["share"]), by_pool),
        managers=tuple(row.get("managers", ())),
        members=tuple(row.get("members", ())),
        previously=row.get("previously"),
        children=tuple(_budget(child, below) for child in below.get(row["path"], ())),
    )


def _policy(data: dict[str, Any]) -> Policy:
    usual = Policy()
    times = {
        name: data.get(f"{name}_ms", getattr(usual, name))
        for name in (
            "lookback", "max_min_runtime", "rebalance_interval", "grace_period", "failed_soon", "preempt_backoff",
            "max_preempt_backoff",
        )
    }  # fmt: skip
    lane = data.get("debug")
    if lane is None:
        return Policy(**times)
    usual_lane = DebugLane(lane["gpus"])
    return Policy(
        **times,
        debug=DebugLane(
            lane["gpus"],
            lane.get("max_gpus", usual_lane.max_gpus),
            lane.get("max_runtime_ms", usual_lane.max_runtime),
            lane.get("per_person", usual_lane.per_person),
            lane.get("allowance_gpu_ms", usual_lane.allowance),
        ),
    )
