"""Which commit a person means, merges that nobody made, and many objects read at once, in real repositories."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubudget.errors import ConflictError, InvalidInputError
from gpubudget.gitops import objects, repository
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


def test_a_commit_is_compared_with_its_id_and_bounded(
    repo: GitRepo, opened: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was exchanged, or is larger than anything that is read, is never believed."""
    commit = repo.commit({}, "words")
    file = repo.path / ".git/objects" / commit[:2] / commit[2:]
    monkeypatch.setattr(repository, "MAX_TOTAL_BYTES", 10)
    with pytest.raises(RepositoryError, match="bytes long, more than 10"):
        opened.commit(commit)
    monkeypatch.undo()
    file.chmod(0o600)
    file.write_bytes(zlib.compress(zlib.decompress(file.read_bytes()).replace(b"Hanna", b"Honna")))
    with pytest.raises(RepositoryError, match="is damaged"):
        opened.commit(commit)


# many objects at once


@pytest.fixture
def stored(repo: GitRepo, opened: Repository) -> Objects:
    """The objects of the repository."""
    assert opened
    return Objects(environment(repo.path), repo.path, "here", 60)


def test_objects_are_read_by_their_ids_and_kept(
    repo: GitRepo, stored: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes, contents and folders, each in the order asked for; what is known is not asked for again."""
    folder, first, second = (repo.git("rev-parse", f"HEAD:budgets{name}") for name in ("", "/a.yaml", "/x/b.yaml"))
    assert stored.sizes([second, first]) == {second: 5, first: 5}
    assert list(stored.contents([first, second, first], "blob", 10).items()) == [
        (first, b"a: 2\n"),
        (second, b"b: 1\n"),
    ]
    assert [(one.name, one.kind) for one in stored.folders([folder], 999)[folder]] == [
        ("a.yaml", "blob"),
        ("x", "tree"),
    ]
    monkeypatch.setattr(objects, "run_bytes", None)
    assert stored.contents([first], "blob", 10) == {first: b"a: 2\n"}
    assert stored.folders([folder], 999)[folder]
    assert [stored.sizes([]), stored.contents([], "blob", 1), stored.folders([], 1)] == [{}, {}, {}]


def test_objects_that_are_missing_of_another_kind_or_too_large_are_not_read(repo: GitRepo, stored: Objects) -> None:
    """Each is a sentence that names the object."""
    blob, folder = repo.git("rev-parse", "HEAD:budgets/a.yaml"), repo.git("rev-parse", "HEAD:budgets")
    with pytest.raises(ValueError, match="is missing"):
        stored.sizes(["1" * 40])
    with pytest.raises(ValueError, match="is 5 bytes long, more than 4"):
        stored.contents([blob], "blob", 4)
    with pytest.raises(ValueError, match="is damaged, or no blob"):
        stored.contents([folder], "blob", 999)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([b"100644 a", b"100644 a"], "lists 'a' is damaged, it does so twice"),
        ([b"100644 "], "is damaged"),
        ([b"100644 .."], "is damaged"),
        ([b"100644 a/b"], "is damaged"),
        ([b"070000 a"], "is damaged"),
        ([b"900000 a"], "is damaged"),
        ([b"a"], "is damaged"),
    ],
)
def test_a_malformed_folder_is_not_read(repo: GitRepo, stored: Objects, lines: list[bytes], said: str) -> None:
    """Names that no file can have, unknown modes, a name twice: never read as something else."""
    blob = bytes.fromhex(repo.git("rev-parse", "HEAD:budgets/a.yaml"))
    data = b"".join(line + b"\0" + blob for line in lines)
    for content in (data, data[:-1]):
        folder = repo.git("hash-object", "--literally", "-t", "tree", "-w", "--stdin", stdin=content)
        with pytest.raises(ValueError, match=said if content is data else "is damaged"):
            stored.folders([folder], 999)
