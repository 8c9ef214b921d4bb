"""The client's connections: idle ones are its own to give up, and a read survives one that broke while it was idle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.client.connection import Connection
from app.client.errors import Unreachable
from tests.contract.test_connections import listening


@asynccontextmanager
async def serving_once_each(*, answers_first: bool) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers the first request of a connection, where told so, and breaks it off at the next one."""
    seen: list[bytes] = []
    begun: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.append(asyncio.current_task())
        if answers_first:
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n1")
        seen.append(await reader.read(65_536))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
        await asyncio.wait([task for task in begun if task is not None])


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = Connection(url, None, None, 10)
    try:
        yield connection
    finally:
        await connection.aclose()


async def test_a_read_is_sent_again_where_a_reused_connection_broke() -> None:
    """The caller never learns that the server gave the connection up."""
    async with serving_once_each(answers_first=True) as (url, seen), connected(url) as connection:
        assert [await connection.get("/a"), await connection.get("/b")] == [1, 1]
        assert [request.split()[1] for request in seen if request] == [b"/a", b"/b", b"/b"]


async def test_a_write_is_never_sent_again() -> None:
    """It may have been done before the connection broke."""
    async with serving_once_each(answers_first=True) as (url, seen), connected(url) as connection:
        await connection.get("/a")
        with pytest.raises(Unreachable):
            await connection.post("/b", {})
        assert [request.split()[0] for request in seen if request] == [b"GET", b"POST"]


async def test_a_read_on_a_fresh_connection_is_sent_once() -> None:
    """A server that breaks every connection is told of, not asked again and again."""
    async with serving_once_each(answers_first=False) as (url, seen), connected(url) as connection:
        with pytest.raises(Unreachable):
            await connection.get("/a")
        assert len(seen) == 1


async def test_polls_as_far_apart_as_the_server_waits_never_break(tmp_path: Path) -> None:
    """An hour of polls in small: each comes just as the server gives the connection up, and none is broken."""
    with listening(tmp_path, keep_alive=0.02) as dial:
        with dial() as probe:
            port = probe.getpeername()[1]
        async with connected(f"http://127.0.0.1:{port}") as connection:
            for _ in range(200):
                async with connection.answer("GET", "/v1/healthz") as response:
                    assert await response.aread() == b"ok"
                await asyncio.sleep(0.02)
