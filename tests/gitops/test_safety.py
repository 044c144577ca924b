"""What is too much to apply unasked: counts and parts, in small trees and large ones."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpubudget.core.budget import ROOT, Budget, Pool, Shares, Tree, child_path
from gpubudget.gitops.plan import plan
from gpubudget.gitops.safety import LIMITS, Limits, Protected, displacement, removal, takes


def tree(shares: dict[str, Fraction], previously: dict[str, str] | None = None, *, pools: int = 1) -> Tree:
    """A tree with budgets at these paths, parents first."""

    def built(path: str, share: Fraction) -> Budget:
        below = [p for p in shares if p != path and child_path(path, p.rpartition("/")[2]) == p]
        children = tuple(built(p, shares[p]) for p in below)
        return Budget(path, Shares(share), previously=(previously or {}).get(path), children=children)

    return Tree(built(ROOT, Fraction(1)), tuple(Pool(f"p{n}", 8, 10) for n in range(pools)))


def flat(*names: str) -> Tree:
    return tree(dict.fromkeys(names, Fraction(1, 100)))


def removed(before: Tree, after: Tree, limits: Limits = LIMITS) -> list[str]:
    return removal(plan(before, after, 0), before, limits)


def moved(before: Tree, after: Tree, *work: Protected, limits: Limits = LIMITS) -> list[str]:
    return displacement(plan(before, after, 0), before, work, limits)


def at(budget: str, owner: str = "ben", gpus: int = 1, pool: str = "p0") -> Protected:
    return Protected(budget, pool, owner, gpus)


LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("a", "a", ""),
        ("abc", "ab", ""),
        ("ab", "a", "would remove 1 of 2 budgets (50.0%): b; at most 10 and 1/3 go at once"),
        ("abc", "a", "would remove 2 of 3 budgets (66.7%): b, c; at most 10 and 1/3 go at once"),
        ("a", "", "would remove all 1 budget below the root"),
        (LETTERS * 2, LETTERS * 2, ""),
        (LETTERS, LETTERS[:18], ""),
        (LETTERS, "xyz", "would remove 23 of 26 budgets (88.5%): a, b, c, d, e and 18 more; at most 10 and 1/3"),
    ],
)
def test_removals_are_counted_and_weighed_in_trees_of_every_size(before: str, after: str, said: str) -> None:
    """One of three may go, one of two may not, and no part is small enough for too many (octodns thresholds)."""
    found = removed(flat(*dict.fromkeys(before)), flat(*dict.fromkeys(after)))
    assert found == [] if not said else found[0].startswith(said)


def test_many_are_too_many_however_large_the_tree_is() -> None:
    """Eleven of a thousand are more than the count allows."""
    names = [f"b{n}" for n in range(1_000)]
    assert removed(flat(*names), flat(*names[:990])) == []
    assert "would remove 11 of 1000 budgets (1.1%)" in removed(flat(*names), flat(*names[:989]))[0]


def test_everything_below_the_root_never_goes_unasked() -> None:
    """Not even where the limits allow all of it."""
    assert removed(flat("a"), flat(), Limits(100, Fraction(1))) == ["would remove all 1 budget below the root"]


def test_a_move_is_no_removal_and_takes_nothing() -> None:
    """A renamed budget keeps its share and its people (flux2#3316)."""
    before, after = tree({"a": Fraction(1, 2)}), tree({"b": Fraction(1, 2)}, {"b": "a"})
    assert removed(before, after) == []
    assert not takes(plan(before, after, 0))
    assert moved(before, after, at("a")) == []


def test_what_moves_away_from_people_at_work_is_summed_for_each_pool() -> None:
    """Two budgets that lose a fifth each are two fifths; a pool where nobody works does not matter."""
    before = tree({"a": Fraction(2, 5), "b": Fraction(2, 5), "c": Fraction(1, 5)}, pools=2)
    after = tree({"a": Fraction(1, 5), "b": Fraction(1, 5), "c": Fraction(3, 5)}, pools=2)
    assert takes(plan(before, after, 0))
    assert moved(before, after) == []
    assert moved(before, after, at("a")) == []
    (found,) = moved(before, after, at("a"), at("b", "eva", 8), at("b", "eva"), at("b", "ben", 3))
    assert found.startswith(
        "would move 40.0% of pool p0 away from people with protected work: a loses 20.0% (ben 1 GPU)"
    )
    assert found.endswith(", b loses 20.0% (eva 9 GPUs, ben 3 GPUs); at most 25% moves at once")
    assert moved(before, after, at("a"), at("b"), limits=Limits(moved=Fraction(2, 5))) == []
    assert moved(before, after, at("a"), at("b", pool="p1")) == []


def test_what_a_parent_and_its_child_lose_is_counted_once() -> None:
    """The child's loss is part of its parent's, where people work in both."""
    before = tree({"a": Fraction(1, 2), "a/x": Fraction(1)})
    after = tree({"a": Fraction(1, 5), "a/x": Fraction(1)})
    found = moved(before, after, at("a"), at("a/x", "eva"))
    assert found[0].startswith("would move 30.0% of pool p0 away from people with protected work: a loses 30.0%")
    assert "a/x loses 30.0% (eva 1 GPU)" in found[0]


def test_shares_that_move_between_children_count_though_their_parent_keeps_its_own() -> None:
    """What one child loses is lost for those who work in it."""
    before = tree({"a": Fraction(1), "a/x": Fraction(1, 2), "a/y": Fraction(1, 2)})
    after = tree({"a": Fraction(1), "a/x": Fraction(0), "a/y": Fraction(1)})
    assert "would move 50.0% of pool p0" in moved(before, after, at("a"), at("a/x"))[0]
    assert moved(before, after, at("a"), at("a/y")) == []


def test_a_removed_budget_and_a_removed_pool_lose_everything() -> None:
    """Whoever works there is named."""
    before, after = tree({"a": Fraction(1, 2), "b": Fraction(1, 2)}, pools=2), tree({"b": Fraction(1, 2)})
    found = moved(before, after, at("a"), at("b", "eva", pool="p1"))
    assert [text.partition(" away")[0] for text in found] == [
        f"would move 50.0% of pool {pool}" for pool in ("p0", "p1")
    ]
    assert "a loses 50.0% (ben 1 GPU); at most" in found[0]
    assert "b loses 50.0% (eva 1 GPU); at most" in found[1]


def test_a_first_tree_takes_nothing() -> None:
    """Budgets that are added take from nobody."""
    assert not takes(plan(None, flat("a"), 0))
