"""The client against servers that fail in ways the daemon does not: every answer is an error of ours."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpubudget.cli.client import Client, segment
from gpubudget.cli.connect import read_token
from gpubudget.errors import (
    ConflictError,
    ForbiddenError,
    GpuBudgetError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
)

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """Answers every request with the next of ``answers`` (the last one again and again) and keeps what it was sent."""

    daemon_threads = True

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server.seen.append((self.command, self.path, dict(self.headers), body))
                answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                answer(self)

            do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815 - names of the library

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers with these answers, and stops them."""
    servers: list[Server] = []

    def start(*answers: Answer) -> Server:
        server = Server(*answers)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def say(status: int, body: object, **headers: str) -> Answer:
    """An answer with that status and JSON (or raw bytes)."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Closes the connection without an answer, as a daemon that is killed does."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidInputError),
        (401, NotAuthorisedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (422, RefusedError),
        (413, InvalidInputError),
        (500, GpuBudgetError),
        (503, UnreachableError),
    ],
)
def test_problems_become_errors(serve: Callable[..., Server], status: int, kind: type[GpuBudgetError]) -> None:
    """A problem of the daemon is the error of its status, with its detail and hint."""
    server = serve(say(status, {"title": "No", "status": status, "detail": "no: 3 > 2", "hint": "ask for 2"}))
    with Client(server.url, "gpb_x") as client, pytest.raises(GpuBudgetError) as caught:
        client.get("/v1/hosts")
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.hint) == ("no: 3 > 2", "ask for 2")


@pytest.mark.parametrize(
    "answer",
    [
        say(200, b"<html>hello</html>"),
        say(200, [1, 2]),
        say(404, b"nothing here"),
        say(500, {"unknown": "form"}),
        say(302, {}, Location="http://127.0.0.1:1/"),
    ],
)
def test_other_servers_are_told_apart(serve: Callable[..., Server], answer: Answer) -> None:
    """Something that is not the daemon is reported as such, and a redirect is not followed with the token."""
    with (
        Client(serve(answer).url, "gpb_x") as client,
        pytest.raises(UnreachableError, match="not as a gpubudget daemon"),
    ):
        client.get("/v1/hosts")


def test_an_answer_that_is_lost_is_asked_for_again(serve: Callable[..., Server]) -> None:
    """A POST with an idempotency key is sent again, with the same key and body, when its answer was lost."""
    server = serve(hang_up, say(201, {"id": "w1"}))
    with Client(server.url, "gpb_x") as client:
        assert client.post("/v1/workloads", {"gpus": 1}, key="k1") == {"id": "w1"}
    assert [(headers["Idempotency-Key"], body) for _, _, headers, body in server.seen] == [("k1", b'{"gpus": 1}')] * 2


def test_an_action_is_not_sent_twice(serve: Callable[..., Server]) -> None:
    """A POST without a key may have done its work: it is not repeated, and the message says so."""
    server = serve(hang_up)
    with Client(server.url, "gpb_x") as client, pytest.raises(UnreachableError, match="its answer was lost"):
        client.post("/v1/workloads/w1/cancel", {})
    assert len(server.seen) == 1


def test_patience_waits_for_a_daemon_that_is_away(serve: Callable[..., Server]) -> None:
    """Who is patient goes on asking; who is not gives up at once, or after three lost answers."""
    server = serve(hang_up, hang_up, hang_up, hang_up, say(503, {"title": "stopping"}), say(200, {"ok": True}))
    with Client(server.url, "gpb_x") as client:
        with pytest.raises(UnreachableError, match="its answer was lost"):
            client.get("/v1/hosts")
        client.patience = 30
        assert client.get("/v1/hosts") == {"ok": True}


def test_what_is_sent(serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token travels as a bearer token, whatever ~/.netrc holds; parameters that are None do not travel."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server = serve(say(200, {}))
    with Client(server.url + "/", "gpb_x") as client:
        client.get(f"/v1/workloads/{segment('a b?c')}", limit=3, state=None)
        client.put("/v1/budgets", {"a": 1})
        client.delete("/v1/tokens/1")
    assert [(method, path) for method, path, _, _ in server.seen] == [
        ("GET", "/v1/workloads/a%20b%3Fc?limit=3"),
        ("PUT", "/v1/budgets"),
        ("DELETE", "/v1/tokens/1"),
    ]
    assert {headers["Authorization"] for _, _, headers, _ in server.seen} == {"Bearer gpb_x"}


@pytest.mark.parametrize("name", ["a/b", "..", "."])
def test_a_name_is_no_way_to_another_place(name: str) -> None:
    """What would lead elsewhere in the API names nothing."""
    with pytest.raises(NotFoundError):
        segment(name)


def test_a_stream_ends_where_it_is_cut_off(serve: Callable[..., Server]) -> None:
    """Objects come as they are sent; blank lines keep the connection alive; half a line at the end is dropped."""
    server = serve(say(200, b'{"seq": 1}\n\n{"seq": 2}\n{"se'))
    with Client(server.url, "gpb_x") as client:
        assert list(client.stream("/v1/events/stream", after=0)) == [{"seq": 1}, {"seq": 2}]


def test_a_stream_waits_for_a_daemon_that_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    """With patience, one that follows a stream outlives a restart of the daemon, as everything else does."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", "gpb_x") as client:
        client.patience = 0.2
        with pytest.raises(UnreachableError, match="connection refused"):
            list(client.stream("/v1/events/stream", after=0))
    assert "it is waited for" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host",
        "garbage",
        "",
        "http://",
        "http://h:99999",
        "http://h:x",
        "http://[::",
        "http://h?q=1",
        "http://h/ x",
        "http://\n",
    ],
)
def test_a_wrong_url_is_told(url: str) -> None:
    """What is no URL of a daemon is refused before anything is sent; trying again would not help."""
    with pytest.raises(UsageError, match="is not the URL of a daemon"):
        Client(url, "gpb_x")


