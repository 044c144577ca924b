"""A tree's value, and the rules that reach over several files."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from gpubudget.core.budget import Budget, DatedShares, DebugLane, Policy, Pool, Shares, Tree
from gpubudget.gitops.diagnostics import Diagnostic, Position
from gpubudget.gitops.folder import load_folder
from gpubudget.gitops.load import LoadResult, is_read, load_tree
from gpubudget.units import DAY, HOUR, MINUTE, SECOND

Load = Callable[..., LoadResult]
Problems = Callable[[str], list[Diagnostic]]
EXAMPLE = Path(__file__).parents[2] / "budgets"


def rules(result: LoadResult) -> list[tuple[str, str, int]]:
    """Rule, file and line of each problem."""
    return [(found.rule, found.position.file, found.position.line) for found in result.diagnostics]


def test_the_whole_value_of_a_tree() -> None:
    """Every key ends where it belongs: exact shares, moments in milliseconds, people, pools and policy."""
    cluster = """
        kind: Cluster
        name: lab
        timezone: Europe/Berlin
        pools: {h100: {hosts: 16, gpus_per_host: 8}, b200: {hosts: 4, gpus_per_host: 4}}
        policy: {lookback: 14d, max_min_runtime: 12h, rebalance_interval: 30s, grace_period: 0, failed_soon: 5m,
                 preempt_backoff: 1m, max_preempt_backoff: 1h, debug: {gpus: 4, max_runtime: 10m, per_person: 2}}
    """
    root = """
        kind: Budget
        title: The lab
        managers: [ines]
        members: [ines, otto]
        children:
          language:
            share: {default: 1/3, b200: 12.5%}
            changes: [{from: 2027-03-28, until: 2027-03-29, share: 50%}, {from: 2026-12-01, until: 2027-01-15, share: 0%}]
          alice: {share: 5%, title: "Alice ", members: [alice], managers: [otto], previously: old/alice}
    """  # noqa: E501 - as a person would write it
    language = "kind: Budget\nmanagers: [hanna]\nmembers: [hanna]\npreviously: nlp\n"
    files = {"cluster.yaml": cluster, "budget.yaml": root, "language/budget.yaml": language}
    result = load_tree({name: text.encode() for name, text in files.items()})
    winter, summer = 1764543600000 + 365 * DAY, 1806188400000
    child = Budget(
        "language",
        Shares(Fraction(1, 3), (("b200", Fraction(1, 8)),)),
        managers=("hanna",),
        members=("hanna",),
        previously="nlp",
        changes=(
            DatedShares(winter, winter + 45 * DAY, Shares(Fraction(0))),
            DatedShares(summer, summer + 23 * HOUR, Shares(Fraction(1, 2))),
        ),
    )
    alice = Budget("alice", Shares(Fraction(1, 20)), "Alice", ("otto",), ("alice",), "old/alice")
    policy = Policy(
        14 * DAY, 12 * HOUR, 30 * SECOND, 0, 5 * MINUTE, MINUTE, HOUR, DebugLane(4, 4, 10 * MINUTE, per_person=2)
    )
    top = Budget("/", Shares(Fraction(1)), "The lab", ("ines",), ("ines", "otto"), None, (), (child, alice))
    pools = (Pool("h100", 8, 16), Pool("b200", 4, 4))
    assert result.tree == Tree(top, pools, policy, "lab", "Europe/Berlin")
    assert {found.rule for found in result.diagnostics} == {"guarantee-small"}


def test_what_is_left_out_has_its_default(load: Load) -> None:
    """A cluster needs its pools only."""
    tree = load({}).tree
    assert tree is not None
    assert (tree.policy, tree.cluster, tree.timezone) == (Policy(), "cluster", "UTC")
    lane = load({"cluster.yaml": "kind: Cluster\npools: {a: {hosts: 9, gpus_per_host: 8}}\npolicy: {debug: {gpus: 9}}"})
    assert lane.tree is not None
    assert lane.tree.policy.debug == DebugLane(9, 8)


def test_the_example_tree_is_sound_and_says_something_of_everything() -> None:
    """The example has 3 programs, 8 projects, about 25 researchers, two pools and one of each feature, no warning."""
    result = load_folder(EXAMPLE)
    assert result.diagnostics == ()
    tree = result.tree
    assert tree is not None
    budgets = list(tree.budgets())
    assert len(tree.root.children) == 3
    assert sum(len(program.children) for program in tree.root.children) == 8
    assert max(budget.path.count("/") for budget in budgets) == 2
    assert 25 <= len({person for budget in budgets for person in budget.members}) <= 32
    assert [pool.name for pool in tree.pools] == ["h100", "b200"]
    assert any(budget.changes for budget in budgets)
    assert any(budget.shares.by_pool for budget in budgets)
    assert any(budget.previously for budget in budgets)


def test_the_example_tree_fits_a_small_cluster_too() -> None:
    """With 3 hosts of one pool in its place, the example's cluster file is the only one that changes."""
    files = {str(path.relative_to(EXAMPLE)): path.read_bytes() for path in EXAMPLE.rglob("*.yaml")}
    small = b"kind: Cluster\npools: {h100: {hosts: 3, gpus_per_host: 8}}\npolicy: {lookback: 2m, max_min_runtime: 1m}\n"
    assert load_tree(files | {"cluster.yaml": small}).tree is not None


