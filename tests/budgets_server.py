"""A small HTTP server with the daemon's two requests about budgets, which can be told to fail in a given way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gpubudget.core import plain
from gpubudget.core.budget import Tree

Fault = Callable[["BudgetsServer"], bool]
"""Called at a request; True if the connection is to be closed without an answer."""


class BudgetsServer:
    """What a daemon would have applied, every request that came, and the faults still to come."""

    def __init__(self) -> None:
        self.applied: dict[str, Any] | None = None
        self.requests: list[str] = []
        self.before: list[Fault] = []  # one for each coming request, before it is handled
        self.after: list[Fault] = []  # the same, when it is handled and not yet answered
        self.answers: list[tuple[int, dict[str, Any]]] = []  # instead of handling
        self.workloads: list[dict[str, Any]] = []
        self.suspended: dict[str, Any] | None = None
        self.url = ""

    @property
    def commit(self) -> str | None:
        return self.applied["commit"] if self.applied else None

    def handle(self, method: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.answers:
            return self.answers.pop(0)
        if method == "WORKLOADS":
            return 200, {"workloads": self.workloads}
        if method == "HISTORY":
            return 200, {"applied": [self.applied] if self.applied else []}
        if method == "GET":
            if not self.applied:
                return problem(404, "no budgets have been applied yet")
            return 200, {**self.applied, "suspended": self.suspended}
        return self._apply(body)

    def _apply(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        tree = plain.decode(Tree, body["tree"])
        named = {"tree", "commit", "author", "committed_ms", "digest", "descends_from", "force"}
        assert set(body) - {"suspend"} == named | {"notes", "approvers", "plan"}
        if plain.digest(tree) != body["digest"]:
            return problem(422, "the digest is not that of the tree")
        new, old = (body["commit"], body["digest"]), self.applied
        if old and (old["commit"], old["digest"]) == new:
            return 200, {"applied": False, "commit": body["commit"], "digest": body["digest"]}
        if self.suspended and not body["force"]:
            return problem(409, "nothing is applied since somebody suspended it")
        if old and body["descends_from"] != old["commit"] and not body["force"]:
            return problem(409, f"{old['commit']} is applied, not {body['descends_from']}")
        if "suspend" in body:
            self.suspended = {"by": "robot", "reason": body["suspend"], "at_ms": 0}
        self.applied = {**body, "applied_ms": 0}
        return 200, {"applied": True, "commit": body["commit"], "digest": body["digest"]}


def problem(status: int, detail: str) -> tuple[int, dict[str, Any]]:
    return status, {"type": "urn:gpubudget:x", "title": "x", "status": status, "detail": detail, "hint": "do"}


def close_connection(_: BudgetsServer) -> bool:
    return True


@contextmanager
def budgets_server() -> Iterator[BudgetsServer]:
    """A server on a free port of the loopback."""
    state = BudgetsServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths = {"/v1/workloads": "WORKLOADS", "/v1/budgets/history": "HISTORY"}
            self._handle(paths.get(self.path.partition("?")[0], "GET"))

        def do_PUT(self) -> None:
            self._handle("PUT")

        def _handle(self, method: str) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            state.requests.append(method)
            if state.before and state.before.pop(0)(state):
                return
            status, answer = state.handle(method, body)
            if state.after and state.after.pop(0)(state):
                return
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status == 200 else "application/problem+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Polls until the condition holds; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
