"""What an event log says that happened: the same figures as the run that wrote it, and small logs by hand."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gpubudget.core.budget import DebugLane, Pool
from gpubudget.core.eventlog import budgets_applied
from gpubudget.core.events import BudgetsApplied
from gpubudget.core.scheduler import Scheduler
from gpubudget.errors import InvalidInputError
from gpubudget.sim.engine import Settings, log_to, simulate
from gpubudget.sim.happened import happened
from gpubudget.sim.measures import measure
from gpubudget.sim.played import Costs
from gpubudget.sim.result import End, Result
from gpubudget.sim.submission import FailureRate, Scenario
from gpubudget.sim.synthetic import Demand, generate, hosts_of, lab_tree
from gpubudget.units import DAY, HOUR, MINUTE
from tests.core.histories import play
from tests.made_runs import tree
from tests.sim.test_history import TREE, line, of, started, submitted


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """A run of three days with everything in it (other budgets from the second on), and its log."""
    pool = Pool("p", 8, 11)
    lab = lab_tree(pool)
    lab = replace(lab, policy=replace(lab.policy, debug=DebugLane(8), lookback=DAY))
    demand = replace(Demand(), days=3, load=Fraction(3), unallocated=Fraction(1, 4), resumable=Fraction(3, 4))
    workloads = generate(4, lab, demand)
    children = tuple(
        replace(child, path=f"new-{child.path}", previously=child.path, children=()) if child.path == first else child
        for first in [lab.root.children[0].path]
        for child in lab.root.children
    )
    later = replace(lab, root=replace(lab.root, children=children))
    at = workloads.submissions[0].at + DAY
    workloads = replace(workloads, events=((at, BudgetsApplied(later)),))
    stream = io.StringIO()
    scenario = Scenario(lab, hosts_of(lab), workloads, FailureRate(2, Fraction(60)))
    run = simulate(scenario, Scheduler(), Settings(costs=Costs(start_up=0)), log=log_to(stream))
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_text(stream.getvalue())
    return run, path


def test_a_run_and_its_log_tell_the_same(both: tuple[Result, Path]) -> None:
    """Every sample, what each workload and each attempt did, who made way for whom."""
    run, path = both
    found = happened(path, sample_every=HOUR)
    assert len({row.end for row in run.rows}) >= 3
    assert min(sum(row.drains for row in run.rows), sum(row.host_losses for row in run.rows)) > 0
    assert any(row.lane for row in run.rows)
    assert len(run.preemptions) > 50
    assert (found.start, found.pools, found.hosts) == (run.start, run.pools, run.hosts)
    places = {path: place for place, path in enumerate(found.paths)}
    order = [places[path] for path in run.paths]

    def alike(sums: tuple[int, ...]) -> tuple[int, ...]:
        """In the order of the run's paths."""
        return tuple(sums[place] for place in order)

    for mine, theirs in zip(found.samples[:-1], run.samples, strict=False):
        (pool,), (other,) = mine.pools, theirs.pools
        pool = pool._replace(
            delivered=alike(pool.delivered),
            delivered_unallocated=alike(pool.delivered_unallocated),
            waited=alike(pool.waited),
        )
        assert (mine.at, pool) == (theirs.at, other)
    assert found.samples[-1].at == found.end  # the last line, after which the run saw hosts fail that had no work
    for row, told in zip(run.rows, found.rows, strict=True):
        longer = run.end - found.end if row.ended is None else 0
        assert told._replace(submission=row.submission, wait_ms=told.wait_ms + longer) == row
        assert told.submission.spec == row.submission.spec
    assert found.preemptions == run.preemptions
    assert found.host_failures == run.host_failures
    assert [each.path for each in measure(found).budgets] == [each.path for each in measure(run).budgets]


def test_figures_from_a_moment_on(both: tuple[Result, Path]) -> None:
    """Whoever came before is in no wait; the first sample is at that very moment."""
    run, path = both
    moment = run.start + DAY + 17 * MINUTE
    found = happened(path, since=moment)
    whole = happened(path)
    figures = measure(found)
    assert found.samples[0].at == found.start == figures.start_ms == moment
    assert figures.workloads == sum(row.submitted >= moment for row in whole.rows) < len(whole.rows)
    held = sum(
        row.gpus * (span.ended - max(span.started, moment))
        for row in whole.rows
        for span in row.spans
        if span.ended > moment
    )
    assert figures.held_gpu_ms == held
    assert figures.capacity.allocated_gpu_ms + figures.capacity.unallocated_gpu_ms == held
    assert happened(path, since=0).samples == whole.samples
    with pytest.raises(InvalidInputError, match="tells of nothing in that time"):
        happened(path, since=run.end + HOUR)


