"""The invariants of the scheduler (DESIGN 4.6, numbered as there), which hold between any two events.

Each compares what the scheduler shows of itself with the brute-force ``Record``. Those that speak of decisions (2, 3
and 8) are also judged decision by decision, in ``judgements.py`` and by the audit.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from gpubudget.core.events import Woke
from gpubudget.core.host import HostState
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import ENDED, StopReason, WorkloadState
from tests.core.oracles import Job, Record

Invariant = Callable[[Record, Scheduler, int], None]


def i01_no_gpu_is_held_twice_and_gangs_are_whole(record: Record, _: Scheduler, __: int) -> None:
    """1: a GPU is held once at most; what is promised on a host can be kept; an attempt has all its GPUs."""
    for host, machine in record.machines.items():
        held = [gpu for run in record.live(host) for gpu in run.placement[host]]
        assert len(held) == len(set(held)) <= machine.gpus, host
        assert record.room(host) >= 0
    for run in record.live():
        assert sum(map(len, run.placement.values())) == record.jobs[run.workload].spec.gpus


def i02_no_allocated_attempt_is_stopped_before_its_minimum(record: Record, _: Scheduler, __: int) -> None:
    """2: not by the scheduler: for another, or for a drain."""
    for run in record.runs:
        if run.allocated and run.stopping in {StopReason.PREEMPTED, StopReason.DRAINED}:
            assert run.told >= run.protected_until, run.key


def i03_each_preemption_is_for_a_workload_that_starts_there(record: Record, _: Scheduler, now: int) -> None:
    """3: on hosts of its victims, once they are gone, unless its claim came to nothing."""
    del now
    for run in record.runs:
        gone = not any(victim.live for victim in run.victims)
        for victim in run.victims:
            assert set(victim.hosts) & set(run.hosts)
            assert run.started is None or gone
        if run.victims and gone and run.started is None and not run.withdrawn:
            assert any(other.stopping for host in run.hosts for other in record.live(host)), run


def i04_waking_again_decides_nothing(_: Record, scheduler: Scheduler, now: int) -> None:
    """4: quiescence; and time alone changes nothing before the next wake-up."""
    copy = Scheduler.restore(scheduler.snapshot())
    assert copy.handle(Woke(), now) == []
    due = scheduler.next_wakeup()
    assert due is None or due > now


def i05_capacity_is_accounted_for(record: Record, scheduler: Scheduler, now: int) -> None:
    """5: for every pool, capacity x time = allocated + unallocated + idle + unavailable, exactly."""
    for view in scheduler.pools(now):
        parts = view.allocated_time + view.unallocated_time + view.idle_time + view.unavailable_time
        assert view.capacity_time == parts == record.capacity.get(view.name, 0), view
        assert min(view.idle_time, view.unavailable_time) >= 0
        for allocated, time in ((True, view.allocated_time), (False, view.unallocated_time)):
            runs = [run for run in record.runs if run.pool == view.name and run.allocated == allocated]
            spent = sum(
                r.gpus * ((now if r.ended is None else r.ended) - r.started) for r in runs if r.started is not None
            )
            assert time == spent, f"allocated={allocated} of {view}: the sum of attempts is {spent}"


def i06_usage_is_that_of_the_brute_force(record: Record, scheduler: Scheduler, now: int) -> None:
    """6: exactly, for every budget and pool; and shares are those in force."""
    assert record.tree
    own: dict[str, dict[str, int]] = {}
    for view in scheduler.budgets(now):
        if view.pool not in own:
            own[view.pool] = record.own_usage(view.pool, now)
        used = record.total(own[view.pool], view.path)
        assert view.usage == used, f"usage of {view.path} in {view.pool} is {view.usage}, by brute force {used}"
        assert view.balance == view.entitlement - view.usage
        assert view.share == record.share(view.path, view.pool)
        budget = record.tree.find(view.path)
        assert budget
        if budget.children:
            assert view.reserve == record.reserve(view.path, view.pool)


def i07_a_restart_changes_nothing(_: Record, scheduler: Scheduler, __: int) -> None:
    """7: what is restored from a snapshot, through JSON, is the same. (That it goes on the same, the twin shows.)"""
    snapshot = scheduler.snapshot()
    again = Scheduler.restore(json.loads(json.dumps(snapshot)))
    again.check()
    assert again.snapshot() == snapshot


def i08_what_is_reserved_is_not_given_away(record: Record, scheduler: Scheduler, now: int) -> None:
    """8: by the time of a reservation that is no estimate enough GPUs of its hosts are unprotected.

    Whose victims took longer to leave than the grace period is not counted: nobody knew that.
    """
    assert record.tree
    for view in scheduler.reservations():
        if view.estimate or view.start < now or record.tree.policy.debug:
            continue  # a debug lane may move to the host
        each = record.jobs[view.workload].spec.gpus // len(view.hosts)
        for host in view.hosts:
            runs = [run for run in record.live(host) if run.allocated and not run.stopping]
            runs = [run for run in runs if run.waited <= record.tree.policy.grace_period]
            stay = [run for run in runs if min(run.protected_until, run.ends_by or run.protected_until) > view.start]
            room = record.machines[host].gpus - sum(run.hosts[host] for run in stay)
            late = [run.key for run in stay]
            assert room >= each, f"{view.workload} cannot start by {view.start}, {late} are protected"


def i09_a_drain_ends_as_protections_do(record: Record, _: Scheduler, now: int) -> None:
    """9: what stays on a draining host is protected, and nothing is protected for longer than a minimum runtime."""
    for host, machine in record.machines.items():
        for run in record.live(host):
            if machine.state is HostState.DRAINING and not run.stopping:
                assert now < run.protected_until, f"{run.key} stays on {host}, which drains"
            if machine.state is HostState.LOST:
                assert run.stopping, f"{run.key} runs on {host}, which is lost"
            assert machine.state not in {HostState.DRAINED, HostState.REPAIRING}


def i10_who_cannot_fit_is_held_and_nobody_else(record: Record, _: Scheduler, __: int) -> None:
    """10: who waits without a rank has no budget any more, or fits no pool; all others are ranked."""
    for job in record.jobs.values():
        gone = job.budget is not None and job.budget not in record.budget_paths()
        if job.state is WorkloadState.PENDING:
            assert not gone, f"{job.spec.id} is ranked in {job.budget}, which is gone"
        elif job.state is WorkloadState.HELD:
            assert gone or not record.fits_somewhere(job.spec), f"{job.spec.id} is held: {job.held}"


def ranks_are_those_of_the_brute_force(record: Record, scheduler: Scheduler, now: int) -> None:
    """Workloads wait in the order of their budgets' usage over share, at every level."""
    assert record.tree
    for pool in record.tree.pools:
        ours, theirs = record.ranking(pool.name, now), scheduler.ranking(pool.name, now)
        if record.tree.policy.debug:  # which very large ones could fit depends on the hosts that have the lane
            unsure = set(theirs) ^ set(ours)
            ours, theirs = ([name for name in names if name not in unsure] for names in (ours, theirs))
        assert theirs == ours, f"ranks in {pool.name}: {theirs}, by brute force {ours}"


