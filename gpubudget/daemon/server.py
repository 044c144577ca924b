"""From options to a running daemon and back: the lock, the socket, the first token, signals, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from gpubudget.daemon.api import application
from gpubudget.daemon.auth import Role
from gpubudget.daemon.connection import Connection
from gpubudget.daemon.dbfile import locked
from gpubudget.daemon.service import Service, Settings
from gpubudget.daemon.store import Store
from gpubudget.errors import ConflictError, InvalidInputError, UsageError

KEEP_ALIVE = 75
"""Seconds for which an idle connection stays open: longer than agents are silent."""
LAST_ANSWERS = 5
"""Seconds that answers have to be sent once the end has begun."""


@dataclass(frozen=True, slots=True)
class Options:
    """What ``gpubudget serve`` was told. Port 0: any free one."""

    db: Path
    host: str = "127.0.0.1"
    port: int = 8470
    admin_token_file: Path | None = None
    settings: Settings = field(default_factory=Settings)


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: those here also end what waits."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:8470`` or ``[::1]:8470``; raises UsageError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536):  # noqa: PLR2004 - ports have 16 bits
        raise UsageError(f"{text[:60]!r} is no address to listen on", hint="write it as 127.0.0.1:8470")
    return host, int(port)


def run(options: Options, ready: Callable[[str], None], stop: threading.Event | None = None) -> None:
    """Serve until SIGTERM or SIGINT (or, in another thread, ``stop``); ``ready`` is given the URL.

    Raises a GpuBudgetError where it cannot start, or had to stop.
    """
    with locked(options.db), _listening(options) as listener, Store(options.db) as store:
        asyncio.run(_serve(options, store, listener, ready, stop))


@contextlib.contextmanager
def _listening(options: Options) -> Iterator[socket.socket]:
    where = f"{options.host}:{options.port}"
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        # With the protocol named, asyncio sets TCP_NODELAY: without it each answer would wait 40 ms for an ACK.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise InvalidInputError(f"cannot listen on {where}: {error.strerror}", hint="see --listen") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.host, options.port))
            listener.listen(2_048)
        except OSError as error:
            raise ConflictError(
                f"cannot listen on {where}: {error.strerror}", hint="is another daemon running? choose with --listen"
            ) from error
        yield listener


async def _serve(
    options: Options,
    store: Store,
    listener: socket.socket,
    ready: Callable[[str], None],
    stop: threading.Event | None,
) -> None:
    service = Service(store, options.settings)
    try:
        await _first_token(service, options.admin_token_file)
        config = uvicorn.Config(
            application(service),
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=LAST_ANSWERS,
        )
        server = _Server(config)
        _end_on_signals(service, stop)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        host, port = listener.getsockname()[:2]
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        ended = asyncio.create_task(service.closing.wait())
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        service.wake_all()
        await serving
        ended.cancel()
    finally:
        await service.close()
    if service.failure is not None:
        raise service.failure


def _end_on_signals(service: Service, stop: threading.Event | None) -> None:
    loop = asyncio.get_running_loop()
    if stop is None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.closing.set)
        return

    def wait_for_stop() -> None:
        stop.wait()
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(service.closing.set)

    threading.Thread(target=wait_for_stop, daemon=True).start()


async def _first_token(service: Service, path: Path | None) -> None:
    """Make the first administrator's token of a new database, and leave it in a file that only its owner can read."""
    if path is None or len(service.tokens):
        return
    now = service.clock.now()
    text, _ = service.tokens.create("admin", Role.ADMIN, None, now, service.batch)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(text + "\n")
        draft.replace(path)
    except OSError as error:
        raise InvalidInputError(
            f"the token file {path} cannot be written: {error.strerror}", hint="see --admin-token-file"
        ) from error
    await service.durable()
