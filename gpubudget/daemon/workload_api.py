"""The part of the API about workloads: submit, look up, decide about, explain, read the output of."""

from __future__ import annotations

import hashlib
from typing import Any

from starlette.responses import Response

from gpubudget.core.events import Cancelled, Moved, RequeueRequested
from gpubudget.core.workload import WorkloadState
from gpubudget.daemon import views
from gpubudget.daemon.admission import Charge, admit
from gpubudget.daemon.agents import Agents
from gpubudget.daemon.call import Call, answer
from gpubudget.daemon.fields import Fields, parse_json, plain_text
from gpubudget.daemon.records import Record, workload_id, workload_number
from gpubudget.daemon.service import Service
from gpubudget.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError, RefusedError

MOST_WORKLOADS = 10_000
"""In one request to submit."""
LARGEST_PAGE = 1_000
LONGEST_WAIT = 30_000

_STATES = tuple(state.value for state in WorkloadState)
_WAITS = frozenset({WorkloadState.PENDING, WorkloadState.HELD})


async def submit(call: Call) -> Response:
    """POST /v1/workloads: one workload, or several of which all or none are accepted."""
    service, raw, by = call.service, await call.raw(), call.token.name
    key = call.request.headers.get("idempotency-key")
    data, digest = parse_json(raw), ""
    batch = isinstance(data, dict) and "workloads" in data
    if key is not None:
        plain_text(key, "the header Idempotency-Key", 200)
        digest = hashlib.sha256(raw).hexdigest()
        if (found := service.earlier(by, key)) is not None:
            shown = _again(service, key, digest, found)
            await service.durable()
            return answer({"workloads": shown} if batch else shown[0], 201)
    records = _let_in(service, _bodies(data) if batch else [data], Charge(by, everywhere=call.admin), batch=batch)
    if key is not None:
        row = (by, key, records[0].submitted, digest, records[0].number, len(records))
        service.batch.put("idempotency", row, 2)
    shown = [record.public() for record in records]
    await service.durable()
    return answer({"workloads": shown} if batch else shown[0], 201)


def _bodies(data: dict[str, Any]) -> list[Any]:
    fields = Fields(data)
    bodies = fields.raw("workloads")
    fields.done()
    if not isinstance(bodies, list) or not bodies:
        raise InvalidInputError(f"workloads is not a list of 1 to {MOST_WORKLOADS} workloads")
    if len(bodies) > MOST_WORKLOADS:
        raise InvalidInputError(
            f"workloads has {len(bodies)} entries; at most {MOST_WORKLOADS} are allowed", hint="send them in parts"
        )
    return bodies


def _let_in(service: Service, bodies: list[Any], by: Charge, *, batch: bool) -> list[Record]:
    """Check all before the core hears of the first, so that none is accepted where one is wrong."""
    admitted = []
    for place, body in enumerate(bodies):
        where = f"workloads[{place}]" if batch else ""
        spec, program = admit(body, where, workload_id(service.next_number + place), service.book, by)
        if reason := service.scheduler.refusal(spec):
            raise RefusedError(f"{where}: {reason}" if where else reason)
        admitted.append((spec, program))
    return [service.submit(spec, program) for spec, program in admitted]


def _again(service: Service, key: str, digest: str, found: tuple[str, int, int]) -> list[dict[str, Any]]:
    """The same workloads once more, as they now are, for a submission that came before."""
    first_digest, first, count = found
    if digest != first_digest:
        raise ConflictError(
            f"the idempotency key {key[:40]} came with another body before", hint="use a new key for a new submission"
        )
    return [_find(service, workload_id(number)).public() for number in range(first, first + count)]


def _find(service: Service, workload: str) -> Record:
    """A workload's record, whether it has ended or not; raises NotFoundError."""
    record = service.records.active.get(workload)
    if record is not None:
        return record
    row = service.store.workload(workload_number(workload))
    if row is None:
        raise NotFoundError(f"there is no workload {workload}", hint="gpubudget get workloads lists them")
    return Record.from_row(row)


