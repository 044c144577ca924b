"""How attempts come and go: launch, claim, start, stop, end, requeue. Each step keeps every count and ledger true."""

from __future__ import annotations

from heapq import heappush
from typing import Final

from gpubudget.core.decisions import Claim, Requeue, Start, Stop, Stopped, Unclaim
from gpubudget.core.events import Outcome
from gpubudget.core.fairshare import somebody_may_stop
from gpubudget.core.host import HostState
from gpubudget.core.hoststate import change_state
from gpubudget.core.placement import ROOM, Rooms, indices, lowest
from gpubudget.core.pool import Pool, ripen, unripen
from gpubudget.core.records import Attempt, Host, Node, Workload
from gpubudget.core.state import State, unwait, wait
from gpubudget.core.usage import Meter
from gpubudget.core.workload import StopReason, WorkloadState

_ENDS = {
    StopReason.FINISHED: WorkloadState.FINISHED,
    StopReason.FAILED: WorkloadState.FAILED,
    StopReason.CANCELLED: WorkloadState.CANCELLED,
    StopReason.PREEMPTED: WorkloadState.PREEMPTED,
    StopReason.LIMIT: WorkloadState.FINISHED,
}

# Looked up once: that takes a while, and they are asked for with every start and end.
_RUNNING: Final = WorkloadState.RUNNING
_STOPPING: Final = WorkloadState.STOPPING
_PENDING: Final = WorkloadState.PENDING
_PREEMPTED: Final = StopReason.PREEMPTED
_FINISHED: Final = StopReason.FINISHED
_FAILED: Final = StopReason.FAILED
_LIMIT: Final = StopReason.LIMIT
_DRAINING: Final = HostState.DRAINING
_READY: Final = HostState.READY

_WELL: Final = Outcome.FINISHED
_BADLY: Final = Outcome.FAILED

_COMES_BACK = frozenset({StopReason.DRAINED, StopReason.HOST_LOST, StopReason.FORCED})


def launch(
    state: State, pool: Pool, workload: Workload, leaf: Node, hosts: list[Host], victims: list[Attempt], *, lane: bool
) -> None:
    """Give ``hosts`` to ``workload``: at once where their GPUs are free, else as soon as ``victims`` have ended."""
    unwait(state, workload)
    state.serial += 1
    attempt = Attempt(state.serial, workload, pool.name, leaf, hosts, workload.shapes[pool.name].each)
    attempt.lane = lane
    workload.attempt = attempt
    if attempt.allocated:
        pool.budgets.ledger.commit(leaf, attempt.gpus * workload.min_runtime)
    if lane:
        pool.lane.person(workload.spec.owner).running += 1
    before: dict[Host, Rooms] = {}
    if victims:
        attempt.preempted = tuple([(victim.workload.id, victim.number) for victim in victims])
        before = {host: host.rooms for victim in victims for host in victim.hosts}
        for victim in victims:
            stop(state, victim, _PREEMPTED, workload.id)
    each = attempt.each
    for place, host in enumerate(hosts):
        free = host.free.bit_count() if lane or not attempt.allocated else host.rooms[ROOM]
        promised = _promise(host, attempt, max(each - free, 0), victims) if victims or free < each else 0
        mask = attempt.masks[place] = lowest(host.free, each - promised)
        host.free ^= mask
        _count(host, attempt, each)
    if not attempt.promised:
        begin(state, pool, attempt)
    else:
        for host in hosts:
            host.claims[attempt.serial] = attempt
        workload.become(WorkloadState.STARTING)
        names = tuple([host.name for host in hosts])
        state.decisions.append(Claim(workload.id, pool.name, names, attempt.preempted, state.cause))
    for host in hosts:
        pool.refresh(host)
    for host, rooms in before.items():
        pool.gains(host, rooms)  # what its victims leave beyond its own needs


def _promise(host: Host, claim: Attempt, wanted: int, victims: list[Attempt]) -> int:
    """Promise a claim ``wanted`` GPUs of those that are stopping on ``host``, its victims' first; how many it got.

    It starts on these very GPUs: what others free meanwhile does not count, or a victim would be stopped for nothing.
    And it waits for every victim, also for one whose GPUs another is to have so that this one may be here at all.
    """
    leaving = [attempt for attempt in host.attempts.values() if attempt.stopping is not None]
    missing = wanted
    for attempt in sorted(leaving, key=lambda attempt: attempt not in victims):
        key = (host.name, attempt.serial)
        given = min(missing, attempt.each - sum(other.promised.get(key, 0) for other in host.claims.values()))
        if given or attempt in victims:
            claim.promised[key] = given
            host.owed += given
            missing -= given
    return wanted - missing


