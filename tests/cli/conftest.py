"""The command line as its users meet it: commands run in this process, their exit code, stdout and stderr."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import pytest

from gpubudget.cli.main import run_command


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """The settings of whoever runs the tests stay out of them."""
    for name in list(os.environ):
        if name.startswith("GPUBUDGET_") and name != "GPUBUDGET_SHARED":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs ``gpubudget`` with these arguments."""

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        code = run_command(arguments)
        return Done(code, *capsys.readouterr())

    return run
