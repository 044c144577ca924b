"""A budgets repository, read only: a ref's commit, the files below a folder at that commit, who descends from whom.

The only module that uses GitPython. Knows nothing of what is in the files. Its rules:

- Nothing is checked out, no hook runs, nobody is asked for a password, and only the named ref is fetched.
- Git never sees a revision expression of a caller: a full ref name is looked up, and then only full ids are used.
- It leaves the environment of this process as it is; git gets one of its own (``gitprocess``).
- Whatever is missing, broken, too large or not a plain file raises. It is never taken for "there is nothing".
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpubudget.errors import ConflictError, InvalidInputError
from gpubudget.gitops.diagnostics import Diagnostic, Position
from gpubudget.gitops.gitprocess import RepositoryError, configured, environment, not_installed, printable, reason, run
from gpubudget.gitops.load import is_read
from gpubudget.gitops.objects import Objects
from gpubudget.gitops.source import Source, folder_parts, full_names
from gpubudget.gitops.yamlfile import MAX_BYTES

if TYPE_CHECKING:
    from git import Git, Repo
    from git.objects.base import Object

MAX_TOTAL_BYTES = 64 << 20
MAX_ENTRIES = 20_000
MAX_DEPTH = 64

_FETCHED = "refs/gpubudget/fetched"
_LONGEST_ID = 40
_APPROVERS = re.compile(r"^(?:Approved|Reviewed)-by:[ \t]*(\S.*)$", re.MULTILINE | re.IGNORECASE)
_KINDS = {"commit": "a commit", "tree": "a folder", "blob": "a file", "submodule": "a submodule", "link": "a link"}


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: its full id, who wrote it (``Name <address>``), when it was made (milliseconds) and its parents.

    ``approvers`` are those whom its message names in lines such as ``Approved-by: Hanna``.
    """

    id: str
    author: str
    committed: int
    parents: tuple[str, ...]
    approvers: tuple[str, ...] = ()


