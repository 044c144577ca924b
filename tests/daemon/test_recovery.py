"""Restarts: nothing is forgotten, and a database that decides otherwise is not started from."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gpubudget.daemon.recovery import recover
from gpubudget.daemon.store import Store
from gpubudget.errors import BrokenInvariantError
from tests.daemon.harness import Daemon, FakeAgent

JOB: dict[str, Any] = {"budget": "lang/a", "gpus": 8, "min_runtime": "1h", "resumable": True, "command": ["train"]}


def everything(daemon: Daemon) -> dict[str, Any]:
    """All that the API shows, apart from what time alone changes."""
    api = daemon.api()
    hosts = api("GET", "/v1/hosts")["hosts"]
    budgets = api("GET", "/v1/budgets")["budgets"]
    for budget in budgets:
        for pool in budget["pools"].values():
            del pool["entitlement_gpu_ms"], pool["balance_gpu_ms"]
    return {
        "workloads": api("GET", "/v1/workloads")["workloads"],
        "hosts": [{key: value for key, value in host.items() if key != "last_seen_ms"} for host in hosts],
        "budgets": budgets,
        "events": api("GET", "/v1/events")["events"],
        "reservations": api("GET", "/v1/reservations"),
        "applied": api("GET", "/v1/budgets/applied"),
        "tokens": [{**token, "used_ms": 0} for token in api("GET", "/v1/tokens")["tokens"]],
    }


def busy(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """Work that runs, ends, stops and waits, and a host that drains."""
    alice, bob = daemon.user("alice"), daemon.user("bob")
    ids = [alice("POST", "/v1/workloads", JOB)["id"] for _ in range(3)]
    bob("POST", "/v1/workloads", {**JOB, "budget": "vision", "gpus": 16})
    for agent in agents:
        agent.sync()
        agent.sync()
    agents[0].exit(agents[0].running().pop()[0])
    for agent in agents:
        agent.sync()
    alice("POST", f"/v1/workloads/{ids[1]}/cancel", {})
    daemon.api()("POST", "/v1/hosts/h2/drain", {"reason": "fan", "hold": True})


def test_all_is_as_it_was_after_a_restart(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """From the snapshot of an orderly end."""
    busy(daemon, agents)
    before = everything(daemon)
    daemon.restart()
    assert everything(daemon) == before


def test_all_is_as_it_was_without_any_snapshot(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """From a replay of all inputs, as after a kill before the first snapshot."""
    busy(daemon, agents)
    before = everything(daemon)
    daemon.stop()
    altered(daemon.db, "DELETE FROM snapshots")
    daemon.start()
    assert everything(daemon) == before
    for agent in agents:
        agent.api = daemon.api(agent.api.token)
        assert {(order["workload"], order["attempt"]) for order in agent.sync()["run"]} <= agent.running()


def altered(db: Path, *statements: str) -> None:
    """Change a database behind the daemon's back."""
    connection = sqlite3.connect(db, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


NEWEST = "(SELECT max(seq) FROM log)"
COPIED = f"INSERT INTO log SELECT seq + 1, input, at, kind, workload, host, line FROM log WHERE seq = {NEWEST}"
CANCELLED = '{"kind":"Cancelled","workload":"x","by":""}'


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE log SET line = replace(line, ':8', ':4') WHERE seq = 4", "line 4 of the log is another"),
        (f"DELETE FROM log WHERE seq = {NEWEST}", "of the log is another one"),
        (COPIED, "the log has more lines than it gives"),
        (
            "UPDATE inputs SET event = replace(event, 'Submitted', 'Woke') WHERE seq = 4",
            "it is refused: Woke has an unknown key",
        ),
        ("UPDATE inputs SET event = '{' WHERE seq = 4", "it is not JSON"),
        (f"UPDATE log SET line = 'x' WHERE seq = {NEWEST}", "holds a record that cannot be read: JSONDecodeError"),
        ("UPDATE workloads SET request = '{}'", "holds a record that cannot be read: ValueError"),
        (f"UPDATE inputs SET event = '{CANCELLED}' WHERE seq = 4", "it is refused: there is no workload 'x'"),
    ],
)
def test_a_replay_that_decides_otherwise_is_an_error(
    daemon: Daemon, agents: list[FakeAgent], statement: str, said: str
) -> None:
    """The daemon says at which input, and does not start."""
    assert agents
    daemon.user("alice")("POST", "/v1/workloads", JOB)
    daemon.stop()
    altered(daemon.db, "DELETE FROM snapshots", statement)
    with pytest.raises(BrokenInvariantError, match=said.replace("(", r"\(")) as told:
        daemon.start()
    assert told.value.hint
    with Store(daemon.db) as store, pytest.raises(BrokenInvariantError):
        recover(store)


def test_a_snapshot_that_cannot_be_read_is_an_error(daemon: Daemon, agents: list[FakeAgent]) -> None:
    """With the input that it stands after."""
    assert agents
    daemon.stop()
    altered(daemon.db, "UPDATE snapshots SET state = '{}'")
    with pytest.raises(BrokenInvariantError, match="the snapshot after input 3 cannot be read"):
        daemon.start()


def test_snapshots_are_taken_as_inputs_come(tmp_path: Path) -> None:
    """So that a restart after a kill replays few of them."""
    from tests.daemon.harness import eventually, put_body, small_tree, stopped_at_end

    with stopped_at_end(Daemon(tmp_path, snapshot_every=10)) as daemon:
        daemon.api()("PUT", "/v1/budgets", put_body(small_tree()))
        alice = daemon.user("alice")

        def taken() -> bool:
            alice("POST", "/v1/workloads", JOB)
            with Store(daemon.db) as store:
                return store.snapshot() is not None

        eventually(taken)
