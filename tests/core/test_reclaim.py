"""Whom to stop, against every subset that there is."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.core.budget import Policy
from gpubudget.core.budget import Pool as PoolSpec
from gpubudget.core.placement import EVERY, Shape, lowest
from gpubudget.core.pool import Pool, ripen
from gpubudget.core.reclaim import Cost, Place, cheapest_on, in_lane, ripe, unallocated
from gpubudget.core.records import Attempt, Host, Node, Workload
from gpubudget.core.workload import StopReason, WorkloadSpec

NOW = 1_000


class World:
    """Hosts of one pool that hold attempts, put there by hand."""

    def __init__(self, hosts: int = 1, lane: int = 0) -> None:
        self.pool = Pool("p", Policy(), 0)
        self.pool.spec = PoolSpec("p", 8, hosts)
        self.hosts = [self.pool.add_host(f"h{number}", 8) for number in range(hosts)]
        self.hosts[0].lane = lane
        self.nodes = {"legal": Node("legal", None, Fraction(1, 2)), "other": Node("other", None, Fraction(1, 2))}
        self.serial = 0

    def hold(self, kind: str, gpus: int, age: int, *hosts: int) -> Attempt:
        """Let an attempt of ``gpus`` on each of the hosts run for ``age``; kinds name its budget or its state."""
        self.serial += 1
        minimum = 0 if kind in {"free", "free stopping"} else 10
        spec = WorkloadSpec(f"w{self.serial}", "ann", "a", ("p",), gpus, min_runtime=minimum)
        places = [self.hosts[number] for number in hosts or (0,)]
        attempt = Attempt(
            self.serial, Workload(spec, 0), "p", self.nodes["other" if kind == "other" else "legal"], places, gpus
        )
        attempt.started, attempt.saved = 0, NOW - age
        for place, host in enumerate(places):
            attempt.masks[place] = lowest(host.free, gpus)
            host.free ^= attempt.masks[place]
            host.attempts[attempt.serial] = attempt
            if kind.endswith("stopping"):
                host.stopping += gpus
                host.stopping_ordinary += gpus if attempt.allocated else 0
            elif attempt.allocated:
                host.ordinary += gpus
            else:
                host.unallocated += gpus
        if kind.endswith("stopping"):
            attempt.stopping = StopReason.FORCED
        elif kind in {"legal", "other"}:
            ripen(attempt)
        for host in places:
            self.pool.refresh(host)
        return attempt

    def legal(self) -> set[Node]:
        return {self.nodes["legal"]}


def cost(victims: tuple[Attempt, ...]) -> Cost:
    paid = [victim.lost(NOW) for victim in victims if victim.allocated]
    unpaid = [victim.lost(NOW) for victim in victims if not victim.allocated]
    return sum(paid), len(paid), sum(unpaid), len(unpaid)


def enough(host: Host, each: int, victims: tuple[Attempt, ...], *, lane: bool) -> bool:
    """Whether ``each`` GPUs are there when the victims are gone, and the lane keeps its own."""
    going = [attempt for attempt in host.attempts.values() if attempt.stopping or attempt in victims]
    there = host.free.bit_count() + sum(attempt.each for attempt in going) - host.owed
    staying = [a.each for a in host.attempts.values() if a.allocated and a not in going]
    return there >= each and (lane or sum(staying) + each <= host.gpus - host.lane)


def subsets(host: Host, legal: set[Node], each: int, *, lane: bool) -> Iterator[tuple[Cost, tuple[Attempt, ...]]]:
    """All sets of attempts that would do, with their cost."""
    may_go = [a for a in host.attempts.values() if (a.ripe and a.leaf in legal if a.allocated else not a.stopping)]
    for size in range(len(may_go) + 1):
        for victims in combinations(may_go, size):
            if enough(host, each, victims, lane=lane):
                yield cost(victims), victims


KINDS = ["free", "free", "legal", "legal", "other", "protected", "free stopping", "legal stopping"]
HELD = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 4), st.sampled_from([0, 1, 5, 5, 9])), max_size=7)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(
    HELD,
    st.sampled_from([0, 0, 2, 5]),
    st.integers(1, 8),
    st.sampled_from(["budget", "nobody", "lane"]),
    st.integers(0, 2),
)
def test_the_victims_on_one_host_are_the_cheapest_of_all_sets(
    held: list[tuple[str, int, int]], lane: int, each: int, asker: str, owed: int
) -> None:
    """No set of attempts that may be stopped does for less, whether or not a lane must be left alone."""
    world = World(lane=lane)
    host = world.hosts[0]
    for kind, gpus, age in held:
        if gpus <= host.free.bit_count():
            world.hold(kind, gpus, age)
    host.owed = min(owed, host.stopping)
    legal = world.legal() if asker == "budget" else set()
    everything = sorted(subsets(host, legal, each, lane=asker == "lane"), key=lambda one: one[0])
    best = cheapest_on(host, each, legal, NOW, lane=asker == "lane")
    if not everything:
        assert best is None
        return
    assert best is not None
    assert best[0] == everything[0][0] == cost(tuple(best[1]))
    assert enough(host, each, tuple(best[1]), lane=asker == "lane")
    above = (*best[0][:3], best[0][3] + 1)
    again = cheapest_on(host, each, legal, NOW, lane=asker == "lane", bound=above)
    assert again is not None
    assert again[0] == best[0]
    assert cheapest_on(host, each, legal, NOW, lane=asker == "lane", bound=best[0]) is None


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 4), st.integers(0, 9), st.integers(0, 2)), max_size=9),
    st.integers(1, 3),
    st.integers(1, 8),
)
def test_of_several_hosts_the_cheapest_give_their_gpus_and_no_victim_is_superfluous(
    held: list[tuple[str, int, int, int]], hosts: int, each: int
) -> None:
    """A gang gets hosts where it has room once the victims are gone; without any one of them it would not."""
    world = World(hosts=3)
    for kind, gpus, age, place in held:
        if gpus <= world.hosts[place].free.bit_count():
            world.hold(kind, gpus, age, place)
    possible = [sorted(one for one, _ in subsets(host, world.legal(), each, lane=False)) for host in world.hosts]
    found = ripe(world.pool, Shape(hosts, each), world.legal(), EVERY, NOW)
    assert (found is not None) == (sum(map(bool, possible)) >= hosts)
    if found is not None:
        check_whole(found, each)
        costs = sorted(one[0] for one in possible if one)[:hosts]
        assert cost(tuple(found.victims)) == tuple(map(sum, zip(*costs, strict=True)))


def check_whole(found: Place, each: int) -> None:
    """Enough with all victims, and not with all but one."""
    victims = tuple(found.victims)
    assert all(enough(host, each, victims, lane=False) for host in found.hosts)
    for left_out in victims:
        rest = tuple(victim for victim in victims if victim is not left_out)
        assert not all(enough(host, each, rest, lane=False) for host in found.hosts)


def test_no_allocated_attempt_goes_where_unallocated_ones_suffice() -> None:
    """However long they have run, and however many they are."""
    world = World()
    world.hold("legal", 4, 0)
    fillers = [world.hold("free", 2, 900), world.hold("free", 2, 900)]
    found = cheapest_on(world.hosts[0], 4, world.legal(), NOW)
    assert found is not None
    assert found[1] == fillers


def test_a_gang_on_two_hosts_makes_a_third_victim_needless() -> None:
    """One attempt on both hosts frees enough on the second, where another seemed cheaper."""
    world = World(hosts=2)
    wide = world.hold("legal", 8, 5, 0)
    both = world.hold("free", 4, 100, 1)
    brief = world.hold("free", 4, 1, 1)
    found = unallocated(world.pool, Shape(1, 4), EVERY, NOW)
    assert found is not None
    assert (found.hosts, found.victims) == ([world.hosts[1]], [brief])
    gang = ripe(world.pool, Shape(2, 8), world.legal(), EVERY, NOW)
    assert gang is not None
    assert gang.victims == [wide, both, brief]


def test_what_one_gang_frees_on_two_hosts_spares_others() -> None:
    """Its GPUs count on each host, so what was chosen for one host alone may turn out superfluous."""
    world = World(hosts=2)
    world.hold("protected", 2, 0, 0)
    gang = world.hold("free", 6, 1, 0, 1)
    small = world.hold("free", 2, 0, 1)
    alone = unallocated(world.pool, Shape(1, 2), 0b10, NOW)
    assert alone is not None
    assert alone.victims == [small]
    found = unallocated(world.pool, Shape(2, 2), EVERY, NOW)
    assert found is not None
    assert found.victims == [gang]
    check_whole(found, 2)


@pytest.mark.parametrize("hosts", [0b10, 0b00])
def test_only_the_hosts_named_are_looked_at(hosts: int) -> None:
    """Others are not, whatever they could give; too few of them is no place."""
    world = World(hosts=2)
    world.hold("free", 8, 5, 0)
    world.hold("legal", 8, 5, 1)
    assert unallocated(world.pool, Shape(1, 4), hosts, NOW) is None
    found = ripe(world.pool, Shape(1, 4), world.legal(), hosts, NOW)
    assert (None if found is None else found.hosts) == ([world.hosts[1]] if hosts else None)


def test_hosts_are_asked_that_hold_attempts_of_a_budget_below_a_legal_one() -> None:
    """A budget with children is stopped through them."""
    world = World(hosts=2)
    parent, child = Node("a", None, Fraction(1)), Node("a/x", None, Fraction(1))
    child.up, parent.children = (child, parent), [child, Node("a/y", parent, Fraction(0))]
    world.nodes["legal"] = child
    attempt = world.hold("legal", 8, 5, 1)
    found = ripe(world.pool, Shape(1, 8), {parent}, 0b10, NOW)
    assert found is not None
    assert found.victims == [attempt]


def test_a_lane_stops_unallocated_work_only() -> None:
    """On hosts of the lane that have lane GPUs left."""
    world = World(lane=4)
    host = world.hosts[0]
    world.hold("legal", 4, 5)
    filler = world.hold("free", 4, 5)
    found = in_lane([host], 2, NOW)
    assert found is not None
    assert found.victims == [filler]
    host.lane_used = 3
    assert in_lane([host], 2, NOW) is None
