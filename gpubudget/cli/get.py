"""``get``: what the daemon has, as tables for people or as its own JSON for programs; with ``-w`` as it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from gpubudget.cli import views
from gpubudget.cli.client import Answer, Client, segment
from gpubudget.cli.connect import connected
from gpubudget.cli.events import Selection, show_events
from gpubudget.cli.follow import PATIENCE
from gpubudget.cli.output import Column, Format, Row, output_option, rendered, say
from gpubudget.cli.values import BUDGET, DURATION, Name, Whole
from gpubudget.errors import NotFoundError, UsageError
from gpubudget.units import SECOND

_WAITS_OR_RUNS = "pending,held,starting,running,stopping"
_PAGE = 1_000
_SHORTEST_INTERVAL = 100
_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class Filters:
    """What narrows a list of workloads."""

    state: str | None = None
    budget: str | None = None
    owner: str | None = None
    ended: bool = False


Answered = tuple[Answer, list[Row]]
"""The API's answer, and the rows of it."""


def _workloads(client: Client, name: str | None, filters: Filters) -> Answered:
    if name:
        found = client.get(f"/v1/workloads/{segment(name)}")
        return found, [found]
    state = filters.state or (None if filters.ended else _WAITS_OR_RUNS)
    rows: list[Row] = []
    while True:
        after = rows[-1]["id"] if rows else None
        page = client.get(
            "/v1/workloads", state=state, budget=filters.budget, owner=filters.owner, limit=_PAGE, after=after
        )["workloads"]
        rows += page
        if len(page) < _PAGE:
            return {"workloads": rows}, rows


def _hosts(client: Client, name: str | None, _filters: Filters) -> Answered:
    if name:
        found = client.get(f"/v1/hosts/{segment(name)}")
        return found, [found]
    answer = client.get("/v1/hosts")
    return answer, answer["hosts"]


def _budgets(client: Client, name: str | None, _filters: Filters) -> Answered:
    answer = client.get("/v1/budgets")
    if not name:
        return answer, views.per_pool(answer["budgets"])
    found = [budget for budget in answer["budgets"] if budget["path"] == name]
    if not found:
        raise NotFoundError(f"there is no budget {name!r}", hint="`gpubudget get budgets -o name` lists them")
    return found[0], views.per_pool(found)


def _history(client: Client, name: str | None, _filters: Filters) -> Answered:
    """What was applied, newest first; a name is a commit, or how it begins."""
    rows = [row for row in client.get("/v1/budgets/history")["applied"] if row["commit"].startswith(name or "")]
    if name and not rows:
        raise NotFoundError(f"no commit {name!r} was applied", hint="`gpubudget get budgets --history` lists them")
    return {"applied": rows}, rows


def _listed(kind: str, key: str) -> Callable[[Client, str | None, Filters], Answered]:
    """A list that the API gives whole; a name picks the rows whose ``key`` it is."""

    def read(client: Client, name: str | None, _filters: Filters) -> Answered:
        answer = client.get(f"/v1/{kind}")
        if not name:
            return answer, answer[kind]
        found = [row for row in answer[kind] if row[key] == name]
        if not found:
            raise NotFoundError(f"{kind} has none named {name!r}", hint=f"`gpubudget get {kind}` lists them")
        return found[0], found

    return read


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing: how it is read, what its table shows and which key names a row."""

    read: Callable[[Client, str | None, Filters], Answered]
    columns: Sequence[Column]
    key: str


KINDS = {
    "budgets": Kind(_budgets, views.BUDGETS, "path"),
    "workloads": Kind(_workloads, views.WORKLOADS, "id"),
    "hosts": Kind(_hosts, views.HOSTS, "name"),
    "reservations": Kind(_listed("reservations", "workload"), views.RESERVATIONS, "workload"),
    "pools": Kind(_listed("pools", "name"), views.POOLS, "name"),
}


_APPLIED = Kind(_history, views.APPLIED, "commit")


@click.command(
    epilog="""\b
