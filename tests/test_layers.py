"""Imports go one way, and the core depends on nothing that has a clock, randomness or I/O."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "gpubudget"

SHARED = {"errors", "units"}
LAYERS = {
    "errors": SHARED,
    "units": SHARED,
    "charts": SHARED,
    "core": SHARED | {"core"},
    "gitops": SHARED | {"core", "gitops"},
    "daemon": SHARED | {"charts", "core", "gitops", "daemon"},
    "agent": SHARED | {"core", "gitops", "agent"},
    "sim": SHARED | {"charts", "core", "gitops", "sim"},
    "engines": SHARED | {"core", "gitops", "engines"},
    "cli": SHARED | {"core", "gitops", "daemon", "agent", "sim", "engines", "cli"},
}
PURE = {
    "__future__", "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "enum", "fractions",
    "functools", "hashlib", "heapq", "itertools", "json", "operator", "re", "string", "types", "typing",
}  # fmt: skip
EXACT = {"math.gcd", "math.lcm", "math.isqrt"}
"""What the core may have of a module whose other functions are floats."""


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a module imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{'.' * node.level}{node.module or ''}.{alias.name}") for alias in node.names)


def wrong_imports(room: str, source: str) -> list[str]:
    """One line for each import that a module of this room may not have."""
    found = []
    for line, name in imports(source):
        top, _, rest = name.partition(".")
        if top != "gpubudget":
            if room == "core" and top not in PURE and name not in EXACT:
                found.append(f"{line}: core imports {name}")
        elif (inner := rest.partition(".")[0]) in LAYERS and inner not in LAYERS[room]:
            found.append(f"{line}: {room} imports {name}")
        elif inner not in LAYERS and inner not in {"", "__version__"}:
            found.append(f"{line}: {name} belongs to no room")
    return found


def room_of(path: Path) -> str:
    """The room that a file of the package stands in: a folder, or a module beside them."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if room_of(path) not in {"__init__", "__main__"}]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    """A module imports only from its own room and from those below it."""
    assert room_of(path) in LAYERS, f"{path} stands in no room; give it one here"
    assert wrong_imports(room_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("core", "import time"),
        ("core", "def late():\n    from random import choice"),
        ("core", "import yaml"),
        ("core", "from math import sqrt"),
        ("core", "from . import events"),
        ("core", "from gpubudget.gitops import load"),
        ("gitops", "import gpubudget.daemon.store"),
        ("daemon", "from gpubudget import agent"),
        ("agent", "def late():\n    import gpubudget.daemon"),
        ("sim", "from gpubudget.cli.main import main"),
        ("errors", "from gpubudget.core import plain"),
        ("cli", "from gpubudget.attic import things"),
    ],
)
def test_a_planted_violation_is_found(room: str, source: str) -> None:
    """The check sees imports of every form, also inside functions."""
    assert len(wrong_imports(room, source)) == 1


def test_allowed_imports_pass() -> None:
    """What the layers allow is not reported."""
    source = "import os\nfrom gpubudget import __version__, errors\nfrom gpubudget.core.events import Event\n"
    assert wrong_imports("cli", source) == []
    assert wrong_imports("core", "from collections.abc import Iterator\nfrom gpubudget.units import HOUR\n") == []


def test_pure_modules_exist() -> None:
    """The list of what the core may import names real modules of the standard library."""
    assert set(sys.stdlib_module_names) >= PURE
