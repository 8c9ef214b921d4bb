"""No bytes from outside come in by a file whose directory is swapped meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Server
from tests.e2e.file_race import SECRET, race


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A server whose environment holds a secret."""
    running = Server(database_url, tmp_path / "server.log", {"STEPPLANE_OPERATOR_TOKEN": SECRET})
    yield running
    running.stop()


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_a_directory_swapped_for_a_link_gives_nothing_from_outside(server: Server, work_dir: Path) -> None:
    """Files that are handed in and files that are read back are the ones inside, or none, at every moment."""
    tally = await race(server, work_dir, 3)
    assert tally.leaks == []
    assert tally.swaps > 1_000
    kinds = {"submit 204", "submit 400", "content of the file", "content of the store"}
    assert set(tally.answers) == kinds, "each was met at both moments, so the swaps did hit"
