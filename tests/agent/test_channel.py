"""The line to the daemon."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gpubudget.agent.channel import Channel, Failure
from gpubudget.agent.wire import Answer
from gpubudget.errors import GpuBudgetError, NotAuthorisedError, UnreachableError
from tests.agent.acting import TOKEN, Daemon, eventually

REPORT: dict[str, Any] = {"attempts": [], "chunks": []}


class Line:
    """A channel, and how often something came."""

    def __init__(self, url: str, token: str = TOKEN) -> None:
        self.rang = threading.Semaphore(0)
        self.channel = Channel(url, "h1", lambda: token, self.rang.release)

    def ask(self, wait_ms: int = 0) -> Answer | Failure:
        self.channel.post(REPORT, wait_ms)
        assert self.rang.acquire(timeout=10)
        came = self.channel.take()
        assert came
        return came


def test_an_answer_is_given_once(daemon: Daemon) -> None:
    """An answer comes as checked values, and can be taken once."""
    daemon.say(forget=[{"workload": "w1", "attempt": 2}])
    line = Line(daemon.url)
    came = line.ask()
    assert isinstance(came, Answer)
    assert came.forget[0].key == ("w1", 2)
    assert line.channel.take() is None
    assert not line.channel.waiting


def test_an_abandoned_answer_never_counts(daemon: Daemon) -> None:
    """A report that waits is overtaken by a newer one; only the newer one's answer is ever given."""
    line = Line(daemon.url)
    line.ask()
    line.channel.post(REPORT, 30_000)
    daemon.wait_for(lambda report: report["wait"] == 30)
    threads = threading.active_count()
    assert isinstance(line.ask(), Answer)
    eventually(lambda: threading.active_count() < threads)  # the first one has been answered too
    assert not line.rang.acquire(blocking=False)
    assert line.channel.take() is None


@pytest.mark.parametrize(
    ("status", "refused", "kind"),
    [
        (401, True, NotAuthorisedError),
        (403, True, NotAuthorisedError),
        (422, True, GpuBudgetError),
        (429, False, GpuBudgetError),
        (500, False, GpuBudgetError),
        (302, False, GpuBudgetError),
    ],
)
def test_refusals_and_passing_faults_differ(
    daemon: Daemon,
    status: int,
    refused: bool,  # noqa: FBT001 - a row of a table
    kind: type[GpuBudgetError],
) -> None:
    """What the daemon refuses is told apart from what may pass; its own words are kept."""
    daemon.status, daemon.raw = status, b'{"title": "No", "detail": "not like this", "hint": "like that"}'
    came = Line(daemon.url).ask()
    assert isinstance(came, Failure)
    assert came.refused is refused
    assert type(came.error) is kind
    assert str(came.error) == f"the daemon refused this agent's report ({status}): not like this (like that)"


@pytest.mark.parametrize("raw", [b"<html>", b"[1]", b'"text"'])
def test_a_refusal_without_words_has_its_status(daemon: Daemon, raw: bytes) -> None:
    """An answer that is no problem of the daemon's still gives one sentence."""
    daemon.status, daemon.raw = 502, raw
    came = Line(daemon.url).ask()
    assert isinstance(came, Failure)
    assert "(502): Bad Gateway" in str(came.error)


def test_no_daemon_is_one_sentence() -> None:
    """A daemon that is not there gives a short reason."""
    came = Line("http://127.0.0.1:1").ask()
    assert isinstance(came, Failure)
    assert isinstance(came.error, UnreachableError)
    said = "the daemon at http://127.0.0.1:1 does not answer: Failed to establish a new connection: "
    assert str(came.error) == said + "[Errno 111] Connection refused"


def test_a_daemon_that_breaks_off_is_away(daemon: Daemon) -> None:
    """An answer that breaks off is a failure that may pass."""
    daemon.status, daemon.raw = 200, b"{"
    came = Line(daemon.url).ask()
    assert isinstance(came, Failure)
    assert not came.refused
    assert "does not answer" in str(came.error)


@pytest.mark.parametrize("url", ["daemon:8470", "ftp://daemon", "http://", "nonsense"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """A wrong address is told as such, and is no daemon that may come back."""
    came = Line(url).ask()
    assert isinstance(came, Failure)
    assert came.refused
    assert came.error.exit_code == 64
    assert "is no address of a daemon" in str(came.error)


def test_no_proxy_stands_before_this_machine(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on the same machine is asked directly, whatever proxy the environment names."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert isinstance(Line(daemon.url).ask(), Answer)
