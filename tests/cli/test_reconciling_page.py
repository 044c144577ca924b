"""The page about reconciling does what it says: every command on it is run, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpubudget.cli.reconcile import reconcile
from gpubudget.gitops.record import metrics
from gpubudget.gitops.report import Status
from tests.budgets_server import BudgetsServer, budgets_server
from tests.conftest import GitRepo
from tests.daemon.harness import Daemon, stopped_at_end

PAGE = (Path(__file__).parents[2] / "docs" / "reconciling.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\S*) ?(\S*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
URL = "https://git.example.org/team/budgets.git"
CLUSTER = "kind: Cluster\npools:\n  h100: {hosts: 1, gpus_per_host: 8}\n"


def blocks(kind: str) -> list[tuple[str, str]]:
    """The fenced blocks of a kind: name and text."""
    return [(name, text) for language, name, text in BLOCKS if language == kind]


def tree(share: str) -> dict[str, str | None]:
    root = f"kind: Budget\nmanagers: [ines]\nchildren:\n  language: {{share: {share}, members: [alice]}}\n"
    return {f"{top}budgets/{name}": text for top in ("", "jupiter/", "saturn/")
            for name, text in (("cluster.yaml", CLUSTER), ("budget.yaml", root))}  # fmt: skip


class Site:
    """A machine as the page has it: a repository with signed commits, daemons, tokens; ``shell`` runs its commands."""

    def __init__(self, folder: Path, repo: GitRepo, daemon: Daemon, others: dict[str, BudgetsServer]) -> None:
        self.folder, self.daemon = folder, daemon
        self.bare, etc = folder / "budgets.git", folder / "etc"
        etc.mkdir()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
        (etc / "signers").write_text(f"hanna {(folder / 'key.pub').read_text()}")
        for name in ("reconciler", *others):
            (etc / f"{name}.token").write_text(daemon.admin_file.read_text())
        config = f"[gpg]\nformat = ssh\n[user]\nsigningkey = {folder / 'key'}\n[commit]\ngpgsign = true\n"
        (folder / ".gitconfig").write_text(config)
        with (repo.path / ".git/config").open("a") as file:
            file.write(config)
        for share in ("50%", "60%"):
            repo.commit(tree(share))
        repo.git("clone", "--quiet", "--bare", ".", str(self.bare))
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder),
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "Ines", "GIT_AUTHOR_EMAIL": "ines@example.org",
            "GIT_COMMITTER_NAME": "Ines", "GIT_COMMITTER_EMAIL": "ines@example.org",
        }  # fmt: skip
        self.swaps = {
            URL: f"file://{self.bare}",
            "/etc/gpubudget": str(etc),
            "/usr/bin/gpubudget": str(Path(sys.executable).parent / "gpubudget"),
            "/var/lib/node_exporter": str(folder),
            "/var/cache/gpubudget": str(folder / "cache"),
            "http://127.0.0.1:8470": daemon.url,
            **{f"https://{name}.example.org": server.url for name, server in others.items()},
        }

    def here(self, text: str) -> str:
        """A text of the page with this machine's places in it."""
        for theirs, ours in self.swaps.items():
            text = text.replace(theirs, ours)
        return text

    def shell(self, script: str, **variables: str) -> str:
        """Runs commands of the page until one fails; what they print."""
        command = ["bash", "-eu", "-o", "pipefail", "-c", self.here(script)]
        environment = {**self.environment, **{name: self.here(value) for name, value in variables.items()}}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, check=False, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    repo = GitRepo(folder / "work")
    repo.path.mkdir()
    repo.git("init", "--quiet", "--initial-branch=main")
    with (
        stopped_at_end(Daemon(folder)) as daemon,
        budgets_server() as jupiter,
        budgets_server() as saturn,
    ):
        yield Site(folder, repo, daemon, {"jupiter": jupiter, "saturn": saturn})


def test_every_command_of_the_page_runs_in_order(site: Site) -> None:
    """Applied, looked at, suspended, resumed, rolled back, forced, signed, and on two clusters."""
    script = "".join(text for _, text in blocks("sh"))
    assert len(blocks("sh")) == 8
    token = site.daemon.admin_file.read_text().strip()
    said = site.shell(script, GPUBUDGET_URL=site.daemon.url, GPUBUDGET_TOKEN=token)
    statuses = re.findall(r"^(applied|unchanged|suspended|refused|failed|busy)  ", said, re.MULTILINE)
    assert statuses == ["applied", "unchanged", "applied", "applied", "applied", "applied", "applied"]
    assert "suspended by admin" in said
    assert "note       an emergency: commit " in said
    assert "signed     by hanna (SHA256:" in said
    assert "gpubudget_reconcile_settled" in (site.folder / "gpubudget.prom").read_text()


def test_the_units_and_the_cron_line_run(site: Site) -> None:
    """The service's command with its own environment, and cron's; a timer that starts it."""
    units = {name: unit(text) for name, text in blocks("ini")}
    service = units["gpubudget-reconcile.service"]
    variables = dict(line.split("=", 1) for line in service["Service", "Environment"])
    (command,) = service["Service", "ExecStart"]
    assert re.search(r"^(applied|unchanged) ", site.shell(command, **variables), re.MULTILINE)
    assert units["gpubudget-reconcile.timer"]["Timer", "OnUnitInactiveSec"] == ["5min"]
    ((_, line),) = blocks("cron")
    when, command = re.fullmatch(r"((?:\S+ ){5})gpubudget (.*)\n", line).groups()  # type: ignore[union-attr] # it matches
    assert when == "*/5 * * * * "
    assert site.shell(command, GPUBUDGET_URL=site.daemon.url) == ""


def unit(text: str) -> dict[tuple[str, str], list[str]]:
    """The values of each key of a unit file, by section and name."""
    found: dict[tuple[str, str], list[str]] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line:
            key, _, value = line.partition("=")
            found.setdefault((section, key), []).append(value)
    return found


def test_no_command_stands_outside_a_block_that_is_run() -> None:
    """Blocks without a language show output only."""
    shown = "".join(text for language, _, text in BLOCKS if not language)
    assert not re.search(r"^(\$ )?(gpubudget|git) ", shown, re.MULTILINE)
    assert {language for language, _, _ in BLOCKS} == {"sh", "ini", "cron", ""}


def test_statuses_options_and_metrics_are_those_of_the_program() -> None:
    """Every status is in the table, every option that is named exists, and every metric is there."""
    assert set(re.findall(r"^\| `(\w+)` \|[^|]+\| \d", PAGE, re.MULTILINE)) == {status.value for status in Status}
    options = {name for param in reconcile.params if isinstance(param, click.Option) for name in param.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - {"--no-edit", "--kills"}
    assert named <= options
    told = {name.partition("{")[0] for name in re.findall(r"^\| `(gpubudget_[^`]+)`", PAGE, re.MULTILINE)}
    assert told == set(re.findall(r"^# TYPE (\w+)", metrics([]), re.MULTILINE))
