"""The line to the daemon: one report at a time goes out, and its answer comes back, without holding up the agent.

A report that waits for news (a long poll) can be abandoned when there is something new to say; whatever is still
answered to it is then never looked at. So answers are acted upon in the order of the reports, each once at most.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests

from gpubudget.agent.wire import Answer, parse_answer
from gpubudget.errors import GpuBudgetError, NotAuthorisedError, UnreachableError, UsageError

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 20.0
_REFUSALS = range(400, 500)
_PASSING = {408, 425, 429}
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer that could be used. ``refused``: the daemon understood who asks and what, and said no."""

    error: GpuBudgetError
    refused: bool = False


class _Bearer(requests.auth.AuthBase):
    """Sets the token; an explicit way, so that a password in ~/.netrc never takes its place."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Channel:
    """Reports go out with ``post``; ``arrived`` is called, in another thread, when ``take`` has something to give."""

    def __init__(self, url: str, host: str, token: Callable[[], str], arrived: Callable[[], None]) -> None:
        self._daemon = url
        self._url = f"{url.rstrip('/')}/v1/agents/{host}/sync"
        self._token, self._arrived = token, arrived
        self._session = self._new_session()
        self._lock = threading.Lock()
        self._number = 0  # of the report whose answer counts
        self._came: Answer | Failure | None = None
        self.waiting = False

    def post(self, report: dict[str, Any], wait_ms: int) -> None:
        """Send a report; the daemon may hold its answer for so long. An earlier one that waits is abandoned."""
        with self._lock:
            self._number += 1
            if self.waiting:
                self._session = self._new_session()
            self._came, self.waiting = None, True
            arguments = (self._number, self._session, report, wait_ms)
        threading.Thread(target=self._send, args=arguments, name="sync", daemon=True).start()

    def take(self) -> Answer | Failure | None:
        """What came back, once."""
        with self._lock:
            came, self._came = self._came, None
        return came

    def _new_session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = (
            urlsplit(self._daemon).hostname not in _LOOPBACK
        )  # no proxy stands between a machine and itself
        return session

    def _send(self, number: int, session: requests.Session, report: dict[str, Any], wait_ms: int) -> None:
        came = self._asked(session, report, wait_ms)
        with self._lock:
            if current := number == self._number:
                self._came, self.waiting = came, False
        if current:
            self._arrived()
        else:
            session.close()

    def _asked(self, session: requests.Session, report: dict[str, Any], wait_ms: int) -> Answer | Failure:
        try:
            reply = session.post(
                self._url, json=report, params={"wait_ms": wait_ms}, allow_redirects=False,
                auth=_Bearer(self._token()),
                timeout=(CONNECT_SECONDS, ANSWER_SECONDS + wait_ms / 1000),
            )  # fmt: skip
            if reply.status_code == requests.codes.ok:
                return parse_answer(reply.json())
            return _failure(reply)
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema):
            wrong = UsageError(f"{self._daemon!r} is no address of a daemon", hint="write it as http://HOST:8470")
            return Failure(wrong, refused=True)
        except GpuBudgetError as problem:
            return Failure(problem, refused=isinstance(problem, NotAuthorisedError))
        except (requests.RequestException, ValueError) as problem:
            return Failure(UnreachableError(f"the daemon at {self._daemon} does not answer: {_short(problem)}"))


def _failure(reply: requests.Response) -> Failure:
    """The daemon's problem as an error of ours."""
    try:
        said = reply.json()
        text, hint = str(said.get("detail") or said.get("title") or ""), str(said.get("hint") or "")
    except (ValueError, AttributeError):
        text, hint = "", ""
    message = f"the daemon refused this agent's report ({reply.status_code}): {text or reply.reason}"
    if reply.status_code in {401, 403}:
        return Failure(NotAuthorisedError(message, hint=hint or "give the token of this host's agent"), refused=True)
    refused = reply.status_code in _REFUSALS and reply.status_code not in _PASSING
    return Failure(GpuBudgetError(message, hint=hint), refused=refused)


def _short(problem: Exception) -> str:
    """The innermost reason of a failed request, without its wrappings."""
    return re.sub(r".*[>)]: ", "", str(getattr(problem.args[0] if problem.args else "", "reason", problem)))[:200]
