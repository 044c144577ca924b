"""Reading a folder: everything that is there is either read or a problem."""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubudget.errors import InvalidInputError
from gpubudget.gitops.folder import load_folder, read_folder
from gpubudget.gitops.load import MAX_TREE_BYTES
from gpubudget.gitops.yamlfile import MAX_BYTES

Nobody = Callable[[], None]
ROOT_FILE = "kind: Budget\nmanagers: [i]\nmembers: [i]\nchildren:\n  a: 5%\n"


@pytest.fixture
def tree(shared_folder: Path) -> Path:
    """A folder with a cluster, the root and one child that has a folder."""
    (shared_folder / "cluster.yaml").write_text("kind: Cluster\npools: {h100: {hosts: 16, gpus_per_host: 8}}\n")
    (shared_folder / "budget.yaml").write_text(ROOT_FILE)
    (shared_folder / "a").mkdir()
    (shared_folder / "a" / "budget.yaml").write_text("kind: Budget\nmanagers: [h]\nmembers: [h]\n")
    return shared_folder


@pytest.fixture
def nobody() -> object:
    """A function that gives up the superuser's right to read everything; it comes back after the test."""
    user = os.geteuid()

    def give_up() -> None:
        if user == 0:
            os.seteuid(65534)

    yield give_up
    os.seteuid(user)


def found(folder: Path) -> list[tuple[str, str]]:
    """Rule and file of each problem."""
    return [(problem.rule, problem.position.file) for problem in load_folder(folder).diagnostics]


def test_yaml_files_are_read_and_the_rest_left_alone(tree: Path) -> None:
    """Files are known by their path in the folder; hidden ones and other kinds are not read."""
    (tree / ".git").mkdir()
    (tree / ".git" / "x.yaml").write_text("x")
    (tree / "README.md").write_text("x")
    (tree / "empty").mkdir()
    files, problems = read_folder(tree)
    assert (sorted(files), problems) == (["a/budget.yaml", "budget.yaml", "cluster.yaml"], [])
    assert files["budget.yaml"] == ROOT_FILE.encode()
    assert load_folder(tree).tree is not None


def test_links_are_refused_wherever_they_lead(tree: Path) -> None:
    """A link to a file, to a folder, to nothing or to itself is a problem and not followed (gitops.md: vulndb#453)."""
    (tree / "a" / "budget.yaml").unlink()
    (tree / "a" / "budget.yaml").symlink_to("/etc/passwd")
    (tree / "b").symlink_to(tree)
    (tree / "c").symlink_to("c")
    (tree / "README").symlink_to("nowhere")
    assert found(tree) == [("file-link", name) for name in ("README", "a/budget.yaml", "b", "c")]


def test_what_is_no_file_is_refused_without_waiting(tree: Path) -> None:
    """A pipe with a file's name does not block; a folder of that name is no budget."""
    os.mkfifo(tree / "a" / "other.yaml")
    (tree / "a" / "cluster.yaml").mkdir()
    assert found(tree) == [("file-special", "a/other.yaml")]
    (tree / "budget.yaml").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tree / "budget.yaml"))
        assert found(tree) == [("file-special", "a/other.yaml"), ("file-unreadable", "budget.yaml")]


def test_an_unreadable_file_is_not_an_absent_one(tree: Path, nobody: Nobody) -> None:
    """What may not be read is a problem, and nothing is concluded from its absence (gitops.md: argo-cd#2573)."""
    (tree / "a" / "budget.yaml").chmod(0)
    nobody()
    [problem] = load_folder(tree).diagnostics
    assert (problem.rule, problem.message) == ("file-unreadable", "a/budget.yaml cannot be read: permission denied")


def test_an_unreadable_folder_inside_is_a_problem(tree: Path, nobody: Nobody) -> None:
    """A folder that may not be listed is reported as such."""
    (tree / "a").chmod(0)
    nobody()
    assert found(tree) == [("file-unreadable", "a")]


def test_a_folder_that_may_not_be_read_is_one_sentence(tree: Path, nobody: Nobody) -> None:
    """Without the right to list the folder itself there is nothing to report on."""
    tree.chmod(0)
    nobody()
    with pytest.raises(InvalidInputError, match="cannot be read: permission denied"):
        load_folder(tree)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "does not exist"),
        ("cluster.yaml", "is not a folder"),
        ("a", "holds no budgets: it has neither cluster.yaml nor budget.yaml"),
        ("nul\0", "cannot be read"),
        ("x" * 300, "cannot be read: file name too long"),
    ],
)
def test_a_wrong_path_is_one_sentence_with_a_way_out(tree: Path, name: str, words: str) -> None:
    """Missing, a file, empty, or no path at all: one sentence that names it, and what to give instead."""
    (tree / "a" / "budget.yaml").unlink()
    with pytest.raises(InvalidInputError, match=words) as caught:
        load_folder(tree / name)
    assert caught.value.hint


def test_the_folder_around_the_budgets_is_told_from_them(tmp_path: Path) -> None:
    """Who names the repository in place of the folder in it is told where that is."""
    (tmp_path / "budgets").mkdir()
    with pytest.raises(InvalidInputError, match="holds no budgets") as caught:
        load_folder(tmp_path)
    assert caught.value.hint == f"try {tmp_path}/budgets"


def test_a_file_beyond_the_size_bound_is_not_read_whole(tree: Path) -> None:
    """Of a file that is far too large just enough is read to say so."""
    with (tree / "budget.yaml").open("r+b") as file:
        file.truncate(10**10)
    files, _ = read_folder(tree)
    assert len(files["budget.yaml"]) == MAX_BYTES + 1
    assert ("file-size", "budget.yaml") in found(tree)


def test_names_that_are_no_text_are_problems(tree: Path) -> None:
    """A file name of arbitrary bytes is reported, escaped, and not a crash."""
    odd = tree / os.fsdecode(b"\xff\x1b")
    odd.mkdir()
    (odd / "budget.yaml").write_text("kind: Budget\n")
    assert [rule for rule, _ in found(tree)] == ["file-name"]


def test_of_a_folder_that_is_far_too_large_just_enough_is_read(tree: Path) -> None:
    """Once there is more in all than a tree may have, reading ends, in the folder and below it."""
    for number in range(15):
        (tree / f"{number:02d}.yaml").write_bytes(b"#" * MAX_BYTES)
        (tree / f"{number:02d}").mkdir()
        (tree / f"{number:02d}" / "budget.yaml").write_bytes(b"#" * MAX_BYTES)
    files, _ = read_folder(tree)
    assert MAX_TREE_BYTES < sum(map(len, files.values())) <= MAX_TREE_BYTES + MAX_BYTES
    assert found(tree) == [("tree-size", "budget.yaml")]


def test_a_file_that_cannot_be_read_to_its_end_is_a_problem(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails in the middle of a file is not the end of it."""

    def broken(*_: int) -> bytes:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "read", broken)
    [problem, *_] = load_folder(tree).diagnostics
    assert (problem.rule, problem.message) == ("file-unreadable", "a/budget.yaml cannot be read: input/output error")
