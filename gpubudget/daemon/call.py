"""One HTTP request and its answer: who calls, what the body and the query say, and errors as problem+json.

Knows nothing of what requests are about. No traceback leaves the daemon.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from gpubudget.daemon.auth import Role, Token, require
from gpubudget.daemon.fields import Fields, parse_json
from gpubudget.daemon.service import Service
from gpubudget.errors import BrokenInvariantError, GpuBudgetError, InvalidInputError, NotFoundError

LARGEST_BODY = 8 * 1024 * 1024
LARGEST_NUMBER = 2**62

_log = logging.getLogger(__name__)


class TooLargeError(InvalidInputError):
    """The body is larger than anything that this API takes."""

    status: ClassVar[int] = 413
    slug: ClassVar[str] = "too-large"


class MethodError(InvalidInputError):
    """There is something at this path, but not for this method."""

    status: ClassVar[int] = 405
    slug: ClassVar[str] = "method"


def answer(value: object, status: int = 200, kind: str = "application/json") -> Response:
    """A JSON response."""
    return Response(json.dumps(value, separators=(",", ":")), status, media_type=kind)


def problem(error: GpuBudgetError) -> Response:
    """An error as problem+json (RFC 9457)."""
    body = {
        "type": f"urn:gpubudget:{error.slug}",
        "title": error.slug.replace("-", " "),
        "status": error.status,
        "detail": error.message,
        "hint": error.hint,
    }
    response = answer(body, error.status, "application/problem+json")
    if error.status == 401:  # noqa: PLR2004 - the status that asks for this header
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


class Call:
    """A request of somebody who was identified."""

    __slots__ = ("request", "service", "token")

    def __init__(self, request: Request, service: Service, token: Token) -> None:
        self.request, self.service, self.token = request, service, token

    @property
    def admin(self) -> bool:
        """Whether an administrator calls."""
        return self.token.role is Role.ADMIN

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def number(self, name: str, default: int | None, low: int = 0, high: int = LARGEST_NUMBER) -> Any:  # noqa: ANN401 - int, or the default
        """A whole number of the query."""
        text = self.request.query_params.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):  # noqa: PLR2004 - digits of 2**62
            raise InvalidInputError(f"{name}={text[:40]} in the query is not a whole number from {low} to {high}")
        return int(text)

    def text(self, name: str) -> str | None:
        """A text of the query; None when it is left out or empty."""
        return self.request.query_params.get(name) or None

    def words(self, name: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """A list of known words, with commas between them, of the query."""
        words = tuple(word for word in self.request.query_params.get(name, "").split(",") if word)
        for word in words:
            if word not in known:
                raise InvalidInputError(f"there is no {name} {word[:40]!r}", hint=f"{name}: {', '.join(known)}")
        return words

    async def raw(self) -> bytes:
        """The body, of bounded size."""
        said = self.request.headers.get("content-length", "")
        if said.isdigit() and int(said) > LARGEST_BODY:
            raise _too_large(int(said))
        body = bytearray()
        async for chunk in self.request.stream():
            body += chunk
            if len(body) > LARGEST_BODY:
                raise _too_large(len(body))
        return bytes(body)

    async def json(self) -> Any:  # noqa: ANN401 - any JSON
        """The value in the body."""
        return parse_json(await self.raw())

    async def fields(self) -> Fields:
        """The object in the body; an empty body is an empty object."""
        raw = await self.raw()
        return Fields(parse_json(raw) if raw else {})


def _too_large(size: int) -> TooLargeError:
    return TooLargeError(
        f"the body has {size} bytes or more; at most {LARGEST_BODY} are taken", hint="send it in several requests"
    )


Handler = Callable[[Call], Awaitable[Response]]


def route(service: Service, method: str, path: str, roles: tuple[Role, ...] | None, handler: Handler) -> Route:
    """A route for callers of one of these roles; None: every role.

    The path ends with the names of what may stand in the query: ``/v1/events?after&limit``.
    """
    path, _, query = path.partition("?")
    known = query.split("&") if query else []

    async def endpoint(request: Request) -> Response:
        try:
            token = service.tokens.identify(request.headers.get("authorization"))
            if roles is not None:
                require(token, *roles)
            _check_query(request, known)
            service.tokens.used(token, service.clock.now(), service.batch)
            return await handler(Call(request, service, token))
        except GpuBudgetError as error:
            return problem(error)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a sentence and the log the rest
            _log.exception("%s %s failed", method, path)
            what = f"the daemon failed on this request: {type(error).__name__}"
            return problem(BrokenInvariantError(what, hint="please report it, with the daemon's log"))

    return Route(path, endpoint, methods=[method])


def _check_query(request: Request, known: list[str]) -> None:
    """Refuse parameters that nobody would look at."""
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            hint = f"parameters are {', '.join(known)}" if known else "send no query"
            raise InvalidInputError(f"{name[:40]!r} in the query is no parameter of {request.url.path[:60]}", hint=hint)
        if names.count(name) > 1:
            raise InvalidInputError(f"{name} stands twice in the query", hint="keep one of the two")


async def no_route(request: Request, error: Exception) -> Response:
    """The answer where no route fits."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    path = request.url.path[:100]
    if status == MethodError.status:
        return problem(MethodError(f"{request.method} is not possible on {path}", hint="see docs/daemon.md"))
    return problem(NotFoundError(f"there is nothing at {path}", hint="the API is at /v1, see docs/daemon.md"))
