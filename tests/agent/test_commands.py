"""Commands of the configuration, run with a time limit."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from gpubudget.agent.commands import Commands, Result
from tests.agent.acting import eventually, gone, shell


def test_last_line_is_the_message() -> None:
    """A command that ends well is well, and its last line says how."""
    assert Commands().run(shell("echo one; echo two"), 5_000, {}) == Result(ok=True, message="two")


def test_exit_code_is_told() -> None:
    """A command that ends badly says its exit code and its last line."""
    assert Commands().run(shell("echo no >&2; exit 3"), 5_000, {}) == Result(ok=False, message="exit code 3: no")


def test_a_command_that_does_not_exist_is_not_well() -> None:
    """A program that is not there is a failure, not an error."""
    result = Commands().run(("/no/such",), 5_000, {})
    assert not result.ok
    assert "No such file" in result.message


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    """At the end of its time a command is killed, with what it started."""
    began = time.monotonic()
    result = Commands().run(shell(f"sleep 100 & echo $! > {tmp_path}/pid; wait"), 300, {})
    assert result == Result(ok=False, message="took longer than 300ms")
    assert time.monotonic() - began < 5
    eventually(lambda: gone(int((tmp_path / "pid").read_text())))


def test_what_a_command_leaves_behind_is_killed(tmp_path: Path) -> None:
    """A command that ended leaves nothing running, and what it left holds up nothing."""
    assert Commands().run(shell(f"sleep 100 & echo $! > {tmp_path}/pid"), 5_000, {}).ok
    eventually(lambda: gone(int((tmp_path / "pid").read_text())))


def test_variables_are_given_and_secrets_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command has the variables it is given, and none of the agent's settings."""
    monkeypatch.setenv("GPUBUDGET_TOKEN", "gpb_hush")
    result = Commands().run(shell('echo "$GPUBUDGET_HOST $GPUBUDGET_TOKEN."'), 5_000, {"GPUBUDGET_HOST": "h1"})
    assert result.message == "h1 ."


def test_close_ends_what_runs() -> None:
    """When the agent ends, its commands end, and none is started any more."""
    commands, results = Commands(), list[Result]()
    thread = threading.Thread(target=lambda: results.append(commands.run(("sleep", "100"), 60_000, {})))
    thread.start()
    eventually(lambda: commands._running)
    commands.close()
    thread.join(10)
    assert results[0].message == "exit code -9"
    assert "ending" in commands.run(("true",), 1_000, {}).message
