"""The conversation with agents: gangs over several hosts, lost and ill hosts, logs, and reports that come late."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import Api, Daemon, FakeAgent, eventually, put_body, small_tree, stopped_at_end

Submit = Callable[[dict[str, Any]], dict[str, Any]]

JOB: dict[str, Any] = {"budget": "lang/a", "gpus": 8, "min_runtime": "1h", "command": ["train"]}
GANG = {**JOB, "gpus": 16}


@pytest.fixture
def submit(daemon: Daemon) -> Submit:
    """Submits for alice."""
    alice = daemon.user("alice")
    return lambda body: alice("POST", "/v1/workloads", body)


def show(daemon: Daemon, workload: dict[str, Any]) -> dict[str, Any]:
    """The workload as it now is."""
    return dict(daemon.api()("GET", f"/v1/workloads/{workload['id']}"))


def host_of(daemon: Daemon, name: str) -> dict[str, Any]:
    """A host as it now is."""
    return dict(daemon.api()("GET", f"/v1/hosts/{name}"))


def test_a_gang_is_told_its_ranks_and_hosts(daemon: Daemon, agents: list[FakeAgent], submit: Submit) -> None:
    """Each host runs its part, with its rank and the list of all hosts."""
    submit(GANG)
    orders = [agent.sync()["run"][0] for agent in agents]
    assert sorted(order["rank"] for order in orders) == [0, 1]
    assert {tuple(order["hosts"]) for order in orders} == {tuple(orders[0]["hosts"])}
    assert all(order["gpus"] == list(range(8)) and order["gpus_per_host"] == 8 for order in orders)
    assert daemon.url


def test_ranks_that_finish_one_by_one_are_no_failure(daemon: Daemon, agents: list[FakeAgent], submit: Submit) -> None:
    """KAI#1968, #2012: while one rank goes on the gang runs and keeps all its GPUs; it is finished when all are."""
    made = submit(GANG)
    for agent in agents:
        agent.sync()
    agents[0].exit(made["id"], 0)
    agents[0].sync()
    assert agents[1].sync()["stop"] == []
    assert show(daemon, made)["state"] == "running"
    assert host_of(daemon, "h1")["free"] == 0
    agents[1].exit(made["id"], 0)
    agents[1].sync()
    assert (show(daemon, made)["state"], show(daemon, made)["exit_code"]) == ("finished", 0)


def test_a_rank_that_fails_ends_its_gang(daemon: Daemon, agents: list[FakeAgent], submit: Submit) -> None:
    """The other ranks are stopped, and the workload has failed with that rank's exit code and reason."""
    made = submit(GANG)
    for agent in agents:
        agent.sync()
    agents[1].exit(made["id"], 3, error="out of memory")
    agents[1].sync()
    assert show(daemon, made)["state"] == "running"
    assert agents[0].sync()["stop"][0]["reason"] == "gang"
    agents[0].sync()
    ended = show(daemon, made)
    assert (ended["state"], ended["exit_code"], ended["failures"]) == ("failed", 3, 1)
    assert "failed on h2: out of memory" in ended["reason"]


def test_a_failed_rank_is_told_to_the_others_at_once(daemon: Daemon, agents: list[FakeAgent], submit: Submit) -> None:
    """Also while their agents wait for news."""
    made = submit(GANG)
    for agent in agents:
        agent.sync()
        agent.sync()
    waiting = threading.Thread(target=agents[0].sync, args=(15_000,))
    waiting.start()
    agents[1].exit(made["id"], 1)
    begun = time.monotonic()
    agents[1].sync()
    waiting.join(20)
    assert agents[0].answer["stop"]
    assert time.monotonic() - begun < 5
    assert daemon.url


def test_a_failed_attempt_is_tried_again_while_retries_are_left(
    daemon: Daemon, agents: list[FakeAgent], submit: Submit
) -> None:
    """It has failed for good after one more failure than it has retries."""
    made = submit({**JOB, "retries": 1})
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    for attempt in (1, 2):
        agent.sync()
        assert agent.running() == {(made["id"], attempt)}
        agent.exit(made["id"], 1)
        agent.sync()
    assert (show(daemon, made)["state"], show(daemon, made)["attempts"]) == ("failed", 2)


