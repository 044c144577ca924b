"""``drain``, ``cordon``, ``uncordon`` and ``remove-host``: what a person does with hosts."""

from __future__ import annotations

from collections.abc import Iterable

import click

from gpubudget.cli.client import Answer, Client, segment
from gpubudget.cli.connect import connected
from gpubudget.cli.each import ask_each, post_each, show
from gpubudget.cli.output import Format, output_option, say
from gpubudget.cli.values import HOST
from gpubudget.cli.views import HOSTS

_many = click.argument("hosts", nargs=-1, required=True, type=HOST, metavar="HOST...")
_reason = click.option(
    "-r", "--reason", default="asked for by a person", show_default=True, help="Why; shown with the host."
)


def _each(client: Client, names: Iterable[str], action: str, body: Answer, fmt: Format) -> int:
    done, code = post_each(client, "hosts", names, action, body)
    show("hosts", done, HOSTS, fmt, name="name")
    return code


@click.command(
    epilog="""\b
Examples:
  gpubudget drain h2 --reason "GPU 3 falls off the bus"
  gpubudget drain h2 --hold                  # and leave it empty, without repair"""
)
@_many
@_reason
@click.option("--hold", is_flag=True, help="Leave it drained: no repair, until uncordon.")
@output_option(Format.NAME)
@connected
def drain(client: Client, /, *, hosts: tuple[str, ...], reason: str, hold: bool, output: Format) -> int:
    """Empty every HOST, repair it and give it back to work.

    Nothing new is placed there. What runs is stopped and put back when its minimum runtime ends, so the host is empty
    within the longest minimum runtime and the grace period.
    """
    return _each(client, hosts, "drain", {"reason": reason, "hold": hold}, output)


@click.command(epilog="\b\nExample:\n  gpubudget cordon h2 --reason inventory")
@_many
@_reason
@output_option(Format.NAME)
@connected
def cordon(client: Client, /, *, hosts: tuple[str, ...], reason: str, output: Format) -> int:
    """Place nothing new on every HOST; what runs there goes on."""
    return _each(client, hosts, "cordon", {"reason": reason}, output)


@click.command(epilog="\b\nExample:\n  gpubudget uncordon h2")
@_many
@output_option(Format.NAME)
@connected
def uncordon(client: Client, /, *, hosts: tuple[str, ...], output: Format) -> int:
    """Give every cordoned, draining or drained HOST back to work."""
    return _each(client, hosts, "uncordon", {}, output)


@click.command(
    epilog="""\b
Example:
  gpubudget drain h2 --hold --reason "goes back to its maker"
  gpubudget remove-host h2                   # when it is empty and its agent has been stopped"""
)
@_many
@connected
def remove_host(client: Client, /, *, hosts: tuple[str, ...]) -> int:
    """Forget every HOST for good: one that is drained, cordoned or lost, and holds no work.

    Stop its agent first: a host whose agent reports is taken in anew. Its token stays valid until `token revoke`.
    """

    def ask(name: str) -> Answer:
        found: Answer = client.delete(f"/v1/hosts/{segment(name)}")
        say(f"{name} is removed")
        return found

    return ask_each(hosts, ask)[1]
