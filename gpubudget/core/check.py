"""Every invariant that can be seen in one state, recomputed from scratch. Slow, and used by tests only.

Raises BrokenInvariantError, naming what does not hold.
"""

from __future__ import annotations

from collections import Counter

from gpubudget.core.host import HostState
from gpubudget.core.placement import TIERS
from gpubudget.core.pool import Pool
from gpubudget.core.records import Attempt, Host, Node
from gpubudget.core.state import State
from gpubudget.core.workload import ENDED, WorkloadState
from gpubudget.errors import BrokenInvariantError

_HOLDING = {WorkloadState.RUNNING, WorkloadState.STOPPING, WorkloadState.STARTING}


def check(state: State) -> None:
    """Check the whole state."""
    for pool in state.pools.values():
        for host in pool.hosts.values():
            _check_host(pool, host)
        _check_meters(state, pool)
        for root in (pool.budgets.root, pool.fillers.root, pool.stray):
            _check_node(root)
        _check_ledger(state, pool)
    _check_workloads(state)
    draining = sum(host.state is HostState.DRAINING for host in state.hosts.values())
    _demand(state.draining == draining, f"{state.draining} hosts are said to drain, and {draining} do")


def _demand(holds: bool, what: str) -> None:  # noqa: FBT001 - a condition and its name
    if not holds:
        raise BrokenInvariantError(what)


def _check_host(pool: Pool, host: Host) -> None:
    """No GPU is held twice, and the counts say what is held."""
    empty = not host.attempts or host.state not in {HostState.DRAINED, HostState.REPAIRING}
    _demand(empty, f"host {host.name} is {host.state} and not empty")
    taken = host.free
    counts: Counter[str] = Counter()
    for attempt in (*host.attempts.values(), *host.claims.values()):
        mask = attempt.masks[attempt.hosts.index(host)]
        _demand(not taken & mask, f"a GPU of {host.name} is held twice")
        taken |= mask
        kind = "unallocated" if not attempt.allocated else "lane" if attempt.lane else "ordinary"
        counts["stopping" if attempt.stopping else kind] += attempt.each
        counts["stopping_ordinary"] += attempt.each if attempt.stopping and kind == "ordinary" else 0
        counts["lane"] += attempt.each if attempt.stopping and kind == "lane" else 0
        counts["ripe"] += attempt.each if attempt.ripe else 0
        owed = attempt.each - mask.bit_count()
        counts["owed"] += owed
        counts["held"] += attempt.each if attempt.started is not None else 0
        _demand(attempt.started is None or not owed, f"attempt of {attempt.workload.spec.id} lacks GPUs")
        _demand(
            not (attempt.started is None and host.state is not HostState.READY), f"a claim stands on {host.state} host"
        )
    _demand(taken == (1 << host.gpus) - 1, f"a GPU of {host.name} is nobody's")
    told = (
        host.unallocated,
        host.ordinary,
        host.lane_used,
        host.stopping,
        host.stopping_ordinary,
        host.ripe,
        host.held,
    )
    names = ("unallocated", "ordinary", "lane", "stopping", "stopping_ordinary", "ripe", "held")
    _demand(told == tuple(counts[name] for name in names), f"host {host.name} counts {told}, not {dict(counts)}")
    known = host.known_end
    host.known_end = -1
    _demand(known in {-1, host.first_end()}, f"host {host.name} does not know when a protection on it ends first")
    _demand(host.owed == counts["owed"] <= host.stopping, f"host {host.name} owes what is not leaving")
    _check_promises(host)
    usable = host.state is HostState.READY and pool.spec is not None
    _demand(host.rooms == host.measure(usable=usable), f"host {host.name} stands in the wrong bucket")
    for tier in TIERS:
        found = [each for each in range(1, pool.index.top + 1) if pool.index.sets[tier][each] >> host.index & 1]
        _demand(found == list(range(1, host.rooms[tier] + 1)), f"host {host.name} is not in its bucket")
    _demand(
        host.state is not HostState.DRAINING or bool(host.attempts), f"host {host.name} is empty and still draining"
    )


def _check_promises(host: Host) -> None:
    """Each claim gets what it lacks from attempts that are leaving, and none promises more than it has."""
    given: Counter[int] = Counter()
    for claim in host.claims.values():
        promises = {serial: gpus for (name, serial), gpus in claim.promised.items() if name == host.name}
        given.update(promises)
        lacks = claim.each - claim.masks[claim.hosts.index(host)].bit_count()
        _demand(sum(promises.values()) == lacks, f"a claim on {host.name} lacks GPUs")
    for serial, gpus in given.items():
        source = host.attempts.get(serial)
        leaves = source is not None and source.stopping is not None and gpus <= source.each
        _demand(leaves, f"a claim on {host.name} waits for what does not leave")