def nothing_runs_over_its_longest_run_time(record: Record, _: Scheduler, now: int) -> None:
    """An attempt of a workload with a longest run time is told to stop when that is over."""
    for run in record.live():
        assert run.stopping or run.ends_by is None or run.ends_by > now, run.key


def views_are_right(record: Record, scheduler: Scheduler, _: int) -> None:
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


def explanations_are_true(record: Record, scheduler: Scheduler, now: int) -> None:
    """Each waiting workload is told its true rank, a reason, and no time in the past."""
    for job in record.jobs.values():
        if job.state in ENDED:
            continue
        told = scheduler.explain(job.spec.id, now)
        assert (told.workload, told.state) == (job.spec.id, job.state)
        assert told.reason
        assert told.start is None or told.start >= now or job.state is not WorkloadState.PENDING
        if job.state is WorkloadState.PENDING and told.pool:
            ranking = scheduler.ranking(told.pool, now)
            assert told.rank == ranking.index(job.spec.id) + 1
            assert told.waiting == len(ranking)


def reservations_are_for_those_who_wait(record: Record, scheduler: Scheduler, _: int) -> None:
    """At most one in each pool, for an allocated workload that waits, on hosts of the pool that are ready."""
    views = scheduler.reservations()
    assert len({view.pool for view in views}) == len(views)
    for view in views:
        job = record.jobs[view.workload]
        assert job.state is WorkloadState.PENDING
        assert job.spec.allocated
        assert all(record.machines[host].pool == view.pool for host in view.hosts)
        assert all(record.machines[host].state is HostState.READY for host in view.hosts)


