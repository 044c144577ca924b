"""The workflows of this repository and of those that use its action: linted, and run step by step.

Their shells run for real, in a clone of a real repository, against stand-ins for GitHub and for the daemon.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.actions_runner import REPOSITORY, ActionsRunner, read
from tests.budgets_server import BudgetsServer, budgets_server
from tests.conftest import GitRepo
from tests.github_server import GitHubServer, github_server

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTION = GITHUB / "actions" / "gpubudget" / "action.yml"
BIN = Path(sys.executable).parent

CLUSTER = "kind: Cluster\npools:\n  h100: {hosts: 16, gpus_per_host: 8}\n"
ROOT_BUDGET = "kind: Budget\nmanagers: [ines]\nmembers: [ines]\nchildren:\n"
LEAF = "{share: 50%, managers: [hanna], members: [hanna]}"
BASE = {
    "budgets/cluster.yaml": CLUSTER,
    "budgets/budget.yaml": f"{ROOT_BUDGET}  language: {LEAF}\n  vision: {LEAF.replace('50%', '25%')}\n",
}

Runner = Callable[..., ActionsRunner]


def told(program: str, *arguments: str) -> str:
    """What a linter says; nothing if it has nothing to say."""
    done = subprocess.run(
        [BIN / program, *arguments], cwd=ROOT, capture_output=True, text=True, env={"PATH": str(BIN)}, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_actionlint_has_nothing_to_say() -> None:
    """Every workflow is well-formed: expressions have types, shells are sound, inputs are those of the actions."""
    assert told("actionlint", *map(str, WORKFLOWS)) == ""


def test_zizmor_has_nothing_to_say() -> None:
    """No script takes expressions, every action is pinned, permissions are the least, credentials do not stay."""
    assert told("zizmor", "--offline", "--no-progress", ".github") == ""


def test_the_linters_find_what_is_planted(tmp_path: Path) -> None:
    """A title of a pull request in a script, and a misspelt key."""
    bad = (
        (GITHUB / "workflows" / "validate.yml")
        .read_text()
        .replace(
            "- uses: ./.github/actions/gpubudget\n",
            "- run: echo ${{ github.event.pull_request.title }}\n      - use: x\n",
        )
    )
    (tmp_path / "bad.yml").write_text(bad)
    assert "untrusted" in told("actionlint", str(tmp_path / "bad.yml"))
    assert "[syntax-check]" in told("actionlint", str(tmp_path / "bad.yml"))


@pytest.mark.parametrize("script", [s["run"] for s in read(ACTION)["runs"]["steps"] if "run" in s])
def test_the_actions_shell_is_sound(script: str, tmp_path: Path) -> None:
    """As shellcheck sees it; and no expression is written into it."""
    (tmp_path / "step.sh").write_text(script)
    assert told("shellcheck", "--shell=bash", "--exclude=SC2154", str(tmp_path / "step.sh")) == ""
    assert "${{" not in script


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.stem)
def test_every_action_is_pinned(path: Path) -> None:
    """By its full commit, with the version beside it for people."""
    uses = re.findall(r"^ *-? *uses: (.*)$", path.read_text(), re.MULTILINE)
    assert uses
    for one in uses:
        assert one == "./.github/actions/gpubudget" or re.fullmatch(
            r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one
        )


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_as_little_as_it_can(path: Path) -> None:
    """Nothing by default, few things by name, in limited time; never with our rights for a fork (scorecard PR#1168)."""
    workflow = read(path)
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["group"]
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(workflow["on"])
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"]
        assert set(job["permissions"].items()) <= {("contents", "read"), ("pull-requests", "write")}
        assert ("pull-requests" in job["permissions"]) == (path.stem == "plan")
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] == "false"


def test_ci_runs_what_people_run() -> None:
    """One script, for every supported version of Python."""
    job = read(GITHUB / "workflows" / "ci.yml")["jobs"]["check"]
    assert job["steps"][-1]["run"] == "bash .ci/run"
    supported = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert job["strategy"]["matrix"]["python"] == supported


@pytest.fixture
def github() -> Iterator[GitHubServer]:
    with github_server() as server:
        yield server
        assert server.wrong == []


@pytest.fixture
def daemon() -> Iterator[BudgetsServer]:
    with budgets_server() as server:
        yield server


@pytest.fixture
def origin(git_repo: Callable[[str], GitRepo]) -> GitRepo:
    """A budgets repository with one commit on main."""
    repo = git_repo("origin")
    repo.git("config", "uploadpack.allowAnySHA1InWant", "true")
    repo.commit(BASE)
    return repo


