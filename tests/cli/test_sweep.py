"""Sweeps from the command line: which runs there are, the tables, the files, and wrong lists of values."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

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
