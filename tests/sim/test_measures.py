"""All figures of a run: a small one by hand, and a real one against sums over all attempts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gpubudget.core.budget import Pool
from gpubudget.core.scheduler import Scheduler
from gpubudget.sim.engine import Settings, simulate
from gpubudget.sim.gputime import GpuTime, lineage
from gpubudget.sim.measures import Measures, burst, debug_waits, measure
from gpubudget.sim.result import End, Preemption, Result
from gpubudget.sim.submission import Scenario
from gpubudget.sim.synthetic import PRESETS, generate, hosts_of, lab_tree
from gpubudget.units import DAY, HOUR
from tests.made_runs import Did, made, overlap, tree

HALVES = tree({"a": "1/2", "a/one": "1", "b": "1/2"}, lookback=DAY)


def preemption(victim: str, of: str, beneficiary: str, budget: str | None, *, allocated: bool = True) -> Preemption:
    """Two GPUs that had run for an hour were taken at 1 h."""
    return Preemption(HOUR, victim, 1, of, allocated, 2, 0, HOUR, 2 * HOUR, beneficiary, budget)


@pytest.fixture(scope="module")
def small() -> Measures:
    """Two budgets on 8 GPUs for 10 hours: ``b`` bursts, then ``a`` comes and waits for the last 2 hours in part."""
    did = [
        Did("b1", "b", 6, 0, 8 * HOUR, [(0, 8 * HOUR)]),
        Did("a1", "a/one", 4, 6 * HOUR, 2 * HOUR, [(8 * HOUR, 10 * HOUR)], preemptions=3),
        Did("free", None, 1, 0, 4 * HOUR, [(0, 4 * HOUR)], allocated=False),
        Did("big", "a/one", 16, 9 * HOUR, HOUR, end=End.REFUSED, ended=9 * HOUR),
    ]
    stops = [
        preemption("x", "b", "a1", "a/one"),
        preemption("x", "b", "a2", "a/one"),
        preemption("y", "a/one", "a1", "a/one", allocated=False),
    ]
    return measure(made(HALVES, did, until=10 * HOUR, away=[(0, 5 * HOUR, 1)], preemptions=stops))


def test_the_four_figures(small: Measures) -> None:
    """75 of 80 GPU-hours were available, 60 of them occupied; nobody can know how busy they were.

    ``b`` was owed the 37.5 that it was entitled to and had 48; ``a`` had all that it wanted in the end.
    """
    assert small.pyramid.availability == Fraction(75, 80)
    assert small.pyramid.occupancy == Fraction(60, 75)
    assert small.pyramid.impact == 1
    assert small.pyramid.utilization is None


def test_where_the_time_went_adds_up(small: Measures) -> None:
    """56 funded, 4 unallocated, 5 drained; while ``a1`` waited for 4 from 6 h to 8 h, 2 GPUs were idle."""
    where = small.capacity
    assert (where.capacity_gpu_ms, where.allocated_gpu_ms, where.unallocated_gpu_ms) == (80 * HOUR, 56 * HOUR, 4 * HOUR)
    assert (where.unmet_gpu_ms, where.drained_gpu_ms) == (4 * HOUR, 5 * HOUR)
    assert where.no_demand_gpu_ms == (80 - 56 - 4 - 4 - 5) * HOUR


def test_budgets_with_all_below_them(small: Measures) -> None:
    """What was charged to ``a/one`` is ``a``'s and the root's, too; ``b`` bursts by what is beyond its guarantee."""
    found = {budget.path: budget for budget in small.budgets}
    assert list(found) == ["/", "a", "a/one", "b"]
    assert [found[path].delivered_gpu_ms for path in ("/", "a", "a/one", "b")] == [
        56 * HOUR,
        8 * HOUR,
        8 * HOUR,
        48 * HOUR,
    ]
    assert found["b"].entitled_gpu_ms == found["a"].entitled_gpu_ms == 75 * HOUR // 2
    assert found["b"].burst_gpu_ms == 5 * (6 * HOUR - 7 * HOUR // 2) + 3 * (6 - 4) * HOUR
    assert (found["b"].share, found["a"].workloads, found["b"].workloads) == (Fraction(1, 2), 2, 1)
    assert (found["b"].preempted, found["b"].preempting) == (2, 0)
    assert (found["a"].preempted, found["a"].preempting) == (1, 3)
    assert found["a/one"].waits.first.p50_ms == 2 * HOUR
    assert [budget.path for budget in small.programs] == ["a", "b"]


def test_preemptions_by_hand(small: Measures) -> None:
    """Three stops of two workloads for two others cost 6 GPU-hours; pairs are by program, the most frequent first."""
    found = small.preemptions
    assert (found.count, found.funded, found.victims, found.beneficiaries, found.most) == (3, 2, 2, 2, 3)
    assert found.lost_gpu_ms == 6 * HOUR
    assert [(pair.victim, pair.beneficiary, pair.preemptions) for pair in found.pairs] == [("b", "a", 2), ("a", "a", 1)]


def test_what_else_is_told(small: Measures) -> None:
    """How workloads ended, what they held, and how long all took."""
    assert {one.end: one.workloads for one in small.ends} == {End.FINISHED: 3, End.REFUSED: 1}
    assert small.held_gpu_ms == 60 * HOUR
    assert [group.workloads for group in small.waits] == [3, 2, 1]
    assert small.longest is not None
    assert small.longest.workload == "a1"
    assert small.seconds is None


def test_debug_waits_by_how_the_budget_stood() -> None:
    """``a`` is entitled to 1 GPU: it had used 4 GPU-hours of 1 when its first came, and 5 of 6 when its last did."""
    budgets = tree({"a": "1/8", "b": "1/2"}, lookback=DAY)
    did = [
        Did("first", "a", 4, 0, HOUR, [(0, HOUR)]),
        Did("under", "b", 1, HOUR, HOUR, [(HOUR, 2 * HOUR)], debug=True),
        Did("over", "a", 1, HOUR, HOUR, [(2 * HOUR, 3 * HOUR)], debug=True),
        Did("late", "a", 1, 6 * HOUR, HOUR, [(6 * HOUR, 7 * HOUR)], debug=True),
    ]
    found = {group.name: group for group in debug_waits(GpuTime(made(budgets, did, until=8 * HOUR)))}
    assert found["debug"].workloads == 3
    assert (found["debug, over-used"].workloads, found["debug, over-used"].first.largest_ms) == (1, HOUR)
    assert found["debug, under-used"].first.largest_ms == 0


def test_a_run_without_workloads_has_no_figures_and_no_fault() -> None:
    """Nothing came, so there is nothing to divide by."""
    found = measure(made(HALVES, [], until=0))
    assert (found.pyramid.occupancy, found.longest, found.workloads) == (None, None, 0)
    assert found.fairness.programs.points == ()


def test_several_pools_are_added_up() -> None:
    """8 GPUs in each of two pools; ``b`` uses one of them only, and its entitlement is in both."""
    two = tree({"b": "1/2"}, pools=("p", "q"))
    found = measure(made(two, [Did("w", "b", 8, 0, 2 * HOUR, [(0, 2 * HOUR)], pool="q")], until=2 * HOUR))
    b = found.programs[0]
    assert (found.capacity.capacity_gpu_ms, b.delivered_gpu_ms, b.entitled_gpu_ms) == (32 * HOUR, 16 * HOUR, 16 * HOUR)
    assert b.burst_gpu_ms == 8 * HOUR


@pytest.fixture(scope="module")
def real() -> Result:
    """The first two days of the lab with 88 GPUs, under the real scheduler."""
    lab = lab_tree(Pool("gpus", gpus_per_host=8, hosts=11))
    work = generate(3, lab, PRESETS["lab-88"].demand)
    early = tuple(one for one in work.submissions if one.at < 2 * DAY)
    there = Scenario(lab, hosts_of(lab), replace(work, submissions=early))
    return simulate(there, Scheduler(), Settings(until=3 * DAY))


def test_a_real_run_against_sums_over_all_attempts(real: Result) -> None:
    """What each budget got, held and lost is what its workloads' attempts add up to."""
    found = measure(real)
    until = found.loaded_until_ms
    for budget in found.budgets:
        rows = [row for row in real.rows if row.budget and budget.path in lineage(row.budget)]
        spans = [(row, span) for row in rows for span in row.spans]
        held = sum(row.gpus * overlap(s.started, s.ended, until) for row, s in spans if row.allocated)
        assert budget.delivered_gpu_ms == held
        assert budget.lost_gpu_ms == sum(row.lost_gpu_ms for row in rows)
        assert budget.demanded_gpu_ms >= budget.delivered_gpu_ms
        assert budget.preempted == sum(row.preemptions for row in rows)
    assert found.held_gpu_ms == sum(row.gpus * (s.ended - s.started) for row in real.rows for s in row.spans)
    where = found.capacity
    parts = where.allocated_gpu_ms + where.unallocated_gpu_ms + where.unmet_gpu_ms
    assert parts + where.no_demand_gpu_ms + where.drained_gpu_ms == where.capacity_gpu_ms == 88 * (until - real.start)


def test_a_real_runs_waits_are_its_gaps(real: Result) -> None:
    """Waits add up to the time from submission to the end that was not spent running."""
    for row in real.rows:
        if row.end is not End.REFUSED:
            until = real.end if row.ended is None else row.ended
            assert row.wait_ms == until - row.submitted - sum(span.ended - span.started for span in row.spans)


def test_burst_against_walking_through_samples(real: Result) -> None:
    """From sample to sample, whatever a program got beyond its share of the capacity."""
    time = GpuTime(real)
    share = time.weights(0, 0).whole["vision"] / Fraction(time.weights(0, 0).scale)
    beyond = Fraction(0)
    for begin, end in zip(time.times[: time.loaded], time.times[1 : time.loaded + 1], strict=True):
        got = sum(
            row.gpus * (overlap(s.started, s.ended, end) - overlap(s.started, s.ended, begin))
            for row in real.rows
            for s in row.spans
            if row.allocated and row.budget and row.budget.startswith("vision")
        )
        beyond += max(Fraction(0), got - share * 88 * (end - begin))
    assert abs(burst(time, "vision") - beyond) <= time.loaded
