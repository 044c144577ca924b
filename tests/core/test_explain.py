"""What the scheduler shows, and the sentences that say why."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gpubudget.core.budget import DebugLane, Policy, Pool
from gpubudget.core.decisions import Start
from gpubudget.core.events import BudgetsApplied, Cordoned, HostReported, Moved, Outcome, RequeueRequested
from gpubudget.core.host import HostState
from gpubudget.core.views import AttemptView, HostView, ReservationView
from gpubudget.core.workload import WorkloadState
from gpubudget.units import HOUR, MINUTE
from tests.core.small import Small, tree

HALVES = {"a": "1/2", "b": "1/2"}


def reason(small: Small, name: str) -> str:
    return small.scheduler.explain(name, small.now * MINUTE).reason


def test_a_protected_attempt_says_for_how_long() -> None:
    """And where it runs."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 16, 90)
    small.wait(10)
    assert reason(small, "a1") == "it runs on h1, h2 and is protected for another 1h20m"
    explanation = small.scheduler.explain("a1", small.now * MINUTE)
    assert (explanation.start, explanation.rank) == ((small.now - 10) * MINUTE, None)


def test_an_attempt_past_its_minimum_says_so() -> None:
    """It may be stopped for better-ranked work."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10)
    small.wait(10)
    assert reason(small, "a1") == "it runs on h1, past its minimum runtime: better-ranked work may take its GPUs"


def test_unallocated_work_knows_that_it_may_be_stopped() -> None:
    """At any time."""
    small = Small(HALVES)
    small.submit("u1", None, 8, 0)
    assert reason(small, "u1") == "it runs on h1, unallocated: any allocated workload may take its GPUs"


def test_a_claim_says_how_many_gpus_are_still_being_freed() -> None:
    """And its victim for whom it was told to stop."""
    small = Small(HALVES)
    small.submit("u1", None, 5, 0)
    small.submit("a1", "a", 8, 10)
    assert reason(small, "a1") == "it waits for 5 of its 8 GPUs on h1, which are still being freed"
    told = "it was told to stop (preempted for a1); its processes on h1 have not ended yet"
    assert reason(small, "u1") == told


def test_a_claim_on_one_gpu_counts_it_as_one() -> None:
    """Singular."""
    small = Small(HALVES)
    small.submit("u1", None, 8, 0)
    small.submit("a1", "a", 1, 10)
    assert reason(small, "a1") == "it waits for 1 of its 1 GPU on h1, which are still being freed"


def test_an_attempt_that_its_owner_stops_names_nobody_else() -> None:
    """Only the reason."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10)
    small.do(RequeueRequested("a1"))
    assert reason(small, "a1") == "it was told to stop (forced); its processes on h1 have not ended yet"


def test_a_waiting_workload_says_what_it_needs_and_what_is_there() -> None:
    """With its rank."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 5, 60)
    small.submit("a2", "a", 7, 60)
    small.submit("b1", "b", 4, 60)
    small.submit("b2", "b", 16, 60)
    assert reason(small, "b1") == (
        "it needs 4 GPUs on one host; 4 of 16 GPUs are free, and no host has 4; it ranks 1 of 2 in pool p"
    )
    assert reason(small, "b2").startswith(
        "it needs 8 GPUs on each of 2 hosts; 4 of 16 GPUs are free, and no host has 8;"
    )


def test_one_free_gpu_reads_as_one() -> None:
    """On one host."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 8, 60)
    small.submit("a2", "a", 7, 60)
    small.submit("b1", "b", 2, 60, hosts=2)
    assert reason(small, "b1").startswith("it needs 1 GPU on each of 2 hosts; 1 of 16 GPUs is free, and 1 host has 1;")


