"""The scheduling pass: who is asked, where, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpubudget.core.budget import Policy, Pool
from gpubudget.core.decisions import Reserve
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    Cordoned,
    DrainRequested,
    HostReported,
    Outcome,
    RequeueRequested,
    Uncordoned,
    Woke,
)
from gpubudget.core.workload import WorkloadState
from gpubudget.units import MINUTE, SECOND
from tests.core.small import Small, starts, stops

HALVES = {"a": "1/2", "b": "1/2"}


def two_pools(shares: dict[str, str] | None = None) -> Small:
    """Pools p and q with a host each, of 8 GPUs."""
    small = Small(shares or HALVES)
    small.tree = replace(small.tree, pools=(Pool("p", 8, 1), Pool("q", 8, 1)))
    small.do(BudgetsApplied(small.tree, "c2"))
    small.do(HostReported("q1", "q", 8))
    return small


def pool_of(small: Small, name: str) -> str:
    attempt = small.view(name).attempt
    assert attempt is not None
    return attempt.pool


@pytest.mark.parametrize("minutes", [60, 0])
def test_a_workload_of_several_pools_starts_in_the_first_that_has_room(minutes: int) -> None:
    """In its own order of preference."""
    small = two_pools()
    for name, pool in (("w1", "q"), ("w2", "p")):
        small.submit(name, "a", 8, minutes, pools=("q", "p"))
        assert pool_of(small, name) == pool


@pytest.mark.parametrize("minutes", [60, 0])
def test_where_two_pools_gain_at_once_a_workload_starts_in_the_one_it_prefers(minutes: int) -> None:
    """Whichever pool is looked at first."""
    small = two_pools()
    for host in ("h1", "q1"):
        small.do(Cordoned(host))
    small.submit("w1", "a", 8, minutes, pools=("q", "p"))
    pools = small.scheduler.state.pools
    for name, host in (("p", "h1"), ("q", "q1")):
        state = small.scheduler.state.hosts[host]
        assert pools[name].hosts[host] is state
    nothing = replace(small.tree, pools=(Pool("r", 8, 1),))
    for host in ("h1", "q1"):
        small.do(BudgetsApplied(nothing, "c3"))
        small.do(Uncordoned(host))
    assert small.view("w1").state is WorkloadState.HELD
    assert starts(small.do(BudgetsApplied(small.tree, "c4"))) == ["w1/1"]
    assert pool_of(small, "w1") == "q"


def test_work_that_prefers_another_pool_takes_what_there_is_at_once() -> None:
    """It does not wait for its first choice."""
    small = two_pools()
    small.submit("a1", "a", 8, 60, pools=("q",))
    assert starts(small.submit("w1", "a", 8, 60, pools=("q", "p"))) == ["w1/1"]
    assert pool_of(small, "w1") == "p"


def test_of_one_budget_a_shorter_workload_may_start_where_the_first_cannot() -> None:
    """With its commitment the budget still ranks before the victim's; of those that can, the first in order starts."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 8, 70)
    small.wait(60)
    small.submit("b0", "b", 8, 5)
    small.wait(6)
    for place, minutes in enumerate((120, 70, 50, 59, 20)):
        small.submit(f"b{minutes}", "b", 8, minutes, priority=-place)
    # When a1 may be stopped, a has used 480 GPU-minutes more than b: less than an hour on 8 GPUs is possible.
    assert small.wait(4) == ["stop a1/1 preempted for b50", "claim b50"]


def test_none_of_a_budget_starts_where_the_shortest_cannot() -> None:
    """Its commitment alone would put the budget behind the victim's."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 8, 70)
    small.wait(60)
    small.submit("b0", "b", 8, 5)
    small.wait(6)
    small.submit("b120", "b", 8, 120)
    small.submit("b60", "b", 8, 60)
    assert small.wait(30) == []


def test_what_comes_first_is_not_passed_by_what_comes_later_in_its_budget() -> None:
    """Where both could start."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    for name, gpus in (("b1", 4), ("b2", 2), ("b3", 4)):
        small.submit(name, "b", gpus, 60)
    assert starts(small.exit("a1", Outcome.FINISHED)) == ["b1/1", "b2/1"]


