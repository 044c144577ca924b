"""Other shares from now on: a tree was applied, or a dated change began or ended.

Usage keeps its budget through a rename (``previously``). What a removed budget used, and what it still runs, is charged
to what the nearest ancestor that is left keeps for itself; what it has waiting is held.
"""

from __future__ import annotations

from gpubudget.core.budget import ROOT, Tree, parent_path
from gpubudget.core.decisions import BudgetsChanged
from gpubudget.core.fairshare import Ranking, grow
from gpubudget.core.hoststate import settle_lane
from gpubudget.core.pool import Pool, dequeue
from gpubudget.core.records import Node
from gpubudget.core.state import State, rewait
from gpubudget.core.workload import WorkloadState


def apply(state: State, tree: Tree, commit: str) -> None:
    """Replace the tree, its pools and its policy."""
    renames = {budget.previously: budget.path for budget in tree.budgets() if budget.previously is not None}
    state.paths = frozenset(budget.path for budget in tree.budgets())
    state.tree, state.commit, state.policy = tree, commit, tree.policy
    for workload in state.workloads.values():
        dequeue(workload)
    state.next_date = next((date for date in tree.dates() if date > state.now), None)
    specs = {spec.name: spec for spec in tree.pools}
    for name in specs:
        state.pool(name)
    for pool in state.pools.values():
        pool.spec = specs.get(pool.name)
        _regrow(state, pool, tree, renames)
        pool.lane.spec = tree.policy.debug
        for host in pool.hosts.values():
            pool.refresh(host)
        settle_lane(pool)
        pool.lapse()
        pool.due = True
    for workload in list(state.workloads.values()):
        if workload.budget is not None:
            workload.budget = renamed(workload.budget, renames)
        if workload.state in {WorkloadState.PENDING, WorkloadState.HELD}:
            rewait(state, workload)
    state.decisions.append(BudgetsChanged(tree, commit, state.cause))


def redate(state: State) -> None:
    """A dated change begins or ends: the same tree with the shares in force now."""
    if state.tree is not None:
        apply(state, state.tree, state.commit)


def renamed(path: str, renames: dict[str, str]) -> str:
    """Where a path is now: it, or its nearest ancestor that was renamed, under the new name."""
    ancestor, tail = path, ""
    while ancestor != ROOT:
        if ancestor in renames:
            return renames[ancestor] + tail
        parent = parent_path(ancestor)
        tail = "/" + ancestor.removeprefix(parent).lstrip("/") + tail
        ancestor = parent
    return path


def destination(path: str, renames: dict[str, str], paths: frozenset[str]) -> str:
    """Which budget answers for what was charged to ``path``: itself, its new name, or its nearest ancestor left."""
    path = renamed(path, renames)
    while path not in paths and path != ROOT:
        path = parent_path(path)
    return path


def _regrow(state: State, pool: Pool, tree: Tree, renames: dict[str, str]) -> None:
    """Build the pool's nodes anew, and carry over what each was charged and what it runs."""
    now, lookback = state.now, state.policy.lookback
    moves: dict[Node, Node] = {}
    pool.budgets.ledger.set_lookback(lookback, now, pool.budgets.leaves.values())
    pool.fillers.ledger.set_lookback(lookback, now, [*pool.fillers.leaves.values(), pool.stray])
    pool.budgets = _successor(pool.budgets, state, grow(tree.root, pool.name, now), renames, moves)
    pool.fillers = _successor(pool.fillers, state, grow(tree.root, pool.name, now), renames, moves)
    for host in pool.hosts.values():
        for attempt in (*host.attempts.values(), *host.claims.values()):
            attempt.leaf = moves.get(attempt.leaf, attempt.leaf)


def _successor(old: Ranking, state: State, root: Node, renames: dict[str, str], moves: dict[Node, Node]) -> Ranking:
    """A ranking over new nodes in which every charge of the old ones stands where it belongs now."""
    new = Ranking(root, old.ledger)
    for path, leaf in old.leaves.items():
        target = moves[leaf] = new.leaves[destination(path, renames, state.paths)]
        target.tail += leaf.tail
        target.spent.absorb(leaf.spent)
        target.ripe_attempts |= leaf.ripe_attempts
        for node in target.up:
            node.charge(leaf.at0)
            node.turn(leaf.slope, 0)
            node.ripe += leaf.ripe
            node.known_where |= leaf.where()
            node.held += leaf.held
    edges = old.ledger.edges
    for _ in range(len(edges)):
        time, leaf, gpus = edges.popleft()
        edges.append((time, moves.get(leaf, leaf), gpus))
    return new
