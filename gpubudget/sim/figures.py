"""How figures are made from exact integers: ratios and quantiles, each defined once.

A ratio is an exact fraction, rounded down to a millionth, so that equal runs give equal texts and no figure drags
hundreds of digits along.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

_MILLION = 1_000_000


def ratio(part: int | Fraction, whole: int | Fraction) -> Fraction | None:
    """``part / whole`` to a millionth; None where there is no whole."""
    return Fraction(part * _MILLION // whole, _MILLION) if whole else None


def nearest_rank(ordered: Sequence[int], percent: int) -> int | None:
    """The ``percent`` quantile of values in ascending order: the smallest that this many did not exceed; None of none.

    It is always one of the values (nearest rank), never something in between.
    """
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)] if ordered else None
