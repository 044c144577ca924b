"""Sweeps of ``simulate``: which runs there are to be, how far they have come, and the tables of what won."""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from io import StringIO
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import click

from gpubudget.cli.output import Column, printable, say, table
from gpubudget.cli.simoptions import FILE, OPTIONS, choice_of
from gpubudget.cli.values import Whole, shown
from gpubudget.errors import GpuBudgetError, InvalidInputError, UsageError
from gpubudget.sim import report
from gpubudget.sim.compare import Unit
from gpubudget.sim.policies import POLICIES
from gpubudget.sim.prepare import check, read_tree
from gpubudget.sim.sweep import Done, Outcome, Point, Setting, Winner, outcomes, sweep, winners
from gpubudget.units import SECOND, about_duration, count

C = TypeVar("C", bound=Callable[..., Any])
_MOST_RUNS = 10_000
_TOLD = 10
"""So many combinations that cannot be are told before the first run; the tables have all."""
_SHOWN = {
    "WAIT P50": "wait, half at most",
    "WAIT P90": "wait, 90% at most",
    "DEBUG P50": "debug wait, half at most",
    "DEBUG P90": "debug wait, 90% at most",
    "OCCUPANCY": "occupancy",
    "IMPACT": "impact",
    "SHARE ERROR": "share error of programs, mean",
    "LOST GPU-H": "GPU-hours lost",
}
"""The measures in the table of settings; those of all are in the files."""
_PARTS = {Unit.RATIO, Unit.INDEX}


def sweep_options(command: C) -> C:
    """Give ``simulate`` the options of a sweep."""
    options = (
        click.option(
            "--sweep",
            "axes",
            multiple=True,
            metavar="NAME=VALUE,VALUE",
            help="Play every combination of such values of other options, as lookback=1d,7d, and say which wins.",
        ),
        click.option("--seeds", type=Whole("seeds", 1, 1_000), help="Play each for so many seeds, from the given one."),
        click.option(
            "--runs",
            type=FILE,
            default=Path("sweep.jsonl"),
            show_default=True,
            metavar="FILE",
            help="Where finished runs are kept; the same sweep goes on from there.",
        ),
        click.option("--processes", type=Whole("processes", 1, 1_024), help="Runs at once.  [default: one a core]"),
    )
    for option in reversed(options):
        command = option(command)
    return command


def run_sweep(
    given: dict[str, Any],
    policies: Sequence[str],
    axes: Sequence[str],
    seeds: int,
    runs: Path,
    processes: int | None,
) -> list[Done]:
    """Play all runs that can be, show progress and the tables, and give what was found, in the order of the runs."""
    planned = points_of(given, policies, axes, seeds)
    _tell_impossible([each for each in planned if isinstance(each, Done)])
    points = [each for each in planned if isinstance(each, Point)]
    played = iter(_played(points, runs, processes) if points else ())
    found = [each if isinstance(each, Done) else next(played) for each in planned]
    click.echo(table([{"outcome": outcome} for outcome in outcomes(found)], _settings_table(found)))
    if won := winners(found):
        click.echo()
        click.echo(table([{"winner": winner} for winner in won], _WINNERS))
    sys.stdout.flush()
    return found


def verdict(found: Sequence[Done]) -> None:
    """Raise what a sweep failed at, when all that was found is shown: a run broke off, or none could be played."""
    if broken := sum(done.broken for done in found):
        raise GpuBudgetError(
            f"{count(broken, 'run')} broke off: the table says why", hint="the same command plays only what broke off"
        )
    if all(done.why_not for done in found):
        raise InvalidInputError("none of the runs could be played", hint="the table says why")


def _tell_impossible(refused: Sequence[Done]) -> None:
    """Say before the first run which combinations are left out, and why."""
    told = outcomes(refused)
    for outcome in told[:_TOLD]:
        say(printable(f"left out: {outcome}: {_why_not(outcome)}"))
    if others := told[_TOLD:]:
        say(f"left out: {count(len(others), 'more combination')}, which the table names")


