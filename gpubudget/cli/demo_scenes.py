"""The scenes of the demo: who asks for what, and what is waited for before the next one begins.

Nothing here decides: people submit, a file makes a GPU ill, a commit is made, and the rest is the product's own doing.
Every step waits for its condition; one that is not met in time ends the demo and says what was waited for.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gpubudget.cli.demo_checks import Line, Story
from gpubudget.cli.demo_cluster import HOSTS, POOL, Cluster, until
from gpubudget.cli.demo_screen import Screen, cluster_table, told
from gpubudget.cli.demo_workload import GOES_ON
from gpubudget.cli.output import now_ms, printable
from gpubudget.errors import GpuBudgetError
from gpubudget.units import SECOND

PATIENCE = 30.0
"""Seconds that any one step may take, but for those that wait for work to end."""
LONG_PATIENCE = 45.0
_STEPS_PER_SECOND = 10


class Demo:
    """The cluster as the scenes see it: the log so far, the workloads by name, and the screen that shows both."""

    def __init__(self, cluster: Cluster, screen: Screen) -> None:
        self.cluster, self.screen = cluster, screen
        self.log: list[Line] = []
        self.names: dict[str, str] = {}
        self.workloads: dict[str, dict[str, Any]] = {}
        self.hosts: dict[str, dict[str, Any]] = {}
        self.waiting: list[str] = []
        self._seen = 0
        self._began = now_ms()

    def look(self) -> None:
        """Read what has happened and how things are, and show it."""
        self.cluster.check_alive()
        admin = self.cluster.client("admin")
        workloads = admin.get("/v1/workloads", limit=1000)["workloads"]
        self.names.update({workload["id"]: workload["name"] for workload in workloads})
        answer = admin.get("/v1/events", after=self._seen, limit=1000)
        self._seen = answer["next"]
        for line in answer["events"]:
            self.log.append(line)
            if words := told(line, self.names):
                self.screen.say(f"{max(line['at'] - self._began, 0) / SECOND:6.1f} s  {words}", " " * 10)
        self.workloads = {workload["name"]: workload for workload in workloads}
        self.hosts = {host["name"]: host for host in admin.get("/v1/hosts")["hosts"]}
        if any(line["kind"] == "budgets_applied" for line in self.log):
            ranking = admin.get(f"/v1/ranking/{POOL}")["ranking"]
            self.waiting = [self.names[one] for one in ranking if one in self.names]
            budgets = admin.get("/v1/budgets")["budgets"]
            hosts = list(self.hosts.values())
            self.screen.show(cluster_table(hosts, workloads, budgets, ranking, now_ms()))

    def until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        """Look again and again until a condition holds."""

        def holds() -> bool:
            self.look()
            return condition()

        until(holds, what, seconds)

    def submit(
        self, person: str, budget: str | None, gpus: int, *, minimum: int = 0, seconds: int = 300, count: int = 1
    ) -> list[str]:
        """A person submits workloads that train for so many seconds; their names."""
        had = sum(name.startswith(f"{person}-") for name in self.workloads)
        names = [f"{person}-{had + 1 + number}" for number in range(count)]
        command = [sys.executable, str(self.cluster.train), str(seconds * _STEPS_PER_SECOND)]
        body = {"budget": budget, "gpus": gpus, "min_runtime": minimum * SECOND, "resumable": True, "command": command}
        self.cluster.client(person).post("/v1/workloads", {"workloads": [{**body, "name": name} for name in names]})
        self.look()
        return names

    def state(self, name: str) -> str:
        """The state of a workload."""
        return str(self.workloads[name]["state"])

    def all_run(self, names: Iterable[str]) -> bool:
        """Whether all these run."""
        return all(self.state(name) == "running" for name in names)

    def host_of(self, name: str) -> str:
        """The host that a running workload is on."""
        return str(next(iter(self.workloads[name]["attempt"]["placement"])))

    def output(self, name: str, attempt: int) -> str:
        """What an attempt has printed so far."""
        path = f"/v1/workloads/{self.workloads[name]['id']}/logs"
        return str(self.cluster.client("admin").get(path, attempt=attempt)["data"])

    def end_workloads(self) -> None:
        """Cancel all that waits, then all that runs, so that the log has an end of everything."""
        self.look()
        alive = [one for one in self.workloads.values() if one["ended_ms"] is None]
        for workload in sorted(alive, key=lambda one: one["attempt"] is not None):
            with contextlib.suppress(GpuBudgetError):  # it has just ended
                self.cluster.client("admin").post(f"/v1/workloads/{workload['id']}/cancel", {})
        self.until(lambda: all(one["ended_ms"] for one in self.workloads.values()), "the end of all workloads")

    def story(self) -> Story:
        """All that has happened, with what the workloads printed that were stopped for another and started again."""
        ids = {identity: name for identity, name in self.names.items() if self.workloads[name]["attempts"] > 1}
        keys = [
            (one, attempt) for one, name in ids.items() for attempt in range(2, self.workloads[name]["attempts"] + 1)
        ]
        return Story(self.log, self.names, {key: self.output(ids[key[0]], key[1]) for key in keys})


def budgets_from_git(demo: Demo) -> None:
    """The example tree is committed to a git repository, and the reconciler applies it."""
    demo.cluster.make_repository()
    _reconcile(demo)
    demo.cluster.start_agents()
    demo.until(lambda: [h["state"] for h in demo.hosts.values()] == ["ready"] * len(HOSTS), "three ready hosts")


def fill(demo: Demo) -> None:
    """The language program takes most of the cluster, and unallocated work all the rest."""
    names = demo.submit("alice", "language/olmo/alice", 8, minimum=15, seconds=40, count=2)
    names += demo.submit("farah", "language/posttraining/farah", 2, minimum=60)
    names += demo.submit("emil", "language/posttraining/emil", 2, minimum=3)
    names += demo.submit("goran", None, 2, count=2)
    demo.until(lambda: demo.all_run(names), "six workloads to run")


def leave_first(demo: Demo) -> None:
    """Two GPUs for ivan: emil-1 is past its minimum and could be stopped for him, but unallocated work goes first."""
    demo.until(lambda: demo.workloads["emil-1"]["attempt"]["protected_until_ms"] < now_ms(), "the end of a minimum")
    names = demo.submit("ivan", "vision/molmo/ivan", 2, minimum=10, seconds=12)
    demo.until(lambda: demo.all_run(names), "ivan-1 to run")


def rank(demo: Demo) -> None:
    """Three ask for a whole host each; the budget that has used least of its share ranks first, not who came first."""
    names = demo.submit("alice", "language/olmo/alice", 8, minimum=15, seconds=40)
    names += demo.submit("noor", "vision/video/noor", 8, minimum=8, seconds=20)
    names += demo.submit("olga", "science/earth/olga", 8, minimum=8, seconds=10)
    wanted = names[::-1]
    demo.until(lambda: [name for name in demo.waiting if name in names] == wanted, "olga, noor, alice in this order", 5)


def preempt(demo: Demo) -> None:
    """Protected until its minimum ends, alice's work is left alone; then it makes way for olga and noor."""
    demo.until(lambda: demo.all_run(["olga-1", "noor-1"]), "olga-1 and noor-1 to run")


