"""Progress: what a step said last that it is doing is shown where its dispatch is."""

import asyncio
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.storage.migrations import migrate
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Dispatched, Pipeline, parsed


@pytest.fixture
async def pipeline(client: httpx.AsyncClient) -> Pipeline:
    return await Pipeline.create(client)


async def _says(pipeline: Pipeline, step: Dispatched, stage: str, note: str | None = None) -> str:
    """Emit a progress event, and return when it was kept."""
    event = {"type": "progress", "stage": stage} | ({} if note is None else {"note": note})
    out_id = await pipeline.emit(step, event)
    at: str = parsed(await pipeline.http.get(f"/v1/data/{out_id}"))["created_at"]
    return at


async def _entries(pipeline: Pipeline) -> list[dict[str, Any]]:
    """List the dispatches of the run, which its record tells alike."""
    steps: list[dict[str, Any]] = parsed(await pipeline.http.get(f"/v1/runs/{pipeline.run_id}/steps"))["steps"]
    assert parsed(await pipeline.http.get(f"/v1/runs/{pipeline.run_id}"))["step_entries"] == steps
    return steps


async def test_the_newest_progress_stands_on_its_entry(pipeline: Pipeline) -> None:
    """An entry shows the newest stage and note with their time; one that said nothing has no progress at all."""
    step, silent = await pipeline.dispatch("plan"), await pipeline.dispatch("silent")
    await _says(pipeline, step, "reading", "3 of 9")
    at = await _says(pipeline, step, "writing")
    first, second = await _entries(pipeline)
    assert first["progress"] == {"stage": "writing", "at": at}
    assert (second["step_id"], "progress" in second) == (silent["step_id"], False)


async def test_each_attempt_has_its_own_progress(pipeline: Pipeline) -> None:
    """What one attempt said is no other's, and what it said stays when it has ended."""
    step = await pipeline.dispatch("plan")
    at = await _says(pipeline, step, "compiling", "all of it")
    await pipeline.result(step, 1, ok=False)
    await pipeline.retry(step)
    first, second = await _entries(pipeline)
    assert first["progress"] == {"stage": "compiling", "note": "all of it", "at": at}
    assert (first["status"], "progress" in second) == ("blocked", False)


async def test_a_long_progress_is_cut_in_lists(pipeline: Pipeline) -> None:
    """A list shows 300 characters of a stage and a note, and the event keeps them whole, whatever they hold."""
    step = await pipeline.dispatch("plan")
    await _says(pipeline, step, "é" * 301, "\x00\ud800" * 200)
    (entry,) = await _entries(pipeline)
    assert entry["progress"]["stage"] == "é" * 300 + "…"
    assert entry["progress"]["note"] == "\x00\ud800" * 150 + "…"


async def test_progress_from_before_is_told(pipeline: Pipeline, database_url: str) -> None:
    """A database that comes from an older release shows the progress that it kept, the newest of each attempt."""
    step = await pipeline.dispatch("plan")
    await _says(pipeline, step, "é" * 301)
    await _says(pipeline, step, "long", "n" * 301)
    await _says(pipeline, await pipeline.dispatch("other"), "\x00")
    listed = await _entries(pipeline)
    url = parse_database_url(database_url)
    await asyncio.to_thread(migrate, url, "0002")
    engine = create_async_engine(url.async_url)
    async with engine.connect() as connection:
        columns = set((await connection.execute(text("SELECT * FROM dispatches"))).keys())
    await engine.dispose()
    assert not {"progress", "adapter_data"} & columns
    await asyncio.to_thread(migrate, url)
    assert await _entries(pipeline) == listed
