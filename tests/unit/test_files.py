"""FileProjectionAdapter: whole files or none, inside their directory or nowhere, and every value read back."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from app.domain.errors import InvalidKey, ProjectionIo, ProjectionNotFound, ProjectionSerialize
from app.domain.placement import ProjectionPlacement
from app.domain.projection import ProjectionKey, ProjectionRef
from app.domain.rendering import render_json, render_submission
from app.storage.files.adapter import FileProjectionAdapter
from tests.unit.strategies import deep_values, json_values, names

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "placement.json").read_text(encoding="utf-8"))
UNSAFE = [*VECTORS["unsafe_stems"], "a" * 201, "é" * 101, "\ud800", "a\nb", "a\x85b"]

PLACEMENT = ProjectionPlacement(dir_template="out/{task_id}/ctx")
file_names = names.filter(lambda name: not set(name) & {"/", "\\"} and name.isprintable() and name not in {".", ".."})
_STEM_CHARS = 50  # of four bytes at most: 200 are what a file name may have


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a placement."""
    directory = tmp_path / "root"
    directory.mkdir()
    return directory


@pytest.fixture
def adapter(root: Path) -> FileProjectionAdapter:
    """An adapter on it."""
    return FileProjectionAdapter(root, PLACEMENT)


def _everything(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def _key(step: str | None = "plan", path: str | None = None, task_id: str = "ST-1") -> ProjectionKey:
    return ProjectionKey(task_id=task_id, step=step, path=path)


def _path(ref: ProjectionRef) -> Path:
    assert ref.File is not None
    return Path(ref.File.path)


class TestRoundTrip:
    """What is written is read back."""

    def test_any_value_of_any_step_is_read_back(self, tmp_path: Path) -> None:
        """Materialize, then fetch: the very value, for any JSON value and any name that can be a file's."""
        adapter = FileProjectionAdapter(tmp_path, PLACEMENT)

        async def there_and_back(value: Any, name: str) -> Any:
            await adapter.materialize_submission(_key(name), value, 1, ok=True)
            return await adapter.fetch(_key(name))

        with asyncio.Runner() as runner:

            @given(value=json_values | deep_values, name=file_names.filter(lambda name: len(name) <= _STEM_CHARS))
            @settings(max_examples=60, deadline=None)
            def check(value: Any, name: str) -> None:
                assert render_json(runner.run(there_and_back(value, name))) == render_json(value)

            check()

    @pytest.mark.parametrize("path", [None, "$", "$.a", '$.a["b c"]', "$.a.list[-1]", "$.null"])
    async def test_what_is_projected_is_what_is_fetched(self, adapter: FileProjectionAdapter, path: str | None) -> None:
        """``fetch`` of a key gives what the key resolves to in the ctx that was projected, with a path too."""
        ctx = {"plan": {"a": {"b c": 1, "list": [1, {"x": "```\n"}]}, "null": None}, "other": 2}
        key = _key(path=path)
        found = key.resolve(ctx)
        assert found is not None
        ref = await adapter.project(key, ctx)
        assert await adapter.fetch(key) == found.value
        assert _path(ref).is_file()

    async def test_the_whole_ctx_is_projected_without_a_step(self, adapter: FileProjectionAdapter, root: Path) -> None:
        """A key without a step stands for the whole ctx, in ``_ctx.md``."""
        ctx = {"plan": 1, "other": [2]}
        ref = await adapter.project(_key(None), ctx)
        assert _path(ref) == root / "out/ST-1/ctx/_ctx.md"
        assert await adapter.fetch(_key(None)) == ctx
        assert await adapter.fetch(_key(None, "$.other[0]")) == 2

    async def test_projecting_again_replaces(self, adapter: FileProjectionAdapter, root: Path) -> None:
        """The same key again is a full replace of the one file, never an append."""
        for value in ([1] * 100, 2):
            await adapter.project(_key(), {"plan": value})
            assert await adapter.fetch(_key()) == value
        assert _everything(root) == ["out", "out/ST-1", "out/ST-1/ctx", "out/ST-1/ctx/plan.md"]

    async def test_a_submission_says_what_it_is(self, adapter: FileProjectionAdapter, root: Path) -> None:
        """A Final's file is front matter of task_id, step, attempt and ok, and the rendered value in a fence."""
        ref = await adapter.materialize_submission(_key("a: b"), {"z": 1, "a": "é"}, 3, ok=False)
        assert _path(ref) == root / "out/ST-1/ctx/a: b.md"
        front, fence = _path(ref).read_text().removeprefix("---\n").split("---\n", 1)
        assert yaml.safe_load(front) == {"task_id": "ST-1", "step": "a: b", "attempt": 3, "ok": False}
        assert fence == '\n```json\n{\n  "a": "é",\n  "z": 1\n}\n```\n'

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("# raw\n", b"# raw\n"),
            ("", b""),
            ("a\x00\u2028é", "a\x00\u2028é".encode()),
            ({"b": 1}, b'{\n  "b": 1\n}'),
            (None, b"null"),
        ],
    )
    async def test_a_part_is_its_raw_bytes(self, adapter: FileProjectionAdapter, value: Any, expected: bytes) -> None:
        """A part's file is the string's own bytes, and rendered JSON of any other value."""
        ref = await adapter.materialize_part("ST-1", "part.md", value, canonical="plan")
        assert _path(ref).name == "part.md"
        assert _path(ref).read_bytes() == expected

    async def test_a_pointer_never_carries_the_value(self, adapter: FileProjectionAdapter) -> None:
        """The pointer is one line that names the file; a locator of another adapter is no key of this one."""
        ref = await adapter.project(_key(), {"plan": "the value"})
        assert adapter.pointer_line(ref) == f"projection(file): {_path(ref)}"
        assert ref.model_dump() == {"File": {"path": str(_path(ref))}}
        with pytest.raises(InvalidKey):
            adapter.pointer_line(ProjectionRef.to_query("/v1", _key()))


