"""Structure: the quick verdict and the JSON Schema library agree, and each error becomes a problem at its place."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gpubudget.core.budget import DebugLane, Policy
from gpubudget.gitops import structure
from gpubudget.gitops.diagnostics import RULES, Diagnostic, Position
from gpubudget.gitops.load import LoadResult
from gpubudget.gitops.yamlfile import Map, Seq, Value, parse
from gpubudget.units import parse_duration

EXAMPLE = Path(__file__).parents[2] / "budgets"
KINDS = sorted(path.name.removesuffix(".schema.json") for path in structure.SCHEMAS.iterdir())


def validated(text: str, kind: str = "budget") -> list[tuple[str, int, int, str]]:
    """Rule, line, column and message of each structural problem of a text, in the order of places."""
    value, problems = parse("f", text.encode())
    assert problems == []
    found = structure.problems(kind, "f", value)
    return sorted((p.rule, p.position.line, p.position.column, p.message) for p in found)


def definitions(part: object) -> list[dict[str, object]]:
    """All schemas inside a schema."""
    if isinstance(part, list):
        return [found for item in part for found in definitions(item)]
    if not isinstance(part, dict):
        return []
    return [part, *(found for key, item in part.items() if key != "examples" for found in definitions(item))]


@pytest.mark.parametrize("kind", KINDS)
def test_the_schemas_are_schemas_and_describe_each_key(kind: str) -> None:
    """They are valid for their draft, name only known rules, and every key has a description."""
    schema = structure.schema(kind)
    Draft202012Validator.check_schema(schema)
    for part in definitions(schema):
        assert part.get("x-rule", "kind") in RULES
        assert ("x-rule" in part) == ("x-noun" in part) or "const" in part
        properties = part.get("properties", {})
        assert isinstance(properties, dict)
        for key, entry in properties.items():
            if isinstance(entry, dict):
                target = str(entry.get("$ref", "")).removeprefix("#/$defs/")
                assert "description" in entry or "description" in schema["$defs"][target], key


@pytest.mark.parametrize("kind", ["budget", "cluster"])
def test_editors_can_explain_every_part_of_a_budget(kind: str) -> None:
    """Each definition has a description, each form of text an example, and both are right by the schema itself."""
    schema = structure.schema(kind)
    for name, part in schema["$defs"].items():
        assert "description" in part, name
        assert "pattern" not in part or part.get("examples") or name in {"title", "name", "pool-name", "child"}, name
    for part in definitions(schema):
        inner = {"$defs": schema["$defs"], **part}
        for example in [*part.get("examples", []), *([part["default"]] if "default" in part else [])]:  # type: ignore[misc]
            assert Draft202012Validator(inner).is_valid(example), example


def test_the_defaults_of_the_schema_are_those_of_the_code() -> None:
    """What an editor shows for a setting that is left out is what it is."""
    schema = structure.schema("cluster")
    policy = schema["$defs"]["policy"]["properties"]
    written = {name: parse_duration(entry["default"]) for name, entry in policy.items() if name != "debug"}
    assert {name: getattr(Policy(), name) for name in written} == written
    assert {*written, "debug"} == {field.name for field in fields(Policy)}
    lane = schema["$defs"]["debug"]["properties"]
    assert parse_duration(lane["max_runtime"]["default"]) == DebugLane(8).max_runtime
    assert lane["per_person"]["default"] == DebugLane(8).per_person
    assert (schema["properties"]["name"]["default"], schema["properties"]["timezone"]["default"]) == ("cluster", "UTC")


@pytest.mark.parametrize("path", sorted(EXAMPLE.rglob("*.yaml")), ids=lambda path: str(path.relative_to(EXAMPLE)))
def test_each_file_of_the_example_names_its_schema(path: Path) -> None:
    """The first line tells a language server where the schema is, and there it is."""
    line = path.read_text(encoding="utf-8").splitlines()[0]
    place = line.removeprefix("# yaml-language-server: $schema=")
    kind = "cluster" if path.name == "cluster.yaml" else "budget"
    assert (path.parent / place).resolve() == structure.SCHEMAS.resolve() / f"{kind}.schema.json"


def test_a_keyword_that_nothing_checks_is_an_error() -> None:
    """A schema cannot grow a keyword that only one of the two checks knows."""
    with pytest.raises(NotImplementedError, match="multipleOf"):
        structure._compile({"type": "integer", "minimum": 0, "maximum": 1, "multipleOf": 2}, {})


def placed(value: object) -> Value:
    """The same value as YAML gives it."""
    if isinstance(value, dict):
        mapping = Map(1, 1)
        for key, item in value.items():
            mapping[key] = placed(item)
            mapping.spots[key] = (1, 1, 1, 1)
        return mapping
    if isinstance(value, list):
        sequence = Seq(1, 1)
        for item in value:
            sequence.append(placed(item))
            sequence.spots.append((1, 1))
        return sequence
    return value


TEXTS = st.sampled_from(
    ["Budget", "Cluster", "alice", "Alice", "a/b", "a//b", "50%", "150%", "1/3", "1/0", "12345/1", "2026-12-01",
     "7d", "7", "0", "1h30m", "", "x" * 64, "x" * 1024, "50%\n", "default"]
)  # fmt: skip
KEYS = st.sampled_from(
    ["kind", "title", "managers", "members", "previously", "children", "share", "changes", "from", "until", "default",
     "h100", "olmo", "NO", "name", "timezone", "pools", "policy", "hosts", "gpus_per_host", "lookback", "debug", "gpus",
     "max_runtime", "x" * 64]
)  # fmt: skip
LEAVES = TEXTS | st.integers(-1, 9) | st.sampled_from([10**6, 10**30]) | st.booleans() | st.none()
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5))
NAMES = st.lists(TEXTS, max_size=3)
SHARES = TEXTS | st.dictionaries(KEYS, TEXTS, max_size=3)
DATED = st.fixed_dictionaries({"from": TEXTS, "until": TEXTS}, optional={"share": SHARES})
CHILD = SHARES | st.fixed_dictionaries(
    {"share": SHARES}, optional={"members": NAMES, "previously": TEXTS, "title": TEXTS, "changes": st.lists(DATED)}
)
BUDGETS = st.fixed_dictionaries(
    {"kind": st.just("Budget")}, optional={"title": TEXTS, "members": NAMES, "children": st.dictionaries(KEYS, CHILD)}
)
POOLS = st.dictionaries(KEYS, st.fixed_dictionaries({"hosts": LEAVES, "gpus_per_host": LEAVES}), max_size=3)
POLICIES = st.dictionaries(KEYS, LEAVES | st.dictionaries(KEYS, LEAVES, max_size=3), max_size=3)
CLUSTERS = st.fixed_dictionaries(
    {"kind": st.just("Cluster"), "pools": POOLS}, optional={"policy": POLICIES, "name": TEXTS, "timezone": TEXTS}
)


@pytest.mark.parametrize("kind", KINDS)
@given(document=ANYTHING | BUDGETS | CLUSTERS)
def test_the_quick_verdict_is_that_of_the_library(kind: str, document: object) -> None:
    """What the compiled schema accepts is what ``jsonschema`` accepts, and each refusal says why."""
    value = placed(document)
    accepted = structure.validator(kind).is_valid(value)
    problems = structure.problems(kind, "f", value)
    assert (problems == []) == accepted
    assert structure._acceptor(kind)(value) == accepted
    assert all(problem.message and problem.hint for problem in problems)


@pytest.mark.parametrize(
    "text",
    [
        'title: "a\\n"', 'members: ["x\\n"]', 'children: {"a\\n": 5%}', 'children: {a: "50%\\n"}',
        "children:\n  a: |\n    50%\n",
        'children: {a: {share: 5%, previously: "b\\n"}}', 'children: {a: {share: {default: "1/3\\n"}}}',
        'children: {a: {share: 5%, changes: [{from: 2026-12-01, until: "2026-12-02\\n", share: 5%}]}}',
    ],
)  # fmt: skip
def test_a_line_end_behind_a_value_is_not_overlooked(text: str) -> None:
    """A text of a right form and a line end is not of that form: it would be another value, or none, later on."""
    [(rule, *_)] = validated(f"kind: Budget\n{text}\n")
    assert rule.endswith("-syntax")


def test_unknown_keys_are_named_each_at_its_place() -> None:
    """Every unknown key is a problem at the key, with the one that was probably meant."""
    text = "kind: Budget\nmemebers: [a]\nchildren:\n  a: {share: 5%, zzz: 1, titel: x}\n"
    assert validated(text) == [
        ("unknown-key", 2, 1, "the file has the unknown key 'memebers'"),
        ("unknown-key", 4, 18, "children.a has the unknown key 'zzz'"),
        ("unknown-key", 4, 26, "children.a has the unknown key 'titel'"),
    ]
    value, _ = parse("f", text.encode())
    hints = [problem.hint for problem in structure.problems("budget", "f", value)]
    assert "did you mean members?" in hints
    assert any(hint.startswith("known here: share, changes") for hint in hints)


def test_missing_keys_are_named_each() -> None:
    """Every key that has to be there is a problem of its own (gitops.md: volcano#5634)."""
    assert validated("managers: [a]\nchildren:\n  a: {share: 5%, changes: [{share: 6%}]}\n") == [
        ("missing-key", 1, 1, "the file has no kind"),
        ("missing-key", 3, 28, "children.a.changes.0 has no from"),
        ("missing-key", 3, 28, "children.a.changes.0 has no until"),
    ]
    assert validated("kind: Cluster\npools: {h100: {hosts: 1}}\n", "cluster") == [
        ("missing-key", 2, 15, "pools.h100 has no gpus_per_host")
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a: -1", "children.a is the number -1, not a share"),
        ("a:", "children.a is empty (null), not a share"),
        ("a: true", "children.a is the truth value true, not a share"),
        ("a: [5%]", "children.a is a list, not a share"),
        ("a: 50", "children.a is the number 50, not a share"),
        ("a: fifty", "children.a is the text 'fifty', not a share"),
        ("a: {share: {default: 5}}", "children.a.share.default is the number 5, not a share"),
        ("a: {share: unlimited}", "children.a.share is the text 'unlimited', not a share"),
    ],
)
def test_a_share_is_never_a_bare_number_or_a_sentinel(line: str, message: str) -> None:
    """Numbers, nothing and words for "unlimited" are no shares (gitops.md: KAI#1881, volcano#5634)."""
    [(rule, _, _, said)] = validated(f"kind: Budget\nchildren:\n  {line}\n")
    assert (rule, said) == ("share-syntax", message)