def fall_ill(demo: Demo) -> None:
    """A GPU under noor-1 falls ill: its host takes nothing new, is left as minimums end, is repaired and comes back."""
    host = demo.host_of("noor-1")
    demo.cluster.sick_file(host).write_text(json.dumps({"sick": [5]}), encoding="ascii")
    demo.until(lambda: demo.hosts[host]["state"] != "ready", f"{host} to drain")
    demo.until(lambda: demo.hosts[host]["state"] == "ready", f"{host} to be repaired", LONG_PATIENCE)
    demo.until(lambda: bool(demo.hosts[host]["attempts"]), f"{host} to be used again")


def resume(demo: Demo) -> None:
    """One of alice's gets a host again, and goes on from the step that it had saved."""
    mine = ["alice-1", "alice-2"]
    back: list[str] = []

    def is_back() -> bool:
        back[:] = [name for name in mine if demo.state(name) == "running" and demo.workloads[name]["attempts"] > 1]
        return bool(back) and f"{GOES_ON} " in demo.output(back[0], demo.workloads[back[0]]["attempts"])

    demo.until(is_back, "one of alice's workloads to go on", LONG_PATIENCE)
    attempt = demo.workloads[back[0]]["attempts"]
    demo.screen.say(f"{'':10}{back[0]} printed: {printable(demo.output(back[0], attempt).strip())}", " " * 10)


def change_share(demo: Demo) -> None:
    """A commit moves a share from science to vision: selma ranked before noor, now noor ranks and starts first."""
    names = demo.submit("selma", "science/robotics/selma", 8, minimum=20)
    names += demo.submit("noor", "vision/video/noor", 8, minimum=8)
    demo.until(lambda: [one for one in demo.waiting if one in names] == names, "selma-1 to rank before noor-2", 5)
    root = demo.cluster.repository / "budgets" / "budget.yaml"
    root.write_text(with_shares(root.read_text(encoding="utf-8"), {"vision": "40%", "science": "5%"}), encoding="utf-8")
    demo.cluster.commit("Vision gets 40%, science 5%")
    _reconcile(demo)
    demo.until(
        lambda: [one for one in demo.waiting if one in names] == names[::-1], "noor-2 to rank before selma-1", 10
    )
    demo.until(lambda: demo.state("noor-2") == "running", "noor-2 to run", LONG_PATIENCE)


def _reconcile(demo: Demo) -> None:
    demo.screen.say("$ gpubudget reconcile --repo lab")
    for line in demo.cluster.reconcile().splitlines():
        if not line.startswith(("add ", "setting ")):
            demo.screen.say(f"  {printable(line)}", " " * 13)
    demo.look()


def with_shares(text: str, shares: dict[str, str]) -> str:
    """A budget file in which some children have another share, and nothing else is touched."""
    for name, share in shares.items():
        text, count = re.subn(rf"(?m)^  {name}:.*\n(?:   .*\n)*", f"  {name}: {share}\n", text)
        if count != 1:
            raise ValueError(f"the budget file has {count} children named {name}")
    return text


@dataclass(frozen=True, slots=True)
class Scene:
    """A part of the demo. Its function's docstring says in a sentence what it shows."""

    letters: str
    play: Callable[[Demo], None]

    @property
    def sentence(self) -> str:
        """What it shows."""
        return " ".join((self.play.__doc__ or "").split())


SCENES = (
    Scene("", budgets_from_git),
    Scene("d", fill),
    Scene("d", leave_first),
    Scene("a", rank),
    Scene("b, c", preempt),
    Scene("e", fall_ill),
    Scene("b", resume),
    Scene("f", change_share),
)