class TestRefusals:
    """What is refused, and that it leaves nothing behind."""

    @pytest.mark.parametrize("name", UNSAFE)
    async def test_a_name_that_is_no_file_name_is_refused_before_anything_is_made(
        self, adapter: FileProjectionAdapter, root: Path, name: str
    ) -> None:
        """A step, part or task id that is no plain file name is InvalidKey, and not one directory was created."""
        with pytest.raises(InvalidKey):
            await adapter.materialize_submission(_key(name), 1, 1, ok=True)
        with pytest.raises(InvalidKey):
            await adapter.materialize_part("ST-1", name, 1)
        with pytest.raises(InvalidKey):
            await adapter.project(_key(name), {name: 1})
        with pytest.raises(InvalidKey):
            await adapter.materialize_part(name, "part", 1)
        with pytest.raises(InvalidKey):
            await adapter.materialize_submission(_key(task_id=name), 1, 1, ok=True)
        with pytest.raises(InvalidKey):
            await adapter.fetch(_key(name))
        assert _everything(root) == []

    async def test_a_part_may_not_be_called_as_the_steps_own_files(
        self, adapter: FileProjectionAdapter, root: Path
    ) -> None:
        """``<canonical>.md`` and ``_ctx.md`` belong to the Final and the view; a Final is not called ``_ctx``."""
        for name in ("plan.md", "_ctx.md"):
            with pytest.raises(InvalidKey):
                await adapter.materialize_part("ST-1", name, "x", canonical="plan")
        for step in ("_ctx", None):
            with pytest.raises(InvalidKey):
                await adapter.materialize_submission(_key(step), 1, 1, ok=True)
        assert _everything(root) == []

    async def test_a_key_that_leads_nowhere_makes_no_file(self, adapter: FileProjectionAdapter, root: Path) -> None:
        """An empty task id is InvalidKey, an unresolvable key NotFound, and neither leaves a trace."""
        with pytest.raises(InvalidKey):
            await adapter.project(_key(task_id=""), {"plan": 1})
        for key in (_key("missing"), _key(path="$.missing"), _key(path="[")):
            with pytest.raises(ProjectionNotFound):
                await adapter.project(key, {"plan": {}})
        assert _everything(root) == []

    async def test_what_is_no_json_value_is_not_written(self, adapter: FileProjectionAdapter, root: Path) -> None:
        """A value that cannot be rendered is ProjectionSerialize, and no file is made."""
        with pytest.raises(ProjectionSerialize):
            await adapter.materialize_submission(_key(), {1: 2}, 1, ok=True)
        with pytest.raises(ProjectionSerialize):
            await adapter.materialize_part("ST-1", "part", {"a": object()})
        assert _everything(root) == []

    @pytest.mark.parametrize(
        "given", ["/a\x00b", "/\ud800", "/nowhere/at all", "/" + "x" * 5000, "/dev/null", "relative/root"]
    )
    async def test_a_root_that_is_no_directory_is_a_fault_of_its_own_kind(self, given: str) -> None:
        """A root that is missing, no directory or no possible path is a fault of projection, never a crash."""
        with pytest.raises((ProjectionIo, InvalidKey)):
            await FileProjectionAdapter(given, PLACEMENT).materialize_submission(_key(), 1, 1, ok=True)
        assert not Path("relative").exists()
        with pytest.raises((ProjectionIo, InvalidKey, ProjectionNotFound)):
            await FileProjectionAdapter(given, PLACEMENT).fetch(_key())


