"""Reading the files of a tree from a folder on disk. Knows nothing of what is in them, follows no link."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpubudget.errors import InvalidInputError
from gpubudget.gitops.diagnostics import Diagnostic, Position
from gpubudget.gitops.load import BUDGET_FILE, CLUSTER_FILE, MAX_TREE_BYTES, LoadResult, is_read, load_tree
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
        inner = folder / "budgets"
        raise InvalidInputError(message, hint=f"try {inner}" if "budgets" in names and inner.is_dir() else _HINT)
    reader = _Reader(str(folder))
    while reader.waiting and reader.size <= MAX_TREE_BYTES:
        reader.read_level(reader.waiting.pop())
    return reader.files, reader.problems


class _Reader:
    """What was read so far of the folder ``top``, and which folders in it, by their path, are still to be read."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.waiting = [""]
        self.files: dict[str, bytes] = {}
        self.problems: list[Diagnostic] = []
        self.size = 0

    def read_level(self, inside: str) -> None:
        """Read the files of one folder and note the folders in it; what is too much in all is not read to its end."""
        try:
            with os.scandir(f"{self.top}/{inside}") as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append(_unreadable(inside, error))
            return
        for entry in entries:
            path = f"{inside}/{entry.name}" if inside else entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_symlink():
                message = f"{path} is a symbolic link, and no link is followed"
                hint = "put the file or folder itself there"
                self.problems.append(Diagnostic("file-link", Position(path), message, hint))
            elif entry.is_dir(follow_symlinks=False):
                self.waiting.append(path)
            elif is_read(path) and self.size <= MAX_TREE_BYTES:
                self.read_file(path)

    def read_file(self, path: str) -> None:
        """Read a file, to just beyond the size bound; what it is, is asked once it is open, so nobody can swap it."""
        try:
            handle = os.open(f"{self.top}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            self.problems.append(_unreadable(path, error))
            return
        try:
            found = os.fstat(handle)
            if stat.S_ISREG(found.st_mode):
                self.files[path] = _bytes(handle, found.st_size)
                self.size += len(self.files[path])
            else:
                message = f"{path} is neither a file nor a folder"
                self.problems.append(Diagnostic("file-special", Position(path), message, "remove it"))
        except OSError as error:
            self.problems.append(_unreadable(path, error))
        finally:
            os.close(handle)


def _bytes(handle: int, size: int) -> bytes:
    """The bytes of an open file that has ``size``, at most one beyond the bound; one read may give less than all."""
    data, wanted = b"", min(size, MAX_BYTES + 1)
    while len(data) < wanted and (more := os.read(handle, wanted - len(data))):
        data += more
    return data


def _unreadable(path: str, error: OSError) -> Diagnostic:
    message = f"{path or 'the folder'} cannot be read: {_reason(error)}"
    return Diagnostic("file-unreadable", Position(path or "."), message, "check its permissions")


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
