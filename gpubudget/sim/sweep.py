"""Many runs: every combination of some settings for several seeds, over all cores; and which setting wins at what.

A finished run is a line of a file before anybody hears of it, so whatever ends a sweep, the same one goes on from
there. One that cannot be is finished, too, and has a reason in place of figures; one that broke off, since its process
was killed or had a fault, is told and tried again the next time. Neither stops the others. A run is known by all that
it depends on: what was chosen, the bytes of the files that were named, and the source of scheduler and simulator. Each
has a process of its own, which ends by itself if this one is gone.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import sha256
from io import FileIO
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import gpubudget
from gpubudget.core import plain
from gpubudget.errors import BrokenInvariantError, ConflictError, GpuBudgetError, InvalidInputError
from gpubudget.sim.compare import Good, Unit, side_by_side
from gpubudget.sim.engine import Settings, simulate
from gpubudget.sim.measures import measure
from gpubudget.sim.policies import policy
from gpubudget.sim.prepare import Choice, prepare, read_tree

Setting = tuple[tuple[str, str], ...]
"""What is swept: names and values, as they were written."""

_LOOK = 0.2
"""So often, in seconds, it is looked whether a person wants to stop."""
_SHOWING = {"report", "charts", "pictures"}


@dataclass(frozen=True, slots=True)
class Point:
    """One run that is to be."""

    setting: Setting
    seed: int
    policy: str
    choice: Choice

    def __str__(self) -> str:
        return _named(self.setting, self.seed)


def _named(setting: Setting, seed: int) -> str:
    return ", ".join([*(f"{name}={value}" for name, value in setting), f"seed {seed}"])


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure of a run; None where it says nothing of it."""

    name: str
    unit: Unit
    good: Good
    value: Fraction | None


@dataclass(frozen=True, slots=True)
class Done:
    """A run that is over: with its figures, or with a sentence that says why it has none.

    ``broken`` says that another try may end otherwise; without it, the run cannot be.
    """

    key: str
    setting: Setting
    seed: int
    figures: tuple[Figure, ...] = ()
    why_not: str = ""
    broken: bool = False

    def __str__(self) -> str:
        return _named(self.setting, self.seed)


def play(point: Point) -> tuple[Figure, ...]:
    """Play one run, and measure it."""
    chosen = policy(point.policy)
    settings = Settings(point.policy, point.choice.costs, warm_up=point.choice.warm_up)
    result = simulate(prepare(point.choice), chosen.make(), settings)
    return tuple(
        Figure(one.name, one.unit, one.good, None if one.figures[0] is None else Fraction(one.figures[0]))
        for one in side_by_side([measure(result)])
    )


class Keys:
    """What runs are known by. Files are read once."""

    def __init__(self) -> None:
        self._source = _source()
        self._files: dict[Path, str] = {}

    def of(self, point: Point) -> str:
        """The key of a run."""
        choice = point.choice
        files = [path for path in (choice.trace, choice.weights, choice.failures) if path is not None]
        told = [self._digest(path, _content) for path in files]
        if choice.budgets is not None:
            told.append(self._digest(choice.budgets, lambda path: plain.digest(read_tree(path))))
        return sha256(repr((self._source, point.policy, choice, told)).encode()).hexdigest()[:32]

    def _digest(self, path: Path, read: Callable[[Path], str]) -> str:
        if path not in self._files:
            self._files[path] = read(path)
        return self._files[path]


def _content(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror or error}") from None


def _source() -> str:
    """A digest of the source of scheduler and simulator, but for how they are shown: another one may find otherwise."""
    folder = Path(gpubudget.__file__).parent
    files = sorted(path for part in ("core", "sim") for path in (folder / part).glob("*.py"))
    return sha256(b"".join(path.read_bytes() for path in files if path.stem not in _SHOWING)).hexdigest()


# The file of finished runs


