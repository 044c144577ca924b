"""The command ``gpubudget``: which commands there are, and how each ends.

A command's module is imported when that command is called, so that the others start quickly. Whatever goes wrong
ends as one sentence on stderr, a hint where there is a way out, and an exit code that scripts can rely on. Knows
nothing of what the commands do.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from gpubudget import __version__
from gpubudget.errors import GpuBudgetError

USAGE = 64
INTERRUPTED = 130

Entry = tuple[str, str]
"""Where a command is (``module:attribute``) and what the list of commands says of it."""

SECTIONS: dict[str, dict[str, Entry]] = {
    "Workloads": {
        "submit": ("submit:submit", "Submit a workload."),
        "run": ("submit:run", "Submit a workload, show its output and return its exit code."),
        "cancel": ("workloads:cancel", "End workloads, whatever they are doing."),
        "requeue": ("workloads:requeue", "Stop a running workload and put it back in its budget."),
        "move": ("workloads:move", "Charge a waiting workload to another budget."),
        "wait": ("wait:wait", "Wait until workloads have ended and return their exit code."),
        "logs": ("logs:logs", "Show what a workload has printed."),
        "explain": ("explain:explain", "Say why a workload is where it is, and when it can start."),
    },
    "Budgets": {
        "validate": ("validate:validate", "Show every problem of a budgets repository at once."),
        "fmt": ("fmt:fmt", "Put budget files into their canonical layout."),
        "reconcile": ("reconcile:reconcile", "Apply the budgets of a git commit to the daemon."),
        "plan": ("plan:plan", "Show what a change of budgets means, for whom, before it is made."),
        "apply": ("apply:apply", "Apply a plan exactly as it was reviewed."),
        "owners": ("owners:owners", "Write the CODEOWNERS file that the managers make."),
        "approvals": ("owners:approvals", "Say whose approval a change of budgets still lacks."),
        "comment": ("comment:comment", "Put a plan on its pull request, as the one comment that it has there."),
        "init": ("init:init", "Make a new budgets repository."),
        "import": ("imports:import_", "Make budgets from what a site has: a Slurm dump or a table."),
        "usage": ("usage:usage", "Show what budgets get and what they have used."),
    },
    "Cluster": {
        "get": ("get:get", "List budgets, workloads, hosts, reservations, events or pools."),
        "drain": ("hosts:drain", "Empty a host as protections end, and repair it."),
        "cordon": ("hosts:cordon", "Place nothing new on a host."),
        "uncordon": ("hosts:uncordon", "Give a host back to work."),
        "remove-host": ("hosts:remove_host", "Forget a host that is gone for good."),
        "report": ("report:report", "Report what the cluster did: waits, fairness, GPU-hours by budget."),
        "simulate": ("simulate:simulate", "Play a trace through the scheduler and report what came of it."),
        "audit": ("audit:audit", "Recompute placements, ledger and preemptions from an event log."),
    },
    "Services": {
        "serve": ("serve:serve", "Run the daemon."),
        "agent": ("agent:agent", "Run the agent of one host."),
        "token": ("serve:token", "Create, list and revoke tokens."),
        "backup": ("backup:backup", "Copy the daemon's database, checked, while it runs."),
        "restore": ("backup:restore", "Put a backup in the place of the database."),
        "demo": ("demo:demo", "Show the whole loop on this machine."),
    },
    "Other": {
        "completion": ("main:completion", "Print the completion script of a shell."),
        "version": ("main:version", "Print the version."),
    },
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        """All commands, in the order of the sections."""
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """The command of that name, imported now; None if there is none."""
        for section in SECTIONS.values():
            if cmd_name in section:
                return _load(cmd_name, section[cmd_name][0])
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the same
        """The list of commands in sections, without importing any."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, (_, summary) in section.items()])


