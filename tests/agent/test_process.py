"""Attempts as real processes: what they find, how they end, what they leave."""

from __future__ import annotations

import os
import pwd
import signal
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubudget.agent import supervise
from gpubudget.agent.process import Attempts
from gpubudget.agent.records import StateFolder
from gpubudget.agent.supervise import now_ms, read_json
from gpubudget.agent.wire import Key, Run, Tail
from tests.agent.acting import W1, Host, all_over, eventually, gone, marked, order, stop


def test_exit_code_and_output_are_kept(host: Host) -> None:
    """An attempt's exit code is reported and what it prints is in its log."""
    report = host.run(order("echo out; echo err >&2; exit 7"))
    assert (report["state"], report["exit_code"], report["signalled"]) == ("exited", 7, False)
    assert host.log() == "out\nerr\n"


def test_environment_says_who_and_where(host: Host, tmp_path: Path) -> None:
    """A workload finds its GPUs, rank, hosts and checkpoint folder in its environment, and starts in that folder."""
    given = order("env; pwd", gpus=(2, 5), rank=1, hosts=("h0", "h1"), env={"LR": "0.1", "GPUBUDGET_RANK": "9"})
    host.run(given)
    lines = host.log().splitlines()
    checkpoints = tmp_path / "state" / "checkpoints" / "w1"
    wanted = {
        "CUDA_VISIBLE_DEVICES=2,5",
        "GPUBUDGET_WORKLOAD=w1",
        "GPUBUDGET_ATTEMPT=1",
        "GPUBUDGET_RANK=1",
        "GPUBUDGET_HOSTS=h0,h1",
        "GPUBUDGET_NUM_HOSTS=2",
        "GPUBUDGET_GPUS_PER_HOST=2",
        "GPUBUDGET_MASTER_ADDR=h0",
        f"GPUBUDGET_CHECKPOINT_DIR={checkpoints}",
        "LR=0.1",
        str(checkpoints),
    }
    assert wanted <= set(lines)


def test_the_agents_secrets_stay_with_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the agent's token nor other variables of its own reach a workload."""
    monkeypatch.setenv("GPUBUDGET_TOKEN", "gpb_hush")
    monkeypatch.setenv("GPUBUDGET_TOKEN_FILE", "/etc/hush")
    monkeypatch.setenv("SOME_CREDENTIAL", "hush")
    host.run(order("env"))
    assert "hush" not in host.log()


def test_group_gets_sigterm(host: Host) -> None:
    """A stop reaches every process of the group, which may end in its own way."""
    host.attempts.start(order("trap 'echo bye; exit 3' TERM; sleep 100 & echo up; wait"))
    host.wait_log("up")
    host.attempts.stop(stop())
    report = host.ended()
    assert (report["exit_code"], report["signalled"]) == (3, True)
    assert "bye" in host.log()


def test_default_end_by_sigterm_has_the_shells_code(host: Host) -> None:
    """A process that SIGTERM ends has the exit code 143."""
    host.attempts.start(order(command=("sleep", "100")))
    eventually(lambda: len(marked(host.folder)) == 2)
    host.attempts.stop(stop())
    assert host.ended()["exit_code"] == 143


def test_sigterm_ignored_ends_with_sigkill_after_grace(host: Host) -> None:
    """What ignores SIGTERM is killed when the grace period is over, and not before."""
    host.attempts.start(order("trap '' TERM; echo up; while :; do sleep 0.05; done"))
    host.wait_log("up")
    began = time.monotonic()
    host.attempts.stop(stop(grace_ms=600))
    report = host.ended()
    assert (report["exit_code"], report["signalled"]) == (137, True)
    assert time.monotonic() - began >= 0.6


def test_a_second_stop_can_shorten_the_grace(host: Host) -> None:
    """A stop with a shorter grace period counts, although one with a longer one came first."""
    host.attempts.start(order("trap '' TERM; echo up; while :; do sleep 0.05; done"))
    host.wait_log("up")
    host.attempts.stop(stop(grace_ms=600_000))
    host.attempts.stop(stop(grace_ms=50))
    assert host.ended()["exit_code"] == 137


def test_a_suspended_group_is_woken_to_end(host: Host) -> None:
    """A process that was suspended gets SIGTERM within its grace period too."""
    host.attempts.start(order("trap 'exit 4' TERM; echo up; kill -STOP $$; while :; do sleep 0.05; done"))
    host.wait_log("up")
    host.attempts.stop(stop())
    assert host.ended()["exit_code"] == 4


DAEMONIZE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        script = "trap '' TERM; echo hidden $$; while :; do sleep 0.05; done"
        os.execve("/bin/sh", ["sh", "-c", script], {})  # without its mark
    os._exit(0)
os.wait()
while b"hidden" not in open(sys.argv[1], "rb").read():
    time.sleep(0.01)
"""


def hidden_child(host: Host) -> int:
    """The process number that the daemonized child printed."""
    host.wait_log("hidden")
    return int(host.log().split()[1])


def daemonize(host: Host, then: str) -> Run:
    log = host.state.attempt(W1) / "output.log"
    return order(command=(sys.executable, "-c", DAEMONIZE + then, str(log)))


def test_a_daemonized_child_ends_with_the_attempt(host: Host) -> None:
    """A child that left its group, session and environment is killed too, and only then has the attempt ended."""
    host.attempts.start(daemonize(host, "time.sleep(100)"))
    child = hidden_child(host)
    host.attempts.stop(stop(grace_ms=300))
    eventually(lambda: read_json(host.state.attempt(W1), supervise.EXIT))
    assert gone(child)
    assert host.ended()["signalled"]


def test_what_a_finished_command_leaves_is_killed(host: Host, edited: Callable[[str, str], None]) -> None:
    """GPUs are not free while a child lives on: it is killed, and the command's own exit code counts."""
    edited("LEFTOVER_GRACE = 5.0", "LEFTOVER_GRACE = 0.2")
    report = host.run(daemonize(host, "sys.exit(5)"))
    assert gone(hidden_child(host))
    assert (report["exit_code"], report["signalled"]) == (5, False)


