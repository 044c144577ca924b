"""What happens to hosts: they report, fall silent, are drained, cordoned, repaired and removed."""

from __future__ import annotations

from gpubudget.core.decisions import Hold
from gpubudget.core.events import (
    Cordoned,
    DrainRequested,
    Event,
    HostLost,
    HostRemoved,
    HostReported,
    RepairEnded,
    RepairStarted,
    Uncordoned,
)
from gpubudget.core.host import HostState
from gpubudget.core.hoststate import announce, change_state, settle_lane
from gpubudget.core.lifecycle import end, host_empty, stop, unclaim
from gpubudget.core.records import Host
from gpubudget.core.state import State, rewait, wait
from gpubudget.core.workload import StopReason, WorkloadState
from gpubudget.errors import ConflictError, InvalidInputError, NotFoundError
from gpubudget.units import count

_RETURNS = {
    HostState.READY: HostState.READY,
    HostState.CORDONED: HostState.CORDONED,
    HostState.DRAINING: HostState.DRAINED,
    HostState.DRAINED: HostState.DRAINED,
    HostState.REPAIRING: HostState.DRAINED,
}
"""The state in which a host that was lost comes back."""

LARGEST_HOST = 1024
"""GPUs; more on one host is a mistake."""


def known(state: State, name: str, *allowed: HostState) -> Host:
    """The host of that name; raises where there is none, or where it is in none of the ``allowed`` states."""
    host = state.hosts.get(name)
    if host is None:
        raise NotFoundError(f"there is no host {name!r}")
    if allowed and host.state not in allowed:
        wanted = ", ".join(allowed)
        raise ConflictError(f"host {name} is {host.state}", hint=f"this is possible while it is {wanted}")
    return host


def check_report(state: State, event: HostReported) -> None:
    """Raise where a report cannot be true."""
    if not 1 <= event.gpus <= LARGEST_HOST:
        raise InvalidInputError(f"host {event.host} reports {event.gpus} GPUs; 1 to {LARGEST_HOST} are possible")
    host = state.hosts.get(event.host)
    if host is not None and (host.pool, host.gpus) != (event.pool, event.gpus) and (host.attempts or host.claims):
        raise ConflictError(
            f"host {host.name} reports {count(event.gpus, 'GPU')} in pool {event.pool}, but holds work as one with "
            f"{count(host.gpus, 'GPU')} in pool {host.pool}",
            hint="drain it first",
        )


_NEEDS: dict[type[Event], tuple[HostState, ...]] = {
    HostLost: tuple(state for state in HostState if state is not HostState.LOST),
    HostRemoved: (HostState.LOST, HostState.DRAINED, HostState.CORDONED),
    DrainRequested: (HostState.READY, HostState.CORDONED, HostState.LOST),
    Cordoned: (HostState.READY, HostState.LOST),
    Uncordoned: (HostState.CORDONED, HostState.DRAINING, HostState.DRAINED, HostState.LOST),
    RepairStarted: (HostState.DRAINED,),
    RepairEnded: (HostState.REPAIRING,),
}
"""In which states a host takes an event."""

HostEvent = HostLost | HostRemoved | DrainRequested | Cordoned | Uncordoned | RepairStarted | RepairEnded


def check_event(state: State, event: HostEvent) -> None:
    """Raise where an event cannot happen to its host."""
    host = known(state, event.host, *_NEEDS[type(event)])
    if isinstance(event, HostRemoved) and (host.attempts or host.claims):
        raise ConflictError(
            f"host {host.name} still holds {count(len(host.attempts), 'attempt')}", hint="drain it first"
        )


def take(state: State, event: HostEvent) -> None:
    """Let an event happen that was checked."""
    host = state.hosts[event.host]
    match event:
        case HostLost():
            lost(state, host)
        case HostRemoved():
            removed(state, host)
        case DrainRequested(_, reason):
            drain(state, host, reason)
        case Cordoned(_, reason):
            cordon(state, host, reason)
        case Uncordoned():
            uncordon(state, host)
        case RepairStarted():
            change_state(state, host, HostState.REPAIRING, host.reason)
        case _:
            ends = HostState.READY if event.healthy else HostState.DRAINED
            change_state(state, host, ends, "" if event.healthy else host.reason)


