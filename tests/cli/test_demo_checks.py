"""Each check of the demo accepts a log that shows its part, and refuses every log that does not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gpubudget.cli.demo_checks import CHECKS, NotShownError, Story, verdicts

Line = dict[str, Any]
Log = list[Line]

SHARES = {"a": "1/2", "b": "1/4", "c": "1/5"}
OUTPUTS = {("a1", 2): "goes on from step 90\n"}


def applied(at: float, commit: str, **shares: str) -> Line:
    budgets = [{"path": "/", "share": "1/1"}, *({"path": p, "share": s} for p, s in (SHARES | shares).items())]
    policy = {"lookback_ms": 600_000, "grace_period_ms": 2000}
    return {"at": int(at * 1000), "kind": "budgets_applied", "commit": commit, "budgets": budgets, "policy": policy}


def host(at: float, name: str, state: str) -> Line:
    return {"at": int(at * 1000), "kind": "host", "host": name, "pool": "p", "gpus": 8, "state": state}


def submitted(at: float, name: str, budget: str | None, gpus: int, minimum: int) -> Line:
    asked = {"workload": name, "budget": budget, "pool": "p", "gpus": gpus, "min_runtime_ms": minimum * 1000}
    return {"at": int(at * 1000), "kind": "submitted", **asked, "resumable": True}


def started(at: float, name: str, attempt: int, on: tuple[str, int, int], until: float, *lost: str) -> Line:
    placement = {on[0]: list(range(on[1], on[2]))}
    victims = [[one, 1] for one in lost]
    held = {"allocated": until > 0, "protected_until_ms": int(until * 1000) or int(at * 1000), "preempted": victims}
    return {
        "at": int(at * 1000), "kind": "started", "workload": name, "attempt": attempt, "placement": placement, **held,
    }  # fmt: skip


def leaves(at: float, name: str, reason: str, gainer: str | None = None) -> Log:
    """An attempt is asked to stop, stops, and its workload waits again."""
    stop = {"at": int(at * 1000), "workload": name, "attempt": 1, "reason": reason} | (
        {"for": gainer} if gainer else {}
    )
    back = {"at": int(at * 1000), "kind": "requeued", "workload": name, "reason": reason}
    return [{**stop, "kind": "stopping"}, {**stop, "kind": "stopped"}, back]


def claimed(at: float, name: str, where: str, lost: str) -> Line:
    return {
        "at": int(at * 1000), "kind": "claimed", "workload": name, "pool": "p", "hosts": [where],
        "preempted": [[lost, 1]],
    }  # fmt: skip


def shown() -> Log:
    """Two hosts, three budgets, and all of (a) to (f)."""
    f1_stops, f1_stopped, f1_waits = leaves(4, "f1", "preempted", "i1")
    a1_stops, a1_stopped, a1_waits = leaves(11, "a1", "preempted", "o1")
    return [
        applied(0, "one"), host(0, "h1", "ready"), host(0, "h2", "ready"),
        submitted(1, "a1", "a", 8, 10), started(1, "a1", 1, ("h1", 0, 8), 11),
        submitted(1, "e1", "a", 4, 2), started(1, "e1", 1, ("h2", 0, 4), 3),
        submitted(1, "f1", None, 4, 0), started(1, "f1", 1, ("h2", 4, 8), 0),
        # unallocated work leaves first
        submitted(4, "i1", "b", 4, 1), f1_stops, claimed(4, "i1", "h2", "f1"), f1_stopped, f1_waits,
        started(4, "i1", 1, ("h2", 4, 8), 5, "f1"),
        # two wait; the later one starts first, as soon as a minimum has ended
        submitted(5, "a2", "a", 8, 10), submitted(6, "o1", "c", 8, 5),
        {"at": 10_000, "kind": "checkpoint", "workload": "a1", "attempt": 1},
        a1_stops, claimed(11, "o1", "h1", "a1"), a1_stopped, a1_waits, started(11, "o1", 1, ("h1", 0, 8), 16, "a1"),
        # a host falls ill, and comes back
        host(12, "h1", "draining"), *leaves(16, "o1", "drained"), host(16, "h1", "drained"),
        host(16, "h1", "repairing"), host(17, "h1", "ready"), started(17, "a1", 2, ("h1", 0, 8), 27),
        # a commit turns the order of two that wait
        submitted(18, "s1", "c", 8, 5), submitted(18, "n1", "b", 8, 5), applied(19, "two", b="2/5", c="1/20"),
        {"at": 28_000, "kind": "stopped", "workload": "a1", "attempt": 2, "reason": "finished"},
        started(28, "n1", 1, ("h1", 0, 8), 33),
    ]  # fmt: skip


def find(log: Log, kind: str, **keys: object) -> Line:
    return next(line for line in log if line["kind"] == kind and all(line.get(k) == v for k, v in keys.items()))


def without(log: Log, kind: str, **keys: object) -> None:
    log.remove(find(log, kind, **keys))


def change(log: Log, kind: str, workload: str, **values: object) -> None:
    find(log, kind, workload=workload).update(values)


def keep(log: Log, until: int) -> None:
    log[:] = [line for line in log if line["at"] < until or line["kind"] == "host"]


def share(log: Log, commit: str, path: str, text: str) -> None:
    budgets = find(log, "budgets_applied", commit=commit)["budgets"]
    next(budget for budget in budgets if budget["path"] == path)["share"] = text


SPOILT: dict[str, tuple[str, Callable[[Log], object]]] = {
    "the later one did not overtake": ("a", lambda log: change(log, "submitted", "o1", at=4_500)),
    "the winner's budget has no share": ("a", lambda log: share(log, "one", "c", "0/1")),
    "one asked for less": ("a", lambda log: change(log, "submitted", "o1", gpus=4)),
    "they are of one budget": ("a", lambda log: change(log, "submitted", "o1", budget="a")),
    "no checkpoint": ("b", lambda log: without(log, "checkpoint")),
    "never started again": ("b", lambda log: without(log, "started", workload="a1", attempt=2)),
    "stopped inside its minimum": ("b", lambda log: change(log, "started", "a1", protected_until_ms=12_000)),
    "the requester's budget has used more": ("b", lambda log: share(log, "one", "c", "1/100")),
    "stopped before its minimum ended": ("c", lambda log: change(log, "started", "a1", protected_until_ms=12_000)),
    "drained before its minimum ended": ("c", lambda log: change(log, "started", "o1", protected_until_ms=20_000)),
    "asked after the minimum had ended": ("c", lambda log: change(log, "submitted", "o1", at=11_000)),
    "nobody else could have been stopped": ("d", lambda log: change(log, "started", "e1", protected_until_ms=60_000)),
    "it was allocated": ("d", lambda log: change(log, "started", "f1", allocated=True)),
    "a GPU was idle": ("d", lambda log: change(log, "started", "f1", placement={"h2": [4, 5, 6]})),
    "it took too long": ("d", lambda log: change(log, "started", "i1", at=8_000)),
    "the other could not have gone": ("d", lambda log: change(log, "submitted", "i1", min_runtime_ms=900_000)),
    "never repaired": ("e", lambda log: without(log, "host", state="repairing")),
    "never back": ("e", lambda log: without(log, "host", state="ready", at=17_000)),
    "nobody had to be waited for": ("e", lambda log: change(log, "started", "o1", protected_until_ms=11_500)),
    "not used again": ("e", lambda log: keep(log, until=17_000)),
    "used while it was ill": ("e", lambda log: log.insert(-1, started(13, "f1", 2, ("h1", 0, 1), 0))),
    "no other commit": ("f", lambda log: find(log, "budgets_applied", commit="two").update(commit="one")),
    "the order was the same before": ("f", lambda log: share(log, "one", "c", "1/20")),
    "the order was the same afterwards": ("f", lambda log: share(log, "two", "c", "1/5")),
    "the other one started first": ("f", lambda log: log.insert(-2, started(27, "s1", 1, ("h2", 0, 8), 32))),
    "it never started": ("f", lambda log: without(log, "started", workload="n1")),
}


@pytest.mark.parametrize("letter", CHECKS)
def test_what_was_shown_is_told(letter: str) -> None:
    """On a log with all six parts each check gives a sentence that names the workloads as people do."""
    names = {"a1": "alice-1", "o1": "olga-1", "n1": "noor-1"}
    told = CHECKS[letter](Story(shown(), names, OUTPUTS))
    expected = {
        "a": "olga-1 started before a2", "b": "alice-1, past its minimum, was stopped for olga-1",
        "c": "olga-1 asked while alice-1 had 5.0 s", "d": "kept all 16 GPUs busy; when i1 asked for 4, f1 left",
        "e": "olga-1 stayed until its minimum ended, 4.0 s later the host was empty, 1.0 s",
        "f": "changed b from 25.0% to 40.0%, c from 20.0% to 5.0%; noor-1 ranked behind s1",
    }  # fmt: skip
    assert expected[letter] in told


@pytest.mark.parametrize("spoilt", SPOILT)
def test_what_was_not_shown_is_noticed(spoilt: str) -> None:
    """A log that lacks one thing that the check looks for does not pass it."""
    letter, spoil = SPOILT[spoilt]
    log = copy.deepcopy(shown())
    spoil(log)
    with pytest.raises(NotShownError):
        CHECKS[letter](Story(log, {}, OUTPUTS))


def test_going_on_is_read_from_the_output() -> None:
    """Without a line that says so, a second attempt is not taken for one that went on from its checkpoint."""
    for outputs in ({}, {("a1", 2): "begins at step 0\n"}, {("a1", 2): "goes on from step 0\n"}):
        with pytest.raises(NotShownError):
            CHECKS["b"](Story(shown(), {}, outputs))


def test_an_empty_log_shows_nothing() -> None:
    """Of a log without events each part is told to be missing, in a sentence."""
    found = verdicts(Story([]))
    assert list(found) == ["a", "b", "c", "d", "e", "f"]
    assert all(not seen and sentence for seen, sentence in found.values())
    assert all(seen for seen, _ in verdicts(Story(shown(), {}, OUTPUTS)).values())
