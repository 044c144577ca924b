"""``comment``: a plan on its pull request, with a real plan and a stand-in for GitHub."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubudget.cli.main import run_command
from tests.cli.conftest import Cli
from tests.conftest import GitRepo
from tests.github_server import BOT, LIMITED, LONGEST, GitHubServer, github_server, problem

HEAD = "a" * 40
CLUSTER = "kind: Cluster\npools:\n  h100: {hosts: 16, gpus_per_host: 8}\n"
BUDGET = "kind: Budget\nmanagers: [ines]\nmembers: [ines]\nchildren:\n  language: {share: %s, members: [hanna]}\n"

Run = Callable[..., None]


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with github_server() as state:
        state.open_pull(7, HEAD)
        yield state
        assert state.wrong == []


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of two plans: ``plan.json``, in which a share changes, and ``same.json``."""
    folder = tmp_path_factory.mktemp("plans")
    repo = GitRepo(folder)
    repo.git("init", "--quiet", "--initial-branch=main")
    repo.commit({"budgets/cluster.yaml": CLUSTER, "budgets/budget.yaml": BUDGET % "50%"})
    repo.git("switch", "--quiet", "--create", "more")
    repo.commit({"budgets/budget.yaml": BUDGET % "60%"})
    for ref, name in (("more", "plan.json"), ("main", "same.json")):
        assert run_command(["plan", ref, "--repo", str(folder), "--out", str(folder / name)]) == 0
    return folder


@pytest.fixture
def plan(plans: Path) -> Path:
    """The file of a plan in which one share changes."""
    return plans / "plan.json"


