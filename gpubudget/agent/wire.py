"""What the daemon tells an agent: the answer of ``POST /v1/agents/{host}/sync`` as checked values.

Nothing here does I/O. Keys that this version does not know are passed over, so that a newer daemon can add some; what
it does know is checked, and an answer with anything wrong in it is refused as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

from gpubudget.core import plain
from gpubudget.errors import InvalidInputError

T = TypeVar("T")

TAIL_LIMIT = 64 * 1024
"""The most bytes of a log in one chunk."""
LONGEST_TEXT = 2_000
"""The most characters of a message in a report."""
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", re.ASCII)


class Key(NamedTuple):
    """One attempt of a workload."""

    workload: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Ref:
    """An attempt that is named in an answer."""

    workload: str
    attempt: int

    def __post_init__(self) -> None:
        if not _FILE_NAME.fullmatch(self.workload) or self.attempt < 0:
            raise InvalidInputError(f"{self.workload!r} attempt {self.attempt} cannot name an attempt")

    @property
    def key(self) -> Key:
        """What the attempt is known by here."""
        return Key(self.workload, self.attempt)


@dataclass(frozen=True, slots=True)
class Run(Ref):
    """An attempt that should be running on these GPUs. Times in milliseconds; ``rank`` is this host's in ``hosts``."""

    gpus: tuple[int, ...]
    rank: int
    hosts: tuple[str, ...]
    gpus_per_host: int
    command: tuple[str, ...]
    owner: str
    grace_ms: int
    env: dict[str, str] | None = None
    cwd: str | None = None
    resumable: bool = False
    ends_by_ms: int | None = None

    def __post_init__(self) -> None:
        Ref.__post_init__(self)
        if not (self.command and self.hosts and self.grace_ms >= 0):
            raise InvalidInputError(f"{self.workload} attempt {self.attempt} lacks a command, a host or a grace period")


@dataclass(frozen=True, slots=True)
class Stop(Ref):
    """An attempt that should end: SIGTERM, and SIGKILL after the grace period."""

    grace_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tail(Ref):
    """A piece of an attempt's log is wanted; the chunk goes back under ``request``."""

    request: str
    offset: int
    limit: int = TAIL_LIMIT


@dataclass(frozen=True, slots=True)
class Repair:
    """The host is empty: its repair steps are to run, once for each token."""

    token: str


@dataclass(frozen=True, slots=True)
class Answer:
    """All that should be on this host now."""

    run: tuple[Run, ...] = ()
    stop: tuple[Stop, ...] = ()
    forget: tuple[Ref, ...] = ()
    repair: Repair | None = None
    tails: tuple[Tail, ...] = ()
    poll_ms: int = 5_000


def sayable(text: str) -> str:
    """A text from anywhere as a report may hold it: printable and of bounded length."""
    return "".join(char if char.isprintable() else " " for char in text[:LONGEST_TEXT])


def parse_answer(data: object) -> Answer:
    """The answer in this JSON; raises InvalidInputError naming the place of what is wrong."""
    if not isinstance(data, dict):
        raise InvalidInputError("the daemon's answer is not a JSON object")
    known = _known(Answer, data)
    for name, kind in (("run", Run), ("stop", Stop), ("forget", Ref), ("tails", Tail)):
        if isinstance(data.get(name), list):
            known[name] = [_known(kind, item) for item in data[name]]
    if data.get("repair"):
        known["repair"] = _known(Repair, data["repair"])
    return plain.decode(Answer, known, "answer")


def _known(kind: type[Any], data: object) -> Any:  # noqa: ANN401 - what is no object stays what it is
    """An object without the keys that ``kind`` does not have."""
    if not isinstance(data, dict):
        return data
    names = {field.name for field in fields(kind)}
    return {key: str(value) if key == "request" else value for key, value in data.items() if key in names}
