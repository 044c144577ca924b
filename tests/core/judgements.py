"""Whether each decision was right when it was made: ``take`` judges those of one event, in order.

Each is judged by the brute-force ``Record`` as the decisions before it left it, and is written into it. The numbers in
messages are those of the invariants (DESIGN 4.6).
"""

from __future__ import annotations

from gpubudget.core.decisions import (
    BudgetsChanged,
    Claim,
    Decision,
    Hold,
    HostChanged,
    Refuse,
    Requeue,
    Reserve,
    Start,
    Stop,
    Stopped,
    Unclaim,
)
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    Cordoned,
    DrainRequested,
    Event,
    Exited,
    HostLost,
    HostReported,
    Outcome,
    RepairEnded,
    RepairStarted,
    RequeueRequested,
    Submitted,
    Uncordoned,
)
from gpubudget.core.host import TRANSITIONS, HostState
from gpubudget.core.views import ReservationView
from gpubudget.core.workload import StopReason, WorkloadState
from gpubudget.units import DAY
from tests.core.oracles import WAITING, Job, Machine, Record, Run, cost

_S = WorkloadState
_PUT_BACK = {StopReason.DRAINED, StopReason.HOST_LOST, StopReason.FORCED}


def take(record: Record, event: Event, decisions: list[Decision], now: int) -> None:
    """Judge the decisions of one event in order, and let the record know them."""
    record.take_event(event, now)
    back: set[str] = set()  # who must wait again before this event is over
    for decision in claims_first(decisions):
        assert decision.cause == event
        match decision:
            case Start():
                _start(record, decision, now)
            case Claim():
                _claim(record, decision, now)
            case Stop():
                _stop(record, event, decision, now)
            case Stopped():
                _stopped(record, event, decision, now, back)
            case HostChanged():
                _host(record, decision, event, now)
            case Reserve():
                _reserve(record, decision, now)
            case BudgetsChanged():
                pass
            case _:
                _waits(record, decision, back)
    if isinstance(event, Cancelled) and (run := record.jobs[event.workload].run) and run.live:
        run.stopping = StopReason.CANCELLED  # it was leaving already, and will not be back
    _carried_out(record, event)
    if isinstance(event, BudgetsApplied):
        assert any(isinstance(decision, BudgetsChanged) for decision in decisions)
    assert not back, f"{back} neither wait again nor have ended"
    for claim in record.claims():
        leaving = any(run.stopping for host in claim.hosts for run in record.live(host))
        waits = leaving or any(victim.live for victim in claim.victims)
        assert waits, f"3: the GPUs kept for {claim.workload} are free and it does not start"


def _carried_out(record: Record, event: Event) -> None:
    """The event has had its effect: what a person or a host says is not passed over in silence."""
    match event:
        case Submitted(spec):
            assert spec.id in record.jobs
        case Cancelled(workload):
            run = record.jobs[workload].run
            assert record.jobs[workload].state is _S.CANCELLED or (run and run.stopping is StopReason.CANCELLED)
        case RequeueRequested(workload):
            run = record.jobs[workload].run
            assert run
            assert run.told == record.now  # for this, or for what was due at the same moment
            assert run.stopping
        case Exited(workload, attempt):
            assert not any(run.key == (workload, attempt) and run.live for run in record.runs)
        case HostReported(host):
            assert record.machines[host].state is not HostState.LOST
        case HostLost(host):
            assert record.machines[host].state is HostState.LOST
        case DrainRequested(host):
            assert record.machines[host].state in {HostState.DRAINING, HostState.DRAINED}
        case Cordoned(host):
            assert record.machines[host].state is HostState.CORDONED
        case Uncordoned(host):
            assert record.machines[host].state is HostState.READY
        case RepairStarted(host):
            assert record.machines[host].state is HostState.REPAIRING
        case RepairEnded(host, healthy):
            assert record.machines[host].state is (HostState.READY if healthy else HostState.DRAINED)
        case _:
            pass


def claims_first(decisions: list[Decision]) -> list[Decision]:
    """The decisions, with each claim before the stops that are made for it."""
    found: list[Decision] = []
    for decision in decisions:
        if isinstance(decision, Claim):
            first = [i for i, d in enumerate(found) if isinstance(d, Stop) and d.beneficiary == decision.workload]
            found.insert(first[0] if first else len(found), decision)
        else:
            found.append(decision)
    return found


