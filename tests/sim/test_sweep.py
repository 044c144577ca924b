"""A sweep plays every run once, keeps what is finished whatever happens, and says who wins at what."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpubudget.errors import ConflictError, GpuBudgetError, InvalidInputError
from gpubudget.sim.assume import Assumed
from gpubudget.sim.compare import Good, Unit
from gpubudget.sim.prepare import Choice, Rules
from gpubudget.sim.sweep import Done, Figure, Keys, Point, Spread, finished_runs, outcomes, play, sweep, winners
from gpubudget.units import DAY

PATIENCE = 60.0


def point(lookback: int = 7, seed: int = 1, **more: object) -> Point:
    """A day of a small lab."""
    chosen: dict[str, Any] = {"preset": "lab-88", "days": 1, "hosts": 2, **more}
    choice = Choice(assumed=Assumed(seed=seed), rules=Rules(lookback=lookback * DAY), **chosen)
    return Point((("lookback", f"{lookback}d"),), seed, "gpubudget", choice)


def eventually(what: Callable[[], object]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def lines(path: Path) -> list[dict[str, Any]]:
    """The finished runs in a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def nothing(_done: int, _last: Done) -> None:
    """No progress is shown."""


def test_runs_are_played_once_and_kept(tmp_path: Path) -> None:
    """In processes or not, a run gives the same figures; what is in the file is not played again."""
    path = tmp_path / "runs.jsonl"
    points = [point(seed=1), point(seed=2), point(1, seed=1)]
    told: list[int] = []
    found = sweep(points, path, 2, lambda done, _: told.append(done))
    assert told == [1, 2, 3]
    assert [(done.setting, done.seed) for done in found] == [(each.setting, each.seed) for each in points]
    assert found[0].figures == play(points[0])
    assert len(lines(path)) == 3
    more = sweep([*points, point(1, seed=2)], path, 2, lambda done, _: told.append(done))
    assert told == [1, 2, 3, 4]
    assert more[:3] == found


def test_a_run_is_known_by_all_it_depends_on(tmp_path: Path) -> None:
    """Another setting, seed, policy, trace or tree is another run; another name for the same one is not."""
    trace, budgets = tmp_path / "t.csv", tmp_path / "budgets"
    trace.write_text("job_id,submit_s,user,group,gpus,duration_s,state,gpu_type\na,0,u,g,1,60,,\n")
    budgets.mkdir()
    (budgets / "cluster.yaml").write_text("kind: Cluster\npools: {gpus: {gpus_per_host: 8, hosts: 2}}\n")
    (budgets / "budget.yaml").write_text("kind: Budget\nmanagers: [ann]\n")
    played = Point((), 1, "gpubudget", Choice(trace, budgets=budgets))
    before = Keys().of(played)
    keys = {
        before,
        Keys().of(point()),
        Keys().of(point(3)),
        Keys().of(point(seed=2)),
        Keys().of(Point((), 1, "fifo", played.choice)),
    }
    assert len(keys) == 5
    assert Keys().of(Point((("any", "name"),), 1, "gpubudget", played.choice)) == before
    (budgets / "budget.yaml").write_text("kind: Budget\nmanagers: [bob]\n")
    other_tree = Keys().of(played)
    trace.write_text(trace.read_text() + "b,0,u,g,1,60,,\n")
    assert len({before, other_tree, Keys().of(played)}) == 3
    with pytest.raises(InvalidInputError, match="cannot be read"):
        Keys().of(Point((), 1, "gpubudget", Choice(tmp_path / "none.csv")))


def test_a_cut_off_line_costs_its_run_only(tmp_path: Path) -> None:
    """A file that ends in the middle of a line, or holds other things, is read and added to."""
    path = tmp_path / "runs.jsonl"
    figure = Figure("occupancy", Unit.RATIO, Good.HIGH, Fraction(1, 2))
    good = {"key": "k", "setting": {"a": "1"}, "seed": 3, "figures": [["occupancy", "ratio", "high", "1/2"]]}
    path.write_text(f'{json.dumps(good)}\n[]\n7\n{{"key": "x"}}\n{{"key": "cut off", "sett')
    with finished_runs(path) as (known, stream):
        assert known == {"k": Done("k", (("a", "1"),), 3, (figure,))}
        stream.write(json.dumps(good | {"key": "l"}).encode() + b"\n")
    with finished_runs(path) as (known, _):
        assert list(known) == ["k", "l"]


def test_one_sweep_at_a_time_has_a_file(tmp_path: Path) -> None:
    """A second one is told so, and one that cannot write, too."""
    path = tmp_path / "runs.jsonl"
    with finished_runs(path), pytest.raises(ConflictError, match="another sweep"), finished_runs(path):
        pass
    with pytest.raises(InvalidInputError, match="cannot be written"), finished_runs(tmp_path / "none" / "runs.jsonl"):
        pass
    with pytest.raises(InvalidInputError, match="which is no file"), finished_runs(Path("/dev/full")):
        pass