def _played(points: Sequence[Point], runs: Path, processes: int | None) -> list[Done]:
    """All runs, played now or found in ``runs``, with progress on stderr."""
    began, first = time.monotonic(), 0

    def progress(done: int, last: Done) -> None:
        nonlocal first
        first = first or done
        here, took = done - first + 1, time.monotonic() - began
        left = about_duration(int(took / here * (len(points) - done)) * SECOND)
        rest = f"; about {left} left" if here > 1 and done < len(points) else ""
        fate = f" {'broke off' if last.broken else 'cannot be'}: {last.why_not}" if last.why_not else ""
        say(printable(f"{done} of {count(len(points), 'run')} done: {last}{fate}{rest}"))

    try:
        found = sweep(points, runs, processes or len(os.sched_getaffinity(0)), progress)
    except KeyboardInterrupt:
        say(f"stopped; the finished runs are in {runs}, and the same command goes on from there")
        raise
    if not first:
        say(f"all {count(len(points), 'run')} were finished before: they are from {runs}")
    return found


def points_of(given: dict[str, Any], policies: Sequence[str], axes: Sequence[str], seeds: int) -> list[Point | Done]:
    """Every combination of the values, for every seed; the last name changes first, seeds before it.

    A combination that cannot be has runs that are over, with the reason. Where none can be, and all for the same
    reason, it is none of the combinations that is wrong: that error is raised.
    """
    named = [_axis(axis) for axis in axes]
    if len(set(policies)) > 1:
        named.append(("policy", [(policy, policy) for policy in dict.fromkeys(policies)]))
    if len({name for name, _ in named}) < len(named):
        raise UsageError("a name is swept twice", hint="give all its values in one --sweep")
    if (runs := seeds * prod(len(choices) for _, choices in named)) > _MOST_RUNS:
        raise UsageError(f"these are {runs:,} runs; at most {_MOST_RUNS:,} are one sweep")
    seed, tree_of = "seed" if given["synthetic"] is None else "synthetic", cache(read_tree)
    found: list[Point | Done] = []
    errors: list[GpuBudgetError] = []
    for values in product(*(choices for _, choices in named)):
        chosen = {name: value for (name, _), (_, value) in zip(named, values, strict=True)}
        setting: Setting = tuple((name, text) for (name, _), (text, _) in zip(named, values, strict=True))
        policy = str(chosen.pop("policy", policies[0]))
        options = given | {name.replace("-", "_"): value for name, value in chosen.items()}
        drawn = range(given[seed], given[seed] + seeds)
        try:
            check(choice_of(options), tree_of)
        except GpuBudgetError as error:
            errors.append(error)
            found += [Done("", setting, each, why_not=str(error)) for each in drawn]
        else:
            found += [Point(setting, each, policy, choice_of(options | {seed: each})) for each in drawn]
    if len(errors) * seeds == len(found) and len({str(error) for error in errors}) == 1:
        raise errors[0]
    return found


def _axis(text: str) -> tuple[str, list[tuple[str, Any]]]:
    """The name and the values of ``--sweep``, as they were written and as they are meant."""
    name, equals, values = text.partition("=")
    name, texts = name.strip().replace("_", "-"), [value.strip() for value in values.split(",")]
    kinds = {option: kind for option, kind, _, _ in OPTIONS if kind is not None and option not in {"seed", "synthetic"}}
    kinds["policy"] = click.Choice(list(POLICIES))
    if not equals or not all(texts) or len(set(texts)) < len(texts):
        raise UsageError(f"--sweep {shown(text)} is no list of values", hint="write --sweep lookback=1d,3d,7d")
    if name not in kinds:
        raise UsageError(f"--sweep {shown(name)} names no setting", hint=f"the settings are {', '.join(kinds)}")
    try:
        return name, [(value, kinds[name].convert(value, None, None)) for value in texts]
    except click.UsageError as error:
        raise UsageError(f"--sweep {name}: {error.message}") from None


