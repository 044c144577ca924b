"""From what a person chose to a scenario: which trace, whose budgets, how many hosts, and what is assumed.

One value says it all, so that a sweep can vary one setting, send it to another process, and name it in a report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from gpubudget.core.budget import DebugLane, Policy, Pool, Tree
from gpubudget.core.events import BudgetsApplied, Event
from gpubudget.errors import InvalidInputError, UsageError
from gpubudget.gitops.folder import load_folder
from gpubudget.sim import assume, faults, grouptree, history, synthetic, traces
from gpubudget.sim.assume import Assumed
from gpubudget.sim.eras import charged_in
from gpubudget.sim.played import Costs
from gpubudget.sim.submission import FailureRate, Scenario, SimHost
from gpubudget.sim.synthetic import Demand, hosts_of
from gpubudget.units import count, format_duration

POOL = "gpus"


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the policy that differ from those of the tree; None leaves them. Times are milliseconds."""

    lookback: int | None = None
    max_min_runtime: int | None = None
    debug_gpus: int | None = None

    def of(self, policy: Policy, pools: tuple[Pool, ...] = ()) -> Policy:
        """The policy with these settings. No debug lane where it is to have 0 GPUs.

        Raises InvalidInputError where they contradict each other, or are too large for one of the ``pools``.
        """
        if self.lookback is not None:
            policy = replace(policy, lookback=self.lookback)
        if self.max_min_runtime is not None:
            policy = replace(policy, max_min_runtime=self.max_min_runtime)
        if self.debug_gpus is not None:
            lane = policy.debug or DebugLane(self.debug_gpus)
            lane = replace(lane, gpus=self.debug_gpus, max_gpus=min(lane.max_gpus, self.debug_gpus))
            policy = replace(policy, debug=lane if self.debug_gpus else None)
        chosen = self.lookback is not None or self.max_min_runtime is not None
        if chosen and policy.max_min_runtime > policy.lookback:
            longest, window = format_duration(policy.max_min_runtime), format_duration(policy.lookback)
            raise InvalidInputError(
                f"the longest minimum runtime, {longest}, is more than the lookback window, {window}",
                hint="--max-min-runtime may be at most --lookback",
            )
        for pool in pools if self.debug_gpus else ():
            total = pool.hosts * pool.gpus_per_host
            if policy.debug and policy.debug.gpus >= total > 0:
                raise InvalidInputError(
                    f"the debug lane keeps {count(policy.debug.gpus, 'GPU')} of each pool, but {pool.name} has "
                    f"{total} in all",
                    hint="keep fewer for the lane than the smallest pool has",
                )
        return policy


@dataclass(frozen=True, slots=True)
class Choice:
    """All that was chosen for a run, but for the scheduler.

    ``budgets`` is a folder; without one the tree is made from the trace's groups, or is that of an event log or of the
    ``preset``. With ``hosts`` there is one pool of that many; otherwise they are those of the budgets, log or preset.
    Without a ``trace`` the work is made up: ``preset`` and, where they are given, ``mix`` and ``days``.
    ``debug_sessions`` are added to a trace, for each person and working day; a preset has some by itself. The first
    ``warm_up`` milliseconds are in no figure.
    """

    trace: Path | None = None
    preset: str | None = None
    mix: str | None = None
    days: int | None = None
    debug_sessions: Fraction | None = None
    budgets: Path | None = None
    from_groups: bool = False
    weights: Path | None = None
    users_below_groups: bool = False
    hosts: int | None = None
    gpus_per_host: int = 8
    load: Fraction | None = None
    assumed: Assumed = field(default_factory=Assumed)
    rules: Rules = field(default_factory=Rules)
    costs: Costs = field(default_factory=Costs)
    failures: Path | None = None
    failure_rate: Fraction | None = None
    warm_up: int = 0

    def named(self) -> tuple[tuple[str, str], ...]:
        """Names and values of what was chosen, for the report."""
        played = self.trace.name if self.trace else f"synthetic, {self.preset}"
        shares = f"those of the {'log' if self.trace else 'preset'}" if self.budgets is None else str(self.budgets)
        if self.from_groups:
            shares = f"from groups, weights of {self.weights.name}" if self.weights else "from groups, equal"
        pairs = [
            ("trace", played),
            ("budgets", shares),
            ("hosts", "as given" if self.hosts is None else f"{self.hosts} of {self.gpus_per_host} GPUs"),
            ("load", "as it is" if self.load is None else f"{float(self.load):g} times the capacity"),
            ("debug sessions", "as they are" if self.debug_sessions is None else f"{float(self.debug_sessions):g}"),
            ("seed", str(self.assumed.seed)),
            ("warm-up", format_duration(self.warm_up) if self.warm_up else "none"),
            ("start-up", format_duration(self.costs.start_up)),
            ("checkpoints", "when stopped" if self.costs.checkpoint_every is None
             else f"every {format_duration(self.costs.checkpoint_every)}"),
        ]  # fmt: skip
        return tuple(pairs)