@pytest.mark.parametrize("name", ["Alice", "NO", "é", "a_b", "a.b", "a b", "-a", "a/b", "x" * 64, "''"])
def test_names_cannot_differ_in_case_or_accents_only(name: str) -> None:
    """A name with other characters is refused where it stands, as key and as value (gitops.md: fleetdm#33557)."""
    found = validated(f"kind: Budget\nmembers: [ok, {name}]\nchildren:\n  {name}: 5%\n")
    assert [(rule, line, column) for rule, line, column, _ in found] == [("name-syntax", 2, 15), ("name-syntax", 4, 3)]


@pytest.mark.parametrize("number", [".nan", ".NaN", ".inf", "4.02", "1e400", "'.nan'"])
def test_numbers_that_a_schema_misjudges_never_reach_it(load: Callable[..., LoadResult], number: str) -> None:
    """NaN would pass a maximum, and 4.02 is no multiple of 0.01 (gitops.md: jsonschema#1222, #1234)."""
    cluster = f"kind: Cluster\npools: {{h100: {{hosts: {number}, gpus_per_host: 8}}}}\n"
    [found] = load({"cluster.yaml": cluster}).diagnostics
    assert (found.rule, found.position.column) == ("wrong-type" if "'" in number else "ambiguous-number", 23)


