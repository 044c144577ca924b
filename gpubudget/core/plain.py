"""Values to plain data and back: what the API, the database and snapshots are made of.

Works on frozen dataclasses by their annotations: fractions become ``"num/den"``, enums their value, tuples lists, and
a member of a union of dataclasses is tagged with its class name under ``kind``. Decoding checks everything and names
the place of what is wrong; it never guesses.
"""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Callable, Hashable
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from gpubudget.errors import InvalidInputError
from gpubudget.units import ratio_text

T = TypeVar("T")

_LARGEST = 10**30


def encode(value: object) -> Any:  # noqa: ANN401 - plain data has no narrower type; one return a kind
    """Plain data (dict, list, str, int, bool, None) of a value."""
    kind: Any = type(value)
    if kind in _AS_IT_IS:
        return value
    if (names := _fields_of(kind)) is not None:
        return {"kind": kind.__name__, **{name: encode(getattr(value, name)) for name in names}}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        return ratio_text(value)
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    raise TypeError(f"{kind.__name__} has no plain form")


_AS_IT_IS = frozenset({str, int, bool, type(None)})


@cache
def _fields_of(kind: type[Any]) -> tuple[str, ...] | None:
    """The names of a dataclass's fields, found once for each; None for another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def canonical(value: object) -> str:
    """The one JSON text of a value: sorted keys, no spaces, ASCII."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(value: object) -> str:
    """The SHA-256 of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def decode(wanted: type[T], data: object, where: str = "") -> T:
    """The value of type ``wanted`` that ``data`` is the plain form of; raises InvalidInputError naming the place."""
    return cast("T", _decoder(cast("Hashable", wanted))(data, where))


_Decode = Callable[[object, str], object]


def _fail(where: str, data: object, expected: str) -> InvalidInputError:
    shown = json.dumps(data, default=str)[:60]
    return InvalidInputError(f"{where or 'the value'} is {shown}, not {expected}")


def _inside(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


@cache
def _decoder(wanted: Any) -> _Decode:  # noqa: ANN401 - a type form; one return a kind
    """The function that decodes one type, made once."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in {Union, types.UnionType}:
        return _union_decoder(arguments)
    if origin is tuple:
        return _tuple_decoder(arguments)
    if origin is dict:
        return _dict_decoder(arguments[1])
    if is_dataclass(wanted):
        return _record_decoder(cast("type", wanted))
    if wanted is Fraction:
        return _decode_fraction
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return _enum_decoder(wanted)
    if wanted in _SCALARS:
        return _SCALARS[wanted]
    raise TypeError(f"{wanted} has no plain form")


def _decode_fraction(data: object, where: str) -> Fraction:
    head, slash, tail = data.partition("/") if isinstance(data, str) else ("", "", "")
    if not (slash and head.isascii() and tail.isascii() and head.isdigit() and tail.isdigit() and tail.strip("0")):
        raise _fail(where, data, 'a fraction such as "1/3"')
    return Fraction(int(head), int(tail))


def _decode_int(data: object, where: str) -> int:
    if not isinstance(data, int) or isinstance(data, bool) or abs(data) > _LARGEST:
        raise _fail(where, data, "a whole number")
    return data


def _decode_bool(data: object, where: str) -> bool:
    if not isinstance(data, bool):
        raise _fail(where, data, "true or false")
    return data


def _decode_str(data: object, where: str) -> str:
    if not isinstance(data, str):
        raise _fail(where, data, "a text")
    return data


def _decode_none(data: object, where: str) -> None:
    if data is not None:
        raise _fail(where, data, "null")


_SCALARS: dict[object, _Decode] = {
    int: _decode_int,
    bool: _decode_bool,
    str: _decode_str,
    type(None): _decode_none,
}


def _enum_decoder(wanted: type[Enum]) -> _Decode:
    values = {member.value: member for member in wanted}

    def decode_enum(data: object, where: str) -> Enum:
        if not isinstance(data, str) or data not in values:
            raise _fail(where, data, "one of " + ", ".join(values))
        return values[data]

    return decode_enum


def _tuple_decoder(arguments: tuple[Any, ...]) -> _Decode:
    every = len(arguments) == 2 and arguments[1] is Ellipsis  # noqa: PLR2004 - tuple[X, ...]

    def decode_tuple(data: object, where: str) -> tuple[object, ...]:
        if not isinstance(data, list) or (not every and len(data) != len(arguments)):
            raise _fail(where, data, "a list" if every else f"a list of {len(arguments)}")
        kinds = [arguments[0]] * len(data) if every else arguments
        return tuple(
            _decoder(kind)(item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, data, strict=True))
        )

    return decode_tuple


def _dict_decoder(item_type: Any) -> _Decode:  # noqa: ANN401 - a type form
    def decode_dict(data: object, where: str) -> dict[str, object]:
        if not isinstance(data, dict):
            raise _fail(where, data, "an object")
        return {str(key): _decoder(item_type)(item, _inside(where, key)) for key, item in data.items()}

    return decode_dict


def _union_decoder(arguments: tuple[type, ...]) -> _Decode:
    optional = type(None) in arguments
    records: dict[str, Any] = {kind.__name__: kind for kind in arguments if is_dataclass(kind)}
    others = [kind for kind in arguments if kind is not type(None) and not is_dataclass(kind)]

    def decode_union(data: object, where: str) -> object:
        if data is None and optional:
            return None
        if isinstance(data, dict) and records:
            kind = data.get("kind", next(iter(records)) if len(records) == 1 else None)
            if not isinstance(kind, str) or kind not in records:
                raise _fail(_inside(where, "kind"), kind, "one of " + ", ".join(records))
            return _decoder(records[kind])(data, where)
        if len(others) == 1:
            return _decoder(others[0])(data, where)
        raise _fail(where, data, "one of " + ", ".join([*records, *(kind.__name__ for kind in others)]))

    return decode_union


def _record_decoder(wanted: type) -> _Decode:
    hints = get_type_hints(wanted)
    members: dict[str, Field[Any]] = {field.name: field for field in fields(wanted)}
    required = [n for n, f in members.items() if f.default is MISSING and f.default_factory is MISSING]

    def decode_record(data: object, where: str) -> object:
        if not isinstance(data, dict):
            raise _fail(where, data, f"a {wanted.__name__} object")
        if data.get("kind", wanted.__name__) != wanted.__name__:
            raise _fail(_inside(where, "kind"), data["kind"], f'"{wanted.__name__}"')
        unknown = [key for key in data if key not in members and key != "kind"]
        missing = [name for name in required if name not in data]
        if unknown or missing:
            what = f"has an unknown key {unknown[0]!r}" if unknown else f"lacks the key {missing[0]!r}"
            raise InvalidInputError(f"{where or wanted.__name__} {what}", hint="keys: " + ", ".join(members))
        given = {k: _decoder(hints[k])(v, _inside(where, k)) for k, v in data.items() if k != "kind"}
        return wanted(**given)

    return decode_record
