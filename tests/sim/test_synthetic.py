"""Made-up work: seeded, bursty, heavy-tailed, and of the sizes and run times of real traces."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from gpubudget.core.budget import Policy, Pool, reserve
from gpubudget.core.events import BudgetsApplied
from gpubudget.core.scheduler import Scheduler
from gpubudget.errors import InvalidInputError
from gpubudget.sim import synthetic
from gpubudget.sim.prepare import Choice, prepare
from gpubudget.sim.submission import Submission
from gpubudget.sim.synthetic import MIXES, PHILLY, VENUS, Demand, generate, lab_tree, people
from gpubudget.units import DAY, HOUR, MINUTE

LAB = lab_tree(Pool("gpus", 8, 128))


@cache
def lab(seed: int = 1) -> tuple[Submission, ...]:
    """A week of the lab."""
    return generate(seed, LAB, Demand(days=7)).submissions


@cache
def work_of(mix: str) -> tuple[Submission, ...]:
    """Four weeks of a mix without debug workloads, each workload on its own."""
    alone = Demand(MIXES[mix], load=Fraction(3, 5), sweeps=0, debug_sessions=Fraction(0))
    return generate(3, LAB, alone).submissions


def gpu_time(submissions: tuple[Submission, ...]) -> list[int]:
    """GPU-milliseconds that each asks for."""
    return [each.run_time * each.spec.gpus for each in submissions]


def test_the_same_seed_gives_the_same_workloads() -> None:
    """Equal settings give equal workloads, and another seed gives other ones."""
    again = generate(1, LAB, Demand(days=7)).submissions
    assert again == lab()
    assert generate(2, LAB, Demand(days=7)).submissions != again


def test_submissions_are_in_order_and_ids_are_unique() -> None:
    """Times never go back, lie inside the days asked for, and no id comes twice."""
    times = [each.at for each in lab()]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= 7 * DAY
    assert len({each.spec.id for each in lab()}) == len(lab())


@pytest.mark.parametrize("load", [Fraction(4, 5), Fraction(5, 2)])
def test_the_wanted_load_is_reached(load: Fraction) -> None:
    """GPU-time asked for over capacity is the load that was asked for."""
    found = generate(5, LAB, Demand(days=14, load=load)).submissions
    assert sum(gpu_time(found)) / (1024 * 14 * DAY) == pytest.approx(float(load), rel=0.02)


@pytest.mark.parametrize("mix", MIXES)
def test_arrivals_are_bursty(mix: str) -> None:
    """The gaps' coefficient of variation is about 15, as in both large traces."""
    times = [each.at for each in work_of(mix)]
    gaps = [after - before for before, after in pairwise(times)]
    assert 12 < pstdev(gaps) / fmean(gaps) < 18


def test_few_arrivals_do_not_all_fall_into_one_burst() -> None:
    """A hundred submissions in a week are bursty too, but no single gap is most of the week."""
    times = synthetic.arrivals(synthetic._seeded("gaps", 1), 100, 7, 15)
    assert len(times) == 100
    assert max(after - before for before, after in pairwise(times)) < 5 * DAY


