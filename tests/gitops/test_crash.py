"""Kill -9 of the reconciler, a few times; ``python -m tests.gitops.crash`` does it a hundred times."""

from pathlib import Path

from tests.gitops.crash import crash


def test_a_reconciler_that_is_killed_leaves_one_of_two_trees(tmp_path: Path) -> None:
    """The old one or the new one, whole, and the next round converges."""
    seen = crash(tmp_path, kills=4, seed=1)
    assert seen["old"] + seen["new"] >= 4
