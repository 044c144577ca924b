"""The tree of budgets as a value."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpubudget.core.budget import ROOT, Budget, DatedShares, Pool, Shares, Tree, child_path, parent_path, reserve

HALF, THIRD = Shares(Fraction(1, 2)), Shares(Fraction(1, 3), (("b200", Fraction(1, 4)),))
LEAF = Budget("a/x", HALF)
A = Budget("a", THIRD, changes=(DatedShares(100, 200, Shares(Fraction(0))),), children=(LEAF,))
B = Budget("b", HALF, changes=(DatedShares(200, 300, Shares(Fraction(1, 5))),))
TREE = Tree(Budget(ROOT, Shares(Fraction(1)), children=(A, B)), (Pool("h100", 8, 2), Pool("b200", 8, 2)))


@pytest.mark.parametrize(("path", "parent", "name"), [("a", ROOT, "a"), ("a/b", "a", "b"), ("a/b/c", "a/b", "c")])
def test_a_path_is_its_parents_path_and_a_name(path: str, parent: str, name: str) -> None:
    """The root's path is not part of those below it."""
    assert parent_path(path) == parent
    assert child_path(parent, name) == path


def test_the_root_is_its_own_parent() -> None:
    """So a walk upwards ends there."""
    assert parent_path(ROOT) == ROOT


def test_a_share_may_differ_in_a_pool() -> None:
    """Where a pool is not named, the default holds."""
    assert (THIRD.of("h100"), THIRD.of("b200")) == (Fraction(1, 3), Fraction(1, 4))


@pytest.mark.parametrize(("now", "share"), [(99, "1/3"), (100, "0"), (199, "0"), (200, "1/3")])
def test_a_dated_change_holds_from_its_start_until_just_before_its_end(now: int, share: str) -> None:
    """The end is excluded."""
    assert A.shares_at(now).default == Fraction(share)


def test_a_tree_lists_parents_before_children() -> None:
    """In the order in which they are written."""
    assert [budget.path for budget in TREE.budgets()] == [ROOT, "a", "a/x", "b"]


def test_a_budget_is_found_by_its_path() -> None:
    """Or it is not there."""
    assert TREE.find("a/x") is LEAF
    assert TREE.find("x") is None


def test_a_tree_knows_when_its_shares_change() -> None:
    """Each moment once, in order."""
    assert TREE.dates() == (100, 200, 300)


@pytest.mark.parametrize(
    ("pool", "now", "kept"), [("h100", 0, "1/6"), ("b200", 0, "1/4"), ("h100", 100, "1/2"), ("h100", 250, "7/15")]
)
def test_the_reserve_is_what_children_leave(pool: str, now: int, kept: str) -> None:
    """In each pool, at each time."""
    assert reserve(TREE.root, pool, now) == Fraction(kept)
