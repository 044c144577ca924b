"""``reconcile``: apply the budgets of a git commit to one daemon or to those of several clusters, once or for ever."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import click
from click.core import ParameterSource

from gpubudget.cli.client import Client
from gpubudget.cli.connect import connected, read_token
from gpubudget.cli.output import say, with_rfc3339
from gpubudget.cli.reconcilers import resume, status, suspend
from gpubudget.cli.values import DURATION, SHARE, Whole
from gpubudget.errors import GpuBudgetError, InvalidInputError, UsageError
from gpubudget.gitops import record
from gpubudget.gitops.diagnostics import to_text
from gpubudget.gitops.reconcile import Emergency, Order, folder_for
from gpubudget.gitops.reconcile import reconcile as reconcile_once
from gpubudget.gitops.report import Report, lines, prefix, to_json
from gpubudget.gitops.safety import LIMITS, Limits
from gpubudget.gitops.source import folder_parts, full_names, parse_source
from gpubudget.gitops.target import Daemon
from gpubudget.units import DAY, SECOND, format_duration, format_share

_TERMINATED = 128 + signal.SIGTERM
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)

Work = list[tuple[Order, Client]]


class _Terminated(BaseException):
    """SIGTERM came. Not an Exception, so that nothing on the way takes it for a fault."""


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  gpubudget reconcile --repo https://host/team/budgets.git
  gpubudget reconcile --repo /srv/budgets.git --ref main --dry-run
  gpubudget reconcile --repo git@host:budgets.git --every 5m
  gpubudget reconcile --repo /srv/budgets.git --force --commit SHA --reason "why not a revert"
  gpubudget reconcile status""",
)
@click.option("--repo", metavar="URL|PATH", help="The repository: a URL, or a folder of this machine. Has to be given.")
@click.option("--ref", default="main", show_default=True, help="The branch or tag to apply; no other ref is read.")
@click.option("--path", default="budgets", show_default=True, help="The folder of budgets in the repository.")
@click.option(
    "--cluster",
    "clusters",
    nargs=4,
    multiple=True,
    metavar="NAME PATH URL TOKEN_FILE",
    help="One of several clusters: its name, its folder of budgets, its daemon and the token for it. May be repeated.",
)
@click.option("--every", type=DURATION, help="Go on, with a pause of so long between two rounds.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and apply nothing.")
@click.option(
    "--force", is_flag=True, help="Apply a commit that a rule refuses, or while suspended; says what it forces."
)
@click.option("--commit", metavar="SHA", help="In an emergency, with --force: apply this commit of REF, and suspend.")
@click.option("--reason", help="Why; goes on record with --commit.")
@click.option(
    "--max-removed",
    type=Whole("number", 0, 1_000_000),
    default=LIMITS.removed,
    show_default=True,
    help="Refuse a commit that removes more budgets than this.",
)
@click.option(
    "--max-removed-part",
    type=SHARE,
    default=format_share(LIMITS.removed_part),
    show_default=True,
    help="Refuse a commit that removes more than this part of all budgets.",
)
@click.option(
    "--max-moved",
    type=SHARE,
    default=format_share(LIMITS.moved),
    show_default=True,
    help="Refuse a commit that moves more than this part of a pool away from people with protected work.",
)
@click.option(
    "--require-signed",
    "signers",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="Refuse a commit not signed by those in this file: ssh's allowed signers, or OpenPGP keys. May be repeated.",
)
@click.option(
    "--timeout", type=DURATION, default="60s", show_default=True, help="The longest that one git command may take."
)
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where mirrors, locks and records are kept.  [default: ~/.cache/gpubudget]",
)
@click.option(
    "--metrics-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write metrics here after each round, for Prometheus' textfile collector.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, JSON for programs (one line a report with --every or --cluster).",
)
@connected
def reconcile(  # noqa: PLR0913 - one for each option
    client: Client,
    /,
    *,
    repo: str | None,
    ref: str,
    path: str,
    clusters: tuple[tuple[str, str, str, str], ...],
    every: int | None,
    dry_run: bool,
    force: bool,
    commit: str | None,
    reason: str | None,
    max_removed: int,
    max_removed_part: Fraction,
    max_moved: Fraction,
    signers: tuple[Path, ...],
    timeout: int,
    cache_dir: Path | None,
    metrics_file: Path | None,
    output: str,
) -> int | None:
    """Apply the budgets of a git commit to the daemon.

    The whole tree is read at the commit that REF names, validated, and applied in one request, or not at all: a missing
    ref, a broken or empty tree, a commit that does not descend from the applied one, and one that takes too much away
    at once change nothing. With --cluster each cluster has its own result, whatever becomes of the others.
    """
    if _subcommand():
        return None
    if repo is None:
        raise UsageError("Missing option '--repo'.", hint="give the URL or folder of the repository")
    for option, span in (("--every", every), ("--timeout", timeout)):
        if span is not None and not SECOND <= span <= DAY:
            raise UsageError(f"{option} is {format_duration(span)}; it may be 1s to 1d")
    if force and (every is not None or clusters):
        raise UsageError("--force goes with one round and one cluster only", hint="leave --every and --cluster out")
    emergency = _emergency(commit, reason, force=force)
    try:
        source = parse_source(repo)
        full_names(ref)
        for folder in [path, *(cluster[1] for cluster in clusters)]:
            folder_parts(folder)
    except InvalidInputError as error:
        raise UsageError(error.message, hint=error.hint) from error
    limits = Limits(max_removed, max_removed_part, max_moved)
    order = Order(
        source,
        ref,
        path,
        folder_for(cache_dir, source, client.url),
        dry_run,
        force,
        timeout / SECOND,
        limits=limits,
        signers=signers,
        emergency=emergency,
        target=client.url,
    )
    with ExitStack() as clients:
        work = _several(order, clusters, cache_dir, clients) if clusters else [(order, client)]
        return _rounds(work, every, output, metrics_file)


