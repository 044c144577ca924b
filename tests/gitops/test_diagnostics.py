"""Problems as text and as JSON."""

import json

from gpubudget.gitops.diagnostics import RULES, Diagnostic, Position, Related, in_order, quoted, to_json, to_text

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
