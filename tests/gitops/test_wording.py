"""The words of a plan: figures rounded once, reasons in a few words, counts, and what was compared."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gpubudget.core import plain
from gpubudget.core.budget import Budget, DatedShares, Policy, Pool, Shares, Tree
from gpubudget.gitops import wording
from gpubudget.gitops.plan import plan
from gpubudget.gitops.review import Review, Side
from gpubudget.units import HOUR

H100, B200 = Pool("h100", 8, 4), Pool("b200", 8, 2)
DECEMBER, JANUARY = 1_796_079_600_000, 1_799_967_600_000  # 2026-12-01 and 2027-01-15 in Berlin
PLAIN = Policy()


def budget(path: str, share: str, *children: Budget, **more: object) -> Budget:
    return Budget(path, Shares(Fraction(share)), children=children, **more)  # type: ignore[arg-type]


def tree(*children: Budget, pools: tuple[Pool, ...] = (H100,), policy: Policy = PLAIN) -> Tree:
    return Tree(budget("/", "1", *children), pools, policy)


def reasons(before: Tree, after: Tree, now: int = 0) -> dict[str, str]:
    found = plan(before, after, now)
    return {one.path: wording.reason(one, "Europe/Berlin") for one in (*found.changes, *found.follows)}


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [("1", "2", "1 -> 2"), ("1", "1", "1"), (None, "2", "2"), ("1", None, "1 -> none"), (None, None, "")],
)
def test_arrows(before: str | None, after: str | None, text: str) -> None:
    """Only what differs has an arrow."""
    assert wording.arrow(before, after) == text


def test_figures_are_rounded_for_people() -> None:
    """One decimal where it says something, thousands apart, and a mark where a share is not exact."""
    assert [wording.gpus_text(Fraction(n)) for n in ("0", "64/5", "1024", "32/3", "1/30")] == [
        "0",
        "12.8",
        "1,024",
        "10.7",
        "0",
    ]
    hours = [0, HOUR // 2, 99 * HOUR, 12_902 * HOUR + HOUR // 2, -HOUR // 2, -1]
    assert [wording.gpu_hours_text(n) for n in hours] == ["0", "0.5", "99", "12,903", "-0.5", "0"]
    assert [wording.share_text(Fraction(n)) for n in ("1/2", "1/3", "1/16")] == ["50%", "~33.3%", "6.25%"]


def test_a_standing_is_four_figures_before_and_after() -> None:
    """Share, effective share, GPUs and GPU-hours, for what comes, goes and stays."""
    (change,) = plan(tree(budget("a", "1/3")), tree(budget("a", "1/4")), 0).changes
    before, after = change.pools[0].before, change.pools[0].after
    assert wording.figures(before, after) == ("1/3 -> 25%", "~33.3% -> 25%", "10.7 -> 8", "1,792 -> 1,344")
    assert wording.figures(None, after) == ("25%", "25%", "8", "1,344")
    assert wording.figures(before, None) == ("1/3 -> none", "~33.3% -> none", "10.7 -> none", "1,792 -> none")


def test_days_are_those_of_the_cluster() -> None:
    """Midnight in Berlin is a day; any other moment has its time, and one beyond the calendar its milliseconds."""
    assert wording.date_text(DECEMBER, "Europe/Berlin") == "2026-12-01"
    assert wording.date_text(DECEMBER, "UTC") == "2026-11-30 23:00"
    assert wording.date_text(10**18, "UTC") == f"{10**18} ms"
    assert wording.date_text(0, "Nowhere/Land") == "0 ms"


def test_each_action_has_its_reason() -> None:
    """What comes, goes, moves and changes, and what follows from it."""
    before = tree(
        budget("a", "1/2", budget("a/b", "1/2", budget("a/b/c", "1/2"))),
        budget("gone", "1/8"),
        budget("m", "1/8", budget("m/n", "1")),
    )
    after = tree(
        budget("a", "1/2", budget("a/b", "1/4", budget("a/b/c", "1/2")), budget("a/new", "1/8", members=("eva",))),
        budget("w", "1/8", budget("w/n", "1"), previously="m"),
    )
    assert reasons(before, after) == {
        "a/b": "share",
        "a/new": "new; members +eva",
        "w": "was m, keeps its history",
        "w/n": "moves with w",
        "gone": "removed; what it runs is charged to /",
        "/": "keeps 25% -> 37.5% for itself",
        "a": "keeps 50% -> 62.5% for itself",
        "a/b/c": "follows a/b",
    }


def test_people_titles_and_dates_are_told_in_full() -> None:
    """Who comes and goes, by name; days in the cluster's timezone; the order of a list says nothing else."""
    dated = DatedShares(DECEMBER, JANUARY, Shares(Fraction(2, 5), (("h100", Fraction(1, 3)),)))
    before = tree(
        budget("a", "1/2", managers=("x",), members=("x", "y")), budget("b", "1/4", title="B", changes=(dated,))
    )
    after = tree(
        budget("a", "1/2", title="A", managers=("z",), members=("y", "x"), changes=(dated,)), budget("b", "1/4")
    )
    told = "40%, h100 1/3 from 2026-12-01 until 2027-01-15"
    assert reasons(before, after) == {
        "a": f"{told}; title 'A'; managers +z -x; members in another order",
        "b": f"no longer {told}; no title",
    }


