"""FileStates: the digest that is told is that of the bytes, however soon after each other a file changes."""

import errno
import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import structlog

from app.domain.errors import ProjectionIo
from app.observability import REGISTRY
from app.storage.files import states as file_states
from app.storage.files.states import CHUNK_BYTES, LARGE_BYTES, FileStates, LargeFile, read_inside

POISON = "0" * 64
"""A digest that no file has: who tells it has trusted his memory."""


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _overwrite(path: Path, body: bytes) -> None:
    """Write in place: the inode stays, and nothing is flushed or waited for."""
    handle = os.open(path, os.O_WRONLY)
    os.pwrite(handle, body, 0)
    os.close(handle)


def _sha256_of(states: FileStates, path: Path) -> str:
    state = states.find(str(path))
    assert state is not None
    return state.sha256


def _poison(states: FileStates, path: Path, hashed_ns_after: int) -> None:
    """Change what is remembered of a file: another digest, hashed that long after the file's last change."""
    status = path.stat()
    memory = states._memory[str(path)]
    hashed_at_ns = max(status.st_mtime_ns, status.st_ctime_ns) + hashed_ns_after
    states._memory[str(path)] = memory._replace(sha256=POISON, hashed_at_ns=hashed_at_ns)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small file."""
    path = tmp_path / "file"
    path.write_bytes(b"small")
    return path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that is sent in chunks, and ends inside one."""
    path = tmp_path / "large"
    path.write_bytes(os.urandom(LARGE_BYTES + 12_345))
    return path


class TestDigests:
    """What is told, and what is remembered."""

    def test_a_files_state_is_that_of_its_bytes(self, file: Path) -> None:
        """Size and digest are those of the bytes that are loaded, whole."""
        states = FileStates()
        for body in (b"small", b"", b"x" * (CHUNK_BYTES + 1)):
            file.write_bytes(body)
            assert states.find(str(file)) == (str(file), len(body), _sha256(body))
            loaded = states.load(str(file))
            assert loaded is not None
            assert loaded == ((str(file), len(body), _sha256(body)), body)

    def test_an_edit_right_after_hashing_is_never_missed(self, file: Path) -> None:
        """Edits in place of the same size, as fast as they come, are each told; with the old mtime put back as well."""
        states = FileStates()
        for turn in range(300):
            body = b"%05d" % turn
            times = file.stat()
            _overwrite(file, body)
            if turn % 3 == 0:
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
            assert _sha256_of(states, file) == _sha256(body)
            body = b"%05d" % (turn + 50_000)
            _overwrite(file, body)
            loaded = states.load(str(file))
            assert loaded is not None
            assert loaded.body == body
            assert loaded.state.sha256 == _sha256(body)

    def test_a_digest_is_trusted_only_when_the_file_was_left_alone_before(self, file: Path) -> None:
        """Hashed over two seconds after the last change, a digest is remembered; at two seconds it is not yet."""
        states = FileStates()
        right = _sha256_of(states, file)
        _poison(states, file, 2_000_000_001)
        assert _sha256_of(states, file) == POISON
        loaded = states.load(str(file))
        assert loaded is not None
        assert (loaded.state.sha256, loaded.body) == (POISON, b"small")
        for hashed_ns_after in (2_000_000_000, 0, -5_000_000_000):
            _poison(states, file, hashed_ns_after)
            assert _sha256_of(states, file) == right

    def test_a_digest_is_trusted_only_while_nothing_of_the_file_moved(self, file: Path) -> None:
        """Another inode, size, mtime or ctime, alone, is enough to hash anew."""
        states = FileStates()
        right = _sha256_of(states, file)
        for index in range(5):
            _poison(states, file, 3_000_000_000)
            assert _sha256_of(states, file) == POISON
            memory = states._memory[str(file)]
            facts = [fact + (position == index) for position, fact in enumerate(memory.facts)]
            states._memory[str(file)] = memory._replace(facts=tuple(facts))
            assert _sha256_of(states, file) == right

    def test_a_replaced_file_is_another(self, file: Path) -> None:
        """A file put in the place of another by a rename is told anew, even with the same size and mtime."""
        states = FileStates()
        times = file.stat()
        _sha256_of(states, file)
        _poison(states, file, 3_000_000_000)
        other = file.with_name("other")
        other.write_bytes(b"other")
        os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
        other.replace(file)
        assert _sha256_of(states, file) == _sha256(b"other")

    def test_the_memory_is_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The oldest memory goes when there are too many."""
        monkeypatch.setattr(file_states, "_REMEMBERED", 2)
        states = FileStates()
        for name in "abc":
            (tmp_path / name).write_text(name)
            states.find(str(tmp_path / name))
        assert list(states._memory) == [str(tmp_path / "b"), str(tmp_path / "c")]

    def test_a_head_is_the_beginning(self, file: Path) -> None:
        """The beginning of a file is at most what was asked for, and empty where there is no file."""
        states = FileStates()
        assert states.head(str(file), 3) == b"sma"
        assert states.head(str(file), 99) == b"small"
        assert states.head(str(file) + "-none", 3) == b""


class TestFailingDisks:
    """A disk that fails while a file is read, and a file that grows meanwhile."""

    def test_a_failing_read_is_no_file_counted_and_logged_once(self, file: Path) -> None:
        """An EIO in the middle is None, whoever asks; it is logged anew only after a read that went well."""
        disk = _Disk()
        states = FileStates(pread=disk.pread)
        before = REGISTRY.get_sample_value("stepplane_file_read_failures_total") or 0
        with structlog.testing.capture_logs() as events:
            for _ in range(2):
                disk.fails = True
                for _ in range(3):
                    assert states.find(str(file)) is None
                    assert states.load(str(file)) is None
                    assert states.head(str(file), 3) == b""
                disk.fails = False
                assert _sha256_of(states, file) == _sha256(b"small")
        assert [(event["event"], event["path"]) for event in events] == [("file_unreadable", str(file))] * 2
        assert (REGISTRY.get_sample_value("stepplane_file_read_failures_total") or 0) - before == 18

    def test_a_file_that_grows_is_read_to_its_bound(self, file: Path) -> None:
        """A file that gets longer as fast as it is read ends, with a digest that is that of the bytes told."""
        disk = _Disk(grows=file)
        states = FileStates(pread=disk.pread)
        state = states.find(str(file))
        assert state is not None
        assert (state.size_bytes, state.sha256) == (5, _sha256(b"small"))
        file.write_bytes(b"x" * CHUNK_BYTES)
        loaded = states.load(str(file))
        assert loaded is not None
        assert isinstance(loaded.body, LargeFile)
        loaded.body.close()
        assert disk.read_bytes < 4 * LARGE_BYTES

    def test_the_memory_is_changed_by_one_thread_at_a_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Many threads that hash more files than are remembered get each digest right, and no KeyError."""
        monkeypatch.setattr(file_states, "_REMEMBERED", 2)
        for number in range(8):
            (tmp_path / str(number)).write_bytes(b"%d" % number)
        states, interval = FileStates(), sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(lambda turn: states.find(f"{tmp_path}/{turn % 8}"), range(4_000)))
        finally:
            sys.setswitchinterval(interval)
        assert [state and state.sha256 for state in found] == [_sha256(b"%d" % (turn % 8)) for turn in range(4_000)]
        assert len(states._memory) == 2


