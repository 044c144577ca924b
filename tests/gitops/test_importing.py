"""From what a site has to a tree: names, exact shares, and a report on what is lost."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubudget.core.budget import Budget, Pool, Tree
from gpubudget.errors import InvalidInputError
from gpubudget.gitops import csvtable, slurmdump
from gpubudget.gitops.importing import Imported, Node, Report, imported, normalised, slug

POOLS = (Pool("h100", 8, 16),)
DUMP = (Path(__file__).parent / "imports" / "slurm-22.05.dump").read_text(encoding="utf-8")


def of_slurm(text: str) -> Imported:
    report = Report()
    root, cluster = slurmdump.read(text, report)
    return imported(root, POOLS, cluster, report)


def of_table(text: str) -> Imported:
    report = Report()
    return imported(csvtable.read(text, report), POOLS, "lab", report)


def budget(tree: Tree, path: str) -> Budget:
    found = tree.find(path)
    assert found is not None
    return found


def shares(tree: Tree) -> dict[str, Fraction]:
    return {budget.path: budget.shares.default for budget in tree.budgets() if budget.path != "/"}


# names and shares


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("olmo", "olmo"), ("Post_Training.v2", "post-training-v2"), ("Zoë Müller", "zoe-muller"), ("--", "unnamed"),
        ("日本", "unnamed"), ("x" * 80, "x" * 63), ("a" * 62 + "_b", "a" * 62), ("42", "42"),
    ],
)  # fmt: skip
def test_names_of_a_site_become_names_here(name: str, here: str) -> None:
    """Letters, digits and hyphens, of bounded length."""
    assert slug(name) == here


def test_no_two_names_become_the_same() -> None:
    """Siblings and people are told apart by a number, the same person is the same everywhere, and all is reported."""
    children = [
        Node("a_b", 2, Fraction(1, 4), members=["J.Doe"]),
        Node("a-b", 3, Fraction(1, 4), members=["j-doe", "J.Doe"]),
        Node("A B", 4, Fraction(1, 4)),
    ]
    made = imported(Node("/", 0, children=children), POOLS, "The Lab", Report())
    assert [(child.path, child.members) for child in made.tree.root.children] == [
        ("a-b", ("j-doe",)), ("a-b-2", ("j-doe-2", "j-doe")), ("a-b-3", ())
    ]  # fmt: skip
    assert made.tree.cluster == "the-lab"
    assert made.report == (
        "the cluster 'The Lab' is called the-lab here",
        "line 2: the budget 'a_b' is called a-b here",
        "line 2: the person 'J.Doe' is called j-doe here",
        "line 3: the budget 'a-b' is called a-b-2 here",
        "line 3: the person 'j-doe' is called j-doe-2 here",
        "line 4: the budget 'A B' is called a-b-3 here",
    )


def test_weights_become_exact_parts() -> None:
    """Thirds stay thirds, and nothing is nothing's part."""
    assert normalised([Fraction(1), Fraction(2)]) == [Fraction(1, 3), Fraction(2, 3)]
    assert normalised([Fraction(0), Fraction(0)]) == [0, 0]
    assert normalised([]) == []


def test_a_share_too_fine_to_be_written_is_rounded_down_and_reported() -> None:
    """With both numbers."""
    weights = normalised([Fraction(10_007), Fraction(10_009)])
    children = [Node(name, 2, share) for name, share in zip("ab", weights, strict=True)]
    made = imported(Node("/", 0, children=children), POOLS, "lab", Report())
    assert "line 2: the share of a, 10007/20016, is rounded down to 49.995003996802%" in made.report
    assert sum(shares(made.tree).values()) < 1


def test_a_title_keeps_what_a_title_can_hold() -> None:
    """One line of 200 printable characters; what is cut is reported."""
    node = Node("/", 3, title="  two\nlines \x07" + "x" * 300)
    made = imported(node, POOLS, "lab", Report())
    assert made.tree.root.title == "two lines " + "x" * 190
    assert made.report[0].startswith("line 3: the title 'two lines ")


# a dump of Slurm's


