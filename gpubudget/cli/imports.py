"""``import``: a tree of budgets from what a site has, and a report on what could not be carried over."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from gpubudget.cli.output import printable, say
from gpubudget.core.budget import Pool
from gpubudget.errors import GpuBudgetError, InvalidInputError, UsageError
from gpubudget.gitops import csvtable, slurmdump
from gpubudget.gitops.importing import LARGEST_FILE, Imported, Report, imported
from gpubudget.units import count

C = TypeVar("C", bound=Callable[..., object])

_POOL = re.compile(r"([a-z0-9][a-z0-9-]*)=([0-9]{1,6})x([0-9]{1,3})", re.ASCII)


class _PoolType(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument
    """A pool such as ``h100=16x8``: its name, hosts and GPUs of each."""

    name = "pool"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Pool:
        """The pool; a usage error for what is none."""
        found = _POOL.fullmatch(str(value))
        if found is None:
            self.fail(f"{str(value)[:60]!r} is no pool; write NAME=HOSTSxGPUS, such as h100=16x8", param, ctx)
        return Pool(found[1], int(found[3]), int(found[2]))


def pool_option(*, required: bool) -> Callable[[C], C]:
    """The option ``--pool``."""
    return click.option(
        "--pool",
        "pools",
        type=_PoolType(),
        multiple=True,
        required=required,
        metavar="NAME=HOSTSxGPUS",
        help="A pool of hosts with so many GPUs each: h100=16x8. May be repeated; the first is the default one.",
    )


def _out_option(command: C) -> C:
    return click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        default="budgets",
        show_default=True,
        help="The folder to write; it must be new or empty.",
    )(command)


@click.group(name="import")
def import_() -> None:
    """Make a tree of budgets from what a site has. What could not be carried over is printed, with its line."""


@import_.command(
    name="slurm-dump",
    epilog="""\b
Examples:
  sacctmgr dump lab file=lab.cfg
  gpubudget import slurm-dump lab.cfg --pool h100=16x8 --out lab/budgets
  gpubudget init lab""",
)
@click.argument("file", type=click.Path(path_type=Path))
@pool_option(required=True)
@_out_option
def slurm_dump(*, file: Path, pools: Sequence[Pool], out: Path) -> None:
    """Make budgets of the accounts and users in FILE, which `sacctmgr dump` has written.

    An account's share is its Fairshare over the sum of all its siblings', users among them, exactly. Users become
    members; those of one account who weigh differently get budgets of their own.
    """
    report = Report()
    root, cluster = slurmdump.read(_text(file), report)
    _write(out, imported(root, pools, cluster, report))


@import_.command(
    name="csv",
    epilog="""\b
Examples:
  gpubudget import csv budgets.csv --pool h100=16x8
  gpubudget import csv budgets.csv --pool h100=16x8 --pool b200=4x8 --cluster lab --out lab/budgets""",
)
@click.argument("file", type=click.Path(path_type=Path))
@pool_option(required=True)
@click.option("--cluster", default="cluster", show_default=True, help="What the cluster is called.")
@_out_option
def csv(*, file: Path, pools: Sequence[Pool], cluster: str, out: Path) -> None:
    """Make budgets of a table: a line for each, with the columns budget (its path), and share or weight.

    A share is 40% or 1/3 of the parent; a weight is a number, and a budget gets its part of the sum over its siblings.
    Columns title, managers and members may follow; several people have spaces between them.
    """
    report = Report()
    root = csvtable.read(_text(file), report)
    _write(out, imported(root, pools, cluster, report))


def _text(file: Path) -> str:
    """The text of a file, without a byte order mark."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise InvalidInputError(
                f"{file} is larger than {LARGEST_FILE >> 20} MiB", hint="that is no list of budgets"
            )
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be read: {error.strerror}", hint="name the file to import") from error
    except UnicodeDecodeError as error:
        hint = "export it again as UTF-8"
        raise InvalidInputError(f"{file} is not UTF-8: byte {error.start} belongs to no character", hint=hint) from None


def _write(out: Path, made: Imported) -> None:
    """The files of the tree, the report on stdout, and what was made on stderr."""
    write_files(out, made.files)
    for line in made.report:
        click.echo(printable(line))
    budgets = list(made.tree.budgets())
    people = {name for budget in budgets for name in (*budget.managers, *budget.members)}
    said = (
        f"wrote {out}: {count(len(budgets), 'budget')} of {count(len(people), 'person').replace('persons', 'people')}"
    )
    say(f"{said}; {count(len(made.report), 'remark')} above")


def write_files(out: Path, files: dict[str, str]) -> None:
    """Write files into a folder that is new or empty."""
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} exists and is not an empty folder", hint="name another one with --out")
        for name, text in files.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise GpuBudgetError(
            f"{error.filename or out} cannot be written: {error.strerror}", hint="name another folder"
        ) from error
