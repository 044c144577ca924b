"""Answers of the daemon as checked values."""

from __future__ import annotations

from typing import Any

import pytest

from gpubudget.agent.wire import Answer, Repair, parse_answer, sayable
from gpubudget.errors import InvalidInputError
from tests.agent.acting import order, plain

RUN = plain(order("true", env={"A": "b"}, ends_by_ms=5))


def test_an_answer_is_read_as_a_whole() -> None:
    """Everything in an answer comes out as values; what is left out has its default."""
    ref = {"workload": "w1", "attempt": 1}
    tail = {**ref, "request": 7, "offset": 0, "limit": 5}
    data = {"run": [RUN], "stop": [{**ref, "grace_ms": 1}], "forget": [ref], "repair": {"token": "t"}, "tails": [tail]}
    answer = parse_answer(data)
    assert answer.run[0] == order("true", env={"A": "b"}, ends_by_ms=5)
    assert (answer.stop[0].key, answer.stop[0].grace_ms, answer.forget[0].key) == (("w1", 1), 1, ("w1", 1))
    assert (answer.repair, answer.tails[0].request, answer.poll_ms) == (Repair("t"), "7", 5_000)
    assert parse_answer({}) == Answer()


def test_keys_of_a_newer_daemon_are_passed_over() -> None:
    """A newer daemon may say more than this agent understands."""
    assert parse_answer({"run": [{**RUN, "colour": "red"}], "mood": "good"}).run[0].workload == "w1"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workload": "../../etc"}, "cannot name an attempt"),
        ({"workload": ".hidden"}, "cannot name an attempt"),
        ({"workload": "a/b"}, "cannot name an attempt"),
        ({"workload": ""}, "cannot name an attempt"),
        ({"workload": "x" * 200}, "cannot name an attempt"),
        ({"attempt": -1}, "cannot name an attempt"),
        ({"attempt": "1"}, 'answer.run[0].attempt is "1", not a whole number'),
        ({"attempt": True}, "not a whole number"),
        ({"command": []}, "lacks a command"),
        ({"hosts": []}, "lacks a command, a host"),
        ({"grace_ms": -5}, "or a grace period"),
        ({"gpus": "0,1"}, "answer.run[0].gpus"),
        ({"env": {"A": 1}}, "answer.run[0].env.A is 1, not a text"),
    ],
)
def test_a_wrong_order_is_refused(wrong: dict[str, Any], message: str) -> None:
    """An order that cannot be right is refused, with its place."""
    with pytest.raises(InvalidInputError) as refusal:
        parse_answer({"run": [{**RUN, **wrong}]})
    assert message in str(refusal.value)


@pytest.mark.parametrize("data", [None, 7, [], "x", {"run": {}}, {"run": [7]}, {"repair": "t"}, {"tails": [{}]}])
def test_what_is_no_answer_is_refused(data: object) -> None:
    """Anything else is refused as a whole."""
    with pytest.raises(InvalidInputError):
        parse_answer(data)


def test_reports_hold_only_what_can_be_shown() -> None:
    """A message in a report is printable and bounded."""
    assert sayable("a\0b\n\ud800c" + "x" * 5_000) == "a b  c" + "x" * 1_994
