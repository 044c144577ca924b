"""``apply``: exactly the plan that was reviewed, if nothing has happened since that it did not know of."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from gpubudget.cli.client import Client
from gpubudget.cli.compare import PEOPLE
from gpubudget.cli.connect import connected
from gpubudget.core.budget import Tree
from gpubudget.errors import ConflictError, GpuBudgetError, InvalidInputError, RefusedError, UsageError
from gpubudget.gitops.report import plan_lines
from gpubudget.gitops.review import Review, checksum, from_file
from gpubudget.gitops.target import Application, Daemon
from gpubudget.gitops.wording import SHORT, side_text, summary

_SHORTEST = 12
_LARGEST = 256 << 20
_AGAIN = "make the plan again and review it: `gpubudget plan REF --against daemon --out FILE`"


@click.command(
    epilog="""\b
Examples:
  gpubudget plan HEAD --against daemon --out plan.json
  gpubudget apply plan.json
  gpubudget apply plan.json --checksum 3f2a9c1d0b12 --approved-by hanna,ravi"""
)
@click.argument("file", metavar="PLAN", type=click.Path(path_type=Path))
@click.option("--checksum", "given", metavar="SHA", help="Apply it only if this is its checksum (or how that begins).")
@click.option("--approved-by", type=PEOPLE, default="", metavar="NAMES", help="Who approved it, for the record.")
@connected
def apply(client: Client, /, *, file: Path, given: str | None, approved_by: tuple[str, ...]) -> None:
    """Apply a PLAN that `gpubudget plan --out` wrote: the very tree that was reviewed, to the very state it was for.

    The plan must be of a commit, and that commit must descend from the one that the daemon has. If the file was
    changed, or the daemon has something else by now, nothing is applied.
    """
    review, tree = from_file(read_json(file))
    own = checksum(review)
    if given is not None and (len(given) < _SHORTEST or not own.startswith(given.lower())):
        if len(given) < _SHORTEST:
            raise UsageError(f"--checksum has {len(given)} digits; {_SHORTEST} at least say which plan is meant")
        raise RefusedError(f"the checksum of {file} is {own[:SHORT]}..., not {given[:SHORT]}...", hint=_AGAIN)
    target = Daemon(client)
    there = target.standing()
    if there == (review.after.commit, review.after.digest):
        click.echo(f"{side_text(review.after)} is applied already")
        return
    _check(review, there)
    _send(target, review, tree, approved_by)
    after = f"after {review.before.commit[:SHORT]}" if review.before.commit else "the first"
    click.echo(f"applied {side_text(review.after)}, {after}: {summary(review.plan)}")


def read_json(file: Path) -> Any:  # noqa: ANN401 - any JSON
    """The JSON of a file, or of stdin if it is called ``-``."""
    hint = "name a file that `gpubudget plan --out FILE` wrote"
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise InvalidInputError(f"{file} is longer than a plan can be", hint=hint)
        return json.loads(data)
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}", hint=hint) from None
    except (ValueError, RecursionError):
        raise InvalidInputError(f"{file} is no plan: it is not JSON", hint=hint) from None


def _check(review: Review, there: tuple[str, str] | None) -> None:
    """Raise if the plan is not of a commit, or not for what the daemon has."""
    before, after = review.before, review.after
    if not after.commit or after.merged:
        what = "of a commit that is not merged yet" if after.merged else "of a folder, not of a commit"
        raise RefusedError(f"this plan is {what}, so it cannot be applied", hint=f"{_AGAIN}, once it is in git")
    if there != ((before.commit, before.digest) if before.commit else None):
        has = f"commit {there[0][:SHORT]}" if there else "no budgets"
        if there and there[0] == before.commit:
            has = f"other budgets than git for {has}"
        raise ConflictError(f"this plan is for {side_text(before)}, but the daemon has {has} by now", hint=_AGAIN)
    if not review.descends:
        message = f"{side_text(after)} does not descend from {side_text(before)}, which is applied"
        raise RefusedError(message, hint="put it on top of that; or let `gpubudget reconcile --force` apply it")


def _send(target: Daemon, review: Review, tree: Tree, approved_by: tuple[str, ...]) -> None:
    """Send it in one request and read it back."""
    after, before = review.after, review.before
    target.apply(
        Application(
            tree,
            after.commit,
            after.author,
            after.committed_ms,
            after.digest,
            before.commit or None,
            force=False,
            notes=(f"applied by hand from a reviewed plan, checksum {checksum(review)}",),
            approvers=tuple(
                dict.fromkeys([*(name for one in review.approvals for name in one.approved_by), *approved_by])
            ),
            plan="\n".join(plan_lines(review.plan)),
        )
    )
    there = target.standing()
    if there != (after.commit, after.digest):
        has = there[0][:SHORT] if there is not None else "nothing"
        raise GpuBudgetError(
            f"{side_text(after)} was sent and accepted, but what the daemon has now is {has}",
            hint="is something else applying budgets to this daemon?",
        )
