"""The ledger of an event log, recomputed: shares in force, and exact usage of each budget over the sliding window.

Written from the public format alone: it knows nothing of the scheduler's own ledger. Times are milliseconds, usage is
GPU-milliseconds, shares are fractions. The window's beginning never moves back, also when the window is lengthened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from typing import Any

ROOT = "/"
Key = tuple[str, int]
"""A workload and its attempt; attempt 0 is what is promised to a workload that waits for its GPUs to be freed."""


def parent(path: str) -> str:
    """The path of the budget above; the root's is itself."""
    head, _, _ = path.rpartition("/")
    return head or ROOT


def child(path: str, name: str) -> str:
    """The path of a budget below another."""
    return name if path == ROOT else f"{path}/{name}"


def lineage(path: str) -> list[str]:
    """The paths from the root down to ``path``."""
    found = [path]
    while found[-1] != ROOT:
        found.append(parent(found[-1]))
    return found[::-1]


@dataclass(slots=True, eq=False)
class _Account:
    """What one budget itself (not its descendants) is charged in one pool."""

    promised: dict[str, int] = field(default_factory=dict)
    running: dict[Key, tuple[int, int, int]] = field(default_factory=dict)  # GPUs, start, end of protection
    inside: list[tuple[int, int, int]] = field(default_factory=list)  # start, end, GPUs; a heap
    crossing: list[tuple[int, int]] = field(
        default_factory=list
    )  # end, GPUs; a heap: those that began before the window
    settled: int = 0  # GPU-time of all in ``inside``

    def end(self, key: Key, now: int) -> None:
        gpus, start, _ = self.running.pop(key)
        if now > start:
            heappush(self.inside, (start, now, gpus))
            self.settled += gpus * (now - start)

    def take_over(self, other: _Account) -> None:
        self.promised |= other.promised
        self.running |= other.running
        for span in other.inside:
            heappush(self.inside, span)
        for piece in other.crossing:
            heappush(self.crossing, piece)
        self.settled += other.settled

    def usage(self, now: int, edge: int) -> int:
        while self.inside and self.inside[0][0] < edge:
            start, end, gpus = heappop(self.inside)
            self.settled -= gpus * (end - start)
            heappush(self.crossing, (end, gpus))
        while self.crossing and self.crossing[0][0] <= edge:
            heappop(self.crossing)
        used = self.settled + sum(self.promised.values()) + sum(gpus * (end - edge) for end, gpus in self.crossing)
        for gpus, start, protected_until in self.running.values():
            used += gpus * (max(0, now - max(start, edge)) + max(0, protected_until - now))
        return used


