"""What a trace does not say, made up from a seed: who submits, what they declare, which budget pays.

Each kind of draw has its own stream, so that another setting of one leaves the others as they are. Every assumption
becomes a sentence, which the report prints.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate

from gpubudget.core.budget import Tree
from gpubudget.core.workload import WorkloadSpec
from gpubudget.errors import InvalidInputError
from gpubudget.sim.submission import Ending, Submission, Workloads
from gpubudget.sim.traces import Trace, TraceRow
from gpubudget.units import MINUTE, SECOND, count, format_duration, format_share

ZIPF = 0.9
"""The exponent: the second busiest of a group submits 1 / 2**0.9 as much as the busiest."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is assumed where a trace is silent.

    ``people`` is how many users a group has, ``groups`` how many groups a trace without any. A workload declares a
    minimum runtime of a part of its run time, drawn between ``least_part`` and ``most_part``. ``unallocated`` and
    ``resumable`` are the shares of workloads without a minimum runtime, and of those that can go on where they stopped.
    """

    seed: int = 0
    people: int = 10
    groups: int = 15
    least_part: Fraction = Fraction(1, 10)
    most_part: Fraction = Fraction(1)
    unallocated: Fraction = Fraction(0)
    resumable: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class Named:
    """Who submitted each row of a trace, in the order of its rows: a group and a user of it."""

    who: tuple[tuple[str, str], ...]
    assumptions: tuple[str, ...]

    def members(self) -> dict[str, list[str]]:
        """The users of each group that submitted something, in order of name."""
        found: dict[str, set[str]] = {}
        for group, user in self.who:
            found.setdefault(group, set()).add(user)
        return {group: sorted(found[group]) for group in sorted(found)}


def name(trace: Trace, assumed: Assumed) -> Named:
    """Give each row a group and a user: those that it names, else drawn ones."""
    groups_rng, users_rng = _seeded("groups", assumed.seed), _seeded("users", assumed.seed)
    group_weights, user_weights = _zipf(assumed.groups), _zipf(assumed.people)
    group_names = [f"group{number}" for number in range(1, assumed.groups + 1)]
    no_group = no_user = 0
    who: list[tuple[str, str]] = []
    for row in trace.rows:
        group, user = row.group.replace("/", "-"), row.user.replace("/", "-")
        if not group:
            no_group += 1
            group = groups_rng.choices(group_names, cum_weights=group_weights)[0]
        if not user:
            no_user += 1
            user = f"{group}-u{users_rng.choices(range(1, assumed.people + 1), cum_weights=user_weights)[0]}"
        who.append((group, user))
    notes = []
    if no_group:
        notes.append(
            f"{_of(no_group, who)} name no group: they were dealt to {assumed.groups} made-up ones (Zipf, s = {ZIPF})."
        )
    if no_user:
        notes.append(
            f"{_of(no_user, who)} name no user: each group has {assumed.people} made-up ones (Zipf, s = {ZIPF})."
        )
    return Named(tuple(who), tuple(notes))


def workloads(trace: Trace, named: Named, payers: Sequence[str], tree: Tree, assumed: Assumed) -> Workloads:
    """The trace as submissions to the tree's pools; ``payers`` are the budgets of the rows, in their order."""
    pools = tuple(pool.name for pool in tree.pools)
    longest = tree.policy.max_min_runtime
    parts, frees, resumes = (_seeded(what, assumed.seed) for what in ("minimum", "unallocated", "resumable"))
    low, span = float(assumed.least_part), float(assumed.most_part - assumed.least_part)
    unallocated, resumable = float(assumed.unallocated), float(assumed.resumable)
    found = []
    for row, (_, user), budget in zip(trace.rows, named.who, payers, strict=True):
        part, free, resume = low + span * parts.random(), frees.random(), resumes.random()
        least = 0 if free < unallocated else min(longest, max(MINUTE, int(row.run_time * part) // SECOND * SECOND))
        spec = WorkloadSpec(row.id, user, budget, pools, row.gpus, min_runtime=least, resumable=resume < resumable)
        found.append(Submission(row.at, spec, row.run_time, row.ending or Ending.FINISHED))
    anywhere = (f"The trace names no pool: each workload may run in {', else '.join(pools)}.",) if pools[1:] else ()
    notes = (*named.assumptions, *_declared(assumed, longest), *anywhere, *_endings(trace.rows))
    return Workloads(trace.name, tuple(found), notes, trace.bad_rows)


def _declared(assumed: Assumed, longest: int) -> tuple[str, ...]:
    parts = f"{format_share(assumed.least_part)} to {format_share(assumed.most_part)}"
    minimum = (
        f"The trace declares no minimum runtimes: each is {parts} of the run time, drawn evenly, at least 1m and at "
        f"most {format_duration(longest)}."
    )
    share = format_share(assumed.unallocated)
    free = f"{share} of the workloads are unallocated." if assumed.unallocated else "All workloads are allocated."
    return minimum, free, f"{format_share(assumed.resumable)} of the workloads can go on where they were stopped."


def _endings(rows: tuple[TraceRow, ...]) -> tuple[str, ...]:
    unknown = sum(row.ending is None for row in rows)
    return (f"{_of(unknown, rows)} do not say how they ended: taken as finished.",) if unknown else ()


def _of(number: int, rows: Sequence[object]) -> str:
    return f"{number:,} of {len(rows):,} workloads"


def capped(found: Workloads, longest: int) -> Workloads:
    """The same workloads, none with more than the longest minimum runtime: people would not have asked for more."""
    over = sum(each.spec.min_runtime > longest for each in found.submissions)
    if not over:
        return found
    submissions = tuple(
        replace(each, spec=replace(each.spec, min_runtime=longest)) if each.spec.min_runtime > longest else each
        for each in found.submissions
    )
    note = (
        f"{count(over, 'workload')} declared more than the longest minimum runtime, {format_duration(longest)}: taken "
        "to declare that."
    )
    return replace(found, submissions=submissions, assumptions=(*found.assumptions, note))


def scale_load(found: Workloads, gpus: int, wanted: Fraction) -> Workloads:
    """The same workloads, closer together or farther apart, to ask for ``wanted`` times what ``gpus`` give."""
    submissions = found.submissions
    start, end = submissions[0].at, submissions[-1].at
    asked = sum(each.spec.gpus * each.run_time for each in submissions)
    if wanted <= 0 or end == start or not asked:
        why = "the load must be above 0" if wanted <= 0 else "all workloads come at once or need no time"
        raise InvalidInputError(f"{found.name} cannot be scaled to a load of {float(wanted):g}: {why}")
    factor = Fraction(asked, gpus * (end - start)) / wanted

    def moved(at: int) -> int:
        return start + (at - start) * factor.numerator // factor.denominator

    closer = tuple(
        replace(each, at=moved(each.at), gives_up=None if each.gives_up is None else moved(each.gives_up))
        for each in submissions
    )
    load = float(factor * wanted)
    note = (
        f"Gaps between submissions were multiplied by {float(factor):.3f}, so that the GPU-time asked for is "
        f"{float(wanted):g} times what the hosts give while submissions come (it was {load:.2f} times)."
    )
    return replace(
        found,
        submissions=closer,
        assumptions=(*found.assumptions, note),
        failures=tuple(replace(failure, at=moved(failure.at)) for failure in found.failures),
        events=tuple((moved(at), event) for at, event in found.events),
    )


def payers_in(tree: Tree, named: Named, trace: Trace) -> tuple[list[str], tuple[str, ...]]:
    """The budget that pays for each row in a tree that was not made for the trace, and what that assumes.

    A group is the budget of that path or, where one is called so, of that name, and of its user's name below it. The
    others are dealt to the budgets without children, the busiest group to the largest share.
    """
    paths = {budget.path for budget in tree.budgets()}
    by_name = {name: path for path in sorted(paths, reverse=True) if (name := path.rpartition("/")[2])}
    asked: Counter[str] = Counter()
    for row, (group, _) in zip(trace.rows, named.who, strict=True):
        asked[group] += row.gpus * row.run_time
    known = {
        group: group if group in paths else by_name[group] for group in asked if group in paths or group in by_name
    }
    strangers = sorted(asked.keys() - known.keys(), key=lambda group: (-asked[group], group))
    leaves = _by_share(tree)
    for place, group in enumerate(strangers):
        known[group] = leaves[place % len(leaves)]
    payers = [below if (below := f"{known[group]}/{user}") in paths else known[group] for group, user in named.who]
    if not strangers:
        return payers, ()
    note = (
        f"{count(len(strangers), 'group')} of the trace are no budgets of the tree: dealt to its {len(leaves)} budgets "
        "without children, the busiest to the largest share."
    )
    return payers, (note,)


def _by_share(tree: Tree) -> list[str]:
    """The budgets without children, largest effective share of the first pool first."""
    pool = tree.pools[0].name
    found: list[tuple[Fraction, str]] = []
    waiting = [(tree.root, Fraction(1))]
    while waiting:
        budget, share = waiting.pop()
        if not budget.children:
            found.append((share, budget.path))
        waiting += [(child, share * child.shares.of(pool)) for child in budget.children]
    return [path for _, path in sorted(found, key=lambda pair: (-pair[0], pair[1]))]


def _zipf(size: int) -> list[float]:
    return list(accumulate(place**-ZIPF for place in range(1, size + 1)))


def _seeded(what: str, seed: int) -> random.Random:
    return random.Random(f"{what} {seed}")  # noqa: S311 - a simulation has to be repeatable
