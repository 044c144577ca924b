"""Every error that may reach a person, split by whose fault it is.

Each carries one sentence that says what is wrong, where and with which numbers, an optional hint that says what to
do, and the HTTP status and exit code with which the outer shells answer. Nothing here does I/O.
"""

from __future__ import annotations

from typing import ClassVar


class GpuBudgetError(Exception):
    """The base of all errors shown to people: a message and, where there is a way out, a hint."""

    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    slug: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInputError(GpuBudgetError):
    """What the caller sent cannot be understood or is out of bounds."""

    status = 400
    slug = "invalid-input"


class UsageError(InvalidInputError):
    """The command line itself is wrong."""

    exit_code = 64
    slug = "usage"


class NotAuthorisedError(GpuBudgetError):
    """No valid token came with the request."""

    status = 401
    exit_code = 4
    slug = "not-authorised"


class ForbiddenError(GpuBudgetError):
    """The token is valid, but its owner may not do this."""

    status = 403
    exit_code = 4
    slug = "forbidden"


class NotFoundError(GpuBudgetError):
    """The named thing does not exist."""

    status = 404
    slug = "not-found"


class ConflictError(GpuBudgetError):
    """The request is sound, but not in the present state."""

    status = 409
    slug = "conflict"


class RefusedError(GpuBudgetError):
    """The request is understood and refused by a rule."""

    status = 422
    slug = "refused"


class UnreachableError(GpuBudgetError):
    """The daemon does not answer."""

    status = 503
    exit_code = 75
    slug = "unreachable"


class BrokenInvariantError(GpuBudgetError):
    """A rule that always holds does not: a fault of this program."""

    slug = "broken-invariant"
    status = 500
