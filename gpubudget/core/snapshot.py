"""All state as plain data, and back. A scheduler that was restored goes on exactly as the one that was saved.

Only what cannot be derived is kept: sums, masks, buckets and heaps are built anew. Data of another version is refused.
"""

from __future__ import annotations

from heapq import heapify
from typing import Any

from gpubudget.core import plain
from gpubudget.core.budget import ROOT, Policy, Tree
from gpubudget.core.fairshare import Ranking
from gpubudget.core.host import HostState
from gpubudget.core.lane import Lane
from gpubudget.core.placement import Shape
from gpubudget.core.pool import NOBODY, Pool, ripen
from gpubudget.core.records import Attempt, Host, Node, Reservation, Workload
from gpubudget.core.state import State, place
from gpubudget.core.usage import Ledger, Meter
from gpubudget.core.workload import StopReason, WorkloadSpec, WorkloadState
from gpubudget.errors import InvalidInputError

Data = dict[str, Any]

VERSION = 1
_METERS = ("capacity", "allocated", "unallocated", "idle", "unavailable")
_WORKLOAD = ("budget", "submitted", "held", "attempts", "failures", "preemptions", "patience", "preempt_after", "ran")
_ATTEMPT = (
    "serial",
    "counted",
    "pool",
    "each",
    "masks",
    "lane",
    "number",
    "started",
    "protected_until",
    "ends_by",
    "saved",
)
_STRAY = ""  # the path under which the budget of those that name none is kept


def save(state: State) -> Data:
    """The plain data of a state."""
    attempts: dict[int, Attempt] = {}
    for host in state.hosts.values():
        for attempt in (*host.attempts.values(), *host.claims.values()):
            attempts[attempt.serial] = attempt
    return {
        "version": VERSION,
        "now": state.now,
        "tree": None if state.tree is None else plain.encode(state.tree),
        "commit": state.commit,
        "next_date": state.next_date,
        "serial": state.serial,
        "patience": sorted(list(entry) for entry in state.patience),
        "pools": [_save_pool(pool) for pool in state.pools.values()],
        "workloads": [_save_workload(workload) for workload in state.workloads.values()],
        "attempts": [_save_attempt(attempts[serial]) for serial in sorted(attempts)],
    }


def load(data: Data) -> State:
    """The state that ``save`` was given."""
    if data.get("version") != VERSION:
        raise InvalidInputError(
            f"a snapshot of version {data.get('version')} cannot be read; this program writes {VERSION}"
        )
    state = State()
    state.now, state.commit, state.serial = data["now"], data["commit"], data["serial"]
    state.next_date = data["next_date"]
    if data["tree"] is not None:
        state.tree = plain.decode(Tree, data["tree"], "tree")
        state.policy = state.tree.policy
        state.paths = frozenset(budget.path for budget in state.tree.budgets())
    state.patience = [(time, name) for time, name in data["patience"]]
    for each in data["pools"]:
        _load_pool(state, each)
    for each in data["workloads"]:
        _load_workload(state, each)
    attempts = {each["serial"]: _load_attempt(state, each) for each in data["attempts"]}
    for each in data["pools"]:
        _load_holdings(state, each, attempts)
    state.protections = [(a.protected_until, a.serial, a) for a in attempts.values() if _protected(state, a)]
    state.limits = [(a.ends_by, a.serial, a) for a in attempts.values() if a.ends_by is not None and not a.stopping]
    heapify(state.protections)
    heapify(state.limits)
    heapify(state.patience)
    return state


def _protected(state: State, attempt: Attempt) -> bool:
    return attempt.allocated and attempt.started is not None and attempt.protected_until > state.now


# Ledgers


def _save_ledger(ledger: Ledger[Any], name: str) -> Data:
    edges = [[time, getattr(leaf, name), gpus] for time, leaf, gpus in ledger.edges]
    return {"horizon": ledger.horizon, "lookback": ledger.lookback, "edges": edges}


