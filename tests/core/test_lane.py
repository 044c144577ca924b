"""The debug lane."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpubudget.core.budget import DebugLane, Policy
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    Cordoned,
    DrainRequested,
    HostLost,
    HostReported,
    Outcome,
    RequeueRequested,
    Uncordoned,
)
from gpubudget.core.host import HostState
from gpubudget.core.lane import Lane, spread
from gpubudget.core.records import Host
from gpubudget.core.workload import WorkloadSpec, WorkloadState
from gpubudget.units import MINUTE
from tests.core.small import Small, starts, stops, tree

HALVES = {"a": "1/2", "b": "1/2"}
SPEC = WorkloadSpec("d", "ann", "a", ("p",), 2, min_runtime=MINUTE, max_runtime=10 * MINUTE, debug=True)


def with_lane(hosts: int = 1, shares: dict[str, str] | None = None, **lane: int) -> Small:
    """A cluster with a lane of 4 GPUs."""
    return Small(shares or HALVES, hosts=hosts, policy=Policy(debug=DebugLane(**{"gpus": 4, **lane})))


def debug(small: Small, name: str, owner: str = "ann", gpus: int = 2, **more: Any) -> list[str]:  # noqa: ANN401 - any field
    return small.submit(
        name, more.pop("budget", "a"), gpus, 1, owner=owner, debug=True, max_runtime=10 * MINUTE, **more
    )


def in_lane(small: Small, name: str) -> bool:
    attempt = small.view(name).attempt
    return attempt is not None and attempt.lane


@pytest.mark.parametrize(
    ("change", "admitted"),
    [
        ({}, True),
        ({"hosts": 1}, True),
        ({"debug": False}, False),
        ({"min_runtime": 0}, False),
        ({"max_runtime": None}, False),
        ({"max_runtime": 15 * MINUTE}, True),
        ({"max_runtime": 15 * MINUTE + 1}, False),
        ({"gpus": 8}, True),
        ({"gpus": 9}, False),
        ({"hosts": 2}, False),
    ],
)
def test_the_lane_admits_what_asks_for_it_is_funded_short_small_and_on_one_host(
    change: dict[str, Any], *, admitted: bool
) -> None:
    """And there must be a lane."""
    lane = Lane(0)
    assert (lane.admits(SPEC), lane.gpus, lane.next_up(0, set())) == (False, 0, [])
    lane.spec = DebugLane(4)
    assert lane.admits(replace(SPEC, **change)) is admitted


def test_the_lane_stands_where_it_is_then_on_the_last_ready_hosts() -> None:
    """It moves as little as possible, and never to a host that is not ready."""
    hosts = [Host(f"h{number}", "p", 8, number) for number in range(4)]
    assert spread(12, hosts) == {"h3": 8, "h2": 4}
    assert spread(0, hosts) == {}
    hosts[0].lane = 8
    hosts[3].state = HostState.CORDONED
    assert spread(12, hosts) == {"h0": 8, "h2": 4}
    assert spread(100, hosts) == {"h0": 8, "h2": 8, "h1": 8}


def test_other_allocated_work_stays_out_of_the_lane() -> None:
    """However long it waits, it leaves the lane's GPUs to whoever debugs."""
    small = with_lane()
    assert starts(small.submit("a1", "a", 4, 60)) == ["a1/1"]
    assert starts(small.submit("b1", "b", 1, 60)) == []
    assert starts(debug(small, "d1")) == ["d1/1"]
    assert in_lane(small, "d1")


def test_unallocated_work_fills_the_lane_and_leaves_it_at_once() -> None:
    """It is stopped for the lane's own, and nobody else is."""
    small = with_lane()
    small.submit("a1", "a", 4, 1)
    small.submit("u1", None, 4, 0)
    small.wait(60)
    assert debug(small, "d1", budget="b") == ["stop u1/1 preempted for d1", "claim d1"]
    small.exit("u1")
    assert in_lane(small, "d1")


def test_each_person_has_one_at_a_time_and_the_least_recent_user_goes_first() -> None:
    """Whatever the balance of the budgets."""
    small = with_lane()
    small.submit("a1", "a", 4, 400)
    assert starts(debug(small, "ann1", "ann")) == ["ann1/1"]
    assert starts(debug(small, "ann2", "ann")) == []
    assert starts(debug(small, "bob1", "bob", budget="b")) == ["bob1/1"]
    assert starts(debug(small, "cid1", "cid")) == []
    small.wait(5)
    assert starts(small.exit("ann1", Outcome.FINISHED)) == ["cid1/1"]
    small.wait(1)
    assert starts(small.exit("bob1", Outcome.FINISHED)) == ["ann2/1"]


def test_when_the_lane_is_full_debug_work_competes_outside_it() -> None:
    """By the ordinary rules, ahead of nobody."""
    small = with_lane()
    for name in ("ann", "bob"):
        debug(small, f"{name}1", name)
    assert starts(debug(small, "cid1", "cid")) == ["cid1/1"]
    assert not in_lane(small, "cid1")


def test_debug_work_ends_at_its_limit() -> None:
    """Counted over all its attempts."""
    small = with_lane()
    debug(small, "d1")
    assert stops(small.wait(9)) == []
    assert stops(small.wait(1)) == ["d1/1"]
    assert small.exit("d1") == ["stopped d1/1 finished"]


def test_work_of_the_lane_is_not_preempted_past_its_minimum() -> None:
    """It ends soon anyway."""
    small = with_lane()
    small.submit("a1", "a", 4, 400)
    debug(small, "d1")
    small.wait(5)
    assert small.submit("b1", "b", 4, 1) == []


