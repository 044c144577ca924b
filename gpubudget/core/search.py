"""Where a workload can start now, and whom that would stop; and which of a budget's workloads is the first that can.

Nothing here changes anything.
"""

from __future__ import annotations

from bisect import bisect_left

from gpubudget.core import reclaim
from gpubudget.core.fairshare import legal_siblings
from gpubudget.core.placement import EVERY, RIPE, ROOM, UNALLOCATED, Shape, enough
from gpubudget.core.pool import Pool
from gpubudget.core.reclaim import Place
from gpubudget.core.records import Host, Node, Workload
from gpubudget.core.reservation import blocked_hosts
from gpubudget.core.state import State
from gpubudget.core.waiting import Queue


def find_place(
    state: State, pool: Pool, workload: Workload, leaf: Node, shape: Shape, hosts: int, *, timid: bool
) -> Place | None:
    """Where an allocated workload can start now on ``hosts`` (bits), and whom that stops; None if it cannot.

    ``timid`` workloads stop nobody.
    """
    now, index, each, wanted = state.now, pool.index, shape.each, shape.hosts
    if each > index.top:
        return None
    can_have = index.sets[ROOM if timid else RIPE][each] & hosts
    if not enough(can_have, wanted):
        return None
    legal: set[Node] | None = None  # whose attempts past their minimum may be stopped, once it is asked
    kept = pool.reservation
    others = kept is not None and kept.workload is not workload and kept.bits & hosts != 0
    free = index.best(ROOM, shape, hosts & ~kept.bits if kept is not None and others else hosts)
    if free is not None:
        return Place(hosts_at(pool, free), [])
    useful = can_have
    if not timid:
        easy = index.sets[UNALLOCATED][each] & hosts
        if not enough(easy, wanted):  # some of allocated work must go
            legal = legal_siblings(leaf, wanted * each * workload.min_runtime, pool.budgets.ledger.clock(now), hosts)
            useful &= reclaim.where(legal) | easy
            if not enough(useful, wanted):
                return None
    if kept is not None and others:
        blocked = blocked_hosts(pool, kept, workload, leaf, useful, now, state.policy.grace_period)
        hosts &= ~blocked
        free = index.best(ROOM, shape, hosts)
        if free is not None:
            return Place(hosts_at(pool, free), [])
    if timid or leaf.starved:
        return None
    found = reclaim.unallocated(pool, shape, hosts, now)
    if found is None and pool.budgets.root.ripe and enough(can_have & hosts, wanted):
        if legal is None:
            legal = legal_siblings(leaf, wanted * each * workload.min_runtime, pool.budgets.ledger.clock(now), hosts)
        found = reclaim.ripe(pool, shape, legal, hosts, now) if legal else None
    return found


def hosts_at(pool: Pool, places: list[int]) -> list[Host]:
    """The hosts with these indices, in order."""
    if len(places) > 1:
        places.sort()
    return [host for place in places if (host := pool.order[place]) is not None]


class _Asked:
    """What is the same for all workloads of one budget and shape that are asked whether they can start."""

    __slots__ = ("hosts", "leaf", "pool", "shape", "state", "timid")

    def __init__(self, state: State, pool: Pool, leaf: Node, shape: Shape, hosts: int, *, timid: bool) -> None:
        self.state = state
        self.pool = pool
        self.leaf = leaf
        self.shape = shape
        self.hosts = hosts
        self.timid = timid

    def place(self, workload: Workload) -> Place | None:
        """Where one of them can start."""
        hosts = EVERY if workload.fresh else self.hosts
        return find_place(self.state, self.pool, workload, self.leaf, self.shape, hosts, timid=self.timid)


def first_startable(
    state: State, pool: Pool, leaf: Node, number: int, hosts: int, *, easy: bool
) -> tuple[Workload, Place] | None:
    """The first workload of one budget and shape that can start on ``hosts`` (bits).

    What is possible depends on the minimum runtime alone, and a shorter one makes more possible: so when the first in
    order cannot start, the shortest is asked, and then the longest that can. Where it is not ``easy``, and so
    needs allocated work stopped, the shortest is asked first, since mostly none can.
    """
    shape, timid = pool.kinds[number]
    queue = leaf.queues[number]
    if shape.hosts > 1:
        hosts = EVERY
    asked = _Asked(state, pool, leaf, shape, hosts, timid=timid)
    head, shortest = queue.head(), queue.groups[queue.runtimes[0]].first()
    shorter = shortest.min_runtime < head.min_runtime
    kept = pool.reservation
    alike = kept is None or kept.leaf is not leaf  # else some may use the reserved hosts, and some may not
    if shorter and alike and not easy and asked.place(shortest) is None:
        return None
    if found := asked.place(head):
        return head, found
    if not shorter or ((easy or not alike) and asked.place(shortest) is None):
        return None
    chosen = queue.first_within(_longest_possible(queue, head.min_runtime, asked))
    again = asked.place(chosen)
    return (chosen, again) if again else None


def _longest_possible(queue: Queue, below: int, asked: _Asked) -> int:
    """The longest minimum runtime in ``queue``, less than ``below``, with which a workload can start.

    The shortest can.
    """
    runtimes = queue.runtimes
    low, high = 0, bisect_left(runtimes, below) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if asked.place(queue.groups[runtimes[middle]].first()) is None:
            high = middle - 1
        else:
            low = middle
    return runtimes[low]
