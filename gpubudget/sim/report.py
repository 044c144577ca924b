"""The report of one run or of several: a page for people, JSON for programs, and a table of all workloads.

The page is one file that needs nothing else: charts are drawn into it, and nothing is loaded or run. The same runs
give the same bytes. Nothing is computed here that ``measures.py`` does not give; this only says it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from io import StringIO
from typing import Any, TextIO

import jinja2

from gpubudget import charts
from gpubudget.sim import pictures
from gpubudget.sim.compare import Unit, differences, programs, side_by_side
from gpubudget.sim.measures import Measures
from gpubudget.sim.result import Result, Row
from gpubudget.sim.waits import Quantiles, first_wait
from gpubudget.units import HOUR, about_duration, format_duration

COLUMNS = (
    "workload", "owner", "budget", "pool", "gpus", "debug", "resumable", "min_runtime_ms", "run_time_ms",
    "submitted_ms", "first_start_ms", "ended_ms", "end", "first_wait_ms", "wait_ms", "attempts", "preemptions",
    "drains", "host_losses", "held_gpu_ms", "lost_gpu_ms", "lane", "reason",
)  # fmt: skip
"""The columns of the table of workloads."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run with its figures, and what it is called beside others."""

    name: str
    result: Result
    measures: Measures


def page(runs: Sequence[Run], title: str = "Simulation report") -> str:
    """The report as one HTML page; with several runs they are compared first, and each then has its own part."""
    figures = [run.measures for run in runs]
    several = len(figures) > 1
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=title,
            runs=runs,
            pairs=[(run.name, run.measures) for run in runs],
            compared=side_by_side(figures) if several else (),
            programs=programs(figures) if several else (),
            changes=differences(*figures) if len(figures) == 2 else (),  # noqa: PLR2004 - before and after
            same=len({(one.workloads, one.loaded_until_ms - one.start_ms) for one in figures}) == 1,
            css=charts.CSS,
        )
    )


def as_json(runs: Sequence[Run]) -> str:
    """All figures as JSON: times in milliseconds, GPU-time in GPU-milliseconds, ratios as decimals."""
    told = [{"name": run.name, **_about(run.result), "measures": plain(run.measures)} for run in runs]
    return json.dumps({"runs": told}, indent=1, ensure_ascii=False) + "\n"


def _about(result: Result) -> dict[str, Any]:
    """What a run was made from."""
    rules = result.tree.policy
    return {
        "policy": result.policy,
        "lookback_ms": rules.lookback,
        "max_min_runtime_ms": rules.max_min_runtime,
        "debug_gpus": rules.debug.gpus if rules.debug else 0,
        "settings": dict(result.settings),
        "assumptions": list(result.assumptions),
        "bad_rows": plain(result.bad_rows),
        "refusals": plain(result.refusals),
        "pools": list(result.pools),
        "hosts": len(result.hosts),
        "gpus": sum(host.gpus for host in result.hosts),
        "host_failures": result.host_failures,
    }


def plain(value: object) -> Any:  # noqa: ANN401 - plain data has no narrower type
    """Plain data of figures; a fraction becomes a decimal with six places."""
    if isinstance(value, Fraction):
        return round(float(value), 6)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def write_csv(result: Result, stream: TextIO) -> None:
    """A row for each workload, in the order of submission; what is not known is empty. Flags are 0 or 1."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_line(row, result.end) for row in result.rows)


def as_csv(result: Result) -> str:
    """The table of workloads as text."""
    stream = StringIO()
    write_csv(result, stream)
    return stream.getvalue()


def _line(row: Row, end: int) -> Iterable[object]:
    spec = row.submission.spec
    return (
        row.id, row.owner, row.budget, row.pool, row.gpus, int(row.debug), int(spec.resumable), spec.min_runtime,
        row.run_time, row.submitted, row.first_start, row.ended, row.end.value, first_wait(row, end), row.wait_ms,
        row.attempts, row.preemptions, row.drains, row.host_losses, row.held_gpu_ms, row.lost_gpu_ms, int(row.lane),
        row.reason,
    )  # fmt: skip


NOTHING = "-"
"""Stands where there is no figure."""


def wait(millis: int | None) -> str:
    """A duration as people say it, in two units."""
    if millis is None:
        return NOTHING
    return "at once" if millis < 1 else "under 1s" if millis < 1000 else about_duration(millis)  # noqa: PLR2004 - a second


def waited(found: Quantiles) -> str:
    """How long half and 90% of a group waited, within a sentence; nothing of a group that is empty."""
    if found.p50_ms is None or found.p90_ms is None:
        return ""
    if found.p90_ms == 0:
        return "90% did not wait at all"
    half = "half did not wait at all" if found.p50_ms == 0 else f"half waited at most {wait(found.p50_ms)}"
    return f"{half}, 90% at most {wait(found.p90_ms)}"


def since(millis: int) -> str:
    """How long after the start something was so, in a table."""
    return f"{about_duration(millis)} on" if millis else "the start"


def percent(part: Fraction | float | None, digits: int = 1) -> str:
    """A ratio as a percentage; what is not quite all is not shown as all."""
    if part is None:
        return NOTHING
    shown = f"{float(part) * 100:.{digits}f}%"
    return f"{float(part) * 100:.{digits + 2}f}%" if part < 1 and shown.startswith("100") else shown


def gpu_hours(gpu_millis: int | None) -> str:
    """GPU-hours in full, with separators; one decimal where there are few."""
    if gpu_millis is None:
        return NOTHING
    hours = gpu_millis / HOUR
    return f"{hours:,.0f}" if abs(hours) >= 100 or hours == 0 else f"{hours:.1f}"  # noqa: PLR2004 - three digits say it


def number(value: int | None) -> str:
    """A count with separators."""
    return NOTHING if value is None else f"{value:,}"


def decimal(value: Fraction | None, digits: int = 2) -> str:
    """A plain ratio."""
    return NOTHING if value is None else f"{float(value):.{digits}f}"


_SHOWN: dict[Unit, Callable[[Any], str]] = {
    Unit.RATIO: percent,
    Unit.DURATION: wait,
    Unit.GPU_TIME: gpu_hours,
    Unit.COUNT: number,
    Unit.INDEX: lambda value: decimal(value, 3),
}


def figure(value: int | Fraction | None, unit: Unit) -> str:
    """A figure as its unit wants it."""
    return _SHOWN[unit](value)


def change(pair: tuple[Any, Any], show: Callable[[Any], str]) -> str:
    """How a figure moved: one text where it did not, else both with an arrow."""
    before, after = (show(value) for value in pair)
    return before if before == after else f"{before} → {after}"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpubudget.sim"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "wait": wait,
        "waited": waited,
        "since": since,
        "percent": percent,
        "gpu_hours": gpu_hours,
        "number": number,
        "decimal": decimal,
        "exact": format_duration,
        "figure": figure,
    }
    environment.globals |= {
        "pictures": pictures,
        "changed_wait": lambda pair: change(pair, wait),
        "changed_percent": lambda pair: change(pair, percent),
        "changed_hours": lambda pair: change(pair, gpu_hours),
        "changed_number": lambda pair: change(pair, number),
    }
    return environment
