"""The page about pull requests does what it says: its commands are run, in order, against a cluster that has worked."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubudget.cli.main import SECTIONS
from tests.cli.cluster import Cluster, running_cluster
from tests.conftest import GitRepo

PAGE = (Path(__file__).parents[2] / "docs" / "pull-requests.md").read_text(encoding="utf-8")
OURS = PAGE.partition("## The comment on GitHub")[0]
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", OURS, re.MULTILINE | re.DOTALL)
ROOT = "kind: Budget\nmanagers: [ines]\nmembers: [ines]\nchildren:\n"
LANGUAGE = "kind: Budget\nmanagers: [hanna]\nchildren:\n  alice: {share: 50%, members: [alice]}\n"
TREE: dict[str, str | None] = {
    "budgets/cluster.yaml": "kind: Cluster\npools:\n  a100: {gpus_per_host: 8, hosts: 2}\n",
    "budgets/budget.yaml": ROOT + "  language: 50%\n  vision: {share: 25%, members: [bob]}\n",
    "budgets/language/budget.yaml": LANGUAGE,
}


class Clone:
    """A clone whose newest commit is not applied yet; ``shell`` runs commands of the page as the administrator."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.cluster = cluster
        self.repo = GitRepo(folder / "lab")
        self.repo.path.mkdir()
        self.repo.git("init", "--quiet", "--initial-branch=main")
        self.repo.commit(TREE)
        self.shell(f"gpubudget reconcile --repo . --force --cache-dir {folder / 'cache'}")
        self.shell("gpubudget run -b language/alice -g 8 -m 1m -- true", "alice")
        self.repo.git("switch", "--quiet", "--create", "less")
        language = str(TREE["budgets/language/budget.yaml"]).replace("50%", "40%")
        vision = str(TREE["budgets/budget.yaml"]).replace("vision: {share: 25%", "vision: {share: 30%")
        self.repo.commit({"budgets/language/budget.yaml": language, "budgets/budget.yaml": vision})

    def shell(self, script: str, person: str = "admin") -> str:
        """What commands print; the first that fails ends them."""
        environment = self.cluster.environment(person)
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        command = ["bash", "-eu", "-o", "pipefail", "-c", script]
        done = subprocess.run(
            command, cwd=self.repo.path, env=environment, check=False, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    folder = tmp_path_factory.mktemp("page")
    with running_cluster(folder) as cluster:
        yield Clone(folder, cluster)


def test_every_command_of_the_page_runs_in_order(clone: Clone) -> None:
    """Validated, planned, replayed, approved, owned, applied, and on record."""
    assert len(BLOCKS) == 7
    said = clone.shell("".join(BLOCKS))
    assert said.count("~  language/alice") == 6
    assert "What if: " in said
    assert "nothing lacks an approval" in said
    assert "CODEOWNERS is up to date" in said
    assert re.search(r"^applied HEAD \(\w+\), after \w+: 0 to add, 2 to change", said, re.MULTILINE)
    (newest,) = re.findall(r"^.*applied by hand from a reviewed plan.*$", said, re.MULTILINE)
    assert "hanna,ines" in newest
    assert "2 change" in newest


def test_what_the_page_shows_is_what_the_command_shows(clone: Clone) -> None:
    """The columns of the examples, and the signs of the table."""
    shown = re.findall(r"^   (BUDGET .*)$", OURS, re.MULTILINE)[0].split()
    assert shown == ["BUDGET", "SHARE", "EFFECTIVE", "GPUS", "GPU-HOURS", "USED", "BALANCE", "RUNS", "WHY"]
    head = re.findall(r"^   (BUDGET .*)$", clone.shell("gpubudget plan less --against less~1"), re.MULTILINE)[0].split()
    assert head == shown
    record = re.findall(r"^(APPLIED .*)$", OURS, re.MULTILINE)[0].split()
    assert clone.shell("gpubudget get budgets --history -o wide").splitlines()[0].split() == record


def test_every_command_and_option_on_the_page_exists() -> None:
    """None is invented."""
    names = {name for section in SECTIONS.values() for name in section}
    in_blocks = re.findall(r"^gpubudget ([a-z]+)", "".join(BLOCKS), re.MULTILINE)
    assert {*re.findall(r"`gpubudget ([a-z]+)", PAGE), *in_blocks} <= names
