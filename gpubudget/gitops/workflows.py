"""The workflows of a budgets repository: files of this package, which call the composite action of this project.

They are those of this project's own repository, but for where they find the action. Writes nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

from gpubudget.errors import UsageError

OWN = "./.github/actions/gpubudget"
"""The action where it stands in the same repository."""

_FOLDER = Path(__file__).parent / "templates"
_NAMES = ("validate", "plan", "reconcile")
_PINNED = re.compile(r"[\w.-]+(/[\w.-]+)+@[0-9a-f]{40}", re.ASCII)


def workflows(action: str = OWN) -> dict[str, str]:
    """Path and text of each workflow. ``action`` is ``owner/gpubudget/.github/actions/gpubudget@COMMIT``.

    Raises UsageError unless that names a full commit: a branch or tag could be moved, and with it what the workflows
    of all repositories run with their tokens.
    """
    if action != OWN and not _PINNED.fullmatch(action):
        raise UsageError(
            f"{action[:100]!a} does not name an action at a full commit",
            hint="write it as owner/gpubudget/.github/actions/gpubudget@ and the 40 digits of a commit",
        )
    return {
        f".github/workflows/{name}.yml": (_FOLDER / f"{name}.yml").read_text(encoding="utf-8").replace(OWN, action)
        for name in _NAMES
    }
