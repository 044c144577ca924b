"""The state of a cluster as an event log tells it: hosts, workloads, attempts, claims, and where GPU-time went.

Plain values and small questions about them; the judgements are in ``audit.py``. Times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpubudget.sim.ledger import Key

PUT_BACK = frozenset({"drained", "host_lost", "forced"})
"""The reasons after which a workload always waits again."""


class Standing(StrEnum):
    """Where a workload stands, as far as the log tells."""

    WAITING = "waiting"
    HELD = "held"
    CLAIMING = "waiting for its GPUs to be freed"
    RUNNING = "running"
    STOPPED = "stopped"  # its attempt has ended; whether it waits again is not said yet
    ENDED = "ended"


@dataclass(slots=True)
class Attempt:
    """An attempt that holds GPUs."""

    key: Key
    pool: str
    allocated: bool
    placement: dict[str, list[int]]
    started: int
    protected_until: int
    leaving: str = ""  # why it was told to stop
    told: int = 0  # when
    lost: bool = False  # a host of it was lost
    drained: bool = False  # a host of it was to be drained

    @property
    def gpus(self) -> int:
        """All GPUs of the gang."""
        return sum(len(gpus) for gpus in self.placement.values())


@dataclass(slots=True)
class Claim:
    """What a workload was promised: hosts, and the victims that have to leave, each with the hosts it was on."""

    workload: str
    pool: str
    hosts: tuple[str, ...]  # empty where only the stops of its victims tell of it
    each: int  # GPUs on each host
    since: int
    victims: dict[Key, frozenset[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Workload:
    """A submitted workload that has not ended."""

    id: str
    budget: str | None
    gpus: int
    minimum: int
    order: tuple[int, int, str]  # inside its budget: minus its priority, when it was submitted, its id
    asked: dict[str, Any]  # the rest of the line
    standing: Standing = Standing.WAITING
    attempts: int = 0
    attempt: Attempt | None = None
    claim: Claim | None = None
    last_reason: str = ""
    ran: int = 0

    @classmethod
    def of(cls, at: int, data: dict[str, Any]) -> Workload:
        """The workload of a ``submitted`` line."""
        order = (-data.get("priority", 0), at, data["workload"])
        return cls(data["workload"], data["budget"], data["gpus"], data["min_runtime_ms"], order, data)

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools it may run in; none named means any."""
        named = self.asked.get("pools") or [self.asked.get("pool")]
        return tuple(pool for pool in named if pool)

    @property
    def returns(self) -> bool | None:
        """Whether it must wait again after its attempt ended; None if it may."""
        limit, reason = self.asked.get("max_runtime_ms"), self.last_reason
        if limit is not None and self.ran >= limit:
            return False
        if reason == "failed":
            return None
        return reason in PUT_BACK or (reason == "preempted" and bool(self.asked.get("resumable")))

    def split_fault(self, placement: dict[str, int], largest: int) -> str:
        """What is wrong with so many GPUs on each host, or nothing. ``largest`` is what a host of the pool has."""
        counts, hosts = set(placement.values()), self.asked.get("hosts")
        each = self.asked.get("gpus_per_host")
        if sum(placement.values()) != self.gpus:
            return f"it has {sum(placement.values())} GPUs and asked for {self.gpus}"
        if len(counts) != 1:
            return f"its GPUs are split unevenly: {placement}"
        if hosts is not None and len(placement) != hosts:
            return f"it is on {len(placement)} hosts and asked for {hosts}"
        if each is not None and counts != {each}:
            return f"it has {counts.pop()} GPUs a host and asked for {each}"
        if hosts is None and each is None and self.gpus <= largest and len(placement) > 1:
            return f"its {self.gpus} GPUs fit one host and are on {len(placement)}"
        return ""