class TestReading:
    """What is not read back."""

    async def test_a_missing_file_is_not_found(self, adapter: FileProjectionAdapter) -> None:
        """Without a file, or with a path that leads nowhere in its value, there is no such projection."""
        with pytest.raises(ProjectionNotFound):
            await adapter.fetch(_key())
        await adapter.materialize_submission(_key(), {"a": 1}, 1, ok=True)
        for path in ("$.b", "$[0]", "$.a.b", "["):
            with pytest.raises(ProjectionNotFound):
                await adapter.fetch(_key(path=path))

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"plain",
            b"```json\n{",
            b"---\n---\n\n```json\nno json\n```\n",
            b"---\n---\n\n```json\n\n```\n",
            b"---\n---\n\n```json\nNaN\n```\n",
            b"---\n---\n\n```json\n\xff\n```\n",
        ],
    )
    async def test_a_file_that_cannot_be_read_back_says_so(self, adapter: FileProjectionAdapter, body: bytes) -> None:
        """A file without a fence, or with no JSON in it, is ProjectionSerialize."""
        path = _path(await adapter.materialize_submission(_key(), 1, 1, ok=True))
        path.write_bytes(body)
        with pytest.raises(ProjectionSerialize):
            await adapter.fetch(_key())

    async def test_no_link_is_followed(self, adapter: FileProjectionAdapter, tmp_path: Path) -> None:
        """A link in the place of the file, or of a directory on the way, leads to nothing that is read."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "plan.md").write_bytes(render_submission({}, "secret"))
        path = _path(await adapter.materialize_submission(_key(), 1, 1, ok=True))
        path.unlink()
        path.symlink_to(outside / "plan.md")
        with pytest.raises((ProjectionIo, ProjectionNotFound)):
            await adapter.fetch(_key())
        path.unlink()
        path.parent.rmdir()
        path.parent.symlink_to(outside)
        with pytest.raises((ProjectionIo, ProjectionNotFound)):
            await adapter.fetch(_key())

    async def test_what_is_no_regular_file_is_not_read(self, adapter: FileProjectionAdapter) -> None:
        """A directory or a named pipe in the place of the file is refused, and the pipe is not waited for."""
        path = _path(await adapter.materialize_submission(_key(), 1, 1, ok=True))
        for put in (Path.mkdir, os.mkfifo):
            path.unlink()
            put(path)
            with pytest.raises((ProjectionIo, ProjectionNotFound)):
                await asyncio.wait_for(adapter.fetch(_key()), 30)
            path.rmdir() if path.is_dir() else None
            path.touch()


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let the kernel refuse to write any file past a mebibyte, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestReplacing:
    """Atomic replaces."""

    async def test_a_reader_sees_one_whole_content_or_the_other(self, adapter: FileProjectionAdapter) -> None:
        """While a file is replaced again and again, whoever reads it finds it there and whole, at every moment."""
        bodies = ["a" * 300_000, "b" * 200_000]
        path = _path(await adapter.materialize_part("ST-1", "part", bodies[0]))
        whole = {body.encode() for body in bodies}
        seen: list[set[bytes]] = [set(), set()]
        done = threading.Event()

        def read(found: set[bytes]) -> None:
            while not done.is_set():
                found.add(path.read_bytes())

        readers = [threading.Thread(target=read, args=(found,)) for found in seen]
        for reader in readers:
            reader.start()
        for turn in range(60):
            await adapter.materialize_part("ST-1", "part", bodies[turn % 2])
        done.set()
        for reader in readers:
            reader.join()
        assert all(found and found <= whole for found in seen)
        assert path.read_bytes() == bodies[1].encode()

    async def test_many_writers_of_one_file_leave_one_whole_content(
        self, adapter: FileProjectionAdapter, root: Path
    ) -> None:
        """Writers at the same time never mix: one of them has the file, and no temporary file stays."""
        bodies = [str(number) * 50_000 for number in range(8)]
        refs = await asyncio.gather(*(adapter.materialize_part("ST-1", "part", body) for body in bodies))
        assert len({_path(ref) for ref in refs}) == 1
        assert _path(refs[0]).read_text() in bodies
        assert _everything(root) == ["out", "out/ST-1", "out/ST-1/ctx", "out/ST-1/ctx/part"]

    @pytest.mark.usefixtures("small_files")
    async def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
        self, adapter: FileProjectionAdapter, root: Path
    ) -> None:
        """When the disk refuses half-way, the file stays what it was and no temporary file is left."""
        path = _path(await adapter.materialize_part("ST-1", "part", "the old"))
        before = _everything(root)
        with pytest.raises(ProjectionIo):
            await adapter.materialize_part("ST-1", "part", "x" * (2 << 20))
        assert path.read_text() == "the old"
        with pytest.raises(ProjectionIo):
            await adapter.materialize_part("ST-1", "another", "x" * (2 << 20))
        assert _everything(root) == before

    async def test_a_directory_in_its_place_is_a_failing_write(
        self, adapter: FileProjectionAdapter, root: Path
    ) -> None:
        """A directory where the file should be is not replaced, and no temporary file is left beside it."""
        (root / "out/ST-1/ctx/plan.md/inner").mkdir(parents=True)
        before = _everything(root)
        with pytest.raises(ProjectionIo):
            await adapter.materialize_submission(_key(), 1, 1, ok=True)
        assert _everything(root) == before


class TestModes:
    """Who may read what is written."""

    @pytest.mark.parametrize(("file_mode", "directory_mode"), [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755)])
    async def test_files_are_as_readable_as_is_said(self, root: Path, file_mode: int, directory_mode: int) -> None:
        """Files have the mode, made directories entry for who may read; what was there stays as it was."""
        root.chmod(0o711)
        adapter = FileProjectionAdapter(root, PLACEMENT, None, file_mode)
        path = _path(await adapter.materialize_submission(_key(), 1, 1, ok=True))
        assert oct(path.stat().st_mode & 0o777) == oct(file_mode)
        for directory in list(path.parents)[:3]:
            assert oct(directory.stat().st_mode & 0o777) == oct(directory_mode)
        assert oct(root.stat().st_mode & 0o777) == oct(0o711)

    async def test_what_is_written_is_its_users_alone_by_default(self, adapter: FileProjectionAdapter) -> None:
        """Without a word on it a file is 0600 and its directory 0700, as the database is."""
        path = _path(await adapter.project(_key(), {"plan": 1}))
        assert (oct(path.stat().st_mode & 0o777), oct(path.parent.stat().st_mode & 0o777)) == ("0o600", "0o700")


class TestLeftovers:
    """Temporary files of killed processes."""

    @pytest.fixture
    async def directory(self, adapter: FileProjectionAdapter) -> Path:
        """The directory of a step with a file, in which a process was killed while it wrote another."""
        directory = _path(await adapter.materialize_submission(_key(), 1, 1, ok=True)).parent
        killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", _KILLED, str(directory)], check=False)
        assert killed.returncode == -signal.SIGKILL
        return directory

    async def test_what_a_killed_process_left_is_removed_when_it_is_old(
        self, adapter: FileProjectionAdapter, directory: Path
    ) -> None:
        """A young one stays, since somebody may be writing it; an old one goes, and the step's file is untouched."""
        (leftover,) = directory.glob(".*")
        assert adapter.remove_leftovers("ST-1", 60) == 0
        os.utime(leftover, (0, 0))
        assert adapter.remove_leftovers("ST-1", 60) == 1
        assert [path.name for path in directory.iterdir()] == ["plan.md"]

    async def test_nothing_else_is_removed(
        self, adapter: FileProjectionAdapter, directory: Path, tmp_path: Path
    ) -> None:
        """Links, directories, and names of another form stay, however old, and no link is followed."""
        outside = tmp_path / "outside"
        outside.write_text("untouched")
        (leftover,) = directory.glob(".*")
        leftover.unlink()
        for name in (
            ".tmp",
            "a.tmp",
            f"{leftover.name}x",
            f"x{leftover.name}",
            ".stepplane-0.tmp",
            leftover.name.upper(),
        ):
            (directory / name).touch()
        (directory / ".stepplane-0000000000000000.tmp").symlink_to(outside)
        (directory / ".stepplane-0000000000000001.tmp").mkdir()
        for path in directory.iterdir():
            os.utime(path, (0, 0), follow_symlinks=False)
        before = _everything(tmp_path)
        assert adapter.remove_leftovers("ST-1", 60) == 0
        assert _everything(tmp_path) == before
        directory.rename(tmp_path / "moved")
        directory.symlink_to(tmp_path / "moved")
        with pytest.raises(OSError):  # noqa: PT011 - the kernel says which
            adapter.remove_leftovers("ST-1", 60)


