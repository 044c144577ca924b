"""Who calls: tokens, their roles, and what each role may do.

A token is 256 random bits, shown once. Kept is its SHA-256: with that much randomness nothing slower is needed, and a
look-up by hash says nothing about the text by the time it takes.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, replace
from enum import StrEnum

from gpubudget.daemon.store import Batch, Row
from gpubudget.errors import ConflictError, ForbiddenError, InvalidInputError, NotAuthorisedError, NotFoundError

PREFIX = "gpb_"
USE_NOTED_EVERY = 60_000  # ms: a token's last use is written at most this often

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}", re.ASCII)


class Role(StrEnum):
    """What a token may do. All may read."""

    ADMIN = "admin"  # everything
    RECONCILER = "reconciler"  # applies budgets
    AGENT = "agent"  # speaks for one host
    USER = "user"  # submits, and decides about its own workloads


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its text. ``name`` is the person, host or program that it stands for; times in milliseconds."""

    id: str
    name: str
    role: Role
    host: str | None
    hash: str
    created: int
    last_used: int | None = None
    revoked: int | None = None

    def row(self) -> Row:
        """The row of the table ``tokens``."""
        return (self.id, self.name, self.role.value, self.host, self.hash, self.created, self.last_used, self.revoked)

    def public(self) -> dict[str, object]:
        """What the API shows of it."""
        return {
            "id": self.id,
            "name": self.name,
            "role": self.role.value,
            "host": self.host,
            "created_ms": self.created,
            "used_ms": self.last_used,
            "revoked_ms": self.revoked,
        }


def check_name(name: str, what: str = "name") -> str:
    """A name of a person, host or program; raises InvalidInputError."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{what} {name[:60]!r} is not a name", hint="use up to 100 letters, digits, dots, dashes, @ and underscores"
        )
    return name


def digest(text: str) -> str:
    """What is kept of a token's text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class Tokens:
    """All tokens of a database."""

    def __init__(self, rows: list[Row]) -> None:
        tokens = [Token(row[0], row[1], Role(row[2]), *row[3:]) for row in rows]
        self._by_hash = {token.hash: token for token in tokens}

    def __len__(self) -> int:
        return len(self._by_hash)

    def all(self) -> list[Token]:
        """In the order in which they were made."""
        return sorted(self._by_hash.values(), key=lambda token: (token.created, token.id))

    def create(self, name: str, role: Role, host: str | None, now: int, batch: Batch) -> tuple[str, Token]:
        """A new token and its text, which is not kept. A role of agent needs its host, no other has one."""
        check_name(name)
        if (role is Role.AGENT) != (host is not None):
            raise InvalidInputError(
                "a token of an agent names its host, and no other token does", hint="give a host with role agent only"
            )
        if host is not None:
            check_name(host, "host")
        text = PREFIX + secrets.token_urlsafe(32)
        token = Token("t" + secrets.token_hex(6), name, role, host, digest(text), now)
        self._keep(token, batch)
        return text, token

    def revoke(self, token_id: str, now: int, batch: Batch) -> Token:
        """End a token for good; again is no error. The last administrator's stays: nobody could make another one."""
        for token in self._by_hash.values():
            if token.id == token_id:
                if token.revoked is None:
                    admins = [one.id for one in self._by_hash.values() if one.role is Role.ADMIN and not one.revoked]
                    if admins == [token_id]:
                        raise ConflictError(
                            f"{token_id} is the last token of an administrator", hint="create another one before"
                        )
                    token = replace(token, revoked=now)  # noqa: PLW2901 - the same token, ended
                    self._keep(token, batch)
                return token
        raise NotFoundError(f"there is no token {token_id[:40]!r}", hint="gpubudget token list shows them")

    def valid(self, token: Token) -> bool:
        """Whether a token that was good when its caller came still is."""
        return self._by_hash[token.hash].revoked is None

    def _keep(self, token: Token, batch: Batch) -> None:
        self._by_hash[token.hash] = token
        batch.put("tokens", token.row())

    def identify(self, header: str | None) -> Token:
        """The token of an Authorization header; raises NotAuthorisedError."""
        scheme, _, text = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not text:
            raise NotAuthorisedError(
                "the request has no token", hint="send the header Authorization: Bearer gpb_..., or set GPUBUDGET_TOKEN"
            )
        token = self._by_hash.get(digest(text.strip()))
        if token is None:
            raise NotAuthorisedError("the token is not known here", hint="ask an administrator for a new one")
        if token.revoked is not None:
            raise NotAuthorisedError(f"the token of {token.name} was revoked", hint="ask for a new one")
        return token

    def used(self, token: Token, now: int, batch: Batch) -> None:
        """Note that a token was used, in memory and now and then in the database."""
        if token.last_used is None or now - token.last_used >= USE_NOTED_EVERY:
            self._keep(replace(token, last_used=now), batch)


def require(token: Token, *roles: Role) -> None:
    """Raise ForbiddenError unless the token has one of these roles; an administrator's always does."""
    if token.role is not Role.ADMIN and token.role not in roles:
        wanted = " or ".join(role.value for role in dict.fromkeys((*roles, Role.ADMIN)))
        raise ForbiddenError(
            f"{token.name} has the role {token.role.value}; this needs {wanted}", hint="ask an administrator"
        )


def require_host(token: Token, host: str) -> None:
    """Raise ForbiddenError unless the token speaks for this host."""
    if token.role is not Role.AGENT or token.host != host:
        raise ForbiddenError(
            f"the token of {token.name} does not speak for host {host[:60]}",
            hint=f"use a token of role agent made for {host[:60]}",
        )
