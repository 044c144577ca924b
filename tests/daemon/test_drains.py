"""Hosts that fall ill, are drained, repaired and come back, fall silent, or are removed; and restarts in between."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import Daemon, FakeAgent, eventually, put_body, small_tree, stopped_at_end

ILL = [{"name": "gpu", "ok": False, "message": "GPU 3 fell off the bus"}]
WELL = [{"name": "gpu", "ok": True, "message": ""}]
JOB = {"budget": "lang/a", "gpus": 8, "min_runtime": "1h", "command": ["train"]}


def host_of(daemon: Daemon, name: str) -> dict[str, Any]:
    """A host as it now is."""
    return dict(daemon.api()("GET", f"/v1/hosts/{name}"))


def states(daemon: Daemon, name: str) -> list[str]:
    """All states that the log tells of a host, in order."""
    found = daemon.api()("GET", "/v1/events?kind=host")["events"]
    return [event["state"] for event in found if event["host"] == name]


def repaired(agent: FakeAgent, state: str, health: list[dict[str, Any]]) -> None:
    """The agent reports how the repair it was told to do ended, and checks."""
    token = agent.answer["repair"]["token"]
    agent.repair = {"token": token, "state": state, "step": "reset", "message": state}
    agent.health = health
    agent.sync()


def test_an_ill_host_is_drained_repaired_and_returns_by_itself(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """Nobody has to be asked: failed check, drain, repair, check, ready."""
    agent = agents[0]
    agent.health = ILL
    assert agent.sync()["repair"]["token"]
    found = host_of(daemon, "h1")
    assert (found["state"], found["reason"]) == ("repairing", "gpu: GPU 3 fell off the bus")
    assert found["health"] == ILL
    agent.repair = {"token": agent.answer["repair"]["token"], "state": "running", "step": "reset", "message": ""}
    agent.sync()
    assert host_of(daemon, "h1")["repair"]["step"] == "reset"
    repaired(agent, "done", WELL)
    assert host_of(daemon, "h1")["state"] == "ready"
    assert agent.sync()["repair"] is None
    assert states(daemon, "h1") == ["ready", "draining", "drained", "repairing", "ready"]


def test_a_protected_workload_is_not_stopped_by_a_drain(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """The host takes nothing new, and waits for the end of its protection."""
    made = daemon.user("alice")("POST", "/v1/workloads", JOB)
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    agent.sync()
    agent.health = ILL
    answer = agent.sync()
    assert (answer["stop"], answer["repair"]) == ([], None)
    assert host_of(daemon, agent.host)["state"] == "draining"
    agent.exit(made["id"])
    agent.sync()
    assert agent.sync()["repair"]
    assert host_of(daemon, agent.host)["state"] == "repairing"


def test_after_failed_repairs_a_host_waits_for_a_person(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """It is tried as often as configured; uncordon gives it back; the share that needed a person is counted."""
    agent = agents[0]
    agent.health = ILL
    for failures, (state, health) in enumerate([("failed", ILL), ("done", ILL), ("failed", WELL)], start=1):
        assert agent.sync()["repair"]
        repaired(agent, state, health)
        assert host_of(daemon, "h1")["repair"]["failures"] == failures
    assert agent.sync()["repair"] is None
    found = host_of(daemon, "h1")
    assert (found["state"], found["repair"]["waits_for_person"]) == ("drained", True)
    daemon.restart()
    agent.api = daemon.api(agent.api.token)
    assert agent.sync()["repair"] is None
    assert b'gpubudget_repairs_total{person="yes"} 1.0' in daemon.api("")("GET", "/metrics")
    assert daemon.api()("POST", "/v1/hosts/h1/uncordon", {})["state"] == "ready"
    agent.repair = None
    agent.sync()
    assert host_of(daemon, "h1")["state"] == "ready"
    assert host_of(daemon, "h1")["repair"] is None


def test_a_drain_by_a_person_repairs_unless_it_holds(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """A held host is left alone until it is given back, also across a restart."""
    admin = daemon.api()
    assert admin("POST", "/v1/hosts/h1/drain", {"reason": "new firmware"})["state"] == "drained"
    assert agents[0].sync()["repair"]
    found = admin("POST", "/v1/hosts/h2/drain", {"reason": "rack work", "hold": True})
    assert (found["state"], found["reason"], found["hold"]) == ("drained", "rack work", True)
    assert agents[1].sync()["repair"] is None
    daemon.restart()
    agents[1].api = daemon.api(agents[1].api.token)
    assert agents[1].sync()["repair"] is None
    admin = daemon.api()
    assert admin("GET", "/v1/hosts/h2")["state"] == "drained"
    assert admin("POST", "/v1/hosts/h2/uncordon", {})["state"] == "ready"
    assert admin("GET", "/v1/hosts/h2")["hold"] is False


def test_to_ask_twice_for_the_same_of_a_host_is_no_error(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """The second answer says that nothing changed, and nothing has: not the reason either, and not the log."""
    admin = daemon.api()
    steps = [("cordon", {}), ("uncordon", {}), ("drain", {"hold": True}), ("drain", {}), ("uncordon", {})]
    for action, body in steps:
        answers, logged = [], []
        for reason in ("first", "second"):
            given = body if action == "uncordon" else {"reason": reason, **body}
            answers.append(admin("POST", f"/v1/hosts/h1/{action}", given))
            logged.append(admin("GET", "/v1/events?limit=0")["next"])
        assert [answer.pop("changed") for answer in answers] == [True, False]
        assert answers[0] == answers[1]
        assert logged[0] == logged[1]
    admin("POST", "/v1/hosts/h1/drain", {"reason": "x"})
    assert agents[0].sync()["repair"]
    assert admin("POST", "/v1/hosts/h1/drain", {"reason": "x"})["changed"] is False
    assert admin("POST", "/v1/hosts/h1/drain", {"reason": "x", "hold": True}, 409)["hint"]


def test_a_drain_can_be_cancelled(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """A draining host that is given back runs on, and the drain does not fire later."""
    made = daemon.user("alice")("POST", "/v1/workloads", JOB)
    host = next(iter(made["attempt"]["placement"]))
    admin = daemon.api()
    assert admin("POST", f"/v1/hosts/{host}/drain", {"reason": "x"})["state"] == "draining"
    assert admin("POST", f"/v1/hosts/{host}/uncordon", {})["state"] == "ready"
    for agent in agents:
        agent.sync()
    assert admin("GET", f"/v1/workloads/{made['id']}")["state"] == "running"
    assert states(daemon, host) == ["ready", "draining", "ready"]


def test_a_cordoned_host_takes_nothing_new(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """What it runs goes on."""
    assert agents
    admin = daemon.api()
    for host in ("h1", "h2"):
        assert admin("POST", f"/v1/hosts/{host}/cordon", {"reason": "look"})["state"] == "cordoned"
    made = daemon.user("alice")("POST", "/v1/workloads", JOB)
    assert made["state"] == "pending"
    admin("POST", "/v1/hosts/h2/uncordon", {})
    assert admin("GET", f"/v1/workloads/{made['id']}")["state"] == "running"


def test_what_is_asked_of_an_unknown_host_is_not_found(daemon: Daemon) -> None:
    """Whatever is asked."""
    admin = daemon.api()
    for method, path, body in [
        ("POST", "drain", {"reason": "x"}),
        ("POST", "cordon", {"reason": "x"}),
        ("POST", "uncordon", {}),
        ("DELETE", "", None),
        ("GET", "", None),
    ]:
        status, found, _ = admin.send(method, f"/v1/hosts/none/{path}".rstrip("/"), body)
        assert (status, "there is no host 'none'") == (404, found["detail"])
    status, found, _ = admin.send("POST", "/v1/hosts/h1/drain", {})
    assert (status, found["detail"]) == (400, "reason is missing")


def test_a_host_is_removed_when_it_is_empty(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """A ready one is a conflict; a drained one is gone, and registers anew if its agent lives."""
    admin = daemon.api()
    assert admin.send("DELETE", "/v1/hosts/h1")[0] == 409
    admin("POST", "/v1/hosts/h1/drain", {"reason": "old", "hold": True})
    assert admin("DELETE", "/v1/hosts/h1")["removed"] is True
    assert [host["name"] for host in admin("GET", "/v1/hosts")["hosts"]] == ["h2"]
    agents[0].sync()
    assert admin("GET", "/v1/hosts/h1")["state"] == "ready"


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon to which half a second of silence is too much."""
    with stopped_at_end(Daemon(tmp_path, lost_after=500, poll=200)) as daemon:
        daemon.api()("PUT", "/v1/budgets", put_body(small_tree()))
        yield daemon


