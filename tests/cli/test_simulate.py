"""The command simulate: what it writes and prints, that it is the same twice, and how it tells what is wrong."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubudget.core.budget import DebugLane, Policy
from gpubudget.gitops.folder import load_folder
from gpubudget.sim.engine import simulate
from gpubudget.sim.policies import policy
from gpubudget.sim.prepare import Choice, prepare
from gpubudget.units import DAY, HOUR, MINUTE
from tests.cli.conftest import Cli

SHARED = os.environ.get("GPUBUDGET_SHARED")
GROUPS = ("--budgets-from-groups", "--hosts", "2")
TREE = Path(__file__).parents[2] / "budgets"


def rows(number: int) -> Iterator[str]:
    """Work of two groups, three times what two hosts can do."""
    yield "job_id,submit_s,user,group,gpus,duration_s,state,gpu_type"
    for i in range(number):
        yield f"j{i},{i * 300},,vc{i % 5 % 2},{(1, 2, 4, 8, 16)[i % 5]},{1200 + 977 * i % 7200},COMPLETED,"


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(rows(200)) + "\n")
    return path


def test_a_trace_is_played_and_all_files_are_written(cli: Cli, trace: Path) -> None:
    """The log passes the audit, the table has a row for each workload, figures and page say what was assumed."""
    files = ("--log", "log.jsonl", "--out", "report.html", "--json", "figures.json", "--csv", "rows.csv")
    done = cli("simulate", "--trace", str(trace), *GROUPS, *files)
    assert done.code == 0
    assert done.out.splitlines()[0].split() == [
        *("RUN", "WORKLOADS", "WAIT", "P50", "P90", "LARGEST", "OCCUPANCY", "IMPACT", "PREEMPTIONS", "LOST", "GPU-H")
    ]
    assert done.out.splitlines()[1].split()[:2] == ["gpubudget", "200"]
    assert done.err.startswith("gpubudget: 200 workloads, ")
    with Path("rows.csv").open(newline="") as stream:
        assert [row["workload"] for row in csv.DictReader(stream)] == [f"j{i}" for i in range(200)]
    (run,) = json.loads(Path("figures.json").read_text())["runs"]
    assert run["measures"]["workloads"] == 200
    assert (run["lookback_ms"], run["max_min_runtime_ms"], run["debug_gpus"]) == (7 * DAY, 8 * HOUR, 0)
    assert run["measures"]["preemptions"]["count"] > 0
    assert any("name no user" in each for each in run["assumptions"])
    assert "name no user" in Path("report.html").read_text()
    assert cli("audit", "log.jsonl").code == 0


def test_the_same_seed_gives_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    """In processes that hash texts differently; another seed gives others."""

    def play(name: str, seed: str, hashes: str) -> dict[str, bytes]:
        folder = tmp_path / name
        folder.mkdir()
        files = ("--log", "l", "--out", "o", "--json", "j", "--csv", "c")
        command = [sys.executable, "-m", "gpubudget", "simulate", "--trace", str(trace), *GROUPS, "--seed", seed]
        command += ["--unallocated", "20%", "--failures", "300", *files]
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": hashes}
        )
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    first = play("one", "1", "1")
    assert play("two", "1", "2") == first
    other = play("three", "2", "1")
    assert all(other[name] != first[name] for name in first)


def test_a_warm_up_is_in_no_figure(cli: Cli, trace: Path) -> None:
    """It is played, and the rest has what came after it; a sentence says that nothing comes later."""
    cold = cli("simulate", "--trace", str(trace), *GROUPS, "--json", "cold.json")
    warm = cli("simulate", "--trace", str(trace), *GROUPS, "--warm-up", "12h", "--json", "warm.json")
    assert (cold.code, warm.code) == (0, 0)
    (cold_run,), (run,) = (json.loads(Path(name).read_text())["runs"] for name in ("cold.json", "warm.json"))
    assert run["measures"]["workloads"] < cold_run["measures"]["workloads"] == 200
    assert run["measures"]["start_ms"] - cold_run["measures"]["start_ms"] == 12 * HOUR
    assert run["settings"]["warm-up"] == "12h"
    none = cli("simulate", "--trace", str(trace), *GROUPS, "--warm-up", "900d")
    assert (none.code, none.out) == (1, "")
    assert "error: nothing comes after the warm-up" in none.err


def test_policies_are_compared_side_by_side(cli: Cli, trace: Path) -> None:
    """One line each; a log is of one policy only."""
    both = ("--policy", "gpubudget", "--policy", "fifo")
    done = cli("simulate", "--trace", str(trace), *GROUPS, *both, "--json", "figures.json")
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ["gpubudget", "fifo"]
    assert [run["name"] for run in json.loads(Path("figures.json").read_text())["runs"]] == ["gpubudget", "fifo"]
    assert cli("simulate", "--trace", str(trace), *GROUPS, *both, "--log", "x").code == 64


def test_a_log_is_played_again_under_other_budgets(cli: Cli, trace: Path) -> None:
    """The log of a run is a trace, with its own budgets or with those of a folder."""
    cli("simulate", "--trace", str(trace), *GROUPS, "--log", "log.jsonl")
    again = cli("simulate", "--trace", "log.jsonl", "--log", "again.jsonl")
    assert (again.code, again.out.split("\n")[1].split()[:2]) == (0, ["gpubudget", "200"])
    assert cli("audit", "again.jsonl").code == 0
    other = cli("simulate", "--trace", "log.jsonl", "--budgets", str(TREE))
    assert "200 workloads refused: there is no pool 'gpus'" in other.err
    idle = cli("simulate", "--trace", "log.jsonl", "--unallocated", "20%")
    assert (idle.code, idle.out) == (64, "")
    assert "log.jsonl is an event log: it says itself who submits" in idle.err


def test_a_log_is_packed_where_its_name_says_so(cli: Cli, trace: Path) -> None:
    """The same bytes each time; whoever reads logs reads it."""
    for name in ("plain.jsonl", "one.jsonl.gz", "two.jsonl.gz"):
        assert cli("simulate", "--trace", str(trace), *GROUPS, "--log", name).code == 0
    assert gzip.decompress(Path("one.jsonl.gz").read_bytes()) == Path("plain.jsonl").read_bytes()
    assert Path("one.jsonl.gz").read_bytes() == Path("two.jsonl.gz").read_bytes()
    assert cli("audit", "one.jsonl.gz").out == cli("audit", "plain.jsonl").out
    assert cli("report", "--log", "one.jsonl.gz").out == cli("report", "--log", "plain.jsonl").out


def test_a_log_is_played_again_to_the_byte(cli: Cli, trace: Path) -> None:
    """Under the same budgets, on the same hosts with the same failures; starts and stops do not count as work."""
    with_all = ("--unallocated", "20%", "--failures", "3000", "--log", "log.jsonl")
    assert cli("simulate", "--trace", str(trace), *GROUPS, *with_all).code == 0
    log = Path("log.jsonl").read_bytes()
    assert all(word in log for word in (b'"reason": "preempted"', b'"reason": "drained"', b'"state": "lost"'))
    assert cli("simulate", "--trace", "log.jsonl", "--log", "again.jsonl").code == 0
    assert Path("again.jsonl").read_bytes() == log


def test_rules_and_hosts_hold_for_all_of_a_log(cli: Cli, trace: Path) -> None:
    """Also after budgets are changed in it; whoever declared more than is allowed now would have declared less."""
    assert cli("simulate", "--trace", str(trace), *GROUPS, "--log", "log.jsonl").code == 0
    lines = Path("log.jsonl").read_text().splitlines()
    place = next(number for number, line in enumerate(lines) if '"kind": "stopped"' in line)
    lines.insert(place, json.dumps(json.loads(lines[0]) | {"at": json.loads(lines[place])["at"]}))
    Path("twice.jsonl").write_text("\n".join(lines))
    rules = ("--lookback", "1d", "--max-min-runtime", "10m", "--hosts", "3")
    done = cli("simulate", "--trace", "twice.jsonl", *rules, "--log", "again.jsonl", "--json", "figures.json")
    assert done.code == 0
    assert "refused" not in done.err
    told = [json.loads(line) for line in Path("again.jsonl").read_text().splitlines()]
    applied = [line for line in told if line["kind"] == "budgets_applied"]
    assert [line["policy"]["lookback_ms"] for line in applied] == [DAY, DAY]
    assert [line["pools"][0]["hosts"] for line in applied] == [3, 3]
    assert max(line["min_runtime_ms"] for line in told if line["kind"] == "submitted") == 10 * MINUTE
    assumed = " ".join(json.loads(Path("figures.json").read_text())["runs"][0]["assumptions"])
    assert "Budgets are changed 1 time in it" in assumed
    assert "declared more than the longest minimum runtime, 10m: taken to declare that" in assumed


def test_what_was_found_is_said_though_it_cannot_be_written(cli: Cli, trace: Path) -> None:
    """A full disk does not take the figures of a long run along."""
    done = cli("simulate", "--trace", str(trace), *GROUPS, "--json", "/dev/full")
    assert done.code == 1
    assert done.out.splitlines()[1].split()[:2] == ["gpubudget", "200"]
    assert "error: /dev/full cannot be written: No space left on device" in done.err


def test_what_was_left_out_and_what_was_refused_is_told(cli: Cli, tmp_path: Path) -> None:
    """With lines, reasons and numbers."""
    path = tmp_path / "trace.csv"
    sizes = "".join(f"d{gpus},1,g,{gpus},60\n" for gpus in (9, 11, 15, 17))
    path.write_text(f"job_id,submit_s,group,gpus,duration_s\na,0,g,1,60\nb,-7,g,1,60\nc,1,g,13,60\n{sizes}")
    done = cli("simulate", "--trace", str(path), *GROUPS)
    assert done.code == 0
    assert "1 row left out: line 3: a negative time: it is submitted -7 s" in done.err
    assert "1 workload refused: 13 GPUs cannot be split evenly over 2 hosts of 8 GPUs" in done.err
    assert "2 workloads more refused, for 2 other reasons" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--trace", "missing.csv", *GROUPS], 1, "there is no file missing.csv"),
        (["--trace", "trace.csv", "--hosts", "2"], 64, "trace.csv says nothing of budgets"),
        (["--trace", "trace.csv", "--budgets-from-groups"], 64, "trace.csv says nothing of hosts"),
        (["--trace", "trace.csv", "--budgets", "nowhere"], 1, "nowhere does not exist"),
        (
            ["--trace", "trace.csv", *GROUPS, "--budgets", "x"],
            64,
            "from a folder or from the trace's groups, not from both",
        ),
        (["--trace", "trace.csv", *GROUPS, "--weights", "trace.csv"], 1, "is not a group with a weight above 0"),
        (["--trace", "trace.csv", *GROUPS, "--out", "no/such/x.html"], 1, "the folder no/such does not exist"),
        (["--trace", "trace.csv", *GROUPS, "--csv", "."], 1, "it is a folder"),
        (["--trace", "trace.csv", *GROUPS, "--checkpoint-every", "4 apples"], 64, "'4 apples' is not a duration"),
        (["--trace", "trace.csv", *GROUPS, "--checkpoint-every", "0"], 64, "must be more than 0"),
        (["--trace", "trace.csv", *GROUPS, "--unallocated", "20"], 64, "'20' is not a share"),
        (["--trace", "trace.csv", *GROUPS, "--scale-load", "-1"], 64, "'-1' is not a number such as 2.5"),
        (["--trace", "trace.csv", *GROUPS, "--scale-load", "0"], 1, "the load must be above 0"),
        (["--trace", "trace.csv", *GROUPS, "--min-runtime-from", "60%", "--min-runtime-to", "50%"], 64, "is more than"),
        (["--trace", "trace.csv", *GROUPS, "--policy", "chaos"], 64, "'chaos' is not one of"),
        (["--trace", "trace.csv", *GROUPS, "--lookback", "0"], 64, "--lookback is 0: it may be 1s to 366d"),
        (["--trace", "trace.csv", *GROUPS, "--lookback", "1h"], 1, "8h, is more than the lookback window, 1h"),
        (["--trace", "trace.csv", *GROUPS, "--csv", "./trace.csv"], 64, "which is that of --trace"),
        (
            ["--trace", "trace.csv", *GROUPS, "--csv", "x", "--json", "x"],
            64,
            "--csv would overwrite x, which is that of",
        ),
        (["--trace", "trace.csv", *GROUPS, "--days", "7"], 64, "--days is for made-up work, and changes nothing here"),
        (["--synthetic", "1", "--people", "3"], 64, "--people is for a trace, and changes nothing here"),
        (
            ["--trace", "trace.csv", "--budgets", "x", "--gpus-per-host", "4"],
            64,
            "--gpus-per-host changes nothing here",
        ),
        (["--trace", "trace.csv", "--budgets", "x", "--users-below-groups"], 64, "is for budgets that are made from"),
        ([*GROUPS], 64, "there must be one thing to play"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(
    cli: Cli, trace: Path, arguments: list[str], code: int, message: str
) -> None:
    """Before anything is played; nothing is written."""
    done = cli("simulate", *arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert len(done.err.splitlines()) <= 2
    assert [path.name for path in trace.parent.iterdir()] == ["trace.csv"]


def test_ctrl_c_ends_it_at_once(trace: Path) -> None:
    """With the exit code for it and without a traceback; what is in the log is sound."""
    trace.write_text("\n".join(rows(20_000)) + "\n")
    command = [sys.executable, "-m", "gpubudget", "simulate", "--trace", str(trace), *GROUPS, "--log", "log.jsonl"]
    log, deadline = Path("log.jsonl"), time.monotonic() + 60
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        while not (log.exists() and log.stat().st_size):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err.strip()) == (130, b"", b"")
    lines = log.read_bytes().splitlines()
    assert [json.loads(line)["kind"] for line in lines[:2]] == ["budgets_applied", "host"]


def test_rules_and_load_are_those_that_were_chosen(trace: Path) -> None:
    """They differ from those of the folder in what was said, and in nothing else."""
    tree = load_folder(TREE).tree
    assert tree is not None
    from gpubudget.sim.prepare import Rules

    found = prepare(Choice(trace, budgets=TREE, rules=Rules(lookback=DAY, debug_gpus=0)))
    assert (found.tree.policy.lookback, found.tree.policy.debug) == (DAY, None)
    assert found.tree.policy.max_min_runtime == tree.policy.max_min_runtime
    assert (found.tree.root, found.tree.pools) == (tree.root, tree.pools)
    told = " ".join(found.workloads.assumptions)
    assert ("The trace names no pool" in told) == (len(tree.pools) > 1)
    assert ("after all submissions, which play no part" in told) == bool(tree.dates())
    assert len(found.hosts) == sum(pool.hosts for pool in tree.pools)
    assert Rules(debug_gpus=4).of(Policy()).debug == DebugLane(4, max_gpus=4)


@pytest.mark.skipif(SHARED is None, reason="GPUBUDGET_SHARED is not set: the public traces are not here")
def test_first_come_first_served_waits_as_long_as_in_other_simulators() -> None:
    """On four weeks of Philly, 704 GPUs in one pool without host boundaries: 2,303 s in the mean."""
    path = Path(SHARED or "") / "traces" / "philly28_704.csv.gz"
    scenario = prepare(Choice(path, from_groups=True, hosts=88))
    result = simulate(scenario, policy("fifo-one-pool").make())
    waits = [row.first_wait or 0 for row in result.rows]
    assert sum(waits) / len(waits) / 1000 == pytest.approx(2303, rel=0.01)
