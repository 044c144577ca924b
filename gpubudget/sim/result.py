"""What a simulated run leaves: a row for each workload, each preemption, and samples on a fixed grid.

Plain values, exact integers: times in milliseconds, GPU-time in GPU-milliseconds. Nothing is averaged or judged here
(``measures.py`` does), and nothing depends on how fast the run was, so equal runs give equal results.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from gpubudget.core.budget import Tree
from gpubudget.errors import InvalidInputError
from gpubudget.sim.submission import BadRow, SimHost, Submission
from gpubudget.units import about_duration

NO_BUDGET = ""
"""Stands in ``Result.paths`` for unallocated work that names no budget."""


class End(StrEnum):
    """What had become of a workload when the run was over."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"  # stopped for another workload, and not resumable
    REFUSED = "refused"
    WAITING = "waiting"
    RUNNING = "running"


class Span(NamedTuple):
    """An attempt held its GPUs from ``started`` to ``ended``; ``lost`` milliseconds of it did not bring it forward."""

    started: int
    ended: int
    lost: int


class Row(NamedTuple):
    """One workload. Counts and sums are over all its attempts.

    ``wait_ms`` is all the time that it waited, for its first start and after each requeue; a run that has not ended
    counts until the end of the simulation. ``held_gpu_ms`` is what it occupied, ``lost_gpu_ms`` the part of it that did
    not bring it forward: starting up again, work done twice, being stopped, and all of it where it ended preempted.
    ``spans`` are the attempts in their order; one that still runs is cut off at the end of the simulation.
    ``budget`` is the one that paid last; None for unallocated work without one.
    """

    submission: Submission
    budget: str | None
    pool: str
    end: End
    first_start: int | None
    ended: int | None
    attempts: int
    preemptions: int
    drains: int
    host_losses: int
    wait_ms: int
    held_gpu_ms: int
    lost_gpu_ms: int
    lane: bool
    reason: str = ""
    """Why it was refused or is held."""
    spans: tuple[Span, ...] = ()

    @property
    def id(self) -> str:
        """The workload's id."""
        return self.submission.spec.id

    @property
    def owner(self) -> str:
        """Who submitted it."""
        return self.submission.spec.owner

    @property
    def gpus(self) -> int:
        """All GPUs of the gang."""
        return self.submission.spec.gpus

    @property
    def allocated(self) -> bool:
        """Whether a budget funds it."""
        return self.submission.spec.min_runtime > 0

    @property
    def debug(self) -> bool:
        """Whether it may use the debug lane."""
        return self.submission.spec.debug

    @property
    def submitted(self) -> int:
        """When it came."""
        return self.submission.at

    @property
    def run_time(self) -> int:
        """How long it needs on its GPUs."""
        return self.submission.run_time

    def held_since(self, moment: int) -> int:
        """GPU-milliseconds that its attempts held from ``moment`` on."""
        return self.gpus * sum([span.ended - max(span.started, moment) for span in self.spans if span.ended > moment])

    def lost_since(self, moment: int) -> int:
        """The part of it that did not bring it forward, as what an attempt lost is what it did last."""
        later = [span for span in self.spans if span.ended > moment]
        return self.gpus * sum([min(span.lost, span.ended - max(span.started, moment)) for span in later])

    @property
    def first_wait(self) -> int | None:
        """From its submission to its first start; None if it never started."""
        return None if self.first_start is None else self.first_start - self.submission.at


class Preemption(NamedTuple):
    """An attempt was stopped for another workload: ordered at ``at``, and over when its GPUs were free.

    ``protected_until`` is when the victim's minimum runtime ended, ``allocated`` whether a budget funded the victim.
    ``lost_gpu_ms`` is what the victim's attempt held and will not have to show for it. A budget is None where there is
    none.
    """

    at: int
    victim: str
    attempt: int
    victim_budget: str | None
    allocated: bool
    gpus: int
    started: int
    protected_until: int
    lost_gpu_ms: int
    beneficiary: str
    beneficiary_budget: str | None


