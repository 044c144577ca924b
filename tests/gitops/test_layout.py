"""The canonical layout: it changes nothing but white space, and once is enough."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.errors import InvalidInputError
from gpubudget.gitops import yamlfile
from gpubudget.gitops.layout import formatted

EXAMPLE = Path(__file__).parents[2] / "budgets"


def laid_out(text: str) -> str:
    """A sound text in its canonical layout, which is that of itself."""
    new, problems = formatted("f", text.encode())
    assert problems == []
    assert formatted("f", new) == (new, [])
    return new.decode()


@pytest.mark.parametrize("path", sorted(EXAMPLE.rglob("*.yaml")), ids=lambda path: str(path.relative_to(EXAMPLE)))
def test_the_example_is_in_its_canonical_layout(path: Path) -> None:
    """What people copy from is as it should be."""
    assert laid_out(path.read_text()) == path.read_text()


BEFORE = """\
# yaml-language-server: $schema=x


kind:   Budget # the kind
managers: [ines,"otto" ]
members:
- ines
-   hanna   # h

# before children
children:
    # about olmo
    olmo:    50%                 # half
    b: {share:  1/3,changes: [ {from: 2026-12-01,until: 2027-01-15,share: 40%},
       # the next winter
         {from: 2027-12-01, until: 2028-01-15, share: 40%} ] }  # c
    c:
            share: {
      default: ~,b200: "5%" # more there

            }
            changes:
            # before item
            - from:   2026-12-01
              until: '2026-12-02'
              share: 5%
            -
                from: 2027-12-01
                until: 2027-12-02
                share: 5%
            # below the last
    # at the end of children
# at the end
"""
AFTER = """\
# yaml-language-server: $schema=x

kind: Budget   # the kind
managers: [ines, "otto"]
members:
  - ines
  - hanna   # h

# before children
children:
  # about olmo
  olmo: 50%                      # half
  b: {share: 1/3, changes: [{from: 2026-12-01, until: 2027-01-15, share: 40%},
                            # the next winter
                            {from: 2027-12-01, until: 2028-01-15, share: 40%}]}  # c
  c:
    share: {
      default: ~, b200: "5%"  # more there

    }
    changes:
      # before item
      - from: 2026-12-01
        until: '2026-12-02'
        share: 5%
      -
        from: 2027-12-01
        until: 2027-12-02
        share: 5%
      # below the last
  # at the end of children
