"""What a plain scheduler remembers: workloads, hosts, attempts, and pools with their queues. Knows no rule of rank."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from gpubudget.core.budget import Pool
from gpubudget.core.host import HostState
from gpubudget.core.placement import FREE, NO_ROOM, HostIndex, Rooms, Shape
from gpubudget.core.records import Node
from gpubudget.core.workload import StopReason, WorkloadSpec

Rank = tuple[int, int, str]
"""Order inside a queue, and between the queues that a policy takes together: the least goes first."""
Places = list[tuple["Machine", int]]
"""Hosts, and how many GPUs of each."""


class Waiting:
    """A workload that has not ended. ``run`` is its attempt, while it has one."""

    __slots__ = ("attempts", "failures", "leaves", "ran", "rank", "run", "shapes", "spec")

    def __init__(self, spec: WorkloadSpec, rank: Rank) -> None:
        self.spec = spec
        self.rank = rank
        self.shapes: dict[str, Shape] = {}
        self.leaves: dict[str, Node] = {}
        self.run: Run | None = None
        self.attempts = 0
        self.failures = 0
        self.ran = 0


class Machine:
    """A host."""

    __slots__ = ("free", "gpus", "index", "name", "pool", "rooms", "runs", "state")

    def __init__(self, name: str, pool: str, gpus: int, index: int) -> None:
        self.name, self.pool, self.gpus, self.index = name, pool, gpus, index
        self.state = HostState.READY
        self.free = (1 << gpus) - 1
        self.rooms: Rooms = NO_ROOM
        self.runs: dict[int, Run] = {}


class Run:
    """An attempt, or, while ``started`` is None, the claim of one that still ``wants`` GPUs which others leave for it.

    ``heir`` is the claim for which it is stopped, ``charged`` whether its budget is.
    """

    __slots__ = (
        "charged",
        "heir",
        "leaf",
        "masks",
        "pool",
        "preempted",
        "serial",
        "started",
        "stopping",
        "wants",
        "who",
    )

    def __init__(self, who: Waiting, pool: str, serial: int) -> None:
        self.who, self.pool, self.serial = who, pool, serial
        self.leaf = who.leaves[pool]
        self.masks: dict[Machine, int] = {}
        self.wants: dict[Machine, int] = {}
        self.preempted: tuple[tuple[str, int], ...] = ()
        self.started: int | None = None
        self.stopping: StopReason | None = None
        self.heir: Run | None = None
        self.charged = False


class PlainPool:
    """One pool: its hosts, its budgets, what runs, and what waits, by budget and shape.

    A node's ``mask`` counts what waits in it and below. ``ruled_out`` are shapes that did not fit in this pass.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.spec: Pool | None = None
        self.gpus = 0
        self.machines: list[Machine] = []
        self.index = HostIndex(1)
        self.root = Node("", None, Fraction(1))
        self.leaves: dict[str, Node] = {}
        self.stray = Node("", None, Fraction(0))
        self.queues: dict[Node, dict[Shape, list[tuple[Rank, Waiting]]]] = {}
        self.running: dict[int, Run] = {}
        self.dirty = False
        self.ruled_out: set[Shape] = set()

    def refresh(self, machine: Machine) -> None:
        """Put a host where its room belongs: it has none while it takes no work."""
        room = machine.free.bit_count() if machine.state is HostState.READY else 0
        if room != machine.rooms[FREE]:
            self.index.move(machine, (room, 0, 0, 0))

    def add(self, name: str, gpus: int) -> Machine:
        """A new host."""
        machine = Machine(name, self.name, gpus, len(self.machines))
        self.machines.append(machine)
        self.gpus += gpus
        if gpus > self.index.top:
            self.index = HostIndex(gpus)
            for each in self.machines:
                each.rooms = NO_ROOM
        for each in self.machines if self.index.top == gpus else (machine,):
            self.refresh(each)
        return machine

    def enqueue(self, who: Waiting) -> None:
        """Let a workload wait here."""
        leaf = who.leaves[self.name]
        insort(self.queues.setdefault(leaf, {}).setdefault(who.shapes[self.name], []), (who.rank, who))
        for node in leaf.up:
            node.mask += 1
        self.dirty = True

    def dequeue(self, who: Waiting) -> None:
        """Take it out."""
        leaf, shape = who.leaves[self.name], who.shapes[self.name]
        shapes = self.queues[leaf]
        del shapes[shape][bisect_left(shapes[shape], (who.rank,))]
        if not shapes[shape]:
            del shapes[shape]
        for node in leaf.up:
            node.mask -= 1

    def in_turn(self, leaves: Iterable[Node], admits: Callable[[Waiting], bool] | None = None) -> Iterator[Waiting]:
        """What waits in ``leaves``, by rank: of each shape the first, until it is ruled out, where it is admitted."""
        queues = [queue for leaf in leaves for queue in self.queues.get(leaf, {}).items()]
        while True:
            heads = [queue[0] for shape, queue in queues if shape not in self.ruled_out]
            if admits is not None:
                heads = [head for head in heads if admits(head[1])]
            if not heads:
                return
            yield min(heads)[1]

    def best(self, shape: Shape, hosts: int) -> Places | None:
        """Where a gang fits best on hosts with these bits."""
        found = self.index.best(FREE, shape, hosts)
        return None if found is None else [(self.machines[place], shape.each) for place in found]

    def free(self) -> int:
        """Free GPUs on hosts that take work."""
        return sum(room * bits.bit_count() for room, bits in enumerate(self.index.levels[FREE]))

    def hoped_for(self, shape: Shape) -> int:
        """The bits of the hosts that a gang which does not fit may hope for first: those with most room."""
        found, wanted = 0, shape.hosts
        for room in range(self.index.top, 0, -1):
            bits = self.index.levels[FREE][room]
            while bits and wanted:
                bit = bits & -bits
                bits ^= bit
                if self.machines[bit.bit_length() - 1].gpus >= shape.each:
                    found |= bit
                    wanted -= 1
        return found

    def emptied(self, shape: Shape, hosts: int, legal: list[Run]) -> tuple[Places, list[Run]] | None:
        """Where a gang could be if runs of ``legal`` were stopped, in that order, and which; fewest GPUs first."""
        given: dict[Machine, list[tuple[Run, int]]] = {}
        for run in legal:
            for machine, mask in run.masks.items():
                given.setdefault(machine, []).append((run, mask.bit_count()))
        able = [
            (shape.each - machine.rooms[FREE], machine.index)
            for machine in self.machines
            if machine.state is HostState.READY
            and hosts >> machine.index & 1
            and machine.rooms[FREE] + sum(gpus for _, gpus in given.get(machine, ())) >= shape.each
        ]
        if len(able) < shape.hosts:
            return None
        chosen = [self.machines[index] for _, index in sorted(able)[: shape.hosts]]
        victims: dict[int, Run] = {}
        for machine in chosen:
            missing = shape.each - machine.rooms[FREE]
            missing -= sum(gpus for run, gpus in given.get(machine, ()) if run.serial in victims)
            for run, gpus in given.get(machine, ()):
                if missing > 0 and run.serial not in victims:
                    victims[run.serial] = run
                    missing -= gpus
        return [(machine, shape.each) for machine in chosen], list(victims.values())
