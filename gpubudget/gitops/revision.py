"""The commit of a local repository that a person means by ``main``, ``origin/main``, ``HEAD~2`` or a commit id.

Git is never given what a person wrote as an expression: names are looked up in full, and steps back are taken here.
"""

from __future__ import annotations

import re
from pathlib import Path

from gpubudget.errors import InvalidInputError
from gpubudget.gitops.gitprocess import RepositoryError
from gpubudget.gitops.repository import Repository
from gpubudget.gitops.source import full_names

_STEPS = re.compile(r"(.+?)((?:~[0-9]{0,4}|\^)*)", re.ASCII)
_ID = re.compile(r"[0-9a-f]{7,40}", re.ASCII | re.IGNORECASE)
_FULL = 40
_MOST_STEPS = 1_000
_HINT = "name a branch, a tag, HEAD or a commit, such as main, origin/main or HEAD~1"
_SHALLOW = "this is a shallow clone: fetch more history (git fetch --unshallow; fetch-depth: 0 in a workflow)"


def repository_folder(inside: Path) -> Path:
    """The top of the repository that the folder ``inside`` is in; raises RepositoryError if it is in none."""
    here = inside.absolute()
    for folder in (here, *here.parents):
        if (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir()):
            return folder
    raise RepositoryError(f"{inside} is not in a git repository", hint="run it in a clone, or name one with --repo")


def resolve(repository: Repository, text: str) -> str:
    """The full id of the commit that ``text`` names; raises RepositoryError if there is none."""
    found = _STEPS.fullmatch(text)
    if found is None:
        raise InvalidInputError("the name of a commit is empty", hint=_HINT)
    commit = _commit(repository, found[1])
    for _ in range(_steps(text, found[2])):
        parents = repository.commit(commit).parents
        if not parents or not repository.has(parents[0]):
            message = f"{text!r} goes back further than history does here; {commit[:12]} has no parent"
            raise RepositoryError(message, hint=_SHALLOW if repository.is_shallow() else _HINT)
        commit = parents[0]
    return commit


def _steps(text: str, back: str) -> int:
    steps = sum(int(number or 1) for number in re.findall(r"~([0-9]*)", back)) + back.count("^")
    if steps > _MOST_STEPS:
        raise InvalidInputError(f"{text[:60]!r} goes back more than {_MOST_STEPS} commits", hint=_HINT)
    return steps


def _commit(repository: Repository, name: str) -> str:
    """The commit of a name without steps: an id or the start of one, a branch or tag, or a branch of a remote."""
    if _ID.fullmatch(name) and repository.has(name):
        return repository.commit(name.lower()).id
    tried = [name] if name == "HEAD" or name.startswith("refs/") else [name, f"refs/remotes/{name}"]
    if len(tried) > 1 and "/" not in name:
        tried.append(f"refs/remotes/origin/{name}")
    why = f"there is no commit {name} here"
    for ref in tried:
        if len(name) < _FULL or not _ID.fullmatch(name):
            full_names(ref)
            try:
                return repository.fetch(ref)
            except RepositoryError as error:
                why = why if ref != name else error.message
    raise RepositoryError(why, hint=_SHALLOW if repository.is_shallow() else _HINT)
