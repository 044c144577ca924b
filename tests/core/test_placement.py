"""Splitting gangs, and the index of hosts against plain lists."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.core.placement import EVERY, FREE, TIERS, HostIndex, Rooms, Roomy, Shape, indices, lowest, split
from gpubudget.errors import RefusedError


@pytest.mark.parametrize(
    ("gpus", "hosts", "shape"),
    [
        (1, None, Shape(1, 1)),
        (8, None, Shape(1, 8)),
        (12, None, Shape(2, 6)),
        (24, None, Shape(3, 8)),
        (8, 2, Shape(2, 4)),
        (6, 3, Shape(3, 2)),
    ],
)
def test_a_gang_is_split_evenly_over_the_fewest_hosts_or_as_asked(gpus: int, hosts: int | None, shape: Shape) -> None:
    """Up to a host's GPUs it stays on one."""
    assert split(gpus, hosts, 8) == shape


@pytest.mark.parametrize(
    ("gpus", "hosts", "per_host", "said", "hint"),
    [
        (
            9,
            None,
            8,
            "9 GPUs cannot be split evenly over 2 hosts of 8 GPUs",
            "ask for 8 or 10 GPUs, or give the number of hosts (-N)",
        ),
        (
            7,
            2,
            8,
            "7 GPUs cannot be split evenly over 2 hosts of 8 GPUs",
            "ask for a multiple of 2 GPUs, at least 1 host, or leave the number of hosts out",
        ),
        (
            9,
            1,
            8,
            "9 GPUs cannot be split evenly over 1 host of 8 GPUs",
            "ask for a multiple of 1 GPU, at least 2 hosts, or leave the number of hosts out",
        ),
        (
            1,
            2,
            1,
            "1 GPU cannot be split evenly over 2 hosts of 1 GPU",
            "ask for a multiple of 2 GPUs, at least 1 host, or leave the number of hosts out",
        ),
    ],
)
def test_what_does_not_come_out_even_is_refused_with_the_nearest_sizes(
    gpus: int, hosts: int | None, per_host: int, said: str, hint: str
) -> None:
    """With the numbers, and what to ask for instead."""
    with pytest.raises(RefusedError) as caught:
        split(gpus, hosts, per_host)
    assert (caught.value.message, caught.value.hint) == (said, hint)


@given(st.integers(1, 200), st.one_of(st.none(), st.integers(1, 30)), st.integers(1, 9))
def test_a_split_is_whole_and_none_is_overlooked(gpus: int, hosts: int | None, per_host: int) -> None:
    """Where one is refused, no even split over that many hosts (or the fewest) exists."""
    counts = [hosts] if hosts else [next(n for n in range(1, gpus + 1) if n * per_host >= gpus)]
    possible = [n for n in counts if gpus % n == 0 and gpus // n <= per_host]
    try:
        shape = split(gpus, hosts, per_host)
    except RefusedError:
        assert not possible
    else:
        assert shape.hosts in possible
        assert shape.hosts * shape.each == gpus


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (Shape(1, 1), "1 GPU on one host"),
        (Shape(1, 4), "4 GPUs on one host"),
        (Shape(2, 1), "1 GPU on each of 2 hosts"),
        (Shape(3, 6), "6 GPUs on each of 3 hosts"),
    ],
)
def test_a_shape_reads_as_what_is_asked_for(shape: Shape, text: str) -> None:
    """In messages."""
    assert str(shape) == text


TOP = 5
ROOM = st.integers(0, TOP)
MOVE = st.tuples(st.integers(0, 6), st.tuples(ROOM, ROOM, ROOM, ROOM))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.lists(MOVE, max_size=25), st.integers(1, 4), st.integers(1, TOP), st.integers(0, 127))
def test_the_index_answers_as_plain_lists_would(
    moves: list[tuple[int, Rooms]], hosts: int, each: int, among: int
) -> None:
    """Which hosts have room, the most that one has, whether a gang fits, and where it fits best."""
    boxes = [Roomy(number) for number in range(7)]
    index, shape = HostIndex(TOP), Shape(hosts, each)
    for number, rooms in moves:
        index.move(boxes[number], rooms)
    for tier in TIERS:
        roomy = [box for box in boxes if box.rooms[tier] >= each]
        assert indices(index.having(tier, each)) == tuple(box.index for box in roomy)
        chosen = [box for box in boxes if among >> box.index & 1]
        assert index.reach(tier, among) == max((box.rooms[tier] for box in chosen), default=0)
        assert index.reach(tier, EVERY) == max(box.rooms[tier] for box in boxes)
        assert index.fits(tier, shape) == (len(roomy) >= hosts)
        best = sorted((box.rooms[tier], box.index) for box in roomy if box in chosen)[:hosts]
        expected = [place for _, place in best] if len(best) == hosts else None
        assert index.best(tier, shape, among) == expected


def test_the_smallest_hole_that_fits_is_taken() -> None:
    """So that large holes stay large."""
    index = HostIndex(8)
    for number, room in enumerate((8, 3, 4)):
        index.move(Roomy(number), (room, 0, 0, 0))
    assert index.best(FREE, Shape(1, 3), EVERY) == [1]
    assert index.best(FREE, Shape(2, 3), EVERY) == [1, 2]


def test_bits_are_taken_from_the_lowest() -> None:
    """GPUs are given out in order of their index."""
    assert lowest(0b110110, 3) == 0b010110
    assert lowest(0b110110, 0) == 0
    assert indices(0b110110) == (1, 2, 4, 5)
