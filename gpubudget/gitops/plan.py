"""What is different between two trees, as a value: the budgets that come, go, move or change, and the settings.

Pure. A budget that names its former path with ``previously``, and all below it, moves: it is not removed and added
again. Shares are those in force at the moment that is asked about, and GPUs are those that the trees say their pools
have. Beside what is written differently stands what follows from it: budgets that get more or less because one above
them does, or that keep more or less because their children's shares changed. How a plan is shown is decided elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from gpubudget.core import plain
from gpubudget.core.applying import renamed
from gpubudget.core.budget import ROOT, Budget, Tree, parent_path, reserve
from gpubudget.units import format_duration


class Action(StrEnum):
    """What becomes of a budget."""

    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"
    CHANGED = "changed"
    FOLLOWS = "follows"  # nothing is written differently about it


WRITTEN = (Action.ADDED, Action.REMOVED, Action.MOVED, Action.CHANGED)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a budget has in one pool: its share of its parent, and what that comes to.

    ``effective_share`` is of the whole pool, ``reserve`` the part of itself that it keeps from its children,
    ``guarantee`` a number of GPUs, and ``entitlement_gpu_ms`` the GPU-time of one lookback window.
    """

    share: Fraction
    effective_share: Fraction
    reserve: Fraction
    guarantee: Fraction
    entitlement_gpu_ms: int


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
    what was written differently about it: share, changes, title, managers, members. ``before`` and ``after`` are how
    it is written, without its children. ``pools`` has every pool. ``follows`` names what it follows from: the path of
    the budget above (or, if only its reserve differs, below), or a setting. A budget that moves only because one above
    it does has that one there.
    """

    action: Action
    path: str
    former: str | None
    fields: tuple[str, ...]
    pools: tuple[PoolChange, ...]
    before: Budget | None = None
    after: Budget | None = None
    follows: str | None = None


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting of the cluster as YAML has it, such as ``policy.lookback`` or ``pools.h100.hosts``; None: not set."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The way from one tree to another, in the order of the new tree and then of what is removed.

    ``changes`` are written, ``follows`` follow from them (or from the settings) and are never more than the rest.
    """

    changes: tuple[Change, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    follows: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.settings)

    def counts(self) -> dict[str, int]:
        """How many budgets each action concerns."""
        found = Counter(change.action for change in self.changes)
        return {action.value: found[action] for action in WRITTEN}

    def field_counts(self) -> dict[str, int]:
        """How many budgets have another share, dated change, title, manager or member than before."""
        found = Counter(field for change in self.changes for field in change.fields)
        return {field: found[field] for field in FIELDS}


FIELDS = {"share": "shares", "changes": "changes", "title": "title", "managers": "managers", "members": "members"}
"""What can be written differently about a budget, and the attribute that says it."""


def plan(before: Tree | None, after: Tree, now: int) -> Plan:
    """The plan from ``before`` (None if there is no tree yet) to ``after``, with the shares in force at ``now``."""
    found = settings(before, after)
    return _Comparison(before, after, now).plan(found)


def settings(before: Tree | None, after: Tree) -> tuple[SettingChange, ...]:
    """The changes of what is not about budgets: the cluster's name, timezone, pools and policy."""
    old = _settings(before) if before is not None else {}
    new = _settings(after)
    names = dict.fromkeys([*new, *old])
    return tuple(SettingChange(n, old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n))


class _Shares:
    """A tree at a moment: what each budget has, worked out where it is asked for."""

    def __init__(self, tree: Tree | None, now: int) -> None:
        self.budgets = {budget.path: budget for budget in tree.budgets()} if tree is not None else {}
        self.gpus = {pool.name: pool.hosts * pool.gpus_per_host for pool in tree.pools} if tree is not None else {}
        self._lookback = tree.policy.lookback if tree is not None else 0
        self._now = now
        self.effective: dict[str, tuple[Fraction, ...]] = {}
        for path, budget in self.budgets.items():
            above = self.effective[parent_path(path)] if path != ROOT else (Fraction(1),) * len(self.gpus)
            shares = budget.shares_at(now)
            self.effective[path] = tuple(
                share * over if over != 1 else share
                for share, over in zip(map(shares.of, self.gpus), above, strict=True)
            )

    def of(self, path: str | None, pool: str) -> Standing | None:
        """What a budget has in a pool; None if it, or the pool, is not there."""
        if path not in self.budgets or pool not in self.gpus:
            return None
        budget, at = self.budgets[path], list(self.gpus).index(pool)
        effective = self.effective[path][at]
        guarantee = effective * self.gpus[pool]
        kept = reserve(budget, pool, self._now)
        window = (guarantee * self._lookback).__floor__()
        return Standing(budget.shares_at(self._now).of(pool), effective, kept, guarantee, window)


