"""Reading the files of a tree from a folder on disk. Knows nothing of what is in them, follows no link."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpubudget.errors import InvalidInputError
from gpubudget.gitops.diagnostics import Diagnostic, Position
from gpubudget.gitops.load import BUDGET_FILE, CLUSTER_FILE, LoadResult, is_read, load_tree
from gpubudget.gitops.yamlfile import MAX_BYTES

_HINT = f"give the folder that holds {CLUSTER_FILE} and the root {BUDGET_FILE}"


def load_folder(folder: Path) -> LoadResult:
    """The tree in ``folder`` and all problems; raises InvalidInputError where there is no such folder of budgets."""
    files, problems = read_folder(folder)
    return load_tree(files, problems)


def read_folder(folder: Path) -> tuple[dict[str, bytes], list[Diagnostic]]:
    """The YAML files below ``folder`` by their path in it, and what could not be read.

    Hidden files and folders are left out. Raises InvalidInputError where ``folder`` is missing, no folder, cannot be
    read, or holds neither of the two files that a tree has at its top.
    """
    try:
        names = {entry.name for entry in folder.iterdir()}
    except FileNotFoundError:
        raise InvalidInputError(f"{folder} does not exist", hint=_HINT) from None
    except NotADirectoryError:
        raise InvalidInputError(f"{folder} is not a folder", hint=_HINT) from None
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{folder} cannot be read: {_reason(error)}", hint="check its permissions") from None
    if CLUSTER_FILE not in names and BUDGET_FILE not in names:
        message = f"{folder} holds no budgets: it has neither {CLUSTER_FILE} nor {BUDGET_FILE}"
        raise InvalidInputError(message, hint=_HINT)
    files: dict[str, bytes] = {}
    problems: list[Diagnostic] = []
    waiting = [""]
    while waiting:
        _read_level(folder, waiting.pop(), files, waiting, problems)
    return files, problems


def _read_level(
    top: Path, inside: str, files: dict[str, bytes], waiting: list[str], problems: list[Diagnostic]
) -> None:
    """Read the files of one folder, ``inside`` below ``top``, and note the folders in it."""
    try:
        with os.scandir(f"{top}/{inside}") as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        problems.append(_unreadable(inside, error))
        return
    for entry in entries:
        path = f"{inside}/{entry.name}" if inside else entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_symlink():
            message = f"{path} is a symbolic link, and no link is followed"
            hint = "put the file or folder itself there"
            problems.append(Diagnostic("file-link", Position(path), message, hint))
        elif entry.is_dir(follow_symlinks=False):
            waiting.append(path)
        elif is_read(path):
            _read_file(top, path, files, problems)


def _read_file(top: Path, path: str, files: dict[str, bytes], problems: list[Diagnostic]) -> None:
    """Read a file, to just beyond the size bound; what it is, is asked once it is open, so nobody can swap it."""
    try:
        with os.fdopen(os.open(f"{top}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode):
                files[path] = file.read(min(found.st_size, MAX_BYTES) + 1)
            else:
                message = f"{path} is neither a file nor a folder"
                problems.append(Diagnostic("file-special", Position(path), message, "remove it"))
    except OSError as error:
        problems.append(_unreadable(path, error))


def _unreadable(path: str, error: OSError) -> Diagnostic:
    message = f"{path or 'the folder'} cannot be read: {_reason(error)}"
    return Diagnostic("file-unreadable", Position(path or "."), message, "check its permissions")


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
