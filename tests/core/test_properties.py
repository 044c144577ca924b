"""Properties of the scheduler in every history: the invariants of DESIGN 4.6, and agreement with the oracles."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gpubudget.sim.audit import audit
from tests.core.histories import ACTIONS, History, play
from tests.core.invariants import INVARIANTS, Invariant
from tests.core.worlds import Chance

T = TypeVar("T")


class Drawn:
    """Choices that hypothesis makes, and can shrink."""

    def __init__(self) -> None:
        self.draw: Callable[[st.SearchStrategy[Any]], Any] = lambda _: None

    def pick(self, among: Sequence[T]) -> T:
        return among[self.between(0, len(among) - 1)]

    def between(self, least: int, most: int) -> int:
        return int(self.draw(st.integers(least, most)))


class Machine(RuleBasedStateMachine):
    """Random events in random order; ``History.send`` checks every property after each."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = Drawn()
        self.history: History | None = None

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.chance.draw = data.draw
        chance: Chance = self.chance
        self.history = History(chance)

    def act(self, data: st.DataObject, action: Callable[[History], None]) -> None:
        assert self.history
        self.chance.draw = data.draw
        action(self.history)

    def teardown(self) -> None:
        if self.history and self.history.decisions:
            self.history.close()


def _rule(action: Callable[[History], None]) -> Callable[[Machine, st.DataObject], None]:
    def step(self: Machine, data: st.DataObject) -> None:
        self.act(data, action)

    step.__name__ = action.__name__
    return rule(data=st.data())(step)


for _weight, _action in ACTIONS:
    for _number in range(1 + _weight // 8):  # the likelier an event, the more rules for it
        setattr(Machine, f"{_action.__name__}_{_number}", _rule(_action))


def _invariant(holds: Invariant) -> Callable[[Machine], None]:
    def check(self: Machine) -> None:
        if self.history and self.history.decisions:
            holds(self.history.record, self.history.scheduler, self.history.record.now)

    check.__name__ = holds.__name__
    return invariant()(check)


for _holds in INVARIANTS:
    setattr(Machine, _holds.__name__, _invariant(_holds))


def test_every_invariant_holds_after_any_sequence_of_events() -> None:
    """Invariants 1 to 10, usage and ranks as by brute force, and a clean audit, after each event."""
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=20,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],  # add Phase.shrink for a shorter example; that takes minutes
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("seed", range(24))
def test_a_long_random_history_keeps_every_invariant(seed: int) -> None:
    """Seeded histories of 120 events, the same as ``benchmarks/histories.py`` plays by the thousand."""
    history = play(seed, 120)
    assert len(history.inputs) >= 120


@pytest.mark.parametrize("seed", range(30, 36))
def test_a_log_of_only_the_kinds_that_every_reader_knows_passes_the_audit_too(seed: int) -> None:
    """Without the lines for claims and for stops under way nothing is found that is not wrong."""
    extra = {"claimed", "unclaimed", "stopping"}
    lines = (line for line in play(seed, 100).log if line["kind"] not in extra)
    assert audit(json.dumps(line).encode() for line in lines).findings == []