def test_free_gpus_that_are_kept_for_the_reservation_say_for_whom() -> None:
    """And on which hosts."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 8, 60)
    small.submit("b1", "b", 16, 10)
    small.submit("a2", "a", 8, 90)
    assert reason(small, "a2") == (
        "it needs 8 GPUs on one host; 8 of 16 GPUs are free, and 1 host has 8; those are kept for better-ranked work; "
        "it ranks 2 of 2 in pool p; h1, h2 are kept for b1"
    )


def test_free_gpus_of_the_lane_say_so() -> None:
    """They are not for better-ranked work."""
    small = Small(HALVES, policy=Policy(debug=DebugLane(4)))
    small.submit("a1", "a", 4, 60)
    small.submit("b1", "b", 2, 60)
    assert "1 host has 2; those are kept for the debug lane;" in reason(small, "b1")


def test_a_budget_without_a_share_says_that_it_preempts_nobody() -> None:
    """And no time can be given."""
    small = Small({"a": "1", "z": "0"})
    small.submit("a1", "a", 8, 10)
    small.submit("z1", "z", 8, 10)
    assert "; its budget z has no share here, so it preempts nobody; it ranks 1 of 1 in pool p" in reason(small, "z1")
    explanation = small.scheduler.explain("z1", small.now * MINUTE)
    assert (explanation.start, explanation.estimate) == (None, False)


def test_who_failed_after_preempting_says_so_only_as_long_as_it_is_true() -> None:
    """Then it waits like others."""
    small = Small({"a": "1/100", "b": "99/100"}, policy=Policy(preempt_backoff=20 * MINUTE))
    small.submit("a1", "a", 8, 1)
    small.wait(100)
    small.submit("b1", "b", 8, 30, retries=5)
    small.submit("b0", "b", 8, 60, priority=1)
    small.exit("a1")
    small.exit("b1", Outcome.FAILED)
    told = "; it failed soon after it had preempted others, so for now it starts on free GPUs only"
    assert told in reason(small, "b1")
    small.wait(20)
    assert small.view("b1").state is WorkloadState.PENDING
    assert told not in reason(small, "b1")


@pytest.mark.parametrize("known", [0, 1])
def test_a_pool_without_a_ready_host_says_so(known: int) -> None:
    """With how many it knows."""
    small = Small(HALVES)
    if known:
        small.do(Cordoned("h1"))
        small.submit("a1", "a", 8, 60)
    else:
        small.do(BudgetsApplied(replace(small.tree, pools=(*small.tree.pools, Pool("q", 8, 1))), "c2"))
        small.submit("a1", "a", 8, 60, pools=("q",))
    pool = "p" if known else "q"
    assert reason(small, "a1") == f"no host of pool {pool} is ready, of {known} known; it ranks 1 of 1 in pool {pool}"


def test_held_work_says_why_it_cannot_be_ranked() -> None:
    """It has no pool and no rank."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.submit("a2", "a", 8, 60)
    small.do(BudgetsApplied(tree({"b": "1/2"}), "c2"))
    explanation = small.scheduler.explain("a2", small.now * MINUTE)
    assert explanation.reason == "its budget a was removed: move it to another one or cancel it"
    assert (explanation.state, explanation.pool, explanation.rank) == (WorkloadState.HELD, None, None)


def test_a_reservation_gives_the_time_as_a_bound_and_others_an_estimate() -> None:
    """A time that has passed is now."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.submit("b1", "b", 8, 10)
    small.submit("a2", "a", 8, 60)
    first, second = (small.scheduler.explain(name, small.now * MINUTE) for name in ("b1", "a2"))
    assert (first.start, first.estimate) == ((small.now + 60) * MINUTE, False)
    assert (second.start, second.estimate) == (None, False)
    late = small.scheduler.explain("b1", (small.now + 70) * MINUTE)
    assert late.start == (small.now + 70) * MINUTE


def test_each_step_of_a_rank_names_the_budgets_that_come_before() -> None:
    """From the root down; best first."""
    shares = {"a": "1/2", "a/x": "1/2", "a/y": "1/4", "b": "1/4"}
    small = Small(shares)
    small.submit("x1", "a/x", 8, 60)
    small.submit("x2", "a/x", 8, 60)
    small.submit("y1", "a/y", 8, 60)
    small.submit("r1", "a", 8, 60)
    small.submit("b1", "b", 8, 60)
    steps = small.scheduler.explain("x2", small.now * MINUTE).path
    assert [(step.path, step.share, step.usage // MINUTE, step.better) for step in steps] == [
        ("a", Fraction(1, 2), 480, ("b",)),
        ("a/x", Fraction(1, 2), 480, ("a", "a/y")),
    ]


def test_work_without_a_budget_stands_at_the_root() -> None:
    """It ranks last of all."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.submit("a2", "a", 8, 60)
    small.submit("s1", None, 8, 0)
    explanation = small.scheduler.explain("s1", small.now * MINUTE)
    assert (explanation.rank, explanation.waiting, explanation.start) == (2, 2, None)
    assert [step.path for step in explanation.path] == ["/"]


