"""The single writer: a request becomes an event of the core, is written with all that follows, and then answered.

``apply`` runs in the event loop and never waits, so events are handled one at a time. What they changed collects in one
batch; while a thread waits for the disk to take it, requests that come meanwhile fill the next transaction.
``durable`` waits until everything applied so far is on disk: an answer follows it, never precedes it. Orders to agents
and lines of the event stream come from committed entries only (``_publish``).

If a write fails, or the core breaks with anything but a refusal, memory is ahead of the disk or in doubt: the service
stops with that sentence, and a restart recovers from what is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gpubudget.core import plain
from gpubudget.core.decisions import BudgetsChanged, Decision, HostChanged, Start, Stop, Stopped
from gpubudget.core.eventlog import lines
from gpubudget.core.events import Event, HostLost, HostRemoved, Submitted, Woke
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadSpec
from gpubudget.daemon.admission import Book
from gpubudget.daemon.auth import Tokens
from gpubudget.daemon.clock import Clock
from gpubudget.daemon.gangs import Gang, Gangs
from gpubudget.daemon.metrics import Metrics
from gpubudget.daemon.records import Program, Record, Records, workload_number
from gpubudget.daemon.recovery import recover
from gpubudget.daemon.store import Batch, Row, Store
from gpubudget.errors import BrokenInvariantError, ConflictError, GpuBudgetError, NotFoundError
from gpubudget.units import DAY, SECOND, count

_log = logging.getLogger(__name__)

KEYS_KEPT = 7 * DAY
MAX_NAP = 1_000
"""Milliseconds after which the clock is looked at again, whatever the core's next wake-up."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a daemon behaves. Times in milliseconds; ``repair_attempts`` 0: hosts wait for a person.

    A snapshot is taken after ``snapshot_every`` inputs, but never so often that it costs more than a fiftieth of the
    time.
    """

    lost_after: int = 60 * SECOND
    repair_attempts: int = 3
    snapshot_every: int = 1_000
    poll: int = 5 * SECOND


@dataclass(frozen=True, slots=True)
class Entry:
    """One handled event, to be published when it is committed. ``gangs`` are those that it started."""

    event: Event
    decisions: list[Decision]
    gangs: list[Gang]


@dataclass(slots=True)
class _Group:
    """What is written together, and the future that says it is on disk."""

    done: asyncio.Future[None]
    batch: Batch = field(default_factory=Batch)
    entries: list[Entry] = field(default_factory=list)


class Service:
    """All state of a running daemon. Made inside an event loop; ``close`` writes what is left and a snapshot."""

    def __init__(self, store: Store, settings: Settings, wall: Callable[[], int] | None = None) -> None:
        self.store, self.settings = store, settings
        recovered = recover(store)
        self.clock = Clock(wall, recovered.at)
        self.scheduler: Scheduler = recovered.scheduler
        self.records: Records = recovered.records
        self.gangs: Gangs = recovered.gangs
        self.hosts, self.states = recovered.hosts, recovered.states
        self.counters = store.counters()
        self.tokens = Tokens(store.tokens())
        self.book = Book(self.scheduler.tree, self.hosts_in)
        self.metrics = Metrics(self)
        self.input, self.line = recovered.input, recovered.line
        self.next_number = store.last_workload() + 1
        self.committed_line = self.line
        self.applied: Row | None = next(iter(store.applied(1)), None)
        self.surplus: list[str] = []
        self._count_hosts()
        self.suspension: Row | None = next((row for row in store.suspensions(1) if row[3] is None), None)
        self.failure: GpuBudgetError | None = None
        self.closing = asyncio.Event()
        self.listeners: set[asyncio.Event] = set()
        self.on_publish: Callable[[set[str]], None] = lambda _hosts: None
        self.on_tick: Callable[[], None] = lambda: None
        self._snapshot_input, self._snapshot_after = recovered.snapshot_input, 0.0
        self._loop = asyncio.get_running_loop()
        self._group = _Group(self._loop.create_future())
        self._writing: _Group | None = None
        self._dirty, self._hurry = asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "writer")
        self._tasks = [self._loop.create_task(self._guard(work)) for work in (self._commit, self._keep_time)]
        self.finish(list(self.gangs.by_key.values()))

    # What the API calls.

    @property
    def batch(self) -> Batch:
        """Where a request puts rows of its own, to be written with the next transaction; call ``touch`` after it."""
        return self._group.batch

    def touch(self) -> None:
        """There is something to write."""
        self._dirty.set()

    def apply(self, event: Event, exited: Gang | None = None) -> list[Decision]:
        """Let the core handle an event now; raises its refusal, and then nothing has changed.

        ``exited``: the gang whose end the event tells, for its exit code.
        """
        if self.failure is not None:
            raise self.failure
        now, begun = self.clock.now(), time.perf_counter()
        decisions = self._handle(event, now)
        self.metrics.handled.observe(time.perf_counter() - begun)
        self.input += 1
        batch = self._group.batch
        batch.put("inputs", (self.input, now, json.dumps(plain.encode(event), separators=(",", ":"))))
        for line in lines(event, decisions, now):
            self.line += 1
            text = json.dumps(line, separators=(",", ":"))
            row = (self.line, self.input, now, line["kind"], line.get("workload"), line.get("host"), text)
            batch.put("log", row)
        gangs = self._project(event, decisions, now, exited)
        self._group.entries.append(Entry(event, decisions, gangs))
        self.touch()
        return decisions

    def _handle(self, event: Event, now: int) -> list[Decision]:
        try:
            return self.scheduler.handle(event, now)
        except BrokenInvariantError as error:
            raise self._fail(error) from error
        except GpuBudgetError:
            raise
        except Exception as error:  # of any kind: its state is in doubt now
            what = f"the scheduler failed on {type(event).__name__}: {type(error).__name__}: {error}"
            raise self._fail(BrokenInvariantError(what, hint="restart the daemon, and report this")) from error

    def _project(self, event: Event, decisions: list[Decision], now: int, exited: Gang | None) -> list[Gang]:
        """Bring all that follows the core up to date, and write it; returns the gangs that start."""
        records, batch = self.records, self._group.batch
        if exited is not None and (record := records.active.get(exited.spec.id)) is not None:
            record.exit_code = exited.exit_code()
        gangs, counted = [], True
        changed = records.follow(event, decisions, now, batch)
        for decision in decisions:
            match decision:
                case Start(workload, attempt, _, _, placement, _, ends_by):
                    record = records.active[workload]
                    places = {host: list(gpus) for host, gpus in placement}
                    gangs.append(Gang.of(record.spec, record.program, attempt, places, ends_by))
                case HostChanged(host, _, _, state):
                    counted &= host in self.states
                    self.states[host] = state
                case BudgetsChanged(tree):
                    self.book, counted = Book(tree, self.hosts_in), False
                case Stop(reason=reason):
                    self.metrics.stops.labels(reason.value).inc()
                case _:
                    pass
        if isinstance(event, HostRemoved):
            self.states.pop(event.host, None)
            counted = False
        if not counted:
            self._count_hosts()
        for workload in changed:
            record = records.active[workload]
            if exited is not None and workload == exited.spec.id and (failure := exited.failure()):
                record.reason = f"{record.reason}: {failure}"[:1_000]
            records.settle(workload, self.scheduler.workload(workload), now, batch)
        return gangs

    def hosts_in(self, pool: str) -> int:
        """How many hosts a pool really has, in whatever state."""
        return next((view.hosts for view in self.scheduler.pools(self.clock.now()) if view.name == pool), 0)

    def _count_hosts(self) -> None:
        """Note, and log when it is new, where more hosts report than the tree says; they are used like the others."""
        pools = () if self.scheduler.tree is None else self.scheduler.tree.pools
        found = [
            f"pool {pool.name} has {count(present, 'host')}, and cluster.yaml says {pool.hosts}; all of them are used"
            for pool in pools
            if (present := self.hosts_in(pool.name)) > pool.hosts
        ]
        for warning in found:
            if warning not in self.surplus:
                _log.warning("%s", warning)
        self.surplus = found

    def submit(self, spec: WorkloadSpec, program: Program) -> Record:
        """Let a new workload in, whose id has the next number; raises what the core refuses it with."""
        record = Record(self.next_number, spec, program, self.clock.now())
        self.records.add(record)
        try:
            self.apply(Submitted(spec))
        except GpuBudgetError:
            del self.records.active[spec.id]
            raise
        self.next_number += 1
        return record

    def earlier(self, owner: str, key: str) -> tuple[str, int, int] | None:
        """(digest, first number, count) of the submission that came with this idempotency key before."""
        for group in (self._group, self._writing):
            if group is not None and (row := group.batch.rows["idempotency"].get((owner, key))) is not None:
                return row[3], row[4], row[5]
        found = self.store.idempotency(owner, key)
        return None if found is None else (found[0], found[1], found[2])

    async def durable(self) -> None:
        """Wait until all that was applied before is on disk; raises what kept it from there."""
        if self.failure is not None:
            raise self.failure
        group = self._writing
        if self._group.batch:
            group = self._group
            self.touch()
        if group is not None:
            await asyncio.shield(group.done)

    # Writing.

    async def _guard(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do the work of a task that must not end; whatever ends it ends the service, and who waits is told."""
        try:
            await work()
        except GpuBudgetError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - of any kind: the daemon must not go on without this task
            _log.exception("the daemon stops")
            what = f"the daemon failed: {type(error).__name__}: {error}"
            self._fail(BrokenInvariantError(what, hint="restart it, and report this"))
        for group in (self._writing, self._group):
            if self.failure is not None and group is not None and not group.done.done():
                group.done.set_exception(self.failure)
                group.done.exception()  # retrieved, also when nobody waits

    async def _commit(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if not self._group.batch:
                continue
            group, self._group = self._group, _Group(self._loop.create_future())
            self._writing = group
            self._snapshot_if_due(group.batch)
            begun = time.perf_counter()
            self.store.put(group.batch)  # here, since a thread would wait for this one at each row
            await self._loop.run_in_executor(self._thread, self.store.commit)
            self._writing = None
            self.metrics.committed.observe(time.perf_counter() - begun)
            self.metrics.group_size.observe(len(group.entries))
            self._publish(group)
            if not group.done.done():
                group.done.set_result(None)

    def _snapshot_if_due(self, batch: Batch) -> None:
        if self.input - self._snapshot_input < self.settings.snapshot_every or time.monotonic() < self._snapshot_after:
            return
        self.snapshot(batch)

    def snapshot(self, batch: Batch) -> None:
        """Put the core's state into a batch, so that a restart need not replay what was before."""
        begun = time.monotonic()
        batch.put("snapshots", (self.input, self.line, json.dumps(self.scheduler.snapshot(), separators=(",", ":"))))
        batch.put("stale_keys", (self.clock.now() - KEYS_KEPT,))
        took = time.monotonic() - begun
        self._snapshot_input, self._snapshot_after = self.input, begun + 50 * took

    def _publish(self, group: _Group) -> None:
        """Follow what is now on disk: orders change, listeners hear, and what is over without a process is over."""
        touched: set[str] = set()
        gangs: dict[tuple[str, int], Gang] = {}
        for entry in group.entries:
            if isinstance(entry.event, HostLost):
                gangs |= {gang.key: gang for gang in self.gangs.lose(entry.event.host)}
            for gang in entry.gangs:
                self.gangs.add(gang)
                touched.update(gang.parts)
            for decision in entry.decisions:
                if isinstance(decision, Stop):
                    stopped = self.gangs.stop((decision.workload, decision.attempt), decision.reason.value)
                    if stopped is not None:
                        gangs[stopped.key] = stopped
                        touched.update(stopped.parts)
                elif isinstance(decision, Stopped):
                    touched.update(self.gangs.remove((decision.workload, decision.attempt)))
                elif isinstance(decision, HostChanged):
                    touched.add(decision.host)
        self.committed_line = max([self.committed_line, *(key[0] for key in group.batch.rows["log"])])  # type: ignore[index] # keys are tuples
        self.finish(list(gangs.values()))
        for listener in self.listeners:
            listener.set()
        self._hurry.set()
        if touched:
            self.on_publish(touched)

    def finish(self, gangs: list[Gang]) -> None:
        """Write what agents reported of gangs, and tell the core of those that are over."""
        for key, host, part in self.gangs.changed:
            row = (workload_number(key[0]), key[1], host, part.state.value, part.exit_code, int(part.signalled))
            self._group.batch.put("parts", row, 3)
            self.touch()
        self.gangs.changed.clear()
        for gang in self.gangs.over(gangs):
            if gang.key in self.gangs.by_key:
                with contextlib.suppress(NotFoundError, ConflictError):  # the core has ended it with its host
                    self.apply(gang.exited(), gang)

    # Time.

    async def _keep_time(self) -> None:
        while not self.closing.is_set():
            self.store.check_files()
            now, wakeup = self.clock.now(), self.scheduler.next_wakeup()
            if wakeup is not None and wakeup <= now and self.failure is None:
                with contextlib.suppress(GpuBudgetError):  # a failure is kept, and ends the daemon
                    self.apply(Woke())
                wakeup = self.scheduler.next_wakeup()
            self.on_tick()
            nap = min(MAX_NAP, self.settings.lost_after // 4)
            if wakeup is not None:
                nap = min(max(wakeup - now, 10), nap)
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(nap / SECOND):  # not wait_for, which can swallow the end (bpo-37658)
                    await self._hurry.wait()

    # The end.

    def _fail(self, error: GpuBudgetError) -> GpuBudgetError:
        if self.failure is None:
            self.failure = error
            self.closing.set()
        return self.failure

    def wake_all(self) -> None:
        """Let streams and waiting agents see that the end has come."""
        for listener in self.listeners:
            listener.set()
        self.on_publish(set(self.hosts))

    async def close(self, *, snapshot: bool = True) -> None:
        """Write what is left, and a snapshot unless something failed; end the tasks."""
        self.closing.set()
        self._hurry.set()
        self.wake_all()
        if self.failure is None:
            if snapshot and self.input > self._snapshot_input:
                self.snapshot(self.batch)
                self.touch()
            with contextlib.suppress(GpuBudgetError):
                await self.durable()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown()
