"""What the comment on a pull request says of a plan: one template, filled from the value that is reviewed.

A verdict comes first, then only what changes; what follows from it is folded. Names are escaped (``markdown.py``),
and what would be too long is cut row by row, with a link to the whole. Knows nothing of where the text goes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gpubudget.core.budget import ROOT, parent_path
from gpubudget.gitops.markdown import Markdown, arrow, code, codes, environment, link, text
from gpubudget.gitops.plan import Action, Change, Plan, PoolChange, Standing
from gpubudget.gitops.review import Approval, Outcome, Replayed, Review, Side, checksum
from gpubudget.gitops.wording import (
    SHORT,
    date_text,
    gpu_hours_text,
    gpus_text,
    reason,
    share_text,
    unchanged,
)
from gpubudget.units import about_duration, count, format_duration, format_share

T = TypeVar("T")

_BLANK = re.compile(r"\n{3,}")
_ALL = 1 << 30
_IN_A_CELL = 10
_VERBS = {"added": "adds", "removed": "removes", "moved": "moves", "changed": "changes"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a comment stands: its first line, which marks it; what is planned, if there are several; and two URLs.

    ``repository`` is where commits are looked at, ``whole`` where all of the text is if it had to be cut here.
    ``commit`` is the newest of the pull request, for a comment that has no others.
    """

    marker: str = ""
    title: str = ""
    repository: str = ""
    whole: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True)
class Cut(Generic[T]):
    """The rows that are shown, and how many are left out."""

    shown: tuple[T, ...]
    left: int


@dataclass(frozen=True, slots=True)
class Row:
    """A budget in one pool; ``budget`` is empty in its further rows."""

    budget: Markdown
    pool: str
    share: Markdown
    effective: Markdown
    gpus: Markdown
    hours: Markdown


@dataclass(frozen=True, slots=True)
class Decision:
    """What the managers of one budget decide on, and whether one of them has."""

    decides: str
    managers: tuple[str, ...]
    about: Markdown
    state: Markdown