def the_debug_lane_is_kept(record: Record, scheduler: Scheduler, _: int) -> None:
    """Where there is a lane, its GPUs are on hosts of the pool, and nobody has more of it than the policy says."""
    assert record.tree
    lane = record.tree.policy.debug
    for pool in record.tree.pools:
        kept = sum(view.lane for view in scheduler.hosts() if view.pool == pool.name)
        assert kept <= (lane.gpus if lane else 0), pool
    if lane:
        for run in record.live():
            if run.lane and not run.stopping:
                assert record.jobs[run.workload].spec.debug


def free_gpus_are_used(record: Record, scheduler: Scheduler, _: int) -> None:
    """No workload waits that fits the free GPUs, unless they are kept for a reservation."""
    assert record.tree
    if record.tree.policy.debug:
        return
    reserved = {view.pool: view for view in scheduler.reservations()}
    free: dict[str, list[int]] = {}
    for host, machine in record.machines.items():
        if machine.state is HostState.READY:
            free.setdefault(machine.pool, []).append(record.free(host))
    for job in record.jobs.values():
        if not job.waiting:
            continue
        for pool in job.spec.pools:
            kept = reserved.get(pool)
            if kept and kept.workload != job.spec.id:
                continue
            parts = record.part(job.spec, pool)
            if parts:
                fits = sum(count >= parts[1] for count in free.get(pool, [])) >= parts[0]
                assert not fits, f"{job.spec.id} waits though {parts} GPUs are free in {pool}: {free[pool]}"


def nobody_is_overlooked(record: Record, scheduler: Scheduler, now: int) -> None:
    """After a full pass none who waits can preempt, down to the one who has the reservation, else it would have."""
    assert record.tree
    if record.tree.policy.debug:
        return
    for pool in record.tree.pools:
        kept = next((view.workload for view in scheduler.reservations() if view.pool == pool.name), "")
        for name in scheduler.ranking(pool.name, now):
            job = record.jobs[name]
            if len(job.spec.pools) == 1 and job.spec.allocated and not job.failed_after_preempting:
                _cannot_preempt(record, job, pool.name, now)
            if name == kept:
                break


def _cannot_preempt(record: Record, job: Job, pool: str, now: int) -> None:
    parts = record.part(job.spec, pool)
    if parts and parts[0] == 1:
        least = record.cheapest(job, pool, now)
        assert least is None or least[1] + least[3] == 0, f"{job.spec.id} waits, and victims for {least} are there"
    elif parts and not record.gang_has_room(job, pool, parts[0]):
        victims = record.gang_has_victims(job, pool, parts[0], now)
        assert not victims, f"the gang {job.spec.id} waits, and has victims"


INVARIANTS: tuple[Invariant, ...] = (
    i01_no_gpu_is_held_twice_and_gangs_are_whole,
    i02_no_allocated_attempt_is_stopped_before_its_minimum,
    i03_each_preemption_is_for_a_workload_that_starts_there,
    i04_waking_again_decides_nothing,
    i05_capacity_is_accounted_for,
    i06_usage_is_that_of_the_brute_force,
    i07_a_restart_changes_nothing,
    i08_what_is_reserved_is_not_given_away,
    i09_a_drain_ends_as_protections_do,
    i10_who_cannot_fit_is_held_and_nobody_else,
    ranks_are_those_of_the_brute_force,
    nothing_runs_over_its_longest_run_time,
    views_are_right,
    explanations_are_true,
    reservations_are_for_those_who_wait,
    the_debug_lane_is_kept,
    free_gpus_are_used,
)
"""That the time of a reservation never moves later (8) shows only over time: the audit beside each history sees it."""

_SLOW = {i04_waking_again_decides_nothing, i07_a_restart_changes_nothing, explanations_are_true}
OFTEN = tuple(each for each in INVARIANTS if each not in _SLOW)
"""Those that are cheap enough to check after every event of a long history."""
