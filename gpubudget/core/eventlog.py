"""The public event log: what happened, one plain object a line, complete enough to recompute everything.

A pure function from an event and what was decided for it. Every line has ``at`` (milliseconds) and ``kind``; the
other keys of each kind are described in ``docs/event-log.md``.
"""

from __future__ import annotations

from typing import Any

from gpubudget.core.budget import Budget, Policy, Shares, Tree
from gpubudget.core.decisions import (
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
from gpubudget.core.events import CheckpointReported, Event, HostRemoved, Moved, Submitted
from gpubudget.core.workload import WorkloadSpec
from gpubudget.units import ratio_text

Line = dict[str, Any]

KINDS = (
    "budgets_applied", "checkpoint", "claimed", "held", "host", "moved", "refused", "requeued", "reserved", "started",
    "stopped", "stopping", "submitted", "unclaimed",
)  # fmt: skip
"""Every kind of line, sorted."""


def lines(event: Event, decisions: list[Decision], now: int) -> list[Line]:
    """The lines that ``event``, handled at ``now``, adds to the log, in order."""
    found = [] if (line := _event_line(event)) is None else [line]
    found += [_decision_line(decision, now) for decision in decisions]
    return [{"at": now, **line} for line in found]


def _event_line(event: Event) -> Line | None:
    match event:
        case Submitted(spec):
            return _submitted(spec)
        case Moved(workload, budget):
            return {"kind": "moved", "workload": workload, "budget": budget}
        case CheckpointReported(workload, attempt):
            return {"kind": "checkpoint", "workload": workload, "attempt": attempt}
        case HostRemoved(host):
            return {"kind": "host", "host": host, "state": "removed"}
        case _:
            return None


def _submitted(spec: WorkloadSpec) -> Line:
    line: Line = {
        "kind": "submitted",
        "workload": spec.id,
        "owner": spec.owner,
        "budget": spec.budget,
        "pool": spec.pools[0],
        "gpus": spec.gpus,
        "min_runtime_ms": spec.min_runtime,
        "resumable": spec.resumable,
        "priority": spec.priority,
    }
    if len(spec.pools) > 1:
        line["pools"] = list(spec.pools)
    if spec.hosts is not None:
        line |= {"hosts": spec.hosts, "gpus_per_host": spec.gpus // spec.hosts}
    if spec.max_runtime is not None:
        line["max_runtime_ms"] = spec.max_runtime
    if spec.debug:
        line["debug"] = True
    return line


def _decision_line(decision: Decision, now: int) -> Line:  # noqa: PLR0911 - one return for each kind of line
    match decision:
        case Start():
            return _started(decision)
        case Stop(workload, attempt, reason, beneficiary):
            return _for(
                {"kind": "stopping", "workload": workload, "attempt": attempt, "reason": reason.value}, beneficiary
            )
        case Stopped(workload, attempt, reason, beneficiary):
            return _for(
                {"kind": "stopped", "workload": workload, "attempt": attempt, "reason": reason.value}, beneficiary
            )
        case Requeue(workload, reason, held):
            line: Line = {"kind": "requeued", "workload": workload, "reason": reason}
            return line | {"held": held} if held else line
        case Hold(workload, reason):
            return {"kind": "held", "workload": workload, "reason": reason}
        case Refuse(workload, reason):
            return {"kind": "refused", "workload": workload, "reason": reason}
        case Reserve():
            return _reserved(decision)
        case Claim(workload, pool, hosts, preempted):
            return {
                "kind": "claimed",
                "workload": workload,
                "pool": pool,
                "hosts": list(hosts),
                "preempted": [list(victim) for victim in preempted],
            }
        case Unclaim(workload, reason):
            return {"kind": "unclaimed", "workload": workload, "reason": reason}
        case HostChanged(host, pool, gpus, state, reason):
            line = {"kind": "host", "host": host, "pool": pool, "gpus": gpus, "state": state.value}
            return line | {"reason": reason} if reason else line
        case _:
            return budgets_applied(decision.tree, decision.commit, now)


def _for(line: Line, beneficiary: str | None) -> Line:
    return line if beneficiary is None else {**line, "for": beneficiary}


def _started(start: Start) -> Line:
    line: Line = {
        "kind": "started",
        "workload": start.workload,
        "attempt": start.attempt,
        "pool": start.pool,
        "allocated": start.allocated,
        "placement": {host: list(gpus) for host, gpus in start.placement},
        "protected_until_ms": start.protected_until,
        "preempted": [list(victim) for victim in start.preempted],
        "reason": start.reason,
    }
    if start.ends_by is not None:
        line["ends_by_ms"] = start.ends_by
    if start.lane:
        line["lane"] = True
    return line


def _reserved(reserve: Reserve) -> Line:
    return {
        "kind": "reserved",
        "workload": reserve.workload,
        "pool": reserve.pool,
        "start_ms": reserve.start,
        "hosts": list(reserve.hosts),
        "estimate": reserve.estimate,
    }


def budgets_applied(tree: Tree, commit: str, now: int) -> Line:
    """The line that says which budgets, shares and policy hold from ``now`` on."""
    return {
        "kind": "budgets_applied",
        "commit": commit,
        "cluster": tree.cluster,
        "pools": [{"pool": p.name, "gpus_per_host": p.gpus_per_host, "hosts": p.hosts} for p in tree.pools],
        "budgets": [_budget(budget, now) for budget in tree.budgets()],
        "policy": _policy(tree.policy),
    }


def _budget(budget: Budget, now: int) -> Line:
    shares: Shares = budget.shares_at(now)
    line: Line = {
        "path": budget.path,
        "share": ratio_text(shares.default),
        "managers": list(budget.managers),
        "members": list(budget.members),
    }
    if shares.by_pool:
        line["shares"] = {pool: ratio_text(share) for pool, share in shares.by_pool}
    if budget.previously is not None:
        line["previously"] = budget.previously
    return line


def _policy(policy: Policy) -> Line:
    lane = policy.debug
    return {
        "lookback_ms": policy.lookback,
        "max_min_runtime_ms": policy.max_min_runtime,
        "rebalance_interval_ms": policy.rebalance_interval,
        "grace_period_ms": policy.grace_period,
        "failed_soon_ms": policy.failed_soon,
        "preempt_backoff_ms": policy.preempt_backoff,
        "max_preempt_backoff_ms": policy.max_preempt_backoff,
        "debug": None
        if lane is None
        else {
            "gpus": lane.gpus,
            "max_gpus": lane.max_gpus,
            "max_runtime_ms": lane.max_runtime,
            "per_person": lane.per_person,
            "allowance_gpu_ms": lane.allowance,
        },
    }