class _Disk:
    """Reads as a disk does that can be told to fail, or whose file grows at each read."""

    def __init__(self, grows: Path | None = None) -> None:
        self.fails = False
        self.read_bytes = 0
        self._grows = grows

    def pread(self, handle: int, size_bytes: int, offset: int) -> bytes:
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self._grows is not None:
            with self._grows.open("ab") as file:
                file.write(b"x" * CHUNK_BYTES)
        body = os.pread(handle, size_bytes, offset)
        self.read_bytes += len(body)
        return body


class TestRefusals:
    """What is not read."""

    def test_only_a_regular_file_on_a_real_path_is_read(self, file: Path, tmp_path: Path) -> None:
        """No link, no directory, no named pipe, nothing through a linked directory; and none of them is waited for."""
        (tmp_path / "directory").mkdir()
        (tmp_path / "directory/inner").write_text("inner")
        (tmp_path / "link").symlink_to(file)
        (tmp_path / "linked").symlink_to(tmp_path / "directory")
        os.mkfifo(tmp_path / "pipe")
        states = FileStates()
        for name in ("none", "directory", "link", "linked/inner", "pipe", "directory/../file", "./file", "file/x"):
            path = f"{tmp_path}/{name}"
            assert states.find(path) is None, name
            assert states.load(path) is None, name
            assert states.head(path, 10) == b"", name
        assert states.find("/dev/zero") is None
        assert states.find(os.path.relpath(file)) is None
        assert states.find(f"{tmp_path}/\x00") is None

    def test_a_link_put_in_the_files_place_is_not_followed(self, file: Path, tmp_path: Path) -> None:
        """A remembered file that has become a link or a pipe is no file any more."""
        states = FileStates()
        _sha256_of(states, file)
        _poison(states, file, 3_000_000_000)
        file.rename(tmp_path / "moved")
        file.symlink_to(tmp_path / "moved")
        assert states.find(str(file)) is None
        assert states.load(str(file)) is None
        file.unlink()
        os.mkfifo(file)
        assert states.find(str(file)) is None
        assert states.load(str(file)) is None

    def test_files_are_read_under_the_allowed_roots_alone(self, tmp_path: Path) -> None:
        """Outside the projection_roots nothing is read, remembered or not; a sibling's name is no prefix."""
        for name in ("in", "in-not"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").write_text(name)
        anywhere, inside, nowhere = FileStates(), FileStates([tmp_path / "in"]), FileStates([])
        assert anywhere.find(f"{tmp_path}/in-not/file") is not None
        assert inside.find(f"{tmp_path}/in/file") is not None
        inside._memory = anywhere._memory
        assert inside.find(f"{tmp_path}/in-not/file") is None
        assert inside.load(f"{tmp_path}/in-not/file") is None
        assert inside.head(f"{tmp_path}/in-not/file", 1) == b""
        assert nowhere.find(f"{tmp_path}/in/file") is None

    def test_a_body_is_read_inside_its_directory_alone(self, file: Path, tmp_path: Path) -> None:
        """``read_inside`` gives one byte over the limit at most, and nothing of what lies elsewhere."""
        inner = tmp_path / "inner"
        inner.mkdir()
        (inner / "file").write_bytes(b"inner")
        (inner / "link").symlink_to(file)
        assert read_inside(f"{inner}/file", str(inner), None, 3) == b"inne"
        assert read_inside(f"{inner}/file", str(inner), None, 5) == b"inner"
        assert read_inside(f"{inner}/file", f"{inner}/", [tmp_path], 5) == b"inner"
        for path in (file, inner / "link", inner, f"{inner}/../file", f"{inner}/none"):
            assert read_inside(str(path), str(inner), None, 5) is None, path
        assert read_inside(f"{inner}/file", str(inner), [inner / "deeper"], 5) is None


class TestLargeFiles:
    """Files that are sent in chunks."""

    @staticmethod
    def _loaded(path: Path) -> LargeFile:
        loaded = FileStates().load(str(path))
        assert loaded is not None
        assert isinstance(loaded.body, LargeFile)
        assert loaded.state.sha256 == _sha256(path.read_bytes())
        assert loaded.state.size_bytes == path.stat().st_size
        return loaded.body

    async def test_a_large_file_is_streamed_whole(self, large: Path) -> None:
        """The chunks are the file, none larger than it has to be; one byte less is held whole."""
        body = self._loaded(large)
        chunks = [chunk async for chunk in body.chunks()]
        body.close()
        assert b"".join(chunks) == large.read_bytes()
        assert max(map(len, chunks)) <= CHUNK_BYTES
        os.truncate(large, LARGE_BYTES - 1)
        loaded = FileStates().load(str(large))
        assert loaded is not None
        assert loaded.body == large.read_bytes()

    @pytest.mark.parametrize("change", ["edit", "grow", "cut"])
    async def test_a_change_while_streaming_breaks_it_off(self, large: Path, change: str) -> None:
        """A file that is changed while it is sent is not sent on: its digest was told already."""
        body = self._loaded(large)
        received = 0
        with pytest.raises(ProjectionIo):  # noqa: PT012 - the change belongs between two chunks
            async for chunk in body.chunks():
                received += len(chunk)
                os.utime(large)  # the clock of the file system may stand still between two edits; this one moves
                if change == "edit":
                    _overwrite(large, b"changed")
                else:
                    os.truncate(large, LARGE_BYTES * 2 if change == "grow" else CHUNK_BYTES)
        body.close()
        assert received == CHUNK_BYTES

    async def test_a_file_that_is_replaced_while_streaming_is_sent_to_its_end(self, large: Path) -> None:
        """Another file put in its place takes nothing from who reads the old one: he gets it whole."""
        expected = large.read_bytes()
        body = self._loaded(large)
        received: list[bytes] = []
        async for chunk in body.chunks():
            if not received:
                other = large.with_name("other")
                other.write_bytes(b"new")
                other.replace(large)
            received.append(chunk)
        body.close()
        assert b"".join(received) == expected

    async def test_no_handle_is_left_open(self, large: Path) -> None:
        """What was opened is closed again, for files of every kind."""
        before = len(list(Path("/proc/self/fd").iterdir()))
        states = FileStates()
        for path in (large, large.parent, large.with_name("none")):
            states.find(str(path))
            states.head(str(path), 1)
            loaded = states.load(str(path))
            if loaded is not None and isinstance(loaded.body, LargeFile):
                loaded.body.close()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
