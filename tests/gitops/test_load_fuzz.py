"""Whatever bytes a tree is made of, loading ends soon, with a tree or with problems that can be shown."""

import json
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.gitops import yamlfile
from gpubudget.gitops.diagnostics import to_json, to_text
from gpubudget.gitops.load import load_tree

EXAMPLE = Path(__file__).parents[2] / "budgets"
FILES = {str(path.relative_to(EXAMPLE)): path.read_bytes() for path in sorted(EXAMPLE.rglob("*.yaml"))}
PIECES = [
    b"[", b"{", b"}", b"]", b": ", b"- ", b"? ", b"&a ", b"*a", b"!!int ", b"<<: ", b"---\n", b"...\n", b"%YAML 1.2\n",
    b"|\n", b">-\n", b"'", b'"', b"\\", b"\\x00", b"\\ud800", b"\\UFFFFFFFF", b"\t", b"\r", b"\0", b"\xff", b"\xc3",
    b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"#",
    b"010", b"1e400", b".nan", b"1_000", b"9" * 5000, b"150%", b"1/0", b"9999/1", b"2026-02-30", b"null", b"true",
    b"kind", b"children", b"share", b"changes", b"from", b"previously", b"members", b"pools", b"policy", b"debug",
]  # fmt: skip
EDIT = st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES) | st.binary(max_size=8))


def damaged(data: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    """The bytes with each piece put in somewhere, in place of a few others."""
    for where, length, piece in edits:
        start = int(where * len(data))
        data = data[:start] + piece + data[start + length :]
    return data


def survives(files: dict[str, bytes]) -> None:
    """Loads, twice alike, and shows what was found; a tree means no error, and no tree means at least one."""
    result = load_tree(files)
    assert load_tree(files) == result
    assert (result.tree is None) == any(found.is_error for found in result.diagnostics)
    for found in result.diagnostics:
        assert to_text(found).encode()
        assert json.dumps(to_json(found), ensure_ascii=False).encode()
        assert found.message
        assert found.position.line >= 1
        assert found.position.column >= 1


@settings(max_examples=80, deadline=2_000)
@given(name=st.sampled_from(sorted(FILES)), edits=st.lists(EDIT, min_size=1, max_size=4))
def test_damaged_bytes_never_crash(name: str, edits: list[tuple[float, int, bytes]]) -> None:
    """A real tree with bytes of one file overwritten, removed or added."""
    survives(FILES | {name: damaged(FILES[name], edits)})


@settings(max_examples=50, deadline=2_000)
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=3) | st.just(b"\n  "), max_size=60).map(b"".join))
def test_arbitrary_bytes_never_crash(data: bytes) -> None:
    """A file of nothing but fragments of YAML and noise, as the root and as the cluster."""
    survives(FILES | {"budget.yaml": data})
    survives(FILES | {"cluster.yaml": data})


@settings(max_examples=20, deadline=5_000)
@given(name=st.sampled_from(sorted(FILES)), edits=st.lists(EDIT, min_size=1, max_size=4))
def test_the_parser_in_python_does_not_crash_either(name: str, edits: list[tuple[float, int, bytes]]) -> None:
    """The same where PyYAML was built without its parser in C."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yamlfile, "Loader", yaml.SafeLoader)
        survives({"cluster.yaml": FILES["cluster.yaml"], "budget.yaml": damaged(FILES[name], edits)})


PATHS = st.lists(st.sampled_from(["a", "b", "A", "..", "", ".x", "é", "\udcff", "\n"]), max_size=4)
NAMES = st.sampled_from(["budget.yaml", "cluster.yaml", "budget.yml", "x.yaml"])


@settings(max_examples=50, deadline=2_000)
@given(
    st.dictionaries(
        st.tuples(PATHS, NAMES).map(lambda pair: "/".join([*pair[0], pair[1]])),
        st.sampled_from(sorted(FILES)).map(FILES.__getitem__),
    )
)
def test_arbitrary_trees_never_crash(files: dict[str, bytes]) -> None:
    """Real files under any paths, in any combination."""
    survives(files)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 900_000, b"{a: " * 200_000, b"- " * 400_000, b"? " * 400_000, b"a: 1\n" * 190_000, b"&a " * 300_000,
        b"'" * 999_999, b'"\\\n' * 300_000, b"#" * 1_000_000, b"\n" * 1_000_000, b"a" * 1_000_000, b"!" * 999_999,
        b"kind: Budget\nmembers: [" + b"A," * 400_000 + b"]\n",
        b"kind: Budget\nchildren:\n" + b"".join(b" c%d: 9999/9999\n" % i for i in range(20_000)),
        b"kind: Budget\nchildren:\n" + b"".join(b" c%d: 1/%d\n" % (i, i + 1) for i in range(5_000)),
    ],
    ids=lambda data: str(data[:12]),
)  # fmt: skip
def test_the_largest_of_files_ends_soon(data: bytes) -> None:
    """Inputs of a megabyte that are made to be slow take seconds at most."""
    start = time.process_time()
    result = load_tree(FILES | {"budget.yaml": data})
    assert result.tree is None
    assert time.process_time() - start < 20