@pytest.fixture
def run(server: GitHubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Sets what a runner of GitHub sets, for pull request 7."""

    def given(token: str = "writes", run_id: str = "3", event: object = None) -> None:
        told = {"pull_request": {"number": 7, "head": {"sha": HEAD}}} if event is None else event
        (tmp_path / "event.json").write_text(json.dumps(told))
        for name, value in {
            "GITHUB_TOKEN": token,
            "GITHUB_API_URL": server.url,
            "GITHUB_REPOSITORY": server.repository,
            "GITHUB_RUN_ID": run_id,
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        }.items():
            monkeypatch.setenv(name, value)

    return given


@pytest.fixture(autouse=True)
def _no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run in which the tests themselves may be stays out of them."""
    for name in ("TOKEN", "API_URL", "REPOSITORY", "RUN_ID", "RUN_ATTEMPT", "EVENT_PATH", "STEP_SUMMARY", "SERVER_URL"):
        monkeypatch.delenv(f"GITHUB_{name}", raising=False)


def test_in_a_run_it_needs_only_the_plan(cli: Cli, plan: Path, run: Run, server: GitHubServer, tmp_path: Path) -> None:
    """The comment is made, and said where; the run's summary has the plan too."""
    run()
    done = cli("comment", str(plan))
    assert (done.code, done.err) == (0, "")
    assert done.out == f"created https://github.com/{server.repository}/pull/7#issuecomment-1000\n"
    (body,) = server.bodies(7)
    assert body.startswith(f"<!-- gpubudget plan=budgets run=3.1 head={HEAD} -->\n**This changes 1 budget.** 1 of 1 ")
    assert (tmp_path / "summary.md").read_text().startswith("**This changes 1 budget.**")


def test_by_hand_all_is_given(cli: Cli, plan: Path, server: GitHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest commit is asked for; another key has a comment of its own."""
    monkeypatch.setenv("GITHUB_TOKEN", "own")
    server.tokens["own"] = "hanna"
    options = ["--repository", server.repository, "--pull-request", "7", "--api", server.url, "--author", "hanna"]
    assert cli("comment", str(plan), *options).out.startswith("created ")
    assert cli("comment", str(plan), *options).out.startswith("unchanged ")
    assert cli("comment", str(plan), *options, "--key", "clusters/b200").out.startswith("created ")
    first, second = server.bodies(7, "hanna")
    assert "actions/runs" not in first
    assert "\n`clusters/b200`\n" in second


def test_a_plan_that_is_too_long_for_github_is_cut(
    cli: Cli, git_repo: Callable[[str], GitRepo], run: Run, server: GitHubServer, tmp_path: Path
) -> None:
    """The comment is taken, and links to the run, whose summary has all of it (infracost#1958)."""
    repo, out = git_repo("large"), str(tmp_path / "large.json")
    for share in ("1/2000", "1/2001"):
        children = "".join(f"  b{number}: {{share: {share}, members: [hanna]}}\n" for number in range(1_500))
        tree = f"kind: Budget\nmanagers: [ines]\nmembers: [ines]\nchildren:\n{children}"
        repo.commit({"budgets/cluster.yaml": CLUSTER, "budgets/budget.yaml": tree})
    assert cli("plan", "HEAD", "--against", "HEAD~1", "--repo", str(repo.path), "--out", out).code == 0
    run()
    assert cli("comment", out).code == 0
    (body,) = server.bodies(7)
    assert 50_000 < len(body) < LONGEST
    assert "more in [the whole](https://github.com/lab/budgets/actions/runs/3)" in body
    summary = (tmp_path / "summary.md").read_text()
    assert all(f"`b{number}`" in summary for number in range(1_500))


def test_approvals_are_the_reviews(cli: Cli, plan: Path, run: Run, server: GitHubServer) -> None:
    """Of the newest commit, by managers, whatever the case of their names; the author's only if asked to."""
    run()
    server.review(7, "Ines", "APPROVED", "b" * 40)
    server.review(7, "mallory", "APPROVED", HEAD)
    cli("comment", str(plan))
    assert "**waiting**" in server.bodies(7)[0]
    server.open_pull(7, HEAD, author="INES")
    cli("comment", str(plan))
    assert "**waiting**" in server.bodies(7)[0]
    cli("comment", str(plan), "--count-author")
    assert "approved by `ines`" in server.bodies(7)[0]
    server.open_pull(7, HEAD, author="hanna")
    server.review(7, "Ines", "APPROVED", HEAD)
    assert cli("comment", str(plan)).out.startswith("unchanged ")


def test_an_older_run_leaves_it_alone(cli: Cli, plan: Path, run: Run) -> None:
    """It says why, and ends well."""
    run(run_id="9")
    cli("comment", str(plan))
    run(run_id="8")
    done = cli("comment", str(plan), "--count-author")
    assert (done.code, done.out) == (0, "left alone: run 9.1 is later\n")


def test_a_token_that_may_only_read(
    cli: Cli, plan: Path, run: Run, server: GitHubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is in the summary and the run goes on; without a summary it is an error."""
    run(token="reads")
    done = cli("comment", str(plan))
    assert (done.code, done.out) == (
        0,
        "not commented, since the token may only read; the plan is in the run's summary\n",
    )
    assert "Resource not accessible" in done.err
    assert "**This changes 1 budget.**" in (tmp_path / "summary.md").read_text()
    assert server.bodies(7) == []
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    done = cli("comment", str(plan))
    assert (done.code, done.out) == (4, "")
    assert "hint: give a token that may write pull requests" in done.err


def test_a_failure_leaves_the_plan_in_the_summary(
    cli: Cli, plan: Path, run: Run, server: GitHubServer, tmp_path: Path
) -> None:
    """A limit that is longer than anybody waits, say."""
    run()
    server.instead.append(problem(403, LIMITED, **{"Retry-After": "3600"}))
    done = cli("comment", str(plan))
    assert done.code == 75
    assert "secondary rate limit" in done.err
    assert "**This changes 1 budget.**" in (tmp_path / "summary.md").read_text()


def test_a_summary_that_cannot_be_written_is_a_note(
    cli: Cli, plan: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The comment is what matters."""
    run()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "folder"))
    done = cli("comment", str(plan))
    assert done.code == 0
    assert "summary cannot be written" in done.err


def test_nothing_changes(cli: Cli, plan: Path, run: Run, server: GitHubServer, plans: Path) -> None:
    """There is no comment; one that is there is brought up to date."""
    same = plans / "same.json"
    run()
    assert cli("comment", str(same)).out == "not commented, since nothing changes\n"
    cli("comment", str(plan))
    run(run_id="4")
    assert cli("comment", str(same)).out.startswith("updated ")
    assert "No changes" in server.bodies(7)[0]


def test_budgets_that_are_not_valid(cli: Cli, run: Run, server: GitHubServer, tmp_path: Path) -> None:
    """What `validate -o json` prints takes the plan's place; warnings are left out."""
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "budget.yaml").write_text(BUDGET % "160%")
    file = tmp_path / "problems.json"
    file.write_text(cli("validate", str(folder), "-o", "json").out)
    run()
    assert cli("comment", str(file)).out.startswith("created ")
    assert "**These budgets are not valid: 1 error.**" in server.bodies(7)[0]


def test_a_dry_run_prints_it(cli: Cli, plan: Path, server: GitHubServer) -> None:
    """GitHub is not needed for that."""
    done = cli("comment", str(plan), "--dry-run", "--repository", "lab/budgets")
    assert done.out.startswith("**This changes 1 budget.**")
    assert "https://github.com/lab/budgets/commit/" in done.out
    assert server.requests == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "which pull request?"),
        (["--repository", "lab/budgets"], "which pull request?"),
        (["--repository", "lab/budgets", "--pull-request", "7"], "no token in GITHUB_TOKEN"),
        (["--pull-request", "0"], "0 is not in the range"),
    ],
)
def test_what_is_missing_is_said(cli: Cli, plan: Path, options: list[str], says: str) -> None:
    """Each with what to give."""
    done = cli("comment", str(plan), *options)
    assert done.code == 64
    assert says in done.err


@pytest.mark.parametrize(
    ("head", "token", "says"),
    [("main", "writes", "'main' is not a commit"), (HEAD, "two\nlines", "no token"), (HEAD, "ключ", "no token")],
)
def test_what_is_odd_is_refused(cli: Cli, plan: Path, run: Run, head: str, token: str, says: str) -> None:
    """Before anything is asked."""
    run(token=token)
    done = cli("comment", str(plan), "--head", head)
    assert done.code == 64
    assert says in done.err


@pytest.mark.parametrize(
    "event", [[], "x", {"pull_request": {"number": 7}}, {"pull_request": {"number": "x", "head": {"sha": 1}}}]
)
def test_an_odd_event_is_one_sentence(cli: Cli, plan: Path, run: Run, event: object) -> None:
    """A file that GitHub would not write."""
    run(event=event)
    done = cli("comment", str(plan))
    assert done.code == 1
    assert "do not describe a run" in done.err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"valid": false}', '{"valid": false, "problems": [1]}', "\x00"])
def test_what_is_no_plan_is_one_sentence(cli: Cli, run: Run, tmp_path: Path, text: str) -> None:
    """Nor what a validation prints."""
    file = tmp_path / "odd.json"
    file.write_text(text)
    run()
    done = cli("comment", str(file))
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert BOT not in done.err
