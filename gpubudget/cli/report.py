"""``report``: what the cluster did in the last days, who waited, and who got the GPU time, as its event log tells."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory

import click

from gpubudget.cli.client import Client
from gpubudget.cli.connect import connected
from gpubudget.cli.outfiles import check_files, write_file
from gpubudget.cli.output import Column, now_ms, printable, say, table
from gpubudget.cli.recorded import record
from gpubudget.cli.values import DURATION
from gpubudget.errors import InvalidInputError, RefusedError, UsageError
from gpubudget.sim import report as shown
from gpubudget.sim.happened import Progress, happened
from gpubudget.sim.measures import BudgetMeasures, measure
from gpubudget.sim.result import Result
from gpubudget.units import DAY, about_duration, count, format_gpu_hours

FILE = click.Path(path_type=Path)
USUAL = 30 * DAY
_NAMED = 3
"""So many lines that were left out are named on the terminal; the page has more."""


def _of(part: int, whole: int) -> Fraction | None:
    return Fraction(part, whole) if whole else None


_CLUSTER = [
    Column("AVAILABILITY", lambda row: shown.percent(row["m"].pyramid.availability), right=True),
    Column("OCCUPANCY", lambda row: shown.percent(row["m"].pyramid.occupancy), right=True),
    Column("IMPACT", lambda row: shown.percent(row["m"].pyramid.impact), right=True),
    Column("UTILIZATION", lambda row: shown.percent(row["m"].pyramid.utilization), right=True),
    Column("WORKLOADS", lambda row: f"{row['m'].workloads:,}", right=True),
    Column("WAIT P50", lambda row: shown.wait(row["m"].waits[0].first.p50_ms), right=True),
    Column("P90", lambda row: shown.wait(row["m"].waits[0].first.p90_ms), right=True),
    Column("PREEMPTIONS", lambda row: f"{row['m'].preemptions.count:,}", right=True),
    Column("LOST GPU-H", lambda row: format_gpu_hours(row["m"].lost_gpu_ms), right=True),
]
_BUDGETS = [
    Column("BUDGET", lambda row: row["b"].path),
    Column("SHARE", lambda row: shown.percent(row["b"].share), right=True),
    Column("WORKLOADS", lambda row: f"{row['b'].workloads:,}", right=True),
    Column("DEMANDED", lambda row: format_gpu_hours(row["b"].demanded_gpu_ms), right=True),
    Column("ENTITLED", lambda row: format_gpu_hours(row["b"].entitled_gpu_ms), right=True),
    Column("DELIVERED", lambda row: format_gpu_hours(row["b"].delivered_gpu_ms), right=True),
    Column("OF IT", lambda row: shown.percent(_of(row["b"].delivered_gpu_ms, row["b"].entitled_gpu_ms)), right=True),
    Column("UNALLOCATED", lambda row: format_gpu_hours(row["b"].unallocated_gpu_ms), right=True),
    Column("LOST", lambda row: format_gpu_hours(row["b"].lost_gpu_ms), right=True),
    Column("PREEMPTED", lambda row: f"{row['b'].preempted:,}", right=True),
    Column("WAIT P50", lambda row: shown.wait(row["b"].waits.first.p50_ms), right=True),
    Column("P90", lambda row: shown.wait(row["b"].waits.first.p90_ms), right=True),
]


@click.command(
    epilog="""\b
