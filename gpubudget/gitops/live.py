"""How the budgets of a plan stand right now, from the daemon's answer about budgets. Pure; asks nobody."""

from __future__ import annotations

from typing import Any

from gpubudget.gitops.plan import Action, Change, Plan, PoolChange
from gpubudget.gitops.review import Live

Figures = dict[str, Any]


def live(plan: Plan, budgets: list[Figures]) -> tuple[Live, ...]:
    """One for each budget of the plan and pool that the daemon knows; ``budgets`` is that of GET /v1/budgets."""
    known: dict[str, dict[str, Figures]] = {budget["path"]: budget["pools"] for budget in budgets}
    found = []
    for change in (*plan.changes, *plan.follows):
        pools = known.get(_path_before(change), {}) if change.action is not Action.ADDED else {}
        found += [_live(change.path, pool, pools[pool.pool]) for pool in change.pools if pool.pool in pools]
    return tuple(found)


def _path_before(change: Change) -> str:
    return change.former or change.path


def _live(path: str, pool: PoolChange, now: Figures) -> Live:
    running, usage = now["running"], now["usage_gpu_ms"]
    before, after = (standing.guarantee.__floor__() if standing else 0 for standing in (pool.before, pool.after))
    losing = max(min(running, before) - after, 0) if pool.after else 0  # the one above goes on with it
    balance_after = _entitlement(pool, now["entitlement_gpu_ms"]) - usage
    beyond = max(running - after, 0)
    return Live(path, pool.pool, usage, now["balance_gpu_ms"], balance_after, running, beyond, losing)


def _entitlement(pool: PoolChange, now: int) -> int:
    """What the daemon's entitlement becomes: as much more or less as the plan says for a whole window."""
    before, after = (standing.entitlement_gpu_ms if standing else 0 for standing in (pool.before, pool.after))
    return now * after // before if before else after
