"""What tests of several packages share: real git repositories in a temporary folder."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on the machine and on who else uses it: no test fails for that.
settings.register_profile("gpubudget", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpubudget")

# A shell that runs this in the background lets it ignore SIGINT, and every program it starts inherits that; many tests
# interrupt programs as a person would.
signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class GitRepo:
    """A real repository with a work tree, made and changed with the real git."""

    path: Path

    def git(self, *arguments: str, stdin: bytes | None = None) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Hanna",
            "GIT_AUTHOR_EMAIL": "hanna@example.org",
            "GIT_COMMITTER_NAME": "Hanna",
            "GIT_COMMITTER_EMAIL": "hanna@example.org",
            "GIT_AUTHOR_DATE": "2026-10-01T12:00:00Z",
            "GIT_COMMITTER_DATE": "2026-10-01T12:00:00Z",
        }
        command = ["git", "-C", str(self.path), "-c", "protocol.file.allow=always", *arguments]
        done = subprocess.run(command, check=True, capture_output=True, input=stdin, env=environment)
        return done.stdout.decode().strip()

    def commit(self, files: Mapping[str, str | None], message: str = "change") -> str:
        """Writes files (None removes one) and commits all; the commit's full id."""
        for name, text in files.items():
            file = self.path / name
            if text is None:
                file.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    @property
    def url(self) -> str:
        return f"file://{self.path}"


@pytest.fixture
def git_repo(tmp_path: Path) -> Callable[[str], GitRepo]:
    """Makes a new repository of that name, on branch main, without commits."""

    def make(name: str = "budgets.git-work") -> GitRepo:
        path = tmp_path / name
        path.mkdir()
        repo = GitRepo(path)
        repo.git("init", "--quiet", "--initial-branch=main")
        return repo

    return make
