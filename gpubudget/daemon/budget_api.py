"""The part of the API about budgets: what is applied, by whom and from where, and whether anything may be applied."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from starlette.responses import Response

from gpubudget.core import plain
from gpubudget.core.budget import ROOT, Tree
from gpubudget.core.events import BudgetsApplied
from gpubudget.daemon import views
from gpubudget.daemon.call import Call, answer
from gpubudget.daemon.service import Service
from gpubudget.daemon.store import Row
from gpubudget.daemon.treecheck import check_tree
from gpubudget.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError

HISTORY = 1_000
LONGEST_REASON = 500
MOST_NOTES = 100
LONGEST_PLAN = 10_000

_UNKNOWN: dict[str, Any] = {"by": None, "forced": False, "notes": [], "approvers": [], "plan": ""}
"""What older versions did not keep."""
_RESUME = "gpubudget reconcile resume ends that; --force applies all the same"


async def budgets(call: Call) -> Response:
    """GET /v1/budgets."""
    service = call.service
    tree, applied = service.book.tree, service.applied
    shown = views.budgets(tree, service.scheduler.budgets(service.clock.now()))
    return answer({"commit": applied[1], "digest": applied[5], "budgets": shown} if applied else {"budgets": shown})


def _applied(row: Row) -> dict[str, Any]:
    known = {"commit": row[1], "author": row[2], "committed_ms": row[3], "applied_ms": row[4], "digest": row[5]}
    return {**known, **_UNKNOWN, **json.loads(row[7])}


async def applied(call: Call) -> Response:
    """GET /v1/budgets/applied: the tree in force, where it comes from, and whether another one may follow."""
    service = call.service
    row = service.applied
    if row is None:
        raise NotFoundError("no budgets have been applied yet", hint="run gpubudget reconcile first")
    return answer({"tree": json.loads(row[6]), **_applied(row), "suspended": _suspended(service)})


async def history(call: Call) -> Response:
    """GET /v1/budgets/history?limit=: what was applied, newest first."""
    limit = call.number("limit", HISTORY, 1, HISTORY)
    return answer({"applied": [_applied(row) for row in call.service.store.applied(limit)]})


async def apply(call: Call) -> Response:
    """PUT /v1/budgets: replace the whole tree, its pools and its policy by those of a commit."""
    fields = await call.fields()
    tree, commit = plain.decode(Tree, fields.raw("tree"), "tree"), fields.text("commit", longest=200)
    author = fields.text("author", "", longest=500, empty=True)
    committed = fields.number("committed_ms", 0, 10**15, 0)
    digest, ancestor = fields.text("digest", longest=200), fields.text("descends_from", None, longest=200)
    force, suspend = fields.flag("force"), fields.text("suspend", None, longest=LONGEST_REASON)
    audit = {
        "by": call.token.name,
        "forced": force,
        "notes": list(fields.texts("notes", MOST_NOTES, ())),
        "approvers": list(fields.texts("approvers", MOST_NOTES, (), longest=200)),
        "plan": fields.text("plan", "", longest=LONGEST_PLAN, empty=True),
    }
    fields.raw("parents", None)
    fields.done()
    check_tree(tree)
    text = plain.canonical(tree)
    if (own := hashlib.sha256(text.encode("ascii")).hexdigest()) != digest:
        raise InvalidInputError(
            f"the digest of this tree is {own[:16]}..., not {digest[:16]}...",
            hint="sender and daemon differ in version",
        )
    service = call.service
    done = _supersede(service, (commit, digest), ancestor, force=force)
    now = service.clock.now()
    if done:
        service.apply(BudgetsApplied(tree, commit))
        row = (service.input, commit, author, committed, now, digest, text, json.dumps(audit))
        service.batch.put("applied", row)
        service.applied = row
    if suspend is not None:
        _suspend(service, (now, call.token.name, suspend, None, None))
    await service.durable()
    return answer({"applied": done, "commit": commit, "digest": digest})


def _supersede(service: Service, new: tuple[str, str], ancestor: str | None, *, force: bool) -> bool:
    """Whether a commit takes the place of the one in force; raises ConflictError if it may not."""
    old = service.applied
    if old is not None and new == (old[1], old[5]):
        return False
    if service.suspension is not None and not force:
        _, by, reason, _, _ = service.suspension
        raise ConflictError(f"nothing is applied since {by} suspended it: {reason}", hint=_RESUME)
    if old is not None and ancestor != old[1] and not force:
        raise ConflictError(
            f"commit {new[0][:12]} does not descend from {old[1][:12]}, which is applied",
            hint="rebase it onto what is applied, or apply it with --force",
        )
    return True


# Suspending


async def suspend(call: Call) -> Response:
    """POST /v1/budgets/suspend {reason}: nothing is applied from now on, unless it is forced."""
    fields = await call.fields()
    reason = fields.text("reason", longest=LONGEST_REASON)
    fields.done()
    _decides(call)
    service = call.service
    if service.suspension is not None:
        _, by, why, _, _ = service.suspension
        raise ConflictError(f"it is suspended already, by {by}: {why}", hint="gpubudget reconcile resume ends that")
    _suspend(service, (service.clock.now(), call.token.name, reason, None, None))
    await service.durable()
    return answer({"suspended": _suspended(service)})


async def resume(call: Call) -> Response:
    """POST /v1/budgets/resume {}: what is in git is applied again."""
    (await call.fields()).done()
    _decides(call)
    service = call.service
    if service.suspension is None:
        raise ConflictError("it is not suspended", hint="gpubudget reconcile status shows how it stands")
    ended = (*service.suspension[:3], service.clock.now(), call.token.name)
    service.batch.put("suspensions", ended)
    service.suspension = None
    await service.durable()
    return answer({"suspended": None, "was": _shown(ended)})


def _suspend(service: Service, row: Row) -> None:
    service.batch.put("suspensions", row)
    service.suspension = row


def _suspended(service: Service) -> dict[str, Any] | None:
    return None if service.suspension is None else _shown(service.suspension)


def _shown(row: Row) -> dict[str, Any]:
    return {"by": row[1], "reason": row[2], "at_ms": row[0]}


def _decides(call: Call) -> None:
    """An administrator or a manager of the root calls, so that the name on record is a person's."""
    if not (call.admin or call.service.book.manages(call.token.name, ROOT)):
        raise ForbiddenError(
            f"{call.token.name} is neither an administrator nor a manager of the root budget",
            hint="ask one of them; get budgets shows who manages what",
        )
