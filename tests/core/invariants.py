"""The invariants of the scheduler (DESIGN 4.6, numbered as there), checked against the brute-force ``Record``.

``take`` judges the decisions of one event, one by one, and writes them into the record; ``hold`` compares what the
scheduler shows of itself with the record; ``nobody_is_overlooked`` looks for a start that was missed.
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
from gpubudget.core.events import Cancelled, Event, Exited, HostLost, HostReported, Outcome, RequeueRequested
from gpubudget.core.host import TRANSITIONS, HostState
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.views import ReservationView
from gpubudget.core.workload import ENDED, StopReason, WorkloadSpec, WorkloadState
from tests.core.oracles import WAITING, Job, Machine, Record, Run, cost

_S = WorkloadState
_PUT_BACK = {StopReason.DRAINED, StopReason.HOST_LOST, StopReason.FORCED}


def take(record: Record, event: Event, decisions: list[Decision], now: int) -> None:
    """Judge the decisions of one event in order, and let the record know them."""
    record.take_event(event, now)
    if isinstance(event, Cancelled) and (run := record.jobs[event.workload].run) and run.stopping:
        run.stopping = StopReason.CANCELLED  # it was leaving already, and will not be back
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
    assert not back, f"{back} neither wait again nor have ended"
    for claim in record.claims():
        leaving = any(run.stopping for host in claim.hosts for run in record.live(host))
        waits = leaving or any(victim.live for victim in claim.victims)
        assert waits, f"3: the GPUs kept for {claim.workload} are free and it does not start"


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
            job.state = _S.HELD if held else _S.PENDING
        case Hold(workload, reason):
            assert job.state is (_S.PENDING if reason else _S.HELD), workload
            job.state = _S.HELD if reason else _S.PENDING
        case Refuse(workload, reason):
            assert job.state in WAITING
            assert reason
            assert not must_be_accepted(record, job.spec), f"10: {workload} could fit: {reason}"
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
    record.reserved.setdefault(
        reserve.pool, ReservationView(reserve.pool, reserve.workload, reserve.start, reserve.hosts, reserve.estimate)
    )


def _start(record: Record, start: Start, now: int) -> None:
    job = record.jobs[start.workload]
    spec, run = job.spec, job.run
    if run is None:
        assert job.state is _S.PENDING
        assert start.preempted == ()
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
    assert not start.lane or (spec.debug and record.tree and record.tree.policy.debug)
    run.attempt, run.started, run.lane, run.ends_by = start.attempt, now, start.lane, start.ends_by
    run.protected_until = start.protected_until
    job.attempts, job.run, job.state = start.attempt, run, _S.RUNNING
    for host in run.hosts:
        assert record.room(host) >= 0, f"3: GPUs of {host} that are kept for another go to {spec.id}"


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
    """For a request on one host no set of victims is cheaper (a debug lane or reservations may forbid cheaper ones)."""
    assert record.tree
    if len(claim.hosts) == 1 and not record.tree.policy.debug and claim.pool not in record.reserved:
        least = record.cheapest(job, claim.pool, now)
        assert least == cost(victims, now), f"victims of {job.spec.id} cost {cost(victims, now)}, the least is {least}"


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
    run.stopping, run.beneficiary, job.state = stop.reason, stop.beneficiary, _S.STOPPING


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
    told = StopReason.FINISHED if run.stopping is StopReason.LIMIT else run.stopping
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


def hold(record: Record, scheduler: Scheduler, now: int) -> None:
    """Everything that must be true between two events."""
    for host, machine in record.machines.items():
        _host_is_sound(record, host, machine, now)
    for run in record.live():
        assert run.stopping or run.ends_by is None or run.ends_by > now, f"{run.key} is over its longest run time"
    for job in record.jobs.values():
        if job.state is _S.PENDING and job.budget is not None:
            assert job.budget in record.budget_paths(), f"{job.spec.id} is ranked in a budget that is gone"
        if job.state is _S.HELD and must_be_accepted(record, job.spec):
            assert job.budget not in record.budget_paths() | {None}, f"10: {job.spec.id} is held for nothing"
    wakeup = scheduler.next_wakeup()
    assert wakeup is None or wakeup > now
    usage_is_that_of_the_brute_force(record, scheduler, now)
    ranks_are_those_of_the_brute_force(record, scheduler, now)
    views_are_right(record, scheduler)
    capacity_is_accounted_for(record, scheduler, now)
    record.reserved = {view.pool: view for view in scheduler.reservations()}
    free_gpus_are_used(record, now)


def _host_is_sound(record: Record, host: str, machine: Machine, now: int) -> None:
    held = [gpu for run in record.live(host) for gpu in run.placement[host]]
    assert len(held) == len(set(held)) <= machine.gpus, f"1: {host}"
    assert record.room(host) >= 0
    for run in record.live(host):
        if machine.state is HostState.DRAINING and not run.stopping:
            assert run.protected_until > now, f"9: {run.key} stays on {host}, which drains"
        if machine.state is HostState.LOST:
            assert run.stopping, f"{run.key} runs on {host}, which is lost"


def usage_is_that_of_the_brute_force(record: Record, scheduler: Scheduler, now: int) -> None:
    """6: exact, for every budget and pool."""
    own: dict[str, dict[str, int]] = {}
    for view in scheduler.budgets(now):
        if view.pool not in own:
            own[view.pool] = record.own_usage(view.pool, now)
        used = record.total(own[view.pool], view.path)
        assert view.usage == used, f"6: usage of {view.path} in {view.pool} is {view.usage}, by brute force {used}"
        assert view.balance == view.entitlement - view.usage
        assert view.share == record.share(view.path, view.pool)
        budget = record.tree.find(view.path) if record.tree else None
        if budget and budget.children:
            assert view.reserve == record.reserve(view.path, view.pool)


def ranks_are_those_of_the_brute_force(record: Record, scheduler: Scheduler, now: int) -> None:
    """Workloads wait in the order of their budgets' usage over share, at every level."""
    assert record.tree
    for pool in record.tree.pools:
        ours, theirs = record.ranking(pool.name, now), scheduler.ranking(pool.name, now)
        if record.tree.policy.debug:  # which very large ones could fit depends on the hosts that have the lane
            unsure = set(theirs) ^ set(ours)
            ours, theirs = ([name for name in names if name not in unsure] for names in (ours, theirs))
        assert theirs == ours, f"ranks in {pool.name}: {theirs}, by brute force {ours}"


