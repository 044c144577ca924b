"""Problems as text and as JSON."""

import json

import pytest

from gpubudget.gitops.diagnostics import (
    RULES,
    Diagnostic,
    Position,
    Related,
    excerpt,
    in_order,
    quoted,
    to_json,
    to_text,
)

SUM = Diagnostic(
    "share-sum",
    Position("language/budget.yaml", 5, 1),
    "the children sum to 110%",
    "take 10% away",
    (Related(Position("language/budget.yaml", 6, 9), "olmo gets 50%"),),
)


def test_text_has_place_rule_related_places_and_hint() -> None:
    """The first line can be opened by an editor; what belongs to it is indented below."""
    assert to_text(SUM, "budgets/").splitlines() == [
        "budgets/language/budget.yaml:5:1: error[share-sum]: the children sum to 110%",
        "    budgets/language/budget.yaml:6:9: olmo gets 50%",
        "    hint: take 10% away",
    ]
    assert to_text(Diagnostic("manager-missing", Position("f"), "m")) == "f:1:1: warning[manager-missing]: m"


def test_json_has_the_same_facts() -> None:
    """Programs get every fact under a name of its own."""
    assert json.loads(json.dumps(to_json(SUM))) == {
        "severity": "error",
        "rule": "share-sum",
        "file": "language/budget.yaml",
        "line": 5,
        "column": 1,
        "message": "the children sum to 110%",
        "hint": "take 10% away",
        "related": [{"file": "language/budget.yaml", "line": 6, "column": 9, "message": "olmo gets 50%"}],
    }


def test_order_is_by_place_and_nothing_is_said_twice() -> None:
    """Problems come in the order of files, lines and columns, equal ones once."""
    first, second = Diagnostic("kind", Position("a", 2), "m"), Diagnostic("kind", Position("a", 10), "m")
    assert in_order([SUM, second, first, second]) == (first, second, SUM)


def test_what_cannot_be_printed_is_escaped() -> None:
    """File names and texts from anywhere come out printable and of bounded length."""
    odd = Diagnostic("file-name", Position("a\x1b[31m\udcff.yaml"), "m")
    assert to_text(odd).startswith(r"a\x1b[31m\udcff.yaml:1:1: error")
    assert to_json(odd)["file"] == r"a\x1b[31m\udcff.yaml"
    name = Diagnostic("name-syntax", Position("f"), "the key a\nb\x1b", "mend\r", (Related(Position("g"), "\0"),))
    assert to_text(name).splitlines() == [
        r"f:1:1: error[name-syntax]: the key a\nb\x1b",
        r"    g:1:1: \x00",
        r"    hint: mend\r",
    ]
    assert all(str(value).isprintable() for value in to_json(name).values())
    assert quoted("a\nb") == r"'a\nb'"
    assert quoted("x" * 1000) == f"'{'x' * 60}...'"


def test_rule_ids_are_short_and_plain() -> None:
    """An id is made of lower-case words, and each rule says what it finds."""
    assert all(rule.replace("-", "").isalpha() and rule.islower() for rule in RULES)
    assert all(summary for _, summary in RULES.values())


@pytest.mark.parametrize(
    ("line", "column", "meant"),
    [
        ("  olmo: 60%", 3, "olmo"),
        ("  olmo: 60%", 9, "60%"),
        ("  a: {share: 60%}", 14, "60%"),
        ("  a: {share: 60%}", 6, "{"),
        ('title: "a: b" # c', 8, '"a: b"'),
        ("title: 'a' # c", 8, "'a'"),
        ("at: 12:30", 5, "12:30"),
        ("a: b  ", 5, ""),
        ("\ta: 数学", 5, "数学"),
        ("x" * 500 + ": 010 " + "y" * 500, 503, "010"),
        ("z" * 5000, 1, "z" * 80),
    ],
)
def test_carets_stand_under_what_is_meant(line: str, column: int, meant: str) -> None:
    """The line is shown, long ones around the place only, with carets under the word, text or bracket there."""
    found = excerpt(["", line], Position("f", 2, column))
    assert found is not None
    assert found.text[found.start : found.start + found.length] == meant
    assert len(found.text) <= 150
    shown = to_text(Diagnostic("kind", Position("f", 2, column), "m", source=found)).splitlines()
    assert shown[1] == f"    2 | {found.text}"
    wide = sum(2 if char in "数学" else 1 for char in meant)
    assert shown[2] == "      | " + " " * found.start + "^" * max(1, wide)


def test_a_place_without_a_line_shows_none() -> None:
    """Behind the last line, and where a line is empty, there is nothing to show."""
    assert excerpt([""], Position("f")) is None
    assert excerpt(["a"], Position("f", 2)) is None


def test_lines_are_shown_printable() -> None:
    """What cannot be seen in a line takes the place of one character; marks on a character take none."""
    found = excerpt(["a: \x1b[31m\tb"], Position("f", 1, 10))
    assert found == ("a: \ufffd[31m b", 9, 1)
    wide = Diagnostic("kind", Position("f", 1, 5), "m", source=excerpt(["e\u0301: b"], Position("f", 1, 5)))
    assert to_text(wide).splitlines()[2] == "      |    ^"
