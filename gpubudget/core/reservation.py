"""When the first workload that cannot start will have its GPUs, and what may be done meanwhile on those hosts.

Since every protection ends, that time is mostly known: an attempt can be stopped for the workload once its protection
is over and its budget ranks below. Where the rank has yet to change, the moment at which today's lines of usage cross
is taken, and the time is marked as an estimate.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gpubudget.core.fairshare import Crossing, crossing_of, outranks
from gpubudget.core.host import HostState
from gpubudget.core.placement import EVERY, UNALLOCATED, Shape
from gpubudget.core.pool import Pool
from gpubudget.core.records import FAR, Attempt, Host, Node, Reservation, Workload

Release = tuple[int, int, bool]
"""When so many GPUs can be had, and whether that is an estimate."""


class Forecast(NamedTuple):
    """When a gang can start, where, and whether that hangs on a change of rank."""

    start: int
    hosts: list[Host]
    estimate: bool


def forecast(pool: Pool, workload: Workload, leaf: Node, shape: Shape, now: int, blocked: int = 0) -> Forecast | None:
    """The earliest time at which ``workload`` could have its GPUs if nothing else took them; None if none is known.

    Hosts whose bit is in ``blocked`` are left alone.
    """
    if leaf.starved:
        return None
    claimant = _Claimant(pool, leaf, shape.hosts * shape.each * workload.min_runtime, now)
    found: list[tuple[int, int, bool, Host]] = []
    latest = FAR  # when enough hosts that were looked at can give their GPUs
    wanted, each = shape.hosts, shape.each
    soon = EVERY  # the bits of hosts on which work past its minimum may give way before that
    for host in pool.hosts.values():
        if host.state is not _READY or blocked & host.bit:
            continue
        if not soon & host.bit and not host.claims and host.first_end() >= latest and _given(host) < each:
            continue
        when = claimant.earliest(host, each, latest)
        if when is not None:
            found.append((when[0], host.index, when[1], host))
            if len(found) >= wanted:
                found.sort()  # no two have the same index
                del found[wanted:]
                if found[-1][0] < latest:
                    latest = found[-1][0]
                    soon = claimant.may_win(latest)
    if len(found) < wanted:
        return None
    return Forecast(found[-1][0], [one[3] for one in found], any(one[2] for one in found))


def blocked_hosts(
    pool: Pool, kept: Reservation, workload: Workload, leaf: Node, hosts: int, now: int, grace: int
) -> int:
    """The bits of those of ``hosts`` that are reserved, and where a start of ``workload`` now would delay that.

    One that ranks before the reservation's own workload delays it rightly. Others may use what the reservation does
    not need, or anything if they can be stopped for it by then; those who have to make way first may take ``grace``.
    """
    hosts &= kept.bits
    holder = kept.workload
    at = pool.budgets.ledger.clock(now)
    if not hosts or (workload.rank < holder.rank if leaf is kept.leaf else outranks(leaf, kept.leaf, at)):
        return 0
    shape, each = holder.shapes[pool.name], workload.shapes[pool.name].each
    claimant = _Claimant(pool, kept.leaf, shape.hosts * shape.each * holder.min_runtime, now)
    until = now + workload.min_runtime + grace
    if until <= kept.start and claimant.may_stop(leaf, until) == until:
        return 0
    blocked = 0
    for host in pool.hosts_of(hosts):
        whole = host.gpus - host.lane
        if whole < each + shape.each or claimant.room_by(host, kept.start) < each + shape.each:
            blocked |= host.bit
    return blocked


def can_keep(pool: Pool, kept: Reservation, attempt: Attempt, now: int, grace: int) -> bool:
    """Whether the reserved hosts on which ``attempt`` was just placed can give their GPUs at the reserved time."""
    if not kept.bits & attempt.bits:
        return True
    hosts = [host for host in attempt.hosts if kept.bits & host.bit]
    shape = kept.workload.shapes[pool.name]
    claimant = _Claimant(pool, kept.leaf, shape.hosts * shape.each * kept.workload.min_runtime, now)
    until = now + attempt.workload.min_runtime + (grace if attempt.promised else 0)
    if until <= kept.start and claimant.may_stop(attempt.leaf, until) == until:
        return True
    return all(claimant.room_by(host, kept.start) >= shape.each for host in hosts)


def puts_off(pool: Pool, kept: Reservation, workload: Workload, leaf: Node, now: int) -> bool:
    """Whether what ``workload`` would be charged could cost the reservation its rank, and so its time.

    Both are charged to the same program. It might then rank behind another that waits, which would take the reserved
    GPUs by right, again and again; or the holder might no longer rank before those whose GPUs it is to have. One that
    ranks before the holder may do so, and what is short and small enough for the debug lane costs no turn to speak of.
    """
    holder = kept.workload
    if holder is workload or leaf.up[-2] is not kept.leaf.up[-2]:
        return False
    at = pool.budgets.ledger.clock(now)
    if workload.rank < holder.rank if leaf is kept.leaf else outranks(leaf, kept.leaf, at):
        return False
    if not pool.lane.admits(workload.spec) and _costs_the_turn(
        kept.leaf, leaf, workload.spec.gpus * workload.min_runtime, at
    ):
        return True
    if kept.estimate or now >= kept.start:
        return False
    each = holder.shapes[pool.name].each

    def holds(commitment: int) -> bool:
        claimant = _Claimant(pool, kept.leaf, commitment, now)
        return all(claimant.room_by(host, kept.start) >= each for host in kept.hosts)

    own = holder.spec.gpus * holder.min_runtime
    charge = workload.spec.gpus * max(workload.min_runtime, kept.start - now)  # it may well run until then
    return not holds(own + charge) and holds(own)


def _costs_the_turn(holder: Node, leaf: Node, commitment: int, at: int) -> bool:
    """Whether a budget above both leaves would, once charged, rank behind a sibling where something waits."""
    for node in holder.up:
        if node.parent is None or node not in leaf.up:
            continue
        height = node.height + node.climb * at
        after = height + commitment * node.fold
        for sibling in node.parent.children:
            if sibling.mask and height < sibling.height + sibling.climb * at < after:
                return True
    return False


def _given(host: Host) -> int:
    """What ``host`` can give to ordinary work without stopping allocated work; below zero if it holds too much."""
    if not host.lane:
        return host.rooms[UNALLOCATED]
    have = host.free.bit_count() + host.stopping - host.owed + host.unallocated
    return min(have, host.gpus - host.lane - host.ordinary)


_READY: Final = HostState.READY


class _Claimant:
    """One who waits for GPUs: whom may it stop, and when. What it learns of a budget it remembers."""

    def __init__(self, pool: Pool, leaf: Node, commitment: int, now: int) -> None:
        self.budgets = pool.budgets
        self.leaf = leaf
        self.commitment = commitment
        self.now = now
        self._crossings: dict[Node, Crossing] = {}
        self._soonest: dict[Node, int] = {}

    def may_stop(self, victim: Node, earliest: int) -> int | None:
        """When, from ``earliest`` on, attempts of ``victim`` past their minimum may be stopped; None if never."""
        crossing = self._crossings.get(victim)
        if crossing is None:
            crossing = self._crossings[victim] = crossing_of(self.leaf, self.commitment, victim)
        zero = self.budgets.ledger.zero
        found = crossing.first(earliest - zero)
        return None if found is None else found + zero

    def _today(self, victim: Node) -> int:
        """When those of ``victim`` that are past their minimum today may be stopped; ``FAR`` if never."""
        known = self._soonest.get(victim, -1)
        if known < 0:
            found = self.may_stop(victim, self.now)
            known = self._soonest[victim] = FAR if found is None else found
        return known

    def may_win(self, before: int) -> int:
        """The bits of the hosts on which attempts past their minimum today may be stopped ``before`` a time."""
        found = 0
        for leaf in self.budgets.leaves.values():
            if leaf.ripe and self._today(leaf) < before:
                found |= leaf.where()
        return found

    def earliest(self, host: Host, each: int, before: int) -> tuple[int, bool] | None:
        """When ``host`` can give ``each`` GPUs, and whether that is an estimate; only times ``before`` that matter."""
        missing = each - _given(host)
        if missing <= 0:
            return self.now, False
        releases = self._releases(host, before)
        if len(releases) > 1:
            releases.sort()
        estimate = False
        for time, gpus, uncertain in releases:
            missing -= gpus
            estimate = estimate or uncertain
            if missing <= 0:
                return time, estimate
        return None

    def room_by(self, host: Host, time: int) -> int:
        """The GPUs that ``host`` can give at ``time``."""
        return _given(host) + sum([gpus for _, gpus, _ in self._releases(host, time + 1)])

    def _releases(self, host: Host, before: int) -> list[Release]:
        """When each ordinary allocated attempt on ``host`` can be gone, of those that can be ``before`` a time."""
        found: list[Release] = []
        now, soonest = self.now, self._soonest
        for attempt in host.attempts.values():
            if not attempt.allocated or attempt.lane or attempt.stopping is not None:
                continue
            leaf, over, ends_by = attempt.leaf, attempt.protected_until, attempt.ends_by
            time, estimate = FAR, False
            if over < before:
                time = soonest.get(leaf, -1)
                if time < 0:
                    time = self._today(leaf)
                estimate = time != now
                if over > now and time < before:  # later than now it is never earlier
                    stopped = self.may_stop(leaf, over)
                    time = FAR if stopped is None else stopped
                    estimate = estimate or time != over
            if ends_by is not None and ends_by < time:
                time, estimate = ends_by, False
            if time < before:
                found.append((time, attempt.each, estimate))
        if host.claims:
            for claim in host.claims.values():
                stopped = None if claim.lane else self.may_stop(claim.leaf, now + claim.workload.min_runtime)
                if stopped is not None and stopped < before:
                    found.append((stopped, claim.each, True))
        return found
