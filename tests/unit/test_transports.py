"""Transports: what is written together leaves together, whole and in order, and nothing stays behind."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from app.transports import JoiningTransport, OnePieceProtocol

Send = Callable[[dict[str, Any]], Awaitable[None]]


class Recorder(asyncio.Transport):
    """Notes each write of a transport as the pieces that it joined."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.writes: list[tuple[bytes, ...]] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.writes.append((bytes(data),))

    def writelines(self, list_of_data: Any) -> None:
        assert not self.is_closed
        self.writes.append(tuple(map(bytes, list_of_data)))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        """Asked for by pipelined requests."""

    def resume_reading(self) -> None:
        """Asked for by pipelined requests."""

    @property
    def sent(self) -> bytes:
        return b"".join(map(b"".join, self.writes))


async def answered(app: Any, request: bytes = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n") -> Recorder:
    """Have an application answer over the protocol, until its connection is idle or closed."""
    config = uvicorn.Config(app, http=OnePieceProtocol, lifespan="off", log_config=None, access_log=False)
    config.load()
    state, recorder = ServerState(), Recorder()
    protocol = OnePieceProtocol(config=config, server_state=state, app_state={})
    protocol.connection_made(recorder)
    protocol.data_received(request)
    while state.tasks:  # an answer may start the next one of the pipeline
        await asyncio.wait(set(state.tasks))
    await asyncio.sleep(0)
    protocol.connection_lost(None)
    return recorder


def app_of(*bodies: bytes, status: int = 200, length: int | None = None) -> Any:
    """Make an application that sends a body in these pieces, and says its length where one is given."""

    async def app(_scope: Any, _receive: Any, send: Send) -> None:
        headers = [] if length is None else [(b"content-length", b"%d" % length)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for body in bodies[:-1]:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": bodies[-1]})

    return app


class TestOnePieceProtocol:
    """The protocol that the server runs."""

    @pytest.mark.parametrize("size_bytes", [1, 1_024, 100_000, 3_000_000])
    async def test_an_answer_leaves_in_one_write(self, size_bytes: int) -> None:
        """Head and body are one write, whatever the size of the body, and nothing else is written."""
        recorder = await answered(app_of(b"x" * size_bytes, length=size_bytes))
        ((head, body),) = recorder.writes
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert head.endswith(b"\r\n\r\n")
        assert body == b"x" * size_bytes

    async def test_an_answer_without_a_body_leaves_at_once(self) -> None:
        """The head of a 304 is written without waiting for more."""
        recorder = await answered(app_of(b"", status=304))
        assert len(recorder.writes) == 1
        assert recorder.sent.startswith(b"HTTP/1.1 304 ")
        assert recorder.sent.endswith(b"\r\n\r\n")

    async def test_pipelined_requests_are_answered_in_order(self) -> None:
        """Three requests in one packet get three answers, whole."""
        recorder = await answered(app_of(b"body", length=4), b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 3)
        assert [write[-1] for write in recorder.writes] == [b"body"] * 3

    async def test_the_last_answer_is_sent_before_the_connection_closes(self) -> None:
        """``Connection: close`` loses nothing of a short answer, nor of the head of one to HEAD."""
        for method in (b"GET", b"HEAD"):
            request = method + b" / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            recorder = await answered(app_of(b"all of it", length=9), request)
            assert recorder.is_closed
            assert recorder.sent.endswith(b"all of it" if method == b"GET" else b"\r\n\r\n")

    async def test_a_body_in_pieces_comes_whole_and_in_order(self) -> None:
        """Short and long pieces, known length or chunked: the bytes are those that were sent."""
        pieces = [b"a" * 10, b"b" * 200_000, b"", b"c", b"d" * 65_536, b"e" * 65_535, b"f"]
        whole = b"".join(pieces)
        recorder = await answered(app_of(*pieces, length=len(whole)))
        assert recorder.sent.partition(b"\r\n\r\n")[2] == whole
        chunked = (await answered(app_of(*pieces))).sent.partition(b"\r\n\r\n")[2]
        assert chunked == b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"


async def test_a_head_does_not_wait_for_a_slow_body() -> None:
    """What was written is sent as soon as the loop has nothing else to run, though the body takes its time."""
    recorder = Recorder()
    transport = JoiningTransport(recorder, asyncio.get_running_loop())
    transport.write(b"head")
    assert recorder.writes == []
    await asyncio.sleep(0)
    assert recorder.writes == [(b"head",)]
    await asyncio.sleep(0)
    transport.write(b"body")
    await asyncio.sleep(0)
    assert recorder.writes == [(b"head",), (b"body",)]
