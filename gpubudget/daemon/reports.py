"""From the body of an agent's report to checked values. Pure; knows nothing of what follows from them."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from gpubudget.daemon.fields import Fields
from gpubudget.daemon.gangs import Report
from gpubudget.daemon.hosts import Check, HostReport, RepairReport
from gpubudget.errors import InvalidInputError

MOST_ATTEMPTS = 10_000
MOST_CHECKS = 200
LARGEST_CHUNK = 1024 * 1024


def parse_sync(data: object) -> HostReport:
    """The report in the body of a sync request; raises InvalidInputError."""
    fields = Fields(data)
    pool, gpus = fields.text("pool", longest=100), fields.number("gpus", 0, 1_024)
    boot, models = fields.text("boot_id", longest=200, empty=True), fields.texts("gpu_models", 1_024, (), empty=True)
    agent = fields.text("agent_id", "", longest=100, empty=True) or ""
    attempts = tuple(map(_attempt, fields.objects("attempts", MOST_ATTEMPTS)))
    health = tuple(map(_check, fields.objects("health", MOST_CHECKS)))
    repair = fields.inner("repair")
    checkpoints = tuple(map(_checkpoint, fields.objects("checkpoints", MOST_ATTEMPTS)))
    chunks = tuple(map(_chunk, fields.objects("chunks", 100)))
    fields.done()
    steps = None if repair is None else _repair(repair)
    return HostReport(pool, gpus, boot, attempts, health, steps, checkpoints, chunks, models, agent)


def _attempt(fields: Fields) -> Report:
    report = Report(
        fields.text("workload", longest=100),
        fields.number("attempt", 0, 10**9),
        fields.choice("state", ("running", "exited", "unknown")),
        fields.number("exit_code", -1_000, 1_000, None),
        fields.flag("signalled"),
        _note(fields, "error"),
    )
    fields.number("started_ms", 0, 10**15, None)
    fields.done()
    return report


def _note(fields: Fields, name: str) -> str:
    """A text for people, which may be missing."""
    text = fields.text(name, None, longest=10_000, empty=True)
    return text or ""


def _check(fields: Fields) -> Check:
    check = Check(fields.text("name", longest=200), fields.flag("ok"), _note(fields, "message"))
    fields.done()
    return check


def _repair(fields: Fields) -> RepairReport:
    report = RepairReport(
        fields.text("token", longest=100),
        fields.choice("state", ("running", "done", "failed")),
        _note(fields, "step"),
        _note(fields, "message"),
    )
    fields.done()
    return report


def _checkpoint(fields: Fields) -> tuple[str, int, int]:
    found = fields.text("workload", longest=100), fields.number("attempt", 0, 10**9), fields.number("at_ms", 0, 10**15)
    fields.done()
    return found


def _chunk(fields: Fields) -> dict[str, Any]:
    text = fields.text("data_b64", longest=2 * LARGEST_CHUNK, empty=True)
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidInputError("chunks has data_b64 that is not base64") from None
    chunk = {
        "request": fields.text("request", longest=100),
        "data": data,
        "next_offset": fields.number("next_offset", 0, 10**15),
        "end": fields.flag("end"),
    }
    fields.done()
    return chunk
