"""What a tree is applied to, and the daemon as such a target: what it has, and one atomic request that changes it.

Knows nothing of git, and of HTTP only what stands in the bodies; who carries them is given to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.errors import GpuBudgetError, InvalidInputError, NotFoundError
from gpubudget.gitops.safety import Protected

_LATEST = 10**15  # in the year 33658; a commit may claim any time
_LONGEST_NOTE = 2_000
_LONGEST_NAME = 200
_MOST_APPROVERS = 100
_LONGEST_PLAN = 10_000
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Suspension:
    """Nothing is to be applied since ``at`` (milliseconds): who says so, and why."""

    by: str
    reason: str
    at: int


@dataclass(frozen=True, slots=True)
class Applied:
    """What a target has: a whole tree and the commit that it is from. ``digest`` is what it says the tree's is."""

    tree: Tree
    commit: str
    digest: str
    suspended: Suspension | None = None


@dataclass(frozen=True, slots=True)
class Application:
    """A tree to apply, with where it is from.

    ``descends_from`` is the commit that was checked to be in the history of ``commit`` (or is it), and the target
    refuses if it has another one by now. It is None if nothing was applied, or if the order is forced. ``notes`` say
    what is out of the ordinary, ``approvers`` who approved it as far as that is known, and ``plan`` what changes, in
    short lines, for the record. With a reason in ``suspend`` it is to be the last one until a person says otherwise.
    """

    tree: Tree
    commit: str
    author: str
    committed: int
    digest: str
    descends_from: str | None
    force: bool
    notes: tuple[str, ...] = ()
    suspend: str | None = None
    approvers: tuple[str, ...] = ()
    plan: str = ""


class Target(Protocol):
    """Where trees are applied. Raises UnreachableError when it is away, ConflictError when it refuses."""

    def applied(self) -> Applied | None:
        """What it has now; None only if it says that nothing was ever applied."""

    def apply(self, application: Application) -> None:
        """Takes the tree whole, or changes nothing and raises."""

    def protected(self, now: int) -> tuple[Protected, ...]:
        """The protected work that runs at ``now`` (milliseconds)."""


class Api(Protocol):
    """Carries JSON to a daemon and back; raises GpuBudgetError children by the status of the answer."""

    def get(self, path: str, **query: object) -> dict[str, Any]:
        """The answer to a GET."""

    def put(self, path: str, body: object) -> dict[str, Any]:
        """The answer to a PUT."""


class Daemon:
    """The daemon as a target."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def applied(self) -> Applied | None:
        """What the daemon has now."""
        try:
            answer = self._api.get("/v1/budgets/applied")
        except NotFoundError:
            return None
        try:
            tree = plain.decode(Tree, answer["tree"], "tree")
            held = answer.get("suspended")
            suspended = Suspension(str(held["by"]), str(held["reason"]), int(held["at_ms"])) if held else None
            return Applied(tree, str(answer["commit"]), str(answer["digest"]), suspended)
        except (InvalidInputError, LookupError, TypeError, ValueError) as error:
            raise _unreadable("budgets", error) from error

    def standing(self) -> tuple[str, str] | None:
        """Commit and digest of what the daemon has now, without the tree; None if nothing was ever applied."""
        try:
            newest = self._api.get("/v1/budgets/history", limit=1)["applied"][:1]
            return (str(newest[0]["commit"]), str(newest[0]["digest"])) if newest else None
        except (LookupError, TypeError) as error:
            raise _unreadable("budgets", error) from error

    def apply(self, application: Application) -> None:
        """One request with all of it."""
        body = {
            "tree": plain.encode(application.tree),
            "commit": application.commit,
            "author": application.author,
            "committed_ms": min(application.committed, _LATEST),
            "digest": application.digest,
            "descends_from": application.descends_from,
            "force": application.force,
            "notes": [note[:_LONGEST_NOTE] for note in application.notes],
            "approvers": [name[:_LONGEST_NAME] for name in application.approvers[:_MOST_APPROVERS]],
            "plan": _cut(application.plan),
            **({"suspend": application.suspend} if application.suspend is not None else {}),
        }
        self._api.put("/v1/budgets", body)

    def protected(self, now: int) -> tuple[Protected, ...]:
        """From the list of what runs, page by page."""
        found: list[Protected] = []
        after: str | None = None
        while True:
            page = self._api.get("/v1/workloads", state="running,stopping", limit=_PAGE, after=after)
            try:
                for one in page["workloads"]:
                    held, after = one["attempt"], str(one["id"])
                    if one["budget"] and held and held["allocated"] and held["protected_until_ms"] > now:
                        found.append(Protected(str(one["budget"]), str(held["pool"]), str(one["owner"]), one["gpus"]))
                if len(page["workloads"]) < _PAGE:
                    return tuple(found)
            except (LookupError, TypeError) as error:
                raise _unreadable("workloads", error) from error


def _cut(plan: str) -> str:
    """The lines of a plan that fit on record, and how many more there are."""
    if len(plan) <= _LONGEST_PLAN:
        return plan
    kept = plan[: _LONGEST_PLAN - 100].rpartition("\n")[0]
    return f"{kept}\n... {plan.count(chr(10)) - kept.count(chr(10))} more lines"


def _unreadable(what: str, error: Exception) -> GpuBudgetError:
    why = f"{error} is missing" if isinstance(error, KeyError) else getattr(error, "message", "it is of another form")
    hint = "use the same version of gpubudget here as on the daemon"
    return GpuBudgetError(f"the daemon's {what} cannot be read: {why}", hint=hint)
