"""The agent's configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubudget.agent.config import Check, Config, Step, load_config
from gpubudget.errors import InvalidInputError
from gpubudget.units import DAY, MINUTE, SECOND

WHOLE = """
checks:
  - {name: nvlink, command: [check-nvlink, --all], every: 5m, timeout: 20s, failures: 2}
  - {name: ib, command: [ibstat]}
repair:
  - {name: reset, command: [nvidia-smi, --gpu-reset], timeout: 2m}
  - name: ticket
    url: https://tickets.example.org/hosts
    headers: {Authorization: Bearer x}
gpus: 8
max_temperature: 90
min_free_mb: 5000
keep_logs: 3d
keep_logs_mb: 2000
unknown_owners: run-as-root
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "agent.yaml"
    file.write_text(text)
    return file


def test_everything_is_read(tmp_path: Path) -> None:
    """A file that says everything is read as values, with times in milliseconds."""
    assert load_config(written(tmp_path, WHOLE)) == Config(
        checks=(
            Check("nvlink", ("check-nvlink", "--all"), 5 * MINUTE, 20 * SECOND, 2),
            Check("ib", ("ibstat",), MINUTE, 30 * SECOND, 1),
        ),
        repair=(
            Step("reset", ("nvidia-smi", "--gpu-reset"), timeout=2 * MINUTE),
            Step("ticket", url="https://tickets.example.org/hosts", headers={"Authorization": "Bearer x"}),
        ),
        gpus=8,
        max_temperature=90,
        min_free_mb=5000,
        keep_logs=3 * DAY,
        keep_logs_mb=2000,
        unknown_owners="run-as-root",
    )


def test_an_empty_mapping_is_all_defaults(tmp_path: Path) -> None:
    """Everything may be left out."""
    assert load_config(written(tmp_path, "{}")) == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: error[yaml-empty]"),
        ("checks: [", "error[yaml-syntax]"),
        ("- a", "1:1: error[wrong-type]"),
        ("check: []", "1:1: error[unknown-key]: the file has the unknown key 'check'\n    hint: did you mean checks?"),
        ("gpus: 0", "1:7: error[out-of-bounds]: gpus is the number 0, less than 1"),
        ("gpus: eight", "error[wrong-type]: gpus is the text 'eight', not a whole number"),
        ("max_temperature: 10000", "more than 150"),
        ("keep_logs: 5", "error[duration-syntax]: keep_logs is the number 5, not a duration"),
        ("keep_logs: 0s", "error[out-of-bounds]: keep_logs is 0s"),
        ("unknown_owners: maybe", "not refuse or run-as-root"),
        ("checks: [{name: a}]", "1:10: error[missing-key]: checks.0 has no command"),
        ("checks: [{name: a, command: []}]", "the command of a is empty"),
        ("checks: [{name: A b, command: [x]}]", "error[name-syntax]"),
        ("checks: [{name: a, command: x}]", "not a list"),
        (
            "checks: [{name: a, command: [x], timeout: 2d}]",
            "1:43: error[out-of-bounds]: timeout is 2d; it",
        ),
        ("checks: [{name: a, command: [x], every: 1s1h}]", "error[duration-syntax]: every '1s1h' has its units out of"),
        ("checks: [{name: a, command: [x]}, {name: a, command: [y]}]", "1:42: error[name-syntax]: a stands twice"),
        ("repair: [{name: a}]", "the step a has neither a command nor a url"),
        ("repair: [{name: a, command: [x], url: 'https://x'}]", "the step a has both a command and a url"),
        ("repair: [{name: a, url: 'ftp://x'}]", "not a web address"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    """Every problem is told with its place in the file, and a hint where there is one."""
    file = written(tmp_path, text)
    with pytest.raises(InvalidInputError) as refusal:
        load_config(file)
    assert refusal.value.message.startswith(f"the configuration {file} cannot be used:\n{file}:")
    assert message in refusal.value.message


def test_all_problems_at_once(tmp_path: Path) -> None:
    """Several problems are told together."""
    with pytest.raises(InvalidInputError) as refusal:
        load_config(written(tmp_path, "gpus: -1\nmin_free_mb: x\nfoo: 1\n"))
    assert str(refusal.value).count("error[") == 3


def test_the_example_on_the_page_is_sound(tmp_path: Path) -> None:
    """The configuration that the page of the agent shows can be used, and shows every key."""
    page = (Path(__file__).parents[2] / "docs" / "agent.md").read_text(encoding="utf-8")
    example = page.partition("```yaml agent.yaml\n")[2].partition("```")[0]
    config = load_config(written(tmp_path, example))
    assert [check.name for check in config.checks] == ["nvlink"]
    assert [step.name for step in config.repair] == ["reset-gpus", "ticket"]
    assert all(f"\n{field}:" in example for field in Config.__dataclass_fields__)
