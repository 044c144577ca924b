"""Which runs the study has, by what is varied: of each setting, one run a seed."""

from __future__ import annotations

from itertools import product
from typing import Any

from benchmarks.tuning.cases import NO_LIMIT, Case
from gpubudget.units import DAY, HOUR

PHILLY = "philly28_704 on 28"
SEEDS = (1, 2, 3)
LABEL = {"lab-88": "88 GPUs, made up", "lab": "1,024 GPUs, made up", PHILLY: "224 GPUs, Philly"}
SIZES = {"lab-88": (0, 4, 8, 16), PHILLY: (0, 4, 8, 16), "lab": (0, 8, 16, 32)}
LOOKBACKS = tuple(days * DAY for days in (1, 3, 7, 14))
LONGEST = tuple(hours * HOUR for hours in (1, 4, 8, 24))
SESSIONS = ("1/5", "1/2", "1", "2")


def on(cluster: str, **settings: Any) -> list[Case]:  # noqa: ANN401 - the fields of a case
    """The case on a cluster with the amount of debug work that it has, for each of its seeds.

    The trace is the same whatever the seed, and the large cluster takes long.
    """
    seeds = {"lab-88": SEEDS, PHILLY: SEEDS[:1], "lab": SEEDS[:2]}[cluster]
    settings = {"sessions": "1" if cluster == "lab" else "1/5", **settings}
    return [Case(cluster, seed, **settings) for seed in seeds]


LANE = {(cluster, gpus): on(cluster, lane=gpus) for cluster in SIZES for gpus in SIZES[cluster]}
FILLED = {gpus: on("lab-88", lane=gpus, unallocated="1/5") for gpus in (0, 8, 16)}
DEMAND = {(each, gpus): on("lab-88", sessions=each, lane=gpus) for each in SESSIONS for gpus in (8, 16, 24)}
DEMAND_LARGE = {("5", gpus): on("lab", sessions="5", lane=gpus)[:1] for gpus in (16, 32)}
WINDOW = {pair: on("lab-88", days=21, lookback=pair[0], longest=pair[1])[:1] for pair in product(LOOKBACKS, LONGEST)}
ONE_BY_ONE = tuple(dict.fromkeys([*product(LOOKBACKS, LONGEST[2:3]), *product(LOOKBACKS[2:3], LONGEST)]))
ENDS = ((DAY, 8 * HOUR), (7 * DAY, 8 * HOUR), (14 * DAY, 8 * HOUR), (7 * DAY, HOUR), (7 * DAY, 24 * HOUR))
WINDOW_LARGE = {
    (cluster, *pair): on(cluster, days=10, lookback=pair[0], longest=pair[1], lane=lane)[:1]
    for cluster, pairs, lane in ((PHILLY, ONE_BY_ONE, 8), ("lab", ENDS, 16))
    for pair in pairs
}
ALLOWANCE = {
    most: on("lab-88", sessions="1", lane=16, allowance=most) for most in (HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, NO_LIMIT)
}
WAYS = (
    ("4 long", 1, 4 * HOUR), ("4 pieces", 1, 4 * HOUR), ("4 chain", 1, 4 * HOUR),
    ("8 pieces", 1, 4 * HOUR), ("8 chain", 1, NO_LIMIT), ("8 chain", 1, 4 * HOUR),
    ("4 chain + 4 chain", 1, 4 * HOUR), ("4 chain + 4 chain", 2, 4 * HOUR),
    ("4 long + 8 pieces", 1, 4 * HOUR), ("4 long + 8 chain", 1, 4 * HOUR),
)  # fmt: skip
GAMING = {
    (crowd, how, each, allowance): on("lab-88", cheats=5, how=how, per_person=each, allowance=allowance, crowd=crowd)[
        :2
    ]
    for crowd in (True, False)
    for how, each, allowance in WAYS
}
MANY = {
    (cheats, gpus, allowance): on("lab-88", cheats=cheats, how="8 chain", allowance=allowance, lane=gpus)
    for cheats, gpus in ((5, 8), (30, 8), (30, 16))
    for allowance in (NO_LIMIT, 4 * HOUR)
}
OLD = {
    (cluster, name): on(cluster, policy=name, lane=16 if cluster == "lab" else 8)[: 1 if cluster == "lab" else None]
    for cluster in SIZES
    for name in ("old-world", "fifo", "gpubudget")
}
