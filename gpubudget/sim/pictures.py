"""Which chart shows what of a run: from measures to SVG, once for a wide page and once for a narrow one.

``charts.py`` knows how to draw and nothing of runs; this knows runs and nothing of drawing. The same program has the
same colour in every chart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpubudget.charts import HUES, Band, Bullet, Range, bar, bullets, columns, curve, ranges, stack
from gpubudget.sim.fairness import WITHIN
from gpubudget.sim.measures import Measures
from gpubudget.sim.series import Layer
from gpubudget.sim.waits import Waits
from gpubudget.units import HOUR

WIDE, NARROW = 960, 344
OTHERS = "all others"
_MOST_NAMES = 9
_REST = {
    "unallocated": "unallocated",
    "idle, wanted": "wanted",
    "idle, no demand": "nodemand",
    "drained": "drained",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: the class of its colour and what it stands for."""

    css: str
    name: str


def hues(run: Measures) -> dict[str, str]:
    """The class of each program: the eight with the most GPU-time have a colour of their own."""
    names = [layer.name for layer in run.series.programs]
    names += [budget.path for budget in run.programs if budget.path not in names]
    few = len(names) <= HUES
    return {name: f"hue{place + 1}" if few or place < HUES - 1 else "other" for place, name in enumerate(names)}


def occupancy(run: Measures) -> str:
    """Who held the GPUs over time."""
    bands = _bands(run)
    return _both(lambda width: stack(run.series.edges, bands, width, 290 if width == WIDE else 220, "GPUs"))


def occupancy_key(run: Measures) -> list[Key]:
    """The legend of ``occupancy``, from the bottom upwards."""
    return [Key(band.css, band.name) for band in _bands(run) if any(band.values)]


def _bands(run: Measures) -> list[Band]:
    colours = hues(run)
    own = [layer for layer in run.series.programs if colours[layer.name] != "other"]
    others = [layer for layer in run.series.programs if colours[layer.name] == "other"]
    bands = [Band(layer.name, colours[layer.name], _floats(layer)) for layer in own]
    if others:
        summed = [float(sum(values)) for values in zip(*(layer.gpus for layer in others), strict=True)]
        bands.append(Band(f"{OTHERS} ({len(others)})", "other", summed))
    return [*bands, *(Band(layer.name, _REST[layer.name], _floats(layer)) for layer in run.series.rest)]


def _floats(layer: Layer) -> list[float]:
    return [float(gpus) for gpus in layer.gpus]


def side_by_side(runs: Sequence[tuple[str, Measures]], kind: str) -> str:
    """Waits of one group in several runs; nothing if none has it."""
    rows = []
    for name, run in runs:
        found = [group for group in (*run.waits, *run.debug) if group.name == kind]
        rows += [replace(group, name=name) for group in found]
    return waits(tuple(rows), counted=False) if rows else ""


def capacity(run: Measures) -> str:
    """Where all GPU-time went, as one bar."""
    parts = [(name, css, share) for name, css, _, share in capacity_parts(run) if share]
    return _both(lambda width: bar(parts, width))


def capacity_parts(run: Measures) -> list[tuple[str, str, int, float]]:
    """Name, class, GPU-time and share of each part of the capacity."""
    there = run.capacity
    parts = (
        ("funded work", "hue1", there.allocated_gpu_ms),
        ("unallocated work", "unallocated", there.unallocated_gpu_ms),
        ("idle while wanted", "wanted", there.unmet_gpu_ms),
        ("idle, no demand", "nodemand", there.no_demand_gpu_ms),
        ("drained", "drained", there.drained_gpu_ms),
    )
    return [(name, css, part, part / (there.capacity_gpu_ms or 1)) for name, css, part in parts]