def _decides(call: Call, record: Record) -> bool:
    """Whether the caller decides about a workload: its owner, a manager above it, or an administrator."""
    name = call.token.name
    return call.admin or record.spec.owner == name or call.service.book.manages(name, record.spec.budget)


async def show(call: Call) -> Response:
    """GET /v1/workloads/{id}."""
    record = _find(call.service, call.path("id"))
    shown = record.public(secrets=_decides(call, record))
    if record.state in _WAITS and record.spec.id in call.service.records.active:
        shown["reason"] = call.service.scheduler.explain(record.spec.id, call.service.clock.now()).reason
    return answer(shown)


async def listing(call: Call) -> Response:
    """GET /v1/workloads?state=a,b&budget=&owner=&limit=&after=ID."""
    states = call.words("state", _STATES)
    after = call.text("after")
    number = 0 if after is None else workload_number(after)
    limit = call.number("limit", 100, 1, LARGEST_PAGE)
    rows = call.service.store.workloads(number, limit, states, call.text("owner"), call.text("budget"))
    records = map(Record.from_row, rows)
    return answer({"workloads": [record.public(secrets=_decides(call, record)) for record in records]})


async def explain(call: Call) -> Response:
    """GET /v1/workloads/{id}/explain."""
    record = _find(call.service, call.path("id"))
    if record.spec.id in call.service.records.active:
        return answer(views.explanation(call.service.scheduler.explain(record.spec.id, call.service.clock.now())))
    reason = record.reason or record.state.value
    ended: dict[str, Any] = {"pool": None, "rank": None, "waiting": 0, "start_ms": None, "estimate": False, "path": []}
    text = f"{record.spec.id} is {record.state.value}: {reason}"
    return answer({"workload": record.spec.id, "state": record.state.value, "reason": reason, **ended, "text": text})


async def cancel(call: Call) -> Response:
    """POST /v1/workloads/{id}/cancel."""
    (await call.fields()).done()
    return await _decided(call, Cancelled(call.path("id"), call.token.name))


async def requeue(call: Call) -> Response:
    """POST /v1/workloads/{id}/requeue."""
    (await call.fields()).done()
    return await _decided(call, RequeueRequested(call.path("id"), call.token.name))


async def move(call: Call) -> Response:
    """POST /v1/workloads/{id}/move {budget}."""
    fields = await call.fields()
    budget = fields.text("budget", longest=1_000)
    fields.done()
    event = Moved(call.path("id"), budget, call.token.name)
    owner = _find(call.service, event.workload).spec.owner
    call.service.book.chargeable(budget, Charge(owner, everywhere=call.admin))
    return await _decided(call, event)


async def _decided(call: Call, event: Cancelled | RequeueRequested | Moved) -> Response:
    record = _find(call.service, event.workload)
    if not _decides(call, record):
        raise ForbiddenError(
            f"{event.workload} belongs to {record.spec.owner}; {call.token.name} neither owns nor manages it",
            hint="ask its owner, a manager of its budget or an administrator",
        )
    changed = not _is_so(event, record)
    if changed and event.workload not in call.service.records.active:
        raise ConflictError(f"{event.workload} has ended: {record.state.value}")
    if changed:
        call.service.apply(event)
    shown = record.public()
    await call.service.durable()
    return answer({**shown, "changed": changed})


def _is_so(event: Cancelled | RequeueRequested | Moved, record: Record) -> bool:
    """Whether a workload is as somebody wants it already: to ask twice is no error."""
    match event:
        case Cancelled():
            return record.state is WorkloadState.CANCELLED or record.reason == "stopping: cancelled"
        case Moved(_, budget):
            return record.ended is None and record.spec.budget == budget
        case _:
            return False


async def logs(call: Call, agents: Agents) -> Response:
    """GET /v1/workloads/{id}/logs?attempt=&host=&offset=&wait_ms=."""
    found = await agents.log(
        call.path("id"),
        call.number("attempt", None, 1),
        call.text("host"),
        call.number("offset", 0),
        call.number("wait_ms", 0, 0, LONGEST_WAIT),
    )
    return answer(found)
