"""Whatever bytes a tree is made of, loading ends soon, with a tree that a daemon takes or with problems to show."""

import json
import time
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.daemon.treecheck import check_tree
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


def arrives(tree: Tree) -> None:
    """A daemon that is sent the tree has the very same one, and takes it."""
    received = plain.decode(Tree, json.loads(json.dumps(plain.encode(tree))), "tree")
    assert received == tree
    assert plain.digest(received) == plain.digest(tree)
    check_tree(received)


def survives(files: dict[str, bytes]) -> None:
    """Loads, twice alike, and shows what was found; a tree means no error, and no tree means at least one."""
    result = load_tree(files)
    assert load_tree(files) == result
    assert (result.tree is None) == any(found.is_error for found in result.diagnostics)
    if result.tree:
        arrives(result.tree)
    for found in result.diagnostics:
        assert to_text(found).encode()
        assert json.dumps(to_json(found), ensure_ascii=False).encode()
        assert found.message
        assert found.position.line >= 1
        assert found.position.column >= 1


@settings(max_examples=80)
@given(name=st.sampled_from(sorted(FILES)), edits=st.lists(EDIT, min_size=1, max_size=4))
def test_damaged_bytes_never_crash(name: str, edits: list[tuple[float, int, bytes]]) -> None:
    """A real tree with bytes of one file overwritten, removed or added."""
    survives(FILES | {name: damaged(FILES[name], edits)})


@settings(max_examples=50)
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=3) | st.just(b"\n  "), max_size=60).map(b"".join))
def test_arbitrary_bytes_never_crash(data: bytes) -> None:
    """A file of nothing but fragments of YAML and noise, as the root and as the cluster."""
    survives(FILES | {"budget.yaml": data})
    survives(FILES | {"cluster.yaml": data})


