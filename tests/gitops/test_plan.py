"""The difference of two trees: what is written differently, what follows from it, and the settings."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gpubudget.core import plain
from gpubudget.core.budget import Budget, DatedShares, DebugLane, Policy, Pool, Shares, Tree
from gpubudget.gitops.plan import Action, Change, Plan, SettingChange, Standing, plan, settings
from gpubudget.units import DAY, HOUR

H100 = Pool("h100", 8, 4)
B200 = Pool("b200", 8, 2)
PLAIN = Policy()


def budget(path: str, share: str, *children: Budget, **more: object) -> Budget:
    return Budget(path, Shares(Fraction(share)), children=children, **more)  # type: ignore[arg-type]


def tree(*children: Budget, pools: tuple[Pool, ...] = (H100,), policy: Policy = PLAIN) -> Tree:
    return Tree(budget("/", "1", *children), pools, policy)


def diff(before: Tree | None, after: Tree, now: int = 0) -> tuple[Change, ...]:
    return plan(before, after, now).changes


def shares(change: Change, pool: int = 0) -> tuple[tuple[str, str] | None, ...]:
    """Share and effective share in a pool, before and after."""
    found = change.pools[pool]
    return tuple((str(s.share), str(s.effective_share)) if s else None for s in (found.before, found.after))


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
    assert shares(first.changes[2]) == (None, ("1/3", "1/6"))
    assert SettingChange("pools.h100.hosts", None, "4") in first.settings
    assert not first.follows
    assert first.counts()["added"] == 3


def test_a_changed_share_shows_share_and_effective_share_before_and_after() -> None:
    """Only the budget whose share was written differently is a change, with exact fractions."""
    before = tree(budget("a", "1/2", budget("a/b", "1/3")))
    after = tree(budget("a", "1/4", budget("a/b", "1/3")))
    (change,) = diff(before, after)
    assert (change.action, change.path, change.fields) == (Action.CHANGED, "a", ("share",))
    assert shares(change) == (("1/2", "1/2"), ("1/4", "1/4"))


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
    found = [shares(diff(before, after, now)[0])[1] for now in (9, 10, 19, 20)]
    assert found == [("1/2", "1/2"), ("1/5", "1/5"), ("1/5", "1/5"), ("1/2", "1/2")]


def test_a_rename_moves_the_budget_and_all_below_it() -> None:
    """`previously` makes a move of what would be a removal and an addition (flux2#3316)."""
    before = tree(budget("a", "1/2", budget("a/b", "1/3")), budget("c", "1/4"))
    after = tree(budget("c", "1/4", budget("c/z", "1/2", budget("c/z/b", "1/3"), previously="a")))
    assert actions(before, after) == [
        (Action.MOVED, "c/z", "a", ()),
        (Action.MOVED, "c/z/b", "a/b", ()),
    ]
    top, below = diff(before, after)
    assert shares(below) == (("1/3", "1/6"), ("1/3", "1/24"))
    assert (top.follows, below.follows) == (None, "c/z")


def test_a_budget_that_moves_out_of_one_that_moves_does_so_by_itself() -> None:
    """Only what keeps its place below a moved budget moves along with it."""
    before = tree(budget("a", "1/2", budget("a/b", "1/3")))
    after = tree(budget("z", "1/2", previously="a"), budget("b", "1/4", previously="a/b"))
    assert [(c.path, c.former, c.follows) for c in diff(before, after)] == [("z", "a", None), ("b", "a/b", None)]


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
    assert shares(diff(before, after)[2]) == (("1/2", "1/8"), None)


def test_each_pool_has_its_own_standing_also_one_that_comes_or_goes() -> None:
    """A share may differ per pool, and a pool may be new."""
    before = tree(budget("a", "1/4"))
    after = tree(Budget("a", Shares(Fraction(1, 4), (("b200", Fraction(1, 2)),))), pools=(H100, B200))
    (change,) = diff(before, after)
    assert shares(change) == (("1/4", "1/4"), ("1/4", "1/4"))
    assert shares(change, 1) == (None, ("1/2", "1/2"))


def test_settings_are_compared_by_name() -> None:
    """Pools by their names, policy by its keys, the debug lane with all of its own."""
    before = tree(pools=(H100, B200))
    policy = Policy(lookback=5, debug=DebugLane(8))
    after = replace(tree(pools=(replace(H100, hosts=5),), policy=policy), cluster="c", timezone="Europe/Berlin")
    assert settings(before, after) == (
        SettingChange("cluster", "cluster", "c"),
        SettingChange("policy.debug.allowance", None, "4h"),
        SettingChange("policy.debug.gpus", None, "8"),
        SettingChange("policy.debug.max_gpus", None, "8"),
        SettingChange("policy.debug.max_runtime", None, "15m"),
        SettingChange("policy.debug.per_person", None, "1"),
        SettingChange("policy.lookback", "7d", "5ms"),
        SettingChange("pools.h100.hosts", "4", "5"),
        SettingChange("timezone", "UTC", "Europe/Berlin"),
        SettingChange("pools.b200.gpus_per_host", "8", None),
        SettingChange("pools.b200.hosts", "2", None),
    )
    assert plan(before, after, 0)


# what it comes to, and what follows


def test_a_standing_says_what_a_share_comes_to() -> None:
    """GPUs of the pool, GPU-time of one window, and what is kept from the children, before and after."""
    before = tree(budget("a", "1/2", budget("a/b", "1/4")))
    after = tree(budget("a", "1/4", budget("a/b", "1/4")), policy=Policy(lookback=DAY))
    (change,) = diff(before, after)
    assert change.pools[0].before == Standing(
        Fraction(1, 2), Fraction(1, 2), Fraction(3, 4), Fraction(16), 16 * 7 * DAY
    )
    assert change.pools[0].after == Standing(Fraction(1, 4), Fraction(1, 4), Fraction(3, 4), Fraction(8), 8 * DAY)


def test_gpu_time_is_rounded_down() -> None:
    """GPU-time is whole milliseconds."""
    found = diff(None, tree(budget("a", "1/3"), policy=Policy(lookback=1)))[1].pools[0].after
    assert found is not None
    assert (found.guarantee, found.entitlement_gpu_ms) == (Fraction(32, 3), 10)


def followers(before: Tree, after: Tree) -> list[tuple[str, str | None]]:
    found = plan(before, after, 0).follows
    assert {change.action for change in found} <= {Action.FOLLOWS}
    return [(change.path, change.follows) for change in found]


def test_what_follows_from_a_share_is_told_with_the_budget_that_it_is_due_to() -> None:
    """Those below get less with it, those above keep more; those beside it are not touched."""
    before = tree(budget("a", "1/2", budget("a/b", "1/2", budget("a/b/c", "1/2")), budget("a/d", "1/4")))
    after = tree(budget("a", "1/2", budget("a/b", "1/4", budget("a/b/c", "1/2")), budget("a/d", "1/4")))
    assert followers(before, after) == [("a", "a/b"), ("a/b/c", "a/b")]
    assert plan(before, after, 0).follows[0].before == replace(before.root.children[0], children=())


def test_the_nearest_change_above_is_the_one_that_is_followed() -> None:
    """Where two budgets on one path change, each follower names the nearer one."""
    before = tree(budget("a", "1/2", budget("a/b", "1/2", budget("a/b/c", "1")), budget("a/d", "1/4")))
    after = tree(budget("a", "1/4", budget("a/b", "1/3", budget("a/b/c", "1")), budget("a/d", "1/4")))
    assert followers(before, after) == [("/", "a"), ("a/b/c", "a/b"), ("a/d", "a")]


def test_two_changes_that_cancel_out_are_followed_by_nobody() -> None:
    """A budget whose effective share is the same as before gets no more and no less."""
    before = tree(budget("a", "1/2", budget("a/b", "1/4", budget("a/b/c", "1/2"))))
    after = tree(budget("a", "1/4", budget("a/b", "1/2", budget("a/b/c", "1/2"))))
    assert followers(before, after) == [("/", "a")]


def test_additions_removals_and_moves_change_what_their_parents_keep() -> None:
    """Both parents of a move, and those of what comes and goes, unless something is written about them anyway."""
    kept = budget("k", "1/8", budget("k/new", "1/2"))
    before = tree(budget("a", "1/4", budget("a/b", "1/2")), budget("c", "1/4"), budget("k", "1/8"))
    after = tree(budget("a", "1/4"), budget("c", "1/4", budget("c/b", "1/2", previously="a/b")), kept)
    assert followers(before, after) == [("a", "c/b"), ("c", "c/b"), ("k", "k/new")]
    gone = tree(budget("a", "1/4"), budget("c", "1/4"), budget("k", "1/8"))
    assert followers(before, gone) == [("a", "a/b")]


def test_everybody_follows_a_pool_or_a_window_of_another_size() -> None:
    """The shares are the same, the GPUs and GPU-hours are not; with a share above, that is the nearer reason."""
    before = tree(budget("a", "1/2", budget("a/b", "1/2")), budget("c", "0"))
    larger = replace(before, pools=(replace(H100, hosts=5),))
    assert followers(before, larger) == [(path, "pools.h100.hosts") for path in ("/", "a", "a/b")]
    longer = replace(before, policy=Policy(lookback=DAY))
    assert followers(before, longer) == [(path, "policy.lookback") for path in ("/", "a", "a/b")]
    both = replace(tree(budget("a", "1/3", budget("a/b", "1/2"))), pools=larger.pools)
    assert followers(before, both) == [("/", "pools.h100.hosts"), ("a/b", "a")]
    assert followers(before, replace(before, policy=Policy(grace_period=HOUR))) == []


def test_people_and_titles_move_nobody_else() -> None:
    """What is not about shares has no followers."""
    before = tree(budget("a", "1/2", budget("a/b", "1/2")))
    after = tree(budget("a", "1/2", budget("a/b", "1/2"), title="A", members=("x",)))
    assert followers(before, after) == []
    assert plan(before, after, 0).field_counts() == {"share": 0, "changes": 0, "title": 1, "managers": 0, "members": 1}


def test_a_plan_is_plain_data() -> None:
    """It survives JSON unchanged."""
    found = plan(tree(budget("a", "1/3")), tree(budget("a", "1/4", budget("a/b", "1/2"))), 0)
    assert plain.decode(Plan, plain.encode(found)) == found