# at the end
"""


def test_comments_quotes_and_order_stay() -> None:
    """Levels are two spaces, lists inside; every comment is where it was meant, inside brackets too."""
    assert laid_out(BEFORE) == AFTER


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: b", "a: b\n"),
        ("\n\n a: b\n\n\n", "a: b\n"),
        ("a: b\r\nc: d  \r\n", "a: b\nc: d\n"),
        ("---\n{a: 1 , b : [ ]}\n", "---\n{a: 1, b: []}\n"),
        ("- - a\n  - b\n-   - c\n", "- - a\n  - b\n- - c\n"),
        ("a:\n- b:\n  - c\n  # of b\n# of a\nz: 1\n", "a:\n  - b:\n      - c\n      # of b\n# of a\nz: 1\n"),
        ("a:\n      b\nc:\n  'd'\n", "a:\n  b\nc:\n  'd'\n"),
        ('a: "x\n\n      y"\nb: p\n     q\n', 'a: "x\n\n  y"\nb: p\n  q\n'),
        ("a: |  # kept\n     x\n       y\n\n     z\nb: >-\n   t\n", "a: |  # kept\n  x\n    y\n\n  z\nb: >-\n  t\n"),
        ("? a\n:   b\n?   c\n: - d\n", "? a\n: b\n? c\n: - d\n"),
        ("a: [\n", None),
        ("a: 010\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_layouts(before: str, after: str | None) -> None:
    """Each kind of line has one layout; what cannot be read is given back as it is, with its problems."""
    if after is not None:
        assert laid_out(before) == after
    else:
        new, problems = formatted("f", before.encode())
        assert new == before.encode()
        assert problems


@pytest.mark.parametrize("text", ["a: |+\n  x\n\n\n", "a:\n    - |4\n          x\n"])
def test_what_cannot_be_kept_is_left_alone(text: str) -> None:
    """Where white space is part of a text and would change, the file is refused and not changed."""
    with pytest.raises(InvalidInputError, match="left alone"):
        formatted("f", text.encode())


def written(value: object, chance: random.Random, indent: int, comments: list[str]) -> list[str]:
    """A value as lines of YAML in a careless layout, with comments in all places that can have one."""

    def comment(share: float) -> str:
        if chance.random() > share:
            return ""
        comments.append(f"# {len(comments)} a: [b")
        return " " * chance.randint(1, 6) + comments[-1]

    lines = []
    step = chance.randint(1, 5)
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):  # type: ignore[arg-type]
        above = range(chance.choice([0, 0, 0, 1, 3]))
        lines += [chance.choice(["", "   ", " " * chance.randint(0, 9) + comment(1)[1:]]) for _ in above]
        head = " " * indent + (f"{key}:" if isinstance(value, dict) else "-")
        if isinstance(item, dict | list) and item and chance.random() < 0.6:
            lines.append(head + comment(0.2))
            lines += written(item, chance, indent + step, comments)
        else:
            lines.append(head + " " * chance.randint(1, 3) + in_brackets(item, chance, indent, comment))
            lines[-1] += comment(0.2)
    return lines


def in_brackets(value: object, chance: random.Random, indent: int, comment: object) -> str:
    """A value on one or several lines inside brackets, or a scalar."""
    if not isinstance(value, dict | list):
        return str(value)
    assert callable(comment)
    parts = [
        (f"{key}: " if isinstance(value, dict) else "") + in_brackets(item, chance, indent, comment)
        for key, item in (value.items() if isinstance(value, dict) else enumerate(value))
    ]
    between = [
        chance.choice([" ", "", "  "])
        if chance.random() < 0.7
        else f"{comment(0.5)}\n{' ' * (indent + chance.randint(1, 9))}"
        for _ in range(len(parts) + 1)
    ]
    left, right = "{}" if isinstance(value, dict) else "[]"
    body = "".join(
        f"{part}{',' if index < len(parts) else ''}{gap}"
        for index, (part, gap) in enumerate(zip(parts, between[1:], strict=True), 1)
    )
    return left + between[0] + body + right


WORD = st.sampled_from(["olmo", "50%", "1/3", "'#x'", '"a: b"', "2026-12-01", "8", "a b", "~", "true"])
NAME = st.sampled_from(["a", "kind", "'b c'", "share"])
VALUE = st.recursive(
    WORD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3), max_leaves=12
)


@settings(max_examples=80)
@given(st.dictionaries(NAME, VALUE, min_size=1) | st.lists(VALUE, min_size=1), st.integers())
def test_careless_files_keep_values_and_comments_and_once_is_enough(value: object, seed: int) -> None:
    """Values and comments come out the same, no line ends in a space, and a second time changes nothing."""
    comments: list[str] = []
    text = "\n".join(written(value, random.Random(seed), 0, comments))
    before, problems = yamlfile.parse("f", text.encode())
    if problems:
        return
    new = laid_out(text)
    assert yamlfile.parse("f", new.encode()) == (before, [])
    assert re.findall("# [0-9]+ a: .b", new) == re.findall("# [0-9]+ a: .b", text)
    assert not re.search(r"[ \t]$|\n\n\n|^\n|\n\n\Z", new)
    assert not any(line != line.rstrip() for line in new.split("\n"))


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(EXAMPLE.rglob("*.yaml"))),
    st.floats(0, 1),
    st.integers(0, 9),
    st.text("[]{}:,-#|>'\"\\ \n\tab", max_size=6),
)
def test_damaged_files_are_refused_or_laid_out(path: Path, where: float, length: int, piece: str) -> None:
    """A file with something else in it has problems, is left alone, or has a layout that stays; with either parser."""
    text = path.read_text()
    at = int(where * len(text))
    data = (text[:at] + piece + text[at + length :]).encode()
    for loader in (yaml.SafeLoader, yamlfile.Loader):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yamlfile, "Loader", loader)
            try:
                new, problems = formatted("f", data)
                assert problems or formatted("f", new) == (new, [])
            except InvalidInputError:
                pass
