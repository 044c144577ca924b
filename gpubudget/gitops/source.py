"""Where a budgets repository is and which ref of it is meant: texts from people, checked before git sees them.

Knows nothing of git's objects and starts nothing. What could be read as an option, as a command (``ext::``) or as a
revision expression is refused, so that git is only ever given plain places and full ref names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpubudget.errors import InvalidInputError

PROTOCOLS = ("file", "git", "https", "ssh")

_LONGEST = 2_000
_LONGEST_REF = 250
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_SCP = re.compile(r"([^/:@]+@)?([^/:]+):(?!:)(.+)", re.DOTALL)
_HELPER = re.compile(r"[A-Za-z0-9+.-]+::")
_SECRET = re.compile(r"(?<=://)[^/\s]+@")
_COMMIT_ID = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?", re.ASCII)
_NOT_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[-/.]|[/.]$|^@$")


@dataclass(frozen=True, slots=True)
class Source:
    """A place to read a repository from: a folder of this machine (``remote`` is false), or a URL to fetch from.

    ``shown`` is the place as messages may show it: without a password or token.
    """

    place: str
    shown: str
    remote: bool


def parse_source(text: str) -> Source:
    """The source that a path or URL names; raises InvalidInputError for what git must not be given."""
    hint = "give a folder, or a URL such as https://host/budgets.git or git@host:budgets.git"
    shown = without_secrets(text)
    if not text or len(text) > _LONGEST or not text.isprintable():
        raise InvalidInputError(f"repository {shown[:60]!a} is not a path or URL", hint=hint)
    if text.startswith("-"):
        raise InvalidInputError(f"repository {shown!r} looks like an option", hint=hint)
    path = Path(text).expanduser()
    if path.exists():
        whole = str(path.resolve())  # one name for one folder, however it was written: locks and records go by it
        return Source(whole, whole, remote=False)
    if _HELPER.match(text):
        raise InvalidInputError(f"repository {shown!r} names a program to run, not a place", hint=hint)
    if url := _SCHEME.fullmatch(text):
        return _url(text, shown, url[1].lower(), url[2])
    if scp := _SCP.fullmatch(text):
        return _url(text, shown, "ssh", (scp[1] or "") + scp[2])
    raise InvalidInputError(f"there is no repository at {shown!r}", hint=hint)


def _url(text: str, shown: str, protocol: str, rest: str) -> Source:
    if protocol not in PROTOCOLS:
        hint = f"use one of {', '.join(PROTOCOLS)}, or a folder"
        raise InvalidInputError(f"repository {shown!r} uses {protocol}, which is not read from", hint=hint)
    host = rest.split("/", 1)[0].rpartition("@")[2]
    if host.startswith("-") or (not host and protocol != "file"):
        raise InvalidInputError(f"repository {shown!r} names no host", hint="write https://host/path")
    return Source(text, shown, remote=True)


def without_secrets(text: str) -> str:
    """The text with the user, password or token of every URL in it left out."""
    return _SECRET.sub("", text)


def full_names(ref: str) -> tuple[str, ...]:
    """The full ref names that ``ref`` may stand for: ``main`` is a branch or a tag, ``refs/...`` and HEAD themselves.

    Raises InvalidInputError for a text that can be no ref, and for a commit id: only a named ref is ever applied.
    """
    hint = "give the name of a branch or tag, such as main"
    if _COMMIT_ID.fullmatch(ref):
        raise InvalidInputError(f"ref {ref!r} is a commit id; only a branch or tag is reconciled", hint=hint)
    if not ref or len(ref) > _LONGEST_REF or not ref.isprintable() or _NOT_IN_REF.search(ref):
        raise InvalidInputError(f"ref {ref[:60]!a} is not the name of a branch or tag", hint=hint)
    return (ref,) if ref == "HEAD" or ref.startswith("refs/") else (f"refs/heads/{ref}", f"refs/tags/{ref}")


def folder_parts(path: str) -> tuple[str, ...]:
    """The names, from the top of the repository down, of the folder ``path``; none for the top itself."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or not path.isprintable() or len(path) > _LONGEST:
        hint = "give a path from the top of the repository, such as budgets"
        raise InvalidInputError(f"path {path[:60]!a} does not name a folder inside the repository", hint=hint)
    return parts
