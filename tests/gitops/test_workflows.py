"""The workflows that a budgets repository gets are those of this one, with a pinned action."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubudget.errors import UsageError
from gpubudget.gitops.workflows import workflows

ROOT = Path(__file__).parent.parent.parent
ACTION = f"lab/gpubudget/.github/actions/gpubudget@{'a' * 40}"


def test_they_are_those_of_this_repository() -> None:
    """One text; whoever changes one of the two copies it (cp .github/workflows/{...} gpubudget/gitops/templates/)."""
    for path, text in workflows().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text


def test_the_action_is_put_in() -> None:
    """Each calls it once, and nothing else differs."""
    own, others = workflows(), workflows(ACTION)
    for path, text in others.items():
        assert text.count(f"uses: {ACTION}\n") == 1
        assert text.replace(ACTION, "./.github/actions/gpubudget") == own[path]


@pytest.mark.parametrize(
    "action",
    ["", "lab/gpubudget@main", "lab/gpubudget@v1", f"gpubudget@{'a' * 40}", f"lab/gpubudget@{'a' * 39}", f"{ACTION}\n"],
)
def test_what_is_not_pinned_is_refused(action: str) -> None:
    """A tag can be moved by others."""
    with pytest.raises(UsageError, match="full commit"):
        workflows(action)