def _load(name: str, place: str) -> click.Command:
    module_name, _, attribute = place.partition(":")
    full_name = f"{__package__}.{module_name}"
    try:
        command = getattr(importlib.import_module(full_name), attribute)
    except ModuleNotFoundError as error:
        if error.name != full_name:
            raise
        raise GpuBudgetError(f"this installation has no command {name!r}", hint="install gpubudget anew") from error
    assert isinstance(command, click.Command)  # noqa: S101 - the table above names commands only
    return command


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"auto_envvar_prefix": "GPUBUDGET", "help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  gpubudget demo
  gpubudget submit -b language/olmo -g 8 -m 4h --resumable -- python train.py
  gpubudget get workloads
  gpubudget explain WORKLOAD

Every option can be set by a variable: GPUBUDGET_SUBMIT_GPUS is --gpus of submit. GPUBUDGET_URL says where the
daemon is, GPUBUDGET_TOKEN or GPUBUDGET_TOKEN_FILE who is calling.""",
)
@click.version_option(__version__, "-V", "--version", message="gpubudget %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Budgets in git for shared GPU clusters: fair share, minimum runtimes, preemption and drains."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@click.command(epilog="\b\nExample:\n  gpubudget version")
def version() -> None:
    """Print the version of this program."""
    click.echo(f"gpubudget {__version__}")


@click.command(
    epilog="""\b
Examples:
  source <(gpubudget completion bash)
  gpubudget completion fish > ~/.config/fish/completions/gpubudget.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes gpubudget's commands and options in SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has these three
    # The script is a constant text of click's; asking its class for it would start the shell to learn its version.
    complete = kind(cli, {}, "gpubudget", "_GPUBUDGET_COMPLETE")
    click.echo(complete.source_template % complete.source_vars())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it: what is written there goes nowhere
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = run_command(arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is still unwritten goes nowhere, without a complaint at exit. A reader that left knows why.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not (code or isinstance(error, BrokenPipeError)):
            click.echo(f"error: {_verdict(error)[0]}", err=True)
        code = code or 1
    sys.exit(code)


def run_command(arguments: Sequence[str] | None) -> int:
    """Run the command that ``arguments`` name (those of the process if None); the exit code.

    Every error has been told on stderr by then. With GPUBUDGET_DEBUG=1 an unexpected one is raised.
    """
    try:
        result = cli.main(arguments, prog_name="gpubudget", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:
        message, hint, code = _verdict(error)
        if code is None and os.environ.get("GPUBUDGET_DEBUG") == "1":
            raise
        click.echo(f"error: {message}", err=True)
        if hint:
            click.echo(f"hint: {hint}", err=True)
        return code or 1
    return result if isinstance(result, int) else 0


def _verdict(error: Exception) -> tuple[str, str, int | None]:
    """Message, hint and exit code for an error; no exit code for one that nobody expected."""
    match error:
        case GpuBudgetError(message=message, hint=hint, exit_code=code):
            return message, hint, code
        case click.UsageError(ctx=ctx):
            if ctx is not None and isinstance(error, click.exceptions.NoArgsIsHelpError):
                commands = ", ".join(ctx.command.list_commands(ctx)) if isinstance(ctx.command, click.Group) else ""
                return f"which one: {commands}?", f"`{ctx.command_path} --help` shows how to use it", USAGE
            hint = f"`{ctx.command_path} --help` shows how to use it" if ctx else ""
            return " ".join(error.format_message().split()), hint, USAGE
        case click.ClickException():
            return error.format_message(), "", 1
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EIO):
            return f"cannot write {error.filename or 'the output'}: {error.strerror}", "", 1
        case FileNotFoundError(filename=None, errno=errno.ENOENT):  # what asking where one is comes to
            return "the current folder is gone", "change to another one", None
        case OSError(filename=str() | bytes() | os.PathLike() as file, strerror=str(why)):
            hint = "check the path and its permissions; with GPUBUDGET_DEBUG=1 the command shows where it happened"
            return f"{os.fsdecode(file)} cannot be used: {why}", hint, None
        case _:
            what = " ".join(str(error).split()) or "no further word"
            hint = "please report it; with GPUBUDGET_DEBUG=1 the command shows where it happened"
            return f"an unexpected fault, {type(error).__name__}: {what}", hint, None


if __name__ == "__main__":
    main()
