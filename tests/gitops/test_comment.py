"""What the comment on a pull request says, read as GitHub renders it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.gitops.comment import Place, Problem, of_problems, of_review, verdict
from gpubudget.gitops.load import LoadResult
from gpubudget.gitops.owners import approvals
from gpubudget.gitops.plan import plan
from gpubudget.gitops.review import Approval, Live, Outcome, Replayed, Review, Side, WhatIf, approved
from gpubudget.units import HOUR, MINUTE
from tests.gitops.rendered import Rendered

Load = Callable[..., LoadResult]
Reviewed = Callable[..., Review]

NOW = 1_790_000_000_000
LIMIT = 65_000
PLACE = Place("<!-- mark -->", "", "https://github.com/lab/budgets", "https://github.com/lab/budgets/actions/runs/9")
BEFORE, AFTER = "a" * 40, "b" * 40
EVIL = "</details><script>x</script> @ines #1 http://evil.example | `x` *y*"


def root(children: str) -> dict[str, str]:
    return {"budget.yaml": f"kind: Budget\nmanagers: [ines]\nmembers: [ines]\nchildren:\n{children}"}


@pytest.fixture
def reviewed(load: Load) -> Reviewed:
    """The review of the change from one tree's children of the root to another's."""

    def made(before: str | None, after: str, files: dict[str, str] | None = None, **known: object) -> Review:
        old, new = (
            load(root(children) | (files or {})).tree if children is not None else None for children in (before, after)
        )
        assert new is not None
        found = plan(old, new, NOW)
        sides = (_side("main", BEFORE, old), _side("HEAD", AFTER, new))
        review = Review(*sides, NOW, 7 * 24 * HOUR, "UTC", found, approvals=approvals(old, found))
        return replace(review, **known)  # type: ignore[arg-type] # given by the tests below

    return made


def _side(name: str, commit: str, tree: Tree | None) -> Side:
    return Side(name, commit, plain.digest(tree), sum(1 for _ in tree.budgets()) if tree else 0)


def read(review: Review, place: Place = PLACE, limit: int = LIMIT) -> Rendered:
    text = of_review(review, place, limit)
    assert len(text.encode()) <= limit
    return _sound(Rendered(text))


def _sound(page: Rendered) -> Rendered:
    """Every comment is whole: all tags closed, nothing made of names, no template left, and its mark once."""
    assert page.open == []
    assert page.more_than_text == []
    assert not {"{{", "{%", "}}", "None"} & set(page.text.split())
    assert page.comments == [" mark "]
    assert all(link.startswith("https://github.com/lab/budgets/") for link in page.links)
    return page


def words(text: str) -> str:
    return " ".join(text.replace("\u00a0", " ").split())


def table(page: Rendered, *head: str) -> list[list[str]]:
    """The rows of the table with this head."""
    rows = [[words(cell) for cell in row] for row in page.rows]
    at = rows.index(list(head)) + 1
    found = []
    for row in rows[at:]:
        if len(row) != len(head) or row[0] in {"Budget", "Setting"}:
            break
        found.append(row)
    return found


FIGURES = ("Budget", "Pool", "Share", "Effective share", "GPUs", "GPU-hours in 7d")


def test_a_share_that_changes(reviewed: Reviewed) -> None:
    """The verdict, a row for each pool, who must approve, and both commits in the footer."""
    page = read(reviewed("  a: 50%\n  b: 25%\n", "  a: 45%\n  b: 25%\n"))
    assert page.text.strip().startswith("This changes 1 budget. 1 of 1 decision waits for approval.")
    assert table(page, *FIGURES) == [
        ["a", "h100", "50% → 45%", "50% → 45%", "64 → 57.6", "10,752 → 9,677"],
        ["", "b200", "50% → 45%", "50% → 45%", "16 → 14.4", "2,688 → 2,419"],
    ]
    assert table(page, "Managers of", "Any one of", "What they decide", "") == [["/", "ines", "a (share)", "waiting"]]
    footer = page.text.strip().split("\n")[-1]
    assert footer.startswith(f"main {BEFORE[:12]} → HEAD {AFTER[:12]}, with the shares in force on 2026-09-21 14:13. ")
    assert page.links[:2] == [f"{PLACE.repository}/commit/{BEFORE}", f"{PLACE.repository}/commit/{AFTER}"]


def test_one_pool_needs_no_column(load: Load) -> None:
    """What is the same in every row is not shown."""
    cluster = {"cluster.yaml": "kind: Cluster\npools:\n  h100: {hosts: 16, gpus_per_host: 8}\n"}
    trees = [load(cluster | root(f"  a: {share}\n")).tree for share in ("50%", "1/3")]
    old, new = trees
    assert old
    assert new
    review = Review(_side("main", BEFORE, old), _side("HEAD", AFTER, new), NOW, HOUR, "UTC", plan(old, new, NOW))
    page = read(review)
    assert table(page, "Budget", "Share", "Effective share", "GPUs", "GPU-hours in 1h") == [
        ["a", "50% → 1/3", "50% → ~33.3%", "64 → 42.7", "10,752 → 7,168"]
    ]


def test_budgets_that_come_and_go(reviewed: Reviewed) -> None:
    """They are said to be added and removed, with nothing on the other side; what is charged to whom stands below."""
    page = read(reviewed("  a: 50%\n", "  c: {share: 30%, members: [eva]}\n"))
    assert page.text.strip().startswith("This adds 1 budget and removes 1.")
    rows = table(page, *FIGURES)
    assert rows[0][:3] == ["c added", "h100", "none → 30%"]
    assert rows[2][:3] == ["a removed", "h100", "50% → none"]
    assert "c: new; members +eva" in page.text
    assert "a: removed; what it runs is charged to /" in page.text


def test_a_move_is_a_move(reviewed: Reviewed) -> None:
    """Its figures stay, so only a line tells it."""
    page = read(reviewed("  a: 50%\n", "  c: {share: 50%, previously: a}\n"))
    assert page.text.strip().startswith("This moves 1 budget.")
    assert "c: was a, keeps its history" in page.text
    assert ["Budget", "Pool"] not in [row[:2] for row in page.rows]


def test_what_follows_is_folded(reviewed: Reviewed) -> None:
    """Budgets that only have other figures, or keep another part of themselves, do not stand with those that change."""
    below = {"a/budget.yaml": "kind: Budget\nmanagers: [ines]\nmembers: [ines]\nchildren: {x: 50%, y: 25%}\n"}
    review = reviewed("  a: 50%\n", "  a: 40%\n", below)
    shown, _, folded = of_review(review, PLACE, LIMIT).partition("<details>")
    assert "`a/x`" not in shown
    assert "`a/x` | `h100` | 50% | 25%" in folded.replace("\u00a0", " ")
    assert "- `/`: keeps 50% → 60% for itself" in folded
    assert "3 more budgets with other figures because of this" in read(review).text


def test_settings_have_a_table(load: Load) -> None:
    """Without a change of budgets there is no table of budgets."""
    old = load({}).tree
    assert old is not None
    new = replace(old, policy=replace(old.policy, grace_period=MINUTE))
    review = Review(_side("main", BEFORE, old), _side("HEAD", AFTER, new), NOW, HOUR, "UTC", plan(old, new, NOW))
    page = read(review)
    assert page.text.strip().startswith("This changes 1 setting.")
    assert table(page, "Setting", "Value") == [["policy.grace_period", "30s → 1m"]]
    assert "Budget" not in page.rows[0]


def test_no_changes_says_what_was_compared(reviewed: Reviewed) -> None:
    """One sentence and the footer; no table is empty."""
    page = read(reviewed("  a: 50%\n", "  a: 50%\n"))
    assert page.text.strip().startswith(f"No changes: HEAD ({AFTER[:12]}) against main ({BEFORE[:12]})")
    assert page.rows == []


def test_the_first_tree_of_all(reviewed: Reviewed) -> None:
    """Nobody decides yet; where nothing was before has a name and no commit."""
    review = reviewed(None, "  a: 50%\n")
    page = read(replace(review, before=Side("the daemon", "", "", 0)))
    assert page.text.strip().startswith("This adds 2 budgets and changes ")
    assert "waiting" not in page.text
    assert page.text.strip().split("\n")[-1].startswith(f"the daemon → HEAD {AFTER[:12]},")


def test_approvals_are_grouped_by_who_decides(reviewed: Reviewed) -> None:
    """One row for the same people, what is lacking first; the verdict counts."""
    review = reviewed("  a: 50%\n", "  a: 50%\n")
    many = tuple(Approval(f"a/x{number}", ("share",), "a", ("hanna",)) for number in range(13))
    asked = (
        Approval("a", ("share", "changes"), "/", ("ines", "otto"), ("otto",)),
        *many,
        Approval("b", ("added",), "/", ()),
    )
    changed = reviewed("  a: 50%\n", "  a: 40%\n", approvals=asked)
    rows = table(read(changed), "Managers of", "Any one of", "What they decide", "")
    assert rows[0][:2] == ["a", "hanna"]
    assert rows[0][2].endswith("a/x9 (share) and 3 more")
    assert rows[1:] == [
        ["/", "ines, otto", "a (share, changes)", "approved by otto"],
        ["/", "", "b (added)", "nobody can be asked"],
    ]
    assert "13 of 15 decisions wait for approval." in verdict(changed)
    assert "All that is needed is approved." in verdict(approved(changed, ("INES", "hanna")))
    assert "approv" not in verdict(review)


def test_what_runs_beyond_the_guarantee(reviewed: Reviewed) -> None:
    """It is in the verdict, and folded with the numbers; what is within is not shown."""
    live = (
        Live("a", "h100", 9 * HOUR, 20 * HOUR, -30 * HOUR, 300, 3, 1),
        Live("a", "b200", 9 * HOUR, 20 * HOUR, 10 * HOUR, 3, 0),
    )
    review = reviewed("  a: 50%\n", "  a: 40%\n", live=live)
    page = read(review)
    assert "1 GPU that runs now would no longer be within a guarantee." in page.text
    head = ("Budget", "Pool", "Running GPUs", "Beyond", "Balance in GPU-hours")
    assert table(page, *head) == [["a", "h100", "300", "3", "20 → -30"]]


def test_a_gpu_that_several_budgets_lose_counts_once(reviewed: Reviewed) -> None:
    """Below ``a`` more is lost than by ``a`` itself, below ``b`` less; pools are added up."""

    def lost(path: str, losing: int, pool: str = "h100") -> Live:
        return Live(path, pool, 0, 0, 0, 99, losing, losing)

    live = (lost("a/x", 4), lost("a", 5), lost("a/y/z", 3), lost("b", 6), lost("b/x", 2), lost("b/x", 1, "b200"))
    assert "14 GPUs that run now" in verdict(reviewed("  a: 50%\n", "  a: 40%\n", live=live))
    gains = (Live("a", "h100", 0, 0, 0, 99, 9, 0),)
    assert "GPU" not in verdict(reviewed("  a: 50%\n", "  a: 60%\n", live=gains))


def test_drift_stands_apart(reviewed: Reviewed) -> None:
    """What the daemon has beside git is a warning of its own, and no change of this plan."""
    review = reviewed("  a: 50%\n", "  a: 50%\n")
    drift = reviewed("  a: 50%\n  b: 1%\n", "  a: 40%\n").plan
    page = read(replace(review, drift=drift))
    assert "[!WARNING]" in page.text
    assert "An apply would mend this as well: a, b removed." in words(page.text)


def test_what_if(reviewed: Reviewed) -> None:
    """Waits, delivered GPU-hours and preemptions before and after, and what a replay cannot know."""

    def fared(median: int | None, hours: int, preempted: int) -> Replayed:
        return Replayed(10, median, median, hours * HOUR, preempted)

    outcomes = (
        Outcome("a", touched=True, before=fared(10 * MINUTE, 43_008, 12), after=fared(15 * MINUTE, 38_000, 1_200)),
        Outcome("b", touched=False, before=fared(None, 0, 0), after=fared(MINUTE, 10, 0)),
    )
    what_if = WhatIf("the daemon's history", NOW - 24 * HOUR, NOW, 18_422, outcomes, ("People adapt.", EVIL))
    page = read(reviewed("  a: 50%\n", "  a: 40%\n", what_if=what_if))
    assert "The 18,422 workloads of the daemon's history, 2026-09-20 14:13 to 2026-09-21 14:13" in page.text
    head = ("Budget", "Median wait", "p90 wait", "GPU-hours", "Preempted")
    assert table(page, *head) == [
        ["a", "10m → 15m", "10m → 15m", "43,008 → 38,000", "12 → 1,200"],
        ["hit hardest:", "", "", "", ""],
        ["b", "none → 1m", "none → 1m", "0 → 10", "0"],
    ]
    assert "People adapt." in page.text


def test_notes_and_a_merge_are_told(reviewed: Reviewed) -> None:
    """What is out of the ordinary stands above the footer."""
    review = reviewed("  a: 50%\n", "  a: 40%\n", notes=("main went on meanwhile", EVIL))
    page = read(replace(review, after=replace(review.after, merged=BEFORE, name=AFTER)))
    assert "Note: main went on meanwhile." in page.text
    assert f"→ {AFTER[:12]}, as it will be once merged, with" in page.text


def test_names_are_only_text(reviewed: Reviewed) -> None:
    """Whatever stands in a title, a ref or a note; people are not called by it."""
    review = reviewed(
        "  a: {share: 50%, members: [ines]}\n", "  a: {share: 50%, members: [hanna], title: '@ines #7'}\n"
    )
    evil = Side(EVIL, AFTER, "", 1)
    page = read(replace(review, notes=(EVIL,), before=evil, after=replace(evil, commit="")))
    assert "a: title '@\u200bines" in page.text
    assert "script" not in page.tags
    assert page.tags.count("details") == 0


def test_several_trees_are_told_apart(reviewed: Reviewed) -> None:
    """A comment about one of several says which."""
    page = read(reviewed("  a: 50%\n", "  a: 40%\n"), replace(PLACE, title="clusters/b200"))
    assert page.codes[0] == "clusters/b200"


def test_without_github_there_are_no_links(reviewed: Reviewed) -> None:
    """The same text serves `plan -o markdown`."""
    page = Rendered(of_review(reviewed("  a: 50%\n", "  a: 40%\n"), Place(), LIMIT))
    assert page.links == page.comments == []
    assert "See" not in page.text


def test_problems_in_place_of_a_plan() -> None:
    """Budgets that are not valid: how many errors, each with its place and its way out."""
    problems = [Problem("budgets/budget.yaml:3:7", EVIL, "write 5%"), Problem("cluster.yaml:1:1", "no pools", "")]
    page = _sound(Rendered(of_problems(problems, replace(PLACE, commit=AFTER), LIMIT)))
    assert page.links == [f"{PLACE.repository}/commit/{AFTER}"]
    assert page.text.strip().startswith("These budgets are not valid: 2 errors.")
    assert page.codes == ["budgets/budget.yaml:3:7", "cluster.yaml:1:1", AFTER[:12]]
    assert "(write 5%)" in page.text


def test_what_is_too_long_is_cut_with_a_link(reviewed: Reviewed) -> None:
    """Rows are left out and counted, the whole is linked, nothing is cut in its middle (infracost#1958)."""
    children = [f"  name-{number:03d}: {{}}\n" for number in range(500)]
    review = reviewed(*("".join(children).replace("{}", share) for share in ("1/2000", "1/2001")))
    for limit in (60_000, 20_000, 4_000):
        page = read(review, limit=limit)
        assert "This changes 500 budgets." in page.text
        rows = sum(len(row) == len(FIGURES) for row in page.rows) - 1
        left = [words(line) for line in page.text.split("\n") if line.endswith("more in the whole.")]
        assert 10 < rows < 1_000
        assert left[0] == f"{1_000 - rows} more in the whole."
        assert PLACE.whole in page.links
        assert "Cut to fit: see the whole." in page.text
        assert limit - 300 < len(of_review(review, PLACE, limit).encode()) <= limit


def test_many_problems_are_cut_too() -> None:
    """The same limit."""
    problems = [Problem(f"budgets/x{number}.yaml:1:1", "é" * 400, "h" * 400) for number in range(3_000)]
    text = of_problems(problems, PLACE, LIMIT)
    assert 60_000 < len(text.encode()) <= LIMIT
    assert "3000 errors" in text
    _sound(Rendered(text))
