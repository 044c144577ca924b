"""The README does what it says: every command in it is run, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
BLOCKS = [text for language, text in FENCED if language == "sh"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONGEST_WALK = 120


def test_all_commands_stand_in_blocks_that_are_run() -> None:
    """A fenced block that holds a command is marked as one, and the first names two targets, which CI runs for real."""
    others = [text for language, text in FENCED if language != "sh"]
    assert not any(re.search(r"^ *(gpubudget|make|git|\$) ", text, re.MULTILINE) for text in others)
    assert len(BLOCKS) == 9
    for target in re.findall(r"^make (\w+)", BLOCKS[0], re.MULTILINE):
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)
    assert len(BLOCKS[0].splitlines()) == 2


def test_the_walk_leads_to_a_workload_and_back(tmp_path: Path) -> None:
    """The commands, run in order by a shell that ends at the first that fails, end with a sound log and no process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TMPDIR": str(tmp_path),
        "GPUBUDGET_URL": f"http://{address}", "GPUBUDGET_SERVE_LISTEN": address,
        "GIT_AUTHOR_NAME": "Ines", "GIT_AUTHOR_EMAIL": "ines@example.org",
        "GIT_COMMITTER_NAME": "Ines", "GIT_COMMITTER_EMAIL": "ines@example.org",
    }  # fmt: skip
    script = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "".join(BLOCKS[1:])
    command = ["bash", "-eux", "-o", "pipefail", "-c", script]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=LONGEST_WALK,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "I have GPUs " in done.stdout
    assert "nothing is wrong" in done.stderr
    assert re.search(r"^h1 .* (draining|drained) ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link between the pages names a file, and a heading of it, that there is."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not heading or heading in _headings(target), f"{page.name} links to {link}"


def _headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_can_be_reached() -> None:
    """The README links to every page of the docs."""
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name})" not in README] == []
