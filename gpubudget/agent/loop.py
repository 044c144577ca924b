"""The agent's loop: report what is, be told what should be, make it so.

It is level-triggered: each report is complete, each answer too, and nothing depends on what was said before. When the
daemon is away, everything goes on as it is and is reported when the daemon is back. One thread does all of it; others
only wait for something (an answer, a check, a repair step) and wake it. A process that ends wakes it as well.
"""

from __future__ import annotations

import contextlib
import logging
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gpubudget.agent.channel import Channel, Failure
from gpubudget.agent.commands import Commands
from gpubudget.agent.config import Config
from gpubudget.agent.gpus import Gpus
from gpubudget.agent.health import Monitor, probes
from gpubudget.agent.process import Attempts
from gpubudget.agent.records import StateFolder
from gpubudget.agent.repair import Repairer
from gpubudget.agent.supervise import boot_id, now_ms
from gpubudget.agent.wire import Answer
from gpubudget.units import SECOND

logger = logging.getLogger(__name__)

LIMIT_LAG = 10 * SECOND
"""How long after an attempt's time is up the agent waits for the daemon to stop it before it does so by itself."""
FIRST_RETRY, LAST_RETRY = 0.25, 10.0
"""Seconds until a failed report is tried again, doubled each time up to the last."""
SHORTEST_GAP = 0.05
CLEAN_EVERY = 600.0
FIRST_CHECKS = 10.0
MOST_CHUNKS = 64
LAST_WORD = 2.0
"""Seconds in which the daemon may still hear, at the very end, that all workloads have stopped."""
CLEARING = 0.05
"""Seconds between two looks at processes that were killed and have not gone yet."""


class Pace:
    """When to report next, and how long the daemon may hold its answer. Milliseconds in, seconds out."""

    def __init__(self, interval: int) -> None:
        self._interval = self._wait = interval
        self._next = 0.0  # not before this moment
        self._failures = 0
        self._idle = 0  # answers in a row that came early and said nothing new
        self._due_back = 0.0
        self.holding = False

    def rest(self, *, urgent: bool) -> float:
        """Seconds until the next report may go out; what is urgent waits only for a daemon that is away."""
        return 0.0 if urgent and not self._failures else max(0.0, self._next - time.monotonic())

    def sent(self, *, urgent: bool) -> int:
        """A report goes out: for how long its answer may be held."""
        self.holding = not urgent and not self._failures
        self._due_back = time.monotonic() + self._wait / 2000
        return self._wait if self.holding else 0

    def failed(self) -> float:
        """No answer: seconds until the next try."""
        seconds: float = min(FIRST_RETRY * 2 ** min(self._failures, 20), LAST_RETRY)
        self._failures += 1
        self._next = time.monotonic() + seconds
        return seconds

    def answered(self, poll_ms: int, *, productive: bool) -> None:
        """An answer came. A daemon that does not hold its answers is asked less and less often, up to ``poll_ms``."""
        now = time.monotonic()
        self._idle = self._idle + 1 if self.holding and not productive and now < self._due_back else 0
        self._wait = max(0, min(self._interval, poll_ms))
        gap = min(SHORTEST_GAP * 2 ** min(self._idle, 20), poll_ms / 1000) if self._idle else 0.0
        self._failures, self._next = 0, now + gap


@dataclass(frozen=True, slots=True)
class Settings:
    """Who this agent is and whom it reports to. ``interval``: milliseconds between reports when nothing happens."""

    url: str
    host: str
    pool: str
    interval: int = 5 * SECOND
    stop_workloads: bool = False
    run_as_root: bool = False  # what has no user of its own on this host, if the agent is root


