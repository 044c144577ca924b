"""Kill -9 under load, a few times; ``python -m tests.daemon.crash`` does it two hundred times."""

from pathlib import Path

from tests.daemon.crash import crash


def test_nothing_is_lost_or_doubled_by_kill_9(tmp_path: Path) -> None:
    """After each kill every accepted workload is there, none runs twice at once, and the ledger is equal."""
    figures = crash(tmp_path, kills=5, seed=3)
    assert figures["accepted"] > 0
    assert figures["processes"] > 0
