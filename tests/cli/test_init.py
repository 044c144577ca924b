"""``gpubudget init`` and ``import``: a new repository that validates, and one from what a site has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.conftest import GitRepo

DUMP = Path(__file__).parents[1] / "gitops" / "imports" / "slurm-22.05.dump"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("LOGNAME", "Ines.Doe")


def log(folder: str) -> str:
    return GitRepo(Path(folder)).git("log", "--format=%an <%ae> %s")


def test_a_new_repository_validates_and_plans(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a first change: a sum of 105% is told with its three terms, and mended it is planned against main."""
    done = cli("init", "demo-budgets")
    assert done.code == 0
    assert done.out.splitlines()[0] == "budgets/budget.yaml"
    assert "validated 6 budgets in demo-budgets/budgets" in done.err
    assert "made demo-budgets a git repository, with a first commit on main" in done.err
    assert log("demo-budgets").endswith(" Budgets")
    monkeypatch.chdir("demo-budgets")
    assert cli("validate", "--strict").code == 0
    assert cli("fmt", "--check").code == 0
    assert cli("owners", "--check").code == 0
    assert "/budgets/ @ines-doe" in Path(".github/CODEOWNERS").read_text()
    root = Path("budgets/budget.yaml")
    root.write_text(root.read_text().replace("share: 30%", "share: 40%"))
    wrong = cli("validate")
    assert wrong.code == 1
    assert "the children of / sum to 105%, 5% more than the whole: language 50% + vision 40% + tools 15%" in wrong.out
    root.write_text(root.read_text().replace("share: 40%", "share: 35%"))
    plan = cli("plan", "--against", "main", "--detailed-exitcode")
    assert plan.code == 2
    assert "30% -> 35%" in plan.out


def test_the_answers_are_options(cli: Cli) -> None:
    """The manager, the pools and the cluster's name; without git there are the files only."""
    options = ("--manager", "hanna", "--pool", "h100=128x8", "--pool", "b200=4x4", "--cluster", "jupiter", "--no-git")
    assert cli("init", "x", *options).code == 0
    assert "b200: {hosts: 4, gpus_per_host: 4}" in Path("x/budgets/cluster.yaml").read_text()
    assert "name: jupiter" in Path("x/budgets/cluster.yaml").read_text()
    assert "managers: [hanna]" in Path("x/budgets/budget.yaml").read_text()
    assert not Path("x/.git").exists()


def test_what_is_there_stays_as_it_is(cli: Cli) -> None:
    """A second time changes nothing, and commits nothing."""
    cli("init", "x")
    Path("x/README.md").write_text("mine")
    Path("x/budgets/language/budget.yaml").write_text("kind: Budget\ntitle: mine\n")
    done = cli("init", "x")
    assert (done.code, done.out) == (0, "")
    assert Path("x/README.md").read_text() == "mine"
    assert log("x").count("\n") == 0
    Path("x/budgets/budget.yaml").write_text("kind: [")
    wrong = cli("init", "x")
    assert wrong.code == 1
    assert "x/budgets/budget.yaml:2:1: error[yaml-syntax]" in wrong.err
    assert "error: the budgets in x/budgets are not valid" in wrong.err


def test_only_what_belongs_to_it_is_committed(cli: Cli) -> None:
    """A token that lies in the folder does not get into git."""
    Path("secret.token").write_text("gpb_x")
    assert cli("init").code == 0
    assert GitRepo(Path()).git("status", "--porcelain") == "?? secret.token"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--manager", "A B"), 64, "the manager 'A B' is not a name"),
        (("--cluster", "../x"), 64, "the cluster '../x' is not a name"),
        (("--pool", "h100"), 64, "'h100' is no pool; write NAME=HOSTSxGPUS"),
        (("--pool", "h100=0x8"), 64, "pools.h100.hosts is the number 0, less than 1"),
        (("--pool", "a=1x8", "--pool", "a=2x8"), 64, "the key 'a' stands twice"),
        (("file",), 64, "is a file"),
        (("file/x",), 1, "cannot be written: Not a directory"),
    ],
)
def test_wrong_answers_are_one_sentence(cli: Cli, arguments: tuple[str, ...], code: int, said: str) -> None:
    """And nothing is written."""
    Path("file").write_text("")
    done = cli("init", *arguments)
    assert done.code == code
    assert said in done.err
    assert [path.name for path in Path().iterdir()] == ["file"]