def test_a_real_dump_becomes_a_tree() -> None:
    """Accounts, users, coordinators and Fairshare, written by sacctmgr 22.05 (coldfront#531, ansible-slurm#38)."""
    made = of_slurm(DUMP)
    assert made.tree.cluster == "lab"
    assert shares(made.tree) == {
        "empty": Fraction(7, 87), "language": Fraction(50, 87), "language/olmo": Fraction(1, 2),
        "language/olmo/u01": Fraction(1, 7), "language/olmo/u02": Fraction(1, 7), "language/olmo/u07": Fraction(5, 7),
        "language/post-training": Fraction(1, 4), "vision": Fraction(10, 29), "vision/u01": Fraction(1, 5),
        "vision/u04": Fraction(3, 5), "vision/u05": Fraction(1, 5),
    }  # fmt: skip
    language, post = budget(made.tree, "language"), budget(made.tree, "language/post-training")
    assert (language.title, language.managers, language.members) == ("language models", ("u06",), ("u06",))
    assert (post.title, post.members) == ("post training", ("u03",))
    assert budget(made.tree, "vision/u04").members == ("u04",)
    assert budget(made.tree, "vision").members == ()


def test_the_report_says_what_a_budget_cannot_hold_and_why() -> None:
    """Limits, QOS and partitions, each with its line; what everybody has is not told."""
    told = [line.partition(", which is not carried over: ") for line in of_slurm(DUMP).report]
    ceiling = "a budget is a share, and no ceiling"
    assert [(what, why) for what, _, why in told] == [
        ("line 18: the account vision has GrpTRES=gres/gpu=16", ceiling),
        ("line 18: the account vision has MaxJobs=100", ceiling),
        ("line 18: the account vision has QOS=+high", slurmdump._REASONS["qos"]),
        ("line 22: the budget 'post_training' is called post-training here", ""),
        ("line 26: the user u07 of olmo has Partition=debug", "pools are chosen with each workload"),
        ("line 32: the user u05 of vision has MaxSubmitJobs=5", ceiling),
    ]


HEAD = "Cluster - 'lab'\nParent - 'root'\n"


def test_users_who_weigh_the_same_share_what_their_account_keeps() -> None:
    """They are members; their sum beside the accounts below is the reserve."""
    made = of_slurm(
        HEAD + "Account - 'a':Fairshare=3\nParent - 'a'\nAccount - 'b':Fairshare=2\n"
        "User - 'x':Fairshare=1\nUser - 'y':Fairshare=1\nUser - 'z':Fairshare=parent\n"
    )
    assert shares(made.tree) == {"a": 1, "a/b": Fraction(1, 2)}
    assert budget(made.tree, "a").members == ("x", "y", "z")


def test_a_user_of_several_partitions_counts_once() -> None:
    """The association without a partition comes first, and the others are reported."""
    made = of_slurm(
        HEAD + "Account - 'a'\nParent - 'a'\nUser - 'x':Partition='p':Fairshare=9\nUser - 'x':Fairshare=1\n"
        "User - 'y':Fairshare=1:AdminLevel='Operator'\n"
    )
    assert budget(made.tree, "a").members == ("x", "y")
    assert "line 5: the user x stands in a more than once; the first counts" in made.report
    assert any("AdminLevel=Operator" in line and "--role admin" in line for line in made.report)


def test_an_account_without_a_fairshare_of_its_own_gets_nothing_and_is_reported() -> None:
    """Slurm splits such an account among its siblings, which no share can say."""
    made = of_slurm(HEAD + "Account - 'a':Fairshare=2147483647\nAccount - 'b':FairShare=0\nAccount - 'c':Fairshare=4\n")
    assert shares(made.tree) == {"a": 0, "b": 0, "c": 1}
    assert made.report == ("line 3: the account a has no Fairshare of its own; it gets 0%",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the dump names no cluster"),
        ("# only words\n", "the dump names no cluster"),
        ("nonsense\n", "line 1 has 'nonsense', which is no line of a dump"),
        (HEAD + "Account - 'a'x\n", "line 3 has 'x', which is no option"),
        (HEAD + "Account - 'a':Fairshare=-1\n", "line 3 has the Fairshare '-1', which is no whole number"),
        (HEAD + "Account - 'a':Fairshare=1.5\n", "line 3 has the Fairshare '1.5', which is no whole number"),
        (HEAD + "Parent - 'b'\n", "line 3 has the parent 'b', which is no account above"),
        (HEAD + "Account - 'a'\nAccount - 'a'\n", "line 4 has the account 'a' again; it stands in line 3 already"),
        (HEAD + "Cluster - 'two'\n", "line 3 has another cluster, 'two'; one was expected"),
        (HEAD + "".join(f"Account - 'a{n}'\nParent - 'a{n}'\n" for n in range(2_000)), "more than 16 levels below"),
    ],
)
def test_what_is_no_dump_is_one_sentence_with_the_line(text: str, said: str) -> None:
    """And what to do."""
    with pytest.raises(InvalidInputError) as caught:
        of_slurm(text)
    assert said in caught.value.message
    assert "sacctmgr dump" in caught.value.hint


