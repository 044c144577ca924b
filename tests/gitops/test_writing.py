"""From a tree to its files and back: the same value, in the canonical layout."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.core.budget import ROOT, Budget, DatedShares, Shares, Tree, child_path
from gpubudget.gitops.folder import load_folder
from gpubudget.gitops.layout import formatted
from gpubudget.gitops.load import load_tree
from gpubudget.gitops.writing import files, share_text, writable
from gpubudget.units import DAY, parse_share

EXAMPLE = load_folder(Path(__file__).parents[2] / "budgets").tree
NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,8}", fullmatch=True) | st.sampled_from(
    ["null", "true", "12", "1e5", "0x1f"]
)
PEOPLE = st.lists(NAMES, max_size=3, unique=True).map(tuple)
ODD = st.sampled_from(["null", "~", "a: b", "NO", "-", "# x", "a\u00a0b", "\U0001f40d", "\\n", '"', "'", "2026-12-01"])
TITLES = ODD | st.text(max_size=30).filter(lambda text: text.isprintable() and text == text.strip())
POOLS = EXAMPLE.pools if EXAMPLE else ()


def loaded(texts: dict[str, str]) -> Tree:
    result = load_tree({name: text.encode() for name, text in texts.items()})
    assert result.tree is not None, [problem.message for problem in result.diagnostics if problem.is_error]
    return result.tree


@st.composite
def budgets(draw: st.DrawFn, path: str = ROOT, depth: int = 2) -> Budget:
    """A budget and those below it; siblings have equal shares, so that they fit whatever they are."""
    names = draw(st.lists(NAMES, max_size=3 if depth else 0, unique=True))
    share = Shares(Fraction(1)) if path == ROOT else draw(_shares(4))
    changes: tuple[DatedShares, ...] = ()
    if path != ROOT and draw(st.booleans()):
        start = draw(st.integers(20_000, 30_000))
        changes = (DatedShares(start * DAY, (start + draw(st.integers(1, 400))) * DAY, draw(_shares(4))),)
    title = draw(TITLES) if draw(st.booleans()) else ""
    children = tuple(draw(budgets(child_path(path, name), depth - 1)) for name in names)
    return Budget(path, share, title, draw(PEOPLE), draw(PEOPLE), None, changes, children)


def _shares(parts: int) -> st.SearchStrategy[Shares]:
    share = st.fractions(0, Fraction(1, parts), max_denominator=9_999).map(writable)
    other = st.tuples(st.just(POOLS[0].name), share).map(lambda pair: (pair,))
    return st.builds(Shares, share, st.just(()) | other)


@settings(max_examples=40, deadline=2_000)
@given(budgets())
def test_what_is_written_is_read_as_the_same_value(root: Budget) -> None:
    """Whatever names, titles, shares, people and dates a tree has; and its files are in their canonical layout."""
    tree = Tree(root, POOLS)
    texts = files(tree)
    assert loaded(texts) == tree
    for name, text in texts.items():
        assert formatted(name, text.encode())[0] == text.encode()


def test_the_example_round_trips_with_its_policy_and_timezone() -> None:
    """Every setting of the cluster that is not as by default is written."""
    assert EXAMPLE is not None
    assert loaded(files(EXAMPLE)) == EXAMPLE


def test_former_paths_and_the_way_to_the_schemas_are_written() -> None:
    """From each file's own folder."""
    leaf = Budget("a/b", Shares(Fraction(1, 2)), previously="old/b")
    above = Budget("a", Shares(Fraction(1, 2)), previously="old", children=(leaf,))
    tree = Tree(Budget(ROOT, Shares(Fraction(1)), children=(above,)), POOLS)
    texts = files(tree, schemas="../")
    assert texts["budget.yaml"].startswith("# yaml-language-server: $schema=../schemas/budget.schema.json\n")
    assert texts["cluster.yaml"].startswith("# yaml-language-server: $schema=../schemas/cluster.schema.json\n")
    assert texts["a/budget.yaml"].startswith("# yaml-language-server: $schema=../../schemas/budget.schema.json\n")
    assert loaded(texts) == tree


def test_long_lines_are_broken_into_a_block() -> None:
    """So that nobody has to scroll."""
    leaf = Budget("a", Shares(Fraction(1, 2)), members=tuple(f"somebody-{n}" for n in range(9)))
    text = files(Tree(Budget(ROOT, Shares(Fraction(1)), children=(leaf,)), POOLS))["budget.yaml"]
    assert "  a:\n    share: 50%\n    members: [somebody-0, " in text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (Fraction(1, 2), "50%"),
        (Fraction(1, 8), "12.5%"),
        (Fraction(1, 3), "1/3"),
        (Fraction(9_998, 9_999), "9998/9999"),
        (Fraction(1, 10_000), "0.01%"),
        (Fraction(1, 10_001), "0.009999000099%"),
        (Fraction(123_456_789, 10**9), "12.3456789%"),
        (Fraction(10**20, 10**20 + 1), "99.999999999999%"),
        (Fraction(1, 10**20), "0%"),
    ],
)
def test_shares_too_fine_for_a_file_are_rounded_down(share: Fraction, text: str) -> None:
    """Never up, so that siblings never become more than the whole; what can be written is exact."""
    assert share_text(writable(share)) == text
    assert parse_share(text) == writable(share) <= share
