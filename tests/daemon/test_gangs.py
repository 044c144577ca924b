"""Gangs: when an attempt on several hosts is over, how it ended, and what each agent is told."""

import pytest

from gpubudget.core.events import Outcome
from gpubudget.core.workload import WorkloadSpec
from gpubudget.daemon.gangs import Gang, Gangs, PartState, Report
from gpubudget.daemon.records import Program

SPEC = WorkloadSpec("w000001", "alice", "lang/a", ("h100",), 16, min_runtime=1)


def running(*hosts: str) -> tuple[Gangs, Gang]:
    """A gang whose agents have all been told to run it, and run it."""
    gangs = Gangs()
    gang = Gang.of(SPEC, Program(("x",)), 1, {host: [0, 1] for host in hosts}, None)
    gangs.add(gang)
    for host in hosts:
        gangs.orders(host, (), 0)
        gangs.report(host, [Report("w000001", 1, "running")])
    return gangs, gang


def exited(code: int | None, *, signalled: bool = False, error: str = "") -> list[Report]:
    """What an agent reports of an ended part."""
    return [Report("w000001", 1, "exited", code, signalled, error)]


@pytest.mark.parametrize(
    ("reports", "outcome", "code"),
    [
        ((exited(0), exited(0)), Outcome.FINISHED, 0),
        ((exited(0), exited(3)), Outcome.FAILED, 3),
        ((exited(143, signalled=True), exited(5)), Outcome.FAILED, 5),
        ((exited(0), exited(143, signalled=True)), Outcome.STOPPED, 143),
        ((exited(0, signalled=True), exited(0, signalled=True)), Outcome.STOPPED, 0),
        ((exited(0), [Report("w000001", 1, "unknown")]), Outcome.FAILED, None),
        ((exited(0), []), Outcome.FAILED, None),
    ],
)
def test_a_gang_ends_as_its_ranks_did(
    reports: tuple[list[Report], list[Report]], outcome: Outcome, code: int | None
) -> None:
    """A failure by itself outweighs a stop, and a stop outweighs a good end."""
    gangs, gang = running("h1", "h2")
    assert gangs.over(gangs.report("h1", reports[0])) == []
    assert gangs.over(gangs.report("h2", reports[1])) == [gang]
    assert (gang.exited().outcome, gang.exit_code()) == (outcome, code)
    assert gangs.over([gang]) == []


def test_a_lost_host_ends_its_part_without_a_failure() -> None:
    """The gang is over when the rest is gone, and it was stopped."""
    gangs, gang = running("h1", "h2")
    assert gangs.lose("h1") == [gang]
    gangs.stop(gang.key, "host_lost")
    assert [order["reason"] for order in gangs.orders("h2", (), 0)["stop"]] == ["host_lost"]
    assert gangs.over(gangs.report("h2", exited(143, signalled=True))) == [gang]
    assert gang.exited().outcome is Outcome.STOPPED
    assert gang.failure() == ""


def test_what_went_wrong_is_told_with_its_host() -> None:
    """By the error of the agent, or the exit code."""
    gangs, gang = running("h1", "h2")
    gangs.report("h2", exited(127, error="cannot run x: it does not exist"))
    assert gang.failure() == "failed on h2: cannot run x: it does not exist"
    assert gang.ending == "gang"
    gangs, gang = running("h1")
    gangs.report("h1", exited(9))
    assert gang.failure() == "failed on h1: exit code 9"


def test_reports_of_an_ended_part_change_it_no_more() -> None:
    """Whatever comes late."""
    gangs, gang = running("h1", "h2")
    gangs.report("h1", exited(0))
    gangs.report("h1", exited(7))
    gangs.report("h1", [Report("w000001", 1, "running")])
    assert (gang.parts["h1"].state, gang.parts["h1"].exit_code) == (PartState.EXITED, 0)
    assert gangs.orders("h1", exited(0), 0) == {"run": [], "stop": [], "forget": []}


def test_an_agent_may_forget_what_has_ended_here() -> None:
    """Not before; and what it runs of it is stopped."""
    gangs, gang = running("h1")
    gangs.report("h1", exited(0))
    assert gangs.orders("h1", exited(0), 0)["forget"] == []
    assert gangs.remove(gang.key) == ("h1",)
    assert gangs.orders("h1", exited(0), 0)["forget"] == [{"workload": "w000001", "attempt": 1}]
    stop = gangs.orders("h1", [Report("w000001", 1, "running")], 30)["stop"]
    assert stop == [{"workload": "w000001", "attempt": 1, "reason": "stale", "grace_ms": 30}]
    assert gangs.remove(gang.key) == ()
