"""What a run measures while it goes on: where each pool's GPU-time goes, and what each budget got and waited for.

A sum over time is a straight line, ``base + rate * t``, between two changes, so a change costs the same however much
there is, and a sample can be taken at any moment. GPU-time in GPU-milliseconds. Knows nothing of events.
"""

from __future__ import annotations

from gpubudget.sim.result import PoolSample, Sample
from gpubudget.units import HOUR, SECOND

MOST_SAMPLES = 4_000
_ENOUGH = 500
_CAPACITY, _UNAVAILABLE = range(2)


def step_for(span: int) -> int:
    """How far apart samples of so many milliseconds are: an hour, and less where there would be few."""
    return max(SECOND, min(HOUR, span // _ENOUGH))


class Lines:
    """A sum over time for each budget."""

    __slots__ = ("base", "rate")

    def __init__(self, size: int) -> None:
        self.base = [0] * size
        self.rate = [0] * size

    def change(self, place: int, gpus: int, now: int) -> None:
        """From ``now`` on the sum grows by so many GPUs more."""
        self.base[place] -= gpus * now
        self.rate[place] += gpus

    def at(self, now: int) -> tuple[int, ...]:
        """The sums at ``now``."""
        rate = self.rate
        return tuple([base + rate[place] * now for place, base in enumerate(self.base)])


class PoolMeter:
    """One pool. ``hosts`` has the GPUs of all hosts, and those that are free on hosts that are not ready.

    ``idle`` are the free GPUs of ready hosts, ``pending`` those that are waited for; what both have in common is unmet.
    """

    __slots__ = ("delivered", "fillers", "hosts", "idle", "pending", "since", "unmet", "waited")

    def __init__(self, paths: int, now: int) -> None:
        self.hosts = Lines(2)
        self.delivered, self.fillers, self.waited = Lines(paths), Lines(paths), Lines(paths)
        self.idle = self.pending = self.unmet = 0
        self.since = now

    def settle(self, now: int) -> None:
        """Count what was unmet until ``now``; called before ``idle`` or ``pending`` change."""
        if self.pending:
            self.unmet += min(self.idle, self.pending) * (now - self.since)
        self.since = now

    def wait(self, place: int, gpus: int, now: int, allocated: bool) -> None:  # noqa: FBT001 - called most of all
        """A workload begins to wait, or ends it where ``gpus`` is negative."""
        if now != self.since:
            self.settle(now)
        self.pending += gpus
        if allocated:
            lines = self.waited
            lines.base[place] -= gpus * now
            lines.rate[place] += gpus

    def hold(self, place: int, gpus: int, now: int, allocated: bool) -> None:  # noqa: FBT001 - the same
        """A workload takes GPUs of ready hosts, or lets go of them where ``gpus`` is negative."""
        if now != self.since:
            self.settle(now)
        self.idle -= gpus
        lines = self.delivered if allocated else self.fillers
        lines.base[place] -= gpus * now
        lines.rate[place] += gpus

    def lose(self, gpus: int, now: int) -> None:
        """Free GPUs are no longer on a ready host, or are again where ``gpus`` is negative."""
        self.settle(now)
        self.idle -= gpus
        self.hosts.change(_UNAVAILABLE, gpus, now)

    def add(self, gpus: int, now: int) -> None:
        """A host more, which is not ready yet."""
        self.hosts.change(_CAPACITY, gpus, now)
        self.hosts.change(_UNAVAILABLE, gpus, now)

    def sample(self, now: int) -> PoolSample:
        """How things stand."""
        self.settle(now)
        capacity, unavailable = self.hosts.at(now)
        delivered, fillers = self.delivered.at(now), self.fillers.at(now)
        return PoolSample(
            self.hosts.rate[_CAPACITY],
            self.hosts.rate[_UNAVAILABLE],
            sum(self.delivered.rate),
            sum(self.fillers.rate),
            self.pending,
            capacity,
            unavailable,
            sum(delivered),
            sum(fillers),
            self.unmet,
            delivered,
            fillers,
            self.waited.at(now),
        )


class Meters:
    """All pools and their samples, ``every`` so many milliseconds from ``start`` on.

    There are never more than a few thousand: when they are that many, each second one is dropped and ``every`` doubled.
    ``paths`` are those of all budgets that there ever were, each with the moment from which it was; ``places`` says
    where in that list each path stands that is in force, or was last.
    """

    def __init__(self, pools: tuple[str, ...], paths: list[str], start: int, every: int) -> None:
        self.pools = {name: PoolMeter(len(paths), start) for name in pools}
        self.places = {path: place for place, path in enumerate(paths)}
        self.paths = [(path, start) for path in paths]
        self._tree = set(paths)
        self.samples: list[Sample] = []
        self.every, self.next = every, start

    def apply(self, paths: list[str], now: int) -> None:
        """Another tree is in force; a path that the one before did not have is that of another budget than ever."""
        tree = set(paths)
        for path in paths:
            if path not in self._tree:
                self.places.pop(path, None)
                self.place(path, now)
        self._tree = tree

    def place(self, path: str, now: int) -> int:
        """Where a budget stands in every list; one that was not there before is added."""
        found = self.places.get(path)
        if found is None:
            found = self.places[path] = len(self.paths)
            self.paths.append((path, now))
            for pool in self.pools.values():
                for lines in (pool.delivered, pool.fillers, pool.waited):
                    lines.base.append(0)
                    lines.rate.append(0)
        return found

    def until(self, now: int) -> None:
        """Take the samples that are due before ``now``; nothing has changed since the last event."""
        while self.next < now:
            if len(self.samples) == MOST_SAMPLES:
                del self.samples[1::2]
                self.every *= 2
            self.take(self.next)
            self.next += self.every

    def mark(self, at: int) -> None:
        """Take a sample beside the others, so that figures of the time before and after it are exact."""
        if self.samples and self.samples[-1].at < at:
            self.take(at)

    def take(self, at: int) -> None:
        """Take a sample."""
        self.samples.append(Sample(at, tuple([pool.sample(at) for pool in self.pools.values()])))

    def padded(self) -> tuple[Sample, ...]:
        """All samples, each with an entry for every budget that there ever was."""
        size = len(self.paths)
        return tuple([s._replace(pools=tuple([_pad(pool, size) for pool in s.pools])) for s in self.samples])


def _pad(sample: PoolSample, size: int) -> PoolSample:
    missing = (0,) * (size - len(sample.delivered))
    if not missing:
        return sample
    return sample._replace(
        delivered=sample.delivered + missing,
        delivered_unallocated=sample.delivered_unallocated + missing,
        waited=sample.waited + missing,
    )
