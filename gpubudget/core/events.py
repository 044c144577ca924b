"""What happens to the scheduler. Each is a frozen value; ``Scheduler.handle`` takes one with the time it happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpubudget.core.budget import Tree
from gpubudget.core.workload import WorkloadSpec


class Outcome(StrEnum):
    """How an attempt's processes ended."""

    FINISHED = "finished"  # exit code 0, by itself
    FAILED = "failed"  # another exit code, by itself, or it could not be started
    STOPPED = "stopped"  # it ended after it had been told to


@dataclass(frozen=True, slots=True)
class Submitted:
    """A person submitted a workload. Its id is new."""

    spec: WorkloadSpec


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Its owner, a manager or an administrator ended it, whatever it was doing."""

    workload: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class RequeueRequested:
    """Its owner or an administrator stops the running attempt, protected or not, and puts the workload back."""

    workload: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """A waiting workload is charged to another budget from now on."""

    workload: str
    budget: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Exited:
    """All processes of an attempt are gone, on every host."""

    workload: str
    attempt: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CheckpointReported:
    """A running attempt has saved its work."""

    workload: str
    attempt: int


@dataclass(frozen=True, slots=True)
class HostReported:
    """A host's agent registers or is back, healthy, with nothing left over from attempts that have ended."""

    host: str
    pool: str
    gpus: int


@dataclass(frozen=True, slots=True)
class HostLost:
    """A host's agent has been silent for too long."""

    host: str


@dataclass(frozen=True, slots=True)
class HostRemoved:
    """A lost or drained host is gone for good."""

    host: str


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """A failed health check or a person wants the host empty."""

    host: str
    reason: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Cordoned:
    """A person allows no new work on the host."""

    host: str
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Uncordoned:
    """A person gives a cordoned, draining or drained host back to work."""

    host: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class RepairStarted:
    """A drained host's repair steps begin."""

    host: str


@dataclass(frozen=True, slots=True)
class RepairEnded:
    """A host's repair steps and the checks after them are over."""

    host: str
    healthy: bool


@dataclass(frozen=True, slots=True)
class BudgetsApplied:
    """The whole tree, its pools and its policy are replaced by those of a commit."""

    tree: Tree
    commit: str = ""


@dataclass(frozen=True, slots=True)
class Woke:
    """Only time has passed."""


Event = (
    Submitted
    | Cancelled
    | RequeueRequested
    | Moved
    | Exited
    | CheckpointReported
    | HostReported
    | HostLost
    | HostRemoved
    | DrainRequested
    | Cordoned
    | Uncordoned
    | RepairStarted
    | RepairEnded
    | BudgetsApplied
    | Woke
)
