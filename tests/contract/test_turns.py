"""Turns: what one turn of the event loop shares is as new as a read of one's own, and nothing of it stays behind.

Source: :mod:`app.storage.sqlite.turns`.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from app.storage.migrations import migrate
from app.storage.sqlite.identity import FileIdentity
from app.storage.sqlite.reader import SLICE_ROWS, CommitWatch, SqliteReaders
from app.storage.sqlite.turns import TurnReader, Turns
from app.storage.tables import tasks
from app.storage.urls import parse_database_url

GOALS = select(tasks.c.goal).order_by(tasks.c.seq)


class Stage:
    """A database that another process writes, and the turns of this one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.readers = SqliteReaders(path, FileIdentity(path))
        self.turns = Turns(self.readers, CommitWatch(path))
        self.reader = TurnReader(self.turns)

    def commit(self, *goals: str) -> None:
        """Add tasks as another process would: at once, whatever the loop is doing."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for goal in goals:
                connection.execute(
                    "INSERT INTO tasks (id, goal, created_at) VALUES (hex(randomblob(8)), ?, '')", (goal,)
                )

    async def goals(self) -> list[str]:
        return [row[0] for row in await self.reader.all(GOALS)]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    url = parse_database_url(f"sqlite:///{tmp_path}/turns.db")
    await asyncio.to_thread(migrate, url)
    made = Stage(url.path)
    yield made
    await asyncio.sleep(0)
    made.readers.close()
    made.turns._watch.close()


async def test_a_turn_sees_one_state_and_the_next_one_the_newest(stage: Stage) -> None:
    """A commit of another process shows in the next turn, and not in the middle of one."""
    stage.commit("first")
    version = stage.turns.version()
    assert await stage.goals() == ["first"]
    stage.commit("second")
    assert await stage.goals() == ["first"]
    assert stage.turns.version() == version
    await asyncio.sleep(0)
    assert stage.turns.version() != version
    assert await stage.goals() == ["first", "second"]


async def test_what_a_reader_was_told_of_is_there(stage: Stage) -> None:
    """Whatever is queued after a commit, by this thread or another, sees it, in the order in which it is queued."""
    seen: list[int] = []

    async def read_what_is_there() -> None:
        seen.append(len(await stage.goals()))

    def commit_and_tell(loop: asyncio.AbstractEventLoop) -> None:
        stage.commit("from a thread")
        told = asyncio.run_coroutine_threadsafe(read_what_is_there(), loop)
        told.result(20)

    loop = asyncio.get_running_loop()
    for number in range(20):
        await read_what_is_there()  # the turn has its snapshot
        stage.commit("in the same turn")
        queued = asyncio.ensure_future(read_what_is_there())
        await queued
        await asyncio.to_thread(commit_and_tell, loop)
        assert seen == [2 * number, 2 * number + 1, 2 * number + 2]
        seen.clear()


async def test_a_snapshot_is_never_older_than_the_version_that_it_is_remembered_under(stage: Stage) -> None:
    """A commit that a turn's snapshot lacks is not counted in the turn's version either, though asked for later."""
    version = stage.turns.version()
    await asyncio.sleep(0)
    assert await stage.goals() == []
    stage.commit("after the snapshot")
    assert stage.turns.version() == version
    await asyncio.sleep(0)
    assert stage.turns.version() != version


async def test_a_long_list_has_the_turns_snapshot_to_itself(stage: Stage) -> None:
    """It gives the loop back, sees one state to its end, and others begin anew and see the newest meanwhile."""
    goals = [f"goal {number}" for number in range(3 * SLICE_ROWS)]
    stage.commit(*goals)
    long = asyncio.ensure_future(stage.goals())
    await asyncio.sleep(0)
    assert not long.done()
    stage.commit("added meanwhile")
    count = select(tasks.c.goal).where(tasks.c.goal == "added meanwhile")
    assert await stage.reader.first(count) == ("added meanwhile",)
    assert await long == goals
    await asyncio.sleep(0)
    assert len(stage.readers._idle) == 2
    assert not any(reader._connection.in_transaction for reader in stage.readers._idle)


async def test_a_long_list_that_is_cancelled_leaves_nothing_open(stage: Stage) -> None:
    """Its reader comes back without a transaction, and sees the newest state after that."""
    stage.commit(*(f"goal {number}" for number in range(3 * SLICE_ROWS)))
    long = asyncio.ensure_future(stage.goals())
    await asyncio.sleep(0)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    (reader,) = stage.readers._idle
    assert not reader._connection.in_transaction
    stage.commit("after it")
    assert (await stage.goals())[-1] == "after it"
