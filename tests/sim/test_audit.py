"""The audit finds what is wrong in an event log, names the line, and finds nothing in a log that is right."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpubudget.cli.audit import audit as audit_command
from gpubudget.sim.audit import Auditor, audit

HOUR = 3_600_000
Row = dict[str, Any]


def tree(lookback: int = 100 * HOUR, **shares: str) -> Row:
    """The line that applies the root and its children."""
    budgets = [{"path": "/", "share": "1/1"}, *({"path": name, "share": share} for name, share in shares.items())]
    return {"at": 0, "kind": "budgets_applied", "budgets": budgets, "policy": {"lookback_ms": lookback}}


def host(name: str, at: int = 0, gpus: int = 8, state: str = "ready", pool: str = "p") -> Row:
    return {"at": at, "kind": "host", "host": name, "pool": pool, "gpus": gpus, "state": state}


def submitted(at: int, name: str, budget: str | None, gpus: int, minimum: int, **more: object) -> Row:
    return {
        "at": at,
        "kind": "submitted",
        "workload": name,
        "budget": budget,
        "pool": "p",
        "gpus": gpus,
        "min_runtime_ms": minimum,
        "resumable": True,
        **more,
    }


def started(at: int, name: str, placement: dict[str, list[int]], minimum: int, **more: object) -> Row:
    return {
        "at": at,
        "kind": "started",
        "workload": name,
        "attempt": 1,
        "allocated": minimum > 0,
        "placement": placement,
        "protected_until_ms": at + minimum,
        "preempted": [],
        **more,
    }


def row(at: int, kind: str, name: str, **more: object) -> Row:
    return {"at": at, "kind": kind, "workload": name, **more}


def claimed(at: int, name: str, hosts: list[str], *victims: str) -> Row:
    return row(at, "claimed", name, pool="p", hosts=hosts, preempted=[[victim, 1] for victim in victims])


def stopping(at: int, name: str, reason: str, **more: object) -> Row:
    return row(at, "stopping", name, attempt=1, reason=reason, **more)


def stopped(at: int, name: str, reason: str, **more: object) -> Row:
    return row(at, "stopped", name, attempt=1, reason=reason, **more)


def run(*rows: Row) -> Auditor:
    return audit(json.dumps(line).encode() for line in rows)


def rules(*rows: Row) -> list[tuple[int, str]]:
    return [(finding.line, finding.rule) for finding in run(*rows).findings]


EIGHT = {"h1": list(range(8))}
BASE = [tree(a="1/2", b="1/3"), host("h1"), host("h2")]
# a runs on both hosts past its minimum; b asks for one.
BUSY = [
    *BASE,
    submitted(0, "a1", "a", 8, HOUR),
    submitted(0, "a2", "a", 8, HOUR),
    started(0, "a1", EIGHT, HOUR),
    started(0, "a2", {"h2": list(range(8))}, HOUR),
]
SWAP = [
    *BUSY,
    submitted(2 * HOUR, "b1", "b", 8, HOUR),
    claimed(2 * HOUR, "b1", ["h1"], "a1"),
    stopping(2 * HOUR, "a1", "preempted", **{"for": "b1"}),
    stopped(2 * HOUR + 5, "a1", "preempted", **{"for": "b1"}),
    row(2 * HOUR + 5, "requeued", "a1"),
    started(2 * HOUR + 5, "b1", EIGHT, HOUR, preempted=[["a1", 1]]),
]


def test_a_right_log_has_no_findings_and_its_sums_are_exact() -> None:
    """A preemption by the rules is right, and GPU-time is accounted for to the millisecond."""
    auditor = run(*SWAP, stopped(3 * HOUR, "b1", "finished"), row(4 * HOUR, "moved", "a1", budget="b"))
    assert auditor.findings == []
    summary = auditor.summary()
    assert summary["pools"]["p"] == {
        "capacity_gpu_ms": 16 * 4 * HOUR,
        "allocated_gpu_ms": 8 * (4 * HOUR + 2 * HOUR + 5 + HOUR - 5),
        "unallocated_gpu_ms": 0,
        "idle_gpu_ms": 8 * HOUR,
        "unavailable_gpu_ms": 0,
    }
    assert summary["programs"]["b"]["allocated_gpu_ms"] == 8 * (HOUR - 5)
    assert (summary["workloads"], summary["starts"], summary["preemptions"]) == (3, 3, 1)


def test_the_bare_public_format_is_enough_to_judge_a_preemption() -> None:
    """Without lines for claims and stops under way, protection is still judged, at the end of the stop."""
    bare = [line for line in SWAP if line["kind"] not in {"claimed", "stopping"}]
    assert rules(*bare) == []
    early = [line if line["kind"] != "stopped" else {**line, "at": HOUR // 2} for line in bare if line["at"] == 0]
    early += [submitted(1, "b1", "b", 8, HOUR), stopped(HOUR // 2, "a1", "preempted", **{"for": "b1"})]
    assert (9, "protected") in rules(*early, row(HOUR // 2, "requeued", "a1"))


def test_usage_is_summed_exactly_over_the_sliding_window() -> None:
    """What left the window is not charged, what runs is, and the protected time ahead is committed."""
    auditor = run(
        tree(lookback=10 * HOUR, a="1/2"),
        host("h1"),
        submitted(0, "x", "a", 4, 6 * HOUR),
        started(HOUR, "x", {"h1": [0, 1, 2, 3]}, 6 * HOUR),
        row(2 * HOUR, "checkpoint", "x", attempt=1),
    )
    assert auditor.usage("p", "a", 2 * HOUR) == 4 * 6 * HOUR
    auditor = run(
        tree(lookback=10 * HOUR, a="1/2"),
        host("h1"),
        submitted(0, "x", "a", 4, 6 * HOUR),
        started(HOUR, "x", {"h1": [0, 1, 2, 3]}, 6 * HOUR),
        stopped(4 * HOUR, "x", "finished"),
        submitted(12 * HOUR, "y", "a", 4, 6 * HOUR),
    )
    assert auditor.usage("p", "a", 12 * HOUR) == auditor.usage("p", "/", 12 * HOUR) == 4 * 2 * HOUR


def test_a_removed_budget_leaves_its_usage_to_its_parent_and_a_renamed_one_keeps_it() -> None:
    """Usage never gets lost when the tree changes."""
    renamed = {"path": "c", "share": "1/2", "previously": "a"}
    rows = [*BUSY, {**tree(b="1/3"), "at": 2 * HOUR}]
    rows[-1]["budgets"].append(renamed)
    auditor = run(*rows)
    assert auditor.findings == []
    assert (auditor.usage("p", "c", 2 * HOUR), auditor.usage("p", "a", 2 * HOUR)) == (16 * 2 * HOUR, 0)
    auditor = run(*BUSY, {**tree(b="1/3"), "at": 2 * HOUR})
    assert auditor.findings == []
    assert (auditor.usage("p", "/", 2 * HOUR), auditor.usage("p", "a", 2 * HOUR)) == (16 * 2 * HOUR, 0)


PLACEMENTS: dict[str, tuple[list[Row], str]] = {
    "a GPU that is held": (
        [submitted(1, "x", "a", 4, 1), submitted(1, "y", "a", 1, 1), started(1, "x", {"h1": [0, 1, 2, 3]}, 1),
         started(1, "y", {"h1": [3]}, 1)],
        "gpu-held-twice",
    ),
    "a host that is cordoned": (
        [host("h1", 1, state="cordoned"), submitted(1, "y", "a", 1, 1), started(1, "y", {"h1": [3]}, 1)],
        "host-not-ready",
    ),
    "a host nobody knows": ([submitted(1, "y", "a", 1, 1), started(1, "y", {"h9": [3]}, 1)], "unknown-host"),
    "half a gang": ([submitted(1, "y", "a", 2, 1), started(1, "y", {"h1": [3]}, 1)], "gang"),
    "a gang split unevenly": (
        [submitted(1, "y", "a", 12, 1), started(1, "y", {"h1": list(range(8)), "h2": [0, 1, 2, 3]}, 1)],
        "gang",
    ),
    "a gang split needlessly": ([submitted(1, "y", "a", 2, 1), started(1, "y", {"h1": [0], "h2": [0]}, 1)], "gang"),
    "an index beyond the host": ([submitted(1, "y", "a", 1, 1), started(1, "y", {"h1": [8]}, 1)], "gpu-index"),
    "an index twice": ([submitted(1, "y", "a", 2, 1), started(1, "y", {"h1": [2, 2]}, 1)], "gpu-index"),
    "another pool": (
        [host("q1", 1, pool="q"), submitted(1, "y", "a", 1, 1), started(1, "y", {"q1": [0]}, 1)],
        "pool",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PLACEMENTS)
def test_a_wrong_placement_is_found(what: str) -> None:
    """Placement on held, unready, unknown or missing GPUs, or of less than the whole gang in equal parts, is wrong."""
    rows, rule = PLACEMENTS[what]
    assert rules(*BASE, *rows) == [(len(BASE) + len(rows), rule)]


def test_a_protected_attempt_may_not_be_preempted_or_drained() -> None:
    """Before its minimum runtime the scheduler may not stop an allocated attempt."""
    early = [
        *BUSY,
        submitted(1, "b1", "b", 8, HOUR),
        claimed(1, "b1", ["h1"], "a1"),
        stopping(1, "a1", "preempted", **{"for": "b1"}),
    ]
    assert rules(*early) == [(9, "protected"), (10, "protected")]
    assert rules(*BUSY, host("h1", 1, state="draining"), stopping(1, "a1", "drained")) == [(9, "protected")]


def test_the_owner_and_a_lost_host_end_a_protected_attempt_rightly() -> None:
    """Cancels, forced requeues and lost hosts do not wait for a minimum runtime."""
    assert rules(*BUSY, stopping(1, "a1", "cancelled"), stopped(2, "a1", "cancelled")) == []
    assert rules(*BUSY, stopping(1, "a1", "forced"), stopped(2, "a1", "forced"), row(2, "requeued", "a1")) == []
    lost = host("h1", 1, state="lost")
    assert (
        rules(*BUSY, lost, stopped(1, "a1", "host_lost"), row(1, "requeued", "a1"), row(9, "held", "a1", reason="x"))
        == []
    )
    assert (8, "host-lost") in rules(*BUSY, stopped(1, "a1", "host_lost"), row(1, "requeued", "a1"))
    assert (9, "host-lost") not in rules(*BUSY, lost, row(2, "checkpoint", "a2", attempt=1))
    assert (8, "host-lost") in rules(*BUSY, lost, row(2, "checkpoint", "a2", attempt=1))


def test_a_victim_whose_budget_still_ranks_better_is_no_victim() -> None:
    """The requester's commitment counts: usage over share must stay strictly below the victim's."""
    # a has used 16 GPUs x 2 h for 1/2; b's commitment over 1/3 must stay below 64 GPU-h.
    fair = submitted(2 * HOUR, "b1", "b", 8, 2 * HOUR)
    just = submitted(2 * HOUR, "b1", "b", 8, 8 * HOUR // 3)
    claim = claimed(2 * HOUR, "b1", ["h1"], "a1")
    assert rules(*BUSY, fair, claim) == []
    assert rules(*BUSY, {**just, "min_runtime_ms": 8 * HOUR // 3 - 1}, claim) == []
    assert rules(*BUSY, just, claim) == [(9, "no-right")]


def test_commitments_of_claims_made_before_count() -> None:
    """A second claim of the same budget sees what the first is charged."""
    second = [
        submitted(2 * HOUR, "b1", "b", 8, 3 * HOUR // 2),
        submitted(2 * HOUR, "b2", "b", 8, 3 * HOUR // 2),
        claimed(2 * HOUR, "b1", ["h1"], "a1"),
        stopping(2 * HOUR, "a1", "preempted", **{"for": "b1"}),
        claimed(2 * HOUR, "b2", ["h2"], "a2"),
    ]
    assert rules(*BUSY, *second) == [(12, "no-right")]


def test_nothing_preempts_inside_one_budget_or_with_a_share_of_zero_or_unallocated() -> None:
    """Only an allocated workload whose shares are not zero preempts, and only others."""
    claim = claimed(2 * HOUR, "b1", ["h1"], "a1")
    assert rules(*BUSY, submitted(2 * HOUR, "b1", "a", 8, 1), claim) == [(9, "no-right")]
    assert rules(*BUSY, submitted(2 * HOUR, "b1", "b", 8, 0), claim) == [(9, "no-right")]
    zero = [tree(a="1/2", b="0/1"), *BUSY[1:]]
    assert rules(*zero, submitted(2 * HOUR, "b1", "b", 8, 1), claim) == [(9, "no-right")]


def test_needless_victims_are_found() -> None:
    """Each victim is needed on a host that the workload then runs on."""
    small = submitted(2 * HOUR, "b1", "b", 8, HOUR)
    needless = [*BUSY, small, claimed(2 * HOUR, "b1", ["h1"], "a1", "a2")]
    assert rules(*needless) == [(9, "needless-victim")]
    elsewhere = [{**line, "placement": {"h2": list(range(8))}} if line.get("preempted") else line for line in SWAP]
    elsewhere[-1]["preempted"] = [["a1", 1]]
    assert (13, "needless-victim") in rules(*elsewhere)
    free = [*BASE, submitted(0, "a1", "a", 4, HOUR), started(0, "a1", {"h1": [0, 1, 2, 3]}, HOUR)]
    spared = [submitted(HOUR, "b1", "b", 4, 1), claimed(HOUR, "b1", ["h1"], "a1")]
    assert set(rules(*free, *spared)) == {(7, "needless-victim")}


def test_an_allocated_victim_is_wrong_where_unallocated_ones_are_enough() -> None:
    """Unallocated attempts leave first."""
    rows = [
        *BASE,
        submitted(0, "a1", "a", 8, HOUR),
        submitted(0, "u", None, 8, 0),
        started(0, "a1", EIGHT, HOUR),
        started(0, "u", {"h2": list(range(8))}, 0),
        submitted(2 * HOUR, "b1", "b", 8, HOUR),
    ]
    assert rules(*rows, claimed(2 * HOUR, "b1", ["h2"], "u")) == []
    assert rules(*rows, claimed(2 * HOUR, "b1", ["h1"], "a1")) == [(9, "needless-victim")]


def test_gpus_that_are_freed_for_a_claim_are_kept_for_it() -> None:
    """Nobody else may take them, and once all are free the workload starts."""
    upto = SWAP[:-1]
    thief = [submitted(2 * HOUR + 5, "t", "a", 1, 1), started(2 * HOUR + 5, "t", {"h1": [0]}, 1)]
    assert (14, "promised-twice") in rules(*upto, *thief)
    assert rules(*upto, row(3 * HOUR, "checkpoint", "a2", attempt=1)) == [(12, "claim")]
    gone = row(2 * HOUR + 5, "unclaimed", "b1", reason="h1 was lost")
    assert rules(*upto, gone, row(3 * HOUR, "checkpoint", "a2", attempt=1)) == []


def test_attempts_are_numbered_and_workloads_keep_to_their_states() -> None:
    """Attempts count 1, 2, 3; nothing happens to a workload in a state in which it cannot."""
    assert rules(*BASE, submitted(0, "x", "a", 1, 1), started(0, "x", {"h1": [0]}, 1, attempt=2)) == [
        (5, "attempt-number")
    ]
    assert rules(*BASE, started(0, "x", {"h1": [0]}, 1)) == [(4, "unknown-workload")]
    assert rules(*BUSY, stopped(1, "a1", "finished"), started(2, "a1", EIGHT, HOUR, attempt=2)) == [(9, "state")]
    assert rules(*BUSY, {**stopped(1, "a1", "finished"), "attempt": 2}) == [(8, "attempt-number")]
    assert rules(*BUSY, started(1, "a1", EIGHT, HOUR, attempt=2)) == [(8, "state")]
    assert rules(*BUSY, submitted(1, "a1", "a", 1, 1)) == [(8, "submitted-twice")]


def test_a_resumable_victim_waits_again_at_once_and_another_one_ends() -> None:
    """Requeues follow the stop at the same moment, and only where they are due."""
    without = [line for line in SWAP if line["kind"] != "requeued"]
    assert rules(*without, row(3 * HOUR, "checkpoint", "b1", attempt=1)) == [(12, "not-requeued")]
    rigid = [{**line, "resumable": False} if line["kind"] == "submitted" else line for line in SWAP]
    assert rules(*rigid) == [(12, "requeued")]


def test_the_words_of_a_start_must_fit_what_was_submitted() -> None:
    """Allocated means a minimum runtime, and protection lasts exactly as long."""
    one = submitted(0, "x", "a", 1, 5)
    assert rules(*BASE, one, started(0, "x", {"h1": [0]}, 5, allocated=False)) == [(5, "allocated")]
    assert rules(*BASE, one, started(0, "x", {"h1": [0]}, 4)) == [(5, "protection")]
    assert rules(*BASE, submitted(0, "x", "zz", 1, 5), started(0, "x", {"h1": [0]}, 5)) == [(5, "unknown-budget")]


def test_a_reservation_is_put_off_only_for_a_cause() -> None:
    """A firm time moves later only after a host left, budgets changed or a better-ranked workload came."""
    ask = submitted(1, "b1", "b", 8, HOUR)

    def reserve(at: int, start: int, *, estimate: bool = False) -> Row:
        return row(at, "reserved", "b1", start_ms=start, hosts=["h1"], estimate=estimate)

    assert rules(*BUSY, ask, reserve(1, 50), reserve(2, 40)) == []
    assert rules(*BUSY, ask, reserve(1, 50), reserve(2, 60)) == [(10, "reservation-later")]
    assert rules(*BUSY, ask, reserve(1, 50, estimate=True), reserve(2, 60)) == []
    assert rules(*BUSY, ask, reserve(1, 50), row(2, "moved", "b1", budget="a"), reserve(2, 60)) == []
    assert rules(*BUSY, ask, reserve(1, 50), host("h2", 2, state="lost"), stopped(2, "a2", "host_lost"),
                 row(2, "requeued", "a2"), reserve(2, 60)) == []  # fmt: skip
    worse = [stopped(2, "a2", "finished"), submitted(2, "a3", "a", 1, 1), started(2, "a3", {"h2": [0]}, 1)]
    assert rules(*BUSY, ask, reserve(1, 50), *worse, reserve(3, 60)) == [(13, "reservation-later")]
    better = [stopped(2, "a2", "finished"), submitted(2, "b0", "b", 1, 1, priority=5), started(2, "b0", {"h2": [0]}, 1)]
    assert rules(*BUSY, ask, reserve(1, 50), *better, reserve(3, 60)) == []


def test_a_stop_needs_the_cause_that_it_names() -> None:
    """Drains need a draining host, limits a longest run time that is over, preemptions a workload that waits."""
    assert rules(*BUSY, stopping(2 * HOUR, "a1", "drained")) == [(8, "drained")]
    assert rules(*BUSY, host("h1", 2 * HOUR, state="draining"), stopping(2 * HOUR, "a1", "drained")) == []
    assert rules(*BUSY, stopping(2 * HOUR, "a1", "limit")) == [(8, "limit")]
    brief = [*BASE, submitted(0, "x", "a", 1, 1, max_runtime_ms=HOUR), started(0, "x", {"h1": [0]}, 1)]
    assert rules(*brief, stopping(HOUR - 1, "x", "limit")) == [(6, "limit")]
    assert rules(*brief, stopping(HOUR, "x", "limit"), stopped(HOUR + 9, "x", "finished")) == []
    assert rules(*BUSY, stopping(2 * HOUR, "a1", "preempted", **{"for": "nobody"})) == [(8, "preempted-for")]
    assert rules(*BUSY, stopping(2 * HOUR, "a1", "preempted")) == [(8, "preempted-for")]


def test_who_used_up_the_longest_run_time_does_not_wait_again() -> None:
    """Longest run times count all attempts: after that even a drained workload has ended."""
    brief = [*BASE, submitted(0, "x", "a", 1, 1, max_runtime_ms=HOUR), started(0, "x", {"h1": [0]}, 1)]
    drained = [
        *brief,
        host("h1", HOUR, state="draining"),
        stopping(HOUR, "x", "drained"),
        stopped(HOUR + 1, "x", "drained"),
    ]
    assert rules(*drained, row(HOUR + 2, "refused", "y", reason="")) == []
    assert rules(*drained, row(HOUR + 1, "requeued", "x")) == [(9, "requeued")]


def test_a_start_names_the_victims_that_made_way_for_it() -> None:
    """``preempted`` lists exactly those who were stopped for it, and they are gone."""
    forgotten = [{**line, "preempted": []} if line["kind"] == "started" else line for line in SWAP]
    assert (13, "victims") in rules(*forgotten)
    early = [line for line in SWAP if line["kind"] not in {"stopped", "requeued"}]
    assert {rule for _, rule in rules(*early)} >= {"victims", "gpu-held-twice"}


def test_a_host_in_use_is_neither_drained_nor_removed_nor_changed() -> None:
    """Hosts are empty before they are repaired or go; a host that lost its agent may be removed when all has left."""
    assert rules(*BUSY, host("h1", 1, state="drained")) == [(8, "host-in-use")]
    assert rules(*BUSY, host("h1", 1, gpus=4)) == [(8, "host-in-use")]
    assert rules(*BUSY, {"at": 1, "kind": "host", "host": "h1", "state": "removed"})[0] == (8, "host-in-use")
    assert rules(*BASE, {"at": 1, "kind": "host", "host": "h1", "state": "removed"}) == []


def test_a_workload_may_be_held_and_moved_while_it_waits() -> None:
    """Held workloads neither start nor are claimed for; a move charges the other budget."""
    held = [*BASE, submitted(0, "x", "a", 1, HOUR), row(1, "held", "x", reason="its budget is gone")]
    assert rules(*held, started(2, "x", {"h1": [0]}, HOUR)) == [(6, "state")]
    freed = [
        *held,
        row(2, "moved", "x", budget="b"),
        row(2, "held", "x", reason=""),
        started(2, "x", {"h1": [0]}, HOUR),
    ]
    auditor = run(*freed)
    assert auditor.findings == []
    assert (auditor.usage("p", "a", 2), auditor.usage("p", "b", 2)) == (0, HOUR)
    assert rules(*held, row(2, "moved", "x", budget="nowhere")) == [(6, "unknown-budget")]


def test_a_workload_that_still_waits_when_its_promised_time_has_come_is_found() -> None:
    """A firm reservation is an upper bound; an estimate, or one with a cause to be late, is none."""
    ask = submitted(1, "b1", "b", 8, HOUR)
    promise = row(1, "reserved", "b1", start_ms=HOUR, hosts=["h1"])
    late = row(HOUR, "checkpoint", "a1", attempt=1)
    assert rules(*BUSY, ask, promise, late) == [(10, "reservation-missed")]
    assert rules(*BUSY, ask, promise, {**late, "at": HOUR + 1}) == []
    assert rules(*BUSY, ask, {**promise, "estimate": True}, late) == []
    assert rules(*BUSY, ask, promise, host("h1", 2, state="cordoned"), late) == []
    claim = [claimed(HOUR, "b1", ["h1"], "a1"), stopping(HOUR, "a1", "preempted", **{"for": "b1"})]
    assert rules(*BUSY, ask, promise, *claim, late) == []


def test_a_tree_that_gives_away_more_than_the_whole_is_found() -> None:
    """Children sum to at most their parent."""
    assert rules(tree(a="2/3", b="1/2")) == [(1, "budgets")]


BAD_LINES = {
    b"{": "not-json",
    b"\xff\xfe": "not-json",
    b"[" * 100_000: "not-json",
    b"9" * 10_000: "not-json",
    b"[1]": "not-an-object",
    b'{"at": 1}': "unknown-kind",
    b'{"at": 1, "kind": "sbmitted"}': "unknown-kind",
    b'{"at": 1, "kind": ["x"]}': "unknown-kind",
    b'{"kind": "requeued", "workload": "x"}': "missing-key",
    b'{"at": 1, "kind": "requeued"}': "missing-key",
    b'{"at": true, "kind": "requeued", "workload": "x"}': "wrong-type",
    b'{"at": 1.5, "kind": "requeued", "workload": "x"}': "wrong-type",
    b'{"at": NaN, "kind": "requeued", "workload": "x"}': "wrong-type",
    b'{"at": -1, "kind": "requeued", "workload": "x"}': "wrong-type",
    b'{"at": 1, "kind": "stopped", "workload": "x", "attempt": 1, "reason": "tired"}': "wrong-type",
    b'{"at": 1, "kind": "budgets_applied", "budgets": [{"path": "/", "share": "1/0"}], "policy": {}}': "wrong-type",
    b'{"at": 1, "kind": "host", "host": "h", "state": "ready"}': "missing-key",
}


@pytest.mark.parametrize("raw", BAD_LINES, ids=lambda raw: raw[:30].decode("latin-1"))
def test_a_bad_line_is_named_with_its_number_and_passed_over(raw: bytes) -> None:
    """No line of a log makes the audit fail; the ones after it are still judged."""
    good = [json.dumps(line).encode() for line in SWAP]
    found = audit([*good, b"  ", raw, b'{"at": 3, "kind": "refused", "workload": "late", "reason": ""}']).findings
    assert [(finding.line, finding.rule) for finding in found] == [
        (len(good) + 2, BAD_LINES[raw]),
        (len(good) + 3, "time-goes-back"),
    ]


def test_no_damaged_log_makes_the_audit_fail() -> None:
    """Lines dropped, doubled, swapped and with values exchanged give findings, never an exception."""
    chance = random.Random(7)
    values = [None, 0, 1, -1, 10**30, "x", "h1", "a1", "b1", [], {}, [["a1", 1]], {"h1": [0]}, True, "preempted", "1/2"]
    for _ in range(1_500):
        rows = [dict(line) for line in SWAP]
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(rows))
            match chance.randrange(4):
                case 0:
                    del rows[place]
                case 1:
                    rows.insert(place, rows[chance.randrange(len(rows))])
                case 2:
                    rows[place]["at"] = chance.choice([0, 1, 2 * HOUR, 9 * HOUR])
                case _:
                    rows[place][chance.choice(list(rows[place]))] = chance.choice(values)
        run(*rows).summary()


def test_the_command_prints_findings_with_their_lines_and_leaves_with_1() -> None:
    """Exit code 0 for a right log and 1 for a wrong one; a file or stdin; text or JSON."""
    good = "\n".join(json.dumps(line) for line in SWAP)
    result = CliRunner().invoke(audit_command, ["-"], input=good)
    assert result.exit_code == 0
    assert "preemptions 1" in result.output
    assert "OCCUPANCY" in result.output
    result = CliRunner().invoke(audit_command, ["-", "-o", "json"], input=good + "\n{")
    assert result.exit_code == 1
    answer = json.loads(result.output)
    assert [(finding["line"], finding["rule"]) for finding in answer["findings"]] == [(14, "not-json")]
    assert answer["summary"]["starts"] == 3
    result = CliRunner().invoke(audit_command, ["-"], input=good + '\n{"at": 99999999999, "kind": "x\\u001b"}')
    assert result.exit_code == 1
    assert "line 14:" in result.output
    assert "\x1b" not in result.output


def gpubudget_audit(log: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, with these bytes in a pipe."""
    command = [sys.executable, "-m", "gpubudget", "audit", log]
    return subprocess.run(command, input=given, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("members", [1, 3])
def test_a_packed_log_is_read_like_one_that_is_not(tmp_path: Path, members: int) -> None:
    """It is known by its first bytes and not by its name, in a file and in a pipe, and may be packed in parts."""
    lines = [json.dumps(line).encode() + b"\n" for line in [*SWAP, {"at": 3 * HOUR, "kind": "x"}]]
    plain_file, packed_file = tmp_path / "plain.gz", tmp_path / "packed.jsonl"
    plain_file.write_bytes(b"".join(lines))
    size = -(-len(lines) // members)
    packed = b"".join(gzip.compress(b"".join(lines[at : at + size])) for at in range(0, len(lines), size))
    packed_file.write_bytes(packed)
    plain = gpubudget_audit(str(plain_file))
    assert plain.returncode == 1
    assert b"line 14: kind" in plain.stdout
    for found in (gpubudget_audit(str(packed_file)), gpubudget_audit("-", packed)):
        assert (found.returncode, found.stdout, found.stderr) == (1, plain.stdout, plain.stderr)


def test_a_sound_packed_log_gives_0() -> None:
    """Nothing is wrong with a log for being packed."""
    found = gpubudget_audit("-", gzip.compress("\n".join(json.dumps(line) for line in SWAP).encode()))
    assert (found.returncode, found.stderr) == (0, b"nothing is wrong\n")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda packed: packed[:-20], "Compressed file ended before the end-of-stream marker was reached"),
        (lambda packed: packed[:5], "Compressed file ended before the end-of-stream marker was reached"),
        (lambda packed: packed[:2], "Compressed file ended before the end-of-stream marker was reached"),
        (lambda packed: packed[:40] + bytes(40) + packed[80:], "Error -3 while decompressing data"),
        (lambda packed: packed[:-8] + bytes(8), "CRC check failed"),
        (lambda packed: packed + b"more", "Not a gzipped file"),
        (lambda packed: packed[:2] + b"\x07" + packed[3:], "Unknown compression method"),
    ],
)
def test_a_damaged_packed_log_is_one_sentence(tmp_path: Path, damage: Callable[[bytes], bytes], said: str) -> None:
    """Cut off or overwritten, in a file and in a pipe; nothing is said of what could be read."""
    rng = random.Random(1)
    ids = [f"w{rng.getrandbits(64):x}" for _ in range(400)]
    lines = [*BASE, *(submitted(place, name, "a", 1, HOUR) for place, name in enumerate(ids))]
    packed = damage(gzip.compress("\n".join(json.dumps(line) for line in lines).encode()))
    file = tmp_path / "log"
    file.write_bytes(packed)
    for found in (gpubudget_audit(str(file)), gpubudget_audit("-", packed)):
        assert (found.returncode, found.stdout) == (1, b"")
        error, hint = found.stderr.decode().splitlines()
        assert error.startswith(f"error: the log is damaged: {said}")
        assert hint == "hint: fetch or pack it anew"


def test_a_packed_line_without_an_end_is_told_before_it_fills_the_memory() -> None:
    """A few bytes may be unpacked to many."""
    result = CliRunner().invoke(audit_command, ["-"], input=gzip.compress(b"x" * (17 << 20)))
    assert "line 1 of the log is longer than 16 MB" in str(result.exception)


def test_a_line_without_an_end_is_told_before_it_fills_the_memory() -> None:
    """Also behind sound lines; whatever else there may be is not read."""
    result = CliRunner().invoke(audit_command, ["/dev/zero"])
    assert "line 1 of the log is longer than 16 MB" in str(result.exception)
    result = CliRunner().invoke(audit_command, ["-"], input=json.dumps(SWAP[0]) + "\n" + "x" * (17 << 20))
    assert "line 2 of the log is longer than 16 MB" in str(result.exception)


def test_an_empty_log_is_an_error_not_a_success() -> None:
    """A log without any event is no proof of anything."""
    result = CliRunner().invoke(audit_command, ["-"], input="")
    assert "no event" in str(result.exception)
