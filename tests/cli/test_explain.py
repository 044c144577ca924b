"""The text of ``explain``."""

from __future__ import annotations

from gpubudget.cli.explain import text
from gpubudget.cli.output import now_ms

FOUND = {
    "workload": "w7",
    "state": "pending",
    "reason": "waits for 8 GPUs: 3 are free",
    "pool": "a100",
    "rank": 3,
    "waiting": 12,
    "start_ms": None,
    "estimate": False,
    "path": [
        {"path": "language", "share": "1/2", "usage": 7_200_000, "better": []},
        {"path": "language/olmo", "share": "0/1", "usage": 0, "better": ["language/tools"]},
    ],
}


def test_a_waiting_workload() -> None:
    """State, reason, rank and the way down the budgets, with what they are compared by."""
    assert text(FOUND) == (
        "w7 is pending: waits for 8 GPUs: 3 are free\n"
        "pool   a100\n"
        "rank   3 of 12 that wait there\n"
        "\n"
        "Its way down the budgets; at each step the lowest USED/SHARE goes first:\n"
        "BUDGET         SHARE  USED GPU-HOURS  USED/SHARE  RANKED BEFORE IT\n"
        "language       50.0%             2.0         4.0  -\n"
        "language/olmo   0.0%             0.0  zero share  language/tools"
    )


def test_when_it_can_start() -> None:
    """A bound is called one, an estimate too, and a moment that has come is now."""
    soon = now_ms() + 7_230_000
    assert "start  at the latest in 2h, 20" in text(FOUND | {"start_ms": soon})
    assert "start  about in 2h, 20" in text(FOUND | {"start_ms": soon, "estimate": True})
    assert "(an estimate: it hangs on how usage goes on)" in text(FOUND | {"start_ms": soon, "estimate": True})
    assert "start  at the latest now, 1970-01-01T00:00:00.000Z\n" in text(FOUND | {"start_ms": 0})


def test_a_running_workload() -> None:
    """What has no rank and no path says so by leaving them out."""
    running: dict[str, object] = {
        "workload": "w7",
        "state": "running",
        "reason": "runs on h1",
        "rank": None,
        "path": [],
    }
    assert text(running) == "w7 is running: runs on h1"
