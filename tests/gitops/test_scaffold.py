"""The files of a new budgets repository."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gpubudget.core.budget import Pool
from gpubudget.errors import InvalidInputError
from gpubudget.gitops.layout import formatted
from gpubudget.gitops.load import load_tree
from gpubudget.gitops.scaffold import ACTION, BUDGETS, Answers, other_files, owners_file, tree_files

ANSWERS = Answers("ines", (Pool("h100", 8, 128), Pool("b200", 4, 32)), "jupiter")


def test_the_tree_to_begin_with_is_sound_and_in_its_canonical_layout() -> None:
    """No error, no warning, and the answers are in it."""
    texts = {name.removeprefix(f"{BUDGETS}/"): text.encode() for name, text in tree_files(ANSWERS).items()}
    loaded = load_tree(texts)
    assert loaded.diagnostics == ()
    assert loaded.tree is not None
    assert (loaded.tree.cluster, loaded.tree.pools) == ("jupiter", ANSWERS.pools)
    assert {name for budget in loaded.tree.budgets() for name in (*budget.managers, *budget.members)} == {"ines"}
    for name, data in texts.items():
        assert formatted(name, data)[0] == data
    assert "/budgets/language/ @ines" in owners_file(loaded.tree, texts)


def test_the_workflows_install_from_a_list_of_the_repositorys_own() -> None:
    """They are those of this project, but for that; schemas and a README come along."""
    texts = other_files(ANSWERS)
    assert "# Budgets of jupiter" in texts["README.md"]
    assert '--requirement "$GITHUB_ACTION_PATH/requirements.txt"' in texts[f"{ACTION}/action.yml"]
    assert "../../.." not in texts[f"{ACTION}/action.yml"]
    assert texts[f"{ACTION}/requirements.txt"].startswith("gpubudget==")
    assert {f".github/workflows/{name}.yml" for name in ("validate", "plan", "reconcile")} < set(texts)
    assert {"schemas/budget.schema.json", "schemas/cluster.schema.json"} < set(texts)


@pytest.mark.parametrize(("manager", "cluster"), [("Ines", "lab"), ("", "lab"), ("a b", "lab"), ("ines", "lab: {}")])
def test_answers_that_are_no_names_are_refused(manager: str, cluster: str) -> None:
    """Nothing that YAML could read as something else gets into the files."""
    with pytest.raises(InvalidInputError, match="is not a name"):
        Answers(manager, ANSWERS.pools, cluster)


def test_the_package_takes_along_what_a_new_repository_is_made_of() -> None:
    """Every template, workflow and schema is one of the package's data files."""
    top = Path(__file__).parents[2]
    patterns = tomllib.loads((top / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["gpubudget"]
    package = top / "gpubudget"
    packed = {path for pattern in patterns for path in package.glob(pattern) if path.is_file()}
    templates = package / "gitops" / "templates" / "init"
    wanted = {path for path in templates.rglob("*") if path.is_file()}
    wanted |= {package / "github" / "workflows" / f"{name}.yml" for name in ("validate", "plan", "reconcile")}
    wanted |= {package / "github" / "actions" / "gpubudget" / "action.yml", package / "schemas" / "budget.schema.json"}
    assert wanted <= packed
    assert len(wanted) == 9
