"""A stand-in for GitHub's REST API: one repository's pull requests, held to what GitHub itself asks of a request.

It answers on loopback as GitHub documents: pages with Link headers, 401 for a wrong token, 403 for one that may only
read, 422 for a body that is missing or too long. What is to come instead of an answer can be queued. Every request is
kept, and what is wrong with one is an answer of 400 and an entry in ``wrong``, which tests want to be empty.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

LONGEST = 65_536
BOT = "github-actions[bot]"

Reply = tuple[int, dict[str, str], Any]
"""Status, headers and JSON of an answer; a status of 0 closes the connection without one."""


def problem(status: int, message: str, **headers: str) -> Reply:
    return status, headers, {"message": message, "documentation_url": "https://docs.github.com/rest"}


READ_ONLY = problem(403, "Resource not accessible by integration")
LIMITED = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."


@dataclass
class GitHubServer:
    """What GitHub would have. ``tokens`` are those that may write, by the login that they act as."""

    repository: str = "lab/budgets"
    tokens: dict[str, str] = field(default_factory=lambda: {"writes": BOT})
    readers: set[str] = field(default_factory=lambda: {"reads"})
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    reviews: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    comments: list[dict[str, Any]] = field(default_factory=list)
    next_id: int = 1000
    page: int = 100  # the most items that a page has, whatever is asked for
    url: str = ""
    instead: list[Reply] = field(default_factory=list)
    meanwhile: list[Callable[[], None]] = field(default_factory=list)  # what happens after each coming request
    requests: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def open_pull(self, number: int, head: str, author: str = "hanna") -> None:
        self.pulls[number] = {"number": number, "state": "open", "user": {"login": author}, "head": {"sha": head}}

    def review(self, number: int, author: str | None, state: str, commit: str) -> None:
        user = {"login": author} if author else None
        self.reviews.setdefault(number, []).append({"user": user, "state": state, "commit_id": commit})

    def say(self, number: int, author: str | None, body: str) -> dict[str, Any]:
        made = {
            "id": self.next_id,
            "user": {"login": author} if author else None,
            "body": body,
            "html_url": f"https://github.com/{self.repository}/pull/{number}#issuecomment-{self.next_id}",
            "number": number,
        }
        self.next_id += 1
        self.comments.append(made)
        return made

    def bodies(self, number: int, author: str = BOT) -> list[str]:
        """What somebody has said about a pull request."""
        return [c["body"] for c in self.comments if c["number"] == number and c["user"] == {"login": author}]

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        url = urlsplit(target)
        self.requests.append(f"{method} {target}")
        if self.instead:
            return self.instead.pop(0)
        if fault := _fault(method, headers, body):
            self.wrong.append(f"{method} {target}: {fault}")
            return problem(400, fault)
        token = headers["authorization"].removeprefix("Bearer ")
        if token not in {*self.tokens, *self.readers}:
            return problem(401, "Bad credentials")
        found = re.fullmatch(rf"/repos/{re.escape(self.repository)}/(.+)", url.path)
        if not found:
            return problem(404, "Not Found")
        return self._route(method, found[1], parse_qs(url.query), json.loads(body or b"{}"), token)

    def _route(self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any], token: str) -> Reply:
        number = int(found[1]) if (found := re.search(r"/(\d+)\b", f"/{path}")) else 0
        kind = re.sub(r"\d+", "N", path)
        if kind in {"pulls/N", "pulls/N/reviews", "issues/N/comments"} and number not in self.pulls:
            return problem(404, "Not Found")
        match method, kind:
            case "GET", "pulls/N":
                return 200, {}, self.pulls[number]
            case "GET", "pulls/N/reviews":
                return self._page(path, self.reviews.get(number, []), query)
            case "GET", "issues/N/comments":
                return self._page(path, [c for c in self.comments if c["number"] == number], query)
            case ("POST", "issues/N/comments") | ("PATCH", "issues/comments/N"):
                return self._write(method, number, body.get("body"), token)
            case "DELETE", "issues/comments/N" if token in self.tokens and any(
                c["id"] == number for c in self.comments
            ):
                self.comments = [c for c in self.comments if c["id"] != number]
                return 204, {}, b""
        return problem(404, "Not Found")

    def _write(self, method: str, number: int, body: object, token: str) -> Reply:
        if token in self.readers:
            return READ_ONLY
        if not isinstance(body, str) or not body.strip():
            return 422, {}, {"message": "Validation Failed", "errors": [{"code": "missing_field", "field": "body"}]}
        if len(body) > LONGEST:
            too_long = f"body is too long (maximum is {LONGEST} characters)"
            return 422, {}, {"message": "Validation Failed", "errors": [{"code": "custom", "message": too_long}]}
        if method == "POST":
            return 201, {}, self.say(number, self.tokens[token], body)
        comment = next((c for c in self.comments if c["id"] == number), None)
        if comment is None:
            return problem(404, "Not Found")
        comment["body"] = body
        return 200, {}, comment

    def _page(self, path: str, items: list[Any], query: dict[str, list[str]]) -> Reply:
        size = min(int(query.get("per_page", ["30"])[0]), self.page)
        at = int(query.get("page", ["1"])[0])
        following = f'<{self.url}/repos/{self.repository}/{path}?per_page={size}&page={at + 1}>; rel="next"'
        headers = {"Link": following} if at * size < len(items) else {}
        return 200, headers, items[(at - 1) * size : at * size]


def _fault(method: str, headers: dict[str, str], body: bytes) -> str:
    """What GitHub would not like about a request, or would only guess."""
    if not re.fullmatch(r"Bearer [!-~]+", headers.get("authorization", "")):
        return "no bearer token"
    if headers.get("x-github-api-version") != "2022-11-28":
        return "no version of the API"
    if headers.get("accept") != "application/vnd.github+json" or not headers.get("user-agent"):
        return "no media type or user agent"
    if method in {"GET", "DELETE"}:
        return f"a {method} with a body" if body else ""
    if headers.get("content-type") != "application/json" or not isinstance(json.loads(body), dict):
        return "no JSON object"
    return ""


@contextmanager
def github_server() -> Iterator[GitHubServer]:
    """A stand-in on a free port of this machine."""
    state = GitHubServer()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, extra, data = state.answer(self.command, self.path, headers, body)
            if state.meanwhile:
                state.meanwhile.pop(0)()
            if status == 0:
                self.close_connection = True
                return
            text = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(text)), **extra}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815 - the names are http.server's

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