def log(tmp_path: Path, *lines: dict[str, Any]) -> Result:
    """The result of a log that begins with a tree and a host of 8 GPUs at time 0."""
    first = [budgets_applied(TREE, "c1", 0) | {"at": 0}, line(0, "host", host="h1", pool="p", gpus=8, state="ready")]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in [*first, *lines]))
    return happened(path, sample_every=10)


def test_who_has_not_ended_needs_its_minimum_more(tmp_path: Path) -> None:
    """It waits or runs at the end; and that is told."""
    found = log(tmp_path, submitted(5, "w"), submitted(6, "v"), started(10, "w"), of(20, "checkpoint", "w"))
    w, v = found.rows
    assert (w.end, w.first_start, w.ended, w.run_time, w.held_gpu_ms) == (End.RUNNING, 10, None, 10 + MINUTE, 40)
    assert (v.end, v.first_start, v.wait_ms, v.run_time) == (End.WAITING, None, 14, MINUTE)
    assert found.assumptions[1] == "2 workloads had not ended: taken to need their minimum runtime from then on."


def test_who_was_refused_held_moved_or_cancelled_while_it_waited(tmp_path: Path) -> None:
    """Their waits end or go on elsewhere, and their rows say why."""
    found = log(
        tmp_path,
        submitted(0, "w"),
        submitted(0, "v"),
        submitted(0, "u"),
        line(10, "refused", workload="w", reason="too large"),
        line(10, "moved", workload="v", budget="z"),
        line(10, "held", workload="v", reason="its budget is gone"),
        of(20, "stopped", "u", attempt=0, reason="cancelled"),
    )
    w, v, u = found.rows
    assert (w.end, w.ended, w.reason, [one.workloads for one in found.refusals]) == (End.REFUSED, 10, "too large", [1])
    assert (v.end, v.budget, v.reason) == (End.WAITING, "z", "its budget is gone")
    assert (u.end, u.ended, u.wait_ms) == (End.CANCELLED, 20, 20)
    waited = dict(zip(found.paths, found.samples[-1].pools[0].waited, strict=True))
    assert (waited["a"], waited["z"]) == (4 * (10 + 10 + 20), 4 * 10)


def test_a_failure_that_is_tried_again_had_nothing_to_show(tmp_path: Path) -> None:
    """All that it held is lost; at its longest run time it has finished."""
    found = log(
        tmp_path,
        submitted(0, "w"),
        started(0, "w"),
        of(10, "stopped", "w", reason="failed"),
        line(10, "requeued", workload="w", reason="failed"),
        started(20, "w", 2),
        of(50, "stopped", "w", attempt=2, reason="finished"),
    )
    (row,) = found.rows
    assert (row.end, row.run_time, row.attempts, row.lost_gpu_ms, row.held_gpu_ms) == (End.FINISHED, 30, 2, 40, 160)


def test_hosts_come_go_and_change(tmp_path: Path) -> None:
    """A host with other GPUs is another one; what a lost host held is nobody's once its attempt is over."""
    found = log(
        tmp_path,
        submitted(0, "w"),
        started(0, "w"),
        line(10, "host", host="h1", pool="p", gpus=8, state="lost"),
        of(10, "stopped", "w", reason="host_lost"),
        line(10, "requeued", workload="w", reason="host_lost"),
        line(20, "host", host="h1", pool="p", gpus=4, state="ready"),
        line(30, "host", host="h2", pool="p", gpus=8, state="cordoned"),
        line(40, "host", host="h2", state="removed"),
        line(50, "host", host="h1", pool="p", gpus=4, state="draining"),
    )
    last = found.samples[-1].pools[0]
    assert [host.gpus for host in found.hosts] == [4]
    assert last.capacity_gpu_ms == 20 * 8 + 30 * 4 + 10 * 8
    assert last.unavailable_gpu_ms == 10 * 8 + 10 * 8
    assert last.allocated_gpu_ms == 10 * 4
    assert (last.capacity, last.unavailable, found.host_failures) == (4, 4, 2)


