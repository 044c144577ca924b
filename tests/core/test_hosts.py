"""What happens to hosts, and what cannot."""

from __future__ import annotations

import pytest

from gpubudget.core.decisions import Hold, Unclaim
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    Cordoned,
    DrainRequested,
    Event,
    HostLost,
    HostRemoved,
    HostReported,
    RepairEnded,
    RepairStarted,
    Uncordoned,
)
from gpubudget.core.host import HostState
from gpubudget.core.hoststate import change_state
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadState
from gpubudget.errors import BrokenInvariantError, ConflictError, InvalidInputError, NotFoundError
from tests.core.small import Small, starts, stops, tree

BUDGETS = {"a": "1/2", "b": "1/2"}


def state_of(small: Small, name: str) -> tuple[HostState, str]:
    """The state of a host and its reason."""
    return next((host.state, host.reason) for host in small.scheduler.hosts() if host.name == name)


def claimed() -> Small:
    """A host on which b1 waits for the GPUs of a1, which is stopping."""
    small = Small(BUDGETS)
    small.submit("a1", "a", 8, 5)
    small.wait(30)
    assert small.submit("b1", "b", 8, 10)[-1] == "claim b1"
    return small


@pytest.mark.parametrize("gpus", [0, -1, 1025])
def test_an_absurd_number_of_gpus_is_not_believed(gpus: int) -> None:
    """It changes nothing."""
    with pytest.raises(InvalidInputError, match=f"host x reports {gpus} GPUs; 1 to 1024 are possible"):
        Scheduler().handle(HostReported("x", "p", gpus), 0)


@pytest.mark.parametrize("event", [HostReported("h1", "p", 1), HostReported("h1", "q", 8)])
def test_a_host_does_not_change_its_kind_while_it_holds_work(event: HostReported) -> None:
    """Not its GPUs and not its pool."""
    small = Small(BUDGETS)
    small.submit("a1", "a", 1, 60)
    with pytest.raises(ConflictError) as caught:
        small.do(event)
    told = {1: "1 GPU", 8: "8 GPUs"}[event.gpus]
    assert caught.value.message == (
        f"host h1 reports {told} in pool {event.pool}, but holds work as one with 8 GPUs in pool p"
    )
    assert caught.value.hint == "drain it first"


def test_an_empty_host_may_come_back_as_another() -> None:
    """Its capacity is the new one from then on."""
    small = Small(BUDGETS)
    small.wait(10)
    small.do(HostReported("h1", "p", 16))
    small.wait(10)
    (pool,) = small.scheduler.pools(small.now * 60_000)
    assert (pool.gpus, pool.capacity_time) == (16, (80 + 160) * 60_000)


def test_a_host_that_comes_back_as_another_is_weighed_once() -> None:
    """What waits is held for the hosts that there are then, and not also for the moment between."""
    small = Small(BUDGETS)
    small.do(HostReported("h2", "p", 8))
    small.do(Cordoned("h1"))
    small.submit("a1", "a", 16, 5, hosts=2)
    said = []
    for gpus in (9, 4, 8):
        small.do(HostReported("h2", "p", gpus))
        said.append([each.reason for each in small.last if isinstance(each, Hold)])
    assert said == [[], ["8 GPUs on each of 2 hosts can never be had in pool p: it has 2 hosts of up to 8 GPUs"], [""]]


def test_a_second_report_of_a_ready_host_says_nothing_new() -> None:
    """An agent repeats itself."""
    small = Small(BUDGETS)
    assert (small.do(HostReported("h1", "p", 8)), small.last) == ([], [])


@pytest.mark.parametrize(
    ("event", "said", "hint"),
    [
        (Uncordoned("h1"), "host h1 is ready", "this is possible while it is cordoned, draining, drained, lost"),
        (RepairStarted("h1"), "host h1 is ready", "this is possible while it is drained"),
        (RepairEnded("h1", healthy=True), "host h1 is ready", "this is possible while it is repairing"),
        (HostRemoved("h1"), "host h1 is ready", "this is possible while it is lost, drained, cordoned"),
    ],
)
def test_a_step_that_a_hosts_state_does_not_allow_is_refused(event: Event, said: str, hint: str) -> None:
    """With the state in which it would be possible."""
    small = Small(BUDGETS)
    with pytest.raises(ConflictError) as caught:
        small.do(event)
    assert (caught.value.message, caught.value.hint) == (said, hint)


