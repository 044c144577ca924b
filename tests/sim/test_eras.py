"""Trees that are applied one after the other: whose share was in force when, in the paths of the last one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gpubudget.errors import InvalidInputError
from gpubudget.sim.eras import Eras
from gpubudget.sim.measures import measure
from gpubudget.sim.result import End, Preemption
from gpubudget.units import HOUR
from tests.made_runs import Did, made, tree

FIRST = tree({"a": "1/2", "a/x": "1/2", "a/old": "1/4", "b": "1/2"})
SECOND = tree({"a": "1/4", "a/y": "1/2", "b": "1/2", "c": "1/4"}, previously={"a/y": "a/x"})
THIRD = tree({"b": "1/2", "d": "1/2", "d/y": "1/2"}, previously={"d": "a", "a/y": "a/x"})


def test_what_was_charged_to_a_former_path_is_the_last_ones() -> None:
    """Through two renames, the second of a budget above; what was removed counts above; what never was counts too."""
    eras = Eras([(0, FIRST), (HOUR, SECOND), (2 * HOUR, THIRD)])
    first = {path: eras.account_of(path, 0) for path in ("/", "a", "a/x", "a/old", "b")}
    assert first == {"/": "/", "a": "d", "a/x": "d/y", "a/old": "d", "b": "b"}
    assert {path: eras.account_of(path, HOUR) for path in ("a", "a/y", "c")} == {"a": "d", "a/y": "d/y", "c": "/"}
    assert {path: eras.account_of(path, 9 * HOUR) for path in ("d/y", "d/new", "a/x", "c")} == {
        "d/y": "d/y", "d/new": "d", "a/x": "d/y", "c": "/",
    }  # fmt: skip
    assert eras.account_of("d/y", 0) == "d/y"  # a workload that came before, and was moved there


def test_a_path_that_is_used_again_is_that_of_another_budget() -> None:
    """What it was before went along with the rename, or to the budget above."""
    one = tree({"seeing": "1/2", "robots": "1/4"})
    two = tree({"vision": "1/2"}, previously={"vision": "seeing"})
    three = tree({"vision": "1/2", "seeing": "1/4", "robots": "1/4"})
    eras = Eras([(0, one), (HOUR, two), (2 * HOUR, three)])
    assert [eras.account_of("seeing", at) for at in (0, HOUR, 2 * HOUR)] == ["vision", "vision", "seeing"]
    assert [eras.account_of("robots", at) for at in (0, HOUR, 2 * HOUR)] == ["/", "/", "robots"]


def test_shares_are_those_in_force_and_add_up_to_the_whole() -> None:
    """What a removed budget had is the reserve's above it."""
    eras = Eras([(0, FIRST), (HOUR, SECOND), (2 * HOUR, THIRD)])
    stretches = eras.shares("p", [0, HOUR, 90 * 60_000, 2 * HOUR, 3 * HOUR])
    assert [first for first, _ in stretches] == [0, 1, 3]
    own = [{path: Fraction(part, shares.scale) for path, part in shares.own.items()} for _, shares in stretches]
    assert own[0] == {"/": 0, "d": Fraction(1, 4), "d/y": Fraction(1, 4), "b": Fraction(1, 2)}
    assert own[1] == {"/": Fraction(1, 4), "d": Fraction(1, 8), "d/y": Fraction(1, 8), "b": Fraction(1, 2)}
    assert own[2] == {"/": 0, "d": Fraction(1, 4), "d/y": Fraction(1, 4), "b": Fraction(1, 2)}
    whole = [{path: Fraction(part, shares.scale) for path, part in shares.whole.items()} for _, shares in stretches]
    assert [each["d"] for each in whole] == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 2)]
    assert [each["/"] for each in whole] == [1, 1, 1]


def test_trees_before_the_first_sample_are_over() -> None:
    """Only the last of them counts."""
    eras = Eras([(0, FIRST), (HOUR, SECOND)])
    ((first, shares),) = eras.shares("p", [5 * HOUR, 6 * HOUR])
    assert (first, Fraction(shares.whole["a"], shares.scale)) == (0, Fraction(1, 4))


