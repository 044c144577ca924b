"""What the scheduler decides. Each carries its reason and the event that caused it.

``Start`` and ``Stop`` are orders to carry out; the others say what has become of a workload, a host or the budgets,
so that a shell can record it. ``eventlog.py`` turns them into the public format. The two that are made for every
workload, ``Start`` and ``Stopped``, have final fields: a class that is frozen takes twice as long to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpubudget.core.budget import Tree
from gpubudget.core.events import Event
from gpubudget.core.host import HostState
from gpubudget.core.workload import StopReason

Placement = tuple[tuple[str, tuple[int, ...]], ...]
"""Hosts in order of rank, each with the indices of its GPUs."""


@dataclass(slots=True, init=False)
class Start:
    """Start an attempt on these GPUs, which nobody else holds now."""

    workload: Final[str]
    attempt: Final[int]
    pool: Final[str]
    allocated: Final[bool]
    placement: Final[Placement]
    protected_until: Final[int]
    ends_by: Final[int | None]
    """The moment at which an attempt of a workload with a longest run time is stopped."""
    preempted: Final[tuple[tuple[str, int], ...]]
    lane: Final[bool]
    reason: Final[str]
    cause: Final[Event]

    def __init__(  # noqa: PLR0913, PLR0917 - as many as it has fields
        self,
        workload: str,
        attempt: int,
        pool: str,
        allocated: bool,  # noqa: FBT001 - a field
        placement: Placement,
        protected_until: int,
        ends_by: int | None,
        preempted: tuple[tuple[str, int], ...],
        lane: bool,  # noqa: FBT001 - a field
        reason: str,
        cause: Event,
    ) -> None:
        self.workload = workload
        self.attempt = attempt
        self.pool = pool
        self.allocated = allocated
        self.placement = placement
        self.protected_until = protected_until
        self.ends_by = ends_by
        self.preempted = preempted
        self.lane = lane
        self.reason = reason
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a running attempt: SIGTERM, the grace period, SIGKILL. ``Exited`` must follow."""

    workload: str
    attempt: int
    reason: StopReason
    beneficiary: str | None
    """The workload it is preempted for."""
    cause: Event


@dataclass(slots=True, init=False)
class Stopped:
    """An attempt has ended and its GPUs are free; attempt 0 is a workload that was cancelled before it ever started."""

    workload: Final[str]
    attempt: Final[int]
    reason: Final[StopReason]
    beneficiary: Final[str | None]
    cause: Final[Event]

    def __init__(self, workload: str, attempt: int, reason: StopReason, beneficiary: str | None, cause: Event) -> None:
        self.workload = workload
        self.attempt = attempt
        self.reason = reason
        self.beneficiary = beneficiary
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Requeue:
    """The workload waits again in its budget. ``held`` says why it cannot be ranked, if it cannot."""

    workload: str
    reason: str
    held: str
    cause: Event


@dataclass(frozen=True, slots=True)
class Hold:
    """A waiting workload cannot be ranked any more, or can be again when ``reason`` is empty."""

    workload: str
    reason: str
    cause: Event


@dataclass(frozen=True, slots=True)
class Refuse:
    """The workload is not accepted, or can no longer be."""

    workload: str
    reason: str
    cause: Event


@dataclass(frozen=True, slots=True)
class Reserve:
    """These hosts are kept for the workload, which can start by ``start`` (milliseconds); an estimate if so marked."""

    workload: str
    pool: str
    start: int
    hosts: tuple[str, ...]
    estimate: bool
    cause: Event


@dataclass(frozen=True, slots=True)
class Claim:
    """A workload will start on these hosts as soon as the attempts named have ended."""

    workload: str
    pool: str
    hosts: tuple[str, ...]
    preempted: tuple[tuple[str, int], ...]
    cause: Event


@dataclass(frozen=True, slots=True)
class Unclaim:
    """A claim came to nothing, since a host was lost or drained or the workload cancelled."""

    workload: str
    reason: str
    cause: Event


@dataclass(frozen=True, slots=True)
class HostChanged:
    """A host is in another state."""

    host: str
    pool: str
    gpus: int
    state: HostState
    reason: str
    cause: Event


@dataclass(frozen=True, slots=True)
class BudgetsChanged:
    """Other shares are in force: a tree was applied, or a dated change has begun or ended."""

    tree: Tree
    commit: str
    cause: Event


Decision = Start | Stop | Stopped | Requeue | Hold | Refuse | Reserve | Claim | Unclaim | HostChanged | BudgetsChanged
