"""Whether the shares of a budget's children fit into the whole, in every pool and at every date. Exact.

Shares are brought to one denominator, so that a sum is a sum of integers; a sweep over the dates at which a change
begins or ends keeps it up to date, so the cost grows with the number of changes and not with their square.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, pairwise

from gpubudget.core.budget import Pool
from gpubudget.gitops.diagnostics import Diagnostic, Position, Related
from gpubudget.gitops.document import Child, Term, WrittenShares
from gpubudget.units import about_share, format_share

_ALL = Fraction(1)
_MOST_REPORTED = 20
_MOST_NAMED = 30
_MOST_POOLS = 16  # the schema refuses a cluster with more
_UNREADABLE = 10**9

Step = tuple[int, int, int, str, WrittenShares]
"""From a moment on (a change that ends comes before one that begins) a child has other shares: moment, order, which
child, the date as written, the shares."""


def over_the_whole(
    path: str, at: Position, children: tuple[Child, ...], pools: tuple[Pool, ...]
) -> Iterator[Diagnostic]:
    """Sums above 1 among the children of ``path`` (listed at ``at``): the plain one, and dated ones that are higher."""
    return islice(_all_over(path, at, children, pools), _MOST_REPORTED)


def _all_over(path: str, at: Position, children: tuple[Child, ...], pools: tuple[Pool, ...]) -> Iterator[Diagnostic]:
    steps = sorted(step for index, child in enumerate(children) for step in _steps(index, child))
    seen: set[tuple[Position, ...]] = set()
    for pool, shown in _groups(children, pools):
        for date, total, terms in _sweep(children, steps, pool):
            places = tuple(term.at for _, term in terms)
            if places not in seen:
                seen.add(places)
                yield _problem(path, at, total, terms, f"{shown}{f' from {date}' if date else ''}")


def _steps(index: int, child: Child) -> Iterator[Step]:
    """The changes of a child; none where they overlap, which is reported elsewhere."""
    changes = sorted(child.changes, key=lambda change: change.start)
    ordered = all(change.start < change.until for change in changes)
    if ordered and all(a.until <= b.start for a, b in pairwise(changes)):
        for change in changes:
            yield (change.start, 1, index, change.first, change.shares)
            yield (change.until, 0, index, change.last, child.shares)


def _groups(children: tuple[Child, ...], pools: tuple[Pool, ...]) -> list[tuple[str | None, str]]:
    """The pools whose sums can differ, and how a message names them: each pool that a share names, and the rest."""
    written = [shares for child in children for shares in (child.shares, *(change.shares for change in child.changes))]
    known = {pool.name for pool in pools}
    named = sorted({pool for shares in written for pool in shares.by_pool if pool in known or not known})[:_MOST_POOLS]
    others = [pool.name for pool in pools if pool.name not in named]
    rest = f" in {' and '.join(others) or 'other pools'}" if named else ""
    return [*([(None, rest)] if others or not pools else []), *((pool, f" in {pool}") for pool in named)]


def _sweep(
    children: tuple[Child, ...], steps: list[Step], pool: str | None
) -> Iterator[tuple[str, Fraction, list[tuple[str, Term]]]]:
    """The date (empty: always), sum and terms of each sum above 1 that is higher than those before it."""
    now = [child.shares.of(pool) for child in children]
    later = [step[-1].of(pool) for step in steps]
    whole = math.lcm(*(term.share.denominator for term in (*now, *later) if term))
    total = sum(_units(term, whole) for term in now)
    worst = whole
    if total > worst:
        worst = total
        yield "", Fraction(total, whole), _terms(children, now)
    for position, (moment, _, index, date, shares) in enumerate(steps):
        term = shares.of(pool)
        total += _units(term, whole) - _units(now[index], whole)
        now[index] = term
        is_last_of_moment = position + 1 == len(steps) or steps[position + 1][0] != moment
        if is_last_of_moment and total > worst:
            worst = total
            yield date, Fraction(total, whole), _terms(children, now)


def left_over(children: tuple[Child, ...], pool: str) -> Fraction:
    """What the children of a budget leave to it in ``pool``, but for dated changes."""
    if not children:
        return _ALL
    terms = [term for child in children if (term := child.shares.of(pool))]
    whole = math.lcm(*(term.share.denominator for term in terms))
    return Fraction(whole - sum(_units(term, whole) for term in terms), whole)


def _units(term: Term | None, whole: int) -> int:
    return term.share.numerator * (whole // term.share.denominator) if term else 0


def _terms(children: tuple[Child, ...], now: list[Term | None]) -> list[tuple[str, Term]]:
    return [(child.name, term) for child, term in zip(children, now, strict=True) if term and term.share]


def _problem(path: str, at: Position, total: Fraction, terms: list[tuple[str, Term]], where: str) -> Diagnostic:
    over = exact(total - 1)
    listed = " + ".join(f"{name} {format_share(term.share)}" for name, term in terms[:_MOST_NAMED])
    if len(terms) > _MOST_NAMED:
        listed += f" + {len(terms) - _MOST_NAMED} more, all listed below"
    message = f"the children of {path} sum to {exact(total)}{where}, {over} more than the whole: {listed}"
    gets = [f"{name} gets {format_share(term.share)}" for name, term in terms]
    if len(terms) <= _MOST_NAMED:
        gets = [
            f"{text}; the others leave {_left(term.share + 1 - total)}"
            for text, (_, term) in zip(gets, terms, strict=True)
        ]
    related = tuple(Related(term.at, text) for text, (_, term) in zip(gets, terms, strict=True))
    return Diagnostic("share-sum", at, message, f"take {over} or more away from them", related)


def _left(share: Fraction) -> str:
    return exact(share) if share > 0 else "nothing"


def exact(share: Fraction) -> str:
    """A share in full, with its percentage beside a fraction; only about, where the fraction is beyond reading."""
    if share.denominator >= _UNREADABLE:
        return f"about {about_share(share)}" if share >= Fraction(1, 1000) else "less than 0.1%"
    text = format_share(share)
    return text if text.endswith("%") else f"{text} ({about_share(share)})"
