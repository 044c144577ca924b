"""How attempts come and go in a plain scheduler: launch, claim, start, stop, end. Knows no order and no events."""

from __future__ import annotations

from heapq import heappush

from gpubudget.core.decisions import Claim, Decision, HostChanged, Requeue, Start, Stop, Stopped, Unclaim
from gpubudget.core.events import Event, Woke
from gpubudget.core.host import HostState
from gpubudget.core.placement import indices, lowest
from gpubudget.core.workload import StopReason
from gpubudget.sim.plainpool import Machine, Places, PlainPool, Run, Waiting

_AGAIN = frozenset({StopReason.PREEMPTED, StopReason.DRAINED, StopReason.HOST_LOST, StopReason.FORCED})


class PlainLifecycle:
    """All that a plain scheduler remembers, and the steps of an attempt."""

    def __init__(self) -> None:
        self.now = 0
        self.pools: dict[str, PlainPool] = {}
        self.hosts: dict[str, Machine] = {}
        self.workloads: dict[str, Waiting] = {}
        self.limits: list[tuple[int, int, Run]] = []
        self.serial = 0
        self.decisions: list[Decision] = []
        self.cause: Event = Woke()

    def become(self, machine: Machine, state: HostState, reason: str = "") -> None:
        """A host is in another state."""
        pool, machine.state = self.pools[machine.pool], state
        pool.refresh(machine)
        pool.dirty = True
        self.decisions.append(HostChanged(machine.name, machine.pool, machine.gpus, state, reason, self.cause))

    def drained(self, machine: Machine) -> None:
        """A draining host is done when it holds nothing any more."""
        if machine.state is HostState.DRAINING and not machine.runs:
            self.become(machine, HostState.DRAINED)

    def wait(self, who: Waiting) -> None:
        """Let a workload wait."""
        for name in who.shapes:
            self.pools[name].enqueue(who)

    def unwait(self, who: Waiting) -> None:
        """Take a workload out of every queue."""
        for name in who.shapes:
            self.pools[name].dequeue(who)

    def launch(self, who: Waiting, pool: PlainPool, places: Places, victims: list[Run]) -> None:
        """Give a workload its GPUs: at once, or as soon as the victims have left."""
        self.unwait(who)
        self.serial += 1
        run = who.run = Run(who, pool.name, self.serial)
        for machine, gpus in places:
            taken = lowest(machine.free, gpus)
            run.masks[machine] = taken
            machine.free ^= taken
            pool.refresh(machine)
            if taken.bit_count() < gpus:
                run.wants[machine] = gpus - taken.bit_count()
        run.charged = True
        self.charge(run, 1)
        run.preempted = tuple((victim.who.spec.id, victim.who.attempts) for victim in victims)
        for victim in victims:
            victim.heir = run
            self.stop(victim, StopReason.PREEMPTED, who.spec.id)
        if run.wants:
            names = tuple(machine.name for machine in run.masks)
            self.decisions.append(Claim(who.spec.id, pool.name, names, run.preempted, self.cause))
        else:
            self._begin(run)

    def _begin(self, run: Run) -> None:
        """Start an attempt whose GPUs are all there."""
        now, who, spec = self.now, run.who, run.who.spec
        who.attempts += 1
        run.started = now
        self.pools[run.pool].running[run.serial] = run
        for machine in run.masks:
            machine.runs[run.serial] = run
        ends_by = None
        if spec.max_runtime is not None:
            ends_by = now + max(spec.max_runtime - who.ran, 0)
            heappush(self.limits, (ends_by, run.serial, run))
        placement = tuple((machine.name, indices(mask)) for machine, mask in run.masks.items())
        self.decisions.append(
            Start(
                spec.id,
                who.attempts,
                run.pool,
                spec.allocated,
                placement,
                now,
                ends_by,
                run.preempted,
                lane=False,
                reason="its turn",
                cause=self.cause,
            )
        )

    def stop(self, run: Run, reason: StopReason, beneficiary: str | None = None) -> None:
        """Order an attempt to end."""
        run.stopping = reason
        self._uncharge(run)
        self.decisions.append(Stop(run.who.spec.id, run.who.attempts, reason, beneficiary, self.cause))

    def end(self, run: Run, reason: StopReason) -> None:
        """An attempt is over: say so, see what becomes of its workload, and let its GPUs go."""
        who, heir = run.who, run.heir if reason is StopReason.PREEMPTED else None
        who.run = None
        who.ran += self.now - (run.started or 0)
        who.failures += reason is StopReason.FAILED
        public = StopReason.FINISHED if reason is StopReason.LIMIT else reason
        helped = heir.who.spec.id if heir else None
        self.decisions.append(Stopped(who.spec.id, who.attempts, public, helped, self.cause))
        del self.pools[run.pool].running[run.serial]
        for machine in run.masks:
            del machine.runs[run.serial]
        if reason in _AGAIN or (reason is StopReason.FAILED and who.failures <= who.spec.retries):
            self.decisions.append(Requeue(who.spec.id, reason.value, "", self.cause))
            self.wait(who)
        else:
            del self.workloads[who.spec.id]
        self.release(run)

    def unclaim(self, run: Run, reason: str) -> None:
        """A claim comes to nothing."""
        run.who.run = None
        self.decisions.append(Unclaim(run.who.spec.id, reason, self.cause))
        self.release(run)

    def _uncharge(self, run: Run) -> None:
        if run.charged:
            run.charged = False
            self.charge(run, -1)

    def release(self, run: Run) -> None:
        """An attempt's GPUs are free, or go to the claim for which it was stopped."""
        self._uncharge(run)
        pool = self.pools[run.pool]
        heir = run.heir if run.heir is not None and run.heir.who.run is run.heir else None
        for machine, mask in run.masks.items():
            given = 0 if heir is None else lowest(mask, heir.wants.get(machine, 0))
            if heir is not None and given:
                heir.masks[machine] |= given
                heir.wants[machine] -= given.bit_count()
                if not heir.wants[machine]:
                    del heir.wants[machine]
            machine.free |= mask ^ given
            pool.refresh(machine)
            self.drained(machine)
        pool.dirty = True
        if heir is not None and not heir.wants and heir.started is None:
            self._begin(heir)

    def charge(self, run: Run, sign: int) -> None:
        """A budget holds GPUs (1), or holds them no more (-1)."""
        for node in run.leaf.up:
            node.charge(sign * run.who.spec.gpus)
