"""What validation has to say: a problem with its rule, its place, its numbers and the way out.

A diagnostic is a value, shown as text and as JSON here and in the formats of CI services in ``outputs.py``; all show
the same facts. ``RULES`` is the whole list of rules: an id never changes its meaning, and ``docs/rules.md`` describes
each one. Nothing here reads files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple


class Severity(StrEnum):
    """An error stops a tree from being applied; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


class Position(NamedTuple):
    """A place in a file of the tree: its path below the tree's folder, and line and column, both from 1."""

    file: str
    line: int = 1
    column: int = 1


class Related(NamedTuple):
    """Another place that a problem is about, such as one term of a sum, and what stands there."""

    position: Position
    message: str


class Excerpt(NamedTuple):
    """A line of a file, or the part of a long one that matters, and where in it (from 0) the ``length`` meant begin."""

    text: str
    start: int
    length: int


RULES: dict[str, tuple[Severity, str]] = {
    # files and folders
    "file-link": (Severity.ERROR, "a symbolic link in the tree"),
    "file-special": (Severity.ERROR, "something that is neither a file nor a folder"),
    "file-unreadable": (Severity.ERROR, "a file or folder that cannot be read"),
    "file-name": (Severity.ERROR, "a file name that cannot be shown or is no relative path"),
    "file-unknown": (Severity.ERROR, "a YAML file that is neither budget.yaml nor cluster.yaml"),
    "file-missing": (Severity.ERROR, "the tree has no cluster.yaml or no budget.yaml at its top"),
    "folder-not-listed": (Severity.ERROR, "a folder with a budget that its parent does not list"),
    "folder-without-budget": (Severity.ERROR, "a folder with budgets below it and no budget.yaml of its own"),
    "too-many-problems": (Severity.ERROR, "one file with more problems than are shown"),
    "tree-size": (Severity.ERROR, "a tree with more bytes or budgets than a daemon takes"),
    # text and YAML
    "file-size": (Severity.ERROR, "a file above the size bound"),
    "file-encoding": (Severity.ERROR, "a file that is not UTF-8, or begins with a byte order mark"),
    "control-character": (Severity.ERROR, "a character that cannot be seen"),
    "yaml-syntax": (Severity.ERROR, "text that is not YAML"),
    "yaml-empty": (Severity.ERROR, "a file without content"),
    "yaml-documents": (Severity.ERROR, "more than one document in a file"),
    "yaml-directive": (Severity.ERROR, "a YAML directive"),
    "yaml-depth": (Severity.ERROR, "values nested too deeply"),
    "yaml-anchor": (Severity.ERROR, "an anchor or an alias"),
    "yaml-tag": (Severity.ERROR, "a tag"),
    "yaml-merge-key": (Severity.ERROR, "a merge key"),
    "yaml-key": (Severity.ERROR, "a key that is not text"),
    "duplicate-key": (Severity.ERROR, "a key that stands twice in one mapping"),
    "ambiguous-number": (Severity.ERROR, "a number that YAML programs read differently"),
    # structure
    "kind": (Severity.ERROR, "a file of another kind than its name says"),
    "unknown-key": (Severity.ERROR, "a key that has no meaning there"),
    "missing-key": (Severity.ERROR, "a key that has to be there"),
    "wrong-type": (Severity.ERROR, "a value of another type than its key takes"),
    "out-of-bounds": (Severity.ERROR, "a number, text or list that is too small or too large"),
    # names, people, dates, durations
    "name-syntax": (Severity.ERROR, "a name with other characters than a-z, 0-9 and -"),
    "title-syntax": (Severity.ERROR, "a title that is not one line of text"),
    "previously-syntax": (Severity.ERROR, "a former path that is not a path of names"),
    "date-syntax": (Severity.ERROR, "a date that is not YYYY-MM-DD or not in the calendar"),
    "duration-syntax": (Severity.ERROR, "a duration without a unit, or one that cannot be read"),
    "timezone-unknown": (Severity.ERROR, "a timezone that does not exist"),
    "person-twice": (Severity.ERROR, "a person twice in one list"),
    # shares
    "share-syntax": (Severity.ERROR, "a share that is neither a percentage nor a fraction, or is above 100%"),
    "share-sum": (Severity.ERROR, "children whose shares sum to more than the whole"),
    "pool-unknown": (Severity.ERROR, "a share in a pool that the cluster does not have"),
    "date-order": (Severity.ERROR, "a dated change that ends before it begins"),
    "date-overlap": (Severity.ERROR, "two dated changes of one share at the same time"),
    # the tree
    "child-described-twice": (Severity.ERROR, "a child described by its parent and by a file of its own"),
    "budget-depth": (Severity.ERROR, "budgets nested too deeply"),
    "previously-self": (Severity.ERROR, "a budget that names its own path as its former one"),
    "previously-exists": (Severity.ERROR, "a former path that is still a budget"),
    "previously-twice": (Severity.ERROR, "a former path claimed by two budgets"),
    "previously-root": (Severity.ERROR, "a former path of the root"),
    # policy
    "policy-bounds": (Severity.ERROR, "a setting that contradicts another one or makes no sense"),
    "lane-size": (Severity.ERROR, "a debug lane that does not fit a pool"),
    # warnings
    "manager-missing": (Severity.WARNING, "a budget file that names no manager"),
    "members-missing": (Severity.WARNING, "a budget that keeps a share which nobody may spend"),
    "nothing-to-spend": (Severity.WARNING, "members of a budget that keeps nothing for itself"),
    "guarantee-small": (Severity.WARNING, "a share that comes to less than one GPU"),
    "share-unreachable": (Severity.WARNING, "a share of a budget that itself gets nothing then"),
    "share-above-lane": (Severity.WARNING, "a share that comes to more than the debug lane leaves"),
}
"""Every rule: its id, how severe it is and, in half a sentence, what it finds."""

