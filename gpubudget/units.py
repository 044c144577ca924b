"""Durations, GPU-time, shares and counts: parse what people write, format what people read.

Time is ``int`` milliseconds, GPU-time ``int`` GPU-milliseconds and a share an exact fraction; no float appears.
Knows nothing of files, clocks or the scheduler.
"""

from __future__ import annotations

import re
from fractions import Fraction

from gpubudget.errors import InvalidInputError

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

_UNITS = {"w": WEEK, "d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": 1}
_DURATION = re.compile(r"(?:[0-9]+(?:w|d|h|ms|m|s))+", re.ASCII)
_PART = re.compile(r"([0-9]+)(w|d|h|ms|m|s)", re.ASCII)
_LONGEST_TEXT = 40
_LONGEST_DURATION = 3_650 * DAY

_PERCENT = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,12}))?%", re.ASCII)
_RATIO = re.compile(r"([0-9]{1,12})/([0-9]{1,12})", re.ASCII)


def parse_duration(text: str, what: str = "duration") -> int:
    """Milliseconds of a duration such as ``4h``, ``15m``, ``1h30m``, ``7d``, ``500ms`` or ``0``.

    Units are w, d, h, m, s and ms, each a whole number, largest first and none twice. At most ten years.
    Raises InvalidInputError with a hint when the text is anything else.
    """
    hint = "write a whole number with a unit, such as 4h, 15m, 90s or 1h30m"
    if text == "0":
        return 0
    if len(text) > _LONGEST_TEXT or not _DURATION.fullmatch(text):
        msg = f"{what} {_quote(text)} is not a duration"
        raise InvalidInputError(msg, hint=hint)
    total, last = 0, _LONGEST_DURATION * 2
    for number, unit in _PART.findall(text):
        if _UNITS[unit] >= last:
            msg = f"{what} {_quote(text)} has its units out of order or twice"
            raise InvalidInputError(msg, hint=hint)
        last = _UNITS[unit]
        total += int(number) * last
    if total > _LONGEST_DURATION:
        msg = f"{what} {_quote(text)} is longer than ten years"
        raise InvalidInputError(msg, hint=hint)
    return total


def format_duration(millis: int) -> str:
    """The shortest exact text of a duration in milliseconds: ``5400000`` is ``1h30m``; parses back to the same."""
    if millis == 0:
        return "0"
    sign, rest = ("-", -millis) if millis < 0 else ("", millis)
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        whole, rest = divmod(rest, _UNITS[unit])
        if whole:
            parts.append(f"{whole}{unit}")
    return sign + "".join(parts)


def about_duration(millis: int) -> str:
    """A duration in milliseconds for a table, at most two units and rounded down: ``2d3h``, ``5m10s``, ``0s``."""
    sign, rest = ("-", -millis) if millis < 0 else ("", millis)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        whole, rest = divmod(rest, _UNITS[unit])
        if whole:
            parts.append(f"{whole}{unit}")
        elif parts:
            break
        if len(parts) == 2:  # noqa: PLR2004 - two units are what a reader takes in at once
            break
    return sign + "".join(parts) if parts else "0s"


def format_gpu_hours(gpu_millis: int) -> str:
    """GPU-milliseconds as GPU-hours with one decimal, rounded half away from zero: ``5400000`` is ``1.5``."""
    sign = "-" if gpu_millis < 0 else ""
    tenths = (abs(gpu_millis) * 10 + HOUR // 2) // HOUR
    return f"{sign}{tenths // 10}.{tenths % 10}"


def parse_share(text: str, what: str = "share") -> Fraction:
    """The exact fraction of a share such as ``50%``, ``12.5%`` or ``1/3``; from 0 to 1.

    Raises InvalidInputError for anything else: a bare number, a negative one, or more than the whole.
    """
    hint = "write a percentage such as 50% or 12.5%, or a fraction such as 1/3"
    percent, ratio = _PERCENT.fullmatch(text), _RATIO.fullmatch(text)
    if percent:
        whole, decimals = percent.group(1), percent.group(2) or ""
        share = Fraction(int(whole + decimals), 100 * 10 ** len(decimals))
    elif ratio and int(ratio.group(2)):
        share = Fraction(int(ratio.group(1)), int(ratio.group(2)))
    elif ratio:
        msg = f"{what} {_quote(text)} divides by zero"
        raise InvalidInputError(msg, hint=hint)
    else:
        msg = f"{what} {_quote(text)} is not a share"
        raise InvalidInputError(msg, hint=hint)
    if share > 1:
        msg = f"{what} {_quote(text)} is more than the whole (100%)"
        raise InvalidInputError(msg, hint="a share is between 0% and 100% of its parent")
    return share


def format_share(share: Fraction) -> str:
    """The exact text of a share: a percentage where at most three decimals say it, else a fraction."""
    thousandths = share * 100_000
    if thousandths.denominator != 1:
        return f"{share.numerator}/{share.denominator}"
    whole, decimals = divmod(thousandths.numerator, 1_000)
    tail = f"{decimals:03d}".rstrip("0")
    return f"{whole}.{tail}%" if tail else f"{whole}%"


def about_share(share: Fraction) -> str:
    """A share for a table: a percentage with one decimal, rounded half up."""
    tenths = (share * 1_000 + Fraction(1, 2)).__floor__()
    return f"{tenths // 10}.{tenths % 10}%"


def ratio_text(share: Fraction) -> str:
    """A share as ``num/den``, the form of the event log and the API."""
    return f"{share.numerator}/{share.denominator}"


def count(number: int, noun: str) -> str:
    """A number and what it counts: ``1 GPU``, ``2 GPUs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _quote(text: str) -> str:
    """A text as it is shown in a message: printable, quoted and of bounded length."""
    shown = text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."
    return ascii(shown) if not shown.isprintable() else f"'{shown}'"
