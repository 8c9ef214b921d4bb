"""Retention: old runs go, whole; what has not ended, and what is asked to stay, stays."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI

from app.config import Settings
from app.domain.errors import RunNotFound
from app.services import retention
from app.services.retention import Pruned, Retention
from app.storage import runs as run_store
from app.storage.database import Database
from app.storage.opening import open_database
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Pipeline, bearer, code_of, parsed, serving

LATER = datetime.now(UTC) + timedelta(days=40)


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Database]:
    database = open_database(parse_database_url(url))
    yield database
    await database.close()


async def _prune(url: str, days: float, *, keep_last: int = 0, dry_run: bool = False) -> Pruned:
    """Prune as if it were forty days later."""
    async with _opened(url) as database:
        retention = Retention(database, clock=lambda: LATER)
        return await retention.prune(timedelta(days=days), keep_last=keep_last, dry_run=dry_run)


async def test_what_ended_long_ago_goes(app: FastAPI, client: httpx.AsyncClient, database_url: str) -> None:
    """A run that ended before the age is removed with its outputs, and their bytes are told; a running one never is."""
    assert app is not None
    ended, running = await Pipeline.create(client), await Pipeline.create(client)
    await ended.output("step", "x" * 98)
    await running.output("step", "y")
    await ended.finish()
    assert await _prune(database_url, 41) == Pruned(0, 0)
    assert await _prune(database_url, 30, dry_run=True) == Pruned(1, 100)
    assert (await ended.get()).status_code == 200
    assert await _prune(database_url, 30) == Pruned(1, 100)
    assert (await ended.get()).status_code == 404
    assert await running.names() == ["step"]
    assert parsed(await client.get("/v1/status"))["counts"] == {"tasks": 2, "runs": {"running": 1}, "outputs": 1}
    assert await _prune(database_url, 30) == Pruned(0, 0)


async def test_the_newest_runs_of_each_task_can_stay(client: httpx.AsyncClient, database_url: str) -> None:
    """With keep_last the newest N runs of every task stay, whatever their age."""
    tasks = [await Pipeline.create(client), await Pipeline.create(client)]
    runs = [run for task in tasks for run in (task, await task.another_run(), await task.another_run())]
    for run in runs:
        await run.finish()
    assert (await _prune(database_url, 30, keep_last=2)).runs == 2
    left = parsed(await client.get("/v1/runs"))["runs"]
    assert {run["id"] for run in left} == {runs[index].run_id for index in (1, 2, 4, 5)}


async def test_more_runs_than_a_page_all_go(
    client: httpx.AsyncClient, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pruning goes on until nothing old is left, page after page."""
    monkeypatch.setattr(retention, "_PAGE", 4)
    task = await Pipeline.create(client, start=False)
    for _ in range(10):
        await (await task.another_run()).finish()
    assert (await _prune(database_url, 30)).runs == 10


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of three rows, and of a body at a time where a body is larger than a kilobyte."""
    monkeypatch.setattr(run_store, "SLICE_ROWS", 3)
    monkeypatch.setattr(run_store, "SLICE_BYTES", 1_000)


@pytest.mark.usefixtures("small_slices")
async def test_a_run_that_is_being_removed_is_found_by_nobody(client: httpx.AsyncClient, database_url: str) -> None:
    """From the first slice on a run is gone from every list and address, and takes no write; the next start ends it."""
    run = await Pipeline.create(client)
    handle = await run.output("first", "x" * 2_000)
    kept = await run.emit(handle, {"type": "progress", "stage": "kept"})
    for number in range(10):
        await run.output(f"step-{number}", "x" * 2_000)
    other = await run.another_run()
    await other.output("step", "y")
    async with _opened(database_url) as database:
        await database.write(lambda stores: stores.runs.hide(other.run_id))
        await database.write(lambda stores: stores.runs.hide(run.run_id))
        assert not (await database.write(lambda stores: stores.runs.remove_some(run.run_id))).is_last
        for url in (
            run.steps_url,
            run.url("first", "/content"),
            f"/v1/runs/{run.run_id}",
            f"/v1/runs/{run.run_id}/steps",
        ):
            assert code_of(await client.get(url)) == (404, "run_not_found"), url
        assert code_of(await client.get(f"/v1/tasks/{run.task_id}/runs/latest/steps")) == (404, "run_not_found")
        assert code_of(await client.get(f"/v1/data/{kept}")) == (404, "output_not_found")
        assert (await client.get("/v1/worker/prompt", headers=bearer(handle))).status_code == 401
        assert code_of(await client.post(f"/v1/runs/{run.run_id}/finish", json={"status": "done"}))[0] == 404
        assert code_of(await client.delete(f"/v1/runs/{run.run_id}"))[0] == 404
        assert parsed(await client.get("/v1/runs"))["runs"] == []
        assert parsed(await client.get("/v1/status"))["counts"]["runs"] == {}
        assert "latest_run_id" not in parsed(await client.get(f"/v1/tasks/{run.task_id}"))
        assert run.run_id not in (await client.get("/ui")).text
        async with serving(Settings(database_url=database_url)):
            await _until_nothing_is_left(database)


async def _until_nothing_is_left(database: Database) -> None:
    async with asyncio.timeout(30):
        while True:
            async with database.point() as stores:
                if (await stores.runs.list_hidden(), await stores.outputs.count()) == ([], 0):
                    return
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("small_slices")
async def test_others_write_between_two_slices(client: httpx.AsyncClient, database_url: str) -> None:
    """While a large run is removed, submits to another are kept between any two slices of bounded size."""
    large, other = await Pipeline.create(client), await Pipeline.create(client)
    for number in range(30):
        await large.output(f"step-{number}", "x")
    worker = await other.dispatch("step")
    async with _opened(database_url) as database:
        await database.write(lambda stores: stores.runs.hide(large.run_id))
        slices = 0
        while not (await database.write(lambda stores: stores.runs.remove_some(large.run_id))).is_last:
            slices += 1
            await other.submit(worker, f"between {slices}")
        assert slices >= 3 * 30 // 3  # answers, outputs and bodies, three at a time
        with pytest.raises(RunNotFound):
            await database.write(lambda stores: stores.runs.lock(large.run_id))
    assert await other.content("step") == f'"between {slices}"'.encode()


@pytest.mark.usefixtures("small_slices")
async def test_a_run_of_many_slices_goes_whole(client: httpx.AsyncClient, database_url: str) -> None:
    """DELETE answers when all is gone; pruning tells the bytes of all slices together."""
    deleted, pruned = await Pipeline.create(client), await Pipeline.create(client)
    for run in (deleted, pruned):
        for number in range(10):
            await run.output(f"step-{number}", "x" * 1_998)
        await run.finish()
    assert (await client.delete(f"/v1/runs/{deleted.run_id}")).status_code == 204
    assert parsed(await client.get("/v1/status"))["counts"]["outputs"] == 10
    assert await _prune(database_url, 30, dry_run=True) == Pruned(1, 20_000)
    assert await _prune(database_url, 30) == Pruned(1, 20_000)
    async with _opened(database_url) as database:
        await _until_nothing_is_left(database)
