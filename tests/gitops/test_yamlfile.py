"""Strict YAML: what is read, what is refused, and where the problems are said to be."""

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.gitops import yamlfile
from gpubudget.gitops.diagnostics import Diagnostic, Position, Related
from gpubudget.gitops.yamlfile import MAX_BYTES, MAX_PROBLEMS, find_place, key_place, parse, value_place


@pytest.fixture(autouse=True, params=[yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs with the parser in C and with the one in Python."""
    monkeypatch.setattr(yamlfile, "Loader", request.param)


def read(text: str) -> object:
    """The value of a text without problems."""
    value, problems = parse("f", text.encode())
    assert problems == []
    return value


def refused(text: str | bytes) -> list[Diagnostic]:
    """The problems of a text, in the order in which they were found."""
    return parse("f", text.encode() if isinstance(text, str) else text)[1]


def places(text: str | bytes) -> list[tuple[str, int, int]]:
    """Rule, line and column of each problem."""
    return [(found.rule, found.position.line, found.position.column) for found in refused(text)]


def test_values_of_all_kinds_are_plain() -> None:
    """Mappings, lists, text, whole numbers, truth values and nothing become the plain values of Python."""
    text = "a: {b: [1, -2, +3, 0], c: true, d: ~}\ne: 'x'\nf: |\n  two\n  lines\ng: plain text\nh:\n'1': null\n"
    expected = {"a": {"b": [1, -2, 3, 0], "c": True, "d": None}, "e": "x", "f": "two\nlines\n", "g": "plain text"}
    assert read(text) == {**expected, "h": None, "1": None}


def test_places_are_those_of_key_and_value() -> None:
    """Each key, value and item has the line and column at which it begins."""
    root = read("kind: Budget\nchildren:\n  olmo:   50%\n  list: [a,  b]\n")
    assert isinstance(root, yamlfile.Map)
    assert key_place("f", root["children"], "olmo") == Position("f", 3, 3)
    assert value_place("f", root["children"], "olmo") == Position("f", 3, 11)
    assert find_place("f", root, ["children", "list", 1]) == Position("f", 4, 14)
    assert find_place("f", root, []) == Position("f", 1, 1)
    assert find_place("f", "text", []) == Position("f", 1, 1)


@pytest.mark.parametrize(
    "text", ["NO", "no", "yes", "on", "Off", "y", "1/3", "50%", "12.5%", "2026-12-01", "7d", "-", "nan"]
)
def test_words_that_older_yaml_reads_as_something_else_are_text(text: str) -> None:
    """``owner: NO`` is a name and no truth value, and a date is text (gitops.md: nft-blackhole PR#4)."""
    assert read(f"a: {text if text != '-' else repr(text)}") == {"a": text}


@pytest.mark.parametrize(
    "text",
    [
        "12:30", "010", "1_000", "0o7", "0x1F", "0b1", "1e3", "0.5", ".5", "1.", "-0.1", "+1E-3", ".inf", "-.Inf",
        ".NaN", "190:20:30", "1" * 41, "1_0:2_0.5",
    ],
)  # fmt: skip
def test_numbers_that_programs_read_differently_are_refused(text: str) -> None:
    """Octal, sexagesimal, underscored and floating spellings are refused (gitops.md: pyyaml#395, #107, #173)."""
    [found] = refused(f"a:\n  b: {text}")
    assert (found.rule, found.position) == ("ambiguous-number", Position("f", 2, 6))
    assert "50%" in found.hint
    assert read(f"a: '{text}'") == {"a": text}


def test_a_key_twice_names_both_places() -> None:
    """Of two equal keys the second is an error that says where the first is (gitops.md: pyyaml#165, octodns#888)."""
    value, [found] = parse("f", b"a: 1\nb:\n  x: {k: 1}\n  'x': {k: 2}\n")
    assert (found.rule, found.position) == ("duplicate-key", Position("f", 4, 3))
    assert found.related == (Related(Position("f", 3, 3), "here first"),)
    assert value == {"a": 1, "b": {"x": {"k": 1}}}


def test_what_a_refused_key_holds_is_still_looked_at() -> None:
    """Problems below a key that stands twice are found in the same run."""
    assert places("a: 1\na: {b: 010}\n") == [("duplicate-key", 2, 1), ("ambiguous-number", 2, 8)]


@pytest.mark.parametrize("key", ["1", "true", "~", "''[]", "010"])
def test_keys_are_text(key: str) -> None:
    """A number, a truth value or nothing as a key is refused (gitops.md: jsonschema#788)."""
    assert [rule for rule, _, _ in places(f"{key}: 1")][-1:] in (["yaml-key"], ["ambiguous-number"], ["yaml-syntax"])
    assert places("? [a]\n: 1\nb: 2\n") == [("yaml-key", 1, 3)]
    assert places("? {a: 1}\n: {c: 010}\n") == [("yaml-key", 1, 3), ("ambiguous-number", 2, 7)]
    assert "quotes" in refused("1: 2")[0].hint


def test_an_alias_bomb_is_refused_without_being_expanded() -> None:
    """Anchors and aliases are errors, each where it stands (gitops.md: pyyaml#235)."""
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    found = refused("\n".join(lines))
    assert {problem.rule for problem in found} == {"yaml-anchor"}
    assert len(found) == 9 + 8 * 9
    assert places("a: &x 1\nb: *x\n") == [("yaml-anchor", 1, 4), ("yaml-anchor", 2, 4)]


def test_tags_directives_and_merge_keys_are_refused() -> None:
    """What changes the meaning of the rest is refused, and reading goes on behind it."""
    assert places("a: !!int 1\nb: !x {c: 010}\n") == [
        ("yaml-tag", 1, 4),
        ("yaml-tag", 2, 4),
        ("ambiguous-number", 2, 11),
    ]
    assert places("%YAML 1.1\n---\na: 010\n") == [("yaml-directive", 1, 1), ("ambiguous-number", 3, 4)]
    assert places("%TAG ! tag:x,2000:\n---\na: b\n") == [("yaml-directive", 1, 1)]
    assert places("a: {<<: {b: 1}, c: 010}\n") == [("yaml-merge-key", 1, 5), ("ambiguous-number", 1, 20)]
    assert read("a: <<\nb: [<<]\n'<<': 1\n") == {"a": "<<", "b": ["<<"], "<<": 1}


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "---\n...\n", "~", "null\n"])
def test_an_empty_file_is_an_error(text: str) -> None:
    """No content, comments only or an empty document is never "no children" (gitops.md: yamllint#115)."""
    assert places(text) == [("yaml-empty", 1, 1)]


def test_a_second_document_is_an_error() -> None:
    """One file has one document; the problems of the first are still reported (gitops.md: yamllint#115)."""
    assert places("a: 010\n---\nb: 2\n") == [("ambiguous-number", 1, 4), ("yaml-documents", 2, 1)]


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b"\xff\xfea\x00", 1, 1),
        (b"a: b\nc: \xe9\n", 2, 4),
        ("é: 1\nü: ".encode() + b"\xc3\x28", 2, 4),
        (b"\xed\xa0\x80", 1, 1),
    ],
)
def test_bytes_that_are_not_utf8_have_a_place(data: bytes, line: int, column: int) -> None:
    """Another encoding is an error at its first byte, counted in characters."""
    assert places(data) == [("file-encoding", line, column)]