# a table


def test_a_table_of_shares_becomes_a_tree() -> None:
    """In any order of lines and columns; the root's line and all columns but two may be left out."""
    made = of_table(
        "Budget,Share,Title,Managers,Members,Cost centre\n"
        "language/olmo,1/3,OLMo,hanna,alice;bob,7\n"
        '/,,"The lab, all of it",@ines,"ines, otto",\n'
        ",,,,,\n"
        " language / posttraining , 50 %,,,,\n"
        "language,60%\n"
    )
    assert shares(made.tree) == {
        "language": Fraction(3, 5), "language/olmo": Fraction(1, 3), "language/posttraining": Fraction(1, 2)
    }  # fmt: skip
    root, olmo = made.tree.root, budget(made.tree, "language/olmo")
    assert (root.title, root.managers, root.members) == ("The lab, all of it", ("ines",), ("ines", "otto"))
    assert (olmo.title, olmo.managers, olmo.members) == ("OLMo", ("hanna",), ("alice", "bob"))
    assert made.report == ("line 1: the column 'cost centre' is not carried over",)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_weights_are_parts_of_the_sum_of_their_siblings(mark: str) -> None:
    """Exactly, whatever stands between the cells."""
    text = "budget,weight\na,1\nb,2\na/x,0.1\na/y,0.3\n".replace(",", mark)
    assert shares(of_table(text).tree) == {
        "a": Fraction(1, 3), "a/x": Fraction(1, 4), "a/y": Fraction(3, 4), "b": Fraction(2, 3)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the table is empty"),
        ("name,share\na,1%\n", "the table has the columns name, share"),
        ("budget,share,weight\n", "the table has the columns budget, share, weight"),
        ("budget,share,share\n", "the table has the columns budget, share, share"),
        ("budget,share\n", "the table has no budgets"),
        ("budget,share\na,40\n", "line 2: share '40' is not a share"),
        ("budget,share\na,\n", "line 2: share '' is not a share"),
        ("budget,weight\na,-1\n", "line 2 has the weight '-1', which is no number"),
        ("budget,weight\na,1e5\n", "line 2 has the weight '1e5', which is no number"),
        ("budget,share\na,1%,x\n", "line 2 has 3 cells for 2 columns"),
        ("budget,share\na//b,1%\n", "line 2 has the budget 'a//b', in which a name is missing"),
        ("budget,share\na,1%\na,2%\n", "line 3 has the budget 'a' again; it stands in line 2 already"),
        ("budget,share\n/,\n,1%\n", "line 3 has the budget '/' again; it stands in line 2 already"),
        ("budget,share\na/b,1%\n", "line 2 has the budget 'a/b', whose parent 'a' stands nowhere"),
        ("budget,share\n" + "/".join("a" * 17) + ",1%\n", "line 2 has a budget 17 levels below the root; 16 are"),
        ('budget,share\n"a,1%\n', "line 2 has cells that cannot be told apart"),
        ("budget,share\na,60%\nb,50%\n", "it makes no tree: the children of / sum to 110%"),
        ("budget,share\na,60%\nb,50%\nb/x,60%\nb/y,50%\n", "(and 1 other problem)"),
    ],
)
def test_what_is_no_table_of_budgets_is_one_sentence_with_the_line(text: str, said: str) -> None:
    """And what to do."""
    with pytest.raises(InvalidInputError) as caught:
        of_table(text)
    assert said in caught.value.message
    assert caught.value.hint


# anything

PIECES = [
    "Cluster - 'c'", "Parent - 'root'", "Account - 'a'", "User - 'u'", ":Fairshare=", ":Partition='p'", "'", ":", "=",
    "budget,share\n", "budget;weight\n", "a/b", "/", ",", ";", "\t", '"', "50%", "1/3", "1", "\n", "\r", "\0", " ",
]  # fmt: skip


@settings(max_examples=150, deadline=2_000)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=40).map("".join))
def test_whatever_is_imported_makes_a_tree_or_is_one_sentence(text: str) -> None:
    """Fragments of dumps and tables, and noise between them."""
    for read in (of_slurm, of_table):
        try:
            made = read(text)
        except InvalidInputError as error:
            problem: InvalidInputError | None = error
        else:
            problem = None
            assert made.tree.root.path == "/"
        assert problem is None or ("\n" not in problem.message and problem.hint)