def _waits(record: Record, decision: Requeue | Hold | Refuse | Unclaim, back: set[str]) -> None:
    """A workload waits, or waits no more."""
    job = record.jobs[decision.workload]
    match decision:
        case Requeue(workload, _, held):
            assert workload in back, f"{workload} waits again without a cause"
            back.remove(workload)
            job.state, job.held = _S.HELD if held else _S.PENDING, held
        case Hold(workload, reason):
            assert job.state in (WAITING if reason else {_S.HELD}), workload
            assert reason != job.held, f"{workload} is told the same again: {reason}"
            job.held = reason
            job.state = _S.HELD if reason else _S.PENDING
        case Refuse(workload, reason):
            assert job.state in WAITING
            assert reason
            assert not record.fits_somewhere(job.spec), f"10: {workload} could fit: {reason}"
            job.state = _S.REFUSED
        case Unclaim():
            _withdraw(job)


def _reserve(record: Record, reserve: Reserve, now: int) -> None:
    job = record.jobs[reserve.workload]
    assert job.state is _S.PENDING
    assert job.spec.allocated
    assert reserve.start >= now
    assert reserve.pool in job.spec.pools
    assert all(record.machines[host].pool == reserve.pool for host in reserve.hosts)
    record.reserved[reserve.pool] = ReservationView(
        reserve.pool, reserve.workload, reserve.start, reserve.hosts, reserve.estimate
    )


def _start(record: Record, start: Start, now: int) -> None:
    job = record.jobs[start.workload]
    spec, run = job.spec, job.run
    if run is None:
        assert job.state is _S.PENDING
        assert start.preempted == ()
        _best_ranked(record, job, start.pool, {host: len(gpus) for host, gpus in start.placement}, now)
        run = Run(spec.id, start.pool, job.budget, spec.gpus, spec.min_runtime, {})
        record.runs.append(run)
    else:
        assert job.state is _S.STARTING
        assert run.pool == start.pool
        assert set(run.hosts) == {host for host, _ in start.placement}, "3: it starts elsewhere than it claimed"
        assert not any(victim.live for victim in run.victims), "1: it starts while a victim holds GPUs"
        assert set(start.preempted) == {victim.key for victim in run.victims}
    run.hosts = {host: len(gpus) for host, gpus in start.placement}
    run.placement = dict(start.placement)
    _gang(record, job, run)
    for host, gpus in start.placement:
        machine = record.machines[host]
        assert len(set(gpus)) == len(gpus)
        assert all(0 <= gpu < machine.gpus for gpu in gpus)
        for other in record.live(host):
            both = set(gpus) & set(other.placement[host])
            assert not both, f"1: GPUs {both} of {host} are held by {other.key} and go to {spec.id}"
    assert start.attempt == job.attempts + 1
    assert start.allocated == spec.allocated
    assert start.protected_until == now + spec.min_runtime
    if spec.max_runtime is None:
        assert start.ends_by is None
    else:
        assert start.ends_by is not None
        assert now < start.ends_by <= now + spec.max_runtime
    if start.lane and record.tree and record.tree.policy.debug is None:
        assert run.claimed is not None, f"{spec.id} starts in a lane that is not there"  # what was promised is kept
    elif start.lane:
        _in_the_lane(record, job, start.pool, now if run.claimed is None else run.claimed)
    elif spec.allocated and run.claimed is None:  # the lane may have moved after a claim was made
        for host in run.hosts:
            stay = (other for other in record.live(host) if other.allocated and not other.lane and not other.stopping)
            used = sum(other.hosts[host] for other in stay)
            room = record.machines[host].gpus - record.lanes.get(host, 0)
            assert used + run.hosts[host] <= room, f"{spec.id} has GPUs of the debug lane of {host}"
    run.attempt, run.started, run.lane, run.ends_by = start.attempt, now, start.lane, start.ends_by
    run.protected_until = start.protected_until
    job.attempts, job.run, job.state = start.attempt, run, _S.RUNNING
    for host in run.hosts:
        assert record.room(host) >= 0, f"3: GPUs of {host} that are kept for another go to {spec.id}"


def _in_the_lane(record: Record, job: Job, pool: str, decided: int) -> None:
    """Only small and short workloads, so many at once for each person, so much within a day before ``decided``."""
    assert record.tree
    lane = record.tree.policy.debug
    assert lane
    assert job.spec.debug
    assert job.spec.gpus <= lane.max_gpus
    assert job.spec.max_runtime is not None
    assert job.spec.max_runtime <= lane.max_runtime
    runs = [run for run in record.live() if run.lane and run.pool == pool]
    others = [run for run in runs if record.jobs[run.workload].spec.owner == job.spec.owner]
    assert len(others) < lane.per_person, f"{job.spec.owner} has {len(others)} in the lane and starts {job.spec.id}"
    used = sum(
        run.gpus * max(0, min(decided, decided if run.ended is None else run.ended) - max(run.started, decided - DAY))
        for run in record.runs
        if run.lane
        and run.pool == pool
        and run.started is not None
        and record.jobs[run.workload].spec.owner == job.spec.owner
    )
    assert used < lane.allowance, f"{job.spec.owner} has had {used} GPU-ms of the lane and starts {job.spec.id}"


