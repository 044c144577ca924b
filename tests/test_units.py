"""Durations, GPU-time, shares and counts: what people write and read."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubudget.errors import InvalidInputError
from gpubudget.units import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    WEEK,
    about_duration,
    about_share,
    count,
    format_duration,
    format_gpu_hours,
    format_share,
    parse_duration,
    parse_share,
    ratio_text,
)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("0", 0),
        ("0s", 0),
        ("500ms", 500),
        ("90s", 90 * SECOND),
        ("15m", 15 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("7d", WEEK),
        ("1w2d3h4m5s6ms", WEEK + 2 * DAY + 3 * HOUR + 4 * MINUTE + 5 * SECOND + 6),
        ("3650d", 3_650 * DAY),
    ],
)
def test_a_duration_is_whole_numbers_with_units(text: str, millis: int) -> None:
    """Units from weeks to milliseconds, largest first; 0 needs none."""
    assert parse_duration(text) == millis


@pytest.mark.parametrize("text", ["", "4", "h", "4 h", "-4h", "+4h", "4.5h", "4H", "1e3s", "4h\n", "\u0664h", "9" * 41])
def test_what_is_no_duration_is_told_with_a_way_out(text: str) -> None:
    """Anything else is refused, with what to write instead."""
    with pytest.raises(InvalidInputError, match=r"^minimum runtime .* is not a duration") as caught:
        parse_duration(text, "minimum runtime")
    assert caught.value.hint == "write a whole number with a unit, such as 4h, 15m, 90s or 1h30m"


@pytest.mark.parametrize("text", ["30m1h", "1h1h", "5s5ms5s"])
def test_units_out_of_order_are_a_slip(text: str) -> None:
    """Each unit stands once, the larger before the smaller."""
    with pytest.raises(InvalidInputError, match=f"^duration '{text}' has its units out of order or twice"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["3651d", "9" * 30 + "w"])
def test_a_duration_ends_at_ten_years(text: str) -> None:
    """More is a slip too."""
    with pytest.raises(InvalidInputError, match="is longer than ten years"):
        parse_duration(text)


def test_what_is_quoted_is_printable_and_short() -> None:
    """A message shows no control characters and no endless text."""
    with pytest.raises(InvalidInputError, match=r"duration '\\x1b\[31m' is not"):
        parse_duration("\x1b[31m")
    with pytest.raises(InvalidInputError, match=f"duration '{'x' * 40}\\.\\.\\.' is not"):
        parse_duration("x" * 1_000)


@given(st.integers(0, 3_650 * DAY))
def test_a_formatted_duration_reads_back_as_the_same(millis: int) -> None:
    """The text is exact."""
    assert parse_duration(format_duration(millis)) == millis


def test_a_negative_duration_keeps_its_sign() -> None:
    """What is late shows as such."""
    assert format_duration(-90 * MINUTE) == "-1h30m"
    assert about_duration(-90 * SECOND) == "-1m30s"


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "0s"),
        (999, "0s"),
        (5 * MINUTE + 10 * SECOND, "5m10s"),
        (2 * DAY + 3 * HOUR + 59 * MINUTE, "2d3h"),
        (DAY + 5 * MINUTE, "1d"),
        (HOUR, "1h"),
    ],
)
def test_a_duration_in_a_table_has_at_most_two_units(millis: int, text: str) -> None:
    """It is rounded down, and has no gap between its units."""
    assert about_duration(millis) == text


@pytest.mark.parametrize(
    ("gpu_millis", "text"), [(0, "0.0"), (90 * MINUTE, "1.5"), (3 * MINUTE, "0.1"), (-3 * MINUTE, "-0.1"), (1, "0.0")]
)
def test_gpu_hours_have_one_decimal(gpu_millis: int, text: str) -> None:
    """Half a tenth rounds away from zero."""
    assert format_gpu_hours(gpu_millis) == text


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("50%", Fraction(1, 2)),
        ("12.5%", Fraction(1, 8)),
        ("0%", Fraction(0)),
        ("100%", Fraction(1)),
        ("1/3", Fraction(1, 3)),
        ("0.000000000001%", Fraction(1, 10**14)),
    ],
)
def test_a_share_is_exact(text: str, share: Fraction) -> None:
    """A percentage or a fraction, and never a float."""
    assert parse_share(text) == share


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("50", "share '50' is not a share"),
        ("0.5", "share '0.5' is not a share"),
        ("-5%", "share '-5%' is not a share"),
        ("1/0", "share '1/0' divides by zero"),
        ("101%", "share '101%' is more than the whole (100%)"),
        ("4/3", "share '4/3' is more than the whole (100%)"),
    ],
)
def test_what_is_no_share_is_told(text: str, said: str) -> None:
    """A bare number, a negative one, a division by zero and more than the whole are refused."""
    with pytest.raises(InvalidInputError) as caught:
        parse_share(text)
    assert caught.value.message == said
    assert caught.value.hint


@given(st.fractions(0, 1, max_denominator=10**9))
def test_a_formatted_share_reads_back_as_the_same(share: Fraction) -> None:
    """A percentage where it is exact, else a fraction."""
    assert parse_share(format_share(share)) == share
    assert parse_share(ratio_text(share)) == share


@pytest.mark.parametrize(("share", "text"), [("1/2", "50%"), ("1/8", "12.5%"), ("1/3", "1/3"), ("0", "0%")])
def test_a_share_is_written_as_people_would(share: str, text: str) -> None:
    """No needless decimals."""
    assert format_share(Fraction(share)) == text


def test_a_share_in_a_table_is_rounded() -> None:
    """One decimal, half up."""
    assert about_share(Fraction(1, 3)) == "33.3%"
    assert about_share(Fraction(1, 2000)) == "0.1%"


def test_one_is_singular() -> None:
    """One GPU, but no GPUs and two GPUs."""
    assert [count(number, "GPU") for number in (0, 1, 2)] == ["0 GPUs", "1 GPU", "2 GPUs"]
