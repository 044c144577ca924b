"""The policies to compare with, each a few lines around a plain scheduler and named for what it is.

All of them take the same workloads as the core and ignore what they have no word for: minimum runtimes, the debug lane,
resumability. What a policy assumes beyond that is in its ``Policy``, for the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from math import lcm, log
from zlib import crc32

from gpubudget.core.budget import ROOT, Budget, Pool, Shares, Tree
from gpubudget.core.fairshare import grow, in_rank_order
from gpubudget.core.host import HostState
from gpubudget.core.placement import Shape
from gpubudget.core.records import Node
from gpubudget.core.scheduler import Scheduler
from gpubudget.core.workload import WorkloadSpec
from gpubudget.errors import RefusedError, UsageError
from gpubudget.sim.engine import Decider
from gpubudget.sim.plainpool import Places, PlainPool, Rank, Run, Waiting
from gpubudget.sim.plainscheduler import PlainScheduler
from gpubudget.units import DAY, HOUR, format_duration


class FirstComeFirstServed(PlainScheduler):
    """One queue in order of submission; nobody overtakes."""

    strict = True

    def plant(self, tree: Tree, pool: str) -> Node:
        """Nobody has a budget."""
        return grow(Budget(ROOT, tree.root.shares), pool, self.now)

    def home(self, budget: str) -> str:
        """All wait together."""
        del budget
        return ROOT

    def rank(self, spec: WorkloadSpec) -> Rank:
        """By time alone; of one moment, as they came."""
        self.serial += 1
        return (self.now, self.serial, spec.id)

    def turns(self, pool: PlainPool, mask: int) -> Iterator[Waiting]:
        """Whoever came first."""
        return pool.in_turn([pool.leaves[ROOT], pool.stray], mask)


class FirstComeFirstServedOnePool(FirstComeFirstServed):
    """The same, as if all GPUs of a pool were in one host: no gang has to fit anywhere."""

    def shape(self, pool: Pool, spec: WorkloadSpec) -> Shape:
        """A number of GPUs."""
        if spec.gpus > pool.hosts * pool.gpus_per_host:
            raise RefusedError(f"{spec.gpus} GPUs can never be had", hint="it has fewer")
        return Shape(1, spec.gpus)

    def places(self, pool: PlainPool, shape: Shape, hosts: int) -> Places | None:
        """Free GPUs anywhere, on the fullest hosts first."""
        wanted, found = shape.each, Places()
        for bits in pool.having[1:]:
            for machine in pool.hosts_of(bits & hosts):
                found.append((machine, min(machine.room, wanted)))
                wanted -= found[-1][1]
                if not wanted:
                    return found
        return None


class InstantFairShare(PlainScheduler):
    """Fair share of the GPUs held at this moment, level by level, without memory and with preemption (as YARN).

    Whoever is below his share has attempts of those above theirs stopped at once, the youngest first, as long as they
    stay at or above the share of the one who gains. Nothing is protected.
    """

    preempts = True

    def clock(self) -> int:
        """The time in which usage grows; none here, since only the present counts."""
        return 0

    def turns(self, pool: PlainPool, mask: int) -> Iterator[Waiting]:
        """The budget with the least usage over share, level by level; without a budget, last."""
        for leaf in in_rank_order(pool.root, self.clock(), mask):
            yield from pool.in_turn([leaf], mask)
        yield from pool.in_turn([pool.stray], mask)

    def legal(self, pool: PlainPool, who: Waiting) -> list[Run]:
        """The youngest attempts of budgets that are above, for as much as they are."""
        leaf = who.leaves[pool.name]
        if leaf.starved or not self.preempts:
            return []
        over: dict[Node, int] = {}
        for node in leaf.up[:-1]:
            mine = (node.at0 + who.spec.gpus) * node.fold
            for sibling in node.parent.children if node.parent else ():
                if sibling is not node and sibling.at0 * sibling.fold > mine:
                    over[sibling] = sibling.at0 - -(-mine // sibling.fold)
        if sum(over.values()) < who.spec.gpus - pool.free():
            return []
        found: list[Run] = []
        for run in reversed(pool.running.values()):
            above = next((node for node in run.leaf.up if node in over), None)
            if above is not None and run.stopping is None and run.who.spec.gpus <= over[above]:
                over[above] -= run.who.spec.gpus
                found.append(run)
        return found


class HalfLifeDecay(InstantFairShare):
    """Fair share of past usage that loses half its weight every seven days, level by level (as Slurm's fair tree).

    Without preemption. All usage decays alike, so instead of shrinking the past, the present counts for more and more:
    usage is a straight line in a time that runs twice as fast after each half-life, and ranks stay the same.
    """

    preempts = False
    half_life = 7 * DAY

    def __init__(self) -> None:
        super().__init__()
        self.began: int | None = None

    def clock(self) -> int:
        """The integral of ``2 ** (t / half_life)``, in milliseconds."""
        if self.began is None:
            self.began = self.now
        halvings, rest = divmod(self.now - self.began, self.half_life)
        return int(self.half_life / log(2) * 2.0 ** (rest / self.half_life)) << halvings

    def charge(self, run: Run, sign: int) -> None:
        """GPU-time counts as it is used."""
        gpus, now = sign * run.who.spec.gpus, self.clock()
        for node in run.leaf.up:
            node.turn(gpus, now)


class DominantResourceFairness(InstantFairShare):
    """Whoever has the smallest dominant share goes first: his largest part of any pool's GPUs, over what he is funded.

    Without levels and without preemption. GPUs of each pool are a resource, so with one pool this is weighted max-min
    fairness of the GPUs that are held now.
    """

    preempts = False

    def plant(self, tree: Tree, pool: str) -> Node:
        """All leaves side by side, with their effective shares."""
        leaves = grow(tree.root, pool, self.now).leaves()
        flat = tuple(Budget(leaf.path, Shares(_effective(leaf))) for leaf in leaves if leaf.path != ROOT)
        return grow(Budget(ROOT, Shares(Fraction(1)), children=flat), pool, self.now)

    def charge(self, run: Run, sign: int) -> None:
        """The dominant share is the same in all pools; ``slope`` keeps the GPUs that it is made from."""
        run.leaf.slope += sign * run.who.spec.gpus
        whole = lcm(*(pool.gpus for pool in self.pools.values() if pool.gpus))
        same = [(pool, pool.leaves[run.leaf.path]) for pool in self.pools.values() if run.leaf.path in pool.leaves]
        dominant = max((leaf.slope * whole // pool.gpus for pool, leaf in same if pool.gpus), default=0)
        for _, leaf in same:
            leaf.charge(dominant - leaf.at0)


class OldWorld(PlainScheduler):
    """Static priorities, caps for each team, and people who keep what they have.

    Nearly everybody says HIGH. A team (a program below the root) that holds 1.5 times its share starts nothing more.
    HIGH stops work that is not, unless it is protected from preemption, as most is. Some people park: when their
    workload ends, they keep its GPUs idle for their next one of that size, for up to four hours, or until nothing runs
    any more. Who does what hangs on names alone.
    """

    preempts = True
    high, protected, parking = 80, 60, 15
    """Percentages: of workloads at HIGH, of workloads that are protected, of people who park."""
    cap = Fraction(3, 2)
    patience = 4 * HOUR

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[int, Run] = {}
        self.parked: dict[str, list[Run]] = {}
        self.kept: list[tuple[int, int, Run]] = []

    def home(self, budget: str) -> str:
        """The team."""
        return budget.split("/", 1)[0] or ROOT

    def plant(self, tree: Tree, pool: str) -> Node:
        """Teams have no budgets inside."""
        teams = tuple(Budget(team.path, team.shares, changes=team.changes) for team in tree.root.children)
        return grow(Budget(ROOT, tree.root.shares, children=teams), pool, self.now)

    def rank(self, spec: WorkloadSpec) -> Rank:
        """HIGH first, unallocated work last."""
        low = 2 if not spec.allocated else int(_percent("priority", spec.id) >= self.high)
        return (low, self.now, spec.id)

    def turns(self, pool: PlainPool, mask: int) -> Iterator[Waiting]:
        """By priority, then as they came, unless their team is at its cap."""
        whole, part = pool.gpus * self.cap.numerator, self.cap.denominator

        def admits(who: Waiting) -> bool:
            leaf = who.leaves[pool.name]
            share = leaf.share
            return leaf.at0 * part * share.denominator < whole * share.numerator or leaf is pool.stray

        return pool.in_turn([*pool.leaves.values(), pool.stray], mask, admits)

    def charge(self, run: Run, sign: int) -> None:
        """Keep those who may be stopped at hand."""
        super().charge(run, sign)
        if run.who.rank[0] and _percent("protect", run.who.spec.id) >= self.protected:
            if sign > 0:
                self.open[run.serial] = run
            else:
                del self.open[run.serial]

    def legal(self, pool: PlainPool, who: Waiting) -> list[Run]:
        """For HIGH, the youngest of those who are not, and have not opted out."""
        if who.rank[0]:
            return []
        at_work = (run for run in reversed(self.open.values()) if run.started is not None and run.who.run is run)
        return [run for run in at_work if run.pool == pool.name]

    def wait(self, who: Waiting) -> None:
        """Whoever has parked GPUs of that size starts on them at once."""
        super().wait(who)
        parked = self.parked.get(who.spec.owner, [])
        for run in parked:
            pool = self.pools[run.pool]
            if who.shapes.get(run.pool) == run.who.shapes[run.pool] and _ready(run):
                self.give_up(run)
                self.launch(who, pool, [(machine, mask.bit_count()) for machine, mask in run.masks.items()], [])
                return

    def release(self, run: Run) -> None:
        """Work that ended by itself leaves its GPUs parked, if its owner is one who parks."""
        parks = run.stopping is None and run.started is not None and _percent("park", run.who.spec.owner) < self.parking
        if parks and run.who.spec.allocated and not run.who.spec.debug and _ready(run):
            self.parked.setdefault(run.who.spec.owner, []).append(run)
            heappush(self.kept, (self.now + self.patience, run.serial, run))
        else:
            super().release(run)

    def give_up(self, run: Run) -> None:
        """Parked GPUs are free again."""
        self.parked[run.who.spec.owner].remove(run)
        super().release(run)

    def expire(self) -> None:
        """Nobody came back for these."""
        super().expire()
        idle = not any(pool.running for pool in self.pools.values())
        while self.kept and (idle or self.kept[0][0] <= self.now):
            run = heappop(self.kept)[2]
            if run in self.parked[run.who.spec.owner]:
                self.give_up(run)

    def next_wakeup(self) -> int | None:
        """Also when parked GPUs are given up."""
        found = super().next_wakeup()
        times = [time for time, _, _ in self.kept[:1]] + ([] if found is None else [found])
        return min(times, default=None)


def _ready(run: Run) -> bool:
    return all(machine.state is HostState.READY for machine in run.masks)


def _percent(what: str, name: str) -> int:
    """A number from 0 to 99 that hangs on the name alone."""
    return crc32(f"{what} {name}".encode()) % 100


def _effective(leaf: Node) -> Fraction:
    share = Fraction(1)
    for node in leaf.up:
        share *= node.share
    return share


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy by name: one line for help, what it assumes for the report, and how to make a scheduler of it."""

    name: str
    says: str
    make: Callable[[], Decider]
    assumes: tuple[str, ...] = ()


_PLAIN = (
    "This policy knows no minimum runtime and no debug lane. Whoever is stopped is requeued. A host that is drained "
    "waits until its work has ended by itself."
)
_OLD = (
    f"Priorities, protection and parking are made up from names: {OldWorld.high}% of workloads are HIGH, "
    f"{OldWorld.protected}% opted out of preemption, {OldWorld.parking}% of people keep the GPUs of a workload that "
    f"ended for up to {format_duration(OldWorld.patience)}. A team that holds 1.5 times its share starts no more."
)
GPUBUDGET = "gpubudget"
POLICIES = {
    policy.name: policy
    for policy in (
        Policy(GPUBUDGET, "windowed fair share with minimum runtimes: this scheduler", Scheduler),
        Policy("fifo", "first come, first served; nobody overtakes", FirstComeFirstServed, (_PLAIN,)),
        Policy(
            "fifo-one-pool",
            "first come, first served, as if all GPUs were in one host",
            FirstComeFirstServedOnePool,
            (_PLAIN, "Host boundaries are ignored: any free GPUs will do."),
        ),
        Policy("old-world", "static priorities, caps a team, opt-out, parked work", OldWorld, (_PLAIN, _OLD)),
        Policy(
            "instant-fair-share", "fair share of what is held now, no memory (as YARN)", InstantFairShare, (_PLAIN,)
        ),
        Policy("half-life-decay", "fair share of usage that halves every 7 days (as Slurm)", HalfLifeDecay, (_PLAIN,)),
        Policy("dominant-resource", "dominant resource fairness", DominantResourceFairness, (_PLAIN,)),
    )
}


def policy(name: str) -> Policy:
    """The policy of that name."""
    found = POLICIES.get(name)
    if found is None:
        raise UsageError(f"there is no policy {name!r}", hint=f"the policies are {', '.join(POLICIES)}")
    return found
