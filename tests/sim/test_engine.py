"""The engine: what happens when, what interruptions cost, and that every GPU-millisecond is accounted for."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest

from gpubudget.core.budget import Budget, DatedShares, Policy, Pool, Shares, Tree
from gpubudget.core.decisions import Decision
from gpubudget.core.events import BudgetsApplied, CheckpointReported, Event
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadSpec
from gpubudget.errors import InvalidInputError
from gpubudget.sim.audit import audit
from gpubudget.sim.engine import Settings, log_to, simulate
from gpubudget.sim.measures import measure
from gpubudget.sim.played import Costs
from gpubudget.sim.result import End, Result, Row, Span
from gpubudget.sim.submission import (
    Ending,
    Failure,
    FailureRate,
    Fault,
    Scenario,
    SimHost,
    Submission,
    Workloads,
)
from gpubudget.sim.synthetic import Demand, generate, hosts_of
from gpubudget.units import DAY, HOUR, MINUTE, SECOND

FREE = Costs(start_up=0, stop_time=0)


def tree(hosts: int = 1) -> Tree:
    half = Shares(Fraction(1, 2))
    root = Budget("/", Shares(Fraction(1)), children=(Budget("a", half), Budget("b", half)))
    return Tree(root, (Pool("p", 8, hosts),), Policy())


def work(name: str, at: int, run: int, gpus: int = 8, *, budget: str | None = "a", **more: object) -> Submission:
    """A submission; what is not of the submission itself goes into the workload."""
    own = {key: more.pop(key) for key in ("ending", "gives_up") if key in more}
    spec = WorkloadSpec(name, "ana", budget, ("p",), gpus, **{"min_runtime": MINUTE, "resumable": True} | more)  # type: ignore[arg-type]
    return Submission(at, spec, run, **own)  # type: ignore[arg-type]


def play(
    submissions: Iterable[Submission],
    *,
    costs: Costs = FREE,
    hosts: int = 1,
    failures: tuple[Failure, ...] = (),
    settings: Settings | None = None,
) -> Result:
    """Plays them through the core, with every invariant checked at the end, and audits the log."""
    shares = tree(hosts)
    workloads = Workloads("test", tuple(submissions), failures=failures)
    scheduler, log = Scheduler(), io.StringIO()
    chosen = replace(settings or Settings(), costs=costs)
    result = simulate(Scenario(shares, hosts_of(shares), workloads), scheduler, chosen, log=log_to(log))
    scheduler.check()
    assert audit(line.encode() for line in log.getvalue().splitlines()).findings == []
    accounted(result)
    return result


def accounted(result: Result) -> None:
    """The samples, the rows and the spans tell of the same GPU-time."""
    last = result.samples[-1]
    for pool in last.pools:
        assert pool.capacity_gpu_ms == (
            pool.allocated_gpu_ms + pool.unallocated_gpu_ms + pool.unavailable_gpu_ms + pool.idle_gpu_ms
        )
        assert pool.idle_gpu_ms >= pool.unmet_gpu_ms >= 0
        assert pool.allocated_gpu_ms == sum(pool.delivered)
    held = sum(pool.allocated_gpu_ms + pool.unallocated_gpu_ms for pool in last.pools)
    assert held == sum(row.held_gpu_ms for row in result.rows)
    waited = sum(sum(pool.waited) for pool in last.pools)
    assert waited == sum(row.gpus * row.wait_ms for row in result.rows if row.allocated)
    for row in result.rows:
        until = result.end if row.ended is None else row.ended
        assert row.wait_ms == until - row.submitted - sum(span.ended - span.started for span in row.spans)
        if row.end in {End.FINISHED, End.FAILED} and row.submission.gives_up is None:
            assert row.held_gpu_ms - row.lost_gpu_ms == row.gpus * row.run_time


def row(result: Result, name: str) -> Row:
    return next(found for found in result.rows if found.id == name)


def test_a_workload_starts_when_there_is_room_and_runs_for_as_long_as_it_needs() -> None:
    """Two that need all GPUs of the only host come after each other."""
    result = play([work("w1", 1000, HOUR), work("w2", 2000, HOUR, ending=Ending.FAILED)])
    first, second = result.rows
    assert (first.first_start, first.ended, first.end, first.wait_ms) == (1000, 1000 + HOUR, End.FINISHED, 0)
    assert (second.first_start, second.ended, second.end) == (1000 + HOUR, 1000 + 2 * HOUR, End.FAILED)
    assert second.wait_ms == HOUR - 1000
    assert (result.start, result.loaded_until, result.end) == (1000, 2000, 1000 + 2 * HOUR)


def test_a_workload_that_its_owner_ends_is_cancelled() -> None:
    """It holds its GPUs for its run time, and not a moment longer."""
    result = play([work("w1", 0, HOUR, ending=Ending.CANCELLED)], costs=Costs())
    assert (result.rows[0].end, result.rows[0].ended) == (End.CANCELLED, HOUR)


@pytest.mark.parametrize(("at", "spans"), [(HOUR // 2, ()), (3 * HOUR, (Span(HOUR, 3 * HOUR, 0),))])
def test_an_owner_may_give_up_at_any_time(at: int, spans: tuple[Span, ...]) -> None:
    """While it waits, or while it runs; what it did until then counts as done."""
    result = play([work("w1", 0, HOUR), work("w2", 0, 9 * HOUR, gives_up=at)])
    assert (row(result, "w2").end, row(result, "w2").ended, row(result, "w2").spans) == (End.CANCELLED, at, spans)


def test_what_a_preemption_costs_is_counted() -> None:
    """The victim is stopped past its minimum, saves its work, starts up again, and still does all that it has to do."""
    costs = Costs(start_up=2 * MINUTE, stop_time=10 * SECOND)
    result = play([work("w1", 0, 4 * HOUR), work("w2", HOUR, HOUR, budget="b")], costs=costs)
    victim, other = row(result, "w1"), row(result, "w2")
    assert other.first_start == HOUR + 10 * SECOND
    assert victim.spans[0] == Span(0, HOUR + 10 * SECOND, 10 * SECOND)
    assert victim.spans[1].ended - victim.spans[1].started == 3 * HOUR + 2 * MINUTE
    assert victim.lost_gpu_ms == 8 * (2 * MINUTE + 10 * SECOND)
    assert (victim.preemptions, victim.attempts) == (1, 2)
    (preemption,) = result.preemptions
    assert (preemption.at, preemption.victim, preemption.beneficiary) == (HOUR, "w1", "w2")
    assert (preemption.victim_budget, preemption.beneficiary_budget) == ("a", "b")
    assert (preemption.started, preemption.protected_until) == (0, MINUTE)
    assert preemption.lost_gpu_ms == 8 * 10 * SECOND


def test_with_checkpoints_only_what_was_saved_is_kept() -> None:
    """Of an hour and a quarter, saved every half hour, the quarter is done again; the core hears of each checkpoint."""
    costs = Costs(start_up=0, stop_time=0, checkpoint_every=HOUR // 2)
    result = play([work("w1", 0, 4 * HOUR), work("w2", 5 * HOUR // 4, HOUR, budget="b")], costs=costs)
    assert row(result, "w1").spans[0] == Span(0, 5 * HOUR // 4, HOUR // 4)

    heard: list[int] = []

    def listen(event: Event, _: list[Decision], now: int) -> None:
        if isinstance(event, CheckpointReported):
            heard.append(now)

    workloads = Workloads("test", (work("w1", 0, 2 * HOUR),))
    simulate(Scenario(tree(), hosts_of(tree()), workloads), Scheduler(), Settings(costs=costs), log=listen)
    assert heard == [HOUR // 2, HOUR, 3 * HOUR // 2]


def test_work_that_cannot_resume_ends_when_it_is_preempted() -> None:
    """All that it held is lost."""
    result = play([work("w1", 0, 4 * HOUR, resumable=False), work("w2", HOUR, HOUR, budget="b")])
    victim = row(result, "w1")
    assert (victim.end, victim.ended, victim.lost_gpu_ms) == (End.PREEMPTED, HOUR, 8 * HOUR)


def test_a_workload_that_ends_by_itself_while_it_is_stopped_has_finished() -> None:
    """It had five seconds to go, and ten to stop."""
    costs = Costs(start_up=0, stop_time=10 * SECOND)
    result = play([work("w1", 0, HOUR + 5 * SECOND), work("w2", HOUR, HOUR, budget="b")], costs=costs)
    assert (row(result, "w1").end, row(result, "w1").ended) == (End.FINISHED, HOUR + 5 * SECOND)
    assert result.preemptions == ()


def test_a_lost_host_takes_the_work_on_it() -> None:
    """What is not saved is done again on another host; the lost one is back after its repair."""
    failure = Failure(HOUR, "p-0001", Fault.LOST, 30 * MINUTE)
    result = play([work("w1", 0, 2 * HOUR), work("w2", 2 * HOUR, HOUR)], hosts=1, failures=(failure,))
    first = row(result, "w1")
    assert first.spans == (Span(0, HOUR, HOUR), Span(HOUR + 30 * MINUTE, 3 * HOUR + 30 * MINUTE, 0))
    assert (first.host_losses, result.host_failures) == (1, 1)
    assert result.samples[-1].pools[0].unavailable_gpu_ms == 8 * 30 * MINUTE


def test_a_gang_ends_when_one_of_its_hosts_is_lost() -> None:
    """Its other half is stopped, too, and the gang waits for the host to come back."""
    failure = Failure(HOUR, "p-0002", Fault.LOST, 30 * MINUTE)
    costs = Costs(start_up=0, stop_time=10 * SECOND)
    result = play([work("w1", 0, 2 * HOUR, 16)], hosts=2, failures=(failure,), costs=costs)
    assert [span.started for span in result.rows[0].spans] == [0, HOUR + 30 * MINUTE]
    assert result.rows[0].host_losses == 1


def test_a_drain_waits_for_protected_work_and_is_repaired() -> None:
    """The host is empty when the minimum runtime has passed, and back when it has been repaired."""
    failure = Failure(HOUR, "p-0001", Fault.DRAIN, 30 * MINUTE)
    result = play([work("w1", 0, 4 * HOUR, min_runtime=2 * HOUR)], failures=(failure,))
    assert result.rows[0].spans == (
        Span(0, 2 * HOUR, 0),
        Span(2 * HOUR + 30 * MINUTE, 4 * HOUR + 30 * MINUTE, 0),
    )
    assert result.rows[0].drains == 1


def test_a_host_that_is_down_does_not_fail_again() -> None:
    """Only hosts at work are counted."""
    failures = (Failure(HOUR, "p-0001", Fault.LOST, HOUR), Failure(HOUR + MINUTE, "p-0001", Fault.DRAIN, HOUR))
    assert play([work("w1", 0, 2 * HOUR)], failures=failures).host_failures == 1


def test_what_cannot_be_split_is_refused_and_shown() -> None:
    """The reason is counted and stands in the row; it waited for nothing."""
    result = play([work("w1", 0, HOUR, 9), work("w2", 0, HOUR, 9), work("w3", 0, HOUR)], hosts=2)
    (refusal,) = result.refusals
    assert refusal.workloads == 2
    assert "9 GPUs cannot be split evenly over 2 hosts" in refusal.reason
    assert [(r.end, r.wait_ms, r.reason) for r in result.rows[:2]] == [(End.REFUSED, 0, refusal.reason)] * 2


def test_the_run_ends_when_what_waits_can_never_start() -> None:
    """Hosts fail for ever, and nothing else would happen any more."""

    class Idle:
        """Never starts anything."""

        def handle(self, event: Event, now: int) -> list[Decision]:  # noqa: ARG002 - whatever happens
            return []

        def next_wakeup(self) -> int | None:
            return None

    workloads = Workloads("test", (work("w1", 0, HOUR),))
    scenario = Scenario(tree(), hosts_of(tree()), workloads, FailureRate(1, Fraction(4)))
    result = simulate(scenario, Idle())
    assert [(r.end, r.ended) for r in result.rows] == [(End.WAITING, None)]


def test_a_run_can_end_early() -> None:
    """What still runs and what still waits is told apart."""
    result = play([work("w1", 0, 9 * HOUR), work("w2", 0, HOUR)], settings=Settings(until=2 * HOUR))
    assert [r.end for r in result.rows] == [End.RUNNING, End.WAITING]
    assert result.end == 2 * HOUR
    assert result.rows[0].spans == (Span(0, 2 * HOUR, 0),)


def test_samples_stand_on_a_fixed_grid() -> None:
    """From the first submission, every hour, and at the end."""
    result = play([work("w1", 5000, 3 * HOUR), work("w2", 6000, HOUR // 2, budget="b", gpus=4)])
    assert [s.at - 5000 for s in result.samples] == [0, HOUR, 2 * HOUR, 3 * HOUR, result.end - 5000][
        : len(result.samples)
    ]
    hour = result.samples[1].pools[0]
    assert result.paths == ("/", "a", "b", "")
    assert (hour.capacity, hour.allocated + hour.unallocated + hour.unavailable) == (8, 8)


def test_a_long_run_has_fewer_samples_for_its_length() -> None:
    """A workload that runs for ten thousand years: the grid widens, and stays a grid from the start on."""
    result = play([work("w1", 5000, 10_000 * 366 * DAY)])
    assert 1_000 < len(result.samples) < 5_000
    assert result.sample_every % HOUR == 0
    assert [s.at for s in result.samples[:-1]] == [
        5000 + k * result.sample_every for k in range(len(result.samples) - 1)
    ]


def test_budgets_that_come_later_have_their_place_in_all_samples() -> None:
    """A sample from before has nothing for them."""
    later = Budget("/", Shares(Fraction(1)), children=(*tree().root.children, Budget("c", Shares(Fraction(0)))))
    event = (HOUR, BudgetsApplied(replace(tree(), root=later)))
    workloads = Workloads("test", (work("w1", 0, 2 * HOUR), work("w2", 2 * HOUR, HOUR, budget="c")), events=(event,))
    result = simulate(Scenario(tree(), hosts_of(tree()), workloads), Scheduler())
    assert result.paths == ("/", "a", "b", "", "c")
    assert {len(s.pools[0].delivered) for s in result.samples} == {5}
    assert result.samples[-1].pools[0].delivered[4] == 8 * HOUR


@pytest.mark.parametrize("seed", [1, 2])
def test_a_busy_cluster_adds_up_and_its_log_passes_the_audit(seed: int) -> None:
    """Bursts, preemptions, unallocated work, debug runs, checkpoints, failing hosts: nothing is missing."""
    shares = replace(tree(), pools=(Pool("p", 8, 4),))
    demand = Demand(days=1, load=Fraction(2))
    scenario = Scenario(shares, hosts_of(shares), generate(seed, shares, demand), FailureRate(seed, Fraction(600)))
    scheduler, log = Scheduler(), io.StringIO()
    costs = Costs(checkpoint_every=20 * MINUTE)
    result = simulate(scenario, scheduler, Settings(costs=costs), log=log_to(log))
    scheduler.check()
    assert audit(line.encode() for line in log.getvalue().splitlines()).findings == []
    accounted(result)
    assert result.host_failures > 0
    assert result.preemptions
    assert sum(r.lost_gpu_ms for r in result.rows) > 0
    assert all(r.end not in {End.WAITING, End.RUNNING} for r in result.rows)


def test_the_log_has_the_time_of_every_line() -> None:
    """One JSON object a line; the first applies the budgets."""
    log = io.StringIO()
    workloads = Workloads("test", (work("w1", 7, HOUR),))
    simulate(Scenario(tree(), (SimHost("h", "p", 8),), workloads), Scheduler(), log=log_to(log))
    lines = log.getvalue().splitlines()
    assert lines[0].startswith('{"at": 7, "kind": "budgets_applied"')
    assert [line.split('"kind": "')[1].split('"')[0] for line in lines[1:]] == [
        "host",
        "submitted",
        "started",
        "stopped",
    ]


def test_progress_is_told() -> None:
    """Once a sample: the moment, and how many have come."""
    told: list[tuple[int, int]] = []
    workloads = Workloads("test", tuple(work(f"w{i}", i * DAY, HOUR) for i in range(3)))
    simulate(
        Scenario(tree(), hosts_of(tree()), workloads), Scheduler(), progress=lambda at, come: told.append((at, come))
    )
    assert told[-1] == (2 * DAY + HOUR, 3)
    assert told == sorted(told)


def test_there_is_a_sample_when_shares_change() -> None:
    """So that what budgets are entitled to before and after a dated change is exact."""
    plain = tree()
    quarter = DatedShares(100 * MINUTE, 900 * DAY, Shares(Fraction(1, 4)))
    first, other = plain.root.children
    dated = replace(plain, root=replace(plain.root, children=(replace(first, changes=(quarter,)), other)))
    workloads = Workloads("test", (work("w", 0, 4 * HOUR), work("v", 3 * HOUR, HOUR)))
    result = simulate(Scenario(dated, hosts_of(dated), workloads), Scheduler(), Settings(costs=FREE))
    assert 100 * MINUTE in [sample.at for sample in result.samples]
    entitled = {each.path: each.entitled_gpu_ms for each in measure(result).budgets}
    assert entitled["a"] == 4 * 100 * MINUTE + 2 * 80 * MINUTE


def test_a_warm_up_ends_at_its_very_moment() -> None:
    """However far apart samples are; what came before is in no count."""
    result = play([work("w", 0, 2 * HOUR), work("v", HOUR, HOUR)], settings=Settings(warm_up=7 * MINUTE + 1))
    assert (result.start, [row.id for row in result.rows]) == (7 * MINUTE + 1, ["w", "v"])
    assert measure(result).workloads == 1
    with pytest.raises(InvalidInputError, match="nothing comes after the warm-up"):
        play([work("w", 0, 2 * HOUR)], settings=Settings(warm_up=MINUTE))
