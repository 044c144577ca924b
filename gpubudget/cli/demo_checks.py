"""What the demo has to have shown, told from its event log alone: one pure function for each of (a) to (f).

Each gives a sentence in plain words about what happened, with the figures that prove it, or raises NotShownError and
says what is missing. Only that a workload went on from its own checkpoint stands elsewhere, in what it printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from gpubudget.cli.demo_workload import GOES_ON
from gpubudget.sim.audit import Auditor
from gpubudget.sim.eventfile import Line as AuditLine
from gpubudget.sim.eventfile import read
from gpubudget.sim.ledger import Standing
from gpubudget.units import about_share

Line = dict[str, Any]

SECOND = 1000
SOON = 3 * SECOND
"""What follows within this time, in milliseconds, follows at once: a process needs a moment to end."""


class NotShownError(Exception):
    """The log does not show it; the message says what is missing."""


@dataclass(slots=True)
class Attempt:
    """One attempt as the log tells it. Times in milliseconds; ``decided`` is the index of the line that chose it."""

    workload: str
    number: int
    started: Line
    decided: int
    stopping: Line | None = None
    stopped: Line | None = None
    checkpoints: list[int] = field(default_factory=list)

    @property
    def protected_until(self) -> int:
        """The end of its minimum runtime."""
        return int(self.started["protected_until_ms"])

    @property
    def hosts(self) -> list[str]:
        """Where it ran."""
        return list(self.started["placement"])

    @property
    def asked_to_stop(self) -> int | None:
        """When the scheduler stopped it, if it did."""
        return None if self.stopping is None else int(self.stopping["at"])

    def runs_at(self, moment: int) -> bool:
        """Whether it held its GPUs and had not been told to stop."""
        ends = self.stopping or self.stopped
        return bool(self.started["at"] <= moment and (ends is None or ends["at"] > moment))


class Story:
    """An event log with its parts found: who asked for what, and what became of it.

    ``names`` are what people call the workloads; ``outputs`` is what attempts printed, where that matters.
    """

    def __init__(
        self,
        lines: list[Line],
        names: Mapping[str, str] | None = None,
        outputs: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        self.lines = lines
        self.outputs = outputs or {}
        self._names = names or {}
        self.submitted: dict[str, Line] = {}
        self.attempts: dict[tuple[str, int], Attempt] = {}
        self.applied: list[int] = []
        claims: dict[str, int] = {}
        for index, line in enumerate(lines):
            self._take(index, line, claims)

    def _take(self, index: int, line: Line, claims: dict[str, int]) -> None:
        kind, workload = line["kind"], str(line.get("workload"))
        attempt = self.attempts.get((workload, int(line.get("attempt") or 0)))
        if kind == "submitted":
            self.submitted[workload] = line
        elif kind == "claimed":
            claims[workload] = index
        elif kind == "started":
            key = (workload, int(line["attempt"]))
            self.attempts[key] = Attempt(*key, line, claims.pop(workload, index))
        elif kind == "stopping" and attempt:
            attempt.stopping = line
        elif kind == "stopped" and attempt:
            attempt.stopped = line
        elif kind == "checkpoint" and attempt:
            attempt.checkpoints.append(int(line["at"]))
        elif kind == "budgets_applied":
            self.applied.append(index)

    def name(self, workload: str) -> str:
        """What people call a workload."""
        return self._names.get(workload, workload)

    def first(self, workload: str) -> Attempt | None:
        """Its first attempt, if it ever started."""
        return self.attempts.get((workload, 1))

    def allocated(self) -> list[Attempt]:
        """The attempts that a budget pays for, in order."""
        return [attempt for attempt in self.attempts.values() if attempt.started["allocated"]]

    def preempted(self) -> Iterator[tuple[Attempt, Attempt]]:
        """Each attempt that the scheduler stopped for another, with that other."""
        for gainer in self.attempts.values():
            for workload, number in gainer.started["preempted"]:
                if loser := self.attempts.get((workload, number)):
                    yield loser, gainer

    def standings(self, index: int, one: str, other: str, *, charge: int = 0) -> tuple[Standing, Standing]:
        """How the budgets of two workloads stand just before a line, where their paths part, recomputed from the log.

        ``charge`` (GPU-milliseconds) is added to the first.
        """
        pool = str(self.submitted[one]["pool"])
        ours, theirs = _parting(self.submitted[one]["budget"], self.submitted[other]["budget"])
        auditor = Auditor()
        for line in read(json.dumps(line).encode() for line in self.lines[:index]):
            if isinstance(line, AuditLine):
                auditor.take(line)
        applied = self.lines[max(at for at in self.applied if at < index)]
        shares = {budget["path"]: _share(budget, pool) for budget in applied["budgets"]}
        at = int(self.lines[index]["at"]) if index < len(self.lines) else int(self.lines[-1]["at"])
        mine, yours = auditor.usage(pool, ours, at), auditor.usage(pool, theirs, at)
        return Standing(ours, shares[ours], mine + charge), Standing(theirs, shares[theirs], yours)


def _parting(one: str, other: str) -> tuple[str, str]:
    """The two budgets at which the paths of two leaves part."""
    ours, theirs = one.split("/"), other.split("/")
    depth = 0
    while ours[depth] == theirs[depth]:
        depth += 1
    return "/".join(ours[: depth + 1]), "/".join(theirs[: depth + 1])


def _share(budget: Line, pool: str) -> Fraction:
    numerator, _, denominator = str((budget.get("shares") or {}).get(pool, budget["share"])).partition("/")
    return Fraction(int(numerator), int(denominator))


def _stands(standing: Standing) -> str:
    used = standing.usage // SECOND
    return f"{standing.path} had used {used:,} GPU-seconds for a share of {about_share(standing.share)}"


def _seconds(millis: int) -> str:
    return f"{max(millis, 0) / SECOND:.1f} s"


def ranked(story: Story) -> str:
    """(a) Of two that wait for as many GPUs the one whose budget has used less of its share starts first."""
    until = story.applied[1] if len(story.applied) > 1 else len(story.lines)
    for winner in story.allocated():
        mine = story.submitted[winner.workload]
        if winner.number > 1 or winner.decided >= until:
            continue
        for workload, other in story.submitted.items():
            loser, differs = story.first(workload), other["budget"] != mine["budget"]
            waited = other["at"] <= mine["at"] and workload < winner.workload
            if not (waited and differs and other["min_runtime_ms"] and other["gpus"] == mine["gpus"]):
                continue
            if loser and loser.decided <= winner.decided:
                continue
            ours, theirs = story.standings(winner.decided, winner.workload, workload)
            if ours.path != theirs.path and ours.better(theirs):
                names = story.name(winner.workload), story.name(workload)
                return (
                    f"{names[0]} started before {names[1]}, which was submitted earlier: "
                    f"{_stands(ours)}, {_stands(theirs)}"
                )
    raise NotShownError("no workload started before an earlier one of a budget that had used more of its share")


def resumed(story: Story) -> str:
    """(b) A workload of an over-used budget, past its minimum, makes way and later goes on from its checkpoint."""
    for loser, gainer in story.preempted():
        if not loser.started["allocated"] or loser.stopping is None or loser.stopping["at"] < loser.protected_until:
            continue
        asked = story.submitted[gainer.workload]
        charge = int(asked["gpus"]) * int(asked["min_runtime_ms"])
        ours, theirs = story.standings(gainer.decided, gainer.workload, loser.workload, charge=charge)
        saved = [at for at in loser.checkpoints if at <= (loser.stopped or loser.stopping)["at"]]
        again = story.attempts.get((loser.workload, loser.number + 1))
        step = re.search(rf"{GOES_ON} ([1-9][0-9]*)", story.outputs.get((loser.workload, loser.number + 1), ""))
        if ours.better(theirs) and saved and again and step:
            name = story.name(loser.workload)
            return (
                f"{name}, past its minimum, was stopped for {story.name(gainer.workload)}: {_stands(theirs)}, and "
                f"{_stands(ours)} with all that was promised to {story.name(gainer.workload)}; after "
                f"{_seconds(again.started['at'] - loser.stopping['at'])} it went on from step {step[1]} of its own "
                f"checkpoint, as attempt {again.number}"
            )
    raise NotShownError("no workload was preempted past its minimum and then went on from a checkpoint")


def protected(story: Story) -> str:
    """(c) Nobody is stopped inside its minimum: whoever asks for those GPUs waits for its end."""
    for attempt in story.allocated():
        stop = attempt.stopping or {}
        if stop.get("reason") in {"preempted", "drained"} and stop["at"] < attempt.protected_until:
            early = _seconds(attempt.protected_until - stop["at"])
            raise NotShownError(f"{story.name(attempt.workload)} was stopped {early} before the end of its minimum")
    for loser, gainer in story.preempted():
        asked, ended = int(story.submitted[gainer.workload]["at"]), loser.asked_to_stop
        if loser.started["allocated"] and ended and loser.started["at"] <= asked < loser.protected_until <= ended:
            names = story.name(gainer.workload), story.name(loser.workload)
            return (
                f"{names[0]} asked while {names[1]} had {_seconds(loser.protected_until - asked)} of its minimum left, "
                f"and waited: {names[1]} was stopped {_seconds(ended - loser.protected_until)} after its minimum ended"
            )
    raise NotShownError("nobody asked for the GPUs of a workload inside its minimum")


def filled(story: Story) -> str:
    """(d) Unallocated work fills the rest, and leaves before any allocated work does, even past its minimum."""
    for gainer in story.allocated():
        losers = [loser for loser, other in story.preempted() if other is gainer]
        if not losers or any(loser.started["allocated"] for loser in losers):
            continue
        at, gpus = int(story.lines[gainer.decided]["at"]), int(story.submitted[gainer.workload]["gpus"])
        full = _held(story, at - 1)
        spared = [other for other in story.allocated() if _could_go(story, other, gainer, at, gpus)]
        prompt = gainer.started["at"] - at <= SOON
        if spared and prompt and full == _capacity(story, gainer.decided):
            left, stayed = story.name(losers[0].workload), story.name(spared[0].workload)
            return (
                f"unallocated work kept all {full} GPUs busy; when {story.name(gainer.workload)} asked for {gpus}, "
                f"{left} left within {_seconds(gainer.started['at'] - at)}, and {stayed}, past its minimum and of a "
                "worse-ranked budget, went on"
            )
    raise NotShownError("no unallocated workload left first where an allocated one could have been stopped")


def _could_go(story: Story, other: Attempt, gainer: Attempt, at: int, gpus: int) -> bool:
    """Whether an allocated attempt could have been stopped for ``gainer``, and was not."""
    if other is gainer or not other.runs_at(at) or other.protected_until > at:
        return False
    if min(len(held) for held in other.started["placement"].values()) < gpus:
        return False
    if story.submitted[other.workload]["budget"] == story.submitted[gainer.workload]["budget"]:
        return False
    asked = story.submitted[gainer.workload]
    charge = int(asked["gpus"]) * int(asked["min_runtime_ms"])
    ours, theirs = story.standings(gainer.decided, gainer.workload, other.workload, charge=charge)
    return ours.better(theirs)


def _held(story: Story, moment: int) -> int:
    """How many GPUs had a workload."""
    running = [attempt for attempt in story.attempts.values() if attempt.runs_at(moment)]
    return sum(len(gpus) for attempt in running for gpus in attempt.started["placement"].values())


def _capacity(story: Story, index: int) -> int:
    """How many GPUs the ready hosts have."""
    hosts = {line["host"]: line for line in story.lines[:index] if line["kind"] == "host"}
    return sum(int(line["gpus"]) for line in hosts.values() if line["state"] == "ready")


def repaired(story: Story) -> str:
    """(e) A sick host takes nothing new, is left as minimums end, is repaired, and works again."""
    course = ["draining", "drained", "repairing", "ready"]
    hosts = [line for line in story.lines if line["kind"] == "host"]
    for sick in (line for line in hosts if line["state"] == "draining"):
        after = [line for line in hosts if line["host"] == sick["host"] and line["at"] >= sick["at"]][: len(course)]
        if [line["state"] for line in after] != course:
            continue
        emptied, back = int(after[1]["at"]), int(after[-1]["at"])
        on = [attempt for attempt in story.allocated() if sick["host"] in attempt.hosts]
        stayed = [
            attempt
            for attempt in on
            if attempt.protected_until > sick["at"] >= attempt.started["at"]
            and (attempt.stopping or {}).get("reason") == "drained"
            and attempt.protected_until <= (attempt.asked_to_stop or 0) <= emptied
        ]
        again = [a for a in story.attempts.values() if sick["host"] in a.hosts and a.started["at"] >= back]
        placed = [a for a in story.attempts.values() if sick["host"] in a.hosts and sick["at"] < a.started["at"] < back]
        if stayed and again and not placed:
            name = story.name(stayed[0].workload)
            return (
                f"{sick['host']} had to be emptied ({sick.get('reason', '')}): {name} stayed until its minimum "
                f"ended, {_seconds(emptied - sick['at'])} later the host was empty, {_seconds(back - emptied)} after "
                f"that it was repaired and back, and {story.name(again[0].workload)} started on it"
            )
    raise NotShownError("no host was drained past somebody's minimum, repaired, and given back to work")


def reshared(story: Story) -> str:
    """(f) A commit changes a share; once it is applied, the ranking is another one, and so is who starts first."""
    for index in story.applied[1:]:
        before = story.lines[max(at for at in story.applied if at < index)]
        if before["commit"] == story.lines[index]["commit"]:
            continue
        waiting = [workload for workload in story.submitted if _waits(story, workload, index)]
        for winner in waiting:
            for loser in waiting:
                said = _turned(story, index, winner, loser)
                if said:
                    return said
    raise NotShownError("no applied commit changed who of two waiting workloads comes first")


def _waits(story: Story, workload: str, index: int) -> bool:
    """Whether an allocated workload waits for its first start at a line."""
    asked, first = story.submitted[workload], story.first(workload)
    return bool(
        asked["min_runtime_ms"] and asked["at"] <= story.lines[index]["at"] and (not first or first.decided > index)
    )


def _turned(story: Story, index: int, winner: str, loser: str) -> str:
    """The sentence on two workloads whose order a commit has turned, if it has."""
    first, other = story.first(winner), story.first(loser)
    same = story.submitted[winner]["budget"] == story.submitted[loser]["budget"]
    if same or first is None or (other is not None and other.decided <= first.decided):
        return ""
    ours, theirs = story.standings(index, winner, loser)
    ours_after, theirs_after = story.standings(index + 1, winner, loser)
    if ours.path == theirs.path or not theirs.better(ours) or not ours_after.better(theirs_after):
        return ""
    changes = ", ".join(
        f"{old.path} from {about_share(old.share)} to {about_share(new.share)}"
        for old, new in ((ours, ours_after), (theirs, theirs_after))
        if old.share != new.share
    )
    commit = story.lines[index]["commit"][:12]
    return (
        f"commit {commit} changed {changes}; {story.name(winner)} ranked behind {story.name(loser)} before it, "
        "ahead of it afterwards, and started first"
    )


CHECKS: dict[str, Callable[[Story], str]] = {
    "a": ranked, "b": resumed, "c": protected, "d": filled, "e": repaired, "f": reshared,
}  # fmt: skip


def verdicts(story: Story) -> dict[str, tuple[bool, str]]:
    """For each of (a) to (f) whether it was shown, and in which words."""
    found: dict[str, tuple[bool, str]] = {}
    for letter, check in CHECKS.items():
        try:
            found[letter] = (True, check(story))
        except NotShownError as missing:
            found[letter] = (False, str(missing))
    return found