def prepare(choice: Choice, budgets: Tree | None = None) -> Scenario:
    """Read what was chosen and put it together; whatever is wrong with it is told in one sentence.

    ``budgets`` takes the place of the tree in the folder ``choice.budgets``.
    """
    _one_source(choice)
    if budgets is None and choice.budgets is not None:
        budgets = read_tree(choice.budgets)
    if choice.trace is None:
        found = _made_up(choice, budgets)
    elif traces.first_line(choice.trace).startswith("{"):
        found = _told(choice, choice.trace, budgets)
    else:
        found = _foreign(choice, choice.trace, budgets)
    tree = replace(found.tree, policy=choice.rules.of(found.tree.policy, found.tree.pools))
    workloads = found.workloads
    if choice.trace is not None and choice.load is not None:
        gpus = sum(host.gpus for host in found.hosts)
        workloads = assume.scale_load(workloads, gpus, choice.load)
    if choice.trace is not None and choice.debug_sessions is not None:
        workloads = synthetic.with_debug(workloads, choice.assumed.seed, tree, choice.debug_sessions)
    notes: list[str] = []
    last = workloads.submissions[-1].at
    if later := sum(date > last for date in tree.dates()):
        notes.append(
            f"Shares change on {count(later, 'date')} after all submissions, which play no part: the times of made-up "
            "work and of traces of other clusters have a zero of their own."
        )
    failures = workloads.failures
    if choice.failures is not None:
        failures = faults.read_failures(choice.failures, found.hosts)
    rate = None
    if choice.failure_rate:
        rate = FailureRate(choice.assumed.seed, choice.failure_rate)
        notes.append(faults.sentence(rate))
    workloads = replace(workloads, assumptions=(*workloads.assumptions, *notes), failures=failures)
    return Scenario(tree, found.hosts, workloads, rate)


def check(choice: Choice, tree_of: Callable[[Path], Tree] | None = None) -> None:
    """Raise what ``prepare`` would, as far as it shows before a trace is read or work is made up: in milliseconds.

    ``tree_of`` reads a folder of budgets, for who checks many choices and reads each folder once.
    """
    _one_source(choice)
    budgets = None if choice.budgets is None else (tree_of or read_tree)(choice.budgets)
    if choice.trace is None:
        tree, demand = _demanded(choice, budgets)
        _hosts(tree)
        synthetic.capacity_for(tree, demand)
    elif traces.first_line(choice.trace).startswith("{"):
        _no_more_than_told(choice, choice.trace)
        if budgets is not None:
            choice.rules.of(budgets.policy, budgets.pools if choice.hosts is None else _given(choice, budgets))
    else:
        pools, _ = _cluster(choice, choice.trace, budgets)
        if budgets is not None:
            _hosts(replace(budgets, pools=pools))
    if choice.weights is not None:
        grouptree.read_weights(choice.weights)
    if choice.failures is not None:
        traces.first_line(choice.failures)


def _one_source(choice: Choice) -> None:
    """Refuse two sources of budgets, and what is for budgets that are made, where none are."""
    if choice.budgets is not None and choice.from_groups:
        raise UsageError("the budgets come from a folder or from the trace's groups, not from both")
    if (choice.weights is not None or choice.users_below_groups) and not choice.from_groups:
        name = "weights" if choice.weights is not None else "users-below-groups"
        raise UsageError(f"--{name} is for budgets that are made from groups", hint="add --budgets-from-groups")


def _given(choice: Choice, budgets: Tree | None) -> tuple[Pool, ...]:
    """The one pool of the hosts that were chosen, by the name of the budgets' first one; none where none were."""
    if choice.hosts is None:
        return ()
    name = budgets.pools[0].name if budgets is not None and budgets.pools else POOL
    return (Pool(name, choice.gpus_per_host, choice.hosts),)


def _made_up(choice: Choice, budgets: Tree | None) -> Scenario:
    """The scenario of a preset, with the budgets, hosts and amounts that were chosen."""
    tree, demand = _demanded(choice, budgets)
    return Scenario(tree, _hosts(tree), synthetic.generate(choice.assumed.seed, tree, demand))


def _demanded(choice: Choice, budgets: Tree | None) -> tuple[Tree, Demand]:
    """The budgets of a preset or those that were chosen, and what their people are to ask for."""
    known = synthetic.PRESETS.get(choice.preset or "")
    if known is None:
        raise UsageError("there is nothing to play", hint="give --trace FILE, or --synthetic SEED")
    if choice.from_groups:
        raise UsageError("made-up work has no groups to make budgets from", hint="leave --budgets-from-groups out")
    pool = Pool(POOL, choice.gpus_per_host, choice.hosts or known.hosts)
    if budgets is None:
        tree = synthetic.lab_tree(pool)
    else:
        tree = budgets
        if choice.hosts is not None or not any(each.hosts for each in tree.pools):
            tree = replace(tree, pools=(replace(pool, name=tree.pools[0].name),))
    tree = replace(tree, policy=choice.rules.of(tree.policy, tree.pools))
    assumed, demand = choice.assumed, known.demand
    return tree, replace(
        demand,
        mix=demand.mix if choice.mix is None else synthetic.MIXES[choice.mix],
        days=choice.days or demand.days,
        load=demand.load if choice.load is None else choice.load,
        debug_sessions=demand.debug_sessions if choice.debug_sessions is None else choice.debug_sessions,
        unallocated=assumed.unallocated,
        resumable=assumed.resumable,
        least_part=assumed.least_part,
        most_part=assumed.most_part,
    )


