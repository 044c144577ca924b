"""The one comment of a pull request, on a stand-in for GitHub: found again, and never set back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubudget.errors import NotFoundError, RefusedError
from gpubudget.gitops.github import GitHub, Review
from gpubudget.gitops.posting import LIMIT, Outcome, Posted, Stamp, approvers, marker, post, stamp_of
from tests.github_server import BOT, LONGEST, READ_ONLY, GitHubServer, github_server

HEAD, OTHER = "a" * 40, "b" * 40

Post = Callable[..., Posted]


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with github_server() as state:
        state.open_pull(7, HEAD)
        yield state
        assert state.wrong == []


@pytest.fixture
def say(server: GitHubServer) -> Post:
    """Posts a text for a run, and gives what became of it."""

    def said(text: str, run: int = 1, attempt: int = 1, head: str = HEAD, key: str = "budgets", **more: str) -> Posted:
        stamp = Stamp(key, run, attempt, head)
        with GitHub(server.url, server.repository, more.get("token", "writes")) as github:
            return post(github, 7, stamp, lambda mark: f"{mark}\n{text}", more.get("author", BOT))

    return said


def texts(server: GitHubServer) -> list[str]:
    return [body.partition("\n")[2] for body in server.bodies(7)]


def test_a_comment_is_made_once_and_then_updated(say: Post, server: GitHubServer) -> None:
    """The second run finds what the first one made, among those of others."""
    server.say(7, "hanna", "please look at this")
    first = say("one", run=1)
    server.say(7, "ines", "why?")
    second = say("two", run=2)
    assert (first.outcome, second.outcome) == (Outcome.CREATED, Outcome.UPDATED)
    assert first.url == second.url
    assert texts(server) == ["two"]


def test_it_is_found_on_a_later_page(say: Post, server: GitHubServer) -> None:
    """A long conversation does not hide it."""
    server.page = 2
    for number in range(5):
        server.say(7, "hanna", f"comment {number}")
    say("one")
    for number in range(5):
        server.say(7, "ines", f"answer {number}")
    assert say("two", run=2).outcome is Outcome.UPDATED
    assert texts(server) == ["two"]


def test_the_same_text_is_not_sent_again(say: Post, server: GitHubServer) -> None:
    """Nobody is told of a change that is none."""
    say("one")
    assert say("one").outcome is Outcome.UNCHANGED
    assert not [request for request in server.requests if request.startswith("PATCH")]


def test_an_older_run_does_not_overwrite_a_newer_one(say: Post, server: GitHubServer) -> None:
    """Of the same commit: by run, and by attempt of the same run."""
    say("of run 5", run=5, attempt=2)
    assert say("of run 4", run=4, attempt=9) == Posted(
        Outcome.OLDER, server.comments[0]["html_url"], "run 5.2 is later"
    )
    assert say("first attempt", run=5, attempt=1).outcome is Outcome.OLDER
    assert texts(server) == ["of run 5"]
    assert say("third attempt", run=5, attempt=3).outcome is Outcome.UPDATED


def test_a_run_of_an_older_commit_says_nothing(say: Post, server: GitHubServer) -> None:
    """Though its number is higher (a run can be repeated), and though there is no comment of the newer one yet."""
    server.open_pull(7, OTHER)
    said = say("of the old commit", run=99)
    assert said.outcome is Outcome.OLDER
    assert OTHER in said.why
    assert texts(server) == []
    say("of the new commit", run=3, head=OTHER)
    assert say("of the old commit", run=99, attempt=2).outcome is Outcome.OLDER
    assert texts(server) == ["of the new commit"]


def test_a_push_while_it_looks_is_noticed(say: Post, server: GitHubServer) -> None:
    """The newest commit is asked for last, right before anything is written."""
    server.meanwhile.append(lambda: server.open_pull(7, OTHER))
    assert say("of the old commit").outcome is Outcome.OLDER
    assert texts(server) == []


def test_the_newest_commit_wins_over_a_higher_run(say: Post, server: GitHubServer) -> None:
    """A comment about a commit that is no longer the newest is always replaced."""
    say("of the first commit", run=8)
    server.open_pull(7, OTHER)
    assert say("of the second", run=7, head=OTHER).outcome is Outcome.UPDATED
    assert texts(server) == ["of the second"]


def test_what_others_wrote_is_left_alone(say: Post, server: GitHubServer) -> None:
    """A mark alone makes no comment ours, whoever copies it; and it cannot hold back the real one."""
    forged = f"{marker(Stamp('budgets', 10**19, 1, HEAD))}\nAll approved!"
    server.say(7, "mallory", forged)
    server.say(7, None, forged)
    assert say("one").outcome is Outcome.CREATED
    assert say("two", run=2).outcome is Outcome.UPDATED
    assert texts(server) == ["two"]
    assert server.bodies(7, "mallory") == [forged]


def test_two_of_ours_become_one(say: Post, server: GitHubServer) -> None:
    """Two runs at once may have made one each; the newer is kept. Those of others and about others stay."""
    say("about another tree", key="other")
    for run in (2, 1):
        server.say(7, BOT, f"{marker(Stamp('budgets', run, 1, HEAD))}\nof run {run}")
    server.say(7, "hanna", f"{marker(Stamp('budgets', 1, 1, HEAD))}\ncopied")
    assert say("of run 3", run=3).outcome is Outcome.UPDATED
    assert texts(server) == ["about another tree", "of run 3"]
    assert len(server.bodies(7, "hanna")) == 1


def test_each_tree_has_its_own_comment(say: Post, server: GitHubServer) -> None:
    """Several clusters in one repository do not overwrite each other's."""
    say("h100", key="clusters/h100")
    say("b200", key="clusters/b200")
    assert say("h100 again", run=2, key="clusters/h100").outcome is Outcome.UPDATED
    assert texts(server) == ["h100 again", "b200"]


