"""A plan as text for a terminal: a line a budget with its reason, who must approve, and a footer with the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter

from gpubudget.cli.output import NOTHING, Column, Row, printable, table
from gpubudget.gitops.plan import Action, Change, Plan
from gpubudget.gitops.review import Approval, Live, Review, WhatIf, checksum
from gpubudget.gitops.wording import (
    SHORT,
    arrow,
    compared,
    date_text,
    figures,
    gpu_hours_text,
    reason,
    side_text,
    summary,
    unchanged,
)
from gpubudget.units import about_duration, count, format_duration

MOST_FOLLOWERS = 20

_SIGNS = {Action.ADDED: "+", Action.REMOVED: "-", Action.MOVED: ">", Action.CHANGED: "~", Action.FOLLOWS: "."}


def text(review: Review) -> str:
    """All of it."""
    told = _head(review) if review.plan else [unchanged(review)]
    told += _plan(review.plan, review)
    if review.drift:
        told += ["", "Drift: for its commit the daemon has what git has not. Applying takes this back:"]
        told += [*_plan(review.drift, None, review.timezone), f"Drift: {summary(review.drift)}."]
    told += _what_if(review.what_if) if review.what_if else []
    told += _approvals(review.approvals)
    told += ["", *(f"note: {note}" for note in review.notes)] if review.notes else []
    if review.plan:
        told += ["", f"Plan: {summary(review.plan)}.", f"Checksum: {checksum(review)}"]
    return printable("\n".join(told))


def _head(review: Review) -> list[str]:
    when = date_text(review.as_of_ms, review.timezone)
    window = format_duration(review.window_ms)
    return [f"Plan of {compared(review)}; shares of {when}, GPU-hours of {window}", ""]


def _plan(plan: Plan, review: Review | None, timezone: str = "UTC") -> list[str]:
    """The table of budgets, folded where many say the same, and the settings."""
    zone = review.timezone if review else timezone
    along = [change for change in plan.changes if change.follows and not change.fields]
    shown = [change for change in plan.changes if change not in along]
    settled = Counter(change.follows for change in plan.follows if _by_setting(change))
    following = [change for change in plan.follows if not _by_setting(change)]
    lines = [line for change in (*shown, *following[:MOST_FOLLOWERS]) for line in _lines(change, review, zone)]
    if len({pool.pool for change in shown for pool in change.pools}) == 1:
        lines = [{name: value for name, value in line.items() if name != "POOL"} for line in lines]
    told = _table(lines)
    told += [f">  {count(len(along), 'budget')} below move along"] if along else []
    if (rest := len(following) - MOST_FOLLOWERS) > 0:
        told.append(f".  {count(rest, 'more budget')} follow; `-o json` has them all")
    told += [f"~  {setting.name}  {arrow(setting.before or 'unset', setting.after)}" for setting in plan.settings]
    told += [f".  {count(many, 'budget')} follow {setting}" for setting, many in settled.items()]
    return told


def _by_setting(change: Change) -> bool:
    return str(change.follows).startswith(("policy.", "pools."))


def _lines(change: Change, review: Review | None, timezone: str) -> Iterable[Row]:
    """A line for each pool in which something differs, and one at least; a path and a reason on the first only."""
    differ = [pool for pool in change.pools if pool.before != pool.after] or list(change.pools[:1])
    live = review.live_of(change.path) if review else {}
    for number, pool in enumerate(differ):
        share, effective, gpus, hours = figures(pool.before, pool.after)
        found: Row = {
            "": _SIGNS[change.action] if number == 0 else " ",
            "BUDGET": change.path if number == 0 else " ",
            "POOL": pool.pool,
            "SHARE": share,
            "EFFECTIVE": effective,
            "GPUS": gpus,
            "GPU-HOURS": hours,
        }
        if review and review.live:
            found |= _live(live.get(pool.pool))
        yield found | {"WHY": reason(change, timezone) if number == 0 else " "}


def _live(live: Live | None) -> Row:
    if live is None:
        return dict.fromkeys(("USED", "BALANCE", "RUNS"), NOTHING)
    return {
        "USED": gpu_hours_text(live.usage_gpu_ms),
        "BALANCE": arrow(gpu_hours_text(live.balance_gpu_ms), gpu_hours_text(live.balance_after_gpu_ms)),
        "RUNS": f"{live.running} ({live.beyond} beyond)" if live.beyond else str(live.running),
    }


def _table(rows: Sequence[Row], left: frozenset[str] = frozenset({"", "BUDGET", "POOL", "WHY"})) -> list[str]:
    """Rows under the names of their values; what is not on the left are figures."""
    if not rows:
        return []
    return table(rows, [Column(name, itemgetter(name), right=name not in left) for name in rows[0]]).split("\n")


def _approvals(approvals: tuple[Approval, ...]) -> list[str]:
    if not approvals:
        return []
    lacking = sum(one.lacking for one in approvals)
    states = f"{lacking} lacking" if lacking else "none lacking"
    return ["", f"Approvals, by the managers of the tree before ({states}):", *approval_lines(approvals)]


def approval_lines(approvals: Iterable[Approval]) -> list[str]:
    """A table of who decides what, and who has approved."""
    rows = [
        {
            "BUDGET": one.path,
            "WHAT": list(one.what),
            "DECIDED BY": f"{one.decides}: {' or '.join(one.managers) or NOTHING}",
            "STATE": _state(one),
        }
        for one in approvals
    ]
    return _table(rows, frozenset(rows[0]) if rows else frozenset())


def _state(one: Approval) -> str:
    if not one.managers:
        return "nobody to ask: no manager is named up to the root"
    return f"approved by {', '.join(one.approved_by)}" if one.approved_by else "lacking"


def _what_if(found: WhatIf) -> list[str]:
    span = f"{date_text(found.start_ms, 'UTC')} to {date_text(found.end_ms, 'UTC')}"
    told = ["", f"What if: {count(found.workloads, 'workload')} of {found.source}, {span}, under both trees:"]
    rows = [
        {
            "BUDGET": one.path,
            "": "changed" if one.touched else "hit hardest",
            "WORKLOADS": one.before.workloads,
            "MEDIAN WAIT": arrow(_wait(one.before.median_wait_ms), _wait(one.after.median_wait_ms)),
            "P90 WAIT": arrow(_wait(one.before.p90_wait_ms), _wait(one.after.p90_wait_ms)),
            "GPU-HOURS": arrow(gpu_hours_text(one.before.delivered_gpu_ms), gpu_hours_text(one.after.delivered_gpu_ms)),
            "PREEMPTED": arrow(str(one.before.preemptions), str(one.after.preemptions)),
        }
        for one in found.outcomes
    ]
    told += _table(rows) or ["no budget fares differently"]
    return [*told, *(f"  {caution}" for caution in found.cautions)]


def _wait(millis: int | None) -> str:
    return NOTHING if millis is None else about_duration(millis)


def applied_text(review: Review, before: str) -> str:
    """What an apply has done, in one line."""
    after = f", after {before[:SHORT]}" if before else ", the first"
    return f"applied {side_text(review.after)}{after}: {summary(review.plan)}"
