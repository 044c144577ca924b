"""The shares of children: exact, at every budget, in every pool and at every date."""

import random
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubudget.core.budget import Pool
from gpubudget.gitops.diagnostics import Diagnostic, Position
from gpubudget.gitops.document import Child, Description, Term, WrittenChange, WrittenShares
from gpubudget.gitops.load import LoadResult
from gpubudget.gitops.sums import over_the_whole

Problems = Callable[[str], list[Diagnostic]]
Load = Callable[..., LoadResult]


def sums(problems: list[Diagnostic]) -> list[str]:
    """The messages about sums."""
    return [found.message for found in problems if found.rule == "share-sum"]


@pytest.mark.parametrize(
    "shares",
    [
        ["1/3", "1/3", "1/3"],
        ["10%", "20%", "70%"],
        ["0.1%", "0.2%", "99.7%"],
        ["33.3%", "33.3%", "33.4%"],
        ["1/7", "6/7"],
        ["100%", "0%", "0/5"],
        ["99.999999999999%", "0.000000000001%"],
    ],
)
def test_exactly_the_whole_is_allowed(problems: Problems, shares: list[str]) -> None:
    """Thirds and decimals sum without rounding (gitops.md: KAI#2167, UpGrade#23)."""
    assert sums(problems("children:\n" + "".join(f"  c{i}: {share}\n" for i, share in enumerate(shares)))) == []


@pytest.mark.parametrize(
    ("shares", "total", "over"),
    [
        (["33.3%", "33.5%", "33.6%"], "100.4%", "0.4%"),
        (["1/3", "1/3", "1/3", "0.000000000001%"], "about 100.0%", "less than 0.1%"),
        (["1/3", "1/3", "1/3", "1/9999"], "10000/9999 (100.0%)", "1/9999 (0.0%)"),
        (["50%", "40%", "20%"], "110%", "10%"),
        (["1/9973", "1/9967", "1/9949", "9999/9999"], "about 100.0%", "less than 0.1%"),
    ],
)
def test_the_least_bit_more_is_not(problems: Problems, shares: list[str], total: str, over: str) -> None:
    """One part too many is found however small it is, and the message has the sum (gitops.md: UpGrade#1251)."""
    [message] = sums(problems("children:\n" + "".join(f"  c{i}: {share}\n" for i, share in enumerate(shares))))
    assert f"sum to {total}, {over} more than the whole" in message
    assert all(f"c{i} " in message for i in range(len(shares)))


def test_every_term_is_named_where_it_stands(load: Load) -> None:
    """The error has each term with its place, also below the root (gitops.md: ytsaurus-ui#640, UCloud#4501)."""
    language = "kind: Budget\nchildren:\n  olmo: 50%\n  post: {share: 40%}\n  none: 0%\n  alice:\n    share: 20%\n"
    files = {"budget.yaml": "kind: Budget\nchildren: {language: 10%}\n", "language/budget.yaml": language}
    [found] = load(files).diagnostics
    assert (found.rule, found.position) == ("share-sum", Position("language/budget.yaml", 2, 1))
    assert found.message == (
        "the children of language sum to 110%, 10% more than the whole: olmo 50% + post 40% + alice 20%"
    )
    assert [(place.position[1:], place.message) for place in found.related] == [
        ((3, 9), "olmo gets 50%; the others leave 40%"),
        ((4, 17), "post gets 40%; the others leave 30%"),
        ((7, 12), "alice gets 20%; the others leave 10%"),
    ]
    assert found.hint == "take 10% or more away from them"


def test_what_the_others_leave_may_be_nothing(problems: Problems) -> None:
    """A term in the way of others that have the whole already is told that nothing is left (ytsaurus-ui#640)."""
    [found] = problems("children:\n  a: 100%\n  b: 1/3\n")
    assert [place.message for place in found.related] == [
        "a gets 100%; the others leave 2/3 (66.7%)",
        "b gets 1/3; the others leave nothing",
    ]


def test_very_many_terms_are_listed_below_the_message(problems: Problems) -> None:
    """The message stays readable; the places below it are still those of every term."""
    [found] = problems("children:\n" + "".join(f"  c{i}: 2%\n" for i in range(60)))
    assert found.message.endswith("+ c28 2% + c29 2% + 30 more, all listed below")
    assert len(found.related) == 60


