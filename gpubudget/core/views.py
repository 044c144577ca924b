"""What the scheduler shows of itself: plain values for the API, the command line and reports. Nothing here decides."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gpubudget.core.decisions import Placement
from gpubudget.core.host import HostState
from gpubudget.core.workload import WorkloadSpec, WorkloadState


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt that holds GPUs, or waits for those that are kept for it (then ``started`` is None)."""

    workload: str
    attempt: int
    pool: str
    allocated: bool
    lane: bool
    placement: Placement
    started: int | None
    protected_until: int
    stopping: bool


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A workload that has not ended. ``attempts`` is how many were started, ``failures`` how many failed by itself."""

    spec: WorkloadSpec
    state: WorkloadState
    submitted: int
    attempts: int
    failures: int
    preemptions: int
    attempt: AttemptView | None


@dataclass(frozen=True, slots=True)
class HostView:
    """A host; ``attempts`` are (workload, attempt) in order of workload."""

    name: str
    pool: str
    gpus: int
    free: int
    lane: int
    state: HostState
    reason: str
    attempts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class BudgetView:
    """How one budget stands in one pool. GPU-time in GPU-milliseconds.

    ``reserve`` is the share of itself that a budget with children keeps. ``entitlement`` counts the part of the
    lookback window that has been observed; ``balance`` is entitlement minus usage. ``running`` are GPUs held by
    allocated attempts, ``unallocated`` by others; ``pending`` counts waiting workloads. All but ``reserve`` include
    descendants.
    """

    path: str
    pool: str
    share: Fraction
    effective_share: Fraction
    reserve: Fraction
    guarantee: Fraction
    entitlement: int
    usage: int
    balance: int
    running: int
    unallocated: int
    pending: int


@dataclass(frozen=True, slots=True)
class ReservationView:
    """The hosts and the time kept for the first workload of a pool that cannot start yet."""

    pool: str
    workload: str
    start: int
    hosts: tuple[str, ...]
    estimate: bool


@dataclass(frozen=True, slots=True)
class PoolView:
    """GPUs of a pool now, and GPU-milliseconds since the scheduler began: capacity is the sum of the other four."""

    name: str
    hosts: int
    gpus: int
    free: int
    capacity_time: int
    allocated_time: int
    unallocated_time: int
    idle_time: int
    unavailable_time: int


@dataclass(frozen=True, slots=True)
class Standing:
    """One step of a workload's rank: a budget's usage over its share beside that of the sibling ranked just before."""

    path: str
    share: Fraction
    usage: int
    better: tuple[str, ...]
    """The paths of the siblings with waiting work that rank before it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a workload is where it is. ``reason`` is a true sentence with numbers.

    ``rank`` counts from 1 over what waits in the pool. ``start`` is an upper bound on when it can start, an estimate
    if so marked, and None where none can be given.
    """

    workload: str
    state: WorkloadState
    reason: str
    pool: str | None
    rank: int | None
    waiting: int
    start: int | None
    estimate: bool
    path: tuple[Standing, ...]