def _best_ranked(record: Record, job: Job, pool: str, hosts: dict[str, int], now: int) -> None:
    """Nobody who ranks better waits and fits where this workload goes.

    A debug lane may forbid it, or a reservation for one who ranks better still.
    """
    assert record.tree
    kept = record.reserved.get(pool)
    if record.tree.policy.debug:
        return
    for name in record.ranking(pool, now):
        if name == job.spec.id:
            return
        parts = record.part(record.jobs[name].spec, pool)
        assert not parts or parts[0] > len(hosts) or parts[1] > max(hosts.values()), f"{job.spec.id} goes before {name}"
        if kept and kept.workload == name:
            return
    raise AssertionError(f"{job.spec.id} is not ranked in {pool}")


def _gang(record: Record, job: Job, run: Run) -> None:
    """1: the gang is whole, in equal parts, on ready hosts of one pool that it named."""
    assert run.pool in job.spec.pools
    assert sum(run.hosts.values()) == job.spec.gpus, "1: half a gang"
    assert len(set(run.hosts.values())) == 1, "1: an uneven gang"
    for host in run.hosts:
        machine = record.machines[host]
        assert machine.state is HostState.READY, f"1: {host} is {machine.state}"
        assert machine.pool == run.pool
    if job.spec.hosts is not None:
        assert len(run.hosts) == job.spec.hosts
    elif any(m.pool == run.pool and m.gpus >= job.spec.gpus for m in record.machines.values()):
        assert len(run.hosts) == 1


