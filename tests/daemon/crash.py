"""Kill -9 of a daemon under load, again and again, and what must hold afterwards.

    python -m tests.daemon.crash --kills 200

Submitters, cancellers and agents (scripted, but over HTTP) go on while the daemon is killed at random moments and
started again on the same database. After every kill, on the database as it was left:

- every workload whose submission was answered is there;
- what the event stream told a listener stands in the log, word for word;
- usage and all state are the same from the newest snapshot as from the very first event (every tenth kill, and last);
- usage of every budget is what a sum over the log gives.

And at every moment: no attempt starts twice, no workload runs twice at once, no GPU has two holders. At the end all
workloads are ended, and the auditor that shares nothing with the scheduler finds nothing wrong in the log.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import shutil
import sqlite3
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpubudget.core import plain
from gpubudget.core.budget import Policy, parent_path
from gpubudget.core.events import Event
from gpubudget.core.scheduler import Scheduler
from gpubudget.daemon.recovery import recover
from gpubudget.daemon.store import Store
from gpubudget.sim.audit import audit
from tests.daemon.harness import Api, Daemon, FakeAgent, eventually, put_body, small_tree

AWAY = (OSError, http.client.HTTPException)
HOSTS = ("h1", "h2", "h3", "h4")
PEOPLE = {"alice": ("lang/a",), "bob": ("lang/b", "vision"), "hanna": ("lang",)}
WAITING_AT_MOST = 150
FULL_REPLAY_EVERY = 10


class Wrong(AssertionError):  # noqa: N818 - it is what it says
    """Something that must never happen has happened."""


class World:
    """What is true outside the daemon: which processes exist, and what was promised."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.accepted: set[str] = set()
        self.alive: dict[str, set[tuple[int, str]]] = defaultdict(set)
        self.holders: dict[tuple[str, int], tuple[str, int]] = {}
        self.begun: set[tuple[str, int, str]] = set()
        self.heard: dict[int, str] = {}
        self.wrong: list[str] = []
        self.calm, self.over = threading.Event(), threading.Event()

    def started(self, workload: str, attempt: int, host: str, gpus: list[int]) -> None:
        """A process starts."""
        with self.lock:
            if (workload, attempt, host) in self.begun:
                self.wrong.append(f"{workload} attempt {attempt} started twice on {host}")
            if others := {other for other, _ in self.alive[workload]} - {attempt}:
                self.wrong.append(f"{workload} attempt {attempt} starts while {others} runs")
            for gpu in gpus:
                if (holder := self.holders.get((host, gpu))) is not None:
                    self.wrong.append(f"GPU {gpu} of {host} goes to {workload} while {holder} has it")
                self.holders[host, gpu] = (workload, attempt)
            self.begun.add((workload, attempt, host))
            self.alive[workload].add((attempt, host))

    def ended(self, workload: str, attempt: int, host: str, gpus: list[int]) -> None:
        """A process is gone."""
        with self.lock:
            self.alive[workload].discard((attempt, host))
            for gpu in gpus:
                self.holders.pop((host, gpu), None)


class Agent(FakeAgent):
    """A scripted agent whose processes end by themselves after a while, badly now and then."""

    def __init__(self, world: World, api: Api, host: str, seed: int) -> None:
        super().__init__(api, host)
        self.world, self.random = world, random.Random(seed)
        self.obeys = False
        self.ends: dict[tuple[str, int], tuple[float, int, bool]] = {}

    def _run(self, order: dict[str, Any]) -> None:
        key = (order["workload"], order["attempt"])
        if key in self.attempts:
            return
        self.world.started(*key, self.host, order["gpus"])
        super()._run(order)
        code = self.random.choice((0, 0, 0, 0, 1))
        self.ends[key] = (time.monotonic() + self.random.uniform(0.01, 0.25), code, False)

    def step(self) -> None:
        """End what is due, report, and begin to stop what should."""
        now = time.monotonic()
        for key, (when, code, signalled) in list(self.ends.items()):
            if when <= now:
                self.world.ended(*key, self.host, self.orders[key]["gpus"])
                self.attempts[key] |= {"state": "exited", "exit_code": code, "signalled": signalled}
                del self.ends[key]
        for order in self.sync(wait_ms=50)["stop"]:
            key = (order["workload"], order["attempt"])
            if key in self.ends and not self.ends[key][2]:
                self.ends[key] = (time.monotonic() + self.random.uniform(0, 0.05), 143, True)


