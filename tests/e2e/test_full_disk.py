"""A full disk: writes are refused with the reason, nothing acknowledged is lost, and what makes room goes on.

Each law is tried on a real server process whose database is on a real disk of 6 MiB.
"""

import asyncio
import hashlib
import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.pipeline import Dispatched, Pipeline, bearer, code_of, parsed
from tests.e2e.conftest import Server
from tests.e2e.disks import Disk, mounted

pytestmark = pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason="only root may mount a disk")

FULL = (507, "storage_full")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk of 6 MiB."""
    with mounted(tmp_path / "disk", 6) as small:
        yield small


@pytest.fixture
def server(disk: Disk, tmp_path: Path) -> Iterator[Server]:
    """A server whose database is on that disk, and whose log is not."""
    running = Server(f"sqlite:///{disk.path}/stepplane.db", tmp_path / "server.log")
    yield running
    running.stop()


class Submitted:
    """Submits bodies that nothing compresses, and remembers the digest of each that was acknowledged."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.sha256: dict[str, str] = {}
        self.refused = 0
        self._random = random.Random(4711)  # noqa: S311 - it makes bodies

    async def submit(self, handle: Dispatched, size_bytes: int) -> tuple[int, str]:
        """Stage a part of a size under the next name; return the status, and the code where it is an error."""
        name, body = f"part-{len(self.sha256) + self.refused}", self._random.randbytes(size_bytes // 2).hex()
        url = f"/v1/worker/artifact?name={name}"
        answer = await self.pipeline.http.post(url, content=body, headers=bearer(handle))
        if answer.status_code == 204:
            self.sha256[name] = hashlib.sha256(body.encode()).hexdigest()
            return 204, ""
        self.refused += 1
        return code_of(answer)

    async def submit_until_full(self, handle: Dispatched, size_bytes: int) -> None:
        """Submit until that is refused."""
        while (answered := await self.submit(handle, size_bytes))[0] == 204:
            pass
        assert answered == FULL

    async def check(self) -> None:
        """Read everything that was acknowledged."""
        for name, sha256 in self.sha256.items():
            assert hashlib.sha256(await self.pipeline.content(name)).hexdigest() == sha256


async def test_what_is_acknowledged_on_a_disk_that_fills_up_is_kept(server: Server, disk: Disk) -> None:
    """Submits go on until 507 names the directory; all that were acknowledged are read back, then and after a kill."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        pipeline = await Pipeline.create(http)
        handle = await pipeline.dispatch("step")
        submitted = Submitted(pipeline)
        for size_bytes in (200_000, 20_000, 2_000):
            await submitted.submit_until_full(handle, size_bytes)
        disk.fill()
        refusal = await http.post("/v1/tasks", json={"goal": "x" * 5_000})
        assert code_of(refusal) == FULL
        assert str(disk.path) in parsed(refusal, 507)["error"]
        assert "retry-after" not in refusal.headers
        await submitted.check()
        assert parsed(await http.get("/v1/status"))["storage"] == "full"
        assert "stepplane_storage_full 1.0" in (await http.get("/metrics")).text
        assert "disk of the database is full" in (await http.get("/ui")).text
        server.restart()
        await submitted.check()
        assert len(submitted.sha256) > 10
        disk.clear()
        assert await submitted.submit(handle, 2_000) == (204, "")
        assert parsed(await http.get("/v1/status"))["storage"] == "ok"
        assert "stepplane_storage_full 0.0" in (await http.get("/metrics")).text
        assert "disk of the database is full" not in (await http.get("/ui")).text


async def test_a_server_starts_on_a_full_disk_and_reads(server: Server, disk: Disk) -> None:
    """Stopped in order or killed, it starts again with no byte free, answers reads and refuses writes."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        pipeline = await Pipeline.create(http)
        handle = await pipeline.dispatch("step")
        await pipeline.submit(handle, "kept")
        for end in (server.stop, server.kill, server.stop):
            end()
            disk.fill()
            server.start()
            disk.fill()
            assert await pipeline.content("step") == b'"kept"'
            assert code_of(await http.post("/v1/tasks", json={"init_ctx": "x" * 200_000})) == FULL
            disk.clear()
        await pipeline.submit(handle, "again")
        assert await pipeline.content("step") == b'"again"'


async def test_what_makes_room_goes_on_without_any(server: Server, disk: Disk) -> None:
    """With no byte free DELETE and prune remove runs, the room goes back to the disk, and writes go on in it."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        kept, deleted, pruned = [await Pipeline.create(http) for _ in range(3)]
        submitted = Submitted(kept)
        handle = await kept.dispatch("step")
        await submitted.submit(handle, 100_000)
        for run in (deleted, pruned):
            worker = await run.dispatch("step")
            for number in range(5):
                await run.stage(worker, f"part-{number}", os.urandom(100_000).hex())
            await run.finish()
        disk.fill()
        assert await submitted.submit(handle, 100_000) == FULL
        assert (await http.delete(f"/v1/runs/{deleted.run_id}")).status_code == 204
        assert disk.free_bytes > 900_000
        assert await submitted.submit(handle, 100_000) == (204, "")
        disk.fill()
        assert await submitted.submit(handle, 500_000) == FULL
        command = [sys.executable, "-m", "app", "prune", "--older-than", "0m", "--database-url", server.database_url]
        told = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        assert told.stdout.startswith("removed 1 run")
        assert disk.free_bytes > 900_000
        assert await submitted.submit(handle, 100_000) == (204, "")
        await submitted.check()
        assert [run["id"] for run in parsed(await http.get("/v1/runs"))["runs"]] == [kept.run_id]


async def test_the_reserve_is_no_room_for_other_writes(server: Server, disk: Disk) -> None:
    """What is held back for making room is there after refused writes, is used up by a removal, and is made again."""
    reserve = disk.path / "stepplane.db.reserve"
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        pipeline = await Pipeline.create(http)
        await pipeline.finish()
        held_bytes = reserve.stat().st_size
        assert held_bytes == reserve.stat().st_blocks * 512 >= 1024 * 1024
        assert reserve.stat().st_mode & 0o777 == 0o600
        disk.fill()
        for _ in range(20):
            assert code_of(await http.post("/v1/tasks", json={"goal": "x" * 60_000})) == FULL
        assert reserve.stat().st_size == held_bytes
        assert (await http.delete(f"/v1/runs/{pipeline.run_id}")).status_code == 204
        assert not reserve.exists()
        disk.clear()
        await Pipeline.create(http)
        assert reserve.stat().st_size == held_bytes


def test_the_file_is_whole_after_all_that(disk: Disk, tmp_path: Path) -> None:
    """A database that met a full disk hundreds of times is whole, by SQLite's own judgement."""
    server = Server(f"sqlite:///{disk.path}/stepplane.db", tmp_path / "server.log")
    moments = random.Random(7)  # noqa: S311 - it chooses sizes
    with httpx.Client(base_url=server.url, timeout=60) as http:
        statuses = set()
        for _ in range(20):
            disk.fill_but(moments.randrange(300) * 4096)
            for _ in range(20):
                answer = http.post("/v1/tasks", json={"goal": os.urandom(moments.choice([50, 5_000, 30_000])).hex()})
                statuses.add(answer.status_code)
            runs = json.loads(http.get("/v1/runs").content)["runs"]
            if runs:
                statuses.add(http.delete(f"/v1/runs/{runs[0]['id']}", params={"force": "true"}).status_code)
            disk.clear()
        assert statuses == {201, 204, 507}
    assert server.stop() == 0
    with sqlite3.connect(disk.path / "stepplane.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
