"""One pool at work: its hosts, its budgets with what they use, what waits in it, and how its time was spent."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from gpubudget.core.budget import Budget, Policy, Shares
from gpubudget.core.budget import Pool as PoolSpec
from gpubudget.core.fairshare import Ranking, grow
from gpubudget.core.host import HostState
from gpubudget.core.lane import Lane
from gpubudget.core.placement import NO_ROOM, HostIndex, Rooms, Shape, more, split
from gpubudget.core.records import Attempt, Host, Node, Reservation, Workload
from gpubudget.core.usage import Ledger, Meter
from gpubudget.core.waiting import Queue
from gpubudget.errors import RefusedError
from gpubudget.units import count

_READY: Final = HostState.READY  # to look it up in its class takes a while, and this is done for every change of a host

_LONG: Final = 1 << 29
"""About six days: the longest time that lines count. The compiled build multiplies numbers below twice that quickly."""

NOBODY = Budget("/", Shares(Fraction(1)))
"""The tree of a pool that no tree names."""


class Pool:
    """A pool. ``spec`` is None while the tree in force does not name it: nothing is placed then.

    ``answers`` remembers which gangs it could ever hold. ``kinds`` numbers the shapes seen so far; a shape whose
    workload must not preempt for now has a number of its own. ``timid`` and ``wide`` have the bits of those, and of
    shapes on several hosts; ``single[n]`` those of shapes of up to ``n`` GPUs on one host. ``stray`` is the budget of
    unallocated workloads that name none. ``due`` asks for a full pass, ``grown`` has the bits of hosts that can give
    more than at the last pass. The meters are GPU-milliseconds since the pool was first seen: ``allocated`` and
    ``unallocated`` those held by attempts, ``idle`` and ``unavailable`` those held by none, on ready hosts and on
    others.
    """

    __slots__ = (
        "allocated",
        "answers",
        "budgets",
        "capacity",
        "due",
        "fillers",
        "grown",
        "hosts",
        "idle",
        "index",
        "kinds",
        "lane",
        "last_pass",
        "name",
        "numbers",
        "order",
        "passing",
        "reservation",
        "single",
        "spec",
        "stray",
        "timid",
        "unallocated",
        "unavailable",
        "wide",
    )

    def __init__(self, name: str, policy: Policy, now: int, root: Budget = NOBODY) -> None:
        self.name = name
        self.spec: PoolSpec | None = None
        self.hosts: dict[str, Host] = {}
        self.order: list[Host | None] = []
        self.answers: dict[tuple[int, int | None, int], Shape | str] = {}
        self.index = HostIndex(1)
        self.budgets = Ranking(grow(root, name, now), Ledger[Node](policy.lookback, now))
        self.fillers = Ranking(grow(root, name, now), Ledger[Node](policy.lookback, now))
        self.stray = Node("", None, Fraction(0))
        self.lane = Lane(now)
        self.kinds: list[tuple[Shape, bool]] = []
        self.numbers: dict[tuple[Shape, bool], int] = {}
        self.timid = 0
        self.wide = 0
        self.single = [0]
        self.reservation: Reservation | None = None
        self.capacity = Meter()
        self.allocated = Meter()
        self.unallocated = Meter()
        self.idle = Meter()
        self.unavailable = Meter()
        self.last_pass = now
        self.due = False
        self.grown = 0
        self.passing = False

    def slide(self, now: int) -> None:
        """Let the lookback window of every ledger slide to ``now``."""
        if self.budgets.ledger.clock(now) > _LONG:
            self.budgets.move_zero(now)
            self.fillers.move_zero(now, self.stray)
        edges = self.budgets.ledger.edges
        if edges and edges[0][0] <= now - self.budgets.ledger.lookback:
            self.budgets.ledger.advance(now)
        edges = self.fillers.ledger.edges
        if edges and edges[0][0] <= now - self.fillers.ledger.lookback:
            self.fillers.ledger.advance(now)
        if self.lane.people:
            self.lane.ledger.advance(now)

    def waiting(self) -> bool:
        """Whether anything waits."""
        return (self.budgets.root.mask | self.fillers.root.mask | self.stray.mask) != 0

    def hosts_of(self, bits: int) -> list[Host]:
        """The hosts of these bits, in order."""
        found = []
        while bits:
            bit = bits & -bits
            bits ^= bit
            host = self.order[bit.bit_length() - 1]
            if host is not None:
                found.append(host)
        return found

    def refresh(self, host: Host) -> None:
        """Put ``host`` where its room belongs; call it after each change of one of its counts."""
        rooms = host.measure(usable=host.state is _READY and self.spec is not None)
        if rooms != host.rooms:
            self.index.move(host, rooms)

    def lapse(self) -> None:
        """Give up the reservation: its workload starts or is gone, or its hosts cannot keep it.

        Others may use the hosts now, or start at all, which waited so that its program kept its rank.
        """
        if self.reservation is not None:
            self.reservation = None
            self.due = True

    def gains(self, host: Host, before: Rooms) -> None:
        """Note it if ``host`` can give more than ``before``, its rooms until now: something may start there."""
        if not self.grown & host.bit and more(host.rooms, before):
            host.before = before
            self.grown |= host.bit

    def still_grown(self, hosts: int) -> int:
        """Those of ``hosts`` that can still give more than before they gained."""
        found = 0
        for host in self.hosts_of(hosts):
            if more(host.rooms, host.before):
                found |= host.bit
        return found

    def add_host(self, name: str, gpus: int) -> Host:
        """A new host of ``gpus`` GPUs, not yet in any state of use."""
        host = Host(name, self.name, gpus, len(self.order))
        self.answers.clear()
        self.order.append(host)
        self.hosts[name] = host
        if gpus > self.index.top:
            self.index = HostIndex(gpus)
            for each in self.hosts.values():
                each.rooms = NO_ROOM
        for each in self.hosts.values() if self.index.top == gpus else (host,):
            self.refresh(each)
        return host

    def remove_host(self, host: Host) -> None:
        """Forget an empty host."""
        self.index.move(host, NO_ROOM)
        self.order[host.index] = None
        self.answers.clear()
        del self.hosts[host.name]

    def shape_of(self, gpus: int, hosts: int | None, lane: int) -> Shape | str:
        """The gang that these GPUs make, or why the pool could never hold it, in whatever state its hosts are.

        The hosts that the site says it has count, also before they have reported; ``lane`` GPUs are kept from it.
        """
        if self.spec is None:
            return f"there is no pool {self.name!r}"
        try:
            shape = split(gpus, hosts, self.spec.gpus_per_host)
        except RefusedError as error:
            return f"{error.message} in pool {self.name}: {error.hint}"
        full, rest = divmod(lane, self.spec.gpus_per_host)
        too_small = full + (rest > 0 and self.spec.gpus_per_host - rest < shape.each)
        declared = self.spec.hosts - too_small if self.spec.gpus_per_host >= shape.each else 0
        known = sum(host.gpus - (host.lane if lane else 0) >= shape.each for host in self.hosts.values())
        if max(known, declared) >= shape.hosts:
            return shape
        kept = f", of which the debug lane keeps {count(lane, 'GPU')}" if lane else ""
        total = count(max(len(self.hosts), self.spec.hosts), "host")
        sizes = {self.spec.gpus_per_host, *(host.gpus for host in self.hosts.values())}
        size = f"{'up to ' if len(sizes) > 1 else ''}{count(max(sizes), 'GPU')}"
        return f"{shape} can never be had in pool {self.name}: it has {total} of {size}{kept}"

    def number(self, shape: Shape, *, timid: bool) -> int:
        """The number of a shape; ``timid`` for workloads that must not preempt for now."""
        key = (shape, timid)
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.kinds)
            self.kinds.append(key)
            self.timid |= timid << found
            if shape.hosts > 1:
                self.wide |= 1 << found
            while len(self.single) <= max(shape.each, self.index.top):
                self.single.append(self.single[-1])
            if shape.hosts == 1:
                for each in range(shape.each, len(self.single)):
                    self.single[each] |= 1 << found
        return found

    def fitting(self, tier: int, mask: int, hosts: int) -> int:
        """Those bits of ``mask`` whose shapes have room in ``tier``, on one of ``hosts`` at least."""
        if not self.index.sets[tier][1] & hosts:
            return 0
        reach = self.index.reach(tier, hosts)
        found = mask & self.single[min(reach, len(self.single) - 1)]
        wide = mask & self.wide
        while wide:
            bit = wide & -wide
            wide ^= bit
            shape = self.kinds[bit.bit_length() - 1][0]
            if shape.each <= reach and self.index.fits(tier, shape):
                found |= bit
        return found


def enqueue(workload: Workload, leaf: Node, number: int) -> None:
    """Let ``workload`` wait in ``leaf``."""
    queue = leaf.queues.get(number)
    if queue is None:
        queue = leaf.queues[number] = Queue(workload.gpus)
    queue.add(workload)
    workload.queued.append((leaf, number))
    bit, commitment = 1 << number, workload.gpus * workload.min_runtime
    for node in leaf.up:
        if not node.mask or commitment < node.known_least:
            node.known_least = commitment
        node.mask |= bit


def dequeue(workload: Workload) -> None:
    """Take ``workload`` out of every queue it waits in."""
    commitment = workload.gpus * workload.min_runtime
    for leaf, number in workload.queued:
        queue = leaf.queues[number]
        queue.discard(workload)
        if not len(queue.row):
            del leaf.queues[number]
            _clear(leaf, 1 << number)
        for node in leaf.up:
            if node.known_least == commitment:
                node.known_least = -1
    workload.queued.clear()


def _clear(leaf: Node, bit: int) -> None:
    leaf.mask ^= bit
    for node in leaf.up[1:]:
        for child in node.children:
            if child.mask & bit:
                return
        node.mask ^= bit


def ripen(attempt: Attempt) -> None:
    """The attempt's protection has ended: it may be stopped for better-ranked work."""
    attempt.ripe = True
    attempt.leaf.ripe_attempts[attempt.serial] = attempt
    for node in attempt.leaf.up:
        node.ripe += attempt.gpus
        node.known_where |= attempt.bits  # which leaves -1 as it is
    for host in attempt.hosts:
        host.ripe += attempt.each
        host.known_end = -1


def unripen(attempt: Attempt) -> None:
    """The attempt is stopping or gone."""
    attempt.ripe = False
    del attempt.leaf.ripe_attempts[attempt.serial]
    for node in attempt.leaf.up:
        node.ripe -= attempt.gpus
        node.known_where = -1
    for host in attempt.hosts:
        host.ripe -= attempt.each
