"""``gpubudget audit``: recompute an event log and say what in it cannot be right."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any, BinaryIO

import click

from gpubudget.cli.output import Column, plain, say, table
from gpubudget.errors import InvalidInputError
from gpubudget.sim.audit import Auditor
from gpubudget.sim.audit import audit as audit_lines
from gpubudget.sim.eventfile import lines_of
from gpubudget.sim.packed import unpacked_stream
from gpubudget.units import about_share, format_gpu_hours

_EXAMPLES = """\b
Examples:
  gpubudget audit events.jsonl
  gpubudget audit events.jsonl.gz
  gpubudget get events -o jsonl | gpubudget audit -"""


def occupancy(time: dict[str, int]) -> str:
    """The share of the available GPU-time that had a workload, for a table."""
    available = time["capacity_gpu_ms"] - time["unavailable_gpu_ms"]
    used = time["allocated_gpu_ms"] + time["unallocated_gpu_ms"]
    return about_share(Fraction(used, available)) if available else ""


_PROGRAMS = [
    Column("PROGRAM", lambda row: row["name"]),
    Column("ALLOCATED GPU-H", lambda row: format_gpu_hours(row["allocated_gpu_ms"]), right=True),
    Column("UNALLOCATED GPU-H", lambda row: format_gpu_hours(row["unallocated_gpu_ms"]), right=True),
]
_POOLS = [
    Column("POOL", lambda row: row["name"]),
    Column("GPU-H", lambda row: format_gpu_hours(row["capacity_gpu_ms"]), right=True),
    Column("ALLOCATED", lambda row: format_gpu_hours(row["allocated_gpu_ms"]), right=True),
    Column("UNALLOCATED", lambda row: format_gpu_hours(row["unallocated_gpu_ms"]), right=True),
    Column("IDLE", lambda row: format_gpu_hours(row["idle_gpu_ms"]), right=True),
    Column("UNAVAILABLE", lambda row: format_gpu_hours(row["unavailable_gpu_ms"]), right=True),
    Column("OCCUPANCY", occupancy, right=True),
]


@click.command(epilog=_EXAMPLES)
@click.argument("log", type=click.File("rb"))
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, JSON for programs.",
)
@click.pass_context
def audit(ctx: click.Context, log: BinaryIO, output: str) -> None:
    """Recompute placements, ledger and preemptions from an event log (a file, or - for stdin).

    It reads one JSON object a line, as `get events -o jsonl` prints them, which may be packed with gzip, and shares
    nothing with the scheduler. Exit code 0 if nothing is wrong, 1 if something is.
    """
    with unpacked_stream(log, "the log") as unpacked:
        auditor = audit_lines(lines_of(unpacked))
    if not auditor.counts and not auditor.findings:
        raise InvalidInputError("the log holds no event", hint="`gpubudget get events -o jsonl` prints a log")
    click.echo(_json(auditor) if output == "json" else _text(auditor))
    if output == "text":
        count = len(auditor.findings)
        say(f"{count} finding{'s' * (count != 1)}" if count else "nothing is wrong")
    ctx.exit(1 if auditor.findings else 0)


def _json(auditor: Auditor) -> str:
    findings = [{"line": f.line, "rule": f.rule, "message": f.message} for f in auditor.findings]
    return json.dumps({"findings": findings, "summary": auditor.summary()}, indent=2, ensure_ascii=False)


def _text(auditor: Auditor) -> str:
    summary = auditor.summary()
    parts = [f"line {f.line}: {plain(f.message)} [{f.rule}]" for f in auditor.findings]
    counts = ("events", "workloads", "starts", "preemptions", "refused")
    parts += ["", "  ".join(f"{name} {summary[name]}" for name in counts)]
    for title, columns in (("programs", _PROGRAMS), ("pools", _POOLS)):
        rows: list[dict[str, Any]] = [{"name": name, **values} for name, values in summary[title].items()]
        if rows:
            parts += ["", table(rows, columns)]
    return "\n".join(parts).lstrip("\n")
