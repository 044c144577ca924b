"""``gpubudget reconcile`` with real repositories and a real daemon."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpubudget.gitops.lock import exclusive
from gpubudget.gitops.reconcile import folder_for
from gpubudget.gitops.source import parse_source
from tests.budgets_server import BudgetsServer, budgets_server
from tests.cli.cluster import GPUBUDGET, until
from tests.cli.conftest import Cli
from tests.conftest import GitRepo

CLUSTER = "kind: Cluster\nname: lab\npools:\n  h100: {gpus_per_host: 8, hosts: 3}\n"
ROOT = "kind: Budget\ntitle: Lab\nmanagers: [hanna]\nmembers: [hanna]\nchildren:\n"


def budgets(**shares: str) -> dict[str, str | None]:
    rows = "".join(f"  {name}: {{share: {share}, members: [ben]}}\n" for name, share in shares.items())
    return {"budgets/cluster.yaml": CLUSTER, "budgets/budget.yaml": ROOT + rows}


class Daemon:
    """A daemon of this test's own, which can be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listen = "127.0.0.1:0"
        self.url = ""
        self.token = ""

    def start(self) -> None:
        token, db = self.folder / "token", self.folder / "daemon.db"
        command = ["serve", "--db", str(db), "--listen", self.listen, "--admin-token-file", str(token)]
        self.process = subprocess.Popen([GPUBUDGET, *command], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]
        self.listen = self.url.removeprefix("http://")
        self.token = token.read_text().strip()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.communicate()


@pytest.fixture(scope="module")
def _daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("daemon"))
    daemon.start()
    yield daemon
    daemon.end()


