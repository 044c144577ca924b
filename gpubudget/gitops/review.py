"""What people review before budgets change: a plan with where its two trees are from, and all that is known about it.

A value that can be written to a file and read back unchanged. Its checksum ties what is applied to what was reviewed,
and a seal over all of it shows whether the file was changed.
Renderings (text, Markdown, JSON) are made from it elsewhere, and nothing here reads git or a daemon.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.errors import InvalidInputError
from gpubudget.gitops.plan import Plan

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Side:
    """Where one tree is from: ``name`` is what a person called it (a ref, a folder, the daemon).

    ``commit`` is empty for a folder. ``merged`` is the commit that it was merged with to be planned, if it was behind
    that one; such a tree is not in git yet. ``author`` and ``committed_ms`` are the commit's.
    """

    name: str
    commit: str
    digest: str
    budgets: int
    author: str = ""
    committed_ms: int = 0
    merged: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """How a budget of the plan stands in a pool right now, as the daemon says.

    ``running`` is allocated GPUs, ``beyond`` how many of them its new guarantee does not cover, ``losing`` how many of
    those the guarantee of today does cover, and ``balance_after_gpu_ms`` the balance that it would have now if the plan
    were in force.
    """

    path: str
    pool: str
    usage_gpu_ms: int
    balance_gpu_ms: int
    balance_after_gpu_ms: int
    running: int
    beyond: int
    losing: int = 0


@dataclass(frozen=True, slots=True)
class Approval:
    """One decision that a plan needs: ``what`` about the budget ``path``, by the managers of ``decides``.

    Any one of ``managers`` suffices; they are those of the tree before. ``approved_by`` are those of them who have.
    There is nobody to ask if neither ``decides`` nor any budget above it names a manager.
    """

    path: str
    what: tuple[str, ...]
    decides: str
    managers: tuple[str, ...]
    approved_by: tuple[str, ...] = ()

    @property
    def lacking(self) -> bool:
        """Whether somebody still has to approve."""
        return bool(self.managers) and not self.approved_by


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a budget's work fared in one replay; waits in milliseconds, None where nothing started."""

    workloads: int
    median_wait_ms: int | None
    p90_wait_ms: int | None
    delivered_gpu_ms: int
    preemptions: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A budget's two replays; ``touched`` if the plan changes it, else it is among those that are hit hardest."""

    path: str
    touched: bool
    before: Replayed
    after: Replayed


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The same submissions under both trees. ``source`` says where they are from, ``cautions`` what this can't tell."""

    source: str
    start_ms: int
    end_ms: int
    workloads: int
    outcomes: tuple[Outcome, ...]
    cautions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Review:
    """All of it. Shares are those in force at ``as_of_ms``; ``window_ms`` is the lookback window after the change,
    ``timezone`` the one in which dates are meant.

    ``drift`` is what the daemon has and git does not have for the commit that it claims (None: it was not asked, or
    git cannot tell). ``descends`` is whether the tree after is of a commit that has the one before in its history.
    ``notes`` are sentences for people about what is out of the ordinary, or is left out and why.
    """

    before: Side
    after: Side
    as_of_ms: int
    window_ms: int
    timezone: str
    plan: Plan
    descends: bool = False
    drift: Plan | None = None
    live: tuple[Live, ...] = ()
    approvals: tuple[Approval, ...] = ()
    what_if: WhatIf | None = None
    notes: tuple[str, ...] = ()

    def live_of(self, path: str) -> dict[str, Live]:
        """How the budget at a path of the plan stands now, by pool; empty if no daemon was asked."""
        return {live.pool: live for live in self.live if live.path == path}


def checksum(review: Review) -> str:
    """What tells what would be applied, and to what, from everything else; the same whenever the plan is made."""
    before, after = review.before, review.after
    return plain.digest([before.commit, before.digest, after.commit, after.merged, after.digest])


def to_json(review: Review) -> dict[str, Any]:
    """The review as plain data, with its counts and its checksum; shares are ``num/den``, times milliseconds."""
    found: dict[str, Any] = {"format": FORMAT, **_bare(plain.encode(review))}
    plan = review.plan
    found["counts"] = plan.counts() | {"follows": len(plan.follows), "settings": len(plan.settings)}
    found["counts"] |= {"fields": plan.field_counts()}
    return found | {"checksum": checksum(review), "seal": plain.digest(review)}


def _bare(data: Any) -> Any:  # noqa: ANN401 - any plain data
    """Plain data without the names of classes, which reading it back does not need."""
    if isinstance(data, dict):
        return {key: _bare(item) for key, item in data.items() if key != "kind"}
    return [_bare(item) for item in data] if isinstance(data, list) else data


def from_json(data: object) -> Review:
    """The review that ``to_json`` made; raises InvalidInputError for anything else, or if it was changed since."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInputError("this is not a plan that gpubudget wrote", hint="write one with `gpubudget plan --out`")
    own = {"format", "counts", "checksum", "seal", "tree"}
    given = _undated({key: item for key, item in data.items() if key not in own})
    review = plain.decode(Review, given, "plan")
    if (data.get("seal"), data.get("checksum")) != (plain.digest(review), checksum(review)):
        raise InvalidInputError("the plan was changed after it was made: its seal does not fit", hint=_AGAIN)
    return review


def _undated(data: Any) -> Any:  # noqa: ANN401 - any plain data
    """Plain data without the dates that a program may have put beside milliseconds, as ``committed`` is."""
    if isinstance(data, dict):
        return {key: _undated(item) for key, item in data.items() if f"{key}_ms" not in data}
    return [_undated(item) for item in data] if isinstance(data, list) else data


_AGAIN = "make it again with `gpubudget plan --out`, and review that"


def to_file(review: Review, tree: Tree) -> dict[str, Any]:
    """The review together with the tree that an apply sends."""
    return {**to_json(review), "tree": plain.encode(tree)}


def from_file(data: object) -> tuple[Review, Tree]:
    """What ``to_file`` made; the tree is the very one that was reviewed."""
    review = from_json(data)
    assert isinstance(data, dict)  # noqa: S101 - else from_json has raised
    tree = plain.decode(Tree, data.get("tree"), "tree")
    if plain.digest(tree) != review.after.digest:
        raise InvalidInputError("the plan's tree is not the one that was reviewed", hint=_AGAIN)
    return review, tree


def approved(review: Review, people: tuple[str, ...]) -> Review:
    """The same review with who has approved by now."""
    names = {name.lower() for name in people}
    found = tuple(
        replace(one, approved_by=tuple(name for name in one.managers if name.lower() in names))
        for one in review.approvals
    )
    return replace(review, approvals=found)
