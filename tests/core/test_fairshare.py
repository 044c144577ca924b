"""Ranks in integers against fractions, and what follows from them."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.core.budget import ROOT, Budget, Shares
from gpubudget.core.fairshare import (
    Crossing,
    crossing_of,
    first_in_rank,
    grow,
    in_rank_order,
    legal_siblings,
    outranks,
    parting,
    set_weights,
)
from gpubudget.core.placement import EVERY
from gpubudget.core.records import Node

NOW = 1_000
SHARE = st.one_of(st.just(Fraction(0)), st.fractions(0, 1, max_denominator=10**6))
USAGE = st.integers(0, 10**15)


def budget(path: str, share: str, *children: Budget) -> Budget:
    return Budget(path, Shares(Fraction(share)), children=children)


def grown() -> tuple[Node, dict[str, Node]]:
    """A tree with two levels, all of whose leaves have something waiting and something past its minimum."""
    root = grow(
        budget(ROOT, "1", budget("a", "1/2", budget("a/x", "1/3"), budget("a/y", "1/3")), budget("b", "1/4")), "p", 0
    )
    leaves = {f"{leaf.path}{'*' if leaf.reserve else ''}": leaf for leaf in root.leaves()}
    for leaf in leaves.values():
        for node in leaf.up:
            node.mask, node.ripe = 1, node.ripe + 1
    return root, leaves


def charge(leaf: Node, usage: int, slope: int = 0) -> None:
    for node in leaf.up:
        node.charge(usage)
        node.turn(slope, NOW)


def key(node: Node, usage: int) -> tuple[bool, Fraction, Fraction, str, bool]:
    """Rank as DESIGN says it: usage over share, then the larger share, then the path, the reserve first."""
    ratio = Fraction(usage) / node.share if node.share else Fraction(0)
    return not node.share, ratio, -node.share, node.path, not node.reserve


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(SHARE, USAGE), min_size=1, max_size=6))
def test_integer_weights_order_siblings_as_fractions_do(pairs: list[tuple[Fraction, int]]) -> None:
    """Any shares and any usage, ties and zero shares too; usage over share is never divided or rounded."""
    siblings = [Node(name, None, share) for name, (share, _) in zip("abcdef", pairs, strict=False)]
    set_weights(siblings)
    used = {node: usage for node, (_, usage) in zip(siblings, pairs, strict=True)}
    by_weight = sorted(siblings, key=lambda node: used[node] * node.fold + node.order)
    assert by_weight == sorted(siblings, key=lambda node: key(node, used[node]))


def test_equal_budgets_rank_by_larger_share_then_by_path() -> None:
    """With nothing used, and with usage in proportion."""
    siblings = [Node("c", None, Fraction(1, 4)), Node("b", None, Fraction(1, 4)), Node("a", None, Fraction(1, 5))]
    set_weights(siblings)
    for scale in (0, 60):
        order = sorted(siblings, key=lambda node: int(node.share * scale) * node.fold + node.order)
        assert [node.path for node in order] == ["b", "c", "a"]


def test_a_budget_with_children_keeps_a_reserve_that_ranks_like_a_sibling() -> None:
    """So does the root, also without children; a leaf keeps nothing apart."""
    root, leaves = grown()
    assert {path: leaf.share for path, leaf in leaves.items()} == {
        "/*": Fraction(1, 4),
        "a*": Fraction(1, 3),
        "a/x": Fraction(1, 3),
        "a/y": Fraction(1, 3),
        "b": Fraction(1, 4),
    }
    alone = grow(budget(ROOT, "1"), "p", 0)
    assert [(leaf.path, leaf.reserve, leaf.share) for leaf in alone.leaves()] == [(ROOT, True, Fraction(1))]
    assert root.share == 1


def test_the_paths_of_two_leaves_part_at_two_siblings() -> None:
    """That is where they are compared; a leaf does not part from itself."""
    root, leaves = grown()
    assert parting(leaves["a/x"], leaves["b"]) == (leaves["a/x"].parent, leaves["b"])
    assert parting(leaves["a/x"], leaves["a*"]) == (leaves["a/x"], leaves["a*"])
    with pytest.raises(AssertionError, match="b and b do not part"):
        parting(leaves["b"], leaves["b"])
    assert root.parent is None


def test_the_walk_goes_down_the_best_ranked_branch_first() -> None:
    """All below a better-ranked budget comes before all below a worse one, at any depth."""
    root, leaves = grown()
    charge(leaves["a/x"], 30)
    charge(leaves["b"], 90)
    charge(leaves["/*"], 5)
    assert [leaf.path for leaf in in_rank_order(root, NOW, 1)] == ["/", "a", "a/y", "a/x", "b"]
    for before, after in pairwise(in_rank_order(root, NOW, 1)):
        assert outranks(before, after, NOW)
        assert not outranks(after, before, NOW)


def test_the_walk_visits_what_waits() -> None:
    """Other budgets are passed over."""
    root, leaves = grown()
    for node in leaves["a/y"].up:
        node.mask |= 2
    assert list(in_rank_order(root, NOW, 0)) == []
    assert list(in_rank_order(root, NOW, 2)) == [leaves["a/y"]]


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(0, 100), min_size=5, max_size=5), st.sets(st.integers(0, 4), min_size=1))
def test_the_first_of_the_walk_is_found_without_it(usages: list[int], waiting: set[int]) -> None:
    """The same leaf, whoever waits."""
    root, leaves = grown()
    for number, (leaf, usage) in enumerate(zip(leaves.values(), usages, strict=True)):
        charge(leaf, usage)
        for node in leaf.up:
            node.mask |= 2 * (number in waiting)
    assert first_in_rank(root, NOW, 2) is next(in_rank_order(root, NOW, 2))
    with pytest.raises(AssertionError, match="nothing waits in /"):
        first_in_rank(root, NOW, 4)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.integers(0, 100), min_size=5, max_size=5),
    st.integers(0, 60),
    st.integers(0, 4),
    st.sampled_from(["all", "some"]),
)
def test_attempts_may_be_stopped_of_those_who_still_rank_below_after_the_commitment(
    usages: list[int], commitment: int, who: int, asked: str
) -> None:
    """Compared where the paths part, in fractions; equal is not below."""
    _, leaves = grown()
    for leaf, usage in zip(leaves.values(), usages, strict=True):
        charge(leaf, usage, slope=usage % 3)
    mine = list(leaves.values())[who]
    for leaf in leaves.values():
        for node in leaf.up:
            node.known_where |= 2 if leaf.path in {"a/x", "b"} else 4
    hosts = 2 if asked == "some" else EVERY
    legal = legal_siblings(mine, commitment, NOW, hosts)
    for theirs in set(leaves.values()) - {mine}:
        a, b = parting(mine, theirs)
        below = (a.usage(NOW) + commitment) / a.share < b.usage(NOW) / b.share
        assert (b in legal) == (below and b.known_where & hosts != 0)


def test_a_budget_without_a_share_has_nobody_stopped_and_ranks_below_all() -> None:
    """Its own attempts may be stopped, whatever anybody has used."""
    root = grow(budget(ROOT, "1", budget("a", "1"), budget("z", "0")), "p", 0)
    _, a, z = root.children
    charge(a, 10**12)
    a.ripe = z.ripe = 1
    assert legal_siblings(z, 1, NOW, EVERY) == set()
    assert legal_siblings(a, 10**12, NOW, EVERY) == {z}
    assert crossing_of(z, 1, a).first(NOW) is None
    assert crossing_of(a, 1, z).first(NOW) == NOW


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.integers(-200, 200), st.integers(-5, 5), st.integers(-5, 5), st.integers(0, 50))
def test_a_crossing_is_the_first_time_at_which_the_line_is_above_zero(
    start: int, slope: int, later: int, earliest: int
) -> None:
    """Found by looking at each moment; where today's slope leads nowhere, the later one is followed from there."""

    def scan(height: int, rise: int) -> int | None:
        return next((earliest + step for step in range(400) if height + rise * step > 0), None)

    height = start + slope * earliest
    found = Crossing(start, slope, later).first(earliest)
    expected = scan(height, max(slope, 0))
    if expected is None and later > 0:
        expected = scan(height, later)
        assert expected is not None
        assert found in {expected, expected + 1}  # a bound for an estimate: a millisecond late at most
    else:
        assert found == expected


def test_when_a_budget_ranks_below_is_told_by_the_slopes_of_usage() -> None:
    """It uses on, and the other does not; nobody crosses with itself."""
    root, leaves = grown()
    mine, theirs = leaves["a/x"], leaves["b"]
    charge(theirs, 100, slope=2)
    for node in theirs.up:
        node.held += 2
    assert crossing_of(mine, 0, mine).first(NOW) is None
    found = crossing_of(mine, 300, theirs).first(NOW)
    assert found is not None
    for time, below in ((found - 1, False), (found, True)):
        a, b = parting(mine, theirs)
        assert ((a.usage(time) + 300) / a.share < b.usage(time) / b.share) is below
    assert root.usage(NOW) == 100