def test_priority_orders_the_workloads_of_one_budget() -> None:
    """Of any shape; larger goes first."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 60)
    small.submit("b1", "b", 8, 60)
    small.submit("b2", "b", 4, 60, priority=1)
    small.submit("b3", "b", 6, 60, priority=2)
    assert small.ranking() == ["b3", "b2", "b1"]
    assert starts(small.exit("a1", Outcome.FINISHED)) == ["b3/1"]


def test_a_change_of_rank_is_noticed_within_the_rebalance_interval() -> None:
    """Though nothing happens that could tell."""
    small = Small(HALVES, policy=Policy(rebalance_interval=60 * SECOND))
    small.submit("a1", "a", 8, 10)
    small.wait(10)
    small.submit("b1", "b", 8, 30)
    assert small.view("b1").state is WorkloadState.PENDING
    assert stops(small.wait(20)) == []
    assert stops(small.wait(2)) == ["a1/1"]


def test_nothing_changes_when_it_is_woken_again_at_the_same_time() -> None:
    """Quiescence."""
    small = Small(HALVES, hosts=2)
    for number in range(6):
        small.submit(f"a{number}", "a", 3 + number, 10)
        small.submit(f"b{number}", "b", 3 + number, 20)
    small.wait(30)
    assert small.do(Woke()) == []
    assert small.last == []


def test_a_time_is_looked_for_among_the_best_ranked_only() -> None:
    """So a pass ends soon where none can be given a time."""
    small = Small({"a": "1", **{f"z{number}": "0" for number in range(9)}})
    small.submit("a1", "a", 8, 60)
    for number in range(9):
        small.submit(f"w{number}", f"z{number}", 8, 60)
    small.wait(2)
    assert small.scheduler.reservations() == []
    small.submit("a2", "a", 8, 60)
    assert starts(small.exit("a1", Outcome.FINISHED)) == ["a2/1"]


def test_the_reservation_goes_to_a_better_ranked_workload_that_comes() -> None:
    """And back, when that is cancelled."""
    small = Small({"a": "1/3", "b": "1/4", "c": "1/3"})
    small.submit("a0", "a", 4, 10)
    small.submit("a1", "a", 4, 60)
    small.submit("b1", "b", 8, 10)
    assert [kept.workload for kept in small.scheduler.reservations()] == ["b1"]
    small.submit("c1", "c", 8, 10)
    small.wait(2)
    assert [kept.workload for kept in small.scheduler.reservations()] == ["c1"]
    small.do(Cancelled("c1"))
    small.wait(2)
    assert [kept.workload for kept in small.scheduler.reservations()] == ["b1"]


def test_a_gang_starts_at_the_reserved_time() -> None:
    """On the hosts that were kept for it, though others wait for them too."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 8, 30)
    small.submit("a2", "a", 8, 60)
    small.submit("gang", "b", 16, 10)
    (reserve,) = (decision for decision in small.last if isinstance(decision, Reserve))
    assert reserve.start == (small.now + 60) * MINUTE
    small.submit("a3", "a", 8, 60)
    assert starts(small.wait(30) + small.exit("a1", Outcome.FINISHED)) == []
    assert stops(small.wait(30)) == ["a2/1"]
    assert starts(small.exit("a2")) == ["gang/1"]


def test_a_gang_that_is_reserved_for_starts_as_soon_as_it_can() -> None:
    """It is looked at when its hosts gain, before the reserved time."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 8, 60)
    small.submit("a2", "a", 8, 10)
    small.submit("gang", "b", 16, 10)
    assert small.wait(20) == []
    assert stops(small.exit("a1", Outcome.FINISHED)) == ["a2/1"]


def test_beside_what_is_reserved_longer_work_may_start() -> None:
    """Where the host has room for both at the reserved time."""
    small = Small({"a": "1/3", "b": "1/3", "c": "1/4"})
    small.submit("a1", "a", 6, 60)
    small.submit("b1", "b", 4, 10)
    assert [kept.workload for kept in small.scheduler.reservations()] == ["b1"]
    assert starts(small.submit("c1", "c", 2, 90)) == ["c1/1"]
    assert [kept.start for kept in small.scheduler.reservations()] == [(small.now + 60) * MINUTE]


def test_what_a_claim_will_hold_counts_for_a_reservation_as_an_estimate() -> None:
    """It has not started, so nobody knows when its protection ends."""
    small = Small(HALVES)
    small.submit("u1", None, 8, 0)
    small.submit("a1", "a", 8, 60)
    small.submit("b1", "b", 8, 10)
    (kept,) = small.scheduler.reservations()
    assert (kept.workload, kept.start, kept.estimate) == ("b1", (small.now + 60) * MINUTE, True)


def test_a_reservation_is_not_shaken_by_what_is_over_by_then() -> None:
    """Short work fills the hosts that are kept."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 8, 60)
    small.submit("gang", "b", 16, 10)
    assert starts(small.submit("a2", "a", 8, 30)) == ["a2/1"]
    assert starts(small.submit("u1", None, 8, 0)) == []
    assert [kept.workload for kept in small.scheduler.reservations()] == ["gang"]


