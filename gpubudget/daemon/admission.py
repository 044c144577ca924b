"""From a request to submit to a workload that the core may see: the limits of the policy, the pools and the budgets.

Pure: reads a body, the applied tree and how many hosts pools have, changes nothing, and refuses with a sentence that
names the numbers. What depends on the state of the cluster is the core's to decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpubudget.core.budget import ROOT, Budget, DebugLane, Pool, Tree, parent_path
from gpubudget.core.placement import split
from gpubudget.core.workload import WorkloadSpec
from gpubudget.daemon.fields import Fields
from gpubudget.daemon.records import Program
from gpubudget.errors import ConflictError, ForbiddenError, InvalidInputError, RefusedError
from gpubudget.units import DAY, count, format_duration

MOST_GPUS = 1_000_000
MOST_HOSTS = 100_000
MOST_PRIORITY = 1_000
MOST_RETRIES = 100
MOST_ARGUMENTS = 1_000
MOST_VARIABLES = 1_000
LONGEST_PROGRAM = 128 * 1024
LONGEST_RUN = 3_650 * DAY

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Charge:
    """Who submits: the owner, and whether every budget may be charged."""

    owner: str
    everywhere: bool = False


class Book:
    """The applied tree, its budgets by path, and how many hosts pools have. Without a tree nothing is admitted."""

    __slots__ = ("_present", "_tree", "budgets")

    def __init__(self, tree: Tree | None, present: Callable[[str], int]) -> None:
        self._tree, self._present = tree, present
        self.budgets: dict[str, Budget] = {} if tree is None else {budget.path: budget for budget in tree.budgets()}

    @property
    def tree(self) -> Tree:
        """The applied tree; raises ConflictError while there is none."""
        if self._tree is None:
            raise ConflictError("no budgets have been applied yet", hint="run gpubudget reconcile first")
        return self._tree

    def hosts(self, pool: Pool, least: int) -> int:
        """How many hosts a pool should have or, where ``least`` are more than these, really has."""
        return pool.hosts if least <= pool.hosts else max(pool.hosts, self._present(pool.name))

    def chargeable(self, path: str, by: Charge) -> None:
        """Raise RefusedError if there is no such budget, ForbiddenError if its owner may not spend it."""
        budget = self.budgets.get(path)
        if budget is None:
            raise RefusedError(f"there is no budget {path[:80]!r}", hint="gpubudget get budgets lists them")
        if by.everywhere or by.owner in budget.members:
            return
        members = ", ".join(budget.members[:10]) or "nobody"
        mine = [other.path for other in self.budgets.values() if by.owner in other.members][:5]
        hint = f"you may charge {', '.join(mine)}" if mine else "ask the budget's manager to add you to its members"
        raise ForbiddenError(f"{by.owner} is no member of budget {path} (members: {members})", hint=hint)

    def manages(self, person: str, path: str | None) -> bool:
        """Whether a person manages the budget at ``path`` or one above it; of a removed budget, those that are left."""
        while path is not None:
            budget = self.budgets.get(path)
            if budget is not None and person in budget.managers:
                return True
            path = None if path == ROOT else parent_path(path)
        return False


def admit(data: object, where: str, workload: str, book: Book, by: Charge) -> tuple[WorkloadSpec, Program]:
    """The workload that one body of a submission describes. Raises InvalidInput-, Refused- or ForbiddenError."""
    tree, fields = book.tree, Fields(data, where)
    budget = fields.text("budget", None, longest=1_000)
    gpus = fields.number("gpus", 1, MOST_GPUS)
    hosts = fields.number("hosts", 1, MOST_HOSTS, None)
    names = fields.texts("pools", 100, None)
    min_runtime = fields.duration("min_runtime", LONGEST_RUN, 0)
    max_runtime = fields.duration("max_runtime", LONGEST_RUN, None)
    debug, resumable = fields.flag("debug"), fields.flag("resumable")
    priority = fields.number("priority", -MOST_PRIORITY, MOST_PRIORITY, 0)
    retries = fields.number("retries", 0, MOST_RETRIES, 0)
    program = _program(fields)
    fields.done()

    pools = _pools(tree, names)
    _fits(book, pools, gpus, hosts)
    max_runtime = _runtimes(tree, min_runtime, max_runtime)
    if debug:
        max_runtime = _debug(tree.policy.debug, gpus, max_runtime)
    if budget is not None:
        book.chargeable(budget, by)
    elif min_runtime:
        raise InvalidInputError(
            f"a workload with a minimum runtime ({format_duration(min_runtime)}) needs a budget that funds it",
            hint="name a budget, or leave the minimum runtime at 0",
        )
    spec = WorkloadSpec(
        id=workload,
        owner=by.owner,
        budget=budget,
        pools=tuple(pool.name for pool in pools),
        gpus=gpus,
        hosts=hosts,
        min_runtime=min_runtime,
        max_runtime=max_runtime,
        resumable=resumable,
        debug=debug,
        priority=priority,
        retries=retries,
    )
    return spec, program


def _program(fields: Fields) -> Program:
    name = fields.text("name", "", longest=200, empty=True)
    command = fields.texts("command", MOST_ARGUMENTS, longest=LONGEST_PROGRAM, empty=True)
    env = fields.mapping("env", MOST_VARIABLES, longest=LONGEST_PROGRAM)
    cwd = fields.text("cwd", None)
    if not command or not command[0]:
        raise InvalidInputError("command is empty", hint='write the program and its arguments: ["python", "train.py"]')
    for variable, _ in env:
        if not _VARIABLE.fullmatch(variable):
            raise InvalidInputError(f"env has the name {variable[:40]!r}, which no environment variable can have")
    if cwd is not None and not cwd.startswith("/"):
        raise InvalidInputError(
            f"cwd is {cwd[:60]!r}, not an absolute path", hint="write it from / on, as the hosts see it"
        )
    size = sum(map(len, command)) + sum(len(key) + len(value) for key, value in env)
    if size > LONGEST_PROGRAM:
        raise InvalidInputError(
            f"command and env have {size} characters; at most {LONGEST_PROGRAM} are allowed",
            hint="put a long program into a file that the hosts can read",
        )
    return Program(command, name, env, cwd)


def _pools(tree: Tree, names: tuple[str, ...] | None) -> list[Pool]:
    if names is None:
        return [tree.pools[0]]
    known = {pool.name: pool for pool in tree.pools}
    for name in names:
        if name not in known:
            raise RefusedError(f"there is no pool {name[:40]!r}", hint="pools are " + ", ".join(known))
    if not names:
        raise InvalidInputError("pools is empty", hint=f"pools are {', '.join(known)}; the first is meant without this")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError(f"pools names {twice} twice", hint="name each pool once, in order of preference")
    return [known[name] for name in names]


def _fits(book: Book, pools: list[Pool], gpus: int, hosts: int | None) -> None:
    """Refuse what none of the pools could ever hold, with the sentence for the first of them."""
    refusals = [refusal for pool in pools if (refusal := _misfit(book, pool, gpus, hosts)) is not None]
    if len(refusals) == len(pools):
        raise refusals[0]


def _misfit(book: Book, pool: Pool, gpus: int, hosts: int | None) -> RefusedError | None:
    most = book.hosts(pool, max(-(-gpus // pool.gpus_per_host), hosts or 1))
    if gpus > most * pool.gpus_per_host:
        size = f"{count(most, 'host')} of {pool.gpus_per_host} GPUs, {most * pool.gpus_per_host} in all"
        return RefusedError(f"{gpus} GPUs are more than pool {pool.name} has: {size}", hint="ask for fewer GPUs")
    try:
        needed, _ = split(gpus, hosts, pool.gpus_per_host)
    except RefusedError as refusal:
        return refusal
    if needed > most:
        return RefusedError(f"{needed} hosts are more than pool {pool.name} has: {most}", hint="ask for fewer")
    return None


def _runtimes(tree: Tree, min_runtime: int, max_runtime: int | None) -> int | None:
    limit = tree.policy.max_min_runtime
    if min_runtime > limit:
        raise RefusedError(
            f"a minimum runtime of {format_duration(min_runtime)} is over the limit of {format_duration(limit)}",
            hint="ask for the shortest time in which it makes progress; it runs on after that while nobody needs it",
        )
    if max_runtime is not None and max_runtime < max(min_runtime, 1):
        raise InvalidInputError(
            f"max_runtime ({format_duration(max_runtime)}) is shorter than min_runtime ({format_duration(min_runtime)})"
            if max_runtime
            else "max_runtime is 0",
            hint="leave max_runtime out if nothing should end the workload",
        )
    return max_runtime


def _debug(lane: DebugLane | None, gpus: int, max_runtime: int | None) -> int:
    if lane is None:
        raise RefusedError("this cluster has no debug lane", hint="submit without debug")
    if gpus > lane.max_gpus:
        raise RefusedError(f"the debug lane takes at most {lane.max_gpus} GPUs, not {gpus}", hint="ask for fewer GPUs")
    if max_runtime is not None and max_runtime > lane.max_runtime:
        raise RefusedError(
            f"the debug lane takes at most {format_duration(lane.max_runtime)}, not {format_duration(max_runtime)}",
            hint="ask for less time",
        )
    return lane.max_runtime if max_runtime is None else max_runtime
