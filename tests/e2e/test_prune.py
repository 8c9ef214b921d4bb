"""The command ``prune``: what ended long ago goes, it says how much that was, and a running run is never touched."""

import asyncio
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.cli import main
from app.config import Settings
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Pipeline, parsed, serving


class Prune:
    """Runs the command on the database of a test."""

    def __init__(self, database_url: str, capture: pytest.CaptureFixture[str]) -> None:
        self._url = database_url
        self.capture = capture

    def __call__(self, *arguments: str, status: int = 0) -> str:
        self.capture.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["prune", "--database-url", self._url, *arguments])
        told = self.capture.readouterr()
        assert (ended.value.code, "Traceback" in told.err) == (status, False), told
        (line,) = (told.err if status else told.out).splitlines()
        return line


@pytest.fixture
def prune(database_url: str, capfd: pytest.CaptureFixture[str]) -> Prune:
    return Prune(database_url, capfd)


@pytest.fixture
def kept(database_url: str) -> dict[str, str]:
    """Three ended runs and a running one of one task, and an ended one of another; all but the newest are old."""

    async def fill() -> dict[str, str]:
        async with serving(Settings(database_url=database_url)) as http:
            first = await Pipeline.create(http)
            runs = {"oldest": first, "older": await first.another_run(), "old": await first.another_run()}
            runs |= {"running": await first.another_run(), "of another": await Pipeline.create(http)}
            runs["young"] = await first.another_run()
            for run in runs.values():
                await run.output("step", "x" * 98)
            for name, run in runs.items():
                if name != "running":
                    await run.finish()
            ids = {name: run.run_id for name, run in runs.items()}
        await _age(database_url, [run_id for name, run_id in ids.items() if name != "young"])
        return ids

    return asyncio.run(fill())


async def _age(database_url: str, run_ids: list[str]) -> None:
    """Let runs have changed last a long time ago."""
    engine = create_async_engine(parse_database_url(database_url).async_url)
    async with engine.begin() as connection:
        for run_id in run_ids:
            await connection.execute(
                text("UPDATE runs SET updated_at = '2020-01-01T00:00:00.000Z' WHERE id = :id"), {"id": run_id}
            )
    await engine.dispose()


def _left(database_url: str, kept: dict[str, str]) -> set[str]:
    async def look() -> set[str]:
        async with serving(Settings(database_url=database_url, stale_run_after_seconds=0)) as http:
            ids = {run["id"] for run in parsed(await http.get("/v1/runs"))["runs"]}
            outputs = parsed(await http.get("/v1/status"))["counts"]["outputs"]
        assert outputs == len(ids)
        return {name for name, run_id in kept.items() if run_id in ids}

    return asyncio.run(look())


def test_prune_says_what_it_removes_and_spares_what_runs(prune: Prune, kept: dict[str, str], database_url: str) -> None:
    """A dry run only tells; the real one removes the same runs and bytes, once; the running and the young stay."""
    told = prune("--older-than", "30d", "--dry-run")
    assert told.startswith("would remove 4 runs, 400 bytes of outputs, from ")
    assert _left(database_url, kept) == set(kept)
    told = told.replace("would remove", "removed").replace("would end", "ended")
    assert prune("--older-than", "30d") == told
    assert _left(database_url, kept) == {"running", "young"}
    assert prune("--older-than", "30d").startswith("removed 0 runs, 0 bytes")


def test_prune_keeps_the_newest_runs_of_each_task(prune: Prune, kept: dict[str, str], database_url: str) -> None:
    """With ``--keep-last`` the newest runs of each task stay, the running one counted among them."""
    assert prune("--older-than", "12h", "--keep-last", "3").startswith("removed 2 runs, 200 bytes")
    assert _left(database_url, kept) == {"old", "running", "young", "of another"}