def test_a_share_that_is_not_in_force_yet_is_told_in_words() -> None:
    """While a dated change holds, the figures are the same before and after."""
    dated = (DatedShares(0, 9, Shares(Fraction(1, 5))),)
    before, after = tree(budget("a", "1/2", changes=dated)), tree(budget("a", "1/4", changes=dated))
    assert reasons(before, after)["a"] == "share 50% -> 25%, once no dated change is in force"


def test_what_follows_a_setting_says_so_and_pools_are_told_apart() -> None:
    """A reserve that differs in one pool only is told with the pool."""
    before = tree(budget("a", "1/2", budget("a/b", "1/2")), pools=(H100, B200))
    assert reasons(before, replace(before, policy=Policy(lookback=5)))["/"] == "follows policy.lookback"
    split = Budget("a/b", Shares(Fraction(1, 2), (("b200", Fraction(1, 4)),)))
    after = tree(budget("a", "1/2", split), pools=(H100, B200))
    assert reasons(before, after)["a"] == "keeps 50% -> 75% for itself in b200"


def test_a_summary_counts_what_there_is() -> None:
    """All four verbs, and settings and followers where there are some."""
    before = tree(budget("a", "1/2", budget("a/b", "1/2")))
    assert wording.summary(plan(before, before, 0)) == "0 to add, 0 to change, 0 to move, 0 to remove"
    after = tree(budget("a", "1/4", budget("a/b", "1/2")), policy=Policy(grace_period=HOUR))
    assert wording.summary(plan(before, after, 0)) == (
        "0 to add, 1 to change, 0 to move, 0 to remove; 1 setting to change; 2 more follow"
    )
    assert wording.summary(plan(tree(budget("a", "1/2")), tree(budget("a", "1/4")), 0)).endswith("; 1 more follows")


def test_what_was_compared_is_named_with_its_commits() -> None:
    """Both sides, also when nothing differs and when a side is a merge that nobody has made yet."""
    same = tree(budget("a", "1/2"))
    base = Side("main", "1" * 40, plain.digest(same), 2)
    review = Review(base, replace(base, name="topic", commit="2" * 40), 0, 0, "UTC", plan(same, same, 0))
    assert wording.unchanged(review) == (
        "No changes: topic (222222222222) against main (111111111111): the same 2 budgets, pools and policy."
    )
    merged = replace(review, after=replace(review.after, merged="1" * 40, digest="other"))
    assert wording.compared(merged) == "topic (222222222222) merged into main (111111111111), against main"
    assert "only former paths" in wording.unchanged(merged)
    assert wording.side_text(replace(base, commit="")) == "main"
    assert wording.side_text(replace(base, name="1" * 40), long=True) == "1" * 40
