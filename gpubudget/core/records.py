"""The scheduler's mutable records: budgets as they compete in a pool, hosts, workloads and attempts.

They hold state and say what follows from it at once; what happens to them is decided elsewhere.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from gpubudget.core.host import HostState
from gpubudget.core.placement import NO_ROOM, Rooms, Roomy, Shape
from gpubudget.core.usage import Line, Meter
from gpubudget.core.waiting import Queue, Rank
from gpubudget.core.workload import TRANSITIONS, StopReason, WorkloadSpec, WorkloadState
from gpubudget.errors import BrokenInvariantError

FAR: Final = 1 << 61
"""Later than any time."""


class Node(Line):
    """A budget in one pool, or, where ``reserve`` is set, what a budget with children keeps for itself.

    Leaves hold waiting workloads (``queues``, by number of shape) and the attempts past their minimum
    (``ripe_attempts``). ``mask`` (a bit for each shape that waits), ``ripe`` (GPUs of such attempts) and ``held`` (GPUs
    of all running attempts) sum up all below; so do ``least`` and ``where``, which are worked out when they are asked
    for and not known (``known_least`` and ``known_where`` are -1). ``fold``, ``order`` and ``tie`` turn usage into
    rank: see ``fairshare.py``. ``spent`` is all occupancy ever,
    kept for leaves only.
    """

    __slots__ = (
        "children",
        "held",
        "known_least",
        "known_where",
        "mask",
        "order",
        "parent",
        "path",
        "queues",
        "reserve",
        "ripe",
        "ripe_attempts",
        "share",
        "spent",
        "starved",
        "tie",
    )

    up: tuple[Node, ...]

    def __init__(self, path: str, parent: Node | None, share: Fraction, *, reserve: bool = False) -> None:
        super().__init__()
        self.path = path
        self.parent = parent
        self.share = share
        self.reserve = reserve
        self.up = (self, *parent.up) if parent else (self,)
        self.starved: bool = share == 0 or (parent is not None and parent.starved)
        self.children: list[Node] = []
        self.order = 0
        self.tie = 0
        self.held = 0
        self.spent = Meter()
        self.mask = 0
        self.known_least = -1
        self.queues: dict[int, Queue] = {}
        self.ripe = 0
        self.ripe_attempts: dict[int, Attempt] = {}
        self.known_where = 0

    def least(self) -> int:
        """The smallest commitment of what waits here and below (GPU-milliseconds); 0 where nothing does."""
        if self.known_least < 0:
            found = -1
            for child in self.children:
                if child.mask:
                    least = child.least()
                    if found < 0 or least < found:
                        found = least
            for queue in self.queues.values():
                least = queue.least()
                if found < 0 or least < found:
                    found = least
            self.known_least = max(found, 0)
        return self.known_least

    def where(self) -> int:
        """The bits of the hosts on which attempts past their minimum run, of it and all below."""
        if self.known_where < 0:
            found = 0
            for child in self.children:
                found |= child.where()
            for attempt in self.ripe_attempts.values():
                found |= attempt.bits
            self.known_where = found
        return self.known_where

    def leaves(self) -> list[Node]:
        """All leaves below, or itself."""
        if not self.children:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]


class Host(Roomy):
    """A host. Counts are GPUs.

    ``ordinary`` are held by allocated work outside the lane (or kept for it), ``lane_used`` by work of the lane,
    ``unallocated`` by unallocated work, ``ripe`` by ordinary work past its minimum; none of these counts what is
    stopping. ``stopping`` is all that is, ``stopping_ordinary`` its ordinary part, ``owed`` what of it is promised to
    workloads that wait for it, ``held`` all that attempts hold. ``known_end`` is what ``first_end`` found, and -1 when
    an attempt has come, gone or lost its protection since.
    """

    __slots__ = (
        "attempts",
        "before",
        "claims",
        "free",
        "gpus",
        "held",
        "known_end",
        "lane",
        "lane_used",
        "name",
        "ordinary",
        "owed",
        "pool",
        "reason",
        "ripe",
        "state",
        "stopping",
        "stopping_ordinary",
        "unallocated",
        "wanted",
    )

    def __init__(self, name: str, pool: str, gpus: int, index: int) -> None:
        super().__init__(index)
        self.name = name
        self.pool = pool
        self.gpus = gpus
        self.state = HostState.READY
        self.reason = ""
        self.wanted = HostState.READY  # what it goes back to after it was lost
        self.free = (1 << gpus) - 1
        self.lane = 0
        self.lane_used = 0
        self.ordinary = 0
        self.unallocated = 0
        self.ripe = 0
        self.stopping = 0
        self.stopping_ordinary = 0
        self.owed = 0
        self.held = 0
        self.known_end = -1
        self.before = NO_ROOM  # its rooms before it gained, while the pool says that it did
        self.attempts: dict[int, Attempt] = {}
        self.claims: dict[int, Attempt] = {}

    def measure(self, *, usable: bool) -> Rooms:
        """The room in each tier of ``placement.py``."""
        if not usable:
            return NO_ROOM
        free = self.free.bit_count()
        slack = self.gpus - self.lane - self.ordinary
        room = slack - self.stopping_ordinary
        if self.owed and self.stopping_ordinary:
            room += self._counted_twice()
        can_have = free + self.stopping - self.owed + self.unallocated
        most = min(slack, can_have)
        if most < 0:
            return (free, 0, 0, max(0, most + self.ripe))
        room = min(room, free)
        return (free, max(0, room), most, most + self.ripe)

    def first_end(self) -> int:
        """When a protection here ends first, or the time of ordinary work runs out; ``FAR`` for never."""
        if self.known_end < 0:
            found = FAR
            for attempt in self.attempts.values():
                if attempt.allocated and not attempt.lane and attempt.stopping is None:
                    if not attempt.ripe and attempt.protected_until < found:
                        found = attempt.protected_until
                    if attempt.ends_by is not None and attempt.ends_by < found:
                        found = attempt.ends_by
            self.known_end = found
        return self.known_end

    def _counted_twice(self) -> int:
        """GPUs of ordinary work that is stopping which are promised to ordinary claims, and so are counted in both."""
        return sum(
            gpus
            for claim in self.claims.values()
            if claim.allocated and not claim.lane
            for (host, serial), gpus in claim.promised.items()
            if host == self.name and self.attempts[serial].allocated and not self.attempts[serial].lane
        )


class Attempt:
    """One run of a workload, or, while ``started`` is None, the claim of one whose GPUs are not all free yet.

    ``masks`` are the GPUs it holds on each of ``hosts``; ``saved`` is when its work was last safe; ``serial`` orders
    attempts by the moment they were decided. ``promised`` is how many GPUs a claim will get on a host from which
    attempt that is stopping, by (host, serial). ``counted`` says that its protection has ended in the ledger.
    """

    __slots__ = (
        "allocated",
        "beneficiary",
        "bits",
        "counted",
        "each",
        "ends_by",
        "gpus",
        "hosts",
        "lane",
        "leaf",
        "masks",
        "number",
        "pool",
        "preempted",
        "promised",
        "protected_until",
        "ripe",
        "saved",
        "serial",
        "started",
        "stopping",
        "workload",
    )

    def __init__(self, serial: int, workload: Workload, pool: str, leaf: Node, hosts: list[Host], each: int) -> None:
        self.serial = serial
        self.workload = workload
        self.pool = pool
        self.leaf = leaf
        self.hosts = hosts
        self.each = each
        self.gpus = each * len(hosts)
        self.bits = 0
        for host in hosts:
            self.bits |= host.bit
        self.masks = [0] * len(hosts)
        self.promised: dict[tuple[str, int], int] = {}
        self.allocated = workload.allocated
        self.lane = False
        self.number = 0
        self.preempted: tuple[tuple[str, int], ...] = ()
        self.started: int | None = None
        self.protected_until = 0
        self.ends_by: int | None = None
        self.saved = 0
        self.counted = False
        self.ripe = False
        self.stopping: StopReason | None = None
        self.beneficiary: str | None = None

    def lost(self, now: int) -> int:
        """GPU-milliseconds of work that a stop at ``now`` would cost."""
        return self.gpus * (now - self.saved)


class Workload:
    """A workload that has not ended. ``shapes`` is its gang in each pool that could ever hold it.

    ``queued`` are the budgets and shapes in whose queues it stands. The least ``priority`` goes first here: it is minus
    what was asked for.
    """

    __slots__ = (
        "allocated",
        "attempt",
        "attempts",
        "budget",
        "debug",
        "failures",
        "fresh",
        "gpus",
        "held",
        "id",
        "max_runtime",
        "min_runtime",
        "patience",
        "preempt_after",
        "preemptions",
        "priority",
        "queued",
        "ran",
        "rank",
        "shapes",
        "spec",
        "state",
        "submitted",
    )

    def __init__(self, spec: WorkloadSpec, submitted: int) -> None:
        self.spec = spec
        self.gpus = spec.gpus
        self.min_runtime = spec.min_runtime
        self.max_runtime = spec.max_runtime
        self.allocated = self.min_runtime > 0
        self.debug = spec.debug
        self.budget = spec.budget
        self.submitted = submitted
        self.id = spec.id
        self.priority = -spec.priority
        self.rank: Rank = (self.priority, submitted, self.id)
        self.state = WorkloadState.PENDING
        self.held = ""
        self.fresh = False  # it waits and was not tried on every host yet
        self.shapes: dict[str, Shape] = {}
        self.queued: list[tuple[Node, int]] = []
        self.attempt: Attempt | None = None
        self.attempts = 0
        self.failures = 0
        self.preemptions = 0
        self.patience = 0  # failures soon after a start it preempted for, in a row
        self.preempt_after = 0
        self.ran = 0

    def become(self, state: WorkloadState) -> None:
        """Take a step of the transition table."""
        if state not in TRANSITIONS[self.state]:
            raise BrokenInvariantError(f"workload {self.id} cannot go from {self.state} to {state}")
        self.state = state


class Reservation:
    """Hosts and a time kept for the first workload that cannot start yet."""

    __slots__ = ("bits", "estimate", "hosts", "leaf", "start", "workload")

    def __init__(self, workload: Workload, leaf: Node, hosts: list[Host], start: int, *, estimate: bool) -> None:
        self.workload = workload
        self.leaf = leaf
        self.hosts = hosts
        self.start = start
        self.estimate = estimate
        self.bits = 0
        for host in hosts:
            self.bits |= host.bit
