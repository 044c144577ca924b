"""How hosts fail: from a file, or drawn from a seed at the rates and for the causes of large clusters.

Rates and causes are those of Llama 3's training on 2,048 hosts (Meta, "The Llama 3 Herd of Models", 2024): 3.8 failures
for each 1,000 host-days. A few hosts, the lemons, fail far more often than the others (Kokolis et al., HPCA 2025).
"""

from __future__ import annotations

import csv
import random
from bisect import bisect
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from math import exp
from pathlib import Path

from gpubudget.errors import InvalidInputError
from gpubudget.sim.submission import Failure, FailureRate, Fault, SimHost
from gpubudget.sim.traces import reading
from gpubudget.units import DAY, MINUTE, SECOND

CAUSES = (
    ("faulty GPU", 148, Fault.LOST),
    ("HBM3 memory", 72, Fault.DRAIN),
    ("software", 54, Fault.LOST),
    ("network switch or cable", 35, Fault.DRAIN),
    ("host maintenance", 32, Fault.DRAIN),
    ("GPU SRAM", 19, Fault.DRAIN),
    ("GPU system processor", 17, Fault.LOST),
    ("network card", 7, Fault.DRAIN),
    ("NCCL watchdog", 7, Fault.DRAIN),
    ("silent data corruption", 6, Fault.DRAIN),
    ("temperature", 6, Fault.DRAIN),
    ("SSD", 3, Fault.DRAIN),
    ("power", 3, Fault.LOST),
    ("chassis", 2, Fault.LOST),
    ("IO board", 2, Fault.LOST),
    ("CPU", 2, Fault.LOST),
    ("memory", 2, Fault.LOST),
    ("other", 2, Fault.DRAIN),
)
"""What failed, how often of 419, and what that does to the host."""

LEMONS = Fraction(1, 50)
LEMON_FACTOR = 20
BY_HAND = Fraction(3, 419)
REPAIR, REPAIR_BY_HAND = 45 * MINUTE, 2 * DAY
"""The median repair by itself, and one that needs much work by people."""


def sentence(rate: FailureRate) -> str:
    """What is assumed, for the report."""
    return (
        f"Hosts fail {float(rate.per_thousand_days):g} times for each 1,000 host-days (seed {rate.seed}), one in "
        f"{1 / LEMONS} of them {LEMON_FACTOR} times as often; the causes are those of Llama 3's training. A repair "
        f"takes {REPAIR // MINUTE} minutes in the median, and two days for 3 of 419."
    )


def drawn(rate: FailureRate, hosts: tuple[SimHost, ...], start: int) -> Iterator[Failure]:
    """Failures from ``start`` on, in order of time, without end."""
    rng = random.Random(f"failures {rate.seed}")  # noqa: S311 - a simulation has to be repeatable
    if not hosts or rate.per_thousand_days <= 0:
        return
    lemons = set(rng.sample(range(len(hosts)), -(-len(hosts) * LEMONS.numerator // LEMONS.denominator)))
    weights = list(accumulate(LEMON_FACTOR if place in lemons else 1 for place in range(len(hosts))))
    causes = list(accumulate(weight for _, weight, _ in CAUSES))
    a_day = float(rate.per_thousand_days) * len(hosts) / 1000
    at = float(start)
    while True:
        at += rng.expovariate(a_day / DAY)
        host = hosts[bisect(weights, rng.random() * weights[-1])]
        cause, _, fault = CAUSES[bisect(causes, rng.random() * causes[-1])]
        median = REPAIR_BY_HAND if rng.random() < BY_HAND else REPAIR
        repair = max(MINUTE, min(int(median * exp(rng.gauss(0, 0.7))), 14 * DAY))
        yield Failure(int(at), host.name, fault, repair, cause)


def read_failures(path: Path, hosts: tuple[SimHost, ...]) -> tuple[Failure, ...]:
    """Failures from CSV with the columns ``at_s,host,fault,repair_s`` and, if there is one, ``cause``."""
    names = {host.name for host in hosts}
    found = []
    with reading(path) as text:
        rows = csv.DictReader(text)
        missing = [column for column in ("at_s", "host", "fault", "repair_s") if column not in (rows.fieldnames or ())]
        if missing:
            raise InvalidInputError(
                f"{path} has no column {missing[0]!r}", hint="the columns are at_s,host,fault,repair_s,cause"
            )
        for row in rows:
            try:
                at, repair = int(row["at_s"]) * SECOND, int(row["repair_s"]) * SECOND
                fault = Fault(row["fault"])
            except (ValueError, TypeError):
                at = repair = -1
                fault = Fault.LOST
            if at < 0 or repair < 0 or row["host"] not in names:
                raise InvalidInputError(
                    f"{path} line {rows.line_num}: {dict(row)} is no failure of a host that there is",
                    hint="times are whole seconds from 0, a fault is lost or drain, a host is one of the pools'",
                )
            found.append(Failure(at, row["host"], fault, repair, row.get("cause") or ""))
    return tuple(sorted(found, key=lambda failure: failure.at))