Examples:
  gpubudget report
  gpubudget report --since 7d --out week.html
  gpubudget report --log events.jsonl.gz --since 30d --out november.html --csv workloads.csv"""
)
@click.option("--since", type=DURATION, metavar="SPAN", help="From so long ago on.  [default: 30d; all of a --log]")
@click.option("--log", type=FILE, metavar="FILE", help="An event log, instead of the daemon's; - for stdin.")
@click.option("--out", type=FILE, metavar="FILE", help="Write the report, one HTML page.")
@click.option("--json", "as_json", type=FILE, metavar="FILE", help="Write all figures.")
@click.option("--csv", "as_csv", type=FILE, metavar="FILE", help="Write a row for each workload.")
@connected
def report(
    client: Client,
    /,
    *,
    since: int | None,
    log: Path | None,
    out: Path | None,
    as_json: Path | None,
    as_csv: Path | None,
) -> None:
    """Report what the cluster did: the four figures, waits, fairness, preemptions, and GPU-hours by budget.

    All is computed from the event log, in the way in which `simulate` reports on a simulation. A log of a file ends
    with its last line, and --since counts back from there.
    """
    check_files({"--out": out, "--json": as_json, "--csv": as_csv}, {"log": log})
    result = measured(client, since, log)
    figures = measure(result)
    tell(result)
    run = shown.Run("as it happened", result, figures)
    try:
        write_file(out, lambda: shown.page([run], title_of(result)))
        write_file(as_json, lambda: shown.as_json([run]))
        write_file(as_csv, lambda: shown.as_csv(result))
    finally:  # whatever cannot be written, what was found is said
        click.echo(table([{"m": figures}], _CLUSTER))
        click.echo(f"\n{budgets_table(figures.programs)}")


def measured(client: Client, since: int | None, log: Path | None = None) -> Result:
    """What happened in the last ``since`` milliseconds, by the daemon's log or that of a file."""
    if since == 0:
        raise UsageError("--since 0 is no time at all", hint="--since 7d, say")
    with _live() as progress, TemporaryDirectory(prefix="gpubudget-") as folder:
        file = Path(folder) / "events.jsonl"
        if log is not None:
            found = _of_file(log, file, since, progress)
            return replace(found, settings=(("log", log.name),))
        if progress is not None:
            progress("what the daemon has recorded", 0)
        now = now_ms()
        begin = now - (USUAL if since is None else since)
        record(client, begin, file, replay=False)
        try:
            found = happened(file, begin, until=now, progress=progress)
            return replace(found, settings=(("log", "the daemon's"),))
        except InvalidInputError:
            raise RefusedError(
                "there is nothing to report on yet: the daemon has not recorded budgets, a host and a workload",
                hint="`gpubudget get events` shows what it has recorded",
            ) from None


def _of_file(log: Path, copy: Path, since: int | None, progress: Progress | None) -> Result:
    """What a log tells, which is read twice: what comes through a pipe, or from stdin for ``-``, is copied first."""
    stdin = str(log) == "-"
    if not stdin and (os.path.isfile(log) or not os.path.exists(log)):  # noqa: PTH110, PTH113 - they raise nothing
        return happened(log, back=since, progress=progress)
    if stdin and sys.stdin is None:
        raise InvalidInputError("stdin is closed", hint="pipe a log into it, or give the path of a file")
    try:
        with copy.open("wb") as target, nullcontext(sys.stdin.buffer) if stdin else log.open("rb") as stream:
            copyfileobj(stream, target)
        return happened(copy, back=since, progress=progress)
    except InvalidInputError as error:  # of which the copy's own path tells nobody anything
        raise InvalidInputError(error.message.replace(str(copy), "the log"), hint=error.hint) from None
    except OSError as error:
        raise InvalidInputError(f"{log} cannot be read: {error.strerror or error}", hint="check the path") from None


@contextmanager
def _live() -> Iterator[Progress | None]:
    """Shows on a terminal how far it is, in one line that is gone at the end."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(what: str, lines: int) -> None:
        click.echo(f"\r\033[Kreading {what}{f': {lines:,} lines' if lines else ''}", err=True, nl=False)

    try:
        yield show
    finally:
        click.echo("\r\033[K", err=True, nl=False)


def tell(result: Result) -> None:
    """Say of which time this is, and what was left out."""
    for bad in result.bad_rows[:_NAMED]:
        say(printable(f"left out: line {bad.line}: {bad.why}"))
    if len(result.bad_rows) > _NAMED:
        say(f"and {count(len(result.bad_rows) - _NAMED, 'line')} more")
    gpus = sum(host.gpus for host in result.hosts)
    say(f"{printable(title_of(result))}, {about_duration(result.end - result.start)}, {count(gpus, 'GPU')}")


def title_of(result: Result) -> str:
    """The cluster, and from when to when, in UTC."""
    return f"{result.tree.cluster}: {_moment(result.start)} to {_moment(result.end)} UTC"


def _moment(millis: int) -> str:
    try:
        return datetime.fromtimestamp(millis // 1_000, UTC).strftime("%Y-%m-%d %H:%M")
    except (OSError, OverflowError, ValueError):  # beyond the year 9999
        return f"{millis:,} ms"


def budgets_table(budgets: Iterable[BudgetMeasures]) -> str:
    """What budgets wanted, were entitled to and got, in GPU-hours."""
    return table([{"b": each} for each in budgets], _BUDGETS)