def test_an_attempt_that_an_agent_no_longer_knows_has_failed(
    daemon: Daemon, agents: list[FakeAgent], submit: Submit
) -> None:
    """It is never ordered a second time."""
    made = submit(JOB)
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    agent.sync()
    agent.sync()
    agent.attempts.clear()
    assert agent.sync()["run"] == []
    assert show(daemon, made)["state"] == "failed"


def test_a_stop_before_the_agent_heard_of_the_start_needs_no_agent(
    daemon: Daemon, agents: list[FakeAgent], submit: Submit
) -> None:
    """Nothing can be running, so the attempt is over at once."""
    made = submit(JOB)
    daemon.user("alice")("POST", f"/v1/workloads/{made['id']}/cancel", {})
    eventually(lambda: show(daemon, made)["state"] == "cancelled")
    assert all(agent.sync()["run"] == [] for agent in agents)


def test_a_stop_whose_start_was_lost_on_the_way_ends_too(
    daemon: Daemon, agents: list[FakeAgent], submit: Submit
) -> None:
    """An agent that was told to stop what it never got reports nothing, and that is the end of it."""
    made = submit(JOB)
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    body = {"pool": "h100", "gpus": 8, "boot_id": "boot-1"}
    assert agent.api("POST", f"/v1/agents/{agent.host}/sync", body)["run"]  # an answer that the agent never sees
    daemon.user("alice")("POST", f"/v1/workloads/{made['id']}/cancel", {})
    assert agent.sync()["stop"]
    assert show(daemon, made)["state"] == "stopping"
    agent.sync()
    assert show(daemon, made)["state"] == "cancelled"


def test_gpus_stay_taken_until_the_processes_are_gone(daemon: Daemon, agents: list[FakeAgent], submit: Submit) -> None:
    """A cancelled workload that does not end keeps its host; the next one starts there only afterwards."""
    made = submit(JOB)
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    agent.sync()
    agent.obeys = False
    daemon.user("alice")("POST", f"/v1/workloads/{made['id']}/cancel", {})
    for _ in range(3):
        assert agent.sync()["stop"]
    assert host_of(daemon, agent.host)["free"] == 0
    agent.exit(made["id"], 0, signalled=True)
    agent.sync()
    assert host_of(daemon, agent.host)["free"] == 8


def test_a_late_report_of_an_old_attempt_changes_nothing(
    daemon: Daemon, agents: list[FakeAgent], submit: Submit
) -> None:
    """It may be forgotten, and the new attempt runs on."""
    made = submit({**JOB, "retries": 5})
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    agent.sync()
    late = dict(agent.attempts[made["id"], 1])
    agent.exit(made["id"], 1)
    agent.sync()
    agent.sync()
    agent.sync()
    assert agent.running() == {(made["id"], 2)}
    agent.attempts[made["id"], 1] = late | {"state": "exited", "exit_code": 9, "signalled": False}
    assert agent.sync()["forget"] == [{"workload": made["id"], "attempt": 1}]
    assert (show(daemon, made)["state"], show(daemon, made)["failures"]) == ("running", 1)
    agent.attempts[made["id"], 1] = late | {"state": "running"}
    assert [stop["reason"] for stop in agent.sync()["stop"]] == ["stale"]


def test_a_host_that_started_anew_was_lost(daemon: Daemon, agents: list[FakeAgent], submit: Submit) -> None:
    """Its attempts were not at fault: they are requeued, and the host is ready again."""
    made = submit(JOB)
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    agent.sync()
    agent.sync()
    agent.boot_id = "boot-2"
    agent.attempts.clear()
    agent.sync()
    again = show(daemon, made)
    assert (again["state"], again["failures"], again["attempts"]) == ("running", 0, 2)
    agent.sync()
    assert host_of(daemon, agent.host)["state"] == "ready"


