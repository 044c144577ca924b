"""One history under the tree before and the tree after a change."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from gpubudget.core.budget import Budget, DatedShares, Policy, Pool, Shares, Tree
from gpubudget.core.events import BudgetsApplied
from gpubudget.core.workload import WorkloadSpec
from gpubudget.errors import InvalidInputError, RefusedError
from gpubudget.gitops.plan import plan
from gpubudget.gitops.review import WhatIf
from gpubudget.sim.submission import BadRow, Scenario, SimHost, Submission, Workloads
from gpubudget.sim.whatif import BEGINS_EMPTY, HARDEST, NEVER_KNOWN, scenario_of, under, what_if
from gpubudget.units import DAY, HOUR

POOL = Pool("h100", 8, 2)
PLAIN = Policy(lookback=DAY)


def budget(path: str, share: str, *children: Budget, **more: object) -> Budget:
    return Budget(path, Shares(Fraction(share)), children=children, **more)  # type: ignore[arg-type]


def tree(*children: Budget, policy: Policy = PLAIN) -> Tree:
    return Tree(budget("/", "1", *children), (POOL,), policy)


def work(path: str | None, number: int, every: int = HOUR, gpus: int = 8) -> list[Submission]:
    """So many workloads of two hours, one after the other."""
    return [
        Submission(
            at * every,
            WorkloadSpec(f"{path}-{at}", "eva", path, ("h100",), gpus, min_runtime=HOUR, resumable=True),
            2 * HOUR,
        )
        for at in range(number)
    ]


def scenario(*submissions: Submission, **more: object) -> Scenario:
    ordered = tuple(sorted(submissions, key=lambda one: one.at))
    hosts = (SimHost("n1", "h100", 8), SimHost("n2", "h100", 8))
    return Scenario(tree(), hosts, Workloads("log", ordered, **more))  # type: ignore[arg-type]


def replayed(played: Scenario, before: Tree, after: Tree, now: int = 0) -> WhatIf:
    return what_if(played, (before, after), plan(before, after, now), now)


BUSY = scenario(*work("a", 40), *work("b", 40))


def test_a_budget_whose_share_is_cut_waits_longer_and_gets_less() -> None:
    """The figures of both replays stand beside each other; whoever fares better is not among those that are hit."""
    before = tree(budget("a", "1/2"), budget("b", "1/2"))
    found = replayed(BUSY, before, tree(budget("a", "1/8"), budget("b", "1/2")))
    (a,) = found.outcomes
    assert (a.path, a.touched) == ("a", True)
    assert a.after.delivered_gpu_ms < a.before.delivered_gpu_ms
    assert a.after.p90_wait_ms is not None
    assert a.before.p90_wait_ms is not None
    assert a.after.p90_wait_ms > a.before.p90_wait_ms
    assert a.before.workloads == a.after.workloads == 40
    assert (found.source, found.start_ms, found.end_ms, found.workloads) == ("log", 0, 39 * HOUR, 80)


def test_those_that_are_hit_hardest_are_shown_though_nothing_is_written_about_them() -> None:
    """Only whoever fares worse, and at most a few."""
    many = [budget(f"p{number}", "1/16") for number in range(HARDEST + 3)]
    played = scenario(*work("a", 40), *(one for p in many for one in work(p.path, 13, 3 * HOUR)))
    before, after = tree(budget("a", "1/16"), *many), tree(budget("a", "1/2"), *many)
    found = replayed(played, before, after)
    assert found.outcomes[0].path == "a"
    others = found.outcomes[1:]
    assert 0 < len(others) <= HARDEST
    assert not any(one.touched for one in others)
    assert all(
        (one.after.p90_wait_ms or 0) > (one.before.p90_wait_ms or 0)
        or one.after.delivered_gpu_ms < one.before.delivered_gpu_ms
        for one in others
    )


def test_the_same_tree_twice_fares_the_same() -> None:
    """Nothing is touched, and nobody is hit."""
    same = tree(budget("a", "1/2"), budget("b", "1/4"))
    assert replayed(BUSY, same, same).outcomes == ()


def test_work_of_budgets_that_move_come_and_go_is_charged_to_whoever_answers_for_it() -> None:
    """A moved budget is one row with both of its lives; what is removed is charged above, and that is told."""
    before = tree(budget("a", "1/2"), budget("b", "1/4", budget("b/x", "1")))
    after = tree(budget("z", "1/2", previously="a"), budget("b", "1/4"), budget("new", "1/8"))
    found = replayed(scenario(*work("a", 5), *work("b/x", 5), *work(None, 2), *work("gone", 1)), before, after)
    rows = {one.path: (one.before.workloads, one.after.workloads) for one in found.outcomes if one.touched}
    assert rows == {"z": (5, 5), "new": (0, 0), "b/x": (5, 0)}
    assert "Work of budgets that are removed is charged to the nearest budget above that is left." in found.cautions


def test_dated_changes_are_judged_by_the_day_of_the_plan() -> None:
    """What will hold on that day holds throughout, though the history is of another time."""
    dated = (DatedShares(900 * DAY, 901 * DAY, Shares(Fraction(1, 8))),)
    before = tree(budget("a", "1/2"), budget("b", "1/2"))
    after = tree(budget("a", "1/2", changes=dated), budget("b", "1/2"))
    assert replayed(BUSY, before, after).outcomes[0].before == replayed(BUSY, before, after).outcomes[0].after
    then = replayed(BUSY, before, after, 900 * DAY).outcomes[0]
    assert then.after.delivered_gpu_ms < then.before.delivered_gpu_ms


def test_what_a_replay_cannot_know_is_told() -> None:
    """Always two sentences, and whatever else this record and this plan leave open."""
    same = tree(budget("a", "1/2"), budget("b", "1/2"))
    long = scenario(*work("a", 50))
    assert replayed(long, same, same).cautions == (NEVER_KNOWN, BEGINS_EMPTY)
    larger = replace(same, pools=(replace(POOL, hosts=3),), policy=replace(PLAIN, max_min_runtime=1))
    odd = scenario(
        *work("a", 2),
        *work("b", 1, gpus=5_000),
        assumptions=("Users are drawn.",),
        bad_rows=(BadRow(1, "x"),),
        events=((1, BudgetsApplied(same)),),
    )
    assert replayed(odd, same, larger).cautions[2:] == (
        "It covers 1h, which is little beside a window of 1d.",
        "It has the hosts that there were, not those that the plan gives a pool.",
        "1 change of budgets in the time that is replayed did not happen in it: each tree holds throughout.",
        *[one for one in replayed(odd, same, larger).cautions if one.startswith("1 workload refused under the tree ")],
        "1 row of the record left out, such as: x.",
        "Users are drawn.",
        "3 workloads declared more than the longest minimum runtime, 1ms: taken to declare that.",
    )


def test_what_comes_before_the_time_that_counts_is_usage_and_nothing_else() -> None:
    """``a`` had everything for a day, so ``b`` goes first on the second; without that day they would take turns."""
    same = tree(budget("a", "1/2"), budget("b", "1/2"))
    later = [replace(one, at=one.at + DAY) for one in (*work("a", 20), *work("b", 20))]
    ids = [replace(one, spec=replace(one.spec, id=f"{one.spec.id}-later")) for one in later]
    played = scenario(*work("a", 24), *ids)
    after = tree(budget("a", "3/8"), budget("b", "1/2"))

    def fared(since: int | None, of: Scenario) -> WhatIf:
        return what_if(of, (same, after), plan(same, after, 0), 0, since=since)

    found, cold = fared(DAY, played), fared(None, scenario(*ids))
    (a,), (other,) = found.outcomes, cold.outcomes
    assert (found.workloads, found.start_ms, a.before.workloads) == (40, DAY, 20)
    assert a.before.delivered_gpu_ms < other.before.delivered_gpu_ms
    assert found.cautions[1] == "It begins 1d before the time that is counted, with nothing running and no usage."
    with pytest.raises(RefusedError, match="no workload was submitted in that time"):
        fared(9 * DAY, played)


def test_progress_is_told_for_each_replay() -> None:
    """A person sees that something goes on."""
    same = tree(budget("a", "1/2"))
    told: list[str] = []
    what_if(scenario(*work("a", 1)), (same, same), plan(same, same, 0), 0, progress=told.append)
    assert told == ["replaying 1 workload under the tree before", "replaying 1 workload under the tree after"]


def test_a_trace_may_be_an_event_log_or_another_clusters(tmp_path: Path) -> None:
    """Our own log has hosts and budgets; a foreign one is charged to the tree's budgets, and that is an assumption."""
    log = tmp_path / "events.jsonl"
    log.write_text("".join(f"{json.dumps(line)}\n" for line in LOG))
    own = scenario_of(log, tree(budget("a", "1/2")))
    assert [one.spec.budget for one in own.workloads.submissions] == ["a"]
    csv = tmp_path / "trace.csv"
    csv.write_text("job_id,submit_s,user,group,gpus,duration_s,state\n1,0,u,a,8,60,COMPLETED\n2,5,v,who,1,60,FAILED\n")
    foreign = scenario_of(csv, tree(budget("a", "1/2"), budget("c", "1/8")))
    assert [one.spec.budget for one in foreign.workloads.submissions] == ["a", "a"]
    assert [host.pool for host in foreign.hosts] == ["h100", "h100"]
    assert any("no budget" in one for one in foreign.workloads.assumptions)
    with pytest.raises(InvalidInputError):
        scenario_of(tmp_path / "none", tree())
    with pytest.raises(InvalidInputError, match="there are no hosts"):
        scenario_of(csv, replace(tree(budget("a", "1/2")), pools=(Pool("p", 8, 0),)))


