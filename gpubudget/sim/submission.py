"""What a simulation is made from: submissions, hosts and what happens to them, with all that was assumed on the way.

Plain values. Readers of traces and the synthetic generator make them; the engine plays them. Times are milliseconds,
counted from the trace's own zero, or since 1970 where a trace has dates.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from gpubudget.core.budget import Tree
from gpubudget.core.events import Event
from gpubudget.core.workload import WorkloadSpec
from gpubudget.units import count


class Ending(StrEnum):
    """How a workload ends once it has run for as long as it needs."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"  # its owner has seen enough


@dataclass(frozen=True, slots=True)
class Submission:
    """A workload comes at ``at`` and needs ``run_time`` on its GPUs, however often it is interrupted.

    With ``gives_up`` its owner cancels it at that moment, whatever it is doing.
    """

    at: int
    spec: WorkloadSpec
    run_time: int
    ending: Ending = Ending.FINISHED
    gives_up: int | None = None


@dataclass(frozen=True, slots=True)
class SimHost:
    """A host that is there from the beginning."""

    name: str
    pool: str
    gpus: int


class Fault(StrEnum):
    """What a fault does to its host."""

    LOST = "lost"  # it is gone at once, with all that runs on it
    DRAIN = "drain"  # a health check fails: it is emptied as protections end, then repaired


@dataclass(frozen=True, slots=True)
class Failure:
    """A host fails at ``at``; once it is empty (or lost), mending it takes ``repair``."""

    at: int
    host: str
    fault: Fault
    repair: int
    cause: str = ""


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Hosts fail by a draw: so often for each 1,000 host-days."""

    seed: int
    per_thousand_days: Fraction


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of a trace that was left out: where it stands, and why."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Workloads:
    """What a trace or a generator gives: submissions in order of ``at``.

    ``assumptions`` are sentences for the report: all that the source does not say and was made up. ``events`` are other
    things that happen at their times (a history's changes of budgets).
    """

    name: str
    submissions: tuple[Submission, ...]
    assumptions: tuple[str, ...] = ()
    bad_rows: tuple[BadRow, ...] = ()
    failures: tuple[Failure, ...] = ()
    events: tuple[tuple[int, Event], ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """What a report says of a run that plays all of it."""
        if not self.events:
            return self.assumptions
        changed = f"Budgets are changed {count(len(self.events), 'time')} in it, as in the log"
        return (*self.assumptions, f"{changed}; shares, entitlements and fairness are figured by those it begins with.")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a run depends on but the scheduler: who shares what, on which hosts, and what comes."""

    tree: Tree
    hosts: tuple[SimHost, ...]
    workloads: Workloads
    failing: FailureRate | None = None
