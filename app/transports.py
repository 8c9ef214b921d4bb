"""Transports: an answer leaves in one piece.

The invariant: what is held back is on its way before the event loop waits for anything.

uvicorn writes an answer's head and its body apart, and uvloop sends each at once: two system calls, two packets, and a
client that is woken twice. Sent together a short answer costs the server about a sixth less.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LONG_BYTES = 64 * 1024


class OnePieceProtocol(HttpToolsProtocol):
    """uvicorn's own protocol, on a transport that joins what is written together."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Take a new connection."""
        super().connection_made(cast("asyncio.Transport", JoiningTransport(transport, self.loop)))


class JoiningTransport:
    """Holds a piece back until the next one comes, or the loop has run what was ready.

    It holds one short piece at most, so that the flow control below it still knows of all but that.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: bytes | None = None
        self.is_closing = transport.is_closing  # asked for each answer: no detour

    def write(self, data: bytes) -> None:
        """Write a piece."""
        held = self._held
        if held is not None:
            self._held = None
            self._transport.writelines((held, data) if data else (held,))
        elif len(data) >= _LONG_BYTES:
            self._transport.write(data)
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def write_eof(self) -> None:
        """Send what is held, then end our side."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Send what is held, then close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        """All else is the transport's own."""
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._transport.write(held)