def test_a_full_disk_costs_one_run(tmp_path: Path) -> None:
    """A run that cannot be kept ends the sweep with one sentence, and those before it are kept."""
    path = tmp_path / "runs.jsonl"
    sweep([point(seed=1)], path, 1, nothing)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, before[1]))
    try:
        with pytest.raises(GpuBudgetError, match="cannot be kept"):
            sweep([point(seed=1), point(seed=2)], path, 1, nothing)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    told: list[int] = []
    assert len(sweep([point(seed=1), point(seed=2)], path, 1, lambda done, _: told.append(done))) == 2
    assert told == [2]


def test_a_run_that_cannot_be_has_its_reason_and_stops_no_other(tmp_path: Path) -> None:
    """It is kept like the others, and not tried again."""
    path = tmp_path / "runs.jsonl"
    points = [point(load=Fraction(0)), point(seed=2), point(seed=3)]
    told: list[str] = []
    found = sweep(points, path, 1, lambda _, last: told.append(f"{last}: {last.why_not[:25]}"))
    assert told == ["lookback=7d, seed 1: nothing can be made up fo", "lookback=7d, seed 2: ", "lookback=7d, seed 3: "]
    assert [bool(done.figures) for done in found] == [False, True, True]
    assert found[0].why_not.endswith("a load above 0 are needed)")
    assert not found[0].broken
    assert len(lines(path)) == 3
    assert sweep(points, path, 1, lambda _, last: told.append(str(last))) == found
    assert len(told) == 3


def test_two_names_of_one_run_are_played_once(tmp_path: Path) -> None:
    """Each has its row, with the same figures."""
    path = tmp_path / "runs.jsonl"
    one, other = sweep([point(), replace(point(), setting=(("lookback", "168h"),))], path, 2, nothing)
    assert (one.setting, other.setting) == ((("lookback", "7d"),), (("lookback", "168h"),))
    assert one.figures == other.figures
    assert len(lines(path)) == 1


def test_a_run_that_is_killed_is_told(tmp_path: Path) -> None:
    """The operating system may end a process; the sweep says which run it was, goes on, and tries it the next time."""
    path = tmp_path / "runs.jsonl"
    me = psutil.Process()

    def kill(over: int, _last: Done) -> None:
        for child in me.children(recursive=True) if over == 1 else ():
            if child.ppid() != me.pid:  # no worker is a child of this process
                child.kill()

    found = sweep([point(seed=1), point(seed=2, days=60, hosts=11), point(seed=3)], path, 2, kill)
    assert "its process ended with -9" in found[1].why_not
    assert [done.broken for done in found] == [False, True, False]
    assert [run["seed"] for run in lines(path)] == [1, 3]


def command(path: Path, days: int, *more: str) -> list[str]:
    """A sweep from the command line: a short run, then long ones."""
    options = ["--synthetic=1", "--preset=lab-88", "--sweep", f"days=1,{days}", *(more or ["--seeds=2"])]
    return [sys.executable, "-m", "gpubudget", "simulate", *options, f"--runs={path}", "--processes=2"]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_no_finished_run_is_lost(tmp_path: Path, end: signal.Signals) -> None:
    """After Ctrl-C or a kill -9 the finished runs are there, and no process goes on for long."""
    path = tmp_path / "runs.jsonl"
    said = tmp_path / "stderr"
    with said.open("wb") as errors:
        child = subprocess.Popen(command(path, 100), stderr=errors, stdout=errors, start_new_session=True)
    eventually(lambda: len(lines(path)) == 2 or child.poll() is not None)
    workers = psutil.Process(child.pid).children(recursive=True)
    if end is signal.SIGINT:
        os.killpg(child.pid, end)
    else:
        child.kill()
    assert child.wait(PATIENCE) == (130 if end is signal.SIGINT else -9)
    eventually(lambda: not any(worker.is_running() for worker in workers))
    assert ("the same command goes on from there" in said.read_text()) == (end is signal.SIGINT)
    assert sorted(run["seed"] for run in lines(path)) == [1, 2]
    if end is signal.SIGINT:
        again = subprocess.run(command(path, 2), capture_output=True, check=False, timeout=PATIENCE)
        assert again.returncode == 0, again.stderr
        assert b"3 of 4 runs done: days=2" in again.stderr
        assert b"1 of 4 runs" not in again.stderr
        assert len(lines(path)) == 4