def test_prune_needs_an_age(prune: Prune, kept: dict[str, str], database_url: str) -> None:
    """No age, none that is one, or a negative N is a wrong command line; an age beyond all dates removes nothing."""
    for arguments in (
        [],
        ["--older-than", "30"],
        ["--older-than", "-1d"],
        ["--older-than", "1d", "--keep-last", "-1"],
        ["--older-than", "1d", "--keep-last", "9" * 20],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["prune", "--database-url", database_url, *arguments])
        assert ended.value.code == 2
    assert prune("--older-than", "999999d").startswith("removed 0 runs, 0 bytes")
    assert _left(database_url, kept) == set(kept)


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_prune_makes_no_database(prune: Prune, database_url: str) -> None:
    """Where there is no database that is one line, and none is made."""
    path = parse_database_url(database_url).path
    path.unlink()
    assert "there is no database" in prune("--older-than", "30d", status=1)
    assert not path.exists()


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_prune_names_the_database_of_make_run(
    prune: Prune, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the database is not there, and that of ``make run`` is, the line says how to name it."""
    (tmp_path / ".data").mkdir()
    parse_database_url(database_url).path.rename(tmp_path / ".data" / "stepplane.db")
    monkeypatch.chdir(tmp_path)
    line = prune("--older-than", "30d", status=1)
    assert line.endswith("that of `make run` is STEPPLANE_DATABASE_URL=sqlite:///.data/stepplane.db")
    main_line = Prune(line.rpartition("=")[2], prune.capture)("--older-than", "30d")
    assert main_line.startswith("removed 0 runs, 0 bytes of outputs, from sqlite:///.data/stepplane.db")


def test_prune_ends_what_nobody_writes_to(
    prune: Prune, kept: dict[str, str], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that nothing was written to for the setting's time is ended, and said to be; with 0 it goes on."""
    monkeypatch.setenv("STEPPLANE_STALE_RUN_AFTER_SECONDS", "0")
    assert "nothing was written to" not in prune("--older-than", "999999d")
    assert _status(database_url, kept["running"]) == "running"
    monkeypatch.delenv("STEPPLANE_STALE_RUN_AFTER_SECONDS")
    assert prune("--older-than", "999999d", "--dry-run").endswith("; would end 1 run that nothing was written to")
    assert _status(database_url, kept["running"]) == "running"
    assert prune("--older-than", "999999d").endswith("; ended 1 run that nothing was written to")
    assert _status(database_url, kept["running"]) == "interrupted"
    assert "nothing was written to" not in prune("--older-than", "999999d")


def _status(database_url: str, run_id: str) -> str:
    async def look() -> str:
        async with serving(Settings(database_url=database_url, stale_run_after_seconds=0)) as http:
            return str(parsed(await http.get(f"/v1/runs/{run_id}"))["status"])

    return asyncio.run(look())


async def test_the_background_setting_removes_what_the_command_would(database_url: str) -> None:
    """With RETENTION_DAYS and RETENTION_KEEP_LAST a server removes old runs by itself, and never a running one."""
    async with serving(Settings(database_url=database_url)) as http:
        first = await Pipeline.create(http)
        runs = [first, await first.another_run(), await first.another_run(), await first.another_run()]
        for run in (runs[0], runs[1], runs[3]):
            await run.finish()
    await _age(database_url, [run.run_id for run in runs])
    settings = Settings(database_url=database_url, retention_days=30, retention_keep_last=1, stale_run_after_seconds=0)
    async with serving(settings) as http:
        async with asyncio.timeout(30):
            while await _ids(http) != {runs[2].run_id, runs[3].run_id}:  # noqa: ASYNC110 - a server's own time
                await asyncio.sleep(0.02)
        assert parsed(await http.get(f"/v1/runs/{runs[2].run_id}"))["status"] == "running"


async def _ids(http: httpx.AsyncClient) -> set[str]:
    return {run["id"] for run in parsed(await http.get("/v1/runs"))["runs"]}