def test_a_host_nobody_has_heard_of_is_not_found() -> None:
    """It changes nothing."""
    with pytest.raises(NotFoundError, match="there is no host 'x'"):
        Small(BUDGETS).do(HostLost("x"))


def test_a_host_that_holds_work_is_not_forgotten() -> None:
    """Also not when it is cordoned, which would allow it if it were empty."""
    small = Small(BUDGETS)
    small.submit("a1", "a", 8, 60)
    small.do(Cordoned("h1"))
    with pytest.raises(ConflictError, match="host h1 still holds 1 attempt") as caught:
        small.do(HostRemoved("h1"))
    assert caught.value.hint == "drain it first"


def test_a_drain_stops_each_attempt_when_its_protection_ends() -> None:
    """Unprotected work at once, then the others; the host is drained when the last is gone."""
    small = Small(BUDGETS)
    small.submit("a1", "a", 2, 60)
    small.submit("a2", "a", 2, 5)
    small.submit("u1", None, 2, 0)
    small.wait(10)
    assert sorted(stops(small.do(DrainRequested("h1", "ECC errors")))) == ["a2/1", "u1/1"]
    assert state_of(small, "h1") == (HostState.DRAINING, "ECC errors")
    small.exit("a2")
    small.exit("u1")
    assert stops(small.wait(49)) == []
    assert stops(small.wait(1)) == ["a1/1"]
    small.exit("a1")
    assert state_of(small, "h1") == (HostState.DRAINED, "ECC errors")
    assert {small.view(name).state for name in ("a1", "a2", "u1")} == {WorkloadState.PENDING}


def test_a_host_goes_through_its_repair_and_returns() -> None:
    """A failed repair leaves it drained, with the reason of the drain; a good one clears that."""
    small = Small(BUDGETS)
    small.do(DrainRequested("h1", "ECC errors"))
    assert state_of(small, "h1") == (HostState.DRAINED, "ECC errors")
    small.do(RepairStarted("h1"))
    small.do(RepairEnded("h1", healthy=False))
    assert state_of(small, "h1") == (HostState.DRAINED, "ECC errors")
    small.do(RepairStarted("h1"))
    small.do(RepairEnded("h1", healthy=True))
    assert state_of(small, "h1") == (HostState.READY, "")


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        ([], None, (HostState.READY, "")),
        ([Cordoned("h1", "kernel")], None, (HostState.CORDONED, "kernel")),
        ([DrainRequested("h1", "hot")], None, (HostState.DRAINED, "hot")),
        ([DrainRequested("h1", "hot"), RepairStarted("h1")], None, (HostState.DRAINED, "hot")),
        ([], DrainRequested("h1", "hot"), (HostState.DRAINED, "hot")),
        ([], Cordoned("h1", "kernel"), (HostState.CORDONED, "kernel")),
        ([Cordoned("h1", "kernel")], Uncordoned("h1"), (HostState.READY, "")),
    ],
)
def test_a_host_that_was_lost_comes_back_as_a_person_left_it(
    before: list[Event], event: Event | None, after: tuple[HostState, str]
) -> None:
    """What was asked before or meanwhile holds; repairs begin anew."""
    small = Small(BUDGETS)
    for each in before:
        small.do(each)
    small.do(HostLost("h1"))
    if event is not None:
        assert (small.do(event), small.last) == ([], [])
    assert state_of(small, "h1")[0] is HostState.LOST
    small.do(HostReported("h1", "p", 8))
    assert state_of(small, "h1") == after


def test_a_silent_host_says_why_it_is_lost() -> None:
    """Unless a person has given another reason."""
    small = Small(BUDGETS)
    small.do(HostLost("h1"))
    assert state_of(small, "h1") == (HostState.LOST, "its agent is silent")


def test_what_ran_on_a_lost_host_alone_has_ended_and_waits_again() -> None:
    """Nobody can report its exit."""
    small = Small(BUDGETS)
    small.submit("a1", "a", 4, 60)
    assert small.do(HostLost("h1")) == ["stopped a1/1 host_lost"]
    assert small.view("a1").state is WorkloadState.PENDING
    assert starts(small.do(HostReported("h1", "p", 8))) == ["a1/2"]