_LONGEST_SHOWN = 60
_BEFORE, _AFTER = 60, 80
_MEANT = re.compile(r""" "[^"]*" | '[^']*' | [^\s,:\[\]{}\#]+(?::[^\s,:\[\]{}\#]+)* """, re.VERBOSE)
"""What a place in a line of YAML is about: a quoted text, or a word (a colon inside it belongs to it)."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem: the rule it breaks, where, a sentence with the numbers, and what to do about it."""

    rule: str
    position: Position
    message: str
    hint: str = ""
    related: tuple[Related, ...] = ()
    source: Excerpt | None = None

    @property
    def severity(self) -> Severity:
        """How severe the rule is."""
        return RULES[self.rule][0]

    @property
    def is_error(self) -> bool:
        """Whether the tree cannot be applied because of this."""
        return self.severity is Severity.ERROR


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """By place, then by rule, each one once."""
    return tuple(sorted(dict.fromkeys(diagnostics), key=lambda found: (found.position, found.rule, found.message)))


def in_place(diagnostics: Iterable[Diagnostic], files: Mapping[str, bytes]) -> tuple[Diagnostic, ...]:
    """In order, each with what stands at its place in ``files``."""
    lines: dict[str, list[str]] = {}
    placed = []
    for found in in_order(diagnostics):
        file = found.position.file
        if file not in lines:
            lines[file] = files.get(file, b"").decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
        placed.append(replace(found, source=excerpt(lines[file], found.position)))
    return tuple(placed)


def quoted(text: str) -> str:
    """A text as a message shows it: in quotes, printable, of bounded length."""
    shown = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."
    return f"'{shown}'" if shown.isprintable() else ascii(shown)


def excerpt(lines: list[str], position: Position) -> Excerpt | None:
    """What stands at a place of a file with these lines, up to the end of the word, text or list that begins there."""
    line = lines[position.line - 1] if position.line <= len(lines) else ""
    if not line.strip():
        return None
    line = line.rstrip()
    at = min(position.column - 1, len(line))
    found = _MEANT.match(line, at)
    first = max(0, at - _BEFORE)
    text = ("..." if first else "") + line[first : at + _AFTER] + ("..." if len(line) > at + _AFTER else "")
    start = at - first + (len("...") if first else 0)
    length = min(found.end() - at if found else 1, _AFTER)
    return Excerpt(
        "".join(" " if char == "\t" else char if char.isprintable() else "\ufffd" for char in text), start, length
    )


def to_text(diagnostic: Diagnostic, prefix: str = "") -> str:
    """``file:line:col: error[rule]: message`` and, indented below, the line it is about, related places and the hint.

    ``prefix`` is put before each file, so that paths can be opened from where the reader stands.
    """
    head = (
        f"{_place(diagnostic.position, prefix)}: {diagnostic.severity}[{diagnostic.rule}]: {shown(diagnostic.message)}"
    )
    notes = [f"    {_place(position, prefix)}: {shown(message)}" for position, message in diagnostic.related]
    hint = [f"    hint: {shown(diagnostic.hint)}"] if diagnostic.hint else []
    return "\n".join([head, *_pointed_out(diagnostic), *notes, *hint])


def _pointed_out(diagnostic: Diagnostic) -> list[str]:
    """The line of the file and, below it, carets under what is meant."""
    if diagnostic.source is None:
        return []
    text, start, length = diagnostic.source
    number = str(diagnostic.position.line)
    blank, carets = " " * _width(text[:start]), "^" * max(1, _width(text[start : start + length]))
    return [f"    {number} | {text}", f"    {' ' * len(number)} | {blank}{carets}"]


def _width(text: str) -> int:
    """How many columns of a terminal a text takes: two for wide characters, none for marks on the one before."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def to_json(diagnostic: Diagnostic, prefix: str = "") -> dict[str, Any]:
    """The same facts as a JSON object."""
    return {
        "severity": str(diagnostic.severity),
        "rule": diagnostic.rule,
        **_place_json(diagnostic.position, prefix),
        "message": shown(diagnostic.message),
        "hint": shown(diagnostic.hint),
        "related": [{**_place_json(position, prefix), "message": shown(text)} for position, text in diagnostic.related],
    }


def _place(position: Position, prefix: str) -> str:
    return f"{shown(prefix + position.file)}:{position.line}:{position.column}"


def _place_json(position: Position, prefix: str) -> dict[str, Any]:
    return {"file": shown(prefix + position.file), "line": position.line, "column": position.column}


def shown(text: str) -> str:
    """A text that can be printed on one line: if anything in it cannot be seen, all but ASCII is escaped."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
