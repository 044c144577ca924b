"""Who must approve what, always by the tree before; and CODEOWNERS, which says the same for files."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gpubudget.core.budget import Budget, DatedShares, Policy, Pool, Shares, Tree
from gpubudget.gitops.owners import approvals, codeowners, renewed
from gpubudget.gitops.plan import plan

PLAIN = Policy()


def budget(path: str, managers: str = "", *children: Budget, share: str = "1/4", **more: object) -> Budget:
    names = tuple(managers.split())
    return Budget(path, Shares(Fraction(share)), managers=names, children=children, **more)  # type: ignore[arg-type]


def tree(*children: Budget, managers: str = "ines", policy: Policy = PLAIN) -> Tree:
    return Tree(budget("/", managers, *children, share="1"), (Pool("h100", 8, 4),), policy)


def needed(before: Tree, after: Tree) -> list[tuple[str, str, str, str]]:
    """(budget, what, who decides, their managers) of each decision."""
    found = approvals(before, plan(before, after, 0))
    return [(one.path, " ".join(one.what), one.decides, " ".join(one.managers)) for one in found]


BEFORE = tree(
    budget("a", "anna", budget("a/x", "xena"), budget("a/y", "", members=("yann",))), budget("b", "ben"), budget("c")
)


def test_a_share_is_decided_by_the_parents_managers() -> None:
    """It stands in their file; dated changes are shares too."""
    dated = (DatedShares(1, 2, Shares(Fraction(1, 5))),)
    after = tree(
        budget("a", "anna", budget("a/x", "xena", share="1/3"), budget("a/y", "", members=("yann",), changes=dated)),
        budget("b", "ben", share="1/5"),
        budget("c"),
    )
    assert needed(BEFORE, after) == [
        ("a/x", "share", "a", "anna"),
        ("a/y", "changes", "a", "anna"),
        ("b", "share", "/", "ines"),
    ]


def test_people_and_titles_are_decided_by_the_budgets_own_managers() -> None:
    """By those it had before: who makes himself a manager cannot approve that (codeowners-plus#69's kind)."""
    after = tree(
        budget("a", "mallory", budget("a/x", "xena", title="X"), budget("a/y", "", members=("yann", "zoe"))),
        budget("b", "ben"),
        budget("c"),
    )
    assert needed(BEFORE, after) == [
        ("a", "managers", "a", "anna"),
        ("a/x", "title", "a/x", "xena"),
        ("a/y", "members", "a", "anna"),
    ]


def test_a_share_and_a_title_are_two_decisions() -> None:
    """One by the parent's managers, one by the budget's own."""
    after = tree(BEFORE.root.children[0], budget("b", "ben", share="1/5", title="B"), budget("c"))
    assert needed(BEFORE, after) == [("b", "share", "/", "ines"), ("b", "title", "b", "ben")]


def test_what_is_removed_needs_an_approval_at_every_level() -> None:
    """Each share that ends is decided by whoever had decided it."""
    assert needed(BEFORE, tree(budget("b", "ben"), budget("c"))) == [
        ("a", "removed", "/", "ines"),
        ("a/x", "removed", "a", "anna"),
        ("a/y", "removed", "a", "anna"),
    ]


def test_what_is_added_below_something_new_is_decided_by_the_nearest_that_was_there() -> None:
    """The managers that a new budget names decide nothing yet."""
    new = budget("b/n", "nina", budget("b/n/m", "mia"))
    after = tree(BEFORE.root.children[0], budget("b", "ben", new), budget("c"))
    assert needed(BEFORE, after) == [("b/n", "added", "b", "ben"), ("b/n/m", "added", "b", "ben")]


def test_a_move_is_for_the_managers_of_both_parents() -> None:
    """What moves along with it needs nobody; a share that changes with the move is for the new parent's."""
    x = budget("b/x", "xena", budget("b/x/z"), previously="a/x")
    before = tree(budget("a", "anna", budget("a/x", "xena", budget("a/x/z"))), budget("b", "ben"))
    after = tree(budget("a", "anna"), budget("b", "ben", x))
    assert needed(before, after) == [("b/x", "moved", "a", "anna"), ("b/x", "moved", "b", "ben")]
    more = tree(budget("a", "anna"), budget("b", "ben", replace(x, shares=Shares(Fraction(1, 2)), title="X")))
    assert needed(before, more) == [
        ("b/x", "moved", "a", "anna"),
        ("b/x", "moved share", "b", "ben"),
        ("b/x", "title", "a/x", "xena"),
    ]
    renamed = tree(budget("a", "anna", budget("a/w", "xena", budget("a/w/z"), previously="a/x")), budget("b", "ben"))
    assert needed(before, renamed) == [("a/w", "moved", "a", "anna")]


def test_below_a_moved_budget_its_former_self_decides() -> None:
    """The managers of a budget that is renamed in the same change still decide what is in it."""
    before = tree(budget("a", "anna", budget("a/x", "xena")))
    after = tree(budget("z", "mallory", budget("z/x", "xena", share="1/2"), budget("z/new"), previously="a"))
    assert needed(before, after) == [
        ("z", "moved", "/", "ines"),
        ("z", "managers", "a", "anna"),
        ("z/x", "share", "a", "anna"),
        ("z/new", "added", "a", "anna"),
    ]


def test_settings_are_for_the_managers_of_the_root() -> None:
    """Policy and pools concern everybody; together with the root's own title they are one decision."""
    after = replace(BEFORE, policy=Policy(lookback=5))
    assert needed(BEFORE, after) == [("/", "settings", "/", "ines")]
    titled = replace(after, root=replace(after.root, title="Lab"))
    assert needed(BEFORE, titled) == [("/", "title settings", "/", "ines")]


def test_where_nobody_manages_the_next_above_decides_and_at_last_nobody() -> None:
    """A budget without managers is decided by those above; where no manager is named there is nobody to ask."""
    quiet = tree(budget("a", "", budget("a/x")), managers="")
    after = tree(budget("a", "", budget("a/x", share="1/3")), managers="ines")
    found = approvals(quiet, plan(quiet, after, 0))
    assert [(one.path, one.decides, one.managers, one.lacking) for one in found] == [
        ("/", "/", (), False),
        ("a/x", "/", (), False),
    ]


def test_the_first_tree_and_what_only_follows_need_no_approval() -> None:
    """Nobody decides before there is a tree."""
    assert approvals(None, plan(None, BEFORE, 0)) == ()
    assert approvals(BEFORE, plan(BEFORE, BEFORE, 0)) == ()


# CODEOWNERS

FILES = {"cluster.yaml", "budget.yaml", "a/budget.yaml", "a/x/budget.yaml", "c/budget.yaml"}


def test_each_file_belongs_to_the_managers_of_the_shares_in_it() -> None:
    """The last line that fits counts, so children stand below; leaves without a file and managers have no line."""
    assert codeowners(BEFORE, FILES, "budgets", ".github/CODEOWNERS").splitlines()[1:-1] == [
        "/budgets/ @ines",
        "/.github/CODEOWNERS @ines",
        "/budgets/a/ @anna",
        "/budgets/a/x/ @xena",
    ]


def test_a_tree_at_the_top_of_its_repository_owns_all_of_it() -> None:
    """Then the root's managers own every other file, this one too."""
    lines = codeowners(tree(budget("a", "anna kim")), FILES, ".", "CODEOWNERS").splitlines()[1:-1]
    assert lines == ["* @ines", "/a/ @anna @kim"]
    assert codeowners(tree(managers=""), FILES, "/", "CODEOWNERS").count("\n") == 2


def test_odd_folder_names_are_escaped() -> None:
    """A space or a star in the way to the tree is not read as the end of a pattern or as one."""
    assert r"/my\ tree/\*/ @ines" in codeowners(tree(), FILES, "my tree/*", "")


def test_lines_of_others_stay_when_ours_are_made_anew() -> None:
    """Only what stands between our marks changes, wherever it is; making it twice changes nothing."""
    block = codeowners(tree(), FILES, "budgets")
    other = codeowners(tree(managers="otto"), FILES, "budgets")
    assert renewed("", block) == block
    first = renewed("* @everyone\n", other)
    assert first == f"* @everyone\n\n{other}"
    second = renewed(first + "/docs/ @writers\n", block)
    assert second == f"* @everyone\n\n{block}/docs/ @writers\n"
    assert renewed(second, block) == second
    assert renewed("# gpubudget owners: begin, and no end\n", block).endswith(block)
