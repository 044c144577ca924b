"""Reading a budgets repository: real repositories, good, odd and broken."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubudget.errors import GpuBudgetError, InvalidInputError
from gpubudget.gitops import gitprocess, repository
from gpubudget.gitops.gitprocess import RepositoryError
from gpubudget.gitops.load import load_tree
from gpubudget.gitops.repository import open_repository
from gpubudget.gitops.source import full_names, parse_source
from gpubudget.gitops.yamlfile import MAX_BYTES
from tests.conftest import GitRepo

MakeRepo = Callable[[str], GitRepo]
FILES = {"budgets/cluster.yaml": "kind: Cluster\n", "budgets/a/budget.yaml": "kind: Budget\n", "README.md": "hi\n"}
READ = {"cluster.yaml": b"kind: Cluster\n", "a/budget.yaml": b"kind: Budget\n"}


@pytest.fixture
def repo(git_repo: MakeRepo) -> GitRepo:
    return git_repo("work")


def read(place: str | Path, ref: str, mirror: Path, path: str = "budgets") -> tuple[str, dict[str, bytes]]:
    with open_repository(parse_source(str(place)), mirror) as opened:
        commit = opened.fetch(ref)
        opened.commit(commit)
        files, problems = opened.files(commit, path)
        assert not problems
        return commit, files


def refusal(place: str | Path, ref: str, mirror: Path, path: str = "budgets") -> str:
    """The one sentence with which reading ends."""
    with pytest.raises(GpuBudgetError) as caught:
        read(place, ref, mirror, path)
    assert caught.value.exit_code == 1
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value.message


# what is read


@pytest.mark.parametrize("kind", ["work tree", "bare", "linked work tree", "url", "git directory"])
def test_every_kind_of_repository_gives_the_files_at_the_commit(repo: GitRepo, tmp_path: Path, kind: str) -> None:
    """The blobs below the folder are read at the ref's commit, whatever the work tree holds."""
    commit = repo.commit(FILES)
    repo.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    repo.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    (repo.path / "budgets/cluster.yaml").write_text("not committed")
    places: dict[str, str | Path] = {
        "work tree": repo.path,
        "bare": tmp_path / "bare.git",
        "linked work tree": tmp_path / "linked",
        "url": repo.url,
        "git directory": repo.path / ".git",
    }
    assert read(places[kind], "main", tmp_path / "mirror") == (commit, READ)


@pytest.mark.parametrize("ref", ["main", "refs/heads/main", "v1", "refs/tags/v2", "HEAD", "deep"])
@pytest.mark.parametrize("remote", [False, True], ids=["path", "url"])
def test_branches_tags_and_head_name_a_commit(repo: GitRepo, tmp_path: Path, ref: str, remote: bool) -> None:  # noqa: FBT001
    """A branch, a light tag, an annotated tag, a tag of a tag and HEAD all lead to the commit."""
    commit = repo.commit(FILES)
    repo.git("tag", "v1")
    repo.git("tag", "--annotate", "--message", "two", "v2")
    repo.git("tag", "--annotate", "--message", "of a tag", "deep", "v2")
    assert read(repo.url if remote else repo.path, ref, tmp_path / "mirror") == (commit, READ)


@pytest.mark.parametrize("path", ["budgets", "budgets/", "./budgets"])
def test_a_folder_may_be_written_in_several_ways(repo: GitRepo, tmp_path: Path, path: str) -> None:
    """A slash at the end or a dot in front changes nothing."""
    repo.commit(FILES)
    assert read(repo.path, "main", tmp_path, path)[1] == READ


def test_the_top_of_the_repository_can_be_the_tree(repo: GitRepo, tmp_path: Path) -> None:
    """With the path "." all YAML files are read, by their path from the top."""
    repo.commit(FILES)
    assert sorted(read(repo.path, "main", tmp_path, ".")[1]) == sorted(f"budgets/{name}" for name in READ)


