"""The habits that no linter checks: short modules and functions, names that say what is inside."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "gpubudget"
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST_MODULE = 400
LONGEST_FUNCTION = 60
VAGUE = {"utils", "util", "helpers", "common", "manager", "base", "misc"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_are_short_and_say_what_they_are(path: Path) -> None:
    """A module has one idea: a docstring names it, its file name too, and it ends within 400 lines."""
    source = path.read_text(encoding="utf-8")
    assert path.stem not in VAGUE
    assert ast.get_docstring(ast.parse(source)), f"{path} has no docstring"
    assert source.count("\n") <= LONGEST_MODULE


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_functions_are_short(path: Path) -> None:
    """A function, its docstring not counted, ends within 60 lines."""
    long = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
        length = (node.end_lineno or 0) - first.lineno + 1
        if length > LONGEST_FUNCTION:
            long.append(f"{node.name}: {length} lines")
    assert long == []