def test_lines_that_cannot_be_are_left_out_and_told(tmp_path: Path) -> None:
    """And what is no log is one sentence."""
    found = log(tmp_path, line(3, "nonsense"), submitted(5, "w"), started(5, "w"), line(4, "held", workload="w"))
    assert [bad.line for bad in found.bad_rows] == [3, 6]
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(InvalidInputError, match="tells of no budgets"):
        happened(path)


def test_a_renamed_budget_keeps_what_it_had(tmp_path: Path) -> None:
    """Under the name that it has at the end."""
    second = tree({"b": "1/2"}, previously={"b": "a"})
    found = log(
        tmp_path,
        submitted(0, "w"),
        started(0, "w"),
        budgets_applied(second, "c2", 10) | {"at": 10},
        of(20, "stopped", "w", reason="finished"),
    )
    budgets = {each.path: each for each in measure(found).budgets}
    assert (budgets["b"].delivered_gpu_ms, budgets["b"].workloads) == (80, 1)


def test_a_name_that_is_used_again_is_that_of_another_budget(tmp_path: Path) -> None:
    """The renamed budget keeps what it had, what runs on included, and the removed one's is above."""
    one = tree({"seeing": "1/2", "robots": "1/4"})
    two = tree({"vision": "1/2"}, previously={"vision": "seeing"})
    three = tree({"vision": "1/2", "seeing": "1/4", "robots": "1/4"}, previously={"vision": "seeing"})
    three = replace(
        three, root=replace(three.root, children=tuple(replace(c, previously=None) for c in three.root.children))
    )
    found = log(
        tmp_path,
        budgets_applied(one, "c1", 0) | {"at": 0},
        submitted(0, "w", budget="seeing"),
        started(0, "w"),
        submitted(0, "v", budget="robots"),
        budgets_applied(two, "c2", 10) | {"at": 10},
        budgets_applied(three, "c3", 20) | {"at": 20},
        submitted(20, "u", budget="seeing"),
        started(20, "v") | {"placement": {"h1": [4, 5, 6, 7]}},
        of(30, "stopped", "w", reason="finished"),
        started(30, "u"),
        of(40, "stopped", "u", reason="finished"),
        of(50, "stopped", "v", reason="finished"),
    )
    budgets = {each.path: each for each in measure(found).budgets}
    delivered = {path: each.delivered_gpu_ms for path, each in budgets.items()}
    assert delivered == {"/": 4 * (30 + 10 + 30), "vision": 120, "seeing": 40, "robots": 0}
    assert {path: each.workloads for path, each in budgets.items()} == {"/": 3, "vision": 1, "seeing": 1, "robots": 0}


def test_what_began_before_the_log_on_a_host_that_is_not_ready_is_no_idle_time(tmp_path: Path) -> None:
    """Only what nobody holds there is unavailable."""
    found = log(
        tmp_path,
        line(0, "host", host="h1", pool="p", gpus=8, state="cordoned"),
        submitted(0, "w"),
        started(0, "w"),
        of(30, "stopped", "w", reason="finished"),
        line(40, "host", host="h1", pool="p", gpus=8, state="ready"),
        submitted(50, "v"),
    )
    last = found.samples[-1].pools[0]
    assert (last.allocated_gpu_ms, last.unavailable_gpu_ms) == (120, 4 * 30 + 8 * 10)
    assert last.idle_gpu_ms == 8 * 10


def test_shares_are_those_in_force_to_the_millisecond(tmp_path: Path) -> None:
    """A sample is taken when a tree is applied, beside those every 10 ms."""
    found = log(
        tmp_path,
        budgets_applied(tree({"a": "1/2"}), "c1", 0) | {"at": 0},
        submitted(1, "w"),
        budgets_applied(tree({"a": "1/4"}), "c2", 13) | {"at": 13},
        submitted(40, "v"),
    )
    assert [sample.at for sample in found.samples] == [0, 10, 13, 20, 30, 40]
    budgets = {each.path: each for each in measure(found).budgets}
    assert budgets["a"].entitled_gpu_ms == 4 * 13 + 2 * 27


