"""Everything that a run is judged by, computed from its ``Result``: plain figures, ready for a report or a comparison.

Figures of GPU-time cover the run from its start to the last sample at which new work still came; waits and preemptions
cover all of it. Where the run has a warm-up, which comes before its start, workloads that came then are in no wait and
no count, but in all GPU-time. Times are milliseconds, GPU-time is GPU-milliseconds, ratios are fractions to a
millionth. How each figure is defined stands where it is computed: ``waits.py``, ``gputime.py``, ``fairness.py`` and
here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from gpubudget.core.budget import ROOT
from gpubudget.sim.fairness import Fairness, fairness, impact
from gpubudget.sim.figures import ratio
from gpubudget.sim.gputime import GpuTime, lineage
from gpubudget.sim.result import End, Result, Row
from gpubudget.sim.series import Series, series
from gpubudget.sim.waits import Longest, Waits, by_size, grouped, longest, program_of, waits


@dataclass(frozen=True, slots=True)
class Pyramid:
    """The four figures that matter. ``utilization`` is None: how busy GPUs were is not known to a simulation."""

    availability: Fraction | None
    occupancy: Fraction | None
    impact: Fraction | None
    utilization: Fraction | None


@dataclass(frozen=True, slots=True)
class Ended:
    """How many workloads had come to which end."""

    end: End
    workloads: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """Where all GPU-time went: the last five add up to ``capacity_gpu_ms``.

    ``unmet_gpu_ms`` was idle while as many GPUs were waited for (fragments, reservations, the debug lane);
    ``no_demand_gpu_ms`` was idle since nobody wanted it; ``drained_gpu_ms`` belonged to hosts that were not ready and
    on which nothing ran.
    """

    capacity_gpu_ms: int
    allocated_gpu_ms: int
    unallocated_gpu_ms: int
    unmet_gpu_ms: int
    no_demand_gpu_ms: int
    drained_gpu_ms: int


@dataclass(frozen=True, slots=True)
class BudgetMeasures:
    """One budget with all below it.

    ``previously`` is its former path, ``share`` its effective share in the first pool when work last came. Of funded
    work: what it demanded, was entitled to and got; ``burst_gpu_ms`` is the part of it that it got beyond its
    guarantee, which a fixed partition would not have given. ``unallocated_gpu_ms`` is GPU-time of unfunded work.
    ``preempted`` counts its attempts that were stopped for others, ``preempting`` those that were stopped for it;
    ``lost_gpu_ms`` is GPU-time that did not bring its workloads forward.
    """

    path: str
    previously: str | None
    share: Fraction
    workloads: int
    demanded_gpu_ms: int
    entitled_gpu_ms: int
    delivered_gpu_ms: int
    burst_gpu_ms: int
    unallocated_gpu_ms: int
    lost_gpu_ms: int
    preempted: int
    preempting: int
    waits: Waits


@dataclass(frozen=True, slots=True)
class Pair:
    """Attempts of one program that were stopped for another, and the GPU-time that was lost by it."""

    victim: str
    beneficiary: str
    preemptions: int
    lost_gpu_ms: int


@dataclass(frozen=True, slots=True)
class Preemptions:
    """Attempts that were stopped for others. ``pairs`` are by program, the most frequent first."""

    count: int
    funded: int
    victims: int
    beneficiaries: int
    most: int
    lost_gpu_ms: int
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Measures:
    """All figures of one run.

    ``held_gpu_ms`` is all GPU-time of all workloads to the end, ``lost_gpu_ms`` the part that brought none forward,
    whatever the cause.
    """

    policy: str
    start_ms: int
    loaded_until_ms: int
    end_ms: int
    workloads: int
    ends: tuple[Ended, ...]
    pyramid: Pyramid
    capacity: Capacity
    waits: tuple[Waits, ...]
    waits_by_size: tuple[Waits, ...]
    debug: tuple[Waits, ...]
    budgets: tuple[BudgetMeasures, ...]
    fairness: Fairness
    preemptions: Preemptions
    drains: int
    host_losses: int
    held_gpu_ms: int
    lost_gpu_ms: int
    longest: Longest | None
    series: Series
    events: int
    seconds: Fraction | None

    @property
    def programs(self) -> tuple[BudgetMeasures, ...]:
        """The budgets directly below the root, and the root if it has no children."""
        below = tuple(budget for budget in self.budgets if budget.path != ROOT and "/" not in budget.path)
        return below or self.budgets


def measure(result: Result) -> Measures:
    """All figures of a run."""
    time = GpuTime(result)
    start, end = result.start, result.end
    rows = came_in(result)
    ends = grouped(rows, lambda row: row.end)
    capacity = capacity_of(time)
    ready = capacity.capacity_gpu_ms - capacity.drained_gpu_ms
    return Measures(
        policy=result.policy,
        start_ms=start,
        loaded_until_ms=time.times[time.loaded],
        end_ms=end,
        workloads=len(rows),
        ends=tuple(Ended(kind, len(ends[kind])) for kind in End if kind in ends),
        pyramid=Pyramid(
            ratio(ready, capacity.capacity_gpu_ms),
            ratio(capacity.allocated_gpu_ms + capacity.unallocated_gpu_ms, ready),
            impact(time, result.tree.policy.lookback),
            None,
        ),
        capacity=capacity,
        waits=(
            waits("all workloads", rows, end),
            waits("allocated", [row for row in rows if row.allocated], end),
            waits("unallocated", [row for row in rows if not row.allocated], end),
        ),
        waits_by_size=by_size(rows, end),
        debug=debug_waits(time),
        budgets=budget_measures(time),
        fairness=fairness(time),
        preemptions=preemptions(time),
        drains=sum(row.drains for row in rows),
        host_losses=sum(row.host_losses for row in rows),
        held_gpu_ms=sum(row.held_since(start) for row in result.rows),
        lost_gpu_ms=sum(row.lost_since(start) for row in result.rows),
        longest=longest(rows, end),
        series=series(time),
        events=result.events,
        seconds=None if result.seconds is None else ratio(Fraction(result.seconds), 1),
    )


def came_in(result: Result) -> list[Row]:
    """The workloads that came after the warm-up."""
    return [row for row in result.rows if row.submitted >= result.start]


def capacity_of(time: GpuTime) -> Capacity:
    """Where the GPU-time of all pools went until the last submission."""
    sums: defaultdict[str, int] = defaultdict(int)
    for pool in time.pools:
        for place, sign in ((time.loaded, 1), (0, -1)):
            sample = time.at(place, pool)
            sums["capacity_gpu_ms"] += sign * sample.capacity_gpu_ms
            sums["allocated_gpu_ms"] += sign * sample.allocated_gpu_ms
            sums["unallocated_gpu_ms"] += sign * sample.unallocated_gpu_ms
            sums["unmet_gpu_ms"] += sign * sample.unmet_gpu_ms
            sums["no_demand_gpu_ms"] += sign * (sample.idle_gpu_ms - sample.unmet_gpu_ms)
            sums["drained_gpu_ms"] += sign * sample.unavailable_gpu_ms
    return Capacity(**sums)


def debug_waits(time: GpuTime) -> tuple[Waits, ...]:
    """Waits of debug workloads: all, and by whether their budget was under- or over-used when they came.

    Under-used is: over the lookback window it had got at most what it was entitled to.
    """
    rows, end = [row for row in came_in(time.result) if row.debug], time.result.end
    names = {name: place for place, name in enumerate(time.result.pools)}
    lookback, place = time.result.tree.policy.lookback, 0
    under: list[Row] = []
    over: list[Row] = []
    for row in rows:
        while place + 1 < len(time.times) and time.times[place + 1] <= row.submitted:
            place += 1
        account = (names.get(row.pool, 0), time.account_of(row.budget or ROOT, row.submitted))
        begin = time.since(place, lookback)
        due = time.entitled(account, begin, place, own=True)
        (under if time.delivered(account, begin, place) <= due else over).append(row)
    groups = (("debug", rows), ("debug, under-used", under), ("debug, over-used", over))
    return tuple(waits(name, group, end) for name, group in groups if group)


def budget_measures(time: GpuTime) -> tuple[BudgetMeasures, ...]:
    """Every budget of the tree with all below it, in the tree's order."""
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    lost: defaultdict[str, int] = defaultdict(int)
    start, end = time.result.start, time.result.end
    for row in time.result.rows:
        if row.budget:
            for path in lineage(time.account_of(row.budget, row.submitted)):
                lost[path] += row.lost_since(start)
                if row.submitted >= start:
                    rows[path].append(row)
    preempted, preempting = _preemptions_by_budget(time)
    unmet = time.unmet([(0, time.loaded)])[0]
    found, shares = [], time.weights(0, time.loaded)
    for path in time.budgets:
        below = time.below(path)
        inside = [(pool, account) for pool in time.pools for account in below]
        delivered = sum(time.delivered(account, 0, time.loaded) for account in inside)
        found.append(
            BudgetMeasures(
                path=path,
                previously=time.budgets[path].previously,
                share=Fraction(shares.whole[path], shares.scale),
                workloads=len(rows[path]),
                demanded_gpu_ms=delivered + sum(unmet.get(account, 0) for account in inside),
                entitled_gpu_ms=sum(time.entitled((pool, path), 0, time.loaded, own=False) for pool in time.pools),
                delivered_gpu_ms=delivered,
                burst_gpu_ms=burst(time, path),
                unallocated_gpu_ms=time.unallocated(below),
                lost_gpu_ms=lost[path],
                preempted=preempted[path],
                preempting=preempting[path],
                waits=waits(path, rows[path], end),
            )
        )
    return tuple(found)