def reported(state: State, event: HostReported) -> None:
    """A host registers, or is back."""
    host = state.hosts.get(event.host)
    changed = host is not None and (host.pool, host.gpus) != (event.pool, event.gpus)
    if host is not None and changed:
        _forget(state, host)
    if host is None or changed:
        pool = state.pool(event.pool)
        host = state.hosts[event.host] = pool.add_host(event.host, event.gpus)
        pool.capacity.change(event.gpus, state.now)
        pool.idle.change(event.gpus, state.now)
        pool.due = True
        announce(state, host)
        settle_lane(pool)
        look_again(state, all_waiting=changed)
    elif host.state is HostState.LOST:
        wanted = host.wanted
        if wanted is HostState.DRAINED and host.attempts:  # part of a gang that is still ending elsewhere
            wanted = HostState.DRAINING
        change_state(state, host, wanted, host.reason if wanted is not HostState.READY else "")


def look_again(state: State, *, all_waiting: bool = False) -> None:
    """See whether waiting workloads that had no room anywhere have some now, or the other way round."""
    for workload in list(state.workloads.values()):
        if workload.state in {WorkloadState.PENDING, WorkloadState.HELD} and (
            all_waiting or len(workload.shapes) < len(workload.spec.pools)
        ):
            rewait(state, workload)


def lost(state: State, host: Host) -> None:
    """A host is silent: what runs on it alone has ended, and gangs it had a part of are stopped as a whole."""
    host.wanted = _RETURNS[host.state]
    change_state(state, host, HostState.LOST, "its agent is silent" if not host.reason else host.reason)
    _drop_claims(state, host, f"host {host.name} was lost")
    for attempt in list(host.attempts.values()):
        if all(each.state is HostState.LOST for each in attempt.hosts):
            end(state, attempt, None)
        elif attempt.stopping is None:
            stop(state, attempt, StopReason.HOST_LOST)


def drain(state: State, host: Host, reason: str) -> None:
    """No new work; each attempt ends when it has had its minimum runtime, unprotected ones now."""
    if host.state is HostState.LOST:
        host.wanted, host.reason = HostState.DRAINED, reason
        return
    change_state(state, host, HostState.DRAINING, reason)
    _drop_claims(state, host, f"host {host.name} is draining")
    for attempt in list(host.attempts.values()):
        if attempt.stopping is None and attempt.protected_until <= state.now:
            stop(state, attempt, StopReason.DRAINED)
    if not host.attempts:
        host_empty(state, host)


def cordon(state: State, host: Host, reason: str) -> None:
    """No new work; what runs goes on."""
    if host.state is HostState.LOST:
        host.wanted, host.reason = HostState.CORDONED, reason
        return
    change_state(state, host, HostState.CORDONED, reason)
    _drop_claims(state, host, f"host {host.name} was cordoned")


def uncordon(state: State, host: Host) -> None:
    """Back to work."""
    if host.state is HostState.LOST:
        host.wanted, host.reason = HostState.READY, ""
        return
    change_state(state, host, HostState.READY, "")


def removed(state: State, host: Host) -> None:
    """An empty host is gone for good."""
    _forget(state, host)
    look_again(state, all_waiting=True)


def _forget(state: State, host: Host) -> None:
    pool = state.pools[host.pool]
    pool.capacity.change(-host.gpus, state.now)
    unused = pool.idle if host.state is HostState.READY else pool.unavailable
    unused.change(-host.gpus, state.now)
    pool.remove_host(host)
    del state.hosts[host.name]
    settle_lane(pool)
    pool.due = True
    if pool.reservation is not None and host in pool.reservation.hosts:
        pool.lapse()


def _drop_claims(state: State, host: Host, reason: str) -> None:
    """Those that waited for GPUs of ``host`` wait in their budgets again."""
    for claim in list(host.claims.values()):
        unclaim(state, claim, reason)
        claim.workload.become(WorkloadState.PENDING)
        wait(state, claim.workload)
        if claim.workload.held:
            state.decisions.append(Hold(claim.workload.spec.id, claim.workload.held, state.cause))
    pool = state.pools[host.pool]
    if pool.reservation is not None and host in pool.reservation.hosts:
        pool.lapse()
