"""What callers see: the answers of the API, and its refusals."""

from tests.daemon.harness import Daemon, FakeAgent, eventually

JOB = {"budget": "lang/a", "gpus": 4, "min_runtime": "1h", "command": ["train"]}


def test_a_workload_runs_from_submit_to_its_end(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """A submitted workload starts on a host's agent and is finished when that reports exit code 0."""
    alice = daemon.user("alice")
    made = alice("POST", "/v1/workloads", {**JOB, "env": {"A": "b"}, "name": "first"})
    assert (made["state"], made["owner"], made["command"], made["name"]) == ("running", "alice", ["train"], "first")
    host = next(iter(made["attempt"]["placement"]))
    agent = next(each for each in agents if each.host == host)
    order = agent.sync()["run"][0]
    assert (order["command"], order["env"], order["gpus"], order["rank"]) == (["train"], {"A": "b"}, [0, 1, 2, 3], 0)
    agent.exit(made["id"])
    assert agent.sync()["run"] == []
    ended = alice("GET", f"/v1/workloads/{made['id']}")
    assert (ended["state"], ended["exit_code"], ended["attempts"], ended["attempt"]) == ("finished", 0, 1, None)
    eventually(lambda: not agent.sync()["forget"] and not agent.attempts)
