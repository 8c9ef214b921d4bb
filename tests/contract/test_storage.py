"""Storage, once over each database: migrations, the port that services go by, and what the stores keep."""

import asyncio
import itertools
import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.answers import render_output
from app.domain.errors import (
    Conflict,
    InvalidKey,
    NotFound,
    PathNotFound,
    ProjectionIo,
    ProjectionNotFound,
    RunNotFound,
    StepNotFound,
    TaskNotFound,
    Unavailable,
)
from app.domain.ids import new_output_id, new_run_id, new_step_id, new_task_id
from app.domain.projection import ProjectionAdapter, ProjectionKey, ProjectionRef
from app.domain.records import Kind, RunStatus, TaskRecord
from app.services.query import McpQueryAdapter
from app.services.removals import Removals
from app.storage.database import Database
from app.storage.files.states import FileStates
from app.storage.migrations import migrate
from app.storage.opening import open_database
from app.storage.outputs import NewOutput
from app.storage.sqlite import batches as sqlite_batches
from app.storage.sqlite import writer as sqlite_writer
from app.storage.sqlite.reader import RecentPieces
from app.storage.stores import WriteStores
from app.storage.tables import metadata, shown, stored
from app.storage.urls import DatabaseUrl, UnusableDatabase, parse_database_url
from tests.contract.pipeline import Pipeline, blueprint_of, code_of, parsed

AT = "2026-01-01T00:00:00.000Z"


def _task(goal: str | None = None) -> TaskRecord:
    return TaskRecord(
        id=new_task_id(),
        goal=goal,
        status=RunStatus.PENDING,
        latest_run_id=None,
        project_root=None,
        work_dir=None,
        created_at=AT,
        task_metadata=None,
        init_ctx=None,
        blueprint=None,
    )


def _adds(task: TaskRecord) -> Callable[[WriteStores], str]:
    def work(stores: WriteStores) -> str:
        stores.tasks.add(task, None)
        return task.id

    return work


@pytest.fixture
def url(empty_database_url: str) -> DatabaseUrl:
    """The database of this test, not migrated."""
    return parse_database_url(empty_database_url)


@pytest.fixture
async def database(url: DatabaseUrl) -> AsyncIterator[Database]:
    """The database of this test, migrated and open."""
    await asyncio.to_thread(migrate, url)
    opened = open_database(url)
    yield opened
    await opened.close()


class _Sqlite:
    """Tests of what only a file has."""

    @pytest.fixture
    def dialect(self) -> str:
        """SQLite alone."""
        return "sqlite"


