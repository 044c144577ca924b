"""Reconcile: lock, fetch, read, validate, compare, judge, apply in one request, read back, report.

The order matters: the ref is read under the lock, everything is validated before anything is sent, and what is sent
is the whole tree in one request that the target takes or refuses. A fault between any two steps therefore leaves the
target with its old tree or the new one, never with parts of both, and the next reconciliation goes on from there.

Nothing that cannot be read is taken for an empty tree. A commit that does not descend from what is applied, and one
that takes too much away at once (``safety``), are refused unless the order is forced, and then the report names it. A
commit that was refused for what it would do is not tried again on top of the same one.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.errors import ConflictError, GpuBudgetError, InvalidInputError, RefusedError, UnreachableError
from gpubudget.gitops import record as records
from gpubudget.gitops import safety
from gpubudget.gitops.gitprocess import RepositoryError
from gpubudget.gitops.load import LoadResult, load_tree
from gpubudget.gitops.lock import exclusive
from gpubudget.gitops.plan import plan
from gpubudget.gitops.record import Record, Refusal
from gpubudget.gitops.report import Report, Status, plan_lines, time_text
from gpubudget.gitops.repository import Commit, Repository, open_repository
from gpubudget.gitops.signatures import signer
from gpubudget.gitops.source import Source
from gpubudget.gitops.target import Application, Applied, Target

T = TypeVar("T")

WAITS = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Emergency:
    """A person wants this very commit of the ref's history, and no other one after it until somebody says so."""

    commit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Order:
    """What to reconcile: the folder ``path`` of ``ref`` of a source, to the target called ``target``.

    ``folder`` is this order's own place for its lock, mirror and record. ``timeout`` bounds each git command and
    ``waits`` are the pauses before a target that is away is asked again, all in seconds. With ``signers`` the commit
    must be signed by somebody whom one of these files names. ``cluster`` is what the target is called among several.
    """

    source: Source
    ref: str
    path: str
    folder: Path
    dry_run: bool = False
    force: bool = False
    timeout: float = 60.0
    waits: tuple[float, ...] = WAITS
    limits: safety.Limits = safety.LIMITS
    signers: tuple[Path, ...] = ()
    emergency: Emergency | None = None
    target: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What git says should be: a valid tree and its commit."""

    tree: Tree
    commit: Commit
    digest: str


def cache_folder(cache: Path | None) -> Path:
    """Where reconcilers keep their folders: below ``cache`` or the user's own cache."""
    return (cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpubudget") / "reconcile"


def folder_for(cache: Path | None, source: Source, target: str) -> Path:
    """The place for the lock, the mirror and the record of one source and one target."""
    return cache_folder(cache) / hashlib.sha256(f"{source.place}\0{target}".encode()).hexdigest()[:20]


def reconcile(order: Order, target: Target, now: int) -> Report:
    """One reconciliation at ``now`` (milliseconds). Every failure is in the report; none raises."""
    cycle = _Cycle(order, target, now)
    try:
        with exclusive(order.folder) as alone:
            if alone:
                cycle.whole()
            else:
                cycle.note(status=Status.BUSY)
    except GpuBudgetError as error:
        cycle.failed(error)
    return cycle.report


class _Cycle:
    """The steps of one reconciliation; ``report`` holds what is known so far."""

    def __init__(self, order: Order, target: Target, now: int) -> None:
        self._order = order
        self._target = target
        self._now = now
        self._record = records.read(order.folder) or Record(order.target, order.source.shown, order.ref, order.path)
        self._refusal: Refusal | None = None
        self.report = Report(order.source.shown, order.ref, order.path, cluster=order.cluster)

    def note(self, **known: object) -> None:
        """Adds to the report."""
        self.report = replace(self.report, **known)  # type: ignore[arg-type] # checked by the tests of each status

    def say(self, *notes: str) -> None:
        """Adds to the report's notes."""
        self.note(notes=(*self.report.notes, *notes))

    def failed(self, error: GpuBudgetError) -> None:
        """Ends the report with an error."""
        refused = isinstance(error, ConflictError | RefusedError)
        status = Status.REFUSED if refused else Status.FAILED
        self.note(status=status, error=error.message, hint=error.hint, exit_code=error.exit_code)

    def whole(self) -> None:
        """The steps, and the record of how they ended. A dry run leaves no trace."""
        try:
            self._run()
        except GpuBudgetError as error:
            self.failed(error)
        if not self._order.dry_run:
            settled = self.report.status in {Status.APPLIED, Status.UNCHANGED}
            refusal = self._refusal or (None if settled else self._record.refusal)
            try:
                records.write(self._order.folder, records.after(self._record, self.report, self._now, refusal))
            except GpuBudgetError as error:  # what was done is done
                self.say(error.message)

    def _run(self) -> None:
        """All steps, until one ends it."""
        order = self._order
        with open_repository(order.source, order.folder / "mirror.git", order.timeout) as repository:
            proposal = self._read(repository)
            if proposal is None:
                return
            applied = self._patiently(self._target.applied)
            drifted = applied is not None and self._drifted(repository, proposal, applied)
            doubts = _descent(repository, proposal, applied) if applied is not None else []
        self.note(previous=applied.commit if applied else "")
        self.note(plan=plan(applied.tree if applied else None, proposal.tree, self._now))
        held = _suspended(applied)
        if applied is not None and applied.commit == proposal.commit.id and not (drifted or order.emergency):
            self.say(*held)
            self.note(status=Status.UNCHANGED)
        elif held and not order.force:
            self.note(status=Status.SUSPENDED, error=held[0], hint="gpubudget reconcile resume ends that")
        else:
            doubts = self._judged(proposal, applied, doubts)
            forced = [*doubts, *held]
            self.say(*(f"forced although {doubt}" for doubt in forced))
            self._apply(proposal, applied, forced=bool(forced or order.emergency))

    def _read(self, repository: Repository) -> Proposal | None:
        """The tree at the ref's commit; None, and all problems in the report, if it is not valid."""
        commit = repository.commit(self._chosen(repository, repository.fetch(self._order.ref)))
        self.note(commit=commit.id, author=commit.author, committed=commit.committed)
        if self._order.signers:
            self.note(signer=signer(repository, commit.id, self._order.signers))
        loaded = self._load(repository, commit.id)
        self.note(problems=loaded.diagnostics)
        if loaded.tree is None:
            errors = sum(problem.is_error for problem in loaded.diagnostics)
            message = f"the budgets at commit {commit.id} have {errors} error{'s' * (errors != 1)}"
            self.note(error=message, hint="correct them in a new commit; the daemon keeps what it has", exit_code=1)
            return None
        self.note(budgets=sum(1 for _ in loaded.tree.budgets()))
        return Proposal(loaded.tree, commit, plain.digest(loaded.tree))

    def _chosen(self, repository: Repository, tip: str) -> str:
        """The commit that is meant: the ref's own, or in an emergency the one that was named, out of its history."""
        emergency = self._order.emergency
        if emergency is None:
            return tip
        if not (repository.has(emergency.commit) and repository.is_ancestor(emergency.commit, tip)):
            message = f"commit {emergency.commit} is not in the history of {self._order.ref}"
            raise RepositoryError(message, hint="name the branch that has it with --ref")
        self.say(f"an emergency: commit {emergency.commit} instead of {tip}: {emergency.reason}")
        return emergency.commit

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
        self.say(drift)
        return True

    def _judged(self, proposal: Proposal, applied: Applied | None, doubts: list[str]) -> list[str]:
        """All doubts about a proposal, those given among them; raises RefusedError for them unless it is forced."""
        commit, force = proposal.commit.id, self._order.force
        earlier = self._refused_before(commit, applied)
        if earlier is not None and not force:
            when = time_text(earlier.at)
            raise RefusedError(
                f"commit {commit} was refused at {when}, and is not tried again: {earlier.error}", hint=_WAY_OUT
            )
        risks = [f"commit {commit} {risk}" for risk in self._risks(applied)] if applied is not None else []
        if force:
            again = [f"commit {commit} was refused before: {earlier.error}"] if earlier and not risks else []
            return [*doubts, *risks, *again]
        if risks:
            self._remember_refusal(commit, applied, "; ".join(risks))
        if doubts or risks:
            raise RefusedError("; ".join([*doubts, *risks]), hint=_WAY_OUT)
        return []

    def _risks(self, applied: Applied) -> list[str]:
        """What would go or move away to an extent that is more likely a mistake than a wish."""
        changes, limits = self.report.plan, self._order.limits
        found = safety.removal(changes, applied.tree, limits)
        if safety.takes(changes):
            at_work = self._patiently(lambda: self._target.protected(self._now))
            found += safety.displacement(changes, applied.tree, at_work, limits)
        return found

    def _refused_before(self, commit: str, applied: Applied | None) -> Refusal | None:
        """The refusal of this commit on top of the same one, under the same settings."""
        found, over = self._record.refusal, applied.commit if applied else ""
        same = found is not None and (found.commit, found.over, found.settings) == (commit, over, self._settings())
        return found if same else None

    def _remember_refusal(self, commit: str, applied: Applied | None, error: str) -> None:
        over = applied.commit if applied else ""
        self._refusal = Refusal(commit, over, self._settings(), self._now, error)

    def _settings(self) -> str:
        return plain.digest([self._order.path, self._order.limits])

    def _apply(self, proposal: Proposal, applied: Applied | None, *, forced: bool) -> None:
        order, commit = self._order, proposal.commit
        if order.dry_run:
            self.note(status=Status.PLANNED)
            return
        stop = f"commit {commit.id[:12]} was applied by force: {order.emergency.reason}" if order.emergency else None
        application = Application(
            proposal.tree,
            commit.id,
            commit.author,
            commit.committed,
            proposal.digest,
            applied.commit if applied is not None and not forced else None,
            forced,
            (*self.report.notes, *([f"signed by {self.report.signer}"] if self.report.signer else [])),
            stop,
            commit.approvers,
            "\n".join(plan_lines(self.report.plan)),
        )
        try:
            self._patiently(lambda: self._target.apply(application))
        except (RefusedError, InvalidInputError) as error:
            self._remember_refusal(commit.id, applied, error.message)
            raise RefusedError(error.message, hint=error.hint) from error
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


_WAY_OUT = (
    "bring the budgets right with a new commit on top of what is applied (a budget that was renamed keeps what it has "
    "with previously), or apply it all the same with --force"
)


def _suspended(applied: Applied | None) -> list[str]:
    """Who has suspended the target and why; nothing if nobody has."""
    held = applied.suspended if applied is not None else None
    return [f"suspended by {held.by} since {time_text(held.at)}: {held.reason}"] if held else []


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