def test_a_lost_supervisor_takes_all_with_it(host: Host) -> None:
    """When a supervisor is killed, its processes are too, and the attempt has ended with that error."""
    host.attempts.start(order("setsid sleep 100 & echo up; wait"))
    host.wait_log("up")
    os.kill(host.supervisor(), signal.SIGKILL)
    report = host.ended()
    assert report["exit_code"] is None
    assert "supervisor was lost" in report["error"]
    assert marked(host.folder) == []


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ({"command": ("/no/such/program",)}, 127, "cannot run /no/such/program: it does not exist"),
        ({"command": ("no-such-program",)}, 127, "cannot run no-such-program: it does not exist"),
        ({"command": ("/dev/null",)}, 126, "cannot run /dev/null: Permission denied"),
        ({"cwd": "/no/such/folder"}, 126, "cannot enter the folder /no/such/folder: it does not exist"),
        ({"command": ("/bin/echo", "a\0b")}, 126, "embedded null byte"),
        ({"command": ("/bin/echo", "\ud800")}, 126, "surrogates not allowed"),
        ({"env": {"A=B": "c"}}, 126, "illegal environment variable name"),
    ],
)
def test_what_cannot_start_says_why(host: Host, given: dict[str, Any], code: int, message: str) -> None:
    """A command that cannot be run ends with the shell's exit code for that and a reason."""
    report = host.run(order(**given))
    assert (report["state"], report["exit_code"], report["signalled"]) == ("exited", code, False)
    assert message in report["error"]


def test_overdue_attempts_are_stopped(host: Host) -> None:
    """An attempt whose longest time is over is stopped; one without a limit is not."""
    host.attempts.start(order("exec sleep 100", ends_by_ms=now_ms() + 1_000))
    host.attempts.start(order("exec sleep 100", attempt=2))
    host.attempts.stop_overdue(now_ms())
    assert host.report()["state"] == "running"
    host.attempts.stop_overdue(now_ms() + 1_000)
    assert host.ended()["signalled"]
    assert host.report(Key("w1", 2))["state"] == "running"


def test_log_is_read_in_pieces(host: Host) -> None:
    """A log is read from an offset, in bounded pieces, and its end is said once the attempt has ended."""

    def piece(offset: int, limit: int) -> tuple[bytes, int, bool]:
        chunk = host.attempts.chunk(Tail("w1", 1, "r", offset, limit))
        assert chunk["request"] == "r"
        return b64decode(str(chunk["data_b64"])), int(str(chunk["next_offset"])), bool(chunk["end"])

    assert piece(0, 10) == (b"", 0, True)  # nothing is known of it
    host.run(order("printf abcdef"))
    assert piece(0, 4) == (b"abcd", 4, False)
    assert piece(4, 4) == (b"ef", 6, True)
    assert piece(10**9, 4) == (b"", 10**9, True)


def test_log_of_a_running_attempt_has_no_end(host: Host) -> None:
    """While an attempt runs there may be more."""
    host.attempts.start(order("printf abc; exec sleep 100"))
    host.wait_log("abc")
    assert host.attempts.chunk(Tail("w1", 1, "r", 3, 10)) == {
        "request": "r", "data_b64": "", "next_offset": 3, "end": False,
    }  # fmt: skip


def test_checkpoints_are_seen_and_kept_across_attempts(host: Host) -> None:
    """A touched file reports a checkpoint; the next attempt finds what was saved, and not the old report."""
    first = "echo 42 > $GPUBUDGET_CHECKPOINT_DIR/step; touch $GPUBUDGET_CHECKPOINT_DIR/.checkpointed; exec sleep 100"
    host.attempts.start(order(first))
    found = eventually(host.attempts.checkpoints)
    assert [(one["workload"], one["attempt"]) for one in found] == [("w1", 1)]
    assert abs(found[0]["at_ms"] - now_ms()) < 60_000
    host.attempts.stop(stop())
    host.ended()
    time.sleep(0.02)  # file times are coarse
    host.attempts.start(order("cat step; exec sleep 100", attempt=2))
    host.wait_log("42", Key("w1", 2))
    assert host.attempts.checkpoints() == []


def test_runs_as_its_owner() -> None:
    """An agent that is root runs a workload as its owner, in a checkpoint folder of its owner's; another as itself."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # the owner has to get in
        host = Host(Path(folder) / "state")
        report = host.run(order("id -un; id -un > made; cat made", owner="nobody"))
        lines = host.log().splitlines()
        host.close()
    assert report["exit_code"] == 0
    assert lines == ["nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name] * 2


def test_root_is_not_lent(tmp_path: Path) -> None:
    """Without leave, an agent that is root refuses workloads that would run as root."""
    state = StateFolder(tmp_path / "state")
    attempts = Attempts(state, run_as_root=False)
    for number, owner in enumerate(("no-such-user", "root"), 1):
        attempts.start(order("id -un", attempt=number, owner=owner))
    eventually(lambda: all_over(attempts))
    errors = [str(one.get("error", "")) for one in attempts.reports()]
    state.close()
    if os.geteuid() == 0:
        assert "'no-such-user' is not a user of this host" in errors[0]
        assert "'root' is root" in errors[1]
    else:
        assert errors == ["", ""]
