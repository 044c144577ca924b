"""A host's steps from state to state, and where the debug lane lives. Every count and meter follows."""

from __future__ import annotations

from gpubudget.core.decisions import HostChanged
from gpubudget.core.host import TRANSITIONS, HostState
from gpubudget.core.lane import spread
from gpubudget.core.pool import Pool
from gpubudget.core.records import Host
from gpubudget.core.state import State
from gpubudget.errors import BrokenInvariantError


def change_state(state: State, host: Host, wanted: HostState, reason: str) -> None:
    """Take a step of the transition table and say so."""
    if wanted not in TRANSITIONS[host.state]:
        raise BrokenInvariantError(f"host {host.name} cannot go from {host.state} to {wanted}")
    pool = state.pools[host.pool]
    unused = host.gpus - host.held
    before, after = host.state is HostState.READY, wanted is HostState.READY
    state.draining += (wanted is HostState.DRAINING) - (host.state is HostState.DRAINING)
    host.state, host.reason = wanted, reason
    if before and not after:
        pool.idle.change(-unused, state.now)
        pool.unavailable.change(unused, state.now)
    elif after and not before:
        pool.unavailable.change(-unused, state.now)
        pool.idle.change(unused, state.now)
    announce(state, host)
    settle_lane(pool)
    pool.refresh(host)
    pool.due = True


def announce(state: State, host: Host) -> None:
    """Say in which state a host is."""
    state.decisions.append(HostChanged(host.name, host.pool, host.gpus, host.state, host.reason, state.cause))


def settle_lane(pool: Pool) -> None:
    """Put the lane on ready hosts, where it stands now as far as possible."""
    pool.answers.clear()
    if not pool.lane.gpus and not any(host.lane for host in pool.hosts.values()):
        return
    places = spread(pool.lane.gpus, pool.hosts.values())
    for host in pool.hosts.values():
        if host.lane != places.get(host.name, 0):
            host.lane = places.get(host.name, 0)
            pool.refresh(host)
    pool.due = True