class Repository:
    """An open repository; see ``open_repository``. All ids are full commit ids."""

    def __init__(
        self, repo: Repo, place: Path, objects: Objects, source: Source, env: dict[str, str], timeout: float
    ) -> None:
        self._repo = repo
        self._place = place
        self._objects = objects
        self._source = source
        self._env = env
        self._timeout = timeout

    def fetch(self, ref: str) -> str:
        """The commit that ``ref`` names now, with its history at hand; a remote repository is asked for it."""
        names = full_names(ref)
        if not self._source.remote:
            return self._commit_of(ref, {name: name for name in names if self._lookup(name)})
        lines = (line.partition("\t") for line in self._ls_remote(*names).splitlines())
        there = {name: pointed for pointed, _, name in lines if name in names}
        if len(there) == 1:
            self._bring(*next(iter(there.items())))
        return self._commit_of(ref, dict.fromkeys(there, _FETCHED))

    def _bring(self, name: str, pointed: str) -> None:
        """Fetches one ref. Git may keep back an update without a word, and then an old commit must not be used."""
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
        self._git("fetch", *options, "--", self._source.place, f"+{name}:{_FETCHED}")
        if self._lookup(_FETCHED) != pointed:
            why = "it moved meanwhile, or that repository is a shallow clone"
            raise RepositoryError(
                f"{name} of {self._source.shown} did not come with the fetch: {why}", hint="run it again"
            )

    def commit(self, commit: str) -> Commit:
        """Who made a commit, when, and from what."""
        with self._clear(f"read commit {commit}"):
            found = self._repo.commit(commit)
            _content(found)
            author = f"{found.author.name or ''} <{found.author.email or ''}>"
            parents = tuple(parent.hexsha for parent in found.parents)
            names = (printable(name.strip(), 200) for name in _APPROVERS.findall(str(found.message)))
            approvers = tuple(dict.fromkeys(names))
            return Commit(found.hexsha, printable(author, 200), found.committed_date * 1_000, parents, approvers)

    def signature(self, commit: str, settings: Mapping[str, str], variables: Mapping[str, str]) -> tuple[str, str, str]:
        """What git says of a commit's signature: a letter (``%G?`` of git's formats), the signer's name and key."""
        env = {**configured(self._env, settings), **variables}
        command = ("show", "--no-patch", "--format=%G?%n%GS%n%GK", commit)
        done = run(command, env, folder=self._place, shown=self._source.shown, timeout=self._timeout)
        letter, who, key, *_ = (*done.stdout.split("\n"), "", "")
        if done.returncode:
            raise self._failure(f"check the signature of commit {commit}", done.stderr)
        return letter, who, key

    def has(self, commit: str) -> bool:
        """Whether the commit is in this repository."""
        return self._run("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0

    def is_shallow(self) -> bool:
        """Whether history is cut off, so that an ancestor may be missing."""
        return self._git("rev-parse", "--is-shallow-repository").strip() == "true"

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether ``descendant`` has ``ancestor`` in its history, or is it. Raises if one of them is not here."""
        done = self._run("merge-base", "--is-ancestor", ancestor, descendant)
        if done.returncode not in {0, 1}:
            raise self._failure(f"compare {ancestor} with {descendant}", done.stderr)
        return done.returncode == 0

    def merge(self, ours: str, theirs: str) -> str:
        """The commit that merging ``theirs`` into ``ours`` would make; it is nowhere but in the scratch folder.

        Raises ConflictError if they do not go together by themselves.
        """
        done = self._run("merge-tree", "--write-tree", "--name-only", "--no-messages", ours, theirs)
        if done.returncode not in {0, 1} or not done.stdout:
            raise self._failure(f"merge {theirs} into {ours}", done.stderr)
        tree, *files = done.stdout.splitlines()
        if done.returncode:
            where = ", ".join(printable(file, 100) for file in dict.fromkeys(files)) or "some files"
            message = f"commit {theirs[:12]} does not merge into {ours[:12]}: both change {where}"
            raise ConflictError(message, hint="bring the branch up to date (git rebase or git merge), then plan again")
        who = ("-c", "user.name=gpubudget", "-c", "user.email=gpubudget@localhost")
        return self._git(*who, "commit-tree", "-p", ours, "-p", theirs, "-m", "merge", tree).strip()

    def files(self, commit: str, path: str) -> tuple[dict[str, bytes], list[Diagnostic]]:
        """The YAML files below the folder ``path`` at ``commit``, by their paths from there on, and what is no file.

        Links, submodules and over-sized files are problems: none is followed, none is left out in silence. Hidden
        files and folders are not read. Raises RepositoryError if the folder is missing or has nothing to read.
        """
        with self._clear(f"read {path!r} at commit {commit}"):
            blobs, problems = self._listed(self._folder(commit, path))
            sizes = self._objects.sizes(blobs.values())
            for name in [name for name, blob in blobs.items() if sizes[blob] > MAX_BYTES]:
                message = f"the file has {sizes[blobs.pop(name)]} bytes, more than the {MAX_BYTES} that are read"
                problems.append(Diagnostic("file-size", Position(name), message, "split the budget into folders"))
            if sum(sizes[blob] for blob in blobs.values()) > MAX_TOTAL_BYTES:
                raise ValueError(f"the files are longer than {MAX_TOTAL_BYTES} bytes together")
            contents = self._objects.contents(blobs.values(), "blob", MAX_BYTES)
            files = {name: contents[blob] for name, blob in blobs.items()}
        if not files and not problems:
            raise RepositoryError(f"the folder {path!r} at commit {commit} has no YAML files")
        return files, problems

    def _folder(self, commit: str, path: str) -> str:
        """The id of a folder at a commit."""
        at = self._repo.commit(commit).tree.hexsha
        for depth, name in enumerate(parts := folder_parts(path), start=1):
            entries = self._objects.folders([at], MAX_TOTAL_BYTES)[at]
            entry = next((entry for entry in entries if entry.name == name), None)
            if entry is None:
                raise RepositoryError(f"there is no folder {path!r} at commit {commit}")
            if entry.kind != "tree":
                above = "/".join(parts[:depth])
                raise RepositoryError(f"{above!r} at commit {commit} is {_KINDS[entry.kind]}, not a folder")
            at = entry.id
        return at

    def _listed(self, folder: str) -> tuple[dict[str, str], list[Diagnostic]]:
        """The ids of the files below a folder that belong to a tree, by path, and what is neither file nor folder.

        Bounded: a few objects can unfold to endlessly many paths. Hidden files and folders are left out.
        """
        blobs: dict[str, str] = {}
        problems: list[Diagnostic] = []
        level, entries, depth = [("", folder)], 0, 0
        while level:
            folders = self._objects.folders((each for _, each in level), MAX_TOTAL_BYTES)
            entries, depth = entries + sum(len(folders[each]) for _, each in level), depth + 1
            if entries > MAX_ENTRIES or depth > MAX_DEPTH:
                most = f"at most {MAX_ENTRIES} files and folders, {MAX_DEPTH} deep"
                raise ValueError(f"it holds too much ({most})")
            found = [(f"{above}{entry.name}", entry) for above, each in level for entry in folders[each]]
            level = []
            for name, entry in found:
                if entry.name.startswith("."):
                    continue
                if entry.kind == "tree":
                    level.append((f"{name}/", entry.id))
                elif entry.kind != "blob":
                    rule = "file-link" if entry.kind == "link" else "file-special"
                    message = f"{name} is {_KINDS[entry.kind]}, and is not followed"
                    problems.append(Diagnostic(rule, Position(name), message, "put the file or folder itself there"))
                elif is_read(name):
                    blobs[name] = entry.id
        return blobs, problems

    def _lookup(self, name: str) -> str:
        """The id of what a full ref name, or an id with what it should be peeled to, points to; else an empty text."""
        done = self._run("rev-parse", "--verify", "--quiet", name)
        if done.returncode not in {0, 1}:
            raise self._failure(f"look up {name}", done.stderr)
        return done.stdout.strip()

    def _commit_of(self, ref: str, found: dict[str, str]) -> str:
        """The commit of the one ref that was found, through annotated tags; ``found`` says what it is called here."""
        if not found:
            raise self._no_ref(ref)
        if len(found) > 1:
            hint = f"write {' or '.join(found)}"
            raise InvalidInputError(f"{self._source.shown} has a branch and a tag called {ref!r}", hint=hint)
        ((name, here),) = found.items()
        pointed = self._lookup(here)
        if len(pointed) > _LONGEST_ID:
            raise RepositoryError(f"{self._source.shown} has SHA-256 object ids; only repositories with SHA-1 are read")
        if commit := self._lookup(f"{pointed}^{{commit}}"):
            return commit
        kind = _KINDS.get(self._run("cat-file", "-t", f"{pointed}^{{}}").stdout.strip())
        what = f"names {kind}, not a commit" if kind else f"points to {pointed}, which is missing or damaged"
        raise RepositoryError(f"{name} of {self._source.shown} {what}")

    def _no_ref(self, ref: str) -> RepositoryError:
        where = self._source.shown
        head = "" if self._source.remote else self._lookup("HEAD")
        if head or (self._ls_remote() if self._source.remote else self._git("for-each-ref", "--count=1")):
            return RepositoryError(f"{where} has no branch or tag {ref!r}")
        return RepositoryError(f"{where} has no commits yet, so there is no {ref!r}")

    def _ls_remote(self, *names: str) -> str:
        return self._git("ls-remote", "--quiet", "--", self._source.place, *names)

    def _git(self, *arguments: str) -> str:
        """What a git command prints; raises RepositoryError if it fails."""
        done = self._run(*arguments)
        if done.returncode:
            raise self._failure(f"run git {arguments[0]}", done.stderr)
        return done.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run(arguments, self._env, folder=self._place, shown=self._source.shown, timeout=self._timeout)

    def _failure(self, doing: str, said: str) -> RepositoryError:
        message = f"cannot {doing} in {self._source.shown}: {reason(said)}"
        if "safe.directory" in said:
            trust = f"git config --global --add safe.directory {self._source.shown}"
            return RepositoryError(message, hint=f"it belongs to somebody else; if you trust them: {trust}")
        return RepositoryError(message)

    @contextmanager
    def _clear(self, doing: str) -> Iterator[None]:
        """Turns all that GitPython raises for missing or broken objects into one sentence."""
        from git.exc import GitError, ODBError  # noqa: PLC0415 - GitPython fails to import where git is missing

        try:
            yield
        except (
            GitError,
            ODBError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            AssertionError,
            OSError,
        ) as error:
            raise self._failure(doing, str(error)) from error


@contextmanager
def open_repository(
    source: Source, mirror: Path, timeout: float = 60.0, *, scratch: Path | None = None
) -> Iterator[Repository]:
    """A repository for the time of a ``with``: the folder itself, or for a URL the bare ``mirror`` kept for it.

    No other process may use the same mirror meanwhile. ``timeout`` bounds each git command, in seconds. What is written
    while it is open goes to the folder ``scratch``, if there is one, and never to a repository that is a folder.
    """
    place = mirror if source.remote else Path(source.place)
    env = environment(place)
    if source.remote:
        _prepare(mirror, env, timeout)
    if scratch is not None:
        env |= _objects_in(scratch, env, place, source.shown, timeout)
    objects = Objects(env, place, source.shown, timeout)
    repo = _open(place, env, source.shown)
    try:
        yield Repository(repo, place, objects, source, env, timeout)
    finally:
        repo.close()


def _prepare(mirror: Path, env: dict[str, str], timeout: float) -> None:
    """Makes the mirror if there is none, and frees it of the locks of a git that was killed."""
    for lock in mirror.rglob("*.lock"):
        lock.unlink(missing_ok=True)
    arguments = ("init", "--quiet", "--bare", "--template=", "--", str(mirror))
    done = run(arguments, env, shown=str(mirror), timeout=timeout)
    if done.returncode:
        raise RepositoryError(f"cannot keep a mirror in {mirror}: {reason(done.stderr)}", hint="choose a --cache-dir")


def _objects_in(scratch: Path, env: dict[str, str], place: Path, shown: str, timeout: float) -> dict[str, str]:
    """The variables with which git reads the objects of the repository at ``place``, and writes to ``scratch``."""
    arguments = ("rev-parse", "--path-format=absolute", "--git-path", "objects")
    objects = run(arguments, env, folder=place, shown=shown, timeout=timeout).stdout.rstrip("\n")
    scratch.mkdir(parents=True, exist_ok=True)
    quoted = objects.replace("\\", "\\\\").replace('"', '\\"')
    return {"GIT_OBJECT_DIRECTORY": str(scratch), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'} if objects else {}


def _open(place: Path, env: dict[str, str], shown: str) -> Repo:
    """GitPython's repository, which starts git with the variables given and not with those of this process."""
    try:
        from git import Git, Repo  # noqa: PLC0415 - it fails to import where git is missing
        from git.exc import InvalidGitRepositoryError, NoSuchPathError  # noqa: PLC0415
    except ImportError as error:
        raise not_installed() from error

    class OwnGit(Git):
        """Starts the processes that GitPython reads objects from."""

        def execute(self, command: list[str], istream: int | None = None, **_: object) -> Git.AutoInterrupt:  # type: ignore[override] # only what reading needs
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, cwd=place, env=env, stdin=istream, stdout=pipe, stderr=pipe)
            return self.AutoInterrupt(process, command)

    class OwnRepo(Repo):
        GitCommandWrapperType = OwnGit

    try:
        with _no_git_variables():
            return OwnRepo(place, expand_vars=False)
    except (InvalidGitRepositoryError, NoSuchPathError, OSError, ValueError) as error:
        raise RepositoryError(f"{shown} is not a git repository") from error


@contextmanager
def _no_git_variables() -> Iterator[None]:
    """Hides what git sets in hooks from GitPython's constructor, which looks at the environment by itself."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("GIT_")}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _content(item: Object) -> bytes:
    """The bytes of an object, which must be those that its id was made from."""
    if item.size > MAX_TOTAL_BYTES:  # asked for on its own: a stream that is opened has to be read to its end
        raise ValueError(f"object {item.hexsha} is {item.size} bytes long, more than {MAX_TOTAL_BYTES}")
    data: bytes = item.data_stream.read()
    header = f"{item.type} {len(data)}\0".encode()
    if hashlib.sha1(header + data, usedforsecurity=False).hexdigest() != item.hexsha:
        raise ValueError(f"object {item.hexsha} is damaged")
    return data
