"""The files of a tree as typed values that still know where each part stands.

Knows what the keys of a ``budget.yaml`` and a ``cluster.yaml`` mean, but not how files relate: that is for
``rules.py``. Reading is tolerant: what has the wrong type was reported by the structure check and is left out here, so
that the rules can go on with the rest. Only what the schema cannot say (a share above the whole, a day that is not in
the calendar) is reported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from gpubudget.core.budget import DatedShares, DebugLane, Policy, Pool, Shares
from gpubudget.errors import InvalidInputError
from gpubudget.gitops.diagnostics import Diagnostic, Position, quoted
from gpubudget.gitops.structure import fits
from gpubudget.gitops.yamlfile import Map, Seq, Value, key_place, value_place
from gpubudget.units import parse_duration, parse_share

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_PEOPLE = 1_000  # the schema refuses more
_YEARS = range(2000, 2200)


class Term(NamedTuple):
    """A share and where it is written."""

    share: Fraction
    at: Position


class Name(NamedTuple):
    """A name or path and where it is written."""

    text: str
    at: Position


@dataclass(frozen=True, slots=True)
class WrittenShares:
    """What a child gets of its parent, as written; None for each share that cannot be read."""

    default: Term | None
    by_pool: dict[str, Term | None]
    pool_keys: dict[str, Position]

    def of(self, pool: str | None) -> Term | None:
        """The share in ``pool`` (None: a pool that is not named here)."""
        return self.by_pool.get(pool, self.default) if pool else self.default

    def value(self) -> Shares:
        """The shares of a tree without problems."""
        assert self.default  # noqa: S101 - one that is missing or wrong is an error, and then there is no tree
        return Shares(self.default.share, tuple((pool, term.share) for pool, term in self.by_pool.items() if term))


@dataclass(frozen=True, slots=True)
class WrittenChange:
    """Other shares between two dates; ``start`` and ``until`` in milliseconds since 1970."""

    start: int
    until: int
    first: str
    last: str
    shares: WrittenShares
    at: Position

    def value(self) -> DatedShares:
        """The dated shares of a tree without problems."""
        return DatedShares(self.start, self.until, self.shares.value())


@dataclass(frozen=True, slots=True)
class Description:
    """What a budget says of itself, in its own file or inline in its parent's."""

    title: str = ""
    managers: tuple[Name, ...] = ()
    members: tuple[Name, ...] = ()
    previously: Name | None = None


