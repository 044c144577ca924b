"""What the tables show: for each kind of thing the columns, and how each is read from the API's answer."""

from __future__ import annotations

from collections import Counter

from gpubudget.cli.output import NOTHING, Column, Row, ago, gpus, share
from gpubudget.units import about_duration, format_gpu_hours


def _where(workload: Row) -> object:
    attempt = workload.get("attempt") or {}
    return list(attempt.get("placement") or {})


def _age(workload: Row) -> str:
    """Since when it is what it is: ended, running or waiting."""
    attempt = workload.get("attempt") or {}
    return ago(workload.get("ended_ms") or attempt.get("started_ms") or workload.get("submitted_ms"))


def _protected(workload: Row) -> str:
    """For how much longer its attempt is protected."""
    attempt = workload.get("attempt") or {}
    return ago(attempt["protected_until_ms"]).removeprefix("in ") if _is_protected(attempt) else NOTHING


def _is_protected(attempt: Row) -> bool:
    until = attempt.get("protected_until_ms")
    return until is not None and ago(until).startswith("in ")


WORKLOADS = [
    Column("ID", lambda w: w["id"]),
    Column("NAME", lambda w: w.get("name"), wide=True),
    Column("OWNER", lambda w: w.get("owner")),
    Column("BUDGET", lambda w: w.get("budget")),
    Column("POOL", lambda w: (w.get("attempt") or {}).get("pool") or w.get("pools"), wide=True),
    Column("GPUS", lambda w: w.get("gpus"), right=True),
    Column(
        "MINIMUM", lambda w: about_duration(w["min_runtime_ms"]) if w.get("min_runtime_ms") else NOTHING, right=True
    ),
    Column("STATE", lambda w: w.get("state")),
    Column("FOR", _age, right=True),
    Column("PROTECTED", _protected, right=True),
    Column("ATTEMPT", lambda w: w.get("attempts"), right=True),
    Column("PREEMPTED", lambda w: w.get("preemptions"), right=True, wide=True),
    Column("EXIT", lambda w: w.get("exit_code"), right=True, wide=True),
    Column("HOSTS", _where),
    Column("REASON", lambda w: w.get("reason"), wide=True),
    Column("COMMAND", lambda w: " ".join(w.get("command") or []), wide=True),
]


def _checks(host: Row) -> str:
    """The health checks that fail, or that all pass."""
    checks = host.get("health") or []
    failed = [str(check.get("name")) for check in checks if not check.get("ok")]
    return ",".join(failed) if failed else ("ok" if checks else NOTHING)


def _repair(host: Row) -> str:
    repair = host.get("repair") or {}
    return "needs a person" if repair.get("waits_for_person") else str(repair.get("step") or "")


HOSTS = [
    Column("HOST", lambda h: h["name"]),
    Column("POOL", lambda h: h.get("pool")),
    Column("GPUS", lambda h: h.get("gpus"), right=True),
    Column("FREE", lambda h: h.get("free"), right=True),
    Column("LANE", lambda h: h.get("lane"), right=True, wide=True),
    Column("STATE", lambda h: h.get("state")),
    Column("SEEN", lambda h: ago(h.get("last_seen_ms")), right=True),
    Column("HEALTH", _checks),
    Column("REPAIR", _repair),
    Column("WORKLOADS", lambda h: [attempt["workload"] for attempt in h.get("attempts") or []]),
    Column("REASON", lambda h: h.get("reason"), wide=True),
]


def _gpu_hours(kind: str) -> Column:
    """What a pool's GPU-time of that kind has been since the scheduler began."""
    return Column(f"{kind.upper()} GPU-H", lambda p: format_gpu_hours(p[f"{kind}_gpu_ms"]), right=True, wide=True)


POOLS = [
    Column("POOL", lambda p: p["name"]),
    Column("HOSTS", lambda p: p.get("hosts"), right=True),
    Column("DECLARED", lambda p: p.get("declared_hosts"), right=True),
    Column("GPUS", lambda p: p.get("gpus"), right=True),
    Column("FREE", lambda p: p.get("free"), right=True),
    *map(_gpu_hours, ("capacity", "allocated", "unallocated", "idle", "unavailable")),
]

RESERVATIONS = [
    Column("WORKLOAD", lambda r: r["workload"]),
    Column("POOL", lambda r: r.get("pool")),
    Column("START", lambda r: ago(r["start_ms"]), right=True),
    Column("ESTIMATE", lambda r: "yes" if r.get("estimate") else "no"),
    Column("HOSTS", lambda r: r.get("hosts")),
]


BUDGETS = [
    Column("BUDGET", lambda b: b["path"]),
    Column("POOL", lambda b: b["pool"]),
    Column("SHARE", lambda b: share(b["share"]), right=True),
    Column("EFFECTIVE", lambda b: share(b["effective_share"]), right=True),
    Column("RESERVE", lambda b: share(b.get("reserve")), right=True, wide=True),
    Column("GPUS", lambda b: gpus(b["guarantee"]), right=True),
    Column("MANAGERS", lambda b: b.get("managers")),
    Column("MEMBERS", lambda b: b.get("members")),
    Column("TITLE", lambda b: b.get("title"), wide=True),
]


def _changes(applied: Row) -> str:
    """What it changed, in short: its lines, counted by how they begin."""
    verbs = Counter(line.split(" ", 1)[0] for line in str(applied.get("plan") or "").splitlines())
    return ", ".join(f"{many} {verb}" for verb, many in verbs.items())


APPLIED = [
    Column("APPLIED", lambda a: ago(a["applied_ms"]), right=True),
    Column("COMMIT", lambda a: a["commit"][:12]),
    Column("AUTHOR", lambda a: a.get("author")),
    Column("APPROVED BY", lambda a: a.get("approvers")),
    Column("APPLIED BY", lambda a: f"{a.get('by') or NOTHING}{' (forced)' if a.get('forced') else ''}"),
    Column("CHANGES", _changes),
    Column("DIGEST", lambda a: (a.get("digest") or "")[:12], wide=True),
    Column("NOTES", lambda a: "; ".join(a.get("notes") or []), wide=True),
]


def _used(budget: Row) -> str:
    """Usage as a percentage of the entitlement, rounded down."""
    entitlement = budget["entitlement_gpu_ms"]
    return f"{budget['usage_gpu_ms'] * 100 // entitlement}%" if entitlement else NOTHING


USAGE = [
    Column("BUDGET", lambda b: b["path"]),
    Column("POOL", lambda b: b["pool"]),
    Column("SHARE", lambda b: share(b["share"]), right=True),
    Column("GUARANTEE", lambda b: gpus(b["guarantee"]), right=True),
    Column("RUNNING", lambda b: b.get("running"), right=True),
    Column("UNALLOCATED", lambda b: b.get("unallocated"), right=True, wide=True),
    Column("WAITING", lambda b: b.get("pending"), right=True),
    Column("ENTITLED", lambda b: format_gpu_hours(b["entitlement_gpu_ms"]), right=True),
    Column("USED", lambda b: format_gpu_hours(b["usage_gpu_ms"]), right=True),
    Column("USED%", _used, right=True),
    Column("BALANCE", lambda b: format_gpu_hours(b["balance_gpu_ms"]), right=True),
]


def per_pool(budgets: list[Row]) -> list[Row]:
    """One row for each budget and pool."""
    return [
        {**budget, "pool": pool, **figures}
        for budget in budgets
        for pool, figures in (budget.get("pools") or {}).items()
    ]
