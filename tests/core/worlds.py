"""Random trees, policies and workloads for random histories, all drawn through ``Chance``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol, TypeVar

from gpubudget.core.budget import ROOT, Budget, DatedShares, DebugLane, Policy, Pool, Shares, Tree, child_path
from gpubudget.core.workload import WorkloadSpec
from gpubudget.units import HOUR, MINUTE, SECOND

T = TypeVar("T")
PEOPLE = ("ann", "bob", "cid")


class Chance(Protocol):
    """Where choices come from: a seeded generator, or hypothesis, which can shrink them."""

    def pick(self, among: Sequence[T]) -> T: ...

    def between(self, least: int, most: int) -> int: ...


class Seeded:
    """Choices from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, among: Sequence[T]) -> T:
        return self._random.choice(among)

    def between(self, least: int, most: int) -> int:
        return self._random.randint(least, most)


def flip(chance: Chance, percent: int) -> bool:
    return chance.between(1, 100) <= percent


@dataclass(slots=True, eq=False)
class Shape:
    """A budget while its tree is being changed."""

    name: str
    children: list[Shape]
    previously: str | None = None


class Forest:
    """Makes one tree after the other: budgets come, go and are renamed, and shares change."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._names = iter(f"{letter}{number}" for number in range(1, 1_000) for letter in "nmkz")
        self._gone: list[str] = []
        count = chance.pick([1, 1, 2])
        self.pools = tuple(
            Pool(name, chance.pick([8, 8, 4, 2]), chance.between(1, 12 // count)) for name in ("p", "q")[:count]
        )
        self._root = Shape(ROOT, [])
        for _ in range(chance.pick([1, 2, 2, 3, 3, 4])):
            self._grow(self._root, chance.between(0, 2))
        self.policy = Policy(
            lookback=chance.pick([HOUR, 5 * HOUR, 5 * HOUR, 48 * HOUR]),
            max_min_runtime=2 * HOUR,
            failed_soon=chance.pick([MINUTE, 10 * MINUTE]),
            debug=self._lane(30),
        )

    def tree(self, now: int) -> Tree:
        """A tree of the present shapes, with new shares."""
        return Tree(self._budget(self._root, ROOT, Shares(Fraction(1)), (), now), self.pools, self.policy)

    def change(self) -> None:
        """Add, remove or rename a budget, or change the policy; at least the shares will be others."""
        chance = self._chance
        shapes = [(self._root, shape) for shape in self._root.children]
        shapes += [(shape, child) for shape in self._root.children for child in shape.children]
        what = chance.pick(["add", "remove", "rename", "shares", "policy"])
        if what == "add" or not shapes:
            self._grow(chance.pick([self._root, *(shape for _, shape in shapes)]), 0)
            return
        parent, shape = chance.pick(shapes)
        if what == "remove":
            parent.children.remove(shape)
            self._gone.append(shape.name)
        elif what == "rename":
            self._rename(parent, shape)
        elif what == "policy":
            lane = self._lane(50) if flip(chance, 30) else self.policy.debug
            self.policy = replace(self.policy, lookback=chance.pick([HOUR, 3 * HOUR, 10 * HOUR]), debug=lane)
            self.pools = tuple(replace(pool, hosts=max(1, pool.hosts + chance.pick([-2, 0, 1]))) for pool in self.pools)

    def _lane(self, percent: int) -> DebugLane | None:
        """A debug lane, or none."""
        gpus, each = self._chance.pick([1, 2, 4]), self._chance.pick([1, 2])
        lane = DebugLane(gpus, max_gpus=2, per_person=each, allowance=self._chance.pick([10 * MINUTE, 4 * HOUR]))
        return lane if flip(self._chance, percent) else None

    def _rename(self, parent: Shape, shape: Shape) -> None:
        """Rename a budget or move it below another; it and all below it say where they were."""
        before = self._path(self._root, ROOT, shape)
        self._note(shape, before)
        shape.name = next(self._names)
        if flip(self._chance, 30):
            others = [other for other in [self._root, *self._root.children] if other not in {parent, shape}]
            if others:
                parent.children.remove(shape)
                self._chance.pick(others).children.append(shape)

    def _note(self, shape: Shape, path: str) -> None:
        shape.previously = path
        for child in shape.children:
            self._note(child, child_path(path, child.name))

    def _path(self, at: Shape, path: str, wanted: Shape) -> str:
        for child in at.children:
            below = child_path(path, child.name)
            found = below if child is wanted else self._path(child, below, wanted)
            if found:
                return found
        return ""

    def _grow(self, parent: Shape, depth: int) -> None:
        again = [name for name in self._gone if all(name != child.name for child in parent.children)]
        name = self._chance.pick(again) if again and flip(self._chance, 30) else next(self._names)
        shape = Shape(name, [])
        parent.children.append(shape)
        if depth:
            for _ in range(self._chance.between(0, 2)):
                self._grow(shape, depth - 1)

    def _budget(self, shape: Shape, path: str, shares: Shares, changes: tuple[DatedShares, ...], now: int) -> Budget:
        plain = self._split(len(shape.children))
        by_pool = {pool.name: self._split(len(shape.children)) for pool in self.pools if flip(self._chance, 15)}
        children = []
        for index, child in enumerate(shape.children):
            given = Shares(plain[index], tuple((name, split[index]) for name, split in by_pool.items()))
            dated = (self._dated(given, now),) if flip(self._chance, 15) else ()
            children.append(self._budget(child, child_path(path, child.name), given, dated, now))
        return Budget(
            path,
            shares,
            previously=shape.previously,
            changes=changes,
            members=PEOPLE,
            children=tuple(children),
        )

    def _split(self, count: int) -> list[Fraction]:
        """Odd fractions that sum to at most 1, some of them zero; what is left is the reserve."""
        weights = [self._chance.pick([0, 1, 1, 1, 2, 2, 3, 5]) for _ in range(count)]
        whole = max(1, sum(weights) + self._chance.pick([0, 1, 1, 2]))
        return [Fraction(weight, whole) for weight in weights]

    def _dated(self, shares: Shares, now: int) -> DatedShares:
        """For a while a part of the share, or nothing, so that sums stay right."""
        start = now + self._chance.pick([-MINUTE, 0, 1, 30 * MINUTE, 3 * HOUR])
        part = self._chance.pick([Fraction(0), Fraction(1, 2), Fraction(2, 3)])
        less = Shares(shares.default * part, tuple((pool, share * part) for pool, share in shares.by_pool))
        return DatedShares(start, start + self._chance.pick([1, 20 * MINUTE, 4 * HOUR]), less)


def workload(chance: Chance, name: str, tree: Tree) -> WorkloadSpec:
    """A workload of any kind that a person may submit to the tree."""
    pools = [pool.name for pool in tree.pools]
    first = chance.between(0, len(pools) - 1)
    chosen = (*pools[first:], *pools[:first]) if flip(chance, 25) else (pools[first],)
    least = min(pool.gpus_per_host for pool in tree.pools if pool.name in chosen)
    gpus, hosts = chance.pick([1, 1, 2, 2, 3, 4, least, least, 2 * least, 3 * least // 2]), None
    if flip(chance, 8):
        hosts = chance.between(1, 3)
        gpus = hosts * chance.between(1, least)
    budget: str | None = chance.pick([budget.path for budget in tree.budgets()])
    minimum = chance.pick([1, MINUTE, MINUTE, 10 * MINUTE, 10 * MINUTE, 10 * MINUTE, HOUR, 2 * HOUR])
    if flip(chance, 30):
        minimum = 0
        budget = budget if flip(chance, 50) else None
    lane, limit = tree.policy.debug, None
    debug = lane is not None and flip(chance, 25)
    if lane and debug:
        gpus, hosts = chance.between(1, min(lane.max_gpus, least)), None
        limit = chance.pick([MINUTE, lane.max_runtime])
        minimum = min(minimum, limit)
    elif flip(chance, 10):
        limit = max(minimum, 1) * chance.pick([1, 2])
    return WorkloadSpec(
        id=name,
        owner=chance.pick(PEOPLE),
        budget=budget,
        pools=chosen,
        gpus=gpus,
        hosts=hosts,
        min_runtime=minimum,
        max_runtime=limit,
        resumable=flip(chance, 60),
        debug=debug,
        priority=chance.pick([0, 0, 0, -2, 3]),
        retries=chance.pick([0, 0, 1, 2]),
    )


STEPS = (0, 1, 999, 10 * SECOND, 59_999, MINUTE, MINUTE, 10 * MINUTE, 10 * MINUTE, HOUR, 3 * HOUR)
"""How much time passes at once."""
