"""Text of others inside Markdown: shown as it is, and never anything else than text.

A name can hold what Markdown, HTML or GitHub take for more: markup, a link, a mention that calls somebody, the number
of an issue. Whatever did not come from here as ``Markdown`` is escaped before it is put into a template. Knows nothing
of what is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_LONGEST_NAME = 200
_LONGEST_TEXT = 500
_BREAK = "&#8203;"  # a space without width, which parts what GitHub would join
_SPACE = "\u00a0"
_SPECIAL = re.compile(r"[\\`*_\[\]#|~<>&$]|^[-+=]|^\d(?=\d*[.)])")  # anywhere, or where a line begins
_URL = re.compile(r"https?://[A-Za-z0-9.~:/?#@!$&*+,;=%_-]+")
_JOINED = re.compile(r"@|#|:(?=[A-Za-z+/-])|(?i:\bwww(?=\.)|\bgh-(?=\d))")


class Markdown(str):
    """Text that is Markdown already, and goes into a template as it is."""

    __slots__ = ()


def text(value: object) -> Markdown:
    """A text of somebody as one line of Markdown that shows it."""
    line = _one_line(str(value), _LONGEST_TEXT)
    parts = _JOINED.split(line)
    joints = _JOINED.findall(line)
    escaped = [_SPECIAL.sub(_entity, part) for part in parts]
    broken = [_SPECIAL.sub(_entity, joint) + _BREAK for joint in joints]
    return Markdown("".join(one for pair in zip(escaped, [*broken, ""], strict=True) for one in pair))


def code(value: object) -> Markdown:
    """A name as a span of code, in which nothing is markup, a link or a mention; in a table, too."""
    line = _one_line(str(value), _LONGEST_NAME)
    return Markdown(f"`{line.replace('`', _visible('`')).replace('|', _visible('|'))}`" if line else "(no name)")


def codes(values: Iterable[object], most: int = 20) -> Markdown:
    """Names with commas between them, and how many more there are beyond the first ``most``."""
    names = [code(value) for value in values]
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return Markdown(", ".join(names[:most]) + rest)


def link(label: Markdown, url: str) -> Markdown:
    """A link, or only its label if there is no URL that could stand in one."""
    return Markdown(f"[{label}]({url})") if _URL.fullmatch(url) else label


def arrow(before: str | None, after: str | None) -> Markdown:
    """What was and what is to be, as one cell; None is what does not exist. Only ``Markdown`` is not escaped."""
    was, willbe = ("none" if one is None else _finished(one) for one in (before, after))
    return Markdown(was if was == willbe else f"{was}{_SPACE}→{_SPACE}**{willbe}**")


def environment() -> Environment:
    """The templates of this package, in which all that is not ``Markdown`` or a number is escaped."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=False,  # noqa: S701 - it knows HTML only; ``finalize`` escapes for both
        finalize=_finished,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    made.filters |= {"code": code, "codes": codes, "markdown": Markdown}
    made.globals |= {"arrow": arrow}
    return made


def _finished(value: object) -> Markdown:
    return value if isinstance(value, Markdown) else text(value)


def _one_line(value: str, longest: int) -> str:
    """Printable, without line ends, and of bounded length."""
    line = " ".join(value.split())
    shown = "".join(c if c.isprintable() else _visible(c) for c in line)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def _visible(character: str) -> str:
    """A character by its number in Unicode."""
    return f"\\u{ord(character):04x}"


def _entity(found: re.Match[str]) -> str:
    """A character that Markdown does not take for its own. A formula's needs more: its documentation names this."""
    return "<span>$</span>" if found[0] == "$" else f"&#{ord(found[0])};"
