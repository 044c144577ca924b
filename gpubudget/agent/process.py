"""The attempts on this host: started, adopted, stopped and reported, each under a supervisor of its own.

It knows nothing of the daemon or of schedules: it is told what to start and stop, and says what is. Its rules:

- An attempt is on record, durably, before anything of it starts; what is on record is never started again.
- A process is known by its number and its start; a number that was given to somebody else is never signalled.
- An attempt counts as running until no process of it is left.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubudget.agent import supervise
from gpubudget.agent.environment import environment, user_of
from gpubudget.agent.leftovers import kill_marked
from gpubudget.agent.records import StateFolder, is_forgotten
from gpubudget.agent.supervise import ATTEMPT, CLAIM, EXIT, LOG, STOP, boot_id, outcome, read_json, write_json
from gpubudget.agent.wire import TAIL_LIMIT, Key, Ref, Run, Stop, Tail, sayable
from gpubudget.errors import RefusedError

logger = logging.getLogger(__name__)

CHECKPOINTED = ".checkpointed"


@dataclass(slots=True)
class Attempt:
    """One attempt on record. It has ended when ``exit`` is set, and ``lost`` when only its supervisor has."""

    key: Key
    folder: Path
    plan: dict[str, Any]
    exit: dict[str, Any] | None = None
    forgotten: bool = False
    lost: bool = False
    child: subprocess.Popen[bytes] | None = None
    handle: int = -1  # a pidfd of the supervisor
    session: int = 0  # that the supervisor leads; set only while its number cannot be somebody else's
    grace_told: int | None = None

    @property
    def running(self) -> bool:
        """Whether a process of it may still be there."""
        return self.exit is None

    def report(self) -> dict[str, object]:
        """What the daemon is told."""
        said: dict[str, object] = {**self.key._asdict(), "started_ms": self.plan["started_ms"]}
        if self.exit is None:
            return {**said, "state": "running", "exit_code": None, "signalled": self.grace_told is not None}
        state = "exited" if self.plan["command"] else "unknown"
        error = {"error": sayable(self.exit["error"])} if self.exit["error"] else {}
        return {**said, "state": state, **{k: self.exit[k] for k in ("exit_code", "signalled")}, **error}


class Attempts:
    """All attempts on record, by key."""

    def __init__(self, state: StateFolder, *, run_as_root: bool) -> None:
        self._state = state
        self._run_as_root = run_as_root
        self._known: dict[Key, Attempt] = {}
        self.news = False  # an attempt has started or ended since this was last set back
        for folder in state.recorded():
            plan = read_json(folder, ATTEMPT)
            key = Key(plan["workload"], plan["attempt"])
            self._known[key] = attempt = Attempt(key, folder, plan, forgotten=is_forgotten(folder))
            self._adopt(attempt)

    def start(self, order: Run) -> None:
        """Start an attempt, unless it was started or refused before."""
        if known := self._known.get(order.key):
            self._remind(known)
            return
        self.news = True
        attempt = self._record(order)
        if attempt.exit is None:
            self._spawn(attempt)

    def stop(self, order: Stop) -> None:
        """Ask an attempt to end; one that was never here never will be."""
        attempt = self._known.get(order.key)
        if attempt is None:
            self._record_unknown(order)
        elif attempt.exit is not None:
            self._remind(attempt)
        else:
            self._stop(attempt, order.grace_ms)

    def stop_stale(self, wanted: set[Key]) -> None:
        """Stop what runs here and is not wanted, with the grace period it was started with."""
        for attempt in self._known.values():
            if attempt.running and attempt.key not in wanted:
                self._stop(attempt, attempt.plan["grace_ms"])

    def stop_overdue(self, now: int) -> None:
        """Stop what is past its time (``now`` in milliseconds)."""
        for attempt in self.running():
            ends_by = attempt.plan["ends_by_ms"]
            if ends_by is not None and ends_by <= now:
                self._stop(attempt, attempt.plan["grace_ms"])

    def forget(self, order: Ref) -> None:
        """The daemon has recorded the end of an attempt."""
        attempt = self._known.get(order.key)
        if attempt and not attempt.running and not attempt.forgotten:
            attempt.forgotten = True
            with contextlib.suppress(OSError):
                self._state.mark_forgotten(attempt.folder)

    def _remind(self, attempt: Attempt) -> None:
        """The daemon asks for something that has ended and was forgotten: it has to be told again."""
        self.news |= attempt.forgotten
        attempt.forgotten = False

    def running(self) -> list[Attempt]:
        """The attempts that have processes."""
        return [attempt for attempt in self._known.values() if attempt.running]

    def reports(self) -> list[dict[str, object]]:
        """What the daemon is told of each attempt that it has not recorded the end of."""
        return [attempt.report() for attempt in self._known.values() if not attempt.forgotten]

    def checkpoints(self) -> list[dict[str, object]]:
        """When each running attempt last said that it has saved its work."""
        found: list[dict[str, object]] = []
        for attempt in self.running():
            with contextlib.suppress(OSError):
                said = os.lstat(self._state.checkpoint(attempt.key.workload) / CHECKPOINTED)
                at = said.st_mtime_ns // 1_000_000
                if at >= attempt.plan["started_ms"]:
                    found.append({**attempt.key._asdict(), "at_ms": at})
        return found

    def chunk(self, order: Tail) -> dict[str, object]:
        """A piece of an attempt's log; ``end`` when there will be no more."""
        attempt, data, size = self._known.get(order.key), b"", 0
        offset = max(order.offset, 0)
        over = attempt is None or not attempt.running  # decided before reading: what came last is not missed
        with contextlib.suppress(OSError), (self._state.attempt(order.key) / LOG).open("rb") as log:
            size = os.fstat(log.fileno()).st_size
            log.seek(offset)
            data = log.read(max(0, min(order.limit, TAIL_LIMIT)))
        following = offset + len(data)
        text = base64.b64encode(data).decode("ascii")
        return {"request": order.request, "data_b64": text, "next_offset": following, "end": over and following >= size}

    def forget_dropped(self) -> None:
        """Let go of attempts whose folders were cleaned away."""
        for key in [key for key, one in self._known.items() if one.forgotten and not one.folder.is_dir()]:
            del self._known[key]

    def refresh(self) -> None:
        """See which attempts have ended."""
        for attempt in self.running():
            self._refresh(attempt)

    # One attempt's way

    def _record(self, order: Run) -> Attempt:
        """Put an attempt on record, so that from now on it is known."""
        record, checkpoints = self._state.attempt(order.key), self._state.checkpoint(order.workload)
        plan: dict[str, Any] = {
            "workload": order.workload, "attempt": order.attempt, "command": list(order.command),
            "grace_ms": order.grace_ms, "ends_by_ms": order.ends_by_ms, "started_ms": supervise.now_ms(),
            "user": None, "environment": {}, "cwd": order.cwd or str(checkpoints),
        }  # fmt: skip
        attempt, error = Attempt(order.key, record, plan), ""
        self._known[order.key] = attempt
        try:
            plan["user"] = user_of(order.owner, run_as_root=self._run_as_root)
            plan["environment"] = environment(order, plan["user"], checkpoints, record, os.environ)
            self._make_checkpoints(checkpoints, plan["user"])
        except RefusedError as refusal:
            error = str(refusal)
        except OSError as problem:
            error = f"the checkpoint folder {checkpoints} cannot be made: {problem.strerror}"
        try:
            record.mkdir(mode=0o700)
            write_json(record, ATTEMPT, plan)
            supervise.sync_folder(record.parent)
        except OSError as problem:
            error = f"the attempt cannot be put on record in {record}: {problem.strerror}"
        if error:
            self._refuse(attempt, error)
        return attempt

    @staticmethod
    def _make_checkpoints(folder: Path, user: dict[str, Any] | None) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        if user and os.lstat(folder).st_uid != user["uid"]:
            os.chown(folder, user["uid"], user["gid"], follow_symlinks=False)

    def _record_unknown(self, order: Stop) -> None:
        """An attempt that was never here is to end: put that on record, so that an old order cannot start it."""
        plan = {"workload": order.workload, "attempt": order.attempt, "command": [], "grace_ms": 0}
        plan |= {"ends_by_ms": None, "started_ms": supervise.now_ms()}
        folder = self._state.attempt(order.key)
        self._known[order.key] = attempt = Attempt(order.key, folder, plan)
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700)
            write_json(folder, ATTEMPT, plan)
        self._end(attempt, outcome(None, signalled=True, error="it was never started on this host"))

    def _spawn(self, attempt: Attempt) -> None:
        command = [sys.executable, "-I", "-S", supervise.__file__, str(attempt.folder)]
        # A workload's variables must not reach code that may run as root.
        clean = {"PATH": os.defpath, supervise.MARK: str(attempt.folder)}
        try:
            attempt.child = subprocess.Popen(
                command, env=clean, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            attempt.session = attempt.child.pid
            attempt.handle = os.pidfd_open(attempt.child.pid)
        except OSError as problem:
            if attempt.child:  # it cannot be watched, so it must not run
                attempt.child.kill()
            self._refuse(attempt, f"cannot start a process: {problem.strerror}")
        else:
            logger.info("started %s attempt %d", *attempt.key)

    def _refuse(self, attempt: Attempt, error: str) -> None:
        """Make sure that an attempt never starts, and say why; one that is starting already goes on to do so."""
        with contextlib.suppress(OSError):
            if not supervise.claim(attempt.folder, None):
                return
        logger.warning("%s attempt %d was not started: %s", *attempt.key, error)
        self._end(attempt, outcome(supervise.CANNOT_RUN, signalled=False, error=error))

    def _end(self, attempt: Attempt, ended: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # if it cannot be kept, the daemon is told all the same
            write_json(attempt.folder, EXIT, ended)
        self._ended(attempt, ended)

    def _ended(self, attempt: Attempt, ended: dict[str, Any]) -> None:
        attempt.exit, self.news = ended, True
        if attempt.handle >= 0:
            os.close(attempt.handle)
            attempt.handle = -1
        if attempt.child:
            attempt.child.wait()
        logger.info("%s attempt %d ended with exit code %s", *attempt.key, ended["exit_code"])

    def _adopt(self, attempt: Attempt) -> None:
        """Take over an attempt from a former agent, whatever that one was doing when it ended."""
        if ended := read_json(attempt.folder, EXIT):
            attempt.exit = ended
        elif supervise.claim(attempt.folder, None):
            error = "the agent ended before this attempt was started; it never ran"
            self._end(attempt, outcome(None, signalled=False, error=error))
        else:
            self._watch(attempt)
            self._refresh(attempt)

    def _watch(self, attempt: Attempt) -> None:
        """Get hold of the supervisor that claimed the attempt, or find that it is gone."""
        said = read_json(attempt.folder, CLAIM)
        if said["boot_id"] != boot_id() or not said["pid"]:
            return
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(said["pid"])
            seen = supervise.process(said["pid"])  # read after the handle: it is of the same process or a younger one
            if seen and seen.ticks == said["ticks"]:
                attempt.handle, attempt.session = handle, said["pid"]
            else:
                os.close(handle)

    def _refresh(self, attempt: Attempt) -> None:
        """See whether an attempt has ended."""
        if not attempt.lost and attempt.handle >= 0 and not _is_over(attempt.handle):
            return
        if ended := read_json(attempt.folder, EXIT):
            self._ended(attempt, ended)
            return
        attempt.lost = True
        if kill_marked(attempt.folder, attempt.session):
            return
        said = read_json(attempt.folder, CLAIM)
        restarted = said and said["boot_id"] != boot_id()
        error = "the host was restarted" if restarted else "its supervisor was lost; all of its processes were killed"
        self._end(attempt, outcome(None, signalled=attempt.grace_told is not None, error=error))

    def _stop(self, attempt: Attempt, grace_ms: int) -> None:
        """Have the supervisor stop the attempt; again only if the grace period is shortened."""
        if attempt.lost or (attempt.grace_told is not None and attempt.grace_told <= grace_ms):
            return
        attempt.grace_told = grace_ms
        if not (attempt.folder / CLAIM).exists() and supervise.claim(attempt.folder, None):
            self._end(attempt, outcome(None, signalled=True, error="it was stopped before it was started"))
            return
        logger.info("stopping %s attempt %d", *attempt.key)
        try:
            write_json(attempt.folder, STOP, {"grace_ms": grace_ms})
        except OSError as problem:  # the supervisor then keeps to the grace period that the attempt was started with
            logger.warning("the grace period cannot be put on record: %s", problem)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(attempt.handle, signal.SIGTERM)


def _is_over(handle: int) -> bool:
    """Whether the process behind a pidfd has ended."""
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    return bool(waiting.poll(0))
