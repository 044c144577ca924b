"""What waiting budgets could win from running ones, narrowed as one goes down the ranking.

Work past its minimum may be stopped only for budgets that rank before its own. So whoever walks down the ranking
leaves behind, with each budget it passes, the GPUs that this one holds past its minimum: they are out of reach of all
that follow. In overload nearly every waiting budget ranks too low for nearly every shape, and this is what keeps a
pass short.
"""

from __future__ import annotations

from gpubudget.core.placement import RIPE, indices
from gpubudget.core.pool import Pool
from gpubudget.core.records import Node


class Contest:
    """What could be won on ``hosts`` for shapes, given as bits.

    ``left`` are the GPUs that budgets not passed yet hold past their minimum, anywhere.
    """

    __slots__ = ("_behind", "_hosts", "_passed", "_pool", "left", "possible")

    def __init__(self, pool: Pool, mask: int, hosts: int) -> None:
        self._pool = pool
        self._hosts = hosts
        self._passed: list[Node] = []
        self._behind = 0  # the bits of the hosts where budgets passed hold such GPUs
        self.possible = mask
        self.left = pool.budgets.root.ripe

    def passes(self, leaf: Node) -> None:
        """``leaf`` is next in the ranking: what it holds can be won by nobody from here on."""
        self._passed.append(leaf)
        self.left -= leaf.ripe
        if not self.left:
            self.possible = 0

    def winnable(self) -> int:
        """Those shapes that could still be won."""
        if self._passed and self.possible:
            for leaf in self._passed:
                self._behind |= leaf.where()
            self._passed.clear()
            self.possible = self._fitting()
        return self.possible

    def _room(self, each: int) -> int:
        """The hosts that could still give ``each`` GPUs; where a budget was passed at least one is out of reach."""
        sets = self._pool.index.sets[RIPE]
        return ((sets[each] & ~self._behind) | (sets[each + 1] & self._behind)) & self._hosts

    def _fitting(self) -> int:
        """Those of ``possible`` for which there is room."""
        pool, room = self._pool, self._pool.index.top
        while room and not self._room(room):
            room -= 1
        found = self.possible & pool.single[room]
        for number in indices(self.possible & pool.wide):
            shape = pool.kinds[number][0]
            if shape.each <= room and self._room(shape.each).bit_count() >= shape.hosts:
                found |= 1 << number
        return found
