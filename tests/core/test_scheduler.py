"""The scheduler's one entry: what it refuses to take, what time brings, when it wants to wake, and what it shows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gpubudget.core.budget import Budget, DatedShares, Policy, Shares
from gpubudget.core.decisions import BudgetsChanged, Requeue, Stop
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    CheckpointReported,
    DrainRequested,
    Event,
    Exited,
    Moved,
    Outcome,
    RequeueRequested,
    Submitted,
    Woke,
)
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import StopReason, WorkloadSpec, WorkloadState
from gpubudget.errors import ConflictError, GpuBudgetError, InvalidInputError, NotFoundError
from gpubudget.units import HOUR, MINUTE
from tests.core.small import Small, starts, stops, tree

HALVES = {"a": "1/2", "b": "1/2"}
BACKOFF = Policy(preempt_backoff=20 * MINUTE)


@pytest.fixture
def small() -> Small:
    """One host, on which a1 runs; a2 waits."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.submit("a2", "a", 8, 60)
    return small


@pytest.mark.parametrize(
    ("event", "kind", "said", "hint"),
    [
        (Submitted(WorkloadSpec("a1", "ann", "a", ("p",), 1)), ConflictError, "there is a workload 'a1' already", ""),
        (Cancelled("x"), NotFoundError, "there is no workload 'x' that has not ended", ""),
        (RequeueRequested("a2"), ConflictError, "workload a2 is pending", "only a running one can be requeued"),
        (
            Moved("a1", "b"),
            ConflictError,
            "workload a1 is running",
            "only a waiting one can be moved; requeue it first",
        ),
        (Moved("a2", "c"), NotFoundError, "there is no budget 'c'", ""),
        (Exited("a1", 2, Outcome.FINISHED), ConflictError, "attempt 2 of workload a1 is not running", ""),
        (Exited("a2", 1, Outcome.FINISHED), ConflictError, "attempt 1 of workload a2 is not running", ""),
        (CheckpointReported("a1", 2), ConflictError, "attempt 2 of workload a1 is not running", ""),
    ],
)
def test_an_event_that_cannot_be_changes_nothing(
    small: Small, event: Event, kind: type[GpuBudgetError], said: str, hint: str
) -> None:
    """It raises a sentence, with a hint where there is a way out."""
    before = small.scheduler.snapshot()
    with pytest.raises(kind) as caught:
        small.scheduler.handle(event, (small.now + 5) * MINUTE)
    assert (caught.value.message, caught.value.hint) == (said, hint)
    assert small.scheduler.snapshot() == before


def test_time_does_not_go_back(small: Small) -> None:
    """An event before the last one is refused."""
    with pytest.raises(InvalidInputError, match=r"^time goes back from 60000000000 to 59999999999 ms$"):
        small.scheduler.handle(Woke(), small.now * MINUTE - 1)


def test_a_claim_is_no_attempt_yet() -> None:
    """What has not started cannot exit, and cannot be requeued."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 1)
    small.wait(30)
    assert small.submit("b1", "b", 8, 1)[-1] == "claim b1"
    for event in (Exited("b1", 0, Outcome.FINISHED), RequeueRequested("b1")):
        with pytest.raises(ConflictError):
            small.do(event)


def test_cancelling_a_waiting_workload_ends_it(small: Small) -> None:
    """As attempt 0, since none has begun."""
    assert small.do(Cancelled("a2")) == ["stopped a2/0 cancelled"]
    assert small.scheduler.workload("a2") is None


def test_cancelling_a_claim_gives_back_what_was_kept_for_it() -> None:
    """Its victims end all the same, and wait again."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 1)
    small.wait(30)
    small.submit("b1", "b", 8, 1)
    assert small.do(Cancelled("b1")) == ["stopped b1/0 cancelled"]
    assert small.usage("b") == 0
    assert starts(small.exit("a1")) == ["a1/2"]


def test_cancelling_a_running_workload_stops_it_also_while_it_is_stopping_for_another_reason(small: Small) -> None:
    """It is told to stop once, and does not come back."""
    assert stops(small.do(RequeueRequested("a1"))) == ["a1/1"]
    assert small.do(Cancelled("a1")) == []
    assert small.exit("a1")[0] == "stopped a1/1 cancelled"
    assert small.scheduler.workload("a1") is None


def test_a_requeued_workload_runs_again_with_a_full_minimum_runtime() -> None:
    """It is told as forced."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.wait(50)
    small.do(RequeueRequested("a1"))
    assert starts(small.exit("a1")) == ["a1/2"]
    attempt = small.view("a1").attempt
    assert attempt is not None
    assert attempt.protected_until == (small.now + 60) * MINUTE
    assert any(isinstance(decision, Requeue) and decision.reason == "forced" for decision in small.last)


def test_a_request_to_requeue_that_time_has_overtaken_stops_nothing_twice() -> None:
    """Its longest run time ends in the same event."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 1, max_runtime=10 * MINUTE)
    small.now += 10
    assert stops(small.do(RequeueRequested("a1"))) == ["a1/1"]
    assert [decision.reason for decision in small.last if isinstance(decision, Stop)] == [StopReason.LIMIT]


