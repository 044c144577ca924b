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

_BY_ITSELF = frozenset({StopReason.FINISHED, StopReason.FAILED})


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
            "a resumable workload saves its work when it is told to stop"
            if self.checkpoint_every is None
            else f"a resumable workload saves its work every {format_duration(self.checkpoint_every)}, not when stopped"
        )
        return (
            f"to stop takes {format_duration(self.stop_time)}; to start again {format_duration(self.start_up)} more",
            f"{saving}; what its host's loss takes away since the last time is done again",
            "a workload that is not resumable starts from the beginning after a drain or the loss of its host",
        )


class Standing(Enum):
    """Where a workload stands."""

    WAITING = auto()
    RUNNING = auto()
    OVER = auto()


class Played:
    """A workload that has come and not ended. ``since`` is when it began to wait or, running, when it started."""

    __slots__ = (
        "allocated",
        "attempt",
        "attempts",
        "drains",
        "exit_at",
        "first_start",
        "gpus",
        "held_gpu_ms",
        "home",
        "host_losses",
        "lane",
        "left",
        "lost_gpu_ms",
        "meter",
        "number",
        "place",
        "placement",
        "pool",
        "preemptions",
        "protected_until",
        "reason",
        "since",
        "spans",
        "standing",
        "stopping",
        "submission",
        "told",
        "wait_ms",
    )

    def __init__(self, submission: Submission, number: int, home: PoolMeter, place: int) -> None:
        self.submission = submission
        self.number = number  # among all submissions
        self.home = self.meter = home  # where it waits; where it runs
        self.place = place  # of its budget in the meters
        self.gpus = submission.spec.gpus
        self.allocated = submission.spec.min_runtime > 0
        self.left = submission.run_time
        self.standing = Standing.WAITING
        self.since = submission.at
        self.pool = submission.spec.pools[0]
        self.attempt = self.attempts = self.preemptions = self.drains = self.host_losses = 0
        self.wait_ms = self.held_gpu_ms = self.lost_gpu_ms = 0
        self.first_start: int | None = None
        self.placement: Placement = ()
        self.spans: list[Span] = []
        self.protected_until = self.exit_at = 0
        self.stopping = self.lane = False
        self.told: int | None = None  # when it was told to stop, unless it ends by itself before that is done
        self.reason = ""

    def start(self, now: int, start_up: int) -> int:
        """It starts; when it will end by itself."""
        self.wait_ms += now - self.since
        if self.first_start is None:
            self.first_start = now
        self.standing, self.since = Standing.RUNNING, now
        self.attempts += 1
        self.exit_at = now + self.left + (start_up if self.attempts > 1 else 0)
        return self.exit_at

    def stop(self, now: int, stop_time: int) -> bool:
        """It is told to stop; whether that changes when it ends."""
        self.stopping = True
        if self.exit_at <= now + stop_time and self.submission.ending is not Ending.CANCELLED:
            return False
        self.told, self.exit_at = now, now + stop_time
        return True

    def withdraw(self, now: int) -> None:
        """It will not start any more."""
        self.wait_ms += now - self.since
        self.standing, self.since = Standing.OVER, now

    def end_attempt(self, reason: StopReason, now: int, costs: Costs) -> int:
        """Its attempt is over, and so is the workload unless it waits again. The GPU-time that was lost with it.

        What a workload did before it ended by itself or by its owner's will counts as done.
        """
        held = self.gpus * (now - self.since)
        until = now if self.told is None else self.told
        setup = costs.start_up if self.attempts > 1 else 0
        done = min(self.left, max(0, until - self.since - setup))
        if reason in _BY_ITSELF or reason is StopReason.CANCELLED:
            kept = done
        elif not self.submission.spec.resumable:
            kept = 0
        elif costs.checkpoint_every is not None:
            kept = done - done % costs.checkpoint_every
        else:
            kept = 0 if reason is StopReason.HOST_LOST else done
        self.left = max(1, self.left - kept)
        lost = held - self.gpus * kept
        self.spans.append(Span(self.since, now, now - self.since - kept))
        self.held_gpu_ms += held
        self.lost_gpu_ms += lost
        self.preemptions += reason is StopReason.PREEMPTED
        self.drains += reason is StopReason.DRAINED
        self.host_losses += reason is StopReason.HOST_LOST
        self.standing, self.since, self.stopping, self.told = Standing.OVER, now, False, None
        return lost

    def row(self, end: End, now: int) -> Row:
        """What is left of it once it has ended, or when the simulation has."""
        open_ended = end in {End.WAITING, End.RUNNING}
        running = self.gpus * (now - self.since) if self.standing is Standing.RUNNING else 0
        if self.standing is Standing.RUNNING:
            self.spans.append(Span(self.since, now, 0))
        return Row(
            self.submission,
            self.submission.spec.budget,
            self.pool,
            end,
            self.first_start,
            None if open_ended else now,
            self.attempts,
            self.preemptions,
            self.drains,
            self.host_losses,
            self.wait_ms + (now - self.since if self.standing is Standing.WAITING else 0),
            self.held_gpu_ms + running,
            self.lost_gpu_ms,
            self.lane,
            self.reason,
            tuple(self.spans),
        )
