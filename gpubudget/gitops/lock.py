"""A lock that one process holds at a time, and that goes with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpubudget.errors import GpuBudgetError


@contextmanager
def exclusive(folder: Path) -> Iterator[bool]:
    """Whether this process is alone in ``folder``, which is made; nobody waits."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"cannot keep a lock in {folder}: {error.strerror}"
        raise GpuBudgetError(message, hint="choose a folder of your own with --cache-dir") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)
