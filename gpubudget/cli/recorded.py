"""The daemon's event log of the last days as a file: to be replayed, or to be reported on.

It begins with what was there at that moment: the states of hosts, the workloads that had come before and not ended, and
the budgets that held since then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpubudget.cli.client import Client
from gpubudget.errors import RefusedError

_PAGE = 10_000
_TREES = 20
_WORKLOADS = 1_000
_LIVE = "pending,held,starting,running,stopping"

Line = dict[str, Any]


def record(client: Client, since: int, file: Path, *, replay: bool = True) -> None:
    """Write the log from ``since`` (milliseconds) on to ``file``.

    Whoever replays it wants all that was there to come at the beginning, and RefusedError if nothing was recorded since
    then; whoever reports on it, when it did come, with all that was told of it.
    """
    last = int(client.get("/v1/events", limit=0)["next"])
    first = _first_since(client, since, last)
    lines = list(_pages(client, after=first - 1))
    if replay and not lines:
        raise RefusedError("the daemon has recorded nothing in that time", hint="name a longer one")
    tell = _standing if replay else _all_of
    before = [line for workload in _there(client, lines, first) for line in tell(client, workload, first)]
    before += _applied(client, first, min([line["seq"] for line in before], default=first))
    before.sort(key=lambda line: line["seq"])
    begin = int(lines[0]["at"]) if replay else int(before[0]["at"]) if before else since
    if replay:
        before = [{**line, "at": begin} for line in before]
    with file.open("w", encoding="utf-8") as stream:
        for line in (*before[:1], *_hosts(client, first, begin), *before[1:], *lines):
            stream.write(f"{json.dumps(line)}\n")


def _there(client: Client, lines: list[Line], first: int) -> dict[str, None]:
    """The workloads that had come before the first of the lines: those in them, and those that are still there."""
    come = {line["workload"] for line in lines if line["kind"] == "submitted"}
    found = dict.fromkeys(line["workload"] for line in lines if line.get("workload") not in {None, *come})
    if first > 1:
        found |= dict.fromkeys(workload for workload in _live(client) if workload not in come)
    return found


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


def _pages(
    client: Client, *, after: int = 0, before: int | None = None, page: int | None = None, **which: str
) -> Iterator[Line]:
    """The events of some kind behind a number, up to another one."""
    limit = page or _PAGE
    while True:
        found = client.get("/v1/events", after=after, limit=limit, **which)["events"]
        for line in found:
            if before is not None and line["seq"] >= before:
                return
            yield line
        if len(found) < limit:
            return
        after = found[-1]["seq"]


def _applied(client: Client, first: int, oldest: int) -> list[Line]:
    """The budgets that held when the oldest of all lines came, and those since then, before the first."""
    kept: list[Line] = []
    for line in _pages(client, before=first, page=_TREES, kind="budgets_applied"):
        if line["seq"] <= oldest:
            kept.clear()
        kept.append(line)
    return kept


def _hosts(client: Client, first: int, begin: int) -> list[Line]:
    """Each host as it was before the first line."""
    hosts: dict[str, Line] = {}
    for line in _pages(client, before=first, kind="host"):
        hosts[line["host"]] = {**hosts.get(line["host"], {}), **line}
    return [{**line, "at": begin} for line in hosts.values()]


def _all_of(client: Client, workload: str, first: int) -> list[Line]:
    """All that was told of a workload before a line."""
    return list(_pages(client, before=first, workload=workload))


def _standing(client: Client, workload: str, first: int) -> list[Line]:
    """A workload as it stood before a line: that it was submitted, and started if it was running."""
    submitted: Line | None = None
    started: Line | None = None
    for line in _all_of(client, workload, first):
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
