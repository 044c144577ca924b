"""What a person submits, and the states it passes through.

A workload runs in numbered attempts. Its states are one literal transition table; a step that is not in it raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WorkloadState(StrEnum):
    """Where a workload stands. The last six are ends."""

    PENDING = "pending"  # waits in its budget
    HELD = "held"  # waits, and cannot be ranked: its budget is gone, or no host could ever hold it
    STARTING = "starting"  # its GPUs are kept for it until the attempts that held them have ended
    RUNNING = "running"
    STOPPING = "stopping"  # told to end; its GPUs are not free yet
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"  # stopped for another workload, and not resumable
    REFUSED = "refused"

    __hash__ = str.__hash__  # that of Enum is slow, and these are looked up for every event


_S = WorkloadState

ENDED = frozenset({_S.FINISHED, _S.FAILED, _S.CANCELLED, _S.PREEMPTED, _S.REFUSED})

TRANSITIONS: dict[WorkloadState, frozenset[WorkloadState]] = {
    _S.PENDING: frozenset({_S.HELD, _S.STARTING, _S.RUNNING, _S.CANCELLED, _S.REFUSED}),
    _S.HELD: frozenset({_S.PENDING, _S.CANCELLED}),
    _S.STARTING: frozenset({_S.RUNNING, _S.PENDING, _S.HELD, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.STOPPING, _S.FINISHED, _S.FAILED, _S.PENDING, _S.HELD}),
    _S.STOPPING: frozenset({_S.PENDING, _S.HELD, _S.FINISHED, _S.FAILED, _S.CANCELLED, _S.PREEMPTED}),
    **{end: frozenset() for end in ENDED},
}


class StopReason(StrEnum):
    """Why an attempt ended; the words of the event log."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    DRAINED = "drained"
    HOST_LOST = "host_lost"
    FORCED = "forced"
    LIMIT = "limit"  # a debug workload reached its longest run time

    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """What was asked for. Times in milliseconds.

    ``hosts`` is None when the scheduler may choose how the gang is split. A ``min_runtime`` of 0 makes it unallocated.
    ``max_runtime`` ends it; a workload with one that fits the debug lane may run there when ``debug`` is set.
    ``retries`` is how often it is started again after it failed by itself. Larger ``priority`` goes first among its
    own budget's workloads only.
    """

    id: str
    owner: str
    budget: str | None
    pools: tuple[str, ...]
    gpus: int
    hosts: int | None = None
    min_runtime: int = 0
    max_runtime: int | None = None
    resumable: bool = False
    debug: bool = False
    priority: int = 0
    retries: int = 0

    @property
    def allocated(self) -> bool:
        """Whether a budget funds it."""
        return self.min_runtime > 0
