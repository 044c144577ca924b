"""Whether GPU-time went where the shares say: share error, Jain's index, finish-time fairness, impact.

The yardstick is the *fair target*: what was given out in all, divided anew from the root down, at every budget in
proportion to shares, and nobody given more than it demanded (water filling; what one does not want goes to the others).
Where everybody wants more than there is, that is the plain share. Only funded workloads count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from gpubudget.core.budget import Budget
from gpubudget.sim.eras import Shares
from gpubudget.sim.figures import nearest_rank, ratio
from gpubudget.sim.gputime import Account, GpuTime
from gpubudget.sim.result import End, Row
from gpubudget.sim.submission import Ending
from gpubudget.sim.waits import program_of

WITHIN = Fraction(5, 100)
"""A share error of at most this counts as having arrived."""

_STEPS_A_WINDOW = 28
_FINE_STEPS = 168
_ONE = 1000
"""Ratios that are sorted or squared by the thousand are kept as whole thousandths."""


@dataclass(frozen=True, slots=True)
class SharePoint:
    """At ``at``: the part of the window's GPU-time that would have to move for everyone to have its fair target."""

    at: int
    error: Fraction


@dataclass(frozen=True, slots=True)
class FinishTimes:
    """How much longer workloads took than in a cluster of their budget's own, as quantiles of the ratio.

    The cluster of its own has as many GPUs as the budget's guarantee when work last came, gives them to the budget's
    workloads in the order of submission, and is never interrupted or fragmented. ``no_worse`` is the share of workloads
    with a ratio of at most 1; those that had not ended count with the time until then.
    """

    workloads: int
    p50: Fraction | None
    p90: Fraction | None
    no_worse: Fraction | None


@dataclass(frozen=True, slots=True)
class Level:
    """Fairness between the budgets of one level: the programs below the root, or all budgets that are charged.

    ``points`` begin with the run; an error is over the lookback window that ends there. ``arrived_after_ms`` is how
    long it took for the error to come within 5% and to stay there for as long as a lookback window, or to the end
    (None: never); ``within`` is the share of all points at which it was. ``jain`` is Jain's index of what budgets got
    over their fair target: 1 is even, 1/n is all to one of n.
    """

    name: str
    points: tuple[SharePoint, ...]
    mean_error: Fraction | None
    last_error: Fraction | None
    arrived_after_ms: int | None
    within: Fraction | None
    jain: Fraction | None


@dataclass(frozen=True, slots=True)
class Fairness:
    """Figures of fairness of a run."""

    programs: Level
    budgets: Level
    finish_times: FinishTimes