def test_unallocated_work_fills_what_is_free_by_its_own_ranks() -> None:
    """The walk over unallocated occupancy; without a budget last."""
    small = Small(HALVES)
    small.submit("x", "a", 8, 10)
    small.submit("s1", None, 2, 0)
    small.submit("a1", "a", 4, 0)
    small.submit("a2", "a", 4, 0)
    small.submit("b1", "b", 4, 0)
    assert starts(small.exit("x", Outcome.FINISHED)) == ["a1/1", "a2/1"]
    small.wait(10)
    assert starts(small.exit("a1", Outcome.FINISHED)) == ["b1/1"]
    assert starts(small.exit("b1", Outcome.FINISHED)) == ["s1/1"]


def test_work_that_is_requeued_is_tried_on_every_host() -> None:
    """It has just begun to wait."""
    small = Small(HALVES, hosts=2)
    small.submit("a1", "a", 8, 60)
    small.do(RequeueRequested("a1"))
    assert starts(small.exit("a1")) == ["a1/2"]


def _reserved_within_a_program() -> Small:
    """Program b has used 480 GPU-minutes, a 960; b/x gets 16 GPUs of a in an hour, with 320 more: a firm time."""
    shares = {"a": "1/2", "b": "1/2", "b/a": "1/4", "b/x": "1/4", "b/y": "1/4", "b/z": "1/4"}
    small = Small(shares, hosts=3)
    small.submit("a1", "a", 16, 60)
    small.submit("z1", "b/z", 4, 120)
    small.submit("wide", "b/x", 16, 20)
    (kept,) = small.scheduler.reservations()
    assert (kept.workload, kept.start, kept.estimate) == ("wide", (small.now + 60) * MINUTE, False)
    return small


def test_a_start_that_would_cost_a_reservation_its_rank_waits() -> None:
    """GPUs are free elsewhere, but with 240 GPU-minutes more the program would not rank before a in an hour."""
    small = _reserved_within_a_program()
    assert small.submit("y1", "b/y", 4, 50) == []
    assert small.submit("y2", "b/y", 2, 30) == ["start y2/1"]
    assert starts(small.wait(61)) == []
    assert small.view("wide").state == "starting"


def test_who_ranks_before_a_reservation_may_cost_it_its_rank() -> None:
    """Equal usage and share: the path decides, and b/a comes before b/x."""
    small = _reserved_within_a_program()
    assert small.submit("first", "b/a", 4, 50) == ["start first/1"]


def test_what_would_cost_the_reservation_the_turn_of_its_program_waits() -> None:
    """Else small workloads beside it keep its program behind the others for ever, and a whole host is never empty."""
    small = Small({"x": "1/3", "x/big": "1/2", "x/small": "1/2", "y": "1/3", "z": "1/3"}, hosts=2)
    small.submit("z1", "z", 8, 15)
    small.submit("y1", "y", 2, 30)
    assert starts(small.submit("big", "x/big", 8, 5)) == []
    assert starts(small.submit("s1", "x/small", 2, 35)) == ["s1/1"]  # nobody waits who could take the turn
    small.exit("s1", Outcome.FINISHED)
    small.submit("y2", "y", 8, 10)
    assert starts(small.submit("s2", "x/small", 2, 35)) == []
    assert stops(small.wait(15)) == ["z1/1"]
    assert starts(small.exit("z1")) == ["big/1"]


def test_of_two_that_lose_their_claims_at_once_the_first_starts_first_elsewhere() -> None:
    """That another of the same budget and shape waits says nothing as long as it was not tried itself."""
    small = two_pools()
    small.submit("u1", "a", 8, 0, pools=("q",))
    assert small.submit("a1", "a", 2, 60, pools=("q", "p"))[-1] == "claim a1"
    assert small.submit("a2", "a", 2, 1, pools=("q", "p"))[-1] == "claim a2"
    assert starts(small.do(DrainRequested("q1", "hot"))) == ["a1/1", "a2/1"]


def test_a_gang_whose_time_has_come_starts_though_others_that_cannot_rank_before_it() -> None:
    """It does not wait for the next full pass, which may be long in coming."""
    small = Small({"a": "1/4", "b": "1/4", "c": "1/2"}, hosts=3, policy=Policy(rebalance_interval=7 * MINUTE))
    small.do(Cordoned("h3"))
    small.submit("a1", "a", 16, 60)
    small.submit("c1", "c", 24, 60)
    small.submit("b1", "b", 16, 5)
    small.wait(7)
    (kept,) = small.scheduler.reservations()
    assert (kept.workload, kept.start, kept.estimate) == ("b1", (small.now + 53) * MINUTE, False)
    assert small.ranking() == ["c1", "b1"]
    assert small.wait(53) == ["stop a1/1 preempted for b1", "claim b1"]
