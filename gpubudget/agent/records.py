"""The agent's folder: what is kept in it, and who may read it.

``lock`` admits one agent; ``agent.json`` has the id by which the daemon tells it from another that says it is this
host; ``attempts/WORKLOAD.ATTEMPT/`` has the records and the log of one attempt, readable by the
agent alone; ``checkpoints/WORKLOAD/`` belongs to the workload's owner and is kept across attempts; ``repair.json`` is
the last repair. Records are JSON files that are whole or absent (see ``supervise.py``, which reads them too).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from gpubudget.agent.supervise import LOG, now_ms, read_json, write_json
from gpubudget.agent.wire import Key
from gpubudget.errors import ConflictError, InvalidInputError

FORGOTTEN = "forgotten.json"
IDENTITY = "agent.json"


class StateFolder:
    """One agent's folder, locked for as long as this object is open."""

    def __init__(self, path: Path, shared: Path | None = None) -> None:
        self.path = path.absolute()
        self.attempts = self.path / "attempts"
        self.checkpoints = (shared.absolute() if shared else self.path) / "checkpoints"
        try:
            self.path.mkdir(mode=0o711, parents=True, exist_ok=True)
            self.attempts.mkdir(mode=0o700, exist_ok=True)
            self.checkpoints.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise InvalidInputError(
                f"the state folder {self.path} cannot be used: {problem.filename}: {problem.strerror}",
                hint="name a folder that this user may write to with --state-dir",
            ) from None
        self._take_lock()
        self.agent_id = self._identity()

    def _identity(self) -> str:
        """The id of the agent of this folder, made when the folder is first used."""
        said = read_json(self.path, IDENTITY)
        if said is None:
            said = {"agent_id": secrets.token_hex(8)}
            write_json(self.path, IDENTITY, said)
        return str(said["agent_id"])

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._lock)
            raise ConflictError(
                f"another agent (process {other}) uses the state folder {self.path}",
                hint="stop it first, or give this one a folder of its own with --state-dir",
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode("ascii"), 0)

    def close(self) -> None:
        """Give the folder free."""
        os.close(self._lock)

    def attempt(self, key: Key) -> Path:
        """The folder of one attempt, which need not exist."""
        return self.attempts / f"{key.workload}.{key.attempt}"

    def checkpoint(self, workload: str) -> Path:
        """The folder in which a workload keeps its checkpoints."""
        return self.checkpoints / workload

    def recorded(self) -> Iterator[Path]:
        """The folders of all attempts that are on record; what was begun and never recorded is cleared away."""
        for folder in sorted(self.attempts.iterdir()):
            if (folder / "attempt.json").exists():
                yield folder
            else:
                shutil.rmtree(folder, ignore_errors=True)

    def clean(self, keep_ms: int, keep_bytes: int) -> None:
        """Drop attempts that were forgotten longer than ``keep_ms`` ago, then the oldest logs over ``keep_bytes``.

        The records stay for the whole time: they are what keeps an old order from starting an attempt again.
        """
        marks = [(read_json(folder, FORGOTTEN), folder) for folder in self.attempts.iterdir()]
        ended = [(mark["at_ms"], folder) for mark, folder in marks if mark]
        kept = 0
        for at, folder in sorted(ended, reverse=True):
            log = folder / LOG
            if at < now_ms() - keep_ms:
                shutil.rmtree(folder, ignore_errors=True)
            elif log.exists():
                kept += log.stat().st_size
                if kept > keep_bytes:
                    log.unlink(missing_ok=True)

    def mark_forgotten(self, folder: Path) -> None:
        """The daemon has recorded the attempt's end: it is not reported any more."""
        write_json(folder, FORGOTTEN, {"at_ms": now_ms()})


def is_forgotten(folder: Path) -> bool:
    """Whether the daemon has recorded the attempt's end."""
    return (folder / FORGOTTEN).exists()
