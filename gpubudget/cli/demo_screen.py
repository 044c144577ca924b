"""What a person sees of the demo: what happens, a line each, and below it a table that shows the cluster as it is now.

On a terminal the table is drawn anew in its place; elsewhere it is printed when a scene ends. It only shows: from the
daemon's answers to text.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TextIO

from gpubudget.cli.output import Column, plain, share, table, width
from gpubudget.units import SECOND, about_duration

Row = dict[str, Any]

_WIDEST = 100


class Screen:
    """Prints lines, and keeps a block of lines below them on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._block: list[str] = []
        self._drawn = 0

    def say(self, text: str = "", indent: str = "") -> None:
        """Print a text, wrapped, above the block."""
        size = min(shutil.get_terminal_size((_WIDEST, 40)).columns, _WIDEST)
        lines = textwrap.wrap(text, size, subsequent_indent=indent, break_on_hyphens=False) or [""]
        self._write([*lines], self._block)

    def show(self, block: list[str]) -> None:
        """Replace the block."""
        if block != self._block:
            self._write([], block)

    def settle(self) -> None:
        """Leave the block where it is; what follows is printed below."""
        block, self._block = self._block, []
        if self._live:
            self._drawn = 0
        else:
            self._print(["", *block, ""] if block else [])

    def _write(self, lines: list[str], block: list[str]) -> None:
        self._block = block
        if not self._live:
            self._print(lines)
            return
        size = shutil.get_terminal_size((_WIDEST, 40))
        kept = [_cut(line, size.columns - 1) for line in block][: max(size.lines - 4, 0)]
        up = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        below = ["", *kept, ""] if kept else []
        self._drawn = len(below)
        self._stream.write(up + "".join(f"{line}\n" for line in [*lines, *below]))
        self._stream.flush()

    def _print(self, lines: list[str]) -> None:
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()


def _cut(line: str, size: int) -> str:
    while width(line) > size:
        line = line[:-1]
    return line


def cluster_table(
    hosts: list[Row], workloads: list[Row], budgets: list[Row], waiting: list[str], now: int
) -> list[str]:
    """Hosts with what runs on them, programs with what they have used, and what waits, best-ranked first."""
    by_id = {workload["id"]: workload for workload in workloads}
    lines = table([{**host, "runs": _runs(host, by_id, now)} for host in hosts], _HOSTS).splitlines()
    programs = [budget for budget in budgets if "/" not in budget["path"]]
    rows = [{**budget, **pool} for budget in programs for pool in budget["pools"].values()]
    lines += ["", *table(sorted(rows, key=_ratio), _BUDGETS).splitlines()]
    names = [_waits(by_id[one]) for one in waiting if one in by_id]
    return [*lines, "", "waiting, best-ranked first: " + (", ".join(names) or "nobody")]


def _runs(host: Row, by_id: Mapping[str, Row], now: int) -> str:
    told = []
    for held in host["attempts"]:
        workload = by_id.get(held["workload"])
        attempt = (workload or {}).get("attempt")
        if workload and attempt:
            left = attempt["protected_until_ms"] - now
            note = " leaving" if attempt["stopping"] else f" protected {about_duration(left)}" if left > 0 else ""
            told.append(f"{workload['name']} ({len(attempt['placement'].get(host['name'], ()))}{note})")
    return "  ".join(told)


def _waits(workload: Row) -> str:
    return str(workload["name"]) if workload["min_runtime_ms"] else f"{workload['name']} (unallocated)"


def _ratio(row: Row) -> Fraction:
    part = Fraction(row["share"])
    return row["usage_gpu_ms"] / part if part else Fraction(10**18)


_HOSTS = [
    Column("HOST", lambda host: host["name"]),
    Column("STATE", lambda host: host["state"]),
    Column("FREE", lambda host: host["free"], right=True),
    Column("RUNS (GPUS)", lambda host: host["runs"]),
]
_BUDGETS = [
    Column("BUDGET", lambda budget: budget["path"]),
    Column("SHARE", lambda budget: share(budget["share"]), right=True),
    Column("USED GPU-SECONDS", lambda budget: budget["usage_gpu_ms"] // SECOND, right=True),
    Column(
        "USED/SHARE",
        lambda budget: "zero share" if budget["share"] == "0/1" else int(_ratio(budget)) // SECOND,
        right=True,
    ),
    Column("RUNNING", lambda budget: budget["running"], right=True),
    Column("WAITING", lambda budget: budget["pending"], right=True),
]


def told(line: Row, names: Mapping[str, str]) -> str:
    """A line of the event log in plain words; empty for what the table shows well enough."""
    name = names.get(str(line.get("workload")), str(line.get("workload")))
    match line["kind"]:
        case "submitted":
            kind = f"minimum {about_duration(line['min_runtime_ms'])}" if line["min_runtime_ms"] else "unallocated"
            payer = f" to {line['budget']}" if line["budget"] else ""
            return f"{name} is submitted{payer}: {line['gpus']} GPUs, {kind}"
        case "started":
            again = f" again, attempt {line['attempt']}" if line["attempt"] > 1 else ""
            return f"{name} starts on {', '.join(line['placement'])}{again}"
        case "stopping":
            why = {
                "preempted": f"makes way for {names.get(str(line.get('for')), '')}",
                "drained": "leaves the host that is to be empty",
            }
            return f"{name} {why[line['reason']]}" if line["reason"] in why else ""
        case "stopped":
            return f"{name} has {line['reason']}" if line["reason"] in {"finished", "failed"} else ""
        case "host":
            reason = f": {plain(line['reason'])}" if line.get("reason") else ""
            return f"{line['host']} is {line['state']}{reason}"
        case "budgets_applied":
            return f"the budgets of commit {line['commit'][:12]} are in force"
        case _:
            return ""
