"""Run a command of the configuration with a time limit, and keep its last line.

Each runs in a session of its own, which is killed as a whole at the end of its time, when it ends, or when the agent
does; so a command that hangs, or leaves something behind, holds up nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpubudget.units import format_duration

_LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class Result:
    """Whether something is well, and what it says."""

    ok: bool
    message: str = ""


class Commands:
    """Runs commands, from any thread."""

    def __init__(self) -> None:
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, command: Sequence[str], timeout_ms: int, variables: Mapping[str, str]) -> Result:
        """Run it to its end: well if its exit code is 0 and it was in time."""
        with tempfile.TemporaryFile() as output:
            try:
                child = self._start(command, output.fileno(), variables)
            except (OSError, ValueError) as problem:
                return Result(ok=False, message=f"cannot run {command[0]}: {problem}")
            try:
                in_time = has_ended(child.pid, timeout_ms)
            finally:
                with self._lock:
                    self._running.discard(child.pid)
                    _kill_group(child.pid)  # before it is reaped, so that the number is still its own
                code = child.wait()
            output.seek(max(0, output.seek(0, os.SEEK_END) - 4 * _LONGEST_MESSAGE))
            lines = output.read().decode("utf-8", "replace").strip().splitlines()
        last = lines[-1][:_LONGEST_MESSAGE] if lines else ""
        if not in_time:
            return Result(ok=False, message=f"took longer than {format_duration(timeout_ms)}")
        return Result(ok=code == 0, message=last if code == 0 else f"exit code {code}" + (f": {last}" if last else ""))

    def _start(self, command: Sequence[str], output: int, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUBUDGET_")}
        with self._lock:
            if self._closed:
                raise OSError("the agent is ending")
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**kept, **variables}, start_new_session=True,
            )  # fmt: skip
            self._running.add(child.pid)
        return child

    def close(self) -> None:
        """Kill what runs and start nothing more."""
        with self._lock:
            self._closed = True
            for pid in self._running:
                _kill_group(pid)


def has_ended(pid: int, timeout_ms: int) -> bool:
    """Whether a child ends in this time; it is not reaped."""
    handle = os.pidfd_open(pid)
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(timeout_ms))
    finally:
        os.close(handle)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
