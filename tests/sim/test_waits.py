"""Waits of workloads: what counts as one, and how they are grouped."""

from __future__ import annotations

from fractions import Fraction

from gpubudget.sim.result import End
from gpubudget.sim.waits import by_size, gaps, longest, program_of, quantiles, size_of, waits
from gpubudget.units import HOUR, MINUTE
from tests.made_runs import Did

OVER = 10 * HOUR


def test_waits_of_four_workloads_by_hand() -> None:
    """Half waited at most 30 s, one 2 hours; a minute to the millisecond is still within a minute."""
    rows = [
        Did("a", "x", 1, 0, HOUR, [(0, HOUR)]).row(OVER),
        Did("b", "x", 1, 0, HOUR, [(30_000, 30_000 + HOUR)]).row(OVER),
        Did("c", "x", 1, 0, HOUR, [(MINUTE, MINUTE + HOUR)]).row(OVER),
        Did("d", "x", 1, 0, HOUR, [(2 * HOUR, 3 * HOUR)]).row(OVER),
    ]
    found = waits("all", rows, OVER)
    assert (found.workloads, found.started) == (4, 4)
    assert (found.first.p50_ms, found.first.p90_ms, found.first.largest_ms) == (30_000, 2 * HOUR, 2 * HOUR)
    assert found.first.within_minute == Fraction(3, 4)


def test_total_waits_count_every_time_again() -> None:
    """A workload that waited 1 hour, ran, was requeued and waited 2 more has a first wait of 1 and a total of 3."""
    row = Did("a", "x", 1, 0, 2 * HOUR, [(HOUR, 2 * HOUR), (4 * HOUR, 5 * HOUR)]).row(OVER)
    found = waits("all", [row], OVER)
    assert found.first.p50_ms == HOUR
    assert found.total.p50_ms == 3 * HOUR
    assert gaps(row, OVER) == [(0, HOUR), (2 * HOUR, 4 * HOUR)]


def test_who_never_started_counts_with_the_time_in_vain() -> None:
    """One still waits at the end, one gave up after an hour; the refused one waited for nothing and is left out."""
    rows = [
        Did("waiting", "x", 1, HOUR, HOUR, end=End.WAITING).row(OVER),
        Did("gone", "x", 1, 0, HOUR, end=End.CANCELLED, ended=HOUR).row(OVER),
        Did("refused", "x", 1, 0, HOUR, end=End.REFUSED, ended=0).row(OVER),
    ]
    found = waits("all", rows, OVER)
    assert (found.workloads, found.started) == (2, 0)
    assert (found.first.p50_ms, found.first.largest_ms) == (HOUR, 9 * HOUR)


def test_nobody_waits_in_an_empty_group() -> None:
    """Then there are no figures, and nothing is divided by zero."""
    found = quantiles([])
    assert (found.p50_ms, found.largest_ms, found.within_minute) == (None, None, None)


def test_sizes_are_classes_from_small_to_large() -> None:
    """A gang of 8 is still on one host; classes that do not occur are left out."""
    assert [size_of(gpus) for gpus in (1, 2, 4, 5, 8, 9, 32, 33, 128, 129)] == [
        "1 GPU", "2-4 GPUs", "2-4 GPUs", "5-8 GPUs", "5-8 GPUs", "9-32 GPUs", "9-32 GPUs", "33-128 GPUs",
        "33-128 GPUs", "over 128 GPUs",
    ]  # fmt: skip
    rows = [Did(str(gpus), "x", gpus, 0, HOUR, [(0, HOUR)]).row(OVER) for gpus in (16, 1, 12)]
    assert [(group.name, group.workloads) for group in by_size(rows, OVER)] == [("1 GPU", 1), ("9-32 GPUs", 2)]


def test_the_longest_wait_is_one_stretch() -> None:
    """Three hours at once are longer than two and two, also after a requeue; one that is not over has no end."""
    twice = Did("twice", "x", 1, 0, HOUR, [(2 * HOUR, 3 * HOUR), (5 * HOUR, 6 * HOUR)]).row(OVER)
    again = Did("again", "y", 2, HOUR, HOUR, [(HOUR, 2 * HOUR), (5 * HOUR, 6 * HOUR)]).row(OVER)
    found = longest([twice, again], OVER)
    assert found is not None
    assert (found.workload, found.gpus, found.since_ms, found.until_ms) == ("again", 2, 2 * HOUR, 5 * HOUR)
    still = longest([twice, Did("still", None, 1, HOUR, HOUR, end=End.WAITING).row(OVER)], OVER)
    assert still is not None
    assert (still.workload, still.budget, still.until_ms, still.waited_ms) == ("still", "(no budget)", None, 9 * HOUR)
    assert longest([], OVER) is None


def test_a_program_is_the_budget_below_the_root() -> None:
    """Whatever is charged to the root itself is the root's, and what names no budget is nobody's."""
    assert [program_of(path) for path in ("language/olmo/alice", "vision", "/", None, "")] == [
        "language", "vision", "/", "(no budget)", "(no budget)",
    ]  # fmt: skip