def test_agents_report_well_before_they_would_be_lost(tmp_path: Path) -> None:
    """However rarely they shall report: their answers are not held for longer, and they do not rest for longer."""
    with stopped_at_end(Daemon(tmp_path, lost_after=1_500, poll=60_000)) as daemon:
        daemon.api()("PUT", "/v1/budgets", put_body(small_tree()))
        agent = FakeAgent(daemon.user("h1", "agent", "h1"), "h1")
        for _ in range(5):
            assert agent.sync(wait_ms=60_000)["poll_ms"] == 500
        assert states(daemon, "h1") == ["ready"]


def test_a_silent_host_is_lost_and_comes_back_clean(impatient: Daemon) -> None:
    """Its workload is requeued at once; it is ready again only when the old attempt is gone from it."""
    agent = FakeAgent(impatient.user("h1", "agent", "h1"), "h1")
    agent.sync()
    made = impatient.user("alice")("POST", "/v1/workloads", JOB)
    agent.sync()
    agent.sync()
    agent.obeys = False
    eventually(lambda: host_of(impatient, "h1")["state"] == "lost")
    found = impatient.api()("GET", f"/v1/workloads/{made['id']}")
    assert (found["state"], found["failures"]) == ("pending", 0)
    assert [stop["reason"] for stop in agent.sync()["stop"]] == ["stale"]
    assert host_of(impatient, "h1")["state"] == "lost"
    agent.obeys = True
    agent.sync()
    agent.sync()
    assert host_of(impatient, "h1")["state"] == "ready"
    agent.sync()
    assert agent.running() == {(made["id"], 2)}


