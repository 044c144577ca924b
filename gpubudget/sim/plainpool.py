"""What a plain scheduler remembers: workloads, hosts, attempts, and pools with their queues. Knows no rule of rank."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import islice

from gpubudget.core.budget import Pool
from gpubudget.core.host import HostState
from gpubudget.core.placement import Shape
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
    """A host. ``bit`` is its own in sets of hosts, ``room`` what it can give now."""

    __slots__ = ("bit", "free", "gpus", "name", "pool", "room", "runs", "state")

    def __init__(self, name: str, pool: str, gpus: int, bit: int) -> None:
        self.name, self.pool, self.gpus, self.bit = name, pool, gpus, bit
        self.state = HostState.READY
        self.free = (1 << gpus) - 1
        self.room = 0
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

    ``having[n]`` are the hosts with room for n GPUs. ``bits`` gives each shape a bit, and a node's ``mask`` has those
    of the shapes that wait in it and below.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.spec: Pool | None = None
        self.gpus = 0
        self.machines: list[Machine] = []
        self.having = [0]
        self.root = Node("", None, Fraction(1))
        self.leaves: dict[str, Node] = {}
        self.stray = Node("", None, Fraction(0))
        self.queues: dict[Node, dict[Shape, list[tuple[Rank, Waiting]]]] = {}
        self.running: dict[int, Run] = {}
        self.bits: dict[Shape, int] = {}
        self.dirty = False

    def refresh(self, machine: Machine) -> None:
        """Put a host where its room belongs: it has none while it takes no work."""
        self.having[machine.room] &= ~machine.bit
        machine.room = machine.free.bit_count() if machine.state is HostState.READY else 0
        self.having[machine.room] |= machine.bit

    def add(self, name: str, gpus: int) -> Machine:
        """A new host."""
        machine = Machine(name, self.name, gpus, 1 << len(self.machines))
        self.machines.append(machine)
        self.gpus += gpus
        self.having += [0] * (gpus + 1 - len(self.having))
        self.refresh(machine)
        return machine

    def enqueue(self, who: Waiting) -> None:
        """Let a workload wait here."""
        leaf, shape = who.leaves[self.name], who.shapes[self.name]
        insort(self.queues.setdefault(leaf, {}).setdefault(shape, []), (who.rank, who))
        bit = self.bits.setdefault(shape, 1 << len(self.bits))
        for node in leaf.up:
            node.mask |= bit
        self.dirty = True

    def dequeue(self, who: Waiting) -> None:
        """Take it out."""
        leaf, shape = who.leaves[self.name], who.shapes[self.name]
        shapes = self.queues[leaf]
        del shapes[shape][bisect_left(shapes[shape], (who.rank,))]
        if shapes[shape]:
            return
        del shapes[shape]
        bit = self.bits[shape]
        leaf.mask &= ~bit
        for node in leaf.up[1:]:
            if any(child.mask & bit for child in node.children):
                return
            node.mask &= ~bit

    def in_turn(
        self, leaves: Iterable[Node], mask: int, admits: Callable[[Waiting], bool] | None = None
    ) -> Iterator[Waiting]:
        """Whoever waits first in ``leaves``, by rank, of each shape in ``mask``; only those that are admitted."""
        heads = [
            queue[0]
            for leaf in leaves
            if leaf.mask & mask
            for shape, queue in self.queues[leaf].items()
            if self.bits[shape] & mask
        ]
        for _, who in sorted(heads):
            if admits is None or admits(who):
                yield who

    def hosts_of(self, bits: int) -> Iterator[Machine]:
        """The hosts of these bits, in order."""
        while bits:
            lowest = bits & -bits
            bits ^= lowest
            yield self.machines[lowest.bit_length() - 1]

    def best(self, shape: Shape, hosts: int) -> Places | None:
        """Where a gang fits best on hosts with these bits: the smallest holes first, then the order of hosts."""
        found: Places = []
        for bits in self.having[shape.each :]:
            for machine in self.hosts_of(bits & hosts):
                found.append((machine, shape.each))
                if len(found) == shape.hosts:
                    return found
        return None

    def free(self) -> int:
        """Free GPUs on hosts that take work."""
        return sum(room * bits.bit_count() for room, bits in enumerate(self.having))

    def hoped_for(self, shape: Shape) -> int:
        """The bits of the hosts that a gang which does not fit may hope for first: those with most room."""
        able = (each for bits in self.having[:0:-1] for each in self.hosts_of(bits) if each.gpus >= shape.each)
        return sum(machine.bit for machine in islice(able, shape.hosts))

    def emptied(self, shape: Shape, hosts: int, legal: list[Run]) -> tuple[Places, list[Run]] | None:
        """Where a gang could be if runs of ``legal`` were stopped, in that order, and which; fewest GPUs first."""
        given: dict[Machine, list[tuple[Run, int]]] = {}
        for run in legal:
            for machine, mask in run.masks.items():
                given.setdefault(machine, []).append((run, mask.bit_count()))
        able = [
            machine
            for machine in self.machines
            if machine.state is HostState.READY
            and hosts & machine.bit
            and machine.room + sum(gpus for _, gpus in given.get(machine, ())) >= shape.each
        ]
        if len(able) < shape.hosts:
            return None
        chosen = sorted(able, key=lambda machine: -machine.room)[: shape.hosts]
        victims: dict[int, Run] = {}
        for machine in chosen:
            missing = shape.each - machine.room
            missing -= sum(gpus for run, gpus in given.get(machine, ()) if run.serial in victims)
            for run, gpus in given.get(machine, ()):
                if missing > 0 and run.serial not in victims:
                    victims[run.serial] = run
                    missing -= gpus
        return [(machine, shape.each) for machine in chosen], list(victims.values())
