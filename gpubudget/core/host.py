"""Hosts: their states as one literal transition table."""

from __future__ import annotations

from enum import StrEnum


class HostState(StrEnum):
    """What a host is good for. Work is placed on ready hosts only."""

    READY = "ready"
    CORDONED = "cordoned"  # a person allows no new work; what runs goes on
    DRAINING = "draining"  # each attempt ends when its protection does
    DRAINED = "drained"  # empty
    REPAIRING = "repairing"
    LOST = "lost"  # its agent is silent


_S = HostState

TRANSITIONS: dict[HostState, frozenset[HostState]] = {
    _S.READY: frozenset({_S.CORDONED, _S.DRAINING, _S.DRAINED, _S.LOST}),
    _S.CORDONED: frozenset({_S.READY, _S.DRAINING, _S.DRAINED, _S.LOST}),
    _S.DRAINING: frozenset({_S.DRAINED, _S.READY, _S.LOST}),
    _S.DRAINED: frozenset({_S.REPAIRING, _S.READY, _S.LOST}),
    _S.REPAIRING: frozenset({_S.READY, _S.DRAINED, _S.LOST}),
    _S.LOST: frozenset({_S.READY, _S.CORDONED, _S.DRAINING, _S.DRAINED}),
}
