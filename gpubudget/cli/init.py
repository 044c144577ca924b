"""``init``: a new budgets repository, or what a folder of budgets lacks to be one."""

from __future__ import annotations

import getpass
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click

from gpubudget.cli.imports import pool_option
from gpubudget.cli.output import say
from gpubudget.core.budget import Pool
from gpubudget.errors import GpuBudgetError, InvalidInputError, UsageError
from gpubudget.gitops.diagnostics import to_text
from gpubudget.gitops.folder import load_folder, read_folder
from gpubudget.gitops.gitprocess import configured, environment, reason, run
from gpubudget.gitops.importing import slug
from gpubudget.gitops.load import load_tree
from gpubudget.gitops.scaffold import BUDGETS, CODEOWNERS, Answers, other_files, owners_file, tree_files
from gpubudget.units import count

_SECONDS = 60.0
_OURS = (BUDGETS, ".github", "README.md", "schemas")
_NOBODY = {"user.name": "gpubudget init", "user.email": "gpubudget@localhost"}


@click.command(
    epilog="""\b
Examples:
  gpubudget init lab-budgets
  gpubudget init lab-budgets --manager ines --pool h100=128x8 --pool b200=32x8
  gpubudget import slurm-dump lab.cfg --pool h100=16x8 --out lab/budgets
  gpubudget init lab"""
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option("--manager", metavar="NAME", help="Who manages the root budget.  [default: you]")
@pool_option(required=False)
@click.option("--cluster", default="lab", show_default=True, help="What the cluster is called.")
@click.option("--no-git", is_flag=True, help="Write the files only; make no repository and no commit.")
def init(*, folder: Path, manager: str | None, pools: Sequence[Pool], cluster: str, no_git: bool) -> None:
    """Make a budgets repository in FOLDER (here, if left out): budgets, workflows, CODEOWNERS, schemas and a README.

    Files that are there already stay as they are, the folder budgets/ as a whole. In the end the tree is validated, and
    a folder that is no git repository yet becomes one, with a first commit.
    """
    try:
        answers = Answers(manager or slug(_login()), pools or (Pool("h100", 8, 16),), cluster)
    except InvalidInputError as error:
        raise UsageError(error.message, hint=error.hint) from error
    _check(tree_files(answers))
    new = not (folder / ".git").exists() and not no_git
    budgets = folder / BUDGETS
    written = [] if budgets.exists() and any(budgets.iterdir()) else _write(folder, tree_files(answers))
    written += _write(folder, other_files(answers))
    loaded = load_folder(budgets)
    if loaded.tree is None:
        for problem in loaded.diagnostics:
            say(to_text(problem, f"{budgets}/"))
        raise GpuBudgetError(f"the budgets in {budgets} are not valid", hint="correct them, and run it again")
    files, _ = read_folder(budgets)
    written += _write(folder, {CODEOWNERS: owners_file(loaded.tree, files)})
    for name in written:
        click.echo(name)
    say(f"validated {count(sum(1 for _ in loaded.tree.budgets()), 'budget')} in {budgets}")
    if new:
        _commit(folder)


def _check(files: dict[str, str]) -> None:
    """The answers have to make a tree, before anything is written."""
    loaded = load_tree({name.removeprefix(f"{BUDGETS}/"): text.encode() for name, text in files.items()})
    if loaded.tree is None:
        raise UsageError(loaded.diagnostics[0].message, hint="`gpubudget init --help` shows what can be answered")


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user whom the machine does not know
        return "admin"


def _write(folder: Path, files: dict[str, str]) -> list[str]:
    """Write those files that are not there; which."""
    written = []
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(text, encoding="utf-8")
                written.append(name)
    except OSError as error:
        where = error.filename or folder
        raise GpuBudgetError(f"{where} cannot be written: {error.strerror}", hint="name another folder") from error
    return written


def _commit(folder: Path) -> None:
    """Make the folder a repository, and what belongs to it its first commit; a failure is told, the files stay.

    Other files that are there are left to their owner, who may not want them in git.
    """
    mine = {name: value for name, value in os.environ.items() if name.startswith(("GIT_AUTHOR_", "GIT_COMMITTER_"))}
    env = environment(folder) | mine

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(arguments, env, folder=folder, shown=str(folder), timeout=_SECONDS)

    if any(git("var", name).returncode for name in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT")):
        env = configured(env, _NOBODY)
    for arguments in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "--", *_OURS),
        ("commit", "--quiet", "--message", "Budgets"),
    ):
        done = git(*arguments)
        if done.returncode:
            say(f"warning: the files are there, and not committed: {reason(done.stderr)}")
            return
    say(f"made {folder} a git repository, with a first commit on main")
