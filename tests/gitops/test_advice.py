"""Warnings: what a tree without errors may still get wrong."""

from collections.abc import Callable

import pytest

from gpubudget.gitops.diagnostics import Diagnostic
from gpubudget.gitops.load import LoadResult

Load = Callable[..., LoadResult]
Problems = Callable[[str], list[Diagnostic]]
DATED = "changes: [{from: 2026-12-01, until: 2027-01-15, share: 50%}]"


def warned(problems: Problems, lines: str) -> list[tuple[str, int, str]]:
    """Rule, line and message of each warning."""
    found = problems(lines)
    assert not any(problem.is_error for problem in found)
    return [(problem.rule, problem.position.line, problem.message) for problem in found]


def test_warnings_name_what_may_be_meant_otherwise(problems: Problems) -> None:
    """A share that nobody may spend, members with nothing, and less than one GPU are warnings in the child's line."""
    lines = "children:\n  a: 5%\n  b: {share: 0%, members: [x]}\n  c: {share: 1%, members: [x]}\n"
    assert warned(problems, lines + "  d: {share: {default: 0%, h100: 1/9999}, members: [y]}\n") == [
        ("members-missing", 5, "a keeps 100% of its share, but has no members to spend it"),
        ("nothing-to-spend", 6, "b has members, but keeps nothing that they could spend"),
        ("guarantee-small", 7, "the share of c comes to 0.32 GPUs of b200, less than one"),
        ("guarantee-small", 8, "the share of d comes to 0.01 GPUs of h100, less than one"),
    ]
    assert warned(problems, "children:\n  d: {share: {default: 1/9999, h100: 0%}, members: [y]}\n") == [
        ("guarantee-small", 5, "the share of d comes to less than 0.01 GPUs of b200, less than one"),
    ]


def test_a_share_that_a_date_brings_is_no_warning(problems: Problems) -> None:
    """Members of a budget that gets its share later, or whose children give some back, have something to spend."""
    dated = "changes: [{from: 2026-12-01, until: 2027-01-15, share: 50%}]"
    assert warned(problems, f"children:\n  a: {{share: 0%, members: [x], {dated}}}\n") == []
    assert warned(problems, f"children:\n  a: {{share: 100%, members: [x], {dated}}}\n") == []


def test_a_file_without_managers_is_a_warning_where_its_content_begins(load: Load) -> None:
    """Nobody would be asked to approve its changes; a child described by its parent needs none."""
    found = load({"budget.yaml": "# a comment\nkind: Budget\nmembers: [i]\nchildren: {a: {share: 5%, members: [x]}}\n"})
    assert [(problem.rule, problem.position[1:]) for problem in found.diagnostics] == [("manager-missing", (2, 1))]


@pytest.mark.parametrize(
    ("parent", "child", "lines"),
    [
        ("0%", "50%", [3]),
        ("0%", "0%", []),
        ("{default: 0%, b200: 5%}", "50%", []),
        ("{default: 5%, b200: 0%}", "{default: 50%, b200: 10%}", [3]),
        ("{default: 0%, b200: 5%}", "{default: 50%, b200: 0%}", [3]),
        ("{default: 0%, b200: 0%}", "{default: 50%, b200: 10%}", [3, 3]),
        (f"0%, {DATED}", "50%", []),
        (f"0%, {DATED}", "50%, changes: [{from: 2026-12-01, until: 2027-01-15, share: 20%}]", [3]),
        (f"0%, {DATED}", "0%, changes: [{from: 2027-01-15, until: 2027-01-16, share: 20%}]", [3]),
        (f"0%, {DATED}", "0%, changes: [{from: 2027-01-14, until: 2027-01-16, share: 20%}]", []),
        ("5%, changes: [{from: 2027-01-01, until: 2027-02-01, share: 0%}]", "50%", []),
        (
            "5%, changes: [{from: 2027-01-01, until: 2027-02-01, share: 0%}]",
            "50%, changes: [{from: 2027-01-02, until: 2027-02-01, share: 60%}]",
            [3],
        ),
    ],
)
def test_a_share_of_nothing_is_out_of_reach(load: Load, parent: str, child: str, lines: list[int]) -> None:
    """A share is named if its parent has nothing in every pool in which, and at every date at which, it holds."""
    root = f"kind: Budget\nmanagers: [i]\nmembers: [i]\nchildren:\n  a: {{share: {parent}}}\n"
    inner = f"kind: Budget\nchildren:\n  b: {{share: {child}}}\n"
    result = load({"budget.yaml": root, "a/budget.yaml": inner})
    found = [problem for problem in result.diagnostics if problem.rule == "share-unreachable"]
    assert not any(problem.is_error for problem in result.diagnostics)
    assert [problem.position.line for problem in found] == lines
    for problem in found:
        assert "the share of a/b, " in problem.message
        assert problem.message.endswith("wherever and whenever it holds, a itself gets nothing")


def test_more_than_the_debug_lane_leaves_is_a_warning(load: Load) -> None:
    """A share that comes to more GPUs than are beside the lane cannot be had by ordinary workloads."""
    cluster = "kind: Cluster\npools: {h100: {hosts: 16, gpus_per_host: 8}}\npolicy: {debug: {gpus: 8}}\n"
    root = "kind: Budget\nmanagers: [i]\nchildren:\n  a: {share: %s, members: [x]}\n"
    for share, messages in {
        "15/16": [],
        "99%": ["the share of a comes to 126.72 GPUs of h100, but the debug lane leaves 120 of 128"],
    }.items():
        found = load({"cluster.yaml": cluster, "budget.yaml": root % share}).diagnostics
        assert [problem.message for problem in found if problem.rule == "share-above-lane"] == messages
