"""Results of simulated runs, made by hand: what each workload did is written down, all samples are counted from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from gpubudget.core.budget import Budget, Policy, Pool, Shares, Tree
from gpubudget.core.workload import WorkloadSpec
from gpubudget.sim.result import NO_BUDGET, End, PoolSample, Preemption, Result, Row, Sample, Span
from gpubudget.sim.submission import Ending, SimHost, Submission
from gpubudget.units import DAY, HOUR


@dataclass(frozen=True, slots=True)
class Did:
    """What one workload did. Spans are (started, ended) or (started, ended, lost)."""

    id: str
    budget: str | None
    gpus: int
    submitted: int
    run: int
    spans: Sequence[tuple[int, ...]] = ()
    end: End = End.FINISHED
    ended: int | None = None
    allocated: bool = True
    debug: bool = False
    pool: str = "p"
    ending: Ending = Ending.FINISHED
    preemptions: int = 0

    def row(self, over: int) -> Row:
        """The row that it leaves when the simulation is over."""
        spans = tuple(Span(*span, 0) if len(span) == 2 else Span(*span) for span in self.spans)
        held = sum(span.ended - span.started for span in spans)
        lost = sum(span.lost for span in spans)
        open_ended = self.end in {End.WAITING, End.RUNNING}
        ended = None if open_ended else self.ended if self.ended is not None else spans[-1].ended if spans else over
        spec = WorkloadSpec(
            self.id, f"{self.id}-owner", self.budget, (self.pool,), self.gpus,
            min_runtime=HOUR if self.allocated else 0, debug=self.debug,
        )  # fmt: skip
        until = over if ended is None else ended
        return Row(
            Submission(self.submitted, spec, self.run, self.ending), self.budget, self.pool, self.end,
            spans[0].started if spans else None, ended, len(spans), self.preemptions, 0, 0,
            until - self.submitted - held, held * self.gpus, lost * self.gpus, lane=False, spans=spans,
        )  # fmt: skip


def tree(
    shares: dict[str, str],
    *,
    pools: Sequence[str] = ("p",),
    lookback: int = 7 * DAY,
    previously: Mapping[str, str] | None = None,
) -> Tree:
    """Budgets by path, each with its share of its parent, parents first; ``previously`` has former paths."""
    former = previously or {}

    def below(parent: str) -> tuple[Budget, ...]:
        return tuple(
            Budget(path, Shares(Fraction(share)), previously=former.get(path), children=below(path))
            for path, share in shares.items()
            if path.rpartition("/")[0] == parent
        )

    root = Budget("/", Shares(Fraction(1)), children=below(""))
    return Tree(root, tuple(Pool(pool, 8, 1) for pool in pools), Policy(lookback=lookback))


def made(
    budgets: Tree,
    did: Iterable[Did],
    *,
    until: int,
    gpus: int = 8,
    loaded: int | None = None,
    every: int = HOUR,
    away: Sequence[tuple[int, int, int]] = (),
    preemptions: Sequence[Preemption] = (),
    later: Sequence[tuple[int, Tree]] = (),
) -> Result:
    """A result; ``away`` are (from, to, GPUs) that were unavailable and empty, ``gpus`` those of each pool.

    ``later`` are the trees that were applied after the first.
    """
    trees = ((0, budgets), *later)
    rows = tuple(one.row(until) for one in sorted(did, key=lambda one: one.submitted))
    paths = (*dict.fromkeys(budget.path for _, one in trees for budget in one.budgets()), NO_BUDGET)
    pools = tuple(pool.name for pool in budgets.pools)
    times = [*range(0, until, every), until]
    return Result(
        policy="made", settings=(("made", "by hand"),), assumptions=("Nothing is real.",), bad_rows=(),
        trees=trees, hosts=tuple(SimHost(f"{pool}-1", pool, gpus) for pool in pools), start=0,
        loaded_until=until if loaded is None else loaded, end=until, pools=pools, paths=paths,
        paths_since=(0,) * len(paths), sample_every=every,
        samples=tuple(Sample(at, tuple(_sample(rows, paths, pool, gpus, away, at) for pool in pools)) for at in times),
        rows=rows, preemptions=tuple(preemptions), refusals=(), host_failures=0, events=7, wakes=1,
    )  # fmt: skip


def overlap(begin: int, end: int, until: int) -> int:
    """How long it was between the two, until then."""
    return max(0, min(end, until) - begin)


def _sample(
    rows: Sequence[Row], paths: Sequence[str], pool: str, gpus: int, away: Sequence[tuple[int, int, int]], at: int
) -> PoolSample:
    """All sums until ``at``, each by looking at every moment at which anything changes."""
    mine = [row for row in rows if row.pool == pool]

    def held(moment: int, *, allocated: bool) -> int:
        return sum(
            row.gpus
            for row in mine
            for span in row.spans
            if row.allocated is allocated and span.started <= moment < span.ended
        )

    def wanted(moment: int) -> int:
        def waits(row: Row) -> bool:
            there = row.submitted <= moment and (row.ended is None or moment < row.ended)
            return there and not any(span.started <= moment < span.ended for span in row.spans)

        return sum(row.gpus for row in mine if row.end is not End.REFUSED and waits(row))

    def gone(moment: int) -> int:
        return sum(count for begin, end, count in away if begin <= moment < end)

    def sums(*, allocated: bool) -> tuple[int, ...]:
        return tuple(
            sum(
                row.gpus * overlap(span.started, span.ended, at)
                for row in mine
                for span in row.spans
                if row.allocated is allocated and (row.budget or NO_BUDGET) == path
            )
            for path in paths
        )

    moments = {0, at, *(m for begin, end, _ in away for m in (begin, end)), *(row.submitted for row in mine)}
    moments |= {m for row in mine for span in row.spans for m in (span.started, span.ended)}
    moments |= {row.ended for row in mine if row.ended is not None}
    edges = sorted(m for m in moments if m <= at)
    unmet = 0
    for begin, end in pairwise(edges):
        idle = gpus - held(begin, allocated=True) - held(begin, allocated=False) - gone(begin)
        unmet += (end - begin) * min(idle, wanted(begin))
    delivered, fillers = sums(allocated=True), sums(allocated=False)
    return PoolSample(
        gpus, gone(at), held(at, allocated=True), held(at, allocated=False), wanted(at), gpus * at,
        sum(count * overlap(begin, end, at) for begin, end, count in away), sum(delivered), sum(fillers), unmet,
        delivered, fillers, (0,) * len(paths),
    )  # fmt: skip
