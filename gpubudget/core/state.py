"""All that the scheduler remembers, in one place, and the few questions that everything asks of it."""

from __future__ import annotations

from heapq import heappush

from gpubudget.core.budget import Policy, Tree
from gpubudget.core.decisions import Decision, Hold
from gpubudget.core.events import Event, Woke
from gpubudget.core.placement import Shape
from gpubudget.core.pool import NOBODY, Pool, dequeue, enqueue
from gpubudget.core.records import Attempt, Host, Node, Workload
from gpubudget.core.workload import WorkloadSpec, WorkloadState
from gpubudget.units import format_duration

Timer = tuple[int, int, Attempt]


class State:
    """What the scheduler knows. ``decisions`` and ``cause`` belong to the event that is being handled.

    ``draining`` is the number of hosts that drain. ``fresh`` are workloads that have begun to wait and were not tried
    yet. ``protections`` and ``limits`` are heaps of (time, serial, attempt), in which attempts that ended stay until
    their time comes; ``patience`` is one of (time, workload id) of those that may preempt again from then on.
    """

    __slots__ = (
        "cause",
        "commit",
        "decisions",
        "draining",
        "fresh",
        "hosts",
        "limits",
        "next_date",
        "now",
        "paths",
        "patience",
        "policy",
        "pools",
        "protections",
        "serial",
        "tree",
        "workloads",
    )

    def __init__(self) -> None:
        self.now = 0
        self.tree: Tree | None = None
        self.commit = ""
        self.next_date: int | None = None
        self.paths: frozenset[str] = frozenset()
        self.policy = Policy()
        self.pools: dict[str, Pool] = {}
        self.hosts: dict[str, Host] = {}
        self.draining = 0
        self.workloads: dict[str, Workload] = {}
        self.fresh: list[Workload] = []
        self.serial = 0
        self.protections: list[Timer] = []
        self.limits: list[Timer] = []
        self.patience: list[tuple[int, str]] = []
        self.decisions: list[Decision] = []
        self.cause: Event = Woke()

    def pool(self, name: str) -> Pool:
        """The pool of that name; it is made when it is first heard of."""
        found = self.pools.get(name)
        if found is None:
            root = NOBODY if self.tree is None else self.tree.root
            found = self.pools[name] = Pool(name, self.policy, self.now, root)
        return found

    def leaf_of(self, workload: Workload, pool: Pool) -> Node:
        """Where a workload, whose budget must be in the tree, competes in ``pool``."""
        if workload.budget is None:
            return pool.stray
        return (pool.budgets if workload.allocated else pool.fillers).leaves[workload.budget]


def shapes_of(state: State, spec: WorkloadSpec) -> tuple[dict[str, Shape], str]:
    """The gang of a workload in each of its pools that could ever hold it, and why not in the others."""
    shapes: dict[str, Shape] = {}
    reasons: list[str] = []
    gpus, hosts = spec.gpus, spec.hosts
    for name in spec.pools:
        pool = state.pools.get(name)
        if pool is None:
            reasons.append(f"there is no pool {name!r}")
            continue
        lane = pool.lane.kept_from(spec)
        answer = pool.answers.get((gpus, hosts, lane))
        if answer is None:
            answer = pool.answers[gpus, hosts, lane] = pool.shape_of(gpus, hosts, lane)
        if isinstance(answer, str):
            reasons.append(answer)
        else:
            shapes[name] = answer
    return shapes, "; ".join(reasons) if reasons else ""


def admission(state: State, spec: WorkloadSpec) -> tuple[dict[str, Shape], str]:
    """The gang of a workload in each of its pools, or, where that is empty, why it cannot be accepted."""
    reason = ""
    if state.tree is None:
        reason = "no budgets have been applied yet"
    elif spec.gpus < 1:
        reason = f"it asks for {spec.gpus} GPUs; at least 1 is needed"
    elif spec.hosts is not None and spec.hosts < 1:
        reason = f"it asks for {spec.hosts} hosts; at least 1 is needed"
    elif not spec.pools:
        reason = "it names no pool"
    else:
        reason = _bad_times(state.policy, spec) or _bad_budget(state, spec)
    return ({}, reason) if reason else shapes_of(state, spec)


def _bad_times(policy: Policy, spec: WorkloadSpec) -> str:
    least, most = spec.min_runtime, spec.max_runtime
    if not 0 <= least <= policy.max_min_runtime:
        longest = format_duration(policy.max_min_runtime)
        return f"its minimum runtime is {format_duration(least)}; the longest allowed is {longest}"
    if most is not None and most < max(least, 1):
        needed = format_duration(max(least, 1))
        return f"its longest run time is {format_duration(most)}; at least {needed} is needed"
    return ""


def _bad_budget(state: State, spec: WorkloadSpec) -> str:
    if spec.budget is None:
        funded = "an allocated workload (minimum runtime above 0) must name the budget that pays for it"
        return funded if spec.allocated else ""
    return "" if spec.budget in state.paths else f"there is no budget {spec.budget!r}"


def wait(state: State, workload: Workload) -> None:
    """Let a workload that is pending or held wait where it can be ranked, or hold it with the reason why not."""
    workload.shapes, reason = shapes_of(state, workload.spec)
    if workload.budget is not None and workload.budget not in state.paths:
        reason = f"its budget {workload.budget} was removed: move it to another one or cancel it"
        workload.shapes = {}
    workload.held = "" if workload.shapes else reason
    wanted = WorkloadState.HELD if workload.held else WorkloadState.PENDING
    if workload.state is not wanted:
        workload.become(wanted)
    if workload.preempt_after > state.now:
        heappush(state.patience, (workload.preempt_after, workload.id))
    if workload.shapes:
        arrive(state, workload)
        place(state, workload)


def arrive(state: State, workload: Workload) -> None:
    """A workload begins to wait. It may stay out of the queues until it turns out that it cannot start at once."""
    for name in workload.shapes:
        pool = state.pools[name]
        if not pool.budgets.root.mask:
            pool.last_pass = state.now  # nothing waited: as if it had just been looked at
    workload.fresh = True
    state.fresh.append(workload)


def place(state: State, workload: Workload) -> None:
    """Put a workload into the queue of each of its shapes."""
    timid = workload.preempt_after > state.now
    for name, shape in workload.shapes.items():
        pool = state.pools[name]
        enqueue(workload, state.leaf_of(workload, pool), pool.number(shape, timid=timid))
        if workload.debug and pool.lane.admits(workload.spec):
            pool.lane.enqueue(workload)


def unwait(state: State, workload: Workload) -> None:
    """Take a workload out of everything it waits in."""
    if workload.queued:
        dequeue(workload)
    if workload.debug:
        for name in workload.shapes:
            state.pools[name].lane.dequeue(workload)
    for name in workload.shapes:
        reservation = state.pools[name].reservation
        if reservation is not None and reservation.workload is workload:
            state.pools[name].lapse()


def rewait(state: State, workload: Workload) -> None:
    """Look again at where a waiting workload stands, and say so when that has changed."""
    before = workload.held
    unwait(state, workload)
    wait(state, workload)
    if workload.held != before:
        state.decisions.append(Hold(workload.id, workload.held, state.cause))
