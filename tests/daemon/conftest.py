"""Fixtures for the daemon's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import Api, Daemon, FakeAgent, put_body, small_tree, stopped_at_end


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon in a thread, to which nothing has been applied."""
    with stopped_at_end(Daemon(tmp_path, poll=200)) as daemon:
        yield daemon


@pytest.fixture
def daemon(bare: Daemon) -> Daemon:
    """A daemon in a thread, with budgets and no hosts."""
    bare.api()("PUT", "/v1/budgets", put_body(small_tree()))
    return bare


@pytest.fixture
def agents(daemon: Daemon) -> list[FakeAgent]:
    """The agents of two hosts with 8 GPUs each, which have reported."""
    found = [FakeAgent(daemon.user(host, "agent", host), host) for host in ("h1", "h2")]
    for agent in found:
        agent.sync()
    return found


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with budgets and two hosts for all tests of a module that change nothing."""
    with stopped_at_end(Daemon(tmp_path_factory.mktemp("still"))) as daemon:
        daemon.api()("PUT", "/v1/budgets", put_body(small_tree()))
        for host in ("h1", "h2"):
            FakeAgent(daemon.user(host, "agent", host), host).sync()
        yield daemon


@pytest.fixture(scope="module")
def alice(still: Daemon) -> Api:
    """A user of that daemon."""
    return still.user("alice")


@pytest.fixture(scope="module")
def callers(still: Daemon) -> dict[str, Api]:
    """An administrator of that daemon, and an agent of a host that it has not."""
    return {"admin": still.api(), "agent": still.user("h9", "agent", "h9")}
