"""The words and figures with which a plan is shown, whatever it is shown in: arrows, rounded numbers, reasons, counts.

All are plain texts of one line; escaping is for whoever puts them somewhere.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from gpubudget.core.budget import ROOT, DatedShares, Shares, parent_path
from gpubudget.gitops.plan import Action, Change, Plan, Standing
from gpubudget.gitops.review import Review, Side
from gpubudget.units import HOUR, about_share, count, format_share

SHORT = 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT_BELOW = 100


def arrow(before: str | None, after: str | None) -> str:
    """Both texts with an arrow between, or one if they are alike or only one is there; ``none`` for what ends."""
    if before is None or before == after:
        return after or ""
    return f"{before} -> {after or 'none'}"


def share_text(share: Fraction) -> str:
    """A share, exact where a few decimals say it, else rounded with a mark."""
    exact = format_share(share)
    return exact if exact.endswith("%") else f"~{about_share(share)}"


def gpus_text(gpus: Fraction) -> str:
    """A number of GPUs, with one decimal if it has any, rounded half up."""
    tenths = (gpus * 10 + Fraction(1, 2)).__floor__()
    return f"{tenths // 10:,}" + (f".{tenths % 10}" if tenths % 10 else "")


def gpu_hours_text(gpu_ms: int) -> str:
    """GPU-hours: whole ones from 100 on, else with one decimal, rounded half away from zero."""
    hours = Fraction(abs(gpu_ms), HOUR)
    text = gpus_text(hours) if hours < _EXACT_BELOW else f"{(hours + Fraction(1, 2)).__floor__():,}"
    return f"-{text}" if gpu_ms < 0 and text != "0" else text


def figures(before: Standing | None, after: Standing | None) -> tuple[str, str, str, str]:
    """Share, effective share, GPUs and GPU-hours of a window, each before and after."""
    both = (before, after)
    return (
        arrow(*(format_share(one.share) if one else None for one in both)),
        arrow(*(share_text(one.effective_share) if one else None for one in both)),
        arrow(*(gpus_text(one.guarantee) if one else None for one in both)),
        arrow(*(gpu_hours_text(one.entitlement_gpu_ms) if one else None for one in both)),
    )


def date_text(moment: int, timezone: str) -> str:
    """The day, in the cluster's timezone, of a moment in milliseconds; with the time if it is not midnight there."""
    try:
        there = (_EPOCH + timedelta(milliseconds=moment)).astimezone(ZoneInfo(timezone))
    except (OverflowError, ValueError, KeyError, OSError):
        return f"{moment} ms"
    return f"{there:%Y-%m-%d}" if (there.hour, there.minute) == (0, 0) else f"{there:%Y-%m-%d %H:%M}"


def reason(change: Change, timezone: str) -> str:
    """Why a budget stands in a plan, in a few words: what is written differently, or what it follows from."""
    match change.action:
        case Action.ADDED:
            return "; ".join(["new", *_people(change)])
        case Action.REMOVED:
            return f"removed; what it runs is charged to {parent_path(change.path)}"
        case Action.FOLLOWS:
            return "; ".join([*_cause(change), *_kept(change)])
        case Action.MOVED:
            how = f"moves with {change.follows}" if change.follows else f"was {change.former}, keeps its history"
            return "; ".join([how, *_written(change, timezone), *_kept(change)])
        case _:
            return "; ".join([*_written(change, timezone), *_kept(change)])


def _cause(change: Change) -> list[str]:
    """What a budget follows from; a child that changed is told by what is kept."""
    below = change.path == ROOT or str(change.follows).startswith(f"{change.path}/")
    return [] if below and not str(change.follows).startswith(("policy.", "pools.")) else [f"follows {change.follows}"]


def _kept(change: Change) -> list[str]:
    """What it keeps of itself from its children, where that differs; once if it is the same in every pool."""
    pools = {pool.pool: (pool.before, pool.after) for pool in change.pools}
    told = {
        name: f"keeps {share_text(before.reserve)} -> {share_text(after.reserve)} for itself"
        for name, (before, after) in pools.items()
        if before and after and before.reserve != after.reserve
    }
    if len(told) == len(pools) and len(set(told.values())) == 1:
        return [next(iter(told.values()))]
    return [f"{text} in {name}" for name, text in told.items()]


def _written(change: Change, timezone: str) -> list[str]:
    told = []
    if "share" in change.fields:
        shown = any(p.before and p.after and p.before.share != p.after.share for p in change.pools)
        told.append("share" if shown else f"share {_shares_arrow(change)}, once no dated change is in force")
    if "changes" in change.fields:
        told += _dated(change, timezone)
    if "title" in change.fields and change.after is not None:
        told.append(f"title {change.after.title!r}" if change.after.title else "no title")
    return [*told, *_people(change)]


def _shares_arrow(change: Change) -> str:
    return arrow(*(_shares(budget.shares) if budget else None for budget in (change.before, change.after)))


def _shares(shares: Shares) -> str:
    """A share as YAML has it: one, or the default and those of pools."""
    pools = "".join(f", {pool} {format_share(share)}" for pool, share in shares.by_pool)
    return format_share(shares.default) + pools


def _dated(change: Change, timezone: str) -> list[str]:
    old, new = (budget.changes if budget else () for budget in (change.before, change.after))

    def told(dated: DatedShares) -> str:
        days = f"from {date_text(dated.start, timezone)} until {date_text(dated.until, timezone)}"
        return f"{_shares(dated.shares)} {days}"

    return [
        *(told(dated) for dated in new if dated not in old),
        *(f"no longer {told(dated)}" for dated in old if dated not in new),
    ]


def _people(change: Change) -> list[str]:
    """Who comes and goes: ``members +bob -eva``."""
    found = []
    for field in ("managers", "members"):
        old, new = (getattr(budget, field) if budget else () for budget in (change.before, change.after))
        names = [*(f"+{name}" for name in new if name not in old), *(f"-{name}" for name in old if name not in new)]
        if names or field in change.fields:
            found.append(f"{field} {' '.join(names) or 'in another order'}")
    return found


def summary(plan: Plan) -> str:
    """The counts of a plan: ``1 to add, 2 to change, 1 to remove; 1 setting; 4 more follow``."""
    verbs = {"added": "add", "changed": "change", "moved": "move", "removed": "remove"}
    counts = plan.counts()
    words = [", ".join(f"{counts[action]} to {verb}" for action, verb in verbs.items())]
    words += [f"{count(len(plan.settings), 'setting')} to change"] if plan.settings else []
    words += [f"{len(plan.follows)} more {'follows' if len(plan.follows) == 1 else 'follow'}"] if plan.follows else []
    return "; ".join(words)


def side_text(side: Side, *, long: bool = False) -> str:
    """Where a tree is from: its name and, if it has one, its commit."""
    commit = side.commit if long else side.commit[:SHORT]
    return f"{side.name} ({commit})" if commit and commit != side.name else side.name


def compared(review: Review) -> str:
    """Which two trees a review compares."""
    after, before = review.after, review.before
    if after.merged:
        return f"{side_text(after)} merged into {side_text(before)}, against {before.name}"
    return f"{side_text(after)} against {side_text(before)}"


def unchanged(review: Review) -> str:
    """What there is to say where nothing changes: what was compared, and that it is the same."""
    same = review.before.digest == review.after.digest
    but = "" if same else "; only former paths, which mean nothing more, are written differently"
    return f"No changes: {compared(review)}: the same {count(review.after.budgets, 'budget')}, pools and policy{but}."
