"""The page of the format: every key is on it, its example is sound, and its commands do what it says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from gpubudget.gitops.load import load_tree
from gpubudget.gitops.structure import schema
from gpubudget.units import parse_duration

PAGE = (Path(__file__).parents[2] / "docs" / "budgets.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^```yaml ([^.\s]\S*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


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
    """The files of the page are a valid tree about which there is nothing to say, and show each key once."""
    assert load_tree({name: text.encode() for name, text in EXAMPLES.items()}).diagnostics == ()
    written = set(re.findall(r"([a-z_]+):", "".join(EXAMPLES.values())))
    assert set(keys(schema("budget"))) | set(keys(schema("cluster"))) <= written


def test_the_commands_print_what_the_page_says(tmp_path: Path) -> None:
    """Every command, run one after the other beside the tree of the examples, prints what stands below it."""
    for name, text in EXAMPLES.items():
        path = tmp_path / "budgets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        printed = []
        for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environment, check=False, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
            printed.append(f"$ {command}\n{done.stdout}")
        assert "".join(printed) == block


def test_every_command_of_the_page_is_run() -> None:
    """No command stands in a block of another kind."""
    others = re.sub(r"^```console\n.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"^ *(\$ |gpubudget )", others, re.MULTILINE)


def test_the_hooks_on_the_page_are_those_of_the_manifest() -> None:
    """What the page has people put into .pre-commit-config.yaml is there."""
    [text] = re.findall(r"^```yaml \.pre-commit-config\.yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [repository] = yaml.safe_load(text)["repos"]
    manifest = yaml.safe_load((Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {hook["id"] for hook in repository["hooks"]} == {hook["id"] for hook in manifest}


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