def _told(choice: Choice, path: Path, budgets: Tree | None) -> Scenario:
    """The scenario of an event log, with other budgets or hosts where they were chosen."""
    _no_more_than_told(choice, path)
    found = history.read_history(path, choice.costs.start_up)
    tree, hosts, workloads = found.tree, found.hosts, found.workloads
    if budgets is not None:
        submissions, above = charged_in(budgets, found)
        note = f"{count(above, 'workload')} of budgets that the tree lacks: charged to the nearest one above."
        assumptions = (*workloads.assumptions, *([note] if above else []))
        workloads = replace(workloads, submissions=submissions, events=(), assumptions=assumptions)
        tree = budgets
    if choice.hosts is not None:
        first = tree.pools[0].name if tree.pools else hosts[0].pool
        tree = replace(tree, pools=(Pool(first, choice.gpus_per_host, choice.hosts),))
        hosts = _hosts(tree)
    events = tuple((at, _as_chosen(event, choice, tree)) for at, event in workloads.events)
    workloads = replace(workloads, events=events)
    if budgets is not None or choice.rules.max_min_runtime is not None:
        workloads = assume.capped(workloads, choice.rules.of(tree.policy).max_min_runtime)
    return Scenario(tree, hosts, workloads)


def _no_more_than_told(choice: Choice, path: Path) -> None:
    """Refuse what an event log says itself."""
    if choice.from_groups:
        raise UsageError(f"{path} is an event log and has budgets of its own", hint="leave --budgets-from-groups out")
    if replace(choice.assumed, seed=0) != Assumed():
        raise UsageError(
            f"{path} is an event log: it says itself who submits, what is protected and what can resume",
            hint="leave out what is for traces that do not say so, such as --unallocated and --min-runtime-from",
        )


def _as_chosen(event: Event, choice: Choice, tree: Tree) -> Event:
    """A change of budgets in a log, with the rules and the hosts that were chosen."""
    if not isinstance(event, BudgetsApplied):
        return event
    pools = event.tree.pools if choice.hosts is None else tree.pools
    return BudgetsApplied(replace(event.tree, policy=choice.rules.of(event.tree.policy), pools=pools))


def _foreign(choice: Choice, path: Path, budgets: Tree | None) -> Scenario:
    """The scenario of another cluster's trace."""
    pools, policy = _cluster(choice, path, budgets)
    trace = traces.read_trace(path)
    named = assume.name(trace, choice.assumed)
    if budgets is not None:
        tree = replace(budgets, pools=pools, policy=policy)
        payers, notes = assume.payers_in(tree, named, trace)
    else:
        weights = None if choice.weights is None else grouptree.read_weights(choice.weights)
        below = choice.users_below_groups
        tree, notes = grouptree.tree_of(named.members(), pools, policy, weights=weights, users=below)
        payers = [f"{group}/{user}" if below else group for group, user in named.who]
    workloads = assume.workloads(trace, named, payers, tree, choice.assumed)
    return Scenario(tree, _hosts(tree), replace(workloads, assumptions=workloads.assumptions + notes))


def _cluster(choice: Choice, path: Path, budgets: Tree | None) -> tuple[tuple[Pool, ...], Policy]:
    """The pools and the policy for another cluster's trace, which says nothing of them."""
    given = _given(choice, budgets)
    if budgets is not None:
        pools = given or budgets.pools
        return pools, choice.rules.of(budgets.policy, pools)
    if not choice.from_groups:
        raise UsageError(f"{path} says nothing of budgets", hint="use --budgets FOLDER, or --budgets-from-groups")
    if not given:
        raise UsageError(f"{path} says nothing of hosts", hint="use --hosts N, and --gpus-per-host")
    return given, choice.rules.of(Policy(), given)


def read_tree(folder: Path) -> Tree:
    """The tree in a folder of budgets."""
    result = load_folder(folder)
    if result.tree is None:
        errors = sum(problem.is_error for problem in result.diagnostics)
        raise InvalidInputError(
            f"the budgets in {folder} are invalid: {count(errors, 'error')}",
            hint=f"`gpubudget validate {folder}` shows them",
        )
    return result.tree


def _hosts(tree: Tree) -> tuple[SimHost, ...]:
    """The hosts that the tree's pools name; there must be some."""
    found = hosts_of(tree)
    if not found:
        raise InvalidInputError(
            "there are no hosts: the pools of the budgets have none",
            hint="say how many in cluster.yaml, or with --hosts",
        )
    return found
