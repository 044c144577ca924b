"""How answers are shown: tables of plain aligned columns, or the API's own JSON for programs.

A table has capital headers and relative times. In JSON and YAML the keys are those of the API, and each time that it
gives in milliseconds stands there as RFC 3339 too, under the same name without ``_ms``. What people named is shown
without control characters. Knows nothing of the network.
"""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeVar

import click

from gpubudget.units import about_duration, about_share

Row = dict[str, Any]
C = TypeVar("C", bound=Callable[..., Any])

_TIMES = {
    "submitted_ms", "started_ms", "ended_ms", "protected_until_ms", "ends_by_ms", "last_seen_ms", "committed_ms",
    "applied_ms", "start_ms", "created_ms", "used_ms", "revoked_ms", "since_ms", "until_ms", "at_ms", "seen_ms",
    "settled_ms",
}  # fmt: skip
NOTHING = "-"


class Format(StrEnum):
    """The values of ``-o``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its header, what it shows of a row, and whether only the wide table has it."""

    header: str
    show: Callable[[Row], object]
    right: bool = False
    wide: bool = False


def output_option(default: Format = Format.TABLE) -> Callable[[C], C]:
    """The option ``-o``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([f.value for f in Format]),
        callback=lambda _ctx, _param, value: Format(value),
        default=default.value,
        show_default=True,
        help="Table for people, name for shells, the others for programs.",
    )


def rendered(answer: Row, items: Sequence[Row], columns: Sequence[Column], fmt: Format, *, name: str = "name") -> str:
    """The text of an answer whose rows are ``items``, without a line end; ``name`` is the key that names a row."""
    match fmt:
        case Format.JSON:
            return json.dumps(with_rfc3339(answer), indent=2, ensure_ascii=False)
        case Format.JSONL:
            return "\n".join(line(with_rfc3339(item)) for item in items)
        case Format.YAML:
            import yaml  # noqa: PLC0415 - the other formats start quicker without it

            text: str = yaml.safe_dump(with_rfc3339(answer), sort_keys=False, allow_unicode=True)
            return text.rstrip("\n")
        case Format.NAME:
            return "\n".join(str(item[name]) for item in items)
        case _:
            return table(items, [column for column in columns if fmt is Format.WIDE or not column.wide])


def line(value: object) -> str:
    """One object as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def table(rows: Iterable[Row], columns: Sequence[Column]) -> str:
    """Aligned columns under their headers, two spaces apart."""
    cells = [[column.header for column in columns]]
    cells += [[plain(column.show(row)) for column in columns] for row in rows]
    widths = [max(width(cell) for cell in column) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            _padded(cell, size, right=column.right) for cell, size, column in zip(texts, widths, columns, strict=True)
        ).rstrip()
        for texts in cells
    )


def _padded(text: str, size: int, *, right: bool) -> str:
    space = " " * (size - width(text))
    return space + text if right else text + space


def width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)


def plain(value: object) -> str:
    """A value as one cell: nothing as ``-``, lists joined by commas, and no character that could move the cursor."""
    if value is None or value == "":
        return NOTHING
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return (text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)) or NOTHING


def printable(text: str) -> str:
    """A text of several lines without characters that could move the cursor."""
    return "\n".join(plain(part) if part else "" for part in text.split("\n"))


def standing(name: str, state: str, reason: str | None) -> str:
    """One sentence on how something stands; a reason that begins with the state does not say it twice."""
    if not reason:
        return printable(f"{name} is {state}")
    return printable(f"{name} is {reason}" if reason.startswith(state) else f"{name} is {state}: {reason}")


def now_ms() -> int:
    """The time of this machine in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def ago(moment: int | None, now: int | None = None) -> str:
    """How long ago a moment (milliseconds) was, or in how long it comes: ``5m10s``, ``in 2h``."""
    if moment is None:
        return NOTHING
    past = (now_ms() if now is None else now) - moment
    return about_duration(past) if past >= 0 else f"in {about_duration(-past)}"


def rfc3339(moment: int) -> str:
    """A moment (milliseconds since 1970) in UTC, to the millisecond: ``2026-01-31T09:30:00.000Z``."""
    seconds, millis = divmod(moment, 1000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"
    except (ValueError, OverflowError, OSError):
        return str(moment)  # beyond the calendar


def with_rfc3339(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The same JSON with each time in milliseconds beside its RFC 3339 form."""
    if isinstance(value, list):
        return [with_rfc3339(item) for item in value]
    if not isinstance(value, dict):
        return value
    found: Row = {}
    for key, item in value.items():
        found[key] = with_rfc3339(item)
        if key in _TIMES and (bare := key.removesuffix("_ms")) not in value:
            found[bare] = None if item is None else rfc3339(item)
    return found


def share(text: str | None) -> str:
    """A share of the API, ``num/den``, as a percentage with one decimal."""
    return NOTHING if text is None else about_share(Fraction(text))


def gpus(text: str | None) -> str:
    """A number of GPUs of the API, ``num/den``, with one decimal, rounded half up."""
    if text is None:
        return NOTHING
    tenths = (Fraction(text) * 10 + Fraction(1, 2)).__floor__()
    return f"{tenths // 10}.{tenths % 10}"


def say(text: str) -> None:
    """Something for the person, on stderr."""
    click.echo(text, err=True)
