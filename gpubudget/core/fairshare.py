"""Who goes first: hierarchical fair share, compared in integers.

Among siblings the one with the least usage over share goes first; ties go to the larger share, then by path. With the
shares of siblings written over one denominator as whole weights ``w``, usage over share is ordered like
``usage * (M / w)`` for any common multiple ``M`` of the weights: no division and no rounding. A sibling without a
share ranks after all others, whatever it uses. What a budget with children keeps for itself takes part as one more
sibling, so the same split gives the same order at any depth.

``at`` is a time as the lines of the ledger count it (``Ledger.clock``), in all that is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import lcm  # noqa: TID251 - whole numbers only
from typing import Final

from gpubudget.core.budget import ROOT, Budget, reserve
from gpubudget.core.placement import EVERY
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

    def move_zero(self, now: int, stray: Node | None = None) -> None:
        """Let its lines count time from ``now`` on, and that of ``stray``, which its ledger keeps too."""
        leaves = (*self.leaves.values(), stray)
        self.ledger.move_zero(now, {node for leaf in leaves if leaf is not None for node in leaf.up})


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
    """Set ``fold``, ``order`` and ``tie`` of new nodes, so that ``usage * fold + order`` orders siblings by rank.

    That is what ``height`` and ``climb`` give at any time; without ``tie``, the order of those that are level, it says
    whether one is truly below another.
    """
    over = lcm(*[node.share.denominator for node in siblings])
    weighted = [(node.share.numerator * (over // node.share.denominator), node) for node in siblings]
    common = lcm(*[weight for weight, _ in weighted if weight])
    weighted.sort(key=lambda one: (-one[0], one[1].path, not one[1].reserve))
    for order, (weight, node) in enumerate(weighted):
        node.tie = order
        node.order = node.height = order if weight else order + LAST * len(siblings)
        node.fold = common // weight * len(siblings) if weight else 0


def parting(one: Node, other: Node) -> tuple[Node, Node]:
    """The two siblings at which the paths of two different leaves part."""
    mine, theirs = one.up, other.up
    i, j = len(mine) - 1, len(theirs) - 1
    while i >= 0 and j >= 0:
        if mine[i] is not theirs[j]:
            return mine[i], theirs[j]
        i -= 1
        j -= 1
    raise AssertionError(f"{one.path} and {other.path} do not part")


def outranks(one: Node, other: Node, at: int) -> bool:
    """Whether work of leaf ``one`` ranks before work of leaf ``other``."""
    a, b = parting(one, other)
    return a.height + a.climb * at < b.height + b.climb * at


def in_rank_order(node: Node, at: int, mask: int) -> Iterator[Node]:
    """The leaves below ``node`` where a shape of ``mask`` waits, best-ranked first.

    Ranks are read when a budget's children are reached.
    """
    stack = [node]
    while stack:
        node = stack.pop()
        if not node.children:
            yield node
            continue
        ranked = [(child.height + child.climb * at, child) for child in node.children if child.mask & mask]
        if len(ranked) > 1:
            ranked.sort()  # no two siblings have the same number
            ranked.reverse()
        for _, child in ranked:
            stack.append(child)


def first_in_rank(node: Node, at: int, mask: int) -> Node:
    """The best-ranked leaf below ``node`` where a shape of ``mask`` waits; there must be one."""
    while node.children:
        best: Node | None = None
        least = 0
        for child in node.children:
            if child.mask & mask:
                height = child.height + child.climb * at
                if best is None or height < least:
                    best, least = child, height
        if best is None:
            raise AssertionError(f"nothing waits in {node.path}")
        node = best
    return node


def worth_asking(
    node: Node, at: int, easy: int, hard: int, hosts: int, *, may: bool, last: bool
) -> list[tuple[int, Node, bool]]:
    """The children of ``node`` that are worth asking for workloads to start, worst-ranked first.

    Those where ``easy`` or ``hard`` shapes wait, and between them those with work to lose, which have attempts past
    their minimum on one of ``hosts``. Each comes with its height, and with whether what waits in it may have attempts
    of others stopped there (``may``: that it may by the rank of ``node``). That is judged by the smallest commitment
    that waits below it: what may not, truly may not. Where only ``hard`` shapes wait, which need that, and it is
    false, a child is left out that has nothing to lose, and so is all that ranks after the last one worth asking if
    ``node`` is the ``last`` to be looked at.
    """
    top = -1
    losers: set[Node] = set()  # who has something to lose, and is not asked
    for child in node.children:
        if child.ripe and (hosts == EVERY or child.where() & hosts):
            height = child.height + child.climb * at
            losers.add(child)
            if height > top:  # noqa: PLR1730 - a call of max costs more than all of this
                top = height
    found: list[tuple[int, Node, bool]] = []
    worst = -1
    for child in node.children:
        if child.mask & (easy | hard):
            height = child.height + child.climb * at
            may_here = not child.starved and (may or height + child.least() * child.fold < top)
            if may_here or child.mask & easy or (child.children and child in losers):
                found.append((height, child, may_here))
                worst = max(worst, height)
                losers.discard(child)
    for child in losers:
        height = child.height + child.climb * at
        if height < worst or not last:
            found.append((height, child, False))
    if len(found) > 1:
        found.sort()  # no two siblings have the same number
        found.reverse()
    return found


def legal_siblings(leaf: Node, commitment: int, at: int, hosts: int) -> set[Node]:
    """The budgets whose attempts past their minimum may be stopped for work of ``leaf``; those below them included.

    Only those with such attempts on one of ``hosts`` are looked at. Such a budget must still rank below, where the
    paths part, after ``commitment`` (GPU-milliseconds) is charged to ``leaf``; equal is not below. A budget without a
    share preempts nobody.
    """
    found: set[Node] = set()
    if leaf.starved:
        return found
    node, parent = leaf, leaf.parent
    while parent is not None:
        mine = node.height + node.climb * at - node.tie + commitment * node.fold
        for sibling in parent.children:
            if (
                sibling.ripe
                and sibling is not node
                and mine < sibling.height + sibling.climb * at - sibling.tie
                and (hosts == EVERY or sibling.where() & hosts)
            ):
                found.add(sibling)
        node, parent = parent, parent.parent
    return found


def somebody_may_stop(leaf: Node, at: int) -> bool:
    """Whether something waits that may have attempts of ``leaf`` past their minimum stopped."""
    theirs, parent = leaf, leaf.parent
    while parent is not None:
        height = theirs.height + theirs.climb * at - theirs.tie
        for sibling in parent.children:
            if (
                sibling.mask
                and sibling is not theirs
                and not sibling.starved
                and sibling.height + sibling.climb * at - sibling.tie + sibling.least() * sibling.fold < height
            ):
                return True
        theirs, parent = parent, parent.parent
    return False


class Crossing:
    """When one budget ranks below another, as a straight line in time: while ``start + slope * at`` is above zero.

    ``later`` is the slope once the protections of today are over; until then occupancy that is committed adds nothing.
    """

    __slots__ = ("later", "slope", "start")

    def __init__(self, start: int, slope: int, later: int) -> None:
        self.start = start
        self.slope = slope
        self.later = later

    def first(self, earliest: int) -> int | None:
        """The first such time from ``earliest`` on, as far as today's slopes tell; None if they tell of none."""
        height = self.start + self.slope * earliest
        if height > 0:
            return earliest
        if self.slope > 0:
            return max(earliest, -self.start // self.slope + 1)
        return earliest + -height // self.later + 1 if self.later > 0 else None


NEVER: Final = Crossing(0, 0, 0)
ALWAYS: Final = Crossing(1, 0, 0)


def crossing_of(leaf: Node, commitment: int, victim: Node) -> Crossing:
    """When leaf ``victim`` ranks below ``leaf``, after ``commitment`` is charged to the latter."""
    if leaf.starved or leaf is victim:
        return NEVER
    mine, theirs = parting(leaf, victim)
    if not theirs.fold:
        return ALWAYS
    start = theirs.height - theirs.tie - (mine.height - mine.tie + commitment * mine.fold)
    slope = theirs.climb - mine.climb
    later = slope if slope > 0 else theirs.held * theirs.fold - mine.held * mine.fold
    return Crossing(start, slope, later)
