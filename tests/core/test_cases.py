"""Faults that other schedulers had, each as the behaviour that is right here; the reference stands in the docstring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpubudget.core.budget import DebugLane, Policy
from gpubudget.core.decisions import HostChanged, Refuse, Requeue, Reserve, Start
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    Cordoned,
    DrainRequested,
    HostLost,
    Outcome,
    RequeueRequested,
    Uncordoned,
    Woke,
)
from gpubudget.core.host import HostState
from gpubudget.core.workload import WorkloadState
from gpubudget.errors import GpuBudgetError, InvalidInputError
from gpubudget.units import DAY, HOUR, MINUTE
from tests.core.small import Small, starts, stops, tree

HALVES = {"a": "1/2", "b": "1/2"}


def test_a_preemption_is_settled_in_one_pass_and_the_preemptor_gets_the_gpus() -> None:
    """kueue#14543: the next pass with no event preempts nobody, and the victim is not let in instead."""
    small = Small(HALVES)
    for name in ("a1", "a2"):
        small.submit(name, "a", 4, 10)
    small.wait(20)
    assert stops(small.submit("b1", "b", 6, 10)) == ["a1/1", "a2/1"]
    assert small.do(Woke()) == []
    assert starts(small.exit("a1") + small.exit("a2")) == ["b1/1"]
    assert small.do(Woke()) == []


def test_a_share_of_zero_ranks_last_and_never_preempts_even_with_no_usage() -> None:
    """kueue#6774, #13479: 0/0 is no rank; two budgets with zero share neither loop nor displace anybody."""
    small = Small({"a": "1", "y": "0", "z": "0"})
    small.submit("a1", "a", 8, 10)
    small.wait(30)
    assert small.submit("z1", "z", 8, 10) == []
    assert small.submit("y1", "y", 8, 10) == []
    small.submit("u1", None, 8, 0)
    small.submit("a2", "a", 8, 10)
    assert small.ranking() == ["a2", "y1", "z1", "u1"]
    assert small.wait(60) == []
    assert starts(small.exit("a1", Outcome.FINISHED)) == ["a2/1"]
    assert starts(small.exit("a2", Outcome.FINISHED)) == ["y1/1"]
    small.wait(60)
    assert small.ranking() == ["z1", "u1"]


