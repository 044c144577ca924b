"""Made-up work that looks like real work: bursts, many small and few large gangs, heavy tails, a few busy people.

Everything is drawn from one seed, so equal settings give equal workloads. The mixes of sizes and run times are
quantiles of two public traces: Microsoft Philly (Jeon et al., USENIX ATC 2019) and SenseTime Helios' cluster Venus
(Hu et al., SC 2021), both CC-BY-4.0. Knows nothing of schedulers. Times are milliseconds; time 0 is a Monday, 0:00.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from math import exp, fsum, log, sqrt

from gpubudget.core.budget import ROOT, Budget, DebugLane, Policy, Pool, Shares, Tree
from gpubudget.core.workload import WorkloadSpec
from gpubudget.errors import InvalidInputError
from gpubudget.sim.submission import Ending, SimHost, Submission, Workloads
from gpubudget.units import DAY, HOUR, MINUTE, SECOND, count, format_share

QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
"""Where the run times of a ``SizeClass`` stand in their distribution; between them their logarithms are straight."""


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Workloads of about one size: how many of all, which sizes with which weights, and run times in seconds."""

    weight: float
    gpus: tuple[tuple[int, int], ...]
    run_times: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """What a cluster's people run. ``endings`` are percentages."""

    name: str
    classes: tuple[SizeClass, ...]
    endings: tuple[tuple[Ending, int], ...]


PHILLY = Mix(
    "philly",
    (
        SizeClass(0.9317, ((1, 1),), (1, 52, 62, 122, 1117, 2716, 8512, 19137, 135404, 868927, 3256045)),
        SizeClass(0.0448, ((2, 221), (4, 227)), (2, 11, 15, 21, 367, 45476, 166199, 233725, 748678, 2416865, 2750674)),
        SizeClass(0.02, ((8, 1),), (1, 125, 216, 1871, 23683, 173288, 352409, 525631, 1066894, 2658784, 4628226)),
        SizeClass(
            0.0035, ((16, 24), (32, 8)), (1, 35, 69, 566, 21137, 104218, 252560, 446126, 1152387, 1710643, 1710643)
        ),
    ),
    ((Ending.FINISHED, 60), (Ending.CANCELLED, 9), (Ending.FAILED, 31)),
)
VENUS = Mix(
    "venus",
    (
        SizeClass(0.5184, ((1, 1),), (1, 6, 17, 67, 190, 1181, 8449, 33460, 172800, 172800, 172800)),
        SizeClass(0.1297, ((2, 555), (4, 742)), (1, 6, 15, 63, 193, 1862, 44643, 123672, 172800, 172800, 172800)),
        SizeClass(0.2517, ((6, 44), (8, 2473)), (1, 8, 26, 98, 216, 1156, 26146, 66364, 172800, 172800, 172800)),
        SizeClass(
            0.1002,
            ((16, 416), (24, 90), (32, 272), (40, 29), (48, 25), (64, 41), (80, 23), (96, 11), (128, 55), (160, 27)),
            (1, 5, 10, 65, 249, 2486, 49928, 108799, 172800, 172800, 172800),
        ),
    ),
    ((Ending.FINISHED, 53), (Ending.CANCELLED, 27), (Ending.FAILED, 20)),
)
MIXES = {mix.name: mix for mix in (PHILLY, VENUS)}

