"""Ratios and quantiles, by hand and against their definitions."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gpubudget.sim.figures import nearest_rank, ratio


def test_a_ratio_is_rounded_down_to_a_millionth() -> None:
    """A third is 0.333333, and nothing has a ratio to nothing."""
    assert ratio(1, 3) == Fraction(333_333, 1_000_000)
    assert ratio(3, 4) == Fraction(3, 4)
    assert ratio(5, 0) is None


def test_quantiles_are_values_that_occurred() -> None:
    """Of ten values the median is the fifth, the 90% quantile the ninth, and the 95% quantile the last."""
    ten = list(range(10, 101, 10))
    assert [nearest_rank(ten, percent) for percent in (50, 90, 95, 99)] == [50, 90, 100, 100]
    assert nearest_rank([7], 50) == 7
    assert nearest_rank([], 50) is None


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 100))
def test_a_quantile_is_the_smallest_that_enough_did_not_exceed(values: list[int], percent: int) -> None:
    """So the definition says, and here it is looked for among all values."""
    enough = [v for v in sorted(values) if sum(other <= v for other in values) * 100 >= percent * len(values)]
    assert nearest_rank(sorted(values), percent) == enough[0]
