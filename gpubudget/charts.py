"""Charts as SVG text, for pages that people read: a report, a dashboard.

A chart is a function of plain figures and a width in pixels; the same figures give the same text. It brings no colours
of its own: shapes have classes, and ``CSS`` gives those their colours, for a light and for a dark page and for print.
Text stays at its size, so a narrow page asks for a narrow chart instead of shrinking a wide one. What stands in a
``title`` is shown by browsers as a hint. Nothing here knows what the figures mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from gpubudget.units import DAY, HOUR, MINUTE, SECOND, about_duration

HUES = 8
"""There are as many colours for things that differ only by name: the classes ``hue1`` to ``hue8``."""

CSS = """
:root { --ink: #1b2430; --soft: #5b6675; --rule: #e1e5ea; --page: #ffffff; --panel: #f5f7f9;
  --hue1: #3a6fb5; --hue2: #e0983b; --hue3: #469b7c; --hue4: #b9587c; --hue5: #7a69b8; --hue6: #43a3b4;
  --hue7: #98784a; --hue8: #cb6d56; --other: #93a0ae; --unallocated: #c6d2df; --wanted: #f4d3cb; --nodemand: #eef1f4;
  --drained: #5f6873; --good: #217a4b; --bad: #c0392b; }
@media (prefers-color-scheme: dark) { @media screen { :root { --ink: #e4e9ef; --soft: #98a4b3; --rule: #2d3641;
  --page: #11161c; --panel: #19202a; --hue1: #5c94dc; --hue2: #dba054; --hue3: #56ae8c; --hue4: #cf7396;
  --hue5: #9482d4; --hue6: #52b6c6; --hue7: #b08f5e; --hue8: #dd8067; --other: #6f7d8d; --unallocated: #43566b;
  --wanted: #5d3a37; --nodemand: #1f2731; --drained: #aab3be; --good: #5cc492; --bad: #ef7d70; } } }
svg.chart { display: block; max-width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: var(--soft); }
svg.chart .rule { stroke: var(--rule); fill: none; }
svg.chart .axis { stroke: var(--soft); fill: none; }
svg.chart .limit { stroke: var(--bad); stroke-dasharray: 4 3; fill: none; }
svg.chart .mark { stroke: var(--ink); stroke-width: 2.5; fill: none; }
svg.chart .curve { stroke: var(--hue1); stroke-width: 2; fill: none; stroke-linejoin: round; }
svg.chart .label { fill: var(--ink); } svg.chart .note { fill: var(--soft); }
svg.chart .area { stroke: var(--page); stroke-width: .6; }
svg.chart .thick { opacity: .55; } svg.chart .thin { opacity: .25; }
.hue1 { fill: var(--hue1); background: var(--hue1); } .hue2 { fill: var(--hue2); background: var(--hue2); }
.hue3 { fill: var(--hue3); background: var(--hue3); } .hue4 { fill: var(--hue4); background: var(--hue4); }
.hue5 { fill: var(--hue5); background: var(--hue5); } .hue6 { fill: var(--hue6); background: var(--hue6); }
.hue7 { fill: var(--hue7); background: var(--hue7); } .hue8 { fill: var(--hue8); background: var(--hue8); }
.other { fill: var(--other); background: var(--other); } .drained { fill: var(--drained); background: var(--drained); }
.unallocated { fill: var(--unallocated); background: var(--unallocated); }
.wanted { fill: var(--wanted); background: var(--wanted); }
.nodemand { fill: var(--nodemand); background: var(--nodemand); }
.ink { fill: var(--ink); background: var(--ink); }
"""

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 20, 24
_ROW = 26
_LABEL = 150
_LETTERS, _LETTER_WIDTH = 44, 6.8
_NARROW = 480
_WAIT_TICKS = (SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY)
_STEP_WIDTH = 6
_NAME_WIDTH = 26
_UNITS = ((DAY, "day", 2 * DAY), (HOUR, "hour", 2 * HOUR), (MINUTE, "minute", -1))
"""What an axis counts in, and in spans longer than what."""

_EDGE = 20
"""So near to the right edge a label ends at its tick."""

_DATES = 3_650 * DAY
"""Times that are later count from 1970: there are dates to show."""

_STEPS = (
    MINUTE,
    5 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    56 * DAY,
    112 * DAY,
    365 * DAY,
)


@dataclass(frozen=True, slots=True)
class Band:
    """One layer of a stack: a value from each edge to the next, and the class that colours it."""

    name: str
    css: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Bullet:
    """A bar with a mark: how much there was beside how much was due, and (faint) how much was wanted."""

    name: str
    css: str
    value: float
    mark: float
    wanted: float
    hint: str


@dataclass(frozen=True, slots=True)
class Range:
    """Durations in milliseconds: the middle, and how far the slower ones reach; ``note`` stands beside the name."""

    name: str
    note: str
    p50: int
    p90: int
    p99: int


def stack(edges: Sequence[int], bands: Sequence[Band], width: int, height: int, unit: str) -> str:
    """Areas upon each other over time, the first at the bottom; ``edges`` has one moment more than each band."""
    edges, bands = _coarser(edges, bands, width // _STEP_WIDTH)
    sums = [0.0] * (len(edges) - 1)
    most = max((sum(values) for values in zip(*(band.values for band in bands), strict=True)), default=0.0)
    x, y = _time_scale(edges[0], edges[-1], width), _value_scale(most, height)
    parts = [_value_axis(most, width, height, unit)]
    for band in bands:
        tops = [base + value for base, value in zip(sums, band.values, strict=True)]
        if any(band.values):
            there = _steps(edges, tops, x, y)
            back = _steps(edges[::-1], sums[::-1], x, y)
            mean = _weighted_mean(edges, band.values)
            parts.append(
                _titled(f'<path class="area {band.css}" d="M{there}L{back}Z"', f"{band.name}: {mean:,.0f} {unit}")
            )
        sums = tops
    parts.append(_time_axis(edges[0], edges[-1], width, height))
    return _svg(width, height, f"{unit} over time, by kind", parts)


def columns(edges: Sequence[int], bands: Sequence[Band], width: int, height: int, unit: str) -> str:
    """Columns over time, one from each edge to the next, made of bands upon each other."""
    totals = [sum(values) for values in zip(*(band.values for band in bands), strict=True)]
    most = max(totals, default=0.0)
    x, y = _time_scale(edges[0], edges[-1], width), _value_scale(most, height)
    parts = [_value_axis(most, width, height, unit)]
    base = [0.0] * len(totals)
    for band in bands:
        for place, value in enumerate(band.values):
            if value:
                left, right = x(edges[place]), x(edges[place + 1])
                low, high = y(base[place]), y(base[place] + value)
                gap = 1.0 if right - left > 4 else 0.0  # noqa: PLR2004 - narrower columns would vanish in their gaps
                shape = f'<rect class="{band.css}" x="{_n(left)}" y="{_n(high)}" width="{_n(right - left - gap)}"'
                parts.append(_titled(f'{shape} height="{_n(low - high)}"', f"{value:,.0f} {unit}, {band.name}"))
                base[place] += value
    parts.append(_time_axis(edges[0], edges[-1], width, height))
    return _svg(width, height, f"{unit} over time", parts)


def curve(points: Sequence[tuple[int, float]], start: int, width: int, height: int, *, limit: float, name: str) -> str:
    """A line of shares (1 is all) over time, and a dashed one at the limit it is held against."""
    end = points[-1][0] if points else start + HOUR
    most = max([limit * 1.5, *(value for _, value in points)])
    x, y = _time_scale(start, end, width), _value_scale(most, height)
    line = " ".join(f"{_n(x(at))},{_n(y(value))}" for at, value in points)
    parts = [
        _value_axis(most, width, height, "", lambda value: f"{value:.0%}"),
        f'<path class="limit" d="M{_LEFT},{_n(y(limit))}H{width - _RIGHT}"/>',
        f'<polyline class="curve" points="{line}"/>',
        _time_axis(start, end, width, height),
    ]
    return _svg(width, height, f"{name} over time", parts)


def bullets(rows: Sequence[Bullet], width: int, unit: str) -> str:
    """Bars from zero, one a row, with marks. What was wanted is cut off where the others would become too small."""
    left, lift = (_LABEL, 0) if width >= _NARROW else (4, 16)
    most = max((max(row.value, row.mark) for row in rows), default=0.0) * 1.12 or 1.0
    height = (_ROW + lift) * len(rows) + _BOTTOM
    room = width - left - _RIGHT
    parts = []
    for tick in _ticks(most, 6 if lift == 0 else 3):
        at = _n(left + room * tick / most)
        parts.append(f'<path class="rule" d="M{at},0V{height - _BOTTOM}"/>')
        parts.append(f'<text x="{at}" y="{height - 6}" text-anchor="middle">{_short(tick)}</text>')
    for place, row in enumerate(rows):
        top = place * (_ROW + lift) + lift
        wanted, value, mark = (room * min(1.0, part / most) for part in (row.wanted, row.value, row.mark))
        parts.append(_row_name(row.name, "", left, top, lift))
        parts.append(
            f"<g><title>{escape(row.hint)}</title>"
            f'<rect class="{row.css} thin" x="{left}" y="{top + 4}" width="{_n(wanted)}" height="{_ROW - 8}"/>'
            f'<rect class="{row.css}" x="{left}" y="{top + 8}" width="{_n(value)}" height="{_ROW - 16}"/>'
            f'<path class="mark" d="M{_n(left + mark)},{top + 2}v{_ROW - 4}"/></g>'
        )
        if row.wanted > most:
            parts.append(f'<text x="{width - 2}" y="{top + 17}" text-anchor="end">&#8250;</text>')
    parts.append(f'<path class="axis" d="M{left},0V{height - _BOTTOM}"/>')
    return _svg(width, height, f"{unit} by row, with what was due", parts)


def ranges(rows: Sequence[Range], width: int) -> str:
    """Durations on a logarithmic axis, one row each: a dot at the median, a bar to the 90th and on to the 99th."""
    left, lift = (_LABEL + 26, 0) if width >= _NARROW else (6, 16)
    longest = max((row.p99 for row in rows), default=SECOND)
    last = next((tick for tick in _WAIT_TICKS if tick >= longest), _WAIT_TICKS[-1])
    height, room = (_ROW + lift) * len(rows) + _BOTTOM, width - left - 26

    def x(wait: int) -> float:
        shown = min(max(wait, SECOND), last)
        return left + room * math.log(shown / SECOND) / math.log(max(last, 10 * SECOND) / SECOND)

    parts, free = [], 0.0
    for tick in (tick for tick in _WAIT_TICKS if tick <= last):
        at = _n(x(tick))
        name = "1s or less" if tick == SECOND and lift == 0 else about_duration(tick)
        parts.append(f'<path class="rule" d="M{at},0V{height - _BOTTOM}"/>')
        if x(tick) >= free:  # names must not touch
            parts.append(f'<text x="{at}" y="{height - 6}" text-anchor="middle">{name}</text>')
            free = x(tick) + _NAME_WIDTH
    for place, row in enumerate(rows):
        middle = place * (_ROW + lift) + lift + _ROW / 2
        p50, p90, p99 = x(row.p50), x(row.p90), x(row.p99)
        hint = f"{row.name}: half at most {about_duration(row.p50)}, 90% {about_duration(row.p90)}"
        parts.append(_row_name(row.name, row.note, left, place * (_ROW + lift) + lift, lift))
        parts.append(
            f"<g><title>{escape(hint)}, 99% {about_duration(row.p99)}</title>"
            f'<rect class="hue1 thin" x="{_n(p50)}" y="{_n(middle - 5)}" width="{_n(p99 - p50)}" height="10" rx="5"/>'
            f'<rect class="hue1 thick" x="{_n(p50)}" y="{_n(middle - 5)}" width="{_n(p90 - p50)}" height="10" rx="5"/>'
            f'<circle class="hue1" cx="{_n(p50)}" cy="{_n(middle)}" r="6"/></g>'
        )
    return _svg(width, height, "waits by row, logarithmic", parts)


def bar(parts: Sequence[tuple[str, str, float]], width: int, height: int = 22) -> str:
    """One bar of the whole, divided into (name, class, share) from left to right."""
    shapes, left = [], 0.0
    for name, css, share in parts:
        shape = f'<rect class="{css}" x="{_n(left)}" y="0" width="{_n(share * width)}" height="{height}"'
        shapes.append(_titled(shape, f"{name}: {share:.1%}"))
        left += share * width
    return _svg(width, height, "parts of the whole", shapes)


def standalone(chart: str) -> str:
    """A chart as a picture of its own, with its colours and a ground to stand on; for a file beside a text."""
    head, _, rest = chart.partition(">")
    ground = '<rect width="100%" height="100%" style="fill:var(--page)"/>'
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{CSS}</style>{ground}{rest}\n'


def _svg(width: int, height: int, about: str, parts: Sequence[str]) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg class="chart" role="img" aria-label="{escape(about)}" {size}>{"".join(parts)}</svg>'


def _titled(shape: str, hint: str) -> str:
    return f"{shape}><title>{escape(hint)}</title></{shape[1:].split(' ', 1)[0]}>"


def _n(number: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{number:.1f}".removesuffix(".0")


def _row_name(name: str, note: str, left: int, top: int, lift: int) -> str:
    """The name of a row, left of it or, on a narrow chart, above it; cut to what fits into the margin."""
    most = _LETTERS if lift else int(left / _LETTER_WIDTH)
    room = most - (len(note) + 1 if note else 0)
    shown = escape(name if len(name) <= room else f"{name[: room - 1]}…")
    beside = f'<tspan class="note" dx="7">{escape(note)}</tspan>' if note else ""
    if lift:
        return f'<text class="label" x="{left}" y="{top - 2}">{shown}{beside}</text>'
    return f'<text class="label" x="{left - 10}" y="{top + _ROW / 2 + 4:g}" text-anchor="end">{shown}{beside}</text>'


def _steps(
    edges: Sequence[int], values: Sequence[float], x: Callable[[float], float], y: Callable[[float], float]
) -> str:
    """The path of a value that changes at the edges only, forwards or backwards in time."""
    corners = [f"{_n(x(edges[0]))},{_n(y(values[0]))}"]
    for place, value in enumerate(values):
        if place and value != values[place - 1]:
            corners.append(f"V{_n(y(value))}")
        corners.append(f"H{_n(x(edges[place + 1]))}")
    return "".join(corners)


def _coarser(edges: Sequence[int], bands: Sequence[Band], most: int) -> tuple[Sequence[int], Sequence[Band]]:
    """The same bands over at most so many steps, each the mean of those that it takes the place of."""
    stride = -(-(len(edges) - 1) // max(1, most))
    if stride <= 1:
        return edges, bands
    starts = range(0, len(edges) - 1, stride)
    merged = [
        Band(
            band.name,
            band.css,
            [_weighted_mean(edges[at : at + stride + 1], band.values[at : at + stride]) for at in starts],
        )
        for band in bands
    ]
    return [*(edges[at] for at in starts), edges[-1]], merged


def _weighted_mean(edges: Sequence[int], values: Sequence[float]) -> float:
    weighed = sum(value * (edges[place + 1] - edges[place]) for place, value in enumerate(values))
    return weighed / (edges[-1] - edges[0])


def _time_scale(start: int, end: int, width: int) -> Callable[[float], float]:
    room = width - _LEFT - _RIGHT
    return lambda at: _LEFT + room * (at - start) / max(1, end - start)


def _value_scale(most: float, height: int) -> Callable[[float], float]:
    room = height - _TOP - _BOTTOM
    return lambda value: height - _BOTTOM - room * value / (most or 1)


def _ticks(most: float, about: int) -> list[float]:
    """Round values from 0 to ``most``, about so many."""
    rough = (most or 1) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.99)
    return [step * place for place in range(int(most / step + 1e-9) + 1)]


def _short(value: float) -> str:
    """A number for an axis: ``1,500`` up to five digits, then thousands and millions."""
    for size, letter in ((1_000_000, "M"), (10_000, "k")):
        if value >= size:
            return f"{value / (1000 if letter == 'k' else size):g}{letter}"
    return f"{value:,g}" if value >= 1 or value == 0 else f"{value:g}"


def _value_axis(most: float, width: int, height: int, unit: str, show: Callable[[float], str] = _short) -> str:
    y, parts = _value_scale(most, height), []
    for tick in _ticks(most, 4):
        at = _n(y(tick))
        parts.append(f'<path class="rule" d="M{_LEFT},{at}H{width - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{_n(y(tick) + 4)}" text-anchor="end">{show(tick)}</text>')
    parts.append(f'<text x="2" y="10">{escape(unit)}</text>' if unit else "")
    return "".join(parts)


def _time_axis(start: int, end: int, width: int, height: int) -> str:
    """Days (hours or minutes, of short runs) since the start; dates and times in UTC where a run has some."""
    x, about = _time_scale(start, end, width), max(4, width // 90)
    span = end - start
    step = next((step for step in _STEPS if span / step <= about), -(-span // about // DAY) * DAY)
    unit, name = next((unit, name) for unit, name, least in _UNITS if span > least)
    dated = start >= _DATES
    step = step if dated else max(step, unit)
    first = start + -start % min(step, DAY) if dated else start
    parts = [f'<path class="axis" d="M{_LEFT},{height - _BOTTOM}H{width - _RIGHT}"/>']
    for place, moment in enumerate(range(first, end + 1, step)):
        right = x(moment) > width - _RIGHT - _EDGE
        at = _n(x(moment))
        number = f"{(moment - start) / unit:g}"
        text = _date(moment, step, first=place == 0) if dated else f"{name} {number}" if place == 0 else number
        anchor = "end" if right else "start" if place == 0 else "middle"
        parts.append(f'<path class="axis" d="M{at},{height - _BOTTOM}v4"/>')
        parts.append(f'<text x="{at}" y="{height - 7}" text-anchor="{anchor}">{text}</text>')
    return "".join(parts)


def _date(moment: int, step: int, *, first: bool) -> str:
    """A day, or a time of day; the first one with its day, and midnight as its day."""
    try:
        at = datetime.fromtimestamp(moment // 1_000, UTC)
    except (OSError, OverflowError, ValueError):  # beyond the year 9999
        return ""
    day = f"{at.day} {at:%b}"
    if step >= DAY or (at.hour == at.minute == 0 and not first):
        return day
    return f"{day} {at:%H:%M}" if first else f"{at:%H:%M}"
