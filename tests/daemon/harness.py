"""A real daemon, callers and scripted agents for the tests: HTTP on loopback, SQLite files, processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gpubudget.core import plain
from gpubudget.core.budget import ROOT, Budget, Policy, Pool, Shares, Tree
from gpubudget.daemon.server import Options, run
from gpubudget.daemon.service import Settings

T = TypeVar("T")

PATIENCE = 15.0
HOUR = 3_600_000


def small_tree(hosts: int = 2, policy: Policy | None = None, share: Fraction = Fraction(1, 2), **pools: int) -> Tree:
    """Two programs: one with two projects, of which the first may be charged by alice, and one of bob's."""

    def budget(path: str, part: Fraction, *members: str, children: tuple[Budget, ...] = ()) -> Budget:
        return Budget(path, Shares(part), managers=(f"{path}-lead",), members=members, children=children)

    inner = (budget("lang/a", Fraction(1, 2), "alice", "carol"), budget("lang/b", Fraction(1, 4), "bob"))
    children = (budget("lang", share, "hanna", children=inner), budget("vision", Fraction(1, 3), "bob"))
    root = Budget(ROOT, Shares(Fraction(1)), managers=("boss",), children=children)
    found = tuple(Pool(name, 8, count) for name, count in (pools or {"h100": hosts}).items())
    return Tree(root, found, policy or Policy(grace_period=1_000))


def put_body(tree: Tree, commit: str = "c1", **more: object) -> dict[str, Any]:
    """The body of a request that applies a tree."""
    known = {"author": "Hanna <hanna@example.org>", "committed_ms": 1_000, "descends_from": None, "force": False}
    return {"tree": plain.encode(tree), "commit": commit, "digest": plain.digest(tree), **known, **more}


def eventually(what: Callable[[], T], patience: float = PATIENCE) -> T:
    """What a question answers as soon as the answer is true; fails when that takes too long."""
    deadline = time.monotonic() + patience
    while not (found := what()):
        assert time.monotonic() < deadline, f"not true within {patience} s"
        time.sleep(0.01)
    return found