LOG = [
    {
        "at": 0,
        "kind": "budgets_applied",
        "commit": "c",
        "budgets": [{"path": "/", "share": "1/1"}, {"path": "a", "share": "1/2"}],
        "pools": [{"pool": "h100", "hosts": 1, "gpus_per_host": 8}],
        "policy": {"lookback_ms": DAY, "max_min_runtime_ms": DAY},
    },
    {"at": 0, "kind": "host", "host": "n1", "pool": "h100", "gpus": 8, "state": "ready"},
    {
        "at": 1,
        "kind": "submitted",
        "workload": "w1",
        "budget": "a",
        "pool": "h100",
        "gpus": 8,
        "min_runtime_ms": 60_000,
        "resumable": False,
    },
    {
        "at": 2,
        "kind": "started",
        "workload": "w1",
        "attempt": 1,
        "allocated": True,
        "placement": {"n1": [0, 1, 2, 3, 4, 5, 6, 7]},
        "protected_until_ms": 60_002,
        "preempted": [],
    },
    {"at": 90_000, "kind": "stopped", "workload": "w1", "attempt": 1, "reason": "finished"},
]


def test_each_tree_holds_throughout_and_the_report_does_not_say_otherwise() -> None:
    """Changes of budgets in the log are told of a run that plays them, and of no other."""
    same = tree(budget("a", "1/2"), budget("b", "1/2"))
    played = scenario(*work("a", 2), events=((1, BudgetsApplied(same)),))
    assert [one for one in played.workloads.sentences() if "Budgets are changed 1 time in it" in one]
    assert under(played, same, 0).workloads.sentences() == played.workloads.assumptions