def test_a_host_of_no_pool_is_told_so(daemon: Daemon) -> None:
    """A wrong pool or number of GPUs is refused with what the budgets say."""
    api = daemon.user("h9", "agent", "h9")
    agent = FakeAgent(api, "h9", pool="b200")
    status, found, _ = api.send("POST", "/v1/agents/h9/sync", {"pool": "b200", "gpus": 8, "boot_id": "b"})
    assert (status, found["detail"]) == (422, "host h9 says it is in pool b200, which there is not")
    status, found, _ = api.send("POST", "/v1/agents/h9/sync", {"pool": "h100", "gpus": 4, "boot_id": "b"})
    assert (status, found["detail"]) == (422, "host h9 has 4 GPUs, and pool h100 has 8 on each host")
    agent.pool = "h100"
    agent.sync()
    assert host_of(daemon, "h9")["state"] == "ready"


def test_hosts_beyond_those_declared_count_everywhere_and_are_told(
    daemon: Daemon, agents: list[FakeAgent], submit: Submit, caplog: pytest.LogCaptureFixture
) -> None:
    """Submit, placement and shares use all hosts that there are; lists, metrics and the log say that there are more."""
    told = "pool h100 has 3 hosts, and cluster.yaml says 2; all of them are used"
    alice, admin = daemon.user("alice"), daemon.api()
    said = [alice.send("POST", "/v1/workloads", {**GANG, "gpus": 24})[1]["detail"]]
    third = FakeAgent(daemon.user("h3", "agent", "h3"), "h3")
    third.sync()
    third.sync()
    assert [record.message for record in caplog.records] == [told]
    assert submit({**GANG, "gpus": 24})["state"] == "running"
    said.append(alice.send("POST", "/v1/workloads", {**GANG, "gpus": 32})[1]["detail"])
    assert said == [
        "24 GPUs are more than pool h100 has: 2 hosts of 8 GPUs, 16 in all",
        "32 GPUs are more than pool h100 has: 3 hosts of 8 GPUs, 24 in all",
    ]
    assert admin("GET", "/v1/budgets")["budgets"][0]["pools"]["h100"]["guarantee"] == "24/1"
    answer = admin("GET", "/v1/pools")
    assert [(pool["hosts"], pool["declared_hosts"]) for pool in answer["pools"]] == [(3, len(agents))]
    assert answer["warnings"] == admin("GET", "/v1/hosts")["warnings"] == [told]
    metrics = admin.send("GET", "/metrics")[1].decode()
    assert 'gpubudget_pool_hosts{count="declared",pool="h100"} 2.0' in metrics
    assert 'gpubudget_pool_hosts{count="present",pool="h100"} 3.0' in metrics
    admin("PUT", "/v1/budgets", put_body(small_tree(hosts=3), "c2", descends_from="c1"))
    assert admin("GET", "/v1/pools")["warnings"] == []


@pytest.mark.parametrize("change", [{"pool": "b200"}, {"gpus": 4}])
def test_a_host_that_works_stays_in_its_pool(
    daemon: Daemon, agents: list[FakeAgent], change: dict[str, Any], submit: Submit
) -> None:
    """An agent that comes back with another pool or number of GPUs is refused, and changes nothing."""
    agent = agents[0]
    body = {"pool": agent.pool, "gpus": agent.gpus, "boot_id": agent.boot_id} | change
    before = host_of(daemon, agent.host)
    status, found, _ = agent.api.send("POST", f"/v1/agents/{agent.host}/sync", body)
    assert (status, found["detail"]) == (
        409,
        f"host {agent.host} has 8 GPUs in pool h100, but its agent says {body['gpus']} in pool {body['pool']}",
    )
    assert host_of(daemon, agent.host) | {"last_seen_ms": 0} == before | {"last_seen_ms": 0}
    submit(GANG)
    agent.sync()
    assert agent.running()


