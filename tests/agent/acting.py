"""What tests of the agent share: real agents, and a daemon that says what the test wants."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpubudget.agent import supervise
from gpubudget.agent.process import Attempts
from gpubudget.agent.records import StateFolder
from gpubudget.agent.supervise import read_json
from gpubudget.agent.wire import Key, Run, Stop

PATIENCE = 10.0
TOKEN = "gpb_agent"
Report = dict[str, Any]


def eventually(condition: Callable[[], Any], what: str = "the condition") -> Any:  # noqa: ANN401 - the condition's
    """What the condition returns, as soon as that is true."""
    until = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < until, f"{what} did not come true within {PATIENCE} s"
        time.sleep(0.01)
    return found


def marked(folder: Path) -> list[int]:
    """The living processes of attempts whose records are below a folder."""
    mark, found = f"{supervise.MARK}={folder}".encode(), []
    for pid, seen in supervise.processes().items():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if mark in environment and not seen.zombie:
            found.append(pid)
    return found


def shell(text: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", text)


def order(text: str = "exit 0", workload: str = "w1", attempt: int = 1, **more: Any) -> Run:  # noqa: ANN401 - fields of it
    """An order to run a line of shell."""
    given: dict[str, Any] = {"gpus": (0, 1), "rank": 0, "hosts": ("h1",), "gpus_per_host": 2, "command": shell(text)}
    return Run(workload, attempt, **{**given, "owner": "alice", "grace_ms": 10_000, **more})


def stop(workload: str = "w1", attempt: int = 1, grace_ms: int = 10_000) -> Stop:
    return Stop(workload, attempt, grace_ms)


def plain(order: Run | Stop) -> dict[str, Any]:
    """An order as it stands in an answer."""
    data: dict[str, Any] = json.loads(json.dumps({name: getattr(order, name) for name in order.__dataclass_fields__}))
    return data


class Daemon:
    """Plays the daemon's side of the conversation: what ``answer`` holds is told, and held back until it changes."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.chunks: list[dict[str, Any]] = []
        self.said: dict[str, Any] = {
            "run": [],
            "stop": [],
            "forget": [],
            "repair": None,
            "tails": [],
            "poll_ms": 30_000,
        }
        self.status = 200
        self.raw: bytes | None = None
        self._changed = threading.Condition()
        self._version = self._turn = 0
        self._told = -1
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    def open(self) -> None:
        """Listen, on the port of the last time if there was one."""
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                daemon.handle(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = False
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                pass  # an agent that is killed leaves a broken connection

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        if self._server:
            with self._changed:
                self._turn += 1
                self._changed.notify_all()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def say(self, **changes: Any) -> None:  # noqa: ANN401 - parts of an answer
        """Change what the agent is told from now on."""
        with self._changed:
            self.said = {**self.said, **changes}
            self._version += 1
            self._changed.notify_all()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        wait = int(parse_qs(urlsplit(request.path).query)["wait_ms"][0]) / 1000
        known = {(one["workload"], one["attempt"]) for one in body["attempts"]}
        with self._changed:
            self._turn += 1
            turn = self._turn
            self.reports.append({**body, "path": urlsplit(request.path).path, "wait": wait, "came": time.time()})
            self.chunks.extend(body["chunks"])
            answered = {chunk["request"] for chunk in body["chunks"]}
            self.said["tails"] = [tail for tail in self.said["tails"] if tail["request"] not in answered]
            self._changed.notify_all()

            def news() -> bool:
                new = any((one["workload"], one["attempt"]) not in known for one in self.said["run"])
                return new or self._turn != turn or self._version != self._told or self._server is None

            self._changed.wait_for(news, wait)
            answer = json.dumps(self.said).encode()
            if self._turn == turn:  # nobody looks at the answer to an abandoned report
                self._told = self._version
        if request.headers["Authorization"] != f"Bearer {TOKEN}":
            self.reply(request, 401, json.dumps({"detail": "the token is not known", "hint": "make one"}).encode())
        else:
            self.reply(request, self.status, answer if self.raw is None else self.raw)

    @staticmethod
    def reply(request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def wait_for(self, condition: Callable[[Report], Any], what: str = "a report") -> Report:
        """The last report, as soon as it satisfies the condition."""
        with self._changed:
            came = self._changed.wait_for(lambda: self.reports and condition(self.reports[-1]), PATIENCE)
            assert came, f"{what} did not come; the last is {json.dumps(self.reports[-1:], indent=1)}"
            return self.reports[-1]

    def wait_more(self, seen: int) -> None:
        """Wait until more than so many reports have come."""
        self.wait_for(lambda _: len(self.reports) > seen)

    def states(self) -> dict[tuple[str, int], str]:
        """The state of each attempt in the last report."""
        return {(one["workload"], one["attempt"]): one["state"] for one in self.reports[-1]["attempts"]}

    def wait_state(self, state: str, workload: str = "w1", attempt: int = 1) -> dict[str, Any]:
        """What is reported of an attempt once it is in this state."""

        def one(report: Report) -> dict[str, Any] | None:
            key = (workload, attempt)
            return next((a for a in report["attempts"] if (a["workload"], a["attempt"]) == key), None)

        report = self.wait_for(lambda report: (a := one(report)) and a["state"] == state, f"{workload} {state}")
        found = one(report)
        assert found
        return found

    def health(self, report: Report) -> dict[str, bool]:
        return {one["name"]: one["ok"] for one in report["health"]}


class AgentProcess:
    """A real agent in a process of its own, which can be killed and started anew on the same folder."""

    def __init__(self, daemon: Daemon, folder: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.state = folder / "state"
        self.log = folder / "agent.log"
        token = folder / "token"
        token.write_text(TOKEN)
        own = ["--host", "h1", "--pool", "main", "--state-dir", str(self.state), "--simulate-gpus", "8"]
        where = ["--url", daemon.url, "--token-file", str(token), "--interval", "20s"]
        self.command = [sys.executable, "-m", "gpubudget.cli.main", "agent", *own, *where, *options]
        self.environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> AgentProcess:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environment)
        return self

    def end(self, number: int, patience: float = PATIENCE) -> int:
        """Signal the agent and return its exit code."""
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(patience)


W1 = Key("w1", 1)


def all_over(attempts: Attempts) -> bool:
    """Whether no attempt runs any more."""
    attempts.refresh()
    return not attempts.running()


class Host:
    """Attempts over a folder, which can be taken over by a new agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = StateFolder(folder)
        self.attempts = Attempts(self.state, run_as_root=True)
        self.former: list[Attempts] = []

    def restart(self) -> None:
        self.former.append(self.attempts)
        self.state.close()
        self.state = StateFolder(self.folder)
        self.attempts = Attempts(self.state, run_as_root=True)

    def report(self, key: Key = W1) -> dict[str, Any]:
        self.attempts.refresh()
        return next(one for one in self.attempts.reports() if (one["workload"], one["attempt"]) == key)

    def ended(self, key: Key = W1) -> dict[str, Any]:
        def exited() -> dict[str, Any] | None:
            report = self.report(key)
            return report if report["state"] != "running" else None

        found: dict[str, Any] = eventually(exited, f"the end of {key}")
        return found

    def run(self, given: Run) -> dict[str, Any]:
        self.attempts.start(given)
        return self.ended(given.key)

    def log(self, key: Key = W1) -> str:
        return (self.state.attempt(key) / "output.log").read_text()

    def wait_log(self, text: str, key: Key = W1) -> None:
        path = self.state.attempt(key) / "output.log"
        eventually(lambda: path.exists() and text in path.read_text(), f"{text!r} in the log")

    def supervisor(self, key: Key = W1) -> int:
        pid: int = eventually(lambda: read_json(self.state.attempt(key), supervise.CLAIM), "a claim")["pid"]
        return pid

    def close(self) -> None:
        self.attempts.stop_stale(set())
        for one in self.attempts.running():
            self.attempts.stop(stop(*one.key, grace_ms=0))
        eventually(lambda: all(all_over(one) for one in (self.attempts, *self.former)))
        self.state.close()


def gone(pid: int) -> bool:
    """Whether there is no such process any more."""
    seen = supervise.process(pid)
    return seen is None or seen.zombie