@pytest.fixture
def runner(origin: GitRepo, github: GitHubServer, tmp_path: Path) -> Runner:
    """Runs a job of a workflow for an event; each run has a folder of its own."""
    made: list[ActionsRunner] = []

    def make(
        event: str,
        payload: dict[str, Any] | None = None,
        ref: str = "refs/heads/main",
        **more: Any,  # noqa: ANN401 - the fields of a runner
    ) -> ActionsRunner:
        number = len(made) + 1
        folder = tmp_path / f"run{number}"
        known = {"origin": origin, "api": github.url, "run_id": number, **more}
        made.append(ActionsRunner(folder=folder, event_name=event, event=payload or {}, ref=ref, **known))
        return made[-1]

    return make


BRANCH = "x$(touch${IFS}owned)`touch${IFS}owned`;touch${IFS}owned"
"""A name that git takes for a branch, and that a shell must not take for anything else."""

PullRequest = Callable[..., dict[str, Any]]


@pytest.fixture
def pull_request(origin: GitRepo, github: GitHubServer) -> PullRequest:
    """Opens or updates pull request 7 with these files, on what ``base`` names; the payload of its event."""

    def push(
        files: dict[str, str | None], base: str = "main", branch: str = BRANCH, author: str = "hanna"
    ) -> dict[str, Any]:
        origin.git("checkout", "--quiet", "-B", branch, base)
        head = origin.commit(files)
        origin.git("checkout", "--quiet", "main")
        tree = origin.git("merge-tree", "--write-tree", "main", head)
        merge = origin.git("commit-tree", tree, "-p", "main", "-p", head, "-m", "merge")
        origin.git("update-ref", "refs/pull/7/merge", merge)
        github.open_pull(7, head, author)
        title = '$(touch owned) `touch owned` ${{ github.token }} " ; touch owned #'
        from_ = {"full_name": REPOSITORY if author == "hanna" else f"{author}/budgets"}
        named = {"sha": head, "ref": branch, "repo": from_}
        pull = {"number": 7, "head": named, "base": {"ref": "main"}, "title": title}
        return {"action": "synchronize", "pull_request": pull}

    return push


MERGE = "refs/pull/7/merge"
VALIDATE, PLAN, RECONCILE = (GITHUB / "workflows" / f"{name}.yml" for name in ("validate", "plan", "reconcile"))


def shares(language: str, vision: str = "25%") -> dict[str, str]:
    lines = "".join(
        f"  {name}: {LEAF.replace('50%', share)}\n" for name, share in (("language", language), ("vision", vision))
    )
    return {"budgets/budget.yaml": f"{ROOT_BUDGET}{lines}"}


def test_validate_passes_sound_budgets(runner: Runner, pull_request: PullRequest) -> None:
    """What is validated is the result of the merge; the program is that of the action's own commit."""
    made = runner("pull_request", pull_request(shares("45%")), MERGE)
    done = made.job(VALIDATE, "validate")
    assert (done.code, made.executed) == (0, ["Install", "Validate"])
    assert "valid: 3 budgets" in done.log
    *options, source = made.installed.split()
    assert options == ["install", "--quiet", "--disable-pip-version-check"]
    assert Path(source).resolve() == ROOT


def test_validate_annotates_what_is_wrong(runner: Runner, pull_request: PullRequest) -> None:
    """As GitHub shows it beside the line."""
    done = runner("pull_request", pull_request(shares("85%")), MERGE).job(VALIDATE, "validate")
    assert done.code == 1
    assert re.search(r"^::error (.*,)?file=budgets/budget.yaml,line=", done.log, re.MULTILINE)


def test_validate_wants_codeowners_up_to_date(runner: Runner, origin: GitRepo, pull_request: PullRequest) -> None:
    """Where there is such a file."""
    origin.commit({".github/CODEOWNERS": "* @nobody\n"})
    done = runner("pull_request", pull_request(shares("45%")), MERGE).job(VALIDATE, "validate")
    assert done.code == 1
    assert "CODEOWNERS is not up to date" in done.log


