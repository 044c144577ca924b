"""What the daemon remembers of workloads beside the core: programs, states, attempts; and how the API shows them.

A projection: it follows the core's decisions and decides nothing. The rows that it puts into a batch are written in
the same transaction as the event that changed them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gpubudget.core import plain
from gpubudget.core.decisions import Claim, Decision, Hold, Refuse, Requeue, Start, Stop, Stopped, Unclaim
from gpubudget.core.events import BudgetsApplied, Event, Moved, Submitted
from gpubudget.core.views import WorkloadView
from gpubudget.core.workload import StopReason, WorkloadSpec, WorkloadState
from gpubudget.daemon.store import Batch, Row
from gpubudget.errors import NotFoundError

_ID = re.compile(r"w([0-9]{6,12})", re.ASCII)

_END = {
    StopReason.FAILED: WorkloadState.FAILED,
    StopReason.CANCELLED: WorkloadState.CANCELLED,
    StopReason.PREEMPTED: WorkloadState.PREEMPTED,
}
"""What a workload has become that ended with its attempt, if not finished (also by having had its longest run time)."""


def workload_id(number: int) -> str:
    """The id of the workload with this number."""
    return f"w{number:06d}"


def workload_number(workload: str) -> int:
    """The number in a workload's id; raises NotFoundError for anything that is no id."""
    match = _ID.fullmatch(workload)
    if match is None:
        raise NotFoundError(f"there is no workload {workload[:40]!r}", hint="ids look like w000042")
    return int(match.group(1))


@dataclass(frozen=True, slots=True)
class Program:
    """What a workload runs: the part of a submission that the core does not need."""

    command: tuple[str, ...]
    name: str = ""
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None


@dataclass(slots=True)
class Record:
    """One workload. Times in milliseconds; ``attempt`` is the public form of the attempt that holds GPUs."""

    number: int
    spec: WorkloadSpec
    program: Program
    submitted: int
    state: WorkloadState = WorkloadState.PENDING
    reason: str = ""
    started: int | None = None
    ended: int | None = None
    exit_code: int | None = None
    attempts: int = 0
    failures: int = 0
    preemptions: int = 0
    attempt: dict[str, Any] | None = None
    request: str = ""

    def row(self) -> Row:
        """The row of the table ``workloads``."""
        if not self.request:
            self.request = json.dumps([plain.encode(self.spec), plain.encode(self.program)], separators=(",", ":"))
        attempt = None if self.attempt is None else json.dumps(self.attempt, separators=(",", ":"))
        return (
            self.number,
            self.spec.owner,
            self.spec.budget,
            self.state.value,
            self.reason,
            self.submitted,
            self.started,
            self.ended,
            self.exit_code,
            self.attempts,
            self.failures,
            self.preemptions,
            self.request,
            attempt,
        )

    @classmethod
    def from_row(cls, row: Row) -> Record:
        """The record that a row of the table ``workloads`` is."""
        (number, _, _, state, reason, submitted, started, ended, exit_code, *rest) = row
        attempts, failures, preemptions, request, attempt = rest
        spec, program = json.loads(request)  # as ``row`` wrote it, so it need not be checked again
        del spec["kind"], program["kind"]
        spec["pools"], program["command"] = tuple(spec["pools"]), tuple(program["command"])
        program["env"] = tuple((name, value) for name, value in program["env"])
        return cls(
            number,
            WorkloadSpec(**spec),
            Program(**program),
            submitted,
            WorkloadState(state),
            reason,
            started,
            ended,
            exit_code,
            attempts,
            failures,
            preemptions,
            None if attempt is None else json.loads(attempt),
            request,
        )

    def public(self, *, secrets: bool = True) -> dict[str, Any]:
        """The workload object of the API; without ``secrets`` the values of its environment are left out."""
        spec, program = self.spec, self.program
        return {
            "id": spec.id,
            "name": program.name,
            "owner": spec.owner,
            "budget": spec.budget,
            "pools": list(spec.pools),
            "gpus": spec.gpus,
            "hosts": spec.hosts,
            "min_runtime_ms": spec.min_runtime,
            "max_runtime_ms": spec.max_runtime,
            "debug": spec.debug,
            "resumable": spec.resumable,
            "priority": spec.priority,
            "retries": spec.retries,
            "command": list(program.command),
            "cwd": program.cwd,
            "env": {key: value if secrets else "***" for key, value in program.env},
            "state": self.state.value,
            "reason": self.reason,
            "submitted_ms": self.submitted,
            "started_ms": self.started,
            "ended_ms": self.ended,
            "exit_code": self.exit_code,
            "attempts": self.attempts,
            "failures": self.failures,
            "preemptions": self.preemptions,
            "attempt": self.attempt,
        }


