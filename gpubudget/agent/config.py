"""An agent's configuration file: health checks, repair steps and limits, as checked values.

What the file may hold is described by ``schemas/agent.schema.json``. Anything wrong in it stops the agent before it has
done anything, with every problem at its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gpubudget.errors import GpuBudgetError, InvalidInputError
from gpubudget.gitops import structure
from gpubudget.gitops.diagnostics import Diagnostic, to_text
from gpubudget.gitops.yamlfile import Map, parse, value_place
from gpubudget.units import DAY, MINUTE, SECOND, format_duration, parse_duration

T = TypeVar("T")

LONGEST = DAY
"""No check or step may take longer, and no check may be rarer."""


@dataclass(frozen=True, slots=True)
class Check:
    """A command that says whether the host is healthy: exit code 0. Times in milliseconds."""

    name: str
    command: tuple[str, ...]
    every: int = MINUTE
    timeout: int = 30 * SECOND
    failures: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """A command to run or an address to post to, with its longest time in milliseconds."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    timeout: int = 10 * MINUTE


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file; its defaults are those of an empty one."""

    checks: tuple[Check, ...] = ()
    repair: tuple[Step, ...] = ()
    gpus: int | None = None
    max_temperature: int = 95
    min_free_mb: int = 100
    keep_logs: int = 7 * DAY
    keep_logs_mb: int = 1024
    unknown_owners: str = ""  # refuse, but on a host whose GPUs are simulated


def load_config(path: Path) -> Config:
    """The configuration in a file; raises InvalidInputError with all problems, each with its line."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InvalidInputError(f"the configuration {path} cannot be read: {problem.strerror}") from None
    value, problems = parse(path.name, data)
    if not problems:
        problems = structure.problems("agent", path.name, value) or list(_contradictions(path.name, value))
    if problems:
        listed = "\n".join(to_text(problem, f"{path.parent}/") for problem in problems)
        raise InvalidInputError(f"the configuration {path} cannot be used:\n{listed}")
    found: dict[str, Any] = dict(value)
    if "keep_logs" in found:
        found["keep_logs"] = parse_duration(found["keep_logs"])
    found["checks"] = tuple(_made(Check, one) for one in found.get("checks", ()))
    found["repair"] = tuple(_made(Step, one) for one in found.get("repair", ()))
    return Config(**found)


def _made(kind: Callable[..., T], one: Map) -> T:
    """A check or a step of what the file says of it."""
    given: dict[str, Any] = {**one, **{key: parse_duration(one[key]) for key in ("every", "timeout") if key in one}}
    if "command" in given:
        given["command"] = tuple(given["command"])
    return kind(**given)


def _contradictions(file: str, config: Map) -> Iterator[Diagnostic]:
    """What the schema cannot say."""
    for kind in ("checks", "repair"):
        seen: set[str] = set()
        for one in config.get(kind, ()):
            if one["name"] in seen:
                hint = "give each a name of its own"
                yield Diagnostic("name-syntax", value_place(file, one, "name"), f"{one['name']} stands twice", hint)
            seen.add(one["name"])
            yield from _wrong_entry(file, kind, one)
    if "keep_logs" in config:
        yield from _wrong_duration(file, config, "keep_logs", 3_650 * DAY)


def _wrong_entry(file: str, kind: str, one: Map) -> Iterator[Diagnostic]:
    place = value_place(file, one, "name")
    if kind == "repair" and ("command" in one) == ("url" in one):
        has = "both a command and a url" if "url" in one else "neither a command nor a url"
        yield Diagnostic("missing-key", place, f"the step {one['name']} has {has}", "give it one of the two")
    if "command" in one and not one["command"]:
        message = f"the command of {one['name']} is empty"
        yield Diagnostic("out-of-bounds", place, message, "name a program, then its arguments")
    for key in ("every", "timeout"):
        if key in one:
            yield from _wrong_duration(file, one, key, LONGEST)


def _wrong_duration(file: str, holder: Map, key: str, longest: int) -> Iterator[Diagnostic]:
    place = value_place(file, holder, key)
    try:
        if not 0 < parse_duration(holder[key], key) <= longest:
            message = f"{key} is {holder[key]}; it may be up to {format_duration(longest)}, and more than nothing"
            yield Diagnostic("out-of-bounds", place, message)
    except GpuBudgetError as problem:
        yield Diagnostic("duration-syntax", place, problem.message, problem.hint)
