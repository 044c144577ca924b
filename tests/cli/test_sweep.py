"""Sweeps from the command line: which runs there are, the tables, the files, and wrong lists of values."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path

import pytest

from gpubudget.errors import GpuBudgetError
from gpubudget.sim.prepare import Choice, Rules, check, prepare
from gpubudget.units import DAY, HOUR
from tests.cli.conftest import Cli

SMALL = ("simulate", "--synthetic=3", "--preset=lab-88", "--days=1", "--hosts=2")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_sweep_says_which_setting_wins(cli: Cli, tmp_path: Path) -> None:
    """Two tables on stdout, progress on stderr, all figures in files; a second time nothing is played."""
    sweep = (*SMALL, "--sweep", "debug_gpus=0, 8", "--seeds=2", "--json=all.json", "--csv=runs.csv")
    code, out, err = cli(*sweep)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].split()[:4] == ["SETTING", "SEEDS", "WAIT", "P50"]
    assert [line.split()[:2] for line in lines[1:3]] == [["debug-gpus=0", "2"], ["debug-gpus=8", "2"]]
    assert "MEASURE" in lines[4]
    assert any(line.startswith("occupancy") and "debug-gpus=" in line for line in lines[5:])
    assert "4 of 4 runs done: debug-gpus=" in err
    assert len((tmp_path / "sweep.jsonl").read_text().splitlines()) == 4

    found = json.loads((tmp_path / "all.json").read_text())
    assert [each["setting"] for each in found["settings"]] == [{"debug-gpus": "0"}, {"debug-gpus": "8"}]
    spread = found["settings"][0]["measures"]["occupancy"]
    assert 0 < spread["low"] <= spread["mean"] <= spread["high"] <= 1
    assert isinstance(found["settings"][0]["measures"]["longest wait"]["mean"], int)
    won = {each["measure"]: each for each in found["winners"]}
    assert won["preemptions"]["best"] == []
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert [(row["debug-gpus"], row["seed"]) for row in rows] == [("0", "3"), ("0", "4"), ("8", "3"), ("8", "4")]

    again = cli(*sweep)
    assert again.out == out
    assert again.err == "all 4 runs were finished before: they are from sweep.jsonl\n"


def test_policies_and_seeds_can_be_all_that_differs(cli: Cli) -> None:
    """Several policies are one more setting; with seeds alone there is one setting, as it is."""
    code, out, err = cli(*SMALL, "--policy=fifo", "--policy=old-world", "--seeds=1", "--runs=mine.jsonl")
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["policy=fifo", "policy=old-world"]
    assert cli(*SMALL, "--sweep=policy=fifo,old-world", "--runs=mine.jsonl").out == out
    code, out, err = cli(*SMALL, "--seeds=1", "--runs=mine.jsonl", "--processes=1")
    assert code == 0, err
    assert out.splitlines()[1].startswith("as it is")
    assert len(Path("mine.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sweep", "lookback"], "'lookback' is no list of values"),
        (["--sweep", "lookback=1d,,2d"], "is no list of values"),
        (["--sweep", "lookback=1d,1d"], "is no list of values"),
        (["--sweep", "luck=1,2"], "'luck' names no setting"),
        (["--sweep", "seed=1,2"], "'seed' names no setting"),
        (["--sweep", "users-below-groups=1,2"], "names no setting"),
        (["--sweep", "lookback=1d,soon"], "--sweep lookback: 'soon' is not a duration"),
        (["--sweep", "hosts=1,2", "--sweep", "hosts=3"], "a name is swept twice"),
        (["--sweep", "policy=fifo", "--policy=fifo", "--policy=gpubudget"], "a name is swept twice"),
        (["--sweep", "policy=lottery"], "'lottery' is not one of"),
        (["--sweep", "hosts=1,2", "--log=x.jsonl"], "--log goes with a single run, and not with a sweep"),
        (["--sweep", "days=1,2,3,4,5,6,7,8,9,10,11", "--seeds=1000"], "these are 11,000 runs"),
    ],
)
def test_a_wrong_sweep_is_one_sentence(cli: Cli, options: list[str], said: str) -> None:
    """It is a usage error, and nothing is played or written."""
    code, out, err = cli(*SMALL, *options)
    assert (code, out) == (64, "")
    assert said in err
    assert not Path("sweep.jsonl").exists()


def budgets(name: str, pools: str = "{gpus: {gpus_per_host: 8, hosts: 2}}") -> str:
    """A folder of budgets in the current folder."""
    Path(name).mkdir()
    Path(name, "cluster.yaml").write_text(f"kind: Cluster\npools: {pools}\n")
    Path(name, "budget.yaml").write_text("kind: Budget\nmanagers: [ann]\nmembers: [ann]\n")
    return name


def csv_of_work(name: str, rows: str = "a,0,g,1,60\nb,60,g,1,60\n") -> str:
    """A trace in the current folder."""
    Path(name).write_text("job_id,submit_s,group,gpus,duration_s\n" + rows)
    return name


def test_what_cannot_be_is_told_first_and_left_out(cli: Cli) -> None:
    """The others are played and kept; table, JSON and CSV have the reason; the exit code is 0."""
    code, out, err = cli(*SMALL, "--sweep=debug_gpus=0,16", "--seeds=2", "--json=all.json", "--csv=runs.csv")
    assert code == 0, err
    why = "the debug lane keeps 16 GPUs of each pool, but gpus has 16 in all"
    told = err.splitlines()
    assert told[0].startswith(f"left out: debug-gpus=16: {why}")
    assert [line.split(":")[0] for line in told[1:]] == ["1 of 2 runs done", "2 of 2 runs done"]
    head, one, other = out.splitlines()[:3]
    assert head.endswith("NOT PLAYED")
    assert one.split()[:2] + one.split()[-1:] == ["debug-gpus=0", "2", "-"]
    assert other.split()[:3] == ["debug-gpus=16", "0", "-"]
    assert why in other
    assert len(Path("sweep.jsonl").read_text().splitlines()) == 2

    played, left_out = json.loads(Path("all.json").read_text())["settings"]
    assert (played["seeds"], played["not_played"]) == (2, [])
    assert (left_out["seeds"], left_out["measures"]) == (0, {})
    (reason,) = left_out["not_played"]
    assert reason["seeds"] == [3, 4]
    assert why in reason["why"]
    rows = list(csv.DictReader(Path("runs.csv").read_text().splitlines()))
    assert [(row["debug-gpus"], row["seed"], why in row["not_played"]) for row in rows] == [
        *(("0", "3", False), ("0", "4", False), ("16", "3", True), ("16", "4", True))
    ]
    assert [bool(row["occupancy"]) for row in rows] == [True, True, False, False]


def test_what_shows_only_in_a_run_is_kept_and_told(cli: Cli) -> None:
    """The load of a trace is known when it is read; the others go on, and a second time nothing is played."""
    sweep = ("simulate", f"--trace={csv_of_work('t.csv')}", "--budgets-from-groups", "--hosts=1")
    code, out, err = cli(*sweep, "--sweep=scale_load=0,1,2", "--processes=1")
    assert code == 0, err
    assert "1 of 3 runs done: scale-load=0, seed 0 cannot be: t.csv cannot be scaled to a load of 0" in err
    assert "3 of 3 runs done: scale-load=2, seed 0" in err
    assert [line.split()[1] for line in out.splitlines()[1:4]] == ["0", "1", "1"]
    assert "the load must be above 0" in out.splitlines()[1]
    again = cli(*sweep, "--sweep=scale_load=0,1,2")
    assert (again.code, again.out) == (0, out)
    assert again.err == "all 3 runs were finished before: they are from sweep.jsonl\n"


def test_where_nothing_can_be_the_exit_code_says_so(cli: Cli) -> None:
    """The files that were asked for have the reasons; what is known before is not written to the finished runs."""
    code, out, err = cli(*SMALL, "--sweep=lookback=1h,2h", "--json=all.json", "--csv=runs.csv")
    assert code == 1
    assert err.endswith("error: none of the runs could be played\nhint: the table says why\n")
    assert [line.split()[:2] for line in out.splitlines()] == [
        *(["SETTING", "SEEDS"], ["lookback=1h", "0"], ["lookback=2h", "0"])
    ]
    assert json.loads(Path("all.json").read_text())["winners"] == []
    rows = list(csv.DictReader(Path("runs.csv").read_text().splitlines()))
    assert ["8h, is more than the lookback window" in row["not_played"] for row in rows] == [True, True]
    assert not Path("sweep.jsonl").exists()

    sweep = ("simulate", f"--trace={csv_of_work('t.csv', 'a,0,g,1,60')}", "--budgets-from-groups", "--hosts=1")
    for _ in range(2):
        code, out, err = cli(*sweep, "--sweep=scale_load=1,2")
        assert (code, out.count("all workloads come at once")) == (1, 2)
        assert err.endswith("error: none of the runs could be played\nhint: the table says why\n")
    assert len(Path("sweep.jsonl").read_text().splitlines()) == 2


def test_many_combinations_that_cannot_be_are_told_shortly(cli: Cli) -> None:
    """Ten are named before the first run, the others counted."""
    windows = ",".join(f"{minutes}m" for minutes in range(1, 13))
    code, out, err = cli(*SMALL, f"--sweep=lookback={windows},1d")
    assert code == 0, err
    assert err.count("left out: lookback=") == 10
    assert "left out: 2 more combinations, which the table names\n" in err
    assert out.count("is more than the lookback window") == 12


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice(preset="lab-88", rules=Rules(debug_gpus=88)), "keeps 88 GPUs of each pool, but gpus has 88 in all"),
        (Choice(preset="lab-88", rules=Rules(lookback=HOUR)), "8h, is more than the lookback window, 1h"),
        (Choice(preset="lab-88", load=Fraction(0)), "nothing can be made up"),
        (Choice(preset="lab-88", from_groups=True), "made-up work has no groups"),
        (Choice(preset="lab-88", budgets=Path("none")), "none does not exist"),
        (Choice(preset="lab-88", failures=Path("none.csv")), "there is no file none.csv"),
        (Choice(preset="lab-88", weights=Path("w.csv")), "--weights is for budgets that are made from groups"),
        (Choice(Path("none.csv")), "there is no file none.csv"),
        (Choice(Path("t.csv")), "t.csv says nothing of budgets"),
        (Choice(Path("t.csv"), from_groups=True), "t.csv says nothing of hosts"),
        (Choice(Path("t.csv"), from_groups=True, hosts=1, weights=Path("t.csv")), "is not a group with a weight"),
        (Choice(Path("t.csv"), from_groups=True, hosts=1, rules=Rules(debug_gpus=9)), "keeps 9 GPUs of each pool"),
        (Choice(Path("t.csv"), from_groups=True, budgets=Path("b")), "from a folder or from the trace's groups"),
        (Choice(Path("t.csv"), budgets=Path("b"), rules=Rules(lookback=HOUR)), "more than the lookback window"),
        (Choice(Path("t.csv"), budgets=Path("b"), rules=Rules(debug_gpus=16)), "keeps 16 GPUs of each pool"),
        (Choice(Path("t.csv"), budgets=Path("b"), hosts=1, rules=Rules(debug_gpus=9)), "but gpus has 8 in all"),
        (Choice(Path("l.jsonl"), from_groups=True), "l.jsonl is an event log and has budgets of its own"),
        (Choice(Path("l.jsonl"), budgets=Path("b"), rules=Rules(lookback=HOUR)), "more than the lookback window"),
        (Choice(Path("l.jsonl"), budgets=Path("b"), hosts=1, rules=Rules(debug_gpus=9)), "but gpus has 8 in all"),
    ],
)
def test_what_cannot_be_is_found_without_playing(cli: Cli, choice: Choice, said: str) -> None:
    """A check says in the same words what a run would say; and of what can be it says nothing."""
    csv_of_work("t.csv")
    budgets("b")
    log = ("simulate", "--trace=t.csv", "--budgets-from-groups", "--hosts=2", "--log=l.jsonl")
    assert cli(*log).code == 0
    for sound in (
        Choice(preset="lab-88", rules=Rules(lookback=DAY)),
        Choice(Path("t.csv"), budgets=Path("b")),
        Choice(Path("l.jsonl")),
    ):
        check(sound)
    with pytest.raises(GpuBudgetError) as checked:
        check(choice)
    with pytest.raises(GpuBudgetError) as prepared:
        prepare(choice)
    assert said in str(checked.value)
    assert str(checked.value) == str(prepared.value)
