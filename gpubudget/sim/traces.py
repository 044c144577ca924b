"""Reading traces of other clusters: CSV as in the public collections, and SWF, the standard workload format of HPC.

A reader says what stands in the file and no more: what it lacks is made up in ``assume.py``, and flagged there. A row
that cannot be is left out and named with its line; where no row is sound, or the file is no trace, one sentence says
why. Files may be compressed with gzip. Times are milliseconds from the trace's own zero.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gpubudget.errors import InvalidInputError
from gpubudget.sim.eventfile import LONGEST_LINE
from gpubudget.sim.packed import unpacked_stream
from gpubudget.sim.submission import BadRow, Ending
from gpubudget.units import DAY, HOUR, MINUTE, SECOND, count

UNITS = {"ms": 1, "s": SECOND, "sec": SECOND, "min": MINUTE, "m": MINUTE, "h": HOUR, "d": DAY}
_LONGEST = 100 * 366 * DAY
_MOST_GPUS = 1_000_000
_HINT = (
    "a trace is CSV (job_id,submit_s,user,group,gpus,duration_s,state), SWF, or an event log of gpubudget (JSON lines)"
)


class TraceRow(NamedTuple):
    """One workload as a trace has it; what it does not say is empty."""

    line: int
    id: str
    at: int
    user: str
    group: str
    gpus: int
    run_time: int
    ending: Ending | None


@dataclass(frozen=True, slots=True)
class Trace:
    """The sound rows of a trace, in order of submission, and the others by line."""

    name: str
    rows: tuple[TraceRow, ...]
    bad_rows: tuple[BadRow, ...]


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked where it is packed; whatever is wrong with it becomes one sentence."""
    try:
        with path.open("rb") as raw, unpacked_stream(raw, str(path)) as file:
            yield file
    except FileNotFoundError:
        raise InvalidInputError(f"there is no file {path}", hint="check the path") from None
    except csv.Error as error:
        raise InvalidInputError(f"{path} is not CSV: {error}", hint="check the format of the file") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is binary, not a text", hint=_HINT) from None
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror or error}", hint="check the path") from None


