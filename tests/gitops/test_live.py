"""How the budgets of a plan stand now, from the daemon's answer."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from gpubudget.core.budget import Budget, Pool, Shares, Tree
from gpubudget.gitops.live import live
from gpubudget.gitops.plan import plan
from gpubudget.gitops.review import Live
from gpubudget.units import HOUR

WINDOW = 7 * 24 * HOUR


def tree(*children: Budget) -> Tree:
    return Tree(Budget("/", Shares(Fraction(1)), children=children), (Pool("h100", 8, 4),))


def budget(path: str, share: str, *children: Budget, previously: str | None = None) -> Budget:
    return Budget(path, Shares(Fraction(share)), previously=previously, children=children)


def standing(path: str, running: int, usage: int, entitlement: int, pool: str = "h100") -> dict[str, Any]:
    figures = {
        "running": running,
        "usage_gpu_ms": usage,
        "entitlement_gpu_ms": entitlement,
        "balance_gpu_ms": entitlement - usage,
    }
    return {"path": path, "pools": {pool: figures}}


def test_what_runs_beyond_the_new_guarantee_is_counted_in_whole_gpus() -> None:
    """A guarantee of 10.67 GPUs covers 10; a cut below what runs is told, and blocks nothing (KAI#1783)."""
    found = plan(tree(budget("a", "1/2")), tree(budget("a", "1/3")), 0)
    (one, root) = live(found, [standing("a", 14, 100, 1_600), standing("/", 3, 0, 0)])
    assert one == Live("a", "h100", 100, 1_500, 1_600 * 2 // 3 - 100, 14, 4, 4)
    assert (root.path, root.running, root.beyond) == ("/", 3, 0)


def test_a_moved_budget_is_known_by_its_former_path() -> None:
    """The daemon still has it there; the plan has it at its new path, and so has the figure."""
    found = plan(tree(budget("a", "1/2")), tree(budget("b", "1/2", previously="a")), 0)
    assert live(found, [standing("a", 16, 5, 10)]) == (Live("b", "h100", 5, 5, 5, 16, 0),)


def test_a_removed_budget_leaves_all_that_runs_uncovered() -> None:
    """Its guarantee is gone, and so is its entitlement; the one above covers what goes on from now on."""
    found = plan(tree(budget("a", "1/2")), tree(), 0)
    assert live(found, [standing("a", 16, 5, 10)])[0] == Live("a", "h100", 5, 5, -5, 16, 16, 0)


def test_what_was_beyond_already_loses_nothing() -> None:
    """Of 20 GPUs, 4 are beyond today; a smaller share uncovers 6 more, a larger one none."""
    for share, beyond, losing in (("10/32", 10, 6), ("18/32", 2, 0)):
        one = live(plan(tree(budget("a", "1/2")), tree(budget("a", share)), 0), [standing("a", 20, 5, 10)])[0]
        assert (one.beyond, one.losing) == (beyond, losing)


def test_what_is_new_or_unknown_to_the_daemon_has_no_figures() -> None:
    """An added budget, one that was never applied, and a pool that the plan does not have."""
    found = plan(tree(budget("a", "1/2")), tree(budget("a", "1/3"), budget("n", "1/8")), 0)
    assert live(found, []) == ()
    assert live(found, [standing("n", 1, 1, 1), standing("a", 1, 1, 1, pool="b200")]) == ()


def test_a_share_that_was_nothing_comes_to_a_whole_window() -> None:
    """There is no figure of today to scale."""
    found = plan(tree(budget("a", "0")), tree(budget("a", "1/2")), 0)
    assert live(found, [standing("a", 0, 0, 0)])[0].balance_after_gpu_ms == 16 * WINDOW
