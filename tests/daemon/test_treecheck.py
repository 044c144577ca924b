"""The last look at a tree: sums at every date, exact and quick, and dated changes that can be told apart."""

from __future__ import annotations

import random
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.core.budget import ROOT, Budget, DatedShares, Pool, Shares, Tree, reserve
from gpubudget.daemon.treecheck import check_tree
from gpubudget.errors import InvalidInputError

POOLS = (Pool("h100", 8, 16), Pool("b200", 8, 4))


def tree(*children: Budget) -> Tree:
    return Tree(Budget(ROOT, Shares(Fraction(1)), children=children), POOLS)


SHARES = st.builds(
    lambda default, other: Shares(default, (("b200", other),)),
    *[st.fractions(0, 1, max_denominator=6)] * 2,
)


@st.composite
def child(draw: st.DrawFn, path: str) -> Budget:
    days = sorted(draw(st.sets(st.integers(0, 9), max_size=6)))
    changes = [DatedShares(a, b, draw(SHARES)) for a, b in zip(days[::2], days[1::2], strict=False)]
    return Budget(path, draw(SHARES), changes=tuple(draw(st.permutations(changes))))


@settings(max_examples=60)
@given(st.tuples(child("a"), child("b"), child("c")))
def test_a_sum_above_the_whole_is_found_at_any_moment(children: tuple[Budget, ...]) -> None:
    """A tree is refused if and only if at some moment, in some pool, nothing is left and more is given."""
    whole = tree(*children)
    least = min(reserve(whole.root, pool.name, moment) for pool in POOLS for moment in range(-1, 11))
    if least >= 0:
        check_tree(whole)
    else:
        with pytest.raises(InvalidInputError, match="the children of / have "):
            check_tree(whole)


def test_changes_at_the_same_time_are_refused() -> None:
    """Nobody could say which of them holds; one may begin when another ends."""
    shares = Shares(Fraction(1, 4))
    for second, refused in ((4, True), (5, False)):
        whole = tree(Budget("a", shares, changes=(DatedShares(second, 9, shares), DatedShares(1, 5, shares))))
        if refused:
            with pytest.raises(InvalidInputError, match="two dated changes of budget a hold at the same time"):
                check_tree(whole)
        else:
            check_tree(whole)


def test_many_changes_are_checked_in_a_moment() -> None:
    """The cost grows with the number of changes, not with its square: a tree cannot stop a daemon from answering."""
    chance = random.Random(5)
    children = []
    for number in range(200):
        days = sorted(chance.sample(range(70_000), 120))
        changes = [
            DatedShares(a, b, Shares(Fraction(1, chance.randrange(900, 9999))))
            for a, b in zip(days[::2], days[1::2], strict=True)
        ]
        children.append(Budget(f"c{number}", Shares(Fraction(1, 999)), changes=tuple(changes)))
    start = time.process_time()
    check_tree(tree(*children))
    assert time.process_time() - start < 5