@dataclass(frozen=True, slots=True)
class Child:
    """A child as its parent's file lists it; ``inline`` are the places of the keys that describe it there."""

    name: str
    at: Position
    shares: WrittenShares
    changes: tuple[WrittenChange, ...]
    description: Description
    inline: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class BudgetFile:
    """A ``budget.yaml``; ``children`` is None when nobody can say which ones it lists."""

    file: str
    at: Position
    description: Description
    children: tuple[Child, ...] | None
    children_at: Position


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A ``cluster.yaml``; ``pools`` is empty when they cannot be read. ``places`` are those of settings, by key."""

    name: str = "cluster"
    timezone: str = "UTC"
    pools: tuple[Pool, ...] = ()
    policy: Policy = field(default_factory=Policy)
    places: dict[str, Position] = field(default_factory=dict)
    zone: tzinfo = UTC


def read_cluster(file: str, root: Value, problems: list[Diagnostic]) -> ClusterFile:
    """The typed form of a ``cluster.yaml``; what cannot be read has its default."""
    if not isinstance(root, Map):
        return ClusterFile()
    name, timezone = root.get("name"), root.get("timezone", "UTC")
    pools = []
    for pool, entry in _entries(root.get("pools")):
        hosts, gpus = (entry.get("hosts"), entry.get("gpus_per_host")) if isinstance(entry, Map) else (None, None)
        if type(hosts) is int and type(gpus) is int:
            pools.append(Pool(pool, gpus, hosts))
    zone: tzinfo = UTC
    if isinstance(timezone, str) and timezone != "UTC":
        try:
            zone = ZoneInfo(timezone)
        except (KeyError, ValueError, OSError):
            message = f"{quoted(timezone)} is no timezone known to this machine"
            hint = "write a name such as Europe/Berlin or UTC; if it is right, install the system's tzdata"
            problems.append(Diagnostic("timezone-unknown", value_place(file, root, "timezone"), message, hint))
    policy, places = _policy(file, root.get("policy"), problems)
    return ClusterFile(
        name if isinstance(name, str) else "cluster",
        timezone if isinstance(timezone, str) else "UTC",
        tuple(pools),
        policy,
        places,
        zone,
    )


def _policy(file: str, entry: Value, problems: list[Diagnostic]) -> tuple[Policy, dict[str, Position]]:
    places: dict[str, Position] = {}
    settings: dict[str, int] = {}
    lane = entry.get("debug") if isinstance(entry, Map) else None
    for setting in (f.name for f in fields(Policy)):
        if isinstance(entry, Map) and setting in entry and setting != "debug":
            places[setting] = value_place(file, entry, setting)
            found = _duration(entry[setting], places[setting], problems)
            settings |= {} if found is None else {setting: found}
    policy = replace(Policy(), **settings)  # type: ignore[arg-type]  # all settings but the lane are integers
    if not isinstance(lane, Map) or type(lane.get("gpus")) is not int:
        return policy, places
    gpus = lane["gpus"]
    values = {"gpus": gpus, "max_gpus": min(gpus, DebugLane(gpus).max_gpus)}
    for setting in (f.name for f in fields(DebugLane)):
        if setting in lane:
            places[f"debug.{setting}"] = value_place(file, lane, setting)
            value: object = lane[setting]
            if setting in {"max_runtime", "allowance"}:
                value = _duration(lane[setting], places[f"debug.{setting}"], problems)
            values |= {setting: value} if type(value) is int else {}
    return replace(policy, debug=DebugLane(**values)), places


def _duration(written: Value, at: Position, problems: list[Diagnostic]) -> int | None:
    if type(written) is int and not written:
        return 0
    if isinstance(written, str) and fits("cluster", "duration", written):
        try:
            return parse_duration(written)
        except InvalidInputError as error:
            problems.append(Diagnostic("duration-syntax", at, error.message, error.hint))
    return None


def read_budget(file: str, root: Value, zone: tzinfo, problems: list[Diagnostic]) -> BudgetFile:
    """The typed form of a ``budget.yaml``; what cannot be read is left out."""
    if not isinstance(root, Map):
        return BudgetFile(file, Position(file), _NOTHING, None, Position(file))
    at = children_at = Position(file, root.line, root.column)
    children: tuple[Child, ...] | None = ()
    if "children" in root:
        children_at = key_place(file, root, "children")
        listed = root["children"]
        children = None
        if isinstance(listed, Map):
            children = tuple(_child(file, listed, name, zone, problems) for name in listed)
    return BudgetFile(file, at, _description(file, root), children, children_at)


def _description(file: str, entry: Map) -> Description:
    title, former = entry.get("title"), entry.get("previously")
    if not isinstance(former, str) or not fits("budget", "previously", former):
        former = None
    return Description(
        title.strip() if isinstance(title, str) else "",
        _names(file, entry.get("managers")),
        _names(file, entry.get("members")),
        Name(former, value_place(file, entry, "previously")) if former else None,
    )


def _names(file: str, listed: Value) -> tuple[Name, ...]:
    if not isinstance(listed, Seq):
        return ()
    written = zip(listed[:_MOST_PEOPLE], listed.spots, strict=False)
    return tuple([Name(text, Position(file, *spot)) for text, spot in written if type(text) is str])


def _child(file: str, listed: Map, name: str, zone: tzinfo, problems: list[Diagnostic]) -> Child:
    entry, at = listed[name], key_place(file, listed, name)
    if not isinstance(entry, Map):
        return Child(name, at, _shares(file, listed, name, problems), (), _NOTHING, ())
    dated = entry.get("changes")
    changes = (_change(file, item, zone, problems) for item in dated) if isinstance(dated, Seq) else ()
    inline = tuple(Name(key, key_place(file, entry, key)) for key in entry if key in _DESCRIBING)
    description = _description(file, entry) if inline else _NOTHING
    shares = _shares(file, entry, "share", problems)
    return Child(name, at, shares, tuple(change for change in changes if change), description, inline)


_NOTHING = Description()
_DESCRIBING = frozenset(f.name for f in fields(Description))


def _change(file: str, entry: Value, zone: tzinfo, problems: list[Diagnostic]) -> WrittenChange | None:
    if not isinstance(entry, Map):
        return None
    start = _moment(file, entry, "from", zone, problems)
    until = _moment(file, entry, "until", zone, problems)
    shares = _shares(file, entry, "share", problems)
    if start is None or until is None:
        return None
    at = Position(file, entry.line, entry.column)
    return WrittenChange(start, until, entry["from"], entry["until"], shares, at)


def _moment(file: str, entry: Map, key: str, zone: tzinfo, problems: list[Diagnostic]) -> int | None:
    text = entry.get(key)
    if not isinstance(text, str) or not fits("budget", "date", text):
        return None
    moment = _midnight(text, zone)
    if moment is None:
        message = f"{quoted(text)} is not a day of the years {_YEARS[0]} to {_YEARS[-1]}"
        hint = "write year, month and day of a real date as 2026-12-01"
        problems.append(Diagnostic("date-syntax", value_place(file, entry, key), message, hint))
    return moment


@lru_cache(maxsize=4096)
def _midnight(text: str, zone: tzinfo) -> int | None:
    """The first moment of a day in a timezone, in milliseconds since 1970; None when there is no such day.

    A midnight that the clocks skip is the moment at which they skip it, and one that comes twice is the first.
    """
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    if day.year not in _YEARS:
        return None
    return (datetime(day.year, day.month, day.day, tzinfo=zone) - _EPOCH) // timedelta(milliseconds=1)


def _shares(file: str, entry: Map, key: str, problems: list[Diagnostic]) -> WrittenShares:
    written = entry.get(key)
    if isinstance(written, str):
        return WrittenShares(_term(written, value_place(file, entry, key), problems), {}, {})
    if not isinstance(written, Map):
        return WrittenShares(None, {}, {})
    by_pool = {pool: _term(text, value_place(file, written, pool), problems) for pool, text in written.items()}
    default = by_pool.pop("default", None)
    return WrittenShares(default, by_pool, {pool: key_place(file, written, pool) for pool in by_pool})


def _term(text: Value, at: Position, problems: list[Diagnostic]) -> Term | None:
    if not isinstance(text, str):
        return None
    parsed = _parsed_share(text)
    if isinstance(parsed, Fraction):
        return Term(parsed, at)
    if parsed:
        problems.append(Diagnostic("share-syntax", at, parsed.message, parsed.hint))
    return None


@lru_cache(maxsize=4096)
def _parsed_share(text: str) -> Fraction | InvalidInputError | None:
    """A share, what is wrong with it, or None where the schema has already said so."""
    if not fits("budget", "share", text):
        return None
    try:
        return parse_share(text)
    except InvalidInputError as error:
        return error


def _entries(entry: Value) -> Iterator[tuple[str, Value]]:
    return iter(entry.items()) if isinstance(entry, Map) else iter(())