def begin(state: State, pool: Pool, attempt: Attempt) -> None:
    """Start an attempt whose GPUs are all there."""
    now, workload, leaf, gpus, serial = state.now, attempt.workload, attempt.leaf, attempt.gpus, attempt.serial
    workload.become(_RUNNING)
    workload.attempts += 1
    attempt.number = workload.attempts
    attempt.started = attempt.saved = now
    attempt.protected_until = now + workload.min_runtime
    if attempt.allocated:
        pool.budgets.ledger.start_protected(leaf, gpus, now)
        heappush(state.protections, (attempt.protected_until, serial, attempt))
        pool.allocated.change(gpus, now)
    else:
        pool.fillers.ledger.occupy(leaf, gpus, now)
        pool.unallocated.change(gpus, now)
    leaf.spent.change(gpus, now)
    for node in leaf.up:
        node.held += gpus
    if workload.max_runtime is not None:
        attempt.ends_by = now + max(workload.max_runtime - workload.ran, 0)
        heappush(state.limits, (attempt.ends_by, serial, attempt))
    if attempt.lane:
        pool.lane.start(attempt, now)
    for host in attempt.hosts:
        if host.claims:
            host.claims.pop(serial, None)
        host.attempts[serial] = attempt
        host.held += attempt.each
        host.known_end = -1
    pool.idle.change(-gpus, now)  # work starts on ready hosts only
    masks = attempt.masks
    placement = tuple([(host.name, indices(masks[place])) for place, host in enumerate(attempt.hosts)])
    state.decisions.append(
        Start(
            workload.id,
            attempt.number,
            pool.name,
            attempt.allocated,
            placement,
            attempt.protected_until,
            attempt.ends_by,
            attempt.preempted,
            attempt.lane,
            _start_reason(attempt),
            state.cause,
        )
    )


def _start_reason(attempt: Attempt) -> str:
    if attempt.lane:
        return "its turn in the debug lane"
    if not attempt.allocated:
        return "unallocated: fills GPUs that no allocated workload can use"
    return f"preempted {len(attempt.preempted)} for it" if attempt.preempted else "best-ranked of what fits"


def stop(state: State, attempt: Attempt, reason: StopReason, beneficiary: str | None = None) -> None:
    """Order a running attempt to end. Its GPUs stay its own until its exit is reported."""
    pool = state.pools[attempt.pool]
    if attempt.ripe:
        unripen(attempt)
    attempt.stopping = reason
    attempt.beneficiary = beneficiary
    attempt.workload.become(_STOPPING)
    each = attempt.each
    for host in attempt.hosts:
        before = host.rooms
        _count(host, attempt, -each)
        host.known_end = -1
        host.stopping += each
        if attempt.lane:
            host.lane_used += each
        elif attempt.allocated:
            host.stopping_ordinary += each
        pool.refresh(host)
        if reason is not _PREEMPTED:
            pool.gains(host, before)
    state.decisions.append(Stop(attempt.workload.id, attempt.number, reason, beneficiary, state.cause))


def unclaim(state: State, attempt: Attempt, reason: str) -> None:
    """Give up a claim, always one of allocated work: its GPUs are free again, and its commitment is given back."""
    pool = state.pools[attempt.pool]
    workload = attempt.workload
    workload.attempt = None
    pool.budgets.ledger.commit(attempt.leaf, -attempt.gpus * workload.min_runtime)
    if attempt.lane:
        pool.lane.person(workload.spec.owner).running -= 1
    for host, mask in zip(attempt.hosts, attempt.masks, strict=True):
        _count(host, attempt, -attempt.each)
        host.owed -= attempt.each - mask.bit_count()
        del host.claims[attempt.serial]
        _free(pool, host, mask)
    state.decisions.append(Unclaim(workload.id, reason, state.cause))


def end(state: State, attempt: Attempt, outcome: Outcome | None) -> None:
    """An attempt is gone (``outcome`` is None when its hosts are): free its GPUs, settle its account, say what follows.

    What its processes did by themselves counts, also when they had just been told to stop.
    """
    workload, pool = attempt.workload, state.pools[attempt.pool]
    if outcome is _WELL:
        reason = _FINISHED
    elif outcome is _BADLY:
        reason = _FAILED
    elif outcome is None:
        reason = attempt.stopping or StopReason.HOST_LOST
    else:
        reason = attempt.stopping or _FAILED
    _settle(state, pool, attempt)
    _leave(state, pool, attempt)
    workload.attempt = None
    beneficiary = attempt.beneficiary if reason is _PREEMPTED else None
    public = _FINISHED if reason is _LIMIT else reason
    state.decisions.append(Stopped(workload.id, attempt.number, public, beneficiary, state.cause))
    _follow_up(state, attempt, reason)
    for place, host in enumerate(attempt.hosts):
        _give(state, pool, host, attempt.serial, attempt.masks[place])
    if state.draining:
        for host in attempt.hosts:
            if host.state is _DRAINING and not host.attempts:
                host_empty(state, host)


def _leave(state: State, pool: Pool, attempt: Attempt) -> None:
    """Take an attempt off its hosts' counts."""
    each, now = attempt.each, state.now
    ordinary = attempt.allocated and not attempt.lane
    for host in attempt.hosts:
        if attempt.stopping is None:
            _count(host, attempt, -each)
        else:
            host.stopping -= each
            if ordinary:
                host.stopping_ordinary -= each
            elif attempt.lane:
                host.lane_used -= each
        del host.attempts[attempt.serial]
        host.held -= each
        host.known_end = -1
        _unused(pool, host).change(each, now)


