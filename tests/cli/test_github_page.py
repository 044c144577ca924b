"""What the page of pull requests says about GitHub is so: its commands run, its settings are those of the workflows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gpubudget.gitops.posting import LIMIT
from tests.conftest import GitRepo

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "pull-requests.md").read_text(encoding="utf-8")
WORKFLOWS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section {title!r}"
    return found[1]


def test_its_commands_show_the_comment(git_repo: Callable[[str], GitRepo], tmp_path: Path) -> None:
    """In a clone whose branch changes a share."""
    repo = git_repo("lab")
    shutil.copytree(ROOT / "budgets", repo.path / "budgets")
    repo.commit({})
    repo.git("switch", "--quiet", "--create", "less")
    text = (repo.path / "budgets" / "language" / "budget.yaml").read_text()
    repo.commit({"budgets/language/budget.yaml": text.replace("evaluation: 15%", "evaluation: 10%")})
    blocks = re.findall(r"^```sh\n(.*?)^```$", section("The comment on GitHub"), re.MULTILINE | re.DOTALL)
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    command = ["bash", "-eu", "-o", "pipefail", "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=repo.path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "**This changes 1 budget.**" in done.stdout
    assert "#### Who must approve" in done.stdout


def test_each_workflow_and_each_setting_is_on_the_page() -> None:
    """And none that there is not."""
    told = section("Workflows")
    rows = re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE)
    assert {row for row in rows if row.islower()} == set(WORKFLOWS) - {"ci"}
    used = {name for text in WORKFLOWS.values() for name in re.findall(r"(?:vars|secrets)\.(\w+)", text)}
    assert {row for row in rows if row.isupper()} == used
    assert "environment: budgets" in WORKFLOWS["reconcile"]


def test_the_limits_are_those_of_the_code() -> None:
    """Ours is below GitHub's."""
    assert "65,536 characters" in PAGE
    assert LIMIT < 65_536
