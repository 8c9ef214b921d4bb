"""The database file deleted or replaced under a running server: nothing more is acknowledged, and the server ends."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from app.storage.urls import parse_database_url
from tests.contract.pipeline import Pipeline, bearer, code_of
from tests.e2e.conftest import Server

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


def _delete(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    copy.rename(path)


def _move_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.fixture
def database_url(database_url: str, tmp_path: Path) -> str:
    """The database of the test, in a directory of its own."""
    directory = tmp_path / "data"
    directory.mkdir()
    shutil.move(parse_database_url(database_url).path, directory / "stepplane.db")
    return f"sqlite:///{directory}/stepplane.db"


@pytest.mark.parametrize("befall", [_delete, _replace, _move_directory])
async def test_a_file_that_is_gone_takes_no_write_and_ends_the_server(
    server: Server, befall: Callable[[Path], None]
) -> None:
    """No submit is acknowledged any more, and the process ends with 1 after one line that names the file."""
    path = parse_database_url(server.database_url).path
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        pipeline = await Pipeline.create(http)
        handle = await pipeline.dispatch("step")
        await pipeline.submit(handle, "kept")
        befall(path)
        with contextlib.suppress(httpx.TransportError):  # it looks once a second by itself, and may have ended already
            answer = await http.post("/v1/worker/submit", content="lost", headers=bearer(handle))
            assert code_of(answer) == (503, "storage_gone")
    assert server.wait() == 1
    assert f"stepplane: the database file {path} was deleted or replaced" in server.log.splitlines()[-1]


async def test_nothing_answers_from_a_file_that_is_gone(client: httpx.AsyncClient, database_url: str) -> None:
    """From the next write on every write and read is 503 ``storage_gone``."""
    pipeline = await Pipeline.create(client)
    handle = await pipeline.dispatch("step")
    await pipeline.submit(handle, "kept")
    assert await pipeline.content("step") == b'"kept"'
    parse_database_url(database_url).path.unlink()
    for _ in range(2):
        answer = await client.post("/v1/worker/submit", content="lost", headers=bearer(handle))
        assert code_of(answer) == (503, "storage_gone")
        assert code_of(await pipeline.get("step", "/content")) == (503, "storage_gone")
        assert code_of(await pipeline.get()) == (503, "storage_gone")


async def test_a_server_that_only_reads_ends_as_well(server: Server) -> None:
    """Without any write the file is missed too: reads do not answer from what is gone for ever."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        await Pipeline.create(http)
    parse_database_url(server.database_url).path.unlink()
    assert server.wait() == 1
    assert "was deleted or replaced" in server.log.splitlines()[-1]
