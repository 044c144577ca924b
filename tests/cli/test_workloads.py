"""``cancel``, ``requeue``, ``move``, ``wait``, ``logs`` and ``explain`` with a real daemon and real agents."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.cluster import GPUBUDGET, Cluster, kill_and_restart, until

Cli = Callable[..., tuple[int, str, str]]


def submit(cli: Cli, *arguments: str) -> str:
    """Submits and gives the id."""
    code, out, err = cli("submit", *arguments)
    assert code == 0, err
    return out.strip()


def found(cli: Cli, workload: str) -> dict[str, Any]:
    """The workload as the daemon has it."""
    result: dict[str, Any] = json.loads(cli("get", "workloads", workload, "-o", "json")[1])
    return result


def running(cli: Cli, workload: str, attempt: int = 1) -> None:
    """Waits until that attempt of a workload runs."""
    until(lambda: (w := found(cli, workload))["state"] == "running" and w["attempts"] == attempt, "its start")


def test_cancel_ends_what_runs_and_what_waits(alice: Cli) -> None:
    """Both are ended; each is told on stderr, and the ids stand on stdout."""
    first = submit(alice, "-b", "vision", "-g", "16", "-m", "1h", "--", "sh", "-c", "echo up; sleep 600")
    until(lambda: alice("logs", first)[1] == "up\n", "its processes' start")
    second = submit(alice, "-b", "vision", "-g", "16", "-m", "1h", "--", "sleep", "600")
    code, out, err = alice("cancel", first, second)
    assert code == 0, err
    assert out.split() == [first, second]
    assert f"{second} is cancelled" in err
    assert alice("wait", first, second)[0] == 143  # its own code: it was ended by SIGTERM
    assert alice("wait", second)[0] == 1  # it never had one
    assert [found(alice, name)["state"] for name in (first, second)] == ["cancelled", "cancelled"]


def test_one_that_refuses_keeps_no_other(alice: Cli) -> None:
    """The others are done; the refusal is told, and the exit code is that of a failure."""
    workload = submit(alice, "-g", "1", "--", "sleep", "600")
    code, out, err = alice("cancel", "w999999", workload)
    assert (code, out) == (1, f"{workload}\n")
    assert "error: there is no workload w999999" in err
    assert alice("cancel", "../hosts/h1/drain")[0] == alice("cancel", "..")[0] == 1
    assert alice("get", "workloads", f"{workload}/logs")[0] == 1


def test_only_its_owner_cancels(alice: Cli, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else is told that they may not, with exit code 4; a manager of the budget may."""
    workload = submit(alice, "-b", "language/alice", "-g", "1", "-m", "1h", "--", "sleep", "600")
    monkeypatch.setenv("GPUBUDGET_TOKEN", cluster.tokens["bob"])
    code, out, err = alice("cancel", workload)
    assert (code, out) == (4, "")
    assert "bob" in err
    monkeypatch.setenv("GPUBUDGET_TOKEN", cluster.tokens["lena"])
    assert alice("cancel", workload)[0] == 0


def test_requeue_starts_another_attempt(alice: Cli) -> None:
    """A running workload is stopped and started again, with the next number."""
    workload = submit(alice, "-b", "vision", "-g", "1", "-m", "1h", "--resumable", "--", "sleep", "600")
    running(alice, workload)
    assert alice("requeue", workload)[0] == 0
    running(alice, workload, attempt=2)


def test_move_changes_who_pays(alice: Cli) -> None:
    """A waiting workload gets another budget; one that the owner may not charge is refused."""
    submit(alice, "-b", "vision", "-g", "16", "-m", "1h", "--", "sleep", "600")
    workload = submit(alice, "-b", "vision", "-g", "16", "-m", "1h", "--", "sleep", "600")
    assert alice("move", workload, "-b", "language/alice", "-o", "jsonl")[0] == 0
    assert found(alice, workload)["budget"] == "language/alice"
    code, _, err = alice("move", workload, "-b", "language")
    assert (code, found(alice, workload)["budget"]) == (4, "language/alice")
    assert "alice is no member of budget language" in err


def test_wait_gives_up_after_its_timeout(alice: Cli) -> None:
    """A timeout ends with 1 and says how it stands; the workload goes on."""
    workload = submit(alice, "-g", "1", "--", "sleep", "600")
    code, out, err = alice("wait", workload, "--timeout", "1s")
    assert (code, out) == (1, "")
    assert f"error: {workload} is still " in err
    assert " after 1s\n" in err
    assert "gpubudget explain" in err


