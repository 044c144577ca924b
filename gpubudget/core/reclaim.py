"""Whom to stop: the cheapest set of attempts whose GPUs let a workload start.

The cost of a set is ordered by, first to last: GPU-time lost by allocated attempts, their number, GPU-time lost by
unallocated attempts, their number. So no allocated attempt is taken where unallocated ones suffice, and none that
could be left out. On one host the cheapest set is found exactly, by dynamic programming over the GPUs still missing;
a gang on several hosts takes the hosts that are cheapest one by one, and what turns out superfluous is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpubudget.core.placement import RIPE, UNALLOCATED, Shape, enough
from gpubudget.core.pool import Pool
from gpubudget.core.records import Attempt, Host, Node

Cost = tuple[int, int, int, int]
_NOTHING: Cost = (0, 0, 0, 0)


class Place:
    """Where a gang would start, and the attempts to stop so that it can."""

    __slots__ = ("hosts", "victims")

    def __init__(self, hosts: list[Host], victims: list[Attempt]) -> None:
        self.hosts = hosts
        self.victims = victims


_NOBODY: Final[set[Node]] = set()


def unallocated(pool: Pool, shape: Shape, hosts: int, now: int) -> Place | None:
    """The hosts and victims for an allocated gang, if stopping unallocated attempts suffices.

    Only the hosts whose bit is in ``hosts`` are looked at.
    """
    hosts &= pool.index.having(UNALLOCATED, shape.each)
    if not enough(hosts, shape.hosts):
        return None
    return _cheapest(pool.hosts_of(hosts), shape, _NOBODY, now)


def ripe(pool: Pool, shape: Shape, legal: set[Node], hosts: int, now: int) -> Place | None:
    """The same if attempts past their minimum must be stopped too: those of the budgets of ``legal`` and below."""
    hosts &= pool.index.having(RIPE, shape.each) & (pool.index.having(UNALLOCATED, shape.each) | where(legal))
    if not enough(hosts, shape.hosts):
        return None
    return _cheapest(pool.hosts_of(hosts), shape, legal, now)


def where(legal: set[Node]) -> int:
    """The bits of the hosts on which attempts past their minimum of these budgets or below run."""
    found = 0
    for node in legal:
        found |= node.where()
    return found


def in_lane(hosts: Iterable[Host], each: int, now: int) -> Place | None:
    """The same for a workload of the debug lane, among its ``hosts``: only unallocated attempts are stopped."""
    candidates = [host for host in hosts if host.lane - host.lane_used >= each]
    return _cheapest(candidates, Shape(1, each), _NOBODY, now, lane=True)


def _cheapest(hosts: list[Host], shape: Shape, legal: set[Node], now: int, *, lane: bool = False) -> Place | None:
    found: list[tuple[Cost, int, list[Attempt], Host]] = []
    bound: Cost | None = None
    wanted, each = shape.hosts, shape.each
    for host in hosts:
        best = cheapest_on(host, each, legal, now, lane=lane, bound=bound)
        if best is not None:
            if wanted == 1:
                found.clear()
                bound = best[0]
            found.append((best[0], host.index, best[1], host))
    if len(found) < wanted:
        return None
    found.sort()  # no two have the same index
    del found[wanted:]
    victims = {victim.serial: victim for one in found for victim in one[2]}
    chosen = [one[3] for one in found]
    if wanted > 1:
        chosen.sort(key=lambda host: host.index)
        _spare(chosen, each, victims, now)
    return Place(chosen, [victims[serial] for serial in sorted(victims)])


def cheapest_on(
    host: Host,
    each: int,
    legal: set[Node],
    now: int,
    *,
    lane: bool = False,
    bound: Cost | None = None,
) -> tuple[Cost, list[Attempt]] | None:
    """The cheapest victims that make room for ``each`` GPUs on ``host``, and their cost; None if there are none.

    Only sets that cost less than ``bound`` are looked for.
    """
    missing = each - (host.free.bit_count() + host.stopping - host.owed)
    over = 0 if lane else each - (host.gpus - host.lane - host.ordinary)
    if missing <= 0 and over <= 0:
        return (_NOTHING, []) if bound is None or bound > _NOTHING else None
    candidates: list[Attempt] = []
    total = ordinary = 0
    cheapest: Attempt | None = None
    for attempt in host.attempts.values():
        if attempt.ripe and _may_go(attempt.leaf, legal) if attempt.allocated else attempt.stopping is None:
            candidates.append(attempt)
            total += attempt.each
            if attempt.allocated:
                ordinary += attempt.each
            if cheapest is None or _cheaper(attempt, cheapest, now):
                cheapest = attempt
    if total < missing or ordinary < over or cheapest is None:
        return None
    least = _cost(cheapest, now)
    if bound is not None and least >= bound:
        return None
    if len(candidates) == 1:
        return least, candidates
    if over <= 0 and cheapest.each >= missing:
        return least, [cheapest]  # it suffices by itself, and no other set costs less
    if total == missing:  # all must go
        cost = _cost_of_all(candidates, now)
        return (cost, candidates) if bound is None or cost < bound else None
    return _cheapest_set(candidates, max(missing, 0), max(over, 0), now, bound)


def _cheapest_set(
    candidates: list[Attempt], missing: int, over: int, now: int, bound: Cost | None
) -> tuple[Cost, list[Attempt]] | None:
    """The cheapest of ``candidates`` that free ``missing`` GPUs, and ``over`` of ordinary work, by the sums of all."""
    # For each pair (GPUs missing, GPUs over what ordinary work may hold here): the cheapest set found that leaves it.
    states: dict[tuple[int, int], tuple[Cost, list[Attempt]]] = {(missing, over): (_NOTHING, [])}
    for attempt in candidates:
        lost, ordinary = attempt.lost(now), attempt.allocated
        for (left, excess), (cost, victims) in list(states.items()):
            if not (left or excess):
                continue
            key = (max(left - attempt.each, 0), max(excess - attempt.each, 0) if ordinary else excess)
            new = (
                (cost[0] + lost, cost[1] + 1, cost[2], cost[3])
                if ordinary
                else (cost[0], cost[1], cost[2] + lost, cost[3] + 1)
            )
            known = states.get(key)
            if (known is None or new < known[0]) and (bound is None or new < bound):
                states[key] = (new, [*victims, attempt])
    return states.get((0, 0))


def _cost(attempt: Attempt, now: int) -> Cost:
    """What it costs to stop one attempt."""
    lost = attempt.lost(now)
    return (lost, 1, 0, 0) if attempt.allocated else (0, 0, lost, 1)


def _cost_of_all(attempts: list[Attempt], now: int) -> Cost:
    """What it costs to stop several."""
    lost, unallocated, fillers = 0, 0, 0
    for attempt in attempts:
        if attempt.allocated:
            lost += attempt.lost(now)
        else:
            unallocated += attempt.lost(now)
            fillers += 1
    return (lost, len(attempts) - fillers, unallocated, fillers)


def _may_go(leaf: Node, legal: set[Node]) -> bool:
    """Whether a budget is one of ``legal``, or below one."""
    for node in leaf.up:  # noqa: SIM110 - this is asked for every attempt, and a generator costs more than the loop
        if node in legal:
            return True
    return False


def _cheaper(one: Attempt, other: Attempt, now: int) -> bool:
    """Whether to stop ``one`` costs less than to stop ``other``."""
    if one.allocated is not other.allocated:
        return other.allocated
    return one.gpus * (now - one.saved) < other.gpus * (now - other.saved)


def _spare(hosts: list[Host], each: int, victims: dict[int, Attempt], now: int) -> None:
    """Leave out every victim without which there is room too, the dearest first."""
    dearest = sorted(victims.values(), key=lambda v: (not v.allocated, -v.lost(now), v.serial))
    for victim in dearest:
        del victims[victim.serial]
        if not all(_enough(host, each, victims) for host in hosts):
            victims[victim.serial] = victim


def _enough(host: Host, each: int, victims: dict[int, Attempt]) -> bool:
    missing = each - (host.free.bit_count() + host.stopping - host.owed)
    over = each - (host.gpus - host.lane - host.ordinary)
    for attempt in host.attempts.values():
        if attempt.serial in victims:
            missing -= attempt.each
            over -= attempt.each if attempt.allocated else 0
    return missing <= 0 and over <= 0
