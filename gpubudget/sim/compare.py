"""Two runs or several, held against each other: what changes for each budget, and which policy is best at what.

Works on measures, so a run may have been made earlier or elsewhere. Times are milliseconds, GPU-time is
GPU-milliseconds. Nothing is judged but which of several figures is the best, where one end of its scale is good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from gpubudget.core.applying import renamed
from gpubudget.sim.figures import ratio
from gpubudget.sim.measures import BudgetMeasures, Measures
from gpubudget.sim.waits import Quantiles

Figure = int | Fraction | None


class Unit(StrEnum):
    """What a figure is, so that whoever shows it knows how."""

    RATIO = "ratio"
    DURATION = "ms"
    GPU_TIME = "gpu_ms"
    COUNT = "count"
    INDEX = "index"  # between 0 and 1, and no part of anything


class Good(StrEnum):
    """Which end of its scale is good; where it depends, nobody is best."""

    HIGH = "high"
    LOW = "low"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Contest:
    """One figure of several runs, in their order. ``best`` are the places of those that nobody is better than."""

    name: str
    unit: Unit
    good: Good
    figures: tuple[Figure, ...]
    best: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BudgetDifference:
    """What one budget, with all below it, had in two runs; a side is None where the budget is not in the tree.

    ``former`` is its path in the first run, where that is another one. Waits are those for the first start.
    """

    path: str
    former: str | None
    share: tuple[Fraction | None, Fraction | None]
    wait_p50_ms: tuple[int | None, int | None]
    wait_p90_ms: tuple[int | None, int | None]
    delivered_gpu_ms: tuple[int | None, int | None]
    preempted: tuple[int | None, int | None]
    preempting: tuple[int | None, int | None]

    @property
    def name(self) -> str:
        """What it is called: both paths where it was renamed."""
        return f"{self.former} → {self.path}" if self.former else self.path

    @property
    def changed(self) -> bool:
        """Whether anything at all is different."""
        return self.former is not None or any(before != after for before, after in self.pairs)

    @property
    def deep(self) -> bool:
        """Whether it is below a program; the page asks."""
        return "/" in self.path.strip("/")

    @property
    def pairs(self) -> tuple[tuple[Figure, Figure], ...]:
        """Before and after of each figure."""
        return (
            self.share,
            self.wait_p50_ms,
            self.wait_p90_ms,
            self.delivered_gpu_ms,
            self.preempted,
            self.preempting,
        )


def differences(before: Measures, after: Measures) -> tuple[BudgetDifference, ...]:
    """Every budget of either run: those of ``after`` in its order, then those that are gone.

    A budget that was renamed is one, with all below it, as for the scheduler.
    """
    new = {budget.path: budget for budget in after.budgets}
    renames = {one.previously: one.path for one in new.values() if one.previously and one.previously not in new}
    old = {}
    for budget in before.budgets:
        path = budget.path if budget.path in new else renamed(budget.path, renames)
        old[path if path in new else budget.path] = budget
    return tuple(_difference(path, old.get(path), new.get(path)) for path in {**new, **old})


def _difference(path: str, old: BudgetMeasures | None, new: BudgetMeasures | None) -> BudgetDifference:
    def both(figure: Callable[[BudgetMeasures], int | None]) -> tuple[int | None, int | None]:
        return (None if old is None else figure(old), None if new is None else figure(new))

    return BudgetDifference(
        path,
        None if old is None or old.path == path else old.path,
        (None if old is None else old.share, None if new is None else new.share),
        both(lambda budget: budget.waits.first.p50_ms),
        both(lambda budget: budget.waits.first.p90_ms),
        both(lambda budget: budget.delivered_gpu_ms),
        both(lambda budget: budget.preempted),
        both(lambda budget: budget.preempting),
    )


@dataclass(frozen=True, slots=True)
class ProgramRow:
    """What one program got of its entitlement in several runs, in their order; None where it had none."""

    path: str
    served: tuple[Fraction | None, ...]


def programs(runs: Sequence[Measures]) -> tuple[ProgramRow, ...]:
    """Delivered over entitled of each program of the first run, in all runs."""
    by_path = [{budget.path: budget for budget in run.programs} for run in runs]
    return tuple(
        ProgramRow(
            path,
            tuple(
                ratio(budgets[path].delivered_gpu_ms, budgets[path].entitled_gpu_ms) if path in budgets else None
                for budgets in by_path
            ),
        )
        for path in by_path[0]
    )


def side_by_side(runs: Sequence[Measures]) -> tuple[Contest, ...]:
    """The figures that people choose a policy by, each for all runs."""
    found = []
    for name, unit, good, figure in _FIGURES:
        figures = tuple(figure(run) for run in runs)
        if any(value is not None for value in figures):
            found.append(Contest(name, unit, good, figures, _best(figures, good)))
    return tuple(found)


def _best(figures: Sequence[Figure], good: Good) -> tuple[int, ...]:
    known = [value for value in figures if value is not None]
    if good is Good.NEITHER or len(set(known)) < 2:  # noqa: PLR2004 - where all are equal nobody is best
        return ()
    best = max(known) if good is Good.HIGH else min(known)
    return tuple(place for place, value in enumerate(figures) if value == best)


def _waits_of(kind: str, figure: Callable[[Quantiles], Figure]) -> Callable[[Measures], Figure]:
    """The figure of a group's waits for their first start; None of a run without that group."""

    def read(run: Measures) -> Figure:
        groups = {group.name: group for group in (*run.waits, *run.debug, *run.waits_by_size)}
        return figure(groups[kind].first) if kind in groups else None

    return read