def patiently(
    world: World, api: Api, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Ask until the daemon answers: status and JSON."""
    while True:
        try:
            return api.send(method, path, body, headers)[:2]
        except AWAY:
            if world.over.is_set():
                raise
            time.sleep(0.01)


def submitter(world: World, api: Api, person: str, seed: int) -> None:
    """Submit and cancel as somebody, each submission under a key so that a lost answer is asked for again."""
    chance, own, number = random.Random(seed), list[str](), 0
    while not world.calm.is_set():
        number += 1
        body = {
            "budget": chance.choice(PEOPLE[person]),
            "gpus": chance.choice((1, 1, 1, 1, 2, 2, 4, 8, 16)),
            "min_runtime": chance.choice((0, 50, 200, 1_000)),
            "resumable": chance.random() < 0.7,
            "retries": chance.choice((0, 0, 3)),
            "command": ["train", str(number)],
        }
        status, made = patiently(
            world, api, "POST", "/v1/workloads", body, {"Idempotency-Key": f"{person}-{seed}-{number}"}
        )
        if status != 201:
            raise Wrong(f"a submission was answered by {status} {made}")
        own.append(made["id"])
        with world.lock:
            world.accepted.add(made["id"])
        if chance.random() < 0.2:
            patiently(world, api, "POST", f"/v1/workloads/{chance.choice(own[-20:])}/cancel", {})
        while not world.calm.is_set():
            waiting = patiently(world, api, "GET", f"/v1/workloads?owner={person}&state=pending&limit=1000")[1]
            if len(waiting["workloads"]) < WAITING_AT_MOST // len(PEOPLE):
                break
            time.sleep(0.01)


def listener(world: World, daemon: Daemon, token: str) -> None:
    """Follow the event stream across all restarts, and keep every line."""
    while not world.over.is_set():
        after = max(world.heard, default=0)
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
        try:
            headers = {"Authorization": f"Bearer {token}"}
            connection.request("GET", f"/v1/events/stream?after={after}", headers=headers)
            response = connection.getresponse()
            while line := response.readline():
                if line.endswith(b"\n") and line.strip():
                    world.heard[json.loads(line)["seq"]] = line.decode().strip()
        except AWAY:
            time.sleep(0.01)
        finally:
            connection.close()


def agent_loop(world: World, agent: Agent) -> None:
    """Be a host until the end."""
    while not world.over.is_set():
        try:
            agent.step()
        except AWAY:
            time.sleep(0.01)


class Left:
    """A database as a kill left it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, world: World, *, full: bool) -> None:
        """Raise Wrong for the first thing that should not be."""
        with world.lock:
            accepted, heard = set(world.accepted), dict(world.heard)
        with Store(self.path) as store:
            recovered = recover(store).scheduler
            at = store.last_input()[1]
            rows = store.lines(0, 10**9)
            if full:
                self._replay(store, recovered, at)
        known = self._ids()
        if lost := accepted - known:
            raise Wrong(f"accepted and lost: {sorted(lost)[:5]}")
        for seq, _, text in rows:
            if seq in heard and heard.pop(seq) != f'{{"seq":{seq},{text[1:]}':
                raise Wrong(f"line {seq} of the log is not what was told before")
        if heard:
            raise Wrong(f"lines {sorted(heard)[:5]} were told and are lost")
        summed = usage_by_sum([json.loads(text) for _, _, text in rows], at)
        for view in recovered.budgets(at):
            if view.usage != summed[view.path]:
                raise Wrong(f"usage of {view.path} is {view.usage}, by sum over the log {summed[view.path]}")
        recovered.check()

    def _ids(self) -> set[str]:
        db = sqlite3.connect(self.path)
        try:
            return {f"w{number:06d}" for (number,) in db.execute("SELECT number FROM workloads")}
        finally:
            db.close()

    @staticmethod
    def _replay(store: Store, recovered: Scheduler, at: int) -> None:
        afresh = Scheduler()
        decoded: Callable[[Any, object], Event] = plain.decode
        for _, when, text in store.inputs(0):
            afresh.handle(decoded(Event, json.loads(text)), when)
        if afresh.budgets(at) != recovered.budgets(at):
            raise Wrong("usage from the snapshot is not usage from the first event")
        if json.dumps(afresh.snapshot()) != json.dumps(recovered.snapshot()):
            raise Wrong("the state from the snapshot is not the state from the first event")


