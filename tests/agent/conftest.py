"""Fixtures of the agent's tests. Whatever a test starts, nothing of it may be left when the test is over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubudget.agent import supervise
from tests.agent.acting import AgentProcess, Daemon, Host, marked


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Every process of an attempt is gone when a test is over."""
    yield
    deadline = time.monotonic() + 2
    while (left := marked(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, 9)
    assert left == []


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon that listens."""
    playing = Daemon()
    playing.open()
    yield playing
    playing.close()


@pytest.fixture
def agents(daemon: Daemon, tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Starts agents, which stop their workloads at the end of the test."""
    started: list[AgentProcess] = []

    def start(*options: str, name: str = "h1", environment: dict[str, str] | None = None) -> AgentProcess:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        started.append(AgentProcess(daemon, folder, "--stop-workloads", *options, environment=environment))
        return started[-1].start()

    yield start
    for one in started:
        if one.process and one.process.poll() is None:
            one.end(15)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """Has supervisors run with a line of their source replaced: with another time, say."""

    def edit(line: str, replacement: str) -> None:
        source = Path(supervise.__file__).read_text()
        assert source.count(line) == 1
        (tmp_path / "supervise.py").write_text(source.replace(line, replacement))
        monkeypatch.setattr(supervise, "__file__", str(tmp_path / "supervise.py"))

    return edit
