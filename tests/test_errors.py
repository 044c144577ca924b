"""Errors: a sentence, a way out, and how the shells answer with them."""

from __future__ import annotations

import pytest

from gpubudget import errors


def test_an_error_reads_as_its_sentence_and_its_hint() -> None:
    """Where there is no way out, only the sentence."""
    assert str(errors.RefusedError("no", hint="ask again")) == "no (ask again)"
    assert str(errors.RefusedError("no")) == "no"


@pytest.mark.parametrize(
    ("kind", "status", "exit_code"),
    [
        (errors.GpuBudgetError, 500, 1),
        (errors.InvalidInputError, 400, 1),
        (errors.UsageError, 400, 64),
        (errors.NotAuthorisedError, 401, 4),
        (errors.ForbiddenError, 403, 4),
        (errors.NotFoundError, 404, 1),
        (errors.ConflictError, 409, 1),
        (errors.RefusedError, 422, 1),
        (errors.UnreachableError, 503, 75),
        (errors.BrokenInvariantError, 500, 1),
    ],
)
def test_each_kind_has_its_status_and_exit_code(kind: type[errors.GpuBudgetError], status: int, exit_code: int) -> None:
    """HTTP statuses and exit codes are part of what scripts rely on."""
    assert (kind.status, kind.exit_code) == (status, exit_code)


def test_each_kind_has_a_slug_of_its_own() -> None:
    """A slug names the kind in an answer of the API."""
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.GpuBudgetError)
    ]
    assert len({kind.slug for kind in kinds}) == len(kinds)
