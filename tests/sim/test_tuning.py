"""The claims of the tuning study that people rely on, on a small part of it, and the page that makes them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from benchmarks.study import PAGE, PARTS, PICTURES
from benchmarks.tuning.cases import NO_LIMIT, Case, figures
from gpubudget.core.budget import DebugLane
from gpubudget.units import HOUR, MINUTE

DAYS = 2


def on_88_gpus(days: int = DAYS, **settings: Any) -> dict[str, Any]:  # noqa: ANN401 - the fields of a case
    """The figures of a few days at 2.5 times the capacity."""
    return figures(Case("lab-88", days=days, **settings))


def test_debug_workloads_wait_a_minute_and_not_ten() -> None:
    """With the lane half start within one minute and 90% within five, whether their budget is under- or over-used."""
    found = on_88_gpus(days=4, sessions="1/2")
    for group in ("debug", "under-used", "over-used"):
        assert found[group]["n"] > 20
        assert found[group]["p50"] <= MINUTE
        assert found[group]["p90"] <= 5 * MINUTE


def test_long_work_in_short_pieces_does_not_pay() -> None:
    """Who calls pieces of long work debug workloads gets his allowance of the lane and one more; others do not wait.

    Without an allowance he would have the lane to himself.
    """
    bounded = on_88_gpus(cheats=5, how="8 chain", crowd=True)
    free = on_88_gpus(cheats=5, how="8 chain", crowd=True, allowance=NO_LIMIT)
    one_more = 8 / 4
    each_a_day = bounded["cheats in the lane"] / 5 / DAYS
    assert each_a_day <= DebugLane(8).allowance / HOUR + one_more
    assert free["cheats in the lane"] > 3 * bounded["cheats in the lane"]
    assert bounded["debug"]["p50"] <= MINUTE
    assert bounded["debug"]["p90"] <= 5 * MINUTE < free["debug"]["p90"]


@pytest.mark.parametrize("name", PARTS)
def test_every_part_of_the_study_is_on_the_page(name: str) -> None:
    """The page has a table and, if the part has one, a picture."""
    page = PAGE.read_text(encoding="utf-8")
    marked = re.search(rf"<!-- study: {name} -->\n(.+?)\n<!-- end of {name} -->", page, re.DOTALL)
    assert marked is not None
    assert marked[1].count("\n") > 2
    if PARTS[name].picture is not None:
        picture = PICTURES / f"tuning-{name}.svg"
        assert f"](pictures/{picture.name})" in page
        assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_the_page_says_how_it_was_made() -> None:
    """A command that makes it stands before each part, and there are no marks of parts that are gone."""
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"<!-- study: ([a-z-]+) -->", page) == list(dict.fromkeys(PARTS))
    for name in PARTS:
        before = page[: page.index(f"<!-- study: {name} -->")]
        assert name in re.findall(r"study\.py ([a-z -]+)`", before)[-1].split()