def test_a_commit_tells_its_author_time_and_parents(repo: GitRepo, tmp_path: Path) -> None:
    """Times are milliseconds, ids are whole."""
    first = repo.commit(FILES)
    second = repo.commit({"README.md": "two"})
    with open_repository(parse_source(str(repo.path)), tmp_path) as opened:
        commit = opened.commit(second)
    assert (commit.id, commit.parents) == (second, (first,))
    assert (commit.author, commit.committed) == ("Hanna <hanna@example.org>", 1_790_856_000_000)


def test_an_author_that_could_upset_a_terminal_is_shown_escaped(repo: GitRepo, tmp_path: Path) -> None:
    """Escape sequences in a name are printed as text, and a very long name is cut."""
    repo.commit(FILES)
    tree = repo.git("rev-parse", "HEAD^{tree}")
    text = f"tree {tree}\nauthor \x1b[31m{'x' * 1000} <a@b> 0 +0000\ncommitter c <c@d> 0 +0000\n\nm\n"
    odd = repo.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode())
    with open_repository(parse_source(str(repo.path)), tmp_path) as opened:
        author = opened.commit(odd).author
    assert author.startswith("\\x1b[31mxx")
    assert len(author) < 600


def test_the_named_ref_alone_is_fetched_and_later_commits_are_seen(repo: GitRepo, tmp_path: Path) -> None:
    """The mirror has one ref; a pull request's ref or another branch never arrives (safe-settings#339)."""
    repo.commit(FILES)
    repo.git("update-ref", "refs/pull/7/head", "HEAD")
    repo.git("branch", "other")
    read(repo.url, "main", tmp_path / "mirror")
    later = repo.commit({"budgets/cluster.yaml": "new\n"})
    commit, files = read(repo.url, "main", tmp_path / "mirror")
    assert (commit, files["cluster.yaml"]) == (later, b"new\n")
    refs = GitRepo(tmp_path / "mirror").git("for-each-ref", "--format=%(refname)")
    assert refs == "refs/gpubudget/fetched"


def test_a_rewritten_branch_is_fetched_as_it_is_now(repo: GitRepo, tmp_path: Path) -> None:
    """A force push moves the mirror too; whether it may be applied is decided elsewhere."""
    first = repo.commit(FILES)
    repo.commit({"README.md": "two"})
    read(repo.url, "main", tmp_path / "mirror")
    repo.git("reset", "--quiet", "--hard", first)
    assert read(repo.url, "main", tmp_path / "mirror")[0] == first


# history


@pytest.mark.parametrize("remote", [False, True], ids=["path", "url"])
def test_descent_is_what_the_history_says(repo: GitRepo, tmp_path: Path, remote: bool) -> None:  # noqa: FBT001
    """A commit descends from itself and its ancestors, also through a merge, and from nothing else."""
    base = repo.commit(FILES)
    repo.git("switch", "--quiet", "--create", "side")
    side = repo.commit({"side": "s"})
    repo.git("switch", "--quiet", "main")
    main = repo.commit({"main": "m"})
    repo.git("merge", "--quiet", "--no-edit", "side")
    merged = repo.git("rev-parse", "HEAD")
    with open_repository(parse_source(repo.url if remote else str(repo.path)), tmp_path / "mirror") as opened:
        opened.fetch("main")
        assert all(opened.is_ancestor(one, merged) for one in (base, side, main, merged))
        assert not opened.is_ancestor(main, side)
        assert not opened.is_ancestor(merged, base)
        assert opened.has(side)
        assert not opened.has("0" * 40)
        assert not opened.is_shallow()


def test_comparing_with_a_commit_that_is_not_here_is_an_error(repo: GitRepo, tmp_path: Path) -> None:
    """An unknown commit is never "not an ancestor"."""
    commit = repo.commit(FILES)
    with open_repository(parse_source(str(repo.path)), tmp_path) as opened, pytest.raises(RepositoryError):
        opened.is_ancestor("1" * 40, commit)


