"""The conversation with the agents: each says what is on its host, and is told what should be.

A request is taken in at once; what follows from it is on disk before the answer is made. The answer is whole: a lost
one does no harm, the next says the same. It may be held back until it differs from the last one, so that orders are
prompt without many requests. A newer request of the same host ends the wait of an older one.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

from gpubudget.core.events import CheckpointReported, DrainRequested, HostLost, RepairEnded
from gpubudget.core.host import HostState
from gpubudget.daemon.auth import check_name
from gpubudget.daemon.hosts import Host, HostReport
from gpubudget.daemon.records import workload_number
from gpubudget.daemon.service import Service
from gpubudget.errors import (
    ConflictError,
    GpuBudgetError,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from gpubudget.units import count

_DRAINS = frozenset({HostState.DRAINING, HostState.DRAINED, HostState.REPAIRING})
"""The way of a drained host back to work."""

TAIL_PAUSE = 0.3
"""Seconds before an agent is asked again for a log that had nothing new."""


@dataclass(slots=True)
class _Line:
    """What is remembered of the conversation with one agent."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    turn: int = 0
    last_answer: dict[str, Any] | None = None
    report: HostReport | None = None
    checkpoints: dict[tuple[str, int], int] = field(default_factory=dict)
    tails: dict[str, tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = field(default_factory=dict)


class Agents:
    """All agents of a running service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._lines: dict[str, _Line] = {}
        self._tail_number = 0
        self._started = self._ticked = _monotonic()
        service.on_publish = self._published
        service.on_tick = self._find_silent

    def _line(self, host: str) -> _Line:
        return self._lines.setdefault(host, _Line())

    def _published(self, hosts: set[str]) -> None:
        for host in hosts:
            if host in self._lines:
                self._lines[host].changed.set()

    # Reports.

    async def sync(self, name: str, report: HostReport, wait_ms: int) -> dict[str, Any]:
        """Take in a report, and answer with what should be on the host."""
        check_name(name, "host")
        line = self._line(name)
        line.turn += 1
        turn = line.turn
        line.changed.set()
        self._take(name, line, report)
        await self.service.durable()
        answer = self._answer(name, line)
        deadline = time.monotonic() + min(wait_ms, self.service.settings.lost_after // 3) / 1_000
        while line.turn == turn and not (_is_news(answer, line, report) or self.service.closing.is_set()):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            line.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await line.changed.wait()
            answer = self._answer(name, line)
        if line.turn == turn:  # nobody looks at the answer to an abandoned request
            line.last_answer = answer
        return answer

    def _take(self, name: str, line: _Line, report: HostReport) -> None:
        service = self.service
        self._know(name, report)
        self._refuse_stranger(name, report)
        host = service.hosts.setdefault(name, Host(name))
        restarted = bool(host.boot_id) and host.boot_id != report.boot_id
        host.take(report)
        host.seen, host.last_seen = _monotonic(), service.clock.now()
        line.report = report
        for chunk in report.chunks:
            _, future = line.tails.pop(chunk["request"], (None, None))
            if future is not None and not future.done():
                future.set_result(chunk)
        if restarted and service.gangs.by_host.get(name) and service.states.get(name) not in {None, HostState.LOST}:
            service.gangs.lose(name)  # its processes are gone, and that was not their fault
            service.apply(HostLost(name))
        ended = service.gangs.report(name, report.attempts)
        self._published({each for gang in ended for each in gang.parts})  # a failed rank ends the others
        service.finish(ended)
        self._checkpoints(line, report)
        self._steer(host, report)
        self._save(host)

    def _know(self, name: str, report: HostReport) -> None:
        """Refuse a host that the applied budgets have no place for, or that is not the one that works under its name.

        One that is as before is heard whatever became of its pool: what runs there must end in order.
        """
        tree = self.service.scheduler.tree
        if tree is None:
            return
        state, before = self.service.states.get(name), self.service.hosts.get(name)
        if state is not None and before is not None:
            if (before.pool, before.gpus) == (report.pool, report.gpus):
                return
            if state is not HostState.LOST:
                raise ConflictError(
                    f"host {name} has {before.gpus} GPUs in pool {before.pool}, "
                    f"but its agent says {report.gpus} in pool {report.pool}",
                    hint="correct the agent's options; a host that has changed is taken in anew when it is lost",
                )
        pool = next((pool for pool in tree.pools if pool.name == report.pool), None)
        if pool is None:
            pools = ", ".join(pool.name for pool in tree.pools)
            raise RefusedError(
                f"host {name} says it is in pool {report.pool}, which there is not", hint=f"pools: {pools}"
            )
        if pool.gpus_per_host != report.gpus:
            raise RefusedError(
                f"host {name} has {report.gpus} GPUs, and pool {pool.name} has {pool.gpus_per_host} on each host",
                hint="correct the pool in cluster.yaml, or the agent's --pool",
            )

    def _refuse_stranger(self, name: str, report: HostReport) -> None:
        """Refuse a second agent that says it is a host on which another one has work.

        It does not know that work, so what it says would end it; where the other one is gone, its silence soon tells.
        """
        service, before = self.service, self.service.hosts.get(name)
        if before is None or not before.agent_id or report.agent_id in {"", before.agent_id}:
            return
        if service.gangs.by_host.get(name) and service.states.get(name) not in {None, HostState.LOST}:
            work = count(len(service.gangs.by_host[name]), "attempt")
            raise ConflictError(
                f"another agent speaks for host {name}, and has {work} in its care",
                hint="stop this one, or start it with the other's --state-dir once that one has ended",
            )

    def _checkpoints(self, line: _Line, report: HostReport) -> None:
        for workload, attempt, at in report.checkpoints:
            gang = self.service.gangs.by_key.get((workload, attempt))
            if gang is None or gang.stopping or gang.over or line.checkpoints.get((workload, attempt), 0) >= at:
                continue
            line.checkpoints[workload, attempt] = at
            with contextlib.suppress(GpuBudgetError):
                self.service.apply(CheckpointReported(workload, attempt))
        for key in line.checkpoints.keys() - self.service.gangs.by_key.keys():
            del line.checkpoints[key]

    def _steer(self, host: Host, report: HostReport) -> None:
        """Tell the core what this report means for the host, one event after the other."""
        service, settings = self.service, self.service.settings
        if service.scheduler.tree is None:
            return
        stale = [r for r in service.gangs.stale(host.name, report.attempts) if r.state == "running"]
        clean = not stale and not service.gangs.by_host.get(host.name)
        for _ in range(3):  # ready, drained, repairing: an empty ill host passes all three at once
            state = service.states.get(host.name)
            events = host.next_events(state, report, clean=clean, attempts=settings.repair_attempts)
            for event in events:
                service.apply(event)
                if isinstance(event, RepairEnded):
                    self._count_repair(host, healthy=event.healthy)
            if not events or isinstance(events[-1], RepairEnded):
                return

    def _count_repair(self, host: Host, *, healthy: bool) -> None:
        """Keep the share of repairs that needed a person."""
        if healthy or host.repair.person:
            name = "repairs_alone" if healthy else "repairs_by_person"
            self.service.counters[name] = self.service.counters.get(name, 0) + 1
            self.service.batch.put("counters", (name, self.service.counters[name]))
            self.service.touch()

    def _save(self, host: Host) -> None:
        record = host.record()
        if record != host.saved:
            host.saved = record
            self.service.batch.put("hosts", (host.name, record))
            self.service.touch()

    # Answers.

    def _answer(self, name: str, line: _Line) -> dict[str, Any]:
        service = self.service
        reports = line.report.attempts if line.report is not None else ()
        grace = service.scheduler.tree.policy.grace_period if service.scheduler.tree is not None else 30_000
        host = service.hosts.get(name) or Host(name)  # it may have been removed while its agent waited
        repairing = service.states.get(name) is HostState.REPAIRING and host.repair.token
        return {
            **service.gangs.orders(name, reports, grace),
            "repair": {"token": host.repair.token} if repairing else None,
            "tails": [tail for tail, _ in line.tails.values()],
            "poll_ms": min(service.settings.poll, service.settings.lost_after // 3),
        }

    # Silence.

    def _find_silent(self) -> None:
        """Hosts that said nothing for too long are lost. Time in which the daemon itself stood still does not count."""
        now, lost_after = _monotonic(), self.service.settings.lost_after
        passed = now - self._ticked
        if passed < lost_after // 8:
            return
        self._ticked = now
        if passed > lost_after // 2:
            self._started = now
        for name, state in list(self.service.states.items()):
            host = self.service.hosts.get(name)
            seen = max(host.seen if host is not None else 0, self._started)
            if state is not HostState.LOST and now - seen > lost_after and self.service.failure is None:
                with contextlib.suppress(GpuBudgetError):  # a failure is kept, and ends the daemon
                    self.service.apply(HostLost(name))

    # What people ask of a host.

    def drain(self, name: str, reason: str, by: str, *, hold: bool) -> None:
        """Empty a host; with ``hold`` it is not repaired, and waits for a person when it is empty.

        One that is on that way goes on, for the reason that it was given first.
        """
        host, state = self.host(name), self.service.states[name]
        underway = {HostState.DRAINING, HostState.DRAINED} if hold else _DRAINS
        if state not in underway:
            self.service.apply(DrainRequested(name, reason, by))
        host.hold = hold
        self._save(host)

    def released(self, name: str) -> None:
        """A person gave a host back to work."""
        host = self.host(name)
        host.released()
        self._save(host)

    def removed(self, name: str) -> None:
        """A host is gone for good."""
        self.service.hosts.pop(name, None)
        line = self._lines.pop(name, None)
        if line is not None:  # an agent that waits is answered now
            line.turn += 1
            line.changed.set()
        self.service.batch.put("gone_hosts", (name,))
        self.service.touch()

    def host(self, name: str) -> Host:
        """What is kept of a host that the core knows; raises NotFoundError."""
        if name not in self.service.states:
            raise NotFoundError(f"there is no host {name[:60]!r}", hint="gpubudget get hosts lists them")
        return self.service.hosts.setdefault(name, Host(name))

    # Logs.

    async def log(
        self, workload: str, attempt: int | None, host: str | None, offset: int, wait_ms: int
    ) -> dict[str, Any]:
        """A piece of an attempt's output, fetched from the agent of its host (by default that of rank 0)."""
        number = workload_number(workload)
        if self.service.store.workload(number) is None:
            raise NotFoundError(f"there is no workload {workload}", hint="gpubudget get workloads lists them")
        attempt, host = self._place_of_log(workload, number, attempt, host)
        deadline = time.monotonic() + wait_ms / 1_000
        while True:
            chunk = await self._tail(host, workload, attempt, offset)
            if chunk["data"] or chunk["end"] or time.monotonic() >= deadline or self.service.closing.is_set():
                break
            await asyncio.sleep(min(TAIL_PAUSE, max(deadline - time.monotonic(), 0)))
        text, cut = decoded(chunk["data"], end=chunk["end"])
        return {
            "attempt": attempt,
            "host": host,
            "offset": offset,
            "next_offset": chunk["next_offset"] - cut,
            "data": text,
            "end": chunk["end"],
        }

    def _place_of_log(self, workload: str, number: int, attempt: int | None, host: str | None) -> tuple[int, str]:
        row = self.service.store.attempt(number, attempt)
        if row is None:
            which = "has not started yet" if attempt is None else f"has no attempt {attempt}"
            raise NotFoundError(f"workload {workload} {which}", hint=f"gpubudget explain {workload} says why")
        hosts = list(json.loads(row[3]))
        if host is not None and host not in hosts:
            raise NotFoundError(
                f"{workload} attempt {row[1]} did not run on {host[:60]}", hint=f"hosts: {', '.join(hosts)}"
            )
        return row[1], host or hosts[0]

    async def _tail(self, host: str, workload: str, attempt: int, offset: int) -> dict[str, Any]:
        self._tail_number += 1
        request = str(self._tail_number)
        line = self._line(host)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        tail = {"request": request, "workload": workload, "attempt": attempt, "offset": offset, "limit": 64 * 1024}
        line.tails[request] = (tail, future)
        line.changed.set()
        patience = 2 * self.service.settings.poll / 1_000 + 10
        try:
            async with asyncio.timeout(patience):
                return await future
        except TimeoutError:
            raise UnreachableError(
                f"the agent of {host} did not send the log of {workload} within {patience:.0f} s",
                hint=f"gpubudget get hosts {host} says when it was last heard of",
            ) from None
        finally:
            line.tails.pop(request, None)


def _is_news(answer: dict[str, Any], line: _Line, report: HostReport) -> bool:
    """Whether an answer holds something that its agent does not know, or has not followed yet."""
    if answer != line.last_answer or answer["forget"] or answer["tails"]:
        return True
    if answer["repair"] and (report.repair is None or report.repair.token != answer["repair"]["token"]):
        return True
    known = {(attempt.workload, attempt.attempt) for attempt in report.attempts}
    return any((order["workload"], order["attempt"]) not in known for order in answer["run"])


def _monotonic() -> int:
    return time.monotonic_ns() // 1_000_000


def decoded(data: bytes, *, end: bool) -> tuple[str, int]:
    """The text of a piece of a log, and how many bytes at its end begin a character that is not complete yet."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=end)
    return text, len(decoder.getstate()[0])