def test_a_workload_is_shown_with_its_attempt() -> None:
    """Where it runs, since when and until when it is protected."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 12, 60)
    begun = small.now * MINUTE
    placement = (("h1", (0, 1, 2, 3, 4, 5)), ("h2", (0, 1, 2, 3, 4, 5)))
    assert small.view("a1").attempt == AttemptView(
        "a1",
        1,
        "p",
        allocated=True,
        lane=False,
        placement=placement,
        started=begun,
        protected_until=begun + HOUR,
        stopping=False,
    )
    (start,) = small.last
    assert isinstance(start, Start)
    assert start.placement == placement


def test_a_host_is_shown_with_what_it_holds() -> None:
    """Attempts by workload, and what is free."""
    small = Small(HALVES)
    small.submit("b1", "b", 2, 60)
    small.submit("a1", "a", 3, 60)
    assert small.scheduler.hosts() == [
        HostView("h1", "p", 8, 3, 0, HostState.READY, "", (("a1", 1), ("b1", 1))),
    ]


def test_a_reservation_is_shown() -> None:
    """Where there is one."""
    small = Small(HALVES)
    assert small.scheduler.reservations() == []
    small.submit("a1", "a", 8, 60)
    small.submit("b1", "b", 8, 10)
    assert small.scheduler.reservations() == [
        ReservationView("p", "b1", (small.now + 60) * MINUTE, ("h1",), estimate=False)
    ]


def test_budgets_are_shown_with_what_they_have_and_are_owed() -> None:
    """Shares, guarantee, entitlement over what was observed, usage, and what runs and waits in and below them."""
    small = Small({"a": "1/2", "a/x": "1/4"}, hosts=2)
    small.submit("x1", "a/x", 8, 60)
    small.submit("r1", "a", 2, 60)
    small.submit("f1", "a/x", 1, 0)
    small.submit("x2", "a/x", 8, 60)
    small.wait(30)
    a, x = small.budget("a"), small.budget("a/x")
    assert (a.share, a.effective_share, a.reserve, a.guarantee) == (
        Fraction(1, 2),
        Fraction(1, 2),
        Fraction(3, 4),
        Fraction(8),
    )
    assert (x.share, x.effective_share, x.reserve, x.guarantee) == (
        Fraction(1, 4),
        Fraction(1, 8),
        Fraction(0),
        Fraction(2),
    )
    assert (x.entitlement, x.usage, x.balance) == (HOUR, 8 * HOUR, -7 * HOUR)
    assert (a.running, a.unallocated, a.pending) == (10, 1, 1)
    assert (x.running, x.unallocated, x.pending) == (8, 1, 1)


def test_usage_at_a_later_time_counts_what_will_have_come_by_then() -> None:
    """Protections that end, and history that leaves the window, before any event says so."""
    shares = {"a": "1/2", "b": "1/2"}
    small, woken = (Small(shares, policy=Policy(lookback=2 * HOUR)) for _ in range(2))
    for each in (small, woken):
        each.submit("a1", "a", 4, 10)
        each.submit("b1", "b", 4, 60)
        each.wait(20)
        each.exit("a1", Outcome.FINISHED)
        each.wait(25)
    for step in range(0, 200, 15):
        woken.wait(15)
        later = small.scheduler.budgets((small.now + step + 15) * MINUTE)
        assert later == woken.scheduler.budgets(woken.now * MINUTE)


def test_a_moved_workload_shows_the_budget_it_is_charged_to() -> None:
    """Not the one it was submitted with."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.submit("a2", "a", 8, 60)
    small.do(Moved("a2", "b"))
    assert small.view("a2").spec.budget == "b"
    small.do(HostReported("h2", "p", 8))
    assert (small.budget("a").running, small.budget("b").running) == (8, 8)
