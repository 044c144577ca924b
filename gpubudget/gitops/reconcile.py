"""Reconcile: lock, fetch, read, validate, compare, apply in one request, read back, report.

The order matters: the ref is read under the lock, everything is validated before anything is sent, and what is sent
is the whole tree in one request that the target takes or refuses. A fault between any two steps therefore leaves the
target with its old tree or the new one, never with parts of both, and the next reconciliation goes on from there.

Nothing that cannot be read is taken for an empty tree. A commit that does not descend from what is applied, and a
tree that would remove every budget, are refused unless the order is forced, and then the report names it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.errors import ConflictError, GpuBudgetError, RefusedError, UnreachableError
from gpubudget.gitops.load import LoadResult, load_tree
from gpubudget.gitops.plan import plan
from gpubudget.gitops.report import Report, Status
from gpubudget.gitops.repository import Commit, Repository, open_repository
from gpubudget.gitops.source import Source
from gpubudget.gitops.target import Application, Applied, Target

T = TypeVar("T")

WAITS = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Order:
    """What to reconcile: the folder ``path`` of ``ref`` of a source.

    ``folder`` is this order's own place for its lock and mirror. ``timeout`` bounds each git command and ``waits``
    are the pauses before a target that is away is asked again, all in seconds.
    """

    source: Source
    ref: str
    path: str
    folder: Path
    dry_run: bool = False
    force: bool = False
    timeout: float = 60.0
    waits: tuple[float, ...] = WAITS


@dataclass(frozen=True, slots=True)
class Proposal:
    """What git says should be: a valid tree and its commit."""

    tree: Tree
    commit: Commit
    digest: str


def folder_for(cache: Path | None, source: Source, target: str) -> Path:
    """The place for the lock and the mirror of one source and one target, below ``cache`` or the user's own cache."""
    base = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpubudget"
    return base / "reconcile" / hashlib.sha256(f"{source.place}\0{target}".encode()).hexdigest()[:20]


def reconcile(order: Order, target: Target, now: int) -> Report:
    """One reconciliation at ``now`` (milliseconds). Every failure is in the report; none raises."""
    cycle = _Cycle(order, target, now)
    try:
        with exclusive(order.folder) as alone:
            if alone:
                cycle.run()
            else:
                cycle.note(status=Status.BUSY)
    except GpuBudgetError as error:
        refused = isinstance(error, ConflictError | RefusedError)
        status = Status.REFUSED if refused else Status.FAILED
        cycle.note(status=status, error=error.message, hint=error.hint, exit_code=error.exit_code)
    return cycle.report