def test_figures_follow_the_trees() -> None:
    """``b`` is entitled to 4 of 8 GPUs all the time, ``d`` to 4, 2 and 4; its work under other names is its own."""
    did = [
        Did("w1", "a/x", 2, 0, HOUR, [(0, HOUR)]),
        Did("w2", "a/y", 2, HOUR, HOUR, [(HOUR, 2 * HOUR)]),
        Did("w3", "d/y", 2, 2 * HOUR, HOUR, [(2 * HOUR, 3 * HOUR)]),
        Did("w4", "a/old", 1, 0, HOUR, [(0, HOUR)]),
    ]
    stop = Preemption(HOUR, "w1", 1, "a/x", allocated=True, gpus=2, started=0, protected_until=0, lost_gpu_ms=0,
                      beneficiary="w2", beneficiary_budget="a/y")  # fmt: skip
    run = made(FIRST, did, until=3 * HOUR, later=[(HOUR, SECOND), (2 * HOUR, THIRD)], preemptions=[stop])
    found = {budget.path: budget for budget in measure(run).budgets}
    assert {path: each.entitled_gpu_ms // HOUR for path, each in found.items()} == {"/": 24, "b": 12, "d": 10, "d/y": 5}
    assert {path: each.delivered_gpu_ms // HOUR for path, each in found.items()} == {"/": 7, "b": 0, "d": 7, "d/y": 6}
    assert [found[path].workloads for path in ("/", "d", "d/y")] == [4, 4, 3]
    assert (found["d/y"].preempted, found["d/y"].preempting, found["d"].share) == (1, 1, Fraction(1, 2))
    assert {layer.name for layer in measure(run).series.programs} == {"d"}
    assert [(pair.victim, pair.beneficiary) for pair in measure(run).preemptions.pairs] == [("d", "d")]


def test_what_came_before_a_moment_is_a_warm_up() -> None:
    """Figures of GPU-time begin there; who came earlier is in no wait, and what it held then in no sum."""
    did = [
        Did("w1", "a/x", 2, 0, HOUR, [(0, HOUR)]),
        Did("w2", "a/x", 4, HOUR, 4 * HOUR, [(HOUR, 5 * HOUR, 3 * HOUR)], preemptions=1),
        Did("w3", "b", 2, 3 * HOUR, HOUR, [(4 * HOUR, 5 * HOUR)]),
        Did("w4", "b", 1, 0, 5 * HOUR, [(HOUR, 6 * HOUR)], allocated=False),
        Did("w5", "b", 99, 3 * HOUR, 1, end=End.REFUSED, ended=3 * HOUR),
        Did("w6", "b", 99, HOUR, 1, end=End.REFUSED, ended=HOUR),
        Did("w7", "b", 1, 6 * HOUR, HOUR, [(6 * HOUR, 7 * HOUR)]),
    ]
    run = made(FIRST, did, until=7 * HOUR).since(2 * HOUR + 1)
    found = measure(run)
    budgets = {budget.path: budget for budget in found.budgets}
    assert (found.start_ms, found.workloads, len(run.rows)) == (3 * HOUR, 3, 5)
    assert [refusal.workloads for refusal in run.refusals] == [1]
    assert found.held_gpu_ms == (4 * 2 + 2 + 3 + 1) * HOUR
    assert (found.lost_gpu_ms, budgets["a/x"].lost_gpu_ms) == (8 * HOUR, 8 * HOUR)
    assert (budgets["a/x"].workloads, budgets["a/x"].delivered_gpu_ms) == (0, 8 * HOUR)
    assert (budgets["b"].workloads, budgets["b"].delivered_gpu_ms) == (3, 3 * HOUR)
    assert (budgets["b"].unallocated_gpu_ms, budgets["b"].entitled_gpu_ms) == (3 * HOUR, 16 * HOUR)
    assert found.waits[0].first.largest_ms == HOUR
    whole = made(FIRST, did, until=7 * HOUR)
    assert replace(whole.since(0), refusals=()) == whole


@pytest.mark.parametrize("moment", [6 * HOUR + 1, 7 * HOUR, 100 * HOUR])
def test_a_warm_up_that_nothing_follows_is_an_error(moment: int) -> None:
    """With how long it is at most."""
    run = made(FIRST, [Did("w", "b", 2, 0, HOUR, [(0, HOUR)])], until=7 * HOUR, loaded=6 * HOUR)
    with pytest.raises(InvalidInputError, match="nothing comes after the warm-up: 6h from the first submission"):
        run.since(moment)
