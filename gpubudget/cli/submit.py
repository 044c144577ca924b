"""``submit`` and ``run``: from options or a file to workloads in the daemon.

What can be judged without the daemon is refused here with a usage error; everything else is the daemon's to accept
or refuse. Each call carries one idempotency key, so that a lost answer never submits twice.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gpubudget.cli import follow
from gpubudget.cli.client import Answer, Client, segment
from gpubudget.cli.connect import connected
from gpubudget.cli.explain import when
from gpubudget.cli.output import Format, output_option, rendered, say, standing
from gpubudget.cli.values import BUDGET, DURATION, POOL, Whole
from gpubudget.cli.views import WORKLOADS
from gpubudget.cli.workloadfile import workloads_of
from gpubudget.errors import GpuBudgetError, UsageError

C = TypeVar("C", bound=Callable[..., Any])

_COMMAND_FOLLOWS = {"allow_interspersed_args": False}
"""What follows the first word of the command belongs to it, also without ``--``."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _variables(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """The variables of ``-e``: NAME=VALUE, or NAME for the value it has here."""
    found: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise click.BadParameter(f"{text[:60]!r} is not NAME=VALUE or NAME")
        if not sign and name not in os.environ:
            raise click.BadParameter(f"{name} has no value here; write {name}=VALUE")
        found[name] = value if sign else os.environ[name]
    return found


def workload_options(command: C) -> C:
    """The options that describe a workload."""
    options = [
        click.option("-b", "--budget", type=BUDGET, envvar="GPUBUDGET_BUDGET", help="Who pays: language/olmo/alice."),
        click.option("-g", "--gpus", type=Whole("gpus", 1, 1_000_000), help="How many GPUs in all."),
        click.option(
            "-m",
            "--min-runtime",
            type=DURATION,
            help="Protected for so long from its start (4h). Without it: unallocated, so free and unprotected.",
        ),
        click.option(
            "-N",
            "--hosts",
            type=Whole("hosts", 1, 100_000),
            help="Spread evenly over so many hosts.  [default: the fewest]",
        ),
        click.option("--pool", type=POOL, multiple=True, help="Where; several in order of preference."),
        click.option("--resumable", is_flag=True, help="When stopped, it is put back and goes on from its checkpoint."),
        click.option("--debug", is_flag=True, help="May use the lane for short, small workloads."),
        click.option("--max-runtime", type=DURATION, help="It is ended after so long."),
        click.option(
            "--priority", type=Whole("priority", -1000, 1000), help="Order among the workloads of its own budget only."
        ),
        click.option("--retries", type=Whole("retries", 0, 100), help="How often it starts again after it failed."),
        click.option("--name", help="What people call it."),
        click.option(
            "-e",
            "--env",
            multiple=True,
            metavar="NAME[=VALUE]",
            callback=_variables,
            help="A variable for its processes.",
        ),
        click.option("--cwd", help="The folder it starts in, on its host."),
        click.argument("command", nargs=-1, type=click.UNPROCESSED),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    context_settings=_COMMAND_FOLLOWS,
    epilog="""\b
Examples:
  gpubudget submit -b language/olmo -g 8 -m 4h --resumable -- python train.py
  gpubudget submit -g 1 -- python sweep.py          # unallocated: free, and first to leave
  gpubudget submit -b vision -g 64 -N 8 -m 8h --wait -- bash train.sh
  gpubudget submit -b vision -f workloads.yaml      # options hold for all in the file""",
)
@workload_options
@click.option("-f", "--file", "file", metavar="FILE", help="One workload or a list, as YAML or JSON; - is stdin.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; return its exit code.")
@output_option(Format.NAME)
@connected
def submit(client: Client, /, *, file: str | None, wait: bool, output: Format, **options: object) -> int:
    """Submit a workload that runs COMMAND, and print its id.

    It starts when its budget's turn comes; until then `gpubudget explain` says why it waits and when it can start.
    """
    bodies = workloads_of(file, _body(options)) if file else [_complete(_body(options))]
    workloads = _submit(client, bodies, batch=bool(file))
    click.echo(rendered({"workloads": workloads}, workloads, WORKLOADS, output, name="id"))
    if len(workloads) == 1:
        say(_becomes(client, workloads[0]))
    else:
        say(f"{len(workloads)} workloads were submitted")
    if not wait:
        return 0
    return follow.wait_for(client, [workload["id"] for workload in workloads])


@click.command(
    context_settings=_COMMAND_FOLLOWS,
    epilog="""\b
Example:
  gpubudget run -b language/olmo -g 1 -m 10m -- python evaluate.py""",
)
@workload_options
@connected
def run(client: Client, /, **options: object) -> int:
    """Submit a workload that runs COMMAND, show what it prints, and return its exit code.

    Ctrl-C cancels the workload and waits for its end; a second Ctrl-C leaves without waiting.
    """
    (workload,) = _submit(client, [_complete(_body(options))], batch=False)
    try:
        say(_becomes(client, workload))
        return follow.until_end(client, workload["id"])
    except KeyboardInterrupt:
        say(f"cancelling {workload['id']}; press Ctrl-C again to leave without waiting for its end")
        client.post(f"/v1/workloads/{segment(workload['id'])}/cancel", {})
        follow.until_ended(client, workload["id"])
        say(f"{workload['id']} is cancelled")
        raise


def _body(options: dict[str, object]) -> Answer:
    """What the options say, under the API's keys; what was not given is left out."""
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    plain["pools"] = plain.pop("pool")
    return {key: value for key, value in plain.items() if value or (value == 0 and value is not False)}


def _complete(body: Answer) -> Answer:
    if "gpus" not in body:
        raise UsageError("how many GPUs?", hint="say it with -g, such as -g 8")
    if not body.get("command") or not body["command"][0]:
        raise UsageError(
            "there is no command to run", hint="write it after --, as in: gpubudget submit -g 1 -- python train.py"
        )
    return body


def _submit(client: Client, bodies: list[Answer], *, batch: bool) -> list[Answer]:
    key = secrets.token_hex(16)
    if not batch:
        return [client.post("/v1/workloads", bodies[0], key=key)]
    found: list[Answer] = client.post("/v1/workloads", {"workloads": bodies}, key=key)["workloads"]
    return found


def _becomes(client: Client, workload: Answer) -> str:
    """One sentence on what has become of a new workload; it is submitted, whatever this question answers."""
    name, state = workload["id"], workload["state"]
    try:
        found = client.get(f"/v1/workloads/{segment(name)}/explain")
    except GpuBudgetError:
        return standing(name, state, workload["reason"])
    start = f"; it can start {when(found)}" if found["rank"] is not None and found["start_ms"] is not None else ""
    return standing(name, found["state"], found["reason"]) + start
