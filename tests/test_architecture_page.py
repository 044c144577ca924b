"""The page of the architecture names every module of the package, in its own room, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "gpubudget"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def named(title: str) -> set[str]:
    """The modules in the first column of a room's table."""
    section = re.search(rf"^### {title}\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert section, f"there is no room {title!r} on the page"
    rows = re.findall(r"^\| (`.*?) \|", section[1], re.MULTILINE)
    return set(re.findall(r"`(\w+\.py)`", " ".join(rows)))


@pytest.mark.parametrize("room", ROOMS)
def test_every_module_is_named_in_its_room(room: str) -> None:
    """A module that is added, renamed or removed has to be so on the page as well."""
    there = {path.name for path in (PACKAGE / room).glob("*.py")} - {"__init__.py"}
    assert there - named(room) == set(), "not named in docs/architecture.md"
    assert named(room) - there == set(), "named in docs/architecture.md, and not there"


def test_modules_shared_by_all_are_named() -> None:
    """Those that stand beside the rooms, too."""
    assert named("Shared by all") == {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}


def test_whatever_else_is_pointed_to_exists() -> None:
    """A path that the text names leads to a file, and a function to a definition."""
    for path in set(re.findall(r"`((?:core|gitops|daemon|agent|sim|cli)/\w+\.py)`", PAGE)):
        assert (PACKAGE / path).exists(), path
    for path in set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE)):
        assert (ROOT / path).exists(), path
    ranking = (PACKAGE / "core" / "fairshare.py").read_text(encoding="utf-8")
    for name in ("set_weights", "in_rank_order", "legal_siblings"):
        assert f"`{name}`" in PAGE
        assert f"def {name}(" in ranking
