"""GPU-time of any stretch of a run: entitled, delivered, and what an endless cluster would have given more."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from gpubudget.core.budget import DatedShares, Shares
from gpubudget.sim.gputime import GpuTime
from gpubudget.sim.result import End, Row
from gpubudget.units import DAY, HOUR
from tests.made_runs import Did, made, tree

HALVES = {"a": "1/2", "a/one": "3/4", "b": "1/2"}


def test_entitled_is_share_of_what_was_schedulable() -> None:
    """Of 8 GPUs for 10 hours, 2 of them drained for 5 hours, a half is 35; ``a`` keeps a quarter of its half."""
    time = GpuTime(made(tree(HALVES), [], until=10 * HOUR, away=[(0, 5 * HOUR, 2)]))
    assert time.schedulable(0, 0, 10) == 70 * HOUR
    assert time.entitled((0, "a"), 0, 10, own=False) == 35 * HOUR
    assert time.entitled((0, "a"), 0, 10, own=True) == 35 * HOUR // 4
    assert time.entitled((0, "a/one"), 0, 10, own=True) == 3 * 35 * HOUR // 4
    assert time.entitled((0, "a"), 0, 5, own=False) == 15 * HOUR
    assert time.entitled((0, "gone"), 0, 10, own=True) == 0


def test_dated_shares_hold_from_their_date() -> None:
    """``b`` has a half for 4 hours and a quarter for the 6 after that."""
    plain = tree({"b": "1/2"})
    child = replace(plain.root.children[0], changes=(DatedShares(4 * HOUR, 100 * DAY, Shares(Fraction(1, 4))),))
    dated = replace(plain, root=replace(plain.root, children=(child,)))
    time = GpuTime(made(dated, [], until=10 * HOUR))
    assert time.entitled((0, "b"), 0, 10, own=False) == 16 * HOUR + 12 * HOUR
    assert time.entitled((0, "b"), 3, 5, own=False) == 4 * HOUR + 2 * HOUR


def test_delivered_is_what_lies_in_the_stretch() -> None:
    """An attempt of 4 GPUs from 1 h to 3 h counts 4 GPU-hours between 2 h and 6 h; unfunded work does not count."""
    did = [Did("w", "b", 4, 0, 2 * HOUR, [(HOUR, 3 * HOUR)]), Did("u", "b", 1, 0, HOUR, [(0, HOUR)], allocated=False)]
    time = GpuTime(made(tree(HALVES), did, until=6 * HOUR))
    assert time.delivered((0, "b"), 2, 6) == 4 * HOUR
    assert time.delivered((0, "b"), 0, 6) == 8 * HOUR
    assert time.unallocated(["b"]) == HOUR


def test_the_tail_after_the_last_submission_is_left_out() -> None:
    """With samples every hour and a last submission at 2h30, figures of GPU-time end at 2 h."""
    assert GpuTime(made(tree(HALVES), [], until=10 * HOUR, loaded=2 * HOUR + HOUR // 2)).loaded == 2
    assert GpuTime(made(tree(HALVES), [], until=10 * HOUR, loaded=0)).loaded == 10


def test_a_window_begins_at_the_sample_that_is_long_enough_ago() -> None:
    """Three hours before the fifth sample is the second; before the start there is only the start."""
    time = GpuTime(made(tree(HALVES), [], until=10 * HOUR))
    assert (time.since(5, 3 * HOUR), time.since(5, 3 * HOUR + 1), time.since(2, DAY)) == (2, 1, 0)


@pytest.mark.parametrize(
    ("did", "expected"),
    [
        (Did("new", "b", 2, 4 * HOUR, 100 * HOUR, end=End.WAITING), 2 * 6),  # it came 6 hours ago
        (Did("short", "b", 2, 0, HOUR, end=End.WAITING), 2 * 1),  # it needs one hour, however long it waits
        (Did("ran", "b", 2, 0, 9 * HOUR, [(0, 5 * HOUR)], End.WAITING), 2 * 4),  # 5 of 9 hours are done
        (Did("again", "b", 2, 0, 9 * HOUR, [(0, 5 * HOUR, 5 * HOUR)], End.WAITING), 2 * 5),  # nothing is done
        (Did("busy", "b", 2, 0, 20 * HOUR, [(7 * HOUR, 10 * HOUR)], End.RUNNING), 2 * 7),  # it runs, and waited 7
        (Did("over", "b", 2, 0, HOUR, [(9 * HOUR, 10 * HOUR)]), 0),
        (Did("no", "b", 2, 0, HOUR, end=End.REFUSED, ended=0), 0),
        (Did("free", "b", 2, 0, HOUR, end=End.WAITING, allocated=False), 0),
    ],
    ids=lambda value: value.id if isinstance(value, Did) else "",
)
def test_what_an_endless_cluster_would_have_given_more(did: Did, expected: int) -> None:
    """Of a workload that has not ended: the time that it waited, at most what it still needs; in GPU-hours."""
    time = GpuTime(made(tree(HALVES), [did], until=10 * HOUR))
    assert time.unmet([(0, 10)])[0].get((0, "b"), 0) == expected * HOUR


def _by_the_hour(row: Row, start: int, now: int) -> int:
    """The same for times in whole hours, by walking through all hours."""
    if row.submitted >= now or (row.ended is not None and row.ended <= now):
        return 0
    waited = done = 0
    for hour in range(row.submitted, now, HOUR):
        inside = [span for span in row.spans if span.started <= hour < span.ended]
        done += HOUR if inside else 0
        waited += HOUR if not inside and hour >= start else 0
    done -= sum(span.lost for span in row.spans if span.ended <= now)
    return max(0, min(waited, row.run_time - done)) * row.gpus


def test_unmet_demand_against_walking_through_all_hours() -> None:
    """Two hundred random workloads, in any stretch."""
    rng = random.Random(7)
    did = []
    for number in range(200):
        at = submitted = rng.randrange(40) * HOUR
        spans = []
        for _ in range(rng.randrange(4)):
            started = at + rng.randrange(6) * HOUR
            at = started + rng.randrange(1, 6) * HOUR
            spans.append((started, at, rng.randrange((at - started) // HOUR + 1) * HOUR))
        end = rng.choice([End.FINISHED, End.WAITING]) if spans else End.WAITING
        did.append(Did(f"w{number}", rng.choice("ab"), rng.randrange(1, 9), submitted, 20 * HOUR, spans, end))
    result = made(tree(HALVES), did, until=80 * HOUR, gpus=10_000)
    stretches = [(0, 5), (3, 20), (20, 30), (10, 44), (0, 80)]
    for (first, last), found in zip(stretches, GpuTime(result).unmet(stretches), strict=True):
        for path in "ab":
            mine = [row for row in result.rows if row.budget == path]
            expected = sum(_by_the_hour(row, first * HOUR, last * HOUR) for row in mine)
            assert found.get((0, path), 0) == expected
