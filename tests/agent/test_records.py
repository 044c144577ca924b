"""What is on record: an attempt is started once at most, and outlives the agent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubudget.agent import supervise
from gpubudget.agent.process import Attempts
from gpubudget.agent.records import StateFolder
from gpubudget.agent.supervise import read_json, write_json
from gpubudget.agent.wire import Key, Ref
from tests.agent.acting import W1, Host, eventually, order, stop


def test_same_attempt_is_started_once(host: Host, tmp_path: Path) -> None:
    """An order that comes again starts nothing: not while it runs, not after its end, not after a restart."""
    starts = tmp_path / "starts"
    given = order(f"echo x >> {starts}")
    host.attempts.start(given)
    host.attempts.start(given)
    host.ended()
    host.attempts.start(given)
    host.restart()
    host.attempts.start(given)
    host.attempts.forget(Ref("w1", 1))
    host.attempts.start(given)
    host.restart()
    host.attempts.start(given)
    host.run(order(f"echo y >> {starts}", attempt=2))
    assert starts.read_text() == "x\ny\n"


def test_forgotten_and_asked_for_again_is_reported_again(host: Host) -> None:
    """What was forgotten is not reported, until the daemon asks for it once more."""
    host.run(order("exit 9"))
    host.attempts.forget(Ref("w1", 1))
    host.restart()
    assert host.attempts.reports() == []
    host.attempts.start(order("exit 9"))
    assert host.report()["exit_code"] == 9


def test_a_running_attempt_is_not_forgotten(host: Host) -> None:
    """An order to forget what still runs changes nothing."""
    host.attempts.start(order("sleep 100"))
    host.attempts.forget(Ref("w1", 1))
    assert host.report()["state"] == "running"


def test_adoption_keeps_watch_and_can_stop(host: Host) -> None:
    """A new agent takes over what runs: it sees it run, and stops it."""
    host.attempts.start(order("trap 'exit 8' TERM; echo up; while :; do sleep 0.05; done"))
    host.wait_log("up")
    host.restart()
    assert host.report()["state"] == "running"
    host.attempts.stop(stop())
    report = host.ended()
    assert (report["exit_code"], report["signalled"]) == (8, True)


def test_exit_code_while_no_agent_was_there(host: Host) -> None:
    """An attempt that ended without an agent is reported by the next one with its code."""
    host.attempts.start(order("exit 6"))
    eventually(lambda: read_json(host.state.attempt(W1), supervise.EXIT))
    host.restart()
    assert host.report()["exit_code"] == 6


def test_killed_between_record_and_start_never_runs(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An agent killed before it started what is on record: it never runs, also if its supervisor comes up late."""
    starts = tmp_path / "starts"
    monkeypatch.setattr(Attempts, "_spawn", lambda *_: None)
    host.attempts.start(order(f"echo x >> {starts}"))
    monkeypatch.undo()
    host.former.clear()
    host.state.close()
    host.state = StateFolder(host.folder)
    host.attempts = Attempts(host.state, run_as_root=True)
    report = host.report()
    assert (report["state"], report["exit_code"], report["signalled"]) == ("exited", None, False)
    assert "never ran" in report["error"]
    late = [sys.executable, "-I", "-S", supervise.__file__, str(host.state.attempt(W1))]
    assert subprocess.run(late, check=False).returncode == 0
    host.attempts.start(order(f"echo x >> {starts}"))
    assert not starts.exists()


def test_killed_while_recording_leaves_nothing(host: Host) -> None:
    """A folder without a record is of an attempt that never began: it is cleared away and can be started."""
    host.state.attempt(W1).mkdir()
    (host.state.attempt(W1) / ".attempt.json.1.1").write_text("{")
    host.restart()
    assert host.run(order("exit 2"))["exit_code"] == 2