def test_a_commit_is_made_by_whoever_git_knows(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the variables, by git's own settings, or else in the name of the command."""
    monkeypatch.setenv("EMAIL", "")
    (tmp_path / ".gitconfig").write_text("[user]\nuseConfigOnly = true\n")
    cli("init", "nobody")
    assert log("nobody") == "gpubudget init <gpubudget@localhost> Budgets"
    (tmp_path / ".gitconfig").write_text("[user]\nname = Ines\nemail = ines@example.org\n")
    cli("init", "settings")
    assert log("settings") == "Ines <ines@example.org> Budgets"
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Otto")
    cli("init", "variables")
    assert log("variables").startswith("Otto <ines@example.org>")
    (tmp_path / ".gitconfig").write_text(
        "[user]\nname = I\nemail = i@e\n[commit]\ngpgsign = true\n[gpg]\nprogram = false\n"
    )
    done = cli("init", "unsigned")
    assert done.code == 0
    assert "warning: the files are there, and not committed: " in done.err


# import


def test_a_slurm_dump_becomes_a_repository(cli: Cli) -> None:
    """Imported, reported, and made a repository around it."""
    done = cli("import", "slurm-dump", str(DUMP), "--pool", "h100=2x8", "--out", "lab/budgets")
    assert done.code == 0
    assert done.out.splitlines()[0].startswith("line 18: the account vision has GrpTRES=gres/gpu=16, which is not carr")
    assert "wrote lab/budgets: 12 budgets of 7 people; 6 remarks above" in done.err
    assert cli("validate", "lab/budgets").code == 0
    assert cli("fmt", "--check", "lab/budgets").code == 0
    made = cli("init", "lab")
    assert made.code == 0
    assert "budgets/budget.yaml" not in made.out
    assert "validated 12 budgets in lab/budgets" in made.err
    assert "/budgets/language/ @u06" in Path("lab/.github/CODEOWNERS").read_text()


def test_a_table_becomes_budgets(cli: Cli) -> None:
    """With a byte order mark, as spreadsheets write it; the folder budgets is the usual place."""
    Path("t.csv").write_bytes("\ufeffbudget;weight;members\na;1;zoe\nb;2;bob\n".encode())
    done = cli("import", "csv", "t.csv", "--pool", "h100=2x8", "--cluster", "lab")
    assert (done.code, done.out) == (0, "")
    assert done.err == "wrote budgets: 3 budgets of 2 people; 0 remarks above\n"
    assert "a: {share: 1/3, members: [zoe]}" in Path("budgets/budget.yaml").read_text()
    again = cli("import", "csv", "t.csv", "--pool", "h100=2x8")
    assert (again.code, again.out) == (64, "")
    assert "budgets exists and is not an empty folder" in again.err


@pytest.mark.parametrize(
    ("data", "arguments", "code", "said"),
    [
        (b"", (), 64, "Missing option '--pool'"),
        (b"", ("--pool", "h100=0x8"), 1, "it makes no tree: "),
        (b"budget,share\na,1%\n", ("--pool", "h100=1x8", "--out", "t.csv/x"), 1, "cannot be written: Not a directory"),
        (b"budget,share\na,\xff\n", ("--pool", "h100=1x8"), 1, "t.csv is not UTF-8: byte 15 belongs to no character"),
        (b"nonsense", ("--pool", "h100=1x8"), 1, "the table has the columns nonsense"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence(
    cli: Cli, data: bytes, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """And nothing is written."""
    Path("t.csv").write_bytes(data or b"budget,share\na,1%\n")
    done = cli("import", "csv", "t.csv", *arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert not Path("budgets").exists()


def test_a_file_that_cannot_be_read_is_one_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing one, a folder, and one that is far too large."""
    assert "nowhere cannot be read: No such file" in cli("import", "csv", "nowhere", "--pool", "a=1x8").err
    assert "cannot be read: Is a directory" in cli("import", "slurm-dump", ".", "--pool", "a=1x8").err
    monkeypatch.setattr("gpubudget.cli.imports.LARGEST_FILE", 3)
    Path("t.csv").write_text("long")
    assert "t.csv is larger than" in cli("import", "csv", "t.csv", "--pool", "a=1x8").err
