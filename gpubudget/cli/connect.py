"""Where the daemon is and who is calling: the options and variables that every client command shares."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from gpubudget.cli.client import DEFAULT_URL, Client
from gpubudget.errors import NotAuthorisedError

DEFAULT_TOKEN_FILE = "~/.config/gpubudget/token"  # noqa: S105 - the place of one, not one

_TOKEN = re.compile(r"[\x21-\x7e]+")
_LONGEST = 10_000
_HINT = f"set GPUBUDGET_TOKEN, or put the token into {DEFAULT_TOKEN_FILE} or the file of GPUBUDGET_TOKEN_FILE"

P = ParamSpec("P")
R = TypeVar("R")


def read_token(token_file: str, *, insist: bool = False) -> str:
    """The caller's token: GPUBUDGET_TOKEN, else the file's; always the file's if the caller insists."""
    token = "" if insist else os.environ.get("GPUBUDGET_TOKEN", "").strip()
    source = "GPUBUDGET_TOKEN"
    if not token:
        path = Path(os.path.expanduser(token_file or DEFAULT_TOKEN_FILE))  # noqa: PTH111 - Path's own raises without a home
        source = str(path)
        try:
            with path.open(encoding="utf-8") as file:  # not all of it, since it may be a device without an end
                token = file.read(_LONGEST).strip()
        except FileNotFoundError:
            if token_file:
                raise NotAuthorisedError(f"the token file {path} does not exist", hint=_HINT) from None
            raise NotAuthorisedError("there is no token to call the daemon with", hint=_HINT) from None
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise NotAuthorisedError(f"the token file {path} cannot be read: {why}", hint=_HINT) from error
    if not _TOKEN.fullmatch(token):
        raise NotAuthorisedError(f"{source} holds no token: one has no spaces and begins with gpb_", hint=_HINT)
    return token


def connected(command: Callable[Concatenate[Client, P], R]) -> Callable[P, R]:
    """Give a command the options that say where the daemon is and who calls, and a Client as its first argument.

    It stands below the command's own options, next to the function.
    """

    @click.option("--url", envvar="GPUBUDGET_URL", default=DEFAULT_URL, show_default=True, help="Where the daemon is.")
    @click.option(
        "--token-file",
        envvar="GPUBUDGET_TOKEN_FILE",
        default="",
        metavar="FILE",
        help=f"A file with your token; GPUBUDGET_TOKEN is one itself.  [default: {DEFAULT_TOKEN_FILE}]",
    )
    def called(*args: P.args, **options: P.kwargs) -> R:
        url, token_file = str(options.pop("url")), str(options.pop("token_file"))
        insist = click.get_current_context().get_parameter_source("token_file") is ParameterSource.COMMANDLINE
        with Client(url, lambda: read_token(token_file, insist=insist)) as client:
            return command(client, *args, **options)

    return update_wrapper(called, command)
