"""Records: rooms of a host, ends of protections on it, and steps that are not in the table."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpubudget.core.records import Host, Node, Workload
from gpubudget.core.workload import WorkloadSpec, WorkloadState
from gpubudget.errors import BrokenInvariantError
from gpubudget.units import MINUTE


def workload(name: str, minutes: int, submitted: int) -> Workload:
    return Workload(WorkloadSpec(name, "ann", "a", ("p",), 1, min_runtime=minutes * MINUTE), submitted)


def test_a_budget_below_one_without_a_share_has_none_either() -> None:
    """Its path to the root decides."""
    root = Node("/", None, Fraction(1))
    poor = Node("a", root, Fraction(0))
    assert Node("a/x", poor, Fraction(1)).starved
    assert not Node("b", root, Fraction(1, 2)).starved


@pytest.mark.parametrize(
    ("counts", "rooms"),
    [
        ({}, (8, 8, 8, 8)),
        ({"lane": 3}, (8, 5, 5, 5)),
        ({"unallocated": 6}, (2, 2, 8, 8)),
        ({"ordinary": 6}, (2, 2, 2, 2)),
        ({"ordinary": 6, "ripe": 4}, (2, 2, 2, 6)),
        ({"stopping": 6}, (2, 2, 8, 8)),
        ({"stopping": 6, "owed": 4}, (2, 2, 4, 4)),
        ({"ordinary": 7, "lane": 3, "ripe": 4}, (1, 0, 0, 2)),
        ({"ordinary": 7, "lane": 3}, (1, 0, 0, 0)),
        ({"stopping": 6, "stopping_ordinary": 6, "lane": 1}, (2, 1, 7, 7)),
    ],
)
def test_the_room_of_a_host_follows_from_its_counts(counts: dict[str, int], rooms: tuple[int, ...]) -> None:
    """For unallocated work, for allocated, with unallocated stopped, and with those past their minimum stopped."""
    host = Host("h", "p", 8, 0)
    for name, gpus in counts.items():
        setattr(host, name, gpus)
    used = sum(counts.get(name, 0) for name in ("unallocated", "ordinary", "stopping"))
    host.free = (1 << 8 - used) - 1
    assert host.measure(usable=True) == rooms


def test_a_host_that_is_not_usable_has_no_room() -> None:
    """Whatever is free on it."""
    assert Host("h", "p", 8, 0).measure(usable=False) == (0, 0, 0, 0)


def test_a_step_that_is_not_in_the_table_is_a_fault_of_the_program() -> None:
    """It raises, and changes nothing."""
    held = workload("a", 1, 0)
    with pytest.raises(BrokenInvariantError, match="workload a cannot go from pending to stopping"):
        held.become(WorkloadState.STOPPING)
    assert held.state is WorkloadState.PENDING
