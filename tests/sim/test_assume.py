"""What a trace does not say is made up from a seed, and every assumption is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from gpubudget.core.budget import Budget, Policy, Pool, Shares, Tree
from gpubudget.errors import InvalidInputError
from gpubudget.sim import assume, grouptree
from gpubudget.sim.assume import Assumed
from gpubudget.sim.submission import BadRow, Ending, Failure, Fault, Workloads
from gpubudget.sim.traces import Trace, TraceRow
from gpubudget.units import HOUR, MINUTE

POOLS = (Pool("p", 8, 2),)


def trace(number: int = 2_000, group: str = "g", user: str = "") -> Trace:
    rows = (TraceRow(i, f"j{i}", i * MINUTE, user, group, 4, HOUR, None) for i in range(number))
    return Trace("t", tuple(rows), (BadRow(9, "odd"),))


def made(found: Trace, assumed: Assumed) -> tuple[Tree, Workloads]:
    named = assume.name(found, assumed)
    tree, _ = grouptree.tree_of(named.members(), POOLS, Policy())
    return tree, assume.workloads(found, named, [group for group, _ in named.who], tree, assumed)


def test_users_are_drawn_by_a_zipf_law() -> None:
    """Of ten, the busiest submits 2**0.9 times as much as the second; the trace's own names are kept."""
    named = assume.name(trace(), Assumed())
    counts = Counter(user for _, user in named.who).most_common()
    assert [name for name, _ in counts[:2]] == ["g-u1", "g-u2"]
    assert counts[0][1] / counts[1][1] == pytest.approx(2**0.9, rel=0.15)
    assert named.assumptions == (
        "2,000 of 2,000 workloads name no user: each group has 10 made-up ones (Zipf, s = 0.9).",
    )
    assert assume.name(trace(user="uma"), Assumed()).who[0] == ("g", "uma")
    assert assume.name(trace(user="uma"), Assumed()).assumptions == ()


def test_a_trace_without_groups_gets_some() -> None:
    """As many as are asked for."""
    named = assume.name(trace(group=""), Assumed(groups=3))
    assert set(named.members()) == {"group1", "group2", "group3"}
    assert named.assumptions[0].startswith("2,000 of 2,000 workloads name no group: they were dealt to 3 made-up ones")


def test_minimum_runtimes_are_a_part_of_the_run_time_within_bounds() -> None:
    """From a tenth to all of it, at least a minute, at most what the policy allows."""
    _, found = made(trace(), Assumed())
    parts = [each.spec.min_runtime / each.run_time for each in found.submissions]
    assert min(parts) >= 0.09
    assert max(parts) <= 1
    assert sum(parts) / len(parts) == pytest.approx(0.55, abs=0.02)
    short = replace(
        trace(), rows=(replace_row(trace().rows[0], run_time=1000), replace_row(trace().rows[1], 99 * HOUR))
    )
    _, found = made(short, Assumed(least_part=Fraction(1)))
    assert [each.spec.min_runtime for each in found.submissions] == [MINUTE, 8 * HOUR]


def replace_row(row: TraceRow, run_time: int) -> TraceRow:
    return row._replace(run_time=run_time)


def test_parts_of_the_workloads_are_unallocated_or_not_resumable() -> None:
    """About as many as are asked for, and another share of one leaves the others as they were."""
    _, found = made(trace(), Assumed(unallocated=Fraction(1, 5), resumable=Fraction(1, 2)))
    specs = [each.spec for each in found.submissions]
    assert sum(not spec.allocated for spec in specs) == pytest.approx(400, abs=60)
    assert sum(spec.resumable for spec in specs) == pytest.approx(1000, abs=80)
    _, other = made(trace(), Assumed(resumable=Fraction(1, 2)))
    assert [s.spec.resumable for s in other.submissions] == [spec.resumable for spec in specs]
    pairs = zip(specs, (each.spec for each in other.submissions), strict=True)
    assert all(one.min_runtime == two.min_runtime for one, two in pairs if one.allocated)


def test_all_that_was_assumed_is_told() -> None:
    """One sentence each, and the bad rows of the trace with them."""
    _, found = made(trace(), Assumed())
    assert found.assumptions == (
        "2,000 of 2,000 workloads name no user: each group has 10 made-up ones (Zipf, s = 0.9).",
        found.assumptions[1],
        "All workloads are allocated.",
        "100% of the workloads can go on where they were stopped.",
        "2,000 of 2,000 workloads do not say how they ended: taken as finished.",
    )
    assert "each is 10% to 100% of the run time, drawn evenly, at least 1m and at most 8h." in found.assumptions[1]
    assert found.bad_rows == (BadRow(9, "odd"),)
    assert {each.ending for each in found.submissions} == {Ending.FINISHED}