@pytest.mark.parametrize(
    ("mix", "sizes", "p50", "p90"),
    [
        ("philly", {1}, 1_117, 8_512),
        ("philly", {2, 4}, 367, 166_199),
        ("philly", {8}, 23_683, 352_409),
        ("venus", {1}, 190, 8_449),
        ("venus", {6, 8}, 216, 26_146),
    ],
)
def test_run_times_are_those_of_the_traces(mix: str, sizes: set[int], p50: int, p90: int) -> None:
    """Median and 90th percentile of each size are as in the trace the mix was made from."""
    runs = sorted(each.run_time // 1_000 for each in work_of(mix) if each.spec.gpus in sizes)
    assert runs[len(runs) // 2] == pytest.approx(p50, rel=0.35)
    assert runs[len(runs) * 9 // 10] == pytest.approx(p90, rel=0.35)


def test_sizes_and_endings_are_those_of_the_traces() -> None:
    """93% of Philly's workloads want one GPU, 9% are cancelled and 31% fail; Venus' want 6.7 GPUs on average."""
    philly = work_of("philly")
    assert sum(each.spec.gpus == 1 for each in philly) / len(philly) == pytest.approx(0.93, abs=0.02)
    ends = Counter(each.ending.value for each in philly)
    assert ends["failed"] / len(philly) == pytest.approx(0.31, abs=0.02)
    assert ends["cancelled"] / len(philly) == pytest.approx(0.09, abs=0.02)
    venus = [each.spec.gpus for each in work_of("venus")]
    assert fmean(venus) == pytest.approx(6.7, rel=0.1)


def test_a_few_workloads_and_a_few_people_want_most() -> None:
    """The top 1% of workloads hold about half of the GPU-time, the top 5% of people 35% to 65%."""
    wants = sorted(gpu_time(work_of("venus")), reverse=True)
    assert 0.4 < sum(wants[: len(wants) // 100]) / sum(wants) < 0.75
    by_person: Counter[str] = Counter()
    for each, want in zip(work_of("venus"), wants, strict=True):
        by_person[each.spec.owner] += each.run_time * each.spec.gpus
        assert want > 0
    top = [want for _, want in by_person.most_common(len(by_person) // 20)]
    assert 0.35 < sum(top) / by_person.total() < 0.65


def test_a_sweep_is_one_persons_work_of_one_size() -> None:
    """Neighbours are mostly of the same person and size where sweeps are asked for, and seldom where they are not."""

    def alike(found: tuple[Submission, ...]) -> float:
        work = [each.spec for each in found if not each.spec.debug]
        pairs = list(pairwise(work))
        return sum((one.owner, one.gpus) == (two.owner, two.gpus) for one, two in pairs) / len(pairs)

    assert alike(lab()) > 0.65
    assert alike(work_of("venus")) < 0.1


def test_debug_workloads_are_small_and_short() -> None:
    """At most 8 GPUs and 15 minutes, funded, allowed into the lane; one after the other in a session."""
    debug = [each for each in lab() if each.spec.debug]
    assert 0.05 < len(debug) / len(lab()) < 0.3
    for each in debug:
        assert each.spec.gpus <= 8
        assert each.run_time < 15 * MINUTE == each.spec.max_runtime
        assert each.spec.allocated
    assert 2 * MINUTE < sorted(each.run_time for each in debug)[len(debug) // 2] < 4 * MINUTE


def test_debug_work_is_done_by_day() -> None:
    """Between 10 and 18 o'clock there is several times as much as between 0 and 8."""
    hours = Counter(each.at % DAY // HOUR for each in lab() if each.spec.debug)
    assert sum(hours[hour] for hour in range(10, 18)) > 3 * sum(hours[hour] for hour in range(8))


def test_debug_workloads_join_a_trace() -> None:
    """They are put among a trace's workloads in order of time, and said in its assumptions."""
    trace = generate(1, LAB, Demand(days=3, debug_sessions=Fraction(0)))
    both = synthetic.with_debug(trace, 4, LAB, Fraction(2))
    times = [each.at for each in both.submissions]
    assert times == sorted(times)
    assert set(trace.submissions) < set(both.submissions)
    assert all(each.spec.debug for each in set(both.submissions) - set(trace.submissions))
    assert "debug workloads are made up" in both.assumptions[-1]
    assert max(times) <= max(each.at for each in trace.submissions)


def test_nothing_is_asked_for_that_is_refused() -> None:
    """Every workload is accepted by the scheduler, on a large cluster and on a small one."""
    for hosts in (128, 3):
        tree = lab_tree(Pool("gpus", 8, hosts))
        scheduler = Scheduler()
        scheduler.handle(BudgetsApplied(tree), 0)
        found = generate(2, tree, Demand(days=2)).submissions
        assert found
        assert {scheduler.refusal(each.spec) for each in found} == {""}


def test_a_shorter_longest_minimum_changes_nothing_else() -> None:
    """The settings of a policy change what is declared, and neither who comes, nor when, nor for how long."""
    short = lab_tree(Pool("gpus", 8, 128), replace(LAB.policy, max_min_runtime=HOUR))
    one, other = lab(), generate(1, short, Demand(days=7)).submissions
    assert [(a.at, a.run_time, a.spec.owner, a.spec.gpus, a.ending) for a in one] == [
        (b.at, b.run_time, b.spec.owner, b.spec.gpus, b.ending) for b in other
    ]
    assert max(each.spec.min_runtime for each in other) == HOUR
    assert max(each.spec.min_runtime for each in one) == 8 * HOUR


def test_the_lab_has_150_people() -> None:
    """Five programs, six projects each, five people each, under names of their own, and nothing is left over."""
    assert len({person.name for person in people(LAB)}) == 150
    assert all(reserve(budget, "gpus", 0) == 0 for budget in LAB.budgets() if budget.children)
    assert LAB.pools[0].hosts * LAB.pools[0].gpus_per_host == 1024
    submitting = defaultdict(set)
    for each in lab():
        submitting[each.spec.owner].add(each.spec.budget)
    assert len(submitting) > 100
    assert all(len(budgets) == 1 for budgets in submitting.values())


@pytest.mark.parametrize("preset", synthetic.PRESETS)
def test_presets_need_no_files(preset: str) -> None:
    """A preset is a tree, its hosts and its workloads; budgets, days and amounts can be others."""
    found = prepare(Choice(preset=preset, days=1))
    assert len(found.hosts) == synthetic.PRESETS[preset].hosts
    assert found.workloads.submissions
    assert all(found.workloads.assumptions)
    other = prepare(Choice(preset=preset, days=2, hosts=2, load=Fraction(1), mix="philly", debug_sessions=Fraction(0)))
    assert len(other.hosts) == 2
    assert not any(each.spec.debug for each in other.workloads.submissions)
    assert sum(gpu_time(other.workloads.submissions)) >= 16 * 2 * DAY


def test_debug_sessions_are_added_to_any_trace(tmp_path: Path) -> None:
    """Also to one of another cluster; its people are the members of the budgets made from its groups."""
    trace = tmp_path / "t.csv"
    rows = [f"j{n},{n * 3600},u{n % 5},g{n % 2},1,600,," for n in range(200)]
    trace.write_text("job_id,submit_s,user,group,gpus,duration_s,state,gpu_type\n" + "\n".join(rows))
    found = prepare(Choice(trace, from_groups=True, hosts=1, debug_sessions=Fraction(2)))
    debug = [each for each in found.workloads.submissions if each.spec.debug]
    assert len(debug) > 20
    assert {each.spec.budget for each in debug} == {"g0", "g1"}


@pytest.mark.parametrize("demand", [Demand(days=0), Demand(load=Fraction(0))])
def test_an_impossible_demand_is_one_sentence(demand: Demand) -> None:
    """No days and no load are answered with the numbers."""
    with pytest.raises(InvalidInputError, match="nothing can be made up"):
        generate(1, LAB, demand)


def test_debug_workloads_may_be_all_there_are() -> None:
    """Where they ask for as much as is wanted or more, nothing else is made up."""
    made = generate(1, lab_tree(Pool("gpus", 8, 2)), Demand(days=1, load=Fraction(1, 1000)))
    assert made.submissions
    assert all(each.spec.debug for each in made.submissions)


def test_mixes_are_whole() -> None:
    """Each mix covers all workloads, and its run times never fall along the distribution."""
    for mix in (PHILLY, VENUS):
        assert sum(size.weight for size in mix.classes) == pytest.approx(1, abs=0.001)
        assert sum(percent for _, percent in mix.endings) == 100
        for size in mix.classes:
            assert list(size.run_times) == sorted(size.run_times)
            assert len(size.run_times) == len(synthetic.QUANTILES)


def test_a_policy_without_protection_is_possible() -> None:
    """Where the longest minimum is 0 everything is unallocated."""
    tree = lab_tree(Pool("gpus", 8, 4), Policy(max_min_runtime=0))
    assert not any(each.spec.allocated for each in generate(1, tree, Demand(days=1)).submissions)
