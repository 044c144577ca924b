"""The canonical layout of a YAML file: only white space changes, so every comment, quote and order stays.

Two spaces a level, lists in mappings included; in a line one space where there is any, none inside brackets; two or
more before a comment, which keeps its column if it can; at most one empty line in a row. Where lines break is left to
their author. Works on the tokens of PyYAML's scanner, knows nothing of budgets, and gives nothing back that does not
hold the very same values and comments.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any, NamedTuple

import yaml

from gpubudget.errors import InvalidInputError
from gpubudget.gitops import yamlfile
from gpubudget.gitops.diagnostics import Diagnostic

_STEP = 2
_COMMENT = re.compile(r"#[^\n]*")
_OPENING = (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken)
_CLOSING = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)
_TIGHT_BEFORE = (*_CLOSING, yaml.FlowEntryToken, yaml.ValueToken)
_NESTING = (yaml.BlockEntryToken, yaml.KeyToken)
"""A dash, and the question mark of a long key: what follows in their line is a level of its own."""


def formatted(file: str, data: bytes) -> tuple[bytes, list[Diagnostic]]:
    """The file in its canonical layout, or as it is with the problems that keep it from being read.

    Raises InvalidInputError for a file that cannot be laid out anew without changing what it says.
    """
    value, problems = yamlfile.parse(file, data)
    if problems:
        return data, problems
    pieces = _pieces(data.decode("utf-8").replace("\r\n", "\n"))
    text = _Layout().of(pieces)
    again, wrong = yamlfile.parse(file, text.encode("utf-8"))
    if wrong or again != value or _comments(_pieces(text)) != _comments(pieces):
        message = (
            f"{file} has a text of several lines that cannot be laid out anew without changing it; it is left alone"
        )
        raise InvalidInputError(message, hint="write that text on one line")
    return text.encode("utf-8"), []


class Piece(NamedTuple):
    """A token, or a comment (``kind`` is None), as written, and where it stands (from 0)."""

    text: str
    line: int
    column: int
    kind: Any

    @property
    def last_line(self) -> int:
        """The line in which it ends."""
        return self.line + self.text.count("\n")


def _pieces(text: str) -> list[Piece]:
    """All tokens and comments of a text, in their order."""
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    pieces: list[Piece] = []
    end = 0
    loader: Any = yamlfile.Loader
    for token in yaml.scan(text, Loader=loader):
        start, stop = token.start_mark.index, token.end_mark.index
        if stop > start:
            pieces += _comments_in(text, end, start, starts)
            pieces.append(
                Piece(text[start:stop].rstrip("\n"), token.start_mark.line, token.start_mark.column, type(token))
            )
            end = stop
    return [*pieces, *_comments_in(text, end, len(text), starts)]


def _comments_in(text: str, start: int, stop: int, starts: list[int]) -> list[Piece]:
    """The comments between two tokens, where nothing else can be but white space."""
    found = []
    for comment in _COMMENT.finditer(text, start, stop):
        line = bisect_right(starts, comment.start()) - 1
        found.append(Piece(comment.group().rstrip(), line, comment.start() - starts[line], None))
    return found


def _comments(pieces: list[Piece]) -> list[str]:
    return [piece.text for piece in pieces if piece.kind is None]


class _Level(NamedTuple):
    """A level of block structure: the column of its lines before and now, and whether they are the items of a list."""

    before: int
    now: int
    dashes: bool = False


class _Bracket(NamedTuple):
    """An open bracket: where lines inside it begin, and where one does that closes it."""

    inside: int
    closing: int


class _Layout:
    """Builds the text; ``levels`` and ``brackets`` are those that are open behind what was taken in so far.

    ``width`` is that of the line at its end, and ``base`` is where this line begins.
    """

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.width = self.base = 0
        self.levels = [_Level(-1, -_STEP)]
        self.brackets: list[_Bracket] = []

    def of(self, pieces: list[Piece]) -> str:
        """The text that these pieces make."""
        contents: list[Piece | None] = [None]
        for piece in reversed(pieces):
            contents.append(contents[-1] if piece.kind is None else piece)
        contents.reverse()
        last: Piece | None = None
        for piece, content, following in zip(pieces, contents, [*pieces[1:], None], strict=False):
            if last and piece.line > last.last_line:
                self.parts.append("\n\n" if piece.line > last.last_line + 1 else "\n")
                last = None
            if last is None:
                self.begin(self.indentation(piece, content))
            self.take(piece, last, following)
            last = piece
        return "".join([*self.parts, "\n"])

    def begin(self, base: int) -> None:
        """Begin a line."""
        self.parts.append(" " * base)
        self.base = self.width = base

    def put(self, text: str) -> None:
        """Go on in the line."""
        self.parts.append(text)
        self.width += len(text)

    def indentation(self, first: Piece, content: Piece | None) -> int:
        """Where a line begins now; ``content`` is the token that it, or for a comment the next line, begins with."""
        if self.brackets:
            return self.brackets[-1].closing if first.kind in _CLOSING else self.brackets[-1].inside
        if first.kind is None and (content is None or first.column > content.column):
            above = next(level for level in reversed(self.levels) if level.before <= first.column)
            if content is None or above.before > content.column:  # it belongs to what stands before it
                return max(above.now, 0)
        levels = self.entered(content or first)
        if first.kind is not None:
            self.levels = levels
        return levels[-1].now

    def entered(self, piece: Piece) -> list[_Level]:
        """The levels without those that a line with this first token leaves, and with the one that it begins."""
        dash = piece.kind is yaml.BlockEntryToken
        open_ = len(self.levels)
        while (top := self.levels[open_ - 1]).before > piece.column or (
            top.before == piece.column and top.dashes and not dash
        ):
            open_ -= 1
        levels = self.levels[:open_]
        if top.before < piece.column or (dash and not top.dashes):
            levels.append(_Level(piece.column, top.now + _STEP, dash))
        return levels

    def take(self, piece: Piece, last: Piece | None, following: Piece | None) -> None:
        """Put a piece into the line, behind ``last`` if that stands in it too."""
        if last:
            self.put(self.gap(piece, last))
            if last.kind in _NESTING and piece.kind is not None and not self.brackets:
                self.levels.append(
                    _Level(piece.column, self.levels[-1].now + _STEP, piece.kind is yaml.BlockEntryToken)
                )
        if piece.kind in _CLOSING:
            self.brackets.pop()
        first, *more = piece.text.split("\n")
        self.put(first)
        for line in self.continued(first, more):
            self.parts.append("\n")
            self.begin(0)
            self.put(line)
        if piece.kind in _OPENING:
            hangs = following is None or following.kind is None or following.line > piece.line
            self.brackets.append(_Bracket(self.base + _STEP if hangs else self.width, self.base))

    def gap(self, piece: Piece, last: Piece) -> str:
        """The white space between two pieces of one line."""
        if piece.kind is None:
            return " " * max(piece.column - self.width, 2)
        return "" if last.kind in _OPENING or piece.kind in _TIGHT_BEFORE else " "

    def continued(self, first: str, more: list[str]) -> list[str]:
        """The further lines of a text: a block keeps its inner indentation, in other texts there is none."""
        inside = self.brackets[-1].inside if self.brackets else self.levels[-1].now + _STEP
        block = first.startswith(("|", ">"))
        least = min((len(line) - len(line.lstrip(" ")) for line in more if line.strip()), default=0) if block else 0
        return [" " * inside + (line[least:] if block else line.lstrip()) if line.strip() else "" for line in more]
