"""The policies to compare with do what their names say, and all of them place, start and stop soundly."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from gpubudget.core import eventlog
from gpubudget.core.budget import ROOT, Budget, DatedShares, Pool, Shares, Tree
from gpubudget.core.decisions import Claim, Decision, HostChanged, Refuse, Requeue, Start, Stop, Stopped, Unclaim
from gpubudget.core.events import (
    BudgetsApplied,
    Cancelled,
    Cordoned,
    DrainRequested,
    Event,
    Exited,
    HostLost,
    HostRemoved,
    HostReported,
    Moved,
    Outcome,
    RepairEnded,
    RepairStarted,
    RequeueRequested,
    Submitted,
    Uncordoned,
    Woke,
)
from gpubudget.core.host import HostState
from gpubudget.core.workload import StopReason, WorkloadSpec
from gpubudget.errors import NotFoundError, UsageError
from gpubudget.sim import synthetic
from gpubudget.sim.audit import audit
from gpubudget.sim.engine import Decider, simulate
from gpubudget.sim.plainscheduler import PlainScheduler
from gpubudget.sim.policies import GPUBUDGET, POLICIES, HalfLifeDecay, OldWorld, _percent, policy
from gpubudget.sim.result import End
from gpubudget.sim.submission import Failure, Fault, Scenario, SimHost
from gpubudget.units import DAY, HOUR, MINUTE

PLAIN = [name for name in POLICIES if name != GPUBUDGET]


def tree(*hosts: int, **shares: str) -> Tree:
    """Programs with shares of the root, and pools ``p``, ``q`` ... of so many hosts of 8."""
    children = tuple(Budget(name, Shares(Fraction(share))) for name, share in shares.items())
    pools = tuple(Pool("pqr"[place], 8, count) for place, count in enumerate(hosts or (2,)))
    return Tree(Budget(ROOT, Shares(Fraction(1)), children=children), pools)


class Cluster:
    """A scheduler on ready hosts, with what it decided."""

    def __init__(self, name: str, shares: Tree) -> None:
        self.scheduler: Decider = policy(name).make()
        self.now = 0
        self.decided: list[Decision] = []
        self.tell(BudgetsApplied(shares))
        for pool in shares.pools:
            for number in range(pool.hosts):
                self.tell(HostReported(f"{pool.name}{number}", pool.name, 8))

    def tell(self, event: Event, after: int = 0) -> list[Decision]:
        """Let something happen ``after`` milliseconds; what was decided."""
        self.now += after
        found = self.scheduler.handle(event, self.now)
        self.decided += found
        return found

    def submit(self, name: str, budget: str | None, gpus: int, after: int = 1_000, **more: object) -> list[str]:
        """Submit; who started."""
        spec = WorkloadSpec(name, "ann", budget, ("p",), gpus, min_runtime=HOUR)
        return started(self.tell(Submitted(replace(spec, **more)), after))  # type: ignore[arg-type]

    def exit(self, name: str, outcome: Outcome = Outcome.FINISHED, after: int = 1_000, attempt: int = 1) -> list[str]:
        """An attempt ends; who started."""
        return started(self.tell(Exited(name, attempt, outcome), after))


def started(decisions: list[Decision]) -> list[str]:
    return [decision.workload for decision in decisions if isinstance(decision, Start)]


def stops(decisions: list[Decision]) -> list[str]:
    return [decision.workload for decision in decisions if isinstance(decision, Stop)]


def named(what: str, below: int, *, budget: str = "") -> Iterator[str]:
    """Names for which the old world's number is below, or not below where it is negative."""
    number = 0
    while True:
        name = f"{budget}n{number}"
        if (_percent(what, name) < below) if below >= 0 else (_percent(what, name) >= -below):
            yield name
        number += 1


# First come, first served


def test_nobody_overtakes_under_fifo() -> None:
    """The second waits although it would fit, as long as the first does not."""
    cluster = Cluster("fifo", tree(1, a="1/2", b="1/2"))
    assert cluster.submit("one", "a", 6) == ["one"]
    assert cluster.submit("two", "a", 4) == []
    assert cluster.submit("three", "b", 1) == []
    assert cluster.exit("one") == ["two", "three"]


