"""The page about starting a repository does what it says: every command on it is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "starting.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\S*) ?(\S*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_command_of_the_page_runs_in_order(tmp_path: Path) -> None:
    """From nothing, from a real dump of Slurm's, and from the table of the page."""
    scripts = [text for language, _, text in BLOCKS if language == "sh"]
    assert [language for language, _, _ in BLOCKS if language not in {"sh", "csv"}] == []
    for name, text in ((name, text) for _, name, text in BLOCKS if name):
        (tmp_path / name).write_text(text)
    (tmp_path / "lab.cfg").write_text((ROOT / "tests" / "gitops" / "imports" / "slurm-22.05.dump").read_text())
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path),
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "Ines", "GIT_AUTHOR_EMAIL": "ines@example.org",
        "GIT_COMMITTER_NAME": "Ines", "GIT_COMMITTER_EMAIL": "ines@example.org",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-eu", "-c", "".join(scripts)],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "validated 12 budgets in from-slurm/budgets" in done.stderr
    assert "validated 4 budgets in from-table/budgets" in done.stderr
    assert "30% -> 35%" in done.stdout
    for folder in ("lab-budgets", "from-slurm", "from-table"):
        assert (tmp_path / folder / ".github/workflows/plan.yml").exists()
