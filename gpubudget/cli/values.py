"""What options accept: whole numbers, durations and names, each refused with one sentence that shows what was given."""

from __future__ import annotations

import re
from fractions import Fraction

import click

from gpubudget.errors import InvalidInputError
from gpubudget.units import parse_duration, parse_share

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_SHOWN = 60
_LONGEST_NAME = 500


def shown(text: str) -> str:
    """A text as it is quoted in a message: bounded and printable."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


class Whole(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument
    """A whole number from ``low`` to ``high``."""

    def __init__(self, name: str, low: int, high: int) -> None:
        self.name = name
        self.low, self.high = low, high

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error for anything else."""
        text = str(value)
        if not _WHOLE.fullmatch(text) or not self.low <= int(text) <= self.high:
            self.fail(f"{shown(text)} is not a whole number from {self.low:,} to {self.high:,}", param, ctx)
        return int(text)


class Duration(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument
    """A duration such as ``4h``, in milliseconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds; a usage error for what is no duration."""
        if isinstance(value, int):
            return value
        try:
            return parse_duration(str(value))
        except InvalidInputError as error:
            text = error.message.removeprefix("duration ")
            self.fail(f"{text}; {error.hint}" if error.hint else text, param, ctx)


class Share(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument
    """A part of the whole such as ``25%`` or ``1/3``, exactly."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        """The fraction; a usage error for what is no share."""
        if isinstance(value, Fraction):
            return value
        try:
            return parse_share(str(value))
        except InvalidInputError as error:
            self.fail(f"{error.message.removeprefix('share ')}; {error.hint}", param, ctx)


class Name(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument
    """The name of something: not empty, printable and in one piece."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as given; a usage error for what can be none."""
        text = str(value)
        if not text or not text.isprintable() or " " in text or len(text) > _LONGEST_NAME:
            self.fail(f"{shown(text)} is no {self.name}" + ("; it is empty" if not text else ""), param, ctx)
        return text


WORKLOAD = Name("workload")
HOST = Name("host")
BUDGET = Name("budget")
POOL = Name("pool")
DURATION = Duration()
SHARE = Share()