@dataclass(slots=True)
class Records:
    """The workloads that have not ended, by id."""

    active: dict[str, Record] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Take in a workload that was just submitted."""
        self.active[record.spec.id] = record

    def follow(self, event: Event, decisions: Iterable[Decision], now: int, batch: Batch) -> set[str]:
        """Record what an event did to workloads; returns the ids of those that changed. See ``settle``."""
        changed: set[str] = set()
        match event:
            case Submitted(spec):
                self.active[spec.id].submitted = now
                changed.add(spec.id)
            case Moved(workload):
                changed.add(workload)
            case BudgetsApplied():
                changed.update(self.active)  # budgets may have other names
            case _:
                pass
        for decision in decisions:
            record = self.active.get(getattr(decision, "workload", ""))
            if record is not None:
                _follow(record, decision, now, batch)
                changed.add(record.spec.id)
        return changed

    def settle(self, workload: str, view: WorkloadView | None, now: int, batch: Batch) -> None:
        """Write a workload's row as the core now sees it; without a view it has ended and is forgotten here."""
        record = self.active[workload]
        if view is not None:
            if view.spec.budget != record.spec.budget:
                record.spec, record.request = view.spec, ""
            record.state = view.state
            record.failures, record.preemptions = view.failures, view.preemptions
        else:
            record.ended, record.attempt = now, None
            del self.active[workload]
        batch.put("workloads", record.row())


def _follow(record: Record, decision: Decision, now: int, batch: Batch) -> None:
    match decision:
        case Start():
            _started(record, decision, now, batch)
        case Stop(_, _, reason, beneficiary):
            record.state = WorkloadState.STOPPING
            record.reason = f"stopping: {_why(reason, beneficiary)}"
            if record.attempt is not None:
                record.attempt["stopping"] = True
        case Stopped(_, attempt, reason, beneficiary):
            record.state = _END.get(reason, WorkloadState.FINISHED)
            record.reason = _why(reason, beneficiary)
            record.failures += reason is StopReason.FAILED
            record.preemptions += reason is StopReason.PREEMPTED
            _stopped(record, attempt, reason, now, batch)
        case Requeue(_, reason, held):
            record.reason, record.exit_code = held or reason, None
        case Hold(_, reason) | Unclaim(_, reason):
            record.reason = reason
        case Claim(_, _, hosts, preempted):
            record.reason = f"starts on {', '.join(hosts)} when {len(preempted)} attempts there have ended"
        case Refuse(_, reason):
            record.state, record.reason = WorkloadState.REFUSED, reason
        case _:
            pass


def _started(record: Record, start: Start, now: int, batch: Batch) -> None:
    placement = {host: list(gpus) for host, gpus in start.placement}
    record.reason, record.started, record.attempts = start.reason, now, start.attempt
    record.attempt = {
        "attempt": start.attempt,
        "pool": start.pool,
        "allocated": start.allocated,
        "placement": placement,
        "started_ms": now,
        "protected_until_ms": start.protected_until,
        "stopping": False,
    }
    row = (record.number, start.attempt, start.pool, json.dumps(placement), now, start.ends_by, None, None)
    batch.put("attempts", row, 2)


def _stopped(record: Record, attempt: int, reason: StopReason, now: int, batch: Batch) -> None:
    if record.attempt is None or record.attempt["attempt"] != attempt:
        return  # it was cancelled before it ever started
    shown = record.attempt
    record.attempt = None
    placement = json.dumps(shown["placement"])
    row = (record.number, attempt, shown["pool"], placement, shown["started_ms"], None, now, reason.value)
    batch.put("attempts", row, 2)


def _why(reason: StopReason, beneficiary: str | None) -> str:
    return f"{reason.value} for {beneficiary}" if beneficiary else reason.value
