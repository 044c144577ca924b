"""The page about the simulator names what there is: policies, figures, and how the report calls them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpubudget.sim.policies import POLICIES

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
TEMPLATE = (ROOT / "gpubudget" / "sim" / "templates" / "report.html.j2").read_text(encoding="utf-8")


def test_every_policy_is_explained() -> None:
    """The table has a row for each policy that there is, and no other."""
    assert re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE) == list(POLICIES)


@pytest.mark.parametrize("title", re.findall(r"<h2>([^<{]+)</h2>", TEMPLATE))
def test_every_part_of_the_report_is_explained(title: str) -> None:
    """What a reader sees as a heading stands on the page, as a heading or in its text."""
    assert title.lower() in PAGE.lower() or title == "Side by side"


def test_headings_of_the_page_are_those_of_the_report() -> None:
    """A part that was renamed or removed in the report has to be so on the page as well."""
    described = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    assert set(described) <= set(re.findall(r"<h2>([^<{]+)</h2>", TEMPLATE))