def test_one_pool_has_no_host_boundaries() -> None:
    """Five GPUs of two hosts with four free ones each are good enough for one, and not for the other."""
    for name, wanted in (("fifo-one-pool", ["wide"]), ("fifo", [])):
        cluster = Cluster(name, tree(2))
        assert cluster.submit("a", None, 4, min_runtime=0, hosts=1) == ["a"]
        assert cluster.submit("b", None, 8, min_runtime=0, hosts=1) == ["b"]
        assert cluster.exit("b") == []
        assert cluster.submit("c", None, 4, min_runtime=0) == ["c"]
        if name == "fifo":
            assert cluster.submit("d", None, 4, min_runtime=0) == ["d"]
        assert cluster.submit("wide", None, 5, min_runtime=0) == wanted


# Fair share of the moment


def test_instant_fair_share_has_no_memory() -> None:
    """Whoever had the whole cluster until now is served first again, if it holds no more than the other."""
    for name, wanted in (("instant-fair-share", "of a"), ("half-life-decay", "of b")):
        cluster = Cluster(name, tree(1, a="1/2", b="1/2"))
        cluster.submit("long", "a", 8)
        cluster.submit("of a", "a", 8)
        cluster.submit("of b", "b", 8, after=DAY)
        if name == "instant-fair-share":
            assert stops(cluster.decided) == []
        assert cluster.exit("long") == [wanted]


def test_instant_fair_share_takes_back_at_once() -> None:
    """A budget below its share has the youngest attempts of one above stopped, and starts on their very GPUs."""
    cluster = Cluster("instant-fair-share", tree(1, a="1/2", b="1/2"))
    for name in ("old", "young"):
        cluster.submit(name, "a", 4)
    decided = cluster.tell(Submitted(WorkloadSpec("mine", "bob", "b", ("p",), 4)), 1_000)
    assert stops(decided) == ["young"]
    assert [d.preempted for d in decided if isinstance(d, Claim)] == [(("young", 1),)]
    assert cluster.exit("young", Outcome.STOPPED) == ["mine"]
    assert [d.reason for d in cluster.decided if isinstance(d, Requeue)] == ["preempted"]
    assert stops(cluster.tell(Woke(), HOUR)) == []


def test_instant_fair_share_goes_level_by_level() -> None:
    """Somebody who holds nothing waits behind a program that holds less than his own."""
    inner = tuple(Budget(f"a/{name}", Shares(Fraction(1, 2))) for name in "xy")
    root = Budget(
        ROOT,
        Shares(Fraction(1)),
        children=(Budget("a", Shares(Fraction(1, 2)), children=inner), Budget("b", Shares(Fraction(1, 2)))),
    )
    cluster = Cluster("instant-fair-share", Tree(root, (Pool("p", 8, 2),)))
    cluster.submit("x", "a/x", 8)
    cluster.submit("b", "b", 8)
    cluster.submit("y", "a/y", 8)
    cluster.submit("b again", "b", 8)
    assert stops(cluster.decided) == []
    assert cluster.exit("b") == ["b again"]


# Half-life


def test_half_life_lasts_as_long_as_any_trace() -> None:
    """After a hundred years what was used at their beginning counts for nothing, and no number is too large."""
    cluster = Cluster("half-life-decay", tree(1, a="1/2", b="1/2"))
    cluster.submit("old", "a", 8)
    cluster.now += DAY
    cluster.exit("old", after=0)
    for name in ("b", "a", "b"):
        cluster.now += 100 * 366 * DAY
        cluster.submit(f"{name}{cluster.now}", name, 8, after=0)
        cluster.now += HOUR
        cluster.exit(started(cluster.decided)[-1], after=0)
    assert started(cluster.decided)[0] == "old"
    assert [name[0] for name in started(cluster.decided)[1:]] == ["b", "a", "b"]


