"""Fairness: the fair target, share error, Jain's index, finish-time fairness and impact, by hand and by brute force."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubudget.core.budget import Budget
from gpubudget.sim.eras import Shares
from gpubudget.sim.fairness import (
    SharePoint,
    Standing,
    arrived,
    by_program,
    fair_targets,
    fairness,
    fill,
    finish_times,
    impact,
    jain,
    moments,
    share_error,
    standings,
)
from gpubudget.sim.gputime import GpuTime
from gpubudget.sim.result import End
from gpubudget.units import DAY, HOUR
from tests.made_runs import Did, made, tree

HALVES = tree({"a": "1/2", "b": "1/2"}, lookback=DAY)


@pytest.mark.parametrize(
    ("amount", "wants", "parts"),
    [
        (100, [(1, 1000), (1, 1000)], [50, 50]),
        (100, [(3, 1000), (1, 1000)], [75, 25]),
        (100, [(1, 10), (1, 1000)], [10, 90]),  # what one does not want goes to the other
        (100, [(1, 10), (1, 20)], [10, 20]),
        (90, [(1, 10), (1, 1000), (3, 1000)], [10, 20, 60]),
        (100, [(1, 1000), (0, 1000)], [100, 0]),  # without a weight there is only what others leave
        (100, [(1, 30), (0, 1000)], [30, 70]),
        (0, [(1, 10)], [0]),
        (5, [], []),
    ],
)
def test_filling_by_hand(amount: int, wants: list[tuple[int, int]], parts: list[int]) -> None:
    """An amount is divided in proportion to weights, and nobody gets more than it demands."""
    assert fill(amount, wants) == parts


@given(st.integers(0, 10_000), st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5_000)), min_size=1, max_size=6))
def test_filling_against_looking_for_the_level(amount: int, wants: list[tuple[int, int]]) -> None:
    """There is one level per weight at which everybody is full or satisfied; here it is found by halving."""
    low, high = Fraction(0), Fraction(10_001)
    for _ in range(60):
        level = (low + high) / 2
        if sum(min(Fraction(demand), level * weight) for weight, demand in wants) > amount:
            high = level
        else:
            low = level
    for part, (weight, demand) in zip(fill(amount, wants), wants, strict=True):
        assert abs(part - min(Fraction(demand), low * weight)) <= len(wants)


def test_targets_are_divided_from_the_root_down() -> None:
    """Of 100, ``a`` gets its half; ``a/one`` wants little, so what it leaves stays in ``a`` with ``a/two``."""
    root = tree({"a": "1/2", "a/one": "1/2", "a/two": "1/2", "b": "1/2"}).root
    demand = {"a/one": 5, "a/two": 500, "b": 500}
    assert fair_targets(root, Shares(root, "p", 0), demand, 100) == {"/": 0, "a": 0, "a/one": 5, "a/two": 45, "b": 50}


def test_what_a_budget_keeps_is_one_more_sibling() -> None:
    """The root gives away three quarters; the quarter that it keeps is its own members'."""
    root = tree({"a": "1/4", "b": "1/2"}).root
    demand = {"/": 999, "a": 999, "b": 999}
    assert fair_targets(root, Shares(root, "p", 0), demand, 100) == {"/": 25, "a": 25, "b": 50}


def _brute(
    budget: Budget, effective: Fraction, demand: dict[str, int], level: dict[str, Fraction], out: set[str]
) -> None:
    """Mark with ``level`` what each leaf would get next if a drop fell from the root, skipping the satisfied."""
    open_children = [child for child in budget.children if _hungry(child, demand, out)]
    total = sum((child.shares.default for child in open_children), Fraction(0))
    for child in open_children:
        part = effective * child.shares.default / total
        if child.children:
            _brute(child, part, demand, level, out)
        else:
            level[child.path] = part


def _hungry(budget: Budget, demand: dict[str, int], out: set[str]) -> bool:
    leaves = [one.path for one in budget.walk() if not one.children]
    return any(demand.get(path, 0) and path not in out for path in leaves)