@dataclass(frozen=True, slots=True)
class Fared:
    """How the work of a budget fared in both replays."""

    budget: Markdown
    touched: bool
    median: Markdown
    p90: Markdown
    hours: Markdown
    preemptions: Markdown


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of the budgets: where it is, what is wrong and the way out."""

    place: str
    message: str
    hint: str


def of_review(review: Review, place: Place, limit: int) -> str:
    """The comment on a plan, in at most ``limit`` bytes of UTF-8."""
    plan = review.plan
    written = [change for change in plan.changes if change.follows is None or change.fields]
    along = [change for change in plan.changes if change.follows is not None and not change.fields]
    follows = [*along, *plan.follows]
    view = {
        "review": review,
        "verdict": verdict(review),
        "rows": list(_rows(written)),
        "reasons": list(_reasons(written, review.timezone)),
        "settings": list(plan.settings),
        "follows": list(_rows(follows)),
        "following": len(follows),
        "kept": list(_reasons([change for change in follows if not _differing(change)], review.timezone)),
        "decisions": list(_decisions(review.approvals)),
        "live": [live for live in review.live if live.beyond],
        "drift": list(_drift(review.drift)),
        "outcomes": [_fared(one) for one in review.what_if.outcomes] if review.what_if else [],
        "notes": list(review.notes),
        "several": len({pool.pool for change in written for pool in change.pools}) > 1,
        "window": format_duration(review.window_ms),
        "before": _side(review.before, place),
        "after": _side(review.after, place),
        "checksum": checksum(review),
    }
    return _fitting("plan", view, place, limit)


def of_problems(problems: Sequence[Problem], place: Place, limit: int) -> str:
    """The comment where there is no plan, since the budgets are not valid."""
    commit = _commit(place.commit, place) if place.commit else ""
    return _fitting("problems", {"problems": list(problems), "commit": commit}, place, limit)


def verdict(review: Review) -> Markdown:
    """The sentences that come first: what changes, for how many, and what is still needed."""
    if not review.plan:
        return text(unchanged(review))
    counts = {_VERBS[action]: number for action, number in review.plan.counts().items() if number}
    parts = [f"{verb} {number if at else count(number, 'budget')}" for at, (verb, number) in enumerate(counts.items())]
    settings = [f"changes {count(len(review.plan.settings), 'setting')}"] if review.plan.settings else []
    told = [f"**This {_listed(parts + settings)}.**"]
    lacking = sum(one.lacking for one in review.approvals)
    if lacking:
        told.append(f"{lacking} of {count(len(review.approvals), 'decision')} {_verb(lacking, 'wait')} for approval.")
    elif review.approvals:
        told.append("All that is needed is approved.")
    losing = _losing(review)
    if losing:
        told.append(f"{count(losing, 'GPU')} that {_verb(losing, 'run')} now would no longer be within a guarantee.")
    return Markdown(" ".join(told))


def _losing(review: Review) -> int:
    """Running GPUs that lose a guarantee; one that budgets above and below both lose is counted once."""
    most = Counter({(live.pool, live.path): live.losing for live in review.live})
    for depth in range(max((path.count("/") for _, path in most), default=0), -1, -1):
        above: Counter[tuple[str, str]] = Counter()
        for (pool, path), losing in most.items():
            if path != ROOT and path.count("/") == depth:
                above[pool, parent_path(path)] += losing
        for place, losing in above.items():
            most[place] = max(most[place], losing)
    return sum(losing for (_, path), losing in most.items() if path == ROOT)


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _verb(number: int, verb: str) -> str:
    return f"{verb}s" if number == 1 else verb


def _rows(changes: Iterable[Change]) -> Iterator[Row]:
    """A row for each pool in which a budget has other figures; none for a budget whose figures stay."""
    for change in changes:
        name = _named(change)
        for pool in _differing(change):
            yield _row(name, pool)
            name = Markdown()


def _differing(change: Change) -> list[PoolChange]:
    """The pools in which more differs than what a budget keeps for itself."""

    def figures(one: Standing | None) -> tuple[object, ...] | None:
        return (one.share, one.effective_share, one.guarantee, one.entitlement_gpu_ms) if one else None

    return [pool for pool in change.pools if figures(pool.before) != figures(pool.after)]


def _named(change: Change) -> Markdown:
    """A budget with what becomes of it, where it does not only change."""
    ordinary = change.action in {Action.CHANGED, Action.FOLLOWS}
    return code(change.path) if ordinary else Markdown(f"{code(change.path)} {change.action.value}")


def _row(name: Markdown, pool: PoolChange) -> Row:
    before, after = pool.before, pool.after

    def cell(show: Callable[[Standing], str]) -> Markdown:
        return arrow(*(None if one is None else Markdown(show(one)) for one in (before, after)))

    return Row(
        name,
        pool.pool,
        cell(lambda one: format_share(one.share)),
        cell(lambda one: share_text(one.effective_share)),
        cell(lambda one: gpus_text(one.guarantee)),
        cell(lambda one: gpu_hours_text(one.entitlement_gpu_ms)),
    )


def _reasons(changes: Iterable[Change], timezone: str) -> Iterator[Markdown]:
    """A line for each budget about which the table does not tell everything."""
    for change in changes:
        why = reason(change, timezone)
        if why not in {"share", "new"}:
            yield Markdown(f"{code(change.path)}: {text(why.replace('->', '→'))}")


def _decisions(approvals: Iterable[Approval]) -> Iterator[Decision]:
    """The approvals by the same people in one row, those that are lacking first."""
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[Approval]] = {}
    for one in sorted(approvals, key=lambda one: not one.lacking):
        groups.setdefault((one.decides, one.managers, one.approved_by), []).append(one)
    for (decides, managers, approved_by), found in groups.items():
        about = [f"{code(one.path)} ({text(', '.join(one.what))})" for one in found[:_IN_A_CELL]]
        rest = f" and {len(found) - _IN_A_CELL} more" if len(found) > _IN_A_CELL else ""
        waiting = "**waiting**" if managers else "nobody can be asked"
        state = f"approved by {codes(approved_by)}" if approved_by else waiting
        yield Decision(decides, managers, Markdown(", ".join(about) + rest), Markdown(state))


def _fared(outcome: Outcome) -> Fared:
    def cell(show: Callable[[Replayed], str]) -> Markdown:
        return arrow(Markdown(show(outcome.before)), Markdown(show(outcome.after)))

    return Fared(
        code(outcome.path),
        outcome.touched,
        cell(lambda one: _wait(one.median_wait_ms)),
        cell(lambda one: _wait(one.p90_wait_ms)),
        cell(lambda one: gpu_hours_text(one.delivered_gpu_ms)),
        cell(lambda one: f"{one.preemptions:,}"),
    )


def _wait(millis: int | None) -> str:
    return "none" if millis is None else about_duration(millis)


def _drift(drift: Plan | None) -> Iterator[Markdown]:
    """What the daemon has and git does not have."""
    if drift is not None:
        yield from (_named(change) for change in drift.changes)
        yield from (code(setting.name) for setting in drift.settings)


def _side(side: Side, place: Place) -> Markdown:
    """A tree of the footer: how a person called it and its commit."""
    if not side.commit:
        return text(side.name)
    commit = _commit(side.commit, place)
    return commit if side.name == side.commit else Markdown(f"{text(side.name)} {commit}")


def _commit(commit: str, place: Place) -> Markdown:
    return link(code(commit[:SHORT]), f"{place.repository}/commit/{commit}")


def _fitting(kind: str, view: dict[str, Any], place: Place, limit: int) -> str:
    """The template's text with as many rows in each table as fit into ``limit`` bytes."""
    template = environment().get_template("comment.md.j2")

    def rendered(most: int) -> str:
        def cut(items: Iterable[T]) -> Cut[T]:
            everything = tuple(items)
            return Cut(everything[:most], max(len(everything) - most, 0))

        shown: dict[str, Any] = {"kind": kind, "place": place, "is_cut": most < _ALL, "most": most, "cut": cut}
        whole = link(Markdown("the whole"), place.whole)
        functions: dict[str, Callable[..., Any]] = {"hours": gpu_hours_text, "date": date_text, "count": count}
        filled = template.render(**view, **shown, **functions, whole=whole)
        return _BLANK.sub("\n\n", filled).strip() + "\n"

    return _longest(rendered, max((len(one) for one in view.values() if isinstance(one, list)), default=0), limit)


def _longest(rendered: Callable[[int], str], most: int, limit: int) -> str:
    """The text with the most rows that fits; with none it always does, since names are of bounded length."""
    whole = rendered(_ALL)
    if len(whole.encode()) <= limit:
        return whole
    fits, low, high = rendered(0), 0, most
    while low < high:
        middle = (low + high + 1) // 2
        candidate = rendered(middle)
        if len(candidate.encode()) <= limit:
            fits, low = candidate, middle
        else:
            high = middle - 1
    return fits
