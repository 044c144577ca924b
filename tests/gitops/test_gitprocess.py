"""Git as a process."""

from __future__ import annotations

from pathlib import Path

import pytest

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
