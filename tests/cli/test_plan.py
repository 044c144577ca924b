"""``gpubudget plan`` in real repositories, alone and with a daemon that has recorded work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubudget.cli import planview
from gpubudget.gitops.review import from_file, from_json
from tests.cli.cluster import Cluster, until
from tests.cli.conftest import Cli
from tests.conftest import GitRepo

CLUSTER = "kind: Cluster\nname: lab\ntimezone: Europe/Berlin\npools:\n  h100: {gpus_per_host: 8, hosts: 4}\n"
ROOT = "kind: Budget\nmanagers: [ines]\nmembers: [ines]\nchildren:\n"
LANGUAGE = "kind: Budget\nmanagers: [hanna]\nmembers: [hanna]\nchildren:\n"


def tree(root: dict[str, str], language: dict[str, str]) -> dict[str, str | None]:
    def rows(shares: dict[str, str]) -> str:
        return "".join(f"  {name}: {share}\n" for name, share in shares.items())

    return {
        "budgets/cluster.yaml": CLUSTER,
        "budgets/budget.yaml": ROOT + rows(root),
        "budgets/language/budget.yaml": LANGUAGE + rows(language),
    }


VISION = "{share: 25%, managers: [ravi], members: [eva]}"
OLMO = "{share: 50%, members: [kim]}"
FILES = tree({"language": "50%", "vision": VISION}, {"olmo": OLMO})


@pytest.fixture
def repo(git_repo: Callable[[str], GitRepo], monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    """A clone that the caller stands in, with one commit on main."""
    found = git_repo("work")
    found.commit(FILES)
    monkeypatch.chdir(found.path)
    return found


def edit(file: str, old: str, new: str) -> None:
    path = Path(file)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_edited_share_is_shown_in_share_gpus_and_gpu_hours(repo: GitRepo, cli: Cli) -> None:
    """A line a budget with its reason, who must approve, and a footer with counts; 2 says that there are changes."""
    edit("budgets/language/budget.yaml", "share: 50%", "share: 75%")
    done = cli("plan", "--against", "main", "--as-of", "2026-11-30")
    main = repo.git("rev-parse", "main")[:12]
    assert done.code == 0
    assert done.err == ""
    told = done.out.splitlines()
    assert told[:5] == [
        f"Plan of budgets against main ({main}); shares of 2026-11-30, GPU-hours of 7d",
        "",
        "   BUDGET              SHARE     EFFECTIVE     GPUS       GPU-HOURS  WHY",
        "~  language/olmo  50% -> 75%  25% -> 37.5%  8 -> 12  1,344 -> 2,016  share",
        ".  language              50%           50%       16           2,688  keeps 50% -> 25% for itself",
    ]
    assert "language/olmo  share  language: hanna  lacking" in told
    assert told[-2] == "Plan: 0 to add, 1 to change, 0 to move, 0 to remove; 1 more follows."
    assert told[-1].startswith("Checksum: ")
    assert cli("plan", "--detailed-exitcode").code == 2


def test_no_changes_says_what_was_compared(repo: GitRepo, cli: Cli) -> None:
    """Both sides, and that they have the same budgets; the exit code is 0 either way."""
    done = cli("plan", "--detailed-exitcode")
    main = repo.git("rev-parse", "main")[:12]
    assert done.code == 0
    assert done.out.startswith(f"No changes: budgets against main ({main}): the same 4 budgets, pools and policy.\n")


def test_every_kind_of_change_has_its_line(repo: GitRepo, cli: Cli) -> None:
    """Added, removed, moved with what is below it, people, dates and settings, each with its sign."""
    repo.commit(tree({"language": "50%", "vision": VISION, "old": "{share: 5%, members: [eva]}"}, {"olmo": OLMO}))
    root = {
        "nlp": "50%",
        "vision": VISION.replace("[eva]", "[eva, joe]"),
        "tools": "{share: 5%, members: [bob], changes: [{from: 2026-12-01, until: 2027-01-15, share: 9%}]}",
    }
    moved = tree(root, {"olmo": OLMO})
    nlp = str(moved.pop("budgets/language/budget.yaml")).replace("members:", "previously: language\nmembers:", 1)
    repo.git("switch", "--quiet", "--create", "topic")
    repo.commit(moved | {"budgets/language/budget.yaml": None, "budgets/nlp/budget.yaml": nlp})
    repo.commit({"budgets/cluster.yaml": CLUSTER + "policy: {lookback: 14d}\n"})
    done = cli("plan", "topic", "--as-of", "2026-11-30")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert ">  1 budget below move along" in done.out
    assert "> nlp 50% 50% 16 2,688 -> 5,376 was language, keeps its history" in lines
    assert "~ vision 25% 25% 8 1,344 -> 2,688 members +joe" in lines
    assert "+ tools 5% 5% 1.6 538 new; members +bob" in lines
    assert "- old 5% -> none 5% -> none 1.6 -> none 269 -> none removed; what it runs is charged to /" in lines
    assert "~ policy.lookback 7d -> 14d" in lines
    assert ". 1 budget follow policy.lookback" in lines
    assert "nlp moved /: ines lacking" in lines
    assert "note: dated changes begin or end later (2026-12-01, 2027-01-15)" in done.out
    assert "Plan: 1 to add, 1 to change, 2 to move, 1 to remove; 1 setting to change; 1 more follows." in lines
    assert " ".join(cli("plan", "topic", "--as-of", "2026-12-01").out.split()).count("+ tools 9% 9% 2.9") == 1


def test_many_followers_are_folded(cli: Cli, repo: GitRepo) -> None:
    """The first ones stand there, the rest are counted; JSON has them all."""
    many = {f"p{number}": "{share: 1%, members: [eva]}" for number in range(planview.MOST_FOLLOWERS + 5)}
    repo.commit(tree({"language": "50%", "vision": VISION}, many))
    edit("budgets/budget.yaml", "language: 50%", "language: 60%")
    done = cli("plan")
    assert ".  6 more budgets follow; `-o json` has them all" in done.out
    data = json.loads(cli("plan", "-o", "json").out)
    assert len(data["plan"]["follows"]) == planview.MOST_FOLLOWERS + 6
    assert (data["counts"]["changed"], data["counts"]["follows"], data["counts"]["fields"]["share"]) == (1, 26, 1)


def test_json_and_markdown_say_the_same(repo: GitRepo, cli: Cli) -> None:
    """JSON reads back as the review; Markdown is a comment with the same figures."""
    edit("budgets/language/budget.yaml", "share: 50%", "share: 75%")
    review = from_json(json.loads(cli("plan", "-o", "json").out))
    assert (review.before.commit, review.after.commit) == (repo.git("rev-parse", "main"), "")
    assert [change.path for change in review.plan.changes] == ["language/olmo"]
    comment = cli("plan", "-o", "markdown").out
    assert "`language/olmo`" in comment
    assert "37.5%" in comment


def test_a_plan_in_a_file_has_all_that_an_apply_needs(repo: GitRepo, cli: Cli, tmp_path: Path) -> None:
    """The file is whole, its place is told, and the checksum shown is that in it."""
    edit("budgets/language/budget.yaml", "share: 50%", "share: 75%")
    repo.commit({})
    file = tmp_path / "plan.json"
    done = cli("plan", "HEAD", "--against", "HEAD~1", "--out", str(file))
    assert "gpubudget apply" in done.err
    data = json.loads(file.read_text())
    review, planned = from_file(data)
    assert f"Checksum: {data['checksum']}" in done.out
    assert (review.descends, [budget.path for budget in planned.budgets()]) == (
        True,
        ["/", "language", "language/olmo", "vision"],
    )
    assert [path.name for path in tmp_path.iterdir() if "plan.json" in path.name] == ["plan.json"]


def test_who_has_approved_is_shown(repo: GitRepo, cli: Cli) -> None:
    """Names may be written as GitHub does; those of others do not count."""
    assert repo
    edit("budgets/language/budget.yaml", "share: 50%", "share: 75%")
    done = cli("plan", "--approved-by", "@Hanna, eva")
    assert "language/olmo  share  language: hanna  approved by hanna" in done.out
    assert "(none lacking)" in done.out


def test_an_invalid_tree_shows_its_problems_and_no_plan(repo: GitRepo, cli: Cli) -> None:
    """As validate does, with the file's path from here; nothing on stdout."""
    assert repo
    edit("budgets/language/budget.yaml", "share: 50%", "share: 175%")
    done = cli("plan", "--detailed-exitcode")
    assert (done.code, done.out) == (1, "")
    assert "budgets/language/budget.yaml:5:" in done.err
    assert "error: the budgets of budgets have 1 error" in done.err


