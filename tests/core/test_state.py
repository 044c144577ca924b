"""What is refused at submission, and what waits or is held, each with its sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpubudget.core.budget import DebugLane, Policy, Pool
from gpubudget.core.decisions import Hold, Refuse
from gpubudget.core.events import BudgetsApplied, HostReported, Moved, Outcome, Submitted
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadSpec, WorkloadState
from gpubudget.units import HOUR, MINUTE
from tests.core.small import Small, starts, tree

SPEC = WorkloadSpec("w", "ann", "a", ("p",), 1, min_runtime=HOUR)
UNEVEN = "cannot be split evenly over 2 hosts of 8 GPUs in pool p: ask for"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": 0}, "it asks for 0 GPUs; at least 1 is needed"),
        ({"gpus": -3}, "it asks for -3 GPUs; at least 1 is needed"),
        ({"hosts": 0}, "it asks for 0 hosts; at least 1 is needed"),
        ({"pools": ()}, "it names no pool"),
        ({"min_runtime": 9 * HOUR}, "its minimum runtime is 9h; the longest allowed is 8h"),
        ({"min_runtime": -HOUR}, "its minimum runtime is -1h; the longest allowed is 8h"),
        ({"max_runtime": 5 * MINUTE}, "its longest run time is 5m; at least 1h is needed"),
        ({"min_runtime": 0, "max_runtime": 0}, "its longest run time is 0; at least 1ms is needed"),
        ({"budget": None}, "an allocated workload (minimum runtime above 0) must name the budget that pays for it"),
        ({"budget": "c"}, "there is no budget 'c'"),
        ({"pools": ("q",)}, "there is no pool 'q'"),
        ({"gpus": 9}, f"9 GPUs {UNEVEN} 8 or 10 GPUs, or give the number of hosts (-N)"),
        (
            {"gpus": 1, "hosts": 2},
            f"1 GPU {UNEVEN} a multiple of 2 GPUs, at least 1 host, or leave the number of hosts out",
        ),
        ({"gpus": 24}, "8 GPUs on each of 3 hosts can never be had in pool p: it has 2 hosts of 8 GPUs"),
        (
            {"gpus": 24, "pools": ("q", "p")},
            "there is no pool 'q'; 8 GPUs on each of 3 hosts can never be had in pool p: it has 2 hosts of 8 GPUs",
        ),
        (
            {"gpus": 8 * 10**30},
            f"8 GPUs on each of {10**30} hosts can never be had in pool p: it has 2 hosts of 8 GPUs",
        ),
    ],
)
def test_what_can_never_run_is_refused_with_the_numbers(change: dict[str, Any], said: str) -> None:
    """In the very event of its submission, and nothing is kept of it."""
    small = Small({"a": "1/2"}, hosts=2)
    assert small.do(Submitted(replace(SPEC, **change))) == []
    assert [decision.reason for decision in small.last if isinstance(decision, Refuse)] == [said]
    assert small.scheduler.workloads() == []


def test_what_the_debug_lane_keeps_is_not_for_other_allocated_work() -> None:
    """So what would need those GPUs is refused; unallocated work may have them."""
    policy = Policy(debug=DebugLane(gpus=12))
    small = Small({"a": "1/2"}, hosts=2, policy=policy)
    small.submit("w", "a", 8, 10)
    assert [decision.reason for decision in small.last if isinstance(decision, Refuse)] == [
        "8 GPUs on one host can never be had in pool p: it has 2 hosts of 8 GPUs, of which the debug lane keeps 12 GPUs"
    ]
    assert starts(small.submit("u", "a", 8, 0)) == ["u/1"]


def test_the_numbers_of_one_read_as_one() -> None:
    """1 host, 1 GPU."""
    small = Small({"a": "1/2"})
    policy = Policy(debug=DebugLane(gpus=1))
    small.do(BudgetsApplied(replace(small.tree, policy=policy, pools=(Pool("p", 8, 1), Pool("s", 1, 1))), "c2"))
    small.submit("w", "a", 8, 10)
    small.submit("s", "a", 2, 10, pools=("s",))
    (refuse,) = small.last
    assert isinstance(refuse, Refuse)
    kept = "it has 1 host of 1 GPU, of which the debug lane keeps 1 GPU"
    assert refuse.reason == f"1 GPU on each of 2 hosts can never be had in pool s: {kept}"


def test_nothing_is_accepted_before_budgets_are() -> None:
    """There is nobody to charge."""
    scheduler = Scheduler()
    (refuse,) = scheduler.handle(Submitted(SPEC), 0)
    assert isinstance(refuse, Refuse)
    assert refuse.reason == "no budgets have been applied yet"


def test_hosts_that_have_not_reported_count_for_what_could_ever_fit() -> None:
    """The site says that it has them."""
    small = Small({"a": "1/2"})
    small.do(BudgetsApplied(replace(small.tree, pools=(Pool("p", 8, 3),)), "c2"))
    small.submit("w", "a", 24, 10)
    assert small.view("w").state is WorkloadState.PENDING


def test_what_waits_is_held_while_no_pool_could_hold_it() -> None:
    """It says so, and waits again when a pool can."""
    small = Small({"a": "1/2"})
    small.do(HostReported("h2", "p", 8))
    small.submit("w", "a", 8, 10)
    small.submit("x", "a", 16, 10)
    assert small.view("x").state is WorkloadState.PENDING
    small.do(HostReported("h2", "p", 4))
    hold = small.last[-1]
    assert isinstance(hold, Hold)
    assert hold.reason == "8 GPUs on each of 2 hosts can never be had in pool p: it has 2 hosts of up to 8 GPUs"
    assert small.view("x").state is WorkloadState.HELD
    small.do(HostReported("h2", "p", 8))
    assert small.view("x").state is WorkloadState.PENDING
    assert starts(small.exit("w", Outcome.FINISHED)) == ["x/1"]


def test_work_of_a_removed_budget_is_held_until_it_is_moved() -> None:
    """With a sentence that says what to do."""
    small = Small({"a": "1/2", "b": "1/2"})
    small.submit("block", "b", 8, 10)
    small.submit("w", "a", 8, 10)
    small.do(BudgetsApplied(tree({"b": "1/2"}), "c2"))
    holds = [decision.reason for decision in small.last if isinstance(decision, Hold)]
    assert holds == ["its budget a was removed: move it to another one or cancel it"]
    small.do(Moved("w", "b"))
    assert [decision.reason for decision in small.last if isinstance(decision, Hold)] == [""]
    assert (small.view("w").state, small.view("w").spec.budget) == (WorkloadState.PENDING, "b")


def test_work_of_several_pools_waits_in_each_that_could_hold_it() -> None:
    """And starts in the first that has room, once only."""
    small = Small({"a": "1/2"})
    pools = (Pool("p", 8, 1), Pool("q", 8, 1), Pool("r", 4, 1))
    small.do(BudgetsApplied(replace(small.tree, pools=pools), "c2"))
    small.do(HostReported("q1", "q", 8))
    small.submit("block", "a", 8, 60, pools=("p",))
    small.submit("block2", "a", 8, 60, pools=("q",))
    assert starts(small.submit("w", "a", 8, 10, pools=("r", "q", "p"))) == []
    assert "w" in small.scheduler.ranking("p", small.now * MINUTE)
    assert "w" in small.scheduler.ranking("q", small.now * MINUTE)
    assert "w" not in small.scheduler.ranking("r", small.now * MINUTE)
    assert starts(small.exit("block", Outcome.FINISHED)) == ["w/1"]
    assert small.scheduler.ranking("q", small.now * MINUTE) == []
