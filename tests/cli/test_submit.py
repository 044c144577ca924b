"""``submit`` and ``run`` with a real daemon and real agents."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.cluster import GPUBUDGET, Cluster, until

Cli = Callable[..., tuple[int, str, str]]


def test_the_id_is_on_stdout_and_the_rest_on_stderr(alice: Cli) -> None:
    """A shell gets the id and nothing else; a person reads what became of the workload."""
    code, out, err = alice("submit", "-b", "language/alice", "-g", "2", "-m", "1m", "--", "sleep", "60")
    assert code == 0
    workload = out.removesuffix("\n")
    assert err.startswith(f"{workload} is ")
    found = json.loads(alice("get", "workloads", workload, "-o", "json")[1])
    assert (found["owner"], found["budget"], found["gpus"]) == ("alice", "language/alice", 2)
    assert (found["min_runtime_ms"], found["command"]) == (60_000, ["sleep", "60"])
    assert found["submitted"].endswith("Z")


def test_every_option_arrives(alice: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the options say is what the daemon has; a variable without a value is sent with the one it has here."""
    monkeypatch.setenv("SEED", "7")
    _, out, _ = alice(
        "submit", "-b", "vision", "-g", "4", "-N", "2", "-m", "30m", "--max-runtime", "2h", "--pool", "a100",
        "--resumable", "--priority", "-5", "--retries", "3", "--name", "my run", "-e", "A=b=c", "-e", "SEED",
        "--cwd", "/tmp", "-o", "json", "sleep", "60", "--loud",
    )  # fmt: skip
    found = json.loads(out)["workloads"][0]
    expected = {
        "budget": "vision", "gpus": 4, "hosts": 2, "min_runtime_ms": 1_800_000, "max_runtime_ms": 7_200_000,
        "pools": ["a100"], "resumable": True, "priority": -5, "retries": 3, "name": "my run",
        "env": {"A": "b=c", "SEED": "7"}, "cwd": "/tmp", "command": ["sleep", "60", "--loud"],
    }  # fmt: skip
    assert expected.items() <= found.items()