@pytest.mark.parametrize(
    ("url", "why"),
    [("http://127.0.0.1:{port}", "connection refused"), ("http://no-such-host.invalid", "no such host")],
)
def test_a_daemon_that_is_not_there(url: str, why: str) -> None:
    """Nobody listening is one sentence with the reason, and exit code 75."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with Client(url.format(port=port), "gpb_x") as client, pytest.raises(UnreachableError, match=why) as caught:
            client.get("/healthz")
    assert caught.value.exit_code == 75


def test_tls_to_a_plain_server(serve: Callable[..., Server]) -> None:
    """A URL with https where plain http is spoken says that, and not that the request was lost."""
    url = serve(say(200, {})).url.replace("http", "https")
    with Client(url, "gpb_x") as client, pytest.raises(UnreachableError, match="does not speak TLS"):
        client.get("/healthz")


def test_where_the_token_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUBUDGET_TOKEN, then the file that is named, then the one in the home folder; an option that is typed wins."""
    home = tmp_path / ".config" / "gpubudget"
    home.mkdir(parents=True)
    (home / "token").write_text("gpb_home\n")
    named = tmp_path / "named"
    named.write_text(" gpb_named\n")
    assert read_token("") == "gpb_home"
    assert read_token(str(named)) == "gpb_named"
    assert read_token("~/named") == "gpb_named"
    monkeypatch.setenv("GPUBUDGET_TOKEN", "gpb_env")
    assert read_token(str(named)) == "gpb_env"
    assert read_token(str(named), insist=True) == "gpb_named"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "holds no token"),
        (b"two words", "holds no token"),
        (b"\xff\xfe", "it is not text"),
    ],
)
def test_a_token_file_that_holds_none(tmp_path: Path, content: bytes | None, message: str) -> None:
    """A file that is missing, empty or no token is one sentence with its path, and exit code 4."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NotAuthorisedError, match=message) as caught:
        read_token(str(path))
    assert str(path) in caught.value.message
    assert caught.value.exit_code == 4


def test_no_token_at_all() -> None:
    """Without any token the message says how to give one."""
    with pytest.raises(NotAuthorisedError, match="no token to call the daemon with") as caught:
        read_token("")
    assert "GPUBUDGET_TOKEN_FILE" in caught.value.hint


def test_a_token_file_without_an_end() -> None:
    """A device in its place is not read for ever."""
    with pytest.raises(NotAuthorisedError, match="/dev/zero holds no token"):
        read_token("/dev/zero")


def test_a_token_file_that_is_a_folder(tmp_path: Path) -> None:
    """A folder in its place is told with the system's reason."""
    with pytest.raises(NotAuthorisedError, match=os.strerror(21)):
        read_token(str(tmp_path))
