"""The scheduling pass: in rank order, place each workload, else stop others for it, else keep a reservation.

A pass is made when something may have become possible: a workload came, GPUs were freed, a protection ended, shares
changed, or, since ranks change by themselves as time passes, ``rebalance_interval`` after the last full pass. A
workload that comes is tried alone, since nothing else that waits has gained by it.
"""

from __future__ import annotations

from typing import Final

from gpubudget.core import reclaim
from gpubudget.core.contest import Contest
from gpubudget.core.decisions import Reserve
from gpubudget.core.fairshare import first_in_rank, in_rank_order, worth_asking
from gpubudget.core.lifecycle import launch
from gpubudget.core.placement import EVERY, FREE, RIPE, ROOM, UNALLOCATED, Shape
from gpubudget.core.pool import Pool
from gpubudget.core.reclaim import Place
from gpubudget.core.records import Node, Reservation, Workload
from gpubudget.core.reservation import Forecast, can_keep, forecast, puts_off
from gpubudget.core.search import find_place, first_startable, hosts_at
from gpubudget.core.state import State, place
from gpubudget.core.workload import WorkloadState

_PENDING: Final = WorkloadState.PENDING

_TRIES: Final = 8
"""How many workloads are asked, best-ranked first, whether a time can be given for their start."""


def run(state: State) -> None:
    """Make the passes that are needed now, in every pool, until nothing more follows."""
    interval = state.policy.rebalance_interval
    again = True
    while again:
        again = False
        for pool in state.pools.values():
            full = pool.due or (pool.budgets.root.mask != 0 and state.now - pool.last_pass >= interval)
            if full or (pool.grown and (state.fresh or pool.waiting())):
                again = True
                if state.fresh:
                    _place_fresh(state)
                one_pass(state, pool, full=full)
            else:
                pool.grown = 0
        if state.fresh:
            again = True
            _try_fresh(state)


def _place_fresh(state: State) -> None:
    """Let those take part in a pass that have just come and would have been tried alone."""
    for workload in state.fresh:
        if not workload.queued and workload.state is _PENDING:
            place(state, workload)


def _try_fresh(state: State) -> None:
    """Try those that have just begun to wait, one after the other."""
    fresh, state.fresh = state.fresh, []
    for workload in fresh:
        workload.fresh = False
        if workload.attempt is None and state.workloads.get(workload.id) is workload:
            _try_alone(state, workload)


def one_pass(state: State, pool: Pool, *, full: bool) -> None:
    """Look at everything that waits in ``pool``, or only at what could use the hosts that can give more than before."""
    hosts = EVERY if full else pool.grown
    pool.grown = 0
    if full:
        pool.due = False
        pool.last_pass = state.now
    if pool.spec is None:
        return
    pool.passing = True
    if pool.lane.spec is not None:
        _lane(state, pool)
    if full:
        _first(state, pool)
    kept = pool.reservation
    if kept is not None and not full and kept.bits & hosts:
        _keep_word(state, pool, kept)
    while _start_one(state, pool, hosts):
        if full:
            _first(state, pool)
        else:
            hosts = pool.still_grown(hosts) | pool.grown  # also where victims leave more than was needed
            pool.grown = 0
    if kept is not None and not full and kept is pool.reservation and not kept.estimate and state.now >= kept.start:
        pool.due = True  # it was to start by now, but others that wait for several hosts may go first: look at all
    if pool.index.sets[FREE][1] and pool.fillers.root.mask | pool.stray.mask:
        _unallocated(state, pool)
    pool.passing = False


def _try_alone(state: State, workload: Workload) -> None:
    """Try a workload that has just begun to wait, in its pools in order of preference."""
    timid = workload.preempt_after > state.now
    for name, shape in workload.shapes.items():
        pool = state.pools[name]
        if workload.debug and pool.lane.admits(workload.spec):  # so that there is a lane
            _lane(state, pool)
            if workload.attempt is not None:
                return
        leaf = state.leaf_of(workload, pool)
        if not _hopeless(pool, workload, leaf, pool.number(shape, timid=timid)) and _try(
            state, pool, workload, leaf, shape
        ):
            return
    if not workload.queued:
        place(state, workload)
    if workload.allocated:
        for name in workload.shapes:
            pool = state.pools[name]
            if pool.reservation is None and _leads(pool, workload, state.leaf_of(workload, pool), state.now):
                _first(state, pool)


def _leads(pool: Pool, workload: Workload, leaf: Node, now: int) -> bool:
    """Whether no other allocated workload that waits ranks before ``workload``, which waits in ``leaf``."""
    root = pool.budgets.root
    if first_in_rank(root, pool.budgets.ledger.clock(now), root.mask) is not leaf:
        return False
    return all(queue.head().rank >= workload.rank for queue in leaf.queues.values())