def test_every_budget_is_checked_not_one_path(load: Load) -> None:
    """Sums are checked at every node, whatever its place in the tree (gitops.md: KAI#1923, yunikorn-core PR#704)."""
    over = "kind: Budget\nchildren: {x: 60%, y: 60%}\n"
    files = {"budget.yaml": "kind: Budget\nchildren: {a: 1%, b: 1%}\n", "a/budget.yaml": over, "b/budget.yaml": over}
    deep = files | {"a/x/budget.yaml": over}
    assert [found.position.file for found in load(deep).diagnostics] == [
        "a/budget.yaml",
        "a/x/budget.yaml",
        "b/budget.yaml",
    ]


def test_every_pool_is_checked(problems: Problems) -> None:
    """A sum can be over in one pool only; the message names it."""
    lines = "children:\n  a: {share: {default: 50%, b200: 70%}}\n  b: 40%\n"
    assert sums(problems(lines)) == ["the children of / sum to 110% in b200, 10% more than the whole: a 70% + b 40%"]
    lines = "children:\n  a: {share: {default: 70%, b200: 50%}}\n  b: 40%\n"
    assert sums(problems(lines)) == ["the children of / sum to 110% in h100, 10% more than the whole: a 70% + b 40%"]
    lines = "children:\n  a: {share: {default: 70%, b200: 80%, h100: 90%}}\n  b: 40%\n"
    assert [message.split(",")[0] for message in sums(problems(lines))] == [
        "the children of / sum to 120% in b200",
        "the children of / sum to 130% in h100",
    ]


def test_pools_are_checked_even_if_nobody_knows_them(load: Load) -> None:
    """Where the cluster's file is broken, sums are still checked in the pools that shares name, and in the rest."""
    root = "kind: Budget\nchildren:\n  a: {share: {default: 70%, b200: 80%}}\n  b: 40%\n"
    found = load({"cluster.yaml": "kind: [", "budget.yaml": root}).diagnostics
    assert [message.split(",")[0] for message in sums(list(found))] == [
        "the children of / sum to 110% in other pools",
        "the children of / sum to 120% in b200",
    ]


def test_every_date_is_checked(problems: Problems) -> None:
    """A change that makes the sum too large is found, with the day from which it does."""
    lines = (
        "children:\n  a: {share: 50%, changes: [{from: 2026-12-01, until: 2027-01-15, share: 60%}]}\n"
        "  b: {share: 40%, changes: [{from: 2027-01-01, until: 2027-02-01, share: 50%}]}\n"
    )
    assert sums(problems(lines)) == [
        "the children of / sum to 110% from 2027-01-01, 10% more than the whole: a 60% + b 50%"
    ]


def test_changes_that_hand_over_on_a_day_are_fine(problems: Problems) -> None:
    """What one child gives back on a day, another may have from that day on."""
    lines = (
        "children:\n  a: {share: 0%, changes: [{from: 2026-12-01, until: 2027-01-01, share: 100%},"
        " {from: 2027-02-01, until: 2027-03-01, share: 100%}]}\n"
        "  b: {share: 0%, changes: [{from: 2027-01-01, until: 2027-02-01, share: 100%}]}\n"
        "  c: {share: 0%, changes: [{from: 2027-03-01, until: 2027-04-01, share: 100%}]}\n"
    )
    assert sums(problems(lines)) == []


def test_the_end_of_a_lower_share_is_checked(problems: Problems) -> None:
    """A plain share that comes back meets what others have by then."""
    lines = (
        "children:\n  a: {share: 60%, changes: [{from: 2026-12-01, until: 2027-01-01, share: 10%}]}\n"
        "  b: {share: 30%, changes: [{from: 2026-12-15, until: 2027-02-01, share: 80%}]}\n"
    )
    assert [message.split(",")[0] for message in sums(problems(lines))] == [
        "the children of / sum to 140% from 2027-01-01"
    ]


def test_a_share_that_cannot_be_read_hides_no_other_problem(problems: Problems) -> None:
    """The terms that can be read are summed all the same; one that cannot is not taken for another."""
    lines = "children:\n  a: 70%\n  b: 40%\n  c: half\n  d: {share: {default: 80%, b200: x}}\n"
    lines += "  e: {share: 5/4}\n  f: {share: {default: 5}}\n"
    found = problems(lines)
    assert sorted(problem.rule for problem in found) == ["share-sum"] * 2 + ["share-syntax"] * 4
    assert [message.split(",")[0] for message in sums(found)] == [
        "the children of / sum to 110% in b200",
        "the children of / sum to 190% in h100",
    ]