def _settle(state: State, pool: Pool, attempt: Attempt) -> None:
    """Close an attempt's lines in the ledger and the meters."""
    now, leaf, gpus = state.now, attempt.leaf, attempt.gpus
    if attempt.allocated:
        if attempt.ripe:
            unripen(attempt)
        if now < attempt.protected_until:
            pool.budgets.ledger.stop_protected(leaf, gpus, now, attempt.protected_until)
        else:
            pool.budgets.ledger.occupy(leaf, -gpus, now)
        pool.allocated.change(-gpus, now)
    else:
        pool.fillers.ledger.occupy(leaf, -gpus, now)
        pool.unallocated.change(-gpus, now)
    leaf.spent.change(-gpus, now)
    for node in leaf.up:
        node.held -= gpus
    if attempt.lane:
        pool.lane.stop(attempt, now)
        pool.lane.person(attempt.workload.spec.owner).running -= 1
    attempt.workload.ran += now - (attempt.started or 0)


def _follow_up(state: State, attempt: Attempt, reason: StopReason) -> None:
    """What becomes of the workload of an attempt that has ended for ``reason``."""
    workload = attempt.workload
    again = False
    if reason is _PREEMPTED:
        workload.preemptions += 1
        again = workload.spec.resumable
    elif reason is _FAILED:
        _note_failure(state, attempt)
        again = workload.failures <= workload.spec.retries
    elif reason is not _FINISHED:
        again = reason in _COMES_BACK
    if again and workload.max_runtime is not None and workload.ran >= workload.max_runtime:
        again, reason = False, _LIMIT
    if again:
        workload.become(_PENDING)
        wait(state, workload)
        state.decisions.append(Requeue(workload.id, reason.value, workload.held, state.cause))
    else:
        workload.become(_ENDS[reason])
        del state.workloads[workload.id]


def cancel_waiting(state: State, workload: Workload) -> None:
    """End a workload that holds nothing."""
    if workload.state is WorkloadState.STARTING:
        workload.become(_PENDING)
    else:
        unwait(state, workload)
    workload.become(WorkloadState.CANCELLED)
    del state.workloads[workload.id]
    reason = StopReason.CANCELLED
    state.decisions.append(Stopped(workload.id, 0, reason, None, state.cause))


def _note_failure(state: State, attempt: Attempt) -> None:
    """Count a failure; after one soon after a start it preempted for, it waits before it preempts again."""
    workload, policy = attempt.workload, state.policy
    workload.failures += 1
    soon = state.now - (attempt.started or 0) < policy.failed_soon
    if not (soon and attempt.preempted):
        workload.patience = 0
        return
    backoff = min(policy.preempt_backoff << min(workload.patience, 40), policy.max_preempt_backoff)
    workload.patience += 1
    workload.preempt_after = state.now + backoff


def _count(host: Host, attempt: Attempt, gpus: int) -> None:
    """Count GPUs of an attempt that is not stopping, by its kind."""
    if not attempt.allocated:
        host.unallocated += gpus
    elif attempt.lane:
        host.lane_used += gpus
    else:
        host.ordinary += gpus


def _unused(pool: Pool, host: Host) -> Meter:
    return pool.idle if host.state is _READY else pool.unavailable


def _give(state: State, pool: Pool, host: Host, serial: int, mask: int) -> None:
    """An attempt has let go of GPUs of ``host``: to those they were promised to, and the others are free."""
    ready = []
    for claim in host.claims.values() if host.claims else ():
        given = claim.promised.pop((host.name, serial), None)
        if given is not None:
            taken = lowest(mask, given)
            mask ^= taken
            claim.masks[claim.hosts.index(host)] |= taken
            host.owed -= given
            if not claim.promised:
                ready.append(claim)
    _free(pool, host, mask)
    for claim in ready:
        begin(state, pool, claim)


def _free(pool: Pool, host: Host, mask: int) -> None:
    before = host.rooms
    host.free |= mask
    pool.refresh(host)
    pool.gains(host, before)


def protection_ended(state: State, attempt: Attempt) -> None:
    """An attempt has had its minimum runtime: it counts as it runs now, and can be stopped for others."""
    pool = state.pools[attempt.pool]
    attempt.counted = True
    pool.budgets.ledger.end_protection(attempt.leaf, attempt.gpus, attempt.protected_until)
    if attempt.stopping:
        return
    if not attempt.lane:
        ripen(attempt)
        useful = somebody_may_stop(attempt.leaf, pool.budgets.ledger.clock(state.now))
        for host in attempt.hosts:
            before = host.rooms
            pool.refresh(host)
            if useful:
                pool.gains(host, before)
    if state.draining and any(host.state is _DRAINING for host in attempt.hosts):
        stop(state, attempt, StopReason.DRAINED)


def host_empty(state: State, host: Host) -> None:
    """A draining host holds nothing any more."""
    change_state(state, host, HostState.DRAINED, host.reason)
