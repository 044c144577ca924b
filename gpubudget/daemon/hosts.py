"""What the daemon keeps of each host beside the core: its agent's last words, and how its repair goes.

Only values and small decisions; the core owns the states of hosts. All but the times of the last contact is written
to the database, so that drains, holds and repairs survive a restart. ``Host.next_event`` is the policy:

- a host is given to the core when it is healthy and nothing is left over on it;
- one that fails a check is drained; a drained one is repaired by its agent, checked again and returns by itself;
- after ``attempts`` failed repairs, and wherever a person drained it to hold it, it waits for a person.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from gpubudget.core.events import DrainRequested, Event, HostReported, RepairEnded, RepairStarted
from gpubudget.core.host import HostState
from gpubudget.daemon.gangs import Report

HEALTH = "health"
"""Who asks for a drain when a check has failed."""


@dataclass(frozen=True, slots=True)
class Check:
    """The last result of one health check."""

    name: str
    ok: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class RepairReport:
    """How the repair steps go on a host."""

    token: str
    state: str  # running, done or failed
    step: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class HostReport:
    """All that an agent says at once."""

    pool: str
    gpus: int
    boot_id: str
    attempts: tuple[Report, ...] = ()
    health: tuple[Check, ...] = ()
    repair: RepairReport | None = None
    checkpoints: tuple[tuple[str, int, int], ...] = ()
    chunks: tuple[dict[str, Any], ...] = ()
    models: tuple[str, ...] = ()
    agent_id: str = ""


@dataclass(slots=True)
class Repair:
    """A host's repair: ``failures`` since it was last healthy; ``person``: it waits for one."""

    token: str = ""
    step: str = ""
    message: str = ""
    failures: int = 0
    person: bool = False


@dataclass(slots=True)
class Host:
    """One host. ``seen`` is the monotonic time (ms) of the last contact, ``last_seen`` the same for people."""

    name: str
    pool: str = ""
    gpus: int = 0
    boot_id: str = ""
    models: tuple[str, ...] = ()
    health: tuple[Check, ...] = ()
    hold: bool = False
    repair: Repair = field(default_factory=Repair)
    seen: int = 0
    last_seen: int | None = None
    saved: str = ""
    agent_id: str = ""

    @property
    def illness(self) -> str:
        """The failed checks in one sentence; empty when it is healthy."""
        failed = [f"{check.name}: {check.message}".rstrip(": ") for check in self.health if not check.ok]
        return "; ".join(failed)[:500]

    def record(self) -> str:
        """What of it is kept in the database."""
        kept = {
            "pool": self.pool,
            "gpus": self.gpus,
            "boot_id": self.boot_id,
            "models": list(self.models),
            "health": [[check.name, check.ok, "" if check.ok else check.message] for check in self.health],
            "hold": self.hold,
            "agent_id": self.agent_id,
            "repair": [getattr(self.repair, name) for name in Repair.__slots__],
        }
        return json.dumps(kept, separators=(",", ":"))

    @classmethod
    def restored(cls, name: str, kept: dict[str, Any]) -> Host:
        """The host of a record."""
        host = cls(name, kept["pool"], kept["gpus"], kept["boot_id"], tuple(kept["models"]))
        host.health = tuple(Check(*check) for check in kept["health"])
        host.hold, host.repair = kept["hold"], Repair(*kept["repair"])
        host.agent_id = kept.get("agent_id", "")
        host.saved = host.record()
        return host

    def take(self, report: HostReport) -> None:
        """Note what its agent says."""
        self.pool, self.gpus, self.boot_id = report.pool, report.gpus, report.boot_id
        self.agent_id = report.agent_id or self.agent_id
        self.health, self.models = report.health, report.models
        if report.repair is not None and report.repair.token == self.repair.token:
            self.repair.step, self.repair.message = report.repair.step, report.repair.message

    def next_events(self, state: HostState | None, report: HostReport, *, clean: bool, attempts: int) -> list[Event]:
        """What the core should hear next of a host that it has in ``state`` (None: not at all).

        ``clean``: nothing of ended attempts is left on it. ``attempts``: how many repairs are tried; 0 for none.
        """
        events: list[Event | None] = []
        match state:
            case None if clean and not self.illness:
                events = [HostReported(self.name, self.pool, self.gpus)]
            case HostState.LOST if clean:  # one that comes back ill comes back drained
                events = [self._drain(), HostReported(self.name, self.pool, self.gpus)]
            case HostState.READY | HostState.CORDONED:
                events = [self._drain()]
            case HostState.DRAINED:
                events = [self._begin(attempts)]
            case HostState.REPAIRING:
                events = [self._end(report.repair, attempts)]
        return [event for event in events if event is not None]

    def _drain(self) -> Event | None:
        return DrainRequested(self.name, self.illness, HEALTH) if self.illness else None

    def _begin(self, attempts: int) -> Event | None:
        if self.hold or self.repair.person or not attempts:
            return None
        self.repair.token, self.repair.step = secrets.token_hex(8), ""
        return RepairStarted(self.name)

    def _end(self, repair: RepairReport | None, attempts: int) -> Event | None:
        if repair is None or repair.token != self.repair.token or repair.state not in {"done", "failed"}:
            return None
        self.repair.token = ""
        if repair.state == "done" and not self.illness:
            self.repair = Repair()
            return RepairEnded(self.name, healthy=True)
        self.repair.failures += 1
        self.repair.message = repair.message or self.illness
        self.repair.person = self.repair.failures >= attempts
        return RepairEnded(self.name, healthy=False)

    def released(self) -> None:
        """A person gave it back to work: nothing of an earlier drain or repair is left."""
        self.hold, self.repair = False, Repair()

    def public_repair(self, state: HostState) -> dict[str, object] | None:
        """The ``repair`` of the API's host object."""
        if state not in {HostState.DRAINED, HostState.REPAIRING} and not self.repair.failures:
            return None
        return {
            "step": self.repair.step,
            "message": self.repair.message,
            "failures": self.repair.failures,
            "waits_for_person": self.repair.person or self.hold,
        }
