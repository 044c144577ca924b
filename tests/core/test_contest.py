"""Who could win GPUs, told beforehand, against asking every budget."""

from __future__ import annotations

from functools import cmp_to_key

from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.core import reclaim
from gpubudget.core.contest import Contest
from gpubudget.core.fairshare import legal_siblings, outranks, somebody_may_stop, worth_asking
from gpubudget.core.placement import EVERY, RIPE, Shape
from gpubudget.core.pool import Pool
from gpubudget.core.records import Node
from gpubudget.units import MINUTE
from tests.core.small import Small, stops

BUDGETS = {"a": "1/2", "a/x": "1/3", "a/y": "1/3", "b": "1/4", "z": "0"}
SHAPES = [Shape(1, 1), Shape(1, 3), Shape(1, 8), Shape(2, 2), Shape(2, 8)]
WORK = st.tuples(
    st.sampled_from(["a", "a/x", "a/y", "b", "z", "/"]),
    st.integers(1, 8),
    st.sampled_from([0, 1, 5, 60]),
    st.integers(0, 9),
)


def ranked(leaves: list[Node], now: int) -> list[Node]:
    """The best-ranked first."""

    def compare(one: Node, other: Node) -> int:
        return -1 if outranks(one, other, now) else 1

    return sorted(leaves, key=cmp_to_key(compare))


def walk(root: Node, now: int, easy: int, hard: int) -> list[tuple[Node, bool]]:
    """Whom a pass asks, and whether they may have others stopped."""
    found, stack = [], [(0, root, False)]
    while stack:
        _, node, may = stack.pop()
        if node.children:
            stack += worth_asking(node, now, easy, hard, EVERY, may=may, last=not stack)
        else:
            found.append((node, may))
    return found


def wins(pool: Pool, leaf: Node, shape: Shape, now: int) -> bool:
    """Whether a budget's workload with the least commitment could start by having allocated attempts stopped."""
    if leaf.starved or reclaim.unallocated(pool, shape, EVERY, now):
        return False
    legal = legal_siblings(leaf, shape.hosts * shape.each, now, EVERY)
    return reclaim.ripe(pool, shape, legal, EVERY, now) is not None


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(st.lists(WORK, min_size=1, max_size=12), st.integers(1, 3))
def test_no_budget_that_could_win_is_cut_off(work: list[tuple[str, int, int, int]], hosts: int) -> None:
    """Every budget that could have others stopped is asked, and about all whom it could have stopped."""
    small = Small(BUDGETS, hosts=hosts)
    for number, (budget, gpus, minutes, pause) in enumerate(work):
        words = small.submit(f"w{number}", budget, gpus, minutes) + small.wait(pause)
        for stopped in stops(words):
            small.exit(stopped.partition("/")[0])
    pool, now = small.scheduler.state.pools["p"], small.now * MINUTE
    numbers = [pool.number(shape, timid=False) for shape in SHAPES]
    contest = Contest(pool, sum(1 << number for number in numbers), EVERY)
    leaves = pool.budgets.root.leaves()
    for leaf in ranked(leaves, now):
        if leaf.ripe:
            contest.passes(leaf)
        for number, shape in zip(numbers, SHAPES, strict=True):
            if wins(pool, leaf, shape, now):
                assert contest.winnable() >> number & 1


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(st.lists(WORK, min_size=1, max_size=12), st.integers(1, 3))
def test_whether_anybody_may_be_stopped_is_told_at_once(work: list[tuple[str, int, int, int]], hosts: int) -> None:
    """From both sides: what waits for whom, and who may be stopped by what waits."""
    small = Small(BUDGETS, hosts=hosts)
    for number, (budget, gpus, minutes, pause) in enumerate(work):
        words = small.submit(f"w{number}", budget, gpus, minutes) + small.wait(pause)
        for stopped in stops(words):
            small.exit(stopped.partition("/")[0])
    pool, now = small.scheduler.state.pools["p"], small.now * MINUTE
    leaves = pool.budgets.root.leaves()
    legal = {leaf: legal_siblings(leaf, leaf.least(), now, EVERY) if leaf.mask else set[Node]() for leaf in leaves}
    root = pool.budgets.root
    order = ranked(leaves, now)
    waiting = [leaf for leaf in order if leaf.mask]
    assert [leaf for leaf, _ in walk(root, now, root.mask, 0) if leaf.mask] == waiting
    may = dict(walk(root, now, 0, root.mask))
    assert list(may) == [leaf for leaf in order if leaf in may]
    for leaf in leaves:
        if leaf.mask:
            assert not legal[leaf] or may.get(leaf)
        if leaf.ripe:
            stoppable = any(found & set(leaf.up) for found in legal.values())
            assert somebody_may_stop(leaf, now) == stoppable


def test_a_shape_that_could_not_be_had_even_if_all_gave_way_is_ruled_out() -> None:
    """What is protected does not give way."""
    small = Small(BUDGETS)
    small.submit("a1", "a/x", 4, 100)
    small.submit("a2", "a/x", 4, 1)
    small.wait(10)
    pool = small.scheduler.state.pools["p"]
    small_shape, large_shape = (pool.number(Shape(1, each), timid=False) for each in (4, 5))
    contest = Contest(pool, 1 << small_shape | 1 << large_shape, EVERY)
    leaf = pool.budgets.leaves["a/x"]
    assert pool.fitting(RIPE, 1 << small_shape | 1 << large_shape, EVERY) == 1 << small_shape
    assert contest.winnable() >> small_shape & 1
    contest.passes(leaf)
    assert contest.winnable() == 0


def test_on_some_hosts_only_the_budgets_with_work_there_are_in_it() -> None:
    """What others hold elsewhere cannot be won there."""
    small = Small(BUDGETS, hosts=2)
    small.submit("a1", "a/x", 8, 1)
    small.submit("b1", "b", 8, 1)
    small.wait(10)
    small.submit("z1", "/", 8, 5)
    pool, now = small.scheduler.state.pools["p"], small.now * MINUTE
    assert legal_siblings(pool.budgets.leaves["/"], 1, now, 1) <= {pool.budgets.leaves["a/x"].up[1]}
    number = pool.number(Shape(1, 8), timid=False)
    contest = Contest(pool, 1 << number, 1)
    assert contest.winnable() >> number & 1
    contest.passes(pool.budgets.leaves["b"])
    assert contest.winnable() >> number & 1  # that of b is on the other host
    contest.passes(pool.budgets.leaves["a/x"])
    assert contest.winnable() == 0
