"""Where a gang fits: how it is split over hosts, and which hosts have room.

Hosts are kept in buckets by the GPUs they could give, as sets of bits, so that the best fit is found in a few steps
whatever the number of hosts. There are four answers to "how many GPUs could this host give": to unallocated work
(``FREE``), to allocated work without stopping anybody (``ROOM``), also by stopping unallocated work (``UNALLOCATED``),
and also by stopping allocated work past its minimum (``RIPE``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gpubudget.errors import RefusedError
from gpubudget.units import count

FREE: Final = 0
ROOM: Final = 1
UNALLOCATED: Final = 2
RIPE: Final = 3
EVERY: Final = -1
"""The bits of all hosts."""
TIERS = (FREE, ROOM, UNALLOCATED, RIPE)


Rooms = tuple[int, int, int, int]
"""GPUs that a host could give, in each tier."""
NO_ROOM: Rooms = (0, 0, 0, 0)


def more(rooms: Rooms, before: Rooms) -> bool:
    """Whether there is more room in some tier."""
    return rooms[0] > before[0] or rooms[1] > before[1] or rooms[2] > before[2] or rooms[3] > before[3]


class Shape(NamedTuple):
    """A gang: ``each`` GPUs on each of ``hosts`` hosts."""

    hosts: int
    each: int

    def __str__(self) -> str:
        where = "one host" if self.hosts == 1 else f"each of {self.hosts} hosts"
        return f"{count(self.each, 'GPU')} on {where}"


def split(gpus: int, hosts: int | None, gpus_per_host: int) -> Shape:
    """How a gang of ``gpus`` is spread: on one host if it fits there, else evenly over the fewest, or as asked.

    Raises RefusedError, with the nearest sizes that are possible, when it does not come out even.
    """
    if hosts is not None:
        if gpus % hosts or gpus // hosts > gpus_per_host:
            least = count(-(-gpus // gpus_per_host), "host")
            raise RefusedError(
                _uneven(gpus, hosts, gpus_per_host),
                hint=f"ask for a multiple of {count(hosts, 'GPU')}, at least {least}, or leave the number of hosts out",
            )
        return Shape(hosts, gpus // hosts)
    fewest = -(-gpus // gpus_per_host)
    if gpus % fewest:
        below = gpus - gpus % fewest
        raise RefusedError(
            _uneven(gpus, fewest, gpus_per_host),
            hint=f"ask for {below} or {below + fewest} GPUs, or give the number of hosts (-N)",
        )
    return Shape(fewest, gpus // fewest)


def _uneven(gpus: int, hosts: int, gpus_per_host: int) -> str:
    over = f"{count(hosts, 'host')} of {count(gpus_per_host, 'GPU')}"
    return f"{count(gpus, 'GPU')} cannot be split evenly over {over}"


def enough(hosts: int, wanted: int) -> bool:
    """Whether there are at least ``wanted`` of these hosts (bits); mostly one is."""
    return hosts != 0 if wanted == 1 else hosts.bit_count() >= wanted


class Roomy:
    """What the index keeps of a host: its place in the order of hosts, the bit of it, and its room in each tier."""

    __slots__ = ("bit", "index", "rooms")

    def __init__(self, index: int) -> None:
        self.index = index
        self.bit = 1 << index
        self.rooms = NO_ROOM


class HostIndex:
    """Hosts by the room they have in each tier. ``sets[tier][n]`` has the bit of each host with room for ``n`` or more.

    ``n`` reaches from 1 to ``top``, the size of the largest host; the set after that is empty.
    """

    __slots__ = ("sets", "top")

    def __init__(self, top: int) -> None:
        self.top = top
        self.sets = [[0] * (top + 2) for _ in TIERS]

    def move(self, host: Roomy, rooms: Rooms) -> None:
        """Put ``host`` where its new rooms belong."""
        bit, old, sets = host.bit, host.rooms, self.sets
        host.rooms = rooms
        if rooms[0] != old[0]:
            _shift(sets[0], bit, old[0], rooms[0])
        if rooms[1] != old[1]:
            _shift(sets[1], bit, old[1], rooms[1])
        if rooms[2] != old[2]:
            _shift(sets[2], bit, old[2], rooms[2])
        if rooms[3] != old[3]:
            _shift(sets[3], bit, old[3], rooms[3])

    def having(self, tier: int, each: int) -> int:
        """The bits of the hosts with room for ``each`` GPUs."""
        return self.sets[tier][each] if each <= self.top else 0

    def reach(self, tier: int, hosts: int) -> int:
        """The most GPUs that one of the hosts with these bits could give."""
        sets = self.sets[tier]
        room = self.top
        while room and not sets[room] & hosts:
            room -= 1
        return room

    def fits(self, tier: int, shape: Shape) -> bool:
        """Whether there is room for a gang."""
        return enough(self.having(tier, shape.each), shape.hosts)

    def best(self, tier: int, shape: Shape, hosts: int) -> list[int] | None:
        """The indices of the hosts that fit a gang best: the smallest holes first, then the order of hosts.

        Only hosts whose bit is in ``hosts`` are taken. None where the gang does not fit.
        """
        wanted, each = shape
        left = self.having(tier, each) & hosts
        if not enough(left, wanted):
            return None
        sets = self.sets[tier]
        found: list[int] = []
        while True:
            each += 1
            larger = left & sets[each]
            bits = left ^ larger  # those with exactly so much room
            left = larger
            while bits:
                lowest = bits & -bits
                found.append(lowest.bit_length() - 1)
                if len(found) == wanted:
                    return found
                bits ^= lowest


def _shift(sets: list[int], bit: int, before: int, room: int) -> None:
    """Move the bit of a host from the sets of one room to those of another."""
    while before < room:
        before += 1
        sets[before] |= bit
    while before > room:
        sets[before] ^= bit
        before -= 1


def lowest(mask: int, count: int) -> int:
    """The ``count`` lowest bits of ``mask``."""
    taken = 0
    for _ in range(count):
        bit = mask & -mask
        taken |= bit
        mask ^= bit
    return taken


def indices(mask: int) -> tuple[int, ...]:
    """The places of the bits of ``mask``, in order."""
    found = []
    while mask:
        bit = mask & -mask
        found.append(bit.bit_length() - 1)
        mask ^= bit
    return tuple(found)
