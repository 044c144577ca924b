"""The page of the event log names every kind and every key that the core can write, and no other."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import get_args

import pytest

from gpubudget.core.budget import Budget, DebugLane, Policy, Pool, Shares, Tree
from gpubudget.core.decisions import (
    BudgetsChanged,
    Claim,
    Decision,
    Hold,
    HostChanged,
    Refuse,
    Requeue,
    Reserve,
    Start,
    Stop,
    Stopped,
    Unclaim,
)
from gpubudget.core.eventlog import KINDS, Line, lines
from gpubudget.core.events import CheckpointReported, Event, HostRemoved, Moved, Submitted, Woke
from gpubudget.core.host import HostState
from gpubudget.core.workload import StopReason, WorkloadSpec

PAGE = (Path(__file__).parent.parent.parent / "docs" / "event-log.md").read_text(encoding="utf-8")
SECTIONS: dict[str, str] = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
W = Woke()
SPEC = WorkloadSpec(
    "w1", "ann", "a", ("p", "q"), 8, hosts=1, min_runtime=1, max_runtime=2, resumable=True, debug=True, priority=3
)
LEAF = Budget("a", Shares(Fraction(1, 2), (("p", Fraction(1, 3)),)), managers=("m",), members=("ann",), previously="b")
TREE = Tree(
    Budget("/", Shares(Fraction(1)), children=(LEAF,)), (Pool("p", 8, 2),), Policy(debug=DebugLane(gpus=1, max_gpus=1))
)
EVENTS: list[Event] = [Submitted(SPEC), Moved("w1", "a"), CheckpointReported("w1", 1), HostRemoved("h1")]
DECISIONS: list[Decision] = [
    Start("w1", 1, "p", True, (("h1", (0,)),), 5, 9, (("w2", 1),), True, "why", W),  # noqa: FBT003 - its fields in order
    Stop("w1", 1, StopReason.PREEMPTED, "w2", W),
    Stopped("w1", 1, StopReason.PREEMPTED, "w2", W),
    Requeue("w1", "preempted", "no budget", W),
    Hold("w1", "why", W),
    Refuse("w1", "why", W),
    Reserve("w1", "p", 9, ("h1",), True, W),  # noqa: FBT003 - the same
    Claim("w1", "p", ("h1",), (("w2", 1),), W),
    Unclaim("w1", "why", W),
    HostChanged("h1", "p", 8, HostState.READY, "why", W),
    BudgetsChanged(TREE, "c", W),
]


def written() -> dict[str, Line]:
    """A line of each kind with all the keys that it can have."""
    found: dict[str, Line] = {}
    for line in [line for event in EVENTS for line in lines(event, [], 0)] + lines(W, DECISIONS, 0):
        found[line["kind"]] = found.get(line["kind"], {}) | line
    return found


def test_a_sample_of_every_decision_is_looked_at() -> None:
    """No kind of decision is missing here, so none can be missing on the page."""
    assert {type(decision) for decision in DECISIONS} == set(get_args(Decision))


def test_the_page_has_every_kind_and_no_other() -> None:
    """Each kind of line has a section of its own."""
    assert set(SECTIONS) == set(written()) == set(KINDS)


@pytest.mark.parametrize("kind", SECTIONS)
def test_a_section_names_every_key_and_no_other(kind: str) -> None:
    """What can stand in a line is explained in its section, and what is explained there can stand in it."""
    text = SECTIONS[kind]
    table = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    listed = " ".join(table) if table else text
    keys = set(written()[kind]) - {"at", "kind"}
    assert set(re.findall(r"`(\w+)`", listed)) == keys


def test_budgets_pools_and_policy_are_explained_to_the_last_key() -> None:
    """The objects inside a line of budgets are written out key by key."""
    line, text = written()["budgets_applied"], SECTIONS["budgets_applied"]
    (leaf,) = [budget for budget in line["budgets"] if budget["path"] == "a"]
    for inner in (leaf, line["pools"][0], line["policy"], line["policy"]["debug"]):
        for key in inner:
            assert re.search(rf"\b{key}\b", text), key


@pytest.mark.parametrize("enum", [HostState, StopReason])
def test_every_word_for_a_state_or_reason_is_there(enum: type[HostState | StopReason]) -> None:
    """The page has each word that a state or a reason can be."""
    assert [word.value for word in enum if f"`{word.value}`" not in PAGE] == []
