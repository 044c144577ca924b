"""A tree of budgets made from the groups of a trace: equal shares, or those of a file of weights."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from gpubudget.core.budget import ROOT, Budget, Policy, Pool, Shares, Tree
from gpubudget.errors import InvalidInputError
from gpubudget.sim.traces import reading
from gpubudget.units import count


def tree_of(
    members: Mapping[str, Sequence[str]],
    pools: tuple[Pool, ...],
    policy: Policy,
    *,
    weights: Mapping[str, Fraction] | None = None,
    users: bool = False,
) -> tuple[Tree, tuple[str, ...]]:
    """A tree with one budget for each group, or one for each of its users below that; and what that assumes.

    A group that ``weights`` does not name has the smallest weight of those that it does. Users share evenly.
    """
    notes = []
    if weights is None:
        given = dict.fromkeys(members, Fraction(1))
        notes.append(f"The trace says nothing of shares: its {count(len(members), 'group')} have equal ones.")
    else:
        missing = [group for group in members if group not in weights]
        least = min(weights.values())
        given = {group: weights.get(group, least) for group in members}
        if missing:
            notes.append(f"Without a weight of their own, these have the smallest: {', '.join(missing)}.")
    total = sum(given.values())
    if users:
        notes.append("Below each group its users share evenly.")
    children = tuple(
        Budget(
            group, Shares(given[group] / total), members=tuple(names), children=_users(group, names) if users else ()
        )
        for group, names in members.items()
    )
    return Tree(Budget(ROOT, Shares(Fraction(1)), children=children), pools, policy), tuple(notes)


def _users(group: str, names: Sequence[str]) -> tuple[Budget, ...]:
    each = Shares(Fraction(1, len(names)))
    return tuple(Budget(f"{group}/{name}", each, members=(name,)) for name in names)


def read_weights(path: Path) -> dict[str, Fraction]:
    """Weights from CSV with a header and two columns: a group, and a number above 0."""
    found: dict[str, Fraction] = {}
    with reading(path) as text:
        for number, cells in enumerate(csv.reader(text), start=1):
            if number == 1 or not cells:
                continue
            try:
                group, weight = cells[0].strip(), Fraction(cells[1].strip())
            except (IndexError, ValueError, ZeroDivisionError):
                weight, group = Fraction(0), ""
            if weight <= 0 or not group or group in found:
                raise InvalidInputError(
                    f"{path} line {number}: {','.join(cells)[:60]!r} is not a group with a weight above 0",
                    hint="a file of weights has a header, then a group and a number a line, each group once",
                )
            found[group] = weight
    if not found:
        raise InvalidInputError(f"{path} holds no weights", hint="a header, then a group and a number a line")
    return found
