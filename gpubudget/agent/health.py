"""Health checks: each in a thread of its own, so that one that hangs holds up nothing.

It knows what is checked and how often, and nothing of what follows from it. A check that does not answer in its time
is a check that fails. One that has not yet answered for the first time says nothing.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpubudget.agent.commands import Commands, Result
from gpubudget.agent.config import Config
from gpubudget.agent.gpus import Gpus
from gpubudget.agent.wire import sayable
from gpubudget.units import MINUTE, SECOND, about_duration

SLACK = 5 * SECOND
"""How much longer than its limit a check may take until it counts as one that hangs."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to check. Times in milliseconds; it fails when it has failed ``failures`` times in a row."""

    name: str
    run: Callable[[], Result]
    every: int
    limit: int
    failures: int = 1


def probes(config: Config, gpus: Gpus, folder: Path, commands: Commands, interval: int) -> list[Probe]:
    """The checks that are built in, run at every ``interval``, and those of the configuration."""
    built_in = [
        Probe("gpus", partial(_gpus, gpus), interval, MINUTE),
        Probe("disk", partial(_disk, folder, config.min_free_mb), interval, MINUTE),
    ]
    own = [
        Probe(one.name, partial(commands.run, one.command, one.timeout, {}), one.every, one.timeout, one.failures)
        for one in config.checks
    ]
    return built_in + own


def _gpus(gpus: Gpus) -> Result:
    faults = gpus.faults()
    return Result(not faults, "; ".join(faults) if faults else f"{len(gpus.models())} GPUs")


def _disk(folder: Path, least_mb: int) -> Result:
    free = shutil.disk_usage(folder).free // 1_000_000
    return Result(free >= least_mb, f"{free} MB are free in {folder}" + (f", under {least_mb}" * (free < least_mb)))


class Watch:
    """The thread of one check, and what the check last said."""

    def __init__(self, probe: Probe, changed: Callable[[], None]) -> None:
        self.probe = probe
        self.latest: Result | None = None
        self.paused = False
        self._changed = changed
        self._failed = 0  # in a row
        self._runs = 0
        self._began: float | None = None
        self._turn = threading.Condition()
        self._asked = True
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"check {probe.name}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._asked or self._closed, self.probe.every / 1000)
                if self._closed:
                    return
                if self.paused and not self._asked:
                    continue
                self._asked, self._began = False, time.monotonic()
            try:
                result = self.probe.run()
            except Exception as problem:  # noqa: BLE001 - whatever goes wrong in a check is the check's failure
                result = Result(ok=False, message=f"the check itself failed: {problem}")
            self._note(result)

    def _note(self, result: Result) -> None:
        with self._turn:
            before = self.verdict()
            self.latest = result
            self._failed = 0 if result.ok else self._failed + 1
            self._runs, self._began = self._runs + 1, None
            now = self.verdict()
            self._turn.notify_all()
        if before is None or now is None or before.ok != now.ok:
            self._changed()

    def verdict(self) -> Result | None:
        """What counts now: None until the check has answered for the first time."""
        if self._began is not None:
            waited = int((time.monotonic() - self._began) * 1000)
            if waited > self.probe.limit + SLACK:
                return Result(ok=False, message=f"has not answered for {about_duration(waited)}")
        if self.latest is None or self.latest.ok or self._failed >= self.probe.failures:
            return self.latest
        return Result(ok=True, message=f"failed {self._failed} of {self.probe.failures} times: {self.latest.message}")

    def check_now(self) -> Result:
        """Run the check once more and say how that went, whatever it said before."""
        with self._turn:
            runs = self._runs + (self._began is not None)  # a run that has begun does not count
            self._asked = True
            self._turn.notify_all()
            longest = (2 * self.probe.limit + SLACK) / 1000  # one that has begun may have to end first
            if self._turn.wait_for(lambda: self._runs > runs or self._closed, longest):
                return self.latest or Result(ok=False, message="it was not run")
        return Result(ok=False, message="it does not answer")

    def wait_first(self, seconds: float) -> None:
        """Wait until the check has answered once, but not longer than this."""
        with self._turn:
            self._turn.wait_for(lambda: self._runs > 0, seconds)

    def close(self) -> None:
        """End the thread, as soon as the check lets it."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()


class Monitor:
    """All checks of a host; ``changed`` is called, in their threads, when one begins to fail or to succeed."""

    def __init__(self, wanted: Iterable[Probe], changed: Callable[[], None]) -> None:
        self._watches = [Watch(probe, changed) for probe in wanted]

    def results(self) -> list[dict[str, object]]:
        """What the daemon is told: name, ok and message of each check that has answered."""
        found = [(watch.probe.name, watch.verdict()) for watch in self._watches]
        return [{"name": name, "ok": said.ok, "message": sayable(said.message)} for name, said in found if said]

    def failing(self) -> list[dict[str, object]]:
        """Those that fail."""
        return [said for said in self.results() if not said["ok"]]

    def pause(self, *, paused: bool) -> None:
        """Run no check by itself for a while, or again."""
        for watch in self._watches:
            watch.paused = paused

    def check_all(self) -> list[str]:
        """Run all once more: one sentence for each that is not well at the first attempt."""
        found = [(watch.probe.name, watch.check_now()) for watch in self._watches]
        return [f"{name}: {said.message}" for name, said in found if not said.ok]

    def wait_first(self, seconds: float) -> None:
        """Wait until every check has answered once, but not longer than this in all."""
        until = time.monotonic() + seconds
        for watch in self._watches:
            watch.wait_first(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """End all threads."""
        for watch in self._watches:
            watch.close()