def test_a_recycled_process_number_is_nobody(host: Host) -> None:
    """A process that got the number of a former supervisor is not taken for it, and not signalled."""
    stranger = subprocess.Popen(["sleep", "100"], start_new_session=True)
    try:
        folder = host.state.attempt(W1)
        folder.mkdir()
        plan = {"workload": "w1", "attempt": 1, "command": ["x"], "grace_ms": 0, "ends_by_ms": None, "started_ms": 1}
        write_json(folder, supervise.ATTEMPT, plan)
        claim = {"pid": stranger.pid, "ticks": 1, "boot_id": supervise.boot_id()}
        write_json(folder, supervise.CLAIM, claim)
        host.restart()
        assert "supervisor was lost" in host.report()["error"]
        host.attempts.stop(stop(grace_ms=0))
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_restart_of_the_machine_ends_attempts(host: Host) -> None:
    """What ran when the machine went down has ended, and the reason is given."""
    folder = host.state.attempt(W1)
    folder.mkdir()
    plan = {"workload": "w1", "attempt": 1, "command": ["x"], "grace_ms": 0, "ends_by_ms": None, "started_ms": 1}
    write_json(folder, supervise.ATTEMPT, plan)
    write_json(folder, supervise.CLAIM, {"pid": os.getpid(), "ticks": 1, "boot_id": "another"})
    host.restart()
    assert host.report()["error"] == "the host was restarted"


def test_stopped_before_it_began(host: Host, edited: Callable[[str, str], None], tmp_path: Path) -> None:
    """A stop that comes before the supervisor is up ends the attempt without a start."""
    starts = tmp_path / "starts"
    edited("    if claim(folder, os.getpid()):", "    time.sleep(0.3)\n    if claim(folder, os.getpid()):")
    host.attempts.start(order(f"echo x >> {starts}"))
    host.attempts.stop(stop())
    report = host.report()
    assert (report["state"], report["signalled"]) == ("exited", True)
    assert not starts.exists()


def test_what_was_never_here_is_unknown_and_stays_away(host: Host, tmp_path: Path) -> None:
    """A stop of an attempt that this host never had is answered as such; an old order cannot start it later."""
    starts = tmp_path / "starts"
    host.attempts.stop(stop())
    assert host.report()["state"] == "unknown"
    host.attempts.start(order(f"echo x >> {starts}"))
    host.restart()
    host.attempts.start(order(f"echo x >> {starts}"))
    assert host.report()["state"] == "unknown"
    assert not starts.exists()


def test_stale_attempts_are_stopped(host: Host) -> None:
    """What runs and is not wanted is stopped; what is wanted goes on."""
    host.attempts.start(order("exec sleep 100"))
    host.attempts.start(order("exec sleep 100", attempt=2))
    host.supervisor()
    host.supervisor(Key("w1", 2))
    host.attempts.stop_stale({Key("w1", 2)})
    assert host.ended()["signalled"]
    assert host.report(Key("w1", 2))["state"] == "running"


def test_old_records_and_logs_are_cleaned(host: Host) -> None:
    """Logs go first, records only after their time, and nothing that is not forgotten goes at all."""
    for attempt in (1, 2, 3):
        host.run(order("echo 123456789", attempt=attempt))
        if attempt < 3:
            host.attempts.forget(Ref("w1", attempt))
            time.sleep(0.002)  # so that one was forgotten before the other
    logs = [host.state.attempt(Key("w1", attempt)) / "output.log" for attempt in (1, 2, 3)]
    host.state.clean(60_000, 15)
    assert [log.exists() for log in logs] == [False, True, True]
    host.state.clean(0, 15)
    host.attempts.forget_dropped()
    assert [log.parent.exists() for log in logs] == [False, False, True]


def test_a_record_that_cannot_be_written_is_no_start(host: Host, tmp_path: Path) -> None:
    """When the disk takes no record, the attempt is refused with that reason and nothing is started."""
    starts = tmp_path / "starts"
    host.state.attempts.rename(host.state.path / "away")
    host.attempts.start(order(f"echo x >> {starts}"))
    (host.state.path / "away").rename(host.state.attempts)
    report = host.report()
    assert (report["state"], report["exit_code"]) == ("exited", 126)
    assert "cannot be put on record" in report["error"]
    assert not starts.exists()
