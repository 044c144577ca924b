"""What makes a valid tree too risky to apply unasked: too many budgets gone, too much taken from those at work.

Pure. Each doubt is what a commit would do, with the numbers and the limit. Limits are a count *and* a part of the
whole, so that a small tree is no less safe than a large one; a person who means it says so with ``--force``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

from gpubudget.core.budget import Budget, Tree
from gpubudget.gitops.plan import Action, Change, Plan
from gpubudget.units import about_share, count, format_share

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """How far one commit may go: budgets removed, as a number and a part of all; a part of a pool moved away."""

    removed: int = 10
    removed_part: Fraction = Fraction(1, 3)
    moved: Fraction = Fraction(1, 4)


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Protected:
    """Protected work that runs right now: whose, charged to which budget, and on how many GPUs of a pool."""

    budget: str
    pool: str
    owner: str
    gpus: int


def removal(plan: Plan, before: Tree, limits: Limits) -> list[str]:
    """Why the number of removed budgets may be a mistake; nothing if it is within the limits."""
    gone = [change.path for change in plan.changes if change.action is Action.REMOVED]
    total = sum(1 for _ in before.budgets()) - 1
    if not gone:
        return []
    part = Fraction(len(gone), total)
    if part < 1 and len(gone) <= limits.removed and part <= limits.removed_part:
        return []
    most = f"at most {limits.removed} and {format_share(limits.removed_part)} go at once"
    if part == 1:
        return [f"would remove all {count(total, 'budget')} below the root"]
    return [f"would remove {len(gone)} of {count(total, 'budget')} ({about_share(part)}): {_some(gone)}; {most}"]


def takes(plan: Plan) -> bool:
    """Whether a budget gets less of a pool than before, so that it matters who is at work."""
    return any(_lost(change, pool.pool) for change in _all(plan) for pool in change.pools)


def displacement(plan: Plan, before: Tree, protected: Collection[Protected], limits: Limits) -> list[str]:
    """Why the shares that move away from people with protected work may be a mistake, pool by pool."""
    found: list[str] = []
    for pool in before.pools:
        workers: dict[str, dict[str, int]] = {}
        for work in protected:
            if work.pool == pool.name:
                mine = workers.setdefault(work.budget, {})
                mine[work.owner] = mine.get(work.owner, 0) + work.gpus
        lost = {change.former or change.path: part for change in _all(plan) if (part := _lost(change, pool.name))}
        moved = _moved(before.root, lost, workers)
        if moved > limits.moved:
            words = [
                f"{path} loses {about_share(lost[path])} ({_people(workers[path])})" for path in workers if path in lost
            ]
            found.append(
                f"would move {about_share(moved)} of pool {pool.name} away from people with protected work: "
                f"{_some(sorted(words))}; at most {format_share(limits.moved)} moves at once"
            )
    return found


def _all(plan: Plan) -> tuple[Change, ...]:
    return (*plan.changes, *plan.follows)


def _lost(change: Change, pool: str) -> Fraction:
    """What a budget has less of a pool than before, as a part of the pool."""
    for each in change.pools:
        if each.pool == pool and each.before is not None:
            after = each.after.effective_share if each.after is not None else Fraction(0)
            return max(each.before.effective_share - after, Fraction(0))
    return Fraction(0)


def _moved(budget: Budget, lost: dict[str, Fraction], workers: dict[str, dict[str, int]]) -> Fraction:
    """What is lost at or below a budget where people are at work; what a child loses is part of its parent's loss."""
    below = sum((_moved(child, lost, workers) for child in budget.children), Fraction(0))
    return max(below, lost.get(budget.path, Fraction(0))) if budget.path in workers else below


def _people(gpus: dict[str, int]) -> str:
    most = sorted(gpus.items(), key=lambda item: (-item[1], item[0]))
    return _some([f"{owner} {count(number, 'GPU')}" for owner, number in most])


def _some(words: list[str]) -> str:
    shown = ", ".join(words[:_NAMED])
    return shown + (f" and {len(words) - _NAMED} more" if len(words) > _NAMED else "")
