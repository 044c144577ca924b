"""Whether a file has the structure that its JSON Schema describes, and what is wrong where it has not.

Knows JSON Schema, and budgets only by their schemas. Nearly every file is sound, so each schema is compiled once into
small closures that only say yes or no; a file that they refuse is given to ``jsonschema``, whose errors become problems
at the place of the value or key. A test holds both to the same verdict. A schema may carry ``x-rule`` (the rule that a
wrong value breaks), ``x-noun`` (what is wanted) and ``x-hint``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import cache
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import gpubudget
from gpubudget.gitops.diagnostics import Diagnostic, Position, quoted
from gpubudget.gitops.yamlfile import MAX_PROBLEMS, Map, Seq, Value, described, find_place, key_place

Check = Callable[[Any], bool]

SchemaError = Any
"""An error of ``jsonschema``, whose type says of each field that it may be unset."""

SCHEMAS = Path(gpubudget.__file__).parent / "schemas"

_WANTED = {
    "string": ("text", "put it in quotes if it looks like something else"),
    "integer": ("a whole number", "write a whole number such as 8"),
    "object": ("a mapping", "write keys with values, such as {hosts: 16}"),
    "array": ("a list", "write a list such as [alice, bob]"),
}
_ANNOTATIONS = {"$schema", "$id", "$defs", "title", "description", "default", "examples", "x-rule", "x-noun", "x-hint"}
_BOUNDS = {
    "minimum": ("less than", "at least"),
    "maximum": ("more than", "at most"),
    "maxLength": ("longer than", "characters: at most"),
    "maxItems": ("with more items than", "at most"),
    "minProperties": ("with fewer entries than", "at least"),
    "maxProperties": ("with more entries than", "at most"),
}


def problems(kind: str, file: str, value: Value) -> list[Diagnostic]:
    """What is wrong with the structure of a file of ``kind`` (``budget`` or ``cluster``)."""
    if _acceptor(kind)(value):
        return []
    found = (problem for error in validator(kind).iter_errors(value) for problem in _described(file, value, error))
    return list(dict.fromkeys(islice(found, MAX_PROBLEMS)))


@cache
def validator(kind: str) -> Any:  # noqa: ANN401 - the library's class has no type of its own
    """The library's validator of a kind of file, with patterns as JSON Schema means them."""
    from jsonschema import Draft202012Validator, ValidationError, validators  # noqa: PLC0415 - slow, for wrong files only

    def pattern(_: object, wanted: str, text: object, __: object) -> Iterator[ValidationError]:
        if isinstance(text, str) and not regex(wanted).search(text):
            yield ValidationError(f"{text!r} does not match {wanted!r}")

    kinds = validators.extend(Draft202012Validator, {"pattern": pattern})  # type: ignore[no-untyped-call]  # the library's
    return kinds(schema(kind))


@cache
def regex(pattern: str) -> re.Pattern[str]:
    """A pattern of a schema, in which ``$`` is the end of a text: to Python it is also the place before a line end."""
    return re.compile(pattern.replace("$", r"\Z"))


