"""Seeding: fills a database through the product's own services, many writes at a time.

The invariant: what is measured was written as a server writes it, rendering, digests and summaries included.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from app.domain.records import Final, Inline
from app.domain.requests import DispatchRequest, NewTask
from app.domain.values import JsonValue
from app.services.access import Access
from app.services.appender import Appender
from app.services.engine import Engine
from app.services.file_bodies import FileBodies
from app.services.materializer import Materializer
from app.services.submissions import Submissions
from app.storage import migrations
from app.storage.opening import open_database
from app.storage.urls import parse_database_url
from bench.documents import body_of

_AT_A_TIME = 64
_HANDLE_TTL_SECONDS = 86_400
_MAX_OUTPUT_BYTES = 16 * 1024 * 1024


class SeededRun(NamedTuple):
    """A run and what its steps put out; ``waiting`` are steps that were dispatched and have put out nothing yet."""

    task_id: str
    run_id: str
    bodies: Mapping[str, bytes]
    waiting: Mapping[str, str]

    @property
    def steps_path(self) -> str:
        """The path of its list."""
        return f"/v1/tasks/{self.task_id}/runs/{self.run_id}/steps"

    def step_path(self, name: str) -> str:
        """The path of one of its steps."""
        return f"{self.steps_path}/{quote(name, safe='')}"

    def content_path(self, name: str) -> str:
        """The path of what one of its steps put out."""
        return f"{self.step_path(name)}/content"


class NewRun(NamedTuple):
    """A run to write: the value of each step, and how many more steps to dispatch."""

    values: Mapping[str, JsonValue]
    waiting: int = 0


def seed(database_url: str, wanted: Mapping[str, NewRun]) -> dict[str, SeededRun]:
    """Migrate a database and write runs into it, each of a task of its own."""
    url = parse_database_url(database_url)
    migrations.migrate(url)

    async def write() -> dict[str, SeededRun]:
        seeder = _Seeder(database_url)
        try:
            return {name: await seeder.write(new) for name, new in wanted.items()}
        finally:
            await seeder.close()

    return asyncio.run(write())


class _Seeder:
    """The services that write, put together as ``app/main.py: _wire`` does, without files."""

    def __init__(self, database_url: str) -> None:
        self._database = open_database(parse_database_url(database_url))
        materializer = Materializer(self._database, ())
        appender = Appender(self._database, materializer, clock=_now)
        self._engine = Engine(self._database, materializer, clock=_now, handle_ttl_seconds=_HANDLE_TTL_SECONDS)
        self._submissions = Submissions(appender, FileBodies(_MAX_OUTPUT_BYTES, ()))
        self._access = Access(self._database, None, clock=_now)
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    async def write(self, new: NewRun) -> SeededRun:
        created = await self._engine.create_task(NewTask(goal="be measured"))
        run_id = created.run_id or ""
        names = [f"waiting-{number:04}" for number in range(new.waiting)]
        await asyncio.gather(*(self._put_out(run_id, name, value) for name, value in new.values.items()))
        handles = await asyncio.gather(*(self._dispatch(run_id, name) for name in names))
        bodies = {name: body_of(value) for name, value in new.values.items()}
        return SeededRun(created.task_id, run_id, bodies, dict(zip(names, handles, strict=True)))

    async def close(self) -> None:
        await self._database.close()

    async def _put_out(self, run_id: str, name: str, value: JsonValue) -> None:
        grant = await self._access.worker(await self._dispatch(run_id, name))
        async with self._slots:
            event = Final(content=Inline(value=value), ok=True)
            await self._submissions.result(grant, grant.step_id, grant.attempt, event)

    async def _dispatch(self, run_id: str, name: str) -> str:
        async with self._slots:
            dispatched = await self._engine.dispatch(run_id, DispatchRequest(ref=name, directive="Put something out."))
        return dispatched.worker_handle


def _now() -> datetime:
    return datetime.now(UTC)