def _check_meters(state: State, pool: Pool) -> None:
    """Capacity x time = allocated + unallocated + idle + unavailable; allocated = the sum over budgets."""
    parts = (pool.allocated, pool.unallocated, pool.idle, pool.unavailable)
    whole = sum(meter.read(state.now) for meter in parts)
    _demand(pool.capacity.read(state.now) == whole, f"pool {pool.name}: capacity x time is not the sum of its parts")
    by_budget = sum(leaf.spent.read(state.now) for leaf in pool.budgets.leaves.values())
    _demand(pool.allocated.read(state.now) == by_budget, f"pool {pool.name}: allocated is not the sum over budgets")
    fillers = (*pool.fillers.leaves.values(), pool.stray)
    _demand(
        pool.unallocated.read(state.now) == sum(leaf.spent.read(state.now) for leaf in fillers),
        f"pool {pool.name}: unallocated is not the sum over budgets",
    )


def _check_node(node: Node) -> None:
    """What a node sums up is what stands below it."""
    for child in node.children:
        _check_node(child)
    if node.children:
        mask = 0
        for child in node.children:
            mask |= child.mask
        sums = tuple(sum(getattr(child, name) for child in node.children) for name in ("at0", "slope", "ripe", "held"))
        _demand(
            sums == (node.at0, node.slope, node.ripe, node.held), f"budget {node.path} is not the sum of its children"
        )
    else:
        mask = sum(1 << number for number in node.queues)
        ripe = sum(attempt.gpus for attempt in node.ripe_attempts.values())
        _demand(ripe == node.ripe, f"budget {node.path} miscounts attempts past their minimum")
        for queue in node.queues.values():
            entries = queue.row.entries()
            _demand(bool(entries), f"budget {node.path} keeps an empty queue")
            _demand(entries == sorted(entries), f"a queue of budget {node.path} is out of order")
            by_runtime = [entry for runtime in queue.runtimes for entry in queue.groups[runtime].entries()]
            _demand(sorted(by_runtime) == entries, f"a queue of budget {node.path} disagrees with itself")
    line = (node.at0 * node.fold + node.order, node.slope * node.fold)
    _demand((node.height, node.climb) == line, f"budget {node.path} stands at a wrong height")
    _demand(mask == node.mask, f"budget {node.path} has the wrong mask")
    where = 0
    for leaf in node.leaves():
        for attempt in leaf.ripe_attempts.values():
            where |= attempt.bits
    _demand(node.known_where in {-1, where}, f"budget {node.path} does not know where its work past its minimum runs")
    waiting = [entry[3] for leaf in node.leaves() for queue in leaf.queues.values() for entry in queue.row.entries()]
    least = min((workload.spec.gpus * workload.min_runtime for workload in waiting), default=0)
    _demand(node.known_least in {-1, least}, f"budget {node.path} has the wrong least commitment")


def _attempts(pool: Pool) -> list[Attempt]:
    found = {a.serial: a for host in pool.hosts.values() for a in (*host.attempts.values(), *host.claims.values())}
    return list(found.values())


def _check_ledger(state: State, pool: Pool) -> None:
    """The slopes are those that what runs, and what leaves the window, give."""
    slopes: Counter[int] = Counter()
    own = {True: set(pool.budgets.leaves.values()), False: {*pool.fillers.leaves.values(), pool.stray}}
    for attempt in _attempts(pool):
        _demand(
            attempt.leaf in own[attempt.allocated], f"an attempt of {attempt.workload.spec.id} is charged elsewhere"
        )
        if attempt.started is not None and (not attempt.allocated or attempt.protected_until <= state.now):
            slopes[id(attempt.leaf)] += attempt.gpus
    for ranking in (pool.budgets, pool.fillers):
        for leaf in ranking.leaves.values():
            expected = slopes[id(leaf)] - leaf.tail
            _demand(leaf.slope == expected, f"budget {leaf.path}: slope {leaf.slope}, not {expected}")
            _demand(leaf.usage(ranking.ledger.clock(state.now)) >= 0, f"budget {leaf.path}: usage below zero")
            ends = (
                leaf.held
                == leaf.spent.gpus
                == sum(a.gpus for a in _attempts(pool) if a.leaf is leaf and a.started is not None)
            )
            _demand(ends, f"budget {leaf.path}: it holds other GPUs than its attempts")


def _check_workloads(state: State) -> None:
    for name, workload in state.workloads.items():
        attempt = workload.attempt
        _demand(workload.state not in ENDED, f"workload {name} has ended and is still known")
        _demand((attempt is not None) == (workload.state in _HOLDING), f"workload {name} is {workload.state}")
        if attempt is not None:
            _demand(not workload.queued, f"workload {name} holds GPUs and waits")
            whole = len({host.name for host in attempt.hosts}) == workload.shapes[attempt.pool].hosts
            _demand(whole, f"the gang of {name} is not whole")
        if workload.state is WorkloadState.PENDING:
            _demand(bool(workload.queued), f"workload {name} is pending and waits nowhere")
        if workload.state is WorkloadState.HELD:
            _demand(bool(workload.held) and not workload.queued, f"workload {name} is held without a reason")
