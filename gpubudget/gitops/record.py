"""What a reconciler remembers between two rounds: how it stands and since when, and the commit that was refused.

One small file beside the mirror, replaced as a whole. It is a memory and no source of truth: without it, or with one
that cannot be read, the next round judges everything anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpubudget.core import plain
from gpubudget.errors import GpuBudgetError
from gpubudget.gitops.report import Report, Status
from gpubudget.units import SECOND

FILE = "status.json"

_SETTLED = {Status.APPLIED, Status.UNCHANGED}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A commit that was refused on top of another one, under some settings, and why."""

    commit: str
    over: str
    settings: str
    at: int
    error: str


@dataclass(frozen=True, slots=True)
class Record:
    """How one reconciler stands after its last round. Times in milliseconds, 0 for never; empty texts for nothing.

    ``seen`` is the last commit that the ref named, ``applied`` the last one that the daemon was known to have.
    ``status`` has been the same since ``since``, for ``rounds`` rounds up to ``at``; ``settled`` is when git and the
    daemon were last known to say the same.
    """

    target: str
    source: str
    ref: str
    path: str
    cluster: str = ""
    seen: str = ""
    seen_at: int = 0
    applied: str = ""
    settled: int = 0
    status: Status = Status.FAILED
    since: int = 0
    at: int = 0
    rounds: int = 0
    error: str = ""
    hint: str = ""
    refusal: Refusal | None = None


def after(record: Record, report: Report, now: int, refusal: Refusal | None) -> Record:
    """The record after one more round."""
    same = record.status is report.status and record.rounds > 0
    settled = report.status in _SETTLED
    return replace(
        record,
        source=report.source,
        ref=report.ref,
        path=report.path,
        cluster=report.cluster,
        seen=report.commit or record.seen,
        seen_at=now if report.commit else record.seen_at,
        applied=(report.commit if settled else report.previous) or record.applied,
        settled=now if settled else record.settled,
        status=report.status,
        since=record.since if same else now,
        at=now,
        rounds=record.rounds + 1 if same else 1,
        error=report.error,
        hint=report.hint,
        refusal=refusal,
    )


def read(folder: Path) -> Record | None:
    """The record in ``folder``; None if there is none that can be read."""
    with suppress(OSError, ValueError, RecursionError, GpuBudgetError):
        return plain.decode(Record, json.loads((folder / FILE).read_bytes()))
    return None


def write(folder: Path, record: Record) -> None:
    """Replaces the record in ``folder``."""
    write_whole(folder / FILE, plain.canonical(record) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old text or the new one; raises GpuBudgetError if it cannot."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise GpuBudgetError(f"cannot write {path}: {error.strerror}", hint="check the folder and the disk") from error


def all_records(folder: Path) -> list[Record]:
    """The records of all reconcilers below ``folder``, in order of cluster, source and target."""
    found = [read(each.parent) for each in folder.glob(f"*/{FILE}")]
    return sorted((r for r in found if r is not None), key=lambda r: (r.cluster, r.source, r.target))


def to_json(record: Record) -> dict[str, Any]:
    """A record as plain data for programs."""
    return {
        "cluster": record.cluster or None,
        "target": record.target,
        "source": record.source,
        "ref": record.ref,
        "path": record.path,
        "status": record.status.value,
        "since_ms": record.since,
        "rounds": record.rounds,
        "at_ms": record.at,
        "seen": record.seen or None,
        "seen_ms": record.seen_at or None,
        "applied": record.applied or None,
        "settled_ms": record.settled or None,
        "error": record.error or None,
        "hint": record.hint or None,
        "refused": record.refusal.commit if record.refusal else None,
    }


_METRICS = {
    "status": "1 for how the last round ended, 0 for the other ways",
    "since_timestamp_seconds": "Since when every round has ended like the last one",
    "last_round_timestamp_seconds": "When the last round ended",
    "settled_timestamp_seconds": "When git and the daemon last said the same; 0 for never",
    "unsettled_rounds": "Rounds since git and the daemon last said the same",
    "commit_info": "1; the commit that the ref named last, and the one that the daemon has",
}


def metrics(records: Iterable[Record]) -> str:
    """The records as Prometheus text, for a textfile collector."""
    lines: dict[str, list[str]] = {name: [] for name in _METRICS}
    for record in records:
        where = {"cluster": record.cluster, "target": record.target, "source": record.source, "ref": record.ref}
        for status in Status:
            lines["status"].append(_line("status", {**where, "status": status.value}, status is record.status))
        for name, millis in (("since", record.since), ("last_round", record.at), ("settled", record.settled)):
            full = f"{name}_timestamp_seconds"
            lines[full].append(_line(full, where, millis / SECOND))
        unsettled = 0 if record.status in _SETTLED else record.rounds
        lines["unsettled_rounds"].append(_line("unsettled_rounds", where, unsettled))
        lines["commit_info"].append(_line("commit_info", {**where, "seen": record.seen, "applied": record.applied}, 1))
    return "".join(
        f"# HELP gpubudget_reconcile_{name} {text}\n# TYPE gpubudget_reconcile_{name} gauge\n" + "".join(lines[name])
        for name, text in _METRICS.items()
    )


def _line(name: str, labels: dict[str, str], value: float) -> str:
    escaped = (f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"gpubudget_reconcile_{name}{{{','.join(escaped)}}} {float(value)!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
