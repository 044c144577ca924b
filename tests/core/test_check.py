"""``check`` sees a state that is wrong, and says what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpubudget.core.events import Cordoned
from gpubudget.core.host import HostState
from gpubudget.core.placement import Shape
from gpubudget.core.pool import Pool
from gpubudget.core.records import Attempt, Host, Node, Workload
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadState
from gpubudget.errors import BrokenInvariantError
from tests.core.small import Small


class World:
    """A sound state: r1 past its minimum, b1 with a claim on what u1 leaves, a1 and a2 waiting in budget a, h2 idle."""

    def __init__(self) -> None:
        small = Small({"a": "1/2", "b": "1/2"}, hosts=2)
        small.do(Cordoned("h2"))
        small.submit("r1", "a", 4, 1)
        small.submit("u1", None, 4, 0)
        small.wait(2)
        small.submit("b1", "b", 3, 60)
        small.submit("a1", "a", 8, 60)
        small.submit("a2", "a", 8, 60)
        self.scheduler: Scheduler = small.scheduler
        self.state = small.scheduler.state
        self.pool: Pool = self.state.pools["p"]
        self.host: Host = self.state.hosts["h1"]
        self.leaf: Node = self.pool.budgets.leaves["a"]

    def workload(self, name: str) -> Workload:
        return self.state.workloads[name]

    def attempt(self, name: str) -> Attempt:
        found = self.workload(name).attempt
        assert found is not None
        return found


def _set(of: Callable[[World], object], name: str, value: object) -> Callable[[World], None]:
    return lambda world: setattr(of(world), name, value)


def _add(of: Callable[[World], object], name: str, more: int) -> Callable[[World], None]:
    return lambda world: setattr(of(world), name, getattr(of(world), name) + more)


def _swap(world: World) -> None:
    (queue,) = world.leaf.queues.values()
    queue.row.listed.reverse()


def _empty(world: World) -> None:
    (queue,) = world.leaf.queues.values()
    queue.row.listed.clear()


def _shorten(world: World) -> None:
    (queue,) = world.leaf.queues.values()
    queue.runtimes.pop()


def _misplace(world: World) -> None:
    for bits in world.pool.index.sets:
        bits[:] = [0] * len(bits)


def _overpromise(world: World) -> None:
    claim = world.attempt("b1")
    claim.promised = {("h1", 99): sum(claim.promised.values())}


def _all_the_way_up(name: str, more: int) -> Callable[[World], None]:
    """Change a sum of budget a and of all above it alike."""

    def spoil(world: World) -> None:
        for node in world.leaf.up:
            setattr(node, name, getattr(node, name) + more)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_set(lambda w: w.host, "free", 1), "a GPU of h1 is held twice"),
        (_set(lambda w: w.attempt("r1"), "masks", [0b111]), "attempt of r1 lacks GPUs"),
        (_set(lambda w: w.host, "gpus", 9), "a GPU of h1 is nobody's"),
        (_add(lambda w: w.host, "ordinary", 1), "host h1 counts"),
        (_add(lambda w: w.host, "owed", 1), "host h1 owes what is not leaving"),
        (_set(lambda w: w.host, "state", HostState.CORDONED), "a claim stands on cordoned host"),
        (_set(lambda w: w.host, "state", HostState.REPAIRING), "host h1 is repairing and not empty"),
        (_set(lambda w: w.host, "rooms", (8, 8, 8, 8)), "host h1 stands in the wrong bucket"),
        (_set(lambda w: w.state.hosts["h2"], "state", HostState.DRAINING), "host h2 is empty and still draining"),
        (_misplace, "host h1 is not in its bucket"),
        (_set(lambda w: w.attempt("b1"), "promised", {}), "a claim on h1 lacks GPUs"),
        (_overpromise, "a claim on h1 waits for what does not leave"),
        (_add(lambda w: w.pool.idle, "value", 1), "pool p: capacity x time is not the sum of its parts"),
        (_add(lambda w: w.leaf.spent, "value", 1), "pool p: allocated is not the sum over budgets"),
        (_add(lambda w: w.pool.stray.spent, "value", 1), "pool p: unallocated is not the sum over budgets"),
        (lambda w: w.leaf.charge(1), "budget / is not the sum of its children"),
        (_add(lambda w: w.leaf, "height", 1), "budget a stands at a wrong height"),
        (_set(lambda w: w.leaf, "ripe_attempts", {}), "budget a miscounts attempts past their minimum"),
        (_set(lambda w: w.leaf, "mask", 0), "budget a has the wrong mask"),
        (_set(lambda w: w.pool.budgets.root, "mask", 0), "budget / has the wrong mask"),
        (_set(lambda w: w.leaf, "known_least", 1), "budget a has the wrong least commitment"),
        (_set(lambda w: w.leaf, "known_where", 0), "budget a does not know where its work past its minimum runs"),
        (_add(lambda w: w.state, "draining", 1), "1 hosts are said to drain, and 0 do"),
        (_swap, "a queue of budget a is out of order"),
        (_empty, "budget a keeps an empty queue"),
        (_shorten, "a queue of budget a disagrees with itself"),
        (_add(lambda w: w.leaf, "tail", 1), "budget a: slope 4, not 3"),
        (lambda w: w.pool.budgets.ledger.commit(w.leaf, -(10**15)), "budget a: usage below zero"),
        (_all_the_way_up("held", 1), "budget a: it holds other GPUs than its attempts"),
        (_set(lambda w: w.workload("r1"), "state", WorkloadState.FINISHED), "workload r1 has ended and is still known"),
        (_set(lambda w: w.workload("r1"), "state", WorkloadState.PENDING), "workload r1 is pending"),
        (_set(lambda w: w.workload("r1"), "queued", [1]), "workload r1 holds GPUs and waits"),
        (_set(lambda w: w.workload("r1"), "attempt", None), "workload r1 is running"),
        (_set(lambda w: w.workload("r1"), "shapes", {"p": Shape(2, 4)}), "the gang of r1 is not whole"),
        (_set(lambda w: w.workload("a1"), "queued", []), "workload a1 is pending and waits nowhere"),
        (_set(lambda w: w.workload("a1"), "state", WorkloadState.HELD), "workload a1 is held without a reason"),
    ],
)
def test_what_is_wrong_is_named(spoil: Callable[[World], None], said: str) -> None:
    """Each invariant by itself."""
    world = World()
    world.scheduler.check()
    spoil(world)
    with pytest.raises(BrokenInvariantError) as caught:
        world.scheduler.check()
    assert str(caught.value).startswith(said)