@contextmanager
def reading(path: Path) -> Iterator[Iterator[str]]:
    """The lines of a text, with the same care, and none that fills the memory."""
    with unpacked(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        yield _lines(path, text)


def _lines(path: Path, text: io.TextIOBase) -> Iterator[str]:
    for number in itertools.count(1):
        line = text.readline(LONGEST_LINE + 1)
        if "\0" in line:
            raise InvalidInputError(f"{path} is binary, not a text", hint=_HINT)
        if len(line) > LONGEST_LINE:
            raise InvalidInputError(f"{path} line {number} is longer than {LONGEST_LINE >> 20} MB", hint=_HINT)
        if not line:
            return
        yield line


def first_line(path: Path) -> str:
    """The first line of a file that is not blank, by which its format is known."""
    with reading(path) as lines:
        for line in lines:
            if line.strip():
                return line.strip()
    raise InvalidInputError(f"{path} is empty", hint=_HINT)


def read_trace(path: Path) -> Trace:
    """The trace in a file of CSV or SWF."""
    head = first_line(path)
    if head.startswith("{"):
        raise InvalidInputError(f"{path} is an event log, not a trace of another cluster", hint=_HINT)
    bad: list[BadRow] = []
    with reading(path) as text:
        rows = _sound(_swf(text, bad) if _is_swf(head) else _csv(path, text, bad), bad)
    if not rows:
        if bad:
            first = min(bad, key=lambda row: row.line)
            raise InvalidInputError(f"{path} has no sound row; line {first.line}: {first.why}", hint=_HINT)
        raise InvalidInputError(f"{path} has a header and no rows", hint=_HINT)
    rows.sort(key=lambda row: row.at)
    return Trace(path.name, tuple(rows), tuple(sorted(bad, key=lambda row: row.line)))


def _sound(rows: Iterable[TraceRow], bad: list[BadRow]) -> list[TraceRow]:
    """The rows that can be; the others go to ``bad``."""
    found: dict[str, TraceRow] = {}
    for row in rows:
        why = ""
        if row.at < 0 or row.run_time < 0:
            what = "is submitted" if row.at < 0 else "runs for"
            why = f"a negative time: it {what} {min(row.at, row.run_time) / SECOND:g} s"
        elif row.at > _LONGEST or row.run_time > _LONGEST:
            why = "a time of more than a hundred years"
        elif not 1 <= row.gpus <= _MOST_GPUS:
            why = f"it asks for {count(row.gpus, 'GPU')}"
        elif row.id in found:
            why = f"the id {row.id!r} stands on line {found[row.id].line} already"
        if why:
            bad.append(BadRow(row.line, why))
        else:
            found[row.id] = row
    return list(found.values())


# CSV

_ENDINGS = {
    **dict.fromkeys(("completed", "complete", "pass", "passed", "finished", "success", "succeeded"), Ending.FINISHED),
    **dict.fromkeys(("canceled", "cancelled", "killed", "cancel"), Ending.CANCELLED),
    **dict.fromkeys(("failed", "fail", "node_fail", "timeout", "out_of_memory", "error"), Ending.FAILED),
}
_NAMES = {
    "id": ("job_id", "jobid", "id", "workload"),
    "user": ("user", "owner"),
    "group": ("group", "vc", "budget"),
    "gpus": ("gpus", "gpu_num", "num_gpus"),
    "state": ("state", "status"),
}


def _csv(path: Path, text: Iterable[str], bad: list[BadRow]) -> Iterator[TraceRow]:
    lines = csv.reader(text)
    try:
        header = [name.strip().lower() for name in next(line for line in lines if line)]
        places = {what: _column(header, names) for what, names in _NAMES.items()}
        submit, submit_unit = _timed(path, header, "submit")
        duration, duration_unit = _timed(path, header, "duration")
        gpus = places["gpus"]
        if gpus is None:
            raise _lacks(path, "gpus", header)
        id_at, user, group, state = places["id"], places["user"], places["group"], places["state"]
        for cells in lines:
            if not cells:
                continue
            line = lines.line_num
            if len(cells) != len(header):
                bad.append(BadRow(line, f"it has {count(len(cells), 'cell')}, not {len(header)}"))
                continue
            try:
                yield TraceRow(
                    line,
                    (cells[id_at] if id_at is not None else "") or f"line{line}",
                    _time(cells[submit], submit_unit),
                    cells[user] if user is not None else "",
                    cells[group] if group is not None else "",
                    int(cells[gpus]),
                    _time(cells[duration], duration_unit),
                    _ENDINGS.get(cells[state].lower()) if state is not None else None,
                )
            except (ValueError, OverflowError):
                found = [(header[place], cells[place]) for place in (submit, gpus, duration)]
                bad.append(BadRow(line, _not_a_number(found)))
    except csv.Error as error:
        raise InvalidInputError(f"{path} line {lines.line_num} is not CSV: {error}", hint=_HINT) from None


def _not_a_number(found: list[tuple[str, str]]) -> str:
    """Which of these cells, with their columns, it is that cannot be read."""
    for name, cell in found:
        try:
            int(cell) if name in _NAMES["gpus"] else _time(cell, 1)
        except (ValueError, OverflowError):
            return f"{name} is {cell[:40]!r}, not a {'whole ' * (name in _NAMES['gpus'])}number"
    return "a number is too large"


def _time(cell: str, unit: int) -> int:
    return int(cell) * unit if cell.isdecimal() else round(float(cell) * unit)


def _column(header: list[str], names: tuple[str, ...]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _timed(path: Path, header: list[str], what: str) -> tuple[int, int]:
    """Where the column of a time is, and its unit, which is the end of its name: ``submit_s``."""
    for place, name in enumerate(header):
        stem, _, unit = name.rpartition("_")
        if stem == what:
            if unit not in UNITS:
                known = ", ".join(UNITS)
                raise InvalidInputError(
                    f"{path} has a column {name!r}, and {unit!r} is not a unit of time", hint=f"units are {known}"
                )
            return place, UNITS[unit]
    raise _lacks(path, f"{what}_s", header)


def _lacks(path: Path, column: str, header: list[str]) -> InvalidInputError:
    shown = ", ".join(header)[:120]
    return InvalidInputError(f"{path} has no column {column!r}; its first line is: {shown}", hint=_HINT)


# SWF

_SWF_FIELDS = 18
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{0,15})?", re.ASCII)
_SWF_ENDINGS = {"1": Ending.FINISHED, "0": Ending.FAILED, "5": Ending.CANCELLED}


def _is_swf(head: str) -> bool:
    parts = head.split()
    return head.startswith(";") or (len(parts) == _SWF_FIELDS and all(_is_number(part) for part in parts))


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _swf(text: Iterable[str], bad: list[BadRow]) -> Iterator[TraceRow]:
    """Rows of SWF, as the Parallel Workloads Archive describes it: 18 numbers a line, -1 where nothing is known."""
    for line, row in enumerate(text, start=1):
        parts = row.split()
        if not parts or parts[0].startswith(";"):
            continue
        if len(parts) != _SWF_FIELDS or not all(_is_number(part) for part in parts):
            bad.append(BadRow(line, f"it is not {_SWF_FIELDS} numbers"))
            continue
        number, submit, _, run_time, processors, *_ = parts
        wanted = processors if int(float(processors)) > 0 else parts[7]
        if float(run_time) == -1:
            bad.append(BadRow(line, "its run time is not known (-1)"))
            continue
        yield TraceRow(
            line,
            number,
            _time(submit, SECOND),
            _named("u", parts[11]),
            _named("g", parts[12]),
            int(float(wanted)),
            _time(run_time, SECOND),
            _SWF_ENDINGS.get(parts[10]),
        )


def _named(prefix: str, number: str) -> str:
    return "" if number == "-1" else prefix + number