def test_half_life_ranks_as_a_sum_of_decayed_usage() -> None:
    """Over a random history, whoever has the least decayed usage over share goes first."""
    rng = random.Random(7)
    cluster = Cluster("half-life-decay", tree(1, a="1/2", b="1/3", c="1/6"))
    shares = {"a": 1 / 2, "b": 1 / 3, "c": 1 / 6}
    spans: dict[str, list[tuple[int, int]]] = {"a": [], "b": [], "c": []}
    owner: dict[str, str] = {}

    def score(name: str) -> float:
        used = sum(
            float(0.5 ** ((cluster.now - end) / HalfLifeDecay.half_life))
            - float(0.5 ** ((cluster.now - begin) / HalfLifeDecay.half_life))
            for begin, end in spans[name]
        )
        return used / shares[name]

    for number in range(3):
        for name in spans:
            owner[f"{name}{number}"] = name
            cluster.submit(f"{name}{number}", name, 8)
    running, begun = started(cluster.decided)[-1], 1_000
    for number in range(3, 60):
        cluster.now += rng.randrange(HOUR, 4 * DAY)
        name = owner[running]
        spans[name].append((begun, cluster.now))
        best = min(spans, key=score)
        begun = cluster.now
        (following,) = cluster.exit(running, after=0)
        assert owner[following] == best
        owner[f"{name}{number}"] = name
        cluster.submit(f"{name}{number}", name, 8, after=0)
        running = following


# Dominant resource


def test_dominant_resource_counts_the_fullest_pool() -> None:
    """Whoever holds much of one pool waits behind others in another one as well."""
    cluster = Cluster("dominant-resource", tree(1, 2, a="1/2", b="1/2"))
    cluster.submit("a in q", "a", 8, pools=("q",))
    cluster.submit("b in p", "b", 2)
    cluster.submit("filler", "b", 6, pools=("p",))
    cluster.submit("a waits", "a", 8, pools=("p",))
    cluster.submit("b waits", "b", 8, pools=("p",))
    cluster.exit("b in p")
    assert cluster.exit("filler") == ["b waits"]


def test_dominant_resource_knows_effective_shares_only() -> None:
    """A person with 2/3 of a half has a third, wherever he is in the tree."""
    inner = (Budget("a/x", Shares(Fraction(2, 3))),)
    root = Budget(
        ROOT,
        Shares(Fraction(1)),
        children=(Budget("a", Shares(Fraction(1, 2)), children=inner), Budget("b", Shares(Fraction(1, 2)))),
    )
    cluster = Cluster("dominant-resource", Tree(root, (Pool("p", 8, 1),)))
    cluster.submit("x1", "a/x", 2)
    cluster.submit("b1", "b", 2)
    cluster.submit("big", None, 4, min_runtime=0)
    cluster.submit("x2", "a/x", 4)
    cluster.submit("b2", "b", 4)
    assert cluster.exit("big") == ["b2"]


# The old world


def test_most_of_the_old_world_is_high_and_goes_first() -> None:
    """HIGH work overtakes all other work; unallocated work comes last."""
    high, low = next(named("priority", 80)), next(named("priority", -80))
    cluster = Cluster("old-world", tree(1, a="1", b="0"))
    cluster.submit("long", "a", 8)
    cluster.submit("free", "a", 8, min_runtime=0)
    cluster.submit(low, "a", 8)
    cluster.submit(high, "a", 8)
    assert [cluster.exit("long"), cluster.exit(high), cluster.exit(low)] == [[high], [low], ["free"]]
    assert sum(_percent("priority", f"w{number}") < 80 for number in range(10_000)) == pytest.approx(8_000, rel=0.05)


def test_a_team_of_the_old_world_stops_at_its_cap() -> None:
    """A team that holds 1.5 times its share starts no more, also when nobody else wants the GPUs."""
    cluster = Cluster("old-world", tree(4, a="1/4", b="3/4"))
    names = named("priority", 80)
    running = [name for _ in range(16) for name in cluster.submit(next(names), "a", 1)]
    assert len(running) == 12
    assert len(cluster.exit(running[0])) == 1


def test_protected_work_of_the_old_world_is_never_stopped() -> None:
    """HIGH stops work that is not, unless that opted out."""
    low = (name for name in named("priority", -80))
    protected = next(name for name in low if _percent("protect", name) < 60)
    other = next(name for name in low if _percent("protect", name) >= 60)
    high = named("priority", 80)
    for victim, wanted in ((protected, []), (other, [other])):
        cluster = Cluster("old-world", tree(1, a="1/2", b="1/2"))
        cluster.submit(victim, "a", 8)
        assert stops(cluster.tell(Submitted(WorkloadSpec(next(high), "bob", "b", ("p",), 8, min_runtime=1)))) == wanted


