"""Processes whose keeper is gone: found by what they inherited from it, and killed."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from gpubudget.agent import supervise


def kill_marked(record: Path, session: int = 0) -> bool:
    """Kill what was started on behalf of a record, and say whether there was anything.

    Found by the mark in its environment, by its session if that is known, and by descent from these; what has shed
    all of them is not.
    """
    seen = supervise.processes()
    mark = f"{supervise.MARK}={record}".encode()
    found = {
        pid for pid, one in seen.items() if (session and one.session == session) or mark in _environment(pid)
    }  # fmt: skip
    found = {pid for pid in supervise.with_descendants(found, seen) if not seen[pid].zombie and pid != os.getpid()}
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