def burst(time: GpuTime, path: str) -> int:
    """GPU-time of funded work beyond the budget's guarantee, counted from sample to sample and for each pool."""
    places, beyond = [place for account in time.below(path) for place in time.accounts[account]], 0
    for pool in time.pools:
        sums = [sum(map(time.at(sample, pool).delivered.__getitem__, places)) for sample in range(time.loaded + 1)]
        due = time.entitled_steps((pool, path))
        beyond += sum(max(0, after - before - part) for (before, after), part in zip(pairwise(sums), due, strict=False))
    return beyond


def _preemptions_by_budget(time: GpuTime) -> tuple[defaultdict[str, int], defaultdict[str, int]]:
    """How many attempts below each budget were stopped for others, and how many for it."""
    preempted: defaultdict[str, int] = defaultdict(int)
    preempting: defaultdict[str, int] = defaultdict(int)
    for one in time.result.preemptions:
        for counts, path in ((preempted, one.victim_budget), (preempting, one.beneficiary_budget)):
            for above in lineage(time.account_of(path, one.at)) if path else ():
                counts[above] += 1
    return preempted, preempting


def preemptions(time: GpuTime) -> Preemptions:
    """Who was stopped for whom, and what it cost."""
    all_of_them, rows = time.result.preemptions, time.result.rows

    def program(path: str | None, at: int) -> str:
        return program_of(time.account_of(path, at) if path else None)

    pairs: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for one in all_of_them:
        pairs[program(one.victim_budget, one.at), program(one.beneficiary_budget, one.at)].append(one.lost_gpu_ms)
    found = [Pair(victim, other, len(lost), sum(lost)) for (victim, other), lost in pairs.items()]
    return Preemptions(
        count=len(all_of_them),
        funded=sum(1 for one in all_of_them if one.allocated),
        victims=len({one.victim for one in all_of_them}),
        beneficiaries=len({one.beneficiary for one in all_of_them}),
        most=max((row.preemptions for row in rows), default=0),
        lost_gpu_ms=sum(one.lost_gpu_ms for one in all_of_them),
        pairs=tuple(sorted(found, key=lambda pair: (-pair.preemptions, pair.victim, pair.beneficiary))),
    )
