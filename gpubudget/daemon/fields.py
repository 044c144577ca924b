"""Strict reading of JSON bodies: every field is known, of its type and inside its bounds, or one sentence says why not.

Knows nothing of HTTP or scheduling. A problem raises InvalidInputError that names the field, what it holds and what
may stand there; texts in messages are of bounded length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

from gpubudget.errors import InvalidInputError
from gpubudget.units import format_duration, parse_duration

LONGEST_TEXT = 4_096
_SHOWN = 60
_REQUIRED: Any = object()

D = TypeVar("D")


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    """The value of a JSON text: UTF-8, no duplicate keys, no NaN, bounded depth and digits."""
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"the body is not UTF-8: byte {error.start} does not belong to any character") from None
    except json.JSONDecodeError as error:
        raise InvalidInputError(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidInputError("the body is nested too deeply", hint="nest less than a few hundred levels") from None
    except ValueError:
        raise InvalidInputError("the body has a number of more than 4,300 digits") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError(f"the body has the key {show(twice)} twice in one object", hint="keep one of the two")
    return found


def _no_constant(name: str) -> NoReturn:
    raise InvalidInputError(f"the body holds {name}, which is not a JSON number")


def show(value: object) -> str:
    """A value as it is shown in a message."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def plain_text(value: object, where: str, longest: int = LONGEST_TEXT, *, empty: bool = False) -> str:
    """A text that files, processes and databases can hold: no NUL, no half characters, of bounded length."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{where} is {show(value)}, not a text")
    if not (value or empty):
        raise InvalidInputError(f"{where} is empty")
    if len(value) > longest:
        raise InvalidInputError(f"{where} has {len(value)} characters; at most {longest} are allowed")
    if "\0" in value or (not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value)):
        raise InvalidInputError(f"{where} holds a NUL or half of a character", hint="send plain UTF-8 text")
    return value


class Fields:
    """One JSON object, read field by field; ``done`` then refuses what is left over."""

    __slots__ = ("_data", "_known", "_where")

    def __init__(self, data: object, where: str = "") -> None:
        if not isinstance(data, dict):
            raise InvalidInputError(f"{where or 'the body'} is {show(data)}, not a JSON object")
        self._data, self._where = data, f"{where}." if where else ""
        self._known: list[str] = []

    def _take(self, name: str, default: Any) -> Any:  # noqa: ANN401 - any JSON
        self._known.append(name)
        if name in self._data:
            return self._data[name]
        if default is _REQUIRED:
            raise InvalidInputError(f"{self._where}{name} is missing")
        return default

    def done(self) -> None:
        """Refuse fields that nobody asked for."""
        if len(self._data) > len(self._known) or not self._data.keys() <= set(self._known):
            unknown = next(iter(self._data.keys() - set(self._known)))
            hint = f"fields are {', '.join(self._known)}" if self._known else "send no fields, or no body"
            raise InvalidInputError(f"{self._where}{unknown[:_SHOWN]} is not a field", hint=hint)

    def text(self, name: str, default: D = _REQUIRED, *, longest: int = LONGEST_TEXT, empty: bool = False) -> str | D:
        """A text; ``default`` (also for null where it is None) when it is left out."""
        value = self._take(name, default)
        if value is default and default is not _REQUIRED:
            return default
        return plain_text(value, self._where + name, longest, empty=empty)

    def number(self, name: str, low: int, high: int, default: D = _REQUIRED) -> int | D:
        """A whole number from ``low`` to ``high``."""
        value = self._take(name, default)
        if value is default and default is not _REQUIRED:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidInputError(f"{self._where}{name} is {show(value)}, not a whole number")
        if not low <= value <= high:
            raise InvalidInputError(f"{self._where}{name} is {show(value)}; it may be {low} to {high}")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise InvalidInputError(f"{self._where}{name} is {show(value)}, not true or false")
        return value

    def duration(self, name: str, longest: int, default: D = _REQUIRED) -> int | D:
        """Milliseconds of a duration: a text such as "4h", or a whole number of milliseconds."""
        value = self._take(name, default)
        if value is default and default is not _REQUIRED:
            return default
        if isinstance(value, str):
            value = parse_duration(value, self._where + name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidInputError(
                f"{self._where}{name} is {show(value)}, not a duration", hint='write "4h", "15m" or milliseconds'
            )
        if not 0 <= value <= longest:
            raise InvalidInputError(
                f"{self._where}{name} is {show(value)} ms; it may be 0 to {format_duration(longest)}"
            )
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """One of a few words."""
        value = self._take(name, _REQUIRED)
        if not isinstance(value, str) or value not in allowed:
            raise InvalidInputError(f"{self._where}{name} is {show(value)}, not one of {', '.join(allowed)}")
        return value

    def texts(
        self, name: str, most: int, default: D = _REQUIRED, *, longest: int = LONGEST_TEXT, empty: bool = False
    ) -> tuple[str, ...] | D:
        """A list of texts, as a tuple."""
        value = self._take(name, default)
        if value is default and default is not _REQUIRED:
            return default
        where = self._where + name
        return tuple(plain_text(item, f"{where}[{i}]", longest, empty=empty) for i, item in _items(value, where, most))

    def objects(self, name: str, most: int) -> Iterator[Fields]:
        """A list of objects; none when it is left out."""
        value = self._take(name, [])
        where = self._where + name
        return (Fields(item, f"{where}[{i}]") for i, item in _items(value, where, most))

    def inner(self, name: str) -> Fields | None:
        """An object, or None when it is null or left out."""
        value = self._take(name, None)
        return None if value is None else Fields(value, self._where + name)

    def mapping(self, name: str, most: int, *, longest: int = LONGEST_TEXT) -> tuple[tuple[str, str], ...]:
        """An object of texts, as sorted pairs."""
        value = self._take(name, {})
        where = self._where + name
        if not isinstance(value, dict):
            raise InvalidInputError(f"{where} is {show(value)}, not a JSON object")
        if len(value) > most:
            raise InvalidInputError(f"{where} has {len(value)} entries; at most {most} are allowed")
        return tuple(
            sorted(
                (plain_text(k, where), plain_text(v, f"{where}.{k[:_SHOWN]}", longest, empty=True))
                for k, v in value.items()
            )
        )

    def raw(self, name: str, default: Any = _REQUIRED) -> Any:  # noqa: ANN401 - any JSON
        """The value as it came, for a reader of its own."""
        return self._take(name, default)


def _items(value: object, where: str, most: int) -> Iterator[tuple[int, Any]]:
    if not isinstance(value, list):
        raise InvalidInputError(f"{where} is {show(value)}, not a list")
    if len(value) > most:
        raise InvalidInputError(f"{where} has {len(value)} entries; at most {most} are allowed")
    return iter(enumerate(value))
