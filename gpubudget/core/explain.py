"""What the scheduler shows of itself: views of budgets, hosts, pools and workloads, and why one is where it is.

Nothing here changes anything. Sentences give the true reason, with numbers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from gpubudget.core.budget import ROOT
from gpubudget.core.fairshare import in_rank_order
from gpubudget.core.host import HostState
from gpubudget.core.placement import EVERY, ROOM, indices
from gpubudget.core.pool import Pool
from gpubudget.core.records import Attempt, Host, Node, Workload
from gpubudget.core.reservation import blocked_hosts, forecast
from gpubudget.core.state import State
from gpubudget.core.views import (
    AttemptView,
    BudgetView,
    Explanation,
    HostView,
    PoolView,
    ReservationView,
    Standing,
    WorkloadView,
)
from gpubudget.units import about_duration, count, format_gpu_hours


def attempt_view(attempt: Attempt) -> AttemptView:
    """An attempt as it is shown."""
    places = zip(attempt.hosts, attempt.masks, strict=True)
    return AttemptView(
        attempt.workload.spec.id,
        attempt.number,
        attempt.pool,
        attempt.allocated,
        attempt.lane,
        tuple((host.name, indices(mask)) for host, mask in places),
        attempt.started,
        attempt.protected_until,
        attempt.stopping is not None,
    )


def workload_view(workload: Workload) -> WorkloadView:
    """A workload as it is shown: with the budget that it is charged to now, after moves and renames."""
    spec = workload.spec
    return WorkloadView(
        spec if workload.budget == spec.budget else replace(spec, budget=workload.budget),
        workload.state,
        workload.submitted,
        workload.attempts,
        workload.failures,
        workload.preemptions,
        None if workload.attempt is None else attempt_view(workload.attempt),
    )


def host_view(host: Host) -> HostView:
    """A host as it is shown."""
    attempts = sorted((attempt.workload.spec.id, attempt.number) for attempt in host.attempts.values())
    free = host.free.bit_count()
    return HostView(host.name, host.pool, host.gpus, free, host.lane, host.state, host.reason, tuple(attempts))


def pool_view(pool: Pool, now: int) -> PoolView:
    """A pool as it is shown; times up to ``now``."""
    hosts = pool.hosts.values()
    return PoolView(
        pool.name,
        len(hosts),
        sum(host.gpus for host in hosts),
        sum(host.free.bit_count() for host in hosts if host.state is HostState.READY),
        pool.capacity.read(now),
        pool.allocated.read(now),
        pool.unallocated.read(now),
        pool.idle.read(now),
        pool.unavailable.read(now),
    )


def reservation_view(pool: Pool) -> ReservationView | None:
    """The reservation of a pool, if there is one."""
    kept = pool.reservation
    if kept is None:
        return None
    names = tuple(host.name for host in kept.hosts)
    return ReservationView(pool.name, kept.workload.spec.id, kept.start, names, kept.estimate)


def schedulable(pool: Pool) -> int:
    """GPUs of the pool's ready hosts."""
    return sum(host.gpus for host in pool.hosts.values() if host.state is HostState.READY)


def budget_views(pool: Pool, now: int) -> list[BudgetView]:
    """How every budget stands in one pool at ``now``, parents first."""
    found: list[BudgetView] = []
    _budget_views(pool, pool.budgets.root, pool.fillers.root, Fraction(1), _Moment(pool, now), found)
    return found


class _Moment:
    """Usage at a time after the last event: with the changes that will have come by then."""

    def __init__(self, pool: Pool, now: int) -> None:
        self.now = now
        self._changes: Counter[int] = Counter()
        ledger = pool.budgets.ledger
        self._at = ledger.clock(now)
        for time, leaf, gpus in ledger.edges:
            if time + ledger.lookback > now:
                break
            self._change(leaf, -gpus * (now - time - ledger.lookback))
        running = {a.serial: a for host in pool.hosts.values() for a in host.attempts.values() if a.allocated}
        for attempt in running.values():
            if attempt.protected_until <= now and not attempt.counted:
                self._change(attempt.leaf, attempt.gpus * (now - attempt.protected_until))

    def _change(self, leaf: Node, gpu_time: int) -> None:
        for node in leaf.up:
            self._changes[id(node)] += gpu_time

    def usage(self, node: Node) -> int:
        return node.usage(self._at) + self._changes[id(node)]


def _budget_views(
    pool: Pool, node: Node, filler: Node, effective: Fraction, moment: _Moment, found: list[BudgetView]
) -> tuple[int, int, int]:
    """Add the view of a node and those below; returns its (running, unallocated, pending)."""
    below: list[BudgetView] = []
    running = pending = unallocated = 0
    reserve = Fraction(0)
    for child, other in zip(node.children, filler.children, strict=True):
        if child.reserve:
            reserve = child.share
            counts = _counts(child, other)
        else:
            counts = _budget_views(pool, child, other, effective * child.share, moment, below)
        running, unallocated, pending = running + counts[0], unallocated + counts[1], pending + counts[2]
    if not node.children:
        running, unallocated, pending = _counts(node, filler)
    gpus = schedulable(pool)
    entitlement = int(effective * gpus * pool.budgets.ledger.observed(moment.now))
    usage = moment.usage(node)
    view = BudgetView(
        node.path,
        pool.name,
        node.share,
        effective,
        reserve,
        effective * gpus,
        entitlement,
        usage,
        entitlement - usage,
        running,
        unallocated,
        pending,
    )
    found += [view, *below]
    return running, unallocated, pending


def _counts(leaf: Node, filler: Node) -> tuple[int, int, int]:
    pending = sum(len(queue.row) for node in (leaf, filler) for queue in node.queues.values())
    return leaf.spent.gpus, filler.spent.gpus, pending


