"""Reconciling real repositories with a small server that can fail at every step."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gpubudget.cli.client import Client
from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.gitops import reconcile as module
from gpubudget.gitops import record, target
from gpubudget.gitops.gitprocess import RepositoryError
from gpubudget.gitops.lock import exclusive
from gpubudget.gitops.plan import Action
from gpubudget.gitops.reconcile import Emergency, Order, folder_for, reconcile
from gpubudget.gitops.record import read
from gpubudget.gitops.report import Report, Status, lines
from gpubudget.gitops.repository import Repository, open_repository
from gpubudget.gitops.safety import Limits
from gpubudget.gitops.source import parse_source
from gpubudget.gitops.target import Daemon
from tests.budgets_server import BudgetsServer, Fault, budgets_server, close_connection, problem
from tests.conftest import GitRepo

CLUSTER = "kind: Cluster\nname: lab\npools:\n  h100: {gpus_per_host: 8, hosts: 3}\n"
ROOT = "kind: Budget\ntitle: Lab\nmanagers: [hanna]\nmembers: [hanna]\nchildren:\n"


def with_shares(**shares: str) -> dict[str, str | None]:
    """The root with these shares and what else it had; without any it has no children."""
    merged = {"language": "50%", "vision": "25%"} | shares if shares else {}
    rows = "".join(f"  {name}: {{share: {share}, members: [{name}-lead]}}\n" for name, share in merged.items())
    return {"budgets/budget.yaml": ROOT + rows if rows else ROOT.replace("children:\n", "")}


TREE: dict[str, str | None] = {"budgets/cluster.yaml": CLUSTER, **with_shares(language="50%", vision="25%")}


@pytest.fixture
def repo(git_repo: Callable[[str], GitRepo]) -> GitRepo:
    return git_repo("work")


@pytest.fixture
def server() -> Iterator[BudgetsServer]:
    with budgets_server() as state:
        yield state


@pytest.fixture
def order(repo: GitRepo, tmp_path: Path) -> Order:
    return Order(parse_source(str(repo.path)), "main", "budgets", tmp_path / "folder", waits=(0.01, 0.01))


@pytest.fixture
def run(server: BudgetsServer, order: Order) -> Iterator[Callable[..., Report]]:
    with Client(server.url, "gpb_token") as client:
        client.lost_answers = 1  # type: ignore[misc] # what is tried again here is what the reconciler does
        yield lambda **other: reconcile(replace(order, **other), Daemon(client), 1_790_000_000_000)


Run = Callable[..., Report]


def fails(report: Report, status: Status = Status.FAILED) -> str:
    """The error of a report that applied nothing and says so."""
    assert (report.status, report.exit_code) == (status, 1)
    assert report.hint
    assert "nothing is applied" in lines(report)[-1]
    return report.error


# applying


def test_the_first_commit_is_applied_whole(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """The tree goes out in one request with commit, author, time and digest, and is read back."""
    commit = repo.commit(TREE)
    report = run()
    assert (report.status, report.commit, report.previous, report.budgets) == (Status.APPLIED, commit, "", 3)
    assert report.plan.counts() == {"added": 3, "removed": 0, "moved": 0, "changed": 0}
    assert server.requests == ["GET", "PUT", "GET"]
    assert server.applied is not None
    tree = plain.decode(Tree, server.applied["tree"])
    assert [budget.path for budget in tree.budgets()] == ["/", "language", "vision"]
    assert server.applied["digest"] == plain.digest(tree)
    assert server.applied["author"] == "Hanna <hanna@example.org>"
    assert (server.applied["committed_ms"], server.applied["descends_from"]) == (1_790_856_000_000, None)


def test_a_commit_on_top_is_applied_with_what_it_descends_from(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """The request names the applied commit that was checked to be an ancestor, even some commits back."""
    first = repo.commit(TREE)
    run()
    repo.commit({"README.md": "between"})
    second = repo.commit(with_shares(language="40%", vision="25%"))
    report = run()
    assert (report.status, report.previous, server.commit) == (Status.APPLIED, first, second)
    assert server.applied is not None
    assert (server.applied["descends_from"], server.applied["force"]) == (first, False)
    assert [(change.action, change.path) for change in report.plan.changes] == [(Action.CHANGED, "language")]
    assert "change     language  share 50% -> 40%, effective 50% -> 40%" in lines(report)


def test_the_same_commit_again_sends_nothing(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """Reconciling what is applied is one read."""
    repo.commit(TREE)
    run()
    server.requests.clear()
    report = run()
    assert (report.status, report.exit_code, server.requests) == (Status.UNCHANGED, 0, ["GET"])


def test_a_commit_that_changes_no_budget_still_moves_the_applied_commit(
    repo: GitRepo, server: BudgetsServer, run: Run
) -> None:
    """The daemon keeps up with the branch, so that later commits are compared with the right one."""
    repo.commit(TREE)
    run()
    second = repo.commit({"README.md": "words"})
    report = run()
    assert (report.status, server.commit) == (Status.APPLIED, second)
    assert not report.plan


def test_a_dry_run_shows_and_sends_nothing(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """What would change is reported; the daemon is only read."""
    repo.commit(TREE)
    report = run(dry_run=True)
    assert (report.status, report.exit_code) == (Status.PLANNED, 0)
    assert (report.plan.counts()["added"], server.requests, server.applied) == (3, ["GET"], None)


def test_only_the_named_ref_and_folder_are_applied(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """Another branch's budgets, or those of a pull request's ref, are not looked at (safe-settings#339)."""
    commit = repo.commit(TREE)
    repo.git("switch", "--quiet", "--create", "proposal")
    repo.commit(with_shares(language="70%"))
    repo.git("update-ref", "refs/pull/1/head", "HEAD")
    assert run().status is Status.APPLIED
    assert server.commit == commit


def test_a_url_is_mirrored_and_applied(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """The same through a mirror, which keeps up with new commits."""
    repo.commit(TREE)
    assert run(source=parse_source(repo.url)).status is Status.APPLIED
    second = repo.commit(with_shares(language="10%"))
    assert run(source=parse_source(repo.url)).status is Status.APPLIED
    assert server.commit == second


# refusing


def test_an_older_commit_is_refused(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """A branch that was set back does not undo what is applied (kustomize-controller#1583)."""
    first = repo.commit(TREE)
    second = repo.commit(with_shares(language="10%"))
    run()
    repo.git("reset", "--quiet", "--hard", first)
    report = run()
    assert f"commit {first} does not descend from {second}, which is applied and is newer" in fails(
        report, Status.REFUSED
    )
    assert "--force" in report.hint
    assert server.commit == second
    assert report.plan.counts()["changed"] == 1


def test_a_rewritten_history_is_refused_and_force_names_what_it_forces(
    repo: GitRepo, server: BudgetsServer, run: Run
) -> None:
    """A commit beside the applied one needs --force, as the refusal says; the report names it (argo-cd#10987)."""
    base = repo.commit(TREE)
    old = repo.commit(with_shares(language="10%"))
    run()
    repo.git("reset", "--quiet", "--hard", base)
    new = repo.commit(with_shares(vision="10%"))
    assert fails(run(), Status.REFUSED) == f"commit {new} does not descend from {old}, which is applied"
    report = run(force=True)
    assert (report.status, server.commit) == (Status.APPLIED, new)
    assert report.notes == (f"forced although commit {new} does not descend from {old}, which is applied",)
    assert server.applied is not None
    assert (server.applied["force"], server.applied["descends_from"]) == (True, None)


def test_force_without_need_forces_nothing(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """With a sound commit the daemon's own check stays on."""
    repo.commit(TREE)
    assert run(force=True).notes == ()
    assert server.applied is not None
    assert server.applied["force"] is False


def test_a_repository_that_does_not_know_the_applied_commit_is_refused(
    repo: GitRepo, git_repo: Callable[[str], GitRepo], server: BudgetsServer, run: Run
) -> None:
    """Budgets of another repository are not mixed in."""
    repo.commit(TREE)
    run()
    other = git_repo("other")
    other.commit({**TREE, "README.md": "other"})
    report = run(source=parse_source(str(other.path)))
    assert fails(report, Status.REFUSED).endswith("which is applied and is not in this repository")
    assert server.requests.count("PUT") == 1


def test_a_shallow_clone_that_cannot_tell_is_refused(
    repo: GitRepo, server: BudgetsServer, run: Run, tmp_path: Path
) -> None:
    """Where history is cut off, the doubt is named (pydriller PR#326)."""
    repo.commit(TREE)
    run()
    repo.commit(with_shares(language="10%"))
    repo.git("clone", "--quiet", "--depth=1", repo.url, str(tmp_path / "shallow"))
    shallow = parse_source(str(tmp_path / "shallow"))
    assert "not in this repository, whose history is cut off (a shallow clone)" in fails(
        run(source=shallow), Status.REFUSED
    )
    assert server.applied is not None
    GitRepo(tmp_path / "shallow").git("fetch", "--quiet", "--depth=1", "origin", server.applied["commit"])
    assert "history is cut off here (a shallow clone), so it may" in fails(run(source=shallow), Status.REFUSED)


def test_a_tree_that_removes_every_budget_is_refused(repo: GitRepo, run: Run) -> None:
    """A root without children is not applied over budgets unless it is forced."""
    repo.commit(TREE)
    run()
    commit = repo.commit(with_shares())
    assert fails(run(), Status.REFUSED) == f"commit {commit} would remove all 2 budgets below the root"
    assert run(force=True).status is Status.APPLIED
    assert run().status is Status.UNCHANGED


def test_the_first_tree_may_have_a_root_only(repo: GitRepo, run: Run) -> None:
    """A small group may begin with no budgets below the root."""
    repo.commit({**TREE, **with_shares()})
    assert run().status is Status.APPLIED


# reading that fails


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"budgets/budget.yaml": ROOT + "  a: 80%\n  b: 30%\n"}, "share-sum"),
        ({"budgets/budget.yaml": ROOT + "  a: 10%\n  a: 20%\n"}, "duplicate-key"),
        ({"budgets/budget.yaml": ""}, "yaml-empty"),
        ({"budgets/budget.yaml": None}, "file-missing"),
        ({"budgets/cluster.yaml": "pools: [\n"}, "yaml-syntax"),
        ({"budgets/other/budget.yaml": ROOT + "  a: 10%\n"}, "folder-not-listed"),
    ],
)
def test_a_broken_tree_applies_nothing_and_shows_every_problem(
    repo: GitRepo, server: BudgetsServer, run: Run, change: dict[str, str | None], rule: str
) -> None:
    """All is validated first: the daemon keeps its last good tree, and is not asked (volcano#4818, octodns#618)."""
    good = repo.commit(TREE)
    run()
    server.requests.clear()
    commit = repo.commit(change)
    report = run()
    assert f"the budgets at commit {commit} have " in fails(report)
    assert rule in {diagnostic.rule for diagnostic in report.problems}
    assert (server.commit, server.requests) == (good, [])