def test_options_from_variables(alice: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option can be set by its variable."""
    monkeypatch.setenv("GPUBUDGET_BUDGET", "vision")
    monkeypatch.setenv("GPUBUDGET_SUBMIT_GPUS", "3")
    _, out, _ = alice("submit", "-o", "json", "sleep", "60")
    found = json.loads(out)["workloads"][0]
    assert (found["budget"], found["gpus"]) == ("vision", 3)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7)])
def test_wait_returns_the_exit_code(alice: Cli, script: str, code: int) -> None:
    """``submit --wait`` ends as the workload does, and says how that was."""
    got, out, err = alice("submit", "-g", "1", "--wait", "--", "sh", "-c", script)
    assert got == code
    assert f"{out.strip()} {'failed' if code else 'finished'}" in err
    assert ("exit code 7" in err) == bool(code)


def test_run_shows_the_output(alice: Cli) -> None:
    """``run`` prints what the workload prints and returns its exit code."""
    script = 'echo "GPUs $CUDA_VISIBLE_DEVICES of $GPUBUDGET_WORKLOAD"; echo problem >&2; exit 3'
    code, out, err = alice("run", "-b", "vision", "-g", "2", "-m", "1m", "--", "sh", "-c", script)
    assert code == 3
    lines = out.splitlines()
    assert lines[0].startswith("GPUs ")
    assert len(lines[0].split()[1].split(",")) == 2
    assert "problem" in lines
    assert "failed on h" in err
    assert "exit code 3" in err


def test_interrupting_run_cancels(cluster: Cluster) -> None:
    """Ctrl-C cancels the workload, waits for its end, says so and ends with 130."""
    command = [str(GPUBUDGET), "run", "-g", "1", "--", "sh", "-c", "echo started; sleep 600"]
    process = subprocess.Popen(
        command, env=cluster.environment("alice"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "press Ctrl-C again to leave" in err
    workload = err.split()[0]
    assert f"{workload} is cancelled" in err
    with cluster.client("alice") as client:
        assert client.get(f"/v1/workloads/{workload}")["state"] == "cancelled"


def test_a_file_submits_all_or_nothing(alice: Cli, tmp_path: Path) -> None:
    """A list is submitted as one: ids one a line, or nothing at all when one of them is wrong."""
    file = tmp_path / "workloads.yaml"
    file.write_text("- {gpus: 1, command: [sleep, '60']}\n- {gpus: 2, min_runtime: 1m, command: [sleep, '60']}\n")
    code, out, err = alice("submit", "-b", "vision", "-f", str(file))
    assert (code, err) == (0, "2 workloads were submitted\n")
    assert len(out.split()) == 2
    before = alice("get", "workloads", "--all", "-o", "name")[1]
    file.write_text("- {gpus: 1, command: [sleep, '60']}\n- {gpus: 0, command: [sleep, '60']}\n")
    code, out, err = alice("submit", "-b", "vision", "-f", str(file))
    assert (code, out) == (1, "")
    assert "gpus" in err
    assert alice("get", "workloads", "--all", "-o", "name")[1] == before


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-b", "language", "-g", "1", "-m", "1h"], 4, "alice is no member of budget language"),
        (["-b", "nowhere", "-g", "1", "-m", "1h"], 1, "no budget 'nowhere'"),
        (["-b", "vision", "-g", "1", "-m", "100d"], 1, "100d"),
        (["-b", "vision", "-g", "17", "-m", "1h"], 1, "17"),
        (["-b", "vision", "-g", "9", "-m", "1h"], 1, "9"),
        (["-g", "1", "-m", "1h"], 1, "budget"),
        (["-g", "1", "--pool", "nowhere"], 1, "no pool 'nowhere'"),
        (["-g", "1", "-m", "0", "--cwd", "relative"], 1, "relative"),
    ],
)
def test_what_the_daemon_refuses(alice: Cli, arguments: list[str], code: int, message: str) -> None:
    """What may not be is one sentence with the numbers, the right exit code, and nothing is submitted."""
    before = alice("get", "workloads", "--all", "-o", "name")[1]
    got, out, err = alice("submit", *arguments, "--", "sleep", "60")
    assert (got, out) == (code, "")
    assert err.startswith("error: ")
    assert message in err.splitlines()[0]
    assert alice("get", "workloads", "--all", "-o", "name")[1] == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-g", "0", "true"], "'0' is not a whole number from 1 to 1,000,000"),
        (["-g", "abc", "true"], "'abc' is not a whole number"),
        (["-g", "1" + "0" * 30, "true"], "is not a whole number"),
        (["-g", "1", "-m", "4", "true"], "'4' is not a duration; write a whole number with a unit"),
        (["-g", "1", "-m", "-1h", "true"], "'-1h' is not a duration"),
        (["-g", "1", "-m", "99999d", "true"], "'99999d' is longer than ten years"),
        (["-g", "1", "--pool", "", "true"], "'' is no pool; it is empty"),
        (["-g", "1", "-b", "two words", "true"], "'two words' is no budget"),
        (["-g", "1", "-e", "1=2", "true"], "'1=2' is not NAME=VALUE or NAME"),
        (["-g", "1", "-e", "NOWHERE_SET", "true"], "NOWHERE_SET has no value here"),
        (["-g", "1", "--priority", "1001", "true"], "'1001' is not a whole number from -1,000 to 1,000"),
        (["-g", "1"], "there is no command to run"),
        (["-g", "1", "--", ""], "there is no command to run"),
        (["true"], "how many GPUs?"),
    ],
)
def test_what_is_refused_here(cli: Cli, arguments: list[str], message: str) -> None:
    """A wrong option is told without asking the daemon, with exit code 64."""
    code, out, err = cli("submit", "--url", "http://127.0.0.1:1", "--token-file", "/nowhere", *arguments)
    assert (code, out) == (64, "")
    assert message in err.splitlines()[0]


def test_a_daemon_that_is_not_there(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody at the URL ends with 75, so that a script can try again later."""
    monkeypatch.setenv("GPUBUDGET_TOKEN", "gpb_x")
    code, out, err = cli("submit", "--url", "http://127.0.0.1:1", "-g", "1", "true")
    assert (code, out) == (75, "")
    assert err.startswith("error: the daemon at http://127.0.0.1:1 does not answer: connection refused\nhint: ")


def test_a_token_that_is_not_known(alice: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong token ends with 4."""
    monkeypatch.setenv("GPUBUDGET_TOKEN", "gpb_wrong")
    code, out, err = alice("get", "hosts")
    assert (code, out) == (4, "")
    assert "token" in err


def test_submitted_at_once_by_many(cluster: Cluster) -> None:
    """Commands that run at the same time do not disturb each other: each has its own id."""
    command = [str(GPUBUDGET), "submit", "-g", "1", "--", "true"]
    environment = cluster.environment("alice")
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)
    ]
    answers = [process.communicate(timeout=30) for process in processes]
    ids = {out.decode().strip() for out, _ in answers}
    assert len(ids) == 4
    with cluster.client("alice") as client:
        for workload in ids:
            ended = until(lambda w=workload: client.get(f"/v1/workloads/{w}")["state"] == "finished", "its end")  # type: ignore[misc]  # a default for the loop's variable
            assert ended
