"""What is remembered of the debug plane is never older than the last acknowledged write.

Source: contract §2; :mod:`app.services.recent`.
"""

from pathlib import Path

import httpx
import pytest

from app.api.representations import Representation
from app.config import Settings
from app.services.recent import Recent
from tests.contract.pipeline import Pipeline, serving


class TestWhatIsRemembered:
    def test_until_the_next_commit_alone(self) -> None:
        """A thing is given again while the version stays, and never after it moved."""
        version = 1
        recent: Recent[str] = Recent(lambda: version)
        assert recent.find("k") is None
        recent.keep("k", "one", 3, recent.version)
        assert recent.find("k") == "one"
        version = 2
        assert recent.find("k") is None
        version = 1  # even a version that comes back brings nothing back
        assert recent.find("k") is None

    def test_what_was_read_before_a_commit_is_not_kept_after_it(self) -> None:
        """A slow read that another one overtook, after a commit, is not remembered."""
        version = 1
        recent: Recent[str] = Recent(lambda: version)
        recent.find("k")
        before = recent.version
        version = 2
        recent.find("k")
        recent.keep("k", "old", 3, before)
        assert recent.find("k") is None

    def test_nothing_where_the_version_cannot_be_told(self) -> None:
        """A database that tells no version has nothing remembered of it."""
        recent: Recent[str] = Recent(lambda: None)
        recent.find("k")
        recent.keep("k", "one", 3, recent.version)
        assert recent.find("k") is None

    def test_within_a_bound(self) -> None:
        """However much is read, what is kept stays within 32 MiB, and nothing over 1 MiB is."""
        recent: Recent[int] = Recent(lambda: 1)
        recent.find(0)
        for number in range(200):
            recent.keep(number, number, 1_000_000, recent.version)
            recent.keep(number, number, 1_000_000, recent.version)  # counted once
        kept = [recent.find(number) for number in range(200)]
        assert 1 <= sum(one is not None for one in kept) <= 33
        assert kept[-1] == 199
        recent.keep("large", 1, 2_000_000, recent.version)
        assert recent.find("large") is None


class TestRepresentations:
    @pytest.mark.parametrize(
        ("body", "is_stored", "is_kept"), [(b"x", True, True), (None, True, True), (b"x", False, False)]
    )
    def test_no_file_on_disk_is_kept(self, body: bytes | None, *, is_stored: bool, is_kept: bool) -> None:
        """What a file has a say in changes without a commit, and so is not kept."""
        assert Representation([], b'"a"', 1, body, is_stored).may_be_kept is is_kept

    def test_a_long_address_counts(self) -> None:
        """What is kept of an address counts with its key: parameters that mean nothing may be long, and many."""
        found = Representation([], b'"a"', 1, b"x", is_stored=True)
        assert found.kept_bytes(("/path", b"x" * 60_000)) > 60_000 > found.kept_bytes(("/path", b""))


class TestReads:
    async def test_every_submit_shows_at_once(self, client: httpx.AsyncClient) -> None:
        """After each acknowledged submit the list, the step and its content are new, however often they were read."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("plan")
        for number in range(5):
            await pipeline.result(dispatched, number)
            for _ in range(3):
                assert await pipeline.content("plan") == b"%d" % number
                assert (await pipeline.step("plan"))["preview"] == str(number)
                assert [step["preview"] for step in await pipeline.steps()] == [str(number)]

    async def test_what_another_server_wrote_shows_at_once(self, settings: Settings) -> None:
        """Two servers on one database: what one acknowledged, the other shows."""
        async with serving(settings) as one, serving(settings) as other:
            writing = await Pipeline.create(one)
            dispatched = await writing.dispatch("plan")
            url = f"{writing.steps_url}/plan/content"
            for number in range(20):
                await writing.result(dispatched, number)
                for http in (other, one, other):
                    assert (await http.get(url)).content == b"%d" % number

    async def test_a_changed_file_shows_at_once(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """A file that somebody rewrote is served as it is now, though no commit told of it."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        await pipeline.output("plan", "first")
        path = Path((await pipeline.step("plan"))["file_path"])
        before = await pipeline.content("plan")
        path.write_bytes(b"by hand")
        assert before != b"by hand" == await pipeline.content("plan")
        assert (await pipeline.step("plan"))["size_bytes"] == 7

    async def test_a_client_that_has_it_is_told_so_before_and_after_it_is_remembered(
        self, client: httpx.AsyncClient
    ) -> None:
        """304, HEAD and GET of one address agree, in whatever order they are asked."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("plan", {"a": 1})
        url = f"{pipeline.steps_url}/plan/content"
        for _ in range(2):
            head = await client.head(url)
            again = await client.get(url, headers={"if-none-match": head.headers["etag"]})
            whole = await client.get(url)
            assert (head.status_code, again.status_code, whole.status_code) == (200, 304, 200)
            assert head.headers["content-length"] == str(len(whole.content))
            assert head.content == again.content == b""
            assert head.headers["etag"] == again.headers["etag"] == whole.headers["etag"]

    async def test_a_prompt_points_at_what_was_just_put_out(self, client: httpx.AsyncClient) -> None:
        """However often a worker fetches its prompt, a new output of another step is in the next one."""
        pipeline = await Pipeline.create(client)
        waiting = await pipeline.dispatch("last")
        for number in range(3):
            await pipeline.output(f"step-{number}", number)
            for _ in range(2):
                pointers = (await pipeline.prompt(waiting))["context"]["steps"]
                assert [pointer["name"] for pointer in pointers] == [f"step-{each}" for each in range(number + 1)]
                assert pointers[-1]["sha256"] == (await pipeline.step(f"step-{number}"))["sha256"]