def test_some_people_of_the_old_world_park() -> None:
    """Their GPUs stay idle for four hours, or until they come back with work of that size."""
    parks, not_parks = next(named("park", 15)), next(named("park", -15))
    cluster = Cluster("old-world", tree(2, a="1"))
    cluster.submit("runs", "a", 8, owner=not_parks)
    cluster.submit("done", "a", 8, owner=parks)
    cluster.submit("waits", "a", 8, owner=not_parks)
    assert cluster.exit("done") == []
    assert cluster.scheduler.next_wakeup() == cluster.now + OldWorld.patience
    assert cluster.submit("again", "a", 8, owner=parks) == ["again"]
    assert cluster.exit("again") == []
    assert started(cluster.tell(Woke(), OldWorld.patience)) == ["waits"]


def test_nobody_parks_for_ever_where_nothing_runs() -> None:
    """When the first parked GPUs are given up and nothing runs any more, all are."""
    parks, not_parks = next(named("park", 15)), next(named("park", -15))
    cluster = Cluster("old-world", tree(2, a="1"))
    for name in ("one", "two"):
        cluster.submit(name, "a", 8, owner=parks)
    cluster.submit("waits", "a", 16, owner=not_parks)
    assert cluster.exit("one") + cluster.exit("two", after=HOUR) == []
    assert started(cluster.tell(Woke(), 3 * HOUR)) == ["waits"]


# What all plain policies share


@pytest.mark.parametrize("name", PLAIN)
def test_a_large_gang_is_not_starved_by_small_ones(name: str) -> None:
    """The hosts with most room are kept for the first that does not fit."""
    cluster = Cluster(name, tree(2, a="1"))
    for number in range(16):
        cluster.submit(f"s{number}", "a", 1)
    cluster.submit("large", "a", 16)
    for number in range(40):
        cluster.submit(f"t{number}", "a", 1, min_runtime=0)
    running = [f"s{number}" for number in range(16)]
    for _ in range(60):
        after = cluster.exit(running.pop(0))
        running += after
        if "large" in after:
            return
    raise AssertionError("it never started")


@pytest.mark.parametrize("name", PLAIN)
def test_what_can_never_run_is_refused_with_the_reason(name: str) -> None:
    """No such pool, no such budget, more than there is."""
    cluster = Cluster(name, tree(2, a="1"))
    cluster.submit("pool", "a", 1, pools=("z",))
    cluster.submit("size", "a", 24)
    cluster.submit("lost", "nobody/here", 1)
    reasons = {d.workload: d.reason for d in cluster.decided if isinstance(d, Refuse)}
    assert "no pool 'z'" in reasons["pool"]
    assert "can never be had" in reasons["size"]
    if name.startswith("fifo"):
        assert "lost" not in reasons
    else:
        assert "no budget 'nobody/here'" in reasons["lost"]


@pytest.mark.parametrize("name", PLAIN)
def test_a_longest_run_time_ends_an_attempt(name: str) -> None:
    """It is stopped then, and has finished."""
    cluster = Cluster(name, tree(1, a="1"))
    cluster.submit("short", "a", 1, max_runtime=HOUR)
    assert cluster.scheduler.next_wakeup() == cluster.now + HOUR
    assert stops(cluster.tell(Woke(), HOUR)) == ["short"]
    ends = cluster.tell(Exited("short", 1, Outcome.STOPPED))
    assert [d.reason for d in ends if isinstance(d, Stopped)] == [StopReason.FINISHED]
    assert cluster.scheduler.next_wakeup() is None


