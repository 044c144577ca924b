"""What a tree is applied to, and the daemon as such a target: what it has, and one atomic request that changes it.

Knows nothing of git, and of HTTP only what stands in the bodies; who carries them is given to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.errors import GpuBudgetError, InvalidInputError, NotFoundError

_LATEST = 10**15  # in the year 33658; a commit may claim any time


@dataclass(frozen=True, slots=True)
class Applied:
    """What a target has: a whole tree and the commit that it is from. ``digest`` is what it says the tree's is."""

    tree: Tree
    commit: str
    digest: str


@dataclass(frozen=True, slots=True)
class Application:
    """A tree to apply, with where it is from.

    ``descends_from`` is the commit that was checked to be in the history of ``commit`` (or is it), and the target
    refuses if it has another one by now. It is None if nothing was applied, or if the order is forced.
    """

    tree: Tree
    commit: str
    author: str
    committed: int
    digest: str
    descends_from: str | None
    force: bool


class Target(Protocol):
    """Where trees are applied. Raises UnreachableError when it is away, ConflictError when it refuses."""

    def applied(self) -> Applied | None:
        """What it has now; None only if it says that nothing was ever applied."""

    def apply(self, application: Application) -> None:
        """Takes the tree whole, or changes nothing and raises."""


class Api(Protocol):
    """Carries JSON to a daemon and back; raises GpuBudgetError children by the status of the answer."""

    def get(self, path: str) -> dict[str, Any]:
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
            commit, digest = answer["commit"], answer["digest"]
            return Applied(plain.decode(Tree, answer["tree"], "tree"), str(commit), str(digest))
        except (InvalidInputError, KeyError) as error:
            message = f"the daemon's budgets cannot be read: {getattr(error, 'message', f'{error} is missing')}"
            hint = "use the same version of gpubudget here as on the daemon"
            raise GpuBudgetError(message, hint=hint) from error

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
        }
        self._api.put("/v1/budgets", body)
