"""``serve`` runs the daemon; ``token`` makes, lists and revokes the tokens of those who call it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from gpubudget.cli.client import Client, segment
from gpubudget.cli.connect import connected
from gpubudget.cli.output import Column, Format, ago, output_option, rendered, say
from gpubudget.cli.values import DURATION, HOST, Name, Whole
from gpubudget.errors import InvalidInputError, UsageError
from gpubudget.units import HOUR, SECOND, format_duration

SHORTEST_POLL = 100
SHORTEST_SILENCE = 30 * SECOND
"""An agent reports at the latest after a third of it, and waits for an answer that was lost for 20 s."""


@click.command(
    epilog="""\b
Examples:
  gpubudget serve --db /var/lib/gpubudget/daemon.db --admin-token-file /root/gpubudget.token
  gpubudget serve --db daemon.db --listen 0.0.0.0:8470 --lost-after 2m"""
)
@click.option(
    "--db", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The database; made when it is new."
)
@click.option(
    "--listen", default="127.0.0.1:8470", show_default=True, metavar="HOST:PORT", help="Port 0: any free one."
)
@click.option(
    "--admin-token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the first administrator's token is left when the database has no token yet.",
)
@click.option(
    "--lost-after", type=DURATION, default="60s", show_default=True, help="A host is lost when silent for so long."
)
@click.option(
    "--repair-attempts",
    type=Whole("repair-attempts", 1, 100),
    default=3,
    show_default=True,
    help="Failed repairs of a host before it waits for a person.",
)
@click.option("--no-repair", is_flag=True, help="Drained hosts always wait for a person.")
@click.option("--poll", type=DURATION, default="5s", show_default=True, help="How often agents report unasked.")
def serve(
    *,
    db: Path,
    listen: str,
    admin_token_file: Path | None,
    lost_after: int,
    repair_attempts: int,
    no_repair: bool,
    poll: int,
) -> None:
    """Run the daemon until SIGTERM or Ctrl-C.

    An accepted request is on disk before it is answered. After a crash the daemon comes back where it was.
    """
    from gpubudget.daemon.server import Options, parse_listen, run  # noqa: PLC0415 - heavy, and for this command only
    from gpubudget.daemon.service import Settings  # noqa: PLC0415 - the same

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    if not SHORTEST_SILENCE <= lost_after <= 24 * HOUR:
        hint = "a healthy agent whose answer is lost on the way is silent for up to 30s; 60s is usual"
        raise UsageError(f"--lost-after is {format_duration(lost_after)}; it may be 30s to 24h", hint=hint)
    if not SHORTEST_POLL <= poll <= 24 * HOUR:
        raise UsageError(f"--poll is {format_duration(poll)}; it may be 100ms to 24h", hint="5s is usual")
    host, port = parse_listen(listen)
    settings = Settings(lost_after=lost_after, repair_attempts=0 if no_repair else repair_attempts, poll=poll)
    run(Options(db, host, port, admin_token_file, settings), lambda url: click.echo(f"listening on {url}"))


_TOKENS = [
    Column("ID", lambda token: token["id"]),
    Column("NAME", lambda token: token["name"]),
    Column("ROLE", lambda token: token["role"]),
    Column("HOST", lambda token: token["host"]),
    Column("CREATED", lambda token: ago(token["created_ms"])),
    Column("USED", lambda token: ago(token["used_ms"])),
    Column("REVOKED", lambda token: ago(token["revoked_ms"])),
]


@click.group()
def token() -> None:
    """Create, list and revoke tokens; for administrators."""


@token.command(
    epilog="""\b
Examples:
  gpubudget token create alice
  gpubudget token create gpu-17 --role agent --host gpu-17 --out gpu-17.token"""
)
@click.argument("name", type=Name("name"))
@click.option(
    "--role",
    type=click.Choice(["user", "agent", "reconciler", "admin"]),
    default="user",
    show_default=True,
    help="What it may do.",
)
@click.option("--host", type=HOST, help="The host that a token of role agent speaks for.  [default: NAME]")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it to a new file of one's own.")
@connected
def create(client: Client, /, *, name: str, role: str, host: str | None, out: Path | None) -> None:
    """Make a token for NAME (a person, a host or a program) and print it; it cannot be shown again."""
    body = {"name": name, "role": role, "host": host or name if role == "agent" else host}
    if out is None:
        click.echo(client.post("/v1/tokens", body)["token"])
        return
    try:
        file = os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii")
    except OSError as error:
        raise InvalidInputError(
            f"the file {out} cannot be written: {error.strerror}", hint="name a new file"
        ) from error
    with file:
        try:
            made = client.post("/v1/tokens", body)
        except BaseException:
            out.unlink()
            raise
        file.write(made["token"] + "\n")
    say(f"token {made['id']} of {name} is in {out}")


@token.command("list", epilog="\b\nExample:\n  gpubudget token list")
@output_option()
@connected
def list_tokens(client: Client, /, *, output: Format) -> None:
    """List all tokens, without their texts."""
    found = client.get("/v1/tokens")
    click.echo(rendered(found, found["tokens"], _TOKENS, output, name="id"))


@token.command(epilog="\b\nExample:\n  gpubudget token revoke t0123456789ab")
@click.argument("token_id", metavar="ID", type=Name("id"))
@connected
def revoke(client: Client, /, *, token_id: str) -> None:
    """End the token with this ID for good."""
    ended = client.delete(f"/v1/tokens/{segment(token_id)}")
    say(f"token {ended['id']} of {ended['name']} is revoked")
