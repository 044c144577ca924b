"""Which shares were in force when, as trees were applied one after the other, in the paths of the last one.

A renamed budget is known by its last path all the time; what was a removed budget's counts as kept by the nearest one
above it that is left, like its usage in the scheduler.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm

from gpubudget.core.applying import destination
from gpubudget.core.budget import ROOT, Budget, Tree, reserve
from gpubudget.core.events import BudgetsApplied
from gpubudget.sim.submission import Scenario, Submission

Applied = tuple[int, Tree]
"""A tree, and the moment (milliseconds) from which it was in force."""

_NEVER = 1 << 62


def charged_in(tree: Tree, scenario: Scenario) -> tuple[tuple[Submission, ...], int]:
    """The scenario's submissions, each charged to whoever answers for it in ``tree``; and how many are charged above.

    Renames are followed through all trees that were applied in the scenario's time.
    """
    applied = [(at, event.tree) for at, event in scenario.workloads.events if isinstance(event, BudgetsApplied)]
    eras = Eras([(-_NEVER, scenario.tree), *applied, (_NEVER, tree)])
    found, above = [], 0
    for one in scenario.workloads.submissions:
        path = one.spec.budget
        if path is not None and (last := eras.account_of(path, one.at)) != path:
            above += path.startswith(f"{last}/") or last == ROOT
            one = replace(one, spec=replace(one.spec, budget=last))  # noqa: PLW2901 - the one that is kept
        found.append(one)
    return tuple(found), above


class Shares:
    """Effective shares in one pool at one time: of each budget with all below it, and of what it keeps for itself.

    They are whole numbers of one common fraction: a share of ``whole[path] / scale``. ``called`` gives the last path of
    each budget whose path is another one now.
    """

    def __init__(self, root: Budget, pool: str, now: int, called: Mapping[str, str] | None = None) -> None:
        names = called or {}
        whole: dict[str, Fraction] = {}
        own: defaultdict[str, Fraction] = defaultdict(Fraction)

        def descend(budget: Budget, effective: Fraction) -> None:
            path = names.get(budget.path, budget.path)
            whole.setdefault(path, effective)  # a removed budget's is in that of the one above it, which comes first
            own[path] += effective * reserve(budget, pool, now)
            for child in budget.children:
                descend(child, effective * child.shares_at(now).of(pool))

        descend(root, Fraction(1))
        self.scale = lcm(*(share.denominator for shares in (whole, own) for share in shares.values()))
        self.whole = {path: int(share * self.scale) for path, share in whole.items()}
        self.own = {path: int(share * self.scale) for path, share in own.items()}


class Eras:
    """All trees of a run, the first in force at its start or before."""

    def __init__(self, trees: Sequence[Applied]) -> None:
        self.trees = trees
        last = {budget.path: budget.path for budget in trees[-1][1].budgets()}
        self._called = [last]
        for (_, tree), (_, following) in zip(reversed(trees[:-1]), reversed(trees[1:]), strict=True):
            renames = {b.previously: b.path for b in following.budgets() if b.previously is not None}
            later = self._called[0]
            left = frozenset(later)
            called = {b.path: later[destination(b.path, renames, left)] for b in tree.budgets()}
            self._called.insert(0, called)
        self._last = frozenset(last)
        self._renames = {b.previously: b.path for b in trees[-1][1].budgets() if b.previously is not None}
        self._begins = [at for at, _ in trees]
        self._found: dict[tuple[str, int], str] = {}

    def account_of(self, path: str, at: int) -> str:
        """Which budget of the last tree answers for what was charged to ``path`` at a time.

        A path may have been that of one budget first and of another one later. One that the tree of that time lacks is
        taken from the nearest tree that has it, earlier ones first; one that none has, for one of the tree before the
        last.
        """
        era = max(0, bisect_right(self._begins, at) - 1)
        found = self._found.get((path, era))
        if found is None:
            nearest = (*reversed(self._called[: era + 1]), *self._called[era + 1 :])
            known = next((called for called in nearest if path in called), None)
            found = destination(path, self._renames, self._last) if known is None else known[path]
            self._found[path, era] = found
        return found

    def shares(self, pool: str, times: Sequence[int]) -> list[tuple[int, Shares]]:
        """The shares in a pool: the first of ``times`` (not before which they hold) of each stretch, and they."""
        found: dict[int, Shares] = {}
        ends = [*(at for at, _ in self.trees[1:]), None]
        for (begin, tree), end, called in zip(self.trees, ends, self._called, strict=True):
            dates = (date for date in tree.dates() if date > begin and (end is None or date < end))
            for at in (begin, *dates):
                first = bisect_left(times, at) if found or at > begin else 0
                if first < len(times):
                    found[first] = Shares(tree.root, pool, max(at, times[0]), called)
        return sorted(found.items())
