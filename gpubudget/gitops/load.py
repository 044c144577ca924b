"""From the files of a tree to its value, or to all that is wrong with it.

``load_tree`` is the one validation of this project: the command line, CI, the reconciler and the daemon call it. It is
a function of the files' bytes, so that a folder and the blobs of a commit are read alike, and it changes nothing. An
empty or broken set of files is never an empty tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from fractions import Fraction
from itertools import chain, islice

from gpubudget.core.budget import ROOT, Budget, Shares, Tree, child_path
from gpubudget.gitops import rules, structure
from gpubudget.gitops.advice import warnings
from gpubudget.gitops.diagnostics import Diagnostic, Position, in_order, in_place, quoted
from gpubudget.gitops.document import BudgetFile, ClusterFile, read_budget, read_cluster
from gpubudget.gitops.sums import over_the_whole
from gpubudget.gitops.yamlfile import MAX_PROBLEMS, Value, parse

CLUSTER_FILE = "cluster.yaml"
BUDGET_FILE = "budget.yaml"
SUFFIXES = (".yaml", ".yml")
MAX_TREE_BYTES = 8_000_000
MAX_BUDGETS = 10_000


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The tree, or None when there is an error; and all problems in the order of their places."""

    tree: Tree | None
    diagnostics: tuple[Diagnostic, ...]


def is_read(path: str) -> bool:
    """Whether a file of this path (below the tree's folder) belongs to the tree: YAML, and not hidden by a dot."""
    return path.lower().endswith(SUFFIXES) and not any(part.startswith(".") for part in path.split("/"))


Known = dict[tuple[str, bytes | None, tzinfo], tuple[BudgetFile, list[Diagnostic]]]
"""What has been read from a file's name and bytes before; a second tree is mostly like the first."""


def load_tree(files: Mapping[str, bytes], unread: Iterable[Diagnostic] = (), known: Known | None = None) -> LoadResult:
    """The tree that ``files`` describe, by path below the tree's folder; files that are not YAML are left alone.

    ``unread`` says what is there and could not be read; it is no less of a problem than what was. ``known`` saves
    reading a file twice, and is added to.
    """
    known = {} if known is None else known
    problems = list(unread)
    if sum(map(len, files.values())) > MAX_TREE_BYTES:
        return LoadResult(None, (_too_large(f"the files have more than {MAX_TREE_BYTES:,} bytes in all"),))
    names = _budget_files(files, problems)
    cluster = _load_cluster(files, problems)
    budgets = {path: _load_budget(name, files.get(name), cluster, problems, known) for path, name in names.items()}
    if (listed := 1 + sum(len(budget.children or ()) for budget in budgets.values())) > MAX_BUDGETS:
        problems.append(_too_large(f"the tree has {listed:,} budgets, more than {MAX_BUDGETS:,}"))
        return LoadResult(None, in_place(problems, files))
    problems += _broken_rules(budgets, cluster)
    reached = rules.walk(budgets, problems)
    problems += rules.folders(budgets, reached)
    problems += rules.former_paths(reached)
    if any(problem.is_error for problem in problems):
        return LoadResult(None, in_place(problems, files))
    problems += warnings(reached, cluster)
    tree = Tree(_build(reached), cluster.pools, cluster.policy, cluster.name, cluster.timezone)
    return LoadResult(tree, in_place(problems, files))


def _too_large(message: str) -> Diagnostic:
    return Diagnostic("tree-size", Position(BUDGET_FILE), message, "put budgets that are managed alike together")


