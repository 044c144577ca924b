"""All state as plain data, and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpubudget.core.budget import DebugLane, Policy, Pool
from gpubudget.core.events import (
    BudgetsApplied,
    Cordoned,
    DrainRequested,
    Event,
    HostLost,
    HostRemoved,
    HostReported,
    Outcome,
    RequeueRequested,
)
from gpubudget.core.host import HostState
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadState
from gpubudget.errors import InvalidInputError
from gpubudget.units import HOUR, MINUTE
from tests.core.small import Small, tree

SHARES = {"a": "1/2", "a/x": "1/2", "b": "1/4"}


def busy() -> Small:
    """A cluster with a bit of everything: lane, claim, stops, reservation, unallocated work, lost and removed hosts."""
    small = Small(SHARES, hosts=4, policy=Policy(debug=DebugLane(4), lookback=HOUR))
    small.do(BudgetsApplied(replace(small.tree, pools=(Pool("p", 8, 4), Pool("q", 8, 1))), "c2"))
    small.do(HostReported("h5", "p", 8))
    small.do(Cordoned("h5"))
    small.do(HostRemoved("h5"))
    small.do(HostReported("h6", "p", 8))
    small.submit("d1", "a", 1, 5, debug=True, max_runtime=10 * MINUTE)
    small.submit("d2", "a", 1, 5, debug=True, max_runtime=10 * MINUTE)
    small.do(HostReported("q1", "q", 8))
    small.submit("q1", "a/x", 4, 1, pools=("q",))
    small.submit("x1", "a/x", 8, 1)
    small.submit("x2", "a/x", 16, 5, max_runtime=HOUR)
    small.wait(30)
    small.submit("f1", "b", 2, 0)
    small.submit("s1", None, 2, 0)
    small.submit("b1", "b", 4, 60)
    small.submit("b2", "b", 8, 10, pools=("p", "q"))
    small.submit("x3", "a/x", 8, 60)
    small.submit("x4", "a/x", 16, 60)
    small.do(HostLost("h4"))
    small.do(DrainRequested("h3", "hot"))
    small.submit("b3", "b", 8, 60)
    small.exit("d1")
    small.submit("d3", "a", 1, 5, debug=True, max_runtime=10 * MINUTE)
    small.submit("w1", "/", 8, 60)
    return small


FOLLOWING: list[Event] = [
    HostReported("h4", "p", 8),
    HostReported("q2", "q", 8),
    RequeueRequested("b1"),
    BudgetsApplied(tree({"a": "1/3", "a/x": "1/2", "b": "1/3"}, Policy(lookback=2 * HOUR), 4), "c3"),
]


def test_the_cluster_that_is_saved_has_a_bit_of_everything() -> None:
    """Or the tests below would prove little."""
    scheduler = busy().scheduler
    attempts = [view.attempt for view in scheduler.workloads() if view.attempt]
    assert {view.state for view in scheduler.workloads()} == {
        WorkloadState.PENDING,
        WorkloadState.STARTING,
        WorkloadState.RUNNING,
        WorkloadState.STOPPING,
    }
    assert {host.state for host in scheduler.hosts()} == {HostState.READY, HostState.DRAINING, HostState.LOST}
    assert {(each.allocated, each.lane) for each in attempts} == {(True, True), (True, False), (False, False)}
    assert any(each.started and each.protected_until < scheduler.now and not each.stopping for each in attempts)
    assert scheduler.reservations()


def test_a_restored_scheduler_has_the_same_state_and_sound_sums() -> None:
    """What is derived is built anew, and every invariant holds."""
    small = busy()
    before = small.scheduler.snapshot()
    views = (small.scheduler.workloads(), small.scheduler.hosts(), small.scheduler.reservations())
    small.restart()
    small.scheduler.check()
    assert small.scheduler.snapshot() == before
    assert (small.scheduler.workloads(), small.scheduler.hosts(), small.scheduler.reservations()) == views
    assert small.scheduler.next_wakeup() == busy().scheduler.next_wakeup()


def test_a_restored_scheduler_goes_on_as_the_one_that_was_saved() -> None:
    """Restarted after each step, or never: the same decisions."""
    one, other = busy(), busy()
    for event in FOLLOWING:
        other.restart()
        assert one.do(event) == other.do(event)
        assert one.last == other.last
        assert one.wait(7) == other.wait(7)
        for view in one.scheduler.workloads():
            if view.attempt and view.attempt.stopping:
                other.restart()
                assert one.exit(view.spec.id) == other.exit(view.spec.id)
    assert one.scheduler.snapshot() == other.scheduler.snapshot()


@pytest.mark.parametrize("hosts", [0, 1])
def test_a_scheduler_that_knows_no_budgets_yet_is_kept_too(hosts: int) -> None:
    """With the hosts that have reported."""
    scheduler = Scheduler()
    for number in range(hosts):
        scheduler.handle(HostReported(f"h{number}", "p", 8), 5)
    again = Scheduler.restore(scheduler.snapshot())
    assert again.snapshot() == scheduler.snapshot()
    assert (again.tree, len(again.hosts())) == (None, hosts)


def test_patience_survives_a_restart() -> None:
    """Who must not preempt for now does not because of a restart."""
    small = Small({"a": "1/100", "b": "99/100"}, policy=Policy(preempt_backoff=20 * MINUTE))
    small.submit("a1", "a", 8, 1)
    small.wait(100)
    small.submit("b1", "b", 8, 30, retries=5)
    small.submit("b0", "b", 8, 60, priority=1)
    small.exit("a1")
    small.exit("b1", Outcome.FAILED)
    before, due = small.scheduler.snapshot(), small.scheduler.next_wakeup()
    small.restart()
    assert (small.scheduler.snapshot(), small.scheduler.next_wakeup()) == (before, due)
    assert before["patience"] == [[(small.now + 20) * MINUTE, "b1"]]


@pytest.mark.parametrize(("data", "told"), [({"version": 99}, "99"), ({}, "None")])
def test_data_of_another_version_is_refused(data: dict[str, int], told: str) -> None:
    """Nobody guesses what it means."""
    with pytest.raises(InvalidInputError, match=f"a snapshot of version {told} cannot be read; this program writes 1"):
        Scheduler.restore(data)


def test_after_weeks_usage_is_exact_and_a_restart_changes_nothing() -> None:
    """Though lines do not count time from where they did: what fills free GPUs is counted so, too."""
    small = Small({"a": "1/2", "b": "1/2"}, hosts=2)
    small.submit("a1", "a", 8, 60)
    small.submit("b1", "b", 4, 60)
    small.submit("s1", None, 4, 0)
    for more, days in ((1, 1), (4, 5), (8, 7), (7, 7)):
        small.wait(more * 24 * 60)
        week = days * 24 * 60
        assert (small.usage("a"), small.usage("b")) == (8 * week, 4 * week)
        ledger = small.scheduler.state.pools["p"].fillers.ledger
        assert small.scheduler.state.pools["p"].stray.usage(ledger.clock(small.now * MINUTE)) == 4 * week * MINUTE
        before = small.scheduler.snapshot()
        small.restart()
        small.scheduler.check()
        assert small.scheduler.snapshot() == before
    assert small.submit("b2", "b", 8, 60)[0] == "stop a1/1 preempted for b2"
