"""Which budgets could win GPUs by having attempts past their minimum stopped, told before any of them is asked.

A budget may have attempts of budgets stopped that rank below it. So on each host the attempts that would have to go are
taken from the worst-ranked budget upwards, until enough GPUs are together for a shape; the last one taken says how well
a budget must rank to get that shape there. In overload nearly every waiting budget ranks too low for nearly every
shape, and this is what keeps a pass short.
"""

from __future__ import annotations

from gpubudget.core.fairshare import in_rank_order
from gpubudget.core.placement import RIPE, UNALLOCATED, indices
from gpubudget.core.pool import Pool
from gpubudget.core.records import Attempt, Host, Node


class Contest:
    """What could be won on ``hosts`` for the shapes in ``mask``.

    ``possible`` are those of them for which enough could be had at all. ``budgets`` are those with attempts past their
    minimum there, and those above them. ``last`` has, for a leaf, the shapes that can only be won by leaves ranked
    before it.
    """

    __slots__ = ("budgets", "last", "possible")

    def __init__(self, pool: Pool, mask: int, hosts: int, now: int) -> None:
        self.possible = mask
        self.budgets: set[Node] = set()
        self.last: dict[Node, int] = {}
        if mask:
            self._survey(pool, mask, hosts, now)

    def _survey(self, pool: Pool, mask: int, hosts: int, now: int) -> None:
        shapes = {number: pool.kinds[number][0] for number in indices(mask)}
        least = min(shape.each for shape in shapes.values())
        places = pool.index.having(RIPE, least) & hosts
        held = [(host, [a for a in host.attempts.values() if a.ripe]) for host in pool.hosts_of(places)]
        for _, attempts in held:
            for attempt in attempts:
                self.budgets.update(attempt.leaf.up)
        order = [leaf for leaf in in_rank_order(pool.budgets.root, now, 0, self.budgets) if leaf.ripe]
        position = {leaf: place for place, leaf in enumerate(order)}
        for _, attempts in held:
            attempts.sort(key=lambda attempt: -position[attempt.leaf])
        for number, shape in shapes.items():
            needs = sorted((_needed(host, attempts, shape.each, position) for host, attempts in held), reverse=True)
            place = needs[shape.hosts - 1] if len(needs) >= shape.hosts else -1
            if place < 0:
                self.possible &= ~(1 << number)
            elif place < len(order):
                self.last[order[place]] = self.last.get(order[place], 0) | 1 << number


def _needed(host: Host, attempts: list[Attempt], each: int, position: dict[Node, int]) -> int:
    """The place of the best-ranked budget that must give way on ``host`` for ``each`` GPUs.

    Past all places if nobody need give way, and -1 if it would not suffice that all do.
    """
    missing = each - host.rooms[UNALLOCATED]
    if missing <= 0:
        return len(position)
    for attempt in attempts:
        missing -= attempt.each
        if missing <= 0:
            return position[attempt.leaf]
    return -1
