"""What a reconciler remembers, and how it is shown to Prometheus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpubudget.errors import GpuBudgetError
from gpubudget.gitops.record import FILE, Record, Refusal, after, all_records, metrics, read, to_json, write
from gpubudget.gitops.report import Report, Status

NEW = Record("http://one", "/srv/b.git", "main", "budgets")
REPORT = Report("/srv/b.git", "main", "budgets", Status.APPLIED, commit="c1", previous="c0")


def test_since_when_it_has_stood_like_this_is_kept() -> None:
    """The same status goes on since its first round; another one begins anew, and what was applied stays known."""
    one = after(NEW, REPORT, 1_000, None)
    assert (one.since, one.at, one.rounds, one.settled, one.applied, one.seen) == (1_000, 1_000, 1, 1_000, "c1", "c1")
    failed = replace(REPORT, status=Status.FAILED, commit="", previous="", error="away", hint="wait")
    two = after(after(one, failed, 2_000, None), failed, 3_000, None)
    assert (two.since, two.at, two.rounds, two.settled) == (2_000, 3_000, 2, 1_000)
    assert (two.seen, two.seen_at, two.applied, two.error, two.hint) == ("c1", 1_000, "c1", "away", "wait")
    refused = replace(REPORT, status=Status.REFUSED, commit="c2", previous="c1")
    three = after(two, refused, 4_000, Refusal("c2", "c1", "", 4_000, "too much"))
    assert (three.seen, three.applied, three.since, three.rounds) == ("c2", "c1", 4_000, 1)
    assert to_json(three)["refused"] == "c2"
    assert to_json(NEW)["refused"] is None


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """The whole record, the refusal included, and no other file is left."""
    record = replace(NEW, refusal=Refusal("c2", "c1", "s", 5, "too much"))
    write(tmp_path, NEW)
    write(tmp_path, record)
    assert read(tmp_path) == record
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[]", b'{"kind": "Record"}', b"[" * 100_000])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: bytes) -> None:
    """It is a memory only: the next round judges anew."""
    (tmp_path / FILE).write_bytes(text)
    assert read(tmp_path) is None
    assert read(tmp_path / "missing") is None


def test_a_place_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path) -> None:
    """And no half of a file stays."""
    (tmp_path / FILE).mkdir()
    with pytest.raises(GpuBudgetError, match=r"cannot write .*: Is a directory"):
        write(tmp_path, NEW)
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
    with pytest.raises(GpuBudgetError, match="No such file or directory"):
        write(tmp_path / "missing", NEW)


def test_all_records_are_found_in_order(tmp_path: Path) -> None:
    """By cluster, then by source and target; what cannot be read is left out."""
    for name, cluster in (("x", "b"), ("y", "a"), ("z", "c")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, replace(NEW, cluster=cluster))
    (tmp_path / "z" / FILE).write_text("broken")
    assert [record.cluster for record in all_records(tmp_path)] == ["a", "b"]
    assert all_records(tmp_path / "missing") == []


def test_metrics_can_be_scraped() -> None:
    """One status of each reconciler is 1, times are seconds, and odd names are escaped."""
    odd = replace(REPORT, cluster='a"\\\n', source="/srv/two")
    text = metrics([after(NEW, odd, 5_500, None), after(NEW, replace(REPORT, status=Status.FAILED), 7_000, None)])
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert len(found) == 6
    on = [sample.labels["status"] for sample in found["gpubudget_reconcile_status"].samples if sample.value == 1]
    assert on == ["applied", "failed"]
    settled = found["gpubudget_reconcile_settled_timestamp_seconds"].samples
    assert [(sample.labels["cluster"], sample.value) for sample in settled] == [('a"\\\n', 5.5), ("", 0)]
    assert [sample.value for sample in found["gpubudget_reconcile_unsettled_rounds"].samples] == [0, 1]
    assert [sample.labels["applied"] for sample in found["gpubudget_reconcile_commit_info"].samples] == ["c1", "c0"]
