"""Repositories in odd states, odd objects in them, odd spellings of places and refs: read as they are, or refused."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubudget.errors import GpuBudgetError
from gpubudget.gitops import gitprocess, repository
from gpubudget.gitops.load import load_tree
from gpubudget.gitops.repository import open_repository
from gpubudget.gitops.source import full_names, parse_source
from tests.conftest import GitRepo

MakeRepo = Callable[[str], GitRepo]
FILES = {"budgets/cluster.yaml": "kind: Cluster\n", "budgets/a/budget.yaml": "kind: Budget\n"}
READ = {"cluster.yaml": b"kind: Cluster\n", "a/budget.yaml": b"kind: Budget\n"}


@pytest.fixture
def repo(git_repo: MakeRepo) -> GitRepo:
    return git_repo("work")


def read(place: str | Path, mirror: Path, ref: str = "main") -> tuple[str, dict[str, bytes]]:
    """The commit that a ref names, and the files of the budgets there."""
    with open_repository(parse_source(str(place)), mirror) as opened:
        commit = opened.fetch(ref)
        opened.commit(commit)
        files, problems = opened.files(commit, "budgets")
        assert not problems
        return commit, files


def refusal(place: str | Path, mirror: Path, ref: str = "main") -> str:
    with pytest.raises(GpuBudgetError) as caught:
        read(place, mirror, ref)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value.message


# states that do not matter


def packed(repo: GitRepo, _: Path) -> None:
    repo.git("gc", "--quiet", "--aggressive", "--prune=now")
    repo.git("pack-refs", "--all", "--prune")
    repo.git("multi-pack-index", "write")
    repo.git("commit-graph", "write", "--reachable")


def merging(repo: GitRepo, _: Path) -> None:
    repo.git("switch", "--quiet", "--create", "other")
    repo.commit({"budgets/cluster.yaml": "theirs\n"})
    repo.git("switch", "--quiet", "main")
    repo.git("merge", "--quiet", "--no-commit", "--no-ff", "other")


def locked(repo: GitRepo, _: Path) -> None:
    for name in ("index.lock", "HEAD.lock", "config.lock", "refs/heads/main.lock", "packed-refs.lock"):
        (repo.path / ".git" / name).write_text("")


def dirty(repo: GitRepo, _: Path) -> None:
    (repo.path / "budgets/cluster.yaml").write_text("changed\n")
    repo.git("add", "--all")
    (repo.path / "budgets/new.yaml").write_text("new\n")
    (repo.path / ".git/index").write_bytes(b"damaged")


def without_work_tree(repo: GitRepo, _: Path) -> None:
    for entry in repo.path.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry)


def hooked(repo: GitRepo, folder: Path) -> None:
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "diff.external", "core.editor", "alias.rev-parse"):
        repo.git("config", name, f"touch {folder}/ran")
    repo.git("config", "include.path", "/no/such/file")


def odd_settings(repo: GitRepo, _: Path) -> None:
    for name, value in (("core.abbrev", "4"), ("core.quotePath", "true"), ("color.ui", "always"), ("log.date", "raw"),
                        ("core.logAllRefUpdates", "always"), ("extensions.worktreeConfig", "false")):  # fmt: skip
        repo.git("config", name, value)


STATES = [packed, merging, locked, dirty, without_work_tree, hooked, odd_settings]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("remote", [False, True], ids=["path", "url"])
def test_a_state_that_does_not_matter_changes_nothing(
    repo: GitRepo,
    tmp_path: Path,
    state: Callable[[GitRepo, Path], None],
    remote: bool,  # noqa: FBT001
) -> None:
    """Packed, in the middle of a merge, with locks left behind, with a damaged index: the commit says what it said."""
    commit = repo.commit(FILES)
    state(repo, tmp_path)
    assert read(repo.url if remote else repo.path, tmp_path / "mirror") == (commit, READ)
    assert not (tmp_path / "ran").exists()


def test_objects_may_lie_elsewhere_until_they_are_gone(repo: GitRepo, tmp_path: Path) -> None:
    """A clone that borrows objects is read; without its lender it is one clear sentence and no empty tree."""
    commit = repo.commit(FILES)
    repo.git("clone", "--quiet", "--shared", ".", str(tmp_path / "borrower"))
    assert read(tmp_path / "borrower", tmp_path) == (commit, READ)
    shutil.rmtree(repo.path / ".git/objects")
    assert "missing or damaged" in refusal(tmp_path / "borrower", tmp_path)


def test_a_partial_clone_is_not_completed_behind_our_back(repo: GitRepo, tmp_path: Path) -> None:
    """Files that were left out on purpose are missing, and nothing is fetched from where they are."""
    repo.commit(FILES)
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("clone", "--quiet", "--bare", "--filter=blob:none", repo.url, str(tmp_path / "partial"))
    assert "cannot read 'budgets' at commit" in refusal(tmp_path / "partial", tmp_path)


# refs


@pytest.mark.parametrize(
    "ref", ["feature/x", "été", "日本", "main.yaml", "v1.0", "a+b", "a-b_c", "100%", "x@y", "head"]
)
@pytest.mark.parametrize("remote", [False, True], ids=["path", "url"])
def test_refs_are_spelled_in_many_ways(repo: GitRepo, tmp_path: Path, ref: str, remote: bool) -> None:  # noqa: FBT001
    """Slashes, accents, dots and signs that git allows in names."""
    commit = repo.commit(FILES)
    repo.git("branch", ref)
    assert full_names(ref) == (f"refs/heads/{ref}", f"refs/tags/{ref}")
    assert read(repo.url if remote else repo.path, tmp_path / "mirror", ref) == (commit, READ)


@pytest.mark.parametrize("remote", [False, True], ids=["path", "url"])
def test_a_branch_that_stands_for_another_one_is_followed_to_its_commit(
    repo: GitRepo,
    tmp_path: Path,
    remote: bool,  # noqa: FBT001
) -> None:
    """One that leads in a circle, or nowhere, is missing."""
    commit = repo.commit(FILES)
    repo.git("symbolic-ref", "refs/heads/live", "refs/heads/main")
    heads = repo.path / ".git/refs/heads"
    (heads / "circle").write_text("ref: refs/heads/circle\n")
    (heads / "nowhere").write_text("ref: refs/heads/gone\n")
    place = repo.url if remote else repo.path
    assert read(place, tmp_path / "mirror", "live") == (commit, READ)
    for ref in ("circle", "nowhere"):
        assert f"has no branch or tag '{ref}'" in refusal(place, tmp_path / "mirror", ref)


def test_a_ref_that_names_an_object_that_is_gone_is_one_clear_sentence(repo: GitRepo, tmp_path: Path) -> None:
    """Locally, and where a server offers it."""
    repo.commit(FILES)
    (repo.path / ".git/refs/heads/lost").write_text("1" * 40 + "\n")
    assert "which is missing or damaged" in refusal(repo.path, tmp_path, "lost")
    assert "cannot run git fetch in" in refusal(repo.url, tmp_path / "mirror", "lost")


# places


@pytest.mark.parametrize(
    "name", ["with space", "été", "a'b", 'a"b', "a;b", "$HOME", "-x", "a#b", "100%", "x.git", "a:b"]
)
def test_places_are_spelled_in_many_ways(
    git_repo: MakeRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever a folder is called: absolute, relative, with a slash at its end, through a link."""
    repo = git_repo(name)
    commit = repo.commit(FILES)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(repo.path)
    for place in (str(repo.path), f"./{name}", f"{name}/" if name != "-x" else "./-x/", "link"):
        assert read(place, tmp_path / "mirror") == (commit, READ)


