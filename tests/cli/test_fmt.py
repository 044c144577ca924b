"""The command fmt: which files it changes, and that it changes them whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

ROOT = "kind: Budget\nmanagers: [ines,otto]   \n"
CLUSTER = "kind: Cluster\npools: {h100: {hosts: 16, gpus_per_host: 8}}\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree in the folder budgets of the current folder; its root is not in the canonical layout."""
    folder = tmp_path / "budgets"
    folder.mkdir()
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "budget.yaml").write_text(ROOT)
    monkeypatch.chdir(tmp_path)
    return folder


def test_files_are_laid_out_and_named(tree: Path, cli: Cli) -> None:
    """What changed is on stdout, the count on stderr; a second time there is nothing to do."""
    assert cli("fmt") == (0, "budgets/budget.yaml\n", "1 of 2 files changed\n")
    assert (tree / "budget.yaml").read_text() == "kind: Budget\nmanagers: [ines, otto]\n"
    assert cli("fmt", "budgets/") == (0, "", "0 of 2 files changed\n")
    assert cli("fmt", "--check") == (0, "", "0 of 2 files would change\n")


def test_check_writes_nothing_and_ends_with_1(tree: Path, cli: Cli) -> None:
    """With --check the files are named and left as they are."""
    assert cli("fmt", "--check", str(tree)) == (1, f"{tree}/budget.yaml\n", "1 of 2 files would change\n")
    assert (tree / "budget.yaml").read_text() == ROOT


def test_single_files_can_be_named(tree: Path, cli: Cli) -> None:
    """As a pre-commit hook does; permissions stay, and nothing else is left in the folder."""
    (tree / "budget.yaml").chmod(0o640)
    assert cli("fmt", "budgets/cluster.yaml", "budgets/budget.yaml").out == "budgets/budget.yaml\n"
    assert stat.S_IMODE((tree / "budget.yaml").stat().st_mode) == 0o640
    assert sorted(path.name for path in tree.iterdir()) == ["budget.yaml", "cluster.yaml"]


def test_what_does_not_parse_is_shown_and_left_alone(tree: Path, cli: Cli) -> None:
    """A broken file keeps its bytes and fails the command; the sound ones beside it are laid out."""
    broken = b"kind: [\r\n"
    (tree / "a").mkdir()
    (tree / "a" / "budget.yaml").write_bytes(broken)
    (tree / "b").symlink_to(tree)
    code, out, err = cli("fmt")
    assert (code, out) == (1, "budgets/budget.yaml\n")
    assert "budgets/a/budget.yaml:2:1: error[yaml-syntax]" in err
    assert "budgets/b:1:1: error[file-link]" in err
    assert err.endswith("1 of 3 files changed, 2 problems\n")
    assert (tree / "a" / "budget.yaml").read_bytes() == broken


def test_a_text_whose_white_space_counts_is_left_alone(tree: Path, cli: Cli) -> None:
    """One sentence says which file could not be laid out without changing it."""
    text = "title: |+\n  x\n\n\n"
    (tree / "budget.yaml").write_text(text)
    code, out, err = cli("fmt")
    assert (code, out) == (1, "")
    assert err.startswith("error: budgets/budget.yaml has a text of several lines that cannot be laid out anew")
    assert (tree / "budget.yaml").read_text() == text


@pytest.mark.parametrize("name", ["nowhere", "link", "x" * 300, "pipe"])
def test_a_wrong_path_is_one_sentence(tree: Path, cli: Cli, name: str) -> None:
    """What is missing, a link or no file is refused."""
    (tree.parent / "link").symlink_to(tree / "budget.yaml")
    os.mkfifo(tree.parent / "pipe")
    code, out, err = cli("fmt", name)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert (tree / "budget.yaml").read_text() == ROOT


def test_a_file_that_cannot_be_written_stays_whole(tree: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk fails, the old file is there with its bytes, and nothing beside it."""

    def full(_: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = cli("fmt")
    assert code == 1
    assert "error: budgets/budget.yaml cannot be written: no space left on device" in err
    assert (tree / "budget.yaml").read_text() == ROOT
    assert sorted(path.name for path in tree.iterdir()) == ["budget.yaml", "cluster.yaml"]