def _claim(record: Record, claim: Claim, now: int) -> None:
    job = record.jobs[claim.workload]
    spec = job.spec
    assert job.state is _S.PENDING
    assert spec.gpus % len(claim.hosts) == 0
    hosts = dict.fromkeys(claim.hosts, spec.gpus // len(claim.hosts))
    run = Run(spec.id, claim.pool, job.budget, spec.gpus, spec.min_runtime, hosts, claimed=now)
    _gang(record, job, run)
    live = {other.key: other for other in record.live()}
    victims = [live[key] for key in claim.preempted]
    for victim in victims:
        assert not victim.stopping
        assert not record.is_victim(victim), "a victim is stopped for two workloads"
        inside = spec.debug and not victim.allocated
        legal = inside or record.legal_victim(job, victim, claim.pool, now)
        assert legal, f"3: {victim.key} may not be stopped for {spec.id}"
        assert set(victim.hosts) & set(hosts), f"3: {victim.key} is on none of the hosts of {spec.id}"
    _minimal(record, run, victims)
    _cheapest(record, job, claim, victims, now)
    run.victims = victims
    record.runs.append(run)
    job.run, job.state = run, _S.STARTING
    for host in hosts:
        assert record.room(host) >= 0, f"3: {host} cannot hold what is promised on it"


def _minimal(record: Record, run: Run, victims: list[Run]) -> None:
    """3: the set is enough, and none can be left out."""
    assert record.tree
    lane = record.tree.policy.debug.gpus if record.tree.policy.debug else 0
    keys = frozenset(victim.key for victim in victims)
    for host, each in run.hosts.items():
        assert record.room(host, keys) >= each, f"3: {run.workload} cannot have {each} GPUs of {host}"
    for victim in victims:
        rest = keys - {victim.key}
        spare = all(record.room(host, rest) - lane >= each for host, each in run.hosts.items())
        assert not spare, f"3: {victim.key} need not be stopped for {run.workload}"


def _cheapest(record: Record, job: Job, claim: Claim, victims: list[Run], now: int) -> None:
    """For a request on one host no set of victims is cheaper, but where hosts are kept for a reservation."""
    assert record.tree
    if len(claim.hosts) != 1 or record.tree.policy.debug:
        return
    kept = record.reserved.get(claim.pool)
    least = record.cheapest(job, claim.pool, now)
    others = record.cheapest(job, claim.pool, now, kept.hosts if kept and kept.workload != job.spec.id else ())
    paid = cost(victims, now)
    assert least is not None
    assert least <= paid
    assert others is None or paid <= others, f"victims of {job.spec.id} cost {paid}, the least is {others}"


def _stop(record: Record, event: Event, stop: Stop, now: int) -> None:
    job = record.jobs[stop.workload]
    run = job.run
    assert run is not None
    assert run.live
    assert run.attempt == stop.attempt
    if run.stopping:
        assert stop.reason in {StopReason.CANCELLED, StopReason.HOST_LOST}, "told to stop twice"
    match stop.reason:
        case StopReason.PREEMPTED:
            claim = record.jobs[stop.beneficiary or ""].run
            assert claim is not None
            assert run in claim.victims, f"3: {run.key} is preempted, and nobody claimed its GPUs"
        case StopReason.DRAINED:
            assert any(record.machines[host].state is HostState.DRAINING for host in run.hosts)
        case StopReason.LIMIT:
            assert run.ends_by is not None
            assert now >= run.ends_by
        case StopReason.CANCELLED:
            assert isinstance(event, Cancelled)
            assert event.workload == stop.workload
        case StopReason.FORCED:
            assert isinstance(event, RequeueRequested)
            assert event.workload == stop.workload
        case StopReason.HOST_LOST:
            assert any(record.machines[host].state is HostState.LOST for host in run.hosts)
        case _:
            raise AssertionError(stop)
    if run.allocated and stop.reason in {StopReason.PREEMPTED, StopReason.DRAINED}:
        assert now >= run.protected_until, f"2: {run.key} is stopped before its minimum runtime"
    run.stopping, run.told, job.state = stop.reason, now, _S.STOPPING


def _stopped(record: Record, event: Event, stopped: Stopped, now: int, back: set[str]) -> None:
    job, reason = record.jobs[stopped.workload], stopped.reason
    run = job.run
    if run is None or not run.live:
        assert reason is StopReason.CANCELLED
        assert stopped.attempt in {0, job.attempts}
        assert isinstance(event, Cancelled)
        _withdraw(job)
        job.state = _S.CANCELLED
        return
    assert run.attempt == stopped.attempt
    told = {StopReason.LIMIT: StopReason.FINISHED, None: StopReason.FAILED}.get(run.stopping, run.stopping)
    match event:
        case Exited(_, _, Outcome.FINISHED):
            assert reason is StopReason.FINISHED
        case Exited(_, _, Outcome.FAILED):
            assert reason is StopReason.FAILED
        case Exited(_, _, Outcome.STOPPED):
            assert reason is told
        case HostLost(host):
            assert host in run.hosts
            assert reason in {StopReason.HOST_LOST, told}
        case _:
            raise AssertionError(stopped)
    assert record.jobs[stopped.workload].state in {_S.RUNNING, _S.STOPPING}
    run.ended, job.run = now, None
    job.failures += reason is StopReason.FAILED
    job.preemptions += reason is StopReason.PREEMPTED
    if reason is StopReason.FAILED and run.victims:
        job.failed_after_preempting = True
    job.used += now - (run.started or 0)
    over = job.spec.max_runtime is not None and job.used >= job.spec.max_runtime
    again = not over and (
        reason in _PUT_BACK
        or (reason is StopReason.PREEMPTED and job.spec.resumable)
        or (reason is StopReason.FAILED and job.failures <= job.spec.retries)
    )
    if again:
        back.add(stopped.workload)
    else:
        ends = {
            StopReason.FINISHED: _S.FINISHED,
            StopReason.CANCELLED: _S.CANCELLED,
            StopReason.PREEMPTED: _S.PREEMPTED,
        }
        job.state = ends.get(reason, _S.FAILED)


def _withdraw(job: Job) -> None:
    if job.run and job.run.started is None:
        assert job.state is _S.STARTING
        job.run.withdrawn, job.run, job.state = True, None, _S.PENDING


def _host(record: Record, change: HostChanged, event: Event, now: int) -> None:
    machine = record.machines.get(change.host)
    if machine is None:
        assert isinstance(event, HostReported)
        record.machines[change.host] = Machine(change.pool, change.gpus, change.state, now)
        return
    if change.state is not machine.state:
        assert change.state in TRANSITIONS[machine.state], f"{change.host}: {machine.state} to {change.state}"
    if change.state in {HostState.DRAINED, HostState.REPAIRING}:
        assert not record.live(change.host), f"9: {change.host} is {change.state} and not empty"
    assert (machine.pool, machine.gpus) == (change.pool, change.gpus) or not record.live(change.host)
    machine.pool, machine.gpus, machine.state, machine.since = change.pool, change.gpus, change.state, now