def test_nothing_is_never_an_empty_tree(load: Load) -> None:
    """No files, no root, no cluster, or a broken one of them: no tree, and the reason (gitops.md: argo-cd#2573)."""
    assert rules(load_tree({})) == [("file-missing", "budget.yaml", 1), ("file-missing", "cluster.yaml", 1)]
    for broken in (b"", b"\xff", b"- a\n", b"kind: [\n"):
        for name in ("budget.yaml", "cluster.yaml"):
            assert load({name: broken}).tree is None


def test_all_problems_are_reported_at_once(load: Load) -> None:
    """Errors of text, structure, sums and folders, in several files, come together (gitops.md: volcano PR#5962)."""
    result = load(
        {
            "cluster.yaml": "kind: Cluster\npools: {h100: {hosts: 0, gpus_per_host: 8}}\npolicy: {lookback: 7}\n",
            "budget.yaml": "kind: Budget\nchildren: {a: 60%, b: 60%, C: 1%}\nmember: [x]\n",
            "a/budget.yaml": "kind: Budget\ntitle: 12:30\n",
            "z/budget.yaml": "",
        }
    )
    assert rules(result) == [
        ("ambiguous-number", "a/budget.yaml", 2),
        ("share-sum", "budget.yaml", 2),
        ("name-syntax", "budget.yaml", 2),
        ("unknown-key", "budget.yaml", 3),
        ("out-of-bounds", "cluster.yaml", 2),
        ("duration-syntax", "cluster.yaml", 3),
        ("folder-not-listed", "z/budget.yaml", 1),
        ("yaml-empty", "z/budget.yaml", 1),
    ]


def test_validation_changes_nothing(load: Load) -> None:
    """The files given are as before, and a second look finds the same (gitops.md: yunikorn-core PR#215)."""
    files = {"budget.yaml": b"kind: Budget\nchildren: {a: 60%, b: 60%}\n"}
    before = dict(files)
    assert load(files) == load(files)
    assert files == before


def test_a_child_in_two_places_names_both(load: Load) -> None:
    """A child described inline and by a file is an error with both places (gitops.md: yamllint#225)."""
    root = "kind: Budget\nchildren:\n  a: {share: 5%, title: A, members: [x]}\n"
    [found] = load({"budget.yaml": root, "a/budget.yaml": "kind: Budget\n"}).diagnostics
    assert (found.rule, found.position) == ("child-described-twice", Position("budget.yaml", 3, 18))
    assert [place.position for place in found.related] == [Position("a/budget.yaml")]
    assert "title, members" in found.message


def test_only_the_topmost_unlisted_folder_is_reported(load: Load) -> None:
    """What lies below a folder that nobody lists is not reported again, but its own problems are."""
    sound = "kind: Budget\nchildren: {b: 5%}\n"
    files = {"a/budget.yaml": sound, "a/b/budget.yaml": sound, "a/b/b/budget.yaml": "kind: Cluster\n"}
    assert rules(load(files)) == [("kind", "a/b/b/budget.yaml", 1), ("folder-not-listed", "a/budget.yaml", 1)]


def test_a_broken_file_does_not_make_its_folders_unlisted(load: Load) -> None:
    """Where nobody can say which children a file lists, only the file itself is reported."""
    child = {"a/budget.yaml": "kind: Budget\n", "a/b/budget.yaml": "kind: Budget\n"}
    assert rules(load({**child, "budget.yaml": "kind: [}\n"})) == [("yaml-syntax", "budget.yaml", 1)]
    assert rules(load({**child, "budget.yaml": "kind: Budget\nchildren: [a]\n"})) == [("wrong-type", "budget.yaml", 2)]
    unread = [Diagnostic("file-unreadable", Position("budget.yaml"), "it cannot be read")]
    assert (
        rules(load_tree({name: text.encode() for name, text in child.items()}, unread))
        == [
            ("folder-not-listed", "a/b/budget.yaml", 1),
            ("file-unreadable", "budget.yaml", 1),
            ("file-missing", "cluster.yaml", 1),
        ][1:]
    )