def test_a_run_that_broke_off_is_shown_and_not_kept(tmp_path: Path) -> None:
    """The table has the reason beside what was finished, and the exit code says that something is missing."""
    path = tmp_path / "runs.jsonl"
    child = subprocess.Popen(command(path, 100, "--seeds=1"), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    eventually(lambda: len(lines(path)) == 1 or child.poll() is not None)
    for process in psutil.Process(child.pid).children(recursive=True):
        if process.ppid() != child.pid:
            process.kill()
    out, said = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1, said
    assert "2 of 2 runs done: days=100, seed 1 broke off: its process ended with -9" in said
    assert said.endswith(
        "error: 1 run broke off: the table says why\nhint: the same command plays only what broke off\n"
    )
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [["days=1", "1"], ["days=100", "0"]]
    assert "its process ended with -9" in out.splitlines()[2]
    assert len(lines(path)) == 1


def test_what_cannot_be_is_not_tried_again_after_ctrl_c(tmp_path: Path) -> None:
    """Failures of a host that there is not show when they are read; what else was finished is kept beside that run."""
    path = tmp_path / "runs.jsonl"
    bad, good = tmp_path / "bad.csv", tmp_path / "good.csv"
    bad.write_text("at_s,host,fault,repair_s\n0,nowhere,lost,60\n")
    good.write_text("at_s,host,fault,repair_s\n0,gpus-0001,lost,60\n")
    failing = ("--sweep", f"failures-from={bad},{good}")
    child = subprocess.Popen(command(path, 100, *failing), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    eventually(lambda: len(lines(path)) == 2 or child.poll() is not None)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130, said
    assert sorted("why_not" in run for run in lines(path)) == [False, True]

    again = subprocess.run(command(path, 2, *failing), capture_output=True, check=False, text=True, timeout=PATIENCE)
    assert again.returncode == 0, again.stderr
    assert "1 of 4 runs" not in again.stderr
    assert "2 of 4 runs" not in again.stderr
    assert f"days=2, failures-from={bad}, seed 1 cannot be: {bad} line 2: " in again.stderr
    assert again.stdout.count("is no failure of a host that there is") == 2
    assert len(lines(path)) == 4


def done(setting: str, seed: int, **figures: int | None) -> Done:
    """A finished run with a wait (low is good), an occupancy (high is) and preemptions (neither)."""
    kinds = {"wait": (Unit.DURATION, Good.LOW), "used": (Unit.RATIO, Good.HIGH), "stops": (Unit.COUNT, Good.NEITHER)}
    found = tuple(
        Figure(name, *kinds[name], None if value is None else Fraction(value)) for name, value in figures.items()
    )
    return Done(f"{setting} {seed}", (("x", setting),), seed, found)


def test_the_best_mean_wins() -> None:
    """By the end of its scale that is good; clearly where no seed of another setting comes near."""
    runs = [
        done("a", 1, wait=10, used=50, stops=1),
        done("a", 2, wait=30, used=52, stops=2),
        done("b", 1, wait=25, used=60, stops=3),
        done("b", 2, wait=25, used=70, stops=4),
    ]
    a, b = outcomes(runs)
    assert (str(a), a.seeds, a.spreads["wait"]) == ("x=a", 2, Spread(Fraction(20), Fraction(10), Fraction(30)))
    won = {winner.name: winner for winner in winners(runs)}
    assert (won["wait"].best, won["wait"].clear) == ((a,), False)
    assert (won["used"].best, won["used"].clear) == ((b,), True)
    assert (won["stops"].best, won["stops"].clear) == ((), False)


def test_equal_settings_win_together_or_not_at_all() -> None:
    """Two of three that are equally good are both named; where all are equal, or none is measured, nobody wins."""
    runs = [done("a", 1, wait=1, used=5), done("b", 1, wait=1, used=5), done("c", 1, wait=2, used=5)]
    wait, used = winners(runs)
    assert [str(outcome) for outcome in wait.best] == ["x=a", "x=b"]
    assert not wait.clear  # of one seed nobody can tell
    wait, _ = winners([*runs, *(done(setting, 2, wait=1 + (setting == "c"), used=5) for setting in "abc")])
    assert wait.clear
    assert used.best == ()
    (unknown,) = winners([done("a", 1, wait=None), done("b", 1, wait=None)])
    assert unknown.best == ()
    (half,) = winners([done("a", 1, wait=None), done("b", 1, wait=4)])
    assert half.best == ()


def test_runs_that_were_not_played_count_for_no_seed() -> None:
    """A setting has the reason for them; it wins by the others, and one without any wins nothing."""
    cannot = [Done("c", (("x", "c"),), seed, why_not="it cannot be") for seed in (1, 2)]
    runs = [done("a", 1, wait=10), replace(cannot[0], setting=(("x", "a"),), seed=2), done("b", 1, wait=20), *cannot]
    a, b, c = outcomes(runs)
    assert (a.seeds, a.not_played) == (1, {"it cannot be": [2]})
    assert (b.seeds, b.not_played) == (1, {})
    assert (c.seeds, c.spreads, c.not_played) == (0, {}, {"it cannot be": [1, 2]})
    (wait,) = winners(runs)
    assert wait.best == (a,)
