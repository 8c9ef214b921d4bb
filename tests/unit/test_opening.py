"""Opening: what was opened is what is judged, whatever becomes of the names meanwhile."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.files.opening import opened_directory, opened_file
from app.storage.files.states import FileStates, read_inside
from tests.e2e.swapping import Swapper


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with ``x/file`` in it, beside one that is none of its own."""
    (tmp_path / "work/x").mkdir(parents=True)
    (tmp_path / "work/x/file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("outside")
    return tmp_path / "work"


class TestLinks:
    """Links that are followed are walked part by part."""

    @pytest.mark.parametrize(
        ("link", "target", "path"),
        [
            ("l", "x", "l/file"),
            ("l", "x/file", "l"),
            ("l", "./x/../x/./file", "l"),
            ("x/l", "../x", "x/l/file"),
            ("l", "../work/x", "l/file"),
            ("l", "../outside/../work/x/file", "l"),
            ("l", "x/", "l/../x/file"),
        ],
    )
    def test_a_link_that_ends_inside_is_followed(self, work: Path, link: str, target: str, path: str) -> None:
        """Relative links, links of links and ``..`` lead where the kernel would lead."""
        (work / link).symlink_to(target)
        (work / "absolute").symlink_to(work / link)
        assert read_inside(f"{work}/{path}", str(work), None, 99) == b"inside"
        with opened_file(f"{work}/{path}", [str(work)], through_links=True) as file:
            assert file.path == os.path.realpath(f"{work}/{path}") == f"{work}/x/file"

    def test_a_work_dir_may_itself_be_named_through_a_link(self, work: Path, tmp_path: Path) -> None:
        """Both are judged as they were opened, by whichever name each was given."""
        (tmp_path / "named").symlink_to(work)
        for directory in (work, tmp_path / "named"):
            for path in (work / "x/file", tmp_path / "named/x/file"):
                assert read_inside(str(path), str(directory), [work], 99) == b"inside"
        with opened_directory(f"{tmp_path}/named/x/..") as opened:
            assert opened.path == str(work)

    def test_links_end_after_forty(self, work: Path) -> None:
        """Forty links are followed, one more is none; a loop ends."""
        (work / "l0").symlink_to("x/file")
        for number in range(1, 41):
            (work / f"l{number}").symlink_to(f"l{number - 1}")
        (work / "loop").symlink_to("loop")
        assert read_inside(f"{work}/l39", str(work), None, 99) == b"inside"
        assert read_inside(f"{work}/l40", str(work), None, 99) is None
        assert read_inside(f"{work}/loop", str(work), None, 99) is None

    def test_what_the_kernel_makes_up_is_no_file(self, work: Path) -> None:
        """Nothing of /proc or /sys is read, even where it would lie inside."""
        (work / "self").symlink_to("/proc/self")
        assert read_inside("/proc/self/environ", "/proc/self", None, 99) is None
        assert read_inside(f"{work}/self/environ", "/", None, 99) is None
        assert read_inside(f"{work}/self/root{work}/x/file", str(work), None, 99) == b"inside"
        assert FileStates().load(f"/proc/{os.getpid()}/environ") is None

    def test_no_descriptor_stays_open(self, work: Path) -> None:
        """Whatever is read or refused, as many files are open afterwards as before."""
        (work / "out").symlink_to("../outside")
        before = len(list(Path("/proc/self/fd").iterdir()))
        for path in ("x/file", "x/../x/file", "out/file", "none", "x", "x/file/deeper", "n" * 300):
            read_inside(f"{work}/{path}", str(work), None, 99)
            FileStates().load(f"{work}/{path}")
        assert len(list(Path("/proc/self/fd").iterdir())) == before


class TestSwaps:
    """A directory that is swapped for a link, again and again, while it is walked through."""

    @pytest.fixture
    def swapper(self, work: Path) -> Iterator[Swapper]:
        """Swaps ``work/x`` for a link to what lies outside, and back."""
        (work / "y").symlink_to(work.parent / "outside")
        swapper = Swapper(work / "x", work / "y")
        thread = threading.Thread(target=swapper.run)
        thread.start()
        yield swapper
        swapper.stop()
        thread.join()

    def test_nothing_from_outside_is_read(self, work: Path, swapper: Swapper) -> None:
        """Each read gives what lies inside, or nothing, and both happen."""
        states = FileStates([work])
        seen: set[object] = set()
        for _ in range(3_000):
            seen.add(read_inside(f"{work}/x/file", str(work), None, 99))
            loaded = states.load(f"{work}/x/file")
            seen.add(None if loaded is None else loaded.body)
        assert seen == {b"inside", None}
        assert swapper.swaps > 100