def test_a_shallow_clone_is_read_and_says_that_it_is_shallow(repo: GitRepo, tmp_path: Path) -> None:
    """A shallow clone without the parent gives the tree and no traceback (GitPython#1479, pydriller PR#326)."""
    first = repo.commit(FILES)
    second = repo.commit({"README.md": "two"})
    repo.git("clone", "--quiet", "--depth=1", repo.url, str(tmp_path / "shallow"))
    with open_repository(parse_source(str(tmp_path / "shallow")), tmp_path) as opened:
        assert opened.fetch("main") == second
        assert opened.files(second, "budgets") == (READ, [])
        assert opened.commit(second).parents == (first,) or opened.commit(second).parents == ()
        assert opened.is_shallow()
        assert not opened.has(first)


def test_fetching_from_a_shallow_repository_is_one_clear_sentence(repo: GitRepo, tmp_path: Path) -> None:
    """History that ends early is not mirrored as if it were whole."""
    repo.commit(FILES)
    read(repo.url, "main", tmp_path / "mirror")
    repo.commit({"README.md": "two"})
    repo.commit({"README.md": "three"})
    repo.git("clone", "--quiet", "--depth=1", repo.url, str(tmp_path / "shallow"))
    place = f"file://{tmp_path}/shallow"
    assert "that repository is a shallow clone" in refusal(place, "main", tmp_path / "mirror")
    assert "that repository is a shallow clone" in refusal(place, "main", tmp_path / "new mirror")


def test_a_detached_head_does_not_matter_for_a_branch(repo: GitRepo, tmp_path: Path) -> None:
    """A branch is read from a repository whose HEAD is detached (GitPython#510)."""
    commit = repo.commit(FILES)
    repo.git("switch", "--quiet", "--detach")
    repo.commit({"README.md": "elsewhere"})
    assert read(repo.path, "main", tmp_path)[0] == commit
    repo.git("branch", "--delete", "--force", "main")
    assert "has no branch or tag 'main'" in refusal(repo.path, "main", tmp_path)


def test_replaced_objects_and_grafts_do_not_change_what_a_commit_says(repo: GitRepo, tmp_path: Path) -> None:
    """Local replacements of objects and of parents are not followed."""
    first = repo.commit(FILES)
    second = repo.commit({"budgets/cluster.yaml": "two\n"})
    repo.git("replace", second, first)
    (repo.path / ".git/info/grafts").write_text(f"{second}\n")
    with open_repository(parse_source(str(repo.path)), tmp_path) as opened:
        assert opened.files(second, "budgets")[0]["cluster.yaml"] == b"two\n"
        assert opened.is_ancestor(first, second)


# what cannot be read


@pytest.mark.parametrize("remote", [False, True], ids=["path", "url"])
def test_an_empty_repository_says_so(repo: GitRepo, tmp_path: Path, remote: bool) -> None:  # noqa: FBT001
    """No commits is not an empty tree (argo-cd#2573)."""
    place = repo.url if remote else repo.path
    assert "has no commits yet, so there is no 'main'" in refusal(place, "main", tmp_path / "mirror")
    assert "has no commits yet, so there is no 'HEAD'" in refusal(place, "HEAD", tmp_path / "mirror")


@pytest.mark.parametrize("remote", [False, True], ids=["path", "url"])
def test_a_missing_ref_says_so(repo: GitRepo, tmp_path: Path, remote: bool) -> None:  # noqa: FBT001
    """A ref that is not there, or no longer, is an error, also when the mirror has fetched it before."""
    repo.commit(FILES)
    repo.git("branch", "brief")
    place = repo.url if remote else repo.path
    read(place, "brief", tmp_path / "mirror")
    repo.git("branch", "--delete", "brief")
    for ref in ("brief", "refs/heads/brief", "refs/remotes/origin/main", "ma"):
        assert f"has no branch or tag '{ref}'" in refusal(place, ref, tmp_path / "mirror")


