"""From what a person chose to a scenario: which trace, whose budgets, how many hosts, and what is assumed.

One value says it all, so that a sweep can vary one setting, send it to another process, and name it in a report.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from gpubudget.core.budget import DebugLane, Policy, Pool, Tree
from gpubudget.errors import InvalidInputError, UsageError
from gpubudget.gitops.folder import load_folder
from gpubudget.sim import assume, faults, grouptree, history, traces
from gpubudget.sim.assume import Assumed
from gpubudget.sim.played import Costs
from gpubudget.sim.submission import FailureRate, Scenario, SimHost
from gpubudget.sim.synthetic import hosts_of
from gpubudget.units import count, format_duration, format_share

POOL = "gpus"


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the policy that differ from those of the tree; None leaves them. Times are milliseconds."""

    lookback: int | None = None
    max_min_runtime: int | None = None
    debug_gpus: int | None = None

    def of(self, policy: Policy) -> Policy:
        """The policy with these settings. No debug lane where it is to have 0 GPUs."""
        if self.lookback is not None:
            policy = replace(policy, lookback=self.lookback)
        if self.max_min_runtime is not None:
            policy = replace(policy, max_min_runtime=self.max_min_runtime)
        if self.debug_gpus is not None:
            lane = replace(policy.debug, gpus=self.debug_gpus) if policy.debug else DebugLane(self.debug_gpus)
            policy = replace(policy, debug=lane if self.debug_gpus else None)
        return policy


@dataclass(frozen=True, slots=True)
class Choice:
    """All that was chosen for a run, but for the scheduler.

    ``budgets`` is a folder; without one the tree is made from the trace's groups, or is that of an event log. With
    ``hosts`` there is one pool of that many; otherwise they are those of the budgets or of the log.
    """

    trace: Path
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

    def named(self) -> tuple[tuple[str, str], ...]:
        """Names and values of what was chosen, for the report."""
        shares = "those of the log" if self.budgets is None else str(self.budgets)
        if self.from_groups:
            shares = f"from groups, weights of {self.weights.name}" if self.weights else "from groups, equal"
        pairs = [
            ("trace", self.trace.name),
            ("budgets", shares),
            ("hosts", "as given" if self.hosts is None else f"{self.hosts} of {self.gpus_per_host} GPUs"),
            ("load", "as it is" if self.load is None else f"{float(self.load):g} times the capacity"),
            ("seed", str(self.assumed.seed)),
            ("start-up", format_duration(self.costs.start_up)),
            ("checkpoints", "when stopped" if self.costs.checkpoint_every is None
             else f"every {format_duration(self.costs.checkpoint_every)}"),
            ("unallocated", format_share(self.assumed.unallocated)),
            ("resumable", format_share(self.assumed.resumable)),
        ]  # fmt: skip
        return tuple(pairs)


def prepare(choice: Choice) -> Scenario:
    """Read what was chosen and put it together; whatever is wrong with it is told in one sentence."""
    if choice.budgets is not None and choice.from_groups:
        raise UsageError("the budgets come from a folder or from the trace's groups, not from both")
    if choice.weights is not None and not choice.from_groups:
        raise UsageError("weights are for budgets that are made from groups", hint="add --budgets-from-groups")
    found = _told(choice) if traces.first_line(choice.trace).startswith("{") else _foreign(choice)
    tree = replace(found.tree, policy=choice.rules.of(found.tree.policy))
    workloads = found.workloads
    if choice.load is not None:
        gpus = sum(host.gpus for host in found.hosts)
        workloads = assume.scale_load(workloads, gpus, choice.load)
    notes: tuple[str, ...] = ()
    failures = workloads.failures
    if choice.failures is not None:
        failures = faults.read_failures(choice.failures, found.hosts)
    rate = None
    if choice.failure_rate:
        rate = FailureRate(choice.assumed.seed, choice.failure_rate)
        notes = (faults.sentence(rate),)
    workloads = replace(workloads, assumptions=workloads.assumptions + notes, failures=failures)
    return Scenario(tree, found.hosts, workloads, rate)


def _told(choice: Choice) -> Scenario:
    """The scenario of an event log, with other budgets or hosts where they were chosen."""
    found = history.read_history(choice.trace)
    tree, hosts, workloads = found.tree, found.hosts, found.workloads
    if choice.from_groups:
        raise UsageError(
            f"{choice.trace} is an event log and has budgets of its own", hint="leave --budgets-from-groups out"
        )
    if choice.budgets is not None:
        tree, workloads = read_tree(choice.budgets), replace(workloads, events=())
    if choice.hosts is not None:
        first = tree.pools[0].name if tree.pools else hosts[0].pool
        hosts = _hosts(replace(tree, pools=(Pool(first, choice.gpus_per_host, choice.hosts),)))
    return Scenario(tree, hosts, workloads)


def _foreign(choice: Choice) -> Scenario:
    """The scenario of another cluster's trace."""
    trace = traces.read_trace(choice.trace)
    named = assume.name(trace, choice.assumed)
    given = () if choice.hosts is None else (Pool(POOL, choice.gpus_per_host, choice.hosts),)
    if choice.budgets is not None:
        tree = read_tree(choice.budgets)
        if given:
            tree = replace(tree, pools=(replace(given[0], name=tree.pools[0].name),))
        tree = replace(tree, policy=choice.rules.of(tree.policy))
        payers, notes = assume.payers_in(tree, named, trace)
    else:
        if not choice.from_groups:
            raise UsageError(
                f"{choice.trace} says nothing of budgets", hint="use --budgets FOLDER, or --budgets-from-groups"
            )
        if not given:
            raise UsageError(f"{choice.trace} says nothing of hosts", hint="use --hosts N, and --gpus-per-host")
        weights = None if choice.weights is None else grouptree.read_weights(choice.weights)
        below = choice.users_below_groups
        policy = choice.rules.of(Policy())
        tree, notes = grouptree.tree_of(named.members(), given, policy, weights=weights, users=below)
        payers = [f"{group}/{user}" if below else group for group, user in named.who]
    workloads = assume.workloads(trace, named, payers, tree, choice.assumed)
    return Scenario(tree, _hosts(tree), replace(workloads, assumptions=workloads.assumptions + notes))


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
        raise InvalidInputError("there are no hosts: the pools of the budgets have none", hint="use --hosts N")
    return found