@contextmanager
def finished_runs(path: Path) -> Iterator[tuple[dict[str, Done], FileIO]]:
    """The runs of the file, by key, and the file to add to. One sweep at a time may have it."""
    try:
        stream = path.open("ab+", buffering=0)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror or error}") from None
    with stream:
        if not path.is_file():
            raise InvalidInputError(f"finished runs cannot be kept in {path}, which is no file")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConflictError(
                f"another sweep is writing to {path}", hint="wait for it, or give another --runs"
            ) from None
        stream.seek(0)
        text = stream.read().decode(errors="replace")
        if text and not text.endswith("\n"):
            stream.write(b"\n")  # the last line was cut off, with the run that it was of
        yield {done.key: done for line in text.splitlines() if (done := _read(line)) is not None}, stream


def _read(line: str) -> Done | None:
    """A run from its line; None of what is no such line."""
    try:
        found = json.loads(line)
        figures = tuple(
            Figure(name, Unit(unit), Good(good), None if value is None else Fraction(value))
            for name, unit, good, value in found["figures"]
        )
        why_not = str(found.get("why_not", ""))
        if bool(figures) == bool(why_not):
            return None
        return Done(str(found["key"]), tuple(found["setting"].items()), int(found["seed"]), figures, why_not)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(stream: FileIO, done: Done) -> None:
    figures = [
        [each.name, each.unit, each.good, None if each.value is None else str(each.value)] for each in done.figures
    ]
    told: dict[str, Any] = {"key": done.key, "setting": dict(done.setting), "seed": done.seed, "figures": figures}
    if done.why_not:
        told["why_not"] = done.why_not
    line = json.dumps(told).encode() + b"\n"
    try:
        while line:
            line = line[stream.write(line) :]
        os.fsync(stream.fileno())
    except OSError as error:
        why = error.strerror or str(error)
        raise GpuBudgetError(
            f"a finished run cannot be kept: {why}", hint="make room, and start the sweep again"
        ) from None


# The runs


def sweep(points: Sequence[Point], path: Path, processes: int, progress: Callable[[int, Done], None]) -> list[Done]:
    """All runs, in the order of ``points``: those of the file, and those that are missing there.

    ``progress`` is told how many are over, and the last of them. Raises KeyboardInterrupt after a person asked to stop;
    what was finished by then is in the file. Raises InvalidInputError before the first run where a file that a point
    names cannot be read; ``prepare.check`` finds that for one point. A run that fails has its reason, and no figures.
    """
    keys = Keys()
    keyed = [(keys.of(point), point) for point in points]
    wanted = dict(keyed)
    with finished_runs(path) as (known, stream), _stop_asked() as stopped:
        done = {key: known[key] for key in wanted if key in known}
        for over in _Workers([(key, wanted[key]) for key in wanted if key not in done], processes, stopped):
            done[over.key] = over
            if not over.broken:
                _write(stream, over)
            progress(len(done), over)
        if stopped.is_set():
            raise KeyboardInterrupt
    return [replace(done[key], setting=point.setting, seed=point.seed) for key, point in keyed]


@contextmanager
def _stop_asked() -> Iterator[threading.Event]:
    """Whether a person has asked to stop; the next moment at which nothing can be lost is the time for it."""
    stopped = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


class _Workers:
    """Plays runs, some at a time; iterating gives each as it ends."""

    def __init__(self, runs: list[tuple[str, Point]], processes: int, stopped: threading.Event) -> None:
        self._waiting = runs[::-1]
        self._processes, self._stopped = processes, stopped
        self._context = multiprocessing.get_context("forkserver")  # which imports everything once
        self._context.set_forkserver_preload([__name__])
        self._playing: dict[Connection, tuple[str, Point, BaseProcess]] = {}

    def __iter__(self) -> Iterator[Done]:
        try:
            while not self._stopped.is_set() and (self._waiting or self._playing):
                while self._waiting and len(self._playing) < self._processes:
                    self._begin(*self._waiting.pop())
                yield from self._ended(_LOOK)
            yield from self._ended(0)
        finally:
            for connection, (_, _, process) in self._playing.items():
                process.terminate()
                process.join()
                connection.close()

    def _begin(self, key: str, point: Point) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(key, point, theirs), daemon=True)
        process.start()
        theirs.close()
        self._playing[ours] = (key, point, process)

    def _ended(self, patience: float) -> Iterator[Done]:
        """The runs that end within ``patience`` seconds, however they do; one that Ctrl-C ended is not over."""
        for connection in wait(list(self._playing), patience):
            if not isinstance(connection, Connection):
                continue
            key, point, process = self._playing.pop(connection)
            try:
                over: Done = connection.recv()
            except EOFError:
                process.join()
                why = f"its process ended with {process.exitcode} (more memory, or fewer --processes, may help)"
                over = Done(key, point.setting, point.seed, why_not=why, broken=True)
            process.join()
            connection.close()
            if not (over.broken and self._stopped.is_set()):
                yield over