class Agent:
    """One host's agent, from its first report to its last."""

    def __init__(
        self, settings: Settings, config: Config, state: StateFolder, gpus: Gpus, token: Callable[[], str]
    ) -> None:
        self._settings, self._config, self._state = settings, config, state
        self._bell, self._ear = socket.socketpair()
        for end in (self._bell, self._ear):
            end.setblocking(False)  # noqa: FBT003 - it is what the call takes
        self._urgent = True  # there is something new to say
        self._leaving = 0  # how often it was asked to end
        self._commands = Commands()
        self._models = gpus.models()
        self._attempts = Attempts(state, run_as_root=settings.run_as_root)
        self._monitor = Monitor(probes(config, gpus, state.path, self._commands, settings.interval), self._tell)
        self._repairer = Repairer(
            config.repair, {"host": settings.host, "pool": settings.pool}, state.path, gpus, self._monitor,
            self._commands, self._tell,
        )  # fmt: skip
        self._channel = Channel(settings.url, settings.host, token, self._wake)
        self._pace = Pace(settings.interval)
        self._chunks: list[dict[str, object]] = []
        self._chunks_sent = 0
        self._heard = False  # the daemon has answered once
        self._clean_at = 0.0

    def run(self) -> None:
        """Work until SIGTERM or SIGINT; raises what the daemon says if it refuses the very first report."""
        with self._signals(), contextlib.closing(self._monitor), contextlib.closing(self._commands):
            self._monitor.wait_first(FIRST_CHECKS)
            while not self._leaving:
                self._step()
            if self._settings.stop_workloads:
                self._stop_all()
        self._bell.close()
        self._ear.close()

    def _step(self) -> None:
        """Say what is new, wait until something happens, and take it in."""
        self._report_if_due()
        self._sleep()
        self._attempts.refresh()
        self._attempts.stop_overdue(now_ms() - LIMIT_LAG)
        came = self._channel.take()
        if isinstance(came, Failure):
            self._failed(came)
        elif came:
            self._answered(came)
        if self._attempts.news:
            self._attempts.news, self._urgent = False, True
        self._clean_if_due()

    # What wakes it

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is awake already if the bell is full, and gone if it is closed
            self._bell.send(b"!")

    def _tell(self) -> None:
        self._urgent = True
        self._wake()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the loop, and wake it for that."""

        def leave(_number: int, _frame: object) -> None:
            self._leaving += 1

        before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
        woke = signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woke)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _sleep(self) -> None:
        """Wait until a process ends, somebody rings, or it is time for something."""
        waiting = select.poll()
        waiting.register(self._ear, select.POLLIN)
        seconds = 1.0
        for attempt in self._attempts.running():
            if attempt.lost:
                seconds = CLEARING
            elif attempt.handle >= 0:
                waiting.register(attempt.handle, select.POLLIN)
        if not self._channel.waiting:
            seconds = min(seconds, self._pace.rest(urgent=self._urgent))
        waiting.poll(seconds * 1000)
        with contextlib.suppress(BlockingIOError):
            while self._ear.recv(1024):
                pass

    # Reports and answers

    def _report_if_due(self) -> None:
        pace = self._pace
        if self._channel.waiting and not (self._urgent and pace.holding):
            return
        if pace.rest(urgent=self._urgent) > 0:
            return
        wait_ms = pace.sent(urgent=self._urgent)
        self._urgent = False  # before the report is made: what comes later has to be said later
        self._channel.post(self._report(), wait_ms)

    def _report(self) -> dict[str, Any]:
        """All that is."""
        self._chunks_sent = len(self._chunks)
        return {
            "pool": self._settings.pool,
            "gpus": len(self._models),
            "gpu_models": list(self._models),
            "boot_id": boot_id(),
            "agent_id": self._state.agent_id,
            "attempts": self._attempts.reports(),
            "health": self._monitor.results(),
            "repair": self._repairer.report(),
            "checkpoints": self._attempts.checkpoints(),
            "chunks": list(self._chunks),
        }

    def _failed(self, failure: Failure) -> None:
        if failure.refused and not self._heard:
            raise failure.error
        seconds = self._pace.failed()
        logger.warning("%s; trying again in %.1f s", failure.error, seconds)

    def _answered(self, answer: Answer) -> None:
        if not self._heard:
            logger.info("the daemon at %s answers", self._settings.url)
        self._heard = True
        del self._chunks[: self._chunks_sent]
        self._make_so(answer)
        self._pace.answered(answer.poll_ms, productive=self._attempts.news or bool(self._chunks))

    def _make_so(self, answer: Answer) -> None:
        """Stop, start and forget attempts, begin a repair, read logs."""
        attempts = self._attempts
        for stop in answer.stop:
            attempts.stop(stop)
        attempts.stop_stale({order.key for order in (*answer.run, *answer.stop)})
        for ref in answer.forget:
            attempts.forget(ref)
        for order in answer.run:
            if not self._leaving:
                attempts.start(order)
        if answer.repair and not attempts.running():
            self._repairer.begin(answer.repair.token)
        for tail in answer.tails[:MOST_CHUNKS]:
            self._chunks.append(attempts.chunk(tail))
        self._urgent |= bool(self._chunks)

    # The end

    def _stop_all(self) -> None:
        """Stop what runs and, while that takes, go on reporting; asked to end again, leave at once."""
        self._attempts.stop_stale(set())
        while self._attempts.running() and self._leaving == 1:
            self._step()
        self._urgent = True
        until = time.monotonic() + LAST_WORD
        while (self._urgent or self._channel.waiting) and time.monotonic() < until and self._leaving == 1:
            self._step()

    def _clean_if_due(self) -> None:
        if time.monotonic() >= self._clean_at:
            self._clean_at = time.monotonic() + CLEAN_EVERY
            self._state.clean(self._config.keep_logs, self._config.keep_logs_mb * 1_000_000)
            self._attempts.forget_dropped()
