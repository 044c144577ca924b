"""The one comment that a pull request has on its plan: found again by its mark, and brought up to date.

The mark is the comment's first line, which nobody sees. It says what is planned, by which run and for which commit:
what another account wrote is left alone, and so is what a later run, or a run for a newer commit, has said. A token
that may only read, as that of a fork's pull request, is an outcome and no error. Knows nothing of what the text says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, unquote

from gpubudget.errors import ForbiddenError
from gpubudget.gitops.github import Comment, GitHub, Review

LIMIT = 65_000
"""The most bytes of UTF-8 in a comment. GitHub takes 65,536 characters, and does not say of what encoding."""

_MARK = re.compile(r"<!-- gpubudget plan=(\S*) run=(\d{1,20})\.(\d{1,20}) head=([0-9a-f]{40,64}) -->", re.ASCII)
_DECISIVE = {"APPROVED", "CHANGES_REQUESTED", "DISMISSED"}


@dataclass(frozen=True, slots=True)
class Stamp:
    """What is planned (``key``), by which run and attempt of it, for which newest commit of the pull request."""

    key: str
    run: int
    attempt: int
    head: str


class Outcome(StrEnum):
    """What became of a comment."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    NOTHING = "nothing"  # to say, and nothing was said so far
    OLDER = "older"  # something newer is there, or will be
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True)
class Posted:
    """The outcome, where the comment is, and why if it is not this one."""

    outcome: Outcome
    url: str = ""
    why: str = ""


def marker(stamp: Stamp) -> str:
    """The first line of a comment with this stamp."""
    return f"<!-- gpubudget plan={quote(stamp.key, safe='/')} run={stamp.run}.{stamp.attempt} head={stamp.head} -->"


def stamp_of(body: str) -> Stamp | None:
    """The stamp of a comment; None if it has none."""
    found = _MARK.fullmatch(body.partition("\n")[0].strip())
    return Stamp(unquote(found[1]), int(found[2]), int(found[3]), found[4]) if found else None


def post(
    github: GitHub, number: int, stamp: Stamp, text: Callable[[str], str], author: str, *, new: bool = True
) -> Posted:
    """Makes or updates the comment that ``author`` has for ``stamp.key``; ``text`` makes it from its first line.

    With ``new`` false a comment is updated and none is made.
    """
    try:
        mine = [(found, comment) for comment in github.comments(number) if (found := _own(comment, stamp, author))]
        newest = max(mine, key=lambda one: (one[0].head == stamp.head, _order(one[0])), default=None)
        if newest and newest[0].head == stamp.head and _order(newest[0]) > _order(stamp):
            return Posted(Outcome.OLDER, newest[1].url, f"run {newest[0].run}.{newest[0].attempt} is later")
        head = github.pull_request(number).head  # last, so that as little as possible comes between
        if head != stamp.head:
            return Posted(Outcome.OLDER, newest[1].url if newest else "", f"commit {head} has been pushed since")
        for _, comment in mine:
            if newest and comment.id != newest[1].id:  # two runs at once made one each
                github.delete_comment(comment.id)
        body = text(marker(stamp))
        if newest is None and not new:
            return Posted(Outcome.NOTHING)
        if newest is None:
            return Posted(Outcome.CREATED, github.create_comment(number, body).url)
        if newest[1].body == body:
            return Posted(Outcome.UNCHANGED, newest[1].url)
        return Posted(Outcome.UPDATED, github.update_comment(newest[1].id, body).url)
    except ForbiddenError as error:
        return Posted(Outcome.READ_ONLY, why=error.message)


def _own(comment: Comment, stamp: Stamp, author: str) -> Stamp | None:
    """The stamp of a comment by ``author`` about the same; None for all others."""
    found = stamp_of(comment.body) if comment.author.lower() == author.lower() else None
    return found if found and found.key == stamp.key else None


def _order(stamp: Stamp) -> tuple[int, int]:
    return stamp.run, stamp.attempt


def approvers(reviews: Iterable[Review], head: str) -> tuple[str, ...]:
    """Who approves of the commit ``head``: those whose last word is an approval of that very commit."""
    last = {review.author: review for review in reviews if review.state in _DECISIVE and review.author}
    return tuple(name for name, review in last.items() if review.state == "APPROVED" and review.commit == head)
