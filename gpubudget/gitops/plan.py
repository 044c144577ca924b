"""What is different between two trees, as a value: the budgets that come, go, move or change, and the settings.

Pure. A budget that names its former path with ``previously``, and all below it, moves: it is not removed and added
again. Shares are those in force at the moment that is asked about. How a plan is shown is decided elsewhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from gpubudget.core import plain
from gpubudget.core.applying import renamed
from gpubudget.core.budget import ROOT, Budget, Tree, parent_path


class Action(StrEnum):
    """What becomes of a budget."""

    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a budget has in one pool: its share of its parent, and of the whole pool."""

    share: Fraction
    effective: Fraction


@dataclass(frozen=True, slots=True)
class PoolChange:
    """A budget's standing in one pool before and after; None where the budget or the pool does not exist."""

    pool: str
    before: Standing | None
    after: Standing | None


@dataclass(frozen=True, slots=True)
class Change:
    """What is different about one budget.

    ``path`` is where it is (or was, if it is removed) and ``former`` its other path if it moved. ``fields`` names
    what was written differently about it: share, changes, title, managers, members. ``pools`` has every pool.
    """

    action: Action
    path: str
    former: str | None
    fields: tuple[str, ...]
    pools: tuple[PoolChange, ...]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting of the cluster, as ``policy.lookback`` or ``pools.h100.hosts``; None where it is not set."""

    name: str
    before: str | int | bool | None
    after: str | int | bool | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The way from one tree to another, in the order of the new tree and then of what is removed."""

    changes: tuple[Change, ...] = ()
    settings: tuple[SettingChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.settings)

    def counts(self) -> dict[str, int]:
        """How many budgets each action concerns."""
        found = Counter(change.action for change in self.changes)
        return {action.value: found[action] for action in Action}


def plan(before: Tree | None, after: Tree, now: int) -> Plan:
    """The plan from ``before`` (None if there is no tree yet) to ``after``, with the shares in force at ``now``."""
    return Plan(diff(before, after, now), settings(before, after))


def diff(before: Tree | None, after: Tree, now: int) -> tuple[Change, ...]:
    """The changes of budgets; times in milliseconds."""
    old = _by_path(before)
    new = _by_path(after)
    origins = _origins(old, new)
    pools = tuple(dict.fromkeys(pool.name for tree in (before, after) if tree is not None for pool in tree.pools))
    was, willbe = _standings(before, now), _standings(after, now)
    changes: list[Change] = []
    for path, budget in new.items():
        origin = origins.get(path)
        fields = _fields(old[origin], budget) if origin is not None else ()
        action = Action.ADDED if origin is None else Action.MOVED if origin != path else Action.CHANGED
        if fields or action is not Action.CHANGED:
            stands = tuple(PoolChange(pool, was.get((origin, pool)), willbe.get((path, pool))) for pool in pools)
            changes.append(Change(action, path, origin if origin != path else None, fields, stands))
    kept = set(origins.values())
    for path in (path for path in old if path not in kept):
        stands = tuple(PoolChange(pool, was.get((path, pool)), None) for pool in pools)
        changes.append(Change(Action.REMOVED, path, None, (), stands))
    return tuple(changes)


def settings(before: Tree | None, after: Tree) -> tuple[SettingChange, ...]:
    """The changes of what is not about budgets: the cluster's name, timezone, pools and policy."""
    old = _settings(before) if before is not None else {}
    new = _settings(after)
    names = dict.fromkeys([*new, *old])
    return tuple(SettingChange(n, old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n))


def _by_path(tree: Tree | None) -> dict[str, Budget]:
    return {budget.path: budget for budget in tree.budgets()} if tree is not None else {}


def _origins(old: dict[str, Budget], new: dict[str, Budget]) -> dict[str, str]:
    """For each new path that carries on an old budget: the old path."""
    renames = {budget.previously: path for path, budget in new.items() if budget.previously in old}
    origins = {path: path for path in new if path in old}
    for path in old:
        heir = path if path in new else renamed(path, renames)
        if heir in new:
            origins.setdefault(heir, path)
    return origins


def _fields(before: Budget, after: Budget) -> tuple[str, ...]:
    """What is written differently; a former path alone changes nothing."""
    names = {"share": "shares", "changes": "changes", "title": "title", "managers": "managers", "members": "members"}
    return tuple(word for word, name in names.items() if getattr(before, name) != getattr(after, name))


def _standings(tree: Tree | None, now: int) -> dict[tuple[str | None, str], Standing]:
    found: dict[tuple[str | None, str], Standing] = {}
    if tree is None:
        return found
    for budget in tree.budgets():
        shares = budget.shares_at(now)
        for pool in tree.pools:
            share = shares.of(pool.name)
            above = Fraction(1) if budget.path == ROOT else found[parent_path(budget.path), pool.name].effective
            found[budget.path, pool.name] = Standing(share, above * share)
    return found


def _settings(tree: Tree) -> dict[str, Any]:
    """The settings by dotted name, pools by theirs."""
    flat: dict[str, Any] = {"cluster": tree.cluster, "timezone": tree.timezone}
    nested = {"pools": {pool.name: plain.encode(pool) for pool in tree.pools}, "policy": plain.encode(tree.policy)}
    pending: list[tuple[str, Any]] = list(nested.items())
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{name}.{key}", item) for key, item in value.items() if key not in {"kind", "name"}]
        else:
            flat[name] = value
    return dict(sorted(flat.items()))
