"""How a reconciliation is told."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gpubudget.core.budget import Budget, Policy, Pool, Shares, Tree
from gpubudget.gitops.diagnostics import Diagnostic, Position
from gpubudget.gitops.plan import Plan, plan
from gpubudget.gitops.report import Report, Status, lines, prefix, summary, time_text, to_json

POOL = Pool("h100", 8, 4)


def tree(*children: Budget, pools: tuple[Pool, ...] = (POOL,), policy: Policy | None = None) -> Tree:
    return Tree(Budget("/", Shares(Fraction(1)), children=children), pools, policy or Policy())


def share(path: str, number: str, *children: Budget, previously: str | None = None, **pools: str) -> Budget:
    by_pool = tuple((pool, Fraction(other)) for pool, other in pools.items())
    return Budget(path, Shares(Fraction(number), by_pool), previously=previously, children=children)


BEFORE = tree(share("a", "1/2", share("a/b", "1/3")), share("c", "1/8"), share("d", "1/8"))
AFTER = replace(
    tree(
        share("a", "3/8", share("a/b", "1/3"), share("a/new", "1/8")),
        share("e", "1/8", previously="c"),
        pools=(POOL, Pool("b200", 8, 1)),
        policy=Policy(lookback=86_400_000),
    ),
    cluster="lab",
)
REPORT = Report(
    "/srv/b.git",
    "main",
    "budgets",
    Status.APPLIED,
    commit="1" * 40,
    author="Hanna <h@example.org>",
    committed=1_790_856_000_000,
    previous="2" * 40,
    budgets=5,
    plan=plan(BEFORE, AFTER, 0),
    notes=("forced although it rains",),
)


def test_text_says_what_was_fetched_validated_changed_and_done() -> None:
    """One short line for each fact; shares exact, effective shares readable."""
    assert "\n".join(lines(REPORT)) == (
        "fetched    main 111111111111 of /srv/b.git, by Hanna <h@example.org>, 2026-10-01T12:00:00Z\n"
        "validated  5 budgets\n"
        "note       forced although it rains\n"
        "change     a  h100: share 50% -> 37.5%, effective 50% -> 37.5%; b200: share 37.5%, effective 37.5%\n"
        "add        a/new  share 12.5%, effective ~4.7%\n"
        "move       e  was c; share 12.5%, effective 12.5%\n"
        "remove     d  share 12.5% -> none, effective 12.5% -> none\n"
        "setting    cluster  cluster -> lab\n"
        "setting    policy.lookback  7d -> 1d\n"
        "setting    pools.b200.gpus_per_host  8\n"
        "setting    pools.b200.hosts  1\n"
        "applied    111111111111, after 222222222222: "
        "budgets: 1 added, 1 removed, 1 moved, 1 changed; 4 settings changed"
    )


def test_a_cluster_among_several_and_a_signer_are_named() -> None:
    """Where there are such."""
    told = lines(replace(REPORT, cluster="jupiter", signer="hanna (SHA256:x)"))
    assert told[0] == "cluster    jupiter"
    assert told[2] == "signed     by hanna (SHA256:x)"


def test_each_status_has_its_last_line() -> None:
    """The verdict says what became of it and what stays."""
    bare = replace(REPORT, plan=Plan(), budgets=0, commit="", notes=(), error="suspended by hanna")
    told = {status: lines(replace(bare, status=status)) for status in Status}
    assert {status: text[-1].split("  ", 1)[1].strip() for status, text in told.items()} == {
        Status.APPLIED: ", after 222222222222: no change of budgets",
        Status.UNCHANGED: "is applied already",
        Status.PLANNED: "would be applied after 222222222222: no change of budgets",
        Status.REFUSED: "nothing is applied; 222222222222 stays",
        Status.FAILED: "nothing is applied; 222222222222 stays",
        Status.BUSY: "another reconciliation is at work; left to it",
        Status.SUSPENDED: "nothing is applied, suspended by hanna",
    }
    first = replace(REPORT, previous="")
    assert lines(replace(first, status=Status.FAILED))[-1] == "failed     nothing is applied"
    assert lines(first)[-1].startswith("applied    111111111111, the first: budgets: ")
    assert lines(replace(first, status=Status.PLANNED))[-1].startswith(
        "planned    111111111111 would be applied as the first"
    )


def test_dated_changes_and_people_are_mentioned_without_repeating_shares() -> None:
    """What changed beside the share is named."""
    after = tree(replace(share("a", "1/2", share("a/b", "1/3")), members=("x",)), share("c", "1/8"), share("d", "1/8"))
    told = lines(replace(REPORT, plan=plan(BEFORE, after, 0)))
    assert "change     a  share 50%, effective 50%; other members" in told
    assert summary(plan(BEFORE, after, 0)) == "budgets: 1 changed"
    one = tree(share("a", "1/2", share("a/b", "1/3")), share("c", "1/8"), share("d", "1/8"), policy=Policy(lookback=1))
    assert summary(plan(BEFORE, one, 0)) == "1 setting changed"


def test_a_time_that_no_calendar_has_is_shown_all_the_same() -> None:
    """Git stores any number as a commit's time."""
    assert "10000000000000000000 ms" in lines(replace(REPORT, committed=10**19))[0]


def test_json_has_exact_shares_and_nothing_rounded() -> None:
    """Programs get num/den, milliseconds, full ids and the problems with paths from the top of the repository."""
    problem = Diagnostic("yaml-empty", Position("a/budget.yaml", 2, 3), "is empty", "fill it")
    found = to_json(replace(REPORT, problems=(problem,), error="e", hint="h"))
    assert (found["status"], found["commit"], found["previous"]) == ("applied", "1" * 40, "2" * 40)
    assert found["counts"] == {"added": 1, "removed": 1, "moved": 1, "changed": 1}
    assert found["changes"][1] == {
        "action": "added",
        "path": "a/new",
        "fields": [],
        "pools": {
            "h100": {"before": None, "after": {"share": "1/8", "effective_share": "3/64"}},
            "b200": {"before": None, "after": {"share": "1/8", "effective_share": "3/64"}},
        },
    }
    assert found["changes"][2]["former"] == "c"
    assert found["settings"][1] == {"name": "policy.lookback", "before": "7d", "after": "1d"}
    assert found["problems"][0]["file"] == "budgets/a/budget.yaml"
    assert (found["committed_ms"], found["error"], found["hint"]) == (1_790_856_000_000, "e", "h")
    assert to_json(Report("s", "r", "p"))["committed_ms"] is None


def test_problems_at_the_top_of_a_repository_have_no_folder_before_them() -> None:
    """With the path "." a file's own path is the whole of it."""
    assert [prefix(replace(REPORT, path=path)) for path in (".", "", "a/b/", "a")] == ["", "", "a/b/", "a/"]


def test_times_are_as_exact_as_they_are() -> None:
    """Commits are made at whole seconds; and git knows times that no calendar has."""
    assert [time_text(at) for at in (1_000, 1_500)] == ["1970-01-01T00:00:01Z", "1970-01-01T00:00:01.500Z"]
    assert time_text(10**18) == f"{10**18} ms"
