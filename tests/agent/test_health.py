"""Health checks in their threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubudget.agent import health
from gpubudget.agent.commands import Commands, Result
from gpubudget.agent.config import Check, Config
from gpubudget.agent.gpus import SimulatedGPUs
from gpubudget.agent.health import Monitor, Probe, probes
from tests.agent.acting import eventually, shell

WELL, ILL = Result(ok=True, message="well"), Result(ok=False, message="ill")
NEVER = 3_600_000

Watching = Callable[..., Monitor]


@pytest.fixture
def watching() -> Iterator[Watching]:
    """Makes monitors and ends their threads."""
    made: list[Monitor] = []

    def make(*wanted: Probe, changed: Callable[[], None] = lambda: None) -> Monitor:
        made.append(Monitor(wanted, changed))
        return made[-1]

    yield make
    for monitor in made:
        monitor.close()


def test_results_are_reported_by_name(watching: Watching) -> None:
    """Each check is reported with its name, verdict and message."""
    monitor = watching(Probe("a", lambda: WELL, NEVER, 1_000), Probe("b", lambda: ILL, NEVER, 1_000))
    monitor.wait_first(10)
    assert monitor.results() == [
        {"name": "a", "ok": True, "message": "well"},
        {"name": "b", "ok": False, "message": "ill"},
    ]
    assert [one["name"] for one in monitor.failing()] == ["b"]


def test_a_check_that_raises_has_failed(watching: Watching) -> None:
    """A fault inside a check is a failure of that check, and it is run again later."""
    turns = iter([1, 0])
    monitor = watching(Probe("a", lambda: Result(ok=True, message=str(1 // (1 - next(turns)))), 50, 1_000))
    monitor.wait_first(10)
    assert monitor.results()[0]["message"] == "the check itself failed: integer division or modulo by zero"
    eventually(lambda: monitor.results()[0]["ok"])


def test_it_has_to_fail_often_enough(watching: Watching) -> None:
    """A check that may fail twice counts as failed at the third time in a row, and as well at once."""
    said = iter([ILL, ILL, WELL, ILL, ILL, ILL, WELL])
    monitor = watching(Probe("a", lambda: next(said), NEVER, 1_000, failures=3))
    monitor.wait_first(10)
    seen = [monitor.results()[0]["ok"]]
    for _ in range(6):
        monitor.check_all()
        seen.append(monitor.results()[0]["ok"])
    assert seen == [True, True, True, True, True, False, True]


def test_a_message_says_how_often_it_failed(watching: Watching) -> None:
    """A failure that does not count yet can be read."""
    monitor = watching(Probe("a", lambda: ILL, NEVER, 1_000, failures=3))
    monitor.wait_first(10)
    assert monitor.results()[0]["message"] == "failed 1 of 3 times: ill"


def test_a_check_that_hangs_holds_up_nothing(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    """One check hangs: the others go on, and after its time it counts as failed."""
    monkeypatch.setattr(health, "SLACK", 0)
    gate = threading.Event()

    def hang() -> Result:
        gate.wait(60)
        return WELL

    monitor = watching(Probe("hangs", hang, 50, 100), Probe("runs", lambda: WELL, 50, 1_000))
    eventually(lambda: [one["name"] for one in monitor.results()] == ["hangs", "runs"])
    assert "has not answered for" in str(monitor.failing()[0]["message"])
    assert monitor.check_all() == ["hangs: it does not answer"]
    gate.set()
    eventually(lambda: monitor.failing() == [])


def test_a_check_that_has_not_answered_says_nothing(watching: Watching) -> None:
    """Before its first answer a check is not reported, so that an agent's start drains no host."""
    gate = threading.Event()
    monitor = watching(Probe("slow", lambda: WELL if gate.wait(60) else ILL, NEVER, 60_000))
    monitor.wait_first(0.05)
    assert monitor.results() == []
    gate.set()
    monitor.wait_first(10)
    assert monitor.failing() == []


def test_changes_are_told(watching: Watching) -> None:
    """When a check begins to fail or to succeed, that is told at once, and nothing else is."""
    told, said = threading.Semaphore(0), iter([WELL, WELL, ILL, ILL, WELL])
    monitor = watching(Probe("a", lambda: next(said), NEVER, 1_000), changed=told.release)
    assert told.acquire(timeout=10)
    for _ in range(4):
        monitor.check_all()
    assert [told.acquire(blocking=False) for _ in range(3)] == [True, True, False]


def test_paused_checks_run_only_when_asked(watching: Watching) -> None:
    """During repair steps no check runs by itself."""
    runs: list[int] = []
    monitor = watching(Probe("a", lambda: runs.append(1) or WELL, 20, 1_000))  # type: ignore[func-returns-value]
    monitor.wait_first(10)
    monitor.pause(paused=True)
    monitor.check_all()  # whatever had begun has ended
    count = len(runs)
    threading.Event().wait(0.1)
    assert len(runs) == count
    monitor.pause(paused=False)
    eventually(lambda: len(runs) > count)


def test_checks_that_are_built_in(watching: Watching, tmp_path: Path) -> None:
    """GPUs and disk space are checked on every host, and what the configuration adds."""
    config = Config(checks=(Check("own", shell("echo fine; exit 1")),), min_free_mb=10**9)
    gpus = SimulatedGPUs(2, tmp_path / "sick.json")
    monitor = watching(*probes(config, gpus, tmp_path, Commands(), NEVER))
    monitor.wait_first(10)
    found = {str(one["name"]): (one["ok"], str(one["message"])) for one in monitor.results()}
    assert found["gpus"] == (True, "2 GPUs")
    assert found["own"] == (False, "exit code 1: fine")
    assert not found["disk"][0]
    assert found["disk"][1].endswith(f"MB are free in {tmp_path}, under 1000000000")
