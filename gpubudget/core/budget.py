"""The tree of budgets and the policy, as values: what a commit of the budgets repository says.

Shares are exact. A tree knows nothing of files, of git or of what runs; the ledger of usage is in ``usage.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gpubudget.units import DAY, HOUR, MINUTE, SECOND

ROOT = "/"
"""The path of the root; every other path is the names from the top joined by ``/``, as ``language/olmo``."""


def child_path(parent: str, name: str) -> str:
    """The path of the child called ``name`` of the budget at ``parent``."""
    return name if parent == ROOT else f"{parent}/{name}"


def parent_path(path: str) -> str:
    """The path of the parent; the root is its own parent."""
    head, slash, _ = path.rpartition("/")
    return head if slash and head else ROOT


@dataclass(frozen=True, slots=True)
class Shares:
    """What a budget gets of its parent: one share for all pools, and other ones for the pools named."""

    default: Fraction
    by_pool: tuple[tuple[str, Fraction], ...] = ()

    def of(self, pool: str) -> Fraction:
        """The share in ``pool``."""
        for name, share in self.by_pool:
            if name == pool:
                return share
        return self.default


@dataclass(frozen=True, slots=True)
class DatedShares:
    """Shares that hold from ``start`` until just before ``until`` (both in milliseconds since 1970, UTC)."""

    start: int
    until: int
    shares: Shares


@dataclass(frozen=True, slots=True)
class Budget:
    """One node of the tree. ``shares`` is what it gets of its parent (the root has all of it)."""

    path: str
    shares: Shares
    title: str = ""
    managers: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    previously: str | None = None
    changes: tuple[DatedShares, ...] = ()
    children: tuple[Budget, ...] = ()

    def shares_at(self, now: int) -> Shares:
        """The shares in force at ``now`` (milliseconds): a dated change where one holds, else the plain ones."""
        for change in self.changes:
            if change.start <= now < change.until:
                return change.shares
        return self.shares

    def walk(self) -> Iterator[Budget]:
        """This budget and all below it, parents before children, children in their order."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Pool:
    """Hosts of one GPU type that are ranked and placed together; ``hosts`` is how many the site says it has."""

    name: str
    gpus_per_host: int
    hosts: int


@dataclass(frozen=True, slots=True)
class DebugLane:
    """GPUs of each pool kept for short workloads that ask for few GPUs (DESIGN 4.7 calls it the debug lane).

    Who has used it for ``allowance`` GPU-milliseconds within the last day starts nothing more there for now.
    """

    gpus: int
    max_gpus: int = 8
    max_runtime: int = 15 * MINUTE
    per_person: int = 1
    allowance: int = 4 * HOUR


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of the scheduler; all times in milliseconds.

    A workload that fails sooner than ``failed_soon`` after a start it preempted for waits ``preempt_backoff`` before
    it preempts again, twice as long after each further such failure, at most ``max_preempt_backoff``.
    """

    lookback: int = 7 * DAY
    max_min_runtime: int = 8 * HOUR
    rebalance_interval: int = 60 * SECOND
    grace_period: int = 30 * SECOND
    failed_soon: int = 10 * MINUTE
    preempt_backoff: int = 10 * MINUTE
    max_preempt_backoff: int = 8 * HOUR
    debug: DebugLane | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """All that a commit of the budgets repository decides: the budgets, the pools and the policy."""

    root: Budget
    pools: tuple[Pool, ...]
    policy: Policy = Policy()
    cluster: str = "cluster"
    timezone: str = "UTC"

    def budgets(self) -> Iterator[Budget]:
        """All budgets, parents first."""
        return self.root.walk()

    def find(self, path: str) -> Budget | None:
        """The budget at ``path``, or None."""
        return next((budget for budget in self.budgets() if budget.path == path), None)

    def dates(self) -> tuple[int, ...]:
        """The moments, in order, at which a dated change begins or ends."""
        moments = {m for budget in self.budgets() for change in budget.changes for m in (change.start, change.until)}
        return tuple(sorted(moments))


def reserve(budget: Budget, pool: str, now: int) -> Fraction:
    """What ``budget`` keeps of itself in ``pool`` at ``now``: 1 minus its children's shares."""
    return 1 - sum((child.shares_at(now).of(pool) for child in budget.children), Fraction(0))