def ranking(pool: Pool, now: int) -> list[Workload]:
    """All that waits in a pool, best-ranked first."""
    found: list[Workload] = []
    fillers = pool.fillers.ledger
    for root, ledger in ((pool.budgets.root, pool.budgets.ledger), (pool.fillers.root, fillers), (pool.stray, fillers)):
        if root.mask:
            for leaf in [root] if root is pool.stray else in_rank_order(root, ledger.clock(now), root.mask):
                entries = sorted(entry for queue in leaf.queues.values() for entry in queue.row.entries())
                found += [entry[3] for entry in entries]
    return found


def explain(state: State, workload: Workload, now: int) -> Explanation:
    """Why a workload is where it is, at ``now``."""
    name = workload.spec.id
    attempt = workload.attempt
    if attempt is not None:
        return Explanation(
            name,
            workload.state,
            _why_running(attempt, now),
            attempt.pool,
            None,
            0,
            attempt.started,
            estimate=False,
            path=(),
        )
    if workload.held or not workload.shapes:
        held = workload.held
        return Explanation(name, workload.state, held, None, None, 0, None, estimate=False, path=())
    pool = state.pools[next(iter(workload.shapes))]
    return _explain_waiting(state, workload, pool, now)


def _why_running(attempt: Attempt, now: int) -> str:
    where = ", ".join(host.name for host in attempt.hosts)
    if attempt.started is None:
        missing = sum(attempt.promised.values())
        return f"it waits for {missing} of its {count(attempt.gpus, 'GPU')} on {where}, which are still being freed"
    if attempt.stopping is not None:
        whom = f" for {attempt.beneficiary}" if attempt.beneficiary else ""
        return f"it was told to stop ({attempt.stopping}{whom}); its processes on {where} have not ended yet"
    if not attempt.allocated:
        return f"it runs on {where}, unallocated: any allocated workload may take its GPUs"
    left = attempt.protected_until - now
    if left > 0:
        return f"it runs on {where} and is protected for another {about_duration(left)}"
    return f"it runs on {where}, past its minimum runtime: better-ranked work may take its GPUs"


def _explain_waiting(state: State, workload: Workload, pool: Pool, now: int) -> Explanation:
    order = ranking(pool, now)
    rank = order.index(workload) + 1
    leaf = state.leaf_of(workload, pool)
    start, estimate = None, False
    kept = pool.reservation
    blocked = 0
    if kept is not None and kept.workload is workload:
        start, estimate = max(kept.start, now), kept.estimate
    elif workload.allocated:
        blocked = (
            0 if kept is None else blocked_hosts(pool, kept, workload, leaf, EVERY, now, state.policy.grace_period)
        )
        found = forecast(pool, workload, leaf, workload.shapes[pool.name], now, blocked)
        start, estimate = (None, False) if found is None else (found.start, True)
    reason = _why_waiting(workload, pool, leaf, rank, len(order), now)
    if kept is not None and blocked:
        names = ", ".join(host.name for host in pool.hosts_of(blocked))
        reason += f"; {names} {'is' if blocked.bit_count() == 1 else 'are'} kept for {kept.workload.spec.id}"
    path = _standings(leaf, pool.budgets.ledger.clock(now))
    return Explanation(workload.spec.id, workload.state, reason, pool.name, rank, len(order), start, estimate, path)


def _why_waiting(workload: Workload, pool: Pool, leaf: Node, rank: int, waiting: int, now: int) -> str:
    shape = workload.shapes[pool.name]
    ready = [host for host in pool.hosts.values() if host.state is HostState.READY]
    place = f"it ranks {rank} of {waiting} in pool {pool.name}"
    if not ready:
        return f"no host of pool {pool.name} is ready, of {len(pool.hosts)} known; {place}"
    free = sum(host.free.bit_count() for host in ready)
    wide = sum(host.free.bit_count() >= shape.each for host in ready)
    have = f"{count(wide, 'host')} {'has' if wide == 1 else 'have'}" if wide else "no host has"
    gpus = f"{free} of {count(sum(host.gpus for host in ready), 'GPU')} {'is' if free == 1 else 'are'} free"
    room = f"it needs {shape}; {gpus}, and {have} {shape.each}"
    if workload.preempt_after > now:
        room += "; it failed soon after it had preempted others, so for now it starts on free GPUs only"
    elif leaf.starved and workload.allocated:
        room += f"; its budget {leaf.path} has no share here, so it preempts nobody"
    elif wide >= shape.hosts:
        kept = sum(host.rooms[ROOM] >= shape.each for host in ready) < shape.hosts
        room += f"; those are kept for {'the debug lane' if kept else 'better-ranked work'}"
    lane = pool.lane
    if lane.spec is not None and lane.admits(workload.spec):
        used = lane.person(workload.spec.owner).usage(now)
        if used >= lane.spec.allowance:
            had, most = format_gpu_hours(used), format_gpu_hours(lane.spec.allowance)
            room += f"; {workload.spec.owner} has had {had} GPU-hours of the debug lane in a day, of {most}"
    return f"{room}; {place}"


def _standings(leaf: Node, at: int) -> tuple[Standing, ...]:
    found = []
    for node in reversed(leaf.up[:-1]):
        siblings = node.parent.children if node.parent else []
        mine = node.height + node.climb * at
        better = [s for s in siblings if s.mask and s is not node and s.height + s.climb * at < mine]
        better.sort(key=lambda s: s.height + s.climb * at)
        found.append(Standing(node.path, node.share, node.usage(at), tuple(s.path for s in better)))
    return tuple(found) or (Standing(ROOT, Fraction(1), leaf.usage(at), ()),)
