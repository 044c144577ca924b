"""A finished validation in the formats that are read: text for people, JSON, and those of CI services.

One value, many renderings, and each has all the facts: rule, place, message, related places and hint. GitHub's
annotations are lines of its workflow commands, SARIF is version 2.1.0, and JUnit has a test for each file. Knows
nothing of files on disk; texts that came from them are made printable before anything is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gpubudget import __version__
from gpubudget.gitops.diagnostics import RULES, Diagnostic, Position, shown, to_json, to_text
from gpubudget.gitops.load import LoadResult
from gpubudget.units import count

_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Halves of characters that stand for no byte of a file's name."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What was found, in which files, what is put before their names, and whether warnings fail it too."""

    result: LoadResult
    files: tuple[str, ...] = ()
    prefix: str = ""
    strict: bool = False

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """All problems in the order of their places."""
        return self.result.diagnostics

    @property
    def warnings(self) -> int:
        """How many of them are warnings."""
        return sum(not problem.is_error for problem in self.problems)

    @property
    def passed(self) -> bool:
        """Whether the command succeeds."""
        return self.result.tree is not None and not (self.strict and self.warnings)

    def fails(self, problem: Diagnostic) -> bool:
        """Whether this problem is one of those that fail it."""
        return self.strict or problem.is_error


def verdict(validation: Validation) -> str:
    """The sentence that says how it ended."""
    warnings = validation.warnings
    counts = f"{count(len(validation.problems) - warnings, 'error')}, {count(warnings, 'warning')}"
    tree = validation.result.tree
    if tree is None:
        return f"invalid: {counts}"
    if not validation.passed:
        return f"refused: {counts}, and --strict lets no warning pass"
    what = f"{count(sum(1 for _ in tree.budgets()), 'budget')}, {count(len(tree.pools), 'pool')}"
    return f"valid: {what}; the shares of each fit into the whole in every pool and at every date; {counts}"


def text(validation: Validation) -> str:
    """For people: each problem with its line and a caret, and the verdict."""
    return "\n".join([*(to_text(problem, validation.prefix) for problem in validation.problems), verdict(validation)])


def as_json(validation: Validation) -> str:
    """One JSON object."""
    tree, warnings = validation.result.tree, validation.warnings
    answer = {
        "valid": tree is not None,
        "passed": validation.passed,
        "budgets": sum(1 for _ in tree.budgets()) if tree else None,
        "pools": [pool.name for pool in tree.pools] if tree else None,
        "errors": len(validation.problems) - warnings,
        "warnings": warnings,
        "problems": [to_json(problem, validation.prefix) for problem in validation.problems],
    }
    return json.dumps(answer, indent=2, ensure_ascii=False)


def github(validation: Validation) -> str:
    """Workflow commands that GitHub shows at the lines of a pull request, and the verdict."""
    return "\n".join(
        [*(_annotation(problem, validation.prefix) for problem in validation.problems), verdict(validation)]
    )


def _annotation(problem: Diagnostic, prefix: str) -> str:
    file, line, column = problem.position
    place = f"file={_property(shown(prefix + file))},line={line},col={column},title={_property(problem.rule)}"
    return f"::{problem.severity} {place}::{_data(_in_full(problem, prefix))}"


def _in_full(problem: Diagnostic, prefix: str) -> str:
    """Message, related places and hint, each on its line."""
    notes = [f"{shown(prefix + at.file)}:{at.line}:{at.column}: {shown(note)}" for at, note in problem.related]
    return "\n".join([shown(problem.message), *notes, *([f"hint: {shown(problem.hint)}"] if problem.hint else [])])


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def sarif(validation: Validation) -> str:
    """A SARIF 2.1.0 log with one run: every rule, and a result for each problem."""
    ids = list(RULES)
    results = [
        {
            "ruleId": problem.rule,
            "ruleIndex": ids.index(problem.rule),
            "level": str(problem.severity),
            "message": {"text": shown(problem.message) + (f"\nhint: {shown(problem.hint)}" if problem.hint else "")},
            "locations": [_location(problem.position, validation.prefix)],
            "relatedLocations": [
                {"id": number, **_location(position, validation.prefix), "message": {"text": shown(note)}}
                for number, (position, note) in enumerate(problem.related)
            ],
        }
        for problem in validation.problems
    ]
    driver = {"name": "gpubudget", "version": __version__, "rules": [_rule(rule) for rule in ids]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _rule(rule: str) -> dict[str, Any]:
    severity, summary = RULES[rule]
    return {
        "id": rule,
        "shortDescription": {"text": summary},
        "help": {"text": f"docs/rules.md of gpubudget describes {rule}, with an example and how to mend it."},
        "defaultConfiguration": {"level": str(severity)},
    }


def _location(position: Position, prefix: str) -> dict[str, Any]:
    name = quote(_NO_BYTE.sub("\ufffd", prefix + position.file).encode("utf-8", "surrogateescape"))
    artifact = {"uri": f"file://{name}"} if name.startswith("/") else {"uri": name, "uriBaseId": "%SRCROOT%"}
    region = {"startLine": position.line, "startColumn": position.column}
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def junit(validation: Validation) -> str:
    """JUnit's XML: a test for each file, which fails with all that is wrong in it."""
    from xml.etree import ElementTree as ET  # noqa: PLC0415 - slow to import; XML is written here, none is read

    by_file: dict[str, list[Diagnostic]] = {file: [] for file in validation.files}
    for problem in validation.problems:
        by_file.setdefault(problem.position.file, []).append(problem)
    failed = sum(any(map(validation.fails, found)) for found in by_file.values())
    numbers = {"tests": str(len(by_file)), "failures": str(failed), "errors": "0"}
    top = ET.Element("testsuites", numbers)
    suite = ET.SubElement(top, "testsuite", {"name": "gpubudget validate", **numbers})
    for file in sorted(by_file):
        case = ET.SubElement(suite, "testcase", {"classname": "budgets", "name": shown(validation.prefix + file)})
        wrong = [problem for problem in by_file[file] if validation.fails(problem)]
        if wrong:
            said = {"type": wrong[0].rule, "message": shown(wrong[0].message)}
            ET.SubElement(case, "failure", said).text = _texts(wrong, validation.prefix)
        if len(wrong) < len(by_file[file]):
            warned = [problem for problem in by_file[file] if not validation.fails(problem)]
            ET.SubElement(case, "system-out").text = _texts(warned, validation.prefix)
    ET.indent(top)
    return ET.tostring(top, encoding="unicode", xml_declaration=True)


def _texts(problems: list[Diagnostic], prefix: str) -> str:
    return "\n".join(to_text(problem, prefix) for problem in problems)


FORMATS: dict[str, Callable[[Validation], str]] = {
    "text": text, "json": as_json, "github": github, "sarif": sarif, "junit": junit,
}  # fmt: skip
"""Every format, by the name that the command line gives it."""