def _budget_files(files: Mapping[str, bytes], problems: list[Diagnostic]) -> dict[str, str]:
    """The file of each budget, by the budget's path; files that cannot belong to a tree are problems."""
    found: dict[str, str] = {}
    unread = {problem.position.file for problem in problems}
    for name in sorted(path for path in unread.union(files) if is_read(path)):
        folder, _, base = name.rpartition("/")
        if name in unread:
            found |= {folder or ROOT: name} if base == BUDGET_FILE else {}
        elif not name.isprintable() or "\\" in name or any(part in ("", "..") for part in name.split("/")):
            message = f"the file name {quoted(name)} is not one that a tree can have"
            problems.append(Diagnostic("file-name", Position(name), message, "rename the file or its folder"))
        elif base == BUDGET_FILE:
            found[folder or ROOT] = name
        elif name != CLUSTER_FILE:
            message = f"{quoted(base)} is neither budget.yaml nor the cluster.yaml at the top"
            hint = "rename it, or keep other YAML files in a folder whose name begins with a dot"
            problems.append(Diagnostic("file-unknown", Position(name), message, hint))
    for name, what in ((CLUSTER_FILE, "its pools and policy"), (BUDGET_FILE, "the root budget")):
        if name not in files and name not in unread:
            message = f"the tree has no {name} at its top"
            problems.append(Diagnostic("file-missing", Position(name), message, f"add one with {what}"))
    return found


def _load_cluster(files: Mapping[str, bytes], problems: list[Diagnostic]) -> ClusterFile:
    if CLUSTER_FILE not in files:
        return ClusterFile()
    value, found = _parsed("cluster", CLUSTER_FILE, files[CLUSTER_FILE])
    cluster = read_cluster(CLUSTER_FILE, value, found)
    problems += _bounded(CLUSTER_FILE, [*found, *rules.policy(cluster)])
    return cluster


def _load_budget(
    name: str, data: bytes | None, cluster: ClusterFile, problems: list[Diagnostic], known: Known
) -> BudgetFile:
    key = (name, data, cluster.zone)
    if key not in known:
        value, found = _parsed("budget", name, data) if data is not None else (None, [])
        budget = read_budget(name, value, cluster.zone, found)
        known[key] = (budget, _bounded(name, found))
    problems += known[key][1]
    return known[key][0]


def _parsed(kind: str, name: str, data: bytes) -> tuple[Value, list[Diagnostic]]:
    """The value of a file and the problems of its text and structure; a place is named for one of them only."""
    value, found = parse(name, data)
    if value is not None:
        reported = {problem.position for problem in found}
        found += (p for p in structure.problems(kind, name, value) if p.position not in reported)
    return value, found


def _bounded(name: str, found: list[Diagnostic]) -> list[Diagnostic]:
    if len(found) < MAX_PROBLEMS:
        return found
    message = f"this file has {MAX_PROBLEMS} problems or more; only the first are shown"
    first = in_order(found)[:MAX_PROBLEMS]
    return [*first, Diagnostic("too-many-problems", Position(name), message, "mend these and validate again")]


def _broken_rules(budgets: dict[str, BudgetFile], cluster: ClusterFile) -> list[Diagnostic]:
    """The problems that can be seen in one file of typed values."""
    problems: list[Diagnostic] = []
    for path, budget in budgets.items():
        children = budget.children or ()
        found = chain(
            rules.people((budget.description, *(child.description for child in children))),
            rules.pools_known(children, cluster.pools),
            rules.dates(children),
            over_the_whole(path, budget.children_at, children, cluster.pools) if children else (),
        )
        problems += _bounded(budget.file, list(islice(found, MAX_PROBLEMS)))
    return problems


def _build(reached: dict[str, rules.Listed]) -> Budget:
    """The value of a tree without errors, from the leaves up."""
    built: dict[str, Budget] = {}
    for path, listed in reversed(reached.items()):
        about = listed.description
        below = [built.pop(child_path(path, child.name)) for child in listed.children]
        built[path] = Budget(
            path,
            listed.shares.value() if listed.shares else Shares(Fraction(1)),
            about.title,
            tuple(name.text for name in about.managers),
            tuple(name.text for name in about.members),
            about.previously.text if about.previously else None,
            tuple(sorted((change.value() for change in listed.changes), key=lambda change: change.start)),
            tuple(below),
        )
    return built[ROOT]