def test_the_lane_moves_when_its_host_leaves() -> None:
    """What runs in it goes on where it is."""
    small = with_lane(hosts=2)
    debug(small, "d1")
    assert [host.lane for host in small.scheduler.hosts()] == [4, 0]
    small.do(Cordoned("h1"))
    assert [host.lane for host in small.scheduler.hosts()] == [0, 4]
    assert small.view("d1").state is WorkloadState.RUNNING
    small.do(Uncordoned("h1"))
    assert [host.lane for host in small.scheduler.hosts()] == [0, 4]
    assert starts(small.do(HostLost("h1"))) == ["d1/2"]
    assert in_lane(small, "d1")


def test_a_drain_waits_for_work_of_the_lane_like_for_any_other() -> None:
    """Until its minimum runtime is over."""
    small = with_lane()
    debug(small, "d1")
    small.do(DrainRequested("h1", "hot"))
    assert stops(small.wait(1)) == ["d1/1"]


def test_a_lane_that_a_commit_takes_away_is_ordinary_again() -> None:
    """And what waited for it waits like the rest."""
    small = with_lane(per_person=1)
    small.submit("a1", "a", 4, 400)
    debug(small, "d1")
    debug(small, "d2")
    assert starts(small.do(BudgetsApplied(tree(HALVES), "c2"))) == ["d2/1"]
    assert not in_lane(small, "d2")
    assert small.scheduler.hosts()[0].lane == 0
    assert starts(small.do(HostReported("h2", "p", 8))) == []


def test_cancelled_and_requeued_work_leaves_the_lane() -> None:
    """Also a claim, whose person may start another then."""
    small = with_lane()
    small.submit("a1", "a", 4, 400)
    small.submit("u1", None, 4, 0)
    assert debug(small, "d1", gpus=4)[-1] == "claim d1"
    assert debug(small, "d2", gpus=4) == []
    small.do(Cancelled("d1"))
    assert starts(small.exit("u1")) == ["d2/1"]
    small.do(RequeueRequested("d2"))
    assert starts(small.exit("d2")) == ["d2/2"]


def test_who_has_no_share_stops_nobody_for_the_lane() -> None:
    """It may have GPUs of the lane that are free; another person's work passes it."""
    small = with_lane(shares={"a": "1/2", "z": "0"})
    small.submit("a1", "a", 4, 400)
    small.submit("u1", None, 3, 0)
    assert debug(small, "z1", "zoe", budget="z") == []
    assert starts(debug(small, "z2", "yan", budget="z", gpus=1)) == ["z2/1"]
    assert stops(debug(small, "d1", "ann", gpus=2)) == ["u1/1"]


def test_a_person_waits_for_the_lane_in_order_of_submission() -> None:
    """Priority orders within a budget, not in the lane."""
    small = with_lane()
    small.submit("a1", "a", 4, 400)
    debug(small, "d1", gpus=4)
    debug(small, "d2")
    small.wait(1)
    debug(small, "d3", priority=9)
    assert starts(small.exit("d1", Outcome.FINISHED)) == ["d2/1"]


def test_debug_work_where_there_is_no_lane_is_ordinary() -> None:
    """It waits and is cancelled like any other."""
    small = Small(HALVES)
    small.submit("a1", "a", 8, 400)
    debug(small, "d1")
    assert small.ranking() == ["d1"]
    assert small.do(Cancelled("d1")) == ["stopped d1/0 cancelled"]


def test_usage_of_the_lane_is_forgotten_after_a_day() -> None:
    """Persons who used it long ago are equal again."""
    small = with_lane()
    debug(small, "d1", "bob")
    small.wait(10)
    small.exit("d1")
    small.wait(24 * 60)
    small.submit("a1", "a", 4, 400)
    debug(small, "d2", "cid", gpus=4)
    debug(small, "d3", "bob", gpus=4)
    debug(small, "d4", "ann", gpus=4)
    assert starts(small.exit("d2", Outcome.FINISHED)) == ["d3/1"]


def test_who_has_had_the_days_allowance_of_the_lane_competes_outside_it() -> None:
    """So long work cut into short pieces is no way around one's share; the next day it is open again."""
    small = with_lane(allowance=20 * MINUTE)  # five minutes of all its GPUs
    small.submit("b1", "b", 4, 400)
    assert starts(debug(small, "d1", gpus=4)) == ["d1/1"]
    small.wait(5)
    small.exit("d1", Outcome.FINISHED)
    assert starts(debug(small, "d2", gpus=4)) == []
    assert starts(debug(small, "d3", "bob", gpus=4)) == ["d3/1"]
    reason = small.scheduler.explain("d2", small.now * MINUTE).reason
    assert "ann has had 0.3 GPU-hours of the debug lane in a day, of 0.3" in reason
    debug(small, "d4", "cid", gpus=4)
    assert "in a day" not in small.scheduler.explain("d4", small.now * MINUTE).reason
    small.do(Cancelled("d4"))
    small.exit("d3", Outcome.FINISHED)
    assert small.wait(390) == []
    assert stops(small.wait(10)) == ["b1/1"]
    small.exit("b1")
    assert not in_lane(small, "d2")
    small.exit("d2", Outcome.FINISHED)
    small.wait(24 * 60)
    assert starts(debug(small, "d5", gpus=4)) == ["d5/1"]
    assert in_lane(small, "d5")
