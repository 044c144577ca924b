"""Charts: well-formed, true to the figures, and readable at any width."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from gpubudget.charts import CSS, Band, Bullet, Range, bar, bullets, columns, curve, ranges, stack, standalone
from gpubudget.units import DAY, HOUR, MINUTE, SECOND

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<b>&\"'x"
NOVEMBER = 1_793_491_200_000  # the first of November 2026


def parsed(text: str) -> ET.Element:
    """The chart as XML, as a browser would have it inside a page."""
    return ET.fromstring(text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def edges(count: int) -> list[int]:
    return [place * HOUR for place in range(count + 1)]


CHARTS = {
    "stack": stack(edges(3), [Band(NASTY, "hue1", [1, 2, 0]), Band("b", "hue2", [1, 0, 0])], 600, 200, "GPUs"),
    "empty stack": stack(edges(1), [Band("a", "hue1", [0])], 600, 200, "GPUs"),
    "columns": columns(edges(2), [Band(NASTY, "hue1", [3, 0])], 340, 200, "GPUs"),
    "no columns": columns([0, HOUR], [Band("a", "hue1", [])], 340, 200, "GPUs"),
    "curve": curve([(HOUR, 0.2), (2 * HOUR, 0.1)], 0, 600, 200, limit=0.05, name=NASTY),
    "no curve": curve([], 0, 600, 200, limit=0.05, name="error"),
    "bullets": bullets([Bullet(NASTY, "hue1", 5, 4, 99, NASTY)], 600, "GPU-hours"),
    "zero bullets": bullets([Bullet("a", "hue1", 0, 0, 0, "nothing")], 340, "GPU-hours"),
    "no bullets": bullets([], 340, "GPU-hours"),
    "ranges": ranges([Range(NASTY, "12", 0, MINUTE, DAY)], 600),
    "long ranges": ranges([Range("a" * 60, "1", HOUR, 900 * DAY, 5000 * DAY)], 340),
    "no ranges": ranges([], 600),
    "bar": bar([(NASTY, "hue1", 0.5), ("b", "hue2", 0.5)], 600),
}


@pytest.mark.parametrize("text", CHARTS.values(), ids=CHARTS)
def test_charts_are_well_formed_and_stay_inside(text: str) -> None:
    """Names are escaped, every coordinate is a number, and what is drawn lies within the picture (names may be cut)."""
    picture = parsed(text)
    assert "nan" not in text
    assert "inf" not in text
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    for shape in picture.iter(f"{SVG}rect"):
        x, y, wide, high = (float(shape.attrib[name]) for name in ("x", "y", "width", "height"))
        assert wide >= 0
        assert high >= 0
        assert x >= -6
        assert x + wide <= width + 6
        assert y >= -1
        assert y + high <= height + 1
    assert picture.attrib["role"] == "img"
    assert picture.attrib["aria-label"]


def test_every_class_that_is_drawn_has_a_style() -> None:
    """A shape whose class nobody coloured would be black on a dark page."""
    used = {
        name for text in CHARTS.values() for names in re.findall(r'class="([^"]+)"', text) for name in names.split()
    }
    assert {name for name in used if f".{name} " not in CSS and f".{name}," not in CSS} <= {"chart"}


def test_bands_lie_upon_each_other() -> None:
    """Three bands of 1, 2 and 1 GPU: the first touches the axis, the last the top."""
    text = stack(edges(1), [Band(str(n), f"hue{n}", [n % 2 + 1]) for n in (1, 2, 3)], 640, 244, "GPUs")
    heights = [re.findall(r"[ML]([\d.]+),([\d.]+)", path.attrib["d"]) for path in parsed(text).iter(f"{SVG}path")][-0:]
    areas = [found for found in heights if len(found) == 2]
    tops, bottoms = zip(*((float(top[1]), float(bottom[1])) for top, bottom in areas[-3:]), strict=True)
    assert bottoms[0] == 220
    assert tops[2] == 20
    assert all(bottom == top for top, bottom in zip(tops, bottoms[1:], strict=False))


def test_a_hint_tells_the_mean() -> None:
    """4 GPUs for an hour and none for three are 1 on average, also where steps were drawn together."""
    band = Band("work", "hue1", [4, 0, 0, 0])
    for width in (600, 12):
        assert "work: 1 GPUs" in stack(edges(4), [band], width, 200, "GPUs")


def test_a_narrow_chart_has_fewer_steps() -> None:
    """Of 600 values, 100 remain at 600 pixels; the last step may be shorter."""
    values = [float(place % 7) for place in range(600)]
    text = stack(edges(600), [Band("a", "hue1", values)], 600, 200, "GPUs")
    path = next(one.attrib["d"] for one in parsed(text).iter(f"{SVG}path") if "area" in one.attrib["class"])
    assert path.count("H") <= 2 * 100


def test_names_of_an_axis_do_not_touch() -> None:
    """Between the names of two ticks there is room for a name."""
    for width in (344, 600, 960):
        picture = parsed(ranges([Range("a", "", 1, DAY, 90 * DAY)], width))
        middles = [float(t.attrib["x"]) for t in picture.iter(f"{SVG}text") if t.attrib.get("text-anchor") == "middle"]
        assert all(b - a >= 26 for a, b in pairwise(middles))


def test_waits_stand_where_the_axis_says() -> None:
    """The dot of a median of one hour is on the line of one hour, and what is below a second is on that of a second."""
    for wait, name in ((HOUR, "1h"), (0, "1s or less")):
        picture = parsed(ranges([Range("a", "", wait, DAY, DAY)], 900))
        at = {text.text: float(text.attrib["x"]) for text in picture.iter(f"{SVG}text")}
        dot = next(picture.iter(f"{SVG}circle"))
        assert float(dot.attrib["cx"]) == at[name]


def test_what_was_wanted_is_cut_and_says_so() -> None:
    """Demand far beyond the rest does not squeeze it, and an arrow shows that it goes on."""
    text = bullets([Bullet("a", "hue1", 5, 4, 1000, "hint")], 600, "GPU-hours")
    value = next(float(r.attrib["width"]) for r in parsed(text).iter(f"{SVG}rect") if r.attrib["class"] == "hue1")
    assert value > 300
    assert "&#8250;" in text
    assert "&#8250;" not in bullets([Bullet("a", "hue1", 5, 4, 5, "hint")], 600, "GPU-hours")


@pytest.mark.parametrize("text", CHARTS.values(), ids=CHARTS)
def test_a_chart_can_stand_alone(text: str) -> None:
    """As a file it is an SVG picture that brings its colours along."""
    picture = ET.fromstring(standalone(text))
    assert picture.tag == f"{SVG}svg"
    assert "--hue1" in (picture[0].text or "")
    assert picture[1].attrib["height"] == "100%"


@pytest.mark.parametrize(
    ("start", "span", "labels"),
    [
        (0, 28 * DAY, ["day 0", "7", "14", "21", "28"]),
        (5, 3 * HOUR, ["hour 0", "1", "2", "3"]),
        (5, 10 * MINUTE, ["minute 0", "5", "10"]),
        (NOVEMBER, 21 * DAY, ["1 Nov", "8 Nov", "15 Nov", "22 Nov"]),
        (NOVEMBER + 20 * HOUR + MINUTE, 12 * HOUR, ["1 Nov 22:00", "2 Nov", "02:00", "04:00", "06:00", "08:00"]),
        (NOVEMBER + SECOND, 3 * MINUTE, ["1 Nov 00:01", "00:02", "00:03"]),
        (1 << 60, 1 << 61, [""]),
    ],
)
def test_a_time_axis_counts_from_the_start_or_has_dates(start: int, span: int, labels: list[str]) -> None:
    """Dates where times count from 1970, in UTC; and never more labels than there is room for."""
    chart = curve([(start + span, 0.5)], start, 700, 200, limit=0.05, name="x")
    found = re.findall(r'y="193" text-anchor="(?:start|middle|end)">([^<]*)</text>', chart)
    assert found == labels if labels != [""] else set(found) == {""} and len(found) < 20
