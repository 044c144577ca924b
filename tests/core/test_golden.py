"""Recorded histories give the same decisions, byte for byte.

After a change of the rules that is meant, ``python -m tests.core.test_golden`` records them anew; the difference of the
files then shows in review what has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gpubudget.core import plain
from gpubudget.core.decisions import Decision
from gpubudget.core.events import Event
from gpubudget.core.scheduler import Scheduler

FOLDER = Path(__file__).parent / "golden"
SEEDS = {"two-pools": 24, "debug-lane": 1}


def line(decision: Decision) -> str:
    """A decision as one line, without the event that caused it, which stands beside it."""
    data: dict[str, Any] = plain.encode(decision)
    del data["cause"]
    return plain.canonical(data)


def inputs(name: str) -> Iterator[tuple[Event, int]]:
    """The recorded events of a history, each with its time."""
    for text in (FOLDER / f"{name}.events.jsonl").read_text().splitlines():
        data = json.loads(text)
        yield plain.decode(cast("type[Event]", Event), data["event"]), data["at"]


def replayed(name: str) -> str:
    """All decisions for the recorded events, as lines."""
    scheduler = Scheduler()
    return "".join(f"{line(d)}\n" for event, at in inputs(name) for d in scheduler.handle(event, at))


@pytest.mark.parametrize("name", SEEDS)
def test_a_recorded_history_gives_the_same_decisions_byte_for_byte(name: str) -> None:
    """Same events, same decisions: in another process, on another machine, a year later."""
    assert replayed(name) == (FOLDER / f"{name}.decisions.jsonl").read_text()


def record() -> None:
    """Write the golden files from seeded histories."""
    from tests.core.histories import play  # only whoever records needs the world that histories are made in

    FOLDER.mkdir(exist_ok=True)
    for name, seed in SEEDS.items():
        history = play(seed, 250)
        events = [plain.canonical({"at": at, "event": plain.encode(event)}) for event, at in history.inputs]
        (FOLDER / f"{name}.events.jsonl").write_text("\n".join(events) + "\n")
        (FOLDER / f"{name}.decisions.jsonl").write_text(replayed(name))


if __name__ == "__main__":
    record()