def _load_ledger(ledger: Ledger[Any], data: Data, leaves: dict[str, Any]) -> None:
    ledger.horizon, ledger.lookback = data["horizon"], data["lookback"]
    ledger.edges.extend((time, leaves[name], gpus) for time, name, gpus in data["edges"])


def _save_ranking(ranking: Ranking, stray: Node | None) -> Data:
    leaves = [*ranking.leaves.values(), *([] if stray is None else [stray])]
    zero = ranking.ledger.zero
    lines = {n.path: [n.at0 - n.slope * zero, n.slope, n.tail, n.spent.read(0), n.spent.gpus] for n in leaves}
    return {"ledger": _save_ledger(ranking.ledger, "path"), "leaves": lines}


def _load_ranking(ranking: Ranking, data: Data, stray: Node | None) -> None:
    leaves = ranking.leaves if stray is None else {**ranking.leaves, _STRAY: stray}
    for path, (at0, slope, tail, spent_at0, spent_gpus) in data["leaves"].items():
        leaf = leaves[path]
        leaf.tail = tail
        leaf.spent = Meter(spent_at0, spent_gpus)
        for node in leaf.up:
            node.held += spent_gpus
            node.charge(at0)
            node.turn(slope, 0)
    _load_ledger(ranking.ledger, data["ledger"], leaves)


# Pools and hosts


def _save_pool(pool: Pool) -> Data:
    kept = pool.reservation
    return {
        "name": pool.name,
        "meters": {name: [getattr(pool, name).read(0), getattr(pool, name).gpus] for name in _METERS},
        "last_pass": pool.last_pass,
        "due": pool.due,
        "grown": pool.grown,
        "budgets": _save_ranking(pool.budgets, None),
        "fillers": _save_ranking(pool.fillers, pool.stray),
        "lane": {
            "ledger": _save_ledger(pool.lane.ledger, "name"),
            "people": {p.name: [p.at0, p.slope, p.tail, p.running] for p in pool.lane.people.values()},
        },
        "hosts": [None if host is None else _save_host(host) for host in pool.order],
        "reservation": None
        if kept is None
        else [kept.workload.spec.id, [host.name for host in kept.hosts], kept.start, kept.estimate],
    }


def _save_host(host: Host) -> Data:
    return {
        "name": host.name,
        "gpus": host.gpus,
        "state": host.state.value,
        "reason": host.reason,
        "wanted": host.wanted.value,
        "lane": host.lane,
        "attempts": list(host.attempts),
        "claims": list(host.claims),
    }


def _load_pool(state: State, data: Data) -> None:
    name = data["name"]
    root = NOBODY if state.tree is None else state.tree.root
    pool = state.pools[name] = Pool(name, state.policy, state.now, root)
    pool.spec = None if state.tree is None else next((p for p in state.tree.pools if p.name == name), None)
    for meter, (at0, slope) in data["meters"].items():
        setattr(pool, meter, Meter(at0, slope))
    pool.last_pass, pool.due, pool.grown = data["last_pass"], data["due"], data["grown"]
    _load_ranking(pool.budgets, data["budgets"], None)
    _load_ranking(pool.fillers, data["fillers"], pool.stray)
    _load_lane(pool.lane, state.policy, data["lane"])
    for each in data["hosts"]:
        if each is None:
            pool.order.append(None)
            continue
        host = state.hosts[each["name"]] = pool.add_host(each["name"], each["gpus"])
        host.state, host.reason = HostState(each["state"]), each["reason"]
        state.draining += host.state is HostState.DRAINING
        host.wanted, host.lane = HostState(each["wanted"]), each["lane"]


def _load_lane(lane: Lane, policy: Policy, data: Data) -> None:
    lane.spec = policy.debug
    for name, (at0, slope, tail, running) in data["people"].items():
        person = lane.person(name)
        person.at0, person.slope, person.tail, person.running = at0, slope, tail, running
    _load_ledger(lane.ledger, data["ledger"], lane.people)


