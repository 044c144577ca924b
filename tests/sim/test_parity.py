"""One trace through a real daemon, whose clock is driven, and through the simulator: the same event log."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from gpubudget.core import eventlog
from gpubudget.core.budget import Policy
from gpubudget.core.decisions import Decision, Start
from gpubudget.core.events import BudgetsApplied, Event, Exited, HostReported, Outcome, Submitted, Woke
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadSpec
from gpubudget.sim.engine import Settings, simulate
from gpubudget.sim.played import Costs
from gpubudget.sim.submission import Ending, Scenario, SimHost, Submission, Workloads
from gpubudget.units import HOUR, MINUTE, SECOND
from tests.daemon.harness import Daemon, FakeAgent, eventually, put_body, small_tree, stopped_at_end

TREE = small_tree(3, Policy(grace_period=SECOND, rebalance_interval=HOUR))
HOSTS = tuple(SimHost(name, "h100", 8) for name in ("h1", "h2", "h3"))
START = 1_800_000_000_000
EXIT_CODES = {Outcome.FINISHED: 0, Outcome.FAILED: 1, Outcome.STOPPED: 143}
YEARS = 10**12
"""No agent is ever silent for so long."""


def submissions(seed: int, number: int = 40) -> tuple[Submission, ...]:
    """Work of two people for three budgets, more than three hosts can do, at moments that nothing else shares."""
    rng = random.Random(seed)
    found, at = [], START
    for place in range(1, number + 1):
        at += rng.randint(1, 10 * MINUTE)
        budget = rng.choice(["lang/a", "lang/b", "vision"])
        spec = WorkloadSpec(
            f"w{place:06}",
            "alice" if budget == "lang/a" else "bob",
            budget,
            ("h100",),
            rng.choice([1, 2, 4, 8, 8, 16]),
            min_runtime=rng.choice([0, 20 * MINUTE, 20 * MINUTE, 50 * MINUTE]) + rng.randint(1, 999),
            resumable=rng.random() < 0.8,
        )
        ending = rng.choice([Ending.FINISHED, Ending.FAILED])
        found.append(Submission(at, spec, rng.randint(5 * MINUTE, 3 * HOUR), ending))
    return tuple(found)


class Driven:
    """A daemon whose clock shows what it is told, with an agent for each host."""

    def __init__(self, daemon: Daemon, clock: list[int]) -> None:
        self.daemon, self.clock, self.admin = daemon, clock, daemon.api()
        self.users = {name: daemon.user(name) for name in ("alice", "bob")}
        self.agents = {host.name: FakeAgent(daemon.user(host.name, "agent", host.name), host.name) for host in HOSTS}
        for agent in self.agents.values():
            agent.obeys = False
        self.before = self.handled()

    def handled(self) -> int:
        """How many events the daemon's scheduler has handled."""
        found = re.search(rb"^gpubudget_events_total ([0-9.e+]+)$", self.admin("GET", "/metrics"), re.MULTILINE)
        assert found
        return int(float(found[1]))

    def repeat(self, number: int, event: Event, now: int) -> None:
        """Let happen, as the ``number``-th, what happened in the simulation."""
        self.clock[0] = now
        match event:
            case BudgetsApplied(tree):
                self.admin("PUT", "/v1/budgets", put_body(tree))
            case HostReported(host):
                self.agents[host].sync()
            case Submitted(spec):
                body: dict[str, object] = {"budget": spec.budget, "gpus": spec.gpus, "min_runtime": spec.min_runtime}
                body |= {"resumable": spec.resumable, "command": ["train"]}
                made = self.users[spec.owner]("POST", "/v1/workloads", body)
                assert made["id"] == spec.id
            case Exited(workload, attempt, outcome):
                self.exit((workload, attempt), outcome)
            case Woke():
                pass  # it looks at its clock
            case _:
                raise AssertionError(event)
        eventually(lambda: self.handled() >= self.before + number)
        assert self.handled() == self.before + number

    def exit(self, key: tuple[str, int], outcome: Outcome) -> None:
        """An attempt's processes end, on all of its hosts."""
        agents = [agent for agent in self.agents.values() if key in agent.attempts]
        assert agents
        for agent in agents:
            agent.attempts[key] |= {
                "state": "exited",
                "exit_code": EXIT_CODES[outcome],
                "signalled": outcome is Outcome.STOPPED,
            }
            agent.sync()

    def follow(self, decisions: list[Decision]) -> None:
        """The agents hear of what concerns them: attempts run before anything else happens."""
        for start in decisions:
            if isinstance(start, Start):
                for host, _ in start.placement:
                    self.runs(self.agents[host], (start.workload, start.attempt))

    def runs(self, agent: FakeAgent, key: tuple[str, int]) -> None:
        """An agent is told of an attempt, and says that it runs."""

        def told() -> bool:
            agent.sync()
            return key in agent.attempts

        eventually(told)
        agent.sync()

    def log(self) -> list[dict[str, Any]]:
        """All lines of the daemon's event log, without their numbers."""
        found, after = [], 0
        while lines := self.admin("GET", f"/v1/events?after={after}&limit=1000")["events"]:
            found += lines
            after = lines[-1]["seq"]
        return [{key: value for key, value in line.items() if key not in {"seq", "commit"}} for line in found]


def test_the_daemon_decides_what_the_simulator_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submissions over HTTP, exits from agents, wake-ups by its own clock: the two event logs are the same."""
    played: list[tuple[Event, list[Decision], int]] = []
    scenario = Scenario(TREE, HOSTS, Workloads("parity", submissions(1)))
    costs = Settings(costs=Costs(stop_time=7_777))
    result = simulate(scenario, Scheduler(), costs, log=lambda *what: played.append(what))
    assert len(result.preemptions) > 5

    clock = [START - HOUR]
    monkeypatch.setattr("gpubudget.daemon.clock.wall_clock", lambda: clock[0])
    monkeypatch.setattr("gpubudget.daemon.service.MAX_NAP", 10)  # it looks at its clock so often (milliseconds)
    with stopped_at_end(Daemon(tmp_path, lost_after=YEARS)) as daemon:
        driven = Driven(daemon, clock)
        for number, (event, decisions, now) in enumerate(played, start=1):
            driven.repeat(number, event, now)
            driven.follow(decisions)
        told = driven.log()
    expected = [line for event, decisions, now in played for line in eventlog.lines(event, decisions, now)]
    assert told == [{key: value for key, value in line.items() if key != "commit"} for line in expected]
