"""The lines of the public event log, for each event and each decision."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from gpubudget.core.budget import Budget, DatedShares, DebugLane, Policy, Pool, Shares, Tree
from gpubudget.core.decisions import (
    BudgetsChanged,
    Claim,
    Decision,
    Hold,
    HostChanged,
    Refuse,
    Requeue,
    Reserve,
    Start,
    Stop,
    Stopped,
    Unclaim,
)
from gpubudget.core.eventlog import lines
from gpubudget.core.events import Cancelled, CheckpointReported, Event, HostRemoved, Moved, Submitted, Woke
from gpubudget.core.host import HostState
from gpubudget.core.workload import StopReason, WorkloadSpec

WOKE = Woke()
SUBMITTED = {
    "kind": "submitted",
    "workload": "w",
    "owner": "ann",
    "budget": "a",
    "pool": "p",
    "gpus": 4,
    "min_runtime_ms": 60,
    "resumable": True,
    "priority": 0,
}
START = Start(
    "w",
    2,
    "p",
    allocated=True,
    placement=(("h1", (0, 1)), ("h2", (6, 7))),
    protected_until=90,
    ends_by=None,
    preempted=(("v", 3),),
    lane=False,
    reason="why",
    cause=WOKE,
)
STARTED = {
    "kind": "started",
    "workload": "w",
    "attempt": 2,
    "pool": "p",
    "allocated": True,
    "placement": {"h1": [0, 1], "h2": [6, 7]},
    "protected_until_ms": 90,
    "preempted": [["v", 3]],
    "reason": "why",
}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Submitted(WorkloadSpec("w", "ann", "a", ("p",), 4, min_runtime=60, resumable=True)), SUBMITTED),
        (
            Submitted(
                WorkloadSpec(
                    "w", "ann", "a", ("p", "q"), 4, hosts=2, min_runtime=60, max_runtime=90, resumable=True, debug=True
                )
            ),
            {**SUBMITTED, "pools": ["p", "q"], "hosts": 2, "gpus_per_host": 2, "max_runtime_ms": 90, "debug": True},
        ),
        (Moved("w", "b", by="ann"), {"kind": "moved", "workload": "w", "budget": "b"}),
        (CheckpointReported("w", 2), {"kind": "checkpoint", "workload": "w", "attempt": 2}),
        (HostRemoved("h1"), {"kind": "host", "host": "h1", "state": "removed"}),
    ],
)
def test_an_event_that_says_something_new_has_a_line(event: Event, line: dict[str, Any]) -> None:
    """With keys for what was asked for only."""
    assert lines(event, [], 50) == [{"at": 50, **line}]


@pytest.mark.parametrize("event", [WOKE, Cancelled("w")])
def test_other_events_are_told_by_what_was_decided(event: Event) -> None:
    """They have no line of their own."""
    assert lines(event, [], 50) == []


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        (START, STARTED),
        (replace(START, ends_by=99, lane=True), {**STARTED, "ends_by_ms": 99, "lane": True}),
        (
            Stop("w", 2, StopReason.PREEMPTED, "v", WOKE),
            {"kind": "stopping", "workload": "w", "attempt": 2, "reason": "preempted", "for": "v"},
        ),
        (
            Stopped("w", 2, StopReason.FINISHED, None, WOKE),
            {"kind": "stopped", "workload": "w", "attempt": 2, "reason": "finished"},
        ),
        (Requeue("w", "drained", "", WOKE), {"kind": "requeued", "workload": "w", "reason": "drained"}),
        (
            Requeue("w", "drained", "gone", WOKE),
            {"kind": "requeued", "workload": "w", "reason": "drained", "held": "gone"},
        ),
        (Hold("w", "gone", WOKE), {"kind": "held", "workload": "w", "reason": "gone"}),
        (Refuse("w", "too large", WOKE), {"kind": "refused", "workload": "w", "reason": "too large"}),
        (
            Reserve("w", "p", 70, ("h1",), estimate=True, cause=WOKE),
            {"kind": "reserved", "workload": "w", "pool": "p", "start_ms": 70, "hosts": ["h1"], "estimate": True},
        ),
        (
            Claim("w", "p", ("h1",), (("v", 3),), WOKE),
            {"kind": "claimed", "workload": "w", "pool": "p", "hosts": ["h1"], "preempted": [["v", 3]]},
        ),
        (Unclaim("w", "cancelled", WOKE), {"kind": "unclaimed", "workload": "w", "reason": "cancelled"}),
        (
            HostChanged("h1", "p", 8, HostState.READY, "", WOKE),
            {"kind": "host", "host": "h1", "pool": "p", "gpus": 8, "state": "ready"},
        ),
        (
            HostChanged("h1", "p", 8, HostState.DRAINING, "ECC errors", WOKE),
            {"kind": "host", "host": "h1", "pool": "p", "gpus": 8, "state": "draining", "reason": "ECC errors"},
        ),
    ],
)
def test_each_decision_has_a_line(decision: Decision, line: dict[str, Any]) -> None:
    """All of them, in the order in which they were decided."""
    assert lines(WOKE, [decision, decision], 50) == [{"at": 50, **line}] * 2


def test_applied_budgets_are_told_with_the_shares_in_force() -> None:
    """Those of the moment, those of single pools, and where a budget was before."""
    child = Budget(
        "b",
        Shares(Fraction(1, 3), (("q", Fraction(1, 2)),)),
        members=("ann",),
        previously="a",
        changes=(DatedShares(100, 200, Shares(Fraction(0))),),
    )
    root = Budget("/", Shares(Fraction(1)), managers=("hanna",), children=(child,))
    tree = Tree(root, (Pool("p", 8, 2),), Policy(debug=DebugLane(4)))
    (line,) = lines(WOKE, [BudgetsChanged(tree, "c1", WOKE)], 50)
    told_root, told = line.pop("budgets")
    assert told_root == {"path": "/", "share": "1/1", "managers": ["hanna"], "members": []}
    assert told == {
        "path": "b",
        "share": "1/3",
        "shares": {"q": "1/2"},
        "managers": [],
        "members": ["ann"],
        "previously": "a",
    }
    policy = line.pop("policy")
    assert policy["lookback_ms"] == 7 * 24 * 3_600_000
    assert policy["debug"] == {
        "gpus": 4,
        "max_gpus": 8,
        "max_runtime_ms": 900_000,
        "per_person": 1,
        "allowance_gpu_ms": 14_400_000,
    }
    assert line == {
        "at": 50,
        "kind": "budgets_applied",
        "commit": "c1",
        "cluster": "cluster",
        "pools": [{"pool": "p", "gpus_per_host": 8, "hosts": 2}],
    }
    (later,) = lines(WOKE, [BudgetsChanged(tree, "c1", WOKE)], 150)
    assert later["budgets"][1]["share"] == "0/1"
    assert "shares" not in later["budgets"][1]


def test_a_policy_without_a_lane_says_so() -> None:
    """The key is there, and null."""
    tree = Tree(Budget("/", Shares(Fraction(1))), ())
    (line,) = lines(WOKE, [BudgetsChanged(tree, "", WOKE)], 50)
    assert line["policy"]["debug"] is None