class Ledger:
    """Budgets, their shares in force, and their accounts in each pool."""

    def __init__(self) -> None:
        self._shares: dict[str, tuple[Fraction, dict[str, Fraction]]] = {}
        self._children: dict[str, list[str]] = {}
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._below: dict[tuple[str, str], list[_Account]] = {}  # all accounts of a budget and its descendants
        self._charged: dict[Key, tuple[str, str]] = {}
        self._renamed: dict[str, str] = {}
        self._lookback = 0
        self._edge = -(1 << 63)

    def apply(self, budgets: list[dict[str, Any]], lookback: int, now: int) -> list[str]:
        """Put a tree in force: renamed budgets keep their usage, removed ones leave it to their parent's reserve.

        Returns what is wrong with the tree, in sentences.
        """
        old = self._shares
        if self._lookback:
            self._edge = max(self._edge, now - self._lookback)
        self._lookback = lookback
        self._shares = {row["path"]: (_share(row["share"]), _shares(row.get("shares"))) for row in budgets}
        self._children = {path: [] for path in self._shares}
        for path in self._shares:
            if path != ROOT:
                self._children.setdefault(parent(path), []).append(path)
        self._renamed = {
            row["previously"]: row["path"]
            for row in budgets
            if row.get("previously") in old and row["previously"] not in self._shares
        }
        for pool, path in list(self._accounts):
            heir = self._heir(path)
            if heir != path:
                self._hand_over(pool, path, heir)
        return self._faults(len(budgets))

    def known(self, path: str) -> bool:
        """Whether the budget is in the tree in force."""
        return path in self._shares

    def follow(self, path: str) -> str:
        """What a path of the tree before is called now: what is below a renamed budget follows it by name."""
        if path in self._shares or path == ROOT:
            return path
        return self._renamed.get(path) or child(self.follow(parent(path)), path.rpartition("/")[2])

    def promise(self, workload: str, pool: str, path: str, gpu_millis: int) -> None:
        """Charge the commitment of a workload that waits for its GPUs."""
        self._charged[workload, 0] = (pool, path)
        self._account(pool, path).promised[workload] = gpu_millis

    def release(self, workload: str) -> None:
        """Give such a commitment back."""
        if (workload, 0) in self._charged:
            self._account(*self._charged.pop((workload, 0))).promised.pop(workload, None)

    def start(self, key: Key, pool: str, path: str, charge: tuple[int, int, int]) -> None:
        """Charge an allocated attempt from now on; ``charge`` is its GPUs, its start and the end of its protection."""
        self._charged[key] = (pool, path)
        self._account(pool, path).running[key] = charge

    def end(self, key: Key, now: int) -> None:
        """Charge the attempt no longer, and give back the rest of its commitment."""
        if key in self._charged:
            self._account(*self._charged.pop(key)).end(key, now)

    def charged(self, key: Key) -> str | None:
        """The budget that the attempt is charged to now, if any."""
        place = self._charged.get(key)
        return place[1] if place else None

    def own(self, pool: str, path: str, now: int) -> int:
        """Usage of the budget's reserve: its own and what removed children left."""
        self._edge = max(self._edge, now - self._lookback)
        account = self._accounts.get((pool, path))
        return account.usage(now, self._edge) if account else 0

    def usage(self, pool: str, path: str, now: int) -> int:
        """Usage of the budget and all below it."""
        self._edge = max(self._edge, now - self._lookback)
        return sum(account.usage(now, self._edge) for account in self._below.get((pool, path), ()))

    def share(self, pool: str, path: str) -> Fraction:
        """What the budget gets of its parent."""
        default, by_pool = self._shares.get(path, (Fraction(0), {}))
        return by_pool.get(pool, default)

    def reserve(self, pool: str, path: str) -> Fraction:
        """What the budget keeps of itself."""
        return 1 - sum((self.share(pool, child) for child in self._children.get(path, ())), Fraction(0))

    def funded(self, pool: str, path: str) -> bool:
        """Whether no share from the root down to the budget's reserve is zero."""
        return all(self.share(pool, step) > 0 for step in lineage(path)[1:]) and self.reserve(pool, path) > 0

    def standings(self, pool: str, one: str, other: str, now: int) -> tuple[Standing, Standing]:
        """How two budgets stand where their paths part; a budget that is above the other takes part by its reserve."""
        ours, theirs = lineage(one), lineage(other)
        depth = 0
        while depth < min(len(ours), len(theirs)) and ours[depth] == theirs[depth]:
            depth += 1
        return self._standing(pool, ours, depth, now), self._standing(pool, theirs, depth, now)

    def _standing(self, pool: str, path: list[str], depth: int, now: int) -> Standing:
        if depth == len(path):
            return Standing(path[-1], self.reserve(pool, path[-1]), self.own(pool, path[-1], now))
        return Standing(path[depth], self.share(pool, path[depth]), self.usage(pool, path[depth], now))

    def _account(self, pool: str, path: str) -> _Account:
        account = self._accounts.get((pool, path))
        if account is None:
            account = self._accounts[pool, path] = _Account()
            for step in lineage(path):
                self._below.setdefault((pool, step), []).append(account)
        return account

    def _heir(self, path: str) -> str:
        """The budget that a path's usage belongs to now: its own, that which it was renamed to, or the next above."""
        if path in self._shares or path == ROOT:
            return path
        moved = self.follow(path)
        return moved if moved in self._shares else self._heir(parent(path))

    def _hand_over(self, pool: str, path: str, heir: str) -> None:
        account = self._accounts.pop((pool, path))
        for step in lineage(path):
            self._below[pool, step].remove(account)
        self._account(pool, heir).take_over(account)
        for key in [*account.running, *((workload, 0) for workload in account.promised)]:
            self._charged[key] = (pool, heir)

    def _faults(self, count: int) -> list[str]:
        faults = [f"{path} has no parent in the tree" for path in self._shares if parent(path) not in self._shares]
        if count != len(self._shares):
            faults.append(f"the tree names {count} budgets, but only {len(self._shares)} different ones")
        pools = {pool for _, by_pool in self._shares.values() for pool in by_pool} | {""}
        for path in self._shares:
            for pool in sorted(pools):
                given = 1 - self.reserve(pool, path)
                if given > 1:
                    where = f" in pool {pool}" if pool else ""
                    faults.append(f"the children of {path}{where} have {given} of it, more than the whole")
        return faults


@dataclass(frozen=True, slots=True)
class Standing:
    """A budget, or a budget's reserve, beside its siblings; ordered as they rank."""

    path: str
    share: Fraction
    usage: int

    def better(self, other: Standing) -> bool:
        """Whether it has strictly less usage over its share; a zero share counts as endless usage."""
        return self.share > 0 and (other.share == 0 or self.usage * other.share < other.usage * self.share)

    def goes_first(self, other: Standing) -> bool:
        """Whether it ranks first: less usage over share, then the larger share, then the path."""
        if self.better(other) or other.better(self):
            return self.better(other)
        return (-self.share, self.path) < (-other.share, other.path)


def _share(text: str) -> Fraction:
    numerator, _, denominator = text.partition("/")
    return Fraction(int(numerator), int(denominator))


def _shares(texts: dict[str, str] | None) -> dict[str, Fraction]:
    return {pool: _share(text) for pool, text in (texts or {}).items()}
