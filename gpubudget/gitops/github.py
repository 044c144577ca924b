"""Pull requests on GitHub, as far as they are needed here: their newest commit, their reviews and their comments.

Knows nothing of budgets, nor of what stands in a comment. Its rules:

- The token goes to the one API that was named: no redirect is followed, and no page elsewhere is read.
- A list is read to its end, or not at all.
- A limit on the rate of requests is waited for while ``patience`` lasts.
- A request whose answer was lost is sent again only if doing it twice does no harm: a comment is not made twice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import requests

from gpubudget import __version__
from gpubudget.errors import (
    ForbiddenError,
    GpuBudgetError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
)

T = TypeVar("T")

API = "https://api.github.com"
API_VERSION = "2022-11-28"

_REPOSITORY = re.compile(r"[A-Za-z0-9-]{1,100}/[A-Za-z0-9._-]{1,100}")
_PAGE = 100
_MAX_PAGES = 300
_SECONDS = (10, 30)
_LOST = (1.0, 2.0, 4.0)
_NO_HEADER = 60.0  # what GitHub asks for where a secondary limit names no time


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request: who opened it, and the full id of its newest commit."""

    author: str
    head: str


@dataclass(frozen=True, slots=True)
class Review:
    """A review: by whom, of which commit, and its state: APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED, PENDING."""

    author: str
    commit: str
    state: str


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment in the conversation of a pull request."""

    id: int
    author: str
    body: str
    url: str


class GitHub:
    """The REST API at ``api`` for one repository, ``owner/name``.

    ``patience`` is for how many seconds in all limits are waited for; ``pause`` and ``now`` are the clock.
    """

    def __init__(
        self,
        api: str,
        repository: str,
        token: str,
        *,
        patience: float = 180.0,
        pause: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        if urlsplit(api).scheme not in {"http", "https"} or not _REPOSITORY.fullmatch(repository):
            raise UsageError(
                f"{repository!a} at {api!a} is not a repository of GitHub", hint=f"write it as owner/name, {API}"
            )
        self._base = f"{api.rstrip('/')}/repos/{repository}"
        self._repository = repository
        self._patience = patience
        self._pause = pause
        self._now = now
        self._session = requests.Session()
        self._session.auth = _bearer(token)
        self._session.headers.update(
            {
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": API_VERSION,
                "User-Agent": f"gpubudget/{__version__}",
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def pull_request(self, number: int) -> PullRequest:
        """The pull request as it is now."""
        return _read(self._call("GET", f"{self._base}/pulls/{number}"), _pull_request)

    def reviews(self, number: int) -> tuple[Review, ...]:
        """All reviews of a pull request, oldest first."""
        return tuple(self._items(f"{self._base}/pulls/{number}/reviews", _review))

    def comments(self, number: int) -> tuple[Comment, ...]:
        """All comments in the conversation of a pull request, oldest first."""
        return tuple(self._items(f"{self._base}/issues/{number}/comments", _comment))

    def create_comment(self, number: int, body: str) -> Comment:
        """Makes a comment. If its answer is lost, it may be there all the same."""
        return _read(self._call("POST", f"{self._base}/issues/{number}/comments", {"body": body}), _comment)

    def update_comment(self, comment: int, body: str) -> Comment:
        """Gives a comment another text."""
        return _read(self._call("PATCH", f"{self._base}/issues/comments/{comment}", {"body": body}), _comment)

    def delete_comment(self, comment: int) -> None:
        """Removes a comment; one that is gone already is no error."""
        with suppress(NotFoundError):
            self._call("DELETE", f"{self._base}/issues/comments/{comment}")

    def _items(self, url: str, item: Callable[[Any], T]) -> Iterator[T]:
        """All items of a list, page by page."""
        following: str | None = f"{url}?per_page={_PAGE}"
        for _ in range(_MAX_PAGES):
            if following is None:
                return
            response = self._call("GET", following)
            yield from _read(response, lambda page: [item(one) for one in page])
            following = response.links.get("next", {}).get("url")
            if following and urlsplit(following)[:2] != urlsplit(self._base)[:2]:
                raise GpuBudgetError(f"{self._base} continues a list at another place, {following[:200]!a}")
        raise GpuBudgetError(f"a list of {self._repository} has more than {_MAX_PAGES * _PAGE} items")

    def _call(self, method: str, url: str, body: dict[str, str] | None = None) -> requests.Response:
        """The answer with success; limits are waited for, and an answer that was lost is asked for again."""
        left, lost, limited = self._patience, list(_LOST) if method != "POST" else [], 0
        while True:
            try:
                response = self._session.request(method, url, json=body, timeout=_SECONDS, allow_redirects=False)
            except requests.RequestException as error:
                if not lost:
                    raise UnreachableError(f"{self._base} does not answer: {_why(error)}", hint=_LATER) from error
                self._pause(lost.pop(0))
                continue
            if response.ok and not response.is_redirect:
                return response
            wait = self._limit(response, limited)
            if wait is not None and wait <= left:
                left, limited = left - wait, limited + 1
                self._pause(wait)
            elif wait is None and response.status_code >= 500 and lost:  # noqa: PLR2004 - GitHub's own faults
                self._pause(lost.pop(0))
            else:
                raise self._failure(response, wait)

    def _limit(self, response: requests.Response, times: int) -> float | None:
        """For how many seconds GitHub wants no request, after it said so ``times`` times; None if it is no limit."""
        if response.status_code not in {403, 429}:
            return None
        headers = response.headers
        if (after := headers.get("Retry-After", "")).isdecimal():
            return float(after)
        if headers.get("X-RateLimit-Remaining") == "0" and (reset := headers.get("X-RateLimit-Reset", "")).isdecimal():
            return max(float(reset) - self._now(), 0.0) + 1.0
        limited = response.status_code == 429 or "secondary rate limit" in _message(response)  # noqa: PLR2004
        return _NO_HEADER * 2**times if limited else None

    def _failure(self, response: requests.Response, wait: float | None) -> GpuBudgetError:
        """The error that an answer without success stands for."""
        status, said = response.status_code, _message(response)
        what = f"GitHub answered {status} for {self._repository}: {said}"
        if wait is not None:
            return UnreachableError(f"{what} (for {wait:.0f} s)", hint=_LATER)
        match status:
            case 401:
                return NotAuthorisedError(what, hint="give a token that is valid, as GITHUB_TOKEN")
            case 403:
                return ForbiddenError(what, hint="the token may not do that: give the workflow `pull-requests: write`")
            case 404 | 410:
                return NotFoundError(what, hint="is the number right, and may the token see the repository?")
            case 400 | 409 | 422:
                return RefusedError(what)
            case 301 | 302 | 307 | 308:
                return GpuBudgetError(what, hint="has the repository another name now?")
        return UnreachableError(what, hint=_LATER)


_LATER = "run it again later"


def _bearer(token: str) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """Sets the token. An explicit way, so that a password from ~/.netrc never takes its place."""

    def authorise(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    return authorise


def _read(response: requests.Response, read: Callable[[Any], T]) -> T:
    """What ``read`` makes of the JSON of an answer, which has to be of the form that GitHub documents."""
    try:
        return read(response.json())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        where = response.url.partition("?")[0]
        raise UnreachableError(f"{where} did not answer as GitHub does", hint="is the API's URL right?") from error


def _pull_request(found: dict[str, Any]) -> PullRequest:
    return PullRequest(_login(found), str(found["head"]["sha"]))


def _review(found: dict[str, Any]) -> Review:
    return Review(_login(found), str(found["commit_id"] or ""), str(found["state"]))


def _comment(found: dict[str, Any]) -> Comment:
    return Comment(int(found["id"]), _login(found), str(found["body"] or ""), str(found["html_url"]))


def _login(found: dict[str, Any]) -> str:
    """Who made it; an empty text where the account is gone."""
    return str(found["user"]["login"]) if found["user"] else ""


def _message(response: requests.Response) -> str:
    """What an answer without success says, in one line."""
    try:
        told = response.json()
        parts = [told["message"], *(error.get("message") or error.get("code") for error in told.get("errors", ()))]
    except (ValueError, KeyError, TypeError, AttributeError):
        parts = [response.reason]
    return " ".join("; ".join(str(part) for part in parts if part).split())[:500]


def _why(error: requests.RequestException) -> str:
    return "it took too long" if isinstance(error, requests.Timeout) else "the connection failed"
