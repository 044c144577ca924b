"""One connection: a request arrives in time or not at all; an answer leaves in one packet.

Knows nothing of what requests ask. Otherwise it is uvicorn's own.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpubudget.daemon.call import problem
from gpubudget.errors import InvalidInputError

READ_SECONDS = 30.0
"""In which a request must have arrived, from its first byte to its last."""


class SlowError(InvalidInputError):
    """The caller has not sent all of its request in time."""

    status = 408
    slug = "too-slow"


class _Gathered:
    """A transport that sends what is written in one step of the event loop together: head and body in one packet."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._parts = transport, list[bytes]()

    def write(self, data: bytes) -> None:
        """Send it soon."""
        if not self._parts:
            asyncio.get_running_loop().call_soon(self._flush)
        self._parts.append(data)

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        """Close when all is sent."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is the transport's own
        return getattr(self._transport, name)


class Connection(H11Protocol):
    """HTTP over a gathered transport, with a bound on how long a request may be on its way."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """A caller has come, and has to say something."""
        super().connection_made(_Gathered(transport))  # type: ignore[arg-type] # it does all that a transport does
        self._await_rest(begun=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller is gone."""
        self._await_rest(begun=False)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A piece of a request, or of several."""
        super().data_received(data)
        state = self.conn.their_state
        self._await_rest(begun=state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0])))

    def _await_rest(self, *, begun: bool) -> None:
        """Whether a request is on its way; each further piece of it leaves its deadline where it is."""
        if begun and self._deadline is None:
            self._deadline = self.loop.call_later(READ_SECONDS, self._too_slow)
        elif not begun and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        asked = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
        if asked and self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            late = SlowError(
                f"the request has not arrived whole within {READ_SECONDS:g} s", hint="send it at once, or in parts"
            )
            response = problem(late)
            headers = [*response.raw_headers, (b"connection", b"close")]
            for event in (
                h11.Response(status_code=late.status, headers=headers, reason=b"Request Timeout"),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
