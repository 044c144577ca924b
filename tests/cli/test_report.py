"""``report`` and ``usage --since``: what the cluster did, by a real daemon's event log and by a file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpubudget.cli import report
from gpubudget.cli.output import now_ms
from gpubudget.units import HOUR
from tests.cli.cluster import Cluster, running_cluster
from tests.cli.conftest import Cli
from tests.cli.test_recorded import started


@pytest.fixture
def log(cli: Cli, tmp_path: Path) -> Path:
    """The event log of a simulated day on 88 GPUs."""
    path = tmp_path / "log.jsonl"
    made = ("simulate", "--synthetic", "1", "--preset", "lab-88", "--days", "1", "--log", str(path))
    assert cli(*made).code == 0
    return path


def test_a_daemon_reports_on_what_it_did(cluster: Cluster, alice: Cli, tmp_path: Path) -> None:
    """The four figures and each program on the terminal; a page, figures and a table of workloads as files."""
    assert cluster.url
    assert alice("run", "-b", "vision", "-g", "2", "-m", "1m", "--", "sleep", "1").code == 0
    assert alice("run", "-b", "vision", "-g", "2", "-m", "1m", "--", "false").code == 1
    runs = started(alice, "--", "sleep", "300")
    page, figures, rows = (tmp_path / name for name in ("report.html", "figures.json", "rows.csv"))
    done = alice("report", "--out", str(page), "--json", str(figures), "--csv", str(rows))
    assert done.code == 0, done.err
    assert " UTC, " in done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0][:4] == ["AVAILABILITY", "OCCUPANCY", "IMPACT", "UTILIZATION"]
    told = list(csv.DictReader(io.StringIO(rows.read_text())))
    (run,) = json.loads(figures.read_text())["runs"]
    measures = run["measures"]
    assert (run["settings"], measures["workloads"], measures["policy"]) == (
        {"log": "the daemon's"}, len(told), "as it happened",
    )  # fmt: skip
    (vision,) = [line for line in lines if line[:1] == ["vision"]]
    mine = [row for row in told if row["budget"] == "vision"]
    assert vision[2] == str(len(mine))
    assert [row["end"] for row in mine][-3:] == ["finished", "failed", "running"]
    (budget,) = [each for each in measures["budgets"] if each["path"] == "vision"]
    assert budget["delivered_gpu_ms"] >= sum(int(row["held_gpu_ms"]) for row in mine[-3:]) >= 2 * 1_000
    assert "as it happened" in page.read_text()
    assert "last submission" not in page.read_text()
    assert alice("cancel", runs).code == 0


def test_a_quiet_time_is_reported_on_up_to_now(
    cluster: Cluster, alice: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs has its GPUs though nothing was recorded: here in an hour from now."""
    assert cluster.url
    runs = started(alice, "--", "sleep", "300")
    later = now_ms() + HOUR
    monkeypatch.setattr(report, "now_ms", lambda: later)
    done = alice("report", "--since", "30m", "--json", str(tmp_path / "figures.json"))
    assert done.code == 0, done.err
    (run,) = json.loads((tmp_path / "figures.json").read_text())["runs"]
    measures = run["measures"]
    assert (measures["start_ms"], measures["end_ms"]) == (later - HOUR // 2, later)
    assert measures["capacity"]["allocated_gpu_ms"] == 2 * HOUR // 2
    table = alice("usage", "vision", "--since", "30m")
    assert table.out.splitlines()[1].split()[5] == "1.0"
    assert alice("cancel", runs).code == 0


def test_a_daemon_that_has_done_nothing_yet_says_so(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No path of a temporary file, and no advice that does not help."""
    with running_cluster(tmp_path) as fresh:
        monkeypatch.setenv("GPUBUDGET_URL", fresh.url)
        monkeypatch.setenv("GPUBUDGET_TOKEN", fresh.tokens["alice"])
        for command in (("report",), ("usage", "--since", "1h")):
            done = cli(*command)
            assert (done.code, done.out) == (1, "")
            assert "there is nothing to report on yet: the daemon has not recorded budgets, a host and a" in done.err
            assert "events.jsonl" not in done.err


def test_usage_of_a_time(cluster: Cluster, alice: Cli) -> None:
    """By budget, with those below it; JSON has when it begins and ends."""
    assert cluster.url
    assert alice("run", "-b", "vision", "-g", "2", "-m", "1m", "--", "sleep", "1").code == 0
    table = alice("usage", "--since", "1h")
    assert table.code == 0, table.err
    header, *rows = [line.split() for line in table.out.splitlines()]
    assert header[:4] == ["BUDGET", "SHARE", "WORKLOADS", "DEMANDED"]
    assert [row[0] for row in rows] == ["/", "language", "language/alice", "vision"]
    told = json.loads(alice("usage", "language", "--since", "1h", "-o", "json").out)
    assert [each["path"] for each in told["budgets"]] == ["language", "language/alice"]
    assert told["until"] > told["since"]
    assert alice("usage", "--since", "1h", "-o", "name").out.split() == [row[0] for row in rows]
    none = alice("usage", "nobody", "--since", "1h")
    assert (none.code, none.out) == (1, "")
    assert "there is no budget 'nobody'" in none.err
    assert alice("usage", "--since", "1h", "--pool", "h100").code == 64


def piped(log: bytes, name: str) -> tuple[int, str]:
    """Exit code and output of a report on what comes through a pipe."""
    command = [sys.executable, "-m", "gpubudget", "report", "--log", name]
    done = subprocess.run(command, input=log, capture_output=True, check=False)
    return done.returncode, done.stdout.decode() + ("" if done.returncode == 0 else done.stderr.decode())


def test_a_pipe_that_is_no_log_is_told_of_as_what_it_is() -> None:
    """Not by the path of a copy."""
    code, said = piped(b"job_id,submit_s\n", "-")
    assert code == 1
    assert said.startswith("error: the log tells of no budgets; line 1: the line is not JSON")


def test_a_log_is_reported_on_without_a_daemon(cli: Cli, log: Path) -> None:
    """A file, stdin or a pipe, packed or not, all of it or the end of it; what no figure can be made of is told."""
    whole = cli("report", "--log", str(log))
    assert whole.code == 0, whole.err
    packed = log.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(log.read_bytes() + b"{}\n"))
    again = cli("report", "--log", str(packed))
    assert again.out == whole.out
    assert "left out: line" in again.err
    for name, given in (("-", packed), ("-", log), ("/dev/stdin", log)):
        assert piped(given.read_bytes(), name) == (0, whole.out)
    some = cli("report", "--log", str(log), "--since", "6h")
    assert some.code == 0, some.err
    assert ", 6h, 88 GPUs" in some.err
    assert some.out != whole.out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--log", "none.jsonl"), 1, "there is no file none.jsonl"),
        (("--log", "empty.jsonl"), 1, "empty.jsonl tells of no budgets"),
        (("--log", "other.csv"), 1, "other.csv tells of no budgets; line 1: the line is not JSON"),
        (("--log", "log.jsonl", "--out", "log.jsonl"), 64, "--out would overwrite log.jsonl, which is that of --log"),
        (("--log", "log.jsonl", "--csv", "."), 1, ". cannot be written: it is a folder"),
        (("--log", "log.jsonl", "--since", "0"), 64, "--since 0 is no time at all"),
        (("--log", "log.jsonl", "--since", "soon"), 64, "'soon'"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], code: int, said: str
) -> None:
    """And nothing is written."""
    monkeypatch.chdir(log.parent)
    before = log.read_bytes()
    Path("empty.jsonl").touch()
    Path("other.csv").write_text("job_id,submit_s\n1,2\n")
    done = cli("report", *options)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert log.read_bytes() == before


def test_a_time_beyond_all_calendars_and_an_odd_name_are_shown(cli: Cli, log: Path) -> None:
    """No fault of the program, and nothing that moves the cursor."""
    lines = log.read_text().splitlines()
    first = json.loads(lines[0])
    far = [{**json.loads(line), "at": json.loads(line)["at"] + (1 << 59)} for line in lines]
    far[0] = {**first, "at": far[0]["at"], "cluster": "lab\u001b[31m\n"}
    log.write_text("".join(json.dumps(line) + "\n" for line in far))
    done = cli("report", "--log", str(log))
    assert done.code == 0, done.err
    assert "\x1b" not in done.err
    assert " ms to " in done.err


def test_what_was_found_is_said_though_a_file_cannot_be_written(cli: Cli, log: Path, tmp_path: Path) -> None:
    """Here one that leads to itself."""
    (tmp_path / "loop").symlink_to("loop")
    done = cli("report", "--log", str(log), "--out", str(tmp_path / "loop"))
    assert (done.code, done.out) == (1, cli("report", "--log", str(log)).out)
    assert "loop cannot be written" in done.err
