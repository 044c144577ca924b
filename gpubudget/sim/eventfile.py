"""Reading an event log: one JSON object a line, in the public format, each line checked before anyone uses it.

Knows the shapes of the lines and nothing of what they mean together. A line that is wrong becomes a ``Finding`` with
its number; no line raises. Keys that are not known are let through, since the format may grow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from gpubudget.errors import InvalidInputError

LONGEST_LINE = 16 << 20
"""Bytes."""
_LARGEST = 1 << 63
_DEEPEST = 100
_LANE = ("max_gpus", "max_runtime_ms", "per_person", "allowance_gpu_ms")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SHARE = re.compile(r"[0-9]{1,300}/0*[1-9][0-9]{0,299}", re.ASCII)

STOP_REASONS = frozenset({"finished", "failed", "cancelled", "preempted", "drained", "host_lost", "forced", "limit"})
HOST_STATES = frozenset({"ready", "cordoned", "draining", "drained", "repairing", "lost", "removed"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, where (a line number from 1), and by which rule."""

    line: int
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Line:
    """One sound line; ``at`` is in milliseconds and ``data`` is the whole object."""

    number: int
    at: int
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a value must look like, in words and as a test."""

    words: str
    fits: Callable[[Any], bool]


def _is_int(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < _LARGEST


def _is_pairs(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and _TEXT.fits(pair[0]) and _is_int(pair[1], 1)  # noqa: PLR2004 - a pair
        for pair in value
    )


def _is_placement(value: object) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(gpus, list) and gpus and all(_is_int(gpu, 0) for gpu in gpus) for gpus in value.values())
    )


def _is_share(value: object) -> bool:
    return isinstance(value, str) and _SHARE.fullmatch(value) is not None


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.count("/") <= _DEEPEST


def _is_budget(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    shares, previously = value.get("shares") or {}, value.get("previously")
    return (
        _is_path(value.get("path"))
        and _is_share(value.get("share"))
        and isinstance(shares, dict)
        and all(_is_share(share) for share in shares.values())
        and (previously is None or previously == "" or _is_path(previously))
    )


def _is_policy(value: object) -> bool:
    if not isinstance(value, dict) or not _is_int(value.get("lookback_ms"), 1):
        return False
    debug = value.get("debug")
    if not all(_is_int(time, 0) for name, time in value.items() if name.endswith("_ms")):
        return False
    return debug is None or (isinstance(debug, dict) and _is_lane(debug))


def _is_lane(value: dict[str, object]) -> bool:
    return _is_int(value.get("gpus"), 0) and all(_is_int(value[name], 0) for name in _LANE if name in value)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(fits(item) for item in value)


def _one_of(words: frozenset[str]) -> _Shape:
    return _Shape("one of " + ", ".join(sorted(words)), lambda value: isinstance(value, str) and value in words)


_TEXT = _Shape("a text", lambda value: isinstance(value, str) and value != "")
_ANY_TEXT = _Shape("a text", lambda value: isinstance(value, str))
_TEXT_OR_NULL = _Shape("a text or null", lambda value: value is None or _TEXT.fits(value))
_PATH = _Shape(f"a path of at most {_DEEPEST} budgets", _is_path)
_PATH_OR_NULL = _Shape(f"a path of at most {_DEEPEST} budgets, or null", lambda value: value is None or _is_path(value))
_TEXTS = _Shape("a list of texts", _list_of(_TEXT.fits))
_FLAG = _Shape("true or false", lambda value: isinstance(value, bool))
_INT = _Shape("a whole number", lambda value: _is_int(value, -_LARGEST))
_COUNT = _Shape("a whole number from 0", lambda value: _is_int(value, 0))
_POSITIVE = _Shape("a whole number from 1", lambda value: _is_int(value, 1))
_POSITIVE_OR_NULL = _Shape("a whole number from 1 or null", lambda value: value is None or _is_int(value, 1))
_PAIRS = _Shape("a list of [workload, attempt]", _is_pairs)
_PLACEMENT = _Shape("an object of host names, each with a list of GPU indices", _is_placement)
_BUDGETS = _Shape('a list of {path, share: "num/den"}', _list_of(_is_budget))
_POLICY = _Shape("an object with lookback_ms", _is_policy)
_REASON = _one_of(STOP_REASONS)
_STATE = _one_of(HOST_STATES)

_REQUIRED: dict[str, dict[str, _Shape]] = {
    "budgets_applied": {"budgets": _BUDGETS, "policy": _POLICY},
    "host": {"host": _TEXT, "state": _STATE},
    "submitted": {"workload": _TEXT, "budget": _PATH_OR_NULL, "gpus": _POSITIVE, "min_runtime_ms": _COUNT},
    "started": {
        "workload": _TEXT,
        "attempt": _POSITIVE,
        "allocated": _FLAG,
        "placement": _PLACEMENT,
        "protected_until_ms": _COUNT,
        "preempted": _PAIRS,
    },
    "stopped": {"workload": _TEXT, "attempt": _COUNT, "reason": _REASON},
    "requeued": {"workload": _TEXT},
    "refused": {"workload": _TEXT, "reason": _ANY_TEXT},
    "reserved": {"workload": _TEXT, "start_ms": _COUNT, "hosts": _TEXTS},
    "claimed": {"workload": _TEXT, "pool": _TEXT, "hosts": _TEXTS, "preempted": _PAIRS},
    "unclaimed": {"workload": _TEXT, "reason": _ANY_TEXT},
    "stopping": {"workload": _TEXT, "attempt": _POSITIVE, "reason": _REASON},
    "held": {"workload": _TEXT, "reason": _ANY_TEXT},
    "checkpoint": {"workload": _TEXT, "attempt": _POSITIVE},
    "moved": {"workload": _TEXT, "budget": _PATH},
}
_OPTIONAL: dict[str, dict[str, _Shape]] = {
    "host": {"pool": _TEXT, "gpus": _COUNT},
    "claimed": {"gpus": _POSITIVE},
    "submitted": {
        "pool": _TEXT_OR_NULL,
        "pools": _TEXTS,
        "gpus_per_host": _POSITIVE_OR_NULL,
        "hosts": _POSITIVE_OR_NULL,
        "resumable": _FLAG,
        "debug": _FLAG,
        "priority": _INT,
        "max_runtime_ms": _COUNT,
    },
    "started": {"pool": _TEXT, "lane": _FLAG},
    "stopped": {"for": _TEXT_OR_NULL},
    "stopping": {"for": _TEXT_OR_NULL},
    "reserved": {"pool": _TEXT_OR_NULL, "estimate": _FLAG},
}


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; raises InvalidInputError at one that is too long, before it fills the memory."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise InvalidInputError(
                f"line {number} of the log is longer than {LONGEST_LINE >> 20} MB",
                hint="`gpubudget get events -o jsonl` prints a log",
            )
        yield line


def read(lines: Iterable[bytes]) -> Iterator[Line | Finding]:
    """Each line of a log, in order, as a sound ``Line`` or a ``Finding`` that says what is wrong with it."""
    last = 0
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        line = check(number, _parse(number, raw))
        if isinstance(line, Line):
            if line.at < last:
                message = f"time goes back from {last} to {line.at}"
                yield Finding(number, "time-goes-back", message)
                continue
            last = line.at
        yield line


def check(number: int, data: object) -> Line | Finding:
    """One parsed line: the ``Line``, or what is wrong with its kind, keys or values."""
    if isinstance(data, Finding):
        return data
    if not isinstance(data, dict):
        return Finding(number, "not-an-object", f"the line is not a JSON object but {type(data).__name__}")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in _REQUIRED:
        return Finding(number, "unknown-kind", f"kind {_short(kind)} is not known")
    required = {"at": _COUNT, **_REQUIRED[kind]}
    if kind == "host" and data.get("state") != "removed":
        required |= _OPTIONAL["host"]
    missing = [key for key in required if key not in data]
    if missing:
        return Finding(number, "missing-key", f"{kind} lacks {', '.join(missing)}")
    for key, shape in (required | _OPTIONAL.get(kind, {})).items():
        if key in data and not shape.fits(data[key]):
            return Finding(number, "wrong-type", f"{kind}.{key} is {_short(data[key])}, not {shape.words}")
    return Line(number, data["at"], kind, data)


def _parse(number: int, raw: bytes) -> object:
    """The JSON value of a line, or the finding that it is none."""
    if len(raw) > LONGEST_LINE:
        return Finding(number, "line-too-long", f"the line has {len(raw)} bytes; at most {LONGEST_LINE} are read")
    try:
        found = json.loads(raw.decode("utf-8"))
        if _SURROGATE.search(raw):
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Finding(number, "not-json", "the line has half of a character (a lone surrogate)")
    except (ValueError, RecursionError) as error:
        return Finding(number, "not-json", f"the line is not JSON: {_short(str(error))}")
    return found


def _short(value: object) -> str:
    """A value as a message shows it: printable and of bounded length."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - about what a reader takes in