def fill(amount: int, wants: Sequence[tuple[int, int]]) -> list[int]:
    """Divide an amount among (weight, demand) in proportion to weights, nobody getting more than it demands.

    Those without a weight get only what all others leave. Parts are rounded down, so a few units may stay over.
    """
    parts = [0] * len(wants)
    weighted = [place for place, (weight, demand) in enumerate(wants) if weight and demand]
    weighted.sort(key=lambda place: wants[place][1] / wants[place][0])
    total = sum(wants[place][0] for place in weighted)
    for place in weighted:
        weight, demand = wants[place]
        parts[place] = min(demand, amount * weight // total)
        amount -= parts[place]
        total -= weight
    for place, (weight, demand) in enumerate(wants):
        if weight == 0:
            parts[place] = min(demand, amount)
            amount -= parts[place]
    return parts


def fair_targets(root: Budget, shares: Shares, demand: Mapping[str, int], amount: int) -> dict[str, int]:
    """For each account (a leaf, or what a budget keeps) its part of ``amount``; ``demand`` is by account."""
    below: dict[str, int] = {}

    def add_up(budget: Budget) -> int:
        below[budget.path] = demand.get(budget.path, 0) + sum(add_up(child) for child in budget.children)
        return below[budget.path]

    targets: dict[str, int] = {}

    def divide(budget: Budget, part: int) -> None:
        kept = (shares.own.get(budget.path, 0), demand.get(budget.path, 0))
        parts = fill(part, [kept, *((shares.whole.get(child.path, 0), below[child.path]) for child in budget.children)])
        targets[budget.path] = parts[0]
        for child, its in zip(budget.children, parts[1:], strict=True):
            if its:
                divide(child, its)

    divide(root, min(amount, add_up(root)))
    return targets


@dataclass(frozen=True, slots=True)
class Standing:
    """One account in one stretch: what it got, what it demanded, and its fair target."""

    delivered: int
    demanded: int
    target: int


def standings(time: GpuTime, begin: int, end: int, unmet: Mapping[Account, int]) -> dict[Account, Standing]:
    """All accounts in one stretch; ``unmet`` is what ``GpuTime.unmet`` says of it. Removed budgets count above."""
    found: dict[Account, Standing] = {}
    for pool in time.pools:
        got: dict[str, int] = {}
        demand: dict[str, int] = {}
        for path in time.accounts:
            got[path] = time.delivered((pool, path), begin, end)
            demand[path] = got[path] + unmet.get((pool, path), 0)
        targets = fair_targets(time.result.tree.root, time.weights(pool, end), demand, sum(got.values()))
        for path, wanted in demand.items():
            found[pool, path] = Standing(got[path], wanted, targets.get(path, 0))
    return found


def share_error(accounts: Mapping[Account, Standing]) -> Fraction | None:
    """Half the sum of all distances from the fair targets over what was given in all; None where nothing was."""
    given = sum(one.delivered for one in accounts.values())
    return ratio(sum(abs(one.delivered - one.target) for one in accounts.values()), 2 * given)


def jain(accounts: Mapping[Account, Standing]) -> Fraction | None:
    """Jain's index of delivered over target, of the accounts that have one (Jain, Chiu, Hawe 1984)."""
    parts = [one.delivered * _ONE // one.target for one in accounts.values() if one.target > 0]
    return ratio(sum(parts) ** 2, len(parts) * sum(part * part for part in parts))


def moments(time: GpuTime, lookback: int) -> list[int]:
    """The samples at which the share error is looked at: closely in the first window, then some in each."""
    fine, coarse = max(1, lookback // _FINE_STEPS), max(1, lookback // _STEPS_A_WINDOW)
    picked, due = [], time.times[0] + fine
    for place in range(1, time.loaded + 1):
        if time.times[place] >= due or place == time.loaded:
            picked.append(place)
            due = time.times[place] + (fine if time.times[place] - time.times[0] < lookback else coarse)
    return picked


def finish_times(time: GpuTime, rows: Sequence[Row]) -> FinishTimes:
    """Finish-time fairness (Mahajan et al., Themis, NSDI 2020) of funded workloads, in the order of submission."""
    gpus: dict[Account, tuple[int, int]] = {}  # as a fraction
    for pool in time.pools:
        shares, capacity = time.weights(pool, time.loaded), time.at(time.loaded, pool).capacity
        gpus |= {(pool, path): (its, shares.scale) for path, share in shares.own.items() if (its := share * capacity)}
    names = {name: place for place, name in enumerate(time.result.pools)}
    busy: dict[Account, int] = {}
    times_as_long = []  # in thousandths
    for row in rows:
        account = (names.get(row.pool, 0), time.account_of(row.budget, row.submitted) if row.budget else "")
        guarantee = gpus.get(account)
        if not guarantee or not row.allocated or row.end is End.REFUSED or not row.run_time:
            continue
        work = row.run_time * row.gpus * guarantee[1] // guarantee[0]
        free = busy[account] = max(busy.get(account, 0), row.submitted) + work
        if _its_end_counts(row):
            alone = max(free - row.submitted, row.run_time)
            took = (time.result.end if row.ended is None else row.ended) - row.submitted
            times_as_long.append(_ONE * took // alone)
    times_as_long.sort()
    p50, p90 = (nearest_rank(times_as_long, percent) for percent in (50, 90))
    no_worse = ratio(sum(1 for thousandths in times_as_long if thousandths <= _ONE), len(times_as_long))
    as_ratio = [None if thousandths is None else Fraction(thousandths, _ONE) for thousandths in (p50, p90)]
    return FinishTimes(len(times_as_long), as_ratio[0], as_ratio[1], no_worse)


def _its_end_counts(row: Row) -> bool:
    """Whether it came to its own end, or was still waiting or running when the simulation was over."""
    if row.end is End.CANCELLED:
        return row.submission.ending is Ending.CANCELLED and row.submission.gives_up is None
    return row.end is not End.PREEMPTED


def impact(time: GpuTime, lookback: int) -> Fraction | None:
    """How much of the funded demand that budgets were entitled to was served: window after window, none twice.

    In each window an account is owed the lesser of what it demanded and what it was entitled to; what it got counts up
    to that. None where nobody was owed anything.
    """
    edges = [0]
    while edges[-1] < time.loaded:
        due = time.times[edges[-1]] + lookback
        edges.append(next((p for p in range(edges[-1] + 1, time.loaded) if time.times[p] >= due), time.loaded))
    stretches = list(pairwise(edges))
    owed = served = 0
    for (begin, end), unmet in zip(stretches, time.unmet(stretches), strict=True):
        for account, one in standings(time, begin, end, unmet).items():
            due = min(one.demanded, time.entitled(account, begin, end, own=True))
            owed += due
            served += min(one.delivered, due)
    return ratio(served, owed)


def fairness(time: GpuTime) -> Fairness:
    """All figures of fairness of a run; shares are those at the end of each window."""
    lookback = time.result.tree.policy.lookback
    picked = moments(time, lookback)
    stretches = [*((time.since(place, lookback), place) for place in picked), (0, time.loaded)]
    found = [standings(time, *stretch, unmet) for stretch, unmet in zip(stretches, time.unmet(stretches), strict=True)]
    at = [time.times[place] for place in (0, *picked)]
    return Fairness(
        _level("programs", lookback, at, [by_program(accounts) for accounts in found]),
        _level("budgets", lookback, at, found),
        finish_times(time, time.result.rows),
    )


def by_program(accounts: Mapping[Account, Standing]) -> dict[Account, Standing]:
    """The accounts added up by the budget below the root that they belong to."""
    sums: dict[Account, Standing] = {}
    for (pool, path), one in accounts.items():
        key = pool, program_of(path)
        so_far = sums.get(key, Standing(0, 0, 0))
        sums[key] = Standing(
            so_far.delivered + one.delivered, so_far.demanded + one.demanded, so_far.target + one.target
        )
    return sums


def arrived(points: Sequence[SharePoint], start: int, lookback: int) -> int | None:
    """After how long the error is within 5% at all points of the next lookback window, or at all that are left."""
    since: int | None = None
    for point in points:
        if point.error > WITHIN:
            since = None
        elif since is None:
            since = point.at
        elif point.at - since >= lookback:
            break
    return None if since is None else since - start


def _level(name: str, lookback: int, at: Sequence[int], found: Sequence[Mapping[Account, Standing]]) -> Level:
    """A level's figures from the accounts at each moment; the last are those of the whole run."""
    *windows, overall = found
    start, *moments_of = at
    points = tuple(
        SharePoint(moment, error)
        for moment, accounts in zip(moments_of, windows, strict=True)
        if (error := share_error(accounts)) is not None
    )
    return Level(
        name,
        points,
        ratio(sum((point.error for point in points), Fraction(0)), len(points)),
        points[-1].error if points else None,
        arrived(points, start, lookback),
        ratio(sum(1 for point in points if point.error <= WITHIN), len(points)),
        jain(overall),
    )