def test_gpus_that_victims_free_one_by_one_are_kept_for_the_preemptor() -> None:
    """kueue#13797: neither a victim nor anybody else takes what was freed before the last one has left."""
    small = Small(HALVES)
    for name in ("a1", "a2", "a3"):
        small.submit(name, "a", 2, 10)
    small.submit("a4", "a", 2, 1_000 // 10)
    small.wait(20)
    assert len(stops(small.submit("b1", "b", 6, 10))) == 3
    assert starts(small.exit("a1")) == []
    assert starts(small.submit("b2", "b", 1, 10)) == []
    assert starts(small.submit("u", None, 1, 0)) == []
    assert starts(small.exit("a2")) == []
    assert starts(small.exit("a3")) == ["b1/1"]


def test_reports_about_an_attempt_that_has_ended_change_nothing() -> None:
    """kueue#11480, spur#474: attempts are numbered; a late report about the old one cannot end the new one."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10)
    small.do(RequeueRequested("a1"))
    assert starts(small.exit("a1")) == ["a1/2"]
    before = small.scheduler.snapshot()
    try:
        assert small.exit("a1", Outcome.FAILED, attempt=1) == []
    except GpuBudgetError as error:
        assert "attempt" in error.message  # noqa: PT017 - silence is right as well
    assert small.scheduler.snapshot() == before
    assert small.view("a1").state is WorkloadState.RUNNING


def test_a_workload_that_can_never_fit_is_refused_and_delays_nobody() -> None:
    """kueue#6929: it is refused with the numbers, the next one runs, and nobody is preempted for it."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 8, 10)
    small.wait(20)
    assert small.submit("b1", "b", 24, 10) == []
    (refuse,) = small.last
    assert isinstance(refuse, Refuse)
    assert "2 hosts" in refuse.reason
    assert "8 GPUs" in refuse.reason
    assert starts(small.submit("b2", "b", 8, 10)) == ["b2/1"]


def test_two_preemptors_in_one_pass_share_no_victim_and_stop_no_extra_one() -> None:
    """kueue#2596: the second plan sees the first one's victims and what they leave over."""
    small = Small({"a": "1/3", "b": "1/3", "c": "1/3"})
    for name in ("a1", "a2"):
        small.submit(name, "a", 4, 10)
    small.wait(20)
    assert len(stops(small.submit("b1", "b", 3, 5))) == 1
    assert stops(small.submit("c1", "c", 1, 5)) == []
    first = small.scheduler.hosts()[0].attempts
    assert len(first) >= 2
    left = [name for name in ("a1", "a2") if small.view(name).state is WorkloadState.STOPPING]
    assert sorted(starts(small.exit(left[0]))) == ["b1/1", "c1/1"]


def test_attempts_are_stopped_only_on_the_hosts_where_the_preemptor_then_runs() -> None:
    """spur#888: two small workloads stop two others, not one on each host."""
    small = Small(HALVES, hosts=6)
    for number in range(12):
        small.submit(f"a{number}", "a", 4, 10)
    small.wait(20)
    for name in ("b1", "b2"):
        victims = stops(small.submit(name, "b", 1, 10))
        assert len(victims) <= 1
        for victim in victims:
            small.exit(victim.partition("/")[0])
    running = {name: small.view(name) for name in ("b1", "b2")}
    assert all(view.state is WorkloadState.RUNNING for view in running.values())
    assert sum(view.preemptions for view in small.scheduler.workloads()) == 1


def test_a_swap_back_needs_a_full_minimum_runtime_and_a_new_rank() -> None:
    """volcano#4947: no ping-pong: the preemptor is protected, and the victim's budget must fall below it again."""
    small = Small({"a": "1/4", "b": "3/4"})
    small.submit("a1", "a", 8, 10)
    small.wait(60)
    small.submit("b1", "b", 8, 30)
    assert starts(small.exit("a1")) == ["b1/1"]
    assert stops(small.wait(29)) == []
    # b may have three times a's 60 minutes and a's commitment of 10 besides.
    assert stops(small.wait(60 + 60 + 60 + 30 - 29)) == []
    assert stops(small.wait(5)) == ["b1/1"]


def test_one_victim_is_stopped_where_one_is_enough() -> None:
    """volcano#5994, #5984: the set is minimal."""
    small = Small(HALVES, hosts=3)
    for number in range(24):
        small.submit(f"a{number}", "a", 1, 10)
    small.wait(20)
    assert len(stops(small.submit("b1", "b", 1, 10))) == 1


def test_nobody_is_preempted_in_a_half_empty_cluster() -> None:
    """armada#3899: free GPUs come first, whatever the balance of the budgets."""
    small = Small({"a": "1/100", "b": "99/100"}, hosts=2)
    small.submit("a1", "a", 8, 10)
    small.wait(600)
    assert small.submit("b1", "b", 8, 10) == ["start b1/1"]


def test_a_victim_is_not_placed_again_in_the_pass_that_stopped_it() -> None:
    """armada#5071: it waits, and what it leaves goes to the preemptor."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 8, 10)
    small.submit("a2", "a", 8, 10)
    small.wait(20)
    words = small.submit("b1", "b", 8, 10)
    (victim,) = stops(words)
    assert starts(words) == []
    name = victim.partition("/")[0]
    assert starts(small.exit(name)) == ["b1/1"]
    assert small.view(name).state is WorkloadState.PENDING


def test_the_search_for_victims_goes_on_past_a_protected_one() -> None:
    """KAI#1750: that the first candidate is protected says nothing about the next."""
    small = Small(HALVES, hosts=3)
    small.submit("a1", "a", 8, 400)
    small.submit("a2", "a", 8, 10)
    small.submit("a3", "a", 8, 400)
    small.wait(20)
    assert stops(small.submit("b1", "b", 8, 10)) == ["a2/1"]


def test_a_gang_that_loses_a_host_stops_as_a_whole_and_waits_again() -> None:
    """KAI#2208: the rest of the gang does not keep its GPUs."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 12, 60)
    assert small.do(HostLost("h2")) == ["stop a1/1 host_lost"]
    assert small.exit("a1") == ["stopped a1/1 host_lost"]
    assert any(isinstance(decision, Requeue) for decision in small.last)
    assert [host.free for host in small.scheduler.hosts() if host.name == "h1"] == [8]
    assert small.view("a1").failures == 0


def test_a_gang_is_protected_from_the_moment_it_starts() -> None:
    """KAI PR#234: all its GPUs, on all hosts, until start + minimum runtime."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 16, 60)
    small.submit("b1", "b", 1, 10)
    assert stops(small.wait(59)) == []
    assert stops(small.wait(1)) == ["a1/1"]


def test_usage_is_the_same_before_and_after_a_restart() -> None:
    """kueue#12911, #12783: history is neither forgotten nor counted twice, to the millisecond."""
    small = Small({"a": "1/3", "b": "2/3"}, hosts=2)
    small.submit("a1", "a", 8, 10)
    small.submit("b1", "b", 5, 60)
    small.wait(17)
    small.exit("a1", Outcome.FINISHED)
    small.wait(13)
    before = small.scheduler.budgets(small.now * MINUTE)
    small.restart()
    assert small.scheduler.budgets(small.now * MINUTE) == before
    small.wait(7 * 24 * 60)
    assert small.usage("a") == 0


def test_what_a_removed_budget_runs_goes_on_and_is_charged_to_its_parents_reserve() -> None:
    """kueue#15383, volcano#5878: no crash, nothing runs for free, what waits is held, and the removal is told."""
    small = Small({"a": "1/2", "a/x": "1/2", "b": "1/2"})
    small.submit("x1", "a/x", 8, 10)
    small.submit("x2", "a/x", 8, 10)
    small.wait(30)
    used = small.usage("a")
    assert small.do(BudgetsApplied(tree(HALVES), "c2")) == []
    assert small.usage("a") == used == 240
    small.wait(30)
    assert small.usage("a") == 480
    assert small.view("x2").state is WorkloadState.HELD
    assert "a/x" in small.scheduler.explain("x2", small.now * MINUTE).reason
    assert stops(small.submit("b1", "b", 8, 10)) == ["x1/1"]


@pytest.mark.parametrize("end", ["finish", "fail", "cancel", "lose", "preempt", "requeue", "refuse"])
def test_a_commitment_ends_on_every_path(end: str) -> None:
    """kueue#12539: whatever ends an attempt or a claim gives back what was charged ahead."""
    small = Small({"a": "1/2", "b": "1/4", "c": "1/4"}, hosts=2)
    small.submit("a1", "a", 8, 100)
    small.submit("a2", "a", 8, 10)
    small.wait(20)
    assert small.usage("a") == 8 * 100 + 8 * 20
    match end:
        case "finish":
            small.exit("a1", Outcome.FINISHED)
        case "fail":
            small.exit("a1", Outcome.FAILED)
        case "cancel":
            small.do(Cancelled("a1"))
            small.exit("a1")
        case "lose":
            small.do(HostLost("h1"))
        case "requeue":
            small.do(Cordoned("h1"))
            small.do(RequeueRequested("a1"))
            small.exit("a1")
        case "preempt":
            small.exit("a1", Outcome.FINISHED)
            small.submit("b1", "b", 16, 1)
            small.exit("a2")
            small.exit("b1", Outcome.FINISHED)
            small.do(Cancelled("a2"))
            small.exit("a2")
        case _:
            small.exit("a1", Outcome.FINISHED)
            small.submit("b1", "b", 16, 1)
            assert small.usage("b") == 16
            small.do(Cancelled("b1"))
            assert small.usage("b") == 0
            small.exit("a2", Outcome.FINISHED)
    assert small.usage("a") == 8 * 20 + 8 * 20


def test_usage_that_has_left_the_window_is_zero_exactly() -> None:
    """openpbs#1128: years of history in exact integers: no decay, no underflow, no division by zero."""
    small = Small({"a": "1/3", "b": "1/1000000007"})
    for round_number in range(50):
        small.submit(f"a{round_number}", "a", 7, 1)
        small.wait(1)
        small.exit(f"a{round_number}", Outcome.FINISHED)
        small.wait(30 * 24 * 60)
        assert small.usage("a") == 0
    small.submit("a", "a", 8, 10)
    small.wait(10)
    small.submit("b", "b", 8, 10)
    assert small.ranking() == ["b"]


def test_eight_gpus_are_charged_as_eight() -> None:
    """spur#805, #439: GPU-time counts GPUs."""
    small = Small(HALVES, hosts=3)
    small.submit("a1", "a", 8, 1)
    small.submit("b1", "b", 12, 1)
    small.wait(10)
    assert (small.usage("a"), small.usage("b"), small.usage("/")) == (80, 120, 200)


def test_preemptions_do_not_count_against_the_retry_limit() -> None:
    """spur#431: failures and preemptions have counters of their own."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10, retries=1)
    small.wait(20)
    small.submit("b1", "b", 8, 10)
    small.exit("a1")
    small.exit("b1", Outcome.FINISHED)
    assert (small.view("a1").preemptions, small.view("a1").failures) == (1, 0)
    small.exit("a1", Outcome.FAILED)
    assert small.view("a1").failures == 1
    assert small.view("a1").state is WorkloadState.RUNNING
    small.exit("a1", Outcome.FAILED)
    assert small.scheduler.workload("a1") is None


def test_a_pass_sees_its_own_starts() -> None:
    """spur#478: what one start in a pass is charged counts for the next pick, and caps hold within a pass."""
    small = Small(HALVES, hosts=2)
    small.submit("fill", "a", 16, 1)
    for name in ("a1", "a2"):
        small.submit(name, "a", 8, 10)
    for name in ("b1", "b2"):
        small.submit(name, "b", 8, 10)
    # Nobody has used anything; a goes first by its path, and its commitment puts it behind b at once.
    assert starts(small.exit("fill", Outcome.FINISHED)) == ["a1/1", "b1/1"]

    lane = Small(HALVES, policy=Policy(debug=DebugLane(gpus=4, per_person=1)))
    lane.submit("block", "a", 4, 300)
    first = lane.submit("d1", "b", 1, 5, debug=True, max_runtime=10 * MINUTE)
    second = lane.submit("d2", "b", 1, 5, debug=True, max_runtime=10 * MINUTE)
    assert (starts(first), starts(second)) == (["d1/1"], [])


def test_a_wide_workload_is_not_starved_by_small_ones() -> None:
    """spur#732: it gets a reservation; others start only if they do not delay it."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 4, 30)
    small.submit("a2", "a", 8, 60)
    small.submit("wide", "b", 16, 20)
    (reserve,) = (decision for decision in small.last if isinstance(decision, Reserve))
    assert (reserve.workload, reserve.start, reserve.hosts) == ("wide", (small.now + 60) * MINUTE, ("h1", "h2"))
    small.wait(1)
    assert starts(small.submit("long", "b", 4, 90)) == []
    assert starts(small.submit("brief", "a", 2, 20)) == ["brief/1"]
    assert sorted(stops(small.wait(60))) == ["a1/1", "a2/1", "brief/1"]
    for name in ("a1", "a2", "brief"):
        small.exit(name)
    assert small.view("wide").state is WorkloadState.RUNNING


def test_the_reason_of_a_wait_is_the_true_one_with_its_numbers() -> None:
    """spur#43, #47, #65, #90: while GPUs are idle the reason is not the priority, but that none fit."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 5, 60)
    small.submit("a2", "a", 5, 60)
    small.submit("b1", "b", 4, 60)
    explanation = small.scheduler.explain("b1", small.now * MINUTE)
    assert explanation.rank == 1
    assert "4" in explanation.reason
    assert "priority" not in explanation.reason
    assert explanation.start == (small.now + 60) * MINUTE
    assert not explanation.estimate


def test_a_workload_waits_when_all_hosts_that_could_hold_it_are_cordoned_or_lost() -> None:
    """armada#4946: what could fit when they are back is not refused."""
    small = Small(HALVES, hosts=2)
    small.do(Cordoned("h1", "kernel"))
    small.do(HostLost("h2"))
    assert small.submit("a1", "a", 16, 10) == []
    assert not any(isinstance(decision, Refuse) for decision in small.last)
    assert small.view("a1").state is WorkloadState.PENDING
    assert starts(small.submit("a2", "a", 8, 10)) == []
    assert starts(small.do(Uncordoned("h1"))) == ["a2/1"]


def test_a_drain_survives_a_restart_and_can_be_cancelled() -> None:
    """draino#63, #17: it is neither forgotten nor carried out after it was called off."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.do(DrainRequested("h1", "ECC errors"))
    small.restart()
    assert small.scheduler.hosts()[0].state is HostState.DRAINING
    assert stops(small.wait(59)) == []
    small.do(Uncordoned("h1"))
    small.restart()
    assert stops(small.wait(30)) == []
    assert small.scheduler.hosts()[0].state is HostState.READY
    small.do(DrainRequested("h1", "ECC errors"))
    assert small.view("a1").state is WorkloadState.STOPPING
    small.restart()
    small.exit("a1")
    assert [decision.state for decision in small.last if isinstance(decision, HostChanged)] == [HostState.DRAINED]


def test_a_tiny_share_is_not_rounded_to_nothing() -> None:
    """kueue#6577: the owner of 1/1000 of one host can still reclaim a GPU."""
    small = Small({"a": "999/1000", "b": "1/1000"})
    small.submit("a1", "a", 8, 10)
    small.wait(7 * 24 * 60)
    assert stops(small.submit("b1", "b", 1, 10)) == ["a1/1"]


def test_depth_does_not_matter() -> None:
    """KAI, by arithmetic: the same history and split rank the same inside a 2% budget as inside the root."""
    flat = Small({"x": "47/100", "y": "53/100"}, hosts=2)
    deep = Small(
        {"big": "98/100", "two": "2/100", "two/x": "47/100", "two/y": "53/100"},
        hosts=2,
    )
    for small, prefix in ((flat, ""), (deep, "two/")):
        small.submit("hog", f"{prefix}x", 8, 10)
        small.submit("block", f"{prefix}x", 8, 500)
        small.wait(60)
        small.submit("x1", f"{prefix}x", 8, 30)
        small.submit("y1", f"{prefix}y", 8, 30, priority=-5)
        small.submit("x2", f"{prefix}x", 8, 30)
        small.submit("y2", f"{prefix}y", 8, 30)
    assert flat.ranking() == deep.ranking()
    assert flat.view("hog").state is deep.view("hog").state is WorkloadState.STOPPING


def test_the_first_hour_counts_as_the_hour_that_was_observed() -> None:
    """KAI, cold start: entitlement is over the observed part of the window, so that balances mean something at once."""
    small = Small({"a": "1/2", "b": "1/2"})
    small.submit("a1", "a", 8, 10)
    small.wait(60)
    view = small.budget("a")
    assert view.usage == 8 * HOUR
    assert view.entitlement == 4 * HOUR
    assert view.balance == -4 * HOUR
    small.wait(14 * 24 * 60)
    assert small.budget("a").entitlement == 4 * 7 * DAY


def test_time_does_not_go_back() -> None:
    """Slurm's clock: a step back is refused, changes nothing, and no interval is charged twice."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10)
    small.wait(20)
    before = small.scheduler.snapshot()
    with pytest.raises(InvalidInputError):
        small.scheduler.handle(Woke(), (small.now - 5) * MINUTE)
    assert small.scheduler.snapshot() == before
    assert small.usage("a") == 160


def test_a_waiting_workload_is_told_by_when_it_can_start() -> None:
    """kueue#13159, #1657, #2833: an upper bound from the ends of protections, or an estimate marked as one."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.submit("b1", "b", 8, 10)
    explanation = small.scheduler.explain("b1", small.now * MINUTE)
    assert (explanation.start, explanation.estimate) == ((small.now + 60) * MINUTE, False)
    small.submit("a2", "a", 8, 10)
    later = small.scheduler.explain("a2", small.now * MINUTE)
    assert later.start is None or later.estimate or later.start >= (small.now + 60) * MINUTE


def test_a_gang_that_failed_soon_after_it_preempted_waits_longer_each_time_before_it_preempts_again() -> None:
    """Kokolis et al., HPCA 2025: a crashing gang does not stop small ones again and again; free GPUs it may have."""
    policy = Policy(failed_soon=10 * MINUTE, preempt_backoff=20 * MINUTE)
    small = Small({"a": "1/100", "b": "99/100"}, hosts=2, policy=policy)
    for name in ("a1", "a2"):
        small.submit(name, "a", 8, 1)
    small.wait(100)
    victims = stops(small.submit("gang", "b", 16, 30, retries=9))
    for pause in (20, 40, 80):
        assert sorted(victim.partition("/")[0] for victim in victims) == ["a1", "a2"][: len(victims)]
        for victim in victims:
            small.exit(victim.partition("/")[0])
        assert small.view("gang").state is WorkloadState.RUNNING
        small.do(Cordoned("h2"))
        small.wait(1)
        assert starts(small.exit("gang", Outcome.FAILED))[0].startswith("a1/")
        small.do(Uncordoned("h2"))
        assert stops(small.wait(pause - 1)) == []
        victims = stops(small.wait(2))
        assert victims
    small.do(Cancelled("a1"))
    small.do(Cancelled("a2"))


def test_a_start_says_why_and_what_caused_it() -> None:
    """Every decision carries its reason and the event that caused it."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 10)
    (start,) = small.last
    assert isinstance(start, Start)
    assert start.reason
    assert start.cause == small.last[0].cause
    assert replace(start, reason="") != start


def test_each_workload_has_a_minimum_runtime_of_its_own_and_is_held_to_that_alone() -> None:
    """kueue#9876, #8522, #9596: the contract of two workloads of one budget, started together, ends at two times."""
    small = Small(HALVES)
    small.submit("short", "a", 4, 10)
    small.submit("long", "a", 4, 120)
    small.wait(9)
    assert stops(small.submit("b1", "b", 4, 5)) == []
    assert stops(small.wait(1)) == ["short/1"]
    assert starts(small.exit("short")) == ["b1/1"]
    assert stops(small.submit("b2", "b", 4, 5)) == []
    assert stops(small.wait(109)) == []
    assert "long/1" in stops(small.wait(1))