def _work(key: str, point: Point, connection: Connection) -> None:
    """Play one run in a process of its own; a person's Ctrl-C is for the one that began it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection.send(_over(Done(key, point.setting, point.seed), point))


def _over(done: Done, point: Point) -> Done:
    """The run with its figures, or with why it has none: it cannot be, or this program is at fault."""
    try:
        return replace(done, figures=play(point))
    except BrokenInvariantError as error:
        return replace(done, why_not=f"{error} (please report this)", broken=True)
    except GpuBudgetError as error:
        return replace(done, why_not=str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the others go on and a person is told
        what = " ".join(f"{type(error).__name__}: {error}".split())
        return replace(done, why_not=f"{what} (please report this)", broken=True)


def _end_with_parent() -> None:
    """End this process when the one that wants to know is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


# What came of it


@dataclass(frozen=True, slots=True)
class Spread:
    """A measure over the seeds of one setting."""

    mean: Fraction
    low: Fraction
    high: Fraction


@dataclass(frozen=True, slots=True)
class Outcome:
    """One setting: how many seeds were played, and the spread of each measure that its runs have, by name.

    ``not_played`` has the seeds that were not, by the reason.
    """

    setting: Setting
    seeds: int
    spreads: dict[str, Spread]
    not_played: dict[str, list[int]] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.setting) or "as it is"


@dataclass(frozen=True, slots=True)
class Winner:
    """Who is best at one measure, by the mean over seeds: several where they are equal.

    ``clear`` says that its worst seed is better than the best seed of every other setting; of one seed nobody can tell.
    Nobody wins where no end of the scale is good, or where all are equal.
    """

    name: str
    unit: Unit
    good: Good
    best: tuple[Outcome, ...]
    clear: bool


def outcomes(runs: Sequence[Done]) -> list[Outcome]:
    """The runs by setting, in the order in which settings first come."""
    by_setting: dict[Setting, list[Done]] = {}
    for done in runs:
        by_setting.setdefault(done.setting, []).append(done)
    found = []
    for setting, group in by_setting.items():
        values: dict[str, list[Fraction]] = {}
        for figure in (figure for done in group for figure in done.figures):
            if figure.value is not None:
                values.setdefault(figure.name, []).append(figure.value)
        spreads = {name: Spread(Fraction(sum(each), len(each)), min(each), max(each)) for name, each in values.items()}
        not_played: dict[str, list[int]] = {}
        for done in group:
            if done.why_not:
                not_played.setdefault(done.why_not, []).append(done.seed)
        found.append(Outcome(setting, sum(not done.why_not for done in group), spreads, not_played))
    return found


def winners(runs: Sequence[Done]) -> list[Winner]:
    """Who is best at each measure, in the order of the measures."""
    settings = outcomes(runs)
    kinds = {figure.name: figure for done in runs for figure in done.figures}
    return [_winner(kind, [each for each in settings if name in each.spreads]) for name, kind in kinds.items()]


def _winner(kind: Figure, settings: list[Outcome]) -> Winner:
    """Who is best among the settings that have this measure."""
    sign = -1 if kind.good is Good.HIGH else 1
    means = [sign * each.spreads[kind.name].mean for each in settings]
    best = tuple(each for each, mean in zip(settings, means, strict=True) if mean == min(means))
    if kind.good is Good.NEITHER or len(best) == len(settings):
        return Winner(kind.name, kind.unit, kind.good, (), clear=False)
    worst = max(sign * end for each in best for end in _ends(each.spreads[kind.name]))
    others = [sign * end for each in settings if each not in best for end in _ends(each.spreads[kind.name])]
    several = all(each.seeds > 1 for each in settings)
    return Winner(kind.name, kind.unit, kind.good, best, clear=several and worst < min(others))


def _ends(spread: Spread) -> tuple[Fraction, Fraction]:
    return spread.low, spread.high
