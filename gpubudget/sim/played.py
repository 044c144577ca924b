"""One workload while it is simulated: how far its work has come, and what interruptions have cost it.

Knows nothing of the scheduler; the engine tells it what became of it. Times in milliseconds, GPU-time in
GPU-milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from gpubudget.core.decisions import Placement
from gpubudget.core.workload import StopReason
from gpubudget.sim.meters import PoolMeter
from gpubudget.sim.result import End, Row, Span
from gpubudget.sim.submission import Ending, Submission
from gpubudget.units import MINUTE, SECOND, format_duration

# Looking an enum's member up in a set or a dict costs more than all comparisons, and these are done for every workload.
_FINISHED, _FAILED, _CANCELLED = StopReason.FINISHED, StopReason.FAILED, StopReason.CANCELLED


@dataclass(frozen=True, slots=True)
class Costs:
    """What it costs to stop and start again.

    Each start but the first takes ``start_up`` before work goes on (a trace's run time has the first one in it).
    ``stop_time`` passes from the order to stop until the GPUs are free. A resumable workload saves its work when it is
    told to stop; with ``checkpoint_every`` it saves every so often instead, and what is newer is done again.
    """

    start_up: int = 2 * MINUTE
    stop_time: int = 10 * SECOND
    checkpoint_every: int | None = None

    def sentences(self) -> tuple[str, ...]:
        """What is assumed, for the report."""
        saving = (
            "A resumable workload saves its work when it is told to stop"
            if self.checkpoint_every is None
            else f"A resumable workload saves its work every {format_duration(self.checkpoint_every)}, not when stopped"
        )
        return (
            f"A stop takes {format_duration(self.stop_time)}, another start {format_duration(self.start_up)} more.",
            f"{saving}; what was done since is done again after the loss of its host.",
            "A workload that is not resumable starts from the beginning after a drain or the loss of its host.",
        )


class Standing(Enum):
    """Where a workload stands."""

    WAITING = auto()
    RUNNING = auto()
    OVER = auto()


class Played:
    """A workload that has come and not ended. ``since`` is when it began to wait or, running, when it started.

    ``told`` is when it was told to stop, unless it ends by itself before that is done.
    """

    queued = False  # whether the meters know that it waits
    pool = ""  # where it ran last
    attempt = 0
    protected_until = 0
    exit_at = 0
    placement: Placement = ()
    preemptions = 0
    drains = 0
    host_losses = 0
    stopping = False
    lane = False
    told: int | None = None
    spans: tuple[Span, ...] = ()
    reason = ""

    def __init__(self, submission: Submission, number: int, home: PoolMeter, place: int) -> None:
        spec = submission.spec
        self.submission = submission
        self.number = number  # among all submissions
        self.home = self.meter = home  # where it waits; where it runs
        self.place = place  # of its budget in the meters
        self.gpus = spec.gpus
        self.allocated = spec.min_runtime > 0
        self.left = submission.run_time
        self.standing = Standing.WAITING
        self.since = submission.at

    def start(self, now: int, start_up: int) -> int:
        """It starts; when it will end by itself."""
        self.standing, self.since = Standing.RUNNING, now
        self.exit_at = now + self.left + (start_up if self.spans else 0)
        return self.exit_at

    def stop(self, now: int, stop_time: int) -> bool:
        """It is told to stop; whether that changes when it ends."""
        self.stopping = True
        if self.exit_at <= now + stop_time and self.submission.ending is not Ending.CANCELLED:
            return False
        self.told, self.exit_at = now, now + stop_time
        return True

    def end_attempt(self, reason: StopReason, now: int, costs: Costs) -> int:
        """Its attempt is over, and so is the workload unless it waits again. The GPU-time that was lost with it.

        What a workload did before it ended by itself or by its owner's will counts as done.
        """
        began = self.since + costs.start_up if self.spans else self.since
        done = min(self.left, max(0, (now if self.told is None else self.told) - began))
        willing = reason is _FINISHED or reason is _FAILED or reason is _CANCELLED
        kept = done if willing else self._saved(reason, done, costs)
        self.left = max(1, self.left - kept)
        lost = now - self.since - kept
        self.spans += (Span(self.since, now, lost),)
        self.standing, self.since, self.stopping, self.told = Standing.OVER, now, False, None
        return lost * self.gpus

    def _saved(self, reason: StopReason, done: int, costs: Costs) -> int:
        """How much of what was done is there for the next attempt."""
        self.preemptions += reason is StopReason.PREEMPTED
        self.drains += reason is StopReason.DRAINED
        self.host_losses += reason is StopReason.HOST_LOST
        if not self.submission.spec.resumable:
            return 0
        if costs.checkpoint_every is not None:
            return done - done % costs.checkpoint_every
        return 0 if reason is StopReason.HOST_LOST else done

    def row(self, end: End, now: int) -> Row:
        """What is left of it once it has ended, or when the simulation has."""
        if self.standing is Standing.RUNNING:
            self.spans += (Span(self.since, now, 0),)
        spans, submission = self.spans, self.submission
        held = lost = 0
        for started, ended, wasted in spans:
            held += ended - started
            lost += wasted
        return Row(
            submission,
            submission.spec.budget,
            self.pool or submission.spec.pools[0],
            end,
            spans[0].started if spans else None,
            None if end is End.WAITING or end is End.RUNNING else now,
            len(spans),
            self.preemptions,
            self.drains,
            self.host_losses,
            now - submission.at - held,
            held * self.gpus,
            lost * self.gpus,
            self.lane,
            self.reason,
            spans,
        )
