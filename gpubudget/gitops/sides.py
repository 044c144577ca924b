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
from gpubudget.gitops.load import load_tree
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


def from_folder(folder: Path) -> Loaded:
    """The tree in a folder as it is now, committed or not."""
    prefix = "" if folder == Path() else f"{folder}/"
    tree = _valid(str(folder), read_folder(folder), prefix)
    return Loaded(_side(str(folder), tree), tree)


def from_ref(repository: Repository, ref: str, path: str, name: str = "") -> Loaded:
    """The tree in the folder ``path`` at the commit that ``ref`` means; ``name`` is what to call it instead."""
    name = name or ref
    commit = repository.commit(resolve(repository, ref))
    tree = _at(repository, commit.id, path, name)
    return Loaded(_side(name, tree, commit), tree)


def as_merged(repository: Repository, name: str, base: Side, path: str) -> Loaded:
    """The tree that ``name`` has once it is merged into ``base``: its own if it has ``base`` in its history."""
    commit = repository.commit(resolve(repository, name))
    if repository.is_ancestor(base.commit, commit.id):
        return from_ref(repository, commit.id, path, name)
    tree = _at(repository, repository.merge(base.commit, commit.id), path, f"{name} merged into {base.name}")
    return Loaded(replace(_side(name, tree, commit), merged=base.commit), tree)


def from_daemon(applied: Applied | None) -> Loaded:
    """The tree that the daemon has."""
    if applied is None:
        return Loaded(Side(DAEMON, "", "", 0), None)
    return Loaded(replace(_side(DAEMON, applied.tree), commit=applied.commit), applied.tree)


def drift(repository: Repository, path: str, applied: Applied, now: int) -> tuple[Plan | None, str]:
    """What the daemon has beside what git says for the commit that it claims; or None, and why that can't be told."""
    told, why = applied.commit[:12], "it is not in this clone"
    if _ID.fullmatch(applied.commit) and repository.has(applied.commit):
        try:
            return plan(_at(repository, applied.commit, path, told), applied.tree, now), ""
        except GpuBudgetError as error:
            why = error.message
    return None, f"drift is not looked for: the daemon has commit {told}, and {why}"


def _at(repository: Repository, commit: str, path: str, name: str) -> Tree:
    inside = path.strip("/").removeprefix("./")
    return _valid(name, repository.files(commit, path), "" if inside in {"", "."} else f"{inside}/")


def _valid(name: str, read: tuple[Mapping[str, bytes], list[Diagnostic]], prefix: str) -> Tree:
    loaded = load_tree(*read)
    if loaded.tree is None:
        raise InvalidTreeError(name, loaded.diagnostics, prefix)
    return loaded.tree


def _side(name: str, tree: Tree, commit: Commit | None = None) -> Side:
    side = Side(name, "", plain.digest(tree), sum(1 for _ in tree.budgets()))
    return replace(side, commit=commit.id, author=commit.author, committed_ms=commit.committed) if commit else side
