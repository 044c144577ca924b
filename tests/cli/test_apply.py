"""``gpubudget apply``: exactly what was reviewed, with a real daemon; and what it keeps on record."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.budgets_server import BudgetsServer, budgets_server
from tests.cli.conftest import Cli
from tests.cli.test_reconcile import Daemon, budgets
from tests.conftest import GitRepo


@pytest.fixture(scope="module")
def _daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("daemon"))
    daemon.start()
    yield daemon
    daemon.end()


@pytest.fixture
def repo(
    _daemon: Daemon, git_repo: Callable[[str], GitRepo], cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> GitRepo:
    """A clone that the caller stands in; its main is applied, and on topic language has 10% less."""
    monkeypatch.setenv("GPUBUDGET_URL", _daemon.url)
    monkeypatch.setenv("GPUBUDGET_TOKEN", _daemon.token)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = git_repo("work")
    monkeypatch.chdir(found.path)
    found.commit(budgets(language="50%", vision="25%"), str(tmp_path))
    assert cli("reconcile", "--repo", ".", "--force").code == 0
    found.git("switch", "--quiet", "--create", "topic")
    found.commit(budgets(language="40%", vision="25%"))
    return found


@pytest.fixture
def planned(repo: GitRepo, cli: Cli, tmp_path: Path) -> Path:
    """The plan of topic for what the daemon has, in a file."""
    assert repo
    file = tmp_path / "plan.json"
    assert cli("plan", "topic", "--against", "daemon", "--out", str(file), "--approved-by", "hanna").code == 0
    return file


def applied(cli: Cli) -> tuple[str, str]:
    """The applied commit, and language's share."""
    answer = json.loads(cli("get", "budgets", "-o", "json").out)
    shares = {budget["path"]: budget["pools"]["h100"]["share"] for budget in answer["budgets"]}
    return answer["commit"], shares["language"]


def test_a_reviewed_plan_is_applied_once_and_kept_on_record(repo: GitRepo, planned: Path, cli: Cli) -> None:
    """The record tells commit, author, approvers, who applied it, and what changed; again changes nothing."""
    topic, checksum = repo.git("rev-parse", "topic"), json.loads(planned.read_text())["checksum"]
    done = cli("apply", str(planned), "--checksum", checksum[:12].upper(), "--approved-by", "ravi")
    main = repo.git("rev-parse", "main")[:12]
    told = (
        f"applied topic ({topic[:12]}), after {main}: 0 to add, 1 to change, 0 to move, 0 to remove; 1 more follows\n"
    )
    assert (done.code, done.out, done.err) == (0, told, "")
    assert applied(cli) == (topic, "2/5")
    assert cli("apply", str(planned)).out == f"topic ({topic[:12]}) is applied already\n"

    table = cli("get", "budgets", "--history").out.splitlines()
    assert table[0].split() == ["APPLIED", "COMMIT", "AUTHOR", "APPROVED", "BY", "APPLIED", "BY", "CHANGES"]
    assert table[1].split()[1:] == [topic[:12], "Hanna", "<hanna@example.org>", "hanna,ravi", "admin", "1", "change"]
    assert f"checksum {checksum}" in cli("get", "budgets", "--history", "-o", "wide").out
    (kept,) = json.loads(cli("get", "budgets", topic[:9], "--history", "-o", "json").out)["applied"]
    assert kept["plan"] == "change     language  share 50% -> 40%, effective 50% -> 40%"
    assert (kept["commit"], kept["approvers"], kept["by"], kept["forced"]) == (topic, ["hanna", "ravi"], "admin", False)
    assert cli("get", "budgets", "--history", "-o", "name").out.splitlines()[0] == topic
    missing = cli("get", "budgets", "f" * 40, "--history")
    assert (missing.code, "was applied" in missing.err) == (1, True)