@pytest.mark.parametrize("remote", [False, True], ids=["path", "url"])
def test_a_name_that_is_both_branch_and_tag_is_refused(repo: GitRepo, tmp_path: Path, remote: bool) -> None:  # noqa: FBT001
    """Two refs of one name are not chosen between; the full name is."""
    first = repo.commit(FILES)
    repo.git("tag", "main")
    second = repo.commit({"README.md": "two"})
    place = repo.url if remote else repo.path
    assert "has a branch and a tag called 'main'" in refusal(place, "main", tmp_path / "mirror")
    assert read(place, "refs/heads/main", tmp_path / "mirror")[0] == second
    assert read(place, "refs/tags/main", tmp_path / "mirror")[0] == first


@pytest.mark.parametrize("remote", [False, True], ids=["path", "url"])
@pytest.mark.parametrize(("name", "kind"), [("tree", "a folder"), ("blob", "a file"), ("tag-of-tree", "a folder")])
def test_a_ref_to_something_else_than_a_commit_is_refused(
    repo: GitRepo,
    tmp_path: Path,
    name: str,
    kind: str,
    remote: bool,  # noqa: FBT001
) -> None:
    """A tag of a tree or a file names no commit."""
    repo.commit(FILES)
    repo.git("tag", "tree", "HEAD^{tree}")
    repo.git("tag", "blob", "HEAD:README.md")
    repo.git("tag", "--annotate", "--message", "t", "tag-of-tree", "HEAD^{tree}")
    said = refusal(repo.url if remote else repo.path, name, tmp_path / "mirror")
    assert f"refs/tags/{name} of" in said
    assert f"names {kind}, not a commit" in said


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "there is no folder 'nowhere'"),
        ("budgets/nowhere", "there is no folder 'budgets/nowhere'"),
        ("README.md", "'README.md' at commit {} is a file, not a folder"),
        ("README.md/x", "'README.md' at commit {} is a file, not a folder"),
        ("link", "'link' at commit {} is a link, not a folder"),
        ("sub", "'sub' at commit {} is a submodule, not a folder"),
        ("empty", "the folder 'empty' at commit {} has no YAML files"),
        ("../budgets", "does not name a folder inside the repository"),
        ("/etc", "does not name a folder inside the repository"),
        ("a\nb", "does not name a folder inside the repository"),
    ],
)
def test_a_folder_that_is_not_there_is_not_an_empty_tree(repo: GitRepo, tmp_path: Path, path: str, said: str) -> None:
    """A missing or empty folder, a file, a link or a submodule in its place: each is an error (argo-cd#3484)."""
    (repo.path / "link").symlink_to("budgets")
    repo.commit(FILES)
    head = repo.git("rev-parse", "HEAD")
    nothing = repo.git("hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    listing = repo.git("ls-tree", repo.git("write-tree")) + f"\n040000 tree {nothing}\tempty\n"
    commit = repo.git("commit-tree", "-m", "odd", repo.git("mktree", stdin=listing.encode()))
    repo.git("update-ref", "refs/heads/odd", commit)
    assert said.format(commit) in refusal(repo.path, "odd", tmp_path, path)


def test_links_submodules_and_over_sized_files_are_problems(repo: GitRepo, tmp_path: Path) -> None:
    """What is no plain file is neither followed nor left out; all are told at once (CVE-2022-24904)."""
    (repo.path / "budgets").mkdir()
    (repo.path / "budgets/link.yaml").symlink_to("/etc/passwd")
    (repo.path / "budgets/folder").symlink_to("/etc")
    (repo.path / "budgets/huge.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    (repo.path / os.fsdecode(b"budgets/\xff.yaml")).write_text("")
    head = repo.commit(FILES)
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{head},budgets/sub")
    repo.git("commit", "--quiet", "--message", "odd")
    with open_repository(parse_source(str(repo.path)), tmp_path) as opened:
        files, problems = opened.files(opened.fetch("main"), "budgets")
    found = {(problem.rule, problem.position.file): problem.message for problem in problems}
    assert found == {
        ("file-link", "link.yaml"): "link.yaml is a link, and is not followed",
        ("file-link", "folder"): "folder is a link, and is not followed",
        ("file-special", "sub"): "sub is a submodule, and is not followed",
        ("file-size", "huge.yaml"): "the file has 1000001 bytes, more than the 1000000 that are read",
    }
    loaded = load_tree(files, problems)
    assert {problem.rule for problem in loaded.diagnostics} >= {"file-link", "file-special", "file-size", "file-name"}
    assert loaded.tree is None


def test_what_is_hidden_or_not_yaml_is_left_alone(repo: GitRepo, tmp_path: Path) -> None:
    """A large picture, a document and hidden files beside the budgets do not matter."""
    large = "x" * (MAX_BYTES + 1)
    (repo.path / ".github").symlink_to("/etc")
    repo.commit({**FILES, "picture.svg": large, "notes.md": "n", ".ci/large.yaml": large})
    assert sorted(read(repo.path, "main", tmp_path, ".")[1]) == sorted(f"budgets/{name}" for name in READ)
    repo.commit({"other/notes.md": "n"})
    assert "the folder 'other' at commit" in refusal(repo.path, "main", tmp_path, "other")


def test_a_file_that_is_twice_in_a_folder_is_refused(repo: GitRepo, tmp_path: Path) -> None:
    """A malformed tree object with one name twice is not read as if the last one were meant (pyyaml#165's kind)."""
    repo.commit(FILES)
    blob = bytes.fromhex(repo.git("rev-parse", "HEAD:README.md"))
    twice = b"100644 a.yaml\0" + blob + b"100644 a.yaml\0" + blob
    tree = repo.git("hash-object", "--literally", "-t", "tree", "-w", "--stdin", stdin=twice)
    repo.git("update-ref", "refs/heads/odd", repo.git("commit-tree", "-m", "odd", tree))
    assert "the folder that lists 'a.yaml' is damaged" in refusal(repo.path, "odd", tmp_path, ".")
    assert "cannot run git fetch" in refusal(repo.url, "odd", tmp_path / "mirror", ".")


def test_folders_that_unfold_without_end_are_refused(
    repo: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten objects that stand for ten billion paths end at the limit, as does a path that is too deep."""
    monkeypatch.setattr(repository, "MAX_ENTRIES", 1_000)
    blob = repo.git("hash-object", "-w", "--stdin", stdin=b"x")
    tree = repo.git("mktree", stdin=f"100644 blob {blob}\tf\n".encode())
    for _ in range(10):
        tree = repo.git("mktree", stdin="".join(f"040000 tree {tree}\td{i}\n" for i in range(10)).encode())
    repo.git("update-ref", "refs/heads/wide", repo.git("commit-tree", "-m", "wide", tree))
    assert "holds too much (at most 1000 files and folders, 64 deep)" in refusal(repo.path, "wide", tmp_path, ".")
    repo.commit({"/".join(["d"] * 70) + "/f": "x"})
    assert "holds too much" in refusal(repo.path, "main", tmp_path, "d")


def test_the_whole_has_a_size_limit(repo: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are small enough each may still be too much together, and one object may be too much to look at."""
    repo.commit(FILES)
    monkeypatch.setattr(repository, "MAX_TOTAL_BYTES", 1_000)
    repo.commit({f"budgets/{number}.yaml": "#" * 400 for number in range(3)})
    assert "the files are longer than 1000 bytes together" in refusal(repo.path, "main", tmp_path)
    repo.commit({f"budgets/{number}.yaml": "" for number in range(100)})
    assert "bytes long, more than 1000" in refusal(repo.path, "main", tmp_path)


@pytest.mark.parametrize("damage", ["removed", "truncated", "swapped", "no objects", "bad ref"])
@pytest.mark.parametrize("victim", ["HEAD:budgets/cluster.yaml", "HEAD:budgets", "HEAD^{tree}", "HEAD"])
def test_a_damaged_object_database_is_one_clear_sentence(
    repo: GitRepo, tmp_path: Path, damage: str, victim: str
) -> None:
    """A lost, cut or exchanged object is never read as something else, and never as nothing."""
    repo.commit(FILES)
    found = repo.git("rev-parse", victim)
    file = repo.path / ".git/objects" / found[:2] / found[2:]
    file.chmod(0o600)
    match damage:
        case "removed":
            file.unlink()
        case "truncated":
            file.write_bytes(file.read_bytes()[:-5])
        case "swapped":
            content = zlib.decompress(file.read_bytes()).replace(b"Cluster", b"Clusted").replace(b"Hanna", b"Honna")
            content = content.replace(b"budgets", b"badgets").replace(b"cluster.yaml", b"clusten.yaml")
            file.write_bytes(zlib.compress(content))
        case "no objects":
            shutil.rmtree(repo.path / ".git/objects")
        case _:
            (repo.path / ".git/refs/heads/main").write_text("garbage\n")
    refusal(repo.path, "main", tmp_path)


def test_a_folder_that_is_no_repository_says_so_and_no_outer_one_is_used(repo: GitRepo, tmp_path: Path) -> None:
    """A folder inside a repository, one with a broken .git, a file and a missing path are not repositories."""
    repo.commit(FILES)
    inner = repo.path / "inner"
    (inner / ".git/objects").mkdir(parents=True)
    (inner / ".git/refs").mkdir()
    (inner / ".git/HEAD").write_text("nonsense\n")
    assert "is not a git repository" in refusal(repo.path / "budgets", "main", tmp_path)
    assert "is not a git repository" in refusal(repo.path / "README.md", "main", tmp_path)
    assert "not a git repository" in refusal(inner, "main", tmp_path)
    assert "there is no repository at" in refusal(tmp_path / "missing", "main", tmp_path)
    assert "cannot run git ls-remote" in refusal(f"file://{tmp_path}/missing", "main", tmp_path / "mirror")


def test_a_mirror_that_cannot_be_kept_is_one_clear_sentence(repo: GitRepo, tmp_path: Path) -> None:
    """A cache folder that is a file is named."""
    repo.commit(FILES)
    (tmp_path / "file").write_text("")
    assert f"cannot keep a mirror in {tmp_path}/file/mirror" in refusal(repo.url, "main", tmp_path / "file/mirror")


def test_a_mirror_whose_git_was_killed_works_again(repo: GitRepo, tmp_path: Path) -> None:
    """Locks left behind in the mirror are removed."""
    repo.commit(FILES)
    read(repo.url, "main", tmp_path / "mirror")
    later = repo.commit({"README.md": "two"})
    (tmp_path / "mirror/refs/gpubudget/fetched.lock").write_text("")
    (tmp_path / "mirror/config.lock").write_text("")
    assert read(repo.url, "main", tmp_path / "mirror")[0] == later


# what git must not be given, and what must not reach it


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("", "is not a path or URL"),
        ("a\nb", "is not a path or URL"),
        ("x" * 3_000, "is not a path or URL"),
        ("--upload-pack=touch /tmp/x", "looks like an option"),
        ("-u./x", "looks like an option"),
        ("ext::sh -c touch% /tmp/x", "names a program to run, not a place"),
        ("fd::17", "names a program to run, not a place"),
        ("ext://sh", "uses ext, which is not read from"),
        ("http://example.org/b.git", "uses http, which is not read from"),
        ("ssh://-oProxyCommand=x/b.git", "names no host"),
        ("https:///b.git", "names no host"),
        ("git@-oProxyCommand=x:b.git", "names no host"),
        ("./no/such/folder", "there is no repository at './no/such/folder'"),
        ("https://hanna:secret@host/ext::x\n", "is not a path or URL"),
    ],
)
def test_places_that_are_options_or_commands_are_refused(place: str, said: str) -> None:
    """A URL that git or ssh would read as an option or a program never reaches them (CVE-2022-24439)."""
    with pytest.raises(InvalidInputError) as caught:
        parse_source(place)
    assert said in caught.value.message
    assert "secret" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("https://hanna:secret@host/b.git", "https://host/b.git"),
        ("HTTPS://token@host:8443/b.git", "HTTPS://host:8443/b.git"),
        ("ssh://git@host:22/b.git", "ssh://host:22/b.git"),
        ("git://host/b.git", "git://host/b.git"),
        ("git@host:team/b.git", "git@host:team/b.git"),
        ("file:///srv/b.git", "file:///srv/b.git"),
    ],
)
def test_urls_of_known_protocols_are_taken_and_shown_without_secrets(place: str, shown: str) -> None:
    """What git gets has the secret, what people see has not."""
    source = parse_source(place)
    assert (source.place, source.shown, source.remote) == (place, shown, True)