@contextmanager
def exclusive(folder: Path) -> Iterator[bool]:
    """Whether this process is alone in ``folder``, which is made; the lock goes with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"cannot keep a lock in {folder}: {error.strerror}"
        raise GpuBudgetError(message, hint="choose a folder of your own with --cache-dir") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


class _Cycle:
    """The steps of one reconciliation; ``report`` holds what is known so far."""

    def __init__(self, order: Order, target: Target, now: int) -> None:
        self._order = order
        self._target = target
        self._now = now
        self.report = Report(order.source.shown, order.ref, order.path)

    def note(self, **known: object) -> None:
        """Adds to the report."""
        self.report = replace(self.report, **known)  # type: ignore[arg-type] # checked by the tests of each status

    def run(self) -> None:
        """All steps, until one ends it."""
        order = self._order
        with open_repository(order.source, order.folder / "mirror.git", order.timeout) as repository:
            proposal = self._read(repository)
            if proposal is None:
                return
            applied = self._patiently(self._target.applied)
            drifted = applied is not None and self._drifted(repository, proposal, applied)
            doubts = [] if applied is None else [*_descent(repository, proposal, applied), *_emptied(proposal, applied)]
        before = applied.tree if applied is not None else None
        self.note(previous=applied.commit if applied else "", plan=plan(before, proposal.tree, self._now))
        if applied is not None and applied.commit == proposal.commit.id and not drifted:
            self.note(status=Status.UNCHANGED)
        elif doubts and not order.force:
            raise RefusedError("; ".join(doubts), hint=_WAY_OUT)
        else:
            self.note(notes=self.report.notes + tuple(f"forced although {doubt}" for doubt in doubts))
            self._apply(proposal, applied, forced=bool(doubts))

    def _read(self, repository: Repository) -> Proposal | None:
        """The tree at the ref's commit; None, and all problems in the report, if it is not valid."""
        commit = repository.commit(repository.fetch(self._order.ref))
        self.note(commit=commit.id, author=commit.author, committed=commit.committed)
        loaded = self._load(repository, commit.id)
        self.note(problems=loaded.diagnostics)
        if loaded.tree is None:
            errors = sum(problem.is_error for problem in loaded.diagnostics)
            message = f"the budgets at commit {commit.id} have {errors} error{'s' * (errors != 1)}"
            self.note(error=message, hint="correct them in a new commit; the daemon keeps what it has", exit_code=1)
            return None
        self.note(budgets=sum(1 for _ in loaded.tree.budgets()))
        return Proposal(loaded.tree, commit, plain.digest(loaded.tree))

    def _load(self, repository: Repository, commit: str) -> LoadResult:
        return load_tree(*repository.files(commit, self._order.path))

    def _drifted(self, repository: Repository, proposal: Proposal, applied: Applied) -> bool:
        """Whether the target has something else than git says for the commit that it claims; the report tells it."""
        wanted: str | None = proposal.digest if applied.commit == proposal.commit.id else None
        if wanted is None and repository.has(applied.commit):
            with suppress(GpuBudgetError):  # it may have been applied from another folder, by another version
                loaded = self._load(repository, applied.commit)
                wanted = plain.digest(loaded.tree) if loaded.tree is not None else None
        if wanted is None or (wanted == applied.digest == plain.digest(applied.tree)):
            return False
        drift = f"drift: the daemon's budgets for commit {applied.commit} are not those that git has there"
        self.note(notes=(*self.report.notes, drift))
        return True

    def _apply(self, proposal: Proposal, applied: Applied | None, *, forced: bool) -> None:
        if self._order.dry_run:
            self.note(status=Status.PLANNED)
            return
        commit = proposal.commit
        checked = applied.commit if applied is not None and not forced else None
        application = Application(
            proposal.tree, commit.id, commit.author, commit.committed, proposal.digest, checked, forced
        )
        self._patiently(lambda: self._target.apply(application))
        there = self._patiently(self._target.applied)
        if there is None or (there.commit, plain.digest(there.tree)) != (commit.id, proposal.digest):
            has = there.commit if there is not None else "nothing"
            message = f"commit {commit.id} was sent and accepted, but what the daemon has now is {has}"
            raise GpuBudgetError(message, hint="is something else applying budgets to this daemon? run it again")
        self.note(status=Status.APPLIED)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """The answer of a target that may be away for a while; what it refuses is not asked again."""
        for pause in self._order.waits:
            try:
                return ask()
            except UnreachableError:
                time.sleep(pause)
        return ask()


_WAY_OUT = "bring the budgets right with a new commit on top of what is applied, or apply it all the same with --force"


def _descent(repository: Repository, proposal: Proposal, applied: Applied) -> list[str]:
    """Why the proposal may be older than, or beside, what is applied; nothing if it descends from it."""
    new, old = proposal.commit.id, applied.commit
    doubt = f"commit {new} does not descend from {old}, which is applied"
    if not repository.has(old):
        cut = ", whose history is cut off (a shallow clone)" if repository.is_shallow() else ""
        return [f"{doubt} and is not in this repository{cut}"]
    if repository.is_ancestor(old, new):
        return []
    if repository.is_ancestor(new, old):
        return [f"{doubt} and is newer"]
    cut = "; history is cut off here (a shallow clone), so it may" if repository.is_shallow() else ""
    return [doubt + cut]


def _emptied(proposal: Proposal, applied: Applied) -> list[str]:
    """Whether every budget below the root would go: more likely a mistake than a wish."""
    before = len(list(applied.tree.budgets())) - 1
    if before and not proposal.tree.root.children:
        return [f"commit {proposal.commit.id} would remove all {before} budgets below the root"]
    return []