@pytest.fixture
def daemon(_daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Daemon:
    """A running daemon (with what earlier tests applied); the caller may reconcile."""
    monkeypatch.setenv("GPUBUDGET_URL", _daemon.url)
    monkeypatch.setenv("GPUBUDGET_TOKEN", _daemon.token)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return _daemon


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[BudgetsServer]:
    """A small server in the daemon's place."""
    with budgets_server() as state:
        monkeypatch.setenv("GPUBUDGET_URL", state.url)
        monkeypatch.setenv("GPUBUDGET_TOKEN", "gpb_x")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield state


@pytest.fixture
def repo(git_repo: Callable[[str], GitRepo]) -> GitRepo:
    return git_repo("work")


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """``gpubudget reconcile`` as a process of its own, which is gone afterwards."""
    command = [str(GPUBUDGET), "reconcile", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


# with the real daemon


@pytest.mark.usefixtures("daemon")
def test_the_whole_way_of_budgets_from_git_to_the_daemon(repo: GitRepo, cli: Cli) -> None:
    """Applied, unchanged, changed, planned, refused and forced: the daemon has what git says, and nothing else."""
    place = ("reconcile", "--repo", str(repo.path))
    first = repo.commit(budgets(language="50%", vision="25%"))
    done = cli(*place, "--force")
    assert (done.code, done.err) == (0, "")
    told = done.out.splitlines()
    assert told[0].startswith(f"fetched    main {first[:12]} of {repo.path}, by Hanna <hanna@example.org>, 2026-10-01")
    assert told[1] == "validated  3 budgets"
    assert "add        language  share 50%, effective 50%" in told
    assert told[-1].startswith(f"applied    {first[:12]}, ")

    assert cli(*place).out.splitlines()[-1] == f"unchanged  {first[:12]} is applied already"

    second = repo.commit(budgets(language="40%", vision="1/3"))
    planned = cli(*place, "--dry-run")
    assert planned.code == 0
    assert f"planned    {second[:12]} would be applied after {first[:12]}: budgets: 2 changed" in planned.out
    assert json.loads(cli("get", "budgets", "-o", "json").out)["commit"] == first

    applied = cli(*place)
    assert "change     language  share 50% -> 40%, effective 50% -> 40%" in applied.out.splitlines()
    assert "change     vision  share 25% -> 1/3, effective 25% -> ~33.3%" in applied.out.splitlines()
    answer = json.loads(cli("get", "budgets", "-o", "json").out)
    shares = {budget["path"]: budget["pools"]["h100"]["share"] for budget in answer["budgets"]}
    assert (answer["commit"], shares) == (second, {"/": "1/1", "language": "2/5", "vision": "1/3"})

    repo.git("reset", "--quiet", "--hard", first)
    refused = cli(*place)
    assert refused.code == 1
    assert f"error: commit {first} does not descend from {second}, which is applied and is newer" in refused.err
    assert "hint: " in refused.err
    assert refused.out.splitlines()[-1] == f"refused    nothing is applied; {second[:12]} stays"
    forced = cli(*place, "--force")
    assert forced.code == 0
    assert f"note       forced although commit {first} does not descend from {second}" in forced.out


def test_a_broken_tree_shows_every_problem_and_applies_nothing(daemon: Daemon, repo: GitRepo, cli: Cli) -> None:
    """Problems have the file's path in the repository; the daemon keeps its last good tree (volcano#4818)."""
    repo.commit(budgets(language="50%"))
    assert cli("reconcile", "--repo", repo.url, "--force").code == 0
    before = cli("get", "budgets", "-o", "json").out
    commit = repo.commit({**budgets(language="80%", vision="30%"), "budgets/tools/budget.yaml": ""})
    done = cli("reconcile", "--repo", repo.url)
    assert done.code == 1
    assert "budgets/budget.yaml:5:1: error[share-sum]" in done.err
    assert "budgets/tools/budget.yaml:1:1: error[yaml-empty]" in done.err
    assert f"error: the budgets at commit {commit} have " in done.err
    assert done.out.splitlines()[-1] == "failed     nothing is applied"
    assert cli("get", "budgets", "-o", "json").out == before
    assert daemon.process.poll() is None


@pytest.mark.usefixtures("daemon")
def test_only_some_may_apply_budgets(repo: GitRepo, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's token ends with 4 and changes nothing; a reconciler's is enough."""
    repo.commit(budgets(language="51%"))
    tokens = {role: cli("token", "create", role, "--role", role).out.strip() for role in ("user", "reconciler")}
    monkeypatch.setenv("GPUBUDGET_TOKEN", tokens["user"])
    denied = cli("reconcile", "--repo", str(repo.path), "--force")
    assert (denied.code, denied.out.splitlines()[-1][:26]) == (4, "failed     nothing is appl")
    monkeypatch.setenv("GPUBUDGET_TOKEN", tokens["reconciler"])
    assert cli("reconcile", "--repo", str(repo.path), "--force").code == 0


def test_a_daemon_that_was_killed_is_waited_for(daemon: Daemon, repo: GitRepo) -> None:
    """A round that begins while the daemon is down applies when it is back, with what was applied before."""
    first = repo.commit(budgets(language="50%"))
    with started("--repo", str(repo.path), "--force") as process:
        assert process.wait(30) == 0
    second = repo.commit(budgets(language="60%"))
    daemon.end(signal.SIGKILL)
    with started("--repo", str(repo.path), "-o", "json") as process:
        daemon.start()
        out, err = process.communicate(timeout=30)
    report = json.loads(out)
    assert (report["status"], report["commit"], report["previous"], err) == ("applied", second, first, "")


@pytest.mark.usefixtures("daemon")
def test_every_goes_on_and_ends_cleanly(repo: GitRepo) -> None:
    """Each round tells one line of JSON; a new commit is picked up; SIGTERM ends it with 0."""
    first = repo.commit(budgets(language="50%"))
    with started("--repo", str(repo.path), "--force") as process:
        assert process.wait(30) == 0
    with started("--repo", str(repo.path), "--every", "1s", "-o", "json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["status"] == "unchanged"
        repo.commit({"budgets/budget.yaml": "broken: [\n"})
        assert until(lambda: _round(process, "failed"), "a round with the broken commit")["problems"]
        last = repo.commit(budgets(language="70%"))
        applied = until(lambda: _round(process, "applied"), "a round with the last commit")
        assert (applied["commit"], applied["previous"]) == (last, first)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert "terminated; the daemon keeps what it has" in process.stderr.read()


def _round(process: subprocess.Popen[str], status: str) -> dict[str, str]:
    """The report of the next round if it ended so."""
    assert process.stdout is not None
    found: dict[str, str] = json.loads(process.stdout.readline())
    return found if found["status"] == status else {}


# ends and locks


def test_a_process_killed_while_it_sends_leaves_the_lock_free(server: BudgetsServer, repo: GitRepo, cli: Cli) -> None:
    """kill -9 in the middle of the request: the next round finds a whole tree and finishes."""
    commit = repo.commit(budgets(language="50%"))
    inside, go_on = threading.Event(), threading.Event()

    def hold(_: BudgetsServer) -> bool:
        inside.set()
        return not go_on.wait(20)

    server.before = [lambda _: False, hold]
    with started("--repo", str(repo.path)) as process:
        assert inside.wait(20)
        busy = cli("reconcile", "--repo", str(repo.path))
        assert (busy.code, busy.out) == (0, "busy       another reconciliation is at work; left to it\n")
        process.kill()
        process.wait()
        go_on.set()
    until(lambda: server.commit, "the end of the request")
    assert cli("reconcile", "--repo", str(repo.path)).out.splitlines()[-1] == (
        f"unchanged  {commit[:12]} is applied already"
    )


def test_sigterm_during_a_fetch_ends_git_too(server: BudgetsServer) -> None:
    """A single round that is terminated ends with 143, and leaves no git process."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)
        with started("--repo", f"git://127.0.0.1:{silent.getsockname()[1]}/b.git") as process:
            connection, _ = silent.accept()
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 128 + signal.SIGTERM
            with connection:
                connection.settimeout(20)
                while connection.recv(4096):
                    pass
    assert server.requests == []


def test_a_lock_is_for_one_repository_and_one_daemon(
    server: BudgetsServer, repo: GitRepo, cli: Cli, tmp_path: Path
) -> None:
    """Another one's lock does not stop this one; its own does."""
    repo.commit(budgets(language="50%"))
    cache = tmp_path / "mine"
    source = parse_source(str(repo.path))
    with exclusive(folder_for(cache, source, "http://elsewhere")):
        assert "applied" in cli("reconcile", "--repo", str(repo.path), "--cache-dir", str(cache)).out
    with exclusive(folder_for(cache, source, server.url)):
        assert "busy" in cli("reconcile", "--repo", str(repo.path), "--cache-dir", str(cache)).out


# what is given


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 64, "Missing option '--repo'"),
        (("--repo", ".", "--every", "soon"), 64, "'soon' is not a duration"),
        (("--repo", ".", "--every", "0"), 64, "--every is 0; it may be 1s to 1d"),
        (("--repo", ".", "--timeout", "2d"), 64, "--timeout is 2d; it may be 1s to 1d"),
        (("--repo", ".", "--every", "5m", "--force"), 64, "--force goes with one round and one cluster only"),
        (("--repo", "ext::sh -c x"), 64, "names a program to run"),
        (("--repo", "/no/such/place"), 64, "there is no repository at '/no/such/place'"),
        (("--repo", ".", "--ref", "--all"), 64, "is not the name of a branch or tag"),
        (("--repo", ".", "--ref", "a" * 40), 64, "is a commit id; only a branch or tag is reconciled"),
        (("--repo", ".", "--path", "../x"), 64, "does not name a folder inside the repository"),
        (("--repo", ".", "--cluster", "a", "../x", "http://a", "t"), 64, "does not name a folder inside the"),
        (("--repo", ".", "--cluster", "a", "x", "nonsense", "t"), 64, "is not the URL of a daemon"),
        (("--repo", ".", "--cluster", "a", "x", "http://a", "t", "--path", "y"), 64, "--path goes with one cluster"),
        (("--repo", ".", *("--cluster", "a", "x", "http://a", "t") * 2), 64, "two clusters have the same name"),
        (("--repo", ".", "--cluster", "a", "x", "http://a", "t", "--force"), 64, "--force goes with one round and one"),
        (("--repo", ".", "--commit", "a" * 40), 64, "--commit needs --force and --reason"),
        (("--repo", ".", "--commit", "a" * 40, "--force", "--reason", " "), 64, "--commit needs --force and --reason"),
        (("--repo", ".", "--commit", "abc", "--force", "--reason", "x"), 64, "'abc' is not a whole commit id"),
        (("--repo", ".", "--reason", "x"), 64, "--reason goes with --commit only"),
        (("--repo", ".", "--max-removed", "some"), 64, "'some' is not a whole number from 0 to 1,000,000"),
        (("--repo", ".", "--max-moved", "0.5"), 64, "'0.5' is not a share; write a percentage"),
        (("--repo", ".", "--max-moved", "120%"), 64, "is more than the whole (100%)"),
        (("--repo", ".", "--require-signed", "/no/such/file"), 64, "'/no/such/file' does not exist"),
        (("--repo", ".", "status"), 64, "options of reconcile do not go with status"),
        (("suspend",), 64, "Missing option '--reason'"),
    ],
)
def test_wrong_options_are_one_sentence(
    server: BudgetsServer, cli: Cli, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """What cannot be meant is refused before anything is read, and the way out is told."""
    done = cli("reconcile", *arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert server.requests == []


def test_json_is_the_whole_report(server: BudgetsServer, repo: GitRepo, cli: Cli) -> None:
    """Also a failure is JSON on stdout, with its exit code."""
    commit = repo.commit(budgets(language="50%"))
    report = json.loads(cli("reconcile", "--repo", str(repo.path), "-o", "json").out)
    assert (report["status"], report["commit"], report["counts"]["added"]) == ("applied", commit, 2)
    assert (server.commit, report["committed"]) == (commit, "2026-10-01T12:00:00.000Z")
    done = cli("reconcile", "--repo", str(repo.path), "--ref", "nope", "-o", "json")
    report = json.loads(done.out)
    assert (done.code, done.err, report["status"]) == (1, "", "failed")
    assert "has no branch or tag 'nope'" in report["error"]


def test_options_can_be_set_by_variables(
    server: BudgetsServer, repo: GitRepo, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer's unit file may hold all of it."""
    repo.git("switch", "--quiet", "--create", "live")
    commit = repo.commit(budgets(language="50%"))
    monkeypatch.setenv("GPUBUDGET_RECONCILE_REPO", str(repo.path))
    monkeypatch.setenv("GPUBUDGET_RECONCILE_REF", "live")
    assert cli("reconcile").code == 0
    assert server.commit == commit


# how it stands


def test_status_tells_seen_applied_since_when_and_why_not(server: BudgetsServer, repo: GitRepo, cli: Cli) -> None:
    """For people, programs and Prometheus; before the first round it says that there was none."""
    none = cli("reconcile", "status")
    assert (none.code, none.out, none.err) == (0, "", "nothing was reconciled from here yet\n")
    first = repo.commit(budgets(language="50%"))
    cli("reconcile", "--repo", str(repo.path))
    second = repo.commit({"budgets/budget.yaml": "broken: ["})
    cli("reconcile", "--repo", str(repo.path))
    head, row, why = cli("reconcile", "status").out.splitlines()
    assert head.split() == ["DAEMON", "REPOSITORY", "REF", "STATUS", "SINCE", "LAST", "SEEN", "APPLIED"]
    assert row.split()[:4] == [server.url, str(repo.path), "main", "failed"]
    assert row.split()[-2:] == [second[:12], first[:12]]
    assert why.startswith(f"{server.url}: the budgets at commit {second} have ")
    (found,) = json.loads(cli("reconcile", "status", "-o", "json").out)["reconcilers"]
    assert (found["seen"], found["applied"], found["status"], found["rounds"]) == (second, first, "failed", 1)
    assert found["since"].endswith("Z")
    metrics = cli("reconcile", "status", "-o", "prometheus").out
    assert 'status="failed"} 1.0' in metrics
    assert f'seen="{second}",applied="{first}"' in metrics


def test_metrics_are_written_after_each_round(server: BudgetsServer, repo: GitRepo, cli: Cli, tmp_path: Path) -> None:
    """Readable for the collector; a place that cannot be written is a warning, and the budgets are applied."""
    commit = repo.commit(budgets(language="50%"))
    file = tmp_path / "gpubudget.prom"
    assert cli("reconcile", "--repo", str(repo.path), "--metrics-file", str(file)).code == 0
    assert f'gpubudget_reconcile_commit_info{{cluster="",target="{server.url}"' in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o644
    done = cli("reconcile", "--repo", str(repo.path), "--metrics-file", str(tmp_path / "no/such/place"))
    assert (done.code, server.commit) == (0, commit)
    assert "warning: cannot write" in done.err


# several clusters


def test_each_of_several_clusters_has_its_own_result(
    server: BudgetsServer, repo: GitRepo, cli: Cli, tmp_path: Path
) -> None:
    """One that is invalid and one whose token is missing hide nothing of those that work."""
    with budgets_server() as other:
        folders = ("one", "two", "broken")
        texts = {name: budgets(language=f"{10 * n}%") for n, name in enumerate(folders, start=1)}
        texts["broken"]["budgets/budget.yaml"] = "nonsense"
        files = {f"{name}/{file}": text for name, tree in texts.items() for file, text in tree.items()}
        commit = repo.commit(files)
        token = tmp_path / "token"
        token.write_text("gpb_x")
        away = "http://127.0.0.1:1"
        clusters = (
            ("broken", "broken/budgets", away, str(token)),
            ("locked", "one/budgets", f"{server.url}/x", str(tmp_path / "missing")),
            ("one", "one/budgets", server.url, str(token)),
            ("two", "two/budgets", other.url, str(token)),
        )
        options = [word for cluster in clusters for word in ("--cluster", *cluster)]
        done = cli("reconcile", "--repo", str(repo.path), *options, "-o", "json")
        reports = [json.loads(line) for line in done.out.splitlines()]
        told = {report["cluster"]: report["status"] for report in reports}
        assert told == {"broken": "failed", "locked": "failed", "one": "applied", "two": "applied"}
        assert done.code == 1
        assert (server.commit, other.commit) == (commit, commit)
        assert server.applied is not None
        assert other.applied is not None
        assert server.applied["digest"] != other.applied["digest"]
        text = cli("reconcile", "status").out
        assert [line.split()[0] for line in text.splitlines()[:5]] == ["CLUSTER", "broken", "locked", "one", "two"]
        assert "locked: the token file" in text
        done = cli("reconcile", "--repo", str(repo.path), *options[5:])
        assert (done.code, done.err.startswith("error: locked: the token file ")) == (4, True)
        assert [line for line in done.out.splitlines() if line.startswith("cluster")] == [
            "cluster    locked", "cluster    one", "cluster    two"
        ]  # fmt: skip
        assert cli("reconcile", "--repo", str(repo.path), *options[10:]).code == 0


# what a person decides


@pytest.mark.usefixtures("daemon")
def test_suspended_by_a_person_until_a_person_resumes(repo: GitRepo, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a reason and a name that every reconciler is told; a reconciler's token may not do it."""
    repo.commit(budgets(language="30%"))
    place = ("reconcile", "--repo", str(repo.path))
    cli(*place, "--force")
    done = cli("reconcile", "suspend", "--reason", "we count")
    assert done.code == 0
    assert done.out.startswith("suspended by admin at 20")
    assert cli("reconcile", "suspend", "--reason", "x").err.startswith(
        "error: it is suspended already, by admin: we co"
    )
    second = repo.commit(budgets(language="35%"))
    held = cli(*place)
    assert (held.code, held.err) == (0, "")
    assert held.out.splitlines()[-1].startswith("suspended  nothing is applied, suspended by admin since 20")
    assert "suspended by admin since" in cli("reconcile", "status").out
    robot = cli("token", "create", "robot", "--role", "reconciler").out.strip()
    with monkeypatch.context() as patch:
        patch.setenv("GPUBUDGET_TOKEN", robot)
        assert cli("reconcile", "resume").code == 4
    assert cli("reconcile", "resume").out.startswith("resumed; it was suspended by admin since 20")
    assert cli("reconcile", "resume").err.startswith("error: it is not suspended")
    assert cli(*place).out.splitlines()[-1].startswith(f"applied    {second[:12]}, ")


@pytest.mark.usefixtures("daemon")
def test_an_emergency_is_on_the_daemons_record_and_holds(repo: GitRepo, cli: Cli) -> None:
    """The commit that was named is applied, by whom and why is kept, and the next round leaves it."""
    first = repo.commit(budgets(language="40%"))
    place = ("reconcile", "--repo", str(repo.path))
    cli(*place, "--force")
    second = repo.commit(budgets(language="45%"))
    cli(*place)
    done = cli(*place, "--force", "--commit", first, "--reason", "45% was a slip")
    assert done.code == 0
    assert f"note       an emergency: commit {first} instead of {second}: 45% was a slip" in done.out.splitlines()
    assert cli(*place).out.splitlines()[-1].startswith("suspended  nothing is applied, suspended by admin since")
    assert json.loads(cli("get", "budgets", "-o", "json").out)["commit"] == first
    assert cli("reconcile", "resume").code == 0
    repo.git("revert", "--no-edit", second)
    assert cli(*place).out.splitlines()[-1].endswith("no change of budgets")


def test_only_signed_commits_are_applied_where_that_is_required(
    server: BudgetsServer, repo: GitRepo, cli: Cli, tmp_path: Path
) -> None:
    """The file of allowed signers is an option."""
    commit = repo.commit(budgets(language="40%"))
    (tmp_path / "signers").write_text("")
    done = cli("reconcile", "--repo", str(repo.path), "--require-signed", str(tmp_path / "signers"))
    assert (done.code, server.requests) == (1, [])
    assert f"error: commit {commit} is not signed" in done.err


def test_limits_are_options(server: BudgetsServer, repo: GitRepo, cli: Cli) -> None:
    """A refusal names the numbers and the limit; with another limit it is applied."""
    repo.commit(budgets(a="10%", b="10%", c="10%", d="10%"))
    place = ("reconcile", "--repo", str(repo.path))
    cli(*place)
    commit = repo.commit(budgets(a="10%", b="10%"))
    done = cli(*place)
    assert done.code == 1
    assert (
        f"error: commit {commit} would remove 2 of 4 budgets (50.0%): c, d; at most 10 and 1/3 go at once" in done.err
    )
    assert "hint: " in done.err
    assert cli(*place, "--max-removed-part", "50%", "--max-removed", "1").code == 1
    assert cli(*place, "--max-removed-part", "50%").code == 0
    assert server.commit == commit
