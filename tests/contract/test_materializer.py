"""Files beside the store: they follow the newest Final, and whatever becomes of them fails no submit."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from pydantic import ValidationError

from app.config import Settings
from app.domain.answers import Answer, render_output
from app.domain.errors import Unavailable
from app.domain.grants import Grant
from app.domain.records import Kind, RunStatus, Source
from app.domain.rendering import read_submission, render_submission
from app.main import create_app
from app.observability import REGISTRY
from app.services.materializer import Materializer, Submitted
from app.storage.stores import WriteStores
from tests.contract.pipeline import Dispatched, Pipeline, parsed, serving


def _failures(what: str) -> float:
    return REGISTRY.get_sample_value("stepplane_materialize_failures_total", {"what": what}) or 0.0


def _final(dispatched: Dispatched, value: Any, *, ok: bool = True) -> bytes:
    front = {"task_id": dispatched["step_id"], "step": dispatched["name"], "attempt": dispatched["attempt"], "ok": ok}
    return render_submission(front, value)


def _missing(root: Path) -> Path:
    return root / "missing"


def _file(root: Path) -> Path:
    (root / "file").write_text("not a directory")
    return root / "file"


def _blocked(root: Path) -> Path:
    (root / "workspace").write_text("not a directory")
    return root


def _device(_: Path) -> Path:
    return Path("/dev/full")


class TestFailOpen:
    """No trouble with files fails a submit."""

    @pytest.fixture
    def dialect(self) -> str:
        """One database is enough: files are none of its affairs."""
        return "sqlite"

    @pytest.mark.parametrize("root", [_missing, _file, _blocked, _device])
    async def test_a_directory_that_cannot_be_written_to_fails_no_submit(
        self, client: httpx.AsyncClient, work_dir: Path, root: Callable[[Path], Path]
    ) -> None:
        """The output is kept and served from the store; the failure is logged with its ids, and counted."""
        directory = root(work_dir)
        before = sorted(work_dir.rglob("*"))
        pipeline = await Pipeline.create(client, work_dir=str(directory))
        counted = {what: _failures(what) for what in ("view", "step", "artifact")}
        with structlog.testing.capture_logs() as events:
            dispatched = await pipeline.dispatch("plan")
            await pipeline.submit(dispatched, '{"a": 1}')
            await pipeline.stage(dispatched, "part.md", "# part")
        assert "ctx_projection" not in dispatched
        assert json.loads(await pipeline.content("plan")) == {"a": 1}
        assert await pipeline.content("part.md") == b"# part"
        assert all("file_path" not in step for step in await pipeline.steps())
        assert (await pipeline.get("plan", format="file")).status_code == 404
        assert {what: _failures(what) - count for what, count in counted.items()} == dict.fromkeys(counted, 1)
        logged = [event for event in events if event["event"] == "materialize_failed"]
        assert [event["what"] for event in logged] == ["view", "step", "artifact"]
        assert all(event["step_id"] == dispatched["step_id"] for event in logged)
        assert all((event["run_id"], event["log_level"]) == (pipeline.run_id, "warning") for event in logged[1:])
        assert sorted(work_dir.rglob("*")) == before

    @pytest.mark.parametrize("name", ["a/b", "..", "a\x00b", "x" * 201, "_ctx", "a\\b", "new\nline"])
    async def test_a_name_that_can_be_no_file_fails_no_submit(
        self, client: httpx.AsyncClient, work_dir: Path, name: str
    ) -> None:
        """A step or part whose name is no file name is kept and served all the same; that it has no file is counted."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        steps, parts = _failures("step"), _failures("artifact")
        dispatched = await pipeline.dispatch(name)
        await pipeline.submit(dispatched, "final")
        stager = await pipeline.dispatch("stager")
        await pipeline.stage(stager, f"{name}/part", "part")
        view = Path(dispatched["ctx_projection"]).read_bytes()
        assert json.loads(await pipeline.content(name)) == "final"
        assert await pipeline.content(f"{name}/part") == b"part"
        assert (_failures("step") - steps, _failures("artifact") - parts) == (1, 1)
        files = {path.name for path in work_dir.rglob("*") if path.is_file()}
        assert files == {"_ctx.md"}
        assert json.loads(read_submission(view))["agent"] == name

    async def test_without_a_root_there_is_nothing_to_fail(self, client: httpx.AsyncClient) -> None:
        """Where no root resolves no file is wanted: nothing is counted, nothing logged, and the submit is kept."""
        pipeline = await Pipeline.create(client)
        counted = {what: _failures(what) for what in ("view", "step", "artifact")}
        with structlog.testing.capture_logs() as events:
            dispatched = await pipeline.output("plan", 1)
            await pipeline.stage(dispatched, "part", "x")
        assert {what: _failures(what) for what in counted} == counted
        assert not [event for event in events if event["event"] == "materialize_failed"]
        assert await pipeline.names() == ["part", "plan"]

    async def test_a_disk_that_works_again_is_written_to_again(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """After a failure the next Final has its file, and an older one never gets one back."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.dispatch("plan")
        await pipeline.submit(dispatched, "first")
        path = Path((await pipeline.step("plan"))["file_path"])
        path.parent.rename(work_dir / "away")
        path.parent.write_text("in the way")
        await pipeline.submit(dispatched, "second")
        assert "file_path" not in await pipeline.step("plan")
        path.parent.unlink()
        (work_dir / "away").rename(path.parent)
        assert json.loads(await pipeline.content("plan")) == "second"
        await pipeline.submit(dispatched, "third")
        assert await pipeline.content("plan") == path.read_bytes() == _final(dispatched, "third")

    async def test_a_root_outside_the_projection_roots_is_none(
        self, database_url: str, work_dir: Path, tmp_path: Path
    ) -> None:
        """Outside the projection_roots nothing is written; the submit is kept, the failure counted."""
        (tmp_path / "allowed").mkdir()
        application = create_app(Settings(database_url=database_url, projection_roots=[tmp_path / "allowed"]))
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test") as http,
        ):
            before = _failures("step")
            outside = await Pipeline.create(http, work_dir=str(work_dir))
            assert "ctx_projection" not in await outside.output("plan", 1)
            assert "file_path" not in await outside.step("plan")
            inside = await Pipeline.create(http, work_dir=str(tmp_path / "allowed"))
            await inside.output("plan", 1)
            assert Path((await inside.step("plan"))["file_path"]).is_relative_to(tmp_path / "allowed")
        assert _failures("step") - before == 1
        assert list(work_dir.iterdir()) == []

    @pytest.mark.parametrize(("file_mode", "expected"), [("0600", 0o600), ("0644", 0o644), ("640", 0o640)])
    async def test_the_setting_says_who_may_read_files(
        self, database_url: str, work_dir: Path, file_mode: str, expected: int
    ) -> None:
        """``STEPPLANE_FILE_MODE`` is the mode of a view, a Final and a part."""
        async with serving(Settings(database_url=database_url, file_mode=file_mode)) as http:
            pipeline = await Pipeline.create(http, work_dir=str(work_dir))
            await pipeline.stage(await pipeline.output("plan", 1), "part", "x")
        modes = {path.name: path.stat().st_mode & 0o777 for path in work_dir.rglob("*") if path.is_file()}
        assert modes == dict.fromkeys(["_ctx.md", "plan.md", "part"], expected)

    @pytest.mark.parametrize("file_mode", ["0400", "0777", "1600", "0o600", "rw", "", "0602", "06000"])
    def test_a_mode_that_makes_no_sense_is_refused(self, file_mode: str) -> None:
        """A mode under which the server could not write, or with bits for programs, is an error at the start."""
        with pytest.raises(ValidationError):
            Settings(file_mode=file_mode)

    async def test_a_database_that_is_gone_meanwhile_fails_no_submit(self, work_dir: Path) -> None:
        """When the file could not be noted, after the output was kept, that is logged and counted, not raised."""
        before = _failures("step")
        submitted = Submitted(_grant(str(work_dir)), _answer(), 1, "value")
        await Materializer(_Gone(), None).materialize(submitted)
        assert _failures("step") - before == 1

    @pytest.mark.parametrize("fault", [RuntimeError("a bug"), RecursionError(), MemoryError(), ValueError("NUL")])
    async def test_nothing_that_happens_after_the_commit_fails_a_submit(self, work_dir: Path, fault: Exception) -> None:
        """Whatever goes wrong while a kept output is written to its file is logged and counted, and not raised."""
        before = _failures("step")
        submitted = Submitted(_grant(str(work_dir)), _answer(), 1, "value")
        with structlog.testing.capture_logs() as events:
            await Materializer(_Gone(fault), None).materialize(submitted)
        assert _failures("step") - before == 1
        assert [(event["event"], event["exc_info"]) for event in events] == [("materialize_failed", fault)]


class _Gone:
    """A database that cannot be reached."""

    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault or Unavailable()

    kind = "gone"
    is_pooled = False

    def snapshot(self) -> Any:
        raise Unavailable

    def point(self) -> Any:
        raise Unavailable

    def version(self) -> None:
        """Nothing to tell."""

    def stream(self, body_id: int, size_bytes: int) -> None:
        """Nothing to stream."""

    async def write(
        self,
        work: Callable[[WriteStores], Any],  # noqa: ARG002 - as the port has it
        *,
        makes_room: bool = False,  # noqa: ARG002 - as the port has it
    ) -> Any:
        raise self._fault

    async def shrink(self) -> None:
        """Nothing to give back."""

    def is_full(self) -> bool:
        return False

    def require_there(self) -> None:
        raise Unavailable

    async def close(self) -> None:
        """Nothing to close."""


def _grant(root: str) -> Grant:
    return Grant(
        task_id="T-1",
        run_id="R-1",
        run_status=RunStatus.RUNNING,
        step_id="ST-1",
        attempt=1,
        step_ref="plan",
        name="plan",
        occurrence=1,
        expires_at="",
        projection_root=root,
        dir_template="{task_id}",
        policy="{}",
        view="{}",
    )


def _answer() -> Answer:
    rendered = render_output("value", Kind.STEP)
    return Answer(
        name="plan",
        kind=Kind.STEP,
        source=Source.DATA_PLANE,
        ok=True,
        step_id="ST-1",
        step_ref="plan",
        attempt=1,
        attempts=1,
        occurrence=1,
        occurrences=1,
        submitted_at="",
        body_id=1,
        encoding=rendered.encoding,
        json_size=rendered.json_size,
        json_sha256=rendered.json_sha256,
        raw_size=rendered.raw_size,
        raw_sha256=rendered.raw_sha256,
        preview=rendered.preview,
        truncated=rendered.truncated,
    )


class TestNewest:
    """The file is the newest Final's, and what is told of it is true at every moment."""

    async def test_the_file_ends_as_the_newest_final_while_a_reader_sees_nothing_torn(
        self, client: httpx.AsyncClient, work_dir: Path
    ) -> None:
        """Finals of two attempts at once: each answer's ETag is that of its bytes; at the end file and plane agree."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        first = await pipeline.dispatch("plan")
        second = await pipeline.retry(first)
        await pipeline.submit(first, "begun")
        seen: set[bytes] = set()
        done = asyncio.Event()

        async def poll() -> None:
            while not done.is_set():
                content = await pipeline.get("plan", "/content")
                assert content.headers["etag"] == f'"sha256:{hashlib.sha256(content.content).hexdigest()}"'
                assert int(content.headers["content-length"]) == len(content.content)
                seen.add(content.content)
                again = await client.get(content.request.url, headers={"If-None-Match": content.headers["etag"]})
                assert again.status_code == 304 or again.headers["etag"] != content.headers["etag"]
                (summary,) = await pipeline.steps()
                assert len(summary["sha256"]) == 64
                await asyncio.sleep(0)  # in one process, a read that never waits would leave the writers no turn

        async def submit(dispatched: Dispatched, who: str) -> None:
            for number in range(12):
                await pipeline.submit(dispatched, f"{who} {number} " + "x" * 3_000)

        readers = [asyncio.create_task(poll()) for _ in range(2)]
        await asyncio.gather(
            *(submit(first, f"late {n}") for n in range(2)), *(submit(second, f"new {n}") for n in range(2))
        )
        done.set()
        await asyncio.gather(*readers)

        summary = await pipeline.step("plan")
        newest = json.loads(await pipeline.content("plan", format="json"))
        path = Path(summary["file_path"])
        assert newest.startswith("new ")
        assert path.read_bytes() == await pipeline.content("plan") == _final(second, newest)
        assert summary["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert (await pipeline.steps())[0] == summary
        assert sorted(path.parent.iterdir()) == [path.parent / "_ctx.md", path]
        assert len(seen) > 5
        assert (await pipeline.step("plan", attempt=2))["file_path"] == str(path)
        late = await pipeline.step("plan", attempt=1)
        assert "file_path" not in late
        assert json.loads(await pipeline.content("plan", attempt=1)).startswith("late ")

    async def test_a_late_final_of_an_older_attempt_takes_the_file_from_nobody(
        self, client: httpx.AsyncClient, work_dir: Path
    ) -> None:
        """After a late Final of attempt 1 the file, and what is told of attempt 2 by any query, are as before."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        first = await pipeline.dispatch("plan")
        second = await pipeline.retry(first)
        await pipeline.submit(second, "second")
        before = [parsed(await pipeline.get("plan", **query)) for query in ({}, {"attempt": 2}, {"occurrence": 1})]
        body = await pipeline.content("plan", attempt=2)
        await pipeline.submit(first, "late")
        assert [
            parsed(await pipeline.get("plan", **query)) for query in ({}, {"attempt": 2}, {"occurrence": 1})
        ] == before
        assert body == await pipeline.content("plan", attempt=2) == Path(before[0]["file_path"]).read_bytes()
        assert json.loads(await pipeline.content("plan", attempt=1)) == "late"

    async def test_an_older_attempt_is_json_whatever_root_the_newer_one_has(
        self, client: httpx.AsyncClient, work_dir: Path
    ) -> None:
        """A file belongs to the newest Final of its step: an attempt with another root, or none, ends the old one's."""
        for newer in ({}, {"work_dir": str(work_dir / "other")}):
            (work_dir / "other").mkdir(exist_ok=True)
            pipeline = await Pipeline.create(client)
            first = await pipeline.dispatch("plan", ctx={"work_dir": str(work_dir)})
            await pipeline.submit(first, "first")
            await pipeline.stage(first, "part", "first")
            assert "file_path" in await pipeline.step("plan")
            second = await pipeline.retry(first, ctx=newer)
            await pipeline.submit(second, "second")
            await pipeline.stage(second, "part", "second")
            for name, body in (("plan", b'"first"'), ("part", b"first")):
                assert "file_path" not in await pipeline.step(name, attempt=1)
                assert await pipeline.content(name, attempt=1) == body
            assert ("file_path" in await pipeline.step("plan")) == bool(newer)

    async def test_each_occurrence_has_its_own_file(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """Dispatches of one name write to directories of their own, and each is served by its occurrence."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = [await pipeline.dispatch("measure") for _ in range(3)]
        await asyncio.gather(*(pipeline.submit(each, f"value {n}") for n, each in enumerate(dispatched)))
        paths = set()
        for number, each in enumerate(dispatched):
            body = await pipeline.content("measure", occurrence=number + 1)
            assert body == _final(each, f"value {number}")
            paths.add((await pipeline.step("measure", occurrence=number + 1))["file_path"])
        assert len(paths) == 3
        assert (await pipeline.step("measure"))["occurrence"] == 3