def test_files_that_are_not_yaml_or_hidden_are_left_alone(load: Load) -> None:
    """README, CODEOWNERS and the folders of CI stand beside budgets without harm."""
    others = {"README.md": "\0", ".github/workflows/ci.yaml": "x", ".pre-commit-config.yaml": "x", "a/.b/c.yml": "x"}
    assert load(others).diagnostics == ()
    assert is_read("a/budget.YAML")
    assert not is_read("a/.budget.yaml")


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("budget.yml", "file-unknown"), ("Budget.yaml", "file-unknown"), ("a/cluster.yaml", "file-unknown"),
        ("a\\b.yaml", "file-name"), ("/etc/budget.yaml", "file-name"), ("a//budget.yaml", "file-name"),
        ("a\n/budget.yaml", "file-name"), ("\udcff/budget.yaml", "file-name"),
    ],
)  # fmt: skip
def test_odd_file_names_are_refused(load: Load, name: str, rule: str) -> None:
    """A YAML file that cannot belong to a tree is an error, not ignored."""
    assert [(found.rule, found.position.file) for found in load({name: "kind: Budget\n"}).diagnostics] == [(rule, name)]


def test_depth_of_budgets_is_bounded(load: Load) -> None:
    """A chain of a thousand folders is one problem and no crash."""
    path, files = "", {"budget.yaml": "kind: Budget\nchildren: {a: 5%}\n"}
    for _ in range(1000):
        path += "a/"
        files[path + "budget.yaml"] = files["budget.yaml"]
    assert rules(load(files)) == [("budget-depth", f"{'a/' * 16}budget.yaml", 2)]


@pytest.mark.parametrize(
    ("lines", "rule", "place"),
    [
        ("a: {share: 5%, previously: a}", "previously-self", (5, 30)),
        ("a: {share: 5%, previously: b}\n  b: 5%", "previously-exists", (5, 30)),
        ("a: {share: 5%, previously: x/y}\n  b: {share: 5%, previously: x/y}", "previously-twice", (6, 30)),
    ],
)
def test_a_history_has_one_heir(problems: Problems, lines: str, rule: str, place: tuple[int, int]) -> None:
    """A former path is gone, claimed once, and not one's own (gitops.md: flux2#3316)."""
    [found] = [found for found in problems(f"children:\n  {lines}\n") if found.is_error]
    assert (found.rule, found.position[1:]) == (rule, place)
    assert bool(found.related) == (rule != "previously-self")


def test_former_paths_that_are_gone_are_fine(load: Load) -> None:
    """A renamed budget, and one that takes the name of a renamed one's parent, are no problem."""
    root = "kind: Budget\nmanagers: [i]\nmembers: [i]\nchildren:\n  b: {share: 5%, members: [x], previously: a/c}\n"
    tree = load({"budget.yaml": root + "  a: {share: 5%, members: [x], previously: d}\n"}).tree
    assert tree is not None
    assert [budget.previously for budget in tree.budgets()] == [None, "a/c", "d"]


def test_people_stand_once_in_a_list(problems: Problems) -> None:
    """A manager or member twice is an error with both places, inline too; one person in both lists is fine."""
    lines = "children:\n  a: {share: 5%, members: [x, y, x], managers: [x]}\n"
    assert [(found.rule, found.position[1:], found.related[0].position[1:]) for found in problems(lines)] == [
        ("person-twice", (5, 34), (5, 28))
    ]


