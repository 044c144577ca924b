"""The part of the API about budgets, hosts, pools, events and tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse

from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.core.events import BudgetsApplied, Cordoned, HostRemoved, Uncordoned
from gpubudget.daemon import views
from gpubudget.daemon.agents import Agents
from gpubudget.daemon.auth import Role, require_host
from gpubudget.daemon.call import Call, answer
from gpubudget.daemon.reports import parse_sync
from gpubudget.daemon.service import Service
from gpubudget.daemon.store import Row
from gpubudget.daemon.treecheck import check_tree
from gpubudget.errors import ConflictError, InvalidInputError, NotFoundError

LARGEST_PAGE = 10_000
HISTORY = 1_000
KEEP_ALIVE = 15.0
LONGEST_WAIT = 60_000


# Budgets


async def budgets(call: Call) -> Response:
    """GET /v1/budgets."""
    service = call.service
    tree, applied = service.book.tree, service.applied
    shown = views.budgets(tree, service.scheduler.budgets(service.clock.now()))
    return answer({"commit": applied[1], "digest": applied[5], "budgets": shown} if applied else {"budgets": shown})


def _applied(row: Row) -> dict[str, Any]:
    return {"commit": row[1], "author": row[2], "committed_ms": row[3], "applied_ms": row[4], "digest": row[5]}


async def applied(call: Call) -> Response:
    """GET /v1/budgets/applied: the tree in force, and where it comes from."""
    row = call.service.applied
    if row is None:
        raise NotFoundError("no budgets have been applied yet", hint="run gpubudget reconcile first")
    return answer({"tree": json.loads(row[6]), **_applied(row)})


async def history(call: Call) -> Response:
    """GET /v1/budgets/history: what was applied, newest first."""
    return answer({"applied": [_applied(row) for row in call.service.store.applied(HISTORY)]})


async def apply(call: Call) -> Response:
    """PUT /v1/budgets: replace the whole tree, its pools and its policy by those of a commit."""
    fields = await call.fields()
    tree, commit = plain.decode(Tree, fields.raw("tree"), "tree"), fields.text("commit", longest=200)
    author = fields.text("author", "", longest=500, empty=True)
    committed = fields.number("committed_ms", 0, 10**15, 0)
    digest, ancestor = fields.text("digest", longest=200), fields.text("descends_from", None, longest=200)
    force = fields.flag("force")
    fields.raw("parents", None)
    fields.done()
    check_tree(tree)
    if (own := plain.digest(tree)) != digest:
        raise InvalidInputError(
            f"the digest of this tree is {own[:16]}..., not {digest[:16]}...",
            hint="sender and daemon differ in version",
        )
    done = _supersede(call.service, (commit, digest), ancestor, force=force)
    if done:
        now = call.service.clock.now()
        text = plain.canonical(tree)
        call.service.apply(BudgetsApplied(tree, commit))
        row = (call.service.input, commit, author, committed, now, digest, text)
        call.service.batch.put("applied", row)
        call.service.applied = row
    await call.service.durable()
    return answer({"applied": done, "commit": commit, "digest": digest})


def _supersede(service: Service, new: tuple[str, str], ancestor: str | None, *, force: bool) -> bool:
    """Whether a commit takes the place of the one in force; raises ConflictError if it may not."""
    if service.applied is None:
        return True
    old = service.applied[1]
    if new == (old, service.applied[5]):
        return False
    if ancestor != old and not force:
        raise ConflictError(
            f"commit {new[0][:12]} does not descend from {old[:12]}, which is applied",
            hint="rebase it onto what is applied, or apply it with --force",
        )
    return True


# Hosts, pools, reservations, ranking


async def hosts(call: Call) -> Response:
    """GET /v1/hosts."""
    return answer({"hosts": _hosts(call.service)})


def _hosts(service: Service) -> list[dict[str, Any]]:
    known = [views.host(view, service.hosts.get(view.name)) for view in service.scheduler.hosts()]
    strangers = [views.stranger(kept) for name, kept in service.hosts.items() if name not in service.states]
    return sorted([*known, *strangers], key=lambda host: str(host["name"]))


async def host(call: Call) -> Response:
    """GET /v1/hosts/{name}."""
    return answer(_host(call.service, call.path("name")))


def _host(service: Service, name: str) -> dict[str, Any]:
    for found in _hosts(service):
        if found["name"] == name:
            return found
    raise NotFoundError(f"there is no host {name[:60]!r}", hint="gpubudget get hosts lists them")


async def drain(call: Call, agents: Agents) -> Response:
    """POST /v1/hosts/{name}/drain {reason, hold?}."""
    fields = await call.fields()
    reason, hold = fields.text("reason", longest=500), fields.flag("hold")
    fields.done()
    agents.drain(call.path("name"), reason, call.token.name, hold=hold)
    return await _host_changed(call)


async def cordon(call: Call) -> Response:
    """POST /v1/hosts/{name}/cordon {reason}."""
    fields = await call.fields()
    reason = fields.text("reason", longest=500)
    fields.done()
    call.service.apply(Cordoned(call.path("name"), reason, call.token.name))
    return await _host_changed(call)


async def uncordon(call: Call, agents: Agents) -> Response:
    """POST /v1/hosts/{name}/uncordon {}."""
    (await call.fields()).done()
    call.service.apply(Uncordoned(call.path("name"), call.token.name))
    agents.released(call.path("name"))
    return await _host_changed(call)


async def remove(call: Call, agents: Agents) -> Response:
    """DELETE /v1/hosts/{name}: a lost, drained or cordoned host without work is gone for good."""
    name = call.path("name")
    call.service.apply(HostRemoved(name))
    agents.removed(name)
    await call.service.durable()
    return answer({"name": name, "removed": True})


async def _host_changed(call: Call) -> Response:
    shown = _host(call.service, call.path("name"))
    await call.service.durable()
    return answer(shown)


async def pools(call: Call) -> Response:
    """GET /v1/pools."""
    found = call.service.scheduler.pools(call.service.clock.now())
    return answer({"pools": [views.pool(view) for view in found]})


async def reservations(call: Call) -> Response:
    """GET /v1/reservations."""
    return answer({"reservations": [views.reservation(view) for view in call.service.scheduler.reservations()]})


async def ranking(call: Call) -> Response:
    """GET /v1/ranking/{pool}: the ids of what waits in a pool, best first."""
    pool, tree = call.path("pool"), call.service.book.tree
    if pool not in {known.name for known in tree.pools}:
        raise NotFoundError(f"there is no pool {pool[:40]!r}", hint="gpubudget get pools lists them")
    return answer({"pool": pool, "ranking": call.service.scheduler.ranking(pool, call.service.clock.now())})


# Events


def _lines(rows: list[Row]) -> list[str]:
    """Lines of the log with their numbers, as JSON."""
    return [f'{{"seq":{row[0]},{row[2][1:]}' for row in rows]


async def events(call: Call) -> Response:
    """GET /v1/events?after=SEQ&limit=&kind=a,b&workload=ID."""
    after, limit = call.number("after", 0), call.number("limit", 1_000, 1, LARGEST_PAGE)
    newest = call.service.committed_line
    rows = call.service.store.lines(after, limit, call.words("kind"), call.text("workload"))
    following = rows[-1][0] if len(rows) == limit else max(newest, after, *(row[0] for row in rows[-1:]))
    return Response(f'{{"events":[{",".join(_lines(rows))}],"next":{following}}}', media_type="application/json")


async def stream(call: Call) -> Response:
    """GET /v1/events/stream?after=SEQ: the log from there on, one object a line, for as long as the caller listens."""
    after = call.number("after", 0)
    return StreamingResponse(_follow(call, after, call.words("kind")), media_type="application/x-ndjson")


async def _follow(call: Call, after: int, kinds: tuple[str, ...]) -> AsyncIterator[str]:
    service, news = call.service, asyncio.Event()
    service.listeners.add(news)
    try:
        while not service.closing.is_set() and service.tokens.valid(call.token):
            news.clear()
            rows = service.store.lines(after, 1_000, kinds)
            if rows:
                after = rows[-1][0]
                yield "\n".join(_lines(rows)) + "\n"
                continue
            try:
                async with asyncio.timeout(KEEP_ALIVE):
                    await news.wait()
            except TimeoutError:
                yield "\n"
    finally:
        service.listeners.discard(news)


# Tokens and agents


async def whoami(call: Call) -> Response:
    """GET /v1/whoami."""
    token = call.token
    return answer({"name": token.name, "role": token.role.value, "host": token.host})


async def create_token(call: Call) -> Response:
    """POST /v1/tokens {name, role, host?}: the text of the new token is in this answer, and nowhere else."""
    fields = await call.fields()
    name, role = fields.text("name", longest=200), fields.choice("role", tuple(Role))
    host = fields.text("host", None, longest=200)
    fields.done()
    service = call.service
    text, token = service.tokens.create(name, Role(role), host, service.clock.now(), service.batch)
    await service.durable()
    return answer({**token.public(), "token": text}, 201)


async def tokens(call: Call) -> Response:
    """GET /v1/tokens."""
    return answer({"tokens": [token.public() for token in call.service.tokens.all()]})


async def revoke_token(call: Call) -> Response:
    """DELETE /v1/tokens/{id}."""
    service = call.service
    token = service.tokens.revoke(call.path("id"), service.clock.now(), service.batch)
    await service.durable()
    return answer(token.public())


async def sync(call: Call, agents: Agents) -> Response:
    """POST /v1/agents/{host}/sync?wait_ms=N: what is on a host, answered by what should be."""
    name = call.path("host")
    require_host(call.token, name)
    report = parse_sync(await call.json())
    return answer(await agents.sync(name, report, call.number("wait_ms", 0, 0, LONGEST_WAIT)))
