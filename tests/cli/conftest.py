"""The command line as its users meet it: commands run in this process, their exit code, stdout and stderr."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from gpubudget.cli.main import run_command
from tests.cli.cluster import Cluster, clear, running_cluster


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


@pytest.fixture(scope="session")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A running cluster without workloads; the caller is alice, who may charge language/alice and vision."""
    monkeypatch.setenv("GPUBUDGET_URL", _cluster.url)
    monkeypatch.setenv("GPUBUDGET_TOKEN", _cluster.tokens["alice"])
    yield _cluster
    clear(_cluster)


@pytest.fixture
def alice(cluster: Cluster, cli: Cli) -> Cli:
    """Runs ``gpubudget`` as alice on the running cluster."""
    assert cluster.url
    return cli
