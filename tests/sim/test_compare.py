"""Runs held against each other: differences by budget, and who is best at what."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gpubudget.sim.compare import Good, Unit, differences, programs, side_by_side
from gpubudget.sim.measures import BudgetMeasures, Measures, measure
from gpubudget.units import HOUR
from tests.made_runs import Did, made, tree


@pytest.fixture(scope="module")
def before() -> Measures:
    """``a`` waits an hour for ``b``; both have a half."""
    did = [Did("w", "a", 8, 0, HOUR, [(HOUR, 2 * HOUR)]), Did("v", "b", 8, 0, HOUR, [(0, HOUR)])]
    return measure(made(tree({"a": "1/2", "b": "1/2"}), did, until=2 * HOUR))


@pytest.fixture(scope="module")
def after() -> Measures:
    """``a`` has three quarters and goes first; ``b`` is gone, and there is ``c``."""
    did = [Did("w", "a", 8, 0, HOUR, [(0, HOUR)])]
    return measure(made(tree({"a": "3/4", "c": "1/4"}), did, until=2 * HOUR))


def test_differences_are_by_budget(before: Measures, after: Measures) -> None:
    """A budget that is in one tree only has nothing on the other side; those that are gone come last."""
    found = {one.path: one for one in differences(before, after)}
    assert list(found) == ["/", "a", "c", "b"]
    assert found["a"].share == (Fraction(1, 2), Fraction(3, 4))
    assert found["a"].wait_p50_ms == found["a"].wait_p90_ms == (HOUR, 0)
    assert found["a"].delivered_gpu_ms == (8 * HOUR, 8 * HOUR)
    assert found["b"].delivered_gpu_ms == (8 * HOUR, None)
    assert found["c"].preempted == (None, 0)
    assert all(one.changed for one in found.values())


def test_budgets_that_are_gone_keep_their_order(after: Measures) -> None:
    """That of their tree, and not one that differs from process to process."""
    names = {f"gone{number}": "1/9" for number in (3, 1, 4, 5, 9, 2, 6)}
    gone = measure(made(tree(names), [Did("w", "gone3", 8, 0, HOUR, [(0, HOUR)])], until=HOUR))
    assert [one.path for one in differences(gone, after)] == ["/", "a", "c", *names]


def test_a_renamed_budget_is_one_with_all_below_it(before: Measures) -> None:
    """Its figures stand side by side under both names; an old name that is in use again is another budget's."""
    did = [Did("w", "new/x", 8, 0, HOUR, [(0, HOUR)])]
    shares = tree({"new": "1/2", "b": "1/2", "new/x": "1"})
    root = replace(
        shares.root, children=tuple(replace(c, previously={"new": "a"}.get(c.path)) for c in shares.root.children)
    )
    after = measure(made(replace(shares, root=root), did, until=2 * HOUR))
    found = {one.name: one for one in differences(before, after)}
    assert list(found) == ["/", "a → new", "new/x", "b"]
    assert found["a → new"].delivered_gpu_ms == (8 * HOUR, 8 * HOUR)
    assert found["a → new"].changed
    assert found["new/x"].share == (None, Fraction(1, 2))
    assert differences(after, after)[1].former is None
    deep = [one.name for one in differences(after, replace(after, budgets=tuple(moved(after))))]
    assert deep == ["/", "new → newer", "new/x → newer/x", "b"]


def moved(run: Measures) -> list[BudgetMeasures]:
    """The budgets of a run in which ``new`` is called ``newer``."""
    return [
        replace(one, path=one.path.replace("new", "newer"), previously="new" if one.path == "new" else None)
        for one in run.budgets
    ]


def test_the_same_run_twice_differs_in_nothing(before: Measures) -> None:
    """Then no budget has changed."""
    assert not any(one.changed for one in differences(before, before))


def test_programs_are_told_from_what_is_below(before: Measures) -> None:
    """The root and what stands directly below it are not deep."""
    one = differences(before, before)[1]
    assert [replace(one, path=path).deep for path in ("/", "a", "a/b")] == [False, False, True]


def test_the_best_of_a_row(before: Measures, after: Measures) -> None:
    """The shorter wait is best, two equal ones both are if a third is worse, and where all are equal nobody is."""
    found = {contest.name: contest for contest in side_by_side([before, after, after])}
    longest = found["longest wait"]
    assert (longest.figures, longest.good, longest.best) == ((HOUR, 0, 0), Good.LOW, (1, 2))
    assert found["funded GPU-hours"].best == (0,)
    assert found["impact"].unit is Unit.RATIO
    same = {contest.name: contest for contest in side_by_side([before, before])}
    assert all(contest.best == () for contest in same.values())


def test_what_no_run_has_is_left_out(before: Measures) -> None:
    """There are no debug workloads, so nothing is said of them."""
    assert not any(contest.name.startswith("debug") for contest in side_by_side([before]))


def test_preemptions_are_neither_good_nor_bad(before: Measures) -> None:
    """More of them may be what makes waits short."""
    more = replace(before, preemptions=replace(before.preemptions, count=5))
    contest = next(one for one in side_by_side([before, more]) if one.name == "preemptions")
    assert (contest.figures, contest.best) == ((0, 5), ())


def test_programs_get_their_entitlement_or_not(before: Measures, after: Measures) -> None:
    """Both halves of 16 GPU-hours were served in full at first; then ``a`` had 8 of 12, and there is no ``b``."""
    found = {row.path: row.served for row in programs([before, after])}
    assert found == {"a": (Fraction(1), Fraction(666_666, 1_000_000)), "b": (Fraction(1), None)}