_FIGURES: tuple[tuple[str, Unit, Good, Callable[[Measures], Figure]], ...] = (
    ("occupancy", Unit.RATIO, Good.HIGH, lambda run: run.pyramid.occupancy),
    ("impact", Unit.RATIO, Good.HIGH, lambda run: run.pyramid.impact),
    ("wait, half at most", Unit.DURATION, Good.LOW, _waits_of("all workloads", lambda waits: waits.p50_ms)),
    ("wait, 90% at most", Unit.DURATION, Good.LOW, _waits_of("all workloads", lambda waits: waits.p90_ms)),
    ("wait, 99% at most", Unit.DURATION, Good.LOW, _waits_of("all workloads", lambda waits: waits.p99_ms)),
    ("started within a minute", Unit.RATIO, Good.HIGH, _waits_of("all workloads", lambda waits: waits.within_minute)),
    ("debug wait, half at most", Unit.DURATION, Good.LOW, _waits_of("debug", lambda waits: waits.p50_ms)),
    ("debug wait, 90% at most", Unit.DURATION, Good.LOW, _waits_of("debug", lambda waits: waits.p90_ms)),
    ("longest wait", Unit.DURATION, Good.LOW, lambda run: None if run.longest is None else run.longest.waited_ms),
    ("share error of programs, mean", Unit.RATIO, Good.LOW, lambda run: run.fairness.programs.mean_error),
    ("share error of budgets, mean", Unit.RATIO, Good.LOW, lambda run: run.fairness.budgets.mean_error),
    ("Jain's index of programs", Unit.INDEX, Good.HIGH, lambda run: run.fairness.programs.jain),
    ("ended no later than alone", Unit.RATIO, Good.HIGH, lambda run: run.fairness.finish_times.no_worse),
    ("funded GPU-hours", Unit.GPU_TIME, Good.HIGH, lambda run: run.capacity.allocated_gpu_ms),
    ("GPU-hours lost", Unit.GPU_TIME, Good.LOW, lambda run: run.lost_gpu_ms),
    ("preemptions", Unit.COUNT, Good.NEITHER, lambda run: run.preemptions.count),
)