@dataclass(slots=True)
class Host:
    """A host and which attempt holds each of its GPUs."""

    name: str
    pool: str
    gpus: int
    state: str
    held: dict[int, Key] = field(default_factory=dict)
    keys: dict[Key, None] = field(default_factory=dict)  # the attempts on it, in order of their starts


@dataclass(slots=True)
class PoolTime:
    """Where a pool's GPU-time went, in GPU-milliseconds; the two for attempts are summed over them, not over hosts."""

    capacity: int = 0
    allocated: int = 0
    unallocated: int = 0
    idle: int = 0
    unavailable: int = 0


class Cluster:
    """All hosts, the attempts on them and the open claims."""

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.attempts: dict[Key, Attempt] = {}
        self.claims: dict[str, Claim] = {}
        self.times: dict[str, PoolTime] = {}
        self._rates: dict[str, tuple[int, int, int]] = {}

    def on(self, host: str) -> list[Attempt]:
        """The attempts on a host."""
        return [self.attempts[key] for key in self.hosts[host].keys] if host in self.hosts else []

    def room(self, host: str, beside: str = "", spared: Key | None = None) -> int:
        """GPUs of a host that can be promised: what is there once all who leave are gone, but for one who is spared.

        What claims other than that of the workload ``beside`` are promised there is taken off.
        """
        others = [claim for claim in self.claims.values() if claim.workload != beside]
        victims = {key for claim in self.claims.values() for key in claim.victims}
        stay = sum(
            len(attempt.placement[host])
            for attempt in self.on(host)
            if attempt.key == spared or not (attempt.leaving or attempt.key in victims)
        )
        promised = sum(claim.each for claim in others if host in claim.hosts)
        return self.hosts[host].gpus - stay - promised if host in self.hosts else 0

    def place(self, attempt: Attempt) -> None:
        """Give an attempt its GPUs, as far as they are free."""
        self.attempts[attempt.key] = attempt
        for name, gpus in attempt.placement.items():
            if name in self.hosts:
                self.hosts[name].keys[attempt.key] = None
                for gpu in gpus:
                    self.hosts[name].held.setdefault(gpu, attempt.key)
        self.touch(attempt.pool)

    def free(self, attempt: Attempt, now: int) -> None:
        """Take them back, and count the attempt's GPU-time."""
        self.attempts.pop(attempt.key, None)
        for name in attempt.placement:
            if name in self.hosts:
                host = self.hosts[name]
                host.keys.pop(attempt.key, None)
                host.held = {gpu: key for gpu, key in host.held.items() if key != attempt.key}
        self.count(attempt, now)
        self.touch(attempt.pool)

    def count(self, attempt: Attempt, now: int) -> None:
        """Add an attempt's GPU-time to its pool's."""
        time, spent = self.times.setdefault(attempt.pool, PoolTime()), attempt.gpus * (now - attempt.started)
        if attempt.allocated:
            time.allocated += spent
        else:
            time.unallocated += spent

    def touch(self, pool: str) -> None:
        """Say that the pool's hosts are not as they were."""
        self._rates.pop(pool, None)

    def advance(self, elapsed: int) -> None:
        """Let time pass over the hosts as they are."""
        for pool in {host.pool for host in self.hosts.values()}:
            if pool not in self._rates:
                self._rates[pool] = self._rate(pool)
            capacity, idle, unavailable = self._rates[pool]
            time = self.times.setdefault(pool, PoolTime())
            time.capacity += capacity * elapsed
            time.idle += idle * elapsed
            time.unavailable += unavailable * elapsed

    def _rate(self, pool: str) -> tuple[int, int, int]:
        """GPUs of the pool, those free on ready hosts, and those free on others."""
        hosts = [host for host in self.hosts.values() if host.pool == pool]
        idle = sum(host.gpus - len(host.held) for host in hosts if host.state == "ready")
        unavailable = sum(host.gpus - len(host.held) for host in hosts if host.state != "ready")
        return sum(host.gpus for host in hosts), idle, unavailable
