"""Files that a command is asked to write: looked at before the work begins, and written at its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpubudget.errors import InvalidInputError, UsageError


def check_files(files: dict[str, Path | None], given: dict[str, Any]) -> None:
    """Say before the work what would be a pity after it; ``given`` are other options, none of whose files may go."""
    taken = {os.path.realpath(path): f"--{name}" for name, path in given.items() if isinstance(path, Path)}
    for name, path in files.items():
        if path is None:
            continue
        if path.is_dir():
            raise InvalidInputError(f"{path} cannot be written: it is a folder", hint="give the path of a file")
        if not os.access(path.parent, os.W_OK):
            why = "may not be written to" if path.parent.is_dir() else "does not exist"
            raise InvalidInputError(
                f"{path} cannot be written: the folder {path.parent} {why}", hint="give another path"
            )
        other = taken.setdefault(os.path.realpath(path), name)
        if other != name and not path.is_char_device():
            raise UsageError(f"{name} would overwrite {path}, which is that of {other}", hint="give another path")


def write_file(path: Path | None, text: Callable[[], str]) -> None:
    """Write a file that was asked for."""
    if path is None:
        return
    try:
        path.write_text(text(), encoding="utf-8", newline="\n")
    except OSError as error:
        raise unwritten(path, error) from None


def unwritten(path: Path, error: OSError) -> InvalidInputError:
    """What to say of a file that cannot be written."""
    return InvalidInputError(f"{path} cannot be written: {error.strerror or error}", hint="check folder and free space")
