"""The report: one page that needs nothing else, JSON and a table, the same bytes every time."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from io import StringIO

import pytest

from gpubudget.sim.measures import measure
from gpubudget.sim.report import COLUMNS, Run, as_csv, as_json, change, gpu_hours, page, percent, wait, waited
from gpubudget.sim.result import End, Preemption, Refusal, Result
from gpubudget.sim.submission import BadRow
from gpubudget.sim.waits import quantiles
from gpubudget.units import DAY, HOUR
from tests.made_runs import Did, made, tree

NASTY = "<script>alert(1)</script>&\"'"


def a_result(budgets: int = 2, name: str = "p") -> Result:
    """A run of four hours with everything that a report may have to tell."""
    shares = {f"{name}{number}": f"1/{budgets}" for number in range(budgets)} | {f"{name}0/deep": "1"}
    did = [
        Did(f"w{number}", f"{name}{number}", 1, 0, HOUR, [(number * HOUR // 10, number * HOUR // 10 + HOUR)])
        for number in range(budgets)
    ]
    did += [
        Did("free", None, 2, 0, HOUR, [(0, HOUR)], allocated=False, preemptions=1),
        Did("debug", f"{name}0/deep", 1, HOUR, HOUR, [(HOUR, 2 * HOUR)], debug=True),
        Did("late", f"{name}1", 8, HOUR, HOUR, end=End.WAITING),
        Did("large", f"{name}1", 999, 2 * HOUR, HOUR, end=End.REFUSED, ended=2 * HOUR),
    ]
    stop = Preemption(HOUR, "free", 1, None, False, 2, 0, 0, HOUR, "w1", f"{name}1")  # noqa: FBT003 - as it is declared
    result = made(tree(shares, lookback=DAY), did, until=4 * HOUR, gpus=32, preemptions=[stop], away=[(0, HOUR, 8)])
    return replace(
        result,
        bad_rows=tuple(BadRow(line, f"bad {name}") for line in range(12)),
        refusals=(Refusal(f"too large for {name}", 1),),
        assumptions=(f"Owners of {name} are made up.",),
        host_failures=3,
        seconds=0.5,
    )


def run_of(result: Result, name: str = "one") -> Run:
    return Run(name, result, measure(result))


class Reader(HTMLParser):
    """Collects tags, attributes and text; complains about tags that do not match."""

    VOID = frozenset({"meta", "link", "br", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_the_page_needs_nothing_else() -> None:
    """No script, no picture or style from elsewhere, no address at all."""
    text = page([run_of(a_result())])
    found = read(text)
    assert not {"script", "img", "iframe", "object", "embed"} & set(found.tags)
    assert {value for name, value in found.attributes if name in {"src", "href"}} == {"data:,"}
    assert "://" not in text
    assert "@import" not in text
    assert "url(" not in text


def test_the_page_tells_what_there_is_to_tell() -> None:
    """Figures, assumptions, what was left out and refused, and who waited longest."""
    text = re.sub(r"\s+", " ", read(page([run_of(a_result())], title="My run")).text)
    for said in (
        "My run", "6 workloads", "93.8%", "not known", "Owners of p are made up.", "line 0: bad p", "and 2 more",
        "1: too large for p", "Waited longest: late of p1 with 8 GPUs", "still waiting at the end",
        "12 workloads a second", "Hosts failed 3 times", "debug, under-used",
    ):  # fmt: skip
        assert said in text, said


@pytest.mark.parametrize("budgets", [2, 15])
def test_no_figure_is_a_mistake(budgets: int) -> None:
    """Nothing is shown as None, nan or an object, with few programs and with more than there are colours."""
    text = read(page([run_of(a_result(budgets))])).text
    assert not re.search(r"\b(None|nan|inf|Undefined|Fraction|object at)\b", text)


def test_names_are_only_text() -> None:
    """Whatever a trace calls its budgets, no markup comes of it."""
    result = a_result(name=NASTY)
    text = page([run_of(result, NASTY), run_of(result, "other")], title=NASTY)
    assert "<script>" not in text
    assert NASTY in read(text).text


def test_the_same_run_gives_the_same_bytes() -> None:
    """Page, JSON and table."""
    first, second = run_of(a_result()), run_of(a_result())
    assert page([first]) == page([second])
    assert as_json([first]) == as_json([second])
    assert as_csv(first.result) == as_csv(second.result)


def test_an_empty_run_has_a_report() -> None:
    """Nothing came; that is told without a fault, also beside another run."""
    empty = run_of(made(tree({"a": "1"}), [], until=0), "empty")
    assert "0 workloads" in read(page([empty])).text
    assert "empty" in read(page([empty, run_of(a_result())])).text
    json.loads(as_json([empty]))


def test_several_runs_are_compared_first() -> None:
    """Two have their differences by budget, three only stand side by side; each has its own part."""
    runs = [run_of(a_result(), name) for name in ("one", "two", "three")]
    two, three = read(page(runs[:2])).text, read(page(runs)).text
    assert "Side by side" in two
    assert "By budget: one → two" in two
    assert "Side by side" in three
    assert "By budget" not in three
    assert three.count("The four figures") == 3
    assert "Side by side" not in page(runs[:1])


def test_json_has_all_figures_with_their_units() -> None:
    """Ratios are decimals, times milliseconds."""
    found = json.loads(as_json([run_of(a_result())]))["runs"][0]
    assert found["name"] == "one"
    assert found["gpus"] == 32
    assert found["assumptions"] == ["Owners of p are made up."]
    assert found["measures"]["pyramid"]["utilization"] is None
    assert found["measures"]["pyramid"]["availability"] == 0.9375
    assert found["measures"]["budgets"][0]["path"] == "/"
    assert found["measures"]["capacity"]["capacity_gpu_ms"] == 128 * HOUR
    assert found["measures"]["ends"][0] == {"end": "finished", "workloads": 4}


def test_the_table_has_a_row_for_each_workload() -> None:
    """What is not known is empty, so that it is no number for anybody."""
    rows = list(csv.DictReader(StringIO(as_csv(a_result()))))
    assert len(rows) == 6
    assert set(rows[0]) == set(COLUMNS)
    late = next(row for row in rows if row["workload"] == "late")
    assert (late["end"], late["first_start_ms"], late["first_wait_ms"]) == ("waiting", "", str(3 * HOUR))
    free = next(row for row in rows if row["workload"] == "free")
    assert (free["budget"], free["min_runtime_ms"], free["held_gpu_ms"]) == ("", "0", str(2 * HOUR))


def test_figures_read_well() -> None:
    """Short where they are small, with separators where they are large, and a dash where there is none."""
    assert [wait(value) for value in (None, 0, 5, 65_000, 90 * HOUR)] == ["-", "at once", "under 1s", "1m5s", "3d18h"]
    assert [gpu_hours(value) for value in (None, 0, HOUR // 2, 12_345 * HOUR)] == ["-", "0", "0.5", "12,345"]
    assert [percent(value) for value in (None, Fraction(1, 3))] == ["-", "33.3%"]
    assert [percent(Fraction(part, 10_000)) for part in (9_999, 10_000, 4)] == ["99.990%", "100.0%", "0.0%"]
    assert waited(quantiles([0, 0])) == "90% did not wait at all"
    assert waited(quantiles([0, HOUR])) == "half did not wait at all, 90% at most 1h"
    assert waited(quantiles([HOUR, DAY])) == "half waited at most 1h, 90% at most 1d"
    assert waited(quantiles([])) == ""
    assert change((HOUR, HOUR), wait) == "1h"
    assert change((None, HOUR), wait) == "- → 1h"
