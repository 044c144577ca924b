"""From what a site has, as it was read, to a tree of budgets: names, exact shares, and a report on what is lost.

Knows nothing of files or formats. A site's names become names that budgets and people can have; weights become exact
parts of the sum of their siblings. Whatever cannot be carried over is in the report, with its line, and never silently
changed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gpubudget.core.budget import ROOT, Budget, Pool, Shares, Tree, child_path
from gpubudget.errors import InvalidInputError
from gpubudget.gitops.load import load_tree
from gpubudget.gitops.writing import files, share_text, writable
from gpubudget.units import count

LARGEST_FILE = 64 << 20
LONGEST_NAME = 63
LONGEST_TITLE = 200

_SHOWN = 60


@dataclass(slots=True)
class Node:
    """A budget to be, as a site describes it: ``name`` and people in the site's own spelling, ``line`` where it stands.

    ``share`` is what it gets of its parent.
    """

    name: str
    line: int
    share: Fraction = Fraction(1)
    title: str = ""
    managers: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Imported:
    """A tree that validates, its files by path, and what could not be carried over, each with its line."""

    tree: Tree
    files: dict[str, str]
    report: tuple[str, ...]


class Report:
    """What could not be carried over, or is called something else now."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}

    def add(self, line: int, text: str) -> None:
        """Note something once, at the line (0 for none) where it comes up first."""
        self._lines.setdefault(text, line)

    def lines(self) -> tuple[str, ...]:
        """All of it, in the order of the lines."""
        ordered = sorted(self._lines.items(), key=lambda item: item[1])
        return tuple(f"line {line}: {text}" if line else text for text, line in ordered)


def slug(name: str) -> str:
    """The nearest to a name that budgets, people and clusters can be called here."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_NAME].rstrip("-") or "unnamed"


def normalised(weights: Sequence[Fraction]) -> list[Fraction]:
    """The exact part of each weight in the sum of all; none gets anything where all weigh nothing."""
    total = sum(weights, Fraction(0))
    return [weight / total if total else Fraction(0) for weight in weights]


def imported(root: Node, pools: Sequence[Pool], cluster: str, report: Report) -> Imported:
    """The tree and its files; raises InvalidInputError where what was read makes none."""
    builder = _Builder(report)
    tree = Tree(builder.budget(root, ROOT), tuple(pools), cluster=builder.cluster(cluster))
    texts = files(tree)
    loaded = load_tree({name: text.encode() for name, text in texts.items()})
    if loaded.tree is None:
        first, *others = [problem.message for problem in loaded.diagnostics if problem.is_error]
        more = f" (and {count(len(others), 'other problem')})" if others else ""
        raise InvalidInputError(f"it makes no tree: {first}{more}", hint="correct it there, and import it again")
    return Imported(tree, texts, report.lines())


class _Builder:
    """Makes values of nodes, and keeps which of the site's names has become which of ours."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._people: dict[str, str] = {}

    def cluster(self, name: str) -> str:
        """What the cluster is called."""
        return self._named(name, set(), "cluster", 0)

    def budget(self, node: Node, path: str) -> Budget:
        """The budget at a path, and all below it."""
        taken: set[str] = set()
        children: list[Budget] = []
        for child in node.children:
            name = self._named(child.name, taken, "budget", child.line)
            taken.add(name)
            children.append(self.budget(child, child_path(path, name)))
        share = writable(node.share)
        if share != node.share:
            exact = f"{node.share.numerator}/{node.share.denominator}"
            self._report.add(node.line, f"the share of {path}, {exact}, is rounded down to {share_text(share)}")
        return Budget(
            path,
            Shares(share),
            self._title(node),
            self._all(node.managers, node.line),
            self._all(node.members, node.line),
            children=tuple(children),
        )

    def _title(self, node: Node) -> str:
        title = " ".join(node.title.split())
        shown = "".join(c for c in title if c.isprintable())[:LONGEST_TITLE].strip()
        if shown != title:
            self._report.add(node.line, f"the title {title[:_SHOWN]!a} is shortened to what a title can hold")
        return shown

    def _all(self, names: list[str], line: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._person(name, line) for name in names))

    def _person(self, name: str, line: int) -> str:
        """The same name for the same person everywhere."""
        if name not in self._people:
            self._people[name] = self._named(name, set(self._people.values()), "person", line)
        return self._people[name]

    def _named(self, name: str, taken: set[str], what: str, line: int) -> str:
        """A name of ours for one of the site's: other characters become hyphens, and no two become the same."""
        found = base = slug(name)
        number = 2
        while found in taken:
            end = f"-{number}"
            found, number = base[: LONGEST_NAME - len(end)] + end, number + 1
        if found != name:
            self._report.add(line, f"the {what} {name[:_SHOWN]!a} is called {found} here")
        return found