@pytest.mark.parametrize("name", PLAIN)
def test_a_drained_host_waits_for_its_work(name: str) -> None:
    """It takes no new work, is drained when the last attempt has ended, and works again after its repair."""
    cluster = Cluster(name, tree(1, a="1"))
    cluster.submit("runs", "a", 8)
    assert stops(cluster.tell(DrainRequested("p0", "hot"))) == []
    assert cluster.submit("waits", "a", 8) == []
    cluster.exit("runs")
    states = [d.state for d in cluster.decided if isinstance(d, HostChanged)]
    assert states == [HostState.READY, HostState.DRAINING, HostState.DRAINED]
    cluster.tell(RepairStarted("p0"))
    assert cluster.tell(RepairEnded("p0", healthy=False))[0] == HostChanged(
        "p0", "p", 8, HostState.DRAINED, "", RepairEnded("p0", healthy=False)
    )
    cluster.tell(RepairStarted("p0"))
    assert started(cluster.tell(RepairEnded("p0", healthy=True))) == ["waits"]


@pytest.mark.parametrize("name", PLAIN)
def test_a_lost_host_ends_its_work(name: str) -> None:
    """What runs on it alone waits again; a gang on several hosts is stopped as a whole."""
    cluster = Cluster(name, tree(3, a="1"))
    cluster.submit("gang", "a", 16)
    cluster.submit("one", "a", 8)
    where = {d.workload: [host for host, _ in d.placement] for d in cluster.decided if isinstance(d, Start)}
    assert stops(cluster.tell(HostLost(where["gang"][0]))) == ["gang"]
    lost = cluster.tell(HostLost(where["one"][0]))
    assert [d.reason for d in lost if isinstance(d, Requeue)] == ["host_lost"]
    cluster.tell(HostReported(where["one"][0], "p", 8))
    cluster.tell(HostReported(where["one"][0], "p", 8))
    cluster.exit("gang", Outcome.STOPPED)
    cluster.tell(HostReported(where["gang"][0], "p", 8))
    assert started(cluster.decided).count("gang") == 2
    assert started(cluster.decided).count("one") == 2


@pytest.mark.parametrize("name", PLAIN)
def test_people_can_intervene(name: str) -> None:
    """Waiting and running work is cancelled, requeued and moved; hosts are cordoned, given back and removed."""
    cluster = Cluster(name, tree(2, a="1/2", b="1/2"))
    cluster.tell(Cordoned("p1"))
    cluster.submit("one", "a", 8)
    cluster.submit("two", "a", 8)
    cluster.tell(Moved("two", "b"))
    assert cluster.tell(Cancelled("two")) == [Stopped("two", 0, StopReason.CANCELLED, None, Cancelled("two"))]
    assert stops(cluster.tell(RequeueRequested("one"))) == ["one"]
    assert cluster.exit("one", Outcome.STOPPED) == ["one"]
    cluster.tell(Cancelled("one"))
    cluster.tell(Cancelled("one"))
    ends = cluster.tell(Exited("one", 2, Outcome.STOPPED), 1)
    assert [d.reason for d in ends if isinstance(d, Stopped)] == [StopReason.CANCELLED]
    cluster.tell(HostRemoved("p1"))
    assert cluster.submit("last", "b", 8) == ["last"]
    cluster.tell(Cordoned("p0"))
    assert [d.state for d in cluster.tell(Uncordoned("p0")) if isinstance(d, HostChanged)] == [HostState.READY]
    for event in (Cancelled("nobody"), Exited("nobody", 1, Outcome.FINISHED), RequeueRequested("nobody")):
        with pytest.raises(NotFoundError):
            cluster.tell(event)


@pytest.mark.parametrize("name", PLAIN)
def test_failed_work_is_started_again_as_often_as_asked(name: str) -> None:
    """One retry: the first failure requeues, the second ends it."""
    cluster = Cluster(name, tree(1, a="1"))
    cluster.submit("fails", "a", 1, retries=1)
    assert cluster.exit("fails", Outcome.FAILED) == ["fails"]
    ends = cluster.tell(Exited("fails", 2, Outcome.FAILED), 1)
    assert [type(d) for d in ends] == [Stopped]