def usage_by_sum(lines: list[dict[str, Any]], now: int) -> Counter[str]:
    """GPU-milliseconds by budget, ancestors included, of all attempts in a log that is shorter than the window."""
    asked: dict[str, dict[str, Any]] = {}
    usage: Counter[str] = Counter()
    live: dict[str, tuple[int, int]] = {}

    def charge(workload: str, time_held: int) -> None:
        path, gpus = asked[workload]["budget"], asked[workload]["gpus"]
        usage[path] += gpus * time_held
        while path != "/":
            path = parent_path(path)
            usage[path] += gpus * time_held

    for line in lines:
        workload = line.get("workload", "")
        match line["kind"]:
            case "submitted":
                asked[workload] = line
            case "claimed" if asked[workload]["min_runtime_ms"]:
                charge(workload, asked[workload]["min_runtime_ms"])
                live[workload] = (-1, 0)
            case "unclaimed" if workload in live:
                del live[workload]
                charge(workload, -asked[workload]["min_runtime_ms"])
            case "started" if line["allocated"]:
                if live.pop(workload, None) is not None:
                    charge(workload, -asked[workload]["min_runtime_ms"])
                live[workload] = (line["at"], line["protected_until_ms"])
            case "stopped" if workload in live:
                charge(workload, line["at"] - live.pop(workload)[0])
            case _:
                pass
    for workload, (start, protected) in live.items():
        if start >= 0:
            charge(workload, max(now, protected) - start)
    return usage