Examples:
  gpubudget get workloads                    # those that wait or run
  gpubudget get workloads --all --owner alice -o json
  gpubudget get hosts -w
  gpubudget get budgets language/olmo -o yaml
  gpubudget get budgets --history -o wide    # what was applied, by whom, and what it changed
  gpubudget get events -o jsonl > events.jsonl
  gpubudget get events WORKLOAD --follow"""
)
@click.argument("what", metavar="KIND", type=click.Choice([*KINDS, "events"]))
@click.argument("name", required=False, type=Name("name"))
@click.option("--state", type=Name("state"), help="Workloads in these states only: running,pending.")
@click.option("--budget", type=BUDGET, help="Workloads of this budget and those below it only.")
@click.option("--owner", type=Name("owner"), help="Workloads of this person only.")
@click.option("--history", is_flag=True, help="Budgets: what was applied, newest first; NAME is a commit.")
@click.option("--all", is_flag=True, help="Workloads that have ended, too.")
@click.option("--after", type=Whole("after", 0, 10**15), help="Events behind this number of the log only.")
@click.option("--kind", type=Name("kind"), help="Events of this kind only: started.")
@click.option("--follow", is_flag=True, help="Events: go on as they happen.")
@output_option()
@click.option("-w", "--watch", is_flag=True, help="Show it again whenever it has changed.")
@click.option("--interval", type=DURATION, default="2s", show_default=True, help="How often -w looks.")
@connected
def get(
    client: Client,
    /,
    *,
    what: str,
    name: str | None,
    output: Format,
    watch: bool,
    interval: int,
    **more: Any,  # noqa: ANN401 - the options of one kind or the other
) -> None:
    """List what the daemon has of KIND, or show the one called NAME.

    With events NAME is a workload or a host, and -o jsonl gives the public event log.
    """
    _check_fit(what, more)
    if what == "events":
        events = Selection(name, more["after"] or 0, more["kind"], more["follow"] or watch)
        show_events(client, events, output)
        return
    filters = Filters(more["state"], more["budget"], more["owner"], ended=more["all"])
    kind = _APPLIED if more["history"] else KINDS[what]
    if watch:
        _watch(client, kind, name, filters, output, interval)
    elif text := _text(client, kind, name, filters, output, warns=True):
        click.echo(text)


_FITTING = {
    "workloads": {"state", "budget", "owner", "all"},
    "budgets": {"history"},
    "events": {"after", "kind", "follow"},
}


def _check_fit(what: str, options: dict[str, Any]) -> None:
    """Refuse options that this kind knows nothing of, before anything is asked."""
    fitting = _FITTING.get(what, set())
    odd = [name for name, value in options.items() if value not in {None, False} and name not in fitting]
    if odd:
        raise UsageError(
            f"--{odd[0]} does not go with `get {what}`", hint="`gpubudget get --help` says what each is for"
        )


def _text(client: Client, kind: Kind, name: str | None, filters: Filters, fmt: Format, *, warns: bool = False) -> str:
    answer, rows = kind.read(client, name, filters)
    for warning in answer.get("warnings", []) if warns else []:
        say(f"warning: {warning}")
    if fmt is Format.NAME:
        return "\n".join(dict.fromkeys(str(row[kind.key]) for row in rows))
    return rendered(answer, rows, kind.columns, fmt, name=kind.key)


def _watch(client: Client, kind: Kind, name: str | None, filters: Filters, fmt: Format, interval: int) -> None:
    """Show it, and again whenever it differs: in place on a terminal, one below the other elsewhere."""
    shown = None
    live = sys.stdout.isatty() and fmt in {Format.TABLE, Format.WIDE}
    while True:
        text = _text(client, kind, name, filters, fmt)
        if text != shown:
            click.echo(f"{_CLEAR if live else ''}{text}")
            sys.stdout.flush()
            shown = text
        client.patience = PATIENCE
        time.sleep(max(interval, _SHORTEST_INTERVAL) / SECOND)
