"""What a person sees of the demo: a table drawn anew in its place on a terminal, and line by line elsewhere."""

from __future__ import annotations

import io

import pytest

from gpubudget.cli.demo_screen import Screen, cluster_table, told

NOW = 100_000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "20")
    monkeypatch.setenv("TERM", "xterm")


def test_a_table_is_drawn_in_its_place_on_a_terminal() -> None:
    """A new table replaces the old one, a line appears above it, and a settled one stays."""
    stream = Terminal()
    screen = Screen(stream)
    screen.show(["one"])
    screen.show(["one"])
    assert stream.getvalue() == "\none\n\n"
    screen.say("news")
    assert stream.getvalue().endswith("\x1b[3F\x1b[Jnews\n\none\n\n")
    screen.settle()
    screen.say("later")
    assert stream.getvalue().endswith("\none\n\nlater\n")


def test_a_table_never_exceeds_the_terminal() -> None:
    """Long lines are cut and superfluous ones left out, so that the cursor finds its way back."""
    stream = Terminal()
    Screen(stream).show(["x" * 200] * 50)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) == 39
    assert len(lines) < 20


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_table_is_printed_once_elsewhere(monkeypatch: pytest.MonkeyPatch, term: str | None) -> None:
    """A pipe, or a terminal without a cursor, gets the table when its scene ends, and no control character."""
    stream = Terminal() if term else io.StringIO()
    monkeypatch.setenv("TERM", term or "xterm")
    screen = Screen(stream)
    screen.show(["one"])
    screen.show(["two"])
    screen.say("news")
    screen.settle()
    screen.settle()
    assert stream.getvalue() == "news\n\ntwo\n\n"


def test_lines_are_wrapped() -> None:
    """A long sentence goes on in the next line, indented."""
    stream = io.StringIO()
    Screen(stream).say("word " * 10, "  ")
    assert stream.getvalue() == f"{'word ' * 8}\n  word word\n".replace(" \n", "\n")


def test_the_table_shows_hosts_programs_and_who_waits() -> None:
    """What runs where and how long it is protected, what each program has used, and in which order the others wait."""
    attempt = {"placement": {"h1": [0, 1]}, "protected_until_ms": NOW + 5_000, "stopping": None}
    workloads = [
        {"id": "w1", "name": "ann-1", "min_runtime_ms": 9, "attempt": attempt},
        {"id": "w2", "name": "bob-1", "min_runtime_ms": 0, "attempt": None},
        {"id": "w3", "name": "ann-2", "min_runtime_ms": 9, "attempt": {**attempt, "stopping": "preempted"}},
    ]
    held = [{"workload": "w1", "attempt": 1}, {"workload": "w3", "attempt": 1}]
    hosts = [{"name": "h1", "state": "ready", "free": 4, "attempts": held}]
    figures = {"share": "1/4", "usage_gpu_ms": 10_000, "running": 2, "pending": 0}
    budgets = [
        {"path": "rich", "pools": {"p": figures}},
        {"path": "poor", "pools": {"p": {**figures, "share": "0/1"}}},
        {"path": "rich/ann", "pools": {"p": figures}},
    ]
    assert cluster_table(hosts, workloads, budgets, ["w2", "w9"], NOW) == [
        "HOST  STATE  FREE  RUNS (GPUS)",
        "h1    ready     4  ann-1 (2 protected 5s)  ann-2 (2 leaving)",
        "",
        "BUDGET  SHARE  USED GPU-SECONDS  USED/SHARE  RUNNING  WAITING",
        "rich    25.0%                10          40        2        0",
        "poor     0.0%                10  zero share        2        0",
        "",
        "waiting, best-ranked first: bob-1 (unallocated)",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            {"kind": "submitted", "budget": None, "gpus": 2, "min_runtime_ms": 0},
            "ann-1 is submitted: 2 GPUs, unallocated",
        ),
        ({"kind": "started", "attempt": 2, "placement": {"h1": [0]}}, "ann-1 starts on h1 again, attempt 2"),
        ({"kind": "stopping", "reason": "preempted", "for": "w2"}, "ann-1 makes way for bob-1"),
        ({"kind": "stopping", "reason": "cancelled"}, ""),
        ({"kind": "stopped", "reason": "failed"}, "ann-1 has failed"),
        ({"kind": "stopped", "reason": "drained"}, ""),
        ({"kind": "host", "host": "h1", "state": "draining", "reason": "a\x1bb"}, "h1 is draining: a\\x1bb"),
        ({"kind": "checkpoint"}, ""),
    ],
)
def test_events_are_told_in_plain_words(line: dict[str, object], words: str) -> None:
    """Each event that a person would want to see is one sentence; the others are none."""
    assert told({"at": 1, "workload": "w1", **line}, {"w1": "ann-1", "w2": "bob-1"}) == words
