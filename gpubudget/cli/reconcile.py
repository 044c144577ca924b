"""``reconcile``: apply the budgets of a git commit to the daemon, once or again and again."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gpubudget.cli.client import Client
from gpubudget.cli.connect import connected
from gpubudget.cli.output import with_rfc3339
from gpubudget.cli.values import DURATION
from gpubudget.errors import UsageError
from gpubudget.gitops.diagnostics import to_text
from gpubudget.gitops.reconcile import Order, folder_for
from gpubudget.gitops.reconcile import reconcile as reconcile_once
from gpubudget.gitops.report import Report, Status, lines, prefix, to_json
from gpubudget.gitops.source import folder_parts, full_names, parse_source
from gpubudget.gitops.target import Daemon
from gpubudget.units import DAY, SECOND, format_duration

_TERMINATED = 128 + signal.SIGTERM


class _Terminated(BaseException):
    """SIGTERM came. Not an Exception, so that nothing on the way takes it for a fault."""


@click.command(
    epilog="""\b
Examples:
  gpubudget reconcile --repo https://host/team/budgets.git
  gpubudget reconcile --repo /srv/budgets.git --ref main --dry-run
  gpubudget reconcile --repo git@host:budgets.git --every 5m"""
)
@click.option("--repo", required=True, metavar="URL|PATH", help="The repository: a URL, or a folder of this machine.")
@click.option("--ref", default="main", show_default=True, help="The branch or tag to apply; no other ref is read.")
@click.option("--path", default="budgets", show_default=True, help="The folder of budgets in the repository.")
@click.option("--every", type=DURATION, help="Go on, with a pause of so long between two rounds.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and apply nothing.")
@click.option(
    "--force",
    is_flag=True,
    help="Apply a commit that does not descend from the applied one, or that removes every budget.",
)
@click.option(
    "--timeout", type=DURATION, default="60s", show_default=True, help="The longest that one git command may take."
)
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where mirrors and locks are kept.  [default: ~/.cache/gpubudget]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, JSON for programs (one line a round with --every).",
)
@connected
def reconcile(  # noqa: PLR0913 - one for each option
    client: Client,
    /,
    *,
    repo: str,
    ref: str,
    path: str,
    every: int | None,
    dry_run: bool,
    force: bool,
    timeout: int,
    cache_dir: Path | None,
    output: str,
) -> int:
    """Apply the budgets of a git commit to the daemon.

    The whole tree is read at the commit that REF names, validated, and applied in one request, or not at all: a missing
    ref, a broken or empty tree, and a commit that does not descend from the applied one change nothing.
    """
    for option, span in (("--every", every), ("--timeout", timeout)):
        if span is not None and not SECOND <= span <= DAY:
            raise UsageError(f"{option} is {format_duration(span)}; it may be 1s to 1d")
    if every is not None and force:
        raise UsageError("--force goes with one round only", hint="leave --every out")
    source = parse_source(repo)
    full_names(ref)
    folder_parts(path)
    folder = folder_for(cache_dir, source, client.url)
    order = Order(source, ref, path, folder, dry_run, force, timeout / SECOND)
    with _termination():
        try:
            while True:
                report = reconcile_once(order, Daemon(client), time.time_ns() // 1_000_000)
                _show(report, output, indent=2 if every is None else None)
                if every is None:
                    return report.exit_code
                time.sleep(every / SECOND)
        except _Terminated:
            click.echo("terminated; the daemon keeps what it has", err=True)
            return _TERMINATED if every is None else 0


@contextmanager
def _termination() -> Iterator[None]:
    """Lets SIGTERM end what is being done, git's processes included, wherever it is: each step may be the last."""

    def terminate(*_: object) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(report: Report, output: str, indent: int | None) -> None:
    """The report on stdout; problems and errors, which are not its data, on stderr."""
    if output == "json":
        click.echo(json.dumps(with_rfc3339(to_json(report)), indent=indent, ensure_ascii=False))
        return
    for problem in report.problems:
        click.echo(to_text(problem, prefix(report)), err=True)
    for line in lines(report):
        click.echo(line)
    if report.error:
        click.echo(f"error: {report.error}", err=True)
    if report.hint and report.status in {Status.FAILED, Status.REFUSED}:
        click.echo(f"hint: {report.hint}", err=True)