def test_a_second_agent_of_a_host_cannot_end_what_the_first_runs(
    daemon: Daemon, agents: list[FakeAgent], submit: Submit
) -> None:
    """While an agent has work, one with another state folder is refused; on an empty host it takes over."""
    agent = agents[0]
    body = {"pool": agent.pool, "gpus": agent.gpus, "boot_id": agent.boot_id, "attempts": []}
    path = f"/v1/agents/{agent.host}/sync"
    assert agent.api.send("POST", path, body | {"agent_id": "first"})[0] == 200
    assert agent.api.send("POST", path, body | {"agent_id": "second"})[0] == 200
    workload = submit({**GANG, "gpus": 8 * len(agents)})
    eventually(lambda: show(daemon, workload)["state"] == "running")
    for each in agents:
        each.sync()
    status, found, _ = agent.api.send("POST", path, body | {"agent_id": "first"})
    assert (status, found["detail"]) == (
        409,
        f"another agent speaks for host {agent.host}, and has 1 attempt in its care",
    )
    for each in agents:
        each.sync()
    assert show(daemon, workload)["state"] == "running"


def test_a_lost_host_returns_to_a_pool_that_there_is(tmp_path: Path) -> None:
    """A lost host may have changed, but only to what the budgets have a place for."""
    with stopped_at_end(Daemon(tmp_path, lost_after=200)) as daemon:
        daemon.api()("PUT", "/v1/budgets", put_body(small_tree()))
        agent = FakeAgent(daemon.user("h1", "agent", "h1"), "h1")
        agent.sync()
        eventually(lambda: host_of(daemon, "h1")["state"] == "lost")
        status, found, _ = agent.api.send("POST", "/v1/agents/h1/sync", {"pool": "b200", "gpus": 8, "boot_id": "b"})
        assert (status, found["detail"]) == (422, "host h1 says it is in pool b200, which there is not")
        assert [pool["name"] for pool in daemon.api()("GET", "/v1/pools")["pools"]] == ["h100"]
        agent.sync()
        assert host_of(daemon, "h1")["state"] == "ready"


def test_an_agent_may_report_before_budgets_are_applied(bare: Daemon) -> None:
    """It is told to wait, and taken in when there are budgets."""
    from tests.daemon.harness import put_body, small_tree

    agent = FakeAgent(bare.user("h1", "agent", "h1"), "h1")
    assert agent.sync()["run"] == []
    assert host_of(bare, "h1")["reason"].startswith("not taken in yet")
    bare.api()("PUT", "/v1/budgets", put_body(small_tree()))
    agent.sync()
    assert host_of(bare, "h1")["state"] == "ready"


BAD_REPORTS: list[tuple[dict[str, Any], str]] = [
    ({"gpus": -1}, "gpus is -1"),
    ({"pool": 3}, "pool is 3, not a text"),
    ({"boot_id": None}, "boot_id is null"),
    ({"attempts": [{"workload": "w000001", "attempt": 1, "state": "odd"}]}, 'attempts[0].state is "odd"'),
    ({"attempts": [{"workload": "w000001", "attempt": 1.5, "state": "running"}]}, "attempts[0].attempt is 1.5"),
    ({"health": [{"name": "x", "ok": "yes"}]}, 'health[0].ok is "yes"'),
    ({"repair": {"token": "t", "state": "x"}}, 'repair.state is "x"'),
    ({"chunks": [{"request": "1", "data_b64": "%", "next_offset": 0, "end": False}]}, "not base64"),
    ({"extra": 1}, "extra is not a field"),
]


@pytest.mark.parametrize(("change", "said"), BAD_REPORTS, ids=[said for _, said in BAD_REPORTS])
def test_a_report_that_makes_no_sense_is_refused(still: Daemon, change: dict[str, Any], said: str) -> None:
    """With the place of what is wrong."""
    api = still.user("h1", "agent", "h1")
    status, found, _ = api.send("POST", "/v1/agents/h1/sync", {"pool": "h100", "gpus": 8, "boot_id": "b", **change})
    assert status == 400
    assert said in found["detail"]


