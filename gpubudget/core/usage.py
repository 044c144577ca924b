"""The ledger: exact occupancy of each budget inside the sliding lookback window, and what is committed ahead.

Usage is a straight line between changes, so each budget keeps two integers: ``usage(t) = at0 + slope * t``. A change
touches a budget and its ancestors only, whatever the length of the history. Time is milliseconds, GPU-time is
GPU-milliseconds. The ledger knows nothing of shares, hosts or workloads.

Lines count time from a zero of their own, which is moved now and then: with the milliseconds since 1970 every reading
would multiply numbers that are too long to be quick.

An attempt of ``g`` GPUs with minimum runtime ``m`` that starts at ``s`` and ends at ``e`` changes its budget's line so:

- at ``s``: ``g * m`` is charged at once. While it is protected, occupancy grows exactly as fast as the commitment
  shrinks, so the slope stays;
- at ``s + m``: the slope grows by ``g``;
- at ``e``: the slope shrinks by ``g``, or, when it ends early, what is left of the commitment is given back;
- at ``s + lookback`` and ``e + lookback``, as the window passes them: the slope shrinks by ``g`` and grows again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar


class Meter:
    """An integral over time that is read at any moment: GPU-milliseconds of a number of GPUs that changes.

    ``value`` is what it was at ``since``, the time of the last change.
    """

    __slots__ = ("gpus", "since", "value")

    def __init__(self, at0: int = 0, gpus: int = 0) -> None:
        self.value = at0
        self.gpus = gpus
        self.since = 0

    def change(self, gpus: int, now: int) -> None:
        """From ``now`` on there are ``gpus`` more (or fewer)."""
        self.value += self.gpus * (now - self.since)
        self.gpus += gpus
        self.since = now

    def read(self, now: int) -> int:
        """GPU-milliseconds until ``now``."""
        return self.value + self.gpus * (now - self.since)

    def absorb(self, other: Meter) -> None:
        """Count what ``other`` counted and counts, too."""
        self.value = self.read(other.since) + other.value
        self.gpus += other.gpus
        self.since = other.since


class Line:
    """What the ledger keeps of a budget: its line, and ``up``, it and its ancestors, itself first.

    ``tail`` counts the GPUs that were occupied at the moment at which the window begins. ``height + climb * t`` is the
    same line times ``fold`` (and from where ``height`` was set), so that ranks are read with one multiplication.
    """

    __slots__ = ("at0", "climb", "fold", "height", "slope", "tail", "up")

    def __init__(self, fold: int = 0) -> None:
        self.at0 = 0
        self.slope = 0
        self.tail = 0
        self.fold = fold
        self.height = 0
        self.climb = 0
        self.up: tuple[Line, ...] = (self,)

    def usage(self, at: int) -> int:
        """GPU-milliseconds charged to it and all below, at a time that counts from its zero."""
        return self.at0 + self.slope * at

    def charge(self, gpu_time: int) -> None:
        """Usage is ``gpu_time`` GPU-milliseconds more from now on."""
        self.at0 += gpu_time
        self.height += gpu_time * self.fold

    def move_zero(self, step: int) -> None:
        """Count time from ``step`` milliseconds later on."""
        self.at0 += self.slope * step
        self.height += self.climb * step

    def turn(self, gpus: int, at: int) -> None:
        """From the moment ``at`` on usage grows by ``gpus`` more."""
        self.slope += gpus
        if gpus >= 0:
            self.at0 -= gpus * at
            step = gpus * self.fold
            self.climb += step
            self.height -= step * at
        else:  # the same; where nothing is below zero, the compiled build multiplies without making objects
            self.at0 += -gpus * at
            step = -gpus * self.fold
            self.climb -= step
            self.height += step * at


L = TypeVar("L", bound=Line)


class Ledger(Generic[L]):
    """Moves the lines of one pool's budgets. ``horizon`` is the moment before which nothing is known.

    The window reaches from ``max(now - lookback, horizon)`` to now. ``edges`` are the changes of occupancy inside it,
    oldest first, each (time, leaf, GPUs). ``zero`` is the moment from which its lines count time.
    """

    __slots__ = ("edges", "horizon", "lookback", "zero")

    def __init__(self, lookback: int, horizon: int) -> None:
        self.lookback = lookback
        self.horizon = horizon
        self.zero = 0
        self.edges: deque[tuple[int, L, int]] = deque()

    def clock(self, now: int) -> int:
        """``now`` as its lines count time."""
        return now - self.zero

    def move_zero(self, now: int, lines: Iterable[L]) -> None:
        """Count time from ``now`` on in all its ``lines``."""
        step = self.clock(now)
        self.zero = now
        for line in lines:
            line.move_zero(step)

    def occupy(self, leaf: L, gpus: int, now: int) -> None:
        """From ``now`` on ``leaf`` holds ``gpus`` more (or fewer), with nothing committed."""
        for node in leaf.up:
            node.turn(gpus, now - self.zero)
        self.edges.append((now, leaf, gpus))

    def commit(self, leaf: L, gpu_time: int) -> None:
        """Charge ``gpu_time`` GPU-milliseconds at once (give it back when negative)."""
        for node in leaf.up:
            node.charge(gpu_time)

    def start_protected(self, leaf: L, gpus: int, now: int) -> None:
        """``leaf`` starts to hold ``gpus`` whose commitment is charged: the slope stays while they are protected."""
        self.edges.append((now, leaf, gpus))

    def end_protection(self, leaf: L, gpus: int, at: int) -> None:
        """The commitment of ``gpus`` is used up at ``at``; from then on occupancy counts as it runs."""
        for node in leaf.up:
            node.turn(gpus, at - self.zero)

    def stop_protected(self, leaf: L, gpus: int, now: int, protected_until: int) -> None:
        """``leaf`` lets go of ``gpus`` before their protection ended: the rest of the commitment is given back."""
        self.commit(leaf, gpus * (now - protected_until))
        self.edges.append((now, leaf, -gpus))

    def advance(self, now: int) -> None:
        """Let the window slide to ``now``. Each change leaves it at its own exact time."""
        edges, lookback = self.edges, self.lookback
        limit = now - lookback
        while edges:
            time, leaf, gpus = edges[0]
            if time > limit:
                break
            edges.popleft()
            leaf.tail += gpus
            for node in leaf.up:
                node.turn(-gpus, time + lookback - self.zero)

    def set_lookback(self, lookback: int, now: int, leaves: Iterable[L]) -> None:
        """Change the window's length at ``now``.

        A shorter window forgets at once. A longer one cannot remember what the shorter one had forgotten: it begins
        where the old one did, and grows from there.
        """
        shrink = self.lookback - lookback
        if shrink < 0:
            start = max(now - self.lookback, self.horizon)
            self.horizon = start
            for leaf in leaves:
                if leaf.tail:
                    self.edges.appendleft((start, leaf, leaf.tail))
                    for node in leaf.up:
                        node.turn(leaf.tail, now - self.zero)
                    leaf.tail = 0
        elif shrink > 0:
            for leaf in leaves:
                self.commit(leaf, -leaf.tail * shrink)
        self.lookback = lookback
        self.advance(now)

    def observed(self, now: int) -> int:
        """The length of the window in milliseconds, as far as it has been observed."""
        return min(self.lookback, now - self.horizon)