def test_a_gang_is_stopped_once_however_many_of_its_hosts_are_lost() -> None:
    """It has ended when the last is."""
    small = Small(BUDGETS, hosts=3)
    small.submit("a1", "a", 24, 60)
    assert small.do(HostLost("h1")) == ["stop a1/1 host_lost"]
    assert small.do(HostLost("h2")) == []
    assert small.do(HostLost("h3")) == ["stopped a1/1 host_lost"]


def test_a_lost_host_that_is_back_drains_on_while_a_gang_of_its_ends_elsewhere() -> None:
    """It is empty only when the gang is gone from every host."""
    small = Small(BUDGETS, hosts=2)
    small.submit("a1", "a", 16, 60)
    small.do(DrainRequested("h1", "hot"))
    small.do(Cancelled("a1"))
    small.do(HostLost("h1"))

    def states() -> list[HostState]:
        return [host.state for host in small.scheduler.hosts()]

    small.do(HostReported("h1", "p", 8))
    assert states() == [HostState.DRAINING, HostState.READY]
    small.exit("a1")
    assert states() == [HostState.DRAINED, HostState.READY]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (HostLost("h1"), "host h1 was lost"),
        (DrainRequested("h1", "hot"), "host h1 is draining"),
        (Cordoned("h1"), "host h1 was cordoned"),
    ],
)
def test_a_claim_on_a_host_that_leaves_is_given_up(event: Event, said: str) -> None:
    """Its workload waits again, and what it had committed is given back."""
    small = claimed()
    assert small.usage("b") == 80
    small.do(event)
    assert [decision.reason for decision in small.last if isinstance(decision, Unclaim)] == [said]
    assert small.view("b1").state is WorkloadState.PENDING
    assert small.usage("b") == 0


def test_a_claim_that_is_given_up_holds_its_workload_if_it_cannot_be_ranked() -> None:
    """Where its budget has meanwhile been removed."""
    small = claimed()
    small.do(BudgetsApplied(tree({"a": "1/2"}), "c2"))
    assert small.view("b1").state is WorkloadState.STARTING
    small.do(HostLost("h1"))
    (hold,) = (decision for decision in small.last if isinstance(decision, Hold))
    assert hold.reason == "its budget b was removed: move it to another one or cancel it"


def test_a_lost_host_that_is_removed_is_forgotten() -> None:
    """What waits for it looks elsewhere, and the reservation with it."""
    small = Small(BUDGETS, hosts=2)
    small.submit("a1", "a", 8, 60)
    small.submit("a2", "a", 8, 30)
    small.submit("b1", "b", 8, 10)
    (kept,) = small.scheduler.reservations()
    assert kept.hosts == ("h2",)
    small.do(HostLost("h2"))
    small.do(HostRemoved("h2"))
    assert [host.name for host in small.scheduler.hosts()] == ["h1"]
    (kept,) = small.scheduler.reservations()
    assert kept.hosts == ("h1",)


def test_a_reserved_host_that_comes_back_as_another_is_kept_no_longer() -> None:
    """The reservation is looked for anew."""
    small = Small(BUDGETS, hosts=2)
    small.submit("a1", "a", 8, 60)
    small.submit("b1", "b", 16, 10)
    (kept,) = small.scheduler.reservations()
    assert kept.hosts == ("h2", "h1")
    small.do(HostReported("h2", "p", 4))
    assert small.scheduler.reservations() == []


def test_an_empty_cordoned_host_that_is_reserved_is_removed() -> None:
    """Nothing is kept on what is gone."""
    small = Small(BUDGETS, hosts=2)
    small.submit("a1", "a", 8, 60)
    small.do(Cordoned("h2"))
    small.submit("b1", "b", 8, 10)
    small.do(HostRemoved("h2"))
    (kept,) = small.scheduler.reservations()
    assert (kept.workload, kept.hosts) == ("b1", ("h1",))


def test_a_step_that_is_not_in_the_table_is_a_fault_of_the_program() -> None:
    """It raises, and changes nothing."""
    small = Small(BUDGETS)
    state = small.scheduler.state
    with pytest.raises(BrokenInvariantError, match="host h1 cannot go from ready to repairing"):
        change_state(state, state.hosts["h1"], HostState.REPAIRING, "")
    assert state_of(small, "h1")[0] is HostState.READY
