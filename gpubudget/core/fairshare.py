"""Who goes first: hierarchical fair share, compared in integers.

Among siblings the one with the least usage over share goes first; ties go to the larger share, then by path. With the
shares of siblings written over one denominator as whole weights ``w``, usage over share is ordered like
``usage * (M / w)`` for any common multiple ``M`` of the weights: no division and no rounding. A sibling without a
share ranks after all others, whatever it uses. What a budget with children keeps for itself takes part as one more
sibling, so the same split gives the same order at any depth.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from fractions import Fraction
from math import lcm  # noqa: TID251 - whole numbers only

from gpubudget.core.budget import ROOT, Budget, reserve
from gpubudget.core.records import Node
from gpubudget.core.usage import Ledger

LAST = 1 << 400
"""Above every usage over share of a budget with a share."""


class Ranking:
    """The budgets of one pool, with one kind of usage: allocated or unallocated. ``leaves`` are by path."""

    __slots__ = ("leaves", "ledger", "root")

    def __init__(self, root: Node, ledger: Ledger[Node]) -> None:
        self.root = root
        self.ledger = ledger
        self.leaves = {leaf.path: leaf for leaf in root.leaves()}


def grow(budget: Budget, pool: str, now: int, parent: Node | None = None) -> Node:
    """The nodes of a budget and all below it, with the shares in force in ``pool`` at ``now``."""
    share = Fraction(1) if parent is None else budget.shares_at(now).of(pool)
    node = Node(budget.path, parent, share)
    if budget.children or budget.path == ROOT:
        kept = Node(budget.path, node, reserve(budget, pool, now), reserve=True)
        node.children = [kept, *(grow(child, pool, now, node) for child in budget.children)]
        set_weights(node.children)
    return node


def set_weights(siblings: list[Node]) -> None:
    """Set ``fold``, ``order`` and ``base``, so that ``usage * fold + order`` orders siblings by rank."""
    funded = [node.share for node in siblings if node.share]
    over = lcm(*(share.denominator for share in funded))
    common = lcm(*(int(share * over) for share in funded))
    by_tie = sorted(siblings, key=lambda node: (-node.share, node.path, not node.reserve))
    for order, node in enumerate(by_tie):
        node.base = 0 if node.share else LAST * len(siblings)
        node.order = node.base + order
        node.fold = common // int(node.share * over) * len(siblings) if node.share else 0


def parting(one: Node, other: Node) -> tuple[Node, Node]:
    """The two siblings at which the paths of two different leaves part."""
    mine = one.up[::-1]
    theirs = other.up[::-1]
    for a, b in zip(mine, theirs, strict=False):
        if a is not b:
            return a, b
    raise AssertionError(f"{one.path} and {other.path} do not part")


def outranks(one: Node, other: Node, now: int) -> bool:
    """Whether work of leaf ``one`` ranks before work of leaf ``other``."""
    a, b = parting(one, other)
    return a.usage(now) * a.fold + a.order < b.usage(now) * b.fold + b.order


def in_rank_order(
    node: Node, now: int, easy: int, hard: int = 0, contested: Container[Node] = (), *, may: bool = False
) -> Iterator[tuple[Node, bool]]:
    """The leaves below ``node`` that could start something, best-ranked first, each with whether it may preempt.

    ``easy`` are the shapes that fit without stopping allocated work: every leaf where one waits is given. ``hard`` are
    those that could fit only if allocated work is stopped: a leaf where only such shapes wait is given if, at some
    level, a sibling ranked below it is ``contested``: one whose attempts past their minimum might be stopped. ``may``
    says that one is known already, higher up.
    """
    if not node.children:
        yield node, may
        return
    wanted = easy | hard
    worst = -1
    ranked: list[tuple[int, Node]] = []
    for child in node.children:
        held = hard and child in contested
        if held or child.mask & wanted:
            usage = (child.at0 + child.slope * now) * child.fold
            if held and usage + child.base > worst:
                worst = usage + child.base
            if child.mask & wanted:
                ranked.append((usage + child.order, child))
    ranked.sort(key=_first)
    for rank, child in ranked:
        below = may or (child.fold > 0 and rank - child.order < worst)
        if below or child.mask & easy or child in contested:
            yield from in_rank_order(child, now, easy, hard, contested, may=below)


def _first(pair: tuple[int, Node]) -> int:
    return pair[0]


def legal_siblings(leaf: Node, commitment: int, now: int) -> set[Node]:
    """The budgets whose attempts past their minimum may be stopped for work of ``leaf``; those below them included.

    Such a budget must still rank below, where the paths part, after ``commitment`` (GPU-milliseconds) is charged to
    ``leaf``; equal is not below. A budget without a share preempts nobody.
    """
    found: set[Node] = set()
    if leaf.starved:
        return found
    for node in leaf.up[:-1]:
        mine = (node.at0 + node.slope * now + commitment) * node.fold
        for sibling in node.parent.children if node.parent else ():
            if sibling.ripe and sibling is not node:
                theirs = (sibling.at0 + sibling.slope * now) * sibling.fold + sibling.base
                if mine < theirs:
                    found.add(sibling)
    return found


def legal_from(leaf: Node, commitment: int, victim: Node, earliest: int) -> int | None:
    """When, from ``earliest`` on and by today's slopes, work of ``leaf`` may have work of leaf ``victim`` stopped.

    None if never. Both lines are straight, so the moment at which they cross is found by one division.
    """
    if leaf.starved or leaf is victim:
        return None
    mine, theirs = parting(leaf, victim)
    if not theirs.fold:
        return earliest
    start = theirs.at0 * theirs.fold - (mine.at0 + commitment) * mine.fold
    slope = theirs.slope * theirs.fold - mine.slope * mine.fold
    if start + slope * earliest > 0:
        return earliest
    return max(earliest, -start // slope + 1) if slope > 0 else None