@given(st.lists(st.integers(0, 40), min_size=5, max_size=5), st.integers(0, 120))
def test_targets_against_pouring_drop_by_drop(demands: list[int], amount: int) -> None:
    """Poured from the root in small drops, past whoever is satisfied, it comes to rest at the targets."""
    root = tree(
        {"a": "1/2", "a/x": "1/3", "a/y": "2/3", "b": "1/3", "b/z": "1", "c": "1/6", "c/v": "1/2", "c/w": "1/2"}
    ).root
    scale = 1000
    demand = {path: wanted * scale for path, wanted in zip(("a/x", "a/y", "b/z", "c/v", "c/w"), demands, strict=True)}
    targets = fair_targets(root, Shares(root, "p", 0), demand, amount * scale)
    got: dict[str, Fraction] = dict.fromkeys(demand, Fraction(0))
    left = Fraction(min(amount * scale, sum(demand.values())))
    out = {path for path, wanted in demand.items() if not wanted}
    while left > 0:
        rates: dict[str, Fraction] = {}
        _brute(root, Fraction(1), demand, rates, out)
        drop = min(left, *((demand[path] - got[path]) / rate for path, rate in rates.items()))
        for path, rate in rates.items():
            got[path] += rate * drop
        left -= drop
        out |= {path for path in demand if got[path] == demand[path]}
    for path, part in got.items():
        assert abs(targets.get(path, 0) - part) <= 4


def _accounts(**got: tuple[int, int, int]) -> dict[tuple[int, str], Standing]:
    return {(0, path.replace("_", "/")): Standing(*one) for path, one in got.items()}


def test_share_error_by_hand() -> None:
    """Of 8, ``a`` got 6 and should have had 4: a quarter would have to move. Nothing given is nothing wrong."""
    assert share_error(_accounts(a=(6, 9, 4), b=(2, 9, 4))) == Fraction(1, 4)
    assert share_error(_accounts(a=(4, 9, 4), b=(4, 9, 4))) == 0
    assert share_error(_accounts(a=(0, 0, 0))) is None


def test_jains_index_by_hand() -> None:
    """Ratios of 1.5 and 0.5 give (2 * 2) / (2 * 2.5) = 0.8; who wants nothing takes no part."""
    assert jain(_accounts(a=(6, 9, 4), b=(2, 9, 4), c=(0, 0, 0))) == Fraction(4, 5)
    assert jain(_accounts(a=(4, 9, 4), b=(0, 9, 4))) == Fraction(1, 2)
    assert jain(_accounts(a=(3, 9, 3), b=(9, 9, 9))) == 1
    assert jain({}) is None


def test_programs_are_their_budgets_together() -> None:
    """What moves between two budgets of one program is no error between programs."""
    accounts = _accounts(a_x=(6, 9, 3), a_y=(0, 9, 3), b=(6, 9, 6))
    assert share_error(accounts) == Fraction(1, 4)
    assert by_program(accounts) == _accounts(a=(6, 18, 6), b=(6, 9, 6))
    assert share_error(by_program(accounts)) == 0


