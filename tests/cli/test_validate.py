"""The command validate: what it prints, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpubudget.cli.validate import validate
from gpubudget.errors import InvalidInputError

CLUSTER = "kind: Cluster\npools: {h100: {hosts: 16, gpus_per_host: 8}}\n"
SOUND = "kind: Budget\nmanagers: [ines]\nmembers: [ines]\n"
WRONG = SOUND + "children:\n  a: {share: 60%, members: [x]}\n  b: {share: 50%, members: [y]}\n"

OVER = "the children of / sum to 110%, 10% more than the whole"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound tree in the folder budgets of the current folder."""
    folder = tmp_path / "budgets"
    folder.mkdir()
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "budget.yaml").write_text(SOUND)
    monkeypatch.chdir(tmp_path)
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(validate, arguments)


def test_a_sound_tree_ends_with_0_and_a_summary(tree: Path) -> None:
    """One line says how much was found sound."""
    result = run(str(tree))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("valid: 1 budget, 1 pool; ")
    assert result.stdout.count("\n") == 1


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("argument", [[], ["budgets"], ["budgets/"], ["./budgets"]])
def test_the_usual_folder_is_found(argument: list[str], tree: Path) -> None:
    """Without a path, the folder budgets is validated; places can be opened from where one stands."""
    (tree / "budget.yaml").write_text(WRONG)
    result = run(*argument)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"budgets/budget.yaml:4:1: error[share-sum]: {OVER}: a 60% + b 50%",
        "    4 | children:",
        "      | ^^^^^^^^",
        "    budgets/budget.yaml:5:14: a gets 60%; the others leave 50%",
        "    budgets/budget.yaml:6:14: b gets 50%; the others leave 40%",
        "    hint: take 10% or more away from them",
        "invalid: 1 error, 0 warnings",
    ]


def test_inside_the_folder_no_path_is_needed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that is a tree itself, that one is meant."""
    (tree / "budgets").mkdir()
    monkeypatch.chdir(tree)
    assert run().exit_code == 0
    (tree / "budget.yaml").write_text("")
    assert run().stdout.startswith("budget.yaml:1:1: error[yaml-empty]")


def test_anywhere_in_the_repository_its_tree_is_meant(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for git, it does not matter in which folder one is; outside of a repository nothing above is looked at."""
    for name in ("docs", "budgets/language"):
        (tree.parent / name).mkdir()
        monkeypatch.chdir(tree.parent / name)
        assert run().exit_code == 1
    (tree.parent / ".git").mkdir()
    assert run().exit_code == 0
    (tree / "budget.yaml").write_text("")
    assert run().stdout.startswith("../budget.yaml:1:1: error[yaml-empty]")
    monkeypatch.chdir(tree.parent / "docs")
    assert run().stdout.startswith("../budgets/budget.yaml:1:1: error[yaml-empty]")


def test_json_is_for_programs(tree: Path) -> None:
    """The same facts as one JSON object, with the same exit code."""
    sound = run("-o", "json")
    assert (sound.exit_code, json.loads(sound.stdout)) == (
        0,
        {"valid": True, "passed": True, "budgets": 1, "pools": ["h100"], "errors": 0, "warnings": 0, "problems": []},
    )
    (tree / "budget.yaml").write_text(WRONG)
    wrong = run("--output", "json")
    answer = json.loads(wrong.stdout)
    assert (wrong.exit_code, answer["valid"], answer["budgets"], answer["errors"]) == (1, False, None, 1)
    assert answer["problems"][0]["file"] == "budgets/budget.yaml"


def test_warnings_alone_end_with_0(tree: Path) -> None:
    """A warning is shown and does not fail the command."""
    (tree / "budget.yaml").write_text("kind: Budget\nmanagers: [ines]\n")
    result = run()
    assert result.exit_code == 0
    assert "warning[members-missing]" in result.stdout
    assert "0 errors, 1 warning\n" in result.stdout


def test_strict_fails_for_warnings_and_says_so(tree: Path) -> None:
    """With --strict, or its variable, a warning ends the command with 1; the tree is still called valid in JSON."""
    (tree / "budget.yaml").write_text("kind: Budget\nmanagers: [ines]\n")
    result = run("--strict")
    assert result.exit_code == 1
    assert result.stdout.endswith("refused: 0 errors, 1 warning, and --strict lets no warning pass\n")
    answer = json.loads(run("--strict", "-o", "json").stdout)
    assert (answer["valid"], answer["passed"], answer["budgets"]) == (True, False, 1)
    (tree / "budget.yaml").write_text(SOUND)
    assert run("--strict").exit_code == 0


def test_annotations_and_sarif_name_files_from_the_top_of_the_repository(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever one stands and however the folder is named, paths are those that GitHub shows them at."""
    (tree / "budget.yaml").write_text(WRONG)
    monkeypatch.chdir(tree)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tree.parent))
    for path in (".", str(tree), "../budgets"):
        assert run("-o", "github", path).stdout.startswith(
            "::error file=budgets/budget.yaml,line=4,col=1,title=share-sum"
        )
        location = json.loads(run("-o", "sarif", path).stdout)["runs"][0]["results"][0]["locations"][0]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "budgets/budget.yaml"
    monkeypatch.delenv("GITHUB_WORKSPACE")
    assert run("-o", "github", str(tree)).stdout.startswith("::error file=budget.yaml,")
    monkeypatch.setenv("GITHUB_WORKSPACE", "/nowhere")
    assert run("-o", "github").stdout.startswith(f"::error file={tree.resolve()}/budget.yaml,")


@pytest.mark.parametrize("path", ["nowhere", "budgets/budget.yaml", "."])
def test_a_wrong_path_is_an_error_with_a_hint(path: str, tree: Path) -> None:
    """A path that is no folder of budgets is one sentence, and nothing on stdout."""
    (tree.parent / "cluster.yml").touch()
    result = run(path)
    assert isinstance(result.exception, InvalidInputError)
    assert result.exception.hint
    assert result.stdout == ""


def test_validation_changes_nothing_on_disk(tree: Path) -> None:
    """Files, their times and the folder are as before."""
    before = {path: path.stat() for path in tree.parent.rglob("*")}
    run()
    after = {path: path.stat() for path in tree.parent.rglob("*")}
    assert [(path, stat.st_mtime_ns, stat.st_size) for path, stat in before.items()] == [
        (path, stat.st_mtime_ns, stat.st_size) for path, stat in after.items()
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "stream", "words"),
    [
        (["budgets"], 0, 1, "valid: 1 budget"),
        (["nowhere"], 1, 2, "error: nowhere does not exist\nhint: give the folder that holds cluster.yaml"),
        (["--output", "xml"], 64, 2, "'xml' is not one of 'text', 'json'"),
        (["budgets", "more"], 64, 2, "error: "),
    ],
)
def test_the_process_ends_with_the_right_code(
    tree: Path, arguments: list[str], code: int, stream: int, words: str
) -> None:
    """0 for sound, 1 for invalid or missing, 64 for wrong usage; the other stream stays empty."""
    command = [sys.executable, "-m", "gpubudget", "validate", *arguments]
    done = subprocess.run(command, cwd=tree.parent, capture_output=True, text=True, check=False)
    assert done.returncode == code
    outputs = (done.stdout, done.stderr) if stream == 1 else (done.stderr, done.stdout)
    assert words in outputs[0]
    assert outputs[1] == ""
