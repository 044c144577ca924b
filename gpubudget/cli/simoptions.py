"""The options of ``simulate`` that say what is played: the trace, the budgets, the cluster, and what is assumed."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import click

from gpubudget.cli.values import DURATION, SHARE, Whole, shown
from gpubudget.errors import UsageError
from gpubudget.sim.assume import Assumed
from gpubudget.sim.played import Costs
from gpubudget.sim.prepare import Choice, Rules
from gpubudget.sim.synthetic import MIXES, PRESETS
from gpubudget.units import DAY, SECOND, format_duration

C = TypeVar("C", bound=Callable[..., Any])
FILE = click.Path(path_type=Path)
_FACTOR = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?", re.ASCII)


class Factor(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument
    """A number such as ``2.5``, as an exact fraction."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        """The fraction; a usage error for anything else."""
        if not _FACTOR.fullmatch(str(value)):
            self.fail(f"{shown(str(value))} is not a number such as 2.5", param, ctx)
        return Fraction(str(value))


FACTOR = Factor()

_PER_HOST = 8
HOSTS, PER_HOST, GPUS = Whole("hosts", 1, 100_000), Whole("GPUs", 1, 64), Whole("GPUs", 0, 100_000)
DAYS, PRESET, MIX = Whole("days", 1, 3_650), click.Choice(list(PRESETS)), click.Choice(list(MIXES))
SEED, PEOPLE, GROUPS = Whole("seed", 0, 1 << 31), Whole("people", 1, 100_000), Whole("groups", 1, 10_000)

OPTIONS: tuple[tuple[str, Any, str | None, str], ...] = (
    ("trace", FILE, None, "CSV, SWF or an event log; may end in .gz."),
    ("synthetic", SEED, None, "Make up work from this seed, instead of a trace."),
    ("preset", PRESET, "lab", "A lab of 150 people that asks for 2.5 times 1,024 GPUs, or 88 GPUs."),
    ("mix", MIX, None, "Sizes and run times like those of another cluster.  [default: of the preset]"),
    ("days", DAYS, None, "For how many days.  [default: of the preset]"),
    ("debug-sessions", FACTOR, None, "Debug sessions a person and working day, added to a trace.  [default: none]"),
    ("budgets", FILE, None, "A folder of budgets.  [default: those of an event log or a preset]"),
    ("budgets-from-groups", None, None, "Make a budget of each group of the trace."),
    ("weights", FILE, None, "Their shares: CSV, a group and a number a line.  [default: equal]"),
    ("users-below-groups", None, None, "And a budget of each user below that of the group."),
    ("hosts", HOSTS, None, "How many hosts.  [default: those of the budgets or the preset]"),
    ("gpus-per-host", PER_HOST, str(_PER_HOST), "How many GPUs each has."),
    ("scale-load", FACTOR, None, "Ask for so many times the capacity: submissions move together."),
    ("seed", SEED, "0", "What is drawn is drawn from it."),
    ("people", PEOPLE, "10", "Users of a group, where the trace names none."),
    ("groups", GROUPS, "15", "Groups, where the trace names none."),
    ("min-runtime-from", SHARE, "10%", "Minimum runtimes are drawn from this part of the run time,"),
    ("min-runtime-to", SHARE, "100%", "to this part of it."),
    ("unallocated", SHARE, "0%", "How many workloads have no minimum runtime."),
    ("resumable", SHARE, "100%", "How many can go on where they were stopped."),
    ("lookback", DURATION, None, "The lookback window.  [default: of the budgets, or 7d]"),
    ("max-min-runtime", DURATION, None, "The longest minimum runtime.  [default: of the budgets, or 8h]"),
    ("debug-gpus", GPUS, None, "GPUs of the debug lane.  [default: of the budgets, or none]"),
    ("start-up", DURATION, "2m", "How long it takes to start again."),
    ("stop-time", DURATION, "10s", "How long it takes to stop."),
    ("checkpoint-every", DURATION, None, "How often work is saved.  [default: when it is stopped]"),
    ("failures", FACTOR, None, "Hosts fail so often for each 1,000 host-days, 3.8 say.  [default: never]"),
    ("failures-from", FILE, None, "CSV of failures: at_s,host,fault,repair_s,cause."),
    ("warm-up", DURATION, None, "Leave so much of the beginning out of all figures.  [default: nothing]"),
)
"""Name, type (None for a flag), default and help."""

MADE_UP = ("preset", "mix", "days")
FOR_TRACES = ("weights", "users-below-groups", "seed", "people", "groups")
"""Options that say nothing of a trace, and those that say nothing of made-up work."""


def choice_options(command: C) -> C:
    """Give a command the options of which ``choice_of`` makes a ``Choice``."""
    for name, kind, default, says in reversed(OPTIONS):
        flag, metavar = kind is None, "FILE" if kind is FILE else None
        shown = default is not None
        option = click.option(
            f"--{name}", type=kind, is_flag=flag, default=default, show_default=shown, metavar=metavar, help=says
        )
        command = option(command)
    return command


def choice_of(given: dict[str, Any]) -> Choice:
    """What was chosen, from the values of all options; raises UsageError where they do not go together."""
    made_up = given["synthetic"] is not None
    if made_up == (given["trace"] is not None):
        raise UsageError("there must be one thing to play", hint="give --trace FILE, or --synthetic SEED")
    _no_idle(given, MADE_UP if not made_up else FOR_TRACES, "made-up work" if not made_up else "a trace")
    if given["min_runtime_from"] > given["min_runtime_to"]:
        raise UsageError("--min-runtime-from is more than --min-runtime-to")
    for name in ("lookback", "max_min_runtime"):
        if given[name] is not None and not SECOND <= given[name] <= 366 * DAY:
            raise UsageError(f"--{name.replace('_', '-')} is {format_duration(given[name])}: it may be 1s to 366d")
    if given["hosts"] is None and given["gpus_per_host"] != _PER_HOST and not (made_up and given["budgets"] is None):
        raise UsageError("--gpus-per-host changes nothing here", hint="give --hosts, too")
    if given["checkpoint_every"] == 0:
        raise UsageError("--checkpoint-every must be more than 0", hint="without it, work is saved when it is stopped")
    seed = given["synthetic"] if made_up else given["seed"]
    assumed = Assumed(
        seed, given["people"], given["groups"], given["min_runtime_from"], given["min_runtime_to"],
        given["unallocated"], given["resumable"],
    )  # fmt: skip
    return Choice(
        trace=given["trace"],
        preset=given["preset"] if made_up else None,
        mix=given["mix"],
        days=given["days"],
        debug_sessions=given["debug_sessions"],
        budgets=given["budgets"],
        from_groups=given["budgets_from_groups"],
        weights=given["weights"],
        users_below_groups=given["users_below_groups"],
        hosts=given["hosts"],
        gpus_per_host=given["gpus_per_host"],
        load=given["scale_load"],
        assumed=assumed,
        rules=Rules(given["lookback"], given["max_min_runtime"], given["debug_gpus"]),
        costs=Costs(given["start_up"], given["stop_time"], given["checkpoint_every"]),
        failures=given["failures_from"],
        failure_rate=given["failures"],
        warm_up=given["warm_up"] or 0,
    )


def _no_idle(given: dict[str, Any], names: tuple[str, ...], of: str) -> None:
    """Refuse options that would change nothing."""
    usual = {name: default for name, _, default, _ in OPTIONS}
    for name in names:
        value = given[name.replace("-", "_")]
        if value and str(value) != usual[name]:
            raise UsageError(f"--{name} is for {of}, and changes nothing here", hint=f"leave --{name} out")
