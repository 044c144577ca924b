"""Values to plain data and back, with the place of what is wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import pytest

from gpubudget.core import plain
from gpubudget.core.budget import Budget, DatedShares, DebugLane, Policy, Pool, Shares, Tree
from gpubudget.core.events import BudgetsApplied, Event, Exited, Outcome, Submitted, Woke
from gpubudget.core.workload import WorkloadSpec
from gpubudget.errors import InvalidInputError

CHILD = Budget(
    "a", Shares(Fraction(1, 3), (("b200", Fraction(1, 2)),)), changes=(DatedShares(1, 2, Shares(Fraction(0))),)
)
TREE = Tree(Budget("/", Shares(Fraction(1)), children=(CHILD,)), (Pool("p", 8, 4),), Policy(debug=DebugLane(4)))
ANY_EVENT = cast("type[Event]", Event)


@dataclass(frozen=True)
class Box:
    """A type that has what those of the core have not: pairs, a mapping, and a plain union, which is not decoded."""

    pair: tuple[int, str] = (0, "")
    named: dict[str, int] | None = None
    sure: bool = False
    choice: int | None = None
    either: int | str | None = None


@pytest.mark.parametrize(
    "event",
    [
        BudgetsApplied(TREE, "c1"),
        Submitted(WorkloadSpec("w", "ann", None, ("p", "q"), 12, hosts=2)),
        Exited("w", 1, Outcome.FAILED),
        Woke(),
    ],
)
def test_events_come_back_as_they_were(event: Event) -> None:
    """Through JSON text, with fractions, enums, tuples, and the class of a union's member."""
    assert plain.decode(ANY_EVENT, json.loads(plain.canonical(event))) == event


def test_mappings_and_pairs_come_back_as_they_were() -> None:
    """These too."""
    box = Box(named={"a": 1}, pair=(1, "x"), choice=3)
    assert plain.decode(Box, json.loads(plain.canonical(box))) == box


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    """Canonical JSON is sorted, without spaces, in ASCII."""
    assert plain.canonical({"b": "é", "a": [Fraction(1, 2)]}) == '{"a":["1/2"],"b":"\\u00e9"}'
    assert plain.digest({"b": 1, "a": 2}) == plain.digest({"a": 2, "b": 1})
    assert len(plain.digest(TREE)) == 64


def test_what_has_no_plain_form_is_a_fault_of_the_program() -> None:
    """A float is neither written nor read."""
    with pytest.raises(TypeError, match="float has no plain form"):
        plain.encode(0.5)
    with pytest.raises(TypeError, match="float'> has no plain form"):
        plain.decode(float, 0.5)


def tampered(*path: str | int, value: object) -> Any:  # noqa: ANN401 - plain data
    """The plain form of ``TREE`` with one value replaced."""
    data: Any = plain.encode(TREE)
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "the value is null, not a Tree object"),
        (tampered("pools", value={}), "pools is {}, not a list"),
        (tampered("pools", 0, "hosts", value="4"), 'pools[0].hosts is "4", not a whole number'),
        (tampered("pools", 0, "hosts", value=True), "pools[0].hosts is true, not a whole number"),
        (tampered("pools", 0, "hosts", value=10**31), "pools[0].hosts is 1" + "0" * 31 + ", not a whole number"),
        (tampered("cluster", value=7), "cluster is 7, not a text"),
        (tampered("root", "shares", "default", value="1"), 'root.shares.default is "1", not a fraction such as "1/3"'),
        (tampered("root", "shares", "default", value=1), 'root.shares.default is 1, not a fraction such as "1/3"'),
        (
            tampered("root", "shares", "default", value="1/0"),
            'root.shares.default is "1/0", not a fraction such as "1/3"',
        ),
        (
            tampered("root", "children", 0, "shares", "by_pool", 0, value=["b200"]),
            'root.children[0].shares.by_pool[0] is ["b200"], not a list of 2',
        ),
        (tampered("policy", "debug", value=3), "policy.debug is 3, not one of DebugLane"),
        (tampered("policy", "kind", value="Tree"), 'policy.kind is "Tree", not "Policy"'),
        (tampered("policy", "debug", "kind", value="Lane"), 'policy.debug.kind is "Lane", not one of DebugLane'),
        (tampered("policy", "speed", value=3), "policy has an unknown key 'speed'"),
        ({"kind": "Tree"}, "Tree lacks the key 'root'"),
        (tampered("pools", 0, value={"kind": "Pool", "name": "p"}), "pools[0] lacks the key 'gpus_per_host'"),
    ],
)
def test_what_is_wrong_in_a_tree_is_named_with_its_place(data: object, said: str) -> None:
    """Decoding never guesses."""
    with pytest.raises(InvalidInputError) as caught:
        plain.decode(Tree, data)
    assert caught.value.message == said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"sure": 1}, "sure is 1, not true or false"),
        ({"choice": "x"}, 'choice is "x", not a whole number'),
        ({"named": []}, "named is [], not an object"),
        ({"named": {"a": "b"}}, 'named.a is "b", not a whole number'),
        ({"either": 1}, "either is 1, not one of int, str"),
    ],
)
def test_what_is_wrong_in_other_types_is_named_too(data: object, said: str) -> None:
    """Booleans, optional values, mappings and plain unions."""
    with pytest.raises(InvalidInputError) as caught:
        plain.decode(Box, data)
    assert caught.value.message == said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"kind": "Exploded"}, 'kind is "Exploded", not one of Submitted, Cancelled'),
        ({"kind": ["Woke"]}, 'kind is ["Woke"], not one of Submitted, Cancelled'),
        ({}, "kind is null, not one of Submitted, Cancelled"),
        (
            {"kind": "Exited", "workload": "w", "attempt": 1, "outcome": "bored"},
            'outcome is "bored", not one of finished',
        ),
        ({"kind": "Exited", "workload": "w", "attempt": 1, "outcome": 3}, "outcome is 3, not one of finished, failed"),
        ("Woke", 'the value is "Woke", not one of Submitted, Cancelled'),
    ],
)
def test_an_unknown_event_is_named_with_those_there_are(data: object, said: str) -> None:
    """A member of a union is told by its kind."""
    with pytest.raises(InvalidInputError) as caught:
        plain.decode(ANY_EVENT, data)
    assert caught.value.message.startswith(said)


def test_null_is_null_and_nothing_else() -> None:
    """The type of None takes only that."""
    assert plain.decode(type(None), None) is None
    with pytest.raises(InvalidInputError, match=r"^the value is 0, not null$"):
        plain.decode(type(None), 0)
