"""``fmt``: budget files in their canonical layout. Changes white space only; needs no daemon."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import click

from gpubudget.cli.validate import usual_folder
from gpubudget.errors import InvalidInputError
from gpubudget.gitops.diagnostics import in_place, to_text
from gpubudget.gitops.folder import read_folder
from gpubudget.gitops.layout import formatted
from gpubudget.units import count


@click.command(
    epilog="""\b
Examples:
  gpubudget fmt
  gpubudget fmt --check budgets/
  gpubudget fmt budgets/language/budget.yaml"""
)
@click.argument("paths", metavar="[PATH]...", type=click.Path(path_type=Path), nargs=-1)
@click.option("--check", is_flag=True, help="Write nothing; end with 1 if a file is not in its canonical layout.")
@click.pass_context
def fmt(ctx: click.Context, paths: tuple[Path, ...], *, check: bool) -> None:
    """Put budget files into their canonical layout: the files PATH, and all of the trees in the folders PATH.

    Without PATH: the tree that the current folder is part of, or the folder budgets of the repository. Only white space
    changes; comments, quotes and order stay, and so does a file that is not sound YAML. Prints the files that change.
    """
    seen = changed = failed = 0
    for path in paths or (usual_folder(),):
        files, complaints = _read(path)
        for name, data in sorted(files.items()):
            new, wrong = _formatted(name, data)
            complaints += wrong
            seen += 1
            if new != data:
                changed += 1
                if not check:
                    _replace(Path(name), new)
                click.echo(name)
        failed += len(complaints)
        click.echo("\n".join(complaints), err=True, nl=bool(complaints))
    said = f"{changed} of {count(seen, 'file')} {'would change' if check else 'changed'}"
    click.echo(said + (f", {count(failed, 'problem')}" if failed else ""), err=True)
    ctx.exit(1 if failed or (check and changed) else 0)


def _read(path: Path) -> tuple[dict[str, bytes], list[str]]:
    """The files at a path, by their path from here, and what could not be read."""
    if path.is_dir() and not path.is_symlink():
        files, unread = read_folder(path)
        prefix = "" if path == Path() else f"{path}/"
        return {f"{prefix}{name}": data for name, data in files.items()}, [to_text(p, prefix) for p in unread]
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise InvalidInputError(f"{path} is not a file, and no link is followed", hint="name the file itself")
        return {str(path): path.read_bytes()}, []
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _formatted(name: str, data: bytes) -> tuple[bytes, list[str]]:
    try:
        new, problems = formatted(name, data)
    except InvalidInputError as error:
        return data, [f"error: {error.message}\nhint: {error.hint}"]
    return new, [to_text(problem) for problem in in_place(problems, {name: data})]


def _replace(path: Path, data: bytes) -> None:
    """Put new bytes in a file's place, whole or not at all, with its permissions."""
    name = ""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(handle, stat.S_IMODE(path.stat().st_mode))
            file.flush()
            os.fsync(handle)
        Path(name).replace(path)
    except OSError as error:
        if name:
            Path(name).unlink(missing_ok=True)
        raise InvalidInputError(
            f"{path} cannot be written: {error.strerror}", hint="nothing of it was changed"
        ) from error
