"""Connections: what a client may do to one before, between and while its requests are read.

The invariant: bytes are counted before they are parsed, so that no head piles up; and a connection that waits for its
client has a timer that ends the waiting. What is refused here has the one error shape, and the connection closes.
"""

import asyncio
import random
from typing import Any, NamedTuple

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from app.api.answers import Answer
from app.api.errors import HeadTooLarge, RequestTimeout, TooManyConnections, UrlTooLong, error_answer
from app.api.repeats import Repeats
from app.domain import limits
from app.domain.errors import Malformed, StepplaneError
from app.observability import HOT_METRICS
from app.transports import OnePieceProtocol

log = structlog.get_logger("app.access")


class Bounds(NamedTuple):
    """What one connection may take; see the rows of :mod:`app.domain.limits`."""

    head_bytes: int = limits.HEAD_BYTES.value
    head_seconds: float = limits.HEAD_SECONDS.value
    body_seconds: float = limits.BODY_SILENCE_SECONDS.value
    framing_bytes: int = limits.FRAMING_BYTES.value


class Crowd:
    """All connections of a server: how many there may be, and which of them wait for a next request, oldest first."""

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self.repeats = Repeats()
        self.idle: dict[BoundedProtocol, None] = {}

    def has_room(self, count: int) -> bool:
        """Tell whether ``count`` connections may stay; where they are too many, the oldest idle one is closed."""
        if count <= self._max_connections:
            return True
        oldest = next(iter(self.idle), None)
        if oldest is None:
            return False
        del self.idle[oldest]
        oldest.transport.close()
        return True


