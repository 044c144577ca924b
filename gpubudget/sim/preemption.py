"""Whether a stop was right: protection, the rank of budgets where their paths part, and that no victim was needless.

A log without lines for claims and for stops under way does not tell when a preemption was decided, only when its
victims were gone: then protection is judged, and rank and the choice of victims are not.

Each question returns (rule, sentence) pairs and changes nothing but the list of victims of a claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpubudget.sim.ledger import Key, Ledger, Standing
from gpubudget.sim.replay import Attempt, Claim, Cluster, Host, Workload

Fault = tuple[str, str]


class Judge:
    """Judges stops and claims by what the log has told so far."""

    def __init__(self, cluster: Cluster, ledger: Ledger, workloads: dict[str, Workload]) -> None:
        self.detailed = False  # whether the log has lines for claims and for stops under way
        self.lane = 0  # GPUs of the debug lane, which the log does not place
        self.kept: dict[str, frozenset[str]] = {}  # hosts of the last reservation of each pool
        self._cluster = cluster
        self._ledger = ledger
        self._workloads = workloads

    def leaves(self, workload: Workload, attempt: Attempt, reason: str, now: int) -> Iterator[Fault]:
        """Whether the scheduler may stop the attempt for this reason now."""
        if reason in {"preempted", "drained"} and attempt.allocated and now < attempt.protected_until:
            yield "protected", f"{workload.id} is {reason} at {now}, protected until {attempt.protected_until}"
        if reason == "drained" and not attempt.drained:
            yield "drained", f"{workload.id} is drained, and no host of it is draining"
        if reason == "host_lost" and not attempt.lost:
            yield "host-lost", f"{workload.id} stops for a lost host, and none of its hosts was lost"
        limit, ran = workload.asked.get("max_runtime_ms"), workload.ran + now - attempt.started
        if reason == "limit" and (limit is None or ran < limit):
            yield "limit", f"{workload.id} stops at its longest run time, {limit}, after it ran {ran}"

    def preempts(self, requester: Workload, victim: Attempt, now: int) -> Iterator[Fault]:
        """Whether the workload may have this attempt stopped; a victim already judged is not judged again."""
        if requester.claim is None:
            requester.claim = Claim(requester.id, victim.pool, (), 0, now)
        if victim.key in requester.claim.victims:
            return
        if requester.claim.hosts:
            yield "preempted-for", f"{_name(victim.key)} is preempted for {requester.id}, whose claim does not name it"
        requester.claim.victims[victim.key] = frozenset(victim.placement)
        yield from self._right(requester, victim, now)

    def victims(self, requester: Workload, claim: Claim, named: list[Key], now: int) -> Iterator[Fault]:
        """Whether a claim's victims are right, one by one and as a set."""
        for key in named:
            victim = self._cluster.attempts.get(key)
            if victim is None:
                yield "victim", f"{requester.id} claims the GPUs of {_name(key)}, which does not run"
                continue
            if victim.leaving and key not in claim.victims:
                yield "needless-victim", f"{_name(key)} was already leaving when {requester.id} claimed its GPUs"
            if key not in claim.victims:
                claim.victims[key] = frozenset(victim.placement)
                yield from self._right(requester, victim, now)
        yield from self._set(requester, claim)

    def claim_kept(self, workload: Workload, attempt: Attempt, named: list[Key]) -> Iterator[Fault]:
        """Whether a start uses what was claimed for it, and every victim made way for it."""
        claim = workload.claim
        victims = claim.victims if claim else {}
        hosts, wanted = set(attempt.placement), set(claim.hosts if claim else ())
        if self.detailed and set(named) != set(victims):
            yield "victims", f"{workload.id} starts after {_names(named)} made way, but {_names(victims)} were stopped"
        if wanted and wanted != hosts:
            yield "claim", f"{workload.id} claimed {', '.join(sorted(wanted))} and starts on {', '.join(sorted(hosts))}"
        for key in named:
            if key in self._cluster.attempts:
                yield "victims", f"{workload.id} starts while its victim {_name(key)} still holds GPUs"
            elif key in victims and not victims[key] & hosts:
                yield "needless-victim", f"{_name(key)} was stopped for {workload.id}, which runs on none of its hosts"

    def settled(self) -> Iterator[Fault]:
        """What must be true before time goes on."""
        for claim in list(self._cluster.claims.values()):
            leaving = any(attempt.leaving for host in claim.hosts for attempt in self._cluster.on(host))
            if not leaving and not any(key in self._cluster.attempts for key in claim.victims):
                yield "claim", f"all GPUs that {claim.workload} claimed are free, and it does not start"
                del self._cluster.claims[claim.workload]  # said once
        for host in self._cluster.hosts.values():
            for attempt in self._cluster.on(host.name) if host.state == "lost" else ():
                if not attempt.leaving and (self.detailed or all(map(self._is_lost, attempt.placement))):
                    yield "host-lost", f"{_name(attempt.key)} still runs on {host.name}, which is lost"
                    attempt.leaving = "host_lost"

    def _right(self, requester: Workload, victim: Attempt, now: int) -> Iterator[Fault]:
        """The right of one workload to one attempt's GPUs."""
        pool, who = victim.pool, f"{requester.id} preempts {_name(victim.key)}"
        if requester.asked.get("debug") and not victim.allocated:
            return
        if not requester.minimum or requester.budget is None:
            yield "no-right", f"{who}, but it is unallocated itself"
            return
        if self.detailed and not self._ledger.funded(pool, requester.budget):
            yield "no-right", f"{who}, but {requester.budget} has a share of zero"
            return
        if not victim.allocated:
            return
        if now < victim.protected_until:
            yield "protected", f"{who} at {now}, which is protected until {victim.protected_until}"
        other = self._ledger.charged(victim.key)
        if other is None or other == requester.budget:
            yield "no-right", f"{who} inside one budget"
            return
        if not self.detailed:
            return
        ours, theirs = self._standings(requester, requester.budget, pool, other, now)
        if not ours.better(theirs):
            left = f"{ours.path} would have {ours.usage} GPU-ms for a share of {ours.share}"
            yield "no-right", f"{who}, but {left}, and {theirs.path} has {theirs.usage} for {theirs.share}"

    def outranked(self, workload: Workload, pool: str, hosts: Iterable[str], now: int, by: int) -> bool:
        """Whether work on one of the hosts, past its minimum ``by`` then, ranks no lower than the workload by now."""
        for attempt in {attempt.key: attempt for host in hosts for attempt in self._cluster.on(host)}.values():
            other = self._ledger.charged(attempt.key)
            if attempt.leaving or not attempt.allocated or by < attempt.protected_until:
                continue
            if other is None or workload.budget is None:
                continue
            if other == workload.budget:
                return True
            ours, theirs = self._standings(workload, workload.budget, pool, other, now)
            if not ours.better(theirs):
                return True
        return False

    def _standings(self, workload: Workload, budget: str, pool: str, other: str, now: int) -> tuple[Standing, Standing]:
        """How a workload's budget, once it is charged, and another one stand where their paths part."""
        ours, theirs = self._ledger.standings(pool, budget, other, now)
        charged = self._ledger.charged((workload.id, 0)) is not None
        extra = 0 if charged else workload.gpus * workload.minimum
        return Standing(ours.path, ours.share, ours.usage + extra), theirs

    def _set(self, requester: Workload, claim: Claim) -> Iterator[Fault]:
        """Whether a claim has enough, and none of its victims could have been spared."""
        for host in claim.hosts:
            if self._cluster.room(host, requester.id) < claim.each:
                yield "claim", f"{requester.id} claims {claim.each} GPUs of {host}, where not so many can come free"
        for key, hosts in claim.victims.items():
            if all(self._enough(host, claim, spared=key) for host in claim.hosts if host in hosts):
                yield "needless-victim", f"{requester.id} has enough GPUs without {_name(key)}"
        attempts = [self._cluster.attempts[key] for key in claim.victims if key in self._cluster.attempts]
        allocated = [attempt.key for attempt in attempts if attempt.allocated]
        if allocated and len(claim.hosts) == 1:
            ready = (host for host in self._cluster.hosts.values() if host.pool == claim.pool and host.state == "ready")
            enough = next((host.name for host in ready if self._unallocated_enough(host, claim)), "")
            if enough:
                names = _names(allocated)
                yield "needless-victim", f"{requester.id} takes {names} though unallocated work on {enough} is enough"

    def _unallocated_enough(self, host: Host, claim: Claim) -> bool:
        """Whether a host surely has enough if all unallocated attempts leave and the claim takes no other."""
        on = self._cluster.on(host.name)
        if sum(len(a.placement[host.name]) for a in on if a.allocated and not a.leaving) + claim.each > host.gpus:
            return False
        leave = sum(
            len(a.placement[host.name]) for a in on if not a.allocated and not a.leaving and a.key not in claim.victims
        )
        stay = sum(len(a.placement[host.name]) for a in on if a.allocated and a.key in claim.victims)
        return self._enough(host.name, claim, more=leave - stay)

    def _enough(self, host: str, claim: Claim, *, spared: Key | None = None, more: int = 0) -> bool:
        """Whether a host surely has enough for the claim: not where a reservation or the debug lane may forbid it."""
        if host in self.kept.get(claim.pool, ()):
            return False
        return self._cluster.room(host, claim.workload, spared) + more - self.lane >= claim.each

    def _is_lost(self, name: str) -> bool:
        return name in self._cluster.hosts and self._cluster.hosts[name].state == "lost"


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]}"


def _names(keys: Iterable[Key]) -> str:
    return ", ".join(_name(key) for key in sorted(keys)) or "nobody"
