"""One history under two trees of budgets: what a commit would change for whom, before it is merged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.conftest import GitRepo

CLUSTER = "kind: Cluster\nname: lab\npools:\n  h100: {gpus_per_host: 8, hosts: 1}\n"
TRACE = "job_id,submit_s,user,group,gpus,duration_s,state,gpu_type\n" + "".join(
    f"{group}{number},{number * 1800 + 7 * place},{group}-user,{group},4,7200,,\n"
    for number in range(60)
    for place, group in enumerate(("red", "blue"))
)


def tree(**shares: str) -> dict[str, str | None]:
    """A root with these children."""
    rows = "".join(f"  {name}: {{share: {share}, members: [{name}-user]}}\n" for name, share in shares.items())
    return {"budgets/cluster.yaml": CLUSTER, "budgets/budget.yaml": f"kind: Budget\nmanagers: [ann]\nchildren:\n{rows}"}


@pytest.fixture(autouse=True)
def _repo(git_repo: Callable[[str], GitRepo], monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository whose branch main gives red and blue a half each, and a trace of both."""
    made = git_repo("lab")
    made.commit(tree(red="50%", blue="50%"), "Equal shares")
    monkeypatch.chdir(made.path)
    Path("trace.csv").write_text(TRACE)


def play(cli: Cli, *more: str) -> tuple[int, str, str]:
    """Play the trace under the folder, against main."""
    return cli("simulate", "--trace=trace.csv", "--budgets=budgets", "--against=main", *more)


def test_gpu_time_follows_the_shares(cli: Cli) -> None:
    """Whoever gets a larger share waits less and gets more; both runs are in report and figures."""
    for name, text in tree(red="80%", blue="20%").items():
        Path(name).write_text(str(text))
    code, out, err = play(cli, "--out=both.html", "--json=both.json")
    assert code == 0, err
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["RUN", "main", "budgets"]
    changes = {line.split()[0]: line for line in lines[4:]}
    assert "50.0% → 80.0%" in changes["red"]
    assert "50.0% → 20.0%" in changes["blue"]
    assert "main: 120 workloads" in err
    runs = {run["name"]: run for run in json.loads(Path("both.json").read_text())["runs"]}
    got = {
        name: {budget["path"]: budget["delivered_gpu_ms"] for budget in run["measures"]["budgets"]}
        for name, run in runs.items()
    }
    assert got["budgets"]["red"] > got["main"]["red"]
    assert got["budgets"]["blue"] < got["main"]["blue"]
    assert any("cannot know" in sentence for sentence in runs["main"]["assumptions"])
    assert "main" in Path("both.html").read_text()


def test_the_same_budgets_change_nothing(cli: Cli) -> None:
    """Nothing is different for anybody."""
    code, out, _ = play(cli)
    assert code == 0
    assert out.splitlines()[-1] == "nothing is different for any budget"


def test_work_follows_a_budget_that_is_renamed_or_gone(cli: Cli) -> None:
    """What red asked for is charged to its new name, what blue asked for to the budget above it."""
    rows = "  crimson: {share: 50%, members: [red-user], previously: red}\n"
    Path("budgets/budget.yaml").write_text(f"kind: Budget\nmanagers: [ann]\nchildren:\n{rows}")
    code, out, err = play(cli, "--json=both.json")
    assert code == 0, err
    after = json.loads(Path("both.json").read_text())["runs"][1]["measures"]
    counts = {budget["path"]: budget["workloads"] for budget in after["budgets"]}
    assert counts == {"/": 120, "crimson": 60}
    assert after["workloads"] == 120
    names = [line.split("  ")[0] for line in out.splitlines()[5:]]
    assert {"red → crimson", "blue"} <= set(names)
    assert not {"red", "crimson"} & set(names)


def test_hosts_and_rules_of_the_command_hold_for_both(cli: Cli) -> None:
    """With more hosts than anybody needs nobody waits under either tree."""
    for name, text in tree(red="80%", blue="20%").items():
        Path(name).write_text(str(text))
    code, _, err = play(cli, "--hosts=40", "--lookback=1d", "--json=both.json")
    assert code == 0, err
    for run in json.loads(Path("both.json").read_text())["runs"]:
        assert run["gpus"] == 320
        assert run["measures"]["waits"][0]["first"]["largest_ms"] == 0


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--log=x.jsonl"], 64, "--log goes with a single run, and not with --against"),
        (["--policy=fifo", "--policy=gpubudget"], 64, "a second --policy goes with a single run"),
        (["--against=daemon"], 64, "--against names a commit here"),
        (["--against=nowhere"], 1, "has no branch or tag 'nowhere'"),
        (["--budgets=nowhere"], 1, "nowhere"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(cli: Cli, options: list[str], code: int, said: str) -> None:
    """What does not go together, and commits and folders that are not there."""
    ended, out, err = play(cli, *options)
    assert (ended, out) == (code, "")
    assert said in err


def test_two_trees_need_a_folder(cli: Cli) -> None:
    """Without a folder of budgets there is nothing to hold against the commit."""
    code, _, err = cli("simulate", "--trace=trace.csv", "--budgets-from-groups", "--hosts=1", "--against=main")
    assert code == 64
    assert "--against compares two trees" in err
