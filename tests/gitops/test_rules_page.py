"""The page of rules is whole: every rule has its section, and every example breaks its rule and no other."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpubudget.gitops.diagnostics import RULES
from gpubudget.gitops.folder import read_folder
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


Example = tuple[str, str, str]
"""Language, name of the file (empty for commands) and text of a fenced block."""


def run(example: Example, folder: Path) -> None:
    """Put an example's file into the folder, or run its commands there."""
    kind, name, text = example
    if kind == "sh":
        subprocess.run(["sh", "-ec", text], cwd=folder, check=True)
        return
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    raw = text.rstrip("\n").encode().decode("unicode_escape").encode("latin-1")
    (folder / name).write_bytes(raw if kind == "escaped" else text.encode())


def validated(folder: Path, *examples: Example) -> LoadResult:
    """The base tree with these examples, one after the other, in a folder of its own."""
    for name, text in BASE.items():
        (folder / name).write_text(text)
    for example in examples:
        run(example, folder)
    with nobody():
        files, unread = read_folder(folder)
    return load_tree(files, unread)


def test_every_rule_has_a_section_in_order() -> None:
    """The sections are the rules, none missing, none too many, in the same order."""
    assert list(SECTIONS) == list(RULES)


def test_the_base_tree_is_sound() -> None:
    """The tree that examples are put into has no problem of its own."""
    assert load_tree({name: text.encode() for name, text in BASE.items()}).diagnostics == ()


def examples(rule: str) -> tuple[Example, Example]:
    """The failing and the passing example of a rule's section, in this order."""
    failing, (kind, name, text) = FENCE.findall(SECTIONS[rule])
    assert name.startswith("mended")
    return failing, (kind, name.removeprefix("mended").strip(), text)


@pytest.mark.parametrize("rule", RULES)
def test_each_example_breaks_its_rule_only(rule: str, shared_folder: Path) -> None:
    """A section says how severe its rule is and how to mend it; its first example breaks that rule and no other."""
    section = SECTIONS[rule]
    assert section.strip().startswith(f"*{RULES[rule][0]}* — ")
    assert "**Mend:** " in section
    result = validated(shared_folder, examples(rule)[0])
    counted = {"name-syntax"} if rule == "too-many-problems" else set()
    assert {found.rule for found in result.diagnostics} - counted == {rule}
    assert (result.tree is None) == (RULES[rule][0] == "error")


@pytest.mark.parametrize("rule", RULES)
def test_each_mended_example_passes(rule: str, shared_folder: Path) -> None:
    """The second example of a section, put in place of the first or run behind it, leaves nothing to say."""
    failing, mended = examples(rule)
    result = validated(shared_folder, failing, mended)
    assert result.diagnostics == ()
    assert result.tree is not None
