"""Temporary files that a killed server left: gone after the next start, and after ``prune``."""

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from app.config import Settings
from app.running import prune
from tests.contract.pipeline import Pipeline
from tests.e2e.conftest import Server

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"])


def _leave(directory: Path, number: int) -> Path:
    leftover = directory / f".stepplane-{number:016x}.tmp"
    leftover.write_text("half")
    os.utime(leftover, (0, 0))
    return leftover


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is another process
            await asyncio.sleep(0.02)


async def test_what_a_killed_server_left_is_swept(
    server: Server, work_dir: Path, tmp_path: Path, database_url: str
) -> None:
    """Old ones go at the next start and by prune, in every directory of a dispatch; elsewhere nothing is touched."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        pipeline = await Pipeline.create(http, work_dir=str(work_dir))
        for name in ("plan", "draft"):
            await pipeline.output(name, 1)
        directories = [Path(step["file_path"]).parent for step in await pipeline.steps()]
    elsewhere = _leave(tmp_path, 9)
    server.kill()
    left = [_leave(directory, 1) for directory in directories]
    server.start()
    await _until(lambda: not any(path.exists() for path in left))
    server.stop()
    left = [_leave(directory, 2) for directory in directories]
    settings = Settings(database_url=database_url)
    await asyncio.to_thread(prune, settings, timedelta(days=1), dry_run=True)
    assert all(path.exists() for path in left)
    await asyncio.to_thread(prune, settings, timedelta(days=1))
    assert not any(path.exists() for path in left)
    assert elsewhere.exists()
    assert {path.name for directory in directories for path in directory.iterdir()} == {
        "_ctx.md",
        "plan.md",
        "draft.md",
    }
