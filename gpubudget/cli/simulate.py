"""``simulate``: play a trace through the scheduler: who waits, who is preempted, who gets the GPU time.

Needs no daemon. The files are the same whenever the same is played with the same seed; how long it took is told on
stderr, and in the files only where it is asked for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TextIO

import click

from gpubudget.cli import sweep
from gpubudget.cli.against import both, changes
from gpubudget.cli.outfiles import check_files, unwritten, write_file
from gpubudget.cli.output import Column, Row, printable, say, table
from gpubudget.cli.simoptions import FILE, choice_of, choice_options
from gpubudget.cli.sweep import sweep_options
from gpubudget.errors import UsageError
from gpubudget.sim import report
from gpubudget.sim.engine import Progress, Settings, log_to
from gpubudget.sim.engine import simulate as play
from gpubudget.sim.measures import measure
from gpubudget.sim.packed import packed_text
from gpubudget.sim.policies import GPUBUDGET, POLICIES, policy
from gpubudget.sim.prepare import Choice, prepare
from gpubudget.sim.result import Result
from gpubudget.sim.submission import Scenario
from gpubudget.units import DAY, about_share, count, format_gpu_hours

_NAMED = 3
"""So many bad rows and refusals are named on the terminal; the report has all."""


def _share(part: Fraction | None) -> str:
    return "" if part is None else about_share(part)


_SUMMARY = [
    Column("RUN", lambda row: row["run"].name),
    Column("WORKLOADS", lambda row: f"{row['all'].workloads:,}", right=True),
    Column("WAIT P50", lambda row: report.wait(row["all"].first.p50_ms), right=True),
    Column("P90", lambda row: report.wait(row["all"].first.p90_ms), right=True),
    Column("LARGEST", lambda row: report.wait(row["all"].first.largest_ms), right=True),
    Column("OCCUPANCY", lambda row: _share(row["run"].measures.pyramid.occupancy), right=True),
    Column("IMPACT", lambda row: _share(row["run"].measures.pyramid.impact), right=True),
    Column("PREEMPTIONS", lambda row: f"{row['run'].measures.preemptions.count:,}", right=True),
    Column("LOST GPU-H", lambda row: format_gpu_hours(row["run"].measures.lost_gpu_ms), right=True),
]


@click.command(
    epilog="""\b
