"""The client of GitHub's API, against a stand-in that holds every request to what GitHub asks for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpubudget.errors import (
    ForbiddenError,
    GpuBudgetError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from gpubudget.gitops.github import GitHub, PullRequest, Review
from tests.github_server import BOT, LIMITED, GitHubServer, Reply, github_server, problem

HEAD = "a" * 40


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with github_server() as state:
        state.open_pull(7, HEAD)
        yield state
        assert state.wrong == []


@pytest.fixture
def pauses() -> list[float]:
    """For how long the client has waited, each time."""
    return []


@pytest.fixture
def client(server: GitHubServer, pauses: list[float]) -> Iterator[GitHub]:
    with github(server, pauses) as made:
        yield made


def github(server: GitHubServer, pauses: list[float], token: str = "writes") -> GitHub:
    return GitHub(server.url, server.repository, token, pause=pauses.append, now=lambda: 1_000.0)


def test_a_pull_request_has_its_author_and_newest_commit(client: GitHub) -> None:
    """What is asked for first, to know whether what is at hand is still of interest."""
    assert client.pull_request(7) == PullRequest("hanna", HEAD)


def test_reviews_are_read_in_order(client: GitHub, server: GitHubServer) -> None:
    """Accounts that are gone have no name."""
    server.review(7, "ines", "APPROVED", HEAD)
    server.review(7, None, "COMMENTED", "b" * 40)
    assert client.reviews(7) == (Review("ines", HEAD, "APPROVED"), Review("", "b" * 40, "COMMENTED"))


def test_a_list_is_read_to_its_end(client: GitHub, server: GitHubServer) -> None:
    """Page after page, as the Link header says."""
    server.page = 3
    for number in range(8):
        server.say(7, "ines", f"comment {number}")
    assert [comment.body for comment in client.comments(7)] == [f"comment {number}" for number in range(8)]
    assert len(server.requests) == 3
    assert "per_page=100" in server.requests[0]


def test_a_list_without_items_is_one_request(client: GitHub, server: GitHubServer) -> None:
    """No page is asked for that cannot be there."""
    assert client.comments(7) == ()
    assert len(server.requests) == 1


def test_a_list_that_goes_on_elsewhere_is_not_followed(client: GitHub, server: GitHubServer) -> None:
    """The token is for one API only."""
    server.instead.append((200, {"Link": '<http://localhost:1/comments?page=2>; rel="next"'}, []))
    with pytest.raises(GpuBudgetError, match="at another place"):
        client.comments(7)


def test_a_list_without_an_end_ends(client: GitHub, server: GitHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read forever."""
    monkeypatch.setattr("gpubudget.gitops.github._MAX_PAGES", 2)
    server.page = 1
    for _ in range(4):
        server.say(7, "ines", "more")
    with pytest.raises(GpuBudgetError, match="more than 200 items"):
        client.comments(7)


def test_a_comment_is_made_and_changed(client: GitHub, server: GitHubServer) -> None:
    """The text goes there as it is, whatever is in it."""
    text = 'Grüße\n| a | b |\n"quoted" \\ \U0001f680'
    made = client.create_comment(7, text)
    assert (made.author, made.body) == (BOT, text)
    assert made.url.endswith(f"#issuecomment-{made.id}")
    assert client.update_comment(made.id, "other").body == "other"
    assert server.bodies(7) == ["other"]


def test_a_comment_is_removed_once(client: GitHub, server: GitHubServer) -> None:
    """And if it is gone already, that is what was wanted."""
    made = server.say(7, BOT, "text")
    client.delete_comment(made["id"])
    client.delete_comment(made["id"])
    assert server.bodies(7) == []


def test_a_password_of_netrc_never_replaces_the_token(
    client: GitHub, server: GitHubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has an entry for the host there sends the token that was given all the same."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login x password y\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert client.pull_request(7).head == HEAD
    assert server.wrong == []


@pytest.mark.parametrize("repository", ["budgets", "a/b/c", "lab/../x/y", "lab/bud gets", "", "lab/b?x=1", "-/\n"])
def test_what_is_no_repository_is_refused(repository: str) -> None:
    """Nothing of a name can become another path."""
    with pytest.raises(UsageError, match="not a repository"):
        GitHub("https://api.github.com", repository, "x")


@pytest.mark.parametrize("api", ["", "ftp://api.github.com", "api.github.com", "file:///etc/passwd"])
def test_what_is_no_api_is_refused(api: str) -> None:
    """The API is named by a URL."""
    with pytest.raises(UsageError, match="not a repository"):
        GitHub(api, "lab/budgets", "x")


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        (problem(401, "Bad credentials"), NotAuthorisedError, "Bad credentials"),
        (problem(403, "Resource not accessible by integration"), ForbiddenError, "not accessible"),
        (problem(404, "Not Found"), NotFoundError, "404 for lab/budgets: Not Found"),
        (problem(410, "Gone"), NotFoundError, "Gone"),
        (
            (422, {}, {"message": "Validation Failed", "errors": [{"message": "body is too long"}, {"code": "x"}]}),
            RefusedError,
            "Validation Failed; body is too long; x",
        ),
        (problem(301, "Moved", Location="http://127.0.0.1:1/"), GpuBudgetError, "Moved"),
        (problem(418, "short and stout"), UnreachableError, "418"),
        ((200, {}, b"<html>a proxy</html>"), UnreachableError, "did not answer as GitHub does"),
        ((200, {}, []), UnreachableError, "did not answer as GitHub does"),
        ((200, {}, {"user": None, "head": None}), UnreachableError, "did not answer as GitHub does"),
        ((404, {}, b"<html>no such page</html>"), NotFoundError, "Not Found"),
        ((404, {}, ["odd"]), NotFoundError, "Not Found"),
        ((404, {}, {"message": "two\n  lines", "errors": [None]}), NotFoundError, "Not Found"),
    ],
)
def test_an_answer_without_success_is_one_sentence(
    client: GitHub, server: GitHubServer, reply: Reply, kind: type[GpuBudgetError], says: str
) -> None:
    """Each kind of refusal is its own error, with what GitHub says; nothing is asked twice."""
    server.instead.append(reply)
    with pytest.raises(kind) as raised:
        client.pull_request(7)
    assert type(raised.value) is kind
    assert says in raised.value.message
    assert "\n" not in raised.value.message
    assert len(server.requests) == 1


