"""``comment``: a plan, or why there is none, as the one comment of its pull request on GitHub."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from gpubudget.cli.apply import read_json
from gpubudget.cli.output import printable, say
from gpubudget.cli.values import shown
from gpubudget.errors import ForbiddenError, InvalidInputError, UsageError
from gpubudget.gitops.comment import Place, Problem, of_problems, of_review
from gpubudget.gitops.github import API, GitHub
from gpubudget.gitops.posting import LIMIT, Outcome, Posted, Stamp, approvers, post
from gpubudget.gitops.review import Review, approved, from_file

BOT = "github-actions[bot]"
USUAL = "budgets"
_SUMMARY_LIMIT = 1_000_000  # GitHub takes 1 MiB for each step

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)

Planned = Review | tuple[Problem, ...]
"""A plan, or why there is none."""


@dataclass(frozen=True, slots=True)
class Run:
    """The run of a workflow, as GitHub describes it in ``GITHUB_*``; 0, None or empty outside of one.

    ``number`` and ``head`` are the pull request that it is about and the newest commit that this had when it began.
    """

    id: int
    attempt: int
    server: str
    summary: Path | None
    number: int
    head: str


@click.command(
    epilog="""\b
Examples:
  gpubudget plan HEAD --against origin/main --out plan.json
  gpubudget comment plan.json
  gpubudget comment plan.json --repository lab/budgets --pull-request 7 --author hanna
  gpubudget comment plan.json --dry-run"""
)
@click.argument("file", metavar="PLAN", type=click.Path(path_type=Path))
@click.option(
    "--repository",
    envvar=["GPUBUDGET_COMMENT_REPOSITORY", "GITHUB_REPOSITORY"],
    metavar="OWNER/NAME",
    help="The repository on GitHub.",
)
@click.option(
    "--pull-request", type=click.IntRange(1), metavar="NUMBER", help="The pull request.  [default: that of the run]"
)
@click.option("--head", metavar="COMMIT", help="Its newest commit, which was planned.  [default: that of the run]")
@click.option(
    "--api",
    envvar=["GPUBUDGET_COMMENT_API", "GITHUB_API_URL"],
    default=API,
    show_default=True,
    metavar="URL",
    help="GitHub's REST API.",
)
@click.option(
    "--key", default=USUAL, show_default=True, help="What is planned; a comment is updated only by plans of the same."
)
@click.option("--author", default=BOT, show_default=True, help="The account that the token belongs to.")
@click.option("--count-author", is_flag=True, help="Who opened the pull request approves what they manage.")
@click.option("--dry-run", is_flag=True, help="Print the comment, and ask and tell GitHub nothing.")
def comment(  # noqa: PLR0913 - one for each option
    *,
    file: Path,
    repository: str | None,
    pull_request: int | None,
    head: str | None,
    api: str,
    key: str,
    author: str,
    count_author: bool,
    dry_run: bool,
) -> None:
    """Put a plan on its pull request as one comment, which the next run finds and updates.

    PLAN is what `gpubudget plan --out` wrote or, for budgets that are not valid, what `gpubudget validate -o json`
    printed. In a workflow of GitHub Actions the run says all the rest. The token is in GITHUB_TOKEN. If it may only
    read, as that of a fork, the plan is in the run's summary, where it is in any case.
    """
    run, planned = _run(), _planned(read_json(file))
    pages = f"{run.server}/{repository}" if repository else ""
    whole = f"{pages}/actions/runs/{run.id}" if run.id else ""
    place = Place(title="" if key == USUAL else key, repository=pages, whole=whole)
    if dry_run:
        click.echo(_text(planned, place, LIMIT), nl=False)
        return
    number, token = pull_request or run.number, os.environ.get("GITHUB_TOKEN", "").strip()
    if not repository or not number:
        raise UsageError("which pull request?", hint="give --repository OWNER/NAME and --pull-request NUMBER")
    if not token or not (token.isascii() and token.isprintable()):
        raise UsageError("there is no token in GITHUB_TOKEN", hint="give one that may write pull requests")
    if head is not None and not _COMMIT.fullmatch(head):
        raise UsageError(f"{shown(head)} is not a commit", hint="give all of its 40 digits with --head")
    with GitHub(api, repository, token) as github:
        try:
            stamp = Stamp(key, run.id, run.attempt, head or run.head or github.pull_request(number).head)
            planned = _with_approvals(planned, github, number, stamp.head, count_author=count_author)
            new = not isinstance(planned, Review) or bool(planned.plan)

            def text(mark: str, told: Planned = planned) -> str:
                return _text(told, replace(place, marker=mark, commit=stamp.head), LIMIT)

            posted = post(github, number, stamp, text, author, new=new)
        except ForbiddenError as error:
            posted = Posted(Outcome.READ_ONLY, why=error.message)
        finally:
            if run.summary:
                _append(run.summary, _text(planned, place, _SUMMARY_LIMIT))
    _tell(posted, run)


def _run(environment: Mapping[str, str] = os.environ) -> Run:
    """The run that this is part of, if it is."""
    event = environment.get("GITHUB_EVENT_PATH")
    summary = environment.get("GITHUB_STEP_SUMMARY")
    try:
        told = json.loads(Path(event).read_bytes()) if event else {}
        pull = told.get("pull_request")
        return Run(
            int(environment.get("GITHUB_RUN_ID") or 0),
            int(environment.get("GITHUB_RUN_ATTEMPT") or 0),
            environment.get("GITHUB_SERVER_URL", "https://github.com").rstrip("/"),
            Path(summary) if summary else None,
            int(pull["number"]) if pull else 0,
            str(pull["head"]["sha"]) if pull else "",
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError("GITHUB_* do not describe a run as GitHub does", hint="unset them") from error


def _planned(data: Any) -> Planned:  # noqa: ANN401 - any JSON
    """A plan, or the errors of a validation that failed."""
    if not isinstance(data, dict) or data.get("valid") is not False:
        return from_file(data)[0]
    try:
        return tuple(
            Problem(f"{one['file']}:{one['line']}:{one['column']}", str(one["message"]), str(one["hint"]))
            for one in data["problems"]
            if one["severity"] == "error"
        )
    except (KeyError, TypeError) as error:
        raise InvalidInputError("this is not what `gpubudget validate -o json` prints") from error


def _text(planned: Planned, place: Place, limit: int) -> str:
    return of_review(planned, place, limit) if isinstance(planned, Review) else of_problems(planned, place, limit)


def _with_approvals(planned: Planned, github: GitHub, number: int, head: str, *, count_author: bool) -> Planned:
    """The plan with who has approved of its newest commit; names on GitHub are those of the budgets, in any case."""
    if not isinstance(planned, Review):
        return planned
    people = approvers(github.reviews(number), head)
    if count_author:
        people += (github.pull_request(number).author,)
    return approved(planned, people)


def _append(file: Path, text: str) -> None:
    try:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        say(printable(f"note: the run's summary cannot be written: {error.strerror}"))


def _tell(posted: Posted, run: Run) -> None:
    """How it ended, in one line."""
    match posted.outcome:
        case Outcome.READ_ONLY if run.summary is None:
            raise ForbiddenError(posted.why, hint="give a token that may write pull requests")
        case Outcome.READ_ONLY:
            say(printable(f"note: {posted.why}"))
            click.echo("not commented, since the token may only read; the plan is in the run's summary")
        case Outcome.NOTHING:
            click.echo("not commented, since nothing changes")
        case Outcome.OLDER:
            click.echo(printable(f"left alone: {posted.why}"))
        case _:
            click.echo(printable(f"{posted.outcome.value} {posted.url}"))