class BoundedProtocol(OnePieceProtocol):
    """One connection, within its bounds.

    Args:
        bounds: what it may take.
        crowd: the connections of this server, this one among them.
    """

    def __init__(self, *args: Any, bounds: Bounds, crowd: Crowd, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bounds = bounds
        self._crowd = crowd
        self._part = _BETWEEN
        self._has_ended_one = False  # whether the piece that is parsed has ended a request
        self._is_refused = False
        self._head_bytes = 0  # of a head that has not ended, as they came
        self._raw_bytes = self._body_bytes = 0  # of a body that has not ended: as they came, and what they held
        self._grew_at = 0.0
        self._timer: asyncio.TimerHandle | None = None  # of a head or a body that has not ended

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Take a new connection; one that never sends a byte is closed as one that has fallen silent."""
        super().connection_made(transport)
        if not self._crowd.has_room(len(self.connections)):
            self.refuse(TooManyConnections())
            return
        self._crowd.idle[self] = None
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection that is gone."""
        self._crowd.idle.pop(self, None)
        self._stop_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, in pieces no longer than a head has room for."""
        head_bytes = self._bounds.head_bytes
        if len(data) < head_bytes - self._head_bytes and not self._is_refused:
            self._parse(data)
            return
        rest = memoryview(data)
        while rest and not self._is_refused:
            room = head_bytes - self._head_bytes
            self._parse(rest[:room])
            rest = rest[room:]

    def _parse(self, data: bytes | memoryview) -> None:
        self._has_ended_one = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # no other protocol is spoken here: the request is answered as the HTTP that it is
        except httptools.HttpParserError:
            self.refuse(Malformed("this is no HTTP/1.1 request: its request line, a header or its framing is wrong"))
            return
        if self._part is _HEAD:
            self._bound_head(len(data))
        elif self._part is _BODY:
            self._bound_body(len(data))

    def _bound_head(self, size_bytes: int) -> None:
        # Where in the piece a head began behind another request is not known: such a one is counted from the next on.
        self._head_bytes = 0 if self._has_ended_one else self._head_bytes + size_bytes
        if self._head_bytes >= self._bounds.head_bytes:
            is_url = not self.headers and len(self.url) + _REQUEST_LINE_BYTES >= self._head_bytes
            self.refuse((UrlTooLong if is_url else HeadTooLarge)(self._bounds.head_bytes))
        elif self._timer is None:
            self._timer = self.loop.call_later(self._bounds.head_seconds, self._end_head)

    def _end_head(self) -> None:
        self._timer = None
        self.refuse(RequestTimeout(f"the head of a request was not whole after {self._bounds.head_seconds:g} s"))

    def _bound_body(self, size_bytes: int) -> None:
        self._raw_bytes += size_bytes
        # A chunk of one byte comes with five of framing; extensions and trailers are framing without an end.
        if self._raw_bytes > self._bounds.framing_bytes + _FRAMING_RATIO * self._body_bytes:
            self.refuse(Malformed("the body is chunked into far more framing than content"))
        elif self._timer is None:
            self._grew_at = self.loop.time()
            self._timer = self.loop.call_later(self._bounds.body_seconds, self._end_body)

    def _end_body(self) -> None:
        """Refuse a body that has stood still; while the server itself takes no more of it, it may."""
        self._timer = None
        if self._part is not _BODY or self.cycle.response_complete:
            return
        silence = 0.0 if self.flow.read_paused else self.loop.time() - self._grew_at
        left = self._bounds.body_seconds - silence
        if left > _TICK_SECONDS:
            self._timer = self.loop.call_later(left, self._end_body)
            return
        self.refuse(RequestTimeout(f"nothing of the body came for {self._bounds.body_seconds:g} s"))

    # --- what the parser tells -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._unset_keepalive_if_required()
        self._part = _HEAD
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one behind the body is a trailer, and would change the head of a request that runs."""
        if self._part is _HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._head_bytes = self._raw_bytes = self._body_bytes = 0
        if self._timer is not None:
            self._stop_timer()
        self._crowd.idle.pop(self, None)
        super().on_headers_complete()
        self._part = _BODY

    def on_body(self, body: bytes) -> None:
        """Hand on a piece of the body."""
        self._body_bytes += len(body)
        if self._timer is not None:
            self._grew_at = self.loop.time()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body."""
        self._part = _BETWEEN
        self._has_ended_one = True
        if self._timer is not None:
            self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there already."""
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:
            self._crowd.idle[self] = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP in the one error shape."""
        self.refuse(Malformed(msg))

    # --- refusing --------------------------------------------------------------------------------

    def refuse(self, error: StepplaneError) -> None:
        """Answer an error ahead of the application, and close; what still comes is dropped."""
        self._is_refused = True
        self._stop_timer()
        self._unset_keepalive_if_required()
        self._crowd.idle.pop(self, None)
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, whatever uvicorn's type says
        if cycle is not None and not cycle.response_complete:
            if self._part is not _BODY:
                cycle.keep_alive = False  # a request before this one is being answered: the end of that closes
                return
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
        request_id = f"{random.getrandbits(64):016x}"
        answer = error_answer(error, request_id)
        HOT_METRICS.count_request("other", _ROUTE, answer.status, 0.0)
        if self._crowd.repeats.is_told(_ROUTE, answer.status):
            log.info("request", request_id=request_id, route=_ROUTE, status=answer.status, code=error.code)
        self._send_last(answer, request_id)

    def _send_last(self, answer: Answer, request_id: str) -> None:
        """Send an answer and end our side; closing at once could lose it, where the client still sends."""
        body = answer.body if isinstance(answer.body, bytes) else b""
        headers = [
            *self.server_state.default_headers,
            *answer.headers,
            (b"x-request-id", request_id.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.flow.resume_reading()
        self.transport.write(STATUS_LINE[answer.status] + lines + b"\r\n" + body)
        self.transport.write_eof()
        self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _unsupported_upgrade_warning(self) -> None:
        """Write no line: a client could have as many written as it likes."""


_BETWEEN, _HEAD, _BODY = "between", "head", "body"
_ROUTE = "unmatched"
_REQUEST_LINE_BYTES = 32  # a method and its space, the longest of which is 17 bytes
_FRAMING_RATIO = 16
_LINGER_SECONDS = 2.0
_TICK_SECONDS = 0.01  # a timer may fire that much before its time