def test_overlapping_changes_are_not_summed(problems: Problems) -> None:
    """Where two changes of a child overlap, that is the problem; sums go on with its plain share."""
    lines = (
        "children:\n  a:\n    share: 10%\n    changes:\n"
        "    - {from: 2027-01-01, until: 2027-03-01, share: 90%}\n"
        "    - {from: 2027-01-05, until: 2027-01-06, share: 91%}\n"
        "    - {from: 2027-02-01, until: 2027-03-02, share: 92%}\n"
        "  b: 20%\n"
    )
    assert [(found.rule, found.position.line, found.related[0].position.line) for found in problems(lines)] == [
        ("date-overlap", 9, 8),
        ("date-overlap", 10, 8),
    ]


@pytest.mark.parametrize("day", ["2026-02-30", "2026-13-01", "0000-01-01", "1999-12-31", "2200-01-01"])
def test_impossible_dates_are_problems_like_any_other(problems: Problems, day: str) -> None:
    """A day that is not in the calendar has a place and a hint (gitops.md: pyyaml#382)."""
    lines = f"children:\n  a: {{share: 1%, changes: [{{from: {day}, until: 2027-01-15, share: 40%}}]}}\n"
    [found] = problems(lines)
    assert (found.rule, found.position) == ("date-syntax", Position("budget.yaml", 5, 35))


@pytest.mark.parametrize("day", ["2026-1-1", "20260101", "2026-W01-1", "2026-01-01T00:00", "tomorrow", "[]"])
def test_dates_in_another_form_are_refused_by_the_schema(problems: Problems, day: str) -> None:
    """Only year, month and day are a date, whatever ``format`` would let through (gitops.md: jsonschema#945)."""
    lines = f"children:\n  a: {{share: 1%, changes: [{{from: 2027-01-01, until: {day}, share: 40%}}, 5]}}\n"
    assert [found.rule for found in problems(lines)] == ["date-syntax", "wrong-type"]


PERCENT = st.integers(0, 60).map(lambda number: Fraction(number, 100)) | st.fractions(0, 1, max_denominator=7)


@st.composite
def shares(draw: st.DrawFn) -> WrittenShares:
    """Shares in up to two pools beside the default."""
    at = Position("f", draw(st.integers(1, 10**9)))
    pools = draw(st.dictionaries(st.sampled_from(["p", "q"]), PERCENT, max_size=2))
    by_pool: dict[str, Term | None] = {pool: Term(share, at) for pool, share in pools.items()}
    return WrittenShares(Term(draw(PERCENT), at), by_pool, {})


@st.composite
def families(draw: st.DrawFn) -> tuple[Child, ...]:
    """Up to four children, each with changes that do not overlap."""
    children = []
    for index in range(draw(st.integers(0, 4))):
        days = sorted(draw(st.sets(st.integers(0, 12), max_size=6)))
        changes = tuple(
            WrittenChange(a, b, str(a), str(b), draw(shares()), Position("f"))
            for a, b in zip(days[::2], days[1::2], strict=False)
        )
        name = f"c{index}"
        children.append(Child(name, Position("f"), draw(shares()), changes, Description(), ()))
    return tuple(children)


@given(families(), st.sampled_from(["p", "pq", "pqr"]))
def test_the_sweep_finds_what_a_sum_at_every_moment_finds(children: tuple[Child, ...], names: str) -> None:
    """There is an error if and only if the shares in force sum to more than 1 in some pool at some moment."""

    def in_force(child: Child, now: int, pool: str) -> Fraction:
        shares = next((change.shares for change in child.changes if change.start <= now < change.until), child.shares)
        term = shares.by_pool.get(pool) or shares.default
        assert term is not None
        return term.share

    worst = max(
        sum((in_force(child, now, pool) for child in children), Fraction(0)) for now in range(-1, 14) for pool in names
    )
    found = list(over_the_whole("/", Position("f"), children, tuple(Pool(name, 8, 1) for name in names)))
    assert bool(found) == (worst > 1)
    if found:
        assert len({problem.message for problem in found}) == len(found)


def test_many_changes_at_one_budget_stay_cheap(load: Load) -> None:
    """Hundreds of children with tens of changes each, of awkward fractions, are checked in a moment."""
    chance = random.Random(5)
    lines = ["kind: Budget", "children:"]
    for index in range(250):
        days = sorted(chance.sample(range(1, 29), 20))
        dated = [
            f"{{from: 2027-0{month}-{a:02d}, until: 2027-0{month}-{b:02d}, share: 1/{chance.randrange(900, 9999)}}}"
            for month in (1, 2, 3)
            for a, b in zip(days[::2], days[1::2], strict=True)
        ]
        lines.append(
            f"  c{index}: {{share: 1/{chance.randrange(900, 9999)}, members: [x], changes: [{', '.join(dated)}]}}"
        )
    assert not any(found.is_error for found in load({"budget.yaml": "\n".join(lines)}).diagnostics)
