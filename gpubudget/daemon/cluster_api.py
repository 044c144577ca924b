"""The part of the API about hosts, pools, events and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response, StreamingResponse

from gpubudget.core.eventlog import KINDS
from gpubudget.core.events import Cordoned, HostRemoved, Uncordoned
from gpubudget.core.host import HostState
from gpubudget.daemon import views
from gpubudget.daemon.agents import Agents
from gpubudget.daemon.auth import Role, require_host
from gpubudget.daemon.call import Call, answer
from gpubudget.daemon.reports import parse_sync
from gpubudget.daemon.service import Service
from gpubudget.daemon.store import Row
from gpubudget.errors import NotFoundError

LARGEST_PAGE = 10_000
KEEP_ALIVE = 15.0
LONGEST_WAIT = 60_000


# Hosts, pools, reservations, ranking


async def hosts(call: Call) -> Response:
    """GET /v1/hosts."""
    return answer({"hosts": _hosts(call.service), "warnings": call.service.surplus})


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
    name, by = call.path("name"), call.token.name
    return await _changed(call, lambda: agents.drain(name, reason, by, hold=hold))


async def cordon(call: Call) -> Response:
    """POST /v1/hosts/{name}/cordon {reason}."""
    fields = await call.fields()
    reason = fields.text("reason", longest=500)
    fields.done()
    service, name, by = call.service, call.path("name"), call.token.name

    def act() -> None:
        if service.states.get(name) is not HostState.CORDONED:
            service.apply(Cordoned(name, reason, by))

    return await _changed(call, act)


async def uncordon(call: Call, agents: Agents) -> Response:
    """POST /v1/hosts/{name}/uncordon {}."""
    (await call.fields()).done()
    service, name, by = call.service, call.path("name"), call.token.name

    def act() -> None:
        if service.states.get(name) is not HostState.READY:
            service.apply(Uncordoned(name, by))
            agents.released(name)

    return await _changed(call, act)


async def remove(call: Call, agents: Agents) -> Response:
    """DELETE /v1/hosts/{name}: a lost, drained or cordoned host without work is gone for good."""
    name = call.path("name")
    call.service.apply(HostRemoved(name))
    agents.removed(name)
    await call.service.durable()
    return answer({"name": name, "removed": True})


async def _changed(call: Call, act: Callable[[], None]) -> Response:
    """The host after what was asked, and whether that changed anything: to ask twice is no error."""
    before = _host(call.service, call.path("name"))
    act()
    after = _host(call.service, call.path("name"))
    await call.service.durable()
    return answer({**after, "changed": after != before})


async def pools(call: Call) -> Response:
    """GET /v1/pools."""
    service = call.service
    tree = service.scheduler.tree
    declared = {} if tree is None else {pool.name: pool.hosts for pool in tree.pools}
    found = service.scheduler.pools(service.clock.now())
    shown = [views.pool(view, declared.get(view.name, 0)) for view in found]
    return answer({"pools": shown, "warnings": service.surplus})


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
    """GET /v1/events?after=SEQ&limit=&kind=a,b&workload=ID; with limit 0 only where the log ends now."""
    after, limit = call.number("after", 0), call.number("limit", 1_000, 0, LARGEST_PAGE)
    newest = call.service.committed_line
    rows = call.service.store.lines(after, limit, call.words("kind", KINDS), call.text("workload"))
    following = rows[-1][0] if rows and len(rows) == limit else max(newest, after, *(row[0] for row in rows[-1:]))
    return Response(f'{{"events":[{",".join(_lines(rows))}],"next":{following}}}', media_type="application/json")


async def stream(call: Call) -> Response:
    """GET /v1/events/stream?after=SEQ: the log from there on, one object a line, for as long as the caller listens."""
    after = call.number("after", 0)
    return StreamingResponse(_follow(call, after, call.words("kind", KINDS)), media_type="application/x-ndjson")


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
