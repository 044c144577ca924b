"""Whatever a name holds, it is shown as it is and is nothing but text; judged by GitHub's own parser."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.gitops.markdown import Markdown, arrow, code, codes, environment, link, text
from tests.gitops.rendered import Rendered

NASTY = [
    "@ines",
    "a@b.com",
    "@lab/everybody",
    "see #12, lab/x#12, GH-12",
    "http://evil.example www.evil.example ftp://evil.example mailto:a@b.example",
    "*bold* _it_ __x__ ~~gone~~ `code`",
    "<img src=x onerror=alert(1)><script>alert(1)</script>",
    "</summary></details><!-- --> &lt;b&gt; &#64;ines",
    "[a](http://evil.example) ![i](http://evil.example/x.png) [x]: http://evil.example",
    "| a | b |",
    "# head",
    "- item",
    "+ item",
    "1. item",
    "2) item",
    "> quote",
    "---",
    "===",
    "```",
    "~~~",
    "`" * 7,
    "$x$ $$y$$ $`z`$",
    ":tada: :+1:",
    "\\",
    "\\|",
    "a\\",
    "[^1]",
    "[!WARNING]",
    "{{ 7 * 7 }} {% raw %} ${{ github.token }}",
    "two\nlines\r\nand\u2028more",
    "tab\tand\x0bvertical",
    "\x1b[31mred\x00",
    "\u202eback\u200bzero\ufeff",
    "Grüße 雪 \U0001f680",
    " ",
    "",
]
INLINE = {"p", "span"}


def shown(value: str) -> str:
    """A text as it is meant to be seen: one line, with what cannot be seen by its number."""
    line = " ".join(value.split())
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in line)


def seen(rendered: str) -> str:
    """A rendered text without the spaces of no width that keep GitHub from joining parts."""
    return rendered.replace("\u200b", "").strip("\n")


@pytest.mark.parametrize("value", NASTY)
def test_text_is_shown_as_it_is(value: str) -> None:
    """In a paragraph, an item of a list, and a cell of a table: no tag, no link, no mention comes from it."""
    page = Rendered(text(value))
    assert seen(page.text) == shown(value)
    assert set(page.tags) <= INLINE
    assert page.more_than_text == page.links == page.comments == []
    item = Rendered(f"- {text(value)}\n- next")
    assert [tag for tag in item.tags if tag != "span"] == ["ul", "li", "li"]
    cell = Rendered(f"| a | b |\n| - | - |\n| {text(value)} | next |")
    assert [seen(one) for one in cell.rows[1]] == [shown(value), "next"]


@pytest.mark.parametrize("value", NASTY)
def test_a_name_is_code(value: str) -> None:
    """A span of code, in a table as well; what would end it or the cell is shown by its number."""
    page = Rendered(f"| a | b |\n| - | - |\n| {code(value)} | next |")
    expected = shown(value).replace("`", "\\u0060").replace("|", "\\u007c")
    assert page.rows[1] == [expected or "(no name)", "next"]
    assert page.more_than_text == page.links == page.comments == []
    assert page.codes == ([expected] if expected else [])


@settings(max_examples=50)
@given(st.text(max_size=60))
def test_any_text_stays_text(value: str) -> None:
    """The same for whatever there may be."""
    page = Rendered(f"| a | b |\n| - | - |\n| {text(value)} | {code(value)} |")
    assert seen(page.rows[1][0]) == shown(value)
    assert page.more_than_text == page.links == page.comments == []
    assert len(page.rows) == 2
    assert set(Rendered(text(value)).tags) <= INLINE


@settings(max_examples=50)
@given(st.lists(st.sampled_from([*NASTY, "x", " ", "1", "."]), max_size=5).map("".join))
def test_any_mixture_stays_text(value: str) -> None:
    """Parts that do harm, joined in every way."""
    page = Rendered(text(value))
    assert set(page.tags) <= INLINE
    assert page.more_than_text == page.links == page.comments == []


def test_length_is_bounded() -> None:
    """A very long name does not use up a comment."""
    assert len(code("x" * 10_000)) < 250
    assert len(text("x" * 10_000)) < 550
    assert text("x" * 10_000).endswith("…")


def test_many_names_are_counted() -> None:
    """Only so many stand in a cell."""
    assert codes(["a", "b"]) == "`a`, `b`"
    assert codes([]) == ""
    assert codes("abcde", most=2) == "`a`, `b` and 3 more"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("50%", "45%", "50% → 45%"),
        ("50%", "50%", "50%"),
        (None, "45%", "none → 45%"),
        ("50%", None, "50% → none"),
        ("*a*", "<b>", "*a* → <b>"),
    ],
)
def test_an_arrow_is_from_what_was_to_what_is_to_be(before: str | None, after: str | None, expected: str) -> None:
    """Without a line end at the arrow, and escaped."""
    assert Rendered(arrow(before, after)).text.replace("\u00a0", " ").strip() == expected


@pytest.mark.parametrize(
    "url",
    ["", "javascript:alert(1)", "https://x.example/a b", "https://x.example/)x", "https://x.example/\n", "https://x/`"],
)
def test_only_a_sound_url_becomes_a_link(url: str) -> None:
    """Else the label stands alone."""
    assert link(Markdown("label"), url) == "label"


def test_a_link_leads_where_it_says() -> None:
    """The label is Markdown, the URL as it is."""
    page = Rendered(link(code("abc"), "https://github.com/lab/budgets/commit/abc?x=1#y"))
    assert page.links == ["https://github.com/lab/budgets/commit/abc?x=1#y"]
    assert page.codes == ["abc"]


def test_templates_escape_what_is_not_markdown() -> None:
    """What is put into a template is escaped without a word there, and what is missing is an error."""
    template = environment().from_string("{{ a }} {{ b }} {{ a | code }} {{ 12 }}")
    assert template.render(a="*x*", b=Markdown("*y*")) == "&#42;x&#42; *y* `*x*` 12"
