"""``gpubudget owners`` and ``gpubudget approvals`` in real repositories; no daemon is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.conftest import GitRepo

ROOT = "kind: Budget\nmanagers: [ines]\nmembers: [ines]\nchildren:\n"
LANGUAGE = "kind: Budget\nmanagers: [hanna, kim]\nchildren:\n  olmo: {share: 50%, members: [kim]}\n"
FILES: dict[str, str | None] = {
    "budgets/cluster.yaml": "kind: Cluster\npools:\n  h100: {gpus_per_host: 8, hosts: 4}\n",
    "budgets/budget.yaml": ROOT + "  language: 50%\n  vision: {share: 25%, managers: [ravi], members: [eva]}\n",
    "budgets/language/budget.yaml": LANGUAGE,
}
LINES = ["/budgets/ @ines", "/.github/CODEOWNERS @ines", "/budgets/language/ @hanna @kim"]


@pytest.fixture
def repo(git_repo: Callable[[str], GitRepo], monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    """A clone that the caller stands in."""
    found = git_repo("work")
    found.commit(FILES)
    monkeypatch.chdir(found.path)
    return found


def test_codeowners_is_written_and_checked(repo: GitRepo, cli: Cli) -> None:
    """The file is made where GitHub looks for it; --check fails until it is, and again when managers change."""
    stale = cli("owners", "--check")
    assert (stale.code, stale.out) == (1, "")
    assert "CODEOWNERS is not up to date; it lacks: # gpubudget owners: begin" in stale.err
    assert "run `gpubudget owners`" in stale.err
    file = repo.path / ".github/CODEOWNERS"
    assert not file.exists()
    assert cli("owners").out == f"wrote {file}\n"
    assert file.read_text().splitlines()[1:-1] == LINES
    for _ in range(2):
        assert (cli("owners", "--check").code, cli("owners").out) == (0, f"{file} is up to date\n")
    budget = repo.path / "budgets/language/budget.yaml"
    budget.write_text(budget.read_text().replace("[hanna, kim]", "[kim]"))
    assert "it lacks: /budgets/language/ @kim" in cli("owners", "--check").err
    budget.unlink()
    (repo.path / "budgets/budget.yaml").write_text(ROOT.replace("children:\n", ""))
    assert "it has lines of budgets that are gone" in cli("owners", "--check").err


def test_the_file_there_is_keeps_its_place_and_its_other_lines(repo: GitRepo, cli: Cli) -> None:
    """Wherever GitHub reads it; another one can be named, with the folder of budgets."""
    (repo.path / "CODEOWNERS").write_text("* @everyone\n")
    assert cli("owners", "budgets").out == f"wrote {repo.path / 'CODEOWNERS'}\n"
    assert (repo.path / "CODEOWNERS").read_text().startswith("* @everyone\n\n# gpubudget owners: begin")
    assert cli("owners", "--file", "new/OWNERS").code == 0
    assert "/new/OWNERS @ines" in Path("new/OWNERS").read_text()
    assert cli("owners", "--file", str(repo.path.parent / "outside")).code == 0
    assert "outside" not in (repo.path.parent / "outside").read_text()


def test_what_cannot_be_read_or_written_is_one_clear_sentence(repo: GitRepo, cli: Cli) -> None:
    """An invalid tree, a folder in the file's place, bytes that are no text, and a place that is none."""
    (repo.path / "bytes").write_bytes(b"\xff")
    for file, said in (("bytes", "it is not text"), ("budgets", "cannot be read"), ("bytes/x", "cannot be read")):
        done = cli("owners", "--file", file)
        assert (done.code, done.out) == (1, "")
        assert said in done.err
    (repo.path / "empty").mkdir(mode=0o755)
    (repo.path / "budgets/budget.yaml").write_text("kind: Budget\nchildren: {a: 5}\n")
    done = cli("owners")
    assert done.code == 1
    assert "budgets/budget.yaml:2:" in done.err
    assert cli("owners", "none").code == 1


def change(repo: GitRepo, files: dict[str, str | None]) -> str:
    repo.git("switch", "--quiet", "--create", "topic")
    return repo.commit(files)


def test_approvals_are_lacking_until_those_who_decide_have_approved(repo: GitRepo, cli: Cli) -> None:
    """1 while one is missing, 0 then; the table says who may still give it."""
    change(
        repo,
        {
            "budgets/budget.yaml": ROOT
            + "  language: 45%\n  vision: {share: 25%, managers: [ravi], members: [eva, joe]}\n"
        },
    )
    done = cli("approvals", "--base", "main", "--head", "topic")
    assert done.code == 1
    assert [" ".join(line.split()) for line in done.out.splitlines()] == [
        "BUDGET WHAT DECIDED BY STATE",
        "language share /: ines lacking",
        "vision members vision: ravi lacking",
        "",
        "2 of 2 approvals lacking",
    ]
    part = cli("approvals", "--approved-by", "ines,eva")
    assert (part.code, "1 of 2 approvals lacking" in part.out) == (1, True)
    full = cli("approvals", "--approved-by", "@Ines, RAVI")
    assert full.code == 0
    assert full.out.endswith("\nnothing lacks an approval\n")
    data = json.loads(cli("approvals", "--approved-by", "ines", "-o", "json").out)
    assert data["lacking"] == 1
    assert data["approvals"][0] == {
        "path": "language",
        "what": ["share"],
        "decides": "/",
        "managers": ["ines"],
        "approved_by": ["ines"],
        "lacking": False,
    }


def test_who_decides_is_said_by_the_base(repo: GitRepo, cli: Cli) -> None:
    """Deletions need the managers that the base has, and nobody is made a manager by the change itself."""
    change(
        repo,
        {
            "budgets/language/budget.yaml": None,
            "budgets/budget.yaml": ROOT.replace("[ines]\nmem", "[mallory]\nmem").replace("children:\n", ""),
        },
    )
    done = cli("approvals", "--approved-by", "mallory")
    assert done.code == 1
    told = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "/ managers /: ines lacking" in told
    assert "language removed /: ines lacking" in told
    assert "language/olmo removed language: hanna or kim lacking" in told
    assert cli("approvals", "--approved-by", "ines,kim").code == 0


def test_a_branch_without_changes_of_budgets_needs_nobody(repo: GitRepo, cli: Cli) -> None:
    """What was compared is told."""
    topic = change(repo, {"README.md": "words\n"})
    done = cli("approvals")
    assert done.code == 0
    assert done.out == f"HEAD ({topic[:12]}) against main ({repo.git('rev-parse', 'main')[:12]}): nothing to approve\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--base", "nowhere"), "has no branch or tag 'nowhere'"),
        (("--base", "daemon"), "the daemon is not asked here"),
        (("--base", "0" * 40), "there is no commit 0000"),
        (("--path", "none"), "there is no folder 'none'"),
    ],
)
@pytest.mark.usefixtures("repo")
def test_what_cannot_be_compared_is_never_approved(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    """Whatever keeps a side from being read ends with an error."""
    done = cli("approvals", *arguments)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


def test_a_head_that_is_not_valid_is_never_approved(repo: GitRepo, cli: Cli) -> None:
    """Its problems are shown."""
    change(repo, {"budgets/budget.yaml": ROOT + "  language: 450%\n"})
    done = cli("approvals", "--approved-by", "ines")
    assert (done.code, done.out) == (1, "")
    assert "budgets/budget.yaml:5:" in done.err