def test_a_checkpoint_makes_a_stop_cheap() -> None:
    """Among equals the one goes that loses the least since its last one."""
    small = Small(HALVES)
    for name in ("a1", "a2"):
        small.submit(name, "a", 4, 10)
    small.wait(50)
    small.do(CheckpointReported("a2", 1))
    assert stops(small.submit("b1", "b", 4, 10)) == ["a2/1"]


def test_a_workload_ends_at_its_longest_run_time_whatever_waits() -> None:
    """Counted over all its attempts; what then ends is finished."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 5, max_runtime=30 * MINUTE)
    small.wait(20)
    small.do(RequeueRequested("a1"))
    assert starts(small.exit("a1")) == ["a1/2"]
    assert stops(small.wait(9)) == []
    assert small.wait(1) == ["stop a1/2 limit"]
    assert small.exit("a1") == ["stopped a1/2 finished"]


def test_a_workload_that_was_stopped_with_no_time_left_is_finished() -> None:
    """It is not started again for nothing."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 5, max_runtime=30 * MINUTE)
    small.wait(29)
    small.do(RequeueRequested("a1"))
    small.wait(1)
    assert small.exit("a1") == ["stopped a1/1 forced"]
    assert small.scheduler.workload("a1") is None


def test_a_stop_that_comes_before_the_limit_is_not_told_twice() -> None:
    """The limit of an attempt that is stopping brings nothing."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 5, max_runtime=30 * MINUTE)
    small.do(RequeueRequested("a1"))
    assert small.scheduler.next_wakeup() is None
    assert small.wait(40) == []


def dated(start: int, until: int) -> BudgetsApplied:
    """A tree in which b has all for a while, and else nothing."""
    whole, nothing = Shares(Fraction(1)), Shares(Fraction(0))
    child = Budget("b", nothing, changes=(DatedShares(start * MINUTE, until * MINUTE, whole),))
    return BudgetsApplied(replace(tree({}), root=Budget("/", whole, children=(child,))), "c2")


def test_dated_shares_take_effect_by_themselves() -> None:
    """At the moment at which they begin and end, which the scheduler asks to be woken for."""
    small = Small(HALVES)
    small.do(dated(small.now + 10, small.now + 20))
    shares = []
    for _ in range(2):
        assert small.scheduler.next_wakeup() == (small.now + 10) * MINUTE
        shares.append(small.budget("b").share)
        small.wait(10)
        assert [decision.commit for decision in small.last if isinstance(decision, BudgetsChanged)] == ["c2"]
    assert [*shares, small.budget("b").share] == [0, 1, 0]
    assert small.scheduler.next_wakeup() is None


def test_a_limit_of_an_attempt_that_is_gone_brings_nothing() -> None:
    """Also when nobody asked for the next wake-up in between."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10, max_runtime=20 * MINUTE)
    small.exit("a1", Outcome.FINISHED)
    small.now += 30
    assert (small.do(Woke()), small.last) == ([], [])


def test_whether_a_workload_would_be_refused_can_be_asked_beforehand(small: Small) -> None:
    """In the words in which it would be, and with nothing changed."""
    spec = WorkloadSpec("w", "ann", "a", ("p",), 0, min_runtime=HOUR)
    before = small.scheduler.snapshot()
    assert small.scheduler.refusal(spec) == "it asks for 0 GPUs; at least 1 is needed"
    assert small.scheduler.refusal(replace(spec, gpus=8)) == ""
    assert small.scheduler.snapshot() == before


def test_with_nothing_to_wait_for_there_is_no_wake_up() -> None:
    """Time alone then changes nothing."""
    small = Small(HALVES)
    assert small.scheduler.next_wakeup() is None
    small.submit("a1", "a", 8, 60)
    assert small.scheduler.next_wakeup() is None


def test_it_wakes_for_the_next_end_of_a_protection_or_change_of_rank_while_something_waits() -> None:
    """At the latest a rebalance interval after the last full pass."""
    small = Small(HALVES, policy=Policy(rebalance_interval=HOUR))
    small.submit("a1", "a", 8, 10)
    small.submit("b1", "b", 8, 10)
    assert small.scheduler.next_wakeup() == (small.now + 10) * MINUTE
    small = Small(HALVES, policy=Policy(rebalance_interval=3 * MINUTE))
    small.submit("a1", "a", 8, 10)
    small.submit("b1", "b", 8, 10)
    assert small.scheduler.next_wakeup() == (small.now + 3) * MINUTE