_KILLED = """
import os, signal, sys
from app.storage.files.opening import WrittenFile
WrittenFile(os.open(sys.argv[1], os.O_RDONLY), "part", b"x" * 1000, 0o600)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Writes a file, and is killed before it takes its place."""


class TestDirectories:
    """Links and ``projection_roots``."""

    @pytest.mark.parametrize("component", ["out", "out/ST-1", "out/ST-1/ctx"])
    @pytest.mark.parametrize("target", ["outside", "root/inside"])
    async def test_a_linked_directory_below_the_root_is_refused(
        self, adapter: FileProjectionAdapter, root: Path, tmp_path: Path, component: str, target: str
    ) -> None:
        """A link in the place of a directory below the root is never gone through, wherever it leads."""
        (tmp_path / target).mkdir()
        (root / component).parent.mkdir(parents=True, exist_ok=True)
        (root / component).symlink_to(tmp_path / target)
        with pytest.raises(ProjectionIo):
            await adapter.materialize_submission(_key(), "x", 1, ok=True)
        with pytest.raises(ProjectionIo):
            await adapter.materialize_part("ST-1", "part", "x")
        assert _everything(tmp_path / target) == []

    async def test_a_link_in_the_place_of_the_file_is_replaced(
        self, adapter: FileProjectionAdapter, root: Path, tmp_path: Path
    ) -> None:
        """A link where the file should be becomes the file; what it pointed to is not touched."""
        outside = tmp_path / "outside"
        outside.write_text("untouched")
        (root / "out/ST-1/ctx").mkdir(parents=True)
        for name in ("plan.md", "part"):
            (root / "out/ST-1/ctx" / name).symlink_to(outside)
        final = _path(await adapter.materialize_submission(_key(), "x", 1, ok=True))
        part = _path(await adapter.materialize_part("ST-1", "part", "x"))
        assert not final.is_symlink()
        assert not part.is_symlink()
        assert outside.read_text() == "untouched"

    async def test_the_path_told_is_the_real_one(self, root: Path, tmp_path: Path) -> None:
        """A root may be reached through a link; the path that is told has none in it."""
        (tmp_path / "link").symlink_to(root)
        ref = await FileProjectionAdapter(tmp_path / "link", PLACEMENT).materialize_submission(_key(), 1, 1, ok=True)
        assert _path(ref) == Path(os.path.realpath(root)) / "out/ST-1/ctx/plan.md"

    async def test_files_are_touched_under_the_projection_roots_alone(self, tmp_path: Path) -> None:
        """A root outside the allowed ones, by a prefix, a ``..`` or a link, is InvalidKey; nothing is made or read."""
        allowed, sibling = tmp_path / "allowed", tmp_path / "allowed-not"
        for directory in (allowed / "inner", sibling):
            directory.mkdir(parents=True)
        (allowed / "link").symlink_to(sibling)
        for root in (
            sibling,
            tmp_path,
            allowed / "..",
            allowed / "link",
            Path("/"),
            allowed / "inner/../../allowed-not",
        ):
            adapter = FileProjectionAdapter(root, PLACEMENT, [allowed])
            with pytest.raises(InvalidKey):
                await adapter.materialize_submission(_key(), 1, 1, ok=True)
            with pytest.raises(InvalidKey):
                await adapter.fetch(_key())
        with pytest.raises(InvalidKey):
            await FileProjectionAdapter(allowed, PLACEMENT, []).materialize_part("ST-1", "part", 1)
        assert _everything(sibling) == []
        assert _everything(allowed) == ["inner", "link"]
        for root in (allowed, allowed / "inner"):
            await FileProjectionAdapter(root, PLACEMENT, [tmp_path / "none", allowed]).project(_key(), {"plan": 1})
            assert (root / "out/ST-1/ctx/plan.md").is_file()


async def test_files_are_rendered_beside_the_event_loop(
    adapter: FileProjectionAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rendering can take seconds: a view, a Final and a part are each rendered in the thread that writes them."""
    threads: list[int] = []

    def noted(render: Callable[..., bytes]) -> Callable[..., bytes]:
        def rendered(*given: Any) -> bytes:
            threads.append(threading.get_ident())
            return render(*given)

        return rendered

    monkeypatch.setattr("app.storage.files.adapter.render_submission", noted(render_submission))
    monkeypatch.setattr("app.storage.files.adapter.render_json", noted(render_json))
    await adapter.project(_key(None), {"a": 1})
    await adapter.materialize_submission(_key(), {"a": 1}, 1, ok=True)
    await adapter.materialize_part("ST-1", "part.json", {"a": 1})
    assert len(threads) == 3
    assert threading.get_ident() not in threads
