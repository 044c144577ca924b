"""The daemon's last days as a file: where they begin, and what was there already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpubudget.cli import recorded
from gpubudget.cli.output import now_ms
from gpubudget.cli.recorded import record
from gpubudget.errors import RefusedError
from gpubudget.sim.audit import audit
from gpubudget.sim.history import read_history
from tests.cli.cluster import Cluster, until
from tests.cli.conftest import Cli


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def started(alice: Cli, *arguments: str) -> str:
    """A workload that runs."""
    workload = alice("submit", "-b", "vision", "-g", "2", "-m", "1h", *arguments).out.split()[0]
    until(lambda: json.loads(alice("get", "workloads", workload, "-o", "json").out)["state"] == "running", "its start")
    return workload


def test_what_was_there_already_comes_at_the_beginning(cluster: Cluster, alice: Cli, tmp_path: Path) -> None:
    """Budgets, hosts, and work that waited, ran or was moved before; what had ended is not part of it."""
    assert alice("run", "-b", "vision", "-g", "1", "--", "true").code == 0
    runs = started(alice, "--", "sleep", "300")
    quiet = started(alice, "--", "sleep", "300")
    waits = alice("submit", "-b", "vision", "-g", "16", "-m", "1h", "--", "true").out.split()[0]
    assert alice("move", waits, "-b", "language/alice").code == 0
    since = now_ms()
    assert alice("run", "-b", "vision", "-g", "1", "--", "true").code == 0
    assert alice("cancel", runs, waits).code == 0
    with cluster.client("alice") as client:
        record(client, since, tmp_path / "part.jsonl")
        record(client, since, tmp_path / "report.jsonl", replay=False)
        record(client, 0, tmp_path / "all.jsonl")
    found = lines(tmp_path / "part.jsonl")
    begin = found[0]["at"]
    assert begin >= since
    earlier = [line for line in found if line["at"] == begin]
    assert [line["kind"] for line in earlier][:3] == ["budgets_applied", "host", "host"]
    told = [(line["kind"], line["workload"]) for line in earlier if "workload" in line]
    assert {("submitted", runs), ("started", runs), ("submitted", waits)} <= set(told)
    assert {("submitted", quiet), ("started", quiet)} <= set(told)  # of which nothing was heard since
    assert ("started", waits) not in told
    (moved,) = [line for line in earlier if line["kind"] == "submitted" and line["workload"] == waits]
    assert moved["budget"] == "language/alice"
    ids = {line["workload"] for line in found if line["kind"] == "submitted"}
    assert len(ids) == 4
    scenario = read_history(tmp_path / "part.jsonl")
    assert not [row for row in scenario.workloads.bad_rows if "had not started" not in row.why]
    assert {one.spec.id for one in scenario.workloads.submissions} == ids
    as_it_was = lines(tmp_path / "report.jsonl")
    every = {line["seq"]: line["at"] for line in lines(tmp_path / "all.jsonl")}
    assert all(every[line["seq"]] == line["at"] for line in as_it_was if "workload" in line)
    assert [line["at"] for line in as_it_was] == sorted(line["at"] for line in as_it_was)
    assert {line["seq"] for line in as_it_was} > {line["seq"] for line in found}
    assert {"moved", "reserved"} <= {line["kind"] for line in as_it_was if line["at"] < since}
    assert lines(tmp_path / "all.jsonl")[0]["seq"] == 1
    assert not audit((tmp_path / "all.jsonl").read_bytes().splitlines()).findings


def test_the_beginning_is_found_among_many_events(
    cluster: Cluster, alice: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Page by page, at each moment in turn, it is the first event that is not earlier."""
    assert alice("run", "-b", "vision", "-g", "1", "--", "true").code == 0
    monkeypatch.setattr(recorded, "_PAGE", 7)
    with cluster.client("alice") as client:
        record(client, 0, tmp_path / "all.jsonl")
        every = lines(tmp_path / "all.jsonl")
        for place in (1, len(every) // 2, len(every) - 1):
            at = every[place]["at"]
            record(client, at, tmp_path / "part.jsonl")
            assert [line["seq"] for line in lines(tmp_path / "part.jsonl") if line["at"] >= at][-1] == every[-1]["seq"]
            first = next(line["seq"] for line in every if line["at"] >= at)
            kept = [line["seq"] for line in lines(tmp_path / "part.jsonl")]
            assert first in kept
            assert kept[-1] == every[-1]["seq"]
        with pytest.raises(RefusedError, match="has recorded nothing in that time"):
            record(client, now_ms() + 1_000, tmp_path / "none.jsonl")
