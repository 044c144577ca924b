"""The value that is reviewed: to a file and back, sealed, with a checksum of what would be applied."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from gpubudget.core import plain
from gpubudget.core.budget import Budget, DatedShares, Pool, Shares, Tree
from gpubudget.errors import InvalidInputError
from gpubudget.gitops.plan import plan
from gpubudget.gitops.review import (
    Approval,
    Live,
    Outcome,
    Replayed,
    Review,
    Side,
    WhatIf,
    approved,
    checksum,
    from_file,
    from_json,
    to_file,
    to_json,
)


def tree(share: str) -> Tree:
    dated = (DatedShares(5, 9, Shares(Fraction(1, 7), (("h100", Fraction(1, 9)),))),)
    a = Budget("a", Shares(Fraction(share)), "A", ("anna",), ("ben",), None, dated)
    return Tree(Budget("/", Shares(Fraction(1)), children=(a,)), (Pool("h100", 8, 4),))


BEFORE, AFTER = tree("1/2"), tree("1/3")
OUTCOME = Outcome("a", touched=True, before=Replayed(1, None, None, 0, 0), after=Replayed(1, 2, 3, 4, 5))
PLAN = plan(BEFORE, AFTER, 0)
REVIEW = Review(
    Side("main", "1" * 40, plain.digest(BEFORE), 2, "Hanna <h@x>", 7),
    Side("topic", "2" * 40, plain.digest(AFTER), 2),
    3,
    4,
    "UTC",
    PLAN,
    descends=True,
    drift=PLAN,
    live=(Live("a", "h100", 1, 2, -3, 4, 5),),
    approvals=(Approval("a", ("share",), "/", ("ines", "otto")), Approval("b", ("added",), "/", ())),
    what_if=WhatIf("log", 1, 2, 3, (OUTCOME,), ("x",)),
    notes=("n",),
)


def stored(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(value))
    return found


def test_json_is_plain_and_reads_back_the_same() -> None:
    """Shares are num/den, no class names are in it, and nothing is lost."""
    data = stored(to_json(REVIEW))
    assert data["plan"]["changes"][0]["pools"][0]["after"]["guarantee"] == "32/3"
    fields = {"share": 1, "changes": 0, "title": 0, "managers": 0, "members": 0}
    budgets = {"added": 0, "removed": 0, "moved": 0, "changed": 1, "follows": 1}
    assert data["counts"] == budgets | {"settings": len(data["plan"]["settings"]), "fields": fields}
    assert '"kind"' not in json.dumps(data)
    assert from_json(data) == REVIEW
    data["before"]["committed"] = data["as_of"] = "1970-01-01T00:00:00.007Z"  # as commands show it
    assert from_json(data) == REVIEW
    bare = replace(REVIEW, drift=None, what_if=None, live=(), approvals=(), notes=())
    assert from_json(stored(to_json(bare))) == bare


def test_a_file_has_the_tree_that_was_reviewed() -> None:
    """What is applied is in the file itself."""
    assert from_file(stored(to_file(REVIEW, AFTER))) == (REVIEW, AFTER)
    with pytest.raises(InvalidInputError, match="tree is not the one that was reviewed"):
        from_file(stored(to_file(REVIEW, BEFORE)))
    with pytest.raises(InvalidInputError):
        from_file(to_json(REVIEW))


@pytest.mark.parametrize(
    "change",
    [
        {"notes": []},
        {"checksum": "0" * 64},
        {"seal": None},
        {"descends": False},
        {"before": stored(to_json(REVIEW))["after"]},
    ],
)
def test_a_file_that_was_changed_is_refused(change: dict[str, Any]) -> None:
    """Whatever is different from what was written, however small (octodns' checksum that is not looked at)."""
    with pytest.raises(InvalidInputError, match="changed after it was made") as caught:
        from_json(stored(to_json(REVIEW)) | change)
    assert "make it again" in caught.value.hint


@pytest.mark.parametrize("data", [None, [], "x", {}, {"format": 2}, {"format": 1}, {"format": 1, "before": 3}])
def test_what_is_no_plan_is_refused(data: object) -> None:
    """Any other JSON is one clear sentence."""
    with pytest.raises(InvalidInputError):
        from_json(data)


def test_the_checksum_is_of_what_would_be_applied_and_to_what() -> None:
    """It is the same whenever the plan is made, and another one for any other commit or tree on either side."""
    later = replace(REVIEW, as_of_ms=99, live=(), notes=(), drift=None)
    assert checksum(later) == checksum(REVIEW)
    for side in ("before", "after"):
        for field in ("commit", "digest"):
            other = replace(getattr(REVIEW, side), **{field: "3" * 40})
            assert checksum(replace(REVIEW, **{side: other})) != checksum(REVIEW)


def test_approvals_count_from_those_who_decide_only() -> None:
    """Names are compared as GitHub does, without case; where there is nobody to ask nothing is lacking."""
    found = approved(REVIEW, ("OTTO", "stranger"))
    assert [one.approved_by for one in found.approvals] == [("otto",), ()]
    assert [one.lacking for one in found.approvals] == [False, False]
    assert [one.lacking for one in REVIEW.approvals] == [True, False]


def test_live_figures_are_found_by_path() -> None:
    """By pool, or none."""
    assert REVIEW.live_of("a") == {"h100": REVIEW.live[0]}
    assert REVIEW.live_of("b") == {}
