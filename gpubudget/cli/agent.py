"""``gpubudget agent``: run the agent of one host, from options and a configuration file."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
from pathlib import Path

import click
from click.core import ParameterSource

from gpubudget.cli.client import DEFAULT_URL
from gpubudget.cli.connect import read_token
from gpubudget.errors import InvalidInputError, UsageError
from gpubudget.units import MINUTE, parse_duration

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_SHORTEST_INTERVAL = 100


@click.command(
    epilog="""\b
Examples:
  gpubudget agent --pool h100 --state-dir /var/lib/gpubudget-agent --config /etc/gpubudget/agent.yaml
  gpubudget agent --host sim-1 --pool h100 --state-dir /tmp/sim-1 --simulate-gpus 8"""
)
@click.option("--url", envvar="GPUBUDGET_URL", default=DEFAULT_URL, show_default=True, help="Where the daemon is.")
@click.option("--token-file", envvar="GPUBUDGET_TOKEN_FILE", default="", metavar="FILE", help="The token of this host.")
@click.option("--host", default=socket.gethostname, metavar="NAME", help="This host's name.  [default: the machine's]")
@click.option("--pool", required=True, help="The pool that the host belongs to.")
@click.option(
    "--state-dir", required=True, type=click.Path(path_type=Path), help="Where records, logs and checkpoints are kept."
)
@click.option(
    "--shared-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),  # made here it would not be the one that is shared
    help="A folder on all hosts, for checkpoints in place of that one.",
)
@click.option("--simulate-gpus", type=click.IntRange(1, 256), metavar="N", help="Act as if there were so many GPUs.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Health checks and repair steps.")
@click.option("--interval", default="5s", show_default=True, help="The longest time between two reports.")
@click.option("--stop-workloads", is_flag=True, help="At the end stop all workloads; else they run on.")
@click.pass_context
def agent(  # noqa: PLR0913, PLR0917 - one argument for each option
    ctx: click.Context,
    url: str,
    token_file: str,
    host: str,
    pool: str,
    state_dir: Path,
    shared_dir: Path | None,
    simulate_gpus: int | None,
    config: Path | None,
    interval: str,
    *,
    stop_workloads: bool,
) -> None:
    """Run the agent of this host until SIGTERM; workloads run on, and the next agent takes them over."""
    from gpubudget.agent.config import Config, load_config  # noqa: PLC0415 - only this command needs them
    from gpubudget.agent.gpus import open_gpus  # noqa: PLC0415
    from gpubudget.agent.loop import Agent, Settings  # noqa: PLC0415
    from gpubudget.agent.records import StateFolder  # noqa: PLC0415
    from gpubudget.agent.supervise import DamagedRecordError  # noqa: PLC0415

    for what, name in (("host", host), ("pool", pool)):
        if not _NAME.fullmatch(name):
            raise UsageError(f"--{what} {name!r} is no name", hint="use letters, digits, '.', '-' and '_'")
    chosen = load_config(config) if config else Config()
    run_as_root = (chosen.unknown_owners or ("run-as-root" if simulate_gpus else "refuse")) == "run-as-root"
    settings = Settings(url, host, pool, _interval(interval), stop_workloads=stop_workloads, run_as_root=run_as_root)
    insist = ctx.get_parameter_source("token_file") is ParameterSource.COMMANDLINE
    read_token(token_file, insist=insist)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with contextlib.closing(StateFolder(state_dir, shared_dir)) as state:
        gpus = open_gpus(chosen, simulate_gpus, state.path)
        try:
            Agent(settings, chosen, state, gpus, lambda: read_token(token_file, insist=insist)).run()
        except DamagedRecordError as error:
            hint = (
                "end what still runs of it and move it out of the state folder; an attempt without records has failed"
            )
            raise InvalidInputError(str(error), hint=hint) from error


def _interval(text: str) -> int:
    try:
        millis = parse_duration(text, "--interval")
    except InvalidInputError as error:
        raise UsageError(error.message, hint=error.hint) from error
    if not _SHORTEST_INTERVAL <= millis <= MINUTE:
        raise UsageError(f"--interval is {text}; it may be 100ms to 1m", hint="5s suits most sites")
    return millis
