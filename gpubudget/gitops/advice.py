"""What a tree without errors may still get wrong: warnings, which keep nobody from applying it.

Knows the budgets that ``rules.py`` reached, and nothing of YAML, git or folders on disk. Effective shares are pairs
of integers (a part and a whole), one for each pool: they need no common denominator to be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from gpubudget.core.budget import ROOT, Pool, child_path, parent_path
from gpubudget.gitops.diagnostics import Diagnostic
from gpubudget.gitops.document import Child, ClusterFile, Term, WrittenChange, WrittenShares
from gpubudget.gitops.rules import Listed
from gpubudget.gitops.sums import exact, left_over
from gpubudget.units import format_share

_NOTHING = Fraction(0)
_FOREVER = 10**18

Part = tuple[int, int]
"""A part and its whole."""


def warnings(reached: dict[str, Listed], cluster: ClusterFile) -> Iterator[Diagnostic]:
    """All warnings of a tree without errors; ``reached`` has parents before children."""
    pools = cluster.pools
    effective: dict[str, list[Part]] = {ROOT: [(1, 1) for _ in pools]}
    for path, budget in reached.items():
        if budget.shares:
            effective[path] = _parts(budget.shares, effective[parent_path(path)], pools)
            yield from _guarantees(budget, effective[path], cluster)
            if budget.children and _ever_nothing(budget.shares, budget.changes):
                yield from _out_of_reach(budget, pools)
        funded = [pool for pool, (part, _) in zip(pools, effective[path], strict=True) if part]
        if (
            budget.children or budget.file or not (funded and budget.description.members)
        ):  # else there is nothing to say
            yield from _people(budget, funded)


def _parts(shares: WrittenShares, above: list[Part], pools: tuple[Pool, ...]) -> list[Part]:
    """Effective shares, given those of the parent."""
    terms = [shares.of(pool.name) for pool in pools] if shares.by_pool else [shares.default] * len(pools)
    return [
        (part * term.share.numerator, whole * term.share.denominator) if term else (part, whole)
        for term, (part, whole) in zip(terms, above, strict=True)
    ]


def _guarantees(budget: Listed, parts: list[Part], cluster: ClusterFile) -> Iterator[Diagnostic]:
    """Shares that come to less than one GPU for their members, or to more than the debug lane leaves."""
    lane = cluster.policy.debug
    for pool, (part, whole) in zip(cluster.pools, parts, strict=True):
        total = pool.hosts * pool.gpus_per_host
        gpus = part * total
        if 0 < gpus < whole and budget.description.members:
            message = f"the share of {budget.path} comes to {_gpus(gpus, whole)} GPUs of {pool.name}, less than one"
            yield Diagnostic("guarantee-small", budget.at, message, "it can still save up GPU-time for short runs")
        elif lane and gpus > (total - lane.gpus) * whole:
            message = f"the share of {budget.path} comes to {_gpus(gpus, whole)} GPUs of {pool.name}, "
            message += f"but the debug lane leaves {total - lane.gpus} of {total}"
            yield Diagnostic(
                "share-above-lane", budget.at, message, "only short workloads can use the lane's part of it"
            )


def _people(budget: Listed, funded: list[Pool]) -> Iterator[Diagnostic]:
    """Budgets that lack managers or members, and members who have nothing to spend."""
    path, members = budget.path, budget.description.members
    at = budget.file.at if budget.file else budget.at
    if budget.file and not budget.description.managers:
        message = f"{path} names no manager, so nobody is asked to approve its changes"
        yield Diagnostic("manager-missing", at, message, "add managers: [NAME]")
    kept = max((left_over(budget.children, pool.name) for pool in funded), default=_NOTHING)
    if kept and not members:
        message = f"{path} keeps {exact(kept)} of its share, but has no members to spend it"
        yield Diagnostic("members-missing", at, message, "add members: [NAME], or give it to the children")
    elif members and not kept and not (budget.changes or any(child.changes for child in budget.children)):
        message = f"{path} has members, but keeps nothing that they could spend"
        yield Diagnostic("nothing-to-spend", members[0].at, message, "leave a part of its share to the budget itself")


def _out_of_reach(budget: Listed, pools: tuple[Pool, ...]) -> Iterator[Diagnostic]:
    """Shares of children that count only where and when this budget itself gets nothing."""
    funded: dict[str, list[tuple[int, int]]] = {
        pool.name: [(start, end) for start, end, term in _periods(budget, pool.name) if term and term.share]
        for pool in pools
    }
    for child in budget.children:
        reached: dict[Term, bool] = {}
        for pool, when in funded.items():
            for start, end, term in _periods(child, pool):
                if term and term.share:
                    meets = any(first < end and start < last for first, last in when)
                    reached[term] = reached.get(term, False) or meets
        for term in (term for term, meets in reached.items() if not meets):
            path = child_path(budget.path, child.name)
            message = (
                f"the share of {path}, {format_share(term.share)}, is out of reach: wherever and whenever it holds,"
            )
            message += f" {budget.path} itself gets nothing"
            yield Diagnostic(
                "share-unreachable", term.at, message, f"give {budget.path} a share then, or remove this one"
            )


def _ever_nothing(shares: WrittenShares, changes: tuple[WrittenChange, ...]) -> bool:
    every = (shares, *(change.shares for change in changes))
    return any(not term.share for each in every for term in (each.default, *each.by_pool.values()) if term)


def _periods(owner: Listed | Child, pool: str) -> Iterator[tuple[int, int, Term | None]]:
    """From when, until when (in milliseconds since 1970) and what ``owner`` gets in ``pool``, without a gap."""
    plain = owner.shares.of(pool) if owner.shares else None
    now = -_FOREVER
    for change in sorted(owner.changes, key=lambda change: change.start):
        yield now, change.start, plain
        yield change.start, change.until, change.shares.of(pool)
        now = change.until
    yield now, _FOREVER, plain


def _gpus(part: int, whole: int) -> str:
    """GPUs with two decimals, rounded down; below a hundredth as such."""
    hundredths = part * 100 // whole
    return f"{hundredths // 100}.{hundredths % 100:02d}" if hundredths else "less than 0.01"