def _load_holdings(state: State, data: Data, attempts: dict[int, Attempt]) -> None:
    """What each host holds, in the order in which it came to hold it."""
    pool = state.pools[data["name"]]
    for each in data["hosts"]:
        if each is not None:
            host = state.hosts[each["name"]]
            for serial in each["attempts"]:
                host.attempts[serial] = attempts[serial]
                host.held += attempts[serial].each
                _count(host, attempts[serial])
            for serial in each["claims"]:
                host.claims[serial] = attempts[serial]
                _count(host, attempts[serial])
            pool.refresh(host)
    if data["reservation"] is not None:
        name, hosts, start, estimate = data["reservation"]
        places = [state.hosts[host] for host in hosts]
        leaf = pool.budgets.leaves[state.workloads[name].budget or ROOT]
        pool.reservation = Reservation(state.workloads[name], leaf, places, start, estimate=estimate)


def _count(host: Host, attempt: Attempt) -> None:
    mask = attempt.masks[attempt.hosts.index(host)]
    host.free &= ~mask
    host.owed += attempt.each - mask.bit_count()
    ordinary = attempt.allocated and not attempt.lane
    host.lane_used += attempt.each if attempt.lane else 0
    if attempt.stopping:
        host.stopping += attempt.each
        host.stopping_ordinary += attempt.each if ordinary else 0
    elif not attempt.allocated:
        host.unallocated += attempt.each
    elif ordinary:
        host.ordinary += attempt.each


# Workloads and attempts


def _save_workload(workload: Workload) -> Data:
    return {
        "spec": plain.encode(workload.spec),
        "state": workload.state.value,
        "shapes": {pool: list(shape) for pool, shape in workload.shapes.items()},
        **{name: getattr(workload, name) for name in _WORKLOAD},
    }


def _load_workload(state: State, data: Data) -> None:
    workload = Workload(plain.decode(WorkloadSpec, data["spec"], "spec"), data["submitted"])
    for name in _WORKLOAD:
        setattr(workload, name, data[name])
    workload.state = WorkloadState(data["state"])
    workload.shapes = {pool: Shape(*shape) for pool, shape in data["shapes"].items()}
    state.workloads[workload.spec.id] = workload
    if workload.state is WorkloadState.PENDING:
        place(state, workload)


def _save_attempt(attempt: Attempt) -> Data:
    return {
        "workload": attempt.workload.spec.id,
        "leaf": attempt.leaf.path,
        "hosts": [host.name for host in attempt.hosts],
        "preempted": [list(victim) for victim in attempt.preempted],
        "promised": [[name, serial, gpus] for (name, serial), gpus in attempt.promised.items()],
        "stopping": None if attempt.stopping is None else attempt.stopping.value,
        "beneficiary": attempt.beneficiary,
        "ripe": attempt.ripe,
        **{name: getattr(attempt, name) for name in _ATTEMPT},
    }


def _load_attempt(state: State, data: Data) -> Attempt:
    workload, pool = state.workloads[data["workload"]], state.pools[data["pool"]]
    ranking = pool.budgets if workload.allocated else pool.fillers
    leaf = pool.stray if data["leaf"] == _STRAY else ranking.leaves[data["leaf"]]
    hosts = [state.hosts[name] for name in data["hosts"]]
    attempt = Attempt(data["serial"], workload, pool.name, leaf, hosts, data["each"])
    for name in _ATTEMPT:
        setattr(attempt, name, data[name])
    attempt.masks = list(data["masks"])
    attempt.preempted = tuple((name, number) for name, number in data["preempted"])
    attempt.promised = {(name, serial): gpus for name, serial, gpus in data["promised"]}
    attempt.stopping = None if data["stopping"] is None else StopReason(data["stopping"])
    attempt.beneficiary = data["beneficiary"]
    if data["ripe"]:
        ripen(attempt)
    workload.attempt = attempt
    return attempt
