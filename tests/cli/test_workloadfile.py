"""Files of workloads for ``submit -f``."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from gpubudget.cli.workloadfile import workloads_of
from gpubudget.errors import InvalidInputError


def write(path: Path, text: str | bytes) -> str:
    """Writes a file; its name."""
    file = path / "workloads.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(file)


@pytest.mark.parametrize(
    "text",
    [
        "budget: vision\ngpus: 1\ncommand: [a, b]\n",
        "- {budget: vision, gpus: 1, command: [a, b]}\n",
        "workloads:\n- budget: vision\n  gpus: 1\n  command: [a, b]\n",
        '{"budget": "vision", "gpus": 1, "command": ["a", "b"]}',
        '{"workloads": [{"budget": "vision", "gpus": 1, "command": ["a", "b"]}]}',
    ],
)
def test_one_or_many_in_yaml_or_json(tmp_path: Path, text: str) -> None:
    """One mapping, a list, or the API's own form mean the same, in YAML and JSON."""
    assert workloads_of(write(tmp_path, text), {}) == [{"budget": "vision", "gpus": 1, "command": ["a", "b"]}]


def test_options_hold_for_all(tmp_path: Path) -> None:
    """What the command line says takes the place of what the file says, in each workload."""
    name = write(tmp_path, "- {gpus: 1, budget: a}\n- {gpus: 2}\n")
    assert workloads_of(name, {"budget": "b"}) == [{"gpus": 1, "budget": "b"}, {"gpus": 2, "budget": "b"}]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash reads stdin."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"gpus: 3\n")))
    assert workloads_of("-", {}) == [{"gpus": 3}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no workload"),
        ("[]", "holds no workload"),
        ("- 1\n", "workload 1 of .* is no mapping"),
        ("- {gpus: 1}\n- x\n", "workload 2 of .* is no mapping"),
        ("gpus: 1\ngpus: 2\n", r"workloads.yaml:2:1: error\[.*gpus"),
        ("gpus: [1\n", r"workloads.yaml:2:1: error\["),
        ("# " + "x" * 1_000_000, "1,000,002 bytes of YAML"),
        ("a: &x 1\nb: *x\n", r"workloads.yaml:1:4: error\["),
        (b"gpus: \xff\n", r"workloads.yaml:1:7: error\[.*UTF-8"),
        ("[" * 10_000, "workloads.yaml:1:"),
    ],
)
def test_a_wrong_file_is_told_with_its_place(tmp_path: Path, text: str | bytes, message: str) -> None:
    """What is wrong is told with file, line and column, and nothing is submitted."""
    with pytest.raises(InvalidInputError, match=message):
        workloads_of(write(tmp_path, text), {})


@pytest.mark.parametrize("name", ["nowhere.yaml", ".", "nul\0"])
def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A file that is missing, a folder or no path at all is one sentence."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        workloads_of(name, {})
