"""FileStates: the digest that is told is that of the bytes, however soon after each other a file changes."""

import hashlib
import os
from pathlib import Path

import pytest

from app.domain.errors import ProjectionIo
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
