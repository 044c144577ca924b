"""Durable submits a second over HTTP, and the time of one request that submits 10,000 workloads.

A real daemon with synchronous=FULL on a new database; 128 hosts with 8 GPUs each have reported, so that workloads start
until they are full and then wait. Several client processes keep a few connections each busy.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpubudget.core import plain
from gpubudget.core.budget import ROOT, Budget, Policy, Pool, Shares, Tree

PROGRAMS, PROJECTS, HOSTS = 10, 15, 128
BATCH = 10_000
BARS = {"submits": 1_000.0, "batch": 5.0}


def tree() -> Tree:
    """10 programs with 15 projects each; everybody may charge every budget."""

    def budget(path: str, part: Fraction, children: tuple[Budget, ...] = ()) -> Budget:
        return Budget(path, Shares(part), members=("bench",), children=children)

    programs = tuple(
        budget(f"p{p}", Fraction(1, PROGRAMS), tuple(budget(f"p{p}/b{b}", Fraction(1, 15)) for b in range(PROJECTS)))
        for p in range(PROGRAMS)
    )
    return Tree(budget(ROOT, Fraction(1), programs), (Pool("h100", 8, HOSTS),), Policy())


def body(number: int) -> dict[str, Any]:
    """One workload."""
    budget = f"p{number % PROGRAMS}/b{number // PROGRAMS % PROJECTS}"
    return {
        "budget": budget,
        "gpus": 1 << number % 4,
        "min_runtime": "1h",
        "resumable": True,
        "command": ["train", "-x"],
    }


class Caller:
    """A connection that is kept."""

    def __init__(self, url: str, token: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def __call__(self, method: str, path: str, value: object) -> Any:  # noqa: ANN401 - JSON of any shape
        self.connection.request(method, path, json.dumps(value), self.headers)
        response = self.connection.getresponse()
        raw = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {raw.decode()[:500]}")
        return json.loads(raw)


@contextmanager
def daemon(folder: Path) -> Iterator[tuple[str, str]]:
    """A daemon on a new database: its URL and the administrator's token."""
    command = [sys.executable, "-m", "gpubudget.cli.main", "serve", f"--db={folder / 'bench.db'}"]
    command += ["--listen=127.0.0.1:0", f"--admin-token-file={folder / 'token'}", "--lost-after=1h"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            url = child.stdout.readline().split()[-1]
            yield url, (folder / "token").read_text().strip()
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait()


def prepare(url: str, token: str) -> str:
    """Apply the budgets and let the hosts report; the token of a user."""
    admin = Caller(url, token)
    budgets = tree()
    applied = {"tree": plain.encode(budgets), "commit": "c", "digest": plain.digest(budgets)}
    admin("PUT", "/v1/budgets", applied)
    for number in range(HOSTS):
        host = f"h{number:03d}"
        agent = admin("POST", "/v1/tokens", {"name": host, "role": "agent", "host": host})["token"]
        report = {"pool": "h100", "gpus": 8, "boot_id": "b"}
        Caller(url, agent)("POST", f"/v1/agents/{host}/sync", report)
    return str(admin("POST", "/v1/tokens", {"name": "bench", "role": "user"})["token"])


def submit(url: str, token: str, connections: int, seconds: float, counts: MutableSequence[int], place: int) -> None:
    """Submit one by one on several connections; leaves how many were accepted."""
    done = [0] * connections
    deadline = time.monotonic() + seconds

    def work(line: int) -> None:
        caller = Caller(url, token)
        while time.monotonic() < deadline:
            caller("POST", "/v1/workloads", body(done[line] * 7 + line))
            done[line] += 1

    threads = [threading.Thread(target=work, args=(line,)) for line in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts[place] = sum(done)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, daemon(Path(name)) as (url, admin):
        user = prepare(url, admin)
        counts = multiprocessing.RawArray("i", options.processes)
        begun = time.monotonic()
        clients = [
            multiprocessing.Process(
                target=submit, args=(url, user, options.connections, options.seconds, counts, place)
            )
            for place in range(options.processes)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        took, accepted = time.monotonic() - begun, sum(counts[:])
        rate = accepted / took
        print(f"durable submits: {rate:8.0f} a second over {took:.1f} s, {accepted} in all (bar {BARS['submits']:.0f})")
        bodies = {"workloads": [body(number) for number in range(BATCH)]}
        begun = time.monotonic()
        made = Caller(url, user)("POST", "/v1/workloads", bodies)["workloads"]
        batch = time.monotonic() - begun
        print(f"one request of {len(made)}: {batch:.2f} s (bar {BARS['batch']:.0f} s)")
        with sqlite3.connect(Path(name) / "bench.db") as db:
            kept = db.execute("SELECT count(*) FROM workloads").fetchone()[0]
        db.close()
        print(f"in the database: {kept} workloads; {os.cpu_count()} cores")
        if kept != accepted + len(made):
            raise SystemExit(f"{accepted + len(made)} were accepted, {kept} are in the database")


if __name__ == "__main__":
    main()
