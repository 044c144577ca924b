"""``report`` and ``usage --since``: what the cluster did, by a real daemon's event log and by a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.cluster import Cluster
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
    assert alice("run", "-b", "vision", "-g", "2", "-m", "1m", "--", "sleep", "1").code == 0
    runs = started(alice, "--", "sleep", "300")
    page, figures, rows = (tmp_path / name for name in ("report.html", "figures.json", "rows.csv"))
    done = alice("report", "--out", str(page), "--json", str(figures), "--csv", str(rows))
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0][:4] == ["AVAILABILITY", "OCCUPANCY", "IMPACT", "UTILIZATION"]
    assert lines[1][0] == "100.0%"
    (vision,) = [line for line in lines if line[:1] == ["vision"]]
    assert vision[2] == "3"
    (run,) = json.loads(figures.read_text())["runs"]
    measures = run["measures"]
    budgets = {each["path"]: each for each in measures["budgets"]}
    assert budgets["vision"]["delivered_gpu_ms"] == measures["capacity"]["allocated_gpu_ms"] >= 2 * 2 * 1_000
    assert {end["end"]: end["workloads"] for end in measures["ends"]} == {"finished": 2, "running": 1}
    assert rows.read_text().count("vision") == 3
    assert "as it happened" in page.read_text()
    assert "last submission" not in page.read_text()
    assert " UTC, " in done.err
    assert alice("cancel", runs).code == 0


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


def test_a_log_is_reported_on_without_a_daemon(cli: Cli, log: Path) -> None:
    """Packed or not, all of it or the end of it; what no figure can be made of is left out and told."""
    whole = cli("report", "--log", str(log))
    assert whole.code == 0, whole.err
    packed = log.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(log.read_bytes() + b"{}\n"))
    again = cli("report", "--log", str(packed))
    assert again.out == whole.out
    assert "left out: line" in again.err
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
