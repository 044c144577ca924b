"""Markdown as GitHub shows it: its own parser, and then what it makes of the text outside of code."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import cmarkgfm
from cmarkgfm.cmark import Options

_MADE_OF_TEXT = re.compile(
    r"(?<![\w/])@[a-z0-9]|(?<!\w)#\d|\bgh-\d|:[a-z0-9+_-]+:|\$[^$\s\0]|\bhttps?://|\bwww\.", re.IGNORECASE
)
"""What GitHub makes more of than text: mentions, numbers of issues, emoji, formulas, addresses."""

VOID = {"br", "hr", "img", "input", "meta"}


class Rendered(HTMLParser):
    """The tags, links, text and comments of Markdown turned to HTML, as a reader of a pull request has them."""

    def __init__(self, markdown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = cmarkgfm.github_flavored_markdown_to_html(markdown, Options.CMARK_OPT_UNSAFE)
        self.tags: list[str] = []
        self.links: list[str] = []
        self.codes: list[str] = []
        self.comments: list[str] = []
        self.rows: list[list[str]] = []
        self.plain = ""  # what is neither code nor a link
        self.text = ""  # all of it
        self.open: list[str] = []
        self.feed(self.html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.plain += "\0"  # nothing is joined over a tag
        if tag not in VOID:
            self.open.append(tag)
        match tag:
            case "a":
                self.links.append(dict(attrs).get("href") or "")
            case "code":
                self.codes.append("")
            case "tr":
                self.rows.append([])
            case "td" | "th":
                self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.plain += "\0"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "code" in self.open:
            self.codes[-1] += data
        elif "a" not in self.open:
            self.plain += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    @property
    def more_than_text(self) -> list[str]:
        """What GitHub would make mentions, references, links, emoji or formulas of."""
        return _MADE_OF_TEXT.findall(self.plain)
