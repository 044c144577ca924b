"""Who decides: which managers must approve a plan, and the CODEOWNERS file that says the same for files.

A share stands in its parent's file, so the parent's managers decide it, and what comes or goes below them. A move is
for the managers of both parents. Titles, managers and members are for the budget's own managers, the cluster's settings
for those of the root. Where a budget names no manager, those of the nearest one above it that does decide. It is
always the tree *before* that says who that is: nobody becomes a manager by the very change that they approve.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gpubudget.core.budget import ROOT, Tree, parent_path
from gpubudget.gitops.load import BUDGET_FILE
from gpubudget.gitops.plan import Action, Change, Plan
from gpubudget.gitops.review import Approval

_BEGIN = "# gpubudget owners: begin"
_END = "# gpubudget owners: end"
_BY_PARENT = {"share", "changes"}


def approvals(before: Tree | None, plan: Plan) -> tuple[Approval, ...]:
    """The decisions that a plan needs, in its order; none for the first tree of all, since nobody decides yet."""
    if before is None:
        return ()
    written = {change.path: change for change in plan.changes if change.action is not Action.REMOVED}
    managers = {budget.path: budget.managers for budget in before.budgets()}
    needed: dict[tuple[str, str], list[str]] = {}
    for change in plan.changes:
        for decides, what in _decisions(change, written):
            while not managers[decides] and decides != ROOT:
                decides = parent_path(decides)  # noqa: PLW2901 - up to the nearest that names one
            told = needed.setdefault((change.path, decides), [])
            told += [what] if what not in told else []
    if plan.settings:
        needed.setdefault((ROOT, ROOT), []).append("settings")
    return tuple(Approval(path, tuple(what), at, managers[at]) for (path, at), what in needed.items())


def _decisions(change: Change, written: dict[str, Change]) -> Iterable[tuple[str, str]]:
    """(a budget of the tree before, whose managers decide; what they decide) for one change."""
    above = _former(parent_path(change.path), written)
    match change.action:
        case Action.ADDED:
            yield above, "added"
        case Action.REMOVED:
            yield parent_path(change.path), "removed"
        case Action.MOVED if change.follows is None and change.former is not None:
            yield parent_path(change.former), "moved"
            yield above, "moved"
    for field in change.fields:
        yield above if field in _BY_PARENT else change.former or change.path, field


def _former(path: str, written: dict[str, Change]) -> str:
    """The budget of the tree before that a path of the new tree is, or is below."""
    change = written.get(path)
    if change is not None and change.action is Action.ADDED:
        return _former(parent_path(path), written)
    return change.former or path if change is not None else path


def codeowners(tree: Tree, files: Collection[str], folder: str, own: str = "") -> str:
    """The lines of a CODEOWNERS file for the tree in ``folder`` of a repository, between two marks.

    Each folder with a budget belongs to its managers, the top also to those who decide what is in the file ``own``
    itself. The last line that fits a file counts, so what is below stands below.
    """
    inside = folder.strip("/").removeprefix("./")
    top = f"/{inside}/" if inside not in {"", "."} else "/"
    lines = [f"{_BEGIN} (from the managers of {top}; `gpubudget owners` makes it anew)"]
    for budget in tree.budgets():
        at = "" if budget.path == ROOT else f"{budget.path}/"
        if budget.managers and f"{at}{BUDGET_FILE}" in files:
            people = " ".join(f"@{name}" for name in budget.managers)
            lines.append(f"{_escaped(top + at) if top + at != '/' else '*'} {people}")
            lines += [f"/{own} {people}"] if own and budget.path == ROOT and top != "/" else []
    return "\n".join([*lines, _END]) + "\n"


def _escaped(pattern: str) -> str:
    return "".join(f"\\{c}" if c in " #\\*?[" else c for c in pattern)


def renewed(text: str, block: str) -> str:
    """The text of a CODEOWNERS file with our lines in it made anew; everything else in it stays."""
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        return f"{text.rstrip()}\n\n{block}" if text.strip() else block
    return text[:begin] + block + text[end + len(_END) :].removeprefix("\n")
