"""What a change of budgets would have done: the same submissions under the tree before and the tree after.

Works on a scenario, two trees and the plan between them, and gives the value that is reviewed with the plan. Each tree
stands still at one moment, that of the plan, so that dated changes are judged by the day that was asked for. What a
replay cannot know is said in sentences beside the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from gpubudget.core.budget import ROOT, Budget, Tree
from gpubudget.core.scheduler import Scheduler
from gpubudget.errors import RefusedError
from gpubudget.gitops.plan import Action, Change, Plan
from gpubudget.gitops.review import Outcome, Replayed, WhatIf
from gpubudget.sim import assume, traces
from gpubudget.sim.engine import Settings, simulate
from gpubudget.sim.eras import charged_in
from gpubudget.sim.measures import BudgetMeasures, came_in, measure
from gpubudget.sim.meters import step_for
from gpubudget.sim.prepare import Choice, prepare
from gpubudget.sim.result import Result
from gpubudget.sim.submission import Scenario
from gpubudget.units import about_duration, count, format_duration

HARDEST = 5
"""So many budgets that the plan does not touch are shown, of those that fare worst."""

NEVER_KNOWN = "A replay cannot know what people would have asked for under other budgets, nor when."
BEGINS_EMPTY = "It begins with nothing running and no usage, which its figures have in them."

Progress = Callable[[str], None]


def scenario_of(trace: Path, tree: Tree) -> Scenario:
    """The scenario of a file: our own event log, or another cluster's trace on the hosts of ``tree``."""
    told = traces.first_line(trace).startswith("{")
    return prepare(Choice(trace), None if told else tree)


def what_if(
    scenario: Scenario,
    trees: tuple[Tree, Tree],
    plan: Plan,
    now: int,
    *,
    since: int | None = None,
    progress: Progress | None = None,
) -> WhatIf:
    """Play ``scenario`` under the tree before and the tree after, as they are at ``now``, and compare by budget.

    What comes before ``since`` (milliseconds) is played and in no figure. RefusedError if nothing comes later.
    """
    submissions = scenario.workloads.submissions
    if since is not None and submissions[-1].at < since:
        raise RefusedError("no workload was submitted in that time", hint="name a longer one with --replay")
    warm_up = 0 if since is None else max(0, since - submissions[0].at)
    span = submissions[-1].at - submissions[0].at - warm_up
    settings = Settings(warm_up=warm_up, sample_every=step_for(span))
    results = []
    for name, tree in zip(("before", "after"), trees, strict=True):
        if progress is not None:
            progress(f"replaying {count(len(scenario.workloads.submissions), 'workload')} under the tree {name}")
        results.append(simulate(under(scenario, tree, now), Scheduler(), settings))
    before, after = results
    return WhatIf(
        scenario.workloads.name,
        before.start,
        before.loaded_until,
        len(came_in(before)),
        _outcomes(before, after, plan),
        tuple(_cautions(scenario, before, after, plan, warm_up)),
    )


def _still(tree: Tree, now: int) -> Tree:
    """The tree with the shares of one moment, for good."""

    def still(budget: Budget) -> Budget:
        return replace(budget, shares=budget.shares_at(now), changes=(), children=tuple(map(still, budget.children)))

    return replace(tree, root=still(tree.root))


def under(scenario: Scenario, tree: Tree, now: int) -> Scenario:
    """The scenario with a tree as it is at ``now`` for all of its time.

    Each workload is charged to whoever answers for it there, through all trees that were applied in its time.
    """
    tree = _still(tree, now)
    submissions, _ = charged_in(tree, scenario)
    workloads = replace(scenario.workloads, submissions=submissions, events=())
    return replace(scenario, tree=tree, workloads=assume.capped(workloads, tree.policy.max_min_runtime))


def _outcomes(before: Result, after: Result, plan: Plan) -> tuple[Outcome, ...]:
    """Each budget that the plan changes, then those that are hit hardest, the worst first."""
    old = {budget.path: budget for budget in measure(before).budgets}
    new = {budget.path: budget for budget in measure(after).budgets}
    written = {change.path: change for change in plan.changes}
    touched = [_outcome(path, change, old, new) for path, change in written.items()]
    others = [_outcome(path, None, old, new) for path in new if path in old and path not in written and path != ROOT]
    worse = sorted((one for one in others if _harm(one) > (0, 0)), key=_harm, reverse=True)
    return (*touched, *worse[:HARDEST])


def _outcome(
    path: str, change: Change | None, old: dict[str, BudgetMeasures], new: dict[str, BudgetMeasures]
) -> Outcome:
    former = change.former or path if change else path
    ends, begins = change and change.action is Action.REMOVED, change and change.action is Action.ADDED
    found = Replayed(0, None, None, 0, 0)
    return Outcome(
        path,
        change is not None,
        found if begins or former not in old else _replayed(old[former]),
        found if ends or path not in new else _replayed(new[path]),
    )


def _replayed(found: BudgetMeasures) -> Replayed:
    first = found.waits.first
    return Replayed(found.workloads, first.p50_ms, first.p90_ms, found.delivered_gpu_ms, found.preempted)


def _harm(one: Outcome) -> tuple[int, int]:
    """How much longer nine of ten wait at most, and how much less GPU-time there is; what is better does not count."""
    longer = (one.after.p90_wait_ms or 0) - (one.before.p90_wait_ms or 0)
    return max(longer, 0), max(one.before.delivered_gpu_ms - one.after.delivered_gpu_ms, 0)


def _beginning(warm_up: int) -> str:
    """What stands before the time that counts."""
    if not warm_up:
        return BEGINS_EMPTY
    return f"It begins {about_duration(warm_up)} before the time that is counted, with nothing running and no usage."


def _cautions(scenario: Scenario, before: Result, after: Result, plan: Plan, warm_up: int) -> Iterable[str]:
    yield NEVER_KNOWN
    yield _beginning(warm_up)
    spans = after.loaded_until - after.start
    if spans < 2 * after.tree.policy.lookback:
        window = format_duration(after.tree.policy.lookback)
        yield f"It covers {about_duration(spans)}, which is little beside a window of {window}."
    if any(change.action is Action.REMOVED for change in plan.changes):
        yield "Work of budgets that are removed is charged to the nearest budget above that is left."
    if any(setting.name.startswith("pools.") for setting in plan.settings):
        yield "It has the hosts that there were, not those that the plan gives a pool."
    if scenario.workloads.events:
        changes = count(len(scenario.workloads.events), "change")
        yield f"{changes} of budgets in the time that is replayed did not happen in it: each tree holds throughout."
    for name, result in (("before", before), ("after", after)):
        for refusal in result.refusals[:1]:
            many = sum(one.workloads for one in result.refusals)
            yield f"{count(many, 'workload')} refused under the tree {name}, such as: {refusal.reason}"
    for row in scenario.workloads.bad_rows[:1]:
        yield f"{count(len(scenario.workloads.bad_rows), 'row')} of the record left out, such as: {row.why}."
    yield from assume.capped(scenario.workloads, after.tree.policy.max_min_runtime).assumptions
