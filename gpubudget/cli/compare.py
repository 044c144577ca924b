"""What the commands about changes of budgets share: which two trees a person means, and their comparison."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from gpubudget.cli.client import Client
from gpubudget.cli.output import now_ms, say
from gpubudget.cli.validate import usual_folder
from gpubudget.cli.values import shown
from gpubudget.errors import UsageError
from gpubudget.gitops.diagnostics import to_text
from gpubudget.gitops.gitprocess import RepositoryError
from gpubudget.gitops.makeplan import Answer, Question, answer
from gpubudget.gitops.revision import repository_folder
from gpubudget.gitops.sides import InvalidTreeError

DAEMON = "daemon"

_FOLDER = "budgets"


class People(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument
    """Names with commas between them, without the @ that some places put before them."""

    name = "people"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:  # noqa: ARG002 - the signature is click's
        """The names."""
        if isinstance(value, tuple):
            return value
        return tuple(name.strip().removeprefix("@") for name in str(value).split(",") if name.strip())


class Day(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument
    """A date such as ``2026-12-01``."""

    name = "date"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> date:
        """The date; a usage error for what is none."""
        try:
            return datetime.strptime(str(value), "%Y-%m-%d").date()  # noqa: DTZ007 - a day, in a timezone known later
        except ValueError:
            self.fail(f"{shown(str(value))} is not a date such as 2026-12-01", param, ctx)


PEOPLE = People()
DAY = Day()


def question(
    target: str | None,
    against: str,
    *,
    repo: Path | None = None,
    path: str | None = None,
    as_of: date | None = None,
    approved_by: tuple[str, ...] = (),
) -> Question:
    """What a person means by a folder or a commit (``target``) against a commit or the daemon."""
    folder = usual_folder() if target is None else Path(target) if Path(target).is_dir() else None
    if target is not None and Path(target).is_file():
        raise UsageError(f"{target} is a file", hint="name the folder that has the budgets")
    top = _top(repo, folder, needed=folder is None or against != DAEMON)
    after: Path | str = folder if folder is not None else str(target)
    inside = path if path is not None else _inside(top, folder or usual_folder())
    other = None if against == DAEMON else against
    return Question(after, other, top, inside, lambda timezone: _moment(as_of, timezone), approved_by)


def _top(repo: Path | None, folder: Path | None, *, needed: bool) -> Path | None:
    """The top of the repository that is named, or that the folder is in; None if there is none and none is needed."""
    try:
        return repository_folder(repo or folder or Path())
    except RepositoryError:
        if needed or repo is not None:
            raise
        return None


def _inside(top: Path | None, folder: Path) -> str:
    """Where a folder is in a repository; the usual place if it is somewhere else."""
    here, above = folder.resolve(), top.resolve() if top is not None else None
    if above is None or not here.is_relative_to(above):
        return _FOLDER
    return str(here.relative_to(above)) if here != above or (here / "cluster.yaml").exists() else _FOLDER


def _moment(as_of: date | None, timezone: str) -> int:
    """The milliseconds at which a day begins in a timezone, or those of now."""
    if as_of is None:
        return now_ms()
    return int(datetime(as_of.year, as_of.month, as_of.day, tzinfo=ZoneInfo(timezone)).timestamp()) * 1_000


def answered(asked: Question, client: Client | None) -> Answer:
    """The comparison; no daemon is asked without a client."""
    gc.disable()  # all that is read is kept until the end, so collecting only costs
    try:
        with invalid_shown():
            return answer(asked, client)
    finally:
        gc.enable()


@contextmanager
def invalid_shown() -> Iterator[None]:
    """Shows the problems of a tree that is not valid before its error goes on."""
    try:
        yield
    except InvalidTreeError as error:
        for problem in error.problems:
            say(to_text(problem, error.prefix))
        raise
