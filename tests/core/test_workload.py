"""The transition tables of workloads and hosts."""

from __future__ import annotations

import pytest

from gpubudget.core import host, workload
from gpubudget.core.host import HostState
from gpubudget.core.workload import ENDED, WorkloadSpec, WorkloadState


def test_every_state_of_a_workload_stands_in_the_table() -> None:
    """Also those that lead nowhere."""
    assert set(workload.TRANSITIONS) == set(WorkloadState)


@pytest.mark.parametrize("state", sorted(ENDED))
def test_a_workload_that_has_ended_stays_so(state: WorkloadState) -> None:
    """Nothing brings it back."""
    assert not workload.TRANSITIONS[state]


def test_every_state_of_a_workload_can_be_reached_and_be_left_for_an_end() -> None:
    """No state is a trap, and none is idle."""
    reached = {WorkloadState.PENDING}
    for _ in WorkloadState:
        reached |= {after for before in reached for after in workload.TRANSITIONS[before]}
    assert reached == set(WorkloadState)
    assert all(workload.TRANSITIONS[state] for state in set(WorkloadState) - ENDED)


def test_every_state_of_a_host_can_be_reached_and_leads_back_to_work() -> None:
    """Whatever happened to a host, it can be ready again."""
    assert set(host.TRANSITIONS) == set(HostState)
    for start in HostState:
        reached = {start}
        for _ in HostState:
            reached |= {after for before in reached for after in host.TRANSITIONS[before]}
        assert HostState.READY in reached


def test_any_host_but_a_lost_one_can_be_lost() -> None:
    """An agent may fall silent at any time."""
    assert {state for state in HostState if HostState.LOST in host.TRANSITIONS[state]} == set(HostState) - {
        HostState.LOST
    }


@pytest.mark.parametrize(("minimum", "allocated"), [(0, False), (1, True)])
def test_a_minimum_runtime_makes_a_workload_allocated(minimum: int, *, allocated: bool) -> None:
    """Without one nobody funds it."""
    assert WorkloadSpec("w", "ann", "a", ("p",), 1, min_runtime=minimum).allocated is allocated
