"""The GPU-time of a run: what there was, what budgets were entitled to, wanted and got, over any stretch of samples.

A stretch is two indices into ``Result.samples``. *Demanded* is what the cluster would have given to a budget's funded
workloads in the stretch had it been endless: what they got, and for each that still waits at its end the time it
waited, at most what it still needs. *Entitled* is effective share x schedulable GPU-time, where schedulable is the
capacity less what was unavailable. An account is what one budget itself is charged, without its descendants: a leaf,
or the reserve that a budget keeps. Paths are those of the last tree. GPU-time is GPU-milliseconds. Nothing here judges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from gpubudget.core.budget import ROOT, parent_path
from gpubudget.sim.eras import Eras, Shares
from gpubudget.sim.result import End, PoolSample, Result, Row

Account = tuple[int, str]
"""The index of a pool, and the path of a budget."""


def lineage(path: str) -> Iterator[str]:
    """The path itself and those of all budgets above it, up to the root."""
    yield path
    while path != ROOT:
        path = parent_path(path)
        yield path


class GpuTime:
    """A run's samples, ready to be asked about any stretch of them."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.times = [sample.at for sample in result.samples]
        self.budgets = {budget.path: budget for budget in result.tree.budgets()}
        eras = Eras(result.trees)
        self.account_of = eras.account_of
        self.accounts: dict[str, list[int]] = {}  # where each stands in a sample: once, or for each path that it had
        for place, (path, began) in enumerate(zip(result.paths, result.paths_since, strict=True)):
            if path:
                self.accounts.setdefault(eras.account_of(path, began), []).append(place)
        self._eras = [eras.shares(pool, self.times) for pool in result.pools]

    @cached_property
    def loaded(self) -> int:
        """The last sample at which new work still came: figures of GPU-time end there, without the empty tail."""
        last = bisect_right(self.times, self.result.loaded_until) - 1
        return last if last > 0 else len(self.times) - 1

    @cached_property
    def pools(self) -> range:
        """The indices of the pools."""
        return range(len(self.result.pools))

    def at(self, sample: int, pool: int) -> PoolSample:
        """What is known of one pool at one sample."""
        return self.result.samples[sample].pools[pool]

    def since(self, sample: int, before: int) -> int:
        """The last sample that is at least ``before`` milliseconds earlier; the first if there is none."""
        return max(0, bisect_right(self.times, self.times[sample] - before, 0, sample + 1) - 1)

    def schedulable(self, pool: int, begin: int, end: int) -> int:
        """Capacity less what was unavailable."""
        first, last = self.at(begin, pool), self.at(end, pool)
        return last.capacity_gpu_ms - first.capacity_gpu_ms - last.unavailable_gpu_ms + first.unavailable_gpu_ms

    def entitled(self, account: Account, begin: int, end: int, *, own: bool) -> int:
        """Effective share x schedulable GPU-time: of what a budget keeps itself, or with all below it."""
        pool, path = account
        eras, total = self._eras[pool], 0
        for place, (first, shares) in enumerate(eras):
            last = eras[place + 1][0] if place + 1 < len(eras) else len(self.times) - 1
            share = (shares.own if own else shares.whole).get(path)
            if share and max(first, begin) < min(last, end):
                total += share * self.schedulable(pool, max(first, begin), min(last, end)) // shares.scale
        return total

    def entitled_steps(self, account: Account) -> list[int]:
        """``entitled`` of a budget with all below it, from each sample to the next."""
        pool, path = account
        eras, found = self._eras[pool], []
        for place, (first, shares) in enumerate(eras):
            last = eras[place + 1][0] if place + 1 < len(eras) else len(self.times) - 1
            share, scale = shares.whole.get(path, 0), shares.scale
            found += [share * gpu_ms // scale for gpu_ms in self._schedulable_steps[pool][first:last]]
        return found

    @cached_property
    def _schedulable_steps(self) -> list[list[int]]:
        """For each pool, from each sample to the next."""
        return [
            [self.schedulable(pool, sample, sample + 1) for sample in range(len(self.times) - 1)] for pool in self.pools
        ]

    def weights(self, pool: int, sample: int) -> Shares:
        """The shares in force at a sample."""
        return next(shares for first, shares in reversed(self._eras[pool]) if first <= sample)

    def delivered(self, account: Account, begin: int, end: int) -> int:
        """What funded workloads of that account got."""
        before, after = self.at(begin, account[0]).delivered, self.at(end, account[0]).delivered
        return sum([after[place] - before[place] for place in self.accounts.get(account[1], ())])

    def unallocated(self, paths: Iterable[str]) -> int:
        """What unfunded workloads of these accounts got in all pools until the last submission."""
        places = [place for path in paths for place in self.accounts[path]]
        first, last = self.result.samples[0].pools, self.result.samples[self.loaded].pools
        return sum(
            after.delivered_unallocated[place] - before.delivered_unallocated[place]
            for before, after in zip(first, last, strict=True)
            for place in places
        )

    def below(self, path: str) -> list[str]:
        """The paths of all accounts of a budget and its descendants."""
        prefix = "" if path == ROOT else f"{path}/"
        return [other for other in self.accounts if other == path or other.startswith(prefix)]

    def unmet(self, stretches: Sequence[tuple[int, int]]) -> list[dict[Account, int]]:
        """For each stretch, in order of their ends: by account, what still waited at its end would have used more."""
        rows = [row for row in self.result.rows if row.allocated and row.budget and row.end is not End.REFUSED]
        names = {name: place for place, name in enumerate(self.result.pools)}
        alive: list[Row] = []
        answers, coming = [], 0
        for begin, end in stretches:
            start, now = self.times[begin], self.times[end]
            while coming < len(rows) and rows[coming].submitted < now:
                alive.append(rows[coming])
                coming += 1
            alive = [row for row in alive if row.ended is None or row.ended > now]
            sums: defaultdict[Account, int] = defaultdict(int)
            for row in alive:
                if (extra := _could_have_run(row, start, now)) > 0:
                    sums[names[row.pool], self.account_of(row.budget or ROOT, row.submitted)] += extra * row.gpus
            answers.append(dict(sums))
        return answers


def _could_have_run(row: Row, start: int, now: int) -> int:
    """Milliseconds that it waited between the two times, at most what it still needs at ``now``."""
    waited, done = now - max(start, row.submitted), 0
    for span in row.spans:
        if span.started >= now:
            break
        ended = min(span.ended, now)
        waited -= max(0, ended - max(start, span.started))
        done += ended - span.started - (span.lost if span.ended <= now else 0)
    return min(waited, row.run_time - done)