def test_it_wakes_for_a_drain_though_nothing_waits() -> None:
    """The end of the protection is the moment of the stop."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10)
    small.do(DrainRequested("h1", "hot"))
    assert small.scheduler.next_wakeup() == (small.now + 10) * MINUTE


def test_it_wakes_for_a_limit_and_forgets_those_of_attempts_that_are_gone() -> None:
    """An attempt that has ended has no limit and no protection any more."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10, max_runtime=20 * MINUTE)
    small.submit("a2", "a", 8, 10)
    small.wait(1)
    small.exit("a1", Outcome.FINISHED)
    assert small.scheduler.next_wakeup() is None
    small.exit("a2", Outcome.FINISHED)
    small.submit("a3", "a", 8, 10, max_runtime=20 * MINUTE)
    assert small.scheduler.next_wakeup() == (small.now + 20) * MINUTE


def test_who_failed_soon_after_preempting_starts_on_free_gpus_only_for_a_while() -> None:
    """It asks to be woken for the moment at which it may preempt again."""
    small = Small({"a": "1/100", "b": "99/100"}, hosts=2, policy=BACKOFF)
    for name in ("a1", "a2"):
        small.submit(name, "a", 8, 1)
    small.wait(100)
    for victim in stops(small.submit("gang", "b", 16, 30, retries=5)):
        small.exit(victim.partition("/")[0])
    small.wait(1)
    small.submit("quick", "b", 8, 1, priority=1)
    assert starts(small.exit("gang", Outcome.FAILED)) == ["quick/1", "a1/2"]
    small.wait(1)
    assert small.view("gang").state is WorkloadState.PENDING
    assert "so for now it starts on free GPUs only" in small.scheduler.explain("gang", small.now * MINUTE).reason
    small.exit("quick", Outcome.FINISHED)
    assert stops(small.wait(18)) == []
    assert sorted(stops(small.wait(1))) == ["a1/2", "a2/2"]


def test_patience_of_a_workload_that_is_gone_or_runs_ends_without_a_word() -> None:
    """There is nobody to look at again."""
    small = Small({"a": "1/100", "b": "99/100"}, policy=BACKOFF)
    small.submit("a1", "a", 8, 1)
    small.wait(100)
    small.submit("b1", "b", 8, 30, retries=5)
    small.exit("a1")
    small.submit("b0", "b", 8, 60, priority=1)
    small.exit("b1", Outcome.FAILED)
    assert small.scheduler.next_wakeup() == (small.now + 1) * MINUTE
    small.do(Cancelled("b1"))
    small.do(Cancelled("a1"))
    assert small.scheduler.next_wakeup() == (small.now + 20) * MINUTE
    assert small.wait(21) == []
    assert small.scheduler.next_wakeup() is None


def test_what_has_not_ended_is_shown(small: Small) -> None:
    """Workloads in order of submission, with state, attempts and the budget they are charged to now."""
    views = small.scheduler.workloads()
    assert [(view.spec.id, view.state, view.attempts) for view in views] == [
        ("a1", WorkloadState.RUNNING, 1),
        ("a2", WorkloadState.PENDING, 0),
    ]
    small.do(Moved("a2", "b"))
    assert small.view("a2").spec.budget == "b"
    assert small.scheduler.workload("x") is None


def test_the_tree_in_force_is_shown_with_its_commit(small: Small) -> None:
    """And the time of the last event."""
    assert (small.scheduler.tree, small.scheduler.commit) == (small.tree, "c1")
    assert small.scheduler.now == small.now * MINUTE
    assert Scheduler().tree is None


def test_what_waits_is_ranked_allocated_first_and_without_a_budget_last() -> None:
    """In each pool by itself."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.submit("s", None, 1, 0)
    small.submit("u", "a", 1, 0)
    small.submit("a2", "a", 8, 60)
    small.submit("b1", "b", 8, 60)
    small.submit("b2", "b", 1, 60, priority=1)
    assert small.ranking() == ["b2", "b1", "a2", "u", "s"]
    with pytest.raises(NotFoundError, match="there is no pool 'q'"):
        small.scheduler.ranking("q", small.now * MINUTE)


def test_the_time_of_a_pool_is_split_exactly() -> None:
    """Capacity x time = allocated + unallocated + idle + unavailable."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 6, 60)
    small.submit("u1", None, 5, 0)
    small.wait(10)
    small.do(DrainRequested("h2", "hot"))
    small.wait(10)
    (pool,) = small.scheduler.pools(small.now * MINUTE)
    assert pool.capacity_time == 16 * 20 * MINUTE
    parts = (pool.allocated_time, pool.unallocated_time, pool.idle_time, pool.unavailable_time)
    assert sum(parts) == pool.capacity_time
    assert parts[:2] == (6 * 20 * MINUTE, 5 * 20 * MINUTE)
