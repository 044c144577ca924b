"""Folders and files of a repository by their ids, many at once: two processes of git for a whole level of a tree.

Each object is compared with its id before anyone sees it, and kept, so that a second commit costs only what is new.
Knows nothing of paths or of what is in a file. What is missing, broken or too large raises ValueError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gpubudget.gitops.gitprocess import reason, run_bytes

_KINDS = {0o04: "tree", 0o10: "blob", 0o12: "link", 0o16: "submodule"}
_ID_BYTES = 20


class Entry(NamedTuple):
    """One line of a folder: a name, what it is (tree, blob, link or submodule) and its id."""

    name: str
    kind: str
    id: str


class Objects:
    """The objects of one repository."""

    def __init__(self, env: Mapping[str, str], folder: Path, shown: str, timeout: float) -> None:
        self._env, self._folder, self._shown, self._timeout = env, folder, shown, timeout
        self._sizes: dict[str, int] = {}
        self._content: dict[str, bytes] = {}
        self._entries: dict[str, list[Entry]] = {}

    def sizes(self, ids: Iterable[str]) -> dict[str, int]:
        """How many bytes each object has."""
        wanted = dict.fromkeys(ids)
        asked = [name for name in wanted if name not in self._sizes]
        for name, line in zip(asked, self._git(asked, "--batch-check").decode().splitlines(), strict=True):
            found, _, about = line.partition(" ")
            _, _, size = about.rpartition(" ")
            if found != name or not size.isdigit():
                raise ValueError(f"object {name} is missing")
            self._sizes[name] = int(size)
        return {name: self._sizes[name] for name in wanted}

    def contents(self, ids: Iterable[str], kind: str, largest: int) -> dict[str, bytes]:
        """The bytes of objects of one kind, each of which has at most ``largest``."""
        sizes = self.sizes(ids)
        for name, size in sizes.items():
            if size > largest:
                raise ValueError(f"object {name} is {size} bytes long, more than {largest}")
        asked = [name for name in sizes if name not in self._content]
        data, at = self._git(asked, "--batch", "--buffer"), 0
        for name in asked:
            head = f"{name} {kind} {sizes[name]}\n".encode()
            begin, end = at + len(head), at + len(head) + sizes[name]
            content = data[begin:end]
            header = f"{kind} {sizes[name]}\0".encode()
            if data[at:begin] != head or hashlib.sha1(header + content, usedforsecurity=False).hexdigest() != name:
                raise ValueError(f"object {name} is damaged, or no {kind}")
            self._content[name], at = content, end + 1
        return {name: self._content[name] for name in sizes}

    def folders(self, ids: Iterable[str], largest: int) -> dict[str, list[Entry]]:
        """What stands in each of these folders."""
        wanted = dict.fromkeys(ids)
        for name, data in self.contents((one for one in wanted if one not in self._entries), "tree", largest).items():
            self._entries[name] = list(_entries(name, data))
        return {name: self._entries[name] for name in wanted}

    def _git(self, ids: list[str], *options: str) -> bytes:
        if not ids:
            return b""
        done = run_bytes(
            ("cat-file", *options),
            self._env,
            folder=self._folder,
            shown=self._shown,
            timeout=self._timeout,
            stdin="\n".join(ids).encode(),
        )
        if done.returncode:
            raise ValueError(reason(done.stderr.decode(errors="replace")))
        return done.stdout


def _entries(folder: str, data: bytes) -> Iterable[Entry]:
    """The lines of a tree object: mode, name and id, one after the other."""
    at, names = 0, set()
    while at < len(data):
        space, end = data.find(b" ", at), data.find(b"\0", at)
        mode = data[at:space]
        kind = _KINDS.get(int(mode, 8) >> 12) if mode and not mode.strip(b"01234567") else None
        name = data[space + 1 : end].decode("utf-8", "surrogateescape")
        after = end + 1 + _ID_BYTES
        if kind is None or end < space or after > len(data) or name in {"", ".", ".."} or "/" in name:
            raise ValueError(f"folder {folder} is damaged")
        if name in names:
            raise ValueError(f"the folder that lists {name!a} is damaged, it does so twice")
        names.add(name)
        yield Entry(name, kind, data[end + 1 : after].hex())
        at = after