def test_bounds_are_named() -> None:
    """A number out of bounds is shown with its bound."""
    text = "kind: Cluster\npools: {h100: {hosts: 0, gpus_per_host: 1000000000000000000000000000000}}\n"
    assert [message for _, _, _, message in validated(text, "cluster")] == [
        "pools.h100.hosts is the number 0, less than 1",
        f"pools.h100.gpus_per_host is the number {10**30}, more than 256",
    ]
    assert validated("kind: Cluster\npools: {}\n", "cluster") == [
        ("out-of-bounds", 2, 8, "pools is a mapping, with fewer entries than 1")
    ]
    assert [found[0] for found in validated("[1]")] == ["wrong-type"]


def test_a_place_is_named_by_one_problem_of_text_or_structure(load: Callable[..., LoadResult]) -> None:
    """A value that is refused as text is not refused once more for its type."""
    found: tuple[Diagnostic, ...] = load({"budget.yaml": "kind: Budget\nmembers: [010]\n"}).diagnostics
    assert [(problem.rule, problem.position) for problem in found] == [
        ("ambiguous-number", Position("budget.yaml", 2, 11))
    ]


def test_schemas_and_example_are_found_beside_the_package() -> None:
    """What is shipped with the package is the repository's own: one source."""
    top = Path(__file__).parents[2]
    assert structure.SCHEMAS.resolve() == top / "schemas"
    assert (top / "gpubudget" / "example").resolve() == top / "budgets"
