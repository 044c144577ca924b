"""Reading what may be packed with gzip: from a file or a pipe, known by its first bytes and not by its name.

Knows nothing of what is in it. Nothing is read twice and nobody seeks, so that a pipe is as good as a file. Writing it
gives the same bytes for the same text.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from gpubudget.errors import InvalidInputError

_MARK = b"\x1f\x8b"
_AT_ONCE = 1 << 17
"""Bytes."""


@contextmanager
def packed_text(path: Path) -> Iterator[TextIO]:
    """A file to write a text to, which is packed."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text,
    ):
        yield text


class _Whole(io.RawIOBase):
    """A stream of which the first bytes were read already: they come first. Closing it leaves the stream open."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what BufferedReader gives
        found = self._head or self._rest.read(len(buffer))
        self._head = found[len(buffer) :]
        size = min(len(found), len(buffer))
        buffer[:size] = found[:size]
        return size


@contextmanager
def unpacked_stream(raw: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """The bytes of an open file or pipe, unpacked where it is packed.

    Raises InvalidInputError, which calls it ``name``, where it is damaged or cut off, or cannot be read.
    """
    try:
        head = raw.read(len(_MARK))
        whole = io.BufferedReader(_Whole(head, raw), _AT_ONCE)
        yield cast("BinaryIO", io.BufferedReader(gzip.GzipFile(fileobj=whole))) if head == _MARK else whole
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInputError(f"{name} is damaged: {error}", hint="fetch or pack it anew") from None
    except OSError as error:
        raise InvalidInputError(f"{name} cannot be read: {error.strerror or error}", hint="check the path") from None