def test_a_reconciler_keeps_the_plan_and_the_approvers_of_the_commit(repo: GitRepo, cli: Cli) -> None:
    """Whom the commit's message names as such, and the same lines."""
    repo.git("switch", "--quiet", "main")
    repo.commit(budgets(language="45%", vision="25%"), "Less\n\nApproved-by: hanna\nReviewed-by: ravi\n")
    assert cli("reconcile", "--repo", ".").code == 0
    kept = json.loads(cli("get", "budgets", "--history", "-o", "json").out)["applied"][0]
    assert kept["approvers"] == ["hanna", "ravi"]
    assert kept["plan"] == "change     language  share 50% -> 45%, effective 50% -> 45%"


def refused(cli: Cli, *arguments: str) -> str:
    """The one error of an apply that changed nothing."""
    before = applied(cli)
    done = cli("apply", *arguments)
    assert (done.code, done.out) == (1, "")
    assert "hint: " in done.err
    assert applied(cli) == before
    return done.err


def test_a_checksum_that_is_given_is_always_checked(planned: Path, cli: Cli) -> None:
    """Another one, and one that is too short to mean one plan (octodns --checksum: it was looked at only at times)."""
    assert "the checksum of" in refused(cli, str(planned), "--checksum", "0" * 64)
    short = cli("apply", str(planned), "--checksum", "0")
    assert (short.code, "has 1 digits; 12 at least" in short.err) == (64, True)


def test_a_file_that_was_changed_is_not_applied(planned: Path, cli: Cli) -> None:
    """Neither what is shown nor the tree itself can be exchanged."""
    data = json.loads(planned.read_text())
    for change in ({"notes": ["all is well"]}, {"tree": {**data["tree"], "cluster": "other"}}, {"descends": False}):
        planned.write_text(json.dumps({**data, **change}))
        refused(cli, str(planned))
    for text in ("", "{", "[]", "null", '{"format": 1}', "[" * 100_000):
        planned.write_text(text)
        assert "plan" in refused(cli, str(planned))
    planned.write_bytes(b"\xff\xfe")
    assert "it is not JSON" in refused(cli, str(planned))
    assert "cannot be read: no such file" in refused(cli, str(planned.parent / "none"))
    assert "cannot be read: is a directory" in refused(cli, str(planned.parent))


def test_a_plan_is_for_one_state_of_the_daemon_only(repo: GitRepo, planned: Path, cli: Cli) -> None:
    """If somebody else applied something meanwhile, what was reviewed is not what would happen."""
    repo.git("switch", "--quiet", "main")
    other = repo.commit({"README.md": "words"})
    assert cli("reconcile", "--repo", ".").code == 0
    assert f"but the daemon has commit {other[:12]} by now" in refused(cli, str(planned))


def test_only_a_commit_that_comes_after_what_is_applied_can_be_applied(repo: GitRepo, cli: Cli, tmp_path: Path) -> None:
    """Not a folder, not a merge that nobody has made, and not a commit beside or before."""
    file = str(tmp_path / "other.json")
    assert cli("plan", "--against", "daemon", "--out", file).code == 0
    assert "this plan is of a folder" in refused(cli, file)
    repo.git("switch", "--quiet", "--detach", "main")
    repo.commit({"README.md": "words"})
    assert cli("plan", "topic", "--against", "HEAD", "--out", file).code == 0
    assert "of a commit that is not merged yet" in refused(cli, file)
    repo.git("switch", "--quiet", "--orphan", "elsewhere")
    repo.commit(budgets(language="30%"))
    planned = cli("plan", "HEAD", "--against", "daemon", "--out", file)
    assert "note: HEAD (" in planned.out
    assert "so it cannot be applied" in planned.out
    assert "does not descend from the daemon" in refused(cli, file)


