"""One workload while it is simulated: how far its work has come, and what interruptions have cost it.

Knows nothing of the scheduler; the engine tells it what became of it. Times in milliseconds, GPU-time in
GPU-milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from gpubudget.core.decisions import Placement
from gpubudget.core.workload import StopReason
from gpubudget.sim.meters import PoolMeter
from gpubudget.sim.result import End, Row, Span
from gpubudget.sim.submission import Ending, Submission
from gpubudget.units import MINUTE, SECOND, format_duration

# Looked up once, and compared one by one: all else takes longer, and this is done for every workload.
_FINISHED: Final = StopReason.FINISHED
_FAILED: Final = StopReason.FAILED
_CANCELLED: Final = StopReason.CANCELLED
_ENDS_CANCELLED: Final = Ending.CANCELLED
_WAITS: Final = End.WAITING
_RUNS: Final = End.RUNNING

_made: Final = tuple.__new__  # makes a named tuple from a plain one in half the time that its own constructor takes


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


_WAITING: Final = Standing.WAITING
_RUNNING: Final = Standing.RUNNING
_OVER: Final = Standing.OVER


class Played:
    """A workload that has come and not ended. ``since`` is when it began to wait or, running, when it started.

    ``told`` is when it was told to stop, unless it ends by itself before that is done.
    """

    def __init__(self, submission: Submission, number: int, home: PoolMeter, place: int) -> None:
        spec = submission.spec
        self.submission = submission
        self.number = number  # among all submissions
        self.id, self.budget, self.ending = spec.id, spec.budget, submission.ending
        self.home = self.meter = home  # where it waits; where it runs
        self.place = place  # of its budget in the meters
        self.gpus = spec.gpus
        self.allocated = spec.min_runtime > 0
        self.queued = False  # whether the meters know that it waits
        self.standing = _WAITING
        self.since = submission.at
        self.left = submission.run_time
        self.pool = ""  # where it ran last
        self.placement: Placement = ()
        self.attempt = self.protected_until = self.exit_at = 0
        self.stopping = self.lane = False
        self.told: int | None = None
        self.preemptions = self.drains = self.host_losses = 0
        self.held = self.lost = 0  # milliseconds of all attempts that are over
        self.spans: tuple[Span, ...] = ()
        self.reason = ""
        self.end = _WAITS

    def start(self, now: int, start_up: int) -> int:
        """It starts; when it will end by itself."""
        self.standing, self.since = _RUNNING, now
        self.exit_at = now + self.left + (start_up if self.spans else 0)
        return self.exit_at

    def stop(self, now: int, stop_time: int) -> bool:
        """It is told to stop; whether that changes when it ends."""
        self.stopping = True
        if self.exit_at <= now + stop_time and self.ending is not _ENDS_CANCELLED:
            return False
        self.told, self.exit_at = now, now + stop_time
        return True

    def end_attempt(self, reason: StopReason, now: int, costs: Costs) -> int:
        """Its attempt is over, and so is the workload unless it waits again. The GPU-time that was lost with it."""
        held = now - self.since
        by_itself = self.told is None and (reason is _FINISHED or reason is _FAILED)
        kept = self.left if by_itself and now == self.exit_at else self._kept(reason, now, costs)
        lost = held - kept
        self.spans += (_made(Span, (self.since, now, lost)),)
        self.held += held
        self.lost += lost
        self.left = max(1, self.left - kept)
        self.standing, self.since, self.stopping, self.told = _OVER, now, False, None
        return lost * self.gpus

    def _kept(self, reason: StopReason, now: int, costs: Costs) -> int:
        """How much of what it had to do an attempt has done that ends before all of it is.

        What a workload did before it ended by itself or by its owner's will counts as done.
        """
        began = self.since + costs.start_up if self.spans else self.since
        done = min(self.left, max(0, (now if self.told is None else self.told) - began))
        willing = reason is _FINISHED or reason is _FAILED or reason is _CANCELLED
        return done if willing else self._saved(reason, done, costs)

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
        spans, held, submission = self.spans, self.held, self.submission
        if self.standing is _RUNNING:
            spans += (Span(self.since, now, 0),)
            held += now - self.since
        row = (
            submission,
            self.budget,
            self.pool or submission.spec.pools[0],
            end,
            spans[0].started if spans else None,
            None if end is _WAITS or end is _RUNS else now,
            len(spans),
            self.preemptions,
            self.drains,
            self.host_losses,
            now - submission.at - held,
            held * self.gpus,
            self.lost * self.gpus,
            self.lane,
            self.reason,
            spans,
        )
        return _made(Row, row)
