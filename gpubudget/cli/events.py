"""``get events``: the event log, page by page from any number on, and then as it grows.

With ``-o jsonl`` each line is one object of the public format, as ``docs/event-log.md`` describes it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import click

from gpubudget.cli.client import Client
from gpubudget.cli.follow import PATIENCE
from gpubudget.cli.output import Format, Row, line, plain, rfc3339
from gpubudget.errors import UsageError

_PAGE = 1_000
_AGAIN_SECONDS = 0.5
_KIND_WIDTH = 15


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events: about one workload or host, behind a number, of one kind; and whether to go on as they happen."""

    name: str | None
    after: int
    kind: str | None
    follow: bool


def show_events(client: Client, wanted: Selection, fmt: Format) -> None:
    """Print the events as they arrive; with ``follow`` until interrupted."""
    if fmt in {Format.YAML, Format.NAME} or (fmt is Format.JSON and wanted.follow):
        raise UsageError(f"events are not shown as {fmt.value} here", hint="use -o table or -o jsonl")
    events = _events(client, wanted)
    if fmt is Format.JSON:
        found = list(events)
        click.echo(line({"events": found, "next": found[-1]["seq"] if found else wanted.after}))
        return
    if fmt is not Format.JSONL:
        click.echo(f"{'TIME':24}  {'KIND':{_KIND_WIDTH}}  WHAT")
    for event in events:
        click.echo(_line(event) if fmt is Format.JSONL else _row(event))
        if wanted.follow:
            sys.stdout.flush()


def _events(client: Client, wanted: Selection) -> Iterator[Row]:
    after = wanted.after
    while True:
        answer = client.get("/v1/events", after=after, limit=_PAGE, kind=wanted.kind)
        yield from (event for event in answer["events"] if _concerns(event, wanted.name))
        if answer["next"] == after or not answer["events"]:
            break
        after = answer["next"]
    client.patience = PATIENCE
    while wanted.follow:
        for event in client.stream("/v1/events/stream", after=after):
            after = event["seq"]
            if (wanted.kind or event["kind"]) == event["kind"] and _concerns(event, wanted.name):
                yield event
        time.sleep(_AGAIN_SECONDS)  # the daemon closed it; it goes on behind the last one seen


def _concerns(event: Row, name: str | None) -> bool:
    """Whether an event is about the workload or host of that name."""
    if name is None:
        return True
    places = event.get("placement") or {}
    return name in {event.get("workload"), event.get("host"), event.get("for"), *places}


def _line(event: Row) -> str:
    return line({key: value for key, value in event.items() if key != "seq"})


def _row(event: Row) -> str:
    """One event for a person: its time, kind and the rest as ``key=value``."""
    rest = {key: value for key, value in event.items() if key not in {"seq", "at", "kind"}}
    if event["kind"] == "budgets_applied":
        rest = {"commit": event.get("commit"), "budgets": len(event.get("budgets") or [])}
    what = " ".join(f"{key}={_value(value)}" for key, value in rest.items() if value not in (None, "", [], False))
    return f"{rfc3339(event['at']):24}  {plain(event['kind']):{_KIND_WIDTH}}  {plain(what)}"


def _value(value: object) -> str:
    if isinstance(value, dict):  # a placement
        return ",".join(f"{host}[{','.join(map(str, gpus))}]" for host, gpus in value.items())
    if isinstance(value, list):
        return ",".join("/".join(map(str, item)) if isinstance(item, list) else str(item) for item in value)
    return repr(value) if isinstance(value, str) and " " in value else str(value)