def _settings_table(found: Sequence[Done]) -> list[Column]:
    """A column for what is swept, one for each of the few measures that any run has, means over seeds.

    Where some run was not played, a last one says why.
    """
    units = {figure.name: figure.unit for done in found for figure in done.figures}

    def mean(name: str) -> Callable[[dict[str, Any]], object]:
        def show(row: dict[str, Any]) -> object:
            spread = row["outcome"].spreads.get(name)
            return None if spread is None else _text(spread.mean, units[name])

        return show

    shown = [Column(header, mean(name), right=True) for header, name in _SHOWN.items() if name in units]
    seeds = Column("SEEDS", lambda row: row["outcome"].seeds, right=True)
    failed = any(done.why_not for done in found)
    why = [Column("NOT PLAYED", lambda row: _why_not(row["outcome"]))] if failed else []
    return [Column("SETTING", lambda row: str(row["outcome"])), seeds, *shown, *why]


def _why_not(outcome: Outcome) -> str:
    """Why a setting was not played, with the seeds where that is not so for all of them."""
    whole = not outcome.seeds and len(outcome.not_played) == 1
    return "; ".join(
        why if whole else f"seed {', '.join(map(str, seeds))}: {why}" for why, seeds in outcome.not_played.items()
    )


def _won(show: Callable[[Winner], object]) -> Callable[[dict[str, Any]], object]:
    """What is shown of a winner, where somebody has won."""

    def column(row: dict[str, Any]) -> object:
        winner: Winner = row["winner"]
        return show(winner) if winner.best else None

    return column


def _names(winner: Winner) -> str:
    others = len(winner.best) - 1
    return f"{winner.best[0]} and {others} more" if others else str(winner.best[0])


def _figure(winner: Winner, which: str) -> str:
    return _text(getattr(winner.best[0].spreads[winner.name], which), winner.unit)


def _text(value: Fraction, unit: Unit) -> str:
    """A mean as its unit wants it: whole milliseconds and counts."""
    return report.figure(value if unit in _PARTS else round(value), unit)


_WINNERS = [
    Column("MEASURE", lambda row: row["winner"].name),
    Column("BEST", _won(_names)),
    Column("MEAN", _won(lambda winner: _figure(winner, "mean")), right=True),
    Column("FROM", _won(lambda winner: _figure(winner, "low")), right=True),
    Column("TO", _won(lambda winner: _figure(winner, "high")), right=True),
    Column("CLEAR", _won(lambda winner: "yes" if winner.clear else "no")),
]


def as_json(found: Sequence[Done]) -> str:
    """All settings with the spread of each measure over seeds, and who won; times and GPU-time in milliseconds.

    ``not_played`` of a setting has the seeds that it was not played for, with the reason.
    """
    won = winners(found)
    units = {winner.name: winner.unit for winner in won}
    settings = [
        {
            "setting": dict(outcome.setting),
            "seeds": outcome.seeds,
            "not_played": [{"seeds": seeds, "why": why} for why, seeds in outcome.not_played.items()],
            "measures": {
                name: {end: _number(getattr(spread, end), units[name]) for end in ("mean", "low", "high")}
                for name, spread in outcome.spreads.items()
            },
        }
        for outcome in outcomes(found)
    ]
    best = [
        {
            "measure": winner.name,
            "unit": winner.unit.value,
            "best": [dict(outcome.setting) for outcome in winner.best],
            "clear": winner.clear,
        }
        for winner in won
    ]
    return json.dumps({"settings": settings, "winners": best}, indent=1, ensure_ascii=False) + "\n"


def as_csv(found: Sequence[Done]) -> str:
    """A row for each run: its setting, its seed, why it was not played, and all its measures.

    Times and GPU-time are in milliseconds.
    """
    names = list(dict.fromkeys(figure.name for done in found for figure in done.figures))
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*(name for name, _ in found[0].setting), "seed", "not_played", *names])
    for done in found:
        values = {
            figure.name: _number(figure.value, figure.unit) for figure in done.figures if figure.value is not None
        }
        setting = [value for _, value in done.setting]
        writer.writerow([*setting, done.seed, done.why_not, *(values.get(name) for name in names)])
    return stream.getvalue()


def _number(value: Fraction, unit: Unit) -> int | float:
    return round(float(value), 6) if unit in _PARTS else round(value)