def test_share_error_of_a_run() -> None:
    """``a`` holds all 8 GPUs for 4 hours while ``b`` waits for 8: half of the time would have to move; then none."""
    did = [
        Did("a", "a", 8, 0, 4 * HOUR, [(0, 4 * HOUR)]),
        Did("b", "b", 8, 0, 4 * HOUR, [(4 * HOUR, 8 * HOUR)]),
        Did("end", "b", 1, 8 * HOUR, 1, [(8 * HOUR, 8 * HOUR + 1)]),
    ]
    found = fairness(GpuTime(made(HALVES, did, until=9 * HOUR, loaded=8 * HOUR))).programs
    by_hour = {point.at // HOUR: point.error for point in found.points}
    assert by_hour[4] == Fraction(1, 2)
    assert by_hour[8] == 0
    assert found.last_error == 0
    assert found.jain == 1


def test_nobody_is_wronged_where_demand_is_small() -> None:
    """``a`` has three quarters of what was used, but ``b`` wanted no more: the error is zero."""
    did = [Did("a", "a", 6, 0, 4 * HOUR, [(0, 4 * HOUR)]), Did("b", "b", 2, 0, 4 * HOUR, [(0, 4 * HOUR)])]
    found = fairness(GpuTime(made(HALVES, did, until=5 * HOUR)))
    assert {point.error for point in found.programs.points} == {0}
    assert found.budgets.arrived_after_ms == HOUR


def test_a_removed_budget_counts_above() -> None:
    """What a path that is not in the tree was charged is its parent's."""
    before, after = tree({"a": "1/2", "a/old": "1/2", "b": "1/2"}), tree({"a": "1/2", "b": "1/2"})
    did = [Did("w", "a/old", 2, 0, HOUR, [(0, HOUR)]), Did("v", "b", 2, 0, HOUR, [(0, HOUR)])]
    found = standings(GpuTime(made(before, did, until=2 * HOUR, later=[(HOUR, after)])), 0, 2, {})
    assert found[0, "a"] == found[0, "b"] == Standing(2 * HOUR, 2 * HOUR, 2 * HOUR)
    assert (0, "a/old") not in found


@pytest.mark.parametrize(
    ("errors", "after"),
    [
        ([0, 0, 0], 1),
        ([9, 4, 4], 2),
        ([4, 9, 4], 3),
        ([4, 9, 9], None),
        ([9, 4, 4, 4, 4, 9, 9], 2),  # it stayed for a window of 3
        ([], None),
    ],
)
def test_arriving_means_to_stay(errors: list[int], after: int | None) -> None:
    """Within 5% for as long as a window of three hours, or to the end."""
    points = [SharePoint(at * HOUR, Fraction(error, 100)) for at, error in enumerate(errors, 1)]
    assert arrived(points, 0, 3 * HOUR) == (None if after is None else after * HOUR)


def test_moments_are_close_at_first() -> None:
    """Every hour in the first window of a week, every six hours after; the last sample is always one."""
    week = tree({"a": "1/2"})
    picked = moments(GpuTime(made(week, [], until=14 * DAY)), 7 * DAY)
    assert picked[:168] == list(range(1, 169))
    assert picked[168:170] == [174, 180]
    assert picked[-1] == 14 * 24


def test_finish_times_by_hand() -> None:
    """With 4 GPUs of its own, ``a`` would end both at 2 h and 4 h: one came at 1 h, the other only at 6 h."""
    did = [
        Did("fast", "a", 8, 0, HOUR, [(0, HOUR)]),  # 8 GPU-hours over 4 GPUs: 2 hours alone
        Did("slow", "a", 8, 0, HOUR, [(5 * HOUR, 6 * HOUR)]),  # after the first: 4 hours alone
        Did("free", "a", 8, 0, HOUR, [(0, HOUR)], allocated=False),
    ]
    found = finish_times(time := GpuTime(made(HALVES, did, until=8 * HOUR, gpus=8)), time.result.rows)
    assert (found.workloads, found.p50, found.p90, found.no_worse) == (
        2,
        Fraction(1, 2),
        Fraction(3, 2),
        Fraction(1, 2),
    )


def test_finish_times_are_at_least_the_run_time() -> None:
    """One GPU of four for 10 hours ends after 10 hours alone, too; a preempted one has no end to compare."""
    did = [
        Did("long", "a", 1, 0, 10 * HOUR, [(0, 10 * HOUR)]),
        Did("stopped", "a", 1, 0, 10 * HOUR, [(0, HOUR, HOUR)], End.PREEMPTED),
        Did("given up", "a", 1, 0, 10 * HOUR, end=End.CANCELLED, ended=HOUR),
        Did("waiting", "b", 4, 0, HOUR, end=End.WAITING),
    ]
    time = GpuTime(made(HALVES, did, until=12 * HOUR))
    found = finish_times(time, time.result.rows)
    assert (found.workloads, found.p50, found.p90) == (2, Fraction(1), Fraction(12))


def test_impact_by_hand() -> None:
    """Both are owed 4 GPUs for a day, and ``a`` took all 8: half of what was owed was served."""
    did = [Did("a", "a", 8, 0, 9 * DAY, [(0, DAY)], End.RUNNING), Did("b", "b", 8, 0, 9 * DAY, end=End.WAITING)]
    assert impact(GpuTime(made(HALVES, did, until=DAY)), DAY) == Fraction(1, 2)


def test_impact_owes_nobody_more_than_it_wants() -> None:
    """``b`` wanted one GPU and had it, so all that was owed was served; and no window makes up for another."""
    did = [Did("a", "a", 7, 0, DAY, [(0, DAY)]), Did("b", "b", 1, 0, DAY, [(0, DAY)])]
    assert impact(GpuTime(made(HALVES, did, until=DAY)), DAY) == 1
    late = [Did("b", "b", 4, 0, DAY, [(DAY, 2 * DAY)])]
    assert impact(GpuTime(made(HALVES, late, until=2 * DAY)), DAY) == Fraction(1, 2)
    assert impact(GpuTime(made(HALVES, [], until=DAY)), DAY) is None
