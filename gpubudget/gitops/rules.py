"""The rules of a tree of budgets that reach beyond one value: sums, dates, folders, former paths, policy.

Knows the typed files of ``document.py`` and nothing of YAML, git or folders on disk. Every check is exact, changes
nothing and reports all it finds. A part that could not be read was reported before; the rules leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from gpubudget.core.budget import ROOT, Pool, child_path, parent_path
from gpubudget.gitops.diagnostics import Diagnostic, Position, Related, quoted
from gpubudget.gitops.document import (
    BudgetFile,
    Child,
    ClusterFile,
    Description,
    Name,
    WrittenChange,
    WrittenShares,
)
from gpubudget.units import DAY, HOUR, SECOND, format_duration

MAX_LEVELS = 16
"""Budgets below the root may be nested this deeply."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A budget that the tree reaches: where it is listed, what describes it, and its file where it has one."""

    path: str
    at: Position
    shares: WrittenShares | None
    changes: tuple[WrittenChange, ...]
    description: Description
    file: BudgetFile | None

    @property
    def children(self) -> tuple[Child, ...]:
        """The children that its file lists."""
        return (self.file.children or ()) if self.file else ()


def walk(files: dict[str, BudgetFile], problems: list[Diagnostic]) -> dict[str, Listed]:
    """All budgets that can be reached from the root, by path, parents before children."""
    reached: dict[str, Listed] = {}
    root = files.get(ROOT)
    waiting = [Listed(ROOT, root.at, None, (), root.description, root)] if root else []
    while waiting:
        budget = waiting.pop()
        reached[budget.path] = budget
        below: list[Listed] = []
        for child in budget.children:
            path = child_path(budget.path, child.name)
            own = files.get(path)
            description = own.description if own else child.description
            below.append(Listed(path, child.at, child.shares, child.changes, description, own))
            if path.count("/") == MAX_LEVELS:
                message = f"{path} is more than {MAX_LEVELS} levels below the root"
                problems.append(Diagnostic("budget-depth", child.at, message, "list it further up"))
                below.pop()
            if own and child.inline:
                problems.append(_described_twice(path, child, own))
        waiting += reversed(below)
    return reached


def _described_twice(path: str, child: Child, own: BudgetFile) -> Diagnostic:
    keys = ", ".join(name.text for name in child.inline)
    message = f"{path} has a file of its own, {own.file}, and is also described here ({keys})"
    hint = f"move {keys} to {own.file}; only share and changes belong here"
    return Diagnostic(
        "child-described-twice", child.inline[0].at, message, hint, (Related(Position(own.file), "its own file"),)
    )


def folders(files: dict[str, BudgetFile], reached: dict[str, Listed]) -> Iterator[Diagnostic]:
    """Folders that nobody lists. What lies below such a folder is not reported again."""
    for path, budget in files.items():
        parent = parent_path(path)
        above = files.get(parent)
        if path in reached or (above is None and parent == ROOT):
            continue
        name = path.rpartition("/")[2]
        if above is None:
            message = f"{path} is a budget, but the folder above it has no budget.yaml"
            yield Diagnostic(
                "folder-without-budget", Position(budget.file), message, f"add {parent}/budget.yaml or move the folder"
            )
        elif parent in reached and above.children is not None and name not in {child.name for child in above.children}:
            message = f"{path} is a budget, but {above.file} does not list {quoted(name)} among its children"
            hint = f"add {name} with its share there, or remove the folder"
            yield Diagnostic(
                "folder-not-listed", Position(budget.file), message, hint, (Related(above.children_at, "the children"),)
            )


def former_paths(reached: dict[str, Listed]) -> Iterator[Diagnostic]:
    """Former paths that cannot be: the history of a path goes to one budget, once that path is gone."""
    claimed: dict[str, Name] = {}
    for budget in reached.values():
        former = budget.description.previously
        if former is None:
            continue
        claim = f"{budget.path} was previously {former.text}"
        if budget.path == ROOT:
            message = "the root cannot have had another path"
            yield Diagnostic("previously-root", former.at, message, "remove previously")
        elif former.text == budget.path:
            yield Diagnostic("previously-self", former.at, f"{claim}, which is its own path", "remove previously")
        elif former.text in reached:
            message = f"{claim}, but {former.text} is still a budget"
            related = (Related(reached[former.text].at, "listed here"),)
            yield Diagnostic("previously-exists", former.at, message, "remove one of the two", related)
        elif former.text in claimed:
            message = f"{claim}, but another budget says that too"
            related = (Related(claimed[former.text].at, "claimed here"),)
            yield Diagnostic("previously-twice", former.at, message, "a history has one heir: keep one", related)
        else:
            claimed[former.text] = former