def test_an_order_comes_at_once_while_an_agent_waits(daemon: Daemon, agents: list[FakeAgent], submit: Submit) -> None:
    """A held answer is given as soon as it differs; without news it is held as long as asked."""
    for agent in agents:
        agent.sync()
    begun = time.monotonic()
    agents[0].sync(wait_ms=300)
    assert time.monotonic() - begun >= 0.28
    waiting = [threading.Thread(target=agent.sync, args=(15_000,)) for agent in agents]
    for thread in waiting:
        thread.start()
    begun = time.monotonic()
    submit(GANG)
    for thread in waiting:
        thread.join(10)
    assert time.monotonic() - begun < 5
    assert all(agent.running() for agent in agents)
    assert daemon.url


def test_a_newer_report_ends_the_wait_of_an_older_one(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """An agent that has news need not wait for the answer that it is held for."""
    agents[0].sync()
    older = threading.Thread(target=agents[0].sync, args=(15_000,))
    older.start()
    time.sleep(0.05)
    second = FakeAgent(daemon.api(agents[0].api.token), "h1")
    begun = time.monotonic()
    second.sync()
    older.join(10)
    assert time.monotonic() - begun < 5


def test_a_host_may_be_removed_while_its_agent_waits(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """The agent is answered, and registers anew with its next report."""
    agents[0].sync()
    waiting = threading.Thread(target=agents[0].sync, args=(15_000,))
    waiting.start()
    admin = daemon.api()
    admin("POST", "/v1/hosts/h1/cordon", {"reason": "old"})
    admin("DELETE", "/v1/hosts/h1")
    agents[0].api = daemon.api(agents[0].api.token)
    agents[0].sync()
    waiting.join(20)
    assert host_of(daemon, "h1")["state"] == "ready"


def test_a_checkpoint_is_told_once(daemon: Daemon, agents: list[FakeAgent], submit: Submit) -> None:
    """The same one again, or one of an attempt that has ended, changes nothing."""
    made = submit(JOB)
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    agent.sync()
    agent.checkpoints = [
        {"workload": made["id"], "attempt": 1, "at_ms": 5},
        {"workload": "w000099", "attempt": 1, "at_ms": 5},
    ]
    agent.sync()
    agent.sync()
    found = daemon.api()("GET", "/v1/events?kind=checkpoint")["events"]
    assert [(event["workload"], event["attempt"]) for event in found] == [(made["id"], 1)]


def test_logs_come_from_the_agent(daemon: Daemon, agents: list[FakeAgent], submit: Submit) -> None:
    """In pieces whose offsets fit, whole characters each, until the end."""
    made = submit(JOB)
    agent = next(each for each in agents if each.host in made["attempt"]["placement"])
    agent.sync()
    agent.logs[made["id"], 1] = "first é".encode()[:-1]
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            agent.sync(wait_ms=200)

    server = threading.Thread(target=serve)
    server.start()
    try:
        reader = daemon.user("alice")
        found = reader("GET", f"/v1/workloads/{made['id']}/logs")
        assert (found["data"], found["offset"], found["next_offset"], found["end"]) == ("first ", 0, 6, False)
        agent.logs[made["id"], 1] = "first é last".encode()
        agent.exit(made["id"], 0)
        eventually(lambda: show(daemon, made)["state"] == "finished")
        found = reader("GET", f"/v1/workloads/{made['id']}/logs?offset={found['next_offset']}&wait_ms=2000&attempt=1")
        assert (found["data"], found["host"], found["end"]) == ("é last", agent.host, True)
    finally:
        over.set()
        server.join()
    status, found, _ = reader.send("GET", f"/v1/workloads/{made['id']}/logs?attempt=7")
    assert (status, found["detail"]) == (404, f"workload {made['id']} has no attempt 7")
    status, found, _ = reader.send("GET", f"/v1/workloads/{made['id']}/logs?host=h9")
    assert (status, found["detail"]) == (404, f"{made['id']} attempt 1 did not run on h9")


def test_logs_of_what_never_ran_are_not_found(still: Daemon, alice: Api) -> None:
    """With the reason."""
    status, found, _ = alice.send("GET", "/v1/workloads/w000099/logs")
    assert (status, found["detail"]) == (404, "there is no workload w000099")
    assert still.url
