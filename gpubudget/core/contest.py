"""What waiting budgets could win from running ones, narrowed as one goes down the ranking.

Work past its minimum may be stopped only for budgets that rank before its own. So whoever walks down the ranking
leaves behind, with each budget it passes, the GPUs that this one holds past its minimum: they are out of reach of all
that follow. In overload nearly every waiting budget ranks too low for nearly every shape, and this is what keeps a
pass short.
"""

from __future__ import annotations

from collections.abc import Container

from gpubudget.core.placement import RIPE, indices
from gpubudget.core.pool import Pool
from gpubudget.core.records import Node


class Contest:
    """What could be won on ``hosts`` for the shapes in ``possible``.

    ``budgets`` are those with attempts past their minimum there, and those above them; None stands for all that have
    any. ``left`` are the GPUs that budgets not passed yet hold past their minimum, anywhere.
    """

    __slots__ = ("_behind", "_hosts", "_pool", "_rooms", "_sets", "budgets", "left", "possible")

    def __init__(self, pool: Pool, mask: int, hosts: int) -> None:
        self._pool = pool
        self._hosts = hosts
        self._sets = [bits & hosts for bits in pool.index.sets[RIPE]]
        self._rooms: dict[int, int] = {}
        self._behind: list[Node] = []
        self.possible = mask
        self.left = pool.budgets.root.ripe
        self.budgets: Container[Node] | None = None
        if hosts > 0:
            self.budgets = {
                node
                for host in pool.hosts_of(hosts)
                for attempt in host.attempts.values()
                if attempt.ripe
                for node in attempt.leaf.up
            }

    def passes(self, leaf: Node) -> None:
        """``leaf`` is next in the ranking: what it holds can be won by nobody from here on."""
        self._behind.append(leaf)
        self.left -= leaf.ripe
        if not self.left:
            self.possible = 0

    def winnable(self) -> int:
        """Those shapes that could still be won."""
        if self._behind and self.possible:
            for leaf in self._behind:
                self._leave(leaf)
            self._behind.clear()
            self.possible = self._fitting()
        return self.possible

    def _leave(self, leaf: Node) -> None:
        sets, rooms = self._sets, self._rooms
        for attempt in leaf.ripe_attempts.values():
            if attempt.bits & self._hosts:
                for host in attempt.hosts:
                    place = host.index
                    room = rooms.get(place, host.rooms[RIPE])
                    bit = 1 << place
                    if room and sets[room] & bit:
                        less = room - attempt.each if room > attempt.each else 0
                        rooms[place] = less
                        for each in range(less + 1, room + 1):
                            sets[each] ^= bit

    def _fitting(self) -> int:
        """Those of ``possible`` for which there is room."""
        pool, sets = self._pool, self._sets
        room = len(sets) - 2
        while room and not sets[room]:
            room -= 1
        found = self.possible & pool.single[room]
        for number in indices(self.possible & pool.wide):
            shape = pool.kinds[number][0]
            if shape.each <= room and sets[shape.each].bit_count() >= shape.hosts:
                found |= 1 << number
        return found