Examples:
  gpubudget simulate --trace philly.csv.gz --budgets-from-groups --hosts 88 --out report.html
  gpubudget simulate --trace events.jsonl --budgets budgets/ --log replayed.jsonl
  gpubudget simulate --trace venus.csv --budgets budgets/ --scale-load 2.5 --failures 3.8
  gpubudget simulate --trace cluster.swf --budgets-from-groups --hosts 16 --policy gpubudget --policy fifo
  gpubudget simulate --synthetic 1 --days 7 --out lab.html
  gpubudget simulate --trace events.jsonl --budgets budgets/ --against main
  gpubudget simulate --synthetic 1 --sweep lookback=1d,7d --sweep debug_gpus=0,8,16 --seeds 5"""
)
@choice_options
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(list(POLICIES)),
    default=(GPUBUDGET,),
    show_default=True,
    help="Whose decisions; give several to compare them.",
)
@click.option("--against", metavar="REF", help="Play it under the budgets of that commit, too, and compare by budget.")
@click.option(
    "--log",
    type=FILE,
    metavar="FILE",
    help="Write the event log, which `gpubudget audit` checks; .gz packs it.",
)
@click.option("--out", type=FILE, metavar="FILE", help="Write the report, one HTML page.")
@click.option("--json", "as_json", type=FILE, metavar="FILE", help="Write all figures.")
@click.option("--csv", "as_csv", type=FILE, metavar="FILE", help="Write a row for each workload.")
@click.option("--timing", is_flag=True, help="Have the time that the run took in report and figures.")
@sweep_options
def simulate(  # noqa: PLR0913 - the options of the command
    *,
    policies: tuple[str, ...],
    against: str | None,
    log: Path | None,
    out: Path | None,
    as_json: Path | None,
    as_csv: Path | None,
    timing: bool,
    axes: tuple[str, ...],
    seeds: int | None,
    runs: Path,
    processes: int | None,
    **given: Any,  # noqa: ANN401 - the options of choice_options
) -> None:
    """Play a trace through the scheduler of the daemon, and report what came of it.

    What the trace does not say is drawn from the seed; the report lists every assumption. The same seed gives the same
    files, byte for byte.
    """
    check_files({"--log": log, "--out": out, "--json": as_json, "--csv": as_csv}, given | {"runs": runs})
    if axes or seeds is not None:
        _no_parts(("--log", log), ("--out", out), ("--against", against), of="a sweep")
        found = sweep.run_sweep(given, policies, axes, seeds or 1, runs, processes)
        write_file(as_json, lambda: sweep.as_json(found))
        write_file(as_csv, lambda: sweep.as_csv(found))
        sweep.verdict(found)
        return
    if against is not None:
        _no_parts(("--log", log), ("--csv", as_csv), ("a second --policy", policies[1:]), of="--against")
    elif len(policies) > 1:
        _no_parts(("--log", log), ("--csv", as_csv), of="several policies")
    choice = choice_of(given)
    played: list[report.Run] = []
    for name, chosen, scenario in _acts(choice, policies, against):
        settings = Settings(chosen, choice.costs, warm_up=choice.warm_up, named=choice.named())
        with _log(log) as stream:
            result, seconds = _play(scenario, settings, stream)
        result = replace(result, seconds=seconds if timing else None)
        _tell(name, result, seconds, first=not played)
        played.append(report.Run(name, result, measure(result)))
    try:
        write_file(out, lambda: report.page(played))
        write_file(as_json, lambda: report.as_json(played))
        write_file(as_csv, lambda: report.as_csv(played[0].result))
    finally:  # whatever cannot be written, what was found is said
        click.echo(table(_rows(played), _SUMMARY))
        if against is not None:
            click.echo(f"\n{changes(played[0].measures, played[1].measures)}")


def _acts(choice: Choice, policies: tuple[str, ...], against: str | None) -> list[tuple[str, str, Scenario]]:
    """What is played: a name, whose decisions, and the scenario."""
    if against is not None:
        return [(name, policies[0], scenario) for name, scenario in both(choice, against)]
    scenario = prepare(choice)
    return [(name, name, scenario) for name in policies]


def _play(scenario: Scenario, settings: Settings, stream: TextIO | None) -> tuple[Result, float]:
    """The result of one policy, and the seconds that it took."""
    chosen = policy(settings.policy)
    workloads = replace(scenario.workloads, assumptions=scenario.workloads.assumptions + chosen.assumes)
    began = time.perf_counter()
    result = play(
        replace(scenario, workloads=workloads),
        chosen.make(),
        settings,
        log=None if stream is None else log_to(stream),
        progress=_progress(settings.policy, len(workloads.submissions)) if sys.stderr.isatty() else None,
    )
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    return result, time.perf_counter() - began


def _progress(name: str, workloads: int) -> Progress:
    """Shows how far a run has come, a few times a second."""
    start, shown = -1, 0.0

    def show(at: int, come: int) -> None:
        nonlocal start, shown
        start = at if start < 0 else start
        if time.monotonic() - shown > 0.2:  # noqa: PLR2004 - often enough for an eye
            shown = time.monotonic()
            text = f"{name}: day {(at - start) // DAY + 1}, {come:,} of {workloads:,} workloads"
            click.echo(f"\r\033[K{text}", err=True, nl=False)

    return show


def _tell(name: str, result: Result, seconds: float, *, first: bool) -> None:
    """Say what the person has to know beside the figures."""
    workloads = len(result.rows)
    if first and result.bad_rows:
        shown = "; ".join(f"line {row.line}: {row.why}" for row in result.bad_rows[:_NAMED])
        say(printable(f"{count(len(result.bad_rows), 'row')} left out: {_cut(shown, len(result.bad_rows))}"))
    for refusal in result.refusals[:_NAMED]:
        say(printable(f"{name}: {count(refusal.workloads, 'workload')} refused: {refusal.reason}"))
    if others := result.refusals[_NAMED:]:
        number = sum(refusal.workloads for refusal in others)
        say(f"{name}: {count(number, 'workload')} more refused, for {count(len(others), 'other reason')}")
    speed = f"{workloads / seconds:,.0f} workloads/s" if seconds else "at once"
    days = f"{(result.end - result.start) / DAY:.1f} days"
    played = f"{workloads:,} workload{'s' * (workloads != 1)}"
    say(f"{name}: {played}, {days}, {result.events:,} events in {seconds:.1f} s ({speed})")


def _cut(shown: str, number: int) -> str:
    return f"{shown}; and {number - _NAMED:,} more, all in the report" if number > _NAMED else shown


def _rows(runs: Sequence[report.Run]) -> list[Row]:
    return [{"run": run, "all": run.measures.waits[0]} for run in runs]


@contextmanager
def _log(path: Path | None) -> Iterator[TextIO | None]:
    """The file of the event log. What is in it when a run is interrupted is a log, too, of the time until then."""
    if path is None:
        yield None
        return
    try:
        with packed_text(path) if path.suffix == ".gz" else path.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
    except OSError as error:
        raise unwritten(path, error) from None


def _no_parts(*options: tuple[str, object], of: str) -> None:
    """Refuse options that are for a single run."""
    for name, value in options:
        if value:
            raise UsageError(f"{name} goes with a single run, and not with {of}", hint=f"leave {name} out")