class PoolSample(NamedTuple):
    """One pool at one moment.

    The first five are GPUs at that moment: of all hosts; free on hosts that are not ready; held by funded and by other
    workloads; asked for by all that wait. The ``*_gpu_ms`` are sums since the start: capacity x time = allocated +
    unallocated + idle + unavailable, exactly. ``unmet_gpu_ms`` is the part of idle in which as many GPUs were waited
    for: fragmentation, reservations and the debug lane; the rest of idle is lack of demand.

    The tuples have an entry for each of ``Result.paths`` with what is charged to that budget itself (its descendants
    have their own entries), summed since the start: GPU-time of funded workloads, of other ones, and GPU-time for which
    funded workloads waited (GPUs asked for x time).
    """

    capacity: int
    unavailable: int
    allocated: int
    unallocated: int
    pending: int
    capacity_gpu_ms: int
    unavailable_gpu_ms: int
    allocated_gpu_ms: int
    unallocated_gpu_ms: int
    unmet_gpu_ms: int
    delivered: tuple[int, ...]
    delivered_unallocated: tuple[int, ...]
    waited: tuple[int, ...]

    @property
    def idle_gpu_ms(self) -> int:
        """GPU-time of ready hosts that nobody had."""
        return self.capacity_gpu_ms - self.unavailable_gpu_ms - self.allocated_gpu_ms - self.unallocated_gpu_ms


class Sample(NamedTuple):
    """All pools, in the order of ``Result.pools``, at one moment."""

    at: int
    pools: tuple[PoolSample, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason for which workloads were refused, and how many."""

    reason: str
    workloads: int


@dataclass(frozen=True, slots=True)
class Result:
    """A finished run.

    ``settings`` are the names and values of all that was chosen, for the report. ``start`` is the first submission,
    ``loaded_until`` the last one (what comes after is the tail, in which nothing new arrives), ``end`` the last event.
    The first sample is at ``start``, the last at ``end``; those between are ``sample_every`` apart. ``trees`` were in
    force one after the other, each from a moment on. Each of ``paths`` was that of a budget from its one of
    ``paths_since`` on; it may stand there once more, for another budget. ``rows`` are in the order of submission.
    ``events`` were handled by the scheduler, of them ``wakes`` because of time alone. ``host_failures`` counts what
    happened to hosts.
    """

    policy: str
    settings: tuple[tuple[str, str], ...]
    assumptions: tuple[str, ...]
    bad_rows: tuple[BadRow, ...]
    trees: tuple[tuple[int, Tree], ...]
    hosts: tuple[SimHost, ...]
    start: int
    loaded_until: int
    end: int
    pools: tuple[str, ...]
    paths: tuple[str, ...]
    paths_since: tuple[int, ...]
    sample_every: int
    samples: tuple[Sample, ...]
    rows: tuple[Row, ...]
    preemptions: tuple[Preemption, ...]
    refusals: tuple[Refusal, ...]
    host_failures: int
    events: int
    wakes: int
    seconds: float | None = None
    """How long the run took by the clock on the wall. Only there when it was asked for: it is not the same twice."""
    real: bool = False
    """Whether it is what really happened, as an event log tells, and no simulation."""

    @property
    def tree(self) -> Tree:
        """The tree in force at the end."""
        return self.trees[-1][1]

    def since(self, moment: int) -> Result:
        """The same run from the first sample at ``moment`` or later on; what was before is a warm-up.

        Those of the workloads that came before stay which had not ended by then.
        Raises InvalidInputError if nothing comes so late.
        """
        first = bisect_left(self.samples, moment, key=lambda sample: sample.at)
        if first >= len(self.samples) - 1 or self.samples[first].at > self.loaded_until:
            raise InvalidInputError(
                f"nothing comes after the warm-up: {about_duration(self.loaded_until - self.start)} from the first "
                "submission to the last",
                hint="make the warm-up shorter",
            )
        start = self.samples[first].at
        rows = tuple([row for row in self.rows if row.submitted >= start or row.ended is None or row.ended > start])
        refused = Counter(row.reason for row in rows if row.end is End.REFUSED and row.submitted >= start)
        return replace(
            self,
            start=start,
            samples=self.samples[first:],
            rows=rows,
            preemptions=tuple([one for one in self.preemptions if one.at >= start]),
            refusals=tuple([Refusal(reason, count) for reason, count in refused.most_common()]),
        )
