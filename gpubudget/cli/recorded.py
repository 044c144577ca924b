"""The daemon's event log of the last days as a file: to be replayed, or to be reported on.

It begins with what was there at that moment: the newest budgets and the states of hosts, and the workloads that had
come before and not ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpubudget.cli.client import Client
from gpubudget.errors import RefusedError

_PAGE = 10_000
_MOST_EARLIER = 5_000
_WORKLOADS = 1_000
_LIVE = "pending,held,starting,running,stopping"

Line = dict[str, Any]


def record(client: Client, since: int, file: Path, *, replay: bool = True) -> None:
    """Write the log from ``since`` (milliseconds) on to ``file``; RefusedError if nothing was recorded since then.

    Whoever replays it wants all that was there to come at the beginning; whoever reports on it, when it did come.
    """
    last = int(client.get("/v1/events", limit=0)["next"])
    first = _first_since(client, since, last)
    lines = list(_pages(client, after=first - 1))
    if not lines:
        raise RefusedError("the daemon has recorded nothing in that time", hint="name a longer one")
    begin = int(lines[0]["at"])
    before = [line for workload in _there(client, lines, first) for line in _earlier(client, workload, first)]
    if replay:
        before = [{**line, "at": begin} for line in before]
    elif before:
        before.sort(key=lambda line: line["seq"])
        begin = int(before[0]["at"])
    with file.open("w", encoding="utf-8") as stream:
        for line in (*_settings(client, first, begin), *before, *lines):
            stream.write(f"{json.dumps(line)}\n")


def _there(client: Client, lines: list[Line], first: int) -> list[str]:
    """The workloads that had come before the first of the lines: those in them, and those that are still there."""
    come = {line["workload"] for line in lines if line["kind"] == "submitted"}
    found = dict.fromkeys(line["workload"] for line in lines if line.get("workload") not in {None, *come})
    if first > 1:
        found |= dict.fromkeys(workload for workload in _live(client) if workload not in come)
    return list(found)[:_MOST_EARLIER]


def _live(client: Client) -> Iterator[str]:
    """The ids of all workloads that have not ended."""
    after = None
    while True:
        page = client.get("/v1/workloads", state=_LIVE, limit=_WORKLOADS, after=after)["workloads"]
        yield from (one["id"] for one in page)
        if len(page) < _WORKLOADS:
            return
        after = page[-1]["id"]


def _first_since(client: Client, since: int, last: int) -> int:
    """The number of the first event at or after a moment; events are in order of time."""
    low, high = 1, last + 1
    while low < high:
        middle = (low + high) // 2
        found = client.get("/v1/events", after=middle - 1, limit=1)["events"]
        if found and found[0]["at"] < since:
            low = middle + 1
        else:
            high = middle
    return low


def _pages(client: Client, *, after: int = 0, before: int | None = None, **which: str) -> Iterator[Line]:
    """The events of some kind behind a number, up to another one."""
    while True:
        page = client.get("/v1/events", after=after, limit=_PAGE, **which)["events"]
        for line in page:
            if before is not None and line["seq"] >= before:
                return
            yield line
        if len(page) < _PAGE:
            return
        after = page[-1]["seq"]


def _settings(client: Client, first: int, begin: int) -> list[Line]:
    """The budgets that held at the beginning, and each host as it was then."""
    applied = list(_pages(client, before=first, kind="budgets_applied"))[-1:]
    hosts: dict[str, Line] = {}
    for line in _pages(client, before=first, kind="host"):
        hosts[line["host"]] = {**hosts.get(line["host"], {}), **line}
    return [{**line, "at": begin} for line in (*applied, *hosts.values())]


def _earlier(client: Client, workload: str, first: int) -> list[Line]:
    """A workload that was there before a line: that it was submitted, and started if it was running."""
    submitted: Line | None = None
    started: Line | None = None
    for line in _pages(client, before=first, workload=workload):
        match line["kind"]:
            case "submitted":
                submitted = line
            case "moved" if submitted is not None:
                submitted["budget"] = line["budget"]
            case "started":
                started = line
            case "stopped":
                started = None
    return [line for line in (submitted, started) if line is not None]
