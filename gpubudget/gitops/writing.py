"""From the value of a tree to its files, in their canonical layout: what reading gives back is the same value.

A budget with children has a folder of its own; one without is described in its parent's file. What is as by default is
left out. Knows nothing of disks.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from fractions import Fraction
from zoneinfo import ZoneInfo

from gpubudget.core.budget import ROOT, Budget, DatedShares, DebugLane, Policy, Shares, Tree
from gpubudget.gitops.load import BUDGET_FILE, CLUSTER_FILE
from gpubudget.units import SECOND, format_duration, format_share

_WIDEST = 100
_DECIMALS = 12
_DIGITS = 9_999
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9-]*(?: [A-Za-z0-9-]+)*")
_WORDS = {"null", "true", "false"}
_SCHEMA = "# yaml-language-server: $schema={}schemas/{}.schema.json\n"
_DEFAULT = Policy()


def files(tree: Tree, *, schemas: str | None = None) -> dict[str, str]:
    """The text of each file by its path below the tree's folder; ``schemas`` is the way from there to their folder.

    Every share must be one that can be written (see ``writable``).
    """
    zone: tzinfo = UTC if tree.timezone == "UTC" else ZoneInfo(tree.timezone)
    found = {CLUSTER_FILE: _header(schemas, 0, "cluster") + _cluster(tree)}
    for budget in tree.budgets():
        if budget.children or budget.path == ROOT:
            at = "" if budget.path == ROOT else f"{budget.path}/"
            found[at + BUDGET_FILE] = _header(schemas, at.count("/"), "budget") + _budget(budget, zone)
    return found


def _header(schemas: str | None, depth: int, kind: str) -> str:
    return "" if schemas is None else _SCHEMA.format("../" * depth + schemas, kind)


def writable(share: Fraction) -> Fraction:
    """The share itself if a file can say it, else the largest one below it that a file can say."""
    if max(share.numerator, share.denominator) <= _DIGITS:
        return share
    unit = 100 * 10**_DECIMALS
    return Fraction((share * unit).__floor__(), unit)


def share_text(share: Fraction) -> str:
    """A share as a file says it, exactly."""
    text = format_share(share)
    if text.endswith("%") or max(share.numerator, share.denominator) <= _DIGITS:
        return text
    whole, decimals = divmod((share * 100 * 10**_DECIMALS).numerator, 10**_DECIMALS)
    return f"{whole}.{decimals:0{_DECIMALS}d}".rstrip("0") + "%"


def _shares(shares: Shares) -> str:
    if not shares.by_pool:
        return share_text(shares.default)
    parts = {
        "default": share_text(shares.default),
        **{_name(pool): share_text(share) for pool, share in shares.by_pool},
    }
    return _flow(parts)


def _flow(parts: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in parts.items()) + "}"


def _list(names: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_name, names))}]"


def _name(name: str) -> str:
    """A name, in quotes where YAML would read something else."""
    return name if name[0].isalpha() and name not in _WORDS else f'"{name}"'


def _title(title: str) -> str:
    plain = _PLAIN.fullmatch(title) and title.lower() not in _WORDS
    return title if plain else '"' + "".join(map(_escaped, title)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def _about(budget: Budget) -> dict[str, str]:
    """What describes a budget, without its share and its children."""
    return {
        **({"title": _title(budget.title)} if budget.title else {}),
        **({"managers": _list(budget.managers)} if budget.managers else {}),
        **({"members": _list(budget.members)} if budget.members else {}),
        **({"previously": budget.previously} if budget.previously else {}),
    }


def _budget(budget: Budget, zone: tzinfo) -> str:
    lines = ["kind: Budget", *(f"{key}: {value}" for key, value in _about(budget).items())]
    lines += ["children:"] if budget.children else []
    for child in budget.children:
        lines += _child(child, zone)
    return "\n".join(lines) + "\n"


def _child(child: Budget, zone: tzinfo) -> list[str]:
    """The lines about a child in its parent's file."""
    name = _name(child.path.rpartition("/")[2])
    parts = {"share": _shares(child.shares), **({} if child.children else _about(child))}
    if not child.changes and len(parts) == 1 and not child.shares.by_pool:
        return [f"  {name}: {parts['share']}"]
    line = f"  {name}: {_flow(parts)}"
    if not child.changes and len(line) <= _WIDEST:
        return [line]
    lines = [f"  {name}:", *(f"    {key}: {value}" for key, value in parts.items())]
    lines += ["    changes:"] if child.changes else []
    return lines + [f"      - {_change(change, zone)}" for change in child.changes]


def _change(change: DatedShares, zone: tzinfo) -> str:
    parts = {"from": _day(change.start, zone), "until": _day(change.until, zone), "share": _shares(change.shares)}
    return _flow(parts)


def _day(millis: int, zone: tzinfo) -> str:
    """The day that begins at a moment, or at whose skipped midnight the moment is."""
    return datetime.fromtimestamp(millis // SECOND, UTC).astimezone(zone).date().isoformat()


def _cluster(tree: Tree) -> str:
    lines = ["kind: Cluster", f"name: {_name(tree.cluster)}"]
    lines += [f"timezone: {tree.timezone}"] if tree.timezone != "UTC" else []
    lines += ["pools:"]
    lines += [f"  {_name(p.name)}: {{hosts: {p.hosts}, gpus_per_host: {p.gpus_per_host}}}" for p in tree.pools]
    policy = _policy(tree.policy)
    lines += ["policy:", *(f"  {key}: {value}" for key, value in policy.items())] if policy else []
    return "\n".join(lines) + "\n"


def _policy(policy: Policy) -> dict[str, str]:
    names = [name for name in policy.__slots__ if name != "debug"]
    found = {
        name: format_duration(getattr(policy, name))
        for name in names
        if getattr(policy, name) != getattr(_DEFAULT, name)
    }
    return found | ({"debug": _lane(policy.debug)} if policy.debug else {})


def _lane(lane: DebugLane) -> str:
    return _flow(
        {
            "gpus": str(lane.gpus),
            "max_gpus": str(lane.max_gpus),
            "max_runtime": format_duration(lane.max_runtime),
            "per_person": str(lane.per_person),
            "allowance": format_duration(lane.allowance),
        }
    )
