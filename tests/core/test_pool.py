"""One pool: its hosts by bits, what it could ever hold, and the shapes that wait in it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpubudget.core.budget import Policy
from gpubudget.core.budget import Pool as PoolSpec
from gpubudget.core.placement import EVERY, RIPE, Shape
from gpubudget.core.pool import Pool, dequeue, enqueue
from gpubudget.core.records import Node, Workload
from gpubudget.core.workload import WorkloadSpec


@pytest.fixture
def pool() -> Pool:
    """Three idle hosts of 8 GPUs, as the site says."""
    pool = Pool("p", Policy(), 0)
    pool.spec = PoolSpec("p", 8, 3)
    for number in range(3):
        pool.add_host(f"h{number}", 8)
    return pool


def test_hosts_are_found_by_their_bits_and_a_removed_one_is_passed_over(pool: Pool) -> None:
    """Its bit is not given to another."""
    pool.remove_host(pool.hosts["h1"])
    assert [host.name for host in pool.hosts_of(0b111)] == ["h0", "h2"]
    assert pool.add_host("h3", 8).index == 3


def test_a_larger_host_makes_the_index_anew(pool: Pool) -> None:
    """All hosts stand in it again."""
    pool.add_host("large", 16)
    assert pool.index.reach(RIPE, EVERY) == 16
    assert pool.index.having(RIPE, 8) == 0b1111


@pytest.mark.parametrize(
    ("gpus", "hosts", "lane", "fits"),
    [
        (8, None, 0, True),
        (24, None, 0, True),
        (32, None, 0, False),
        (24, None, 8, False),
        (16, None, 8, True),
        (16, None, 9, False),
        (21, 3, 1, True),
        (24, 3, 1, False),
        (8, 3, 0, None),
    ],
)
def test_what_a_pool_could_ever_hold_depends_on_its_hosts_and_the_lane(
    pool: Pool, gpus: int, hosts: int | None, lane: int, *, fits: bool | None
) -> None:
    """Declared hosts count like known ones; the lane's GPUs are kept from what may not run in it."""
    pool.hosts["h2"].lane = min(lane, 8)
    pool.hosts["h1"].lane = max(lane - 8, 0)
    answer = pool.shape_of(gpus, hosts, lane)
    assert isinstance(answer, Shape) is (fits is True)
    if fits is False:
        assert "can never be had in pool p" in str(answer)


def test_a_shape_has_one_number_and_another_where_it_must_not_preempt(pool: Pool) -> None:
    """So that a pass can tell them apart by their bits."""
    numbers = [pool.number(shape, timid=timid) for shape in (Shape(1, 4), Shape(2, 4)) for timid in (False, True)]
    assert numbers == [0, 1, 2, 3]
    assert pool.number(Shape(2, 4), timid=False) == 2
    assert (pool.timid, pool.wide) == (0b1010, 0b1100)
    assert pool.fitting(RIPE, 0b1111, EVERY) == 0b1111
    assert pool.fitting(RIPE, 0b1111, 0b001) == 0b1111
    assert pool.fitting(RIPE, 0b1111, 0) == 0


def test_a_budget_and_all_above_it_know_which_shapes_wait() -> None:
    """Until the last workload of a shape is gone."""
    root = Node("/", None, Fraction(1))
    root.children = [Node(path, root, Fraction(1, 2)) for path in ("a", "b")]
    waiting = [Workload(WorkloadSpec(name, "ann", "a", ("p",), 1), 0) for name in ("w1", "w2", "w3")]
    a, b = root.children
    for workload, leaf in zip(waiting, (a, a, b), strict=True):
        enqueue(workload, leaf, 5)
    assert (a.mask, b.mask, root.mask) == (1 << 5, 1 << 5, 1 << 5)
    dequeue(waiting[0])
    assert a.mask == 1 << 5
    dequeue(waiting[1])
    assert (a.mask, root.mask, a.queues) == (0, 1 << 5, {})
    dequeue(waiting[2])
    assert root.mask == 0