def test_a_token_that_may_only_read_is_told_so(server: GitHubServer, pauses: list[float]) -> None:
    """It reads, and to write is forbidden."""
    with github(server, pauses, token="reads") as client:
        assert client.comments(7) == ()
        with pytest.raises(ForbiddenError):
            client.create_comment(7, "text")
    assert pauses == []


@pytest.mark.parametrize(
    ("reply", "waited"),
    [
        (problem(429, "slow down", **{"Retry-After": "7"}), 7.0),
        (problem(403, "API rate limit exceeded", **{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1030"}), 31.0),
        (problem(403, "API rate limit exceeded", **{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "900"}), 1.0),
        (problem(403, LIMITED), 60.0),
        (problem(403, LIMITED, **{"Retry-After": "soon"}), 60.0),
        (problem(429, "Too Many Requests"), 60.0),
    ],
)
@pytest.mark.parametrize("write", [False, True])
def test_a_limit_is_waited_for(
    client: GitHub, server: GitHubServer, pauses: list[float], *, reply: Reply, waited: float, write: bool
) -> None:
    """As long as GitHub says, or a minute if it does not say; then the request is sent again, a comment too."""
    server.instead.append(reply)
    if write:
        client.create_comment(7, "text")
        assert server.bodies(7) == ["text"]
    else:
        client.pull_request(7)
    assert pauses == [waited]


def test_waiting_for_limits_doubles_and_ends(server: GitHubServer, pauses: list[float]) -> None:
    """A limit that goes on is left at last, with what GitHub said and for how long."""
    server.instead += [problem(403, LIMITED)] * 3
    with github(server, pauses) as client, pytest.raises(UnreachableError, match=r"secondary .* \(for 240 s\)"):
        client.pull_request(7)
    assert pauses == [60.0, 120.0]


@pytest.mark.parametrize("method", ["get", "update"])
@pytest.mark.parametrize("fault", [problem(502, "Bad Gateway"), (0, {}, None)])
def test_a_fault_of_githubs_is_asked_over(
    client: GitHub, server: GitHubServer, pauses: list[float], method: str, fault: Reply
) -> None:
    """What does no harm when done twice is sent again, up to three times."""
    made = server.say(7, BOT, "text")
    ask: Callable[[], Any] = (
        (lambda: client.pull_request(7)) if method == "get" else (lambda: client.update_comment(made["id"], "other"))
    )
    server.instead += [fault] * 3
    ask()
    assert pauses == [1.0, 2.0, 4.0]
    server.instead += [fault] * 4
    with pytest.raises(UnreachableError):
        ask()


@pytest.mark.parametrize("fault", [problem(502, "Bad Gateway"), (0, {}, None)])
def test_a_comment_is_not_sent_twice(client: GitHub, server: GitHubServer, pauses: list[float], fault: Reply) -> None:
    """Its answer may be lost and the comment be there all the same."""
    server.instead.append(fault)
    with pytest.raises(UnreachableError):
        client.create_comment(7, "text")
    assert pauses == []
    assert len(server.requests) == 1


def test_a_host_that_is_not_there(pauses: list[float]) -> None:
    """It is tried again, then it is one sentence."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        api = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with (
            GitHub(api, "lab/budgets", "x", pause=pauses.append) as client,
            pytest.raises(UnreachableError, match="does not answer: the connection failed"),
        ):
            client.pull_request(7)
    assert pauses == [1.0, 2.0, 4.0]


def test_a_host_that_is_slow(
    client: GitHub, server: GitHubServer, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    """An answer is not waited for without end."""
    release = threading.Event()

    def wait() -> None:
        release.wait(10)

    server.meanwhile += [wait] * 4
    monkeypatch.setattr("gpubudget.gitops.github._SECONDS", (0.05, 0.05))
    with pytest.raises(UnreachableError, match="it took too long"):
        client.pull_request(7)
    release.set()
    assert len(pauses) == 3
