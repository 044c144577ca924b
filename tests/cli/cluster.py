"""A real cluster on this machine: the daemon and two agents with eight simulated GPUs each, as processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from gpubudget.cli.client import Client
from gpubudget.core import plain
from gpubudget.core.budget import Budget, Policy, Pool, Shares, Tree
from gpubudget.errors import GpuBudgetError

GPUBUDGET = Path(sys.executable).parent / "gpubudget"
POOL, HOSTS, GPUS = "a100", ("h1", "h2"), 8
DEADLINE = 20.0

T = TypeVar("T")


def tree() -> Tree:
    """Two programs; language has a project of its own."""
    alice = Budget("language/alice", Shares(Fraction(1, 2)), managers=("lena",), members=("alice",))
    language = Budget(
        "language", Shares(Fraction(1, 2)), "Language models", managers=("lena",), members=("lena",), children=(alice,)
    )
    vision = Budget("vision", Shares(Fraction(1, 4)), managers=("viktor",), members=("bob", "alice"))
    root = Budget("/", Shares(Fraction(1)), managers=("hanna",), children=(language, vision))
    return Tree(root, (Pool(POOL, GPUS, len(HOSTS)),), Policy(grace_period=2_000))


def until(condition: Callable[[], T], what: str, deadline: float = DEADLINE) -> T:
    """The first true value of a condition; fails when it does not come in time."""
    end = time.monotonic() + deadline
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not happen within {deadline:.0f} s"
        time.sleep(0.02)
    return value


@dataclass
class Cluster:
    """Where the daemon is, and the tokens of everybody who calls it."""

    folder: Path
    url: str = ""
    tokens: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    daemon: subprocess.Popen[bytes] | None = None

    def client(self, name: str) -> Client:
        """A client that calls as that person or role."""
        return Client(self.url, self.tokens[name])

    def environment(self, name: str) -> dict[str, str]:
        """The variables with which ``gpubudget`` is called as that person."""
        mine = {key: value for key, value in os.environ.items() if not key.startswith("GPUBUDGET_")}
        return mine | {"GPUBUDGET_URL": self.url, "GPUBUDGET_TOKEN": self.tokens[name]}

    def start(self, *arguments: str, log: str) -> subprocess.Popen[bytes]:
        """Start a service of ours; its output is in the log file of that name."""
        with (self.folder / log).open("wb") as output:
            environment = {key: value for key, value in os.environ.items() if not key.startswith("GPUBUDGET_")}
            process = subprocess.Popen(
                [GPUBUDGET, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        self.processes.append(process)
        return process

    def log(self, name: str) -> str:
        """What a service has said."""
        return (self.folder / name).read_text()


def _serve(cluster: Cluster, listen: str = "127.0.0.1:0") -> None:
    admin = cluster.folder / "admin-token"
    database = str(cluster.folder / "gpubudget.db")
    daemon = cluster.start(
        "serve", "--db", database, "--listen", listen, "--admin-token-file", str(admin), log="daemon.log"
    )
    cluster.daemon = daemon

    def address() -> str:
        assert daemon.poll() is None, cluster.log("daemon.log")
        found = re.search(r"http://127\.0\.0\.1:[1-9][0-9]*", cluster.log("daemon.log"))
        return found[0] if found else ""

    cluster.url = until(address, "the daemon's start")
    cluster.tokens["admin"] = until(lambda: admin.read_text().strip() if admin.exists() else "", "the first token")


def kill_and_restart(cluster: Cluster) -> None:
    """The daemon is killed with SIGKILL and started again at the same place."""
    assert cluster.daemon is not None
    cluster.daemon.kill()
    cluster.daemon.wait()
    _serve(cluster, cluster.url.removeprefix("http://"))


def _apply(client: Client) -> None:
    encoded = plain.encode(tree())
    body = {
        "tree": encoded,
        "commit": "c" * 40,
        "author": "hanna",
        "committed_ms": 1_700_000_000_000,
        "digest": plain.digest(encoded),
        "descends_from": None,
        "force": False,
    }
    assert client.put("/v1/budgets", body)["applied"]


def _agents(cluster: Cluster, client: Client) -> None:
    config = cluster.folder / "agent.yaml"
    config.write_text("unknown_owners: run-as-root\n")  # the tests' people are no users of this machine
    for host in HOSTS:
        token = client.post("/v1/tokens", {"name": host, "role": "agent", "host": host})["token"]
        path = cluster.folder / f"{host}.token"
        path.write_text(token)
        state, shared = str(cluster.folder / host), str(cluster.folder / "shared")
        Path(shared).mkdir(exist_ok=True)
        options = ["--url", cluster.url, "--token-file", str(path), "--host", host, "--pool", POOL]
        options += ["--state-dir", state, "--shared-dir", shared, "--simulate-gpus", str(GPUS), "--interval", "500ms"]
        options += ["--config", str(config)]
        cluster.start("agent", *options, "--stop-workloads", log=f"{host}.log")


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster that is ready for work; everything it started is gone afterwards."""
    cluster = Cluster(folder)
    try:
        _serve(cluster)
        with cluster.client("admin") as client:
            _apply(client)
            for person in ("alice", "bob", "lena"):
                cluster.tokens[person] = client.post("/v1/tokens", {"name": person, "role": "user"})["token"]
            _agents(cluster, client)

            def ready() -> bool:
                return [host["state"] for host in client.get("/v1/hosts")["hosts"]] == ["ready"] * len(HOSTS)

            until(ready, "both hosts' being ready")
        yield cluster
    finally:
        for process in reversed(cluster.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(cluster.processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def clear(cluster: Cluster) -> None:
    """End every workload and give every host back, so that the next test finds the cluster empty."""
    with cluster.client("admin") as client:

        def alive() -> list[dict[str, Any]]:
            found = client.get("/v1/workloads", state="pending,held,starting,running,stopping")["workloads"]
            return list(found)

        for workload in alive():
            if workload["state"] != "stopping":
                try:
                    client.post(f"/v1/workloads/{workload['id']}/cancel", {})
                except GpuBudgetError:  # it has just ended
                    continue
        until(lambda: not alive(), "the end of all workloads")
        for host in client.get("/v1/hosts")["hosts"]:
            if host["state"] != "ready":
                client.post(f"/v1/hosts/{host['name']}/uncordon", {})
        until(lambda: all(host["state"] == "ready" for host in client.get("/v1/hosts")["hosts"]), "ready hosts")
