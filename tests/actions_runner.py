"""A small runner of GitHub's workflows: real shells, a real clone, and as much of the rest as the tests have use for.

It knows jobs, steps, composite actions, conditions and the expressions in them, and what `actions/checkout` does with
a repository. A token is given rights as the job's permissions say, and only reads for a pull request from a fork.
Anything that it does not know is an error, so that no workflow passes by being misread.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import GitRepo

ROOT = Path(__file__).parent.parent
REPOSITORY = "lab/budgets"

Context = dict[str, Any]

_TOKEN = re.compile(r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_][\w.-]*)|(?P<op>==|!=|&&|\|\||[!()]))")
_BIN = Path(sys.executable).parent
_PYTHON = """#!/bin/sh
# Makes an environment in which gpubudget is installed already, and writes down what pip is told.
case "$2" in
  venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && ln -s "{program}" "$3/bin/gpubudget" ;;
  pip) shift 2; echo "$*" >> "{log}" ;;
esac
"""
_SHELLS = {None: ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}


def read(path: Path) -> Context:
    """A workflow or an action; the key ``on`` is no boolean."""
    loader = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {}})
    found = yaml.load(path.read_text(encoding="utf-8"), loader)
    assert isinstance(found, dict)
    return found


def evaluated(text: str, context: Context) -> Any:  # noqa: ANN401 - an expression may have any value
    """The value of one expression."""
    tokens = []
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        assert found, f"not understood: {text[at:]!r}"
        tokens.append((found.lastgroup, found[found.lastgroup or ""]))
        at = found.end()
    value, rest = _either(tokens, context)
    assert not rest, f"not understood: {rest}"
    return value


def _either(tokens: list[Any], context: Context) -> tuple[Any, list[Any]]:
    value, tokens = _both(tokens, context)
    while tokens and tokens[0][1] == "||":
        other, tokens = _both(tokens[1:], context)
        value = value or other
    return value, tokens


def _both(tokens: list[Any], context: Context) -> tuple[Any, list[Any]]:
    value, tokens = _equal(tokens, context)
    while tokens and tokens[0][1] == "&&":
        other, tokens = _equal(tokens[1:], context)
        value = value and other
    return value, tokens


def _equal(tokens: list[Any], context: Context) -> tuple[Any, list[Any]]:
    value, tokens = _one(tokens, context)
    if tokens and tokens[0][1] in {"==", "!="}:
        other, rest = _one(tokens[1:], context)
        return (value == other) is (tokens[0][1] == "=="), rest
    return value, tokens


def _one(tokens: list[Any], context: Context) -> tuple[Any, list[Any]]:
    (kind, word), *rest = tokens
    if word == "!":
        value, rest = _one(rest, context)
        return not value, rest
    if word == "(":
        value, rest = _either(rest, context)
        assert rest[0][1] == ")"
        return value, rest[1:]
    if kind == "text":
        return word[1:-1].replace("''", "'"), rest
    assert kind == "name", f"not understood: {word}"
    return _looked_up(word, context), rest


def _looked_up(name: str, context: Context) -> Any:  # noqa: ANN401 - the same
    """A value of the context, as ``github.event.action``; what is not there is empty, an unknown context an error."""
    if name in {"true", "false"}:
        return name == "true"
    value: Any = context
    first, *parts = name.split(".")
    value = value[first]
    for part in parts:
        value = value.get(part, "") if isinstance(value, dict) else ""
    return value


def filled(value: object, context: Context) -> str:
    """A text with its expressions in place."""

    def text(found: re.Match[str]) -> str:
        result = evaluated(found[1], context)
        return str(result).lower() if isinstance(result, bool) else str(result)

    return re.sub(r"\$\{\{(.*?)\}\}", text, str(value))


@dataclass
class Finished:
    """How a job ended: the exit code of its last step, all that was printed, and its summary."""

    code: int
    log: str
    summary: str
    skipped: bool = False


@dataclass
class ActionsRunner:
    """Runs jobs for one event of the repository ``origin``, in ``folder``."""

    origin: GitRepo
    folder: Path
    event_name: str
    event: Context
    ref: str
    api: str
    fork: bool = False
    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    inputs: Context = field(default_factory=dict)
    run_id: int = 1
    attempt: int = 1
    executed: list[str] = field(default_factory=list)  # the names of the scripts that ran
    installed: str = ""  # what pip was told
    label: str = ""  # which machines may run it

    def job(self, workflow: Path, name: str) -> Finished:
        """Runs one job of a workflow."""
        described = read(workflow)
        assert self.event_name in described["on"], f"{workflow.name} does not run on {self.event_name}"
        job = described["jobs"][name]
        self._prepare()
        permissions = job.get("permissions", described["permissions"])
        writes = permissions.get("pull-requests") == "write" and not self.fork
        context: Context = {
            "github": {
                "event": self.event,
                "ref": self.ref,
                "repository": REPOSITORY,
                "token": "writes" if writes else "reads",
            },
            "vars": self.variables,
            "secrets": {} if self.fork else self.secrets,
            "inputs": self.inputs,
        }
        if "if" in job and not evaluated(job["if"], context):
            return Finished(0, "", "", skipped=True)
        self.label = filled(job["runs-on"], context)
        code, log = self._steps(job["steps"], context, {})
        self.installed = (self.folder / "pip.log").read_text(encoding="utf-8").strip()
        return Finished(code, log, self._summary.read_text(encoding="utf-8"))

    def _prepare(self) -> None:
        self._workspace = self.folder / "work"
        self._temp = self.folder / "temp"
        self._summary = self.folder / "summary.md"
        self._event = self.folder / "event.json"
        for folder in (self._workspace, self._temp):
            folder.mkdir(parents=True)
        self._summary.touch()
        python = self.folder / "bin" / "python"
        python.parent.mkdir()
        python.write_text(_PYTHON.format(log=self.folder / "pip.log", program=_BIN / "gpubudget"), encoding="utf-8")
        python.chmod(0o755)
        self._event.write_text(json.dumps(self.event), encoding="utf-8")

    def _steps(self, steps: list[Context], context: Context, more: dict[str, str]) -> tuple[int, str]:
        log = ""
        for step in steps:
            if "if" in step and not evaluated(step["if"], context):
                continue
            code, told = self._step(step, context, more)
            log += told
            if code:
                return code, log
        return 0, log

    def _step(self, step: Context, context: Context, more: dict[str, str]) -> tuple[int, str]:
        unknown = set(step) - {"name", "if", "uses", "with", "run", "shell", "env"}
        assert not unknown, f"not understood: {unknown}"
        given = {name: filled(value, context) for name, value in step.get("with", {}).items()}
        match step.get("uses", "").partition("@")[0]:
            case "actions/checkout":
                return self._checkout(given)
            case "actions/setup-python":
                assert set(given) == {"python-version"}
                return 0, ""
            case "./.github/actions/gpubudget":
                own = self._workspace / ".github" / "actions" / "gpubudget"
                return self._composite(own if own.exists() else ROOT / own.relative_to(self._workspace), given, context)
            case "":
                return self._script(step, context, more)
        raise AssertionError(f"not understood: {step['uses']}")

    def _checkout(self, given: dict[str, str]) -> tuple[int, str]:
        """What the action does: fetch with or without history, check out the event's ref or another one."""
        assert given.pop("persist-credentials") == "false"
        depth, ref = given.pop("fetch-depth", "1"), given.pop("ref", "")
        assert not given
        clone = GitRepo(self._workspace)
        clone.git("init", "--quiet")
        clone.git("remote", "add", "origin", self.origin.url)
        name = f"refs/heads/{ref}" if ref else self.ref
        here = name.replace("refs/heads/", "refs/remotes/origin/").replace("refs/pull/", "refs/remotes/pull/")
        if depth == "0":
            clone.git("fetch", "--quiet", "--prune", "origin", "+refs/heads/*:refs/remotes/origin/*", f"+{name}:{here}")
        else:
            clone.git("fetch", "--quiet", "--no-tags", f"--depth={depth}", "origin", f"+{name}:{here}")
        branch = name.removeprefix("refs/heads/")
        clone.git("checkout", "--quiet", *(["-B", branch, here] if branch != name else ["--detach", here]))
        return 0, ""

    def _composite(self, folder: Path, given: dict[str, str], context: Context) -> tuple[int, str]:
        action = read(folder / "action.yml")
        assert action["runs"]["using"] == "composite"
        known = action["inputs"]
        assert set(given) <= set(known), f"no such input: {set(given) - set(known)}"
        missing = {name for name, one in known.items() if one.get("required") == "true"} - set(given)
        assert not missing, f"input is missing: {missing}"
        inputs = {name: given.get(name, filled(one.get("default", ""), context)) for name, one in known.items()}
        inside = {"github": context["github"], "inputs": inputs}  # an action sees neither vars nor secrets
        return self._steps(action["runs"]["steps"], inside, {"GITHUB_ACTION_PATH": str(folder)})

    def _script(self, step: Context, context: Context, more: dict[str, str]) -> tuple[int, str]:
        script = filled(step["run"], context)
        assert script == step["run"], "an expression is written into a script"
        file = self._temp / f"step{len(self.executed)}.sh"
        file.write_text(script, encoding="utf-8")
        self.executed.append(step.get("name", ""))
        env = {name: filled(value, context) for name, value in step.get("env", {}).items()}
        done = subprocess.run(
            [*_SHELLS[step.get("shell")], str(file)],
            cwd=self._workspace,
            env={**self._environment(), **more, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    def _environment(self) -> dict[str, str]:
        """What a runner sets; nothing of whoever runs the tests gets in, but where programs are."""
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": self.api,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_EVENT_NAME": self.event_name,
            "GITHUB_EVENT_PATH": str(self._event),
            "GITHUB_REF": self.ref,
            "GITHUB_RUN_ID": str(self.run_id),
            "GITHUB_RUN_ATTEMPT": str(self.attempt),
            "GITHUB_STEP_SUMMARY": str(self._summary),
            "GITHUB_WORKSPACE": str(self._workspace),
            "RUNNER_TEMP": str(self._temp),
        }
