"""Two processes on one database: a step that is submitted through both has the newest Final's file, and no other's."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.domain.rendering import read_submission
from tests.contract.pipeline import Dispatched, Pipeline
from tests.e2e.conftest import Server

ROUNDS = 250


@pytest.fixture
def servers(database_url: str, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """Two servers on one database."""
    one = Server(database_url, tmp_path / "one.log")
    other = Server(database_url, tmp_path / "other.log")
    yield one, other
    one.stop()
    other.stop()


async def _round(one: Pipeline, other: Pipeline, dispatched: Dispatched, number: int) -> None:
    """Submit through both at once, a long value and a short one, and compare what both serve afterwards."""
    values = [f"{number} one " + "x" * 60_000, f"{number} other"]
    order = [one, other] if number % 2 else [other, one]
    await asyncio.gather(*(pipeline.submit(dispatched, value) for pipeline, value in zip(order, values, strict=True)))
    for pipeline in (one, other):
        newest = json.loads(await pipeline.content("plan", format="json"))
        assert newest in values
        assert json.loads(read_submission(await pipeline.content("plan"))) == newest, number
        path = (await pipeline.step("plan"))["file_path"]
        assert json.loads(read_submission(Path(path).read_bytes())) == newest, number


async def test_a_step_submitted_through_both_has_the_newest_finals_file(
    servers: tuple[Server, Server], work_dir: Path
) -> None:
    """After each of 250 rounds file, record and value are one Final's; no temporary file is left."""
    async with (
        httpx.AsyncClient(base_url=servers[0].url, timeout=30) as http,
        httpx.AsyncClient(base_url=servers[1].url, timeout=30) as http_of_other,
    ):
        one = await Pipeline.create(http, work_dir=str(work_dir))
        other = Pipeline(http_of_other, one.created)
        dispatched = await one.dispatch("plan")
        for number in range(ROUNDS):
            await _round(one, other, dispatched, number)
    assert sorted(path.name for path in work_dir.rglob("*") if path.is_file()) == ["_ctx.md", "plan.md"]
