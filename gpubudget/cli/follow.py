"""Following a workload until it has ended: its output across attempts, and its exit code.

A restart of the daemon is waited out; what has been shown is not shown again.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass

import click

from gpubudget.cli.client import Answer, Client, segment
from gpubudget.cli.output import printable, say, standing
from gpubudget.core.workload import ENDED
from gpubudget.errors import ConflictError, GpuBudgetError, NotFoundError
from gpubudget.units import about_duration

PATIENCE = 120.0
"""For how many seconds a daemon that is away is waited for."""

_SHORTEST, _LONGEST = 0.05, 1.0
_HELD_MS = 2_000


@dataclass(slots=True)
class Shown:
    """How much of which attempt's output has been shown."""

    attempt: int = 0
    offset: int = 0
    complete: bool = False


def find_workload(client: Client, name: str) -> Answer:
    """The workload of that id."""
    return client.get(f"/v1/workloads/{segment(name)}")


def exit_code(ended: Answer) -> int:
    """The exit code of a workload that has ended: its own, 128 + n for signal n, 1 if it has none."""
    code = ended.get("exit_code")
    if ended["state"] != "finished":
        code = code or 1
    code = int(code or 0)
    return code if code >= 0 else 128 - code


def until_ended(client: Client, name: str, deadline: float | None = None) -> Answer:
    """The workload once it has ended; as it is at the deadline (monotonic seconds) if that comes first.

    On a terminal each change of its state is told meanwhile.
    """
    pause, state = _SHORTEST, ""
    while True:
        client.patience = min(PATIENCE, _left(deadline))
        found = find_workload(client, name)
        if found["state"] not in {state, *ENDED} and sys.stderr.isatty():
            say(standing(name, found["state"], found["reason"]))
        state = found["state"]
        if found["state"] in ENDED:
            return found
        if not _left(deadline):
            return found
        time.sleep(min(pause, _left(deadline)))
        pause = min(pause * 1.5, _LONGEST)


def _left(deadline: float | None) -> float:
    """The seconds until a time (monotonic) that may be never."""
    return math.inf if deadline is None else max(deadline - time.monotonic(), 0.0)


def wait_for(client: Client, names: list[str], timeout_ms: int | None = None) -> int:
    """Wait until all have ended; the exit code of the first that has another one than 0. Tells how each ended."""
    started = time.monotonic()
    deadline = None if timeout_ms is None else started + timeout_ms / 1000
    code = 0
    for name in names:
        found = until_ended(client, name, deadline)
        if found["state"] not in ENDED:
            waited = about_duration(round((time.monotonic() - started) * 1000))
            raise GpuBudgetError(
                f"{name} is still {found['state']} after {waited}", hint=f"`gpubudget explain {name}` says why"
            )
        say(ending(found))
        code = code or exit_code(found)
    return code


def ending(ended: Answer) -> str:
    """One sentence on how a workload ended."""
    state, code = ended["state"], ended.get("exit_code")
    reason = (ended.get("reason") or "").removeprefix(state).removeprefix(": ")
    verb = state if state in {"finished", "failed"} else f"was {state}"
    text = (
        f"{ended['id']} {reason}" if reason.startswith(state) else f"{ended['id']} {verb}" + (reason and f": {reason}")
    )
    return printable(text if not code or "exit code" in text else f"{text} (exit code {code})")


def show_logs(client: Client, name: str, shown: Shown, host: str | None = None, wait_ms: int = 0) -> bool:
    """Print what an attempt has printed since ``shown``, which is moved on; whether there was anything."""
    try:
        chunk = client.get(
            f"/v1/workloads/{segment(name)}/logs",
            attempt=shown.attempt,
            host=host,
            offset=shown.offset,
            wait_ms=wait_ms,
        )
    except (ConflictError, NotFoundError):
        if wait_ms:
            return False  # its agent has not told of it yet, or is away
        raise
    click.echo(chunk["data"], nl=False)
    more: bool = chunk["next_offset"] > shown.offset
    shown.offset = chunk["next_offset"]
    shown.complete = bool(chunk.get("end"))
    return more


def until_end(client: Client, name: str, host: str | None = None, shown: Shown | None = None) -> int:
    """Print the output of every attempt as it comes, until the workload has ended; its exit code."""
    client.patience = PATIENCE
    shown = shown or Shown()
    pause = _SHORTEST
    while True:
        found = find_workload(client, name)
        attempts = int(found["attempts"])
        moved = False
        if shown.attempt < attempts and (shown.attempt == 0 or shown.complete):
            shown.attempt, shown.offset, shown.complete, moved = shown.attempt + 1, 0, False, True
            if shown.attempt > 1:
                say(f"{name}: attempt {shown.attempt}")
        if shown.attempt and not shown.complete:
            moved = show_logs(client, name, shown, host, _HELD_MS) or moved
        if found["state"] in ENDED and shown.attempt == attempts and (shown.complete or not moved):
            say(ending(found))
            return exit_code(found)
        pause = _SHORTEST if moved else min(pause * 1.5, _LONGEST)
        if not moved:
            time.sleep(pause)
