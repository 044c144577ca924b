"""The ledger against an integration over every attempt there ever was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.core.usage import Ledger, Line, Meter


def line(parent: Line | None = None) -> Line:
    """A budget as the ledger sees it."""
    made = Line()
    if parent is not None:
        made.up = (made, *parent.up)
    return made


@dataclass
class Run:
    """An attempt, protected until ``safe`` (its start when it is unallocated)."""

    leaf: Line
    gpus: int
    start: int
    safe: int
    counted: bool
    end: int | None = None


class Books:
    """A ledger beside a list of all that ran; the window's beginning is kept, and never moves back."""

    def __init__(self, lookback: int) -> None:
        self.root = line()
        self.leaves = [line(self.root), line(self.root)]
        self.now = self.begin = 1_000
        self.lookback = lookback
        self.ledger: Ledger[Line] = Ledger(lookback, self.now)
        self.runs: list[Run] = []

    def pass_time(self, step: int) -> None:
        self.now += step
        self.ledger.advance(self.now)
        self.begin = max(self.begin, self.now - self.lookback)
        for run in self.runs:
            if not run.counted and run.end is None and run.safe <= self.now:
                run.counted = True
                self.ledger.end_protection(run.leaf, run.gpus, run.safe)

    def start(self, leaf: int, gpus: int, minimum: int) -> None:
        node = self.leaves[leaf]
        self.runs.append(Run(node, gpus, self.now, self.now + minimum, counted=minimum == 0))
        if minimum:
            self.ledger.commit(node, gpus * minimum)
            self.ledger.start_protected(node, gpus, self.now)
        else:
            self.ledger.occupy(node, gpus, self.now)

    def stop(self, number: int) -> None:
        running = [run for run in self.runs if run.end is None]
        if running:
            run = running[number % len(running)]
            run.end = self.now
            if self.now < run.safe:
                self.ledger.stop_protected(run.leaf, run.gpus, self.now, run.safe)
            else:
                self.ledger.occupy(run.leaf, -run.gpus, self.now)

    def change_window(self, lookback: int) -> None:
        self.ledger.set_lookback(lookback, self.now, self.leaves)
        self.lookback = lookback
        self.begin = max(self.begin, self.now - lookback)

    def move_zero(self) -> None:
        self.ledger.move_zero(self.now, [self.root, *self.leaves])

    def usage(self, line: Line) -> int:
        return line.usage(self.ledger.clock(self.now))

    def expected(self, leaves: list[Line]) -> int:
        """Occupancy inside the window, and what is committed ahead."""
        total = 0
        for run in self.runs:
            if run.leaf in leaves:
                until = self.now if run.end is None else run.end
                total += run.gpus * max(0, until - max(run.start, self.begin))
                total += run.gpus * max(0, run.safe - self.now) if run.end is None else 0
        return total


STEP = st.one_of(
    st.tuples(st.just("start"), st.integers(0, 1), st.integers(1, 8), st.sampled_from([0, 1, 10, 40, 150])),
    st.tuples(st.just("stop"), st.integers(0, 5)),
    st.tuples(st.just("change_window"), st.sampled_from([20, 50, 100, 200])),
    st.tuples(st.just("move_zero")),
    st.tuples(st.just("pass_time"), st.sampled_from([0, 1, 7, 30, 60])),
)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.lists(STEP, max_size=30), st.sampled_from([20, 100]))
def test_usage_is_what_an_integration_gives(steps: list[tuple[Any, ...]], lookback: int) -> None:
    """Starts, stops, ends of protection, a sliding window, windows that become longer or shorter, another zero."""
    books = Books(lookback)
    for name, *arguments in [*steps, ("pass_time", 5)]:
        getattr(books, name)(*arguments)
        for leaf in books.leaves:
            assert books.usage(leaf) == books.expected([leaf])
        assert books.usage(books.root) == books.expected(books.leaves)
        assert books.ledger.observed(books.now) == books.now - books.begin


def test_a_shorter_window_forgets_at_once() -> None:
    """What lies before it is gone."""
    books = Books(100)
    books.start(0, 8, 0)
    books.pass_time(150)
    assert books.root.usage(books.now) == 800
    books.change_window(40)
    assert books.root.usage(books.now) == 320


def test_a_longer_window_does_not_remember_what_was_forgotten() -> None:
    """It begins where the old one did, and grows from there."""
    books = Books(40)
    books.start(0, 8, 0)
    books.pass_time(150)
    books.change_window(100)
    assert books.root.usage(books.now) == 320
    assert books.ledger.observed(books.now) == 40
    books.pass_time(10)
    assert books.root.usage(books.now) == 400
    books.pass_time(1_000)
    assert (books.root.usage(books.now), books.ledger.observed(books.now)) == (800, 100)


def test_the_cost_of_history_is_bounded_by_the_window() -> None:
    """Changes that have left the window are not kept."""
    books = Books(100)
    for _ in range(50):
        books.start(0, 1, 1)
        books.pass_time(10)
        books.stop(0)
    assert len(books.ledger.edges) <= 2 * 11


def test_a_meter_is_an_integral() -> None:
    """It is read at any time."""
    meter = Meter()
    meter.change(8, 100)
    meter.change(-3, 110)
    assert meter.read(120) == 8 * 10 + 5 * 10
    other = Meter(7)
    other.change(2, 115)
    for one, two in ((meter, other), (other, meter)):
        both = Meter()
        both.absorb(one)
        both.absorb(two)
        assert both.read(120) == meter.read(120) + other.read(120)