def _hopeless(pool: Pool, workload: Workload, leaf: Node, number: int) -> bool:
    """Whether another of the same budget and shape waits that could start if this one could.

    It has been tried, and nothing has been gained since. In the budget that has the reservation it may have been kept
    off for that, which this one need not be.
    """
    if pool.reservation is not None and pool.reservation.leaf is leaf:
        return False
    queue = leaf.queues.get(number)
    if queue is None:
        return False
    other = queue.shortest(but=workload)
    return other is not None and not other.fresh and other.min_runtime <= workload.min_runtime


# The debug lane


def _lane(state: State, pool: Pool) -> None:
    """Start what may start in the debug lane, one person after another."""
    failed: set[str] = set()
    while candidates := pool.lane.next_up(state.now, failed):
        workload = candidates[0]
        leaf = pool.budgets.leaves[workload.budget or ""]
        hosts = (
            host for host in pool.hosts.values() if host.lane and host.rooms[FREE] + host.unallocated + host.stopping
        )
        found = reclaim.in_lane(hosts, workload.shapes[pool.name].each, state.now)
        if found is None or (found.victims and leaf.starved):
            failed.add(workload.spec.id)
        else:
            launch(state, pool, workload, leaf, found.hosts, found.victims, lane=True)


# Allocated work


def _start_one(state: State, pool: Pool, hosts: int) -> bool:
    """Start the best-ranked allocated workload that can start with the help of ``hosts``; whether there was one.

    ``easy`` are the shapes that fit without stopping allocated work, ``hard`` those that would need it: of the latter
    only budgets are asked that rank before those whose attempts would have to go. Gangs on several hosts that would
    need it are left to the full passes, but for the one that has the reservation.
    """
    root, at = pool.budgets.root, pool.budgets.ledger.clock(state.now)
    if not root.mask or not hosts:
        return False
    easy = pool.fitting(UNALLOCATED, root.mask & ~pool.timid, hosts)
    if root.mask & pool.timid:
        easy |= pool.fitting(ROOM, root.mask, hosts)
    later = pool.timid if hosts == EVERY else pool.timid | pool.wide
    hard = pool.fitting(RIPE, root.mask & ~(easy | later), hosts) if root.ripe else 0
    if not easy | hard:
        return False
    if not hard:
        first = first_in_rank(root, at, easy)
        if _start_in(state, pool, first, easy, hosts, easy):  # as mostly it can
            return True
        others = (leaf for leaf in in_rank_order(root, at, easy) if leaf is not first)
        return any(_start_in(state, pool, leaf, easy, hosts, easy) for leaf in others)
    contest = Contest(pool, hard, hosts)
    walk = [(0, root, False)]
    while walk:
        _, leaf, may_stop = walk.pop()
        if leaf.children:
            walk += worth_asking(leaf, at, easy, hard, hosts, may=may_stop, last=not walk)
            continue
        if leaf.ripe:
            contest.passes(leaf)
        if not easy | contest.possible:
            return False
        possible = easy
        if may_stop and leaf.mask & contest.possible:
            possible |= contest.winnable()
        if leaf.mask & possible and _start_in(state, pool, leaf, possible, hosts, easy):
            return True
    return False


def _start_in(state: State, pool: Pool, leaf: Node, mask: int, hosts: int, easy: int) -> bool:
    """Start the first workload of one budget that can start, of those whose shape is in ``mask``."""
    best: tuple[Workload, Place] | None = None
    for number in _by_head(leaf, mask):
        if best is not None and best[0].rank < leaf.queues[number].head().rank:
            break
        found = first_startable(state, pool, leaf, number, hosts, easy=easy >> number & 1 != 0)
        if found is not None and (best is None or found[0].rank < best[0].rank):
            best = found
    if best is None:
        return False
    workload, where = best
    if pool.reservation is not None and puts_off(pool, pool.reservation, workload, leaf, state.now):
        return False
    if where.victims and hosts != EVERY:  # where somebody has to go, the cheapest anywhere
        shape, timid = workload.shapes[pool.name], workload.preempt_after > state.now
        where = find_place(state, pool, workload, leaf, shape, EVERY, timid=timid) or where
    if not _prefers_another(state, pool, workload):
        _launch(state, pool, workload, leaf, where)
    return True