def test_a_branch_behind_main_is_planned_as_its_merge(repo: GitRepo, cli: Cli) -> None:
    """Both commits are told; a folder that is behind is compared as it is, with a word about that."""
    repo.git("switch", "--quiet", "--create", "topic")
    topic = repo.commit({"budgets/cluster.yaml": CLUSTER.replace("hosts: 4", "hosts: 5")})[:12]
    repo.git("switch", "--quiet", "main")
    main = repo.commit({"budgets/language/budget.yaml": LANGUAGE + f"  olmo: {OLMO}\n  new: {OLMO}\n"})[:12]
    done = cli("plan", "topic", "--as-of", "2026-11-30")
    assert done.out.startswith(f"Plan of topic ({topic}) merged into main ({main}), against main; shares of 2026-11-30")
    assert "~  pools.h100.hosts  4 -> 5" in done.out
    assert "language/new" not in done.out
    repo.git("switch", "--quiet", "topic")
    behind = cli("plan").out
    assert "-  language/new" in behind
    assert f"note: HEAD ({topic}) lacks commits of main ({main})" in behind


def test_the_folder_of_budgets_is_found_from_anywhere(
    repo: GitRepo, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From inside it, by its path from elsewhere, and in a bare repository that is named."""
    assert "No changes: this folder" in _in(repo.path / "budgets", cli, monkeypatch, "plan")
    for options in ((), ("--path", "budgets")):
        assert "No changes: HEAD" in _in(repo.path / "budgets/language", cli, monkeypatch, "plan", "HEAD", *options)
    assert "No changes: ../budgets" in _in(repo.path / ".git", cli, monkeypatch, "plan")
    assert "No changes: " in _in(tmp_path, cli, monkeypatch, "plan", str(repo.path / "budgets"))
    repo.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    assert "No changes: main" in _in(tmp_path, cli, monkeypatch, "plan", "main", "--repo", "bare.git")


def _in(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.chdir(folder)
    done = cli(*arguments)
    assert done.code == 0, done.err
    return done.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nowhere",), 1, "has no branch or tag 'nowhere'"),
        (("--against", "nowhere"), 1, "has no branch or tag 'nowhere'"),
        (("--upload-pack=x",), 64, "No such option"),
        (("--against", "--x"), 1, "is not the name of a branch or tag"),
        (("--as-of", "2026-02-30"), 64, "'2026-02-30' is not a date"),
        (("--as-of", "yesterday"), 64, "is not a date such as 2026-12-01"),
        (("budgets/budget.yaml",), 64, "is a file"),
        (("--replay", "14d", "--trace", "x"), 64, "two records of work"),
        (("--replay", "14"), 64, "not a duration"),
        (("--trace", "none.jsonl"), 1, "none.jsonl"),
        (("--out", "none/plan.json"), 1, "cannot write none/plan.json: No such file or directory"),
        (("HEAD", "--path", "/etc"), 1, "does not name a folder inside the repository"),
        (("HEAD", "--path", "none"), 1, "there is no folder 'none' at commit"),
        (("HEAD", "--repo", "/nowhere"), 1, "/nowhere is not in a git repository"),
        (("--against", "daemon"), 4, "there is no token"),
    ],
)
@pytest.mark.usefixtures("repo")
def test_wrong_questions_are_one_clear_sentence(cli: Cli, arguments: tuple[str, ...], code: int, said: str) -> None:
    """What is meant cannot be found, or is no such thing."""
    done = cli("plan", *arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


def test_outside_of_a_repository_only_the_daemon_can_be_compared_with(cli: Cli, tmp_path: Path) -> None:
    """Any other side is in git, and there is none."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(str(text))
    done = cli("plan", str(tmp_path / "budgets"))
    assert (done.code, done.out) == (1, "")
    assert "is not in a git repository" in done.err
    assert cli("plan", str(tmp_path / "budgets"), "--against", "daemon").code == 4


# with a daemon that has recorded work

RECORDED = {
    "budgets/cluster.yaml": "kind: Cluster\npools:\n  a100: {gpus_per_host: 8, hosts: 2}\npolicy: {grace_period: 2s}\n",
    "budgets/budget.yaml": ROOT + "  language: 50%\n  vision: {share: 25%, members: [bob, alice]}\n",
    "budgets/language/budget.yaml": LANGUAGE + "  alice: {share: 50%, members: [alice]}\n",
}


@pytest.fixture
def history(
    cluster: Cluster, alice: Cli, git_repo: Callable[[str], GitRepo], monkeypatch: pytest.MonkeyPatch
) -> GitRepo:
    """The cluster's budgets in git, and some work that it has done."""
    found = git_repo("history")
    found.commit(RECORDED)
    monkeypatch.chdir(found.path)
    for budget, gpus in (("language/alice", "8"), ("vision", "4"), ("vision", "8")):
        assert alice("run", "-b", budget, "-g", gpus, "-m", "1m", "--", "true").code == 0
    assert cluster.url
    return found


def test_a_replay_shows_what_the_change_would_have_done(history: GitRepo, alice: Cli) -> None:
    """For the budget that changes: waits, GPU-hours and preemptions under both trees, and what nobody can know."""
    edit("budgets/budget.yaml", "share: 25%", "share: 10%")
    done = alice("plan", "--replay", "1d")
    assert done.code == 0, done.err
    assert "workloads of the daemon's last 1d, " in done.out
    (row,) = [line.split() for line in done.out.splitlines() if line.startswith("vision") and "changed" in line]
    assert int(row[2]) >= 2
    assert "A replay cannot know what people would have asked for under other budgets, nor when." in done.out
    assert "It begins with nothing running and no usage" in done.out
    review = from_json(json.loads(alice("plan", "--replay", "1d", "-o", "json").out))
    assert review.what_if is not None
    (outcome,) = [one for one in review.what_if.outcomes if one.touched]
    assert (outcome.path, outcome.before.workloads) == ("vision", int(row[2]))
    assert "replay" in alice("plan", "--replay", "1d", "-o", "markdown").out
    assert history.path.exists()


def test_the_plan_shows_usage_and_that_the_daemon_is_elsewhere(history: GitRepo, alice: Cli) -> None:
    """What budgets have used stands beside what they get; a commit that git does not have is told."""
    edit("budgets/budget.yaml", "share: 25%", "share: 10%")
    done = alice("plan")
    assert done.code == 0
    assert "USED" in done.out
    assert "RUNS" in done.out
    assert "drift is not looked for: the daemon has commit cccccccccccc" in done.out
    same = alice("plan", "--against", "daemon")
    assert "~  vision" in same.out
    assert "title" in same.out
    assert history.path.exists()


def test_what_runs_beyond_the_new_guarantee_is_told(history: GitRepo, alice: Cli) -> None:
    """A cut below what runs now is shown, and blocks nothing."""
    assert history
    workload = alice("submit", "-b", "vision", "-g", "4", "-m", "1h", "--", "sleep", "60").out.split()[0]
    until(lambda: json.loads(alice("get", "workloads", workload, "-o", "json").out)["state"] == "running", "its start")
    edit("budgets/budget.yaml", "share: 25%", "share: 10%")
    assert "4 (3 beyond)" in alice("plan").out


def test_a_replay_of_nothing_says_so(history: GitRepo, alice: Cli) -> None:
    """Nothing came in the last no time."""
    assert history
    done = alice("plan", "--replay", "0")
    assert done.code == 1
    assert "no workload was submitted in that time" in done.err