reconcile.add_command(status)
reconcile.add_command(suspend)
reconcile.add_command(resume)


def _subcommand() -> bool:
    """Whether another command follows; it has its own options, so none may stand before it."""
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        return False
    given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise UsageError(f"options of reconcile do not go with {context.invoked_subcommand}", hint="put them after it")
    return True


def _emergency(commit: str | None, reason: str | None, *, force: bool) -> Emergency | None:
    if commit is None:
        if reason is not None:
            raise UsageError("--reason goes with --commit only")
        return None
    if not (force and reason and reason.strip()):
        raise UsageError(
            "--commit needs --force and --reason: it is for emergencies, and goes on record",
            hint="otherwise roll back with git revert, and merge that",
        )
    if not _COMMIT.fullmatch(commit):
        raise UsageError(f"{commit[:60]!r} is not a whole commit id", hint="git rev-parse shows all 40 digits of one")
    return Emergency(commit, reason.strip())


def _several(
    order: Order, clusters: Sequence[tuple[str, str, str, str]], cache_dir: Path | None, clients: ExitStack
) -> Work:
    """The order for each cluster, with a client of its own."""
    context = click.get_current_context()
    for name in ("path", "url", "token_file"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.replace('_', '-')} goes with one cluster only", hint="it is part of --cluster")
    names = [name for name, *_ in clusters]
    targets = [url for _, _, url, _ in clusters]
    if len(set(names)) < len(names) or len(set(targets)) < len(targets):
        raise UsageError("two clusters have the same name or the same daemon", hint="give each cluster once")
    work: Work = []
    for name, path, url, token_file in clusters:
        client = clients.enter_context(Client(url, lambda file=token_file: read_token(file, insist=True)))  # type: ignore[misc] # mypy#15459: a lambda with a default
        folder = folder_for(cache_dir, order.source, client.url)
        work.append((replace(order, path=path, folder=folder, target=client.url, cluster=name), client))
    return work


def _rounds(work: Work, every: int | None, output: str, metrics_file: Path | None) -> int:
    """One round, or one after the other until SIGTERM; the exit code."""
    indent = 2 if every is None and len(work) == 1 else None
    with _termination():
        try:
            while True:
                codes = set()
                for order, client in work:
                    report = reconcile_once(order, Daemon(client), time.time_ns() // 1_000_000)
                    _show(report, output, indent)
                    codes.add(report.exit_code)
                if metrics_file is not None:
                    _write_metrics(metrics_file, work)
                if every is None:
                    failed = codes - {0}
                    return failed.pop() if len(failed) == 1 else min(len(failed), 1)
                time.sleep(every / SECOND)
        except _Terminated:
            say("terminated; the daemon keeps what it has")
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
    """The report on stdout; errors, which are not its data, on stderr. Warnings are counted: cron mails stderr."""
    if output == "json":
        click.echo(json.dumps(with_rfc3339(to_json(report)), indent=indent, ensure_ascii=False))
        return
    for problem in report.problems:
        if problem.is_error:
            say(to_text(problem, prefix(report)))
    for line in lines(report):
        click.echo(line)
    if report.exit_code:
        of = f"{report.cluster}: " if report.cluster else ""  # stdout may go elsewhere
        say(f"error: {of}{report.error}")
        say(f"hint: {report.hint}")


def _write_metrics(file: Path, work: Work) -> None:
    """Metrics that cannot be written are told, and are no reason not to reconcile."""
    records = [found for order, _ in work if (found := record.read(order.folder))]
    try:
        record.write_whole(file, record.metrics(records))
        file.chmod(0o644)  # the collector is another user
    except (GpuBudgetError, OSError) as error:
        say(f"warning: {error}")
