"""From a database to the state that the daemon had: the newest snapshot, and every input after it once more.

The core is deterministic, so the replay must decide what was decided before. That is checked line by line against the
stored event log; a difference means that the program or the database has changed, and the daemon does not start.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from gpubudget.core import plain
from gpubudget.core.eventlog import lines
from gpubudget.core.events import Event
from gpubudget.core.host import HostState
from gpubudget.core.scheduler import Scheduler
from gpubudget.daemon.gangs import Gang, Gangs, Part, PartState
from gpubudget.daemon.hosts import Host
from gpubudget.daemon.records import Record, Records, workload_id
from gpubudget.daemon.store import Row, Store
from gpubudget.errors import BrokenInvariantError, GpuBudgetError

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a daemon starts from. ``at`` is the time of the newest input (ms)."""

    scheduler: Scheduler
    records: Records
    gangs: Gangs
    hosts: dict[str, Host]
    states: dict[str, HostState]
    input: int
    at: int
    line: int
    snapshot_input: int


def recover(store: Store) -> Recovered:
    """The state of a database.

    Raises BrokenInvariantError when a replay decides otherwise than before, or a record cannot be read.
    """
    try:
        return _recover(store)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BrokenInvariantError(
            f"the database {store.path} holds a record that cannot be read: {type(error).__name__}: {error}",
            hint="restore a backup; nothing was changed",
        ) from error


def _recover(store: Store) -> Recovered:
    snapshot = store.snapshot()
    after, line, state = snapshot or (0, 0, None)
    scheduler = Scheduler() if state is None else _restored(state, after)
    line = _replay(store, scheduler, after, line)
    records = Records({record.spec.id: record for record in map(Record.from_row, store.active_workloads())})
    newest, at = store.last_input()
    states = {view.name: view.state for view in scheduler.hosts()}
    return Recovered(
        scheduler=scheduler,
        records=records,
        gangs=_gangs(store, records, {host for host, state in states.items() if state is HostState.LOST}),
        hosts={name: Host.restored(name, kept) for name, kept in store.hosts().items()},
        states=states,
        input=newest,
        at=at,
        line=line,
        snapshot_input=after,
    )


def _restored(state: dict[str, Any], after: int) -> Scheduler:
    try:
        return Scheduler.restore(state)
    except (GpuBudgetError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise BrokenInvariantError(
            f"the snapshot after input {after} cannot be read: {type(error).__name__}: {error}",
            hint="start the version of gpubudget that wrote it, or restore a backup; nothing was changed",
        ) from error


def _replay(store: Store, scheduler: Scheduler, after: int, line: int) -> int:
    """Handle the inputs after one again; returns the number of the last line of the log."""
    tail = _Tail(store, line)
    for number, at, text in store.inputs(after):
        try:
            event = plain.decode(cast("type[Any]", Event), json.loads(text))
            decided = lines(event, scheduler.handle(event, at), at)
        except GpuBudgetError as error:
            raise _differs(number, f"it is refused: {error.message}") from error
        except ValueError as error:
            raise _differs(number, "it is not JSON") from error
        for again in decided:
            if tail.next(number) != again:
                raise _differs(number, f"its line {tail.line} of the log is another one")
    if (left := tail.rest()) is not None:
        raise _differs(left, "the log has more lines than it gives")
    return tail.line


def _differs(number: int, how: str) -> BrokenInvariantError:
    return BrokenInvariantError(
        f"input {number} of the database decides otherwise than before: {how}",
        hint="start the version of gpubudget that wrote it, or restore a backup; nothing was changed",
    )


class _Tail:
    """The stored log after a line, read in pages."""

    def __init__(self, store: Store, line: int) -> None:
        self._store, self.line = store, line
        self._rows: list[Row] = []

    def _peek(self) -> Row | None:
        if not self._rows:
            self._rows = self._store.lines(self.line, _PAGE)[::-1]
        return self._rows[-1] if self._rows else None

    def next(self, number: int) -> dict[str, Any] | None:
        """The next line, if it is one of this input."""
        row = self._peek()
        if row is None or row[1] != number:
            return None
        self._rows.pop()
        self.line = row[0]
        return cast("dict[str, Any]", json.loads(row[2]))

    def rest(self) -> int | None:
        """The input of the first line that was not asked for, if there is one."""
        row = self._peek()
        return None if row is None else int(row[1])


def _gangs(store: Store, records: Records, lost: set[str]) -> Gangs:
    """The attempts that have not ended. Their agents may have heard of them; on a lost host nothing of them counts."""
    gangs = Gangs()
    for number, attempt, _, placement, _, ends_by, *_ in store.live_attempts():
        record = records.active[workload_id(number)]
        gang = Gang.of(record.spec, record.program, attempt, json.loads(placement), ends_by)
        for host, state, exit_code, signalled in store.parts(number, attempt):
            gang.parts[host] = Part(PartState(state), exit_code, bool(signalled))
        for host, part in gang.parts.items():
            part.offered = True
            if host in lost and not part.gone:
                part.state = PartState.LOST
        if record.attempt is not None and record.attempt["stopping"]:
            gang.stopping = record.reason.removeprefix("stopping: ").partition(" ")[0]
        gangs.add(gang)
    return gangs
