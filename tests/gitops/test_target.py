"""The daemon as a target: what it has, and what it is sent, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from gpubudget.cli.client import Client
from gpubudget.core import plain
from gpubudget.core.budget import Budget, Pool, Shares, Tree
from gpubudget.errors import GpuBudgetError
from gpubudget.gitops.target import Application, Daemon
from tests.budgets_server import BudgetsServer, budgets_server

TREE = Tree(Budget("/", Shares(Fraction(1))), (Pool("h100", 8, 4),))


@pytest.fixture
def server() -> Iterator[BudgetsServer]:
    with budgets_server() as state:
        yield state


@pytest.fixture
def daemon(server: BudgetsServer) -> Iterator[Daemon]:
    with Client(server.url, "gpb_token") as client:
        yield Daemon(client)


def application(**more: object) -> Application:
    given = {"descends_from": None, "force": False, **more}
    return Application(TREE, "c1", "Hanna", 1, plain.digest(TREE), **given)  # type: ignore[arg-type]


def test_what_stands_there_is_known_without_the_tree(server: BudgetsServer, daemon: Daemon) -> None:
    """Commit and digest; nothing before the first one; and an answer of another form is told."""
    assert daemon.standing() is None
    daemon.apply(application())
    assert daemon.standing() == ("c1", plain.digest(TREE))
    for answer in ({}, {"applied": [{"commit": "c1"}]}, {"applied": 3}):
        server.answers = [(200, answer)]
        with pytest.raises(GpuBudgetError, match="the daemon's budgets cannot be read"):
            daemon.standing()


def test_what_goes_on_record_is_cut_to_what_the_daemon_keeps(server: BudgetsServer, daemon: Daemon) -> None:
    """Whole lines of a long plan, with how many more there are; names and notes of bounded length."""
    plan = "\n".join(f"change  budget-{number}" for number in range(2_000))
    daemon.apply(application(plan=plan, approvers=("x" * 300, *["hanna"] * 200), notes=("n" * 3_000,)))
    assert server.applied is not None
    kept = server.applied["plan"].split("\n")
    assert len(server.applied["plan"]) <= 10_000
    assert kept[:-1] == plan.split("\n")[: len(kept) - 1]
    assert kept[-1] == f"... {2_000 - (len(kept) - 1)} more lines"
    assert (len(server.applied["approvers"]), len(server.applied["approvers"][0])) == (100, 200)
    assert len(server.applied["notes"][0]) == 2_000
    daemon.apply(application(plan="change  a", force=True))
    assert daemon.standing()