@pytest.fixture
def lock(url: DatabaseUrl) -> Iterator[sqlite3.Connection]:
    """Another connection's write lock on the SQLite file; its rollback lets go of it."""
    connection = sqlite3.connect(url.path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    connection.close()


def _inspected(url: DatabaseUrl, look: Callable[[Connection], Any]) -> Any:
    async def run() -> Any:
        engine = create_async_engine(url.async_url)
        try:
            async with engine.begin() as connection:
                return await connection.run_sync(look)
        finally:
            await engine.dispose()

    return asyncio.run(run())


def _tables(url: DatabaseUrl) -> set[str]:
    names: list[str] = _inspected(url, lambda connection: inspect(connection).get_table_names())
    return {name for name in names if not name.startswith("sqlite_")} - {"alembic_version"}


NEWEST = "0004"


class TestMigrations:
    """Up, down, no drift, and never twice at once."""

    def test_the_schema_goes_up_and_down_and_up_again(self, url: DatabaseUrl) -> None:
        """Up makes every table, down takes every table away, and up works again after it; a second up is nothing."""
        assert migrate(url) == (None, NEWEST)
        assert _tables(url) == set(metadata.tables)
        assert migrate(url) == (NEWEST, NEWEST)
        assert migrate(url, "base") == (NEWEST, None)
        assert _tables(url) == set()
        assert migrate(url) == (None, NEWEST)
        assert _tables(url) == set(metadata.tables)

    async def test_summaries_are_told_their_counts(self, database_url: str, client: httpx.AsyncClient) -> None:
        """Down to 0001 and up again every list says what it said, whatever answers: a retry, a part, a result's."""
        url, pipeline = parse_database_url(database_url), await Pipeline.create(client)
        looped = await pipeline.output("looped", 1)
        await pipeline.result(await pipeline.retry(looped), 2)
        await pipeline.stage(await pipeline.dispatch("looped"), "part", "text")
        await pipeline.finish(result={"looped": 0, "of the result": '"attempts":9'})
        listed = (await client.get(pipeline.steps_url)).content
        assert await asyncio.to_thread(migrate, url, "0001") == (NEWEST, "0001")
        statement = text("SELECT summary_tail FROM projections")
        tails = await asyncio.to_thread(_inspected, url, lambda connection: connection.execute(statement).all())
        assert [bytes(tail).endswith(b'"attempts":') for (tail,) in tails] == [True] * 4
        assert await asyncio.to_thread(migrate, url) == ("0001", NEWEST)
        assert (await client.get(pipeline.steps_url)).content == listed

    def test_the_scripts_and_the_tables_do_not_drift(self, url: DatabaseUrl) -> None:
        """A migrated database is exactly what the program's tables say, types and indexes included."""
        migrate(url)

        def differences(connection: Connection) -> list[Any]:
            context = MigrationContext.configure(
                connection, opts={"compare_type": True, "compare_server_default": True}
            )
            return list(compare_metadata(context, metadata))

        assert _inspected(url, differences) == []

    def test_a_newer_database_is_refused_and_left_alone(self, url: DatabaseUrl) -> None:
        """A revision that this program does not know is told in one clear sentence, and nothing is changed."""
        migrate(url)
        _inspected(url, lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9999'")))
        for revision in ("head", "base"):
            with pytest.raises(UnusableDatabase, match=r"revision 9999.*newer stepplane") as caught:
                migrate(url, revision)
            assert "\n" not in str(caught.value)
        assert _tables(url) == set(metadata.tables)
        version = _inspected(
            url, lambda connection: connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        )
        assert version == "9999"

    def test_a_migration_that_fails_changes_nothing(self, url: DatabaseUrl) -> None:
        """When a table of ours is in the way, the migration fails in one sentence and leaves nothing half made."""
        if url.is_sqlite:
            url.path.touch()
        _inspected(url, lambda connection: connection.execute(text("CREATE TABLE outputs (x INTEGER)")))
        with pytest.raises(UnusableDatabase, match="outputs"):
            migrate(url)
        assert _tables(url) == {"outputs"}

    def test_many_migrate_at_once(self, url: DatabaseUrl, empty_database_url: str) -> None:
        """Threads and processes that migrate the same empty database at once all succeed, and one of them does it."""
        program = (
            "import sys; from app.storage.migrations import migrate; from app.storage.urls import parse_database_url; "
            "print('ready', flush=True); sys.stdin.readline(); print(migrate(parse_database_url(sys.argv[1]))[0])"
        )
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", program, empty_database_url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        with ThreadPoolExecutor(2) as threads:
            befores = [str(before) for before, _ in threads.map(lambda _: migrate(url), range(2))]
        befores += [process.communicate(timeout=60)[0].strip() for process in processes]
        assert sorted(befores) == [NEWEST, NEWEST, NEWEST, "None"]
        assert _tables(url) == set(metadata.tables)


class TestDatabase:
    """The port, over each database."""

    async def test_what_a_write_returned_is_seen_by_every_later_read(self, database: Database) -> None:
        """A committed write is visible at once, to a point read and to a snapshot, whatever else is written."""

        async def write_and_read(number: int) -> None:
            task = _task(f"goal {number}")
            assert await database.write(_adds(task)) == task.id
            async with database.point() as stores:
                found = await stores.tasks.find(task.id)
            async with database.snapshot() as stores:
                again = await stores.tasks.find(task.id)
            assert found is not None
            assert found == again
            assert found.goal == f"goal {number}"

        await asyncio.gather(*(write_and_read(number) for number in range(60)))

    async def test_a_refusal_fails_the_write_that_it_is_of(self, database: Database) -> None:
        """Among writes that wait together, one that is refused keeps nothing, and takes nothing from the others."""
        early, late = _task("refused before a change"), _task("refused after a change")

        def refuse_early(_: WriteStores) -> None:
            raise Conflict("refused early")

        def refuse_late(stores: WriteStores) -> None:
            stores.tasks.add(late, None)
            raise Conflict("refused late")

        tasks = [_task() for _ in range(40)]
        writes: list[Callable[[WriteStores], Any]] = [_adds(task) for task in tasks]
        writes[10:10] = [refuse_early]
        writes[30:30] = [refuse_late]
        outcomes = await asyncio.gather(*map(database.write, writes), return_exceptions=True)
        assert [str(outcome) for outcome in outcomes if isinstance(outcome, BaseException)] == [
            "refused early",
            "refused late",
        ]
        assert [outcome for outcome in outcomes if isinstance(outcome, str)] == [task.id for task in tasks]
        async with database.point() as stores:
            assert all([await stores.tasks.exists(task.id) for task in tasks])
            assert not await stores.tasks.exists(early.id)
            assert not await stores.tasks.exists(late.id)

    async def test_a_crash_fails_the_write_that_it_is_of(self, database: Database) -> None:
        """A fault in one write, ours or the database's own, reaches its caller and no other; all others are kept."""
        crashed, double = _task(), _task()
        await database.write(_adds(double))

        def crash(stores: WriteStores) -> None:
            stores.tasks.add(crashed, None)
            raise ZeroDivisionError("crashed")

        tasks = [_task() for _ in range(20)]
        writes: list[Callable[[WriteStores], Any]] = [_adds(task) for task in tasks]
        writes[5:5] = [crash]
        writes[15:15] = [_adds(double)]
        outcomes = await asyncio.gather(*map(database.write, writes), return_exceptions=True)
        errors = [type(outcome).__name__ for outcome in outcomes if isinstance(outcome, BaseException)]
        assert errors == ["ZeroDivisionError", "IntegrityError"]
        async with database.point() as stores:
            assert all([await stores.tasks.exists(task.id) for task in tasks])
            assert not await stores.tasks.exists(crashed.id)
        await database.write(_adds(crashed))

    async def test_a_file_that_is_no_database_fails_each_write_and_hangs_none(self, tmp_path: Path) -> None:
        """What SQLite refuses outright reaches the caller; once a database is there the next write is kept."""
        url = parse_database_url(f"sqlite:///{tmp_path / 'broken.db'}")
        url.path.write_bytes(b"no database" * 1_000)
        database = open_database(url)
        async with asyncio.timeout(20):
            for _ in range(2):
                with pytest.raises(sqlite3.DatabaseError):
                    await database.write(_adds(_task()))
            url.path.unlink()
            await asyncio.to_thread(migrate, url)
            await database.write(_adds(_task()))
        await database.close()

    async def test_a_cancelled_caller_disturbs_nobody(self, database: Database) -> None:
        """A caller that goes away takes neither the others' answers nor the next write with it."""
        tasks = [_task() for _ in range(40)]
        pending = [asyncio.create_task(database.write(_adds(task))) for task in tasks]
        await asyncio.sleep(0)
        for gone in pending[::2]:
            gone.cancel()
        outcomes = await asyncio.gather(*pending, return_exceptions=True)
        assert outcomes[1::2] == [task.id for task in tasks[1::2]]
        after = _task()
        await database.write(_adds(after))
        async with database.snapshot() as stores:
            assert await stores.tasks.exists(after.id)
            assert all([await stores.tasks.exists(task.id) for task in tasks[1::2]])
        pending = [asyncio.create_task(database.write(_adds(_task()))) for _ in range(5)]
        assert len(await asyncio.gather(*pending)) == 5

    async def test_a_snapshot_sees_one_state(self, database: Database, url: DatabaseUrl) -> None:
        """While others commit, every read of a snapshot sees what its first read saw; a point read sees the newest."""
        first, second = _task(), _task()
        await database.write(_adds(first))

        async def write_elsewhere() -> None:
            other = open_database(url)
            await other.write(_adds(second))
            await other.close()

        async with database.snapshot() as snapshot, database.point() as point:
            before = await snapshot.tasks.list_newest(10, 2**62)
            await asyncio.to_thread(asyncio.run, write_elsewhere())
            assert await snapshot.tasks.list_newest(10, 2**62) == before
            assert not await snapshot.tasks.exists(second.id)
            assert await point.tasks.exists(second.id)
        async with database.snapshot() as snapshot:
            assert await snapshot.tasks.exists(second.id)

    async def test_snapshots_at_the_same_time_do_not_mix(self, database: Database) -> None:
        """Snapshots that were opened before and after a write each keep to their own state, side by side."""
        first, second = _task(), _task()
        await database.write(_adds(first))
        async with database.snapshot() as older:
            assert not await older.tasks.exists(second.id)
            await database.write(_adds(second))
            async with database.snapshot() as newer:
                assert await newer.tasks.exists(second.id)
                assert not await older.tasks.exists(second.id)
                assert await older.tasks.exists(first.id)

    async def test_closing_finishes_what_waits(self, url: DatabaseUrl) -> None:
        """Closing waits for the writes that were taken; a write after it is refused, or opens the database anew."""
        await asyncio.to_thread(migrate, url)
        database = open_database(url)
        tasks = [_task() for _ in range(20)]
        pending = [asyncio.create_task(database.write(_adds(task))) for task in tasks]
        assert await asyncio.gather(*pending) == [task.id for task in tasks]
        await database.close()
        await database.close()
        again = open_database(url)
        async with again.snapshot() as stores:
            assert all([await stores.tasks.exists(task.id) for task in tasks])
        await again.close()

    async def test_outputs_are_read_in_the_order_of_their_append(self, database: Database) -> None:
        """However many append at once, the order of an attempt's outputs is that of their places, each body its own."""
        task, run_id, step_id = _task(), new_run_id(), new_step_id()

        def add_run(stores: WriteStores) -> None:
            stores.tasks.add(task, None)
            stores.runs.add(run_id, task.id, AT)

        await database.write(add_run)

        def appends(number: int, attempt: int) -> Callable[[WriteStores], tuple[int, str]]:
            rendered = render_output(f"value {number}", Kind.STEP)
            output = NewOutput(
                id=new_output_id(), run_id=run_id, step_id=step_id, step_ref="a\x00b", step_name="n", attempt=attempt,
                occurrence=1, type="progress", name="n", producer=f"p{number % 2}\x00", ok=None, event="{}",
                parent_refs="[]", created_at=AT, traceparent=None,
            )  # fmt: skip

            def work(stores: WriteStores) -> tuple[int, str]:
                return stores.outputs.append(
                    output, rendered, stores.outputs.add_body(run_id, rendered.body)
                ), output.id

            return work

        appended = await asyncio.gather(*(database.write(appends(number, number % 3)) for number in range(30)))
        for attempt in range(3):
            expected = [output_id for _, output_id in sorted(appended[attempt::3])]
            async with database.snapshot() as stores:
                listed = await stores.outputs.list_for_attempt(step_id, attempt)
                newest = await stores.outputs.get_latest_by_name_in_run(step_id, attempt, "p0\x00")
            assert [kept.id for kept in listed] == expected
            assert {kept.body for kept in listed} == {b'"value %d"' % number for number in range(attempt, 30, 3)}
            assert newest is not None
            assert newest.id == [kept.id for kept in listed if kept.producer == "p0\x00"][-1]
        async with database.snapshot() as stores:
            latest = await stores.outputs.get_latest_by_name("p1\x00")
            assert latest is not None
            assert latest.id == max((seq, output_id) for seq, output_id in appended[1::2])[1]
            assert await stores.outputs.get_latest_by_name("p1") is None
            assert (await stores.outputs.get(latest.id)) == latest
            assert await stores.outputs.get("out-none") is None

    async def test_a_large_body_is_read_whole_in_pieces_or_not_at_all(self, database: Database) -> None:
        """A streamed body is the body, again and again; one whose run is deleted half-way never passes for whole."""
        task, lasting, deleted, body = _task(), new_run_id(), new_run_id(), os.urandom(2_000_003)

        def keep(stores: WriteStores) -> list[int]:
            stores.tasks.add(task, None)
            for run_id in (lasting, deleted):
                stores.runs.add(run_id, task.id, AT)
            return [stores.outputs.add_body(run_id, body) for run_id in (lasting, deleted)]

        body_id, deleted_id = await database.write(keep)
        async with database.point() as stores:
            assert await stores.outputs.body(body_id) == body
        for _ in range(2):
            streamed = database.stream(body_id, len(body))
            assert streamed is not None
            assert b"".join([chunk async for chunk in streamed.chunks()]) == body
            streamed.close()
        broken_off = database.stream(deleted_id, len(body))
        assert broken_off is not None
        received = []
        with pytest.raises(ProjectionIo):  # noqa: PT012 - the deletion belongs between two pieces
            async for chunk in broken_off.chunks():
                received.append(chunk)
                if len(received) == 1:
                    await Removals(database).remove(deleted, lambda _: None)
        broken_off.close()
        assert 0 < len(b"".join(received)) < len(body)

    async def test_every_text_comes_back_as_it_was(self, database: Database) -> None:
        """NUL, control characters, the escape's own characters and every plane of Unicode are kept on each database."""
        goals = [
            "\x00",
            "\x01",
            "\x01\x01\x02",
            "a\x00b",
            "",
            "\U0001f600",
            "\ufeff\ufffe\uffff",
            "\x7f\x80\x1b",
            "é e\u0301",
            "'\"\\%_",
        ]
        tasks = [_task(goal) for goal in goals]
        for task in tasks:
            await database.write(_adds(task))
        async with database.snapshot() as stores:
            assert [goal.goal for _, goal in await stores.tasks.list_newest(50, 2**62)] == goals[::-1]


@given(st.text(st.characters() | st.sampled_from("\x00\x01\x02")))
def test_a_stored_text_is_shown_as_it_was(given_text: str) -> None:
    """What is stored has no U+0000, and is shown as the very text."""
    assert "\x00" not in stored(given_text)
    assert shown(stored(given_text)) == given_text


def test_a_stored_text_is_told_apart_and_ordered_whatever_it_escapes() -> None:
    """Over every short text of the escape's own characters: shown as it was, never two alike, in bytewise order."""
    texts = ["".join(chars) for length in range(6) for chars in itertools.product("\x00\x01\x02a", repeat=length)]
    assert [shown(stored(each)) for each in texts] == texts
    assert [shown(each) for each in sorted(map(stored, texts), key=str.encode)] == sorted(texts, key=str.encode)


_texts = st.text(st.sampled_from("\x00\x01\x02\x03aé\U0001f600") | st.characters(exclude_categories=["Cs"]), max_size=8)


@given(_texts, _texts)
def test_stored_texts_keep_their_order(one: str, other: str) -> None:
    """Stored texts are in the bytewise order of the texts themselves, and are equal only where those are."""
    assert (stored(one).encode() < stored(other).encode()) == (one.encode() < other.encode())
    assert (stored(one) == stored(other)) == (one == other)


class TestSqlite(_Sqlite):
    """What only a file has: locks, one writer, a bound on what waits."""

    def test_the_file_is_its_owners_alone(self, url: DatabaseUrl) -> None:
        """The file is made readable by nobody else, and its journal is the WAL."""
        migrate(url)
        assert stat.S_IMODE(url.path.stat().st_mode) == 0o600
        connection = sqlite3.connect(url.path)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()

    async def test_writes_wait_for_another_processs_lock_and_none_is_lost(
        self, database: Database, url: DatabaseUrl
    ) -> None:
        """While another connection holds the file for a second, writes wait and reads go on; then each is kept."""
        tasks = [_task() for _ in range(30)]
        await database.write(_adds(tasks[0]))
        other = sqlite3.connect(url.path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(1, other.execute, ("ROLLBACK",))
        release.start()
        pending = [asyncio.create_task(database.write(_adds(task))) for task in tasks[1:]]
        while release.is_alive():
            async with database.snapshot() as stores:
                assert await stores.tasks.exists(tasks[0].id)
            assert not (other.in_transaction and any(task.done() for task in pending))
            await asyncio.sleep(0.02)
        assert await asyncio.gather(*pending) == [task.id for task in tasks[1:]]
        other.close()

    async def test_who_writes_all_the_time_keeps_nobody_else_from_it(
        self, database: Database, url: DatabaseUrl
    ) -> None:
        """Beside a connection that lets go of the lock for moments alone, a write gets in after a few of those."""
        task, run_id, turns, is_enough = _task(), new_run_id(), 0, threading.Event()
        await database.write(_adds(task))
        await database.write(lambda stores: stores.runs.add(run_id, task.id, AT))

        def write_all_the_time() -> None:
            nonlocal turns
            with closing(sqlite3.connect(url.path, timeout=30, isolation_level=None)) as other:
                while not is_enough.is_set():
                    other.execute("BEGIN IMMEDIATE")
                    time.sleep(0.004)
                    other.execute("COMMIT")
                    turns += 1
                    time.sleep(0.0001)

        writing = asyncio.create_task(asyncio.to_thread(write_all_the_time))
        for _ in range(50):
            await database.write(lambda stores: stores.runs.touch(run_id, AT))
        is_enough.set()
        await writing
        assert turns < 100  # each write gets in at one of the first moments; looking ever less often misses hundreds

    async def test_too_many_waiting_writes_are_refused_at_once(
        self, database: Database, lock: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Over the bound a write is Unavailable without waiting; those that wait already are kept."""
        monkeypatch.setattr(sqlite_writer, "MAX_WAITING", 3)
        tasks = [_task() for _ in range(3)]
        pending = [asyncio.create_task(database.write(_adds(task))) for task in tasks]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="too many"):
            await database.write(_adds(_task()))
        assert not any(task.done() for task in pending)
        lock.execute("ROLLBACK")
        assert await asyncio.gather(*pending) == [task.id for task in tasks]
        await database.write(_adds(_task()))

    async def test_a_lock_that_does_not_come_free_is_told_to_all_at_once(
        self, url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After the timeout all that waited together are Unavailable, not one after the other; later writes go on."""
        monkeypatch.setattr(sqlite_batches, "BUSY_TIMEOUT_MS", 500)
        await asyncio.to_thread(migrate, url)
        database = open_database(url)
        await database.write(_adds(_task()))
        other = sqlite3.connect(url.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(30):  # a hundred timeouts one after the other would take 50 seconds
            outcomes = await asyncio.gather(
                *(database.write(_adds(_task())) for _ in range(100)), return_exceptions=True
            )
        other.execute("ROLLBACK")
        other.close()
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        await database.write(_adds(_task()))
        await database.close()

    async def test_the_pieces_that_are_remembered_are_the_last_ones(self) -> None:
        """However many large bodies are read, 32 MiB of pieces are kept: those that were asked for last."""
        pieces = RecentPieces()
        for body_id in range(64):
            for offset in range(0, 1024 * 1024, 256 * 1024):
                pieces.keep(body_id, offset, b"x" * (256 * 1024))
            assert pieces.find(0, 0)
        kept = [body_id for body_id in range(64) if pieces.find(body_id, 768 * 1024)]
        assert kept == list(range(32, 64))
        assert sum(map(len, pieces._kept.values())) == 32 * 1024 * 1024

    async def test_a_file_that_cannot_be_opened_is_told(self, url: DatabaseUrl, tmp_path: Path) -> None:
        """Where the file cannot be opened reads and writes are Unavailable, and served once it can be."""
        hidden = parse_database_url(f"sqlite:///{tmp_path}/hidden/file.db")
        database = open_database(hidden)
        with pytest.raises(Unavailable):
            async with asyncio.timeout(30):
                await database.write(_adds(_task()))
        with pytest.raises(Unavailable):
            async with database.point() as stores:
                await stores.tasks.exists("T-1")
        await asyncio.to_thread(migrate, hidden)
        task = _task()
        await database.write(_adds(task))
        async with database.point() as stores:
            assert await stores.tasks.exists(task.id)
        await database.close()
        assert not url.path.exists()

    async def test_the_log_does_not_grow_without_end(self, database: Database, url: DatabaseUrl) -> None:
        """Readers that came and went leave nothing behind that keeps the WAL from being written back."""
        for number in range(30):
            await database.write(_adds(_task("x" * 100_000)))
            async with database.snapshot() as stores:
                await stores.tasks.list_newest(1 + number, 2**62)
        assert url.path.with_name(url.path.name + "-wal").stat().st_size < 8_000_000
        other = sqlite3.connect(url.path)
        busy, frames, written = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        other.close()
        assert busy == 0
        assert frames == written


class TestPostgres:
    """What only a server has: connections that it ends."""

    @pytest.fixture
    def dialect(self) -> str:
        """PostgreSQL where there is one, else the law is tried on SQLite, which ends no connections."""
        from tests.conftest import DIALECTS

        return DIALECTS[-1]

    async def test_lost_and_refused_connections_are_told_and_got_over(
        self, client: httpx.AsyncClient, database_url: str
    ) -> None:
        """While the server takes no connections every request is 503 with Retry-After; then it is served again."""
        url = parse_database_url(database_url)
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("ask")
        if not url.is_sqlite:
            name = url.url.database
            server = DatabaseUrl(url.url.set(database="postgres"))
            await _execute(server, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            await _execute(server, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608
            requests = [
                ("GET", pipeline.steps_url), ("GET", pipeline.url("ask")), ("GET", "/v1/tasks"), ("POST", "/v1/tasks"),
                ("POST", "/v1/worker/submit"), ("GET", "/v1/worker/prompt"),
                ("POST", f"/v1/runs/{pipeline.run_id}/steps"),
            ]  # fmt: skip
            for method, path in requests * 3:
                headers = {"Authorization": f"Bearer {dispatched['worker_handle']}"} if "worker" in path else {}
                content = b'{"ref": "a", "directive": 1}' if path.endswith("/steps") else b"{}"
                answer = await client.request(method, path, content=content, headers=headers)
                assert code_of(answer) == (503, "unavailable"), (method, path, answer.text)
                assert int(answer.headers["retry-after"]) > 0
            await _execute(server, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        await pipeline.submit(dispatched, "x")
        assert json.loads(await pipeline.content("ask")) == "x"


async def _execute(url: DatabaseUrl, statement: str) -> None:
    engine = create_async_engine(url.async_url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.execute(text(statement))
    await engine.dispose()


class TestUrls:
    """Database URLs that cannot be used."""

    @pytest.mark.parametrize(
        "given",
        [
            "", "nonsense", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file:x?mode=memory", "mysql://u:pw@h/n",
            "postgresql://u:pw@h:port/n", "postgresql://u:pw@[::1/n", "oracle+x://u:pw@h/n", "sqlite:///a\x00b", "http://u:pw@h",
            "postgresql://u:pw@h/n?bogus=1", "sqlite:///file.db?mode=ro", "sqlite+nodriver://",
        ],
    )  # fmt: skip
    def test_a_url_that_is_none_says_so(self, given: str) -> None:
        """What is no URL of a database that can be used is one clear sentence, in which no password stands."""
        with pytest.raises(UnusableDatabase) as caught:
            parse_database_url(given)
        sentence = str(caught.value)
        assert sentence.startswith("STEPPLANE_DATABASE_URL ")
        assert "\n" not in sentence
        assert "pw" not in sentence

    def test_a_database_that_cannot_be_opened_says_so(self, tmp_path: Path) -> None:
        """A directory, no database, no way to it or no server: one sentence with the reason, without the password."""
        (tmp_path / "directory").mkdir()
        (tmp_path / "garbage").write_text("this is no database\n" * 100)
        cases = {
            f"sqlite:///{tmp_path}/directory": "Is a directory",
            f"sqlite:///{tmp_path}/garbage": "file is not a database",
            f"sqlite:///{tmp_path}/garbage/inside.db": "cannot be opened",
            "sqlite:////proc/nowhere/file.db": "cannot be opened",
            "postgresql://u:pw@127.0.0.1:1/name": "cannot be used",
            "postgresql://u:pw@127.0.0.1:1/name?sslmode=disable": "cannot be used",
        }
        for unusable, reason in cases.items():
            with pytest.raises(UnusableDatabase, match=reason) as caught:
                migrate(parse_database_url(unusable))
            assert "\n" not in str(caught.value)
            assert "pw" not in str(caught.value)
        assert (tmp_path / "garbage").read_text() == "this is no database\n" * 100

    def test_a_database_that_is_not_there_says_so(self, url: DatabaseUrl) -> None:
        """On a server that answers, a name that it does not have is told with that name; a missing file is made."""
        missing = url.url.set(database=f"{url.url.database}_missing")
        if url.is_sqlite:
            assert migrate(DatabaseUrl(missing))[1] == NEWEST
            return
        with pytest.raises(UnusableDatabase, match=r"_missing.*does not exist"):
            migrate(DatabaseUrl(missing))

    def test_the_words_of_other_programs_are_understood(self, url: DatabaseUrl, empty_database_url: str) -> None:
        """``postgres://`` and libpq's ``sslmode`` mean what they mean elsewhere, and so does a path from the home."""
        assert parse_database_url("postgres://u@h/n").async_url.drivername == "postgresql+asyncpg"
        assert parse_database_url("sqlite:///~/x.db").path == Path.home() / "x.db"
        assert parse_database_url("sqlite:///x.db").path == Path.cwd() / "x.db"
        if not url.is_sqlite:
            assert migrate(parse_database_url(f"{empty_database_url}?sslmode=disable")) == (None, NEWEST)


class TestQueryAdapter:
    """McpQueryAdapter as a projection adapter."""

    @pytest.fixture
    async def adapter(self, app: FastAPI, database_url: str) -> AsyncIterator[McpQueryAdapter]:
        """An adapter of its own on the database of the application."""
        assert app.title == "stepplane"  # which has migrated it
        database = open_database(parse_database_url(database_url))
        yield McpQueryAdapter(database, FileStates())
        await database.close()

    async def test_what_is_projected_can_be_reached(self, client: httpx.AsyncClient, adapter: McpQueryAdapter) -> None:
        """The reference is an endpoint that answers exactly what the key resolves to, whatever its name and path."""
        protocol: ProjectionAdapter = adapter
        pipeline = await Pipeline.create(client)
        ctx = {"a/b c?#%é": {"k.l": [1, {"x": "y"}]}, "..": None, "plain": "text"}
        for name, value in ctx.items():
            await pipeline.output(name, value)
        for name, path in [(name, None) for name in ctx] + [
            ("a/b c?#%é", '$["k.l"][1].x'),
            ("a/b c?#%é", '["k.l"][-1]'),
        ]:
            key = ProjectionKey(task_id=pipeline.task_id, step=name, path=path)
            found = key.resolve(ctx)
            assert found is not None
            ref = await protocol.project(key, ctx)
            assert ref.model_dump() == {
                "Query": {
                    "endpoint": ref.Query and ref.Query.endpoint,
                    "key": key.model_copy(update={"run_id": pipeline.run_id}).model_dump(),
                }
            }
            assert ref.Query is not None
            assert json.loads((await client.get(ref.Query.endpoint)).content) == found.value
            assert await protocol.fetch(key) == found.value
            line = protocol.pointer_line(ref)
            assert line == f"projection(mcp-query): {ref.Query.endpoint} task_id={pipeline.task_id}"
            assert "\n" not in line
        assert protocol.name == "mcp-query"

    async def test_a_key_names_its_run(self, client: httpx.AsyncClient, adapter: McpQueryAdapter) -> None:
        """``project`` and ``fetch`` go by the key's run; without one, by the latest, which the reference names."""
        old = await Pipeline.create(client)
        await old.output("plan", "old")
        new = await old.another_run()
        await new.output("plan", "new")
        key = ProjectionKey(task_id=old.task_id, step="plan")
        kept = await adapter.project(key, {"plan": "new"})
        await old.another_run()
        refs = []
        for run, value in ((old, "old"), (new, "new")):
            of_run = key.model_copy(update={"run_id": run.run_id})
            assert await adapter.fetch(of_run) == value
            ref = await adapter.project(of_run, {"plan": value})
            assert ref.Query is not None
            assert ref.Query.key == of_run
            assert json.loads((await client.get(ref.Query.endpoint)).content) == value
            assert adapter.pointer_line(ref).endswith(f" task_id={old.task_id}")
            refs.append(ref)
        assert kept == refs[1]  # still the run that was the latest when it was made
        with pytest.raises(StepNotFound):
            await adapter.fetch(key)

    async def test_a_run_of_another_task_is_none(self, client: httpx.AsyncClient, adapter: McpQueryAdapter) -> None:
        """A key whose run is another task's, or nowhere, is NotFound, to project as to fetch."""
        pipeline, other = await Pipeline.create(client), await Pipeline.create(client)
        await other.output("plan", 1)
        for run_id in (other.run_id, "R-none", ""):
            key = ProjectionKey(task_id=pipeline.task_id, run_id=run_id, step="plan")
            for call in (adapter.fetch(key), adapter.project(key, {"plan": 1})):
                with pytest.raises(RunNotFound):
                    await call

    async def test_a_key_that_leads_nowhere_says_so(self, client: httpx.AsyncClient, adapter: McpQueryAdapter) -> None:
        """An empty task id is InvalidKey; no such task, run, step or path is NotFound, to project as to fetch."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("plan", {"a": 1})
        for call in (adapter.fetch(ProjectionKey(task_id="")), adapter.project(ProjectionKey(task_id=""), {})):
            with pytest.raises(InvalidKey):
                await call
        task_id = pipeline.task_id
        missing: list[tuple[ProjectionKey, type[NotFound]]] = [
            (ProjectionKey(task_id="T-none", step="plan"), TaskNotFound),
            (ProjectionKey(task_id=task_id, step="none"), StepNotFound),
            (ProjectionKey(task_id=task_id), StepNotFound),
            (ProjectionKey(task_id=task_id, step="plan", path="$.b"), ProjectionNotFound),
            (ProjectionKey(task_id=task_id, step="plan", path="["), ProjectionNotFound),
            (ProjectionKey(task_id=(await Pipeline.create(client, start=False)).task_id, step="plan"), RunNotFound),
        ]
        for key, kind in missing:
            with pytest.raises(kind):
                await adapter.fetch(key)
            if key.step is not None:
                with pytest.raises(ProjectionNotFound):
                    await adapter.project(key, {"plan": {"a": 1}} if key.path else {})
        with pytest.raises(InvalidKey):
            adapter.pointer_line(ProjectionRef.to_file("/x"))
        assert not issubclass(ProjectionNotFound, PathNotFound)

    async def test_the_store_comes_before_the_result(self, client: httpx.AsyncClient, adapter: McpQueryAdapter) -> None:
        """``fetch`` and the lists read the OutputStore first and the run's result after it, in the newest run alone."""
        pipeline = await Pipeline.create(
            client, blueprint_of(("plan", "$.draft"), ("code", "$.code"), names={"plan": "p"})
        )
        await pipeline.output("plan", "of the store")
        await pipeline.finish(result={"draft": "of the result", "code": [1, 2], "rest": 3})

        async def fetched(step: str | None, path: str | None = None) -> Any:
            return await adapter.fetch(ProjectionKey(task_id=pipeline.task_id, step=step, path=path))

        assert [await fetched(name) for name in ("p", "plan", "draft")] == ["of the store"] * 3
        assert await fetched("code", "$[1]") == 2
        assert await fetched(None, "$.rest") == 3
        listed = await adapter.list_steps(pipeline.task_id, None)
        assert listed == await adapter.list_steps(pipeline.task_id, pipeline.run_id)
        assert listed == await adapter.list_steps_by_run_id(pipeline.run_id)
        assert listed.model_dump(mode="json") == parsed(await pipeline.get())
        assert [(step.name, step.source) for step in listed.steps] == [("code", "result_ref"), ("p", "data_plane")]
        names = ["p", "plan", "draft", "code", "rest", "none"]
        resolved = [await adapter.resolve_step_name(pipeline.task_id, name) for name in names]
        assert resolved == ["p", "p", "p", "code", "rest", "none"]
        await pipeline.another_run()
        with pytest.raises(StepNotFound):
            await fetched("p")
        for wrong in ("R-none", (await Pipeline.create(client)).run_id):
            with pytest.raises(RunNotFound):
                await adapter.list_steps(pipeline.task_id, wrong)
        with pytest.raises(RunNotFound):
            await adapter.list_steps_by_run_id("R-none")
