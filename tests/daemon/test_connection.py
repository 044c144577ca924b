"""What callers cannot do to the daemon with a connection."""

import json
import socket
import time

import pytest

from gpubudget.daemon import connection
from tests.daemon.harness import Daemon

POST = b"POST /v1/workloads HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n%s\r\n{"


def _dripped(daemon: Daemon, begin: bytes, drip: bytes) -> bytes:
    """What a caller gets that begins a request and then sends a byte now and then, until it is closed."""
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=0.05) as caller:
        caller.sendall(begin)
        found, deadline = b"", time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                piece = caller.recv(10_000)
            except TimeoutError:
                caller.sendall(drip)
            except ConnectionError:
                return found
            else:
                if not piece:
                    return found
                found += piece
    raise AssertionError("the daemon keeps the connection open")


@pytest.mark.parametrize("known", [True, False])
def test_a_body_that_does_not_come_ends_its_connection(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    """One that trickles too, whoever sends it: a caller without a token has its answer already, and is closed."""
    monkeypatch.setattr(connection, "READ_SECONDS", 0.5)
    token = b"Authorization: Bearer %s\r\n" % daemon.user("alice").token.encode() if known else b""  # type: ignore[union-attr] # it has one
    head, _, body = _dripped(daemon, POST % token, b" ").partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == (b"HTTP/1.1 408 Request Timeout" if known else b"HTTP/1.1 401 Unauthorized")
    told = "the request has not arrived whole within 0.5 s" if known else "the request has no token"
    assert json.loads(body)["detail"] == told


def test_a_head_that_does_not_come_ends_its_connection(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an answer if it has begun; who says nothing at all is told nothing."""
    monkeypatch.setattr(connection, "READ_SECONDS", 0.3)
    assert _dripped(daemon, b"GET /heal", b"t").startswith(b"HTTP/1.1 408 ")
    assert _dripped(daemon, b"", b"") == b""


def test_a_caller_that_waits_for_its_answer_is_not_slow(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is on the request; an answer may be held, and the connection is kept for the next request."""
    monkeypatch.setattr(connection, "READ_SECONDS", 0.3)
    agent = daemon.user("h1", "agent", "h1")
    for _ in range(2):
        report = {"pool": "h100", "gpus": 8, "boot_id": "b"}
        assert agent("POST", "/v1/agents/h1/sync?wait_ms=600", report)["run"] == []
