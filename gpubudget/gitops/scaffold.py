"""The files of a new budgets repository: a small tree to begin with, workflows, CODEOWNERS, schemas and a README.

Values only; who writes them asks here what they are. The workflows and their action are the ones that this project
itself uses, but for where they install it from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import gpubudget
from gpubudget.core.budget import Pool, Tree
from gpubudget.errors import InvalidInputError
from gpubudget.gitops.owners import codeowners

BUDGETS = "budgets"
CODEOWNERS = ".github/CODEOWNERS"
ACTION = ".github/actions/gpubudget"

_PACKAGE = Path(gpubudget.__file__).parent
_TEMPLATES = Path(__file__).parent / "templates" / "init"
_GITHUB = _PACKAGE / "github"
_WORKFLOWS = ("validate", "plan", "reconcile")
_FROM_HERE = '"$GITHUB_ACTION_PATH/../../.."'
_FROM_A_LIST = '--requirement "$GITHUB_ACTION_PATH/requirements.txt"'
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Answers:
    """What a new repository cannot know: who manages all of it, and which pools there are."""

    manager: str
    pools: Sequence[Pool]
    cluster: str = "lab"

    def __post_init__(self) -> None:
        for what, name in (("manager", self.manager), ("cluster", self.cluster)):
            if not _NAME.fullmatch(name):
                hint = "names are made of a-z, 0-9 and -, begin with a letter or digit and have at most 63 characters"
                raise InvalidInputError(f"the {what} {name[:60]!a} is not a name", hint=hint)


def tree_files(answers: Answers) -> dict[str, str]:
    """The texts of a small tree to begin with, by path from the top of the repository."""
    return {name: text for name, text in _rendered(answers).items() if name.startswith(f"{BUDGETS}/")}


def other_files(answers: Answers) -> dict[str, str]:
    """Everything else but CODEOWNERS, which comes from the tree as it is."""
    texts = {name: text for name, text in _rendered(answers).items() if not name.startswith(f"{BUDGETS}/")}
    for kind in ("budget", "cluster"):
        name = f"schemas/{kind}.schema.json"
        texts[name] = (_PACKAGE / name).read_text(encoding="utf-8")
    for workflow in _WORKFLOWS:
        name = f"workflows/{workflow}.yml"
        texts[f".github/{name}"] = (_GITHUB / name).read_text(encoding="utf-8")
    action = (_GITHUB / "actions" / "gpubudget" / "action.yml").read_text(encoding="utf-8")
    texts[f"{ACTION}/action.yml"] = action.replace(_FROM_HERE, _FROM_A_LIST)
    texts[f"{ACTION}/requirements.txt"] = f"gpubudget=={gpubudget.__version__}\n"
    return texts


def owners_file(tree: Tree, files: Collection[str]) -> str:
    """CODEOWNERS for a tree in the folder of budgets, of which ``files`` are the files."""
    return codeowners(tree, files, BUDGETS, CODEOWNERS)


def _rendered(answers: Answers) -> dict[str, str]:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - no HTML; what is filled in are checked names and numbers
    )
    names = {"manager": answers.manager, "pools": answers.pools, "cluster": answers.cluster}
    found = sorted(str(path.relative_to(_TEMPLATES)) for path in _TEMPLATES.rglob("*.j2"))
    return {name.removesuffix(".j2"): environment.get_template(name).render(names) for name in found}
