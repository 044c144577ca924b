"""What really happened, as an event log tells it, in the form that a simulated run leaves.

So a cluster's month is reported on as a simulation of it would be, with the same figures. The log is read twice: for
the story of each workload (``history.py``), then for where GPU-time went. Knows the public format only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from gpubudget.errors import InvalidInputError
from gpubudget.sim.eventfile import Line, lines_of, read
from gpubudget.sim.history import Story, Told, read_story, strangers
from gpubudget.sim.meters import Meters, PoolMeter, step_for
from gpubudget.sim.result import NO_BUDGET, End, Refusal, Result, Row, Span
from gpubudget.sim.submission import Ending, SimHost, Submission
from gpubudget.sim.traces import unpacked
from gpubudget.units import count

POLICY = "as it happened"

_ENDS = {"failed": End.FAILED, "cancelled": End.CANCELLED, "preempted": End.PREEMPTED}
"""How a workload has ended whose last attempt did so; else it has finished."""


Progress = Callable[[str, int], None]
"""Told now and then what is done, and how many lines have been read for it."""

_TOLD_EVERY = 5_000


def happened(
    path: Path,
    since: int | None = None,
    *,
    back: int | None = None,
    until: int | None = None,
    sample_every: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """What an event log tells, from ``since`` (milliseconds) on, or ``back`` from its end, or from its beginning.

    It ends with its last line, or ``until`` a later moment, for which all is as it was then. Samples are
    ``sample_every`` apart, by itself an hour or less. Raises InvalidInputError where the file is no log, or tells of
    nothing in that time.
    """
    story = read_story(path, start_up=0, heard=_telling(progress, "who waited and ran"))
    begin, end = story.begin or 0, max(story.end, until or 0)
    since = end - back if back is not None else since
    first = begin if since is None else max(begin, since)
    if first >= end > begin:
        raise InvalidInputError(f"{path} tells of nothing in that time", hint="name a longer one with --since")
    measured = _Measured(story, begin, sample_every or step_for(end - first))
    measured.meters.next = first
    heard = _telling(progress, "where GPU time went")
    with unpacked(path) as file:
        for line in read(lines_of(file)):
            if isinstance(line, Line):
                measured.take(line)
                heard(line)
    measured.meters.until(end)
    measured.meters.take(end)
    rows = [_row(told, end) for told in story.workloads.values()]
    refused = Counter(row.reason for row in rows if row.end is End.REFUSED)
    found = Result(
        policy=POLICY,
        settings=(("log", path.name),),
        assumptions=tuple(_notes(story, rows)),
        bad_rows=tuple(sorted(story.bad, key=lambda bad: bad.line)),
        trees=tuple(story.trees),
        hosts=tuple([SimHost(name, host.pool, host.gpus) for name, host in measured.hosts.items()]),
        start=first,
        loaded_until=end,
        end=end,
        pools=tuple(measured.meters.pools),
        paths=tuple([path for path, _ in measured.meters.paths]),
        paths_since=tuple([since for _, since in measured.meters.paths]),
        sample_every=measured.meters.every,
        samples=measured.meters.padded(),
        rows=tuple(rows),
        preemptions=tuple(story.preemptions),
        refusals=tuple([Refusal(reason, number) for reason, number in refused.most_common()]),
        host_failures=measured.failures,
        events=story.lines,
        wakes=0,
        real=True,
    )
    return found if first == begin else found.since(first)


def _telling(progress: Progress | None, what: str) -> Callable[[Line], None]:
    """What to call with each line, so that progress is told."""

    def heard(line: Line) -> None:
        if progress is not None and line.number % _TOLD_EVERY == 0:
            progress(what, line.number)

    return heard


def _notes(story: Story, rows: list[Row]) -> list[str]:
    """What the log cannot say."""
    notes = ["Starting up again counts as work: the log does not say how long it took."]
    if still := sum(row.end in {End.WAITING, End.RUNNING} for row in rows):
        notes.append(f"{count(still, 'workload')} had not ended: taken to need their minimum runtime from then on.")
    return notes + strangers(story)


def _row(told: Told, end: int) -> Row:
    """What became of a workload."""
    spans, done = list(told.spans), told.done
    if told.gives_up is not None:
        done = max(done, told.gives_up - told.at)
    if told.begun is not None:
        spans.append(Span(told.begun.at, end, 0))
        done += max(0, end - told.begun.at)
    how = _end(told)
    over = end if told.over is None else told.over
    needs = done + (told.spec.min_runtime if told.over is None else 0)
    ending = {End.FAILED: Ending.FAILED, End.CANCELLED: Ending.CANCELLED}.get(how, Ending.FINISHED)
    held, lost = (sum([span.ended - span.started for span in spans]), sum([span.lost for span in spans]))
    times = Counter(told.reasons)
    return Row(
        Submission(told.at, told.spec, max(1, needs), ending, told.gives_up),
        told.budget,
        told.pool or told.spec.pools[0],
        how,
        spans[0].started if spans else None,
        told.over,
        len(spans),
        times["preempted"],
        times["drained"],
        times["host_lost"],
        over - told.at - held,
        held * told.spec.gpus,
        lost * told.spec.gpus,
        told.lane,
        told.refused or told.why,
        tuple(spans),
    )


def _end(told: Told) -> End:
    if told.refused:
        return End.REFUSED
    if told.over is None:
        return End.WAITING if told.begun is None else End.RUNNING
    if told.gives_up is not None:
        return End.CANCELLED
    return _ENDS.get(told.reasons[-1] if told.reasons else "", End.FINISHED)


@dataclass(slots=True)
class _Host:
    """A host: its state and the GPUs that attempts hold of it."""

    pool: str
    gpus: int
    state: str = ""
    held: int = 0


@dataclass(slots=True)
class _Work:
    """A workload that has not ended: where it waits, or what it holds."""

    place: int  # of its budget in the meters
    gpus: int
    allocated: bool
    home: PoolMeter
    waits: bool = False
    charged: int = 0  # where what it holds is charged
    meter: PoolMeter | None = None
    holds: tuple[tuple[str, int], ...] = ()


class _Measured:
    """Where GPU-time goes, line after line."""

    def __init__(self, story: Story, begin: int, every: int) -> None:
        told = (told.spec.pools[0] for told in story.workloads.values())
        pools = dict.fromkeys(chain((p.name for _, tree in story.trees for p in tree.pools), told, story.pools))
        self.meters = Meters(tuple(pools), [NO_BUDGET], begin, every)
        self.hosts: dict[str, _Host] = {}
        self.failures = 0
        self._work: dict[str, _Work] = {}

    def take(self, line: Line) -> None:
        """Let happen what a line tells."""
        self.meters.until(line.at)
        if line.kind == "budgets_applied":
            self.meters.mark(line.at)
            self.meters.apply([row["path"] for row in line.data["budgets"]], line.at)
        elif line.kind == "host":
            self._host(line)
        elif line.kind == "submitted":
            self._submitted(line)
        elif (work := self._work.get(line.data.get("workload", ""))) is not None:
            self._tell(work, line)

    def _submitted(self, line: Line) -> None:
        data = line.data
        pool = (data.get("pools") or [data.get("pool") or "default"])[0]
        home = self.meters.pools[pool]
        place = self.meters.place(data["budget"] or NO_BUDGET, line.at)
        work = _Work(place, data["gpus"], data["min_runtime_ms"] > 0, home)
        self._work[data["workload"]] = work
        self._wait(work, line.at)

    def _tell(self, work: _Work, line: Line) -> None:
        match line.kind:
            case "started":
                self._started(work, line)
            case "stopped":
                self._wait_no_more(work, line.at)
                self._let_go(work, line.at)
            case "requeued":
                self._wait(work, line.at)
            case "moved":
                waits = work.waits
                self._wait_no_more(work, line.at)
                work.place = self.meters.place(line.data["budget"], line.at)
                if waits:
                    self._wait(work, line.at)
            case "refused":
                self._wait_no_more(work, line.at)

    def _wait(self, work: _Work, now: int) -> None:
        if not work.waits:
            work.waits = True
            work.home.wait(work.place, work.gpus, now, work.allocated)

    def _wait_no_more(self, work: _Work, now: int) -> None:
        if work.waits:
            work.waits = False
            work.home.wait(work.place, -work.gpus, now, work.allocated)

    def _started(self, work: _Work, line: Line) -> None:
        self._wait_no_more(work, line.at)
        self._let_go(work, line.at)
        work.holds = tuple((name, len(gpus)) for name, gpus in line.data["placement"].items() if name in self.hosts)
        if not work.holds:
            return
        meter = work.meter = self.meters.pools[self.hosts[work.holds[0][0]].pool]
        work.charged = work.place
        meter.hold(work.charged, work.gpus, line.at, work.allocated)
        for name, gpus in work.holds:
            host = self.hosts[name]
            host.held += gpus
            if host.state != "ready":  # where it began before the log does
                meter.lose(-gpus, line.at)

    def _let_go(self, work: _Work, now: int) -> None:
        if work.meter is None:
            return
        work.meter.hold(work.charged, -work.gpus, now, work.allocated)
        for name, gpus in work.holds:
            host = self.hosts.get(name)
            if host is not None:
                host.held -= gpus
                if host.state != "ready":
                    work.meter.lose(gpus, now)
        work.meter, work.holds = None, ()

    def _host(self, line: Line) -> None:
        """A host is in another state; one with another number of GPUs is another host."""
        name, state, now = line.data["host"], line.data["state"], line.at
        host = self.hosts.get(name)
        if host is not None and (state == "removed" or line.data.get("gpus", host.gpus) != host.gpus):
            self._turn(host, "removed", now)
            self.meters.pools[host.pool].add(-host.gpus, now)
            host = None
            del self.hosts[name]
        if state == "removed":
            return
        if host is None:
            host = self.hosts[name] = _Host(line.data["pool"], line.data["gpus"])
            self.meters.pools[host.pool].add(host.gpus, now)
        self.failures += host.state == "ready" and state in {"lost", "draining"}
        self._turn(host, state, now)

    def _turn(self, host: _Host, state: str, now: int) -> None:
        """The free GPUs of a host that becomes ready can be had, and those of one that no longer is cannot."""
        ready, was = state == "ready", host.state == "ready"
        if ready is not was:
            free = host.gpus - host.held
            self.meters.pools[host.pool].lose(-free if ready else free, now)
        host.state = state
