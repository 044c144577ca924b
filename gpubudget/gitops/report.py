"""What a reconciliation did, as a value, and how it is shown: short lines for people, plain data for programs.

Knows nothing of git or of the daemon.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from gpubudget.gitops import diagnostics
from gpubudget.gitops.diagnostics import Diagnostic
from gpubudget.gitops.plan import WRITTEN, Change, Plan, PoolChange, SettingChange, Standing
from gpubudget.gitops.wording import SHORT, arrow, share_text
from gpubudget.units import SECOND, count, format_share, ratio_text

_VERBS = dict(zip(WRITTEN, ("add", "remove", "move", "change"), strict=True))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING = Plan()


class Status(StrEnum):
    """How a reconciliation ended."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    PLANNED = "planned"  # a dry run with something to apply
    REFUSED = "refused"  # by a rule; the same again would be refused again
    FAILED = "failed"
    BUSY = "busy"  # another one is at work
    SUSPENDED = "suspended"  # by a person, until a person says otherwise


@dataclass(frozen=True, slots=True)
class Report:
    """What was found and done. Whatever was not reached is empty; ``exit_code`` is that of the command line.

    ``previous`` is the commit that was applied before, ``author`` and ``committed`` (milliseconds) are the new
    commit's, ``signer`` who signed it if that was asked for, ``notes`` say what is out of the ordinary, and ``error``
    with ``hint`` why nothing was applied. ``cluster`` is its name where one repository has several.
    """

    source: str
    ref: str
    path: str
    status: Status = Status.FAILED
    commit: str = ""
    author: str = ""
    committed: int = 0
    previous: str = ""
    budgets: int = 0
    plan: Plan = _NOTHING
    problems: tuple[Diagnostic, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""
    hint: str = ""
    exit_code: int = 0
    cluster: str = ""
    signer: str = ""


def lines(report: Report) -> list[str]:
    """The report for people, but for its problems and its error."""
    told = [f"cluster    {report.cluster}"] if report.cluster else []
    if report.commit:
        by = f"by {report.author}, {time_text(report.committed)}"
        told.append(f"fetched    {report.ref} {report.commit[:SHORT]} of {report.source}, {by}")
    if report.signer:
        told.append(f"signed     by {report.signer}")
    if report.budgets:
        told.append(f"validated  {count(report.budgets, 'budget')}{_warnings(report)}")
    told += [f"note       {note}" for note in report.notes]
    told += plan_lines(report.plan)
    told.append(f"{report.status.value:<9}  {_outcome(report)}")
    return told


def _warnings(report: Report) -> str:
    """How many there are; what they say is for those who edit the files, and not for every round."""
    number = sum(not problem.is_error for problem in report.problems)
    return f", {count(number, 'warning')} (gpubudget validate shows them)" if number else ""


def plan_lines(plan: Plan) -> list[str]:
    """A line for each change of a plan."""
    return [*map(_change_line, plan.changes), *map(_setting_line, plan.settings)]


def _outcome(report: Report) -> str:
    commit, previous = report.commit[:SHORT], report.previous[:SHORT]
    what = summary(report.plan)
    match report.status:
        case Status.APPLIED:
            return f"{commit}, {f'after {previous}' if previous else 'the first'}: {what}"
        case Status.UNCHANGED:
            return f"{commit} is applied already"
        case Status.PLANNED:
            return f"{commit} would be applied {f'after {previous}' if previous else 'as the first'}: {what}"
        case Status.BUSY:
            return "another reconciliation is at work; left to it"
        case Status.SUSPENDED:
            return f"nothing is applied, {report.error}"
        case _:
            return "nothing is applied" + (f"; {previous} stays" if previous else "")


def summary(plan: Plan) -> str:
    """The counts of a plan in a few words."""
    counted = [f"{number} {action}" for action, number in plan.counts().items() if number]
    words = [f"budgets: {', '.join(counted)}"] if counted else []
    words += [count(len(plan.settings), "setting") + " changed"] if plan.settings else []
    return "; ".join(words) or "no change of budgets"


def _change_line(change: Change) -> str:
    parts = [f"was {change.former}"] if change.former else []
    parts += _shares(change.pools)
    parts += [f"other {field}" for field in change.fields if field != "share"]
    return f"{_VERBS[change.action]:<9}  {change.path}  {'; '.join(parts)}".rstrip()


def _shares(pools: tuple[PoolChange, ...]) -> list[str]:
    """One part for all pools if they are alike, else one for each."""
    texts = {pool.pool: _standing(pool.before, pool.after) for pool in pools if pool.before or pool.after}
    if len(set(texts.values())) == 1:
        return [next(iter(texts.values()))]
    return [f"{name}: {text}" for name, text in texts.items()]


def _standing(before: Standing | None, after: Standing | None) -> str:
    share = arrow(format_share(before.share) if before else None, format_share(after.share) if after else None)
    effective = arrow(*(share_text(standing.effective_share) if standing else None for standing in (before, after)))
    return f"share {share}, effective {effective}"


def _setting_line(setting: SettingChange) -> str:
    return f"setting    {setting.name}  {arrow(setting.before, setting.after)}"


def time_text(millis: int) -> str:
    """RFC 3339 in UTC; git allows times that no calendar has."""
    precision = "milliseconds" if millis % SECOND else "seconds"
    try:
        return (_EPOCH + timedelta(milliseconds=millis)).isoformat(timespec=precision).replace("+00:00", "Z")
    except OverflowError:
        return f"{millis} ms"


def to_json(report: Report) -> dict[str, Any]:
    """The report as plain data; shares are ``num/den``, times milliseconds."""
    return {
        "status": report.status.value,
        "cluster": report.cluster or None,
        "source": report.source,
        "ref": report.ref,
        "path": report.path,
        "commit": report.commit or None,
        "author": report.author or None,
        "committed_ms": report.committed if report.commit else None,
        "signer": report.signer or None,
        "previous": report.previous or None,
        "budgets": report.budgets,
        "counts": report.plan.counts(),
        "changes": [_change_json(change) for change in report.plan.changes],
        "settings": [{"name": s.name, "before": s.before, "after": s.after} for s in report.plan.settings],
        "problems": [diagnostics.to_json(problem, prefix(report)) for problem in report.problems],
        "notes": list(report.notes),
        "error": report.error or None,
        "hint": report.hint or None,
    }


def prefix(report: Report) -> str:
    """What comes before the file of a problem, to be a path from the top of the repository."""
    path = report.path.strip("/")
    return "" if path in {"", "."} else f"{path}/"


def _change_json(change: Change) -> dict[str, Any]:
    pools = {
        pool.pool: {"before": _standing_json(pool.before), "after": _standing_json(pool.after)} for pool in change.pools
    }
    former = {"former": change.former} if change.former else {}
    return {"action": change.action.value, "path": change.path, **former, "fields": list(change.fields), "pools": pools}


def _standing_json(standing: Standing | None) -> dict[str, str] | None:
    if standing is None:
        return None
    return {"share": ratio_text(standing.share), "effective_share": ratio_text(standing.effective_share)}