def test_a_load_is_reached_by_moving_submissions() -> None:
    """Sizes and run times stay; what else happens moves along."""
    _, found = made(trace(), Assumed())
    found = replace(found, failures=(Failure(1000 * MINUTE, "h", Fault.LOST, HOUR),))
    scaled = assume.scale_load(found, 16, Fraction(5, 2))
    asked = sum(each.spec.gpus * each.run_time for each in scaled.submissions)
    span = scaled.submissions[-1].at - scaled.submissions[0].at
    assert asked / (16 * span) == pytest.approx(2.5, rel=0.001)
    assert scaled.failures[0].at == pytest.approx(scaled.submissions[1000].at, abs=1)
    assert scaled.assumptions[-1].startswith("Gaps between submissions were multiplied by 6.00")
    with pytest.raises(InvalidInputError, match="the load must be above 0"):
        assume.scale_load(found, 16, Fraction(0))


def test_groups_find_their_budgets_in_another_tree() -> None:
    """By path, by name, by the user below; strangers are dealt out, the busiest to the largest share."""
    half, third = Shares(Fraction(1, 2)), Shares(Fraction(1, 3))
    inner = Budget("x", half, children=(Budget("x/y", half), Budget("x/uma", third)))
    tree = Tree(Budget("/", Shares(Fraction(1)), children=(inner, Budget("z", third))), POOLS)
    rows = tuple(
        TraceRow(i, f"j{i}", i, user, group, gpus, HOUR, None)
        for i, (group, user, gpus) in enumerate(
            [("x", "uma", 1), ("x", "ben", 1), ("y", "ben", 1), ("s1", "a", 1), ("s2", "a", 4)]
        )
    )
    found = Trace("t", rows, ())
    payers, notes = assume.payers_in(tree, assume.name(found, Assumed()), found)
    assert payers == ["x/uma", "x", "x/y", "x/y", "z"]
    assert notes[0].startswith("2 groups of the trace are no budgets of the tree: dealt to its 3 budgets")


def test_a_tree_is_made_from_groups() -> None:
    """Equal shares, which are exact; members are those who submit; users may have budgets of their own."""
    members = {"a": ["a-u1", "a-u2"], "b": ["b-u1"], "c": ["c-u1"]}
    tree, notes = grouptree.tree_of(members, POOLS, Policy(), users=True)
    assert [(b.path, b.shares.default) for b in tree.root.children] == [(g, Fraction(1, 3)) for g in "abc"]
    assert [b.path for b in tree.root.children[0].children] == ["a/a-u1", "a/a-u2"]
    assert tree.root.children[0].members == ("a-u1", "a-u2")
    assert notes == (
        "The trace says nothing of shares: its 3 groups have equal ones.",
        "Below each group its users share evenly.",
    )


def test_weights_make_shares(tmp_path: Path) -> None:
    """A group that the file does not name gets the smallest weight, and that is told."""
    path = tmp_path / "weights.csv"
    path.write_text("vc,node num\na,6\nb,2\nelsewhere,1\n")
    weights = grouptree.read_weights(path)
    tree, notes = grouptree.tree_of({"a": [], "b": [], "c": []}, POOLS, Policy(), weights=weights)
    assert [budget.shares.default for budget in tree.root.children] == [Fraction(6, 9), Fraction(2, 9), Fraction(1, 9)]
    assert notes == ("Without a weight of their own, these have the smallest: c.",)


@pytest.mark.parametrize("line", ["a", "a,0", "a,-1", ",5", "a,much", "a,1\na,2", "a,1/0"])
def test_bad_weights_are_told_with_their_line(tmp_path: Path, line: str) -> None:
    """What stands there is shown."""
    path = tmp_path / "weights.csv"
    path.write_text(f"group,weight\n{line}\n")
    with pytest.raises(InvalidInputError, match=r"line \d: '.*' is not a group with a weight above 0"):
        grouptree.read_weights(path)
    path.write_text("group,weight\n")
    with pytest.raises(InvalidInputError, match="holds no weights"):
        grouptree.read_weights(path)
    path.write_text("group,hosts\n" + "a" * 200_000)
    with pytest.raises(InvalidInputError, match="is not CSV: field larger than"):
        grouptree.read_weights(path)
