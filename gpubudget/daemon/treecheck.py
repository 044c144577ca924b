"""The last look at a tree that somebody wants to apply: all that the core takes for granted of it.

People's mistakes are found earlier and with their place in a file (``gitops``). What arrives here has been through
that, or comes from a program that went around it; the first thing that is wrong is refused, and nothing changes.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from math import lcm

from gpubudget.core.budget import ROOT, Budget, Policy, Tree, child_path
from gpubudget.errors import InvalidInputError
from gpubudget.units import DAY, format_share

MOST_BUDGETS = 100_000
DEEPEST = 50
MOST_POOLS = 100
LARGEST_HOST = 1_024
MOST_HOSTS = 100_000
LONGEST = 3_650 * DAY

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


def check_tree(tree: Tree) -> None:
    """Raise InvalidInputError for the first thing that is wrong with a tree."""
    _pools(tree)
    _policy(tree.policy)
    if tree.root.path != ROOT:
        raise InvalidInputError(f"the tree's root has the path {tree.root.path[:60]!r}, not {ROOT!r}")
    pools = tuple(pool.name for pool in tree.pools)
    seen: set[str] = set()
    todo = [(tree.root, 1)]
    while todo:
        budget, depth = todo.pop()
        seen.add(budget.path)
        if depth > DEEPEST or len(seen) > MOST_BUDGETS:
            raise InvalidInputError(f"the tree has over {DEEPEST} levels or over {MOST_BUDGETS} budgets")
        _children(budget, pools)
        todo += [(child, depth + 1) for child in budget.children]
    _former_paths(tree, seen)


def _pools(tree: Tree) -> None:
    names = [pool.name for pool in tree.pools]
    if not names or len(names) > MOST_POOLS or len(set(names)) != len(names):
        raise InvalidInputError(f"the tree has no pool, over {MOST_POOLS}, or two of one name")
    for pool in tree.pools:
        if not _NAME.fullmatch(pool.name):
            raise InvalidInputError(f"{pool.name[:60]!r} is no name of a pool")
        if not (1 <= pool.gpus_per_host <= LARGEST_HOST and 0 <= pool.hosts <= MOST_HOSTS):
            raise InvalidInputError(
                f"pool {pool.name} has {pool.hosts} hosts with {pool.gpus_per_host} GPUs; "
                f"0 to {MOST_HOSTS} and 1 to {LARGEST_HOST} are possible"
            )


def _policy(policy: Policy) -> None:
    for name in ("lookback", "rebalance_interval"):
        if not 1 <= getattr(policy, name) <= LONGEST:
            raise InvalidInputError(f"policy.{name} is {getattr(policy, name)} ms; 1 ms to ten years are possible")
    for name in ("max_min_runtime", "grace_period", "failed_soon", "preempt_backoff", "max_preempt_backoff"):
        if not 0 <= getattr(policy, name) <= LONGEST:
            raise InvalidInputError(f"policy.{name} is {getattr(policy, name)} ms; 0 to ten years are possible")
    lane = policy.debug
    if lane is not None and min(lane.gpus, lane.max_gpus, lane.max_runtime, lane.per_person, lane.allowance) < 1:
        raise InvalidInputError("policy.debug has a number below 1")


def _children(budget: Budget, pools: tuple[str, ...]) -> None:
    paths = [child.path for child in budget.children]
    if len(set(paths)) != len(paths):
        raise InvalidInputError(f"budget {budget.path} has two children of one path")
    for child in budget.children:
        name = child.path.rpartition("/")[2]
        if not _NAME.fullmatch(name) or child.path != child_path(budget.path, name):
            raise InvalidInputError(f"{child.path[:80]!r} is no path of a child of budget {budget.path}")
        dated = sorted(child.changes, key=lambda change: change.start)
        if any(change.start >= change.until for change in dated):
            raise InvalidInputError(f"a dated change of budget {child.path} ends before it begins")
        if any(before.until > after.start for before, after in pairwise(dated)):
            raise InvalidInputError(f"two dated changes of budget {child.path} hold at the same time")
        every = [child.shares, *(change.shares for change in child.changes)]
        shares = [share for each in every for share in (each.default, *(share for _, share in each.by_pool))]
        if not all(0 <= share <= 1 for share in shares):
            raise InvalidInputError(f"budget {child.path} has a share that is not between 0% and 100%")
    for pool in pools:
        most = _most(budget.children, pool)
        if most > 1:
            raise InvalidInputError(
                f"the children of {budget.path} have {format_share(most)} of it in pool {pool}",
                hint="shares of children may sum to 100% at most, at every date",
            )


def _most(children: tuple[Budget, ...], pool: str) -> Fraction:
    """The most that children have together in a pool, now or at any date, summed in integers from change to change."""
    plain = [(child, child.shares.of(pool)) for child in children]
    dated = [(change, before, change.shares.of(pool)) for child, before in plain for change in child.changes]
    whole = lcm(*(share.denominator for _, share in plain), *(share.denominator for *_, share in dated))
    steps: dict[int, int] = {}
    for change, before, during in dated:
        difference = int((during - before) * whole)
        steps[change.start] = steps.get(change.start, 0) + difference
        steps[change.until] = steps.get(change.until, 0) - difference
    total = most = sum(int(share * whole) for _, share in plain)
    for moment in sorted(steps):
        total += steps[moment]
        most = max(most, total)
    return Fraction(most, whole)


def _former_paths(tree: Tree, paths: set[str]) -> None:
    former: set[str] = set()
    for budget in tree.budgets():
        if budget.previously is None:
            continue
        if budget.previously in paths or budget.previously in former:
            raise InvalidInputError(
                f"budget {budget.path} says that it was {budget.previously} before, which another budget is or was"
            )
        former.add(budget.previously)
