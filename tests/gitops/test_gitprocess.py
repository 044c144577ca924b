"""Git as a process."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpubudget.gitops import gitprocess
from gpubudget.gitops.gitprocess import RepositoryError, configured, environment, reason, run


def test_a_missing_git_is_one_clear_sentence(tmp_path: Path) -> None:
    """A PATH without git is told, with what to do."""
    with pytest.raises(RepositoryError, match="git is not installed") as caught:
        run(("version",), {"PATH": str(tmp_path)}, shown="x", timeout=5)
    assert caught.value.hint == "install git"


def test_settings_are_handed_over_as_numbered_variables(tmp_path: Path) -> None:
    """What is configured for one command reaches git, and no file is written for it."""
    env = configured(environment(tmp_path), {"user.name": "somebody"})
    assert run(("config", "user.name"), env, shown="x", timeout=5).stdout == "somebody\n"


def test_the_first_line_that_matters_is_the_reason() -> None:
    """Warnings and hints are passed over; silence is called that."""
    assert reason("warning: a\nhint: b\nfatal: it broke\nmore") == "it broke"
    assert reason("") == "git does not say why"


def test_a_folder_that_is_none_is_not_a_missing_git(tmp_path: Path) -> None:
    """It is named, with what is wrong with it."""
    (tmp_path / "file").write_text("")
    for name, why in (("file", "Not a directory"), ("missing", "No such file or directory")):
        with pytest.raises(RepositoryError, match=f"cannot run git in the place: {why}"):
            run(("version",), environment(tmp_path), folder=tmp_path / name, shown="the place", timeout=5)


def test_a_signal_while_git_is_being_started_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception of the signal waits for the process, and then ends it."""
    begun: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - Popen's own
        begun.append(real(*arguments, **options))
        signal.raise_signal(signal.SIGALRM)
        return begun[0]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        monkeypatch.setattr(subprocess, "Popen", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(("cat-file", "--batch"), environment(tmp_path), shown="x", timeout=5)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert begun[0].returncode is not None


def test_an_interrupt_before_git_is_started_ends_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is nothing to end yet."""

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gitprocess._Child, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(("version",), environment(tmp_path), shown="x", timeout=5)
