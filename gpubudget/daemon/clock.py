"""The wall clock in milliseconds, which for the core never goes back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)


def wall_clock() -> int:
    """Milliseconds since 1970, as the machine has it."""
    return time.time_ns() // 1_000_000


class Clock:
    """A clock that stands still while the machine's is behind the latest time it gave; it counts how often that began.

    ``floor`` is the time of the newest event in the database, so that a step back across a restart is noticed too.
    """

    def __init__(self, wall: Callable[[], int] | None = None, floor: int = 0) -> None:
        self._wall, self._last = wall or wall_clock, floor
        self._behind = False
        self.steps_back = 0

    def now(self) -> int:
        """The time of the machine, or the latest time given if that is later."""
        wall = self._wall()
        if wall >= self._last:
            self._last, self._behind = wall, False
        elif not self._behind:
            self._behind = True
            self.steps_back += 1
            _log.warning(
                "the machine's clock went back by %d ms; time stands still until it has caught up", self._last - wall
            )
        return self._last

    def behind(self) -> int:
        """By how many milliseconds the machine's clock is behind."""
        return max(self._last - self._wall(), 0)
