"""``validate``: every problem of a folder of budgets at once. Reads only; needs no daemon."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import click

from gpubudget.gitops.folder import read_folder
from gpubudget.gitops.load import BUDGET_FILE, CLUSTER_FILE, load_tree
from gpubudget.gitops.outputs import FORMATS, Validation


@click.command(
    epilog="""\b
Examples:
  gpubudget validate
  gpubudget validate --strict budgets/
  gpubudget validate -o json | jq '.problems[].rule'
  gpubudget validate -o sarif > budgets.sarif"""
)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o",
    "--output",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="Text for people, JSON for programs, annotations of GitHub's pull requests, SARIF 2.1.0 or JUnit's XML.",
)
@click.option("--strict", is_flag=True, help="Fail for warnings too.")
@click.pass_context
def validate(ctx: click.Context, path: Path | None, output: str, *, strict: bool) -> None:
    """Show every problem of the budgets in the folder PATH, and change nothing.

    Without PATH: the tree that the current folder is part of, or the folder budgets of the repository. Ends with 0 if
    the budgets can be applied (there may be warnings, unless --strict), else with 1.
    """
    gc.disable()  # all that is read is kept until the end, so collecting only costs: a quarter of the time
    ctx.call_on_close(gc.enable)
    folder = path or usual_folder()
    files, unread = read_folder(folder)
    prefix = _from_the_top(folder) if output in {"github", "sarif"} else folder
    shown = "" if prefix == Path() else f"{prefix}/".replace("//", "/")
    validation = Validation(load_tree(files, unread), tuple(files), shown, strict)
    click.echo(FORMATS[output](validation))
    ctx.exit(0 if validation.passed else 1)


def usual_folder() -> Path:
    """The folder that is meant where none is named.

    The tree that is here or in ``budgets``, or else, inside a repository, in a folder above or in its ``budgets``.
    """
    here = Path.cwd()
    above = [here, *here.parents]
    tops = [number for number, folder in enumerate(above, start=1) if (folder / ".git").exists()]
    for folder in above[: tops[0] if tops else 1]:
        for tree in (folder, folder / "budgets"):
            if (tree / CLUSTER_FILE).exists():
                return Path(os.path.relpath(tree, here))
    inner = Path("budgets")
    is_tree = any(Path(name).exists() for name in (CLUSTER_FILE, BUDGET_FILE))
    return inner if inner.is_dir() and not is_tree else Path()


def _from_the_top(folder: Path) -> Path:
    """The folder as seen from the top of the repository that GitHub checked out, or from here."""
    top = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
    whole = folder.resolve()
    return whole.relative_to(top) if whole.is_relative_to(top) else whole