def test_links_in_the_tree_are_problems_like_others(repo: GitRepo, run: Run) -> None:
    """A link and a bad share are told together (CVE-2022-24904)."""
    (repo.path / "budgets").mkdir()
    (repo.path / "budgets/vision").symlink_to("/etc")
    repo.commit({**TREE, **with_shares(language="200%")})
    assert {diagnostic.rule for diagnostic in run().problems if diagnostic.is_error} == {"file-link", "share-syntax"}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"ref": "nope"}, "has no branch or tag 'nope'"),
        ({"path": "nope"}, "there is no folder 'nope'"),
        ({"path": "docs"}, "has no YAML files"),
        ({"ref": "-x"}, "is not the name of a branch or tag"),
    ],
)
def test_a_failure_to_read_is_never_an_empty_tree(
    repo: GitRepo, server: BudgetsServer, run: Run, other: dict[str, str], said: str
) -> None:
    """A missing ref, a missing or empty folder: nothing is applied or removed (argo-cd#2573, #3484)."""
    commit = repo.commit({**TREE, "docs/x.md": "x"})
    run()
    assert said in fails(run(**other))
    assert server.commit == commit
    assert server.requests.count("PUT") == 1


def test_warnings_do_not_stop_a_tree(repo: GitRepo, run: Run) -> None:
    """They are in the report."""
    repo.commit({**TREE, "budgets/budget.yaml": "kind: Budget\nchildren:\n  a: 10%\n"})
    report = run()
    assert report.status is Status.APPLIED
    assert "manager-missing" in {diagnostic.rule for diagnostic in report.problems}
    number = len(report.problems)
    assert f"validated  2 budgets, {number} warnings (gpubudget validate shows them)" in lines(report)


