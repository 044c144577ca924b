"""Many objects of a repository at once: two processes for a whole folder instead of two round trips for each file.

Only a head start: what is missing, broken or too large is left out here, and is asked for and judged one by one later.
Nothing is checked, so whoever uses an object compares it with its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpubudget.gitops.gitprocess import run_bytes

MOST = 50_000
LARGEST = 1 << 20
TOGETHER = 64 << 20


class Objects:
    """What was read so far: ``kept`` has type and content by full id."""

    def __init__(self, env: Mapping[str, str], folder: Path, shown: str, timeout: float) -> None:
        self.kept: dict[str, tuple[str, bytes]] = {}
        self._env, self._folder, self._shown, self._timeout = env, folder, shown, timeout

    def read_below(self, tree: str) -> None:
        """Read the folder whose id is ``tree`` and all that is in it, but for what is there already."""
        listed = self._git(b"", "rev-list", "--objects", "--no-object-names", tree).decode("ascii").split()
        new = [name for name in listed[:MOST] if name not in self.kept]
        wanted, size = [], 0
        for line in self._git("\n".join(new).encode(), "cat-file", "--batch-check").decode("ascii").splitlines():
            name, _, about = line.partition(" ")
            kind, _, length = about.partition(" ")
            if kind in {"tree", "blob"} and length.isdigit() and int(length) <= LARGEST and size < TOGETHER:
                wanted.append(name)
                size += int(length)
        self._keep(self._git("\n".join(wanted).encode(), "cat-file", "--batch", "--buffer"))

    def _keep(self, data: bytes) -> None:
        at = 0
        while (end := data.find(b"\n", at)) > 0:
            name, _, about = data[at:end].decode("ascii").partition(" ")
            kind, _, length = about.partition(" ")
            if not length.isdigit():
                break  # it was there a moment ago
            at = end + 1 + int(length)
            self.kept[name] = (kind, data[end + 1 : at])
            at += 1

    def _git(self, stdin: bytes, *arguments: str) -> bytes:
        """What a command prints; nothing if it fails, or if it reads names and there are none."""
        if arguments[0] == "cat-file" and not stdin:
            return b""
        done = run_bytes(
            arguments, self._env, folder=self._folder, shown=self._shown, timeout=self._timeout, stdin=stdin
        )
        return b"" if done.returncode else done.stdout
