"""Strict YAML: from the bytes of one file to plain values that know where they stand.

Knows YAML, and nothing of budgets. What it accepts is read the same by every YAML program: UTF-8, one document,
mappings with text keys, lists, and the scalars of the YAML 1.2 core schema in their plain spellings. Refused are
anchors, aliases, tags, directives, merge keys, a key that stands twice, characters that cannot be seen, and numbers
whose spelling programs disagree on. Bounds on size and depth keep every input cheap. No input raises an error: all
problems are reported, and reading goes on behind each of them wherever it can.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import yaml

from gpubudget.gitops.diagnostics import Diagnostic, Position, Related, quoted

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
MAX_PROBLEMS = 100
"""With so many problems a file is not read on."""

Value = Any
"""None, bool, int, str, ``Map`` or ``Seq``: the static checker knows no recursive alias that is cheap to use here."""

Event = Any
"""An event of the parser; which attributes it has depends on its type."""

Loader: Callable[[str], Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\ud800-\udfff\ufdd0-\ufdef\ufeff"
    + "".join(map(chr, (*range(0xFFFE, 0x110000, 0x10000), *range(0xFFFF, 0x110000, 0x10000))))
    + "]|\r(?!\n)"
)
"""Controls, directions of writing, blanks without width, tags, halves of characters and what is no character. Joiners,
which Persian, Hindi and emoji need, may stand in a title; names have no place for them anyway."""

_PLAIN = bytes(range(0x20, 0x7F)) + b"\t\n"
"""What nearly every file is made of alone, which is told in a moment."""

_WORDS: dict[str, Value] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMERIC = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})", re.ASCII)
_NUMBER_LIKE = re.compile(
    r"""[-+]?(?: [0-9][0-9_]*(?::[0-9_]+)*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?   # 010  1_000  12:30  0.5  1e3
              | \.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?                             # .5
              | 0[xob][0-9a-fA-F_]+                                            # 0x1F  0o17  0b1
              | \.(?:inf|Inf|INF|nan|NaN|NAN) )""",
    re.ASCII | re.VERBOSE,
)


class Map(dict[str, Any]):
    """A mapping that knows where it begins, and for each key where the key and its value begin."""

    __slots__ = ("column", "line", "spots")

    def __init__(self, line: int, column: int) -> None:
        self.line, self.column = line, column
        self.spots: dict[str, tuple[int, int, int, int]] = {}


class Seq(list[Any]):
    """A list that knows where it and each of its items begin."""

    __slots__ = ("column", "line", "spots")

    def __init__(self, line: int, column: int) -> None:
        self.line, self.column = line, column
        self.spots: list[tuple[int, int]] = []


def key_place(file: str, mapping: Map, key: str) -> Position:
    """Where ``key`` of ``mapping`` stands."""
    line, column, _, _ = mapping.spots[key]
    return Position(file, line, column)


def value_place(file: str, container: Map | Seq, key: str | int) -> Position:
    """Where the value of a key, or an item of a list, stands."""
    spot = container.spots[key]  # type: ignore[index]  # the key is of the container's own kind
    return Position(file, spot[-2], spot[-1])


def find_place(file: str, root: Value, path: Sequence[str | int]) -> Position:
    """Where the value at ``path`` below ``root`` (the value of a whole file) stands."""
    place = Position(file, root.line, root.column) if isinstance(root, Map | Seq) else Position(file)
    for key in path:
        place = value_place(file, root, key)
        root = root[key]
    return place


def parse(file: str, data: bytes) -> tuple[Value, list[Diagnostic]]:
    """The value of a file and all problems of its text; the value is None when it cannot be had."""
    problems: list[Diagnostic] = []
    text = _decode(file, data, problems)
    if text is None:
        return None, problems
    builder = _Builder(file, problems)
    try:
        builder.read(iter(Loader(text).get_event, None))
    except yaml.MarkedYAMLError as error:
        problems.append(_syntax_problem(file, text, error))
        return None, problems
    except (ValueError, OverflowError):  # the parser in Python reads "\UFFFFFFFF" so
        message = "this is not YAML: an escape names a character that does not exist"
        problems.append(Diagnostic("yaml-syntax", Position(file), message, "look for \\U in quoted text"))
        return None, problems
    return builder.root, problems


def _decode(file: str, data: bytes, problems: list[Diagnostic]) -> str | None:
    """The text of a file, each character that cannot be seen replaced; None when it has to be left alone."""
    if len(data) > MAX_BYTES:
        message = f"the file is larger than the {MAX_BYTES} bytes that are read"
        problems.append(Diagnostic("file-size", Position(file), message, "split the budget into folders"))
        return None
    if not data.translate(None, _PLAIN):
        return data.decode("ascii")
    if b"\0" in data[:4]:
        message = "the file looks like UTF-16 or UTF-32, and is read as UTF-8"
        problems.append(Diagnostic("file-encoding", Position(file), message, "save the file as UTF-8"))
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _line_and_column(data[: error.start].decode("utf-8"), error.start)
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        problems.append(Diagnostic("file-encoding", Position(file, line, column), message, "save the file as UTF-8"))
        return None
    if text.startswith("\ufeff"):
        message = "the file begins with a byte order mark"
        problems.append(Diagnostic("file-encoding", Position(file), message, "save it as UTF-8 without one"))
        text = text[1:]
    if not _UNSEEN.search(text):
        return text
    for found in islice(_UNSEEN.finditer(text), MAX_PROBLEMS):
        place = Position(file, *_line_and_column(text, found.start()))
        message = f"the character U+{ord(found.group()):04X} cannot be seen and may not stand here"
        problems.append(Diagnostic("control-character", place, message, "remove it"))
    return _UNSEEN.sub("\ufffd", text)


def _line_and_column(text: str, offset: int) -> tuple[int, int]:
    """The line and column, from 1, of the character at ``offset`` or, past the end, behind the text."""
    before = text[:offset]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _syntax_problem(file: str, text: str, error: yaml.MarkedYAMLError) -> Diagnostic:
    mark = error.problem_mark or error.context_mark
    place = Position(file, mark.line + 1, mark.column + 1) if mark else Position(file)
    lines = text.split("\n")
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    hint = "look at this line and the one before: indentation, a missing colon, bracket or quote"
    if line[place.column - 1 : place.column] == "\t" or "\t" in line[: len(line) - len(line.lstrip())]:
        hint = "indent with spaces, not tabs"
    elif line[place.column - 1 : place.column] in ("%", "@", "`"):
        hint = "put a value that begins with this character in quotes"
    parts = [part for part in (error.problem, error.context) if part]
    return Diagnostic("yaml-syntax", place, f"this is not YAML: {', '.join(parts)}", hint)


class _Builder:
    """Builds values from the parser's events, without recursion.

    ``stack`` holds the open containers, and ``keys`` for each of them the key that waits for its value: None while a
    key is awaited, and one without text where the value has to be dropped because its key was refused.
    """

    def __init__(self, file: str, problems: list[Diagnostic]) -> None:
        self.file = file
        self.problems = problems
        self.root: Value = None
        self.stack: list[Map | Seq] = []
        self.keys: list[tuple[str | None, int, int] | None] = []

    def read(self, events: Iterable[Event]) -> None:
        """Take in the events of one file, up to the first that makes going on senseless."""
        documents = 0
        problems, stack, keys = self.problems, self.stack, self.keys
        for event in events:
            if len(problems) >= MAX_PROBLEMS:
                self.root = None
                return
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self.scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                if not self.open(event, Map if kind is yaml.MappingStartEvent else Seq):
                    return
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                stack.pop()
                keys.pop()
            elif kind is yaml.AliasEvent:
                self.problem("yaml-anchor", event, f"*{event.anchor} is an alias", "write the value out")
                self.add(f"*{event.anchor}", event)
            elif kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    self.problem("yaml-documents", event, "a second document begins here", "keep one for each file")
                    return
                if event.version or event.tags:
                    self.problem("yaml-directive", event, "a directive stands before the document", "remove it")
        if self.root is None:
            place = Position(self.file)
            hint = "write what belongs here, or remove the file"
            self.problems.append(Diagnostic("yaml-empty", place, "the file has no content", hint))

    def open(self, event: Event, container: type[Map | Seq]) -> bool:
        """Begin a mapping or a list; False when it is nested too deeply."""
        if event.anchor or event.tag:
            self.refuse_decoration(event)
        if len(self.stack) == MAX_DEPTH:
            message = f"values are nested more than {MAX_DEPTH} levels deep"
            self.problem("yaml-depth", event, message, "look for a bracket too many")
            self.root = None
            return False
        mark = event.start_mark
        opened = container(mark.line + 1, mark.column + 1)
        self.add(opened, event)
        self.stack.append(opened)
        self.keys.append(None)
        return True

    def scalar(self, event: Event) -> None:
        """Take in a scalar: quoted ones and those with a refused tag are text."""
        text = event.value
        if event.anchor or event.tag:
            self.refuse_decoration(event)
            self.add(text, event)
        elif event.style:
            if event.style == '"' and (found := _UNSEEN.search(text)):
                message = f"this text has the character U+{ord(found.group()):04X}, which cannot be seen"
                self.problem("control-character", event, message, "remove its escape")
                text = _UNSEEN.sub("\ufffd", text)
            self.add(text, event)
        elif text in _WORDS:
            self.add(_WORDS[text], event)
        elif text[0] in _NUMERIC:
            self.add(self.number(text, event), event)
        elif text == "<<" and self.stack and type(self.stack[-1]) is Map and self.keys[-1] is None:
            self.problem("yaml-merge-key", event, "<< is a merge key", "write the merged keys out")
            self.keys[-1] = (None, 0, 0)
        else:
            self.add(text, event)

    def number(self, text: str, event: Event) -> int | str:
        """A whole number; or the text itself, where that is no number or (a problem) not everywhere the same one."""
        if text[-1] == "%" or "/" in text:  # a share, and in no program a number
            return text
        if _INTEGER.fullmatch(text):
            return int(text)
        if _NUMBER_LIKE.fullmatch(text):
            message = f"{quoted(text)} is not a plain whole number, and programs read it differently"
            hint = "write a whole number such as 1000, a share such as 50% or 1/3, or put text in quotes"
            self.problem("ambiguous-number", event, message, hint)
        return text

    def add(self, value: Value, event: Event) -> None:
        """Put a value where it belongs: as the root, an item, a key or the value of the key that waits."""
        if not self.stack:
            self.root = value
            return
        container, mark = self.stack[-1], event.start_mark
        line, column = mark.line + 1, mark.column + 1
        if isinstance(container, Seq):
            container.append(value)
            container.spots.append((line, column))
            return
        key = self.keys[-1]
        if key is None:
            if type(value) is not str or value in container:
                self.refuse_key(container, value, event)
                value = None
            self.keys[-1] = (value, line, column)
            return
        text, key_line, key_column = key
        if text is not None:
            container[text] = value
            container.spots[text] = (key_line, key_column, line, column)
        self.keys[-1] = None

    def refuse_key(self, mapping: Map, value: Value, event: Event) -> None:
        """Say what is wrong with a key of ``mapping``."""
        if type(value) is not str:
            self.problem("yaml-key", event, f"this key is not text, but {described(value)}", "put the key in quotes")
            return
        first = key_place(self.file, mapping, value)
        message = f"the key {quoted(value)} stands twice, first in line {first.line}"
        self.problem("duplicate-key", event, message, "keep one of the two", (Related(first, "here first"),))

    def refuse_decoration(self, event: Event) -> None:
        """Report the anchor or tag of a value."""
        if event.anchor:
            self.problem("yaml-anchor", event, f"&{event.anchor} is an anchor", "write the value where it is needed")
        if event.tag:
            self.problem("yaml-tag", event, f"{quoted(event.tag)} is a tag", "remove it; quotes make text")

    def problem(self, rule: str, event: Event, message: str, hint: str, related: tuple[Related, ...] = ()) -> None:
        """Report a problem at the place of an event."""
        place = Position(self.file, event.start_mark.line + 1, event.start_mark.column + 1)
        self.problems.append(Diagnostic(rule, place, message, hint, related))


def described(value: Value) -> str:
    """A value as a message names it: ``the number 50``."""
    if value is None:
        return "empty (null)"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, int):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    return "a mapping" if isinstance(value, Map) else "a list"
