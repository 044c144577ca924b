"""When the first workload that cannot start will have its GPUs, and what may be done meanwhile on those hosts.

Since every protection ends, that time is mostly known: an attempt can be stopped for the workload once its protection
is over and its budget ranks below. Where the rank has yet to change, the moment at which today's lines of usage cross
is taken, and the time is marked as an estimate.
"""

from __future__ import annotations

from typing import NamedTuple

from gpubudget.core.fairshare import legal_from, outranks
from gpubudget.core.host import HostState
from gpubudget.core.placement import Shape
from gpubudget.core.pool import Pool
from gpubudget.core.records import Attempt, Host, Node, Reservation, Workload


class _Release(NamedTuple):
    time: int
    gpus: int
    ordinary: int  # how much of it counts as ordinary work, which may not use the lane
    estimate: bool


class Forecast(NamedTuple):
    """When a gang can start, where, and whether that hangs on a change of rank."""

    start: int
    hosts: list[Host]
    estimate: bool


def forecast(pool: Pool, workload: Workload, leaf: Node, shape: Shape, now: int) -> Forecast | None:
    """The earliest time at which ``workload`` could have its GPUs if nothing else took them; None if none is known."""
    if leaf.starved:
        return None
    claimant = _Claimant(leaf, shape.hosts * shape.each * workload.spec.min_runtime, now)
    found: list[tuple[int, int, bool, Host]] = []
    for host in pool.hosts.values():
        if host.state is HostState.READY:
            when = claimant.earliest(host, shape.each)
            if when is not None:
                found.append((when[0], host.index, when[1], host))
    if len(found) < shape.hosts:
        return None
    found.sort(key=lambda one: one[:2])
    chosen = found[: shape.hosts]
    return Forecast(chosen[-1][0], [one[3] for one in chosen], any(one[2] for one in chosen))


def blocked_hosts(pool: Pool, kept: Reservation, workload: Workload, leaf: Node, now: int) -> int:
    """The bits of the reserved hosts on which a start of ``workload`` now would delay the reservation.

    One that ranks before the reservation's own workload delays it rightly. Others may use what the reservation does
    not need, or anything if they can be stopped for it by then.
    """
    holder = kept.workload
    their_leaf = kept.leaf
    if workload.rank < holder.rank if leaf is their_leaf else outranks(leaf, their_leaf, now):
        return 0
    shape = holder.shapes[pool.name]
    claimant = _Claimant(their_leaf, shape.hosts * shape.each * holder.spec.min_runtime, now)
    until = now + workload.spec.min_runtime
    if until <= kept.start and claimant.may_stop(leaf, until) == until:
        return 0
    if kept.spare_at != (now, pool.changes):
        kept.spare_at = (now, pool.changes)
        kept.spare = {host.index: claimant.room_by(host, kept.start) - shape.each for host in kept.hosts}
    each = workload.shapes[pool.name].each
    blocked = 0
    for place, spare in kept.spare.items():
        if spare < each:
            blocked |= 1 << place
    return blocked


class _Claimant:
    """One who waits for GPUs: whom may it stop, and when."""

    def __init__(self, leaf: Node, commitment: int, now: int) -> None:
        self.leaf = leaf
        self.commitment = commitment
        self.now = now
        self._today: dict[int, bool] = {}

    def may_stop(self, victim: Node, earliest: int) -> int | None:
        return legal_from(self.leaf, self.commitment, victim, earliest)

    def earliest(self, host: Host, each: int) -> tuple[int, bool] | None:
        """When ``host`` can give ``each`` GPUs, and whether that is an estimate."""
        have, slack = _given(host)
        if min(have, slack) >= each:
            return self.now, False
        estimate = False
        for release in sorted(self._releases(host)):
            have += release.gpus
            slack += release.ordinary
            estimate = estimate or release.estimate
            if min(have, slack) >= each:
                return release.time, estimate
        return None

    def room_by(self, host: Host, time: int) -> int:
        """The GPUs that ``host`` can give at ``time``."""
        have, slack = _given(host)
        for release in self._releases(host):
            if release.time <= time:
                have += release.gpus
                slack += release.ordinary
        return min(have, slack)

    def _releases(self, host: Host) -> list[_Release]:
        found: list[_Release] = []
        for attempt in host.attempts.values():
            if attempt.allocated and attempt.stopping is None:
                found += self._release(attempt, max(self.now, attempt.protected_until))
        for claim in host.claims.values():
            found += self._release(claim, self.now + claim.workload.spec.min_runtime)
        return found

    def _release(self, attempt: Attempt, earliest: int) -> list[_Release]:
        if attempt.lane:
            return [] if attempt.ends_by is None else [_Release(attempt.ends_by, attempt.each, 0, estimate=False)]
        time = self.may_stop(attempt.leaf, earliest)
        if attempt.ends_by is not None and (time is None or attempt.ends_by < time):
            return [_Release(attempt.ends_by, attempt.each, attempt.each, estimate=False)]
        if time is None:
            return []
        estimate = attempt.started is None or not self._ranks_below_today(attempt.leaf)
        return [_Release(time, attempt.each, attempt.each, estimate)]

    def _ranks_below_today(self, victim: Node) -> bool:
        known = self._today.get(id(victim))
        if known is None:
            known = self._today[id(victim)] = self.may_stop(victim, self.now) == self.now
        return known


def _given(host: Host) -> tuple[int, int]:
    """What ``host`` can give without stopping allocated work: GPUs, and how much of that to ordinary work."""
    have = host.free.bit_count() + host.stopping - host.owed + host.unallocated
    return have, host.gpus - host.lane - host.ordinary