def budgets(run: Measures) -> str:
    """What programs got beside what they were entitled to and wanted."""
    colours = hues(run)
    rows = [
        Bullet(
            budget.path,
            colours.get(budget.path, "other"),
            budget.delivered_gpu_ms / HOUR,
            budget.entitled_gpu_ms / HOUR,
            budget.demanded_gpu_ms / HOUR,
            f"{budget.path}: {budget.delivered_gpu_ms / HOUR:,.0f} of {budget.entitled_gpu_ms / HOUR:,.0f} GPU-hours "
            f"entitled; {budget.demanded_gpu_ms / HOUR:,.0f} demanded",
        )
        for budget in run.programs
    ]
    return _both(lambda width: bullets(rows, width, "GPU-hours"))


def waits(groups: tuple[Waits, ...], *, counted: bool = True) -> str:
    """Waits for the first start, one row a group, with how many waited beside its name if that is ``counted``."""
    rows = [
        Range(
            group.name,
            f"{group.workloads:,}" if counted else "",
            group.first.p50_ms,
            group.first.p90_ms,
            group.first.p99_ms,
        )
        for group in groups
        if group.first.p50_ms is not None and group.first.p90_ms is not None and group.first.p99_ms is not None
    ]
    return _both(lambda width: ranges(rows, width))


def program_waits(run: Measures) -> str:
    """The same for each program with all below it."""
    return waits(tuple(budget.waits for budget in run.programs))


def share_error(run: Measures) -> str:
    """The share error of programs over time."""
    points = [(point.at, float(point.error)) for point in run.fairness.programs.points]
    start, limit = run.start_ms, float(WITHIN)
    return _both(lambda width: curve(points, start, width, 200, limit=limit, name="share error"))


def preemptions(run: Measures) -> str:
    """GPUs taken over time, from unallocated and from funded work."""
    bins, width_ms = run.series.bins, run.series.bin_ms
    edges = [*(one.at for one in bins), bins[-1].at + width_ms] if bins else [0, width_ms]
    bands = [
        Band("from unallocated work", "unallocated", [float(one.unallocated) for one in bins]),
        Band("from funded work past its minimum", "hue2", [float(one.funded) for one in bins]),
    ]
    return _both(lambda width: columns(edges, bands, width, 200, "GPUs"))


def _both(draw: Callable[[int], str]) -> str:
    """The chart at both widths; the page shows the one that fits."""
    return f'<div class="wide">{draw(WIDE)}</div><div class="narrow">{draw(NARROW)}</div>'


@dataclass(frozen=True, slots=True)
class Cell:
    """How often one program made way for another, and how strongly that is shown (0 to 1)."""

    preemptions: int
    lost_gpu_ms: int
    heat: float


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A program that made way: for each other, in the order of the columns."""

    victim: str
    cells: tuple[Cell, ...]


def matrix(run: Measures) -> tuple[tuple[str, ...], tuple[MatrixRow, ...]]:
    """Who made way for whom: the names of the columns, and a row for each victim. The programs most involved only."""
    pairs = {(pair.victim, pair.beneficiary): pair for pair in run.preemptions.pairs}
    involved: Counter[str] = Counter()
    for pair in run.preemptions.pairs:
        involved.update({pair.victim: pair.preemptions})
        involved.update({pair.beneficiary: pair.preemptions})
    shown = [name for name, _ in involved.most_common(_MOST_NAMES)]
    columns_of = tuple(name for name in shown if any(beneficiary == name for _, beneficiary in pairs))
    rows_of = tuple(name for name in shown if any(victim == name for victim, _ in pairs))
    most = max((pair.preemptions for pair in pairs.values()), default=1)

    def cell(victim: str, beneficiary: str) -> Cell:
        pair = pairs.get((victim, beneficiary))
        return Cell(pair.preemptions, pair.lost_gpu_ms, pair.preemptions / most) if pair else Cell(0, 0, 0.0)

    return columns_of, tuple(MatrixRow(name, tuple(cell(name, other) for other in columns_of)) for name in rows_of)
