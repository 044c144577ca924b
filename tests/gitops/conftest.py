"""Folders and trees for the tests of budgets."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubudget.gitops.diagnostics import Diagnostic
from gpubudget.gitops.load import LoadResult, load_tree

CLUSTER = "kind: Cluster\npools:\n  h100: {hosts: 16, gpus_per_host: 8}\n  b200: {hosts: 4, gpus_per_host: 8}\n"
PEOPLE = "managers: [ines]\nmembers: [ines]\n"


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """An empty folder that other users of this machine can reach too, unlike the usual temporary one."""
    folder = Path(tempfile.mkdtemp(prefix="gpubudget-"))
    folder.chmod(0o755)
    yield folder
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def load() -> Callable[..., LoadResult]:
    """Loads a sound tree of two pools in which the files given (text or bytes, by path) take the place of its own."""

    def loaded(files: dict[str, str | bytes]) -> LoadResult:
        base: dict[str, str | bytes] = {"cluster.yaml": CLUSTER, "budget.yaml": f"kind: Budget\n{PEOPLE}"}
        merged = base | files
        return load_tree({name: data.encode() if isinstance(data, str) else data for name, data in merged.items()})

    return loaded


@pytest.fixture
def problems(load: Callable[..., LoadResult]) -> Callable[[str], list[Diagnostic]]:
    """All problems of a tree whose root budget has the lines given, below its kind and people."""

    def found(lines: str) -> list[Diagnostic]:
        return list(load({"budget.yaml": f"kind: Budget\n{PEOPLE}{lines}"}).diagnostics)

    return found
