"""An event log as a trace: what was submitted, how long it needs, under which budgets and on which hosts."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gpubudget.core.budget import Budget, DebugLane, Policy, Pool, Shares, Tree
from gpubudget.core.eventlog import budgets_applied
from gpubudget.core.events import BudgetsApplied
from gpubudget.core.scheduler import Scheduler
from gpubudget.errors import InvalidInputError
from gpubudget.sim.engine import log_to, simulate
from gpubudget.sim.history import read_history
from gpubudget.sim.submission import Ending, Failure, Fault, Scenario, SimHost, Submission
from gpubudget.sim.synthetic import Demand, generate, hosts_of
from gpubudget.units import HOUR, MINUTE

HALF = Shares(Fraction(1, 2), (("p", Fraction(1, 3)),))
ROOT = Budget(
    "/",
    Shares(Fraction(1)),
    managers=("hanna",),
    children=(Budget("a", HALF, members=("ana",), children=(Budget("a/b", HALF, previously="c"),)), Budget("z", HALF)),
)
TREE = Tree(ROOT, (Pool("p", 8, 2),), Policy(lookback=HOUR, debug=DebugLane(4, 2, MINUTE, 3)), "lab")


def line(at: int, kind: str, **data: object) -> dict[str, Any]:
    return {"at": at, "kind": kind, **data}


def submitted(at: int, name: str, **more: object) -> dict[str, Any]:
    asked = {"workload": name, "owner": "ana", "budget": "a", "pool": "p", "gpus": 4, "min_runtime_ms": MINUTE}
    return line(at, "submitted", **asked | {"resumable": True} | more)


def started(at: int, name: str, attempt: int = 1) -> dict[str, Any]:
    return line(
        at,
        "started",
        workload=name,
        attempt=attempt,
        allocated=True,
        placement={"h1": [0, 1, 2, 3]},
        protected_until_ms=at,
        preempted=[],
    )


def of(at: int, kind: str, name: str, **more: object) -> dict[str, Any]:
    return line(at, kind, workload=name, **({"attempt": 1} if kind != "requeued" else {}) | more)


def read(tmp_path: Path, *lines: dict[str, Any], before: bool = True) -> Scenario:
    """The scenario of a log that begins with the tree and a host at time 0, and has these lines."""
    first = [budgets_applied(TREE, "c1", 0) | {"at": 0}, line(0, "host", host="h1", pool="p", gpus=8, state="ready")]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (first if before else []) + list(lines)))
    return read_history(path, start_up=0)


def only(tmp_path: Path, *lines: dict[str, Any]) -> Submission:
    (found,) = read(tmp_path, *lines).workloads.submissions
    return found


def test_budgets_policy_and_hosts_are_those_of_the_log(tmp_path: Path) -> None:
    """Exactly, but for titles, which a log has not."""
    scenario = read(tmp_path, submitted(5, "w"), started(5, "w"), of(9, "stopped", "w", reason="finished"))
    assert scenario.tree == TREE
    assert scenario.hosts == (SimHost("h1", "p", 8),)
    (found,) = scenario.workloads.submissions
    assert (found.at, found.run_time, found.ending) == (5, 4, Ending.FINISHED)
    assert (found.spec.id, found.spec.owner, found.spec.budget, found.spec.pools) == ("w", "ana", "a", ("p",))


def test_all_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    """Pools, split, limit, priority, debug."""
    more = {"pools": ["q", "p"], "hosts": 2, "gpus_per_host": 2, "max_runtime_ms": HOUR, "debug": True, "priority": -3}
    spec = only(tmp_path, submitted(0, "w", **more), started(0, "w"), of(9, "stopped", "w", reason="failed")).spec
    assert (spec.pools, spec.hosts, spec.max_runtime, spec.debug, spec.priority) == (("q", "p"), 2, HOUR, True, -3)


def test_attempts_add_up_to_what_a_workload_needs(tmp_path: Path) -> None:
    """Without what passed between the order to stop and the end."""
    found = only(
        tmp_path,
        submitted(0, "w"),
        started(0, "w"),
        of(100, "stopping", "w", reason="preempted"),
        of(110, "stopped", "w", reason="preempted"),
        of(110, "requeued", "w", reason="preempted"),
        started(200, "w", 2),
        of(250, "stopped", "w", attempt=2, reason="cancelled"),
    )
    assert (found.run_time, found.ending) == (150, Ending.CANCELLED)


def test_with_checkpoints_only_what_was_saved_counts(tmp_path: Path) -> None:
    """And after the loss of a host without any, nothing does."""
    lost = [
        of(100, "stopped", "w", reason="host_lost"),
        of(100, "requeued", "w", reason="host_lost"),
        started(200, "w", 2),
        of(250, "stopped", "w", attempt=2, reason="finished"),
    ]
    saved = of(80, "checkpoint", "w")
    assert only(tmp_path, submitted(0, "w"), started(0, "w"), saved, *lost).run_time == 130
    assert only(tmp_path, submitted(0, "w"), started(0, "w"), *lost).run_time == 50


def test_work_that_cannot_resume_needs_what_its_last_attempt_ran(tmp_path: Path) -> None:
    """It began anew after a drain."""
    found = only(
        tmp_path,
        submitted(0, "w", resumable=False),
        started(0, "w"),
        of(100, "stopped", "w", reason="drained"),
        of(100, "requeued", "w", reason="drained"),
        started(200, "w", 2),
        of(250, "stopped", "w", attempt=2, reason="finished"),
    )
    assert found.run_time == 50


def test_what_was_preempted_for_good_needs_what_it_had_run(tmp_path: Path) -> None:
    """Nobody knows how long it would have gone on; that is told."""
    scenario = read(
        tmp_path, submitted(0, "w", resumable=False), started(0, "w"), of(70, "stopped", "w", reason="preempted")
    )
    assert scenario.workloads.submissions[0].run_time == 70
    assert any("1 workload ended preempted" in note for note in scenario.workloads.assumptions)


def test_who_was_cancelled_while_waiting_gives_up_at_that_moment(tmp_path: Path) -> None:
    """In the simulation it may have started by then."""
    found = only(tmp_path, submitted(10, "w"), of(90, "stopped", "w", attempt=0, reason="cancelled"))
    assert (found.gives_up, found.run_time, found.ending) == (90, 80, Ending.CANCELLED)


def test_what_had_not_ended_is_flagged_or_left_out_by_name(tmp_path: Path) -> None:
    """Who ran needs what he had run; who never started, or was refused, is named with his line."""
    scenario = read(
        tmp_path,
        submitted(0, "w1"),
        submitted(0, "w2"),
        submitted(0, "w3"),
        of(0, "refused", "w3", reason="too large"),
        started(0, "w1"),
        of(60, "checkpoint", "w1"),
    )
    (found,) = scenario.workloads.submissions
    assert (found.spec.id, found.run_time) == ("w1", 60)
    assert any("1 workload had not ended" in note for note in scenario.workloads.assumptions)
    assert [(bad.line, bad.why) for bad in scenario.workloads.bad_rows] == [
        (4, "workload w2: it had not started when the log ended; nobody knows how long it runs"),
        (5, "workload w3: it was refused: too large; nobody knows how long it runs"),
    ]


def test_who_was_moved_is_charged_to_the_last_budget(tmp_path: Path) -> None:
    """A move is not played again."""
    done = [started(0, "w"), of(5, "stopped", "w", reason="finished")]
    assert only(tmp_path, submitted(0, "w"), of(0, "moved", "w", budget="z"), *done).spec.budget == "z"


def test_hosts_that_were_lost_or_drained_fail_again(tmp_path: Path) -> None:
    """At the same time and for as long; a drain's repair begins when the host is empty."""

    def host(at: int, state: str) -> dict[str, Any]:
        return line(at, "host", host="h1", pool="p", gpus=8, state=state, reason="hot")

    lines = [
        host(10, "lost"),
        host(20, "ready"),
        host(30, "draining"),
        host(50, "drained"),
        host(50, "repairing"),
        host(90, "ready"),
    ]
    done = [submitted(0, "w"), started(0, "w"), of(5, "stopped", "w", reason="finished")]
    assert read(tmp_path, *done, *lines).workloads.failures == (
        Failure(10, "h1", Fault.LOST, 10, "hot"),
        Failure(30, "h1", Fault.DRAIN, 40, "hot"),
    )


