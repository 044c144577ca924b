"""The same action for each of several workloads or hosts: one that refuses does not keep the others from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import click

from gpubudget.cli.client import Answer, Client, segment
from gpubudget.cli.output import Column, Format, rendered, say, standing
from gpubudget.errors import GpuBudgetError, UnreachableError


def post_each(client: Client, kind: str, names: Iterable[str], action: str, body: Answer) -> tuple[list[Answer], int]:
    """Post ``action`` for each name of ``kind`` (the collection's word in the API) and tell how each stands then.

    Returns the answers of those that obeyed, and the exit code of the first that did not, or 0.
    """

    def ask(name: str) -> Answer:
        found = client.post(f"/v1/{kind}/{segment(name)}/{action}", body)
        same = "" if found.get("changed", True) else "; nothing changed"
        say(standing(name, found["state"], found.get("reason")) + same)
        return found

    return ask_each(names, ask)


def ask_each(names: Iterable[str], ask: Callable[[str], Answer]) -> tuple[list[Answer], int]:
    """Call ``ask`` for each name and tell of those for which it is refused; returns what ``post_each`` does."""
    done: list[Answer] = []
    code = 0
    for name in names:
        try:
            done.append(ask(name))
        except UnreachableError:
            raise
        except GpuBudgetError as error:
            say(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""))
            code = code or error.exit_code
    return done, code


def show(kind: str, done: list[Answer], columns: Sequence[Column], fmt: Format, *, name: str) -> None:
    """Print the answers of those that obeyed."""
    if done:
        click.echo(rendered({kind: done}, done, columns, fmt, name=name))