def test_a_gang_with_a_lost_host_is_stopped_as_a_whole(impatient: Daemon) -> None:
    """The part that is left is told to stop, and when it is gone the workload waits again."""
    agents = [FakeAgent(impatient.user(host, "agent", host), host) for host in ("h1", "h2")]
    for agent in agents:
        agent.sync()
    made = impatient.user("alice")("POST", "/v1/workloads", {**JOB, "gpus": 16})
    for agent in agents:
        agent.sync()
        agent.sync()
    assert len(agents[0].running()) == len(agents[1].running()) == 1

    def stopped() -> bool:
        return [stop["reason"] for stop in agents[0].sync()["stop"]] == ["host_lost"]

    eventually(stopped)
    agents[0].sync()
    found = impatient.api()("GET", f"/v1/workloads/{made['id']}")
    assert (found["state"], found["failures"]) == ("pending", 0)


def test_a_host_that_comes_back_ill_is_repaired(impatient: Daemon) -> None:
    """It is never ready in between."""
    agent = FakeAgent(impatient.user("h1", "agent", "h1"), "h1")
    agent.sync()
    eventually(lambda: host_of(impatient, "h1")["state"] == "lost")
    agent.health = ILL
    assert agent.sync()["repair"]
    assert states(impatient, "h1")[:4] == ["ready", "lost", "drained", "repairing"]


def test_an_ill_host_is_not_taken_in(daemon: Daemon) -> None:
    """A host whose first report has a failed check is shown with that, and takes no work until it is healthy."""
    agent = FakeAgent(daemon.user("h3", "agent", "h3"), "h3")
    agent.health = ILL
    agent.sync()
    found = host_of(daemon, "h3")
    assert (found["state"], found["reason"]) == ("lost", "not taken in yet: gpu: GPU 3 fell off the bus")
    agent.health = WELL
    agent.sync()
    assert host_of(daemon, "h3")["state"] == "ready"


def test_silence_while_the_daemon_is_down_does_not_count(impatient: Daemon) -> None:
    """After a restart every host has the full time again."""
    agent = FakeAgent(impatient.user("h1", "agent", "h1"), "h1")
    agent.sync()
    impatient.stop()
    import time

    time.sleep(0.6)
    impatient.start()
    assert host_of(impatient, "h1")["state"] == "ready"
    agent.api = impatient.api(agent.api.token)
    agent.sync()
    assert states(impatient, "h1") == ["ready"]