def test_later_budgets_are_applied_at_their_time(tmp_path: Path) -> None:
    """A log has the whole tree each time."""
    again = budgets_applied(TREE, "c2", 7) | {"at": 7}
    scenario = read(tmp_path, submitted(0, "w"), started(0, "w"), of(5, "stopped", "w", reason="finished"), again)
    assert scenario.workloads.events == ((7, BudgetsApplied(TREE)),)


def test_lines_that_cannot_be_are_named(tmp_path: Path) -> None:
    """The others are read."""
    odd = budgets_applied(TREE, "c2", 1) | {"at": 1, "pools": [7]}
    done = [submitted(2, "w"), started(2, "w"), of(5, "stopped", "w", reason="finished")]
    bad = read(tmp_path, odd, line(1, "started"), *done).workloads.bad_rows
    assert [row.line for row in bad] == [3, 4]
    assert bad[0].why == "its pools, budgets or policy make no tree"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "tells of no workloads"),
        ([submitted(0, "w")], "tells of no workload that ran"),
    ],
)
def test_a_log_with_nothing_to_play_is_told(tmp_path: Path, lines: list[dict[str, Any]], message: str) -> None:
    """In one sentence, with where to get a better one."""
    with pytest.raises(InvalidInputError, match=message):
        read(tmp_path, *lines)
    with pytest.raises(InvalidInputError, match="tells of no budgets"):
        read(tmp_path, *lines, before=False)


def test_a_simulated_log_is_the_same_work_when_it_is_read(tmp_path: Path) -> None:
    """Every workload needs what it needed before: starting again and being stopped were no work."""
    halves = tuple(Budget(who[0], Shares(Fraction(1, 2)), members=(who,)) for who in ("ana", "ben"))
    tree = Tree(Budget("/", Shares(Fraction(1)), children=halves), (Pool("p", 8, 4),))
    workloads = generate(3, tree, Demand(days=3, load=Fraction(5, 2)))
    log = io.StringIO()
    result = simulate(Scenario(tree, hosts_of(tree), workloads), Scheduler(), log=log_to(log))
    assert result.preemptions
    path = tmp_path / "log.jsonl"
    path.write_text(log.getvalue())
    again = read_history(path).workloads.submissions
    refused = {row.id for row in result.rows if row.end == "refused"}
    before = {each.spec.id: each.run_time for each in workloads.submissions if each.spec.id not in refused}
    assert {each.spec.id: each.run_time for each in again} == before
