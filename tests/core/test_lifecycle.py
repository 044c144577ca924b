"""How attempts come and go."""

from __future__ import annotations

import pytest

from gpubudget.core.budget import Policy
from gpubudget.core.decisions import Requeue, Start, Stopped
from gpubudget.core.events import BudgetsApplied, CheckpointReported, Outcome, RequeueRequested
from gpubudget.core.workload import StopReason, WorkloadState
from gpubudget.units import MINUTE
from tests.core.small import Small, starts, stops, tree

HALVES = {"a": "1/2", "b": "1/2"}


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.FINISHED, StopReason.FINISHED),
        (Outcome.FAILED, StopReason.FAILED),
        (Outcome.STOPPED, StopReason.FAILED),
    ],
)
def test_an_attempt_that_nobody_stopped_ends_as_its_processes_did(outcome: Outcome, reason: StopReason) -> None:
    """What was stopped without our order has failed."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10)
    assert small.exit("a1", outcome) == [f"stopped a1/1 {reason}"]
    assert small.scheduler.workload("a1") is None


@pytest.mark.parametrize(("outcome", "end"), [(Outcome.FINISHED, "finished"), (Outcome.FAILED, "failed")])
def test_what_processes_did_by_themselves_counts_also_when_they_had_been_told_to_stop(
    outcome: Outcome, end: str
) -> None:
    """Then nobody is named for whom it was stopped."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 1)
    small.wait(30)
    small.submit("b1", "b", 8, 1)
    assert small.exit("a1", outcome)[0] == f"stopped a1/1 {end}"
    (stopped,) = (decision for decision in small.last if isinstance(decision, Stopped))
    assert stopped.beneficiary is None


def test_a_victim_that_is_not_resumable_ends_as_preempted() -> None:
    """It has lost its work, and nobody starts it again."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 1, resumable=False)
    small.wait(30)
    small.submit("b1", "b", 8, 1)
    assert small.exit("a1") == ["stopped a1/1 preempted", "start b1/1"]
    assert small.scheduler.workload("a1") is None


def test_a_failed_workload_is_started_again_as_often_as_it_asked_for() -> None:
    """And then it has failed."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 1, retries=2)
    for attempt in (2, 3):
        assert starts(small.exit("a1", Outcome.FAILED)) == [f"a1/{attempt}"]
    assert starts(small.exit("a1", Outcome.FAILED)) == []
    assert small.scheduler.workload("a1") is None


def test_a_requeued_workload_whose_budget_is_gone_says_so() -> None:
    """It cannot be ranked until it is moved."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10)
    small.do(BudgetsApplied(tree({"b": "1/2"}), "c2"))
    small.do(RequeueRequested("a1"))
    small.exit("a1")
    (requeue,) = (decision for decision in small.last if isinstance(decision, Requeue))
    assert requeue.held == "its budget a was removed: move it to another one or cancel it"
    assert small.view("a1").state is WorkloadState.HELD


def test_what_victims_leave_over_goes_to_the_next_and_nobody_is_stopped_for_it() -> None:
    """Each GPU is promised once."""
    small = Small(HALVES)
    for name in ("u1", "u2"):
        small.submit(name, None, 4, 0)
    assert stops(small.submit("a1", "a", 6, 10)) == ["u1/1", "u2/1"]
    assert small.submit("b1", "b", 2, 10) == ["claim b1"]
    assert starts(small.exit("u1")) == []
    assert starts(small.exit("u2")) == ["a1/1", "b1/1"]


def test_a_claim_starts_when_its_own_victims_have_gone() -> None:
    """What others on the host free is not for it."""
    small = Small(HALVES)
    for name in ("u1", "u2"):
        small.submit(name, None, 4, 0)
    first = stops(small.submit("a1", "a", 4, 10))
    second = stops(small.submit("b1", "b", 4, 10))
    assert sorted(first + second) == ["u1/1", "u2/1"]
    assert starts(small.exit(second[0].partition("/")[0])) == ["b1/1"]
    assert starts(small.exit(first[0].partition("/")[0])) == ["a1/1"]


@pytest.mark.parametrize(
    ("minutes", "said"),
    [(10, "best-ranked of what fits"), (0, "unallocated: fills GPUs that no allocated workload can use")],
)
def test_a_start_says_why(minutes: int, said: str) -> None:
    """In a sentence."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, minutes)
    assert [decision.reason for decision in small.last if isinstance(decision, Start)] == [said]


def test_a_start_that_preempted_names_its_victims() -> None:
    """Each with its attempt."""
    small = Small(HALVES)
    for name in ("u1", "u2"):
        small.submit(name, None, 4, 0)
    small.submit("a1", "a", 8, 10)
    small.exit("u1")
    small.exit("u2")
    (start,) = (decision for decision in small.last if isinstance(decision, Start))
    assert (start.preempted, start.reason) == ((("u1", 1), ("u2", 1)), "preempted 2 for it")


def test_each_attempt_has_its_full_minimum_runtime_again() -> None:
    """Also one that goes on from a checkpoint."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.wait(30)
    small.do(CheckpointReported("a1", 1))
    small.do(RequeueRequested("a1"))
    small.exit("a1")
    attempt = small.view("a1").attempt
    assert attempt is not None
    assert attempt.attempt == 2
    assert attempt.protected_until == (small.now + 60) * MINUTE


def test_a_protection_that_ends_while_it_is_stopping_only_counts() -> None:
    """It is not stopped again, and nothing is free yet."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10)
    small.do(RequeueRequested("a1"))
    assert small.wait(20) == []
    assert small.usage("a") == 160


def test_patience_is_reset_by_a_run_that_lasts() -> None:
    """A failure long after the start is not held against it."""
    policy = Policy(failed_soon=5 * MINUTE, preempt_backoff=20 * MINUTE, max_preempt_backoff=30 * MINUTE)
    small = Small({"a": "1/100", "b": "99/100"}, policy=policy)
    small.submit("a1", "a", 8, 1)
    small.wait(100)
    small.submit("b1", "b", 8, 1, retries=9)
    small.exit("a1")
    small.exit("b1", Outcome.FAILED)
    assert small.scheduler.state.workloads["b1"].patience == 1
    small.wait(30)
    small.exit("b1", Outcome.FAILED)
    assert small.scheduler.state.workloads["b1"].patience == 0