# drift


def test_drift_at_the_same_commit_is_told_and_put_right(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """The daemon has another tree than git says for its commit: said, and applied again."""
    commit = repo.commit(TREE)
    run()
    assert server.applied is not None
    wanted = server.applied["digest"]
    server.applied["tree"]["cluster"] = "elsewhere"
    server.applied["digest"] = plain.digest(plain.decode(Tree, server.applied["tree"]))
    assert run(dry_run=True).status is Status.PLANNED
    report = run()
    assert (report.status, server.applied["digest"]) == (Status.APPLIED, wanted)
    assert report.notes == (f"drift: the daemon's budgets for commit {commit} are not those that git has there",)
    assert [setting.name for setting in report.plan.settings] == ["cluster"]


def test_drift_at_an_older_commit_is_told_too(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """The applied commit is compared with git even when a newer one is about to be applied."""
    first = repo.commit(TREE)
    run()
    assert server.applied is not None
    server.applied["digest"] = "0" * 64
    repo.commit(with_shares(language="10%"))
    report = run()
    assert report.status is Status.APPLIED
    assert f"drift: the daemon's budgets for commit {first}" in report.notes[0]


def test_an_applied_commit_that_cannot_be_read_any_more_is_no_drift(
    repo: GitRepo, server: BudgetsServer, run: Run
) -> None:
    """Budgets that moved to another folder, or were valid under other rules, are not compared."""
    repo.commit({name.replace("budgets/", "old/"): text for name, text in TREE.items()})
    run(path="old")
    repo.git("mv", "old", "budgets")
    second = repo.commit({})
    report = run()
    assert (report.status, report.notes, server.commit) == (Status.APPLIED, (), second)
    repo.commit({"budgets/cluster.yaml": "broken"})
    assert server.applied is not None
    server.applied["commit"] = repo.git("rev-parse", "HEAD")
    repo.commit({"budgets/cluster.yaml": CLUSTER})
    assert run().notes == ()


# a daemon that is away, refuses, or lies


def test_a_daemon_that_is_away_for_a_moment_is_asked_again(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """Closed connections and 503 are waited out, within bounds."""
    commit = repo.commit(TREE)
    server.before = [close_connection, close_connection]
    assert run().status is Status.APPLIED
    assert server.commit == commit
    assert server.requests == ["GET", "GET", "GET", "PUT", "GET"]


def test_a_daemon_that_stays_away_ends_with_75(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """After the last pause the report says that it is unreachable."""
    repo.commit(TREE)
    server.answers = [problem(503, "starting")] * 3
    report = run()
    assert (report.status, report.exit_code, report.error) == (Status.FAILED, 75, "starting")
    assert server.requests == ["GET"] * 3


def test_an_answer_lost_after_applying_is_found_out(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """The request is sent again, the daemon says that it has it already, and that is success."""
    repo.commit(TREE)
    run()
    second = repo.commit(with_shares(language="60%"))
    server.requests.clear()
    server.after = [lambda _: False, close_connection]
    assert run().status is Status.APPLIED
    assert (server.commit, server.requests) == (second, ["GET", "PUT", "PUT", "GET"])


def test_a_refusal_of_the_daemon_is_not_tried_again(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """Another reconciler was quicker: the daemon's check refuses, and the report says so once."""
    repo.commit(TREE)
    run()
    repo.commit(with_shares(language="60%"))
    server.requests.clear()

    def somebody_else(state: BudgetsServer) -> bool:
        assert state.applied is not None
        state.applied["commit"] = "f" * 40
        return False

    server.before = [lambda _: False, somebody_else]
    assert "f" * 40 in fails(run(), Status.REFUSED)
    assert server.requests == ["GET", "PUT"]


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (400, 1), (500, 1)])
def test_other_errors_of_the_daemon_end_it_at_once(
    repo: GitRepo, server: BudgetsServer, run: Run, status: int, code: int
) -> None:
    """No token, no right, a fault: told with the daemon's own words and the right exit code."""
    repo.commit(TREE)
    server.answers = [problem(status, "says no")]
    report = run()
    assert (report.status, report.exit_code, report.error, server.requests) == (Status.FAILED, code, "says no", ["GET"])


@pytest.mark.parametrize("answer", [{}, {"tree": {"kind": "Tree"}, "commit": "x", "digest": "y"}, {"tree": None}])
def test_budgets_of_the_daemon_that_cannot_be_read_are_not_no_budgets(
    repo: GitRepo, server: BudgetsServer, run: Run, answer: dict[str, object]
) -> None:
    """An answer of another version is an error, not "nothing is applied yet"."""
    repo.commit(TREE)
    server.answers = [(200, answer)]
    assert "the daemon's budgets cannot be read: " in fails(run())
    assert server.requests == ["GET"]


def then_answers(answer: tuple[int, dict[str, Any]]) -> Fault:
    """Lets this request pass, and answers the next one so."""

    def fault(state: BudgetsServer) -> bool:
        state.answers.append(answer)
        return False

    return fault


def test_what_is_read_back_must_be_what_was_sent(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """An accepted request after which the daemon has something else is a failure with both named."""
    commit = repo.commit(TREE)
    server.after = [lambda _: False, then_answers(problem(404, "none"))]
    assert fails(run()) == f"commit {commit} was sent and accepted, but what the daemon has now is nothing"
    assert server.applied is not None
    other = json.loads(json.dumps({**server.applied, "commit": "e" * 40}))
    repo.commit({"README.md": "x"})
    server.after = [lambda _: False, then_answers((200, other))]
    assert f"what the daemon has now is {'e' * 40}" in fails(run())


class _Gone(BaseException):
    """Stands for the end of the process, wherever it is."""


ENDS: dict[str, tuple[object, str, bool, int]] = {
    "before opening the repository": (module, "open_repository", False, 1),
    "after the fetch": (Repository, "fetch", True, 1),
    "after validating": (module, "load_tree", True, 1),
    "after asking the daemon": (Daemon, "applied", True, 1),
    "after comparing histories": (Repository, "is_ancestor", True, 1),
    "before asking who is at work": (Daemon, "protected", False, 1),
    "after asking who is at work": (Daemon, "protected", True, 1),
    "before sending": (Daemon, "apply", False, 1),
    "after sending": (Daemon, "apply", True, 1),
    "before reading back": (Daemon, "applied", False, 2),
    "after reading back": (Daemon, "applied", True, 2),
    "before the record": (record, "write", False, 1),
    "after the record": (record, "write", True, 1),
}
SENT = list(ENDS)[-5:]


@pytest.mark.parametrize("step", ENDS)
def test_an_end_between_any_two_steps_leaves_a_whole_tree(
    repo: GitRepo, server: BudgetsServer, run: Run, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The daemon has the old tree or the new one, the lock is free, and the next round finishes the work."""
    first = repo.commit(TREE)
    run()
    old = json.dumps(server.applied)
    second = repo.commit(with_shares(language="10%"))
    where, name, after, call = ENDS[step]
    real, calls = getattr(where, name), itertools.count(1)

    def ends(*arguments: object) -> object:
        last = next(calls) == call
        if last and not after:
            raise _Gone
        result = real(*arguments)
        if last:
            raise _Gone
        return result

    with monkeypatch.context() as patch:
        patch.setattr(where, name, ends)
        with pytest.raises(_Gone):
            run()
    if step in SENT:
        assert server.commit == second
    else:
        assert (server.commit, json.dumps(server.applied)) == (first, old)
    assert run().status in {Status.APPLIED, Status.UNCHANGED}
    assert server.commit == second


# the lock


def test_of_two_at_once_one_works_and_the_other_says_so(
    repo: GitRepo, server: BudgetsServer, run: Run, order: Order
) -> None:
    """The second ends well without reading git or asking the daemon."""
    repo.commit(TREE)
    with exclusive(order.folder) as alone:
        assert alone
        report = run()
        assert (report.status, report.exit_code, server.requests) == (Status.BUSY, 0, [])
        assert lines(report) == ["busy       another reconciliation is at work; left to it"]
    assert run().status is Status.APPLIED


def test_the_ref_is_read_under_the_lock(repo: GitRepo, run: Run, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that comes while the lock is waited for is the one that is applied (ibm-mas/cli PR#1264)."""
    repo.commit(TREE)

    def opened_under_lock(*arguments: object) -> object:
        with exclusive(order.folder) as alone:
            assert not alone
        return open_repository(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "open_repository", opened_under_lock)
    assert run().status is Status.APPLIED


def test_a_lock_that_cannot_be_kept_is_one_clear_sentence(repo: GitRepo, run: Run, tmp_path: Path) -> None:
    """A cache folder that is a file is named, with the way out."""
    repo.commit(TREE)
    (tmp_path / "file").write_text("")
    report = run(folder=tmp_path / "file/x")
    assert "cannot keep a lock in" in fails(report)
    assert "--cache-dir" in report.hint


def test_each_repository_and_daemon_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks and mirrors are kept apart, below the given folder, the XDG one or the home folder's.

    A folder is the same one however it is written.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    assert len({folder_for(tmp_path, parse_source(text), "x") for text in (".", "./link/", str(tmp_path))}) == 1
    one, two = parse_source("https://host/a.git"), parse_source("https://host/b.git")
    folders = {folder_for(tmp_path, source, target) for source in (one, two) for target in ("http://x", "http://y")}
    assert len(folders) == 4
    assert all(folder.parent == tmp_path / "reconcile" for folder in folders)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder_for(None, one, "x").is_relative_to(tmp_path / "xdg/gpubudget")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert folder_for(None, one, "x").is_relative_to(tmp_path / "home/.cache/gpubudget")


def test_errors_of_a_repository_say_that_the_daemon_keeps_what_it_has() -> None:
    """The hint is there without anybody thinking of it."""
    assert RepositoryError("x").hint == "nothing is applied; the daemon keeps what it has"


# what would go too far


def works(budget: str, owner: str = "ben", gpus: int = 8, until: int = 2_000_000_000_000) -> dict[str, Any]:
    """A workload as the daemon lists it."""
    attempt = {"pool": "h100", "allocated": True, "protected_until_ms": until}
    return {"id": f"w-{budget}", "budget": budget, "owner": owner, "gpus": gpus, "attempt": attempt}


def test_a_commit_that_removes_too_many_budgets_is_refused_with_the_numbers(
    repo: GitRepo, server: BudgetsServer, run: Run
) -> None:
    """Half of a small tree is too much at once; the limit is told, and a person may raise it or force it."""
    first = repo.commit({**TREE, **with_shares(tools="5%")})
    run()
    commit = repo.commit({**TREE, "budgets/budget.yaml": ROOT + "  language: {share: 50%, members: [language-lead]}\n"})
    report = run()
    assert fails(report, Status.REFUSED) == (
        f"commit {commit} would remove 2 of 3 budgets (66.7%): vision, tools; at most 10 and 1/3 go at once"
    )
    assert "previously" in report.hint
    assert "--force" in report.hint
    assert server.commit == first
    assert run(limits=Limits(removed_part=Fraction(2, 3))).status is Status.APPLIED


def test_a_commit_that_takes_from_people_at_work_is_refused_with_their_names(
    repo: GitRepo, server: BudgetsServer, run: Run
) -> None:
    """The part of the pool, who loses what, and who works there; force says what it forces."""
    repo.commit(TREE)
    run()
    server.workloads = [works("language", "ben", 16), works("language", "eva"), works("vision", until=1)]
    commit = repo.commit(with_shares(language="10%", vision="10%"))
    doubt = (
        f"commit {commit} would move 40.0% of pool h100 away from people with protected work: "
        "language loses 40.0% (ben 16 GPUs, eva 8 GPUs); at most 25% moves at once"
    )
    assert fails(run(dry_run=True), Status.REFUSED) == doubt
    report = run(force=True)
    assert (report.status, report.notes) == (Status.APPLIED, (f"forced although {doubt}",))
    assert server.applied is not None
    assert server.applied["notes"] == [f"forced although {doubt}"]


def test_a_refused_commit_is_not_tried_again_by_itself(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """Even when nobody is at work any more: a person decides, or a new commit does."""
    repo.commit(TREE)
    run()
    server.workloads = [works("language")]
    commit = repo.commit(with_shares(language="10%"))
    assert "would move 40.0%" in fails(run(), Status.REFUSED)
    server.workloads = []
    server.requests.clear()
    report = run()
    assert fails(report, Status.REFUSED).startswith(
        f"commit {commit} was refused at 2026-09-21T14:13:20Z, and is not tried again: commit {commit} would move"
    )
    assert server.requests == ["GET"]
    assert "was refused at" in fails(run(), Status.REFUSED)
    assert run(limits=Limits(moved=Fraction(1, 5)), dry_run=True).status is Status.PLANNED
    forced = run(force=True)
    assert forced.notes[0].startswith(f"forced although commit {commit} was refused before: ")
    assert run().status is Status.UNCHANGED
    repo.commit({"README.md": "x"})
    assert run().status is Status.APPLIED


def test_a_tree_that_the_daemon_refuses_is_not_sent_again(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """Its words are told each time, and one request was enough; the next commit is tried."""
    repo.commit(TREE)
    server.after = [then_answers(problem(400, "no such thing"))]
    assert fails(run(), Status.REFUSED) == "no such thing"
    server.requests.clear()
    assert "is not tried again: no such thing" in fails(run(), Status.REFUSED)
    assert server.requests == ["GET"]
    repo.commit({"README.md": "x"})
    assert run().status is Status.APPLIED


def test_work_that_the_daemon_cannot_tell_is_not_no_work(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """An answer of another version is an error."""
    repo.commit(TREE)
    run()
    server.workloads = [{"id": "x"}]
    repo.commit(with_shares(language="10%"))
    assert "the daemon's workloads cannot be read: 'attempt' is missing" in fails(run())


def test_all_pages_of_the_work_are_read(
    repo: GitRepo, server: BudgetsServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands on a later page counts too."""
    monkeypatch.setattr(target, "_PAGE", 1)
    repo.commit(TREE)
    run()
    repo.commit(with_shares(language="10%"))
    page = {"workloads": [works("language")]}
    server.after = [then_answers((200, page)), then_answers((200, {"workloads": []}))]
    assert "(ben 8 GPUs)" in fails(run(), Status.REFUSED)


# signatures


def test_a_commit_must_be_signed_where_that_is_required(
    repo: GitRepo, server: BudgetsServer, run: Run, tmp_path: Path
) -> None:
    """Force does not go around it; who signed is in the report and on the daemon's record."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    signers = tmp_path / "signers"
    signers.write_text(f"hanna {(tmp_path / 'key.pub').read_text()}")
    commit = repo.commit(TREE)
    assert fails(run(signers=(signers,), force=True), Status.REFUSED) == f"commit {commit} is not signed"
    assert server.requests == []
    sign = ("-c", "gpg.format=ssh", "-c", f"user.signingkey={tmp_path / 'key'}")
    repo.git(*sign, "commit", "--quiet", "-S", "--allow-empty", "--message", "signed")
    report = run(signers=(signers,))
    assert (report.status, report.signer[:14]) == (Status.APPLIED, "hanna (SHA256:")
    assert server.applied is not None
    assert server.applied["notes"] == [f"signed by {report.signer}"]


# suspended


def test_while_suspended_the_plan_is_shown_and_nothing_is_sent(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """Who did it, when and why; it is no failure, and force goes around it and says so."""
    repo.commit(TREE)
    run()
    server.suspended = {"by": "hanna", "reason": "we count", "at_ms": 0}
    assert run().notes == ("suspended by hanna since 1970-01-01T00:00:00Z: we count",)
    second = repo.commit(with_shares(language="60%"))
    server.requests.clear()
    report = run()
    assert (report.status, report.exit_code, server.requests) == (Status.SUSPENDED, 0, ["GET"])
    assert report.plan.counts()["changed"] == 1
    assert lines(report)[-1] == (
        "suspended  nothing is applied, suspended by hanna since 1970-01-01T00:00:00Z: we count"
    )
    assert run(force=True).notes == ("forced although suspended by hanna since 1970-01-01T00:00:00Z: we count",)
    assert server.commit == second


def test_what_was_refused_only_because_of_the_moment_is_tried_again(
    repo: GitRepo, server: BudgetsServer, run: Run
) -> None:
    """Suspended before there is anything to show, the daemon itself refuses; once resumed, the same commit goes in."""
    commit = repo.commit(TREE)
    server.suspended = {"by": "hanna", "reason": "not yet", "at_ms": 0}
    assert fails(run(), Status.REFUSED) == "nothing is applied since somebody suspended it"
    server.suspended = None
    assert run().status is Status.APPLIED
    assert server.commit == commit


# emergencies


def test_an_emergency_applies_a_commit_of_the_history_and_suspends(
    repo: GitRepo, server: BudgetsServer, run: Run
) -> None:
    """The record says who it was instead of, and the next round does not undo it."""
    first = repo.commit(TREE)
    second = repo.commit(with_shares(language="60%"))
    run()
    report = run(emergency=Emergency(first, "the new shares were a slip"), force=True)
    assert (report.status, server.commit) == (Status.APPLIED, first)
    assert report.notes == (
        f"an emergency: commit {first} instead of {second}: the new shares were a slip",
        f"forced although commit {first} does not descend from {second}, which is applied and is newer",
    )
    assert server.applied is not None
    assert (server.applied["notes"], server.applied["force"]) == (list(report.notes), True)
    assert server.suspended is not None
    assert server.suspended["reason"] == f"commit {first[:12]} was applied by force: the new shares were a slip"
    assert run().status is Status.SUSPENDED
    server.suspended = None
    assert run().status is Status.APPLIED
    assert server.commit == second


def test_an_emergency_is_for_commits_of_the_ref_only(repo: GitRepo, server: BudgetsServer, run: Run) -> None:
    """An unknown commit and one of another branch are refused."""
    repo.commit(TREE)
    repo.git("switch", "--quiet", "--create", "proposal")
    other = repo.commit(with_shares(language="60%"))
    for commit in (other, "0" * 40):
        report = run(emergency=Emergency(commit, "x"), force=True)
        assert fails(report) == f"commit {commit} is not in the history of main"
    assert server.requests == []


# the record


def test_the_record_says_how_it_stands_and_since_when(repo: GitRepo, order: Order, run: Run) -> None:
    """Seen, applied, the status and since when, and why not; a dry run leaves no trace."""
    first = repo.commit(TREE)
    run(dry_run=True)
    assert read(order.folder) is None
    run()
    second = repo.commit({"budgets/budget.yaml": "broken"})
    run()
    run()
    found = read(order.folder)
    assert found is not None
    assert (found.seen, found.applied, found.status, found.rounds) == (second, first, Status.FAILED, 2)
    assert f"the budgets at commit {second} have" in found.error


def test_a_record_that_cannot_be_written_does_not_undo_what_was_done(repo: GitRepo, order: Order, run: Run) -> None:
    """The report says so beside its result."""
    repo.commit(TREE)
    (order.folder / "status.json").mkdir(parents=True)
    report = run()
    assert report.status is Status.APPLIED
    assert "cannot write" in report.notes[0]
