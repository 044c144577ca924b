"""Trees that are replaced while work runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpubudget.core.applying import destination, redate, renamed
from gpubudget.core.budget import Budget, Policy, Pool
from gpubudget.core.events import BudgetsApplied, HostReported, Outcome
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadState
from gpubudget.units import HOUR, MINUTE
from tests.core.small import Small, starts, stops, tree

DEEP = {"a": "1/2", "a/x": "1/2", "a/x/u": "1/2", "b": "1/2"}


def moved(small: Small, shares: dict[str, str], previously: dict[str, str]) -> list[str]:
    """Apply a tree in which some budgets say where they were before."""

    def note(budget: Budget) -> Budget:
        children = tuple(note(child) for child in budget.children)
        return replace(budget, previously=previously.get(budget.path), children=children)

    plain = tree(shares)
    return small.do(BudgetsApplied(replace(plain, root=note(plain.root)), "c2"))


@pytest.mark.parametrize(
    ("path", "now"),
    [("a", "z"), ("a/x", "z/x"), ("a/x/u", "z/x/u"), ("b/c", "w/deep"), ("b/c/d", "w/deep/d"), ("b", "b"), ("/", "/")],
)
def test_a_path_follows_its_nearest_ancestor_that_was_renamed(path: str, now: str) -> None:
    """By the name it had below that one."""
    assert renamed(path, {"a": "z", "b/c": "w/deep"}) == now


@pytest.mark.parametrize(("path", "answers"), [("a/x", "z"), ("b/c", "b"), ("d/e", "/"), ("b", "b")])
def test_the_nearest_ancestor_that_is_left_answers_for_a_budget(path: str, answers: str) -> None:
    """After renames; at last the root."""
    assert destination(path, {"a": "z"}, frozenset({"/", "z", "b"})) == answers


def test_a_renamed_budget_keeps_its_usage_and_its_work() -> None:
    """What runs, what waits, and what was used; those below follow by name."""
    small = Small(DEEP)
    small.submit("u1", "a/x/u", 8, 10)
    small.submit("u2", "a/x/u", 8, 10)
    small.submit("f1", "a/x/u", 8, 0)
    small.wait(30)
    shares = {"a": "1/2", "b": "1/2", "b/y": "1/2", "b/y/u": "1/2"}
    assert moved(small, shares, {"b/y": "a/x"}) == []
    assert (small.usage("b/y/u"), small.usage("a")) == (240, 0)
    assert small.view("u2").spec.budget == "b/y/u"
    assert small.ranking() == ["u2", "f1"]
    small.wait(10)
    assert (small.usage("b/y/u"), small.usage("b"), small.usage("/")) == (320, 320, 320)


def test_a_removed_budgets_usage_leaves_the_window_from_its_parents_reserve() -> None:
    """History that was taken over is forgotten when it would have been."""
    small = Small(DEEP, policy=Policy(lookback=HOUR))
    small.submit("u1", "a/x/u", 8, 10)
    small.wait(20)
    small.exit("u1", Outcome.FINISHED)
    small.do(BudgetsApplied(tree({"b": "1/2"}, Policy(lookback=HOUR)), "c2"))
    assert (small.usage("/"), small.usage("b")) == (160, 0)
    small.wait(50)
    assert small.usage("/") == 80
    small.wait(10)
    assert small.usage("/") == 0


def test_unallocated_work_of_a_removed_budget_goes_on_too() -> None:
    """It is charged to the reserve of what is left."""
    small = Small(DEEP)
    small.submit("f1", "a/x", 4, 0)
    small.submit("f2", None, 4, 0)
    small.do(BudgetsApplied(tree({"b": "1/2"}), "c2"))
    assert [view.state for view in small.scheduler.workloads()] == [WorkloadState.RUNNING] * 2
    assert small.budget("/").unallocated == 4


def test_other_shares_count_at_once() -> None:
    """Who was over its share is under it, and the other way round."""
    small = Small({"a": "1/100", "b": "99/100"})
    small.submit("a1", "a", 8, 10)
    small.submit("b1", "b", 8, 10)
    small.wait(10)
    small.exit("a1", Outcome.FINISHED)
    small.submit("a2", "a", 8, 10)
    small.wait(30)
    assert small.view("b1").state is WorkloadState.RUNNING
    assert stops(small.do(BudgetsApplied(tree({"a": "99/100", "b": "1/100"}), "c2"))) == ["b1/1"]


def test_a_shorter_window_forgets_at_once_and_a_longer_one_grows() -> None:
    """For allocated and unallocated work alike."""
    small = Small({"a": "1/2"})
    small.submit("a1", "a", 4, 10)
    small.submit("s1", None, 4, 0)
    small.wait(200)
    small.do(BudgetsApplied(tree({"a": "1/2"}, Policy(lookback=HOUR)), "c2"))
    assert small.usage("a") == 240
    small.wait(10)
    small.do(BudgetsApplied(tree({"a": "1/2"}, Policy(lookback=2 * HOUR)), "c3"))
    small.wait(10)
    assert small.usage("a") == 4 * 70


def test_in_a_pool_that_the_tree_no_longer_names_nothing_starts() -> None:
    """What runs goes on; what waits is held, and goes on when the pool is back."""
    small = Small({"a": "1/2"})
    small.submit("a1", "a", 8, 10)
    small.submit("a2", "a", 8, 10)
    small.do(BudgetsApplied(replace(small.tree, pools=(Pool("q", 8, 1),)), "c2"))
    assert small.view("a1").state is WorkloadState.RUNNING
    assert small.scheduler.explain("a2", small.now * MINUTE).reason == "there is no pool 'p'"
    assert starts(small.exit("a1", Outcome.FINISHED)) == []
    assert starts(small.do(BudgetsApplied(small.tree, "c3"))) == ["a2/1"]


def test_hosts_may_report_before_there_are_budgets() -> None:
    """They have nothing to do, and dates mean nothing, until the first tree is applied."""
    scheduler = Scheduler()
    scheduler.handle(HostReported("h1", "p", 8), 0)
    redate(scheduler.state)
    assert scheduler.tree is None
    scheduler.handle(BudgetsApplied(tree({"a": "1"}), "c1"), 5)
    assert [pool.gpus for pool in scheduler.pools(5)] == [8]
    scheduler.check()