HOURS = (3, 2, 2, 1, 1, 1, 1, 2, 4, 7, 9, 9, 8, 8, 9, 10, 10, 9, 8, 7, 6, 6, 5, 4)
"""How much comes in each hour of a working day."""
WEEK = (*HOURS * 5, *(1 + hour // 3 for hour in HOURS * 2))

DEBUG_LIMIT = 15 * MINUTE
DEBUG_GPUS, DEBUG_WEIGHTS = (1, 2, 4, 8), (60, 20, 10, 10)
DEBUG_RUN = 3 * MINUTE
"""The median run of a debug workload."""
DEBUG_THINK = 5 * MINUTE
"""The mean time between the end of one debug run and the next one of the same session."""
DEBUG_RUNS = 4
"""The mean number of runs of a session."""


@dataclass(frozen=True, slots=True)
class Demand:
    """How much comes, and of what kind.

    ``load`` is the GPU-time asked for over what the hosts can give. ``gap_variation`` is the coefficient of variation
    of the gaps between submissions (1 would be Poisson). The next workload belongs to the same sweep as the last one
    (same person and size, about the same run time) with probability ``sweeps``. ``debug_sessions`` are a working day's
    sessions of short debug runs, for each person. The four before it are as in ``assume.Assumed``.
    """

    mix: Mix = VENUS
    days: int = 28
    load: Fraction = Fraction(5, 2)
    gap_variation: int = 15
    zipf: float = 0.9
    sweeps: float = 0.7
    unallocated: Fraction = Fraction(0)
    resumable: Fraction = Fraction(1)
    least_part: Fraction = Fraction(1, 10)
    most_part: Fraction = Fraction(1)
    debug_sessions: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who submits, and the budget that pays."""

    name: str
    budget: str


def people(tree: Tree) -> tuple[Person, ...]:
    """All who may charge a budget without children, in order; the budget's own name where it lists nobody."""
    leaves = [budget for budget in tree.budgets() if not budget.children]
    return tuple(
        Person(name, leaf.path) for leaf in leaves for name in leaf.members or (leaf.path.rpartition("/")[2] or "root",)
    )


def capacity_for(tree: Tree, demand: Demand) -> int:
    """The GPUs that the tree's pools name; raises InvalidInputError where no such demand can be made up for them."""
    capacity = sum(pool.hosts * pool.gpus_per_host for pool in tree.pools)
    if capacity < 1 or demand.days < 1 or demand.load <= 0:
        raise InvalidInputError(
            f"nothing can be made up for {count(demand.days, 'day')}, {capacity} GPUs and a load of {demand.load}",
            hint="at least 1 day, 1 GPU and a load above 0 are needed",
        )
    return capacity


def generate(seed: int, tree: Tree, demand: Demand) -> Workloads:
    """Workloads of the tree's people for the hosts that its pools name; only debug ones where they ask for all."""
    capacity = capacity_for(tree, demand)
    debug = debug_workloads(seed, tree, demand.days * DAY, demand.debug_sessions)
    wanted = int(demand.load * capacity * demand.days * DAY) - sum(each.run_time * each.spec.gpus for each in debug)
    draw = _Draw(_seeded("work", seed), tree, demand)
    drawn: list[tuple[WorkloadSpec, int, Ending]] = []
    while wanted > 0:
        one = draw.workload(len(drawn) + 1)
        drawn.append(one)
        wanted -= one[0].gpus * one[1]
    times = arrivals(_seeded("gaps", seed), len(drawn), demand.days, demand.gap_variation)
    work = [Submission(at, spec, run, ending) for at, (spec, run, ending) in zip(times, drawn, strict=True)]
    submissions = tuple(sorted([*work, *debug], key=lambda each: (each.at, each.spec.id)))
    return Workloads(f"synthetic {demand.mix.name}, seed {seed}", submissions, _assumptions(demand, len(debug)))


def with_debug(workloads: Workloads, seed: int, tree: Tree, sessions: Fraction) -> Workloads:
    """The same workloads with debug runs of the tree's people among them, for as long as work is submitted."""
    if not workloads.submissions:
        return workloads
    start = workloads.submissions[0].at
    debug = debug_workloads(seed, tree, workloads.submissions[-1].at - start, sessions, start)
    merged = sorted([*workloads.submissions, *debug], key=lambda each: each.at)
    return Workloads(
        workloads.name,
        tuple(merged),
        (*workloads.assumptions, _debug_assumption(sessions, len(debug))),
        workloads.bad_rows,
        workloads.failures,
        workloads.events,
    )


def debug_workloads(seed: int, tree: Tree, span: int, sessions: Fraction, start: int = 0) -> list[Submission]:
    """Short runs of few GPUs, as people make them while they look for a fault: run, think, run again.

    ``sessions`` is how many each person begins on a working day, within ``span`` milliseconds from ``start``.
    """
    rng = _seeded("debug", seed)
    everybody, pools = people(tree), _pools(tree)
    calendar = Calendar(-(-span // DAY))
    found: list[Submission] = []
    for _ in range(round(sessions * len(everybody) * span * 5 / (7 * DAY))):
        person = rng.choice(everybody)
        at = start + calendar.at(rng.random())
        pool = rng.choices(*pools)[0]
        gpus = min(rng.choices(DEBUG_GPUS, DEBUG_WEIGHTS)[0], pool.gpus_per_host)
        while at < start + span:
            run = min(DEBUG_LIMIT - SECOND, max(5 * SECOND, int(DEBUG_RUN * exp(rng.gauss(0, 0.8)))))
            spec = WorkloadSpec(
                f"debug-{len(found) + 1}",
                person.name,
                person.budget,
                (pool.name,),
                gpus,
                min_runtime=min(DEBUG_LIMIT, tree.policy.max_min_runtime),
                max_runtime=DEBUG_LIMIT,
                debug=True,
            )
            failed = rng.random() < 0.5  # noqa: PLR2004 - every other run of a search finds its fault
            found.append(Submission(at, spec, run, Ending.FAILED if failed else Ending.FINISHED))
            at += run + 30 * SECOND + int(rng.expovariate(1 / DEBUG_THINK))
            if rng.random() < 1 / DEBUG_RUNS:
                break
    return sorted(found, key=lambda each: each.at)


class Calendar:
    """When things happen in a number of days: most on working days, by day."""

    def __init__(self, days: int) -> None:
        self._until = list(accumulate(WEEK[hour % len(WEEK)] for hour in range(24 * max(days, 1))))

    def at(self, part: float) -> int:
        """The moment by which ``part`` (0 to 1) of all has happened."""
        wanted = part * self._until[-1]
        hour = min(bisect_right(self._until, wanted), len(self._until) - 1)
        before = self._until[hour - 1] if hour else 0
        return int((hour + (wanted - before) / (self._until[hour] - before)) * HOUR)


def arrivals(rng: random.Random, count: int, days: int, variation: int) -> list[int]:
    """``count`` moments, in order, in bursts: the gaps are lognormal, with the coefficient of variation asked for.

    Few gaps cannot vary as much, or one of them would be most of the time; and the hours of the day stretch them.
    """
    if not count:
        return []
    draws = [rng.gauss(0, 1) for _ in range(count)]
    wanted = min(float(variation), sqrt(count) / 8)
    low, high = 0.0, 6.0
    for _ in range(18):
        sigma = (low + high) / 2
        gaps = [exp(sigma * draw) for draw in draws]
        mean = fsum(gaps) / count
        varies = fsum((gap / mean - 1) ** 2 for gap in gaps) / count
        low, high = (sigma, high) if varies < wanted**2 else (low, sigma)
    calendar, total = Calendar(days), fsum(gaps)
    return [calendar.at(min(sofar / total, 1.0)) for sofar in accumulate(gaps)]


class _Draw:
    """Draws one workload after the other."""

    def __init__(self, rng: random.Random, tree: Tree, demand: Demand) -> None:
        self.rng, self.demand = rng, demand
        self.longest = tree.policy.max_min_runtime
        self.unallocated, self.resumable = float(demand.unallocated), float(demand.resumable)
        self.parts = float(demand.least_part), float(demand.most_part)
        self.people = list(people(tree))
        rng.shuffle(self.people)
        self.busy = list(accumulate((place + 1) ** -demand.zipf for place in range(len(self.people))))
        self.pools = _pools(tree)
        self.person, self.pool, self.gpus, self.place = self.people[0], self.pools[0][0], 1, 0.5
        self.size = demand.mix.classes[0]

    def workload(self, number: int) -> tuple[WorkloadSpec, int, Ending]:
        """The workload of this number, its run time, and how it ends."""
        rng, demand = self.rng, self.demand
        if number == 1 or rng.random() >= demand.sweeps:
            self._new_sweep()
        place = min(max(self.place + rng.gauss(0, 0.03), 0.0), 1.0)
        run = max(SECOND, int(run_time(self.size, place) * SECOND))
        # all draws are made whatever is done with them: other settings leave the workloads the same otherwise
        free, resumable, part = rng.random(), rng.random(), rng.uniform(*self.parts)
        ending = rng.choices(*zip(*demand.mix.endings, strict=True))[0]
        least = min(max(MINUTE, int(run * part) // MINUTE * MINUTE), self.longest)
        spec = WorkloadSpec(
            f"w{number}",
            self.person.name,
            self.person.budget,
            (self.pool.name,),
            self.gpus,
            min_runtime=0 if free < self.unallocated else least,
            resumable=resumable < self.resumable,
        )
        return spec, run, ending

    def _new_sweep(self) -> None:
        rng, classes = self.rng, self.demand.mix.classes
        self.person = rng.choices(self.people, cum_weights=self.busy)[0]
        self.pool = rng.choices(*self.pools)[0]
        self.size = rng.choices(classes, [each.weight for each in classes])[0]
        gpus = rng.choices(*zip(*self.size.gpus, strict=True))[0]
        self.gpus = _possible(gpus, self.pool)
        self.place = rng.random()


def run_time(size: SizeClass, place: float) -> float:
    """The run time in seconds at a place (0 to 1) of the distribution."""
    after = min(bisect_right(QUANTILES, place), len(QUANTILES) - 1)
    left, right = QUANTILES[after - 1], QUANTILES[after]
    low, high = log(size.run_times[after - 1]), log(size.run_times[after])
    return exp(low + (high - low) * (place - left) / (right - left))


def _possible(gpus: int, pool: Pool) -> int:
    """The size, as whole hosts where it is more than one has, and at most half of the pool."""
    if gpus <= pool.gpus_per_host:
        return gpus
    most = max(pool.hosts // 2, 1)
    return min(-(-gpus // pool.gpus_per_host), most) * pool.gpus_per_host


def _seeded(what: str, seed: int) -> random.Random:
    """Each kind of draw has its own stream, so that more of one leaves the others as they are."""
    return random.Random(f"{what} {seed}")  # noqa: S311 - a simulation has to be repeatable


def _pools(tree: Tree) -> tuple[list[Pool], list[int]]:
    return list(tree.pools), [pool.hosts * pool.gpus_per_host for pool in tree.pools]


def _assumptions(demand: Demand, debug: int) -> tuple[str, ...]:
    free, resumable, least, most = (
        format_share(part) for part in (demand.unallocated, demand.resumable, demand.least_part, demand.most_part)
    )
    what = (
        f"All workloads are made up: sizes and run times as on {demand.mix.name}, for {demand.days} days at "
        f"{float(demand.load):g} times what the hosts can give."
    )
    when = (
        f"Gaps between submissions are lognormal with a coefficient of variation of {demand.gap_variation}, more by "
        "day than by night and on working days."
    )
    who = (
        f"People submit by a Zipf law (s = {demand.zipf:g}); with a probability of {demand.sweeps:g} the next workload "
        "is one more of the same sweep."
    )
    how = (
        f"{free} ask for no minimum runtime; the others for {least} to {most} of their run time, at most the longest "
        f"allowed. {resumable} can go on where they were stopped."
    )
    return what, when, who, how, _debug_assumption(demand.debug_sessions, debug)


def _debug_assumption(sessions: Fraction, debug: int) -> str:
    return (
        f"{debug:,} debug workloads are made up: {float(sessions):g} session{'s' * (sessions != 1)} a person "
        f"and working day, of about {DEBUG_RUNS} runs of 1 to 8 GPUs, 3 minutes in the median and at most 15."
    )


PROGRAMS = (("language", 30), ("vision", 25), ("science", 20), ("robotics", 15), ("safety", 10))
PROJECTS = (25, 20, 15, 15, 15, 10)
RESEARCHERS = (30, 20, 20, 20, 10)


def lab_tree(pool: Pool, policy: Policy | None = None) -> Tree:
    """A lab of 150 researchers: 5 programs of 6 projects of 5 people, with uneven shares."""
    programs = []
    for program, program_share in PROGRAMS:
        projects = []
        for number, project_share in enumerate(PROJECTS, start=1):
            path = f"{program}/{program[:3]}{number}"
            names = [f"{path.rpartition('/')[2]}-r{place}" for place in range(1, len(RESEARCHERS) + 1)]
            team = tuple(
                Budget(f"{path}/{name}", _percent(share), members=(name,))
                for name, share in zip(names, RESEARCHERS, strict=True)
            )
            projects.append(Budget(path, _percent(project_share), children=team))
        programs.append(Budget(program, _percent(program_share), children=tuple(projects)))
    root = Budget(ROOT, Shares(Fraction(1)), children=tuple(programs))
    lane = Policy(debug=DebugLane(8, max_runtime=DEBUG_LIMIT))
    return Tree(root, (pool,), policy or lane, cluster="lab")


def _percent(percent: int) -> Shares:
    return Shares(Fraction(percent, 100))


@dataclass(frozen=True, slots=True)
class Preset:
    """A lab that needs no files: how many hosts, and what comes."""

    hosts: int
    demand: Demand = field(default_factory=Demand)


PRESETS = {"lab": Preset(128), "lab-88": Preset(11, Demand(debug_sessions=Fraction(1, 5)))}


def hosts_of(tree: Tree) -> tuple[SimHost, ...]:
    """The hosts that the tree's pools name."""
    return tuple(
        SimHost(f"{pool.name}-{number:04}", pool.name, pool.gpus_per_host)
        for pool in tree.pools
        for number in range(1, pool.hosts + 1)
    )
