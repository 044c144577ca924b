"""The page of rules is whole: every rule has its section, and every example breaks its rule and no other."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from gpubudget.gitops.diagnostics import RULES
from gpubudget.gitops.folder import load_folder
from gpubudget.gitops.load import LoadResult, load_tree

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^##? [a-zA-Z]+\S*$|^# [A-Z]|\Z)", PAGE, re.MULTILINE | re.DOTALL))
FENCE = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BASE = {name.removeprefix("base "): text for _, name, text in FENCE.findall(PAGE) if name.startswith("base ")}


@contextmanager
def nobody() -> Iterator[None]:
    """Gives up the right of the superuser to read everything, for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def validated(kind: str, name: str, text: str, folder: Path) -> LoadResult:
    """The base tree with an example's file put in, or after its shell commands."""
    files = {path: content.encode() for path, content in BASE.items()}
    if kind != "sh":
        data = (
            text.rstrip("\n").encode().decode("unicode_escape").encode("latin-1")
            if kind == "escaped"
            else text.encode()
        )
        return load_tree(files | {name: data})
    for path, data in files.items():
        (folder / path).write_bytes(data)
    subprocess.run(["sh", "-ec", text], cwd=folder, check=True)
    with nobody() if "chmod" in text else nullcontext():
        return load_folder(folder)


def test_every_rule_has_a_section_in_order() -> None:
    """The sections are the rules, none missing, none too many, in the same order."""
    assert list(SECTIONS) == list(RULES)


def test_the_base_tree_is_sound() -> None:
    """The tree that examples are put into has no problem of its own."""
    assert load_tree({name: text.encode() for name, text in BASE.items()}).diagnostics == ()


@pytest.mark.parametrize("rule", RULES)
def test_each_example_breaks_its_rule_only(rule: str, shared_folder: Path) -> None:
    """A section says how severe its rule is, has one example that breaks it and no other rule, and a way to mend it."""
    section = SECTIONS[rule]
    assert section.strip().startswith(f"*{RULES[rule][0]}* — ")
    assert "**Mend:** " in section
    [(kind, name, text)] = FENCE.findall(section)
    result = validated(kind, name, text, shared_folder)
    counted = {"name-syntax"} if rule == "too-many-problems" else set()
    assert {found.rule for found in result.diagnostics} - counted == {rule}
    assert (result.tree is None) == (RULES[rule][0] == "error")