@settings(max_examples=20)
@given(name=st.sampled_from(sorted(FILES)), edits=st.lists(EDIT, min_size=1, max_size=4))
def test_the_parser_in_python_does_not_crash_either(name: str, edits: list[tuple[float, int, bytes]]) -> None:
    """The same where PyYAML was built without its parser in C."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yamlfile, "Loader", yaml.SafeLoader)
        survives({"cluster.yaml": FILES["cluster.yaml"], "budget.yaml": damaged(FILES[name], edits)})


NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,5}", fullmatch=True)
PEOPLE = st.lists(NAMES, unique=True, max_size=3)
TITLES = st.text(
    st.characters(max_codepoint=0xFFFF, codec="utf-8", categories=["N", "P", "S", "Zs", "Ll", "Lu"]),
    min_size=1,
    max_size=20,
)
DAYS = st.dates(min_value=date(2026, 1, 1), max_value=date(2028, 12, 31))


@st.composite
def shares(draw: st.DrawFn, most: Fraction) -> object:
    """A share of at most ``most``, in all pools or another one in each, in one of its spellings."""

    def one() -> str:
        percent = draw(st.integers(0, int(most * 100)))
        decimals = draw(st.sampled_from(["", ".0", ".000000000001"] if percent < most * 100 else ["", ".00"]))
        return draw(st.sampled_from([f"{percent}{decimals}%", f"{percent}/100", f"{percent * 3}/300"]))

    if draw(st.booleans()):
        return one()
    pools = draw(st.lists(st.sampled_from(["h100", "b200"]), unique=True))
    return {"default": one(), **{pool: one() for pool in pools}}


@st.composite
def descriptions(draw: st.DrawFn) -> dict[str, object]:
    """What may describe a budget, but for its former path."""
    about = {"title": draw(TITLES), "managers": draw(PEOPLE), "members": draw(PEOPLE)}
    return {key: value for key, value in about.items() if draw(st.booleans())}


@st.composite
def changes(draw: st.DrawFn, most: Fraction) -> list[object]:
    """Dated changes that do not overlap, in any order."""
    days = sorted(draw(st.lists(DAYS, unique=True, max_size=6)))
    periods = draw(st.permutations(list(zip(days[::2], days[1::2], strict=False))))
    return [{"from": str(a), "until": str(b), "share": draw(shares(most))} for a, b in periods]


@st.composite
def sound_trees(draw: st.DrawFn) -> dict[str, bytes]:
    """The files of a random tree without a mistake, written as JSON, which is YAML."""
    files: dict[str, bytes] = {}
    former = iter(range(1000))

    def put(folder: str, depth: int) -> None:
        names = draw(st.lists(NAMES, unique=True, max_size=3))
        listed: dict[str, object] = {}
        for name in names:
            most = Fraction(1, len(names))
            child: dict[str, object] = {"share": draw(shares(most)), "changes": draw(changes(most))}
            about = draw(descriptions())
            if draw(st.booleans()):
                about["previously"] = f"former/{next(former)}"
            if depth and draw(st.booleans()):
                put(f"{folder}{name}/", depth - 1)
                listed[name] = (
                    child if draw(st.booleans()) else child["share"] if isinstance(child["share"], str) else child
                )
            else:
                listed[name] = {**child, **about}
        write(f"{folder}budget.yaml", {"kind": "Budget", **draw(descriptions()), "children": listed})

    def write(name: str, value: object) -> None:
        files[name] = json.dumps(
            value, indent=draw(st.sampled_from([None, 2])), ensure_ascii=draw(st.booleans())
        ).encode()

    put("", 3)
    pools = {
        pool: {"hosts": draw(st.integers(1, 100_000)), "gpus_per_host": draw(st.integers(1, 256))}
        for pool in ("h100", "b200")
    }
    zone = draw(st.sampled_from(["UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu"]))
    write("cluster.yaml", {"kind": "Cluster", "timezone": zone, "pools": pools, "policy": {"lookback": "14d"}})
    return files


@settings(max_examples=25)
@given(sound_trees())
def test_every_sound_tree_is_valid_and_arrives(files: dict[str, bytes]) -> None:
    """A random tree without a mistake has no error, and is the same tree when a daemon has received it."""
    result = load_tree(files)
    assert [found for found in result.diagnostics if found.is_error] == []
    assert result.tree is not None
    survives(files)


@settings(max_examples=25)
@given(sound_trees(), st.data())
def test_random_trees_with_random_damage_never_crash(files: dict[str, bytes], data: st.DataObject) -> None:
    """Bytes of a random tree are overwritten, removed or added: it has problems, or is still one that arrives."""
    name = data.draw(st.sampled_from(sorted(files)))
    edits = data.draw(st.lists(EDIT, min_size=1, max_size=3))
    survives(files | {name: damaged(files[name], edits)})


PATHS = st.lists(st.sampled_from(["a", "b", "A", "..", "", ".x", "é", "\udcff", "\n"]), max_size=4)
FILE_NAMES = st.sampled_from(["budget.yaml", "cluster.yaml", "budget.yml", "x.yaml"])


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.tuples(PATHS, FILE_NAMES).map(lambda pair: "/".join([*pair[0], pair[1]])),
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
        b"kind: Budget\nchildren:\n"
        + b"".join(b" c%d: {share: {default: 0%%, x%d: 0%%}}\n" % (i, i) for i in range(9_000)),
        b"kind: Budget\nchildren:\n"
        + b"".join(
            b" c%d: {share: 1/%d, changes: [{from: 20%02d-01-%02d, until: 2199-01-01, share: 100%%}]}\n"
            % (i, 9999 - i, i % 99, 1 + i % 28)
            for i in range(3_000)
        ),
    ],
    ids=lambda data: str(data[:12]),
)  # fmt: skip
def test_the_largest_of_files_ends_soon(data: bytes) -> None:
    """Inputs of a megabyte that are made to be slow take seconds at most."""
    start = time.process_time()
    result = load_tree(FILES | {"budget.yaml": data})
    assert result.tree is None
    assert time.process_time() - start < 20
    start = time.process_time()
    load_tree(FILES | {"budget.yaml": data[:100_000]})
    assert time.process_time() - start < 2
