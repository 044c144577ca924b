"""Reading budgets from a table as spreadsheets export it: one budget a line, its path and its share or weight.

Columns, in any order: ``budget`` (the path, ``/`` for the root), ``share`` (``40%``, ``1/3``) or ``weight`` (a number;
a budget gets its part of the sum over its siblings), and where wanted ``title``, ``managers`` and ``members`` (names
with spaces, commas or semicolons between them).
"""

from __future__ import annotations

import csv
import re
from fractions import Fraction

from gpubudget.core.budget import ROOT
from gpubudget.errors import InvalidInputError
from gpubudget.gitops.importing import Node, Report, normalised
from gpubudget.gitops.rules import MAX_LEVELS
from gpubudget.units import parse_share

_KNOWN = ("budget", "share", "weight", "title", "managers", "members")
_WEIGHT = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?", re.ASCII)
_BETWEEN = re.compile(r"[\s,;]+")
_HINT = "the first line names the columns: budget and share (or weight), and where wanted title, managers, members"

Row = dict[str, str]


def read(text: str, report: Report) -> Node:
    """The root of the tree that a table describes; raises InvalidInputError with the line of what is wrong."""
    nodes: dict[str, Node] = {ROOT: Node(ROOT, 0)}
    weights: dict[str, Fraction] = {}
    for line, row in _rows(text, report):
        path = _path(line, row["budget"])
        if path in weights or (path == ROOT and nodes[ROOT].line):
            raise _wrong(line, f"the budget {path!a} again; it stands in line {nodes[path].line} already")
        node = Node(path.rpartition("/")[2] or ROOT, line, title=row.get("title", ""))
        node.managers, node.members = (_people(row.get(name, "")) for name in ("managers", "members"))
        nodes[path] = node
        if path != ROOT:
            weights[path] = _amount(line, row)
    by_weight = "weight" in _columns(text)
    for path in weights:
        above = path.rpartition("/")[0] or ROOT
        if above not in nodes:
            raise _wrong(nodes[path].line, f"the budget {path!a}, whose parent {above!a} stands nowhere")
        nodes[above].children.append(nodes[path])
    for path, node in nodes.items():
        mine = [weights[_below(path, child.name)] for child in node.children]
        for child, share in zip(node.children, normalised(mine) if by_weight else mine, strict=True):
            child.share = share
    return nodes[ROOT]


def _below(path: str, name: str) -> str:
    return name if path == ROOT else f"{path}/{name}"


def _dialect(text: str) -> str:
    """The character between two cells: the one of the usual three that the first line has most of."""
    head = text.split("\n", 1)[0]
    return max(",;\t", key=head.count)


def _columns(text: str) -> list[str]:
    head = next(csv.reader(text.splitlines()[:1], delimiter=_dialect(text)), [])
    return [name.strip().lower() for name in head]


def _rows(text: str, report: Report) -> list[tuple[int, Row]]:
    """The lines that are not empty, by number, as cells by the name of their column."""
    columns = _columns(text)
    if "budget" not in columns or ("share" in columns) == ("weight" in columns) or len(set(columns)) < len(columns):
        has = f"has the columns {', '.join(columns)[:200]}" if any(columns) else "is empty"
        raise InvalidInputError(f"the table {has}", hint=_HINT)
    for name in columns:
        if name not in _KNOWN:
            report.add(1, f"the column {name[:60]!a} is not carried over")
    found: list[tuple[int, Row]] = []
    reader = csv.reader(text.splitlines(keepends=True), delimiter=_dialect(text), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells) and reader.line_num > 1:
                if len(cells) > len(columns):
                    raise _wrong(reader.line_num, f"{len(cells)} cells for {len(columns)} columns")
                padded = cells + [""] * (len(columns) - len(cells))
                row = dict(zip(columns, (cell.strip() for cell in padded), strict=True))
                found.append((reader.line_num, row))
    except csv.Error as error:
        raise _wrong(reader.line_num, f"cells that cannot be told apart ({error})") from error
    if not found:
        raise InvalidInputError("the table has no budgets", hint=_HINT)
    return found


def _path(line: int, text: str) -> str:
    """The path, without spaces around its names; the root's may be left empty."""
    names = [name.strip() for name in text.strip().strip("/").split("/")]
    if names != [""] and not all(names):
        raise _wrong(line, f"the budget {text[:60]!a}, in which a name is missing")
    if len(names) > MAX_LEVELS:
        raise _wrong(line, f"a budget {len(names)} levels below the root; {MAX_LEVELS} are possible")
    return "/".join(names) or ROOT


def _people(text: str) -> list[str]:
    return [name.lstrip("@") for name in _BETWEEN.split(text) if name.lstrip("@")]


def _amount(line: int, row: Row) -> Fraction:
    """The share or the weight of a budget."""
    text = row.get("weight", "").replace(" ", "")
    if "weight" in row:
        if not _WEIGHT.fullmatch(text):
            raise _wrong(line, f"the weight {row['weight'][:60]!a}, which is no number")
        return Fraction(text)
    try:
        return parse_share(row["share"].replace(" ", ""))
    except InvalidInputError as error:
        raise InvalidInputError(f"line {line}: {error.message}", hint=error.hint) from error


def _wrong(line: int, what: str) -> InvalidInputError:
    return InvalidInputError(f"line {line} has {what}", hint=_HINT)
