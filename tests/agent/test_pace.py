"""When the agent reports: at once when something happened, else rarely."""

from __future__ import annotations

from gpubudget.agent.loop import LAST_RETRY, Pace


def test_a_daemon_that_is_away_is_asked_ever_less_often() -> None:
    """Tries get rarer up to a bound, also for what is urgent; one answer is enough to be back to normal."""
    pace = Pace(5_000)
    waits = [pace.failed() for _ in range(30)]
    assert waits[:4] == [0.25, 0.5, 1.0, 2.0]
    assert max(waits) == waits[-1] == LAST_RETRY
    assert pace.rest(urgent=True) > LAST_RETRY - 1
    assert pace.sent(urgent=False) == 0  # the first report after a failure is answered at once
    pace.answered(5_000, productive=False)
    assert pace.rest(urgent=False) == 0
    assert pace.sent(urgent=False) == 5_000


def test_what_is_urgent_goes_out_and_comes_back_at_once() -> None:
    """An urgent report does not wait, and its answer is not held."""
    pace = Pace(5_000)
    pace.answered(5_000, productive=True)
    assert pace.rest(urgent=True) == 0
    assert pace.sent(urgent=True) == 0
    assert not pace.holding


def test_a_daemon_that_does_not_hold_its_answers_is_not_flooded() -> None:
    """Answers that come early and say nothing new are asked for less and less often, up to what the daemon says."""
    pace = Pace(5_000)
    rests = []
    for _ in range(12):  # what the test itself takes is subtracted from each rest, hence the rounding
        pace.sent(urgent=False)
        pace.answered(2_000, productive=False)
        rests.append(round(pace.rest(urgent=False), 1))
    assert rests == sorted(rests)
    assert 0 < rests[0] < 0.2
    assert 1.5 < rests[-1] <= 2.0
    pace.sent(urgent=False)
    pace.answered(2_000, productive=True)
    assert pace.rest(urgent=False) == 0


def test_the_daemon_can_ask_for_more_reports() -> None:
    """Reports come at the shorter of the agent's interval and the daemon's."""
    pace = Pace(5_000)
    pace.answered(1_000, productive=True)
    assert pace.sent(urgent=False) == 1_000
    pace.answered(60_000, productive=True)
    assert pace.sent(urgent=False) == 5_000
