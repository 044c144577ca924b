"""From what a person asks to have compared to the review of it: read both trees, compare them, ask the daemon.

Reads a repository and a daemon and changes neither. A daemon that is only asked for what it could add to the picture
(usage, what runs now, drift) may be away; a note then says what is left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubudget.core.budget import Tree
from gpubudget.errors import GpuBudgetError, InvalidInputError
from gpubudget.gitops.live import live
from gpubudget.gitops.owners import approvals
from gpubudget.gitops.plan import Plan, plan
from gpubudget.gitops.repository import Repository, open_repository
from gpubudget.gitops.review import Review, approved
from gpubudget.gitops.revision import resolve
from gpubudget.gitops.sides import Loaded, Sides, from_daemon
from gpubudget.gitops.source import parse_source
from gpubudget.gitops.target import Api, Applied, Daemon
from gpubudget.gitops.wording import SHORT, date_text, side_text


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be compared.

    ``after`` is a folder, or the name of a commit. ``against`` names a commit, or is None for what the daemon has.
    ``top`` is the repository (None if there is none) and ``path`` the folder of budgets in it. ``at`` gives the moment
    whose shares count, from the timezone of the tree after.
    """

    after: Path | str
    against: str | None
    top: Path | None
    path: str
    at: Callable[[str], int]
    approved_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The review, and the two trees that it is about."""

    review: Review
    before: Tree | None
    after: Tree


def answer(question: Question, api: Api | None) -> Answer:
    """The answer; without ``api`` no daemon is asked.

    Raises InvalidTreeError for a tree that is not valid, and whatever keeps a side from being read.
    """
    with _opened(question) as repository:
        return _Making(question, repository, api).made()


@contextmanager
def _opened(question: Question) -> Iterator[Repository | None]:
    if question.top is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="gpubudget-") as folder:
        own = Path(folder)
        source = parse_source(str(question.top))
        with open_repository(source, own / "mirror", scratch=own / "objects") as repository:
            yield repository


class _Making:
    """The steps of one answer; ``notes`` gathers what is out of the ordinary."""

    def __init__(self, question: Question, repository: Repository | None, api: Api | None) -> None:
        self._question = question
        self._repository = repository
        self._sides = Sides(repository, question.path)
        self._api = api
        self._notes: list[str] = []

    def made(self) -> Answer:
        question = self._question
        applied, budgets = self._daemon()
        before = from_daemon(applied) if question.against is None else self._sides.ref(question.against)
        after = self._after(before)
        assert after.tree is not None  # noqa: S101 - only a daemon may have none
        now = question.at(after.tree.timezone)
        found = plan(before.tree, after.tree, now)
        self._dates(after.tree, before.tree, now)
        review = Review(
            before.side,
            after.side,
            now,
            after.tree.policy.lookback,
            after.tree.timezone,
            found,
            self._descends(before, after),
            self._drift(applied, before, now),
            live(found, budgets),
            approvals(before.tree, found),
            None,
            tuple(self._notes),
        )
        return Answer(approved(review, question.approved_by), before.tree, after.tree)

    def _daemon(self) -> tuple[Applied | None, list[dict[str, Any]]]:
        """What the daemon has, and how its budgets stand; left out with a note if it need not be asked."""
        if self._api is None:
            if self._question.against is None:
                raise InvalidInputError("the daemon is not asked here", hint="name a branch, a tag or a commit")
            return None, []
        try:
            applied = Daemon(self._api).applied()
            budgets: list[dict[str, Any]] = self._api.get("/v1/budgets").get("budgets") or []
        except GpuBudgetError as error:
            if self._question.against is None:
                raise
            self._notes.append(f"usage, what runs now and drift are left out: {error.message}")
            return None, []
        return applied, budgets

    def _after(self, before: Loaded) -> Loaded:
        question = self._question
        if isinstance(question.after, Path):
            if question.against is not None:
                self._behind(before)
            return self._sides.folder(question.after)
        if question.against is None:
            return self._sides.ref(question.after)
        return self._sides.merged(question.after, before.side)

    def _behind(self, before: Loaded) -> None:
        """A folder is compared as it is; what it may lack of the other side shows as if it were taken back."""
        repository = self._sides.repository
        head = resolve(repository, "HEAD")
        if not repository.is_ancestor(before.side.commit, head):
            told = side_text(before.side)
            why = f"HEAD ({head[:SHORT]}) lacks commits of {told}; what they changed shows here as taken back"
            self._notes.append(f"{why}. Plan a commit (`gpubudget plan HEAD`) to see it as it will be merged")

    def _descends(self, before: Loaded, after: Loaded) -> bool:
        """Whether the daemon may go from the one commit to the other without being forced."""
        old, new = before.side, after.side
        if not new.commit or new.merged:
            return False
        if before.tree is None:
            return True
        repository = self._sides.repository
        if repository.has(old.commit) and repository.is_ancestor(old.commit, new.commit):
            return True
        self._notes.append(f"{side_text(new)} does not descend from {side_text(old)}, so it cannot be applied")
        return False

    def _drift(self, applied: Applied | None, before: Loaded, now: int) -> Plan | None:
        if applied is None or self._repository is None:
            return None
        if before.side.commit != applied.commit:
            told = f"the daemon has commit {applied.commit[:SHORT]}, not {side_text(before.side)}"
            same = "the budgets are the same" if before.side.digest == applied.digest else "the budgets differ"
            self._notes.append(f"{told}; {same}")
        found, why = self._sides.drift(applied, now)
        self._notes += [why] if why else []
        return found

    def _dates(self, after: Tree, before: Tree | None, now: int) -> None:
        """Later dates at which this plan means something else than at the one that is shown."""
        old = {b.path: b.changes for b in before.budgets()} if before is not None else {}
        changed = {
            moment
            for budget in after.budgets()
            if budget.changes != old.get(budget.path, ())
            for dated in (*budget.changes, *old.get(budget.path, ()))
            for moment in (dated.start, dated.until)
            if moment > now
        }
        if changed:
            days = ", ".join(date_text(moment, after.timezone) for moment in sorted(changed)[:3])
            self._notes.append(f"dated changes begin or end later ({days}); `--as-of DATE` shows the shares of a day")
