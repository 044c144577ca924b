"""The two trees that a plan compares: of a folder, of a commit, of a commit as it will be merged, or of the daemon.

Each comes with the words that say where it is from. A tree that is not valid is an error that carries its problems,
and a commit that is behind the other side is planned as its merge will be, so that no plan takes back what others did.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.errors import GpuBudgetError, InvalidInputError
from gpubudget.gitops.diagnostics import Diagnostic
from gpubudget.gitops.folder import read_folder
from gpubudget.gitops.load import Known, load_tree
from gpubudget.gitops.plan import Plan, plan
from gpubudget.gitops.repository import Commit, Repository
from gpubudget.gitops.review import Side
from gpubudget.gitops.revision import resolve
from gpubudget.gitops.target import Applied

DAEMON = "the daemon"
_ID = re.compile(r"[0-9a-f]{40}", re.ASCII)


class InvalidTreeError(InvalidInputError):
    """A tree is not valid; ``problems`` are all of its problems, ``prefix`` comes before their files."""

    slug = "invalid-tree"

    def __init__(self, name: str, problems: tuple[Diagnostic, ...], prefix: str = "") -> None:
        errors = sum(problem.is_error for problem in problems)
        message = f"the budgets of {name} have {errors} error{'s' * (errors != 1)}"
        super().__init__(message, hint="mend them first; `gpubudget validate` shows the same")
        self.problems = problems
        self.prefix = prefix


@dataclass(frozen=True, slots=True)
class Loaded:
    """One side: where it is from, and its tree (None: the daemon has none yet)."""

    side: Side
    tree: Tree | None


class Sides:
    """Reads the sides of one comparison from a repository (None: there is none) and folders.

    ``path`` is the folder of budgets in the repository. What two sides have in common is read once.
    """

    def __init__(self, repository: Repository | None, path: str) -> None:
        self._repository = repository
        self._path = path
        self._known: Known = {}
        self._trees: dict[str, Tree] = {}

    @property
    def repository(self) -> Repository:
        """The repository; raises InvalidInputError if there is none."""
        if self._repository is None:
            message = "this is not in a git repository, so there is no commit to compare it with"
            raise InvalidInputError(message, hint="compare it with what the daemon has: --against daemon")
        return self._repository

    def folder(self, folder: Path) -> Loaded:
        """The tree in a folder as it is now, committed or not."""
        tree, _ = read_valid(folder, self._known)
        return Loaded(_side(_called(folder), tree), tree)

    def ref(self, ref: str) -> Loaded:
        """The tree at the commit that ``ref`` means."""
        commit = self.repository.commit(resolve(self.repository, ref))
        tree = self._at(commit.id, ref)
        return Loaded(_side(ref, tree, commit), tree)

    def merged(self, ref: str, base: Side) -> Loaded:
        """The tree that ``ref`` has once it is merged into ``base``: its own if it has ``base`` in its history."""
        repository = self.repository
        commit = repository.commit(resolve(repository, ref))
        if repository.is_ancestor(base.commit, commit.id):
            tree = self._at(commit.id, ref)
            return Loaded(_side(ref, tree, commit), tree)
        tree = self._at(repository.merge(base.commit, commit.id), f"{ref} merged into {base.name}")
        return Loaded(replace(_side(ref, tree, commit), merged=base.commit), tree)

    def drift(self, applied: Applied, now: int) -> tuple[Plan | None, str]:
        """What the daemon has beside what git says for the commit that it claims; or None, and why nobody can tell."""
        told, why = applied.commit[:12], "it is not in this clone"
        if _ID.fullmatch(applied.commit) and self.repository.has(applied.commit):
            try:
                return plan(self._at(applied.commit, told), applied.tree, now), ""
            except GpuBudgetError as error:
                why = error.message
        return None, f"drift is not looked for: the daemon has commit {told}, and {why}"

    def _at(self, commit: str, name: str) -> Tree:
        if commit not in self._trees:
            inside = self._path.strip("/").removeprefix("./")
            prefix = "" if inside in {"", "."} else f"{inside}/"
            self._trees[commit] = _valid(name, self.repository.files(commit, self._path), prefix, self._known)
        return self._trees[commit]


def from_daemon(applied: Applied | None) -> Loaded:
    """The tree that the daemon has."""
    if applied is None:
        return Loaded(Side(DAEMON, "", "", 0), None)
    return Loaded(replace(_side(DAEMON, applied.tree), commit=applied.commit), applied.tree)


def read_valid(folder: Path, known: Known | None = None) -> tuple[Tree, frozenset[str]]:
    """The tree in a folder, and the files that it is made of, by their path in it."""
    files, unread = read_folder(folder)
    prefix = "" if folder == Path() else f"{folder}/"
    return _valid(_called(folder), (files, unread), prefix, {} if known is None else known), frozenset(files)


def _called(folder: Path) -> str:
    return "this folder" if folder == Path() else str(folder)


def _valid(name: str, read: tuple[Mapping[str, bytes], list[Diagnostic]], prefix: str, known: Known) -> Tree:
    loaded = load_tree(*read, known)
    if loaded.tree is None:
        raise InvalidTreeError(name, loaded.diagnostics, prefix)
    return loaded.tree


def _side(name: str, tree: Tree, commit: Commit | None = None) -> Side:
    side = Side(name, "", plain.digest(tree), sum(1 for _ in tree.budgets()))
    return replace(side, commit=commit.id, author=commit.author, committed_ms=commit.committed) if commit else side
