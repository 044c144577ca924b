"""Reading what ``sacctmgr dump`` writes: a cluster's accounts and users, as budgets to be.

An account becomes a budget. Its part of its parent is its Fairshare over the sum of all siblings', users among them, as
Slurm reckons. Users of an account who weigh the same become its members and share what it keeps; users who do not
become budgets of their own, so that each keeps their part. Limits, QOS and the like have no place in a budget and are
reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

from gpubudget.errors import InvalidInputError
from gpubudget.gitops.importing import Node, Report, normalised
from gpubudget.gitops.rules import MAX_LEVELS

PARENT = 2**31 - 1
"""The Fairshare of a user who has none of their own."""

_HEAD = re.compile(r"(Cluster|Parent|Account|User) - '([^']*)'")
_OPTION = re.compile(r":([A-Za-z]+(?:=(?:'[^']*'|[^:']*))?)")
_ROOT = "root"
_CARRIED = {"fairshare", "description", "coordinator"}
_MEANT_BY_OTHERS = {"organization", "defaultaccount"}  # the tree itself says it, or a person does when submitting
_REASONS = {
    "grp": "a budget is a share, and no ceiling",
    "max": "a budget is a share, and no ceiling",
    "qos": "protection comes from a workload's minimum runtime, and rank from the shares",
    "defaultqos": "protection comes from a workload's minimum runtime, and rank from the shares",
    "priority": "rank comes from the shares",
    "adminlevel": "give them a token with `gpubudget token create NAME --role admin`",
    "partition": "pools are chosen with each workload",
}
_HINT = "give the file that `sacctmgr dump CLUSTER file=FILE` has written"


Options = dict[str, tuple[str, str]]
"""By name in lower case: the name as it is spelled, and the value without quotes."""


@dataclass(slots=True)
class _Entity:
    """An account or a user of one: its name, line and options."""

    name: str
    line: int
    options: Options
    level: int = 0
    accounts: list[_Entity] = field(default_factory=list)
    users: list[_Entity] = field(default_factory=list)

    def text(self, name: str, default: str = "") -> str:
        """The value of an option."""
        return self.options.get(name, ("", default))[1]


def read(text: str, report: Report) -> tuple[Node, str]:
    """The root of the tree that a dump describes, and the cluster's name; raises InvalidInputError with the line."""
    root, cluster = _Entity(_ROOT, 1, {}), ""
    accounts, below = {_ROOT: root}, root
    for line, kind, name, options in _lines(text):
        if kind == "Cluster":
            if cluster:
                raise _wrong(line, f"another cluster, {name!a}; one was expected")
            cluster = name or "cluster"
            _forgotten(f"the cluster {name}", options, line, report)
        elif kind == "Parent":
            if name not in accounts:
                raise _wrong(line, f"the parent {name!a}, which is no account above")
            below = accounts[name]
        elif kind == "Account":
            if name in accounts:
                raise _wrong(line, f"the account {name!a} again; it stands in line {accounts[name].line} already")
            if below.level == MAX_LEVELS:
                raise _wrong(line, f"the account {name!a} more than {MAX_LEVELS} levels below the root")
            accounts[name] = _Entity(name, line, options, below.level + 1)
            below.accounts.append(accounts[name])
        else:
            below.users.append(_Entity(name, line, options))
    if not cluster:
        raise InvalidInputError("the dump names no cluster", hint=_HINT)
    root.users = [user for user in root.users if user.name != _ROOT]  # the administrator, with a share as a formality
    return _node(root, Fraction(1), report), cluster


def _lines(text: str) -> list[tuple[int, str, str, Options]]:
    """Line, kind, name and options of each line that says something."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        head = _HEAD.match(line)
        if not head:
            raise _wrong(number, f"{line[:60]!a}, which is no line of a dump")
        options: Options = {}
        at = head.end()
        while at < len(line.rstrip()):
            option = _OPTION.match(line, at)
            if not option:
                raise _wrong(number, f"{line[at : at + 60]!a}, which is no option")
            key, _, value = option[1].partition("=")
            options[key.lower()] = (key, value.strip("'"))
            at = option.end()
        found.append((number, head[1], head[2], options))
    return found


def _wrong(line: int, what: str) -> InvalidInputError:
    return InvalidInputError(f"line {line} has {what}", hint=_HINT)


def _fairshare(entity: _Entity) -> Fraction | None:
    """The weight; None for one who has none of their own. Slurm leaves it out where it is 1."""
    text = entity.text("fairshare", "1")
    if text.lower() == "parent" or text == str(PARENT):
        return None
    if not (text.isascii() and text.isdigit()):
        raise _wrong(entity.line, f"the Fairshare {text!a}, which is no whole number")
    return Fraction(int(text))


def _node(account: _Entity, share: Fraction, report: Report) -> Node:
    """A budget for an account, and all below it."""
    what = f"the account {account.name}"
    _forgotten(what, account.options, account.line, report)
    users = _users(account, report)
    weights = [_fairshare(child) for child in account.accounts]
    for child, weight in zip(account.accounts, weights, strict=True):
        if weight is None:
            report.add(child.line, f"the account {child.name} has no Fairshare of its own; it gets 0%")
    own = [user for user in users if _fairshare(user) is not None]
    apart = len({_fairshare(user) for user in own}) > 1
    parts = normalised(
        [weight or Fraction(0) for weight in weights] + [_fairshare(user) or Fraction(0) for user in own]
    )
    node = Node(account.name, account.line, share, account.text("description"))
    node.title = "" if node.title.lower() == account.name.lower() else node.title
    node.children = [_node(child, part, report) for child, part in zip(account.accounts, parts, strict=False)]
    for user, part in zip(own, parts[len(weights) :], strict=True):
        if apart:
            node.children.append(Node(user.name, user.line, part, members=[user.name]))
    node.members = [user.name for user in users if not (apart and user in own)]
    node.managers = [user.name for user in users if account.name in user.text("coordinator").split(",")]
    return node


def _users(account: _Entity, report: Report) -> list[_Entity]:
    """The users of an account, each once; what differs between partitions is lost."""
    found: dict[str, _Entity] = {}
    for user in sorted(account.users, key=lambda user: "partition" in user.options):
        _forgotten(f"the user {user.name} of {account.name}", user.options, user.line, report)
        if user.name in found:
            report.add(user.line, f"the user {user.name} stands in {account.name} more than once; the first counts")
        found.setdefault(user.name, user)
    return sorted(found.values(), key=lambda user: user.line)


def _forgotten(what: str, options: Options, line: int, report: Report) -> None:
    """Reports the options that have no place in a budget. What everybody has says nothing."""
    for key, (spelled, value) in options.items():
        usual = key == "qos" and value == "normal"
        if key in _CARRIED or key in _MEANT_BY_OTHERS or usual:
            continue
        reason = next((text for start, text in _REASONS.items() if key.startswith(start)), "")
        report.add(
            line, f"{what} has {spelled}={value[:60]}, which is not carried over" + (f": {reason}" if reason else "")
        )