@cache
def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of file."""
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{kind}.schema.json").read_text(encoding="utf-8"))
    return loaded


def fits(kind: str, definition: str, text: str) -> bool:
    """Whether a text has the form of a definition (``share``, ``date``) in the schema of ``kind``."""
    return _pattern(kind, definition).search(text) is not None


@cache
def _pattern(kind: str, definition: str) -> re.Pattern[str]:
    return regex(schema(kind)["$defs"][definition]["pattern"])


@cache
def _acceptor(kind: str) -> Check:
    whole = schema(kind)
    return _compile(whole, whole["$defs"])


def _compile(part: dict[str, Any], definitions: dict[str, Any]) -> Check:
    """A closure that accepts what the schema ``part`` accepts, among the values that YAML files can have."""
    part = dict(part)
    while "$ref" in part:
        part = {**definitions[part.pop("$ref").removeprefix("#/$defs/")], **part}
    rules = {keyword: rule for keyword, rule in part.items() if keyword not in _ANNOTATIONS}
    if "const" in rules:
        wanted = rules["const"]
        return lambda value: bool(value == wanted)
    names = rules.pop("type")
    checks: dict[type, Check] = {}
    for name in [names] if isinstance(names, str) else names:
        python, make = _MAKERS[name]
        checks[python] = make(rules, definitions)
    if rules:
        msg = f"keywords of a schema that nothing checks: {sorted(rules)}"
        raise NotImplementedError(msg)

    def check(value: Value) -> bool:
        of_type = checks.get(type(value))
        return of_type is not None and of_type(value)

    return check


def _text(rules: dict[str, Any], _definitions: dict[str, Any]) -> Check:
    high = rules.pop("maxLength", inf)
    found = regex(rules.pop("pattern", "")).search
    return lambda value: len(value) <= high and found(value) is not None


def _integer(rules: dict[str, Any], _definitions: dict[str, Any]) -> Check:
    low, high = rules.pop("minimum"), rules.pop("maximum")
    return lambda value: low <= value <= high


def _sequence(rules: dict[str, Any], definitions: dict[str, Any]) -> Check:
    high, item = rules.pop("maxItems"), _compile(rules.pop("items"), definitions)
    return lambda value: len(value) <= high and all(map(item, value))


def _mapping(rules: dict[str, Any], definitions: dict[str, Any]) -> Check:
    low, high = rules.pop("minProperties", 0), rules.pop("maxProperties", inf)
    required = frozenset(rules.pop("required", ()))
    known = {key: _compile(part, definitions) for key, part in rules.pop("properties", {}).items()}
    name = _compile(rules.pop("propertyNames"), definitions) if "propertyNames" in rules else None
    others = rules.pop("additionalProperties")
    other = _compile(others, definitions) if others else _refuse

    def check(value: Value) -> bool:
        return (
            low <= len(value) <= high
            and required <= value.keys()
            and (name is None or all(map(name, value)))
            and all(known.get(key, other)(item) for key, item in value.items())
        )

    return check


def _refuse(_value: Value) -> bool:
    return False


_MAKERS: dict[str, tuple[type, Callable[[dict[str, Any], dict[str, Any]], Check]]] = {
    "string": (str, _text),
    "integer": (int, _integer),
    "array": (Seq, _sequence),
    "object": (Map, _mapping),
}


def _described(file: str, root: Value, error: SchemaError) -> Iterator[Diagnostic]:
    """The problems that an error of ``jsonschema`` stands for, each at its own key or value."""
    path = list(error.absolute_path)
    place = find_place(file, root, path)
    name = ".".join(map(str, path)) or "the file"
    found, rule = error.instance, error.validator_value
    if "propertyNames" in error.absolute_schema_path:
        yield _wrong(key_place(file, _at(root, path), found), f"the key {quoted(found)} of {name}", "", error)
    elif error.validator == "additionalProperties":
        for key in [key for key in found if key not in error.schema["properties"]]:
            close = get_close_matches(key, error.schema["properties"], n=1)
            hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(error.schema['properties'])}"
            place = key_place(file, found, key)
            yield Diagnostic("unknown-key", place, f"{name} has the unknown key {quoted(key)}", hint)
    elif error.validator == "required":
        for key in [key for key in rule if key not in found]:
            message = f"{name} has no {key}" if path else f"the file has no {key}"
            yield Diagnostic("missing-key", place, message, f"add the key {key}")
    else:
        yield _wrong(place, name, described(found), error)


def _wrong(place: Position, name: str, value: str, error: SchemaError) -> Diagnostic:
    """A problem with one value (or, without ``value``, with the key that ``name`` names)."""
    keyword, bound = error.validator, error.validator_value
    subject = f"{name} is {value}," if value else name
    noun, hint = error.schema.get("x-noun"), error.schema.get("x-hint", "")
    if keyword == "const":
        return Diagnostic("kind", place, f"{subject} not {quoted(bound)}", f"write kind: {bound} in this file")
    if noun:
        return Diagnostic(error.schema["x-rule"], place, f"{subject}{' not' if value else ' is not'} {noun}", hint)
    if keyword == "type":
        wanted, way_out = _WANTED[bound]
        return Diagnostic("wrong-type", place, f"{subject} not {wanted}", hint or way_out)
    beyond, within = _BOUNDS[keyword]
    return Diagnostic("out-of-bounds", place, f"{subject} {beyond} {bound}", hint or f"{within} {bound}")


def _at(root: Value, path: list[str | int]) -> Map:
    for key in path:
        root = root[key]
    found: Map = root
    return found
