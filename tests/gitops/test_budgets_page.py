"""The page of the format is whole and right: every key is on it, and its example is sound."""

import re
from collections.abc import Iterator
from pathlib import Path

from gpubudget.gitops.load import load_tree
from gpubudget.gitops.structure import schema
from gpubudget.units import parse_duration

PAGE = (Path(__file__).parents[2] / "docs" / "budgets.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^```yaml (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def keys(part: object) -> Iterator[str]:
    """Every key that a schema gives a meaning."""
    if isinstance(part, dict):
        yield from part.get("properties", {})
        for name, item in part.items():
            if name != "examples":
                yield from keys(item)


def test_every_key_is_described() -> None:
    """A key of the schemas has a place on the page."""
    for kind in ("budget", "cluster"):
        missing = {key for key in keys(schema(kind)) if f"`{key}`" not in PAGE}
        assert missing == set()


def test_the_examples_are_sound_and_use_every_key() -> None:
    """The two files of the page are a valid tree, and show each key once."""
    root = "kind: Budget\nmanagers: [i]\nmembers: [i]\nchildren: {language: 50%}\n"
    result = load_tree({name: text.encode() for name, text in (EXAMPLES | {"budget.yaml": root}).items()})
    assert {found.rule for found in result.diagnostics} <= {"members-missing"}
    written = set(re.findall(r"([a-z_]+):", "".join(EXAMPLES.values())))
    assert set(keys(schema("budget"))) | set(keys(schema("cluster"))) <= written


def test_the_defaults_on_the_page_are_those_of_the_code() -> None:
    """What a setting is if left out, the page says as the code does."""
    empty = {"cluster.yaml": "kind: Cluster\npools: {a: {hosts: 9, gpus_per_host: 8}}\npolicy: {debug: {gpus: 8}}"}
    tree = load_tree({name: text.encode() for name, text in (empty | {"budget.yaml": "kind: Budget"}).items()}).tree
    assert tree is not None
    settings = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| `(\w+)` \| ", PAGE, re.MULTILINE))
    assert len(settings) == 7
    for name, text in settings.items():
        assert getattr(tree.policy, name) == parse_duration(text), name
    lane = tree.policy.debug
    assert lane is not None
    assert (lane.max_gpus, lane.max_runtime, lane.per_person) == (8, parse_duration("15m"), 1)