def _by_head(leaf: Node, mask: int) -> list[int]:
    """The numbers of the shapes of ``mask`` that wait in a budget, in the order of the first workload of each."""
    found = [number for number in leaf.queues if mask >> number & 1]
    if len(found) < 2:  # noqa: PLR2004 - there is nothing to order
        return found
    heads = [(leaf.queues[number].head().rank, number) for number in found]
    heads.sort()
    return [number for _, number in heads]


def _launch(state: State, pool: Pool, workload: Workload, leaf: Node, where: Place) -> None:
    """Start a workload; a reservation that its hosts cannot keep any more, since it ranks better, is given up."""
    launch(state, pool, workload, leaf, where.hosts, where.victims, lane=False)
    kept = pool.reservation
    attempt = workload.attempt
    if kept is None or attempt is None or not attempt.allocated:
        return
    if not can_keep(pool, kept, attempt, state.now, state.policy.grace_period):
        pool.lapse()


def _prefers_another(state: State, pool: Pool, workload: Workload) -> bool:
    """Let a workload that would rather start elsewhere try there first; whether anything came of it."""
    if len(workload.shapes) == 1:
        return False
    names = list(workload.shapes)
    for name in names[: names.index(pool.name)]:
        other = state.pools[name]
        if not other.passing and (other.due or other.grown):
            one_pass(state, other, full=other.due)
            return True
    return False


def _try(state: State, pool: Pool, workload: Workload, leaf: Node, shape: Shape) -> bool:
    """Start one workload if it can start."""
    if workload.allocated:
        timid = workload.preempt_after > state.now
        found = find_place(state, pool, workload, leaf, shape, EVERY, timid=timid)
    else:
        free = pool.index.best(FREE, shape, EVERY)
        found = None if free is None else Place(hosts_at(pool, free), [])
    kept = pool.reservation
    if found is None or (kept is not None and workload.allocated and puts_off(pool, kept, workload, leaf, state.now)):
        return False
    _launch(state, pool, workload, leaf, found)
    return True


# The reservation


def _first(state: State, pool: Pool) -> None:
    """Keep the reservation with the best-ranked allocated workload that cannot start and has a time."""
    root, now = pool.budgets.root, state.now
    if not root.mask:
        pool.reservation = None
        return
    kept = pool.reservation
    if kept is not None and now < kept.start and _leads(pool, kept.workload, kept.leaf, now):
        return
    tries = 0
    for leaf in in_rank_order(root, pool.budgets.ledger.clock(now), root.mask):
        for number in _by_head(leaf, leaf.mask):
            shape, timid = pool.kinds[number]
            workload = leaf.queues[number].head()
            if kept is not None and kept.workload is workload and now < kept.start:
                return
            tries += 1
            if timid or tries > _TRIES:
                continue
            if pool.index.fits(UNALLOCATED, shape) and not leaf.starved:  # it starts now
                pool.reservation = None
                return
            found = forecast(pool, workload, leaf, shape, now)
            if found is not None:
                _reserve(state, pool, workload, leaf, found)
                return
        if tries >= _TRIES:
            break
    pool.reservation = None


def _reserve(state: State, pool: Pool, workload: Workload, leaf: Node, found: Forecast) -> None:
    """Keep the hosts of a forecast; one that says "now" needs no keeping."""
    if found.start <= state.now:
        pool.reservation = None
        return
    pool.reservation = Reservation(workload, leaf, found.hosts, found.start, estimate=found.estimate)
    names = tuple(host.name for host in found.hosts)
    state.decisions.append(Reserve(workload.spec.id, pool.name, found.start, names, found.estimate, state.cause))


def _keep_word(state: State, pool: Pool, kept: Reservation) -> None:
    """Start the gang on several hosts that has the reservation, if it can start now and nothing ranks before it."""
    shape = kept.workload.shapes[pool.name]
    if shape.hosts > 1 and pool.index.fits(RIPE, shape) and _leads(pool, kept.workload, kept.leaf, state.now):
        _try(state, pool, kept.workload, kept.leaf, shape)


# Unallocated work


def _unallocated(state: State, pool: Pool) -> None:
    """Fill what is free: in rank order, those that name no budget last."""
    while True:
        for root in (pool.fillers.root, pool.stray):
            fits = pool.fitting(FREE, root.mask, EVERY) if root.mask else 0
            if fits and _fill(state, pool, root, fits):
                break
        else:
            return


def _fill(state: State, pool: Pool, root: Node, fits: int) -> bool:
    leaf = root if root is pool.stray else first_in_rank(root, pool.fillers.ledger.clock(state.now), fits)
    number = _by_head(leaf, fits)[0]
    workload = leaf.queues[number].head()
    return _prefers_another(state, pool, workload) or _try(state, pool, workload, leaf, pool.kinds[number][0])