def test_a_pull_request_has_its_plan_as_a_comment(
    runner: Runner, pull_request: PullRequest, github: GitHubServer, origin: GitRepo, tmp_path: Path
) -> None:
    """With both commits and who must approve; a review and a push bring it up to date, an older run does not."""
    event = pull_request(shares("45%"))
    head = event["pull_request"]["head"]["sha"]
    done = runner("pull_request", event, MERGE).job(PLAN, "plan")
    assert done.code == 0, done.log
    (first,) = github.bodies(7)
    assert "**This changes 1 budget.** 1 of 1 decision waits for approval." in first
    assert f"[`{head[:12]}`](https://github.com/lab/budgets/commit/{head})" in first
    assert origin.git("rev-parse", "main")[:12] in first
    assert "[the whole](https://github.com/lab/budgets/actions/runs/1)" in first
    assert first.partition("\n")[2] in done.summary

    github.review(7, "Ines", "APPROVED", head)
    reviewed = runner("pull_request_review", {**event, "action": "submitted"}, MERGE).job(PLAN, "plan")
    assert reviewed.code == 0, reviewed.log
    (second,) = github.bodies(7)
    assert "All that is needed is approved." in second
    assert "approved by `ines`" in second

    done = runner("pull_request", pull_request(shares("40%"), BRANCH), MERGE).job(PLAN, "plan")
    assert done.code == 0, done.log
    (third,) = github.bodies(7)
    assert "50% → **40%**" in third.replace("\u00a0", " ")
    assert "1 of 1 decision waits for approval." in third  # an approval does not survive a push

    late = runner("pull_request", event, MERGE, run_id=1, attempt=2).job(PLAN, "plan")
    assert late.code == 0, late.log
    assert "left alone: commit" in late.log
    assert github.bodies(7) == [third]
    assert not list(tmp_path.rglob("owned"))


def test_a_fork_has_its_plan_in_the_summary(runner: Runner, pull_request: PullRequest, github: GitHubServer) -> None:
    """Its token may only read, it has no secrets and runs on no machine of ours (scorecard PR#1168); the job passes."""
    secrets = {"GPUBUDGET_READ_TOKEN": "gpb_x"}
    made = runner(
        "pull_request",
        pull_request(shares("45%"), author="stranger"),
        MERGE,
        fork=True,
        secrets=secrets,
        variables={"GPUBUDGET_URL": "http://127.0.0.1:9", "GPUBUDGET_REPLAY": "14d", "GPUBUDGET_RUNNER": "inside"},
    )
    done = made.job(PLAN, "plan")
    assert done.code == 0, done.log
    assert made.label == "ubuntu-24.04"
    assert github.bodies(7) == []
    assert "**This changes 1 budget.**" in done.summary
    assert "not commented, since the token may only read" in done.log


def test_budgets_that_are_not_valid_have_a_comment(
    runner: Runner, pull_request: PullRequest, github: GitHubServer
) -> None:
    """Each error with its place; the job fails."""
    done = runner("pull_request", pull_request(shares("85%")), MERGE).job(PLAN, "plan")
    assert done.code == 1
    (body,) = github.bodies(7)
    assert "**These budgets are not valid: 1 error.**" in body
    assert "`budgets/budget.yaml:" in body


def test_a_pull_request_about_something_else_has_no_comment(
    runner: Runner, pull_request: PullRequest, github: GitHubServer
) -> None:
    """Nothing changes, so nothing is said."""
    done = runner("pull_request", pull_request({"README.md": "hello\n"}), MERGE).job(PLAN, "plan")
    assert done.code == 0, done.log
    assert "not commented, since nothing changes" in done.log
    assert github.bodies(7) == []


def test_a_branch_behind_main_is_planned_as_merged(
    runner: Runner, pull_request: PullRequest, github: GitHubServer, origin: GitRepo
) -> None:
    """What main got meanwhile is not taken back by the plan."""
    start = origin.git("rev-parse", "main")
    origin.commit(
        BASE | {"budgets/budget.yaml": BASE["budgets/budget.yaml"].replace("members: [ines]", "members: [ines, otto]")}
    )
    done = runner("pull_request", pull_request(shares("45%"), start), MERGE).job(PLAN, "plan")
    assert done.code == 0, done.log
    (body,) = github.bodies(7)
    assert "**This changes 1 budget.**" in body
    assert "otto" not in body
    assert "as it will be once merged" in body


def test_a_fault_is_no_comment_and_fails(runner: Runner, pull_request: PullRequest, github: GitHubServer) -> None:
    """The budgets are valid, but there is nothing to compare them with: the job says so."""
    event = pull_request(shares("45%"))
    event["pull_request"]["base"]["ref"] = "gone"
    done = runner("pull_request", event, MERGE).job(PLAN, "plan")
    assert done.code == 1
    assert "gone" in done.log
    assert github.bodies(7) == []


