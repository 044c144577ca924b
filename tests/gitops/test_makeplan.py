"""From a question to a review: real folders, commits, merges and a small daemon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpubudget.core import plain
from gpubudget.errors import ConflictError, GpuBudgetError, InvalidInputError, NotFoundError, UnreachableError
from gpubudget.gitops.folder import load_folder
from gpubudget.gitops.makeplan import Answer, Question, answer
from gpubudget.gitops.plan import Action
from gpubudget.gitops.sides import InvalidTreeError, read_valid
from gpubudget.gitops.target import Api
from tests.conftest import GitRepo

CLUSTER = "kind: Cluster\nname: lab\npools:\n  h100: {gpus_per_host: 8, hosts: 4}\n"
ROOT = "kind: Budget\nmanagers: [ines]\nmembers: [ines]\nchildren:\n"
NOW = 1_790_000_000_000


def shares(**found: str) -> dict[str, str | None]:
    rows = "".join(
        f"  {name}: {share if '{' in share else f'{{share: {share}, members: [x]}}'}\n" for name, share in found.items()
    )
    return {"budgets/cluster.yaml": CLUSTER, "budgets/budget.yaml": ROOT + rows}


class StubApi:
    """What a daemon answers: what is applied, and how budgets stand; or the error that it is away with."""

    def __init__(self) -> None:
        self.applied: dict[str, Any] | None = None
        self.standing: list[dict[str, Any]] = []
        self.error: GpuBudgetError | None = None

    def get(self, path: str, **_: object) -> dict[str, Any]:
        if self.error:
            raise self.error
        if path == "/v1/budgets":
            return {"budgets": self.standing}
        if self.applied is None:
            raise NotFoundError("no budgets have been applied yet")
        return self.applied

    def put(self, path: str, body: object) -> dict[str, Any]:
        raise AssertionError(path, body)

    def has(self, folder: Path, commit: str) -> None:
        tree = load_folder(folder).tree
        assert tree is not None
        self.applied = {"tree": plain.encode(tree), "commit": commit, "digest": plain.digest(tree)}


@pytest.fixture
def api() -> StubApi:
    return StubApi()


@pytest.fixture
def repo(git_repo: Callable[[str], GitRepo]) -> GitRepo:
    """Two commits on main: language at 50%, then at 40%."""
    found = git_repo("work")
    found.commit(shares(language="50%", vision="25%"))
    found.commit(shares(language="40%", vision="25%"))
    return found


@pytest.fixture
def ask(repo: GitRepo) -> Callable[..., Answer]:
    question = Question(repo.path / "budgets", "main", repo.path, "budgets", lambda _: NOW)

    def asked(api: Api | None = None, **other: object) -> Answer:
        return answer(replace(question, **other), api)  # type: ignore[arg-type]

    return asked


Ask = Callable[..., Answer]


def changed(found: Answer) -> list[tuple[Action, str]]:
    return [(change.action, change.path) for change in found.review.plan.changes]


def test_a_folder_is_compared_with_a_commit(repo: GitRepo, ask: Ask) -> None:
    """As it is on disk, committed or not; the folder has no commit, so nothing descends."""
    assert not ask().review.plan
    (repo.path / "budgets/budget.yaml").write_text(ROOT + "  language: {share: 45%, members: [x]}\n")
    found = ask()
    assert changed(found) == [(Action.CHANGED, "language"), (Action.REMOVED, "vision")]
    review = found.review
    assert (review.before.name, review.before.commit) == ("main", repo.git("rev-parse", "main"))
    assert (review.after.name, review.after.commit, review.after.budgets) == (str(repo.path / "budgets"), "", 2)
    assert (review.descends, review.as_of_ms, review.notes, review.drift) == (False, NOW, (), None)
    assert found.before is not None
    assert plain.digest(found.after) == review.after.digest


def test_two_commits_are_compared_with_their_authors_and_approvals(ask: Ask) -> None:
    """The later one descends from the earlier one; whoever has approved is told."""
    found = ask(after="HEAD", against="HEAD~1", approved_by=("ines",)).review
    assert (found.after.author, found.after.committed_ms) == ("Hanna <hanna@example.org>", 1_790_856_000_000)
    assert (found.descends, found.after.merged) == (True, "")
    assert [(one.path, one.what, one.approved_by) for one in found.approvals] == [("language", ("share",), ("ines",))]


def test_a_branch_that_is_behind_is_planned_as_it_will_be_merged(repo: GitRepo, ask: Ask) -> None:
    """What main has changed meanwhile is not taken back (atlantis#2084); both commits are named (atlantis#6023)."""
    repo.git("switch", "--quiet", "--create", "topic", "HEAD~1")
    topic = repo.commit({"budgets/cluster.yaml": CLUSTER.replace("hosts: 4", "hosts: 5")})
    found = ask(after="topic").review
    assert [setting.name for setting in found.plan.settings] == ["pools.h100.hosts"]
    assert not found.plan.changes
    assert (found.after.commit, found.after.merged) == (topic, found.before.commit)
    assert not found.descends


def test_a_branch_that_does_not_merge_is_one_clear_sentence(repo: GitRepo, ask: Ask) -> None:
    """Both sides changed the same line; no plan says what will come of that."""
    repo.git("switch", "--quiet", "--create", "topic", "HEAD~1")
    repo.commit(shares(language="30%", vision="25%"))
    with pytest.raises(ConflictError, match=r"both change budgets/budget\.yaml"):
        ask(after="topic")


def test_a_merge_that_breaks_the_rules_is_told_before_it_is_made(repo: GitRepo, ask: Ask) -> None:
    """Each branch is valid by itself; together the children sum to more than the whole."""
    repo.git("switch", "--quiet", "--create", "topic")
    lines = (repo.path / "budgets/budget.yaml").read_text().splitlines(keepends=True)
    many = "".join(f"# {number}\n" for number in range(9))
    repo.git("switch", "--quiet", "main")
    base = repo.commit({"budgets/budget.yaml": "".join([*lines[:4], lines[4], many, lines[5]])})
    repo.git("switch", "--quiet", "--force-create", "topic", base)
    repo.commit({"budgets/budget.yaml": "".join([*lines[:4], lines[4].replace("40%", "70%"), many, lines[5]])})
    repo.git("switch", "--quiet", "main")
    repo.commit({"budgets/budget.yaml": "".join([*lines[:4], lines[4], many, lines[5].replace("25%", "45%")])})
    with pytest.raises(InvalidTreeError, match="the budgets of topic merged into main have 1 error") as caught:
        ask(after="topic")
    assert [problem.rule for problem in caught.value.problems if problem.is_error] == ["share-sum"]
    assert caught.value.prefix == "budgets/"


def test_a_folder_whose_branch_is_behind_says_so(repo: GitRepo, ask: Ask) -> None:
    """What it lacks shows as taken back, and the note says how to see the merge."""
    repo.git("switch", "--quiet", "--detach", "HEAD~1")
    found = ask()
    assert changed(found) == [(Action.CHANGED, "language")]
    assert "lacks commits of main" in found.review.notes[0]
    assert "gpubudget plan HEAD" in found.review.notes[0]


def test_what_is_not_there_is_never_an_empty_tree(repo: GitRepo, ask: Ask) -> None:
    """A missing folder, an unknown commit and an invalid tree are errors (argo-cd#2573)."""
    for other in ({"path": "elsewhere"}, {"against": "nowhere"}, {"after": "nowhere"}, {"after": repo.path / "none"}):
        with pytest.raises(GpuBudgetError):
            ask(**other)
    repo.commit({"budgets/budget.yaml": "kind: Budget\nchildren: {a: 200%}\n"})
    with pytest.raises(InvalidTreeError, match="the budgets of main have 1 error") as caught:
        ask(after="HEAD")
    assert caught.value.prefix == "budgets/"
    with pytest.raises(InvalidTreeError):
        read_valid(repo.path / "budgets")


def test_the_current_folder_and_the_top_of_a_repository_can_be_the_tree(
    git_repo: Callable[[str], GitRepo], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is called this folder, and the files of its problems have no prefix."""
    top = git_repo("top")
    top.commit({"cluster.yaml": CLUSTER, "budget.yaml": ROOT + "  a: {share: 5%, members: [x]}\n"})
    monkeypatch.chdir(top.path)
    found = answer(Question(Path(), "HEAD", top.path, ".", lambda _: NOW), None).review
    assert (found.after.name, found.after.digest) == ("this folder", found.before.digest)
    top.commit({"budget.yaml": ""})
    for after in (Path(), "HEAD"):
        with pytest.raises(InvalidTreeError) as caught:
            answer(Question(after, "HEAD", top.path, ".", lambda _: NOW), None)
        assert caught.value.prefix == ""


def test_outside_of_any_repository_there_is_only_the_daemon(repo: GitRepo, ask: Ask, api: StubApi) -> None:
    """A commit cannot be meant there, and drift cannot be seen."""
    with pytest.raises(InvalidInputError, match="not in a git repository") as caught:
        ask(top=None)
    assert "--against daemon" in caught.value.hint
    api.has(repo.path / "budgets", "c1")
    found = ask(api, top=None, against=None)
    assert (found.review.before.name, found.review.before.commit) == ("the daemon", "c1")
    assert found.review.drift is None
    with pytest.raises(InvalidInputError, match="the daemon is not asked here"):
        ask(None, top=None, against=None)


# the daemon


def test_usage_and_what_runs_are_shown_where_the_daemon_can_be_asked(repo: GitRepo, ask: Ask, api: StubApi) -> None:
    """One figure for each budget of the plan that the daemon knows."""
    api.has(repo.path / "budgets", repo.git("rev-parse", "main"))
    figures = {"running": 30, "usage_gpu_ms": 5, "entitlement_gpu_ms": 9, "balance_gpu_ms": 4}
    api.standing = [{"path": "language", "pools": {"h100": figures}}]
    found = ask(api, after="HEAD", against="HEAD~1").review
    assert [(one.path, one.running, one.beyond) for one in found.live] == [("language", 30, 18)]
    assert found.drift is not None
    assert not found.drift


def test_a_daemon_that_is_away_is_left_out_with_a_note(ask: Ask, api: StubApi) -> None:
    """Unless it is the very thing to compare with."""
    api.error = UnreachableError("the daemon does not answer")
    found = ask(api).review
    assert found.notes == ("usage, what runs now and drift are left out: the daemon does not answer",)
    assert (found.live, found.drift) == ((), None)
    with pytest.raises(UnreachableError):
        ask(api, against=None)


def test_drift_is_what_the_daemon_has_beside_git(repo: GitRepo, ask: Ask, api: StubApi) -> None:
    """It is shown apart from the change, compared with the commit that the daemon claims."""
    folder, main = repo.path / "budgets", repo.git("rev-parse", "main")
    (folder / "budget.yaml").write_text(
        ROOT + "  language: {share: 41%, members: [x]}\n  vision: {share: 25%, members: [x]}\n"
    )
    api.has(folder, main)
    repo.git("checkout", "--quiet", ".")
    found = ask(api, after="HEAD", against="HEAD~1").review
    assert found.drift is not None
    assert [(one.action, one.path) for one in found.drift.changes] == [(Action.CHANGED, "language")]
    assert found.notes == (
        f"the daemon has commit {main[:12]}, not {found.before.name} ({found.before.commit[:12]}); the budgets differ",
    )
    same = ask(api, after="HEAD", against="main").review
    assert (bool(same.plan), bool(same.drift), same.notes) == (False, True, ())


def test_drift_that_nobody_can_see_is_told(repo: GitRepo, ask: Ask, api: StubApi) -> None:
    """A commit that is not in this clone, one without the folder, and one that is no commit id."""
    folder = repo.path / "budgets"
    other = repo.git("rev-parse", "main")
    for commit in ("c1", "1" * 40, "--help"):
        api.has(folder, commit)
        assert (
            f"drift is not looked for: the daemon has commit {commit[:12]}, and it is not in this clone"
            in ask(api).review.notes
        )
    api.has(folder, other)
    found = ask(api, path="elsewhere", after=folder, against=None).review
    assert found.notes[-1].startswith(
        f"drift is not looked for: the daemon has commit {other[:12]}, and there is no folder"
    )


def test_a_commit_is_compared_with_what_the_daemon_has(repo: GitRepo, ask: Ask, api: StubApi) -> None:
    """As it is, not merged; whether it may be applied is known by its history."""
    first, main = repo.git("rev-parse", "main~1"), repo.git("rev-parse", "main")
    repo.git("checkout", "--quiet", first)
    api.has(repo.path / "budgets", first)
    found = ask(api, after="main", against=None).review
    assert (found.before.commit, found.after.commit, found.descends, found.notes) == (first, main, True, ())
    repo.git("checkout", "--quiet", main)
    api.has(repo.path / "budgets", main)
    back = ask(api, after="main~1", against=None).review
    assert not back.descends
    assert "does not descend from the daemon" in back.notes[0]
    api.has(repo.path / "budgets", "1" * 40)
    assert not ask(api, after="main", against=None).review.descends


def test_the_first_tree_of_a_daemon_adds_everything(ask: Ask, api: StubApi) -> None:
    """Nothing was applied yet, which the daemon itself says; nobody has to approve."""
    found = ask(api, after="main", against=None)
    assert found.before is None
    assert (found.review.before.commit, found.review.descends, found.review.approvals) == ("", True, ())
    assert found.review.plan.counts()["added"] == 3
    assert not ask(api, against=None).review.descends  # a folder


def test_later_dates_are_pointed_out(repo: GitRepo, ask: Ask) -> None:
    """A dated change that the plan adds or removes means something on another day than the one shown."""
    dated = "{share: 40%, members: [x], changes: [{from: 2026-12-01, until: 2027-01-15, share: 50%}]}"
    repo.commit(shares(language=dated, vision="25%"))
    told = "dated changes begin or end later (2026-12-01, 2027-01-15); `--as-of DATE` shows the shares of a day"
    assert ask(after="HEAD", against="HEAD~1").review.notes == (told,)
    assert ask(after="HEAD~1", against="HEAD", at=lambda _: NOW).review.after.merged
    late = ask(after="HEAD", against="HEAD~1", at=lambda _: 1_900_000_000_000).review
    assert late.notes == ()
    repo.commit(shares(language="40%", vision="25%"))
    assert ask(after="HEAD", against="HEAD~1").review.notes == (told,)