class _Comparison:
    """Two trees at a moment, and which budget of the one is which of the other."""

    def __init__(self, before: Tree | None, after: Tree, now: int) -> None:
        self._old, self._new = _Shares(before, now), _Shares(after, now)
        self._pools = tuple(dict.fromkeys([*self._old.gpus, *self._new.gpus]))
        self._origins = _origins(self._old.budgets, self._new.budgets)

    def plan(self, settings: tuple[SettingChange, ...]) -> Plan:
        changes = tuple(self._changes())
        return Plan(changes, settings, tuple(self._follows(changes, settings)))

    def _changes(self) -> Iterable[Change]:
        moved: set[str] = set()
        for path, budget in self._new.budgets.items():
            origin = self._origins.get(path)
            if origin is None:
                yield self._change(Action.ADDED, None, path)
                continue
            fields = _fields(self._old.budgets[origin], budget)
            if origin != path:
                above = parent_path(path)
                along = above in moved and self._origins[above] == parent_path(origin)
                moved.add(path)
                yield self._change(Action.MOVED, origin, path, fields, above if along else None)
            elif fields:
                yield self._change(Action.CHANGED, origin, path, fields)
        kept = set(self._origins.values())
        for path in self._old.budgets:
            if path not in kept:
                yield self._change(Action.REMOVED, path, None)

    def _follows(self, changes: tuple[Change, ...], settings: tuple[SettingChange, ...]) -> Iterable[Change]:
        """The budgets that have other figures though nothing is written differently about them."""
        written = {change.path: change for change in changes}
        heirs = {origin: path for path, origin in self._origins.items()}
        children: dict[str | None, str] = {}  # whose reserve may differ, and a child that is the reason
        for change in changes:
            old = change.path if change.action is Action.REMOVED else change.former
            for parent in {heirs.get(parent_path(old)) if old else None, parent_path(change.path)}:
                children.setdefault(parent, change.path)
        sizes = next((s.name for s in settings if s.name == "policy.lookback" or s.name.startswith("pools.")), None)
        above: dict[str, str] = {}  # for a budget whose effective share differs: the written change that it is due to
        for path, origin in self._origins.items():
            if self._old.gpus != self._new.gpus or self._old.effective[origin] != self._new.effective[path]:
                cause = path if path in written else above.get(parent_path(path), "")
                above |= {path: cause} if cause else {}
            else:
                cause = ""
            if path not in written and (cause or sizes or path in children):
                found = self._change(Action.FOLLOWS, origin, path, (), cause or sizes or children[path])
                if any(pool.before != pool.after for pool in found.pools):
                    yield found

    def _change(
        self,
        action: Action,
        origin: str | None,
        path: str | None,
        fields: tuple[str, ...] = (),
        follows: str | None = None,
    ) -> Change:
        pools = tuple(PoolChange(pool, self._old.of(origin, pool), self._new.of(path, pool)) for pool in self._pools)
        old, new = self._old.budgets.get(origin or ""), self._new.budgets.get(path or "")
        former = origin if path is not None and origin != path else None
        return Change(action, path or origin or ROOT, former, fields, pools, _alone(old), _alone(new), follows)


def _alone(budget: Budget | None) -> Budget | None:
    return replace(budget, children=()) if budget is not None else None


def _origins(old: dict[str, Budget], new: dict[str, Budget]) -> dict[str, str]:
    """For each new path that carries on an old budget: the old path, in the new tree's order."""
    renames = {budget.previously: path for path, budget in new.items() if budget.previously in old}
    found = {path: path for path in new if path in old}
    for path in old:
        heir = path if path in new else renamed(path, renames)
        if heir in new:
            found.setdefault(heir, path)
    return {path: found[path] for path in new if path in found}


def _fields(before: Budget, after: Budget) -> tuple[str, ...]:
    """What is written differently; a former path alone changes nothing."""
    return tuple(word for word, name in FIELDS.items() if getattr(before, name) != getattr(after, name))


_DURATIONS = ("lookback", "runtime", "interval", "period", "soon", "backoff", "allowance")


def _settings(tree: Tree) -> dict[str, str]:
    """The settings by dotted name, pools by theirs."""
    flat: dict[str, str] = {"cluster": tree.cluster, "timezone": tree.timezone}
    nested = {"pools": {pool.name: plain.encode(pool) for pool in tree.pools}, "policy": plain.encode(tree.policy)}
    pending: list[tuple[str, Any]] = list(nested.items())
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{name}.{key}", item) for key, item in value.items() if key not in {"kind", "name"}]
        elif value is not None:
            time = name.startswith("policy.") and name.endswith(_DURATIONS)
            flat[name] = format_duration(value) if time else str(value)
    return dict(sorted(flat.items()))
