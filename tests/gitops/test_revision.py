"""Which commit a person means, in real repositories; and many objects read at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubudget.errors import ConflictError, InvalidInputError
from gpubudget.gitops import objects
from gpubudget.gitops.gitprocess import RepositoryError, environment
from gpubudget.gitops.objects import Objects
from gpubudget.gitops.repository import Repository, open_repository
from gpubudget.gitops.revision import repository_folder, resolve
from gpubudget.gitops.source import parse_source
from tests.conftest import GitRepo

MakeRepo = Callable[[str], GitRepo]


@pytest.fixture
def repo(git_repo: MakeRepo) -> GitRepo:
    return git_repo("work")


@pytest.fixture
def opened(repo: GitRepo, tmp_path: Path) -> Iterator[Repository]:
    """The repository, with a scratch folder; three commits on main, and a branch ``topic`` beside the last two."""
    for number in range(3):
        repo.commit({"budgets/a.yaml": f"a: {number}\n", "budgets/x/b.yaml": "b: 1\n"}, str(number))
    repo.git("branch", "topic", "HEAD~2")
    repo.git("update-ref", "refs/remotes/origin/elsewhere", "HEAD~1")
    repo.git("tag", "v1", "HEAD~1")
    with open_repository(parse_source(str(repo.path)), tmp_path / "mirror", scratch=tmp_path / "scratch") as found:
        yield found


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("main", "HEAD"),
        ("HEAD", "HEAD"),
        ("refs/heads/main", "HEAD"),
        ("v1", "HEAD~1"),
        ("origin/elsewhere", "HEAD~1"),
        ("elsewhere", "HEAD~1"),
        ("HEAD~", "HEAD~1"),
        ("HEAD^", "HEAD~1"),
        ("main~1^", "HEAD~2"),
        ("main~2", "HEAD~2"),
        ("topic~0", "HEAD~2"),
    ],
)
def test_names_and_steps_back_mean_what_git_means(repo: GitRepo, opened: Repository, text: str, meant: str) -> None:
    """Branches, tags, branches of a remote with and without its name, and steps along first parents."""
    assert resolve(opened, text) == repo.git("rev-parse", meant)


def test_commit_ids_may_be_written_in_part(repo: GitRepo, opened: Repository) -> None:
    """Seven digits or more, in either case, with steps; a branch whose name looks like one is found too."""
    head = repo.git("rev-parse", "HEAD")
    assert resolve(opened, head) == resolve(opened, head[:7]) == resolve(opened, head[:20].upper()) == head
    assert resolve(opened, f"{head[:9]}~1") == repo.git("rev-parse", "HEAD~1")
    repo.git("branch", "facade1", "HEAD~2")
    assert resolve(opened, "facade1") == repo.git("rev-parse", "HEAD~2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere", "has no branch or tag 'nowhere'"),
        ("refs/heads/nowhere", "has no branch or tag"),
        ("origin/nowhere", "has no branch or tag"),
        ("0" * 40, "there is no commit 0000"),
        ("abcdef1", "has no branch or tag 'abcdef1'"),
        ("main~3", "goes back further than history does here"),
        ("main~1001", "goes back more than 1000 commits"),
        ("", "is empty"),
        ("--upload-pack=x", "is not the name of a branch or tag"),
        ("main..topic", "is not the name"),
        ("HEAD@{1}", "is not the name"),
        (":/fix", "is not the name"),
        ("main:budgets", "is not the name"),
        ("a b", "is not the name"),
        ("^", "is not the name"),
    ],
)
def test_what_names_no_commit_is_one_clear_sentence(opened: Repository, text: str, said: str) -> None:
    """Missing, too far back, or something that git must not be given (GitPython#1515)."""
    with pytest.raises((InvalidInputError, RepositoryError)) as caught:
        resolve(opened, text)
    assert said in caught.value.message
    assert "HEAD~1" in caught.value.hint or "such as main" in caught.value.hint


def test_a_shallow_clone_says_how_to_get_more(
    repo: GitRepo, opened: Repository, git_repo: MakeRepo, tmp_path: Path
) -> None:
    """The parent that is not here is known to be missing (GitPython#510, pydriller PR#326)."""
    assert opened
    old = repo.git("rev-parse", "HEAD~2")
    clone = git_repo("clone")
    clone.git("fetch", "--quiet", "--depth=1", repo.url, "main:refs/heads/part")
    with open_repository(parse_source(str(clone.path)), tmp_path / "m") as shallow:
        for text in ("part~1", old):
            with pytest.raises(RepositoryError) as caught:
                resolve(shallow, text)
            assert "fetch-depth: 0" in caught.value.hint


def test_the_top_of_a_repository_is_found_from_inside(repo: GitRepo, opened: Repository, tmp_path: Path) -> None:
    """From any folder of it, from a bare one, and with a clear word where there is none."""
    assert opened
    assert repository_folder(repo.path / "budgets/x") == repo.path
    bare = tmp_path / "bare.git"
    repo.git("clone", "--quiet", "--bare", ".", str(bare))
    assert repository_folder(bare) == bare
    with pytest.raises(RepositoryError, match="is not in a git repository"):
        repository_folder(tmp_path)


# merging


def test_a_branch_that_is_behind_is_merged_outside_the_repository(repo: GitRepo, opened: Repository) -> None:
    """Both sides' changes are in the merge, its parents are both, and the repository has no new object."""
    repo.git("switch", "--quiet", "topic")
    theirs = repo.commit({"budgets/x/b.yaml": "b: 2\n"})
    ours = repo.git("rev-parse", "main")
    before = repo.git("count-objects", "-v")
    merge = opened.merge(ours, theirs)
    assert opened.files(merge, "budgets")[0] == {"a.yaml": b"a: 2\n", "x/b.yaml": b"b: 2\n"}
    assert opened.commit(merge).parents == (ours, theirs)
    assert repo.git("count-objects", "-v") == before
    assert opened.merge(ours, theirs) == merge or opened.commit(merge).committed


def test_a_conflict_names_the_files(repo: GitRepo, opened: Repository) -> None:
    """What both sides changed has to be settled by a person first."""
    repo.git("switch", "--quiet", "topic")
    theirs = repo.commit({"budgets/a.yaml": "a: 9\n"})
    with pytest.raises(ConflictError, match=r"both change budgets/a\.yaml") as caught:
        opened.merge(repo.git("rev-parse", "main"), theirs)
    assert "git rebase" in caught.value.hint


def test_histories_without_a_common_commit_do_not_merge(repo: GitRepo, opened: Repository) -> None:
    """One sentence with what git says."""
    repo.git("switch", "--quiet", "--orphan", "other")
    theirs = repo.commit({"budgets/a.yaml": "a: 9\n"})
    with pytest.raises(RepositoryError, match="cannot merge"):
        opened.merge(repo.git("rev-parse", "main"), theirs)


def test_scratch_folders_work_for_odd_paths_and_broken_places(git_repo: MakeRepo, tmp_path: Path) -> None:
    """A path with what separates paths in it is one path; what is no repository is told as ever."""
    odd = git_repo('a:b "c"')
    commit = odd.commit({"budgets/a.yaml": "a: 1\n"})
    with open_repository(parse_source(str(odd.path)), tmp_path / "m", scratch=tmp_path / "s") as found:
        assert found.files(commit, "budgets")[0] == {"a.yaml": b"a: 1\n"}
    (tmp_path / "none").mkdir()
    with (
        pytest.raises(RepositoryError, match="is not a git repository"),
        open_repository(parse_source(str(tmp_path / "none")), tmp_path / "m", scratch=tmp_path / "s"),
    ):
        pass


def test_approvers_are_those_whom_the_message_names(repo: GitRepo, opened: Repository) -> None:
    """Lines as reviewers leave them, each name once, and nothing else of the message."""
    message = (
        "Raise olmo\n\nApproved-by: Hanna <h@x>\nreviewed-by: ravi\nApproved-by: Hanna <h@x>\nSigned-off-by: eva\n"
    )
    commit = repo.commit({}, message)
    assert opened.commit(commit).approvers == ("Hanna <h@x>", "ravi")


# many objects at once


def test_a_folder_is_read_at_once_and_only_what_is_new_the_second_time(repo: GitRepo, opened: Repository) -> None:
    """Trees and files below it are there with their types; large ones are left for later."""
    repo.commit({"budgets/large.bin": "x" * (objects.LARGEST + 1), "budgets/a.yaml": "a: 7\n"})
    assert opened
    found = Objects(environment(repo.path), repo.path, "here", 60)
    found.read_below(repo.git("rev-parse", "HEAD:budgets"))
    small = repo.git("rev-parse", "HEAD:budgets/a.yaml")
    assert found.kept[small] == ("blob", b"a: 7\n")
    assert found.kept[repo.git("rev-parse", "HEAD:budgets/x")][0] == "tree"
    assert repo.git("rev-parse", "HEAD:budgets/large.bin") not in found.kept
    many = len(found.kept)
    found.read_below(repo.git("rev-parse", "HEAD~1:budgets"))
    assert len(found.kept) == many + 2  # the folder and one file
    found.read_below(repo.git("rev-parse", "HEAD~1:budgets"))
    assert len(found.kept) == many + 2


def test_what_cannot_be_read_at_once_is_left_for_later(repo: GitRepo, opened: Repository) -> None:
    """A missing folder, and an object that goes away between two looks, are no error here."""
    assert opened
    found = Objects(environment(repo.path), repo.path, "here", 60)
    found.read_below("0" * 40)
    assert found.kept == {}
    found._keep(b"1111 blob 2\nab\n2222 missing\n3333 blob 1\nc\n")
    assert found.kept == {"1111": ("blob", b"ab")}