def test_a_plan_from_stdin_against_a_ref_is_applied(
    repo: GitRepo, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A plan that was made without the daemon fits if the daemon has that very commit."""
    assert cli("plan", "topic", "--against", "main", "--out", str(tmp_path / "p.json")).code == 0
    data = (tmp_path / "p.json").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert cli("apply", "-").code == 0
    assert applied(cli)[0] == repo.git("rev-parse", "topic")


# with a small server in the daemon's place


@pytest.fixture
def server(repo: GitRepo, monkeypatch: pytest.MonkeyPatch) -> Iterator[BudgetsServer]:
    """A server that has nothing yet, and can be told to fail."""
    assert repo
    with budgets_server() as state:
        monkeypatch.setenv("GPUBUDGET_URL", state.url)
        yield state


def test_the_first_tree_of_a_daemon_can_be_applied_from_a_plan(
    repo: GitRepo, server: BudgetsServer, cli: Cli, tmp_path: Path
) -> None:
    """A daemon that has nothing is a state like any other; later it is not that state any more."""
    file = str(tmp_path / "first.json")
    server.answers = [(404, {"title": "x", "detail": "no budgets have been applied yet"}), (200, {"budgets": []})]
    assert cli("plan", "main", "--against", "daemon", "--out", file).code == 0
    done = cli("apply", file)
    assert done.out.startswith(f"applied main ({repo.git('rev-parse', 'main')[:12]}), the first: 3 to add")
    assert server.applied is not None
    assert (server.applied["descends_from"], server.applied["force"]) == (None, False)
    server.applied = {**server.applied, "commit": "1" * 40}
    done = cli("apply", file)
    assert (done.code, "but the daemon has commit 111111111111 by now" in done.err) == (1, True)


def test_a_daemon_with_other_budgets_than_git_is_told(planned: Path, server: BudgetsServer, cli: Cli) -> None:
    """The commit is the one that was planned for, and what it stands for is not."""
    before = json.loads(planned.read_text())["before"]
    tree = json.loads(planned.read_text())["tree"]
    server.applied = {"tree": tree, "commit": before["commit"], "digest": "0" * 64}
    done = cli("apply", str(planned))
    assert (done.code, "but the daemon has other budgets than git for commit" in done.err) == (1, True)
    server.applied = None
    assert "but the daemon has no budgets by now" in cli("apply", str(planned)).err


def test_drift_is_shown_below_the_plan(repo: GitRepo, planned: Path, server: BudgetsServer, cli: Cli) -> None:
    """What the daemon has and git does not have, apart from the change, which it is no part of."""
    tree = json.loads(planned.read_text())["tree"]
    server.applied = {
        "tree": tree,
        "commit": repo.git("rev-parse", "main"),
        "digest": json.loads(planned.read_text())["after"]["digest"],
    }
    repo.git("switch", "--quiet", "main")
    done = cli("plan", "HEAD")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[0].startswith("No changes: HEAD (")
    begin = lines.index("Drift: for its commit the daemon has what git has not. Applying takes this back:")
    assert lines[begin + 2] == "~ language 50% -> 40% 50% -> 40% 12 -> 9.6 2,016 -> 1,613 share"
    assert "Drift: 0 to add, 1 to change, 0 to move, 0 to remove; 1 more follows." in lines


def test_what_was_sent_is_read_back(planned: Path, server: BudgetsServer, cli: Cli) -> None:
    """An answer that says yes is not enough."""
    before = json.loads(planned.read_text())["before"]
    tree = json.loads(planned.read_text())["tree"]
    server.applied = {"tree": tree, "commit": before["commit"], "digest": before["digest"]}
    kept = {"applied": [server.applied]}
    server.answers = [(200, kept), (200, {"applied": True}), (200, kept)]
    done = cli("apply", str(planned))
    assert (done.code, "was sent and accepted, but what the daemon has now is" in done.err) == (1, True)
    server.answers = [(200, kept), (200, {"applied": True}), (200, {"applied": []})]
    assert "what the daemon has now is nothing" in cli("apply", str(planned)).err
    server.answers = [(200, {"applied": [{}]})]
    assert "the daemon's budgets cannot be read" in cli("apply", str(planned)).err
