"""What waits for one shape, against plain sorting."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.core.records import Workload
from gpubudget.core.waiting import Queue
from gpubudget.core.workload import WorkloadSpec
from gpubudget.units import MINUTE


def workload(name: str, minutes: int, submitted: int, priority: int = 0) -> Workload:
    spec = WorkloadSpec(name, "ann", "a", ("p",), 1, min_runtime=minutes * MINUTE, priority=priority)
    return Workload(spec, submitted)


def test_a_queue_keeps_its_order_and_knows_the_shortest() -> None:
    """By priority, then submission, then id; and beside that by minimum runtime."""
    queue = Queue(1)
    members = [workload("c", 30, 5), workload("b", 10, 5), workload("a", 20, 9), workload("d", 40, 9, priority=1)]
    for member in members:
        queue.add(member)
    assert [entry[3].spec.id for entry in queue.row.entries()] == ["d", "b", "c", "a"]
    assert [runtime // MINUTE for runtime in queue.runtimes] == [10, 20, 30, 40]
    queue.discard(members[1])
    assert [entry[3].spec.id for entry in queue.row.entries()] == ["d", "c", "a"]
    assert [runtime // MINUTE for runtime in queue.runtimes] == [20, 30, 40]


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=30),
    st.sets(st.integers(0, 29)),
)
def test_a_queue_answers_as_plain_sorting_would(work: list[tuple[int, int, int]], gone: set[int]) -> None:
    """Its head, its shortest but for one, the least commitment, and the first of those that are short enough."""
    queue = Queue(3)
    members = [workload(f"w{number:02}", *each) for number, each in enumerate(work)]
    for member in members:
        queue.add(member)
    for number, member in enumerate(members):
        if number in gone and len(queue.row) > 1:
            queue.discard(member)
    left = [entry[3] for entry in queue.row.entries()]
    assert left == sorted(left, key=lambda one: one.rank)
    assert queue.head() is left[0]
    by_runtime = sorted(left, key=lambda one: (one.min_runtime, one.rank))
    assert queue.shortest() is by_runtime[0]
    assert queue.shortest(but=by_runtime[0]) is (by_runtime[1] if len(left) > 1 else None)
    assert queue.least() == 3 * by_runtime[0].min_runtime
    for member in left:
        first = next(one for one in left if one.min_runtime <= member.min_runtime)
        assert queue.first_within(member.min_runtime) is first