class Crew:
    """Threads that go on through everything, and what went wrong in them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.threads: list[threading.Thread] = []
        self.faults: list[BaseException] = []

    def begin(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        """A thread does some work."""

        def guarded() -> None:
            try:
                work(*arguments)
            except BaseException as error:  # noqa: BLE001 - told by ``sound``
                self.faults.append(error)

        self.threads.append(threading.Thread(target=guarded, daemon=True))
        self.threads[-1].start()
        return self.threads[-1]

    def sound(self) -> bool:
        """Raise Wrong if anything was wrong so far."""
        if self.faults or self.world.wrong:
            raise Wrong(f"{self.world.wrong[:3]} {self.faults[:3]}")
        return True

    def end(self, daemon: Daemon) -> None:
        """Stop the daemon, which ends what waits for it, and let all threads end."""
        self.world.calm.set()
        self.world.over.set()
        daemon.stop()
        for thread in self.threads:
            thread.join(30)


def crash(folder: Path, kills: int, seed: int = 0, report: Callable[[str], None] = lambda _: None) -> dict[str, int]:
    """Kill a daemon so many times and check everything; figures of what happened. Raises Wrong."""
    chance, world = random.Random(seed), World()
    crew = Crew(world)
    daemon = Daemon(folder, process=True, lost_after=30_000, poll=200).start()
    policy = Policy(grace_period=1_000, rebalance_interval=200, failed_soon=100, preempt_backoff=100)
    daemon.api()("PUT", "/v1/budgets", put_body(small_tree(hosts=len(HOSTS), policy=policy)))
    token = str(daemon.user("observer").token)
    agents = [Agent(world, daemon.user(host, "agent", host), host, seed + i) for i, host in enumerate(HOSTS)]
    try:
        callers = [crew.begin(submitter, world, daemon.user(person), person, seed) for person in PEOPLE]
        for agent in agents:
            crew.begin(agent_loop, world, agent)
        crew.begin(listener, world, daemon, token)
        for number in range(1, kills + 1):
            time.sleep(chance.uniform(0.02, 0.35))
            one_kill(daemon, world, chance, full=number % FULL_REPLAY_EVERY == 0)
            crew.sound()
            if number % FULL_REPLAY_EVERY == 0:
                report(f"{number} kills, {len(world.accepted)} accepted, {len(world.begun)} processes")
        world.calm.set()
        for caller in callers:
            caller.join(30)
        last_kill(daemon, world, crew, token)
        return _ended(daemon, world)
    finally:
        crew.end(daemon)


def one_kill(daemon: Daemon, world: World, chance: random.Random, *, full: bool) -> None:
    """Kill the daemon, look at what it left, and start it again; now and then it is also killed while it recovers."""
    daemon.kill()
    Left(daemon.db).check(world, full=full)
    if chance.random() < 0.1:
        daemon.spawn()
        time.sleep(chance.uniform(0.1, 0.5))
        daemon.kill()
    daemon.start()


def last_kill(daemon: Daemon, world: World, crew: Crew, token: str) -> None:
    """Let all work end, so that usage stands still, and see that a kill does not change it."""
    observer, admin = daemon.api(token), daemon.api()
    for waiting in observer("GET", "/v1/workloads?limit=1000&state=pending")["workloads"]:
        admin.send("POST", f"/v1/workloads/{waiting['id']}/cancel", {})  # a conflict if it has ended meanwhile
    goes_on = "/v1/workloads?limit=1000&state=pending,held,starting,running,stopping"
    eventually(lambda: crew.sound() and not observer("GET", goes_on)["workloads"], 120)
    before = observer("GET", "/v1/budgets")
    daemon.kill()
    Left(daemon.db).check(world, full=True)
    daemon.start()
    if usages(before) != usages(daemon.api(token)("GET", "/v1/budgets")):
        raise Wrong("usage is not the same before the last kill and after it")
    crew.sound()


def usages(budgets: dict[str, Any]) -> dict[str, int]:
    """Usage by budget in an answer of the API."""
    return {budget["path"]: budget["pools"]["h100"]["usage_gpu_ms"] for budget in budgets["budgets"]}


def _ended(daemon: Daemon, world: World) -> dict[str, int]:
    """Audit the whole log; the figures."""
    lines, after, api = list[bytes](), 0, daemon.api()
    while page := api("GET", f"/v1/events?after={after}&limit=10000")["events"]:
        lines += [json.dumps(event).encode() for event in page]
        after = page[-1]["seq"]
    found = audit(lines).findings
    if found:
        raise Wrong(f"the auditor found {len(found)}: {found[:3]}")
    kinds = Counter(json.loads(line)["kind"] for line in lines)
    preempted = sum(b'"preempted": [[' in line for line in lines)
    return {
        "accepted": len(world.accepted),
        "processes": len(world.begun),
        "events": len(lines),
        "started": kinds["started"],
        "preemptions": preempted,
        "heard": len(world.heard),
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="gpubudget-crash-"))
    try:
        figures = crash(folder, options.kills, options.seed, print)
    except AssertionError:
        print(f"what is left is in {folder}")
        raise
    shutil.rmtree(folder)
    print(f"{options.kills} kills in {time.monotonic() - begun:.0f} s, nothing lost, nothing twice, ledger equal:")
    print("  " + ", ".join(f"{value} {name}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
