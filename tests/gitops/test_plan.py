"""The difference of two trees."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gpubudget.core.budget import Budget, DatedShares, DebugLane, Policy, Pool, Shares, Tree
from gpubudget.gitops.plan import Action, PoolChange, SettingChange, Standing, diff, plan, settings

H100 = Pool("h100", 8, 4)
B200 = Pool("b200", 8, 2)
PLAIN = Policy()


def budget(path: str, share: str, *children: Budget, **more: object) -> Budget:
    return Budget(path, Shares(Fraction(share)), children=children, **more)  # type: ignore[arg-type]


def tree(*children: Budget, pools: tuple[Pool, ...] = (H100,), policy: Policy = PLAIN) -> Tree:
    return Tree(budget("/", "1", *children), pools, policy)


def actions(before: Tree | None, after: Tree, now: int = 0) -> list[tuple[Action, str, str | None, tuple[str, ...]]]:
    return [(change.action, change.path, change.former, change.fields) for change in diff(before, after, now)]


def test_equal_trees_have_an_empty_plan() -> None:
    """Nothing changed, nothing said."""
    same = tree(budget("a", "1/2", budget("a/b", "1/3")))
    assert not plan(same, same, 0)
    assert plan(same, same, 0).counts() == {"added": 0, "removed": 0, "moved": 0, "changed": 0}


def test_the_first_tree_adds_everything() -> None:
    """Without a tree before, each budget is added, parents first, and each setting is new."""
    first = plan(None, tree(budget("a", "1/2", budget("a/b", "1/3"))), 0)
    assert [(change.action, change.path) for change in first.changes] == [
        (Action.ADDED, "/"),
        (Action.ADDED, "a"),
        (Action.ADDED, "a/b"),
    ]
    assert first.changes[2].pools == (PoolChange("h100", None, Standing(Fraction(1, 3), Fraction(1, 6))),)
    assert SettingChange("pools.h100.hosts", None, 4) in first.settings
    assert first.counts()["added"] == 3


def test_a_changed_share_shows_share_and_effective_share_before_and_after() -> None:
    """Only the budget whose share was written differently is a change, with exact fractions."""
    before = tree(budget("a", "1/2", budget("a/b", "1/3")))
    after = tree(budget("a", "1/4", budget("a/b", "1/3")))
    (change,) = diff(before, after, 0)
    assert (change.action, change.path, change.fields) == (Action.CHANGED, "a", ("share",))
    assert change.pools == (
        PoolChange("h100", Standing(Fraction(1, 2), Fraction(1, 2)), Standing(Fraction(1, 4), Fraction(1, 4))),
    )


def test_people_titles_and_dated_changes_are_named() -> None:
    """Whatever is written differently is named by its key."""
    before = tree(budget("a", "1/2", title="A", managers=("x",), members=("x",)))
    dated = (DatedShares(10, 20, Shares(Fraction(1, 5))),)
    after = tree(budget("a", "1/2", title="B", managers=("y",), members=("x", "z"), changes=dated))
    assert actions(before, after) == [(Action.CHANGED, "a", None, ("changes", "title", "managers", "members"))]


def test_shares_are_those_in_force_at_the_moment() -> None:
    """A dated change counts while it holds."""
    dated = (DatedShares(10, 20, Shares(Fraction(1, 5))),)
    before, after = tree(budget("a", "1/2")), tree(budget("a", "1/2", changes=dated))
    shares = [diff(before, after, now)[0].pools[0].after for now in (9, 10, 19, 20)]
    assert [standing.share for standing in shares if standing] == [
        Fraction(1, 2),
        Fraction(1, 5),
        Fraction(1, 5),
        Fraction(1, 2),
    ]


def test_a_rename_moves_the_budget_and_all_below_it() -> None:
    """`previously` makes a move of what would be a removal and an addition (flux2#3316)."""
    before = tree(budget("a", "1/2", budget("a/b", "1/3")), budget("c", "1/4"))
    after = tree(budget("c", "1/4", budget("c/z", "1/2", budget("c/z/b", "1/3"), previously="a")))
    assert actions(before, after) == [
        (Action.MOVED, "c/z", "a", ()),
        (Action.MOVED, "c/z/b", "a/b", ()),
    ]
    assert diff(before, after, 0)[1].pools == (
        PoolChange("h100", Standing(Fraction(1, 3), Fraction(1, 6)), Standing(Fraction(1, 3), Fraction(1, 24))),
    )


def test_a_former_path_that_nobody_had_is_an_addition() -> None:
    """`previously` stays in the file after the move was applied, and then means nothing more."""
    before, after = tree(), tree(budget("b", "1/2", previously="a"))
    assert actions(before, after) == [(Action.ADDED, "b", None, ())]
    assert actions(after, after) == []


def test_a_former_path_given_to_a_budget_that_was_there_removes_the_old_one() -> None:
    """Two histories become one: the old path is gone, and the budget that was there is what it was."""
    before = tree(budget("a", "1/4"), budget("b", "1/4"))
    after = tree(budget("b", "1/4", previously="a"))
    assert actions(before, after) == [(Action.REMOVED, "a", None, ())]


def test_removed_budgets_come_last_with_what_they_had() -> None:
    """A removal shows the shares that end."""
    before = tree(budget("a", "1/4", budget("a/b", "1/2")), budget("c", "1/4"))
    after = tree(budget("c", "1/2"))
    assert [(a, p) for a, p, _, _ in actions(before, after)] == [
        (Action.CHANGED, "c"),
        (Action.REMOVED, "a"),
        (Action.REMOVED, "a/b"),
    ]
    assert diff(before, after, 0)[2].pools == (PoolChange("h100", Standing(Fraction(1, 2), Fraction(1, 8)), None),)


def test_each_pool_has_its_own_standing_also_one_that_comes_or_goes() -> None:
    """A share may differ per pool, and a pool may be new."""
    before = tree(budget("a", "1/4"))
    after = tree(Budget("a", Shares(Fraction(1, 4), (("b200", Fraction(1, 2)),))), pools=(H100, B200))
    (change,) = diff(before, after, 0)
    assert change.pools == (
        PoolChange("h100", Standing(Fraction(1, 4), Fraction(1, 4)), Standing(Fraction(1, 4), Fraction(1, 4))),
        PoolChange("b200", None, Standing(Fraction(1, 2), Fraction(1, 2))),
    )


def test_settings_are_compared_by_name() -> None:
    """Pools by their names, policy by its keys, the debug lane with all of its own."""
    before = tree(pools=(H100, B200))
    policy = Policy(lookback=5, debug=DebugLane(8))
    after = replace(tree(pools=(replace(H100, hosts=5),), policy=policy), cluster="c", timezone="Europe/Berlin")
    assert settings(before, after) == (
        SettingChange("cluster", "cluster", "c"),
        SettingChange("policy.debug.gpus", None, 8),
        SettingChange("policy.debug.max_gpus", None, 8),
        SettingChange("policy.debug.max_runtime", None, 900_000),
        SettingChange("policy.debug.per_person", None, 1),
        SettingChange("policy.lookback", 604_800_000, 5),
        SettingChange("pools.h100.hosts", 4, 5),
        SettingChange("timezone", "UTC", "Europe/Berlin"),
        SettingChange("pools.b200.gpus_per_host", 8, None),
        SettingChange("pools.b200.hosts", 2, None),
    )
    assert plan(before, after, 0)