def test_a_byte_order_mark_is_refused_and_the_rest_read() -> None:
    """A byte order mark is an error, and not the only one found."""
    assert places("\ufeffa: 010\n") == [("file-encoding", 1, 1), ("ambiguous-number", 1, 4)]


@pytest.mark.parametrize(
    "character", ["\x00", "\x07", "\x1b", "\x7f", "\x85", "\u200b", "\u202e", "\u2028", "\ufeff", "\uffff", "\r"]
)
def test_characters_that_cannot_be_seen_are_refused(character: str) -> None:
    """Control characters, text direction marks and stray line ends are errors where they stand."""
    assert places(f"a: b\nc: d{character}e\n")[:1] == [("control-character", 2, 5)]


def test_windows_line_ends_and_other_scripts_are_fine() -> None:
    """CR LF is a line end, and text may be in any script."""
    assert read("a: grün\r\nb: 数学\r\n") == {"a": "grün", "b": "数学"}


def test_a_syntax_error_has_its_place_and_a_hint() -> None:
    """What is not YAML is one problem, with what to look for."""
    assert places("a: [1\nb: 2\n")[0][:2] == ("yaml-syntax", 2)
    assert "tabs" in refused("a:\n\tb: 1\n")[0].hint
    assert "quotes" in refused("a: @b\n")[0].hint
    assert "indentation" in refused("a: 1\n b: 2\n")[0].hint
    assert places("a: 'b") == [("yaml-syntax", 1, 6)]


def test_depth_is_bounded() -> None:
    """Deep nesting is refused at its place without being read to its end."""
    assert places("a: " + "[" * 500) == [("yaml-depth", 1, 23)]
    assert places("a: " + "[" * 100_000)[0][0] in {"yaml-depth", "yaml-syntax"}
    assert read("[" * 20 + "]" * 20) is not None
    deep = "".join(" " * i + "a:\n" for i in range(1000))
    assert [rule for rule, _, _ in places(deep)] == ["yaml-depth"]


def test_size_is_bounded() -> None:
    """A file beyond the bound is refused unread."""
    assert places(b"#" * (MAX_BYTES + 1)) == [("file-size", 1, 1)]


@pytest.mark.parametrize("text", ["a: 1\n" * 3_000, "[" + "010," * 3_000 + "]", "text" + "\0" * 3_000])
def test_a_file_full_of_problems_is_not_read_on(text: str) -> None:
    """Of very many problems in one file only the first are found, and the file has no value."""
    value, problems = parse("f", text.encode())
    assert value is None
    assert len(problems) == MAX_PROBLEMS


SEEN = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"], exclude_characters="\u115f\u1160\u3164\uffa0")
)
SCALARS = SEEN | st.integers(-(10**30), 10**30) | st.booleans()


@settings(max_examples=40)
@given(st.recursive(SCALARS, lambda inner: st.lists(inner | st.none()) | st.dictionaries(SEEN, inner), max_leaves=20))
def test_whatever_another_program_writes_is_read_back(value: object) -> None:
    """JSON is YAML: what its writer writes comes back as the same value."""
    assert read(json.dumps(value, ensure_ascii=False)) == value


def test_escapes_do_not_bring_in_what_cannot_be_seen() -> None:
    """A control character or half a character is refused as an escape too, and an impossible one is no YAML."""
    for escape in ("\\0", "\\e", "\\N", "\\u200B"):
        assert places(f'a: "x{escape}"\n') == [("control-character", 1, 4)]
    for escape in ("\\uD83D", "\\UFFFFFFFF", "\\U00110000"):
        assert [rule for rule, _, _ in places(f'a: "{escape}"')] in (["control-character"], ["yaml-syntax"])
    assert read(r'a: "\u00e9\t"') == {"a": "é\t"}
