"""The process between the agent and one attempt: it starts the command, stops it, and knows when all of it is gone.

It is run as a file of its own (``python -I -S supervise.py FOLDER``), with the standard library only, so that it
starts in no time, stays small and outlives the agent. It knows nothing of the daemon. Its rules:

- Whoever creates ``claim.json`` first decides: the supervisor, which then starts the command, or the agent, after
  which the command is never started. So an attempt is started once at most, whenever either of them is killed.
- It adopts every descendant, also those that leave their group, and writes ``exit.json`` only when none is left.
- SIGTERM to it means: SIGTERM to the attempt's group, then SIGKILL to all descendants after the grace period that
  ``stop.json`` names. The grace period is kept even when the agent is gone meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

CLAIM, ATTEMPT, STOP, EXIT, LOG = "claim.json", "attempt.json", "stop.json", "exit.json", "output.log"
MARK = "GPUBUDGET_RECORD"
"""The environment variable by which processes of a dead supervisor are found; its value is the attempt's folder."""

LEFTOVER_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for what is left when the command itself has ended."""
NOT_FOUND, CANNOT_RUN = 127, 126
_PR_SET_CHILD_SUBREAPER = 36
_WATCHED = {signal.SIGTERM, signal.SIGCHLD}


class Process(NamedTuple):
    """What the kernel says of a process; ``ticks`` is its start, in clock ticks since the machine booted."""

    parent: int
    session: int
    ticks: int
    zombie: bool


def process(pid: int) -> Process | None:
    """The process with this number, or None."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in b"ZX")


def processes() -> dict[int, Process]:
    """All processes of the machine."""
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    found = {pid: process(pid) for pid in numbers}
    return {pid: seen for pid, seen in found.items() if seen}


def with_descendants(roots: set[int], seen: dict[int, Process]) -> set[int]:
    """These processes and all that descend from them."""
    children: dict[int, list[int]] = {}
    for pid, one in seen.items():
        children.setdefault(one.parent, []).append(pid)
    found, todo = set(roots), list(roots)
    while todo:
        new = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found.update(new)
        todo.extend(new)
    return found


def boot_id() -> str:
    """What names the time between two boots of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class DamagedRecordError(Exception):
    """A record that is there, but not as it was written."""


def read_json(folder: Path, name: str) -> Any:  # noqa: ANN401 - a record is any JSON
    """The content of a record, or None when it does not stand; a record is whole or absent."""
    try:
        return json.loads((folder / name).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DamagedRecordError(f"the record {folder / name} is damaged: {error}") from error


def write_json(folder: Path, name: str, value: object, *, only_new: bool = False) -> bool:
    """Write a record durably and as a whole; with ``only_new``, False if it stands already."""
    draft = folder / f".{name}.{os.getpid()}.{threading.get_ident()}"
    try:
        private = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(private, "w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        if not only_new:
            draft.replace(folder / name)
        else:
            os.link(draft, folder / name)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(folder)
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def claim(folder: Path, pid: int | None) -> bool:
    """Decide what becomes of the attempt: started by ``pid``, or by nobody; False when that is decided already."""
    started = process(pid) if pid else None
    said = {"pid": pid, "ticks": started.ticks if started else None, "boot_id": boot_id()}
    return write_json(folder, CLAIM, said, only_new=True)


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def outcome(code: int | None, *, signalled: bool, error: str = "") -> dict[str, object]:
    """The content of ``exit.json``."""
    return {"exit_code": code, "signalled": signalled, "error": error, "ended_ms": now_ms()}


class Supervisor:
    """One attempt, from its first process to its last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan = read_json(folder, ATTEMPT)
        self.main = 0
        self.code: int | None = None
        self.error = ""
        self.signalled = False
        self.kill_at: float | None = None
        self.pause = 0.01

    def run(self) -> None:
        """Start the command and stay until all of its processes are gone; then leave the outcome."""
        try:
            self.main, self.error = launch(self.plan, self.folder / LOG)
        except OSError as problem:
            self.code, self.error = CANNOT_RUN, f"cannot start a process: {problem.strerror}"
        while not self.all_gone():
            self.wait()
        write_json(self.folder, EXIT, outcome(self.code, signalled=self.signalled, error=self.error))

    def all_gone(self) -> bool:
        """Take note of the processes that ended; True when none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.main:
                ended = os.waitstatus_to_exitcode(status)
                self.code = ended if ended >= 0 else 128 - ended
                self.kill_by(LEFTOVER_GRACE)
                signal_all(signal.SIGTERM)

    def wait(self) -> None:
        """Sleep until something ends, a stop is asked for, or the grace period is over."""
        timeout = 3600.0 if self.kill_at is None else self.kill_at - time.monotonic()
        if timeout <= 0:
            signal_all(signal.SIGKILL)
            timeout = self.pause = min(self.pause * 2, 1.0)
        said = signal.sigtimedwait(_WATCHED, timeout)
        if said and said.si_signo == signal.SIGTERM:
            self.stop()

    def stop(self) -> None:
        """Ask the group to end, once; a later call can only shorten the grace period."""
        grace: int = (read_json(self.folder, STOP) or self.plan)["grace_ms"]
        self.kill_by(grace / 1000)
        if self.code is None and not self.signalled:
            self.signalled = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.main, signal.SIGTERM)
                os.killpg(self.main, signal.SIGCONT)  # one that is suspended could not answer

    def kill_by(self, seconds: float) -> None:
        """SIGKILL follows after so many seconds, or earlier if that was decided before."""
        at = time.monotonic() + seconds
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)


def signal_all(number: signal.Signals) -> None:
    """Signal every descendant of this process; they are all its own to signal, so no number can be a stranger's."""
    for pid in with_descendants({os.getpid()}, processes()) - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def launch(plan: dict[str, Any], log: Path) -> tuple[int, str]:
    """Start the command in a group of its own: its process number, and what kept it from running, if anything did."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    reading, writing = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        code, error = become(plan, output)
        os.write(writing, error.encode("utf-8", "replace"))
        os._exit(code)
    os.close(output)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        return pid, said.read().decode("utf-8")


def become(plan: dict[str, Any], output: int) -> tuple[int, str]:
    """Turn this process into the command; returns only if that fails: an exit code and the reason."""
    code, doing = CANNOT_RUN, "cannot prepare the process"
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if user := plan["user"]:
            doing = f"cannot run as user {user['name']}"
            os.setgroups(user["groups"])
            os.setgid(user["gid"])
            os.setuid(user["uid"])
        os.umask(0o022)
        doing = f"cannot enter the folder {plan['cwd']}"
        os.chdir(plan["cwd"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        code, doing = NOT_FOUND, f"cannot run {plan['command'][0]}"
        os.execvpe(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - no shell is wanted
    except FileNotFoundError:
        return code, f"{doing}: it does not exist"
    except OSError as problem:
        return CANNOT_RUN, f"{doing}: {problem.strerror}"
    except ValueError as problem:  # a null byte in a text
        return CANNOT_RUN, f"{doing}: {problem}"


def main(folder: Path) -> None:
    """Supervise the attempt whose record is in ``folder``, unless it was decided that it never starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if claim(folder, os.getpid()):
        Supervisor(folder).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # there is nothing to tidy up, and somebody waits for the end