def test_what_is_no_repository_of_ours_is_refused(repo: GitRepo, tmp_path: Path) -> None:
    """A bundle, an archive, an empty folder, and one with other object ids."""
    repo.commit(FILES)
    repo.git("bundle", "create", "--quiet", str(tmp_path / "bundle"), "main")
    repo.git("archive", "--output", str(tmp_path / "archive.tar"), "main")
    (tmp_path / "empty").mkdir()
    for name in ("bundle", "archive.tar", "empty"):
        assert "is not a git repository" in refusal(tmp_path / name, tmp_path)
    long = GitRepo(tmp_path / "long")
    long.path.mkdir()
    long.git("init", "--quiet", "--initial-branch=main", "--object-format=sha256")
    long.commit(FILES)
    assert "has SHA-256 object ids" in refusal(long.path, tmp_path)
    refusal(long.url, tmp_path / "mirror")


def test_a_repository_of_another_user_says_how_to_trust_it(
    repo: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git does not read what somebody else owns unless it is told to; the hint says how."""
    repo.commit(FILES)
    somebody_else = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    monkeypatch.setattr(repository, "environment", lambda place: gitprocess.environment(place) | somebody_else)
    with pytest.raises(GpuBudgetError) as caught:
        read(repo.path, tmp_path)
    assert "dubious ownership" in caught.value.message
    assert f"git config --global --add safe.directory {repo.path}" in caught.value.hint


# objects


@pytest.mark.parametrize(
    ("date", "shown"),
    [("0 +0000", 0), ("99999999999 +0000", 99_999_999_999_000), ("1 +9999", 1_000), ("1 -0000", 1_000)],
)
def test_commits_may_claim_any_time(repo: GitRepo, tmp_path: Path, date: str, shown: int) -> None:
    """Long ago, far ahead, in timezones that there are not."""
    repo.commit(FILES)
    tree = repo.git("rev-parse", "HEAD^{tree}")
    text = f"tree {tree}\nauthor a <a@b> {date}\ncommitter c <c@d> {date}\n\nm\n"
    commit = repo.git("hash-object", "--literally", "-t", "commit", "-w", "--stdin", stdin=text.encode())
    with open_repository(parse_source(str(repo.path)), tmp_path) as opened:
        assert opened.commit(commit).committed == shown


@pytest.mark.parametrize(
    "text",
    [
        "tree {tree}\n\nm\n",
        "tree {tree}\nauthor nobody\ncommitter nobody\n\nm\n",
        "tree {tree}\nauthor  <> 0 +0000\ncommitter  <> 0 +0000\n\n",
        "tree {tree}\nauthor a <a@b> x y\ncommitter c <c@d> x y\n\nm\n",
        "author a <a@b> 0 +0000\ncommitter c <c@d> 0 +0000\n\nm\n",
        "tree {missing}\nauthor a <a@b> 0 +0000\ncommitter c <c@d> 0 +0000\n\nm\n",
        "tree {tree}\nparent {missing}\nauthor a <a@b> 0 +0000\ncommitter c <c@d> 0 +0000\n\nm\n",
        "tree {tree}\nauthor a <a@b> 0 +0000\ncommitter c <c@d> 0 +0000\nencoding nonsense\n\n\xff\n",
        "",
    ],
)
def test_malformed_commits_are_read_or_are_one_clear_sentence(repo: GitRepo, tmp_path: Path, text: str) -> None:
    """Never a traceback, never an empty tree."""
    repo.commit(FILES)
    filled = text.format(tree=repo.git("rev-parse", "HEAD^{tree}"), missing="1" * 40)
    found = repo.git("hash-object", "--literally", "-t", "commit", "-w", "--stdin", stdin=filled.encode("latin-1"))
    (repo.path / ".git/refs/heads/odd").write_text(f"{found}\n")
    try:
        result = read(repo.path, tmp_path, "odd")
    except GpuBudgetError:
        refusal(repo.path, tmp_path, "odd")
    else:
        assert result == (found, READ)


def test_executable_files_are_files_and_other_modes_are_told(repo: GitRepo, tmp_path: Path) -> None:
    """What an editor made executable by mistake is read; a mode that git does not know is not passed over."""
    repo.commit(FILES)
    blob = repo.git("rev-parse", "HEAD:budgets/cluster.yaml")
    for mode in ("100755", "100664"):
        listing = f"{mode} cluster.yaml".encode() + b"\0" + bytes.fromhex(blob)
        inner = repo.git("hash-object", "--literally", "-t", "tree", "-w", "--stdin", stdin=listing)
        outer = repo.git("mktree", stdin=f"040000 tree {inner}\tbudgets\n".encode())
        repo.git("update-ref", f"refs/heads/m{mode}", repo.git("commit-tree", "-m", "m", outer))
        assert read(repo.path, tmp_path, f"m{mode}")[1] == {"cluster.yaml": READ["cluster.yaml"]}


@pytest.mark.parametrize("name", [b"..", b".", b".git", b"a/b.yaml", b"\xff.yaml", b"a\nb.yaml", b"A.yaml\xcc\x88"])
def test_names_that_lead_elsewhere_are_never_read_as_budgets(repo: GitRepo, tmp_path: Path, name: bytes) -> None:
    """Entries that no git would write, but that a server may send (vulndb#453's kind)."""
    repo.commit(FILES)
    blob, folder = (repo.git("rev-parse", f"HEAD:budgets{path}") for path in ("/cluster.yaml", "/a"))
    entries = b"100644 budget.yaml\0" + bytes.fromhex(blob)
    kind, what = (b"100644", blob) if name.endswith((b".yaml", b"\x88")) else (b"40000", folder)
    entries += kind + b" " + name + b"\0" + bytes.fromhex(what)
    inner = repo.git("hash-object", "--literally", "-t", "tree", "-w", "--stdin", stdin=entries)
    outer = repo.git("mktree", stdin=f"040000 tree {inner}\tbudgets\n".encode())
    repo.git("update-ref", "refs/heads/odd", repo.git("commit-tree", "-m", "m", outer))
    with open_repository(parse_source(str(repo.path)), tmp_path) as opened:
        try:
            files, problems = opened.files(opened.fetch("odd"), "budgets")
        except GpuBudgetError:
            refusal(repo.path, tmp_path, "odd")
        else:
            assert load_tree(files, problems).tree is None


def test_a_commit_that_is_not_what_its_id_says_is_not_believed(
    repo: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose author was changed in place, and one that is too long to be looked at."""
    commit = repo.commit(FILES)
    with open_repository(parse_source(str(repo.path)), tmp_path) as opened, monkeypatch.context() as patch:
        patch.setattr(repository, "MAX_TOTAL_BYTES", 10)
        with pytest.raises(GpuBudgetError, match="bytes long, more than 10"):
            opened.commit(commit)
    file = repo.path / ".git/objects" / commit[:2] / commit[2:]
    content = zlib.decompress(file.read_bytes()).replace(b"Hanna", b"Honna")
    file.chmod(0o600)
    file.write_bytes(zlib.compress(content))
    with (
        open_repository(parse_source(str(repo.path)), tmp_path) as opened,
        pytest.raises(GpuBudgetError, match=f"object {commit} is damaged"),
    ):
        opened.commit(commit)
