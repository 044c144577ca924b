"""What the API shows of the core: its views as JSON objects. Pure; nothing here decides or is remembered."""

from __future__ import annotations

from typing import Any

from gpubudget.core.budget import Tree
from gpubudget.core.host import HostState
from gpubudget.core.views import BudgetView, Explanation, HostView, PoolView, ReservationView
from gpubudget.daemon.hosts import Host
from gpubudget.units import format_gpu_hours, format_share, ratio_text

Object = dict[str, Any]


def budgets(tree: Tree, views: list[BudgetView]) -> list[Object]:
    """Every budget of the tree, with how it stands in each pool."""
    standing: dict[str, Object] = {}
    for view in views:
        standing.setdefault(view.path, {})[view.pool] = {
            "share": ratio_text(view.share),
            "effective_share": ratio_text(view.effective_share),
            "reserve": ratio_text(view.reserve),
            "guarantee": ratio_text(view.guarantee),
            "entitlement_gpu_ms": view.entitlement,
            "usage_gpu_ms": view.usage,
            "balance_gpu_ms": view.balance,
            "running": view.running,
            "unallocated": view.unallocated,
            "pending": view.pending,
        }
    return [
        {
            "path": budget.path,
            "title": budget.title,
            "managers": list(budget.managers),
            "members": list(budget.members),
            "pools": standing.get(budget.path, {}),
        }
        for budget in tree.budgets()
    ]


def pool(view: PoolView, declared: int) -> Object:
    """A pool: hosts (and how many the tree says) and GPUs now, and GPU-milliseconds since the scheduler began."""
    return {
        "name": view.name,
        "hosts": view.hosts,
        "declared_hosts": declared,
        "gpus": view.gpus,
        "free": view.free,
        "capacity_gpu_ms": view.capacity_time,
        "allocated_gpu_ms": view.allocated_time,
        "unallocated_gpu_ms": view.unallocated_time,
        "idle_gpu_ms": view.idle_time,
        "unavailable_gpu_ms": view.unavailable_time,
    }


def reservation(view: ReservationView) -> Object:
    """What is kept for the first workload of a pool that cannot start yet."""
    return {
        "pool": view.pool,
        "workload": view.workload,
        "start_ms": view.start,
        "hosts": list(view.hosts),
        "estimate": view.estimate,
    }


def host(view: HostView, kept: Host | None) -> Object:
    """A host, with what its agent says of it."""
    return {
        "name": view.name,
        "pool": view.pool,
        "gpus": view.gpus,
        "free": view.free,
        "lane": view.lane,
        "state": view.state.value,
        "reason": view.reason,
        "attempts": [{"workload": workload, "attempt": attempt} for workload, attempt in view.attempts],
        **_said(kept, view.state),
    }


def stranger(kept: Host) -> Object:
    """A host whose agent reports, but which the core has not been told of yet."""
    why = f"not taken in yet: {kept.illness or 'attempts of an earlier time still run on it'}"
    return {
        "name": kept.name,
        "pool": kept.pool,
        "gpus": kept.gpus,
        "free": 0,
        "lane": 0,
        "state": HostState.LOST.value,
        "reason": why,
        "attempts": [],
        **_said(kept, HostState.LOST),
    }


def _said(kept: Host | None, state: HostState) -> Object:
    if kept is None:
        return {"last_seen_ms": None, "gpu_models": [], "health": [], "hold": False, "repair": None}
    return {
        "last_seen_ms": kept.last_seen,
        "gpu_models": list(kept.models),
        "health": [{"name": check.name, "ok": check.ok, "message": check.message} for check in kept.health],
        "hold": kept.hold,
        "repair": kept.public_repair(state),
    }


def explanation(view: Explanation) -> Object:
    """Why a workload is where it is, as figures and as a text for people."""
    return {
        "workload": view.workload,
        "state": view.state.value,
        "reason": view.reason,
        "pool": view.pool,
        "rank": view.rank,
        "waiting": view.waiting,
        "start_ms": view.start,
        "estimate": view.estimate,
        "path": [
            {
                "path": step.path,
                "share": ratio_text(step.share),
                "usage": step.usage,
                "better": list(step.better),
            }
            for step in view.path
        ],
        "text": _text(view),
    }


def _text(view: Explanation) -> str:
    told = [f"{view.workload} is {view.state.value}: {view.reason}"]
    if view.rank is not None:
        told.append(f"rank {view.rank} of {view.waiting} that wait in pool {view.pool}")
    for step in view.path:
        before = f", after {', '.join(step.better)}" if step.better else ""
        used = format_gpu_hours(step.usage)
        told.append(f"{step.path}: {used} GPU-hours used of a share of {format_share(step.share)}{before}")
    return "\n".join(told)
