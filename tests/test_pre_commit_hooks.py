"""The hooks for pre-commit: their manifest is complete, and they do to a commit what pre-commit would have them do."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with the example's budgets, all of them staged."""
    shutil.copytree(ROOT / "budgets", tmp_path / "budgets")
    (tmp_path / "other.yaml").write_text("a:    [\n")
    for command in ("init --quiet", "add ."):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    return tmp_path


def run(hook: str, repository: Path) -> subprocess.CompletedProcess[str]:
    """What pre-commit does for a hook: its entry, with the staged files that its pattern names if it takes them."""
    entry = HOOKS[hook]
    staged = subprocess.run(["git", "ls-files"], cwd=repository, check=True, capture_output=True, text=True)
    files = [name for name in staged.stdout.splitlines() if re.search(entry["files"], name)]
    assert "other.yaml" not in files
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = shlex.split(entry["entry"]) + (files if entry.get("pass_filenames", True) else [])
    return subprocess.run(command, cwd=repository, env=environment, check=False, capture_output=True, text=True)


def test_the_manifest_has_what_pre_commit_asks_for() -> None:
    """Each hook has its keys, and its program is one that an installation of this package brings."""
    assert list(HOOKS) == ["gpubudget-validate", "gpubudget-fmt"]
    for hook in HOOKS.values():
        assert {"id", "name", "description", "entry", "language", "files"} <= set(hook)
        assert (hook["language"], hook["entry"].split()[0]) == ("python", "gpubudget")


def test_sound_budgets_are_committed(repository: Path) -> None:
    """Both hooks pass on the example."""
    for hook in HOOKS:
        assert run(hook, repository).returncode == 0


def test_a_broken_sum_stops_a_commit(repository: Path) -> None:
    """The whole tree is checked when any file of it is staged."""
    path = repository / "budgets" / "budget.yaml"
    path.write_text(path.read_text().replace("language: 50%", "language: 66%"))
    done = run("gpubudget-validate", repository)
    assert done.returncode == 1
    assert "budgets/budget.yaml:6:1: error[share-sum]" in done.stdout


def test_a_careless_layout_is_mended(repository: Path) -> None:
    """The staged files are laid out, which pre-commit sees and stops the commit for."""
    path = repository / "budgets" / "budget.yaml"
    sound = path.read_text()
    path.write_text(sound.replace("language: 50%", "language:   50%"))
    assert run("gpubudget-fmt", repository).stdout == "budgets/budget.yaml\n"
    assert path.read_text() == sound