@pytest.mark.parametrize(
    "ref",
    ["", "-x", "--all", "a b", "a..b", "main^{tree}", "main~1", "a:b", "@{1}", "@", "a/", "/a", "a//b", ".a", "a/.b",
     "a.lock", "a.lock/b", "a*", "a?", "a[b", "a\\b", "a\x7f", "x" * 300, "a" * 40, "B" * 64, "a\u202eb"],
)  # fmt: skip
def test_refs_that_are_options_expressions_or_ids_are_refused(ref: str) -> None:
    """Only the plain name of a branch or tag is looked up (CVE-2022-24439)."""
    with pytest.raises(InvalidInputError) as caught:
        full_names(ref)
    assert "such as main" in caught.value.hint


def test_variables_of_a_hook_do_not_lead_elsewhere(
    git_repo: MakeRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIT_DIR and its like, as git sets them in hooks, do not change what is read (GitPython#535, #963, #1388)."""
    wanted, other = git_repo("wanted"), git_repo("other")
    commit = wanted.commit(FILES)
    other.commit({"budgets/cluster.yaml": "other\n"})
    leaks = {
        "GIT_DIR": str(other.path / ".git"),
        "GIT_WORK_TREE": str(other.path),
        "GIT_INDEX_FILE": str(other.path / ".git/index"),
        "GIT_OBJECT_DIRECTORY": str(other.path / ".git/objects"),
        "GIT_COMMON_DIR": str(other.path / ".git"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "nonsense",
        "GIT_CONFIG_PARAMETERS": "'core.bare'='nonsense'",
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_ASKPASS": "ask-me",
        "GIT_SSH_COMMAND": "ssh -i key",
    }
    for name, value in leaks.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    assert read(wanted.path, "main", tmp_path) == (commit, READ)
    assert read(wanted.url, "main", tmp_path / "mirror") == (commit, READ)
    with open_repository(parse_source(str(wanted.path)), tmp_path):
        assert dict(os.environ) == before
    given = gitprocess.environment(wanted.path)
    assert (given["GIT_ASKPASS"], given["GIT_SSH_COMMAND"]) == ("ask-me", "ssh -i key -oBatchMode=yes")
    assert leaks.keys() & given.keys() - {"GIT_ASKPASS", "GIT_SSH_COMMAND", "GIT_CEILING_DIRECTORIES"} == {
        name for name in leaks if name.startswith("GIT_CONFIG_") and name != "GIT_CONFIG_PARAMETERS"
    }
    assert given["GIT_CONFIG_KEY_0"] != "core.bare"
    assert dict(os.environ) == before


def test_hooks_and_templates_do_not_run(repo: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the hooks of the repository nor those of a template run while it is read."""
    repo.commit(FILES)
    ran = tmp_path / "ran"
    config = tmp_path / "gitconfig"
    (tmp_path / "template/hooks").mkdir(parents=True)
    config.write_text(f"[init]\n\ttemplateDir = {tmp_path}/template\n[core]\n\thooksPath = {tmp_path}/template/hooks\n")
    for folder in (tmp_path / "template/hooks", repo.path / ".git/hooks"):
        for name in ("post-checkout", "reference-transaction", "post-rewrite"):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
            (folder / name).chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    config.rename(tmp_path / ".gitconfig")
    assert read(repo.path, "main", tmp_path)[1] == READ
    assert read(repo.url, "main", tmp_path / "mirror")[1] == READ
    assert not ran.exists()
    assert not (tmp_path / "mirror/hooks").exists()


def test_a_url_rewritten_to_a_command_is_not_run(
    repo: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's own configuration cannot turn a URL into a program either."""
    repo.commit(FILES)
    ran = tmp_path / "ran"
    (tmp_path / ".gitconfig").write_text(
        f'[url "ext::touch {ran} "]\n\tinsteadOf = {repo.url}\n[protocol "ext"]\n\tallow = always\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "not allowed" in refusal(repo.url, "main", tmp_path / "mirror")
    assert not ran.exists()


def test_git_that_is_not_installed_is_one_clear_sentence(
    repo: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without git on the PATH the program says so."""
    repo.commit(FILES)
    monkeypatch.setenv("PATH", str(tmp_path))
    program = (
        "from pathlib import Path\n"
        "from gpubudget.errors import GpuBudgetError\n"
        "from gpubudget.gitops.repository import open_repository\n"
        "from gpubudget.gitops.source import parse_source\n"
        "try:\n"
        f"    with open_repository(parse_source({str(repo.path)!r}), Path('x')): pass\n"
        "except GpuBudgetError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "git is not installed" in done.stdout, done.stderr
    monkeypatch.setitem(sys.modules, "git", None)
    assert "git is not installed" in refusal(repo.path, "main", tmp_path)


# time limits


def ends(server: socket.socket) -> None:
    """Waits until the one connection to the server is closed, that is until git's processes are gone."""
    server.settimeout(5)
    connection, _ = server.accept()
    with connection:
        connection.settimeout(5)
        while connection.recv(4096):
            pass


def test_a_server_that_never_answers_is_left_at_the_time_limit(tmp_path: Path) -> None:
    """A fetch ends at the limit, and no process of it stays."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = parse_source(f"git://127.0.0.1:{server.getsockname()[1]}/b.git")
        with (
            open_repository(place, tmp_path / "mirror", timeout=0.3) as opened,
            pytest.raises(
                RepositoryError, match=r"git ls-remote on git://127\.0\.0\.1:\d+/b\.git took longer than 0.3 s"
            ),
        ):
            opened.fetch("main")
        ends(server)


def test_an_interrupt_during_a_fetch_ends_git_too(tmp_path: Path) -> None:
    """Ctrl-C or a termination while git waits leaves no process behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            place = parse_source(f"git://127.0.0.1:{server.getsockname()[1]}/b.git")
            with open_repository(place, tmp_path / "mirror") as opened:
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                with pytest.raises(KeyboardInterrupt):
                    opened.fetch("main")
            ends(server)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_child_of_git_that_will_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ignores SIGTERM, such as an ssh of a site's own, is killed with its whole group."""
    stubborn = tmp_path / "stubborn-ssh"
    stubborn.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ > {tmp_path}/pid\nwhile :; do sleep 0.1; done\n")
    stubborn.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(stubborn))
    monkeypatch.setattr(gitprocess, "GRACE", 0.2)
    with (
        open_repository(parse_source("ssh://host.invalid/b.git"), tmp_path / "mirror", timeout=1.5) as opened,
        pytest.raises(RepositoryError, match="took longer"),
    ):
        opened.fetch("main")
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