def test_wait_gives_up_on_a_daemon_that_is_away(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout bounds that too; nothing is known of the workload then, so the exit code is 75."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    monkeypatch.setenv("GPUBUDGET_TOKEN", "gpb_x")
    started = time.monotonic()
    code, out, err = cli("wait", "w000001", "--timeout", "300ms", "--url", url)
    assert (code, out) == (75, "")
    assert "it is waited for" in err
    assert time.monotonic() - started < 30


def test_wait_returns_the_first_failure(alice: Cli) -> None:
    """With several workloads it is the code of the first that failed; signals count from 128."""
    good = submit(alice, "-g", "1", "--", "true")
    killed = submit(alice, "-g", "1", "--", "sh", "-c", "kill -9 $$")
    bad = submit(alice, "-g", "1", "--", "sh", "-c", "exit 5")
    assert alice("wait", good, bad)[0] == 5
    assert alice("wait", killed)[0] == 137


def test_wait_for_nothing(alice: Cli) -> None:
    """A workload that does not exist is one sentence."""
    assert alice("wait", "w999999")[:2] == (1, "")
    assert alice("wait")[0] == 64


def test_logs_of_the_latest_attempt(alice: Cli) -> None:
    """All that it has printed, also much of it, and also after its end; an earlier attempt by its number."""
    script = "i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done; printf 'end é'"
    workload = submit(alice, "-g", "1", "--", "sh", "-c", script)
    assert alice("wait", workload)[0] == 0
    code, out, err = alice("logs", workload)
    assert (code, err) == (0, "")
    assert out == "".join(f"line {i}\n" for i in range(30000)) + "end é"
    assert alice("logs", workload, "--attempt", "1")[1] == out


def test_logs_before_the_start(alice: Cli) -> None:
    """What has not started has printed nothing, and the message says where to ask why."""
    submit(alice, "-b", "vision", "-g", "16", "-m", "1h", "--", "sleep", "600")
    workload = submit(alice, "-b", "vision", "-g", "16", "-m", "1h", "--", "sleep", "600")
    code, out, err = alice("logs", workload)
    assert (code, out) == (1, "")
    assert "it has not started yet" in err
    code, _, err = alice("logs", workload, "--attempt", "2")
    assert code == 1
    assert "no attempt 2" in err


def test_logs_follow_across_attempts(alice: Cli, cluster: Cluster) -> None:
    """``logs -f`` shows each attempt's output once, in order, until the workload has ended, and then ends with 0."""
    script = 'echo attempt $GPUBUDGET_ATTEMPT; [ "$GPUBUDGET_ATTEMPT" = 2 ] && exit 3; sleep 600'
    workload = submit(alice, "-b", "vision", "-g", "1", "-m", "1h", "--resumable", "--", "sh", "-c", script)
    command = [str(GPUBUDGET), "logs", "-f", workload]
    with subprocess.Popen(command, env=cluster.environment("alice"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "attempt 1\n"
        assert alice("requeue", workload)[0] == 0
        rest, _ = process.communicate(timeout=30)
    assert (rest, process.returncode) == ("attempt 2\n", 0)


def test_logs_of_each_host_of_a_gang(alice: Cli) -> None:
    """A gang has one output a host; the first is shown unless another is named."""
    script = "echo rank $GPUBUDGET_RANK of $GPUBUDGET_HOSTS"
    workload = submit(alice, "-g", "16", "-N", "2", "--", "sh", "-c", script)
    assert alice("wait", workload)[0] == 0
    first = alice("logs", workload)[1]
    assert first.startswith("rank 0 of ")
    hosts = first.split()[-1].split(",")
    assert alice("logs", workload, "--host", hosts[1])[1].startswith("rank 1 of ")
    code, _, err = alice("logs", workload, "--host", "h9")
    assert code == 1
    assert "h9" in err


def test_explain_says_why_and_when(alice: Cli) -> None:
    """The text has the reason, the rank and the latest start; the JSON has the same as figures."""
    submit(alice, "-b", "vision", "-g", "16", "-m", "1h", "--", "sleep", "600")
    workload = submit(alice, "-b", "language/alice", "-g", "16", "-m", "1h", "--", "sleep", "600")
    code, out, err = alice("explain", workload)
    assert (code, err) == (0, "")
    assert out.startswith(f"{workload} is pending: ")
    assert "rank   1 of 1" in out
    assert "start  " in out
    assert "BUDGET" in out
    figures = json.loads(alice("explain", workload, "-o", "json")[1])
    assert (figures["workload"], figures["state"], figures["rank"]) == (workload, "pending", 1)
    assert alice("explain", "w999999")[0] == 1


def test_following_outlives_the_daemon(alice: Cli, cluster: Cluster) -> None:
    """``run`` goes on where it was when the daemon was killed and is back: no line is lost or shown twice."""
    script = "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; exit 6"
    command = [str(GPUBUDGET), "run", "-b", "vision", "-g", "1", "-m", "1h", "--", "sh", "-c", script]
    process = subprocess.Popen(
        command, env=cluster.environment("alice"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        kill_and_restart(cluster)
        (folder,) = (cluster.folder / "shared").glob(f"**/{alice('get', 'workloads', '-o', 'name')[1].strip()}")
        (folder / "go").touch()
        out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == ("two\n", 6)
    assert err.count("it is waited for") <= 1


def test_wait_shows_progress_on_a_terminal(alice: Cli, cluster: Cluster) -> None:
    """On a terminal each change of state is told while it lasts; elsewhere only the end."""
    workload = submit(alice, "-g", "1", "--", "sh", "-c", "echo up; sleep 600")
    until(lambda: alice("logs", workload)[1] == "up\n", "its process's start")
    terminal, its_side = os.openpty()
    command = [str(GPUBUDGET), "wait", workload]
    process = subprocess.Popen(command, env=cluster.environment("alice"), stdout=its_side, stderr=its_side)
    os.close(its_side)
    with process, os.fdopen(terminal, "rb", buffering=0) as screen:
        shown = b""
        while b"is running" not in shown:
            shown += screen.read(1000)
        alice("cancel", workload)
        while b"was cancelled" not in shown:
            shown += screen.read(1000)
    assert process.returncode == 143