@pytest.mark.parametrize("name", PLAIN)
def test_other_budgets_take_over_what_is_charged(name: str) -> None:
    """Removed budgets' work goes on and is charged above; dated shares wake the scheduler."""
    cluster = Cluster(name, tree(1, a="1/2", b="1/2"))
    cluster.submit("runs", "a", 8)
    cluster.submit("waits", "a", 8)
    dated = (DatedShares(HOUR, 2 * HOUR, Shares(Fraction(1, 4))),)
    later = Tree(
        Budget(ROOT, Shares(Fraction(1)), children=(Budget("c", Shares(Fraction(1, 2)), changes=dated),)),
        (Pool("p", 8, 1),),
    )
    cluster.tell(BudgetsApplied(later))
    assert cluster.scheduler.next_wakeup() == HOUR
    cluster.tell(Woke(), HOUR - cluster.now)
    assert cluster.exit("runs") == ["waits"]
    scheduler = cluster.scheduler
    assert isinstance(scheduler, PlainScheduler)
    cluster.exit("waits")
    pool = scheduler.pools["p"]
    assert pool.root.mask == 0
    if name != "half-life-decay":
        assert all(leaf.at0 == 0 for leaf in pool.leaves.values())


def test_a_claim_ends_with_its_host_or_its_workload() -> None:
    """GPUs that were being freed for somebody are free for all, if he is cancelled or his host is drained."""
    for trouble in (Cancelled("mine"), DrainRequested("p0", "hot")):
        cluster = Cluster("instant-fair-share", tree(1, a="1/2", b="1/2"))
        cluster.submit("old", "a", 4)
        cluster.submit("young", "a", 4)
        cluster.submit("mine", "b", 4)
        decided = cluster.tell(trouble)
        assert [type(d) for d in decided].count(Unclaim) == 1
        after = cluster.exit("young", Outcome.STOPPED)
        assert after == (["young"] if isinstance(trouble, Cancelled) else [])


def test_policies_are_known_by_name() -> None:
    """An unknown one is answered with all there are."""
    with pytest.raises(UsageError, match="no policy 'lottery'") as caught:
        policy("lottery")
    assert "old-world" in caught.value.hint
    assert all(each.says and each.name == name for name, each in POLICIES.items())
    with pytest.raises(NotImplementedError):
        PlainScheduler().turns(None, 0)  # type: ignore[arg-type]


def random_scenario(seed: int) -> Scenario:
    """A few days on a small cluster with much work, some of it debug, unallocated, cancelled, or with a time limit."""
    rng = random.Random(seed)
    lab = synthetic.lab_tree(Pool("gpus", 8, 6))
    demand = synthetic.Demand(days=2, load=Fraction(2), sweeps=0.5, debug_sessions=Fraction(1, 10))
    hosts = tuple(SimHost(f"h{number}", "gpus", 8) for number in range(6))
    failures = [
        Failure(
            rng.randrange(2 * DAY), f"h{rng.randrange(6)}", rng.choice(list(Fault)), rng.randrange(MINUTE, 6 * HOUR)
        )
        for _ in range(25)
    ]
    work = synthetic.generate(seed, lab, demand)
    gone = tuple(
        replace(each, gives_up=each.at + rng.randrange(DAY)) if rng.random() < 0.1 else each
        for each in work.submissions
    )
    told = tuple(sorted(failures, key=lambda each: each.at))
    return Scenario(lab, hosts, replace(work, submissions=gone, failures=told))


OTHER_RULES = {"protection", "no-right", "requeued", "gang"}
"""What the audit may find in the log of another policy: it has no minimum runtimes, preempts and requeues otherwise."""


@pytest.mark.parametrize("name", POLICIES)
def test_random_histories_are_placed_soundly(name: str) -> None:
    """Everything ends, twice is the same, and the audit finds nothing but the rules of another policy."""
    logs: list[list[bytes]] = []
    for _ in range(2):
        lines: list[bytes] = []

        def log(event: Event, decisions: list[Decision], now: int, lines: list[bytes] = lines) -> None:
            lines += [json.dumps(line).encode() for line in eventlog.lines(event, decisions, now)]

        result = simulate(random_scenario(11), policy(name).make(), log=log)
        assert {row.end for row in result.rows} <= {End.FINISHED, End.FAILED, End.CANCELLED, End.PREEMPTED}
        assert result.host_failures > 10
        logs.append(lines)
    assert logs[0] == logs[1]
    found = [finding for finding in audit(logs[0]).findings if name == GPUBUDGET or finding.rule not in OTHER_RULES]
    assert found == []
