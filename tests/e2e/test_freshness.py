"""What is remembered is never stale, and large bodies are never all held at once: by two processes on one database."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Message

from app.config import Settings
from app.main import create_app
from tests.contract.pipeline import Pipeline, bearer
from tests.e2e.conftest import Server

READS = 100_000
READERS = 8
MIB = 1024 * 1024

OnSqlite = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
"""PostgreSQL's reads remember nothing (``app/storage/postgres/database.py``, ``version``)."""


async def ask(app: ASGIApp, path: str) -> bytes:
    """Send a GET to an application of this process, as its server would: with nothing between that takes time."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert sent[0]["status"] == 200, sent
    return b"".join(message["body"] for message in sent[1:])


def number_in(answer: bytes) -> int:
    """Find the number that a list, a summary or a content tells."""
    told: Any = json.loads(answer)
    if isinstance(told, dict):
        told = told["steps"][0] if "steps" in told else told
        return int(told["preview"])
    return int(told)


@OnSqlite
async def test_no_read_is_older_than_the_last_acknowledged_write(server: Server) -> None:
    """100,000 reads of two servers on one file, while both write: each shows what was acknowledged before it, or newer.

    All but one in fifty are reads of the server in this process, over nothing that would slow them down.
    """
    app = create_app(Settings(database_url=server.database_url))
    acknowledged = reads = 0
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(base_url=server.url) as other,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as here,
    ):
        pipeline = await Pipeline.create(other)
        dispatched = await pipeline.dispatch("count")
        paths = [pipeline.steps_url, f"{pipeline.steps_url}/count", f"{pipeline.steps_url}/count/content"]

        async def write() -> None:
            nonlocal acknowledged
            while reads < READS:
                document = {"task_id": dispatched["step_id"], "attempt": 1, "value": acknowledged + 1}
                for http in (other, here):
                    answer = await http.post("/v1/worker/result", json=document, headers=bearer(dispatched))
                    assert answer.status_code == 204, answer.text
                    acknowledged = document["value"]
                    document = document | {"value": acknowledged + 1}
                await asyncio.sleep(0.02)  # so that what is remembered has time to be wrong

        async def read() -> None:
            nonlocal reads
            while reads < READS:
                for turn in range(50):
                    path = paths[reads % len(paths)]
                    before = acknowledged
                    seen = number_in(await ask(app, path) if turn else (await other.get(path)).content)
                    assert seen >= before, f"{path} told {seen} after {before} was acknowledged"
                    reads += 1
                await asyncio.sleep(0)

        await pipeline.result(dispatched, 0)
        await asyncio.gather(write(), *(read() for _ in range(READERS)))
    assert acknowledged > 100


async def test_two_hundred_readers_of_two_mebibytes_take_bounded_memory(server: Server) -> None:
    """With 200 slow readers of 2 MiB each, the server grows by less than half of what the bodies are together."""
    readers, size_bytes = 200, 2 * MIB - 100
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        pipeline = await Pipeline.create(http)
        await pipeline.submit(await pipeline.dispatch("large"), b"x" * size_bytes)
        path = f"{pipeline.steps_url}/large/content"
        whole = (await http.get(path)).content
        assert len(whole) == size_bytes + 2  # rendered as JSON: with its quotes
    before = peak_bytes(server.pid)
    async with asyncio.TaskGroup() as group:
        begun = asyncio.Barrier(readers)
        tasks = [group.create_task(read_slowly(server.port, path, begun)) for _ in range(readers)]
    assert all(task.result() == whole for task in tasks)
    grown = peak_bytes(server.pid) - before
    assert grown < readers * size_bytes // 2, f"grew by {grown // MIB} MiB"


async def read_slowly(port: int, path: str, begun: asyncio.Barrier) -> bytes:
    """Begin to read, wait until all have begun, and read on."""
    with socket.socket() as small:
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)  # what a slow network would hold
        small.setblocking(False)
        await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=small.dup())
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    await begun.wait()
    length = re.search(rb"content-length: (\d+)", head)
    body = b""
    if length is None:
        chunks = [chunk async for chunk in dechunked(reader)]
        body = b"".join(chunks)
    else:
        body = await reader.readexactly(int(length[1]))
    writer.close()
    return body


async def dechunked(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the chunks of a body whose length was not told."""
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readline()


def peak_bytes(pid: int) -> int:
    """Read the largest resident size that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kib) * 1024
