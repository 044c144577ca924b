"""A small plain scheduler to compare the core with: it queues, places gangs, starts and stops, and has no rule of rank.

It takes the core's events and gives the core's decisions. A policy (``policies.py``) says how it sees the budgets, who
goes next, what is charged and who may be stopped. There is no minimum runtime, no debug lane and no backfill by time:
the first that does not fit keeps the hosts with most room, and others may use the rest. A drained host waits until its
work has ended by itself; whoever is stopped waits again where he was. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop

from gpubudget.core.budget import Pool, Tree, parent_path
from gpubudget.core.decisions import (
    BudgetsChanged,
    Decision,
    Refuse,
    Stopped,
)
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    CheckpointReported,
    Cordoned,
    DrainRequested,
    Event,
    Exited,
    HostLost,
    HostRemoved,
    HostReported,
    Moved,
    Outcome,
    RepairEnded,
    RepairStarted,
    RequeueRequested,
    Submitted,
    Uncordoned,
    Woke,
)
from gpubudget.core.fairshare import grow
from gpubudget.core.host import HostState
from gpubudget.core.placement import EVERY, Shape, split
from gpubudget.core.records import Node
from gpubudget.core.workload import StopReason, WorkloadSpec
from gpubudget.errors import NotFoundError, RefusedError
from gpubudget.sim.plainlife import PlainLifecycle
from gpubudget.sim.plainpool import Machine, Places, PlainPool, Rank, Run, Waiting

_BY_ITSELF = {Outcome.FINISHED: StopReason.FINISHED, Outcome.FAILED: StopReason.FAILED}


class PlainScheduler(PlainLifecycle):
    """Events in, decisions out, as ``core.Scheduler``. A policy overrides the methods of the last section."""

    strict = False
    """Whether nobody starts before the first in turn does."""
    preempts = False
    """Whether anybody is ever stopped for somebody else."""

    def __init__(self) -> None:
        super().__init__()
        self.tree: Tree | None = None
        self.next_date: int | None = None

    def handle(self, event: Event, now: int) -> list[Decision]:
        """Take ``event`` at ``now`` and say what follows."""
        self.now, self.cause, self.decisions = now, event, []
        self.expire()
        self._take(event)
        for pool in self.pools.values():
            if pool.dirty:
                pool.dirty = False
                self._pass(pool)
        return self.decisions

    def next_wakeup(self) -> int | None:
        """The next moment at which a longest run time ends or shares change."""
        while self.limits and self.limits[0][2].who.run is not self.limits[0][2]:
            heappop(self.limits)
        times = [time for time, _, _ in self.limits[:1]]
        if self.next_date is not None:
            times.append(self.next_date)
        return min(times, default=None)

    def expire(self) -> None:
        """Stop what has reached its longest run time; let dated changes take effect."""
        while self.limits and self.limits[0][0] <= self.now:
            run = heappop(self.limits)[2]
            if run.who.run is run and run.stopping is None:
                self.stop(run, StopReason.LIMIT)
        if self.tree is not None and self.next_date is not None and self.next_date <= self.now:
            self._apply(self.tree, "")

    # What happens

    def _take(self, event: Event) -> None:
        match event:
            case Submitted(spec):
                self._submit(spec)
            case Exited(workload, _, outcome):
                run = self._running(workload)
                self.end(run, _BY_ITSELF.get(outcome) or run.stopping or StopReason.FAILED)
            case Cancelled(workload):
                self._cancel(self._known(workload))
            case RequeueRequested(workload):
                self.stop(self._running(workload), StopReason.FORCED)
            case Moved(workload, budget):
                self._move(self._known(workload), budget)
            case BudgetsApplied(tree, commit):
                self._apply(tree, commit)
            case CheckpointReported() | Woke():
                pass
            case HostReported():
                self._report(event)
            case _:
                self._host_event(event)

    def _host_event(
        self, event: HostLost | HostRemoved | DrainRequested | Cordoned | Uncordoned | RepairStarted | RepairEnded
    ) -> None:
        machine = self.hosts[event.host]
        match event:
            case HostLost():
                self._lose(machine)
            case DrainRequested(_, reason):
                self._clear(machine, HostState.DRAINING, reason)
            case Cordoned(_, reason):
                self._clear(machine, HostState.CORDONED, reason)
            case RepairStarted():
                self.become(machine, HostState.REPAIRING)
            case RepairEnded(_, healthy) if not healthy:
                self.become(machine, HostState.DRAINED)
            case HostRemoved(host):
                pool = self.pools[machine.pool]
                pool.gpus -= machine.gpus
                machine.gpus = machine.free = 0
                pool.refresh(machine)
                del self.hosts[host]
            case _:
                self.become(machine, HostState.READY)

    def _known(self, name: str) -> Waiting:
        found = self.workloads.get(name)
        if found is None:
            raise NotFoundError(f"there is no workload {name!r} that has not ended")
        return found

    def _running(self, name: str) -> Run:
        run = self._known(name).run
        if run is None or run.started is None:
            raise NotFoundError(f"workload {name!r} is not running")
        return run

    def _submit(self, spec: WorkloadSpec) -> None:
        who = Waiting(spec, self.rank(spec))
        reason = self._settle(who)
        if reason:
            self.decisions.append(Refuse(spec.id, reason, self.cause))
        else:
            self.workloads[spec.id] = who
            self.wait(who)

    def _settle(self, who: Waiting) -> str:
        """Find out where a workload could run and who pays; why not, if nowhere."""
        spec, reasons = who.spec, []
        for name in spec.pools:
            pool = self.pools.get(name)
            if pool is None or pool.spec is None:
                reasons.append(f"there is no pool {name!r}")
            elif spec.budget is not None and self.home(spec.budget) not in pool.leaves:
                reasons.append(f"there is no budget {spec.budget!r}")
            else:
                try:
                    who.shapes[name] = self.shape(pool.spec, spec)
                except RefusedError as error:
                    reasons.append(f"{error.message} in pool {name}: {error.hint}")
                else:
                    who.leaves[name] = self._leaf(pool, spec.budget)
        return "" if who.shapes else "; ".join(reasons)

    def _leaf(self, pool: PlainPool, budget: str | None) -> Node:
        """Where work of a budget waits and is charged; with its nearest ancestor, if there is no such budget now."""
        if budget is None:
            return pool.stray
        path = self.home(budget)
        while path not in pool.leaves:
            path = parent_path(path)
        return pool.leaves[path]

    def _cancel(self, who: Waiting) -> None:
        run = who.run
        if run is not None and run.started is not None:
            if run.stopping is None:
                self.stop(run, StopReason.CANCELLED)
            run.stopping = StopReason.CANCELLED
            return
        if run is None:
            self.unwait(who)
        else:
            self.unclaim(run, "cancelled")
        del self.workloads[who.spec.id]
        self.decisions.append(Stopped(who.spec.id, 0, StopReason.CANCELLED, None, self.cause))

    def _move(self, who: Waiting, budget: str) -> None:
        self.unwait(who)
        who.leaves = {name: self._leaf(self.pools[name], budget) for name in who.leaves}
        self.wait(who)

    def _apply(self, tree: Tree, commit: str) -> None:
        """Other budgets hold: what is charged and what waits goes to the budget of the same path, or to its parent."""
        self.tree = tree
        self.next_date = min((date for date in tree.dates() if date > self.now), default=None)
        for spec in tree.pools:
            self.pools.setdefault(spec.name, PlainPool(spec.name)).spec = spec
        for pool in self.pools.values():
            before, queues = pool.leaves, pool.queues
            pool.root, pool.queues = self.plant(tree, pool.name), {}
            pool.leaves = {leaf.path: leaf for leaf in pool.root.leaves()}
            heirs = {leaf: self._leaf(pool, path) for path, leaf in before.items()} | {pool.stray: pool.stray}
            for old, new in heirs.items():
                for node in new.up if new is not old else ():
                    node.charge(old.at0)
                    node.turn(old.slope, 0)
            pool.stray.mask = 0
            for who in [who for shapes in queues.values() for queue in shapes.values() for _, who in queue]:
                who.leaves[pool.name] = heirs[who.leaves[pool.name]]
                pool.enqueue(who)
            for who in [who for who in self.workloads.values() if who.run is not None and who.run.pool == pool.name]:
                who.leaves[pool.name] = heirs[who.leaves[pool.name]]
                if who.run is not None:
                    who.run.leaf = who.leaves[pool.name]
            pool.dirty = True
        self.decisions.append(BudgetsChanged(tree, commit, self.cause))

    # Hosts

    def _report(self, event: HostReported) -> None:
        machine = self.hosts.get(event.host)
        if machine is None:
            pool = self.pools.setdefault(event.pool, PlainPool(event.pool))
            machine = self.hosts[event.host] = pool.add(event.host, event.gpus)
        elif machine.state is not HostState.LOST:
            return
        self.become(machine, HostState.READY)

    def _clear(self, machine: Machine, state: HostState, reason: str) -> None:
        """The host takes no more work; where it is drained, it is done when its last attempt has ended by itself."""
        self.become(machine, state, reason)
        for who in list(self.workloads.values()):
            if who.run is not None and who.run.started is None and machine in who.run.masks:
                self.unclaim(who.run, f"host {machine.name} is {state}")
                self.wait(who)
        self.drained(machine)

    def _lose(self, machine: Machine) -> None:
        self._clear(machine, HostState.LOST, "its agent is silent")
        for run in list(machine.runs.values()):
            if all(each.state is HostState.LOST for each in run.masks):
                self.end(run, run.stopping or StopReason.HOST_LOST)
            elif run.stopping is None:
                self.stop(run, StopReason.HOST_LOST)

    def _pass(self, pool: PlainPool) -> None:
        """Start whoever's turn it is while there is room, or room can be made for him; then others beside him."""
        hosts = EVERY
        while (who := self._next(pool, hosts)) is not None:
            shape, victims = who.shapes[pool.name], list[Run]()
            places = self.places(pool, shape, hosts)
            if places is None and (legal := self.legal(pool, who)):
                places, victims = pool.emptied(shape, hosts, legal) or (None, victims)
            if places is not None:
                self.launch(who, pool, places, victims)
            elif self.strict or not (hoped := pool.hoped_for(shape)):
                return
            else:
                hosts &= ~hoped  # kept for him

    def _next(self, pool: PlainPool, hosts: int) -> Waiting | None:
        """Whose turn it is: the first of all, and once hosts are kept for him, the first who has room on the others."""
        if hosts == EVERY and (self.strict or self.preempts or self._fitting(pool, hosts)):
            return next(self.turns(pool, EVERY), None)
        fitting = self._fitting(pool, hosts) if hosts != EVERY else 0
        return next(self.turns(pool, fitting), None) if fitting else None

    def _fitting(self, pool: PlainPool, hosts: int) -> int:
        """The bits of the shapes that wait and have room on these hosts."""
        waiting = pool.root.mask | pool.stray.mask
        return sum(
            bit for shape, bit in pool.bits.items() if bit & waiting and self.places(pool, shape, hosts) is not None
        )

    # What a policy decides

    def plant(self, tree: Tree, pool: str) -> Node:
        """The budgets as the policy sees them."""
        return grow(tree.root, pool, self.now)

    def home(self, budget: str) -> str:
        """The path in ``plant``'s tree at which work of a budget waits and is charged."""
        return budget

    def rank(self, spec: WorkloadSpec) -> Rank:
        """The order inside a budget."""
        return (-spec.priority, self.now, spec.id)

    def shape(self, pool: Pool, spec: WorkloadSpec) -> Shape:
        """How a gang is split; raises RefusedError where the pool could never hold it."""
        shape = split(spec.gpus, spec.hosts, pool.gpus_per_host)
        if shape.hosts > pool.hosts:
            raise RefusedError(f"{shape} can never be had", hint=f"it has {pool.hosts} hosts")
        return shape

    def places(self, pool: PlainPool, shape: Shape, hosts: int) -> Places | None:
        """Where a gang fits now."""
        return pool.best(shape, hosts)

    def turns(self, pool: PlainPool, mask: int) -> Iterator[Waiting]:
        """Who waits in ``pool`` with one of the shapes in ``mask``, whose turn it is first."""
        raise NotImplementedError

    def legal(self, pool: PlainPool, who: Waiting) -> list[Run]:
        """Those who may be stopped for a workload, all of them at once if need be; the first are taken first."""
        del pool, who
        return []
