"""The audit of an event log: placements, the ledger and each preemption's right, recomputed by an outsider.

Reads the public format and nothing else: it shares no code with the scheduler core. ``Auditor.take`` is given sound
lines in order (``eventfile.read`` makes them) and collects findings; it never raises. What a log cannot show (the debug
lane's own GPUs, hosts kept for a reservation) is judged in the scheduler's favour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from gpubudget.sim import placed
from gpubudget.sim.eventfile import Finding, Line, read
from gpubudget.sim.ledger import Key, Ledger, lineage
from gpubudget.sim.preemption import Judge
from gpubudget.sim.replay import Attempt, Claim, Cluster, Host, Standing, Workload
from gpubudget.sim.reservations import Promises

_WORK_STATES: dict[str, frozenset[Standing]] = {
    "started": frozenset({Standing.WAITING, Standing.CLAIMING}),
    "claimed": frozenset({Standing.WAITING}),
    "unclaimed": frozenset({Standing.CLAIMING}),
    "stopping": frozenset({Standing.RUNNING}),
    "checkpoint": frozenset({Standing.RUNNING}),
    "requeued": frozenset({Standing.STOPPED}),
    "held": frozenset({Standing.WAITING, Standing.HELD, Standing.CLAIMING}),
    "moved": frozenset({Standing.WAITING, Standing.HELD}),
    "refused": frozenset({Standing.WAITING, Standing.HELD}),
    "reserved": frozenset({Standing.WAITING}),
}


class Auditor:
    """Takes the lines of one log in order; ``findings`` is what is wrong so far, ``summary`` what happened."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.counts: Counter[str] = Counter()
        self.by_program: dict[str, Counter[str]] = {}
        self._now: int | None = None
        self._number = 0
        self._grace = 0
        self._cluster = Cluster()
        self._ledger = Ledger()
        self._workloads: dict[str, Workload] = {}
        self._ended: set[str] = set()
        self._unsettled: dict[str, Workload] = {}
        self._judge = Judge(self._cluster, self._ledger, self._workloads)
        self._promises = Promises(self._ledger, self._judge)

    def take(self, line: Line) -> None:
        """Judge one line, and let it change what is known."""
        if self._now is not None and line.at > self._now:
            self._settle()
            self._cluster.advance(line.at - self._now)
        self._now, self._number = line.at, line.number
        self.counts[line.kind] += 1
        self._judge.detailed |= line.kind in {"claimed", "unclaimed", "stopping"}
        handler = getattr(self, f"_take_{line.kind}")
        if line.kind in _WORK_STATES:
            workload = self._workload(line)
            if workload is None:
                return
            handler(line, workload)
        else:
            handler(line)

    def finish(self) -> None:
        """Judge what must have followed by the end of the log, and close the sums."""
        self._settle()
        for attempt in self._cluster.attempts.values():
            self._count(attempt)
        for pool, time in self._cluster.times.items():
            parts = time.allocated + time.unallocated + time.idle + time.unavailable
            if parts != time.capacity:
                self._find("capacity", f"pool {pool} had {time.capacity} GPU-ms, but {parts} are accounted for")

    def summary(self) -> dict[str, Any]:
        """What happened, as plain values; GPU-time in GPU-milliseconds."""
        pools = {
            pool: {f"{name}_gpu_ms": getattr(time, name) for name in time.__dataclass_fields__}
            for pool, time in sorted(self._cluster.times.items())
        }
        return {
            "events": self.counts.total(),
            "workloads": self.counts["submitted"],
            "starts": self.counts["started"],
            "preemptions": self.counts["preemptions"],
            "refused": self.counts["refused"],
            "programs": {name: dict(parts) for name, parts in sorted(self.by_program.items())},
            "pools": pools,
        }

    def usage(self, pool: str, path: str, now: int) -> int:
        """Usage of a budget at a time after the last line, as recomputed, in GPU-milliseconds."""
        return self._ledger.usage(pool, path, now)

    # What each kind of line means

    def _take_budgets_applied(self, line: Line) -> None:
        for fault in self._ledger.apply(line.data["budgets"], line.data["policy"]["lookback_ms"], line.at):
            self._find("budgets", fault)
        for workload in self._workloads.values():
            workload.budget = self._ledger.follow(workload.budget) if workload.budget else None
        self._judge.lane = (line.data["policy"].get("debug") or {}).get("gpus", 0)
        self._grace = line.data["policy"].get("grace_period_ms", 0)
        self._promises.excuse(None)

    def _take_host(self, line: Line) -> None:
        name, state, known = line.data["host"], line.data["state"], self._cluster.hosts.get(line.data["host"])
        attempts = [attempt for attempt in self._cluster.on(name) if not attempt.leaving]
        if attempts and state in {"drained", "removed", "repairing"}:
            self._find("host-in-use", f"host {name} is {state} while {_names(attempts)} hold GPUs of it")
        pools = {known.pool} if known else set()
        if state == "removed":
            self._cluster.hosts.pop(name, None)
        else:
            pool, gpus = line.data["pool"], line.data["gpus"]
            if known and attempts and (known.pool, known.gpus) != (pool, gpus):
                self._find("host-in-use", f"host {name} changes its pool or GPUs while {_names(attempts)} hold some")
            host = Host(name, pool, gpus, state)
            if known:
                host.held, host.keys = known.held, known.keys
            self._cluster.hosts[name] = host
            pools.add(pool)
        for attempt in self._cluster.on(name):
            attempt.lost |= state == "lost"
            attempt.drained |= state == "draining"
        for pool in pools:
            self._cluster.touch(pool)
            if state != "ready":
                self._promises.excuse(pool)

    def _take_submitted(self, line: Line) -> None:
        workload = Workload.of(line.at, line.data)
        if workload.id in self._workloads or workload.id in self._ended:
            self._find("submitted-twice", f"workload {workload.id} was submitted before")
            return
        self._workloads[workload.id] = workload
        if workload.minimum and workload.budget is None:
            self._find("no-budget", f"workload {workload.id} has a minimum runtime and no budget")

    def _take_claimed(self, line: Line, workload: Workload) -> None:
        data, hosts = line.data, tuple(line.data["hosts"])
        self._promises.taken(data["pool"], workload, self._workloads, line.at)
        if not hosts or data.get("gpus", workload.gpus) != workload.gpus:
            self._find("gang", f"{workload.id} claims {data.get('gpus')} GPUs of {hosts}, asked for {workload.gpus}")
        each = workload.gpus // max(1, len(hosts))
        claim = Claim(workload.id, data["pool"], hosts, each, line.at)
        self._report(placed.gang(self._cluster, workload, data["pool"], dict.fromkeys(hosts, each)))
        if workload.claim:  # its victims were told to stop in lines just before
            claim.victims = workload.claim.victims
        workload.claim, workload.standing = claim, Standing.CLAIMING
        self._cluster.claims[workload.id] = claim
        if workload.minimum and workload.budget:
            self._ledger.promise(workload.id, claim.pool, workload.budget, workload.gpus * workload.minimum)
        self._report(
            self._judge.victims(workload, claim, [(name, number) for name, number in data["preempted"]], line.at)
        )
        self._report(placed.room(self._cluster, hosts))

    def _take_unclaimed(self, line: Line, workload: Workload) -> None:
        del line
        self._drop_claim(workload)
        workload.standing = Standing.WAITING

    def _take_started(self, line: Line, workload: Workload) -> None:
        data = line.data
        attempt = self._attempt(line, workload)
        if data["attempt"] != workload.attempts + 1:
            self._find("attempt-number", f"{workload.id} starts attempt {data['attempt']} after {workload.attempts}")
        if data["allocated"] != (workload.minimum > 0):
            self._find("allocated", f"{workload.id} has a minimum runtime of {workload.minimum} ms")
        if attempt.allocated and attempt.protected_until != line.at + workload.minimum:
            self._find("protection", f"{workload.id} is protected until {attempt.protected_until}, not for its minimum")
        budget = self._ledger.charged((workload.id, 0)) or workload.budget
        if budget and not self._ledger.known(budget):
            self._find("unknown-budget", f"{workload.id} starts for {budget}, which the tree in force lacks")
        if workload.standing is not Standing.CLAIMING:
            self._promises.taken(attempt.pool, workload, self._workloads, line.at)
        self._promises.close(workload.id)
        parts = {host: len(gpus) for host, gpus in attempt.placement.items()}
        self._report(placed.gang(self._cluster, workload, attempt.pool, parts))
        self._report(placed.free(self._cluster, attempt))
        self._report(self._judge.claim_kept(workload, attempt, [(name, number) for name, number in data["preempted"]]))
        self._drop_claim(workload)
        self._cluster.place(attempt)
        self._report(placed.room(self._cluster, attempt.placement))
        workload.attempts, workload.attempt, workload.standing = data["attempt"], attempt, Standing.RUNNING
        if attempt.allocated and budget:
            charge = (attempt.gpus, line.at, attempt.protected_until)
            self._ledger.start(attempt.key, attempt.pool, budget, charge)

    def _take_stopping(self, line: Line, workload: Workload) -> None:
        attempt = self._current(line, workload)
        if attempt:
            self._leave(line, workload, attempt)

    def _take_stopped(self, line: Line) -> None:
        workload = self._workload(line)
        if workload is None:
            return
        reason, waits = line.data["reason"], {Standing.WAITING, Standing.HELD, Standing.CLAIMING}
        if workload.standing in waits:
            if reason != "cancelled" or line.data["attempt"] not in {0, workload.attempts}:
                self._find("state", f"{workload.id} is {workload.standing}, and its attempt stops as {reason}")
            self._end(workload)
            return
        attempt = self._current(line, workload)
        if attempt is None:
            return
        if not attempt.leaving:
            self._leave(line, workload, attempt)
        self._cluster.free(attempt, line.at)
        if attempt.leaving and line.at > attempt.told + self._grace:
            self._promises.excuse(attempt.pool)
        self._count(attempt, closed=True)
        self._ledger.end(attempt.key, line.at)
        workload.ran += line.at - attempt.started
        workload.attempt, workload.last_reason, workload.standing = None, reason, Standing.STOPPED
        self._unsettled[workload.id] = workload
        self.counts["preemptions"] += reason == "preempted"

    def _take_requeued(self, line: Line, workload: Workload) -> None:
        if workload.returns is False:
            self._find("requeued", f"{workload.id} waits again though its attempt ended as {workload.last_reason}")
        workload.standing = Standing.HELD if line.data.get("held") else Standing.WAITING
        self._unsettled.pop(workload.id, None)

    def _take_refused(self, line: Line, workload: Workload) -> None:
        del line
        self._end(workload)

    def _take_held(self, line: Line, workload: Workload) -> None:
        self._drop_claim(workload)
        workload.standing = Standing.HELD if line.data["reason"] else Standing.WAITING

    def _take_checkpoint(self, line: Line, workload: Workload) -> None:
        self._current(line, workload)

    def _take_moved(self, line: Line, workload: Workload) -> None:
        workload.budget = line.data["budget"]
        self._promises.close(workload.id)
        if not self._ledger.known(workload.budget or ""):
            self._find("unknown-budget", f"{workload.id} is moved to {workload.budget}, which the tree in force lacks")

    def _take_reserved(self, line: Line, workload: Workload) -> None:
        unknown = [host for host in line.data["hosts"] if host not in self._cluster.hosts]
        if unknown:
            self._find("unknown-host", f"hosts {', '.join(unknown)} are kept for {workload.id} and not known")
        pools = {self._cluster.hosts[host].pool for host in line.data["hosts"] if host in self._cluster.hosts}
        pool = line.data.get("pool") or min(pools, default="")
        self._judge.kept[pool] = frozenset(line.data["hosts"])
        self._excuse_the_late(line.at)
        estimate = line.data.get("estimate", False)
        hosts, start = line.data["hosts"], line.data["start_ms"]
        late = self._promises.reserve(pool, workload, line.at, start, hosts, estimate=estimate)
        if late:
            self._find("reservation-later", late)

    # What several of them share

    def _excuse_the_late(self, now: int) -> None:
        """Reservations of a pool where an attempt takes longer than the grace period to leave may be put off."""
        for attempt in self._cluster.attempts.values():
            if attempt.leaving and now > attempt.told + self._grace:
                self._promises.excuse(attempt.pool)

    def _workload(self, line: Line) -> Workload | None:
        """The workload of a line, if the log has it in a state in which the line may come."""
        name = line.data["workload"]
        workload = self._workloads.get(name)
        if workload is None:
            if line.kind == "refused" and name not in self._ended:
                self._ended.add(name)
            else:
                what = "has ended" if name in self._ended else "was never submitted"
                self._find(
                    "state" if name in self._ended else "unknown-workload", f"{line.kind}: workload {name} {what}"
                )
            return None
        allowed = _WORK_STATES.get(line.kind)
        if allowed and workload.standing not in allowed:
            self._find("state", f"{line.kind}: workload {name} is {workload.standing}")
            return None
        return workload

    def _current(self, line: Line, workload: Workload) -> Attempt | None:
        """The running attempt that a line names."""
        number, attempt = line.data["attempt"], workload.attempt
        if attempt is None or attempt.key[1] != number:
            running = f"attempt {attempt.key[1]} runs" if attempt else "none runs"
            self._find("attempt-number", f"{line.kind}: attempt {number} of {workload.id} is named, and {running}")
            return None
        return attempt

    def _attempt(self, line: Line, workload: Workload) -> Attempt:
        data = line.data
        hosts = [self._cluster.hosts[name] for name in data["placement"] if name in self._cluster.hosts]
        pool = data.get("pool") or (hosts[0].pool if hosts else "")
        key = (workload.id, data["attempt"])
        return Attempt(key, pool, data["allocated"], data["placement"], line.at, data["protected_until_ms"])

    def _leave(self, line: Line, workload: Workload, attempt: Attempt) -> None:
        """An attempt is told to stop, or has ended: was that allowed?"""
        reason = line.data["reason"]
        self._report(self._judge.leaves(workload, attempt, reason, line.at))
        if reason == "preempted":
            self._preempted(line, attempt)
        if line.kind == "stopping":
            attempt.leaving, attempt.told = reason, line.at

    def _preempted(self, line: Line, attempt: Attempt) -> None:
        name = line.data.get("for") or ""
        beneficiary = self._workloads.get(name)
        if beneficiary and beneficiary.standing in {Standing.WAITING, Standing.CLAIMING}:
            self._report(self._judge.preempts(beneficiary, attempt, line.at))
        elif line.kind == "stopping" or (beneficiary is None and name not in self._ended):
            # by the time its victim is gone it may have ended too, or have lost its claim and started elsewhere
            self._find("preempted-for", f"{attempt.key[0]} is preempted for {name or 'nobody'}, which does not wait")

    def _drop_claim(self, workload: Workload) -> None:
        self._cluster.claims.pop(workload.id, None)
        self._ledger.release(workload.id)
        workload.claim = None

    def _end(self, workload: Workload) -> None:
        self._drop_claim(workload)
        self._promises.close(workload.id)
        self._workloads.pop(workload.id, None)
        self._ended.add(workload.id)

    def _settle(self) -> None:
        """Before time goes on: who must wait again does, claims whose GPUs are free are used, the lost have left."""
        for workload in self._unsettled.values():
            if workload.returns:
                self._find("not-requeued", f"{workload.id} ended as {workload.last_reason} and does not wait again")
            self._end(workload)
        self._unsettled.clear()
        self._report(self._judge.settled())
        self._excuse_the_late(self._now or 0)
        self._report(self._promises.missed(self._workloads, self._now or 0))

    def _count(self, attempt: Attempt, *, closed: bool = False) -> None:
        """Add an attempt's GPU-time to its program's (and to its pool's, unless that is done)."""
        now = self._now or 0
        if not closed:
            self._cluster.count(attempt, now)
        workload = self._workloads.get(attempt.key[0])
        budget = self._ledger.charged(attempt.key) or (workload.budget if workload else None)
        program = lineage(budget)[:2][-1] if budget else "(no budget)"
        kind = "allocated_gpu_ms" if attempt.allocated else "unallocated_gpu_ms"
        sums = self.by_program.setdefault(program, Counter(allocated_gpu_ms=0, unallocated_gpu_ms=0))
        sums[kind] += attempt.gpus * (now - attempt.started)

    def _find(self, rule: str, message: str) -> None:
        self.findings.append(Finding(self._number, rule, message))

    def _report(self, faults: Iterable[tuple[str, str]]) -> None:
        for rule, message in faults:
            self._find(rule, message)


def audit(lines: Iterable[bytes]) -> Auditor:
    """Audit a whole log; lines that are wrong become findings and are passed over."""
    auditor = Auditor()
    for line in read(lines):
        if isinstance(line, Finding):
            auditor.findings.append(line)
        else:
            auditor.take(line)
    auditor.finish()
    return auditor


def _names(attempts: Iterable[Attempt]) -> str:
    keys: list[Key] = [attempt.key for attempt in attempts]
    return ", ".join(f"{name}/{number}" for name, number in keys)