def views_are_right(record: Record, scheduler: Scheduler) -> None:
    """What is shown of workloads and hosts is what was decided."""
    assert {view.name: (view.pool, view.gpus, view.state) for view in scheduler.hosts()} == {
        name: (machine.pool, machine.gpus, machine.state) for name, machine in record.machines.items()
    }
    shown = {view.spec.id: view for view in scheduler.workloads()}
    jobs = {name: job for name, job in record.jobs.items() if job.state not in ENDED}
    assert shown.keys() == jobs.keys()
    for name, job in jobs.items():
        view = shown[name]
        assert (view.state, view.attempts, view.failures, view.preemptions, view.submitted, view.spec.budget) == (
            job.state,
            job.attempts,
            job.failures,
            job.preemptions,
            job.submitted,
            job.budget,
        ), name
        if job.run and job.run.live:
            assert view.attempt
            assert dict(view.attempt.placement) == job.run.placement
            assert view.attempt.protected_until == job.run.protected_until


def capacity_is_accounted_for(record: Record, scheduler: Scheduler, now: int) -> None:
    """5: for every pool, capacity x time = allocated + unallocated + idle + unavailable, exactly."""
    for view in scheduler.pools(now):
        parts = view.allocated_time + view.unallocated_time + view.idle_time + view.unavailable_time
        assert view.capacity_time == parts, f"5: {view}"
        assert view.capacity_time == record.capacity.get(view.name, 0), f"5: capacity of {view}"
        assert view.idle_time >= 0
        for allocated, time in ((True, view.allocated_time), (False, view.unallocated_time)):
            runs = [run for run in record.runs if run.pool == view.name and run.allocated == allocated]
            spent = sum(
                r.gpus * ((now if r.ended is None else r.ended) - r.started) for r in runs if r.started is not None
            )
            assert time == spent, f"5: allocated={allocated} time of {view.name} is {time}, the sum of attempts {spent}"


def free_gpus_are_used(record: Record, now: int) -> None:
    """No workload waits that fits the free GPUs, unless they are kept for a reservation."""
    assert record.tree
    del now
    if record.tree.policy.debug:
        return
    free: dict[str, list[int]] = {}
    for host, machine in record.machines.items():
        if machine.state is HostState.READY:
            free.setdefault(machine.pool, []).append(record.free(host))
    for job in record.jobs.values():
        if not job.waiting:
            continue
        for pool in job.spec.pools:
            kept = record.reserved.get(pool)
            if kept and kept.workload != job.spec.id:
                continue
            parts = record.part(job.spec, pool)
            if parts:
                fits = sum(count >= parts[1] for count in free.get(pool, [])) >= parts[0]
                assert not fits, f"{job.spec.id} waits though {parts} GPUs are free in {pool}: {free[pool]}"


def nobody_is_overlooked(record: Record, scheduler: Scheduler, now: int) -> None:
    """After a full pass the best-ranked workload of a pool cannot preempt, else it would have."""
    assert record.tree
    if record.tree.policy.debug:
        return
    for pool in record.tree.pools:
        first = next(iter(scheduler.ranking(pool.name, now)), None)
        job = record.jobs[first] if first else None
        if not job or not job.spec.allocated or job.failed_after_preempting or len(job.spec.pools) > 1:
            continue
        parts = record.part(job.spec, pool.name)
        if parts and parts[0] == 1:
            least = record.cheapest(job, pool.name, now)
            assert least is None or least[1] + least[3] == 0, f"{first} waits, and victims for {least} are there"
        elif parts and parts[0] > 1 and not record.gang_has_room(job, pool.name, parts[0]):
            assert not record.gang_has_victims(job, pool.name, parts[0], now), (
                f"the gang {first} waits, and has victims"
            )


def must_be_accepted(record: Record, spec: WorkloadSpec) -> bool:
    """Whether a workload fits a pool."""
    return any(record.could_fit(spec, pool) for pool in spec.pools)
