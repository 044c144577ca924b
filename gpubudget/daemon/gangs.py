"""Attempts as the hosts' agents see them: what should run where, what each host reported, and when an attempt is over.

The core counts an attempt as one; agents report it host by host. A gang is over when its processes are gone on every
host (or the host is). It is a projection of what is *committed*: an order is given only after the decision behind it
is on disk. Reports change only the parts of gangs and never decide anything; what follows from them is returned as
the core's ``Exited``.

- A rank that ends with 0 has finished, and the others go on. A rank that fails by itself breaks the gang: the others
  are stopped, and then the attempt has failed.
- A part that was never offered to its agent has no process; one that the agent no longer has after it was told to
  stop has none either. A part that the agent had and has no more counts as failed, and is never started again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpubudget.core.events import Exited, Outcome
from gpubudget.core.workload import WorkloadSpec
from gpubudget.daemon.records import Program

Key = tuple[str, int]
"""A workload's id and the number of its attempt."""


class PartState(StrEnum):
    """How an attempt stands on one host."""

    WAITING = "waiting"  # its agent has not reported it yet
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"  # its host was lost, or started anew


@dataclass(slots=True)
class Part:
    """An attempt on one host. ``offered``: an agent may have been told to run it; ``told``: told to stop it."""

    state: PartState = PartState.WAITING
    exit_code: int | None = None
    signalled: bool = False
    error: str = ""
    offered: bool = False
    told: bool = False

    @property
    def gone(self) -> bool:
        """Whether no process of it is left."""
        return self.state in {PartState.EXITED, PartState.LOST}

    @property
    def failed(self) -> bool:
        """Whether it ended badly and by itself."""
        return self.state is PartState.EXITED and not self.signalled and self.exit_code != 0


@dataclass(frozen=True, slots=True)
class Report:
    """What an agent says of one attempt."""

    workload: str
    attempt: int
    state: str  # running, exited or unknown
    exit_code: int | None = None
    signalled: bool = False
    error: str = ""


@dataclass(slots=True)
class Gang:
    """An attempt that holds GPUs; parts by host in order of rank. ``stopping`` is why it should end, if it should."""

    spec: WorkloadSpec
    program: Program
    attempt: int
    placement: dict[str, list[int]]
    ends_by: int | None
    parts: dict[str, Part]
    stopping: str = ""
    over: bool = False

    @classmethod
    def of(
        cls, spec: WorkloadSpec, program: Program, attempt: int, placement: dict[str, list[int]], ends_by: int | None
    ) -> Gang:
        """A gang of which nothing has been reported."""
        return cls(spec, program, attempt, placement, ends_by, {host: Part() for host in placement})

    @property
    def key(self) -> Key:
        """Workload and attempt."""
        return self.spec.id, self.attempt

    @property
    def ending(self) -> str:
        """Why its processes should end: the core's reason, or that a rank failed; empty when they should run."""
        return self.stopping or ("gang" if any(part.failed for part in self.parts.values()) else "")

    def exited(self) -> Exited:
        """What the core is told once all parts are gone."""
        parts = self.parts.values()
        if any(part.failed for part in parts):
            outcome = Outcome.FAILED
        elif any(part.signalled or part.state is PartState.LOST for part in parts):
            outcome = Outcome.STOPPED
        else:
            outcome = Outcome.FINISHED
        return Exited(*self.key, outcome)

    def exit_code(self) -> int | None:
        """The code of the first rank that failed by itself, else the first that is not 0, else 0; None: unknown."""
        own = [part.exit_code for part in self.parts.values() if part.failed]
        known = own or [part.exit_code for part in self.parts.values() if part.state is PartState.EXITED]
        return next((code for code in known if code), known[0] if known else None)

    def failure(self) -> str:
        """What went wrong on the first host that failed by itself, for people; empty when none did."""
        for host, part in self.parts.items():
            if part.failed:
                code = "" if part.exit_code is None else f"exit code {part.exit_code}"
                return f"failed on {host}: {part.error or code or 'its processes are gone'}"
        return ""

    def order(self, host: str, grace: int) -> dict[str, Any]:
        """What the agent of ``host`` needs to run its part."""
        return {
            "workload": self.spec.id,
            "attempt": self.attempt,
            "gpus": self.placement[host],
            "rank": list(self.placement).index(host),
            "hosts": list(self.placement),
            "gpus_per_host": len(self.placement[host]),
            "command": list(self.program.command),
            "env": dict(self.program.env),
            "cwd": self.program.cwd,
            "owner": self.spec.owner,
            "grace_ms": grace,
            "resumable": self.spec.resumable,
            "ends_by_ms": self.ends_by,
        }


