"""The daemon's HTTP API as the commands use it: where it is, who is calling, and its answers as errors of ours.

A request that may safely be sent twice (it only reads, or carries an idempotency key) is sent again when its answer
was lost. Knows nothing of what the answers mean.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self
from urllib.parse import quote, urlsplit

import requests

from gpubudget import __version__
from gpubudget.cli.output import say
from gpubudget.errors import (
    ConflictError,
    ForbiddenError,
    GpuBudgetError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
)

DEFAULT_URL = "http://127.0.0.1:8470"

Answer = dict[str, Any]

_BY_STATUS: dict[int, type[GpuBudgetError]] = {
    400: InvalidInputError,
    401: NotAuthorisedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    422: RefusedError,
    503: UnreachableError,
}
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 60
_AGAIN_SECONDS = 0.3


class _Bearer(requests.auth.AuthBase):
    """Sets the token. An explicit way, so that a password from ~/.netrc never takes its place."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token()}"
        return request


class Client:
    """Calls the daemon at ``url``; ``token`` is the caller's, or gives it when a request is sent.

    ``patience`` is for how many seconds a daemon that does not answer is asked again before UnreachableError: 0 at
    first, more for those who follow something that outlives a restart of the daemon.
    """

    lost_answers: ClassVar[int] = 3

    def __init__(self, url: str, token: str | Callable[[], str]) -> None:
        self.url = _checked_url(url)
        self.patience = 0.0
        self._told = False
        self._session = requests.Session()
        self._session.auth = _Bearer(token if callable(token) else lambda: token)
        self._session.headers["User-Agent"] = f"gpubudget/{__version__}"
        # Proxies of the environment are for other machines.
        self._session.trust_env = urlsplit(self.url).hostname not in _LOOPBACK

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def get(self, path: str, **query: object) -> Answer:
        """The answer to a GET; parameters that are None are left out."""
        return self._call(self._request("GET", path, params=query), repeatable=True)

    def post(self, path: str, body: object, *, key: str = "") -> Answer:
        """The answer to a POST of a JSON body; ``key`` makes it safe to send again."""
        headers = {"Idempotency-Key": key} if key else None
        return self._call(self._request("POST", path, json=body, headers=headers), repeatable=bool(key))

    def put(self, path: str, body: object) -> Answer:
        """The answer to a PUT of a JSON body, which says what should be and so may be sent twice."""
        return self._call(self._request("PUT", path, json=body), repeatable=True)

    def delete(self, path: str) -> Answer:
        """The answer to a DELETE."""
        return self._call(self._request("DELETE", path), repeatable=False)

    def stream(self, path: str, **query: object) -> Iterator[Answer]:
        """The objects of an endless answer, one a line, as they come. Ends when the daemon closes it."""
        with self._patiently(self._request("GET", path, params=query), repeatable=True, stream=True) as response:
            try:
                for line in response.iter_lines(chunk_size=None):
                    if line.strip():
                        yield json.loads(line)
            except (requests.RequestException, ValueError):
                return  # cut off; the caller knows the last one it got

    def _request(self, method: str, path: str, *, params: Answer | None = None, **parts: Any) -> requests.Request:  # noqa: ANN401 - a body is any JSON
        query = {name: str(value) for name, value in (params or {}).items() if value is not None}
        return requests.Request(method, self.url + path, params=query, **parts)

    def _call(self, request: requests.Request, *, repeatable: bool) -> Answer:
        with self._patiently(request, repeatable=repeatable) as response:
            return _decoded(response)

    def _patiently(self, request: requests.Request, *, repeatable: bool, stream: bool = False) -> requests.Response:
        """Send; ask again while ``patience`` lasts, or when the answer to a repeatable request was lost."""
        started, lost = time.monotonic(), 0
        while True:
            try:
                return self._send(request, stream=stream)
            except _LostAnswerError:
                lost += 1
                if not repeatable or (lost >= self.lost_answers and self._out_of_patience(started)):
                    raise
            except UnreachableError as error:
                if self._out_of_patience(started):
                    raise
                self._tell(error)
            time.sleep(_AGAIN_SECONDS)

    def _tell(self, error: UnreachableError) -> None:
        """Say once that the daemon is being waited for."""
        if not self._told:
            say(f"{error.message}; it is waited for")
            self._told = True

    def _out_of_patience(self, started: float) -> bool:
        return time.monotonic() - started >= self.patience

    def _send(self, request: requests.Request, *, stream: bool = False) -> requests.Response:
        """Send once; the response, whose status is one of success."""
        timeout = (_CONNECT_SECONDS, _ANSWER_SECONDS)
        try:
            prepared = self._session.prepare_request(request)
            settings = self._session.merge_environment_settings(prepared.url, {}, stream, None, None)
            response = self._session.send(prepared, timeout=timeout, allow_redirects=False, **settings)
        except (requests.ReadTimeout, requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            if _never_arrived(error):
                raise self._unreachable(error) from error
            raise _LostAnswerError(
                f"the daemon at {self.url} took the request, but its answer was lost",
                hint="see what became of it before you try again",
            ) from error
        except (requests.RequestException, UnicodeError) as error:  # a URL that only looks like one
            raise self._unreachable(error) from error
        if not response.ok or response.is_redirect:
            with response:
                raise _problem(self.url, response)
        return response

    def _unreachable(self, error: Exception) -> UnreachableError:
        text = str(error)
        why = next((plain for sign, plain in _WHY.items() if sign in text), "")
        return UnreachableError(
            f"the daemon at {self.url} does not answer{why and ': ' + why}",
            hint="is it running (gpubudget serve), and does GPUBUDGET_URL or --url say where?",
        )


class _LostAnswerError(UnreachableError):
    """The request arrived, and what became of it is not known."""


_WHY = {
    "Connection refused": "connection refused",
    "Name or service not known": "no such host",
    "Failed to resolve": "no such host",
    "timed out": "timed out",
    "No route to host": "no route to host",
    "Network is unreachable": "network is unreachable",
    "CERTIFICATE": "its certificate cannot be trusted",
    "SSL": "it does not speak TLS as asked",
}


def _never_arrived(error: Exception) -> bool:
    """Whether the connection itself could not be made, so that the daemon cannot have seen the request."""
    if isinstance(error, requests.ConnectTimeout | requests.exceptions.SSLError | requests.exceptions.ProxyError):
        return True
    return "NewConnectionError" in repr(error) or "NameResolutionError" in repr(error)


def _checked_url(url: str) -> str:
    """The URL without a slash at its end; UsageError unless it is http(s)://host[:port][/path]."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and url.isprintable()
    except ValueError:
        sound = False
    if not sound or parts.query or parts.fragment or " " in url:
        raise UsageError(
            f"{url[:100]!r} is not the URL of a daemon", hint=f"write it as {DEFAULT_URL} (--url or GPUBUDGET_URL)"
        )
    return url.rstrip("/")


def _decoded(response: requests.Response) -> Answer:
    if not response.content:
        return {}
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise _no_daemon(response.url, response)
    return answer


def _problem(url: str, response: requests.Response) -> GpuBudgetError:
    """The error that an answer other than success stands for."""
    try:
        problem = response.json()
        detail = problem.get("detail") or problem["title"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return _no_daemon(url, response)
    kind = _BY_STATUS.get(response.status_code)
    if kind is None:  # an odd status: the caller's fault or the daemon's
        kind = InvalidInputError if 400 <= response.status_code < 500 else GpuBudgetError  # noqa: PLR2004
    return kind(str(detail), hint=str(problem.get("hint") or ""))


def _no_daemon(url: str, response: requests.Response) -> UnreachableError:
    return UnreachableError(
        f"{url} answered {response.status_code}, but not as a gpubudget daemon does",
        hint="does GPUBUDGET_URL or --url name the daemon?",
    )


def segment(text: str) -> str:
    """A name as one segment of a path. NotFoundError for what would be several, or another place."""
    if "/" in text or text in {".", ".."}:
        raise NotFoundError(f"there is nothing named {text[:60]!r}", hint="`gpubudget get` lists what there is")
    return quote(text, safe="")