@pytest.mark.parametrize(
    ("policy", "rule", "words"),
    [
        ("lookback: 4h", "policy-bounds", "max_min_runtime is 8h, more than lookback, 4h"),
        ("lookback: 500ms\n  max_min_runtime: 1s", "policy-bounds", "lookback is 500ms, less than 1s"),
        ("lookback: 400d", "policy-bounds", "lookback is 400d, more than 366d"),
        ("max_min_runtime: 8d", "policy-bounds", "max_min_runtime is 8d, more than lookback, 7d"),
        ("max_min_runtime: 0", "policy-bounds", "max_min_runtime is 0, less than 1s"),
        ("rebalance_interval: 1ms", "policy-bounds", "rebalance_interval is 1ms, less than 100ms"),
        ("grace_period: 2h", "policy-bounds", "grace_period is 2h, more than 1h"),
        ("failed_soon: 31d", "policy-bounds", "failed_soon is 31d, more than 30d"),
        ("preempt_backoff: 9h", "policy-bounds", "preempt_backoff is 9h, more than max_preempt_backoff, 8h"),
        ("max_preempt_backoff: 1m", "policy-bounds", "preempt_backoff is 10m, more than max_preempt_backoff, 1m"),
        ("debug: {gpus: 8, max_runtime: 8d}", "policy-bounds", "debug.max_runtime is 8d, more than lookback, 7d"),
        (
            "lookback: 2m\n  max_min_runtime: 1m\n  debug: {gpus: 8}",
            "policy-bounds",
            "max_runtime is 15m, more than lookback",
        ),
        ("debug: {gpus: 8, max_gpus: 16}", "policy-bounds", "debug.max_gpus is 16, but the lane has only 8"),
        ("debug: {gpus: 32}", "lane-size", "keeps 32 GPUs of each pool, but b200 has 32"),
        ("grace_period: 1h1h", "duration-syntax", "'1h1h' has its units out of order or twice"),
        ("grace_period: 5", "duration-syntax", "policy.grace_period is the number 5, not a duration"),
        ("grace_period: soon", "duration-syntax", "policy.grace_period is the text 'soon', not a duration"),
        ("debug: {gpus: many}", "wrong-type", "policy.debug.gpus is the text 'many', not a whole number"),
        ("debug: {gpus: 8, max_gpus: []}", "wrong-type", "policy.debug.max_gpus is a list"),
        ("debug: []", "wrong-type", "policy.debug is a list, not a mapping"),
    ],
)
def test_settings_that_make_no_sense_are_refused(load: Load, policy: str, rule: str, words: str) -> None:
    """A setting out of bounds, or one that contradicts another, is an error in its own line."""
    pools = "pools: {h100: {hosts: 16, gpus_per_host: 8}, b200: {hosts: 4, gpus_per_host: 8}}"
    found = load({"cluster.yaml": f"kind: Cluster\n{pools}\npolicy:\n  {policy}\n"}).diagnostics[0]
    assert (found.rule, found.position.line) == (rule, 4)
    assert words in found.message


def test_a_policy_of_another_type_is_one_problem(load: Load) -> None:
    """A policy or pools that cannot be read at all are reported once, and nothing is concluded from them."""
    assert rules(load({"cluster.yaml": "kind: Cluster\npools: 5\npolicy: [a]\ntimezone: 5\nname: [x]\n"})) == [
        ("wrong-type", "cluster.yaml", 2),
        ("wrong-type", "cluster.yaml", 3),
        ("wrong-type", "cluster.yaml", 4),
        ("name-syntax", "cluster.yaml", 5),
    ]
    assert rules(load({"cluster.yaml": "kind: Cluster\npools: {a: 5}\n"})) == [("wrong-type", "cluster.yaml", 2)]


@pytest.mark.parametrize("name", ["Europe/Berlim", "../../etc/passwd", "/etc/localtime", "Europe", "", " ", "x\\ty"])
def test_a_timezone_that_does_not_exist_is_refused(load: Load, name: str) -> None:
    """Unknown names, folders and paths are a problem at the value, never a traceback."""
    text = f'kind: Cluster\npools: {{h100: {{hosts: 9, gpus_per_host: 8}}}}\ntimezone: "{name}"\n'
    [found] = load({"cluster.yaml": text}).diagnostics
    assert (found.rule, found.position) == ("timezone-unknown", Position("cluster.yaml", 3, 11))


def test_a_tree_is_bounded_in_all(load: Load) -> None:
    """Many files that are each small enough are refused together, unread."""
    files = {f"a{i}/budget.yaml": b"#" * 900_000 for i in range(9)}
    [found] = load(files).diagnostics
    assert (found.rule, found.message) == ("tree-size", "the files have more than 8,000,000 bytes in all")
    assert [problem.rule for problem in load(dict(list(files.items())[:8])).diagnostics].count("yaml-empty") == 8


def test_many_broken_rules_in_one_file_end_at_a_bound(load: Load) -> None:
    """Of very many problems that reach beyond one value, too, only the first of a file are shown and looked for."""
    lines = "".join(
        f"  c{number}: {{share: {{default: 0%, p{number}: 0%}}, members: [x]}}\n" for number in range(5_000)
    )
    found = load({"budget.yaml": f"kind: Budget\nchildren:\n{lines}"}).diagnostics
    assert [problem.rule for problem in found] == ["too-many-problems", *["pool-unknown"] * 100]