class Api:
    """One caller: a token and a connection that is kept. Not for several threads at once."""

    def __init__(self, url: str, token: str | None) -> None:
        self.netloc, self.token = urlsplit(url).netloc, token
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Status, decoded JSON (or bytes) and headers of the answer; bytes as a body go out as they are."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        given = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.netloc, timeout=30)
        try:
            self._connection.request(method, path, data, given | (headers or {}))
            response = self._connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        is_json = "json" in (response.getheader("content-type") or "") and "ndjson" not in response.headers
        return response.status, json.loads(raw) if is_json else raw, response.headers

    def __call__(self, method: str, path: str, body: object = None, status: int | None = None, **headers: str) -> Any:  # noqa: ANN401 - any JSON
        """The answer's JSON; fails unless the status is the one given, or one of success."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        got, found, _ = self.send(method, path, body, named)
        assert got == status if status is not None else got < 300, (got, found)
        return found


class Daemon:
    """A daemon on a database: in a thread, or as a process that can be killed."""

    def __init__(self, folder: Path, *, process: bool = False, port: int = 0, **settings: int) -> None:
        self.db, self.admin_file = folder / "daemon.db", folder / "admin.token"
        self.errors = folder / "daemon.err"
        self.process, self.port, self.settings = process, port, settings
        self.url = ""
        self.apis: list[Api] = []
        self._child: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.error: BaseException | None = None

    def start(self) -> Daemon:
        """Start, and wait until it listens."""
        if self.process:
            self._start_process()
        else:
            self._start_thread()
        return self

    def spawn(self) -> subprocess.Popen[str]:
        """Begin to start the process; ``start`` also waits until it listens."""
        options = [f"--{name.replace('_', '-')}={value}ms" for name, value in self.settings.items()]
        listen = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "gpubudget.cli.main", "serve", f"--db={self.db}", f"--listen={listen}"]
        command += [f"--admin-token-file={self.admin_file}", *options]
        with self.errors.open("a") as errors:
            self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        return self._child

    def _start_process(self) -> None:
        self._child = self.spawn()
        assert self._child.stdout is not None
        readable, _, _ = select.select([self._child.stdout], [], [], 4 * PATIENCE)
        line = self._child.stdout.readline() if readable else ""
        if not line.startswith("listening on "):
            self._child.kill()
            self._child.communicate()
            raise AssertionError(f"the daemon did not start: {self.errors.read_text()[-2_000:]}")
        self.url = line.split()[-1]
        self.port = urlsplit(self.url).port or 0

    def _start_thread(self) -> None:
        ready = threading.Event()
        self._stop = threading.Event()
        options = Options(self.db, port=self.port, admin_token_file=self.admin_file, settings=Settings(**self.settings))

        def listening(url: str) -> None:
            self.url = url
            ready.set()

        def serve() -> None:
            try:
                run(options, listening, self._stop)
            except BaseException as error:  # noqa: BLE001 - handed to the test
                self.error = error
            finally:
                ready.set()

        self._thread = threading.Thread(target=serve)
        self._thread.start()
        assert ready.wait(PATIENCE)
        if self.error is not None:
            self._thread.join()
            raise self.error
        self.port = urlsplit(self.url).port or 0

    def api(self, token: str | None = None) -> Api:
        """A caller; without a token, the administrator."""
        api = Api(self.url, self.admin_file.read_text().strip() if token is None else token)
        self.apis.append(api)
        return api

    def user(self, name: str, role: str = "user", host: str | None = None) -> Api:
        """A caller with a new token."""
        admin = self.api()
        made = admin("POST", "/v1/tokens", {"name": name, "role": role, "host": host})
        return self.api(made["token"])

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        assert self._child is not None
        self._child.send_signal(signal.SIGKILL)
        self._child.communicate()
        self._child = None

    def stop(self) -> int:
        """End it in good order; its exit code."""
        for api in self.apis:
            api.close()
        self.apis.clear()
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)
            self._child.communicate(timeout=PATIENCE)
            code, self._child = self._child.returncode, None
            return code
        if self._thread is not None:
            self._stop.set()
            self._thread.join(PATIENCE)
            assert not self._thread.is_alive(), "the daemon did not end"
            self._thread = None
        return 0

    def restart(self) -> None:
        """Stop and start again on the same database and port."""
        self.stop()
        self.error = None
        self.start()


class FakeAgent:
    """An agent without processes: what it is told to run it says is running, until a test ends it."""

    def __init__(self, api: Api, host: str, pool: str = "h100", gpus: int = 8) -> None:
        self.api, self.host, self.pool, self.gpus = api, host, pool, gpus
        self.boot_id = "boot-1"
        self.attempts: dict[tuple[str, int], dict[str, Any]] = {}
        self.orders: dict[tuple[str, int], dict[str, Any]] = {}
        self.health: list[dict[str, Any]] = [{"name": "gpu", "ok": True, "message": ""}]
        self.repair: dict[str, Any] | None = None
        self.checkpoints: list[dict[str, Any]] = []
        self.logs: dict[tuple[str, int], bytes] = {}
        self.chunks: list[dict[str, Any]] = []
        self.obeys = True
        self.answer: dict[str, Any] = {}

    def sync(self, wait_ms: int = 0) -> dict[str, Any]:
        """Report, and follow what is answered."""
        chunks, self.chunks = self.chunks, []
        body = {
            "pool": self.pool,
            "gpus": self.gpus,
            "boot_id": self.boot_id,
            "attempts": list(self.attempts.values()),
            "health": self.health,
            "repair": self.repair,
            "checkpoints": self.checkpoints,
            "chunks": chunks,
        }
        self.answer = self.api("POST", f"/v1/agents/{self.host}/sync?wait_ms={wait_ms}", body)
        for order in self.answer["run"]:
            self._run(order)
        for order in self.answer["stop"]:
            found = self.attempts.get((order["workload"], order["attempt"]))
            if self.obeys and found is not None and found["state"] == "running":
                found |= {"state": "exited", "exit_code": 143, "signalled": True}
        for order in self.answer["forget"]:
            self.attempts.pop((order["workload"], order["attempt"]), None)
        for tail in self.answer["tails"]:
            self._tail(tail)
        return self.answer

    def _run(self, order: dict[str, Any]) -> None:
        key = (order["workload"], order["attempt"])
        if key not in self.orders:
            self.orders[key] = order
            self.attempts[key] = {
                "workload": key[0],
                "attempt": key[1],
                "state": "running",
                "exit_code": None,
                "signalled": False,
                "started_ms": 1,
            }

    def _tail(self, tail: dict[str, Any]) -> None:
        import base64

        log = self.logs.get((tail["workload"], tail["attempt"]), b"")
        data = log[tail["offset"] : tail["offset"] + tail["limit"]]
        following = tail["offset"] + len(data)
        running = self.attempts.get((tail["workload"], tail["attempt"]), {}).get("state") == "running"
        self.chunks.append(
            {
                "request": tail["request"],
                "data_b64": base64.b64encode(data).decode(),
                "next_offset": following,
                "end": not running and following == len(log),
            }
        )

    def exit(self, workload: str, code: int = 0, **more: object) -> None:
        """The processes of a running attempt end by themselves."""
        for found in self.attempts.values():
            if found["workload"] == workload and found["state"] == "running":
                found |= {"state": "exited", "exit_code": code, **more}

    def running(self) -> set[tuple[str, int]]:
        """What runs here."""
        return {key for key, found in self.attempts.items() if found["state"] == "running"}


@contextlib.contextmanager
def stopped_at_end(daemon: Daemon) -> Iterator[Daemon]:
    """Start a daemon, and stop it whatever happens."""
    try:
        yield daemon.start()
    finally:
        daemon.stop()
        if (child := daemon._child) is not None:
            os.kill(child.pid, signal.SIGKILL)
