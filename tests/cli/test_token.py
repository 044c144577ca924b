"""``token``: who may call the daemon."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.cluster import Cluster

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def admin(alice: Cli, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs ``gpubudget`` as an administrator."""
    monkeypatch.setenv("GPUBUDGET_TOKEN", cluster.tokens["admin"])
    return alice


def test_a_token_is_made_used_and_revoked(admin: Cli, tmp_path: Path) -> None:
    """A new token works until it is revoked; its file can be read by its owner only."""
    file = tmp_path / "carol.token"
    code, out, err = admin("token", "create", "carol", "--out", str(file))
    assert (code, out) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    name = err.split()[1]
    assert admin("get", "pools", "--token-file", str(file), "-o", "name")[:2] == (0, "a100\n")
    listed = json.loads(admin("token", "list", "-o", "json")[1])["tokens"]
    (mine,) = [token for token in listed if token["id"] == name]
    assert (mine["name"], mine["role"]) == ("carol", "user")
    assert file.read_text().strip() not in admin("token", "list", "-o", "json")[1]
    assert admin("token", "revoke", name)[0] == 0
    code, _, err = admin("get", "pools", "--token-file", str(file))
    assert code == 4
    assert "revoked" in err


def test_a_token_on_stdout(admin: Cli) -> None:
    """Without a file the token, and nothing else, is printed."""
    code, out, err = admin("token", "create", "dave")
    assert (code, err) == (0, "")
    assert out.startswith("gpb_")
    assert len(out.split()) == 1


def test_no_file_is_overwritten(admin: Cli, tmp_path: Path) -> None:
    """A file that is there stays as it is, and no token is made."""
    file = tmp_path / "taken"
    file.write_text("mine")
    before = admin("token", "list", "-o", "name")[1]
    code, out, err = admin("token", "create", "erin", "--out", str(file))
    assert (code, out) == (1, "")
    assert "File exists" in err
    assert (file.read_text(), admin("token", "list", "-o", "name")[1]) == ("mine", before)


def test_only_administrators(alice: Cli) -> None:
    """A user may neither make, list nor revoke tokens."""
    for words in (["create", "mallory"], ["list"], ["revoke", "t0"]):
        code, out, err = alice("token", *words)
        assert (code, out) == (4, "")
        assert err.startswith("error: ")


def test_wrong_tokens(admin: Cli) -> None:
    """A role that there is not, a host for a person and an unknown id are told."""
    assert admin("token", "create", "x", "--role", "king")[0] == 64
    assert admin("token", "create", "x", "--host", "h1")[0] == 1
    assert admin("token", "revoke", "nowhere")[0] == 1
    code, _, err = admin("token")
    assert (code, err.splitlines()[0]) == (64, "error: which one: create, list, revoke?")