def test_it_may_end_later_than_the_log(tmp_path: Path) -> None:
    """All is as it was at the last line."""
    log(tmp_path, submitted(5, "w"), started(5, "w"))
    found = happened(tmp_path / "log.jsonl", since=100, until=200)
    assert (found.start, found.end, found.rows[0].end) == (100, 200, End.RUNNING)
    assert measure(found).capacity.allocated_gpu_ms == 4 * 100


def test_who_gave_up_wanted_what_it_waited_for(tmp_path: Path) -> None:
    """As a replay takes it."""
    (row,) = log(tmp_path, submitted(0, "w"), of(20, "stopped", "w", attempt=0, reason="cancelled")).rows
    assert (row.end, row.run_time) == (End.CANCELLED, 20)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (submitted(3, "x", budget="a/" * 101 + "a"), "a path of at most 100 budgets"),
        (line(3, "host", host="\ud800", pool="p", gpus=8, state="ready"), "half of a character"),
        (
            line(3, "budgets_applied", budgets=[], policy={"lookback_ms": 5, "grace_period_ms": 1, "x_ms": "soon"}),
            "policy",
        ),
        (
            line(3, "budgets_applied", budgets=[{"path": "a/" * 101 + "a", "share": "1/1"}], policy={"lookback_ms": 5}),
            "budgets",
        ),
    ],
)
def test_what_nothing_can_be_made_of_is_left_out(tmp_path: Path, odd: dict[str, Any], why: str) -> None:
    """By its line; the rest is read."""
    found = log(tmp_path, odd, submitted(5, "w"), started(5, "w") | {"pool": "other"})
    assert [(bad.line, why in bad.why) for bad in found.bad_rows] == [(3, True)]
    assert measure(found).workloads == 1


def test_a_log_that_begins_in_the_middle_says_so(tmp_path: Path) -> None:
    """Lines about workloads that never came are counted."""
    found = log(tmp_path, of(5, "stopped", "v", reason="finished"), submitted(5, "w"), started(9, "w"))
    assert "1 line left out, about workloads of which nothing was told before." in found.assumptions


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_as_the_audit_and_the_core_know_them(seed: int, tmp_path: Path) -> None:
    """Where each pool's GPU-time went, what each program got, who waited and ran: three computations, one answer.

    Budgets come, go and are renamed, workloads are moved, hosts are lost, drained and removed.
    """
    history = play(seed, 150)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in history.log))
    found = happened(path)
    assert history.auditor is not None
    last, end = found.samples[-1], found.end
    told = history.auditor.summary()["pools"]
    for name, pool in zip(found.pools, last.pools, strict=True):
        names = ("capacity_gpu_ms", "allocated_gpu_ms", "unallocated_gpu_ms", "idle_gpu_ms")
        assert {each: getattr(pool, each) for each in names} == {
            each: told.get(name, dict.fromkeys(names, 0))[each] for each in names
        }
        assert pool.unavailable_gpu_ms == told.get(name, {"unavailable_gpu_ms": 0})["unavailable_gpu_ms"]
    held = sum(row.gpus * (span.ended - span.started) for row in found.rows for span in row.spans)
    assert held == sum(pool.allocated_gpu_ms + pool.unallocated_gpu_ms for pool in last.pools)
    assert held == sum(row.held_gpu_ms for row in found.rows)
    assert all(row.wait_ms >= 0 and 0 <= row.lost_gpu_ms <= row.held_gpu_ms for row in found.rows)
    running = {view.spec.id for view in history.scheduler.workloads() if view.attempt and view.attempt.started}
    waiting = {view.spec.id for view in history.scheduler.workloads()} - running
    assert {row.id for row in found.rows if row.end is End.RUNNING} == running
    assert {row.id for row in found.rows if row.end is End.WAITING} == waiting
    assert measure(found).end_ms == end


def test_keys_that_are_not_known_are_let_pass(tmp_path: Path) -> None:
    """The format may grow, the lane's settings included."""
    grown = budgets_applied(TREE, "c2", 3) | {"at": 3, "more": {}}
    grown["policy"] = grown["policy"] | {"debug": {"gpus": 1, "motto": "short"}, "colour": "red"}
    found = log(tmp_path, grown, submitted(5, "w"))
    assert found.bad_rows == ()
    assert found.tree.policy.debug is not None