def people(descriptions: Iterable[Description]) -> Iterator[Diagnostic]:
    """People who stand twice in one list."""
    for description in descriptions:
        for listed in (description.managers, description.members):
            if len({name.text for name in listed}) == len(listed):
                continue
            first: dict[str, Position] = {}
            for name in listed:
                if name.text in first:
                    message = f"{quoted(name.text)} stands twice in this list"
                    related = (Related(first[name.text], "here first"),)
                    yield Diagnostic("person-twice", name.at, message, "keep one of the two", related)
                first.setdefault(name.text, name.at)


def pools_known(children: Iterable[Child], pools: tuple[Pool, ...]) -> Iterator[Diagnostic]:
    """Shares in pools that the cluster does not have; nothing is said when the pools are not known."""
    names = [pool.name for pool in pools]
    for child in children if names else ():
        for shares in (child.shares, *(change.shares for change in child.changes)):
            for name, at in shares.pool_keys.items():
                if name not in names:
                    close = get_close_matches(name, names, n=1)
                    hint = f"did you mean {close[0]}?" if close else f"the pools are {', '.join(names)}"
                    yield Diagnostic("pool-unknown", at, f"cluster.yaml has no pool {quoted(name)}", hint)


def dates(children: Iterable[Child]) -> Iterator[Diagnostic]:
    """Dated changes that end before they begin, or that hold at the same time as another one of that child."""
    for child in children:
        before: WrittenChange | None = None
        for change in sorted(child.changes, key=lambda change: change.start):
            if change.until <= change.start:
                message = f"this change of {child.name} ends on {change.last}, not after {change.first} when it begins"
                yield Diagnostic("date-order", change.at, message, "until is the first day on which it no longer holds")
                continue
            if before and change.start < before.until:
                message = (
                    f"this change of {child.name} begins on {change.first}, before another one ends on {before.last}"
                )
                related = (Related(before.at, f"from {before.first} until {before.last}"),)
                yield Diagnostic("date-overlap", change.at, message, "let one end on the day the next begins", related)
            if before is None or change.until > before.until:
                before = change


def policy(cluster: ClusterFile) -> Iterator[Diagnostic]:
    """Settings that contradict each other or make no sense, and a lane that does not fit."""
    rules = cluster.policy
    lane = rules.debug
    bounds = [
        ("lookback", rules.lookback, SECOND, "1s", 366 * DAY, "366d"),
        ("max_min_runtime", rules.max_min_runtime, SECOND, "1s", rules.lookback, "lookback"),
        ("rebalance_interval", rules.rebalance_interval, 100, "100ms", HOUR, "1h"),
        ("grace_period", rules.grace_period, 0, "0", HOUR, "1h"),
        ("failed_soon", rules.failed_soon, 0, "0", 30 * DAY, "30d"),
        ("max_preempt_backoff", rules.max_preempt_backoff, 0, "0", 30 * DAY, "30d"),
        ("preempt_backoff", rules.preempt_backoff, 0, "0", rules.max_preempt_backoff, "max_preempt_backoff"),
    ]
    if lane:
        bounds.append(("debug.max_runtime", lane.max_runtime, SECOND, "1s", rules.lookback, "lookback"))
        bounds.append(("debug.allowance", lane.allowance, SECOND, "1s", 366 * DAY, "366d"))
    for key, value, low, low_name, high, high_name in bounds:
        if low <= value <= high:
            continue
        limit, word, name = (low, "less", low_name) if value < low else (high, "more", high_name)
        shown = name if name[0].isdigit() else f"{name}, {format_duration(limit)}"
        message = f"policy.{key} is {format_duration(value)}, {word} than {shown}"
        at = cluster.places.get(key) or cluster.places[name]
        yield Diagnostic("policy-bounds", at, message, f"it may be {low_name} to {high_name}")
    if lane and lane.max_gpus > lane.gpus:
        message = f"policy.debug.max_gpus is {lane.max_gpus}, but the lane has only {lane.gpus} GPUs"
        yield Diagnostic("policy-bounds", cluster.places["debug.max_gpus"], message, f"it may be 1 to {lane.gpus}")
    for pool in cluster.pools if lane else ():
        total = pool.hosts * pool.gpus_per_host
        if lane and lane.gpus >= total > 0:  # a size below one was refused before
            message = f"the debug lane keeps {lane.gpus} GPUs of each pool, but {pool.name} has {total} in all"
            hint = "keep fewer for the lane than the smallest pool has"
            yield Diagnostic("lane-size", cluster.places["debug.gpus"], message, hint)