@dataclass(slots=True)
class Gangs:
    """All gangs, by key and by host. ``changed`` collects the parts whose state is to be written."""

    by_key: dict[Key, Gang] = field(default_factory=dict)
    by_host: dict[str, dict[Key, Gang]] = field(default_factory=dict)
    changed: list[tuple[Key, str, Part]] = field(default_factory=list)

    def add(self, gang: Gang) -> None:
        """An attempt starts."""
        self.by_key[gang.key] = gang
        for host in gang.parts:
            self.by_host.setdefault(host, {})[gang.key] = gang

    def remove(self, key: Key) -> tuple[str, ...]:
        """The core knows that an attempt has ended; returns its hosts, whose agents may forget it."""
        gang = self.by_key.pop(key, None)
        if gang is None:
            return ()
        for host in gang.parts:
            self.by_host[host].pop(key, None)
        return tuple(gang.parts)

    def stop(self, key: Key, reason: str) -> Gang | None:
        """The core wants an attempt to end; parts that no agent has heard of are gone at once."""
        gang = self.by_key.get(key)
        if gang is not None:
            gang.stopping = reason
            for host, part in gang.parts.items():
                if part.state is PartState.WAITING and not part.offered:
                    self._set(gang, host, PartState.EXITED, signalled=True)
        return gang

    def lose(self, host: str) -> list[Gang]:
        """A host is lost: its parts are gone, whatever their processes do; returns the gangs that had one."""
        gangs = list(self.by_host.get(host, {}).values())
        for gang in gangs:
            if not gang.parts[host].gone:
                self._set(gang, host, PartState.LOST)
        return gangs

    def report(self, host: str, reports: Iterable[Report]) -> list[Gang]:
        """Take in all that an agent has; returns the gangs of which a part is gone since."""
        reported = {(report.workload, report.attempt): report for report in reports}
        ended = []
        for key, gang in self.by_host.get(host, {}).items():
            part, report = gang.parts[host], reported.get(key)
            if part.gone:
                continue
            if report is None:
                if part.told and part.state is PartState.WAITING:
                    self._set(gang, host, PartState.EXITED, signalled=True)
                elif part.state is PartState.RUNNING:
                    self._set(gang, host, PartState.EXITED, signalled=part.told)
            elif report.state == "running":
                if part.state is PartState.WAITING:
                    self._set(gang, host, PartState.RUNNING)
            else:
                part.exit_code, part.error = report.exit_code, report.error
                self._set(gang, host, PartState.EXITED, signalled=report.signalled)
            if gang.parts[host].gone:
                ended.append(gang)
        return ended

    def _set(self, gang: Gang, host: str, state: PartState, *, signalled: bool = False) -> None:
        part = gang.parts[host]
        part.state, part.signalled = state, signalled
        self.changed.append((gang.key, host, part))

    @staticmethod
    def over(gangs: Iterable[Gang]) -> list[Gang]:
        """Those of the gangs that are over, each once."""
        found = []
        for gang in gangs:
            if not gang.over and all(part.gone for part in gang.parts.values()):
                gang.over = True
                found.append(gang)
        return found

    def stale(self, host: str, reports: Iterable[Report]) -> list[Report]:
        """What an agent has, but should not: attempts that have ended here, or that this host is no part of."""
        live = self.by_host.get(host, {})
        return [
            report
            for report in reports
            if (gang := live.get((report.workload, report.attempt))) is None or gang.parts[host].state is PartState.LOST
        ]

    def orders(self, host: str, reports: Iterable[Report], grace: int) -> dict[str, list[dict[str, Any]]]:
        """What should run on a host, what should stop there, and what its agent may forget."""
        run, stop, forget = [], [], []
        for gang in self.by_host.get(host, {}).values():
            part = gang.parts[host]
            if part.gone:
                continue
            if not gang.ending:
                part.offered = True
                run.append(gang.order(host, grace))
            elif part.offered:
                part.told = True
                stop.append(_stop(*gang.key, gang.ending, grace))
        for report in self.stale(host, reports):
            if report.state == "running":
                stop.append(_stop(report.workload, report.attempt, "stale", grace))
            else:
                forget.append({"workload": report.workload, "attempt": report.attempt})
        return {"run": run, "stop": stop, "forget": forget}


def _stop(workload: str, attempt: int, reason: str, grace: int) -> dict[str, Any]:
    return {"workload": workload, "attempt": attempt, "reason": reason, "grace_ms": grace}
