"""What the scheduler must agree with, found by brute force from nothing but its inputs and its decisions.

``Record`` keeps every attempt there ever was and forgets none; usage, ranks and victims are found by going through all
of them, with fractions. Slow on purpose, and written without a look at the fast paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any

from gpubudget.core.budget import ROOT, Tree, child_path, parent_path
from gpubudget.core.events import (
    BudgetsApplied,
    CheckpointReported,
    Event,
    HostRemoved,
    Moved,
    Submitted,
)
from gpubudget.core.host import HostState
from gpubudget.core.views import ReservationView
from gpubudget.core.workload import StopReason, WorkloadSpec, WorkloadState

Cost = tuple[int, int, int, int]
"""Allocated GPU-time lost, allocated victims, unallocated GPU-time lost, unallocated victims."""

WAITING = frozenset({WorkloadState.PENDING, WorkloadState.HELD})


@dataclass(slots=True, eq=False)
class Run:
    """A claim, and the attempt that it becomes; ``hosts`` gives the number of GPUs on each."""

    workload: str
    pool: str
    budget: str | None
    gpus: int
    minimum: int
    hosts: dict[str, int]
    placement: dict[str, tuple[int, ...]] = field(default_factory=dict)
    attempt: int = 0
    claimed: int | None = None
    started: int | None = None
    ended: int | None = None
    protected_until: int = 0
    ends_by: int | None = None
    lane: bool = False
    checkpoint: int | None = None
    stopping: StopReason | None = None
    told: int = 0
    victims: list[Run] = field(default_factory=list)
    withdrawn: bool = False

    @property
    def allocated(self) -> bool:
        return self.minimum > 0

    @property
    def live(self) -> bool:
        """Whether it holds GPUs."""
        return self.started is not None and self.ended is None

    @property
    def key(self) -> tuple[str, int]:
        return self.workload, self.attempt

    @property
    def waited(self) -> int:
        """How long it waited for its victims."""
        return 0 if self.started is None or self.claimed is None else self.started - self.claimed

    def spent(self, now: int) -> int:
        """GPU-time of the attempt so far."""
        return 0 if self.started is None else self.gpus * ((now if self.ended is None else self.ended) - self.started)

    def lost(self, now: int) -> int:
        """GPU-time that stopping it now would throw away."""
        assert self.started is not None
        return self.gpus * (now - max(self.started, self.checkpoint or 0))


@dataclass(slots=True, eq=False)
class Job:
    """A submitted workload, ended or not."""

    spec: WorkloadSpec
    budget: str | None
    submitted: int
    state: WorkloadState = WorkloadState.PENDING
    attempts: int = 0
    failures: int = 0
    held: str = ""
    preemptions: int = 0
    run: Run | None = None
    used: int = 0  # time of all its attempts
    failed_after_preempting: bool = False

    @property
    def waiting(self) -> bool:
        return self.state is WorkloadState.PENDING


@dataclass(slots=True, eq=False)
class Machine:
    """A host."""

    pool: str
    gpus: int
    state: HostState
    since: int


class Record:
    """Everything that happened and was decided, in the plainest form."""

    def __init__(self) -> None:
        self.tree: Tree | None = None
        self.jobs: dict[str, Job] = {}
        self.runs: list[Run] = []
        self.machines: dict[str, Machine] = {}
        self.edge = -(10**18)
        self.capacity: dict[str, int] = {}
        self.now = 0
        self.lanes: dict[str, int] = {}
        self.reserved: dict[str, ReservationView] = {}

    # What the events themselves say

    def pass_time(self, now: int) -> None:
        for machine in self.machines.values():
            self.capacity[machine.pool] = self.capacity.get(machine.pool, 0) + machine.gpus * (now - self.now)
        self.now = now
        if self.tree:
            self.edge = max(self.edge, now - self.tree.policy.lookback)

    def take_event(self, event: Event, now: int) -> None:
        self.pass_time(now)
        match event:
            case Submitted(spec):
                self.jobs[spec.id] = Job(spec, spec.budget, now)
            case Moved(workload, budget):
                self.jobs[workload].budget = budget
            case CheckpointReported(workload, _):
                run = self.jobs[workload].run
                assert run is not None
                run.checkpoint = now
            case HostRemoved(host):
                del self.machines[host]
            case BudgetsApplied(tree):
                self._apply(tree)
            case _:
                pass

    def _apply(self, tree: Tree) -> None:
        old = {budget.path for budget in self.tree.budgets()} if self.tree else set()
        new = {budget.path for budget in tree.budgets()}
        renamed = {
            budget.previously: budget.path
            for budget in tree.budgets()
            if budget.previously in old and budget.previously not in new
        }

        def follow(path: str) -> str:
            """What a path is called now, if it, or one above it, was renamed; the same if not."""
            if path in renamed or path == ROOT:
                return renamed.get(path, path)
            return child_path(follow(parent_path(path)), path.rpartition("/")[2])

        def heir(path: str) -> str:
            if path in new:
                return path
            return follow(path) if follow(path) in new else heir(parent_path(path))

        for run in self.runs:
            if run.budget is not None:
                run.budget = heir(run.budget)
        for job in self.jobs.values():
            if job.budget and job.budget not in new:
                job.budget = follow(job.budget)
        self.tree = tree
        self.edge = max(self.edge, self.now - tree.policy.lookback)

    # Shares

    def budget_paths(self) -> set[str]:
        return {budget.path for budget in self.tree.budgets()} if self.tree else set()

    def share(self, path: str, pool: str) -> Fraction:
        assert self.tree is not None
        budget = self.tree.find(path)
        assert budget is not None
        return budget.shares_at(self.now).of(pool)

    def reserve(self, path: str, pool: str) -> Fraction:
        assert self.tree is not None
        budget = self.tree.find(path)
        assert budget is not None
        return 1 - sum((child.shares_at(self.now).of(pool) for child in budget.children), Fraction(0))

    def funded(self, path: str, pool: str) -> bool:
        steps = lineage(path)
        return self.reserve(path, pool) > 0 and all(self.share(step, pool) > 0 for step in steps if step != ROOT)

    def could_fit(self, spec: WorkloadSpec, pool: str) -> bool:
        """Whether a workload names a pool that could hold it if all its hosts were ready and empty.

        Where there is a debug lane, one that could do so only with the lane's GPUs counts as one that could not.
        """
        parts = self.part(spec, pool) if pool in spec.pools else None
        if parts is None or self.tree is None:
            return False
        declared = next(p for p in self.tree.pools if p.name == pool)
        lane = self.tree.policy.debug.gpus if self.tree.policy.debug else 0
        large = [m for m in self.machines.values() if m.pool == pool and m.gpus - lane >= parts[1]]
        return max(len(large), declared.hosts if declared.gpus_per_host - lane >= parts[1] else 0) >= parts[0]

    def fits_somewhere(self, spec: WorkloadSpec) -> bool:
        """Whether any pool could hold it."""
        return any(self.could_fit(spec, pool) for pool in spec.pools)

    def part(self, spec: WorkloadSpec, pool: str) -> tuple[int, int] | None:
        """Hosts, and GPUs on each, of a gang in a pool."""
        sizes = [p.gpus_per_host for p in self.tree.pools if p.name == pool] if self.tree else []
        return split(spec.gpus, spec.hosts, sizes[0]) if sizes else None

    # Usage

    def occupancy(self, run: Run, now: int) -> int:
        """GPU-time of an attempt inside the window up to ``now``."""
        if run.started is None:
            return 0
        end = now if run.ended is None else run.ended
        return run.gpus * max(0, end - max(run.started, self.edge))

    def commitment(self, run: Run, now: int) -> int:
        if run.started is None:
            return 0 if run.withdrawn else run.gpus * run.minimum
        return run.gpus * max(0, run.protected_until - now) if run.ended is None else 0

    def own_usage(self, pool: str, now: int, *, allocated: bool = True) -> dict[str, int]:
        """What each budget itself has used, without its descendants; unallocated work makes no commitment."""
        sums: dict[str, int] = {}
        for run in self.runs:
            if run.pool == pool and run.budget is not None and run.allocated == allocated:
                charge = self.occupancy(run, now) + (self.commitment(run, now) if allocated else 0)
                sums[run.budget] = sums.get(run.budget, 0) + charge
        return sums

    @staticmethod
    def total(own: dict[str, int], path: str) -> int:
        return sum(used for other, used in own.items() if path in lineage(other))

    # Ranks

    def ranking(self, pool: str, now: int) -> list[str]:
        """The waiting workloads of a pool, best first, sorted by the whole path of each."""
        waiting = [job for job in self.jobs.values() if job.waiting and self.could_fit(job.spec, pool)]
        owns = {allocated: self.own_usage(pool, now, allocated=allocated) for allocated in (True, False)}

        def key(job: Job) -> tuple[Any, ...]:
            inside = (-job.spec.priority, job.submitted, job.spec.id)
            if job.budget is None:
                return (2, *inside)
            return (
                0 if job.spec.allocated else 1,
                *self.rank_path(job.budget, pool, owns[job.spec.allocated]),
                *inside,
            )

        return [job.spec.id for job in sorted(waiting, key=key)]

    def rank_path(self, budget: str, pool: str, own: dict[str, int]) -> Iterator[tuple[int, Fraction, Fraction, str]]:
        """For each step from the root, the reserve last: no share, usage over share, the larger share, the path."""
        for step in lineage(budget)[1:]:
            yield standing(self.total(own, step), self.share(step, pool), step)
        yield standing(own.get(budget, 0), self.reserve(budget, pool), budget)

    # Room and victims

    def live(self, host: str | None = None) -> list[Run]:
        return [run for run in self.runs if run.live and (host is None or host in run.hosts)]

    def claims(self, host: str | None = None) -> list[Run]:
        """What is promised and not yet started."""
        return [
            run
            for run in self.runs
            if run.started is None and not run.withdrawn and (host is None or host in run.hosts)
        ]

    def free(self, host: str) -> int:
        """GPUs that nobody holds, nor may be about to: a claim takes what is free and what its victims leave first."""
        held = sum(run.hosts[host] for run in self.live(host))
        return self.machines[host].gpus - held - sum(claim.hosts[host] for claim in self.claims(host))

    def is_victim(self, run: Run) -> bool:
        return any(run in claim.victims for claim in self.claims())

    def room(self, host: str, without: frozenset[tuple[str, int]] = frozenset()) -> int:
        """GPUs that can be promised once all who leave, and those in ``without``, are gone."""
        stay = sum(
            run.hosts[host]
            for run in self.live(host)
            if not run.stopping and not self.is_victim(run) and run.key not in without
        )
        return self.machines[host].gpus - stay - sum(run.hosts[host] for run in self.claims(host))

    def legal_victim(self, job: Job, run: Run, pool: str, now: int, *, charged: bool = False) -> bool:
        """Whether a workload may take this attempt's GPUs; ``charged``: its commitment is in the books already."""
        if not job.spec.allocated or job.budget is None or not self.funded(job.budget, pool):
            return False
        if run.stopping or run.pool != pool or self.is_victim(run):
            return False
        if run.lane:  # it ends by itself soon, also where a commit has taken the lane away meanwhile
            return False
        if not run.allocated:
            return True
        if now < run.protected_until or run.budget is None or run.budget == job.budget:
            return False
        own = dict(self.own_usage(pool, now))
        if not charged:
            own[job.budget] = own.get(job.budget, 0) + job.spec.gpus * job.spec.min_runtime
        ours = list(self.rank_path(job.budget, pool, own))
        theirs = list(self.rank_path(run.budget, pool, own))
        step, other = next((a, b) for a, b in zip(ours, theirs, strict=False) if a != b)
        return step[:2] < other[:2]

    def cheapest(self, job: Job, pool: str, now: int, without: tuple[str, ...] = ()) -> Cost | None:
        """The least that making room on one host costs, by trying every set of victims on every ready host."""
        costs = []
        for host, machine in self.machines.items():
            if machine.pool != pool or machine.state is not HostState.READY or host in without:
                continue
            legal = [run for run in self.live(host) if self.legal_victim(job, run, pool, now)]
            for size in range(len(legal) + 1):
                costs += [
                    cost(chosen, now)
                    for chosen in combinations(legal, size)
                    if self.room(host, frozenset(run.key for run in chosen)) >= job.spec.gpus
                ]
        return min(costs, default=None)

    def gang_has_room(self, job: Job, pool: str, hosts: int) -> bool:
        """Whether enough GPUs are free or leaving already."""
        each = job.spec.gpus // hosts
        ready = [name for name, m in self.machines.items() if m.pool == pool and m.state is HostState.READY]
        return sum(self.room(host) >= each for host in ready) >= hosts

    def gang_has_victims(self, job: Job, pool: str, hosts: int, now: int) -> bool:
        """Whether enough hosts could each hold their part once every legal victim is gone."""
        each = job.spec.gpus // hosts
        gone = frozenset(run.key for run in self.live() if self.legal_victim(job, run, pool, now))
        ready = [name for name, m in self.machines.items() if m.pool == pool and m.state is HostState.READY]
        return sum(self.room(host, gone) >= each for host in ready) >= hosts


def lineage(path: str) -> list[str]:
    """The paths from the root to a budget."""
    return [path] if path == ROOT else [*lineage(parent_path(path)), path]


def standing(usage: int, share: Fraction, path: str) -> tuple[int, Fraction, Fraction, str]:
    """How a budget sorts among its siblings."""
    return (1, Fraction(0), -share, path) if share == 0 else (0, usage / share, -share, path)


def cost(victims: tuple[Run, ...] | list[Run], now: int) -> Cost:
    """What stopping these attempts costs, allocated work first."""
    allocated = [run.lost(now) for run in victims if run.allocated]
    unallocated = [run.lost(now) for run in victims if not run.allocated]
    return sum(allocated), len(allocated), sum(unallocated), len(unallocated)


def split(gpus: int, hosts: int | None, gpus_per_host: int) -> tuple[int, int] | None:
    """On how many hosts a gang goes and how many GPUs of each, or None if it does not split evenly."""
    if hosts is None:
        hosts = -(-gpus // gpus_per_host)
    if gpus % hosts or gpus // hosts > gpus_per_host:
        return None
    return hosts, gpus // hosts
