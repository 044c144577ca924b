"""Hosts that fail: at the rate asked for, some far more often, the same for the same seed; or as a file says."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import islice, pairwise, takewhile
from pathlib import Path

import pytest

from gpubudget.errors import InvalidInputError
from gpubudget.sim.faults import drawn, read_failures, sentence
from gpubudget.sim.submission import Failure, FailureRate, Fault, SimHost
from gpubudget.units import DAY, MINUTE

HOSTS = tuple(SimHost(f"h{number:03}", "p", 8) for number in range(100))
RATE = FailureRate(7, Fraction(38, 10))


def test_as_many_hosts_fail_as_are_asked_for() -> None:
    """3.8 for each 1,000 host-days, in order of time, of all causes."""
    failures = list(takewhile(lambda failure: failure.at < 1_000 * DAY, drawn(RATE, HOSTS, 0)))
    assert len(failures) == pytest.approx(380, rel=0.15)
    assert all(one.at <= two.at for one, two in pairwise(failures))
    lost = sum(failure.fault is Fault.LOST for failure in failures)
    assert lost / len(failures) == pytest.approx(239 / 419, abs=0.1)
    assert sorted(failure.repair for failure in failures)[len(failures) // 2] == pytest.approx(45 * MINUTE, rel=0.2)
    assert Counter(failure.cause for failure in failures).most_common(1)[0][0] == "faulty GPU"


def test_lemons_fail_far_more_often() -> None:
    """Two of a hundred, twenty times as often as the others: more than a quarter of all failures."""
    (first, one), (second, two), (_, three) = Counter(f.host for f in islice(drawn(RATE, HOSTS, 0), 2000)).most_common(
        3
    )
    assert first != second
    assert min(one, two) > 5 * three


def test_the_same_seed_draws_the_same() -> None:
    """And another one does not."""
    assert list(islice(drawn(RATE, HOSTS, 0), 50)) == list(islice(drawn(RATE, HOSTS, 0), 50))
    other = FailureRate(8, RATE.per_thousand_days)
    assert list(islice(drawn(RATE, HOSTS, 0), 50)) != list(islice(drawn(other, HOSTS, 0), 50))
    assert list(drawn(FailureRate(1, Fraction(0)), HOSTS, 0)) == []
    assert "3.8 times for each 1,000 host-days (seed 7)" in sentence(RATE)


def test_failures_are_read_from_a_file(tmp_path: Path) -> None:
    """In order of time; the cause may be left out."""
    path = tmp_path / "failures.csv"
    path.write_text("at_s,host,fault,repair_s,cause\n60,h001,drain,600,hot\n30,h000,lost,60,\n")
    assert read_failures(path, HOSTS) == (
        Failure(30_000, "h000", Fault.LOST, 60_000),
        Failure(60_000, "h001", Fault.DRAIN, 600_000, "hot"),
    )


@pytest.mark.parametrize("row", ["x,h001,lost,5", "-1,h001,lost,5", "1,h001,melts,5", "1,elsewhere,lost,5", "1,h001"])
def test_a_failure_that_cannot_be_is_told_with_its_line(tmp_path: Path, row: str) -> None:
    """And what a row looks like."""
    path = tmp_path / "failures.csv"
    path.write_text(f"at_s,host,fault,repair_s\n{row}\n")
    with pytest.raises(InvalidInputError, match=r"line 2: .* is no failure of a host that there is"):
        read_failures(path, HOSTS)
    path.write_text("at_s,host\n")
    with pytest.raises(InvalidInputError, match="has no column 'fault'"):
        read_failures(path, HOSTS)
