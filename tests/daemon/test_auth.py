"""Tokens: what is kept of them, and when their use is written."""

import pytest

from gpubudget.daemon.auth import USE_NOTED_EVERY, Role, Tokens, require, require_host
from gpubudget.daemon.store import Batch
from gpubudget.errors import ConflictError, ForbiddenError, NotAuthorisedError


def test_a_token_is_known_by_its_hash() -> None:
    """The text itself stands in no row, and the rows suffice to know it again."""
    batch = Batch()
    text, token = Tokens([]).create("alice", Role.USER, None, 5, batch)
    rows = list(batch.rows["tokens"].values())
    assert text not in repr(rows)
    assert Tokens(rows).identify(f"bearer {text}") == token


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer gpb_x", "Bearer \udcff"])
def test_what_is_no_token_is_refused(header: str | None) -> None:
    """Whatever stands in the header."""
    with pytest.raises(NotAuthorisedError):
        Tokens([]).identify(header)


def test_use_is_written_now_and_then() -> None:
    """Not with every request."""
    tokens, batch = Tokens([]), Batch()
    text, token = tokens.create("alice", Role.USER, None, 0, Batch())
    tokens.used(token, 10, batch)
    assert batch
    batch = Batch()
    tokens.used(tokens.identify(f"Bearer {text}"), USE_NOTED_EVERY, batch)
    assert not batch
    tokens.used(tokens.identify(f"Bearer {text}"), USE_NOTED_EVERY + 10, batch)
    assert batch


def test_the_last_administrator_stays() -> None:
    """Without one nobody could ever make a token again; one of two may go."""
    tokens = Tokens([])
    _, first = tokens.create("root", Role.ADMIN, None, 0, Batch())
    tokens.create("alice", Role.USER, None, 0, Batch())
    with pytest.raises(ConflictError, match="is the last token of an administrator"):
        tokens.revoke(first.id, 1, Batch())
    _, second = tokens.create("ada", Role.ADMIN, None, 2, Batch())
    assert tokens.revoke(first.id, 3, Batch()) == tokens.revoke(first.id, 4, Batch())
    with pytest.raises(ConflictError):
        tokens.revoke(second.id, 5, Batch())
    assert tokens.valid(second)
    assert not tokens.valid(first)


def test_roles_are_what_they_are() -> None:
    """An administrator may do everything but speak for a host."""
    tokens = Tokens([])
    _, admin = tokens.create("root", Role.ADMIN, None, 0, Batch())
    _, agent = tokens.create("h1", Role.AGENT, "h1", 0, Batch())
    require(admin, Role.USER)
    require(agent, Role.AGENT)
    require_host(agent, "h1")
    with pytest.raises(ForbiddenError, match="h1 has the role agent; this needs user or admin"):
        require(agent, Role.USER)
    for token, host in ((agent, "h2"), (admin, "h1")):
        with pytest.raises(ForbiddenError, match="does not speak for host"):
            require_host(token, host)