def test_another_account_is_named(say: Post, server: GitHubServer) -> None:
    """Names of accounts are compared in any case."""
    server.tokens["own"] = "Hanna"
    assert say("one", token="own", author="hanna").outcome is Outcome.CREATED
    assert say("two", run=2, token="own", author="hanna").outcome is Outcome.UPDATED


@pytest.mark.parametrize("there", [False, True])
def test_a_token_that_may_only_read_is_an_outcome(say: Post, server: GitHubServer, *, there: bool) -> None:
    """To make a comment and to update one; nothing is changed, and why is told."""
    if there:
        say("one")
    said = say("two", run=2, token="reads")
    assert said.outcome is Outcome.READ_ONLY
    assert "Resource not accessible by integration" in said.why
    assert texts(server) == ["one"] * there


def test_nothing_to_say_is_not_said_first(server: GitHubServer) -> None:
    """A pull request that changes no budgets has no comment; but one that has been made is brought up to date."""
    with GitHub(server.url, server.repository, "writes") as github:
        stamp = Stamp("budgets", 1, 1, HEAD)
        assert post(github, 7, stamp, str, BOT, new=False).outcome is Outcome.NOTHING
        assert post(github, 7, stamp, str, BOT).outcome is Outcome.CREATED
        assert post(github, 7, stamp, lambda mark: f"{mark}\nno changes", BOT, new=False).outcome is Outcome.UPDATED
    assert texts(server) == ["no changes"]


def test_a_token_that_may_not_even_read(say: Post, server: GitHubServer) -> None:
    """The same."""
    server.instead.append(READ_ONLY)
    assert say("one").outcome is Outcome.READ_ONLY


def test_other_refusals_are_errors(say: Post, server: GitHubServer) -> None:
    """A pull request that is not there, a text that is too long."""
    with pytest.raises(RefusedError, match="too long"):
        say("x" * LONGEST)
    del server.pulls[7]
    with pytest.raises(NotFoundError):
        say("one")


def test_the_limit_is_below_githubs() -> None:
    """In bytes, which are never fewer than characters."""
    assert LIMIT < LONGEST


@given(st.text(max_size=40), st.integers(0, 10**19), st.integers(0, 10**6), st.sampled_from([HEAD, "0" * 64]))
def test_a_stamp_is_read_back(key: str, run: int, attempt: int, head: str) -> None:
    """Whatever the key holds; and it is one comment of HTML, which ends where it should."""
    stamp = Stamp(key, run, attempt, head)
    line = marker(stamp)
    assert stamp_of(f"{line}\r\nrest") == stamp
    assert line.count("-->") == 1
    assert "\n" not in line


@pytest.mark.parametrize(
    "body",
    ["", "text", "<!-- gpubudget -->", f"x {marker(Stamp('a', 1, 1, HEAD))}", f"\n{marker(Stamp('a', 1, 1, HEAD))}"],
)
def test_what_is_no_mark(body: str) -> None:
    """A mark is the whole first line."""
    assert stamp_of(body) is None


@pytest.mark.parametrize(
    ("reviews", "approve"),
    [
        ([("ines", HEAD, "APPROVED")], ("ines",)),
        ([("ines", OTHER, "APPROVED")], ()),  # of an older commit: an approval does not survive a push
        ([("ines", OTHER, "APPROVED"), ("ines", HEAD, "APPROVED")], ("ines",)),
        ([("ines", HEAD, "APPROVED"), ("ines", HEAD, "COMMENTED")], ("ines",)),
        ([("ines", HEAD, "APPROVED"), ("ines", HEAD, "PENDING")], ("ines",)),
        ([("ines", HEAD, "APPROVED"), ("ines", HEAD, "CHANGES_REQUESTED")], ()),
        ([("ines", HEAD, "CHANGES_REQUESTED"), ("ines", HEAD, "APPROVED")], ("ines",)),
        ([("ines", HEAD, "DISMISSED")], ()),
        ([("ines", HEAD, "APPROVED"), ("otto", HEAD, "COMMENTED"), ("eva", HEAD, "APPROVED")], ("ines", "eva")),
        ([("", HEAD, "APPROVED")], ()),
    ],
)
def test_who_approves(reviews: list[tuple[str, str, str]], approve: tuple[str, ...]) -> None:
    """Those whose last word is an approval, of the newest commit (ruleset-recipes#15: it survived a push)."""
    assert approvers([Review(*review) for review in reviews], HEAD) == approve
