"""``get``, ``usage`` and the commands for hosts, with a real daemon and real agents."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
import yaml

from gpubudget.cli.client import Client
from tests.cli.cluster import GPUBUDGET, GPUS, Cluster, until

Cli = Callable[..., tuple[int, str, str]]
KINDS = ["budgets", "workloads", "hosts", "reservations", "pools"]


@pytest.fixture
def busy(alice: Cli) -> list[str]:
    """Two workloads: one of vision that runs on both hosts, and one of language that waits for it; their ids."""
    budgets = ("vision", "language/alice")
    ids = [alice("submit", "-b", budget, "-g", "16", "-m", "1h", "--", "sleep", "600")[1].strip() for budget in budgets]
    until(lambda: json.loads(alice("get", "workloads", ids[0], "-o", "json")[1])["state"] == "running", "its start")
    return ids


def form(answer: dict[str, list[dict[str, object]]]) -> dict[str, object]:
    """An answer without its values, which change between two looks."""
    return {key: [list(row) for row in rows] if isinstance(rows, list) else rows for key, rows in answer.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_every_form(alice: Cli, busy: list[str], kind: str) -> None:
    """Each list is a table, a wide one, JSON, JSON lines, YAML and names, with the same things in it."""
    assert busy
    table, wide, as_json, as_jsonl, as_yaml, names = (
        alice("get", kind, "-o", fmt) for fmt in ("table", "wide", "json", "jsonl", "yaml", "name")
    )
    assert all(done[0] == 0 and done[2] == "" for done in (table, wide, as_json, as_jsonl, as_yaml, names))
    assert form(json.loads(as_json[1])) == form(yaml.safe_load(as_yaml[1]))
    assert names[1].split()
    rows = table[1].splitlines()
    assert rows[0] == rows[0].upper()
    assert len(rows) == len(wide[1].splitlines()) == len(as_jsonl[1].splitlines()) + 1
    assert len(wide[1].splitlines()[0].split()) >= len(rows[0].split())
    assert {row.split()[0] for row in rows[1:]} == set(names[1].split())


@pytest.mark.parametrize("kind", KINDS)
def test_one_by_its_name(alice: Cli, busy: list[str], kind: str) -> None:
    """A name picks one; a name that there is not is one sentence."""
    assert busy
    name = alice("get", kind, "-o", "name")[1].split()[0]
    assert alice("get", kind, name, "-o", "name")[1].split() == [name]
    assert isinstance(json.loads(alice("get", kind, name, "-o", "json")[1]), dict)
    code, out, err = alice("get", kind, "no-such-name")
    assert (code, out) == (1, "")
    assert "no-such-name" in err.splitlines()[0]


def test_workloads_are_filtered(alice: Cli, busy: list[str]) -> None:
    """Those that wait or run are shown, unless a state, a budget, an owner or all are asked for."""
    assert alice("get", "workloads", "-o", "name")[1].split() == busy
    assert alice("get", "workloads", "--state", "pending", "-o", "name")[1].split() == busy[1:]
    assert alice("get", "workloads", "--budget", "language", "-o", "name")[1].split() == busy[1:]
    assert alice("get", "workloads", "--owner", "bob", "-o", "name")[1] == ""
    assert set(alice("get", "workloads", "--all", "-o", "name")[1].split()) >= set(busy)
    code, _, err = alice("get", "workloads", "--state", "asleep")
    assert code == 1
    assert "asleep" in err


def test_options_of_another_kind_are_refused(alice: Cli) -> None:
    """An option that means nothing for a kind is no silent mistake."""
    assert alice("get", "hosts", "--owner", "bob")[0] == 64
    assert alice("get", "budgets", "--after", "3")[0] == 64
    assert alice("get", "events", "-o", "yaml")[0] == 64


def test_events_are_the_public_log(alice: Cli, cluster: Cluster, busy: list[str]) -> None:
    """``-o jsonl`` is what the API has of events, without its numbers; ``--after``, a kind and a name narrow it."""
    assert busy
    lines = [json.loads(line) for line in alice("get", "events", "-o", "jsonl")[1].splitlines()]
    with cluster.client("alice") as client:
        events = client.get("/v1/events", limit=1000)["events"]
    assert lines == [{key: value for key, value in event.items() if key != "seq"} for event in events][: len(lines)]
    assert lines[0]["kind"] == "budgets_applied"
    assert all("at" in line and "seq" not in line for line in lines)
    mine = [json.loads(line) for line in alice("get", "events", busy[0], "-o", "jsonl")[1].splitlines()]
    assert [line["kind"] for line in mine] == ["submitted", "started"]
    started = [json.loads(line) for line in alice("get", "events", "--kind", "started", "-o", "jsonl")[1].splitlines()]
    assert {line["kind"] for line in started} == {"started"}
    last = events[-1]["seq"]
    assert len(alice("get", "events", "--after", str(last - 1), "-o", "jsonl")[1].splitlines()) >= 1


def test_events_for_people(alice: Cli, busy: list[str]) -> None:
    """The table has one line an event with its time, kind and what it is about."""
    code, out, _ = alice("get", "events", busy[0])
    assert code == 0
    header, submitted, started = out.splitlines()
    assert header.split() == ["TIME", "KIND", "WHAT"]
    assert f"workload={busy[0]}" in submitted
    assert all(f"{host}[0,1,2,3,4,5,6,7]" in started for host in ("h1", "h2"))
    whole = json.loads(alice("get", "events", busy[0], "-o", "json")[1])
    assert whole["next"] == whole["events"][-1]["seq"]


def test_events_are_followed(alice: Cli, cluster: Cluster) -> None:
    """``--follow`` prints what there is, then each event as it happens."""
    command = [str(GPUBUDGET), "get", "events", "--follow", "--kind", "submitted", "-o", "jsonl"]
    with subprocess.Popen(command, env=cluster.environment("alice"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workload = alice("submit", "-g", "1", "--", "true")[1].strip()
        for line in process.stdout:
            if json.loads(line)["workload"] == workload:
                break
        process.terminate()


def test_watch_shows_what_changes(alice: Cli, cluster: Cluster) -> None:
    """``-w`` prints the list again when it has changed."""
    command = [str(GPUBUDGET), "get", "hosts", "h2", "-w", "--interval", "100ms", "-o", "jsonl"]
    admin = cluster.environment("admin")
    with subprocess.Popen(command, env=admin, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["state"] == "ready"
        subprocess.run([str(GPUBUDGET), "cordon", "h2"], env=admin, check=True, capture_output=True)
        assert any(json.loads(line)["state"] == "cordoned" for line in process.stdout)
        process.terminate()
    assert alice("get", "hosts", "h2", "-o", "name")[1] == "h2\n"


def test_a_reader_that_leaves_early(cluster: Cluster) -> None:
    """``gpubudget get events | head -1`` prints its line and no complaint."""
    line = f"{GPUBUDGET} get events -o jsonl | head -n 1"
    done = subprocess.run(
        line, shell=True, env=cluster.environment("alice"), capture_output=True, check=False, timeout=30
    )
    assert json.loads(done.stdout)["kind"] == "budgets_applied"
    assert done.stderr == b""


def test_usage_of_budgets(alice: Cli, busy: list[str]) -> None:
    """The table has every budget with its share and what it has used; a name shows it and those below it."""
    assert busy
    code, out, err = alice("usage")
    assert (code, err) == (0, "")
    header, *rows = out.splitlines()
    assert header.split()[:4] == ["BUDGET", "POOL", "SHARE", "GUARANTEE"]
    assert [row.split()[0] for row in rows] == ["/", "language", "language/alice", "vision"]
    vision = next(row.split() for row in rows if row.startswith("vision"))
    assert vision[2:6] == ["25.0%", "4.0", "16", "0"]
    assert [row.split()[0] for row in alice("usage", "language")[1].splitlines()[1:]] == ["language", "language/alice"]
    figures = json.loads(alice("usage", "vision", "-o", "json")[1])["budgets"][0]["pools"]["a100"]
    assert figures["usage_gpu_ms"] >= 16 * 3_600_000
    assert alice("usage", "nowhere")[0] == 1
    assert alice("usage", "--pool", "nowhere")[0] == 1


def test_hosts_are_cordoned_drained_and_given_back(
    alice: Cli, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator does all three; a user is told that they may not."""
    code, _, err = alice("cordon", "h1")
    assert code == 4
    assert "alice" in err or "administrator" in err
    monkeypatch.setenv("GPUBUDGET_TOKEN", cluster.tokens["admin"])
    assert alice("cordon", "h1", "--reason", "inventory")[:2] == (0, "h1\n")
    assert "inventory" in alice("get", "hosts", "h1", "-o", "wide")[1]
    code, out, err = alice("uncordon", "h1", "nowhere")
    assert (code, out) == (1, "h1\n")
    assert "nowhere" in err
    assert alice("drain", "h1", "h2", "--hold")[0] == 0

    def states() -> list[str]:
        return [host["state"] for host in json.loads(alice("get", "hosts", "-o", "json")[1])["hosts"]]

    until(lambda: states() == ["drained", "drained"], "the empty hosts' being drained")
    assert alice("uncordon", "h1", "h2")[0] == 0
    until(lambda: states() == ["ready", "ready"], "the hosts' return")
    assert alice("uncordon", "h1") == (0, "h1\n", "h1 is ready; nothing changed\n")


def test_a_host_is_removed_for_good(alice: Cli, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one; one that works is told what to do first, and a name that there is not is an error."""
    with cluster.client("admin") as admin:
        token = admin.post("/v1/tokens", {"name": "h7", "role": "agent", "host": "h7"})["token"]
    with Client(cluster.url, token) as agent:
        agent.post("/v1/agents/h7/sync", {"pool": "a100", "gpus": GPUS, "boot_id": "b"})
    assert alice("remove-host", "h7")[0] == 4
    monkeypatch.setenv("GPUBUDGET_TOKEN", cluster.tokens["admin"])
    told = "warning: pool a100 has 3 hosts, and cluster.yaml says 2; all of them are used\n"
    assert alice("get", "hosts")[2] == alice("get", "pools")[2] == told
    code, _, err = alice("remove-host", "h7")
    assert (code, err) == (1, "error: host h7 is ready\nhint: this is possible while it is lost, drained, cordoned\n")
    assert alice("cordon", "h7")[0] == 0
    code, _, err = alice("remove-host", "h7", "nowhere")
    assert (code, err) == (1, "h7 is removed\nerror: there is no host 'nowhere'\n")
    assert alice("get", "hosts", "-o", "name") == (0, "h1\nh2\n", "")