def test_a_replay_that_fails_costs_no_plan(runner: Runner, pull_request: PullRequest, github: GitHubServer) -> None:
    """The daemon is away: the plan is told without what it would have done, and both say so."""
    known = {
        "secrets": {"GPUBUDGET_READ_TOKEN": "gpb_x"},
        "variables": {"GPUBUDGET_URL": "http://127.0.0.1:9", "GPUBUDGET_REPLAY": "14d", "GPUBUDGET_RUNNER": "inside"},
    }
    made = runner("pull_request", pull_request(shares("45%")), MERGE, **known)
    done = made.job(PLAN, "plan")
    assert done.code == 0, done.log
    assert made.label == "inside"
    assert "::warning::it is planned without the replay" in done.log
    (body,) = github.bodies(7)
    assert "Note: usage, what runs now and drift are left out" in body


def reconciled(daemon: BudgetsServer) -> dict[str, Any]:
    return {"variables": {"GPUBUDGET_URL": daemon.url}, "secrets": {"GPUBUDGET_TOKEN": "gpb_x"}}


def test_reconcile_applies_main(runner: Runner, origin: GitRepo, daemon: BudgetsServer) -> None:
    """On a push, and on the schedule, where there is nothing to do; always main as it is now."""
    done = runner("push", **reconciled(daemon)).job(RECONCILE, "reconcile")
    assert done.code == 0, done.log
    assert daemon.commit == origin.git("rev-parse", "main")
    newest = origin.commit(shares("45%"))
    assert runner("schedule", **reconciled(daemon)).job(RECONCILE, "reconcile").code == 0
    assert daemon.commit == newest


def test_reconcile_by_hand_may_be_dry(runner: Runner, daemon: BudgetsServer) -> None:
    """It shows what would be applied, and applies nothing."""
    done = runner("workflow_dispatch", inputs={"dry-run": True}, **reconciled(daemon)).job(RECONCILE, "reconcile")
    assert done.code == 0, done.log
    assert "would be applied" in done.log
    assert daemon.commit is None


def test_reconcile_without_a_daemon_is_skipped(runner: Runner) -> None:
    """A repository that has none yet, such as this one, has no failing runs."""
    assert runner("push").job(RECONCILE, "reconcile").skipped


def test_reconcile_says_why_not(runner: Runner, origin: GitRepo, daemon: BudgetsServer) -> None:
    """Budgets that are not valid are not applied, and the job fails."""
    origin.commit(shares("85%"))
    done = runner("push", **reconciled(daemon)).job(RECONCILE, "reconcile")
    assert done.code == 1
    assert daemon.commit is None


def test_an_unknown_command_fails(runner: Runner, tmp_path: Path) -> None:
    """It is not passed over in silence, and shown without what could be a command of the log."""
    workflow = tmp_path / "odd.yml"
    workflow.write_text(VALIDATE.read_text().replace("command: validate", "command: '::stop'"))
    done = runner("push").job(workflow, "validate")
    assert done.code == 64
    assert "::error::the command of gpubudget is '??stop'" in done.log


def test_a_new_repository_has_working_workflows(
    runner: Runner, git_repo: Callable[[str], GitRepo], daemon: BudgetsServer, github: GitHubServer
) -> None:
    """What `gpubudget init` makes: all three run, with the action that came with it, and the linters say nothing."""
    repo = git_repo("lab")
    subprocess.run(
        [BIN / "gpubudget", "init", ".", "--manager", "ines"], cwd=repo.path, check=True, capture_output=True
    )
    repo.commit({})
    workflows = repo.path / ".github" / "workflows"
    made = runner("push", origin=repo, **reconciled(daemon))
    assert made.job(workflows / "reconcile.yml", "reconcile").code == 0
    assert daemon.commit == repo.git("rev-parse", "main")
    assert made.installed.endswith("/work/.github/actions/gpubudget/requirements.txt")
    done = runner("push", origin=repo).job(workflows / "validate.yml", "validate")
    assert done.code == 0, done.log
    assert "CODEOWNERS is up to date" in done.log
    event = {"pull_request": {"number": 7, "head": {"sha": daemon.commit}, "base": {"ref": "main"}}}
    github.open_pull(7, str(daemon.commit))
    done = runner("pull_request", event, origin=repo).job(workflows / "plan.yml", "plan")
    assert done.code == 0, done.log
    assert "not commented, since nothing changes" in done.log
    assert told("zizmor", "--offline", "--config", str(GITHUB / "zizmor.yml"), str(repo.path / ".github")) == ""
