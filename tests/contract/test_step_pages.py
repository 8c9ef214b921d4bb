"""The pages of a step and of a comparison: who may see them, and what they tell."""

import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from app.config import Settings
from tests.contract.pipeline import Pipeline, bearer, blueprint_of, one_database, serving
from tests.contract.test_queries import BODIES, Statements

ROUTES = ("step", "compare", "step/content", "step/outline", "step/news")


async def shown(pipeline: Pipeline, route: str, **query: Any) -> httpx.Response:
    url = f"/ui/tasks/{pipeline.task_id}/runs/{pipeline.run_id}/{route}"
    return await pipeline.http.get(url, params=query)


async def text_of(pipeline: Pipeline, route: str, **query: Any) -> str:
    """Return what a page says, without its markup."""
    answer = await shown(pipeline, route, **query)
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", " ", answer.text)))


class TestAccess:
    @one_database
    async def test_the_pages_are_the_operators_alone(self, database_url: str) -> None:
        """Without the token there is the login, with a worker's handle nothing; with the token each page."""
        async with serving(
            Settings(database_url=database_url, operator_token=SecretStr("an-operators-token-4711"))
        ) as http:
            operator = {"Authorization": "Bearer an-operators-token-4711"}
            http.headers.update(operator)
            pipeline = await Pipeline.create(http)
            worker = bearer(await pipeline.output("s", [1]))
            del http.headers["Authorization"]
            assert (await http.get("/favicon.ico")).status_code == 307
            assert (await http.get("/favicon.ico/")).status_code == 401
            for route in ROUTES:
                url = f"/ui/tasks/{pipeline.task_id}/runs/{pipeline.run_id}/{route}?name=s"
                assert (await http.get(url)).headers["location"].startswith("/ui/login?next="), route
                assert (await http.get(url, headers=worker)).status_code == 403, route
                assert (await http.get(url, headers=operator)).status_code == 200, route
                assert (await http.head(url, headers=operator)).content == b""

    @one_database
    async def test_no_page_runs_what_is_not_ours(self, client: httpx.AsyncClient) -> None:
        """Every page has the strict policy, and what is served beside them is sandboxed; neither is sniffed."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", "<script>alert(1)</script>")
        for route in ROUTES:
            headers = (await shown(pipeline, route, name="s")).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ({}, 400),
            ({"name": "none"}, 404),
            ({"name": "s", "view": "x"}, 400),
            ({"name": "s", "attempt": "x"}, 400),
            ({"name": "s", "cursor": "x"}, 400),
        ],
    )
    @one_database
    async def test_an_address_that_cannot_be_is_an_error_page(
        self, client: httpx.AsyncClient, query: dict[str, str], status: int
    ) -> None:
        """A name that nobody bears, or a parameter that makes no sense, is told as a page of its status."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", [1])
        answer = await shown(pipeline, "step", **query)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        for run in ("R-0", "0"):
            elsewhere = await client.get(f"/ui/tasks/{pipeline.task_id}/runs/{run}/step?name=s")
            assert elsewhere.status_code == (404 if run == "R-0" else 400)

    @pytest.mark.parametrize("query", [{"from": "x"}, {"to": "R-0:x"}, {"from": "R-" + "0" * 200}, {"to": "R-0:1:-1"}])
    @one_database
    async def test_a_side_that_is_none_is_refused(self, client: httpx.AsyncClient, query: dict[str, str]) -> None:
        """What is no run with its numbers cannot be compared."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", [1])
        assert (await shown(pipeline, "compare", name="s", **query)).status_code == 400


class TestStep:
    async def test_an_address_without_an_output_shows_the_nearest(self, client: httpx.AsyncClient) -> None:
        """A path, attempt or occurrence that is not there is told, beside what is there."""
        pipeline = await Pipeline.create(client)
        first = await pipeline.output("s", {"a": 1})
        await pipeline.result(await pipeline.retry(first), {"a": 2})
        for query, told in (
            ({"path": "$.b"}, "leads nowhere in the output of 's'"),
            ({"attempt": 9}, "has no output of attempt 9"),
            ({"occurrence": 9}, "has no output of occurrence 9"),
            ({"occurrence": 1, "attempt": 99999999999999999}, "has no output of attempt"),
        ):
            page = await text_of(pipeline, "step", name="s", **query)
            assert told in page
            assert "application/json" in page
        assert '"a": 1' in await text_of(pipeline, "step", name="s", attempt=1, view="raw")
        assert '"a": 2' in await text_of(pipeline, "step", name="s", path="", attempt="", view="raw")

    async def test_result_and_artifact_are_shown(self, client: httpx.AsyncClient) -> None:
        """Parts of the result, the whole of it, and artifacts have pages, as steps have."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.output("s", 1)
        await pipeline.stage(dispatched, "notes.md", "# Notes")
        await pipeline.finish(result={"r": {"x": "from the result"}})
        assert "from the result" in await text_of(pipeline, "step", name="r")
        assert "The whole result" in await text_of(pipeline, "step", name="_ctx")
        assert "is not listed" in await text_of(pipeline, "step", name="_ctx", view="pointer")
        assert "<h1>Notes</h1>" in (await shown(pipeline, "step", name="notes.md", view="rendered")).text
        assert "Put out by s" not in await text_of(pipeline, "step", name="s")
        assert "Put out by s" in await text_of(pipeline, "step", name="notes.md")

    async def test_a_step_without_an_output_says_whether_one_will_come(self, client: httpx.AsyncClient) -> None:
        """While its run goes on the page waits; once that has ended it says that nothing was submitted."""
        pipeline = await Pipeline.create(client, blueprint_of(("s", "$.alias")))
        await pipeline.dispatch("s")
        for name in ("s", "alias"):
            answer = await shown(pipeline, "step", name=name)
            assert "Nothing yet" in answer.text
            assert "data-poll" in answer.text
        await pipeline.finish()
        answer = await shown(pipeline, "step", name="s")
        assert "Never submitted" in answer.text
        assert "data-poll" not in answer.text

    async def test_what_is_known_of_the_attempt_is_told(self, client: httpx.AsyncClient) -> None:
        """The status is the verdict's word, and what the worker said of itself stands beside it."""
        pipeline = await Pipeline.create(client)
        for name, verdict in (("done", "passed"), ("bad", "blocked"), ("left out", "skipped")):
            dispatched = await pipeline.dispatch(name)
            stats = {"worker_kind": "cli", "model": "<b>m</b>", "usage": {"total_tokens": 12345}}
            await client.post("/v1/worker/stats", json=stats, headers=bearer(dispatched))
            await pipeline.submit(dispatched, "x", verdict={"passed": "pass", "skipped": "skip"}.get(verdict, verdict))
            page = await text_of(pipeline, "step", name=name)
            assert f"{name} {verdict} " in page
            assert "cli <b>m</b>" in page
            assert "12,345" in page

    async def test_a_materialized_file_is_a_link(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """Where a file stands for the output, the page tells its path and leads to it; the tree is the value's."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        await pipeline.output("s", {"a": 1})
        answer = await shown(pipeline, "step", name="s")
        (url,) = re.findall(r'href="([^"]*format=file)"', answer.text)
        assert (await client.get(unescape(url))).content == await pipeline.content("s")
        assert 'data-path="$.a"' in answer.text

    async def test_a_page_is_told_what_became_of_its_step(self, client: httpx.AsyncClient) -> None:
        """From dispatch to verdict a retry is told to whoever looks at what came before it, and not beyond the run."""
        pipeline = await Pipeline.create(client)
        first = await pipeline.output("s", 1)
        other = await pipeline.output("other", 1)
        url = re.findall(r'data-watch="([^"]+)"', (await shown(pipeline, "step", name="s")).text)[0]
        known = unquote(url.partition("known=")[2])
        pinned = {"name": "s", "occurrence": 1, "attempt": 1, "known": known}

        async def told() -> tuple[str, bool]:
            news = (await client.get(unescape(url))).json()
            assert not news["is_over"]
            assert (await shown(pipeline, "step/news", **pinned)).json()["sentence"] == ""
            return news["sentence"], news["is_there"]

        assert await told() == ("", False)
        retry = await pipeline.retry(first)
        assert await told() == ("Again in flight: attempt 2.", False)
        assert "Again in flight: attempt 2." in await text_of(pipeline, "step", name="s")
        await pipeline.submit(retry, "no", ok="false")
        assert await told() == ("Attempt 2 is blocked.", True)
        again = await pipeline.dispatch("s")
        assert await told() == ("Attempt 2 is blocked. Again in flight: occurrence 2.", True)
        await pipeline.result(again, 2)
        assert await told() == ("Occurrence 2 has passed.", True)
        await pipeline.result(again, 3)
        same = {"name": "s", "known": known.replace("1.1.", "2.1.", 1)}
        assert (await shown(pipeline, "step/news", **same)).json()["sentence"] == "There is a newer output."
        await pipeline.retry(other)
        await pipeline.finish()
        ended = (await shown(pipeline, "step/news", name="other")).json()
        assert (ended["is_over"], "flight" in ended["sentence"]) == (True, False)

    async def test_the_next_step_is_the_next_of_the_run(self, client: httpx.AsyncClient) -> None:
        """Previous and next go by the first dispatch, as the run's page does; artifacts and the result come last."""
        pipeline = await Pipeline.create(client)
        first = await pipeline.output("z", 1)
        await pipeline.output("m", 1)
        await pipeline.output("a", 1)
        await pipeline.stage(first, "c.md", "x")
        await pipeline.finish(result={"b": 1})
        names = ["z", "m", "a", "c.md", "b"]
        for name, before, after in zip(names, ["", *names], [*names[1:], ""], strict=False):
            text = (await shown(pipeline, "step", name=name)).text
            assert re.findall(r'aria-label="Previous step: ([^"]+)"', text) == [before][: bool(before)]
            assert re.findall(r'aria-label="Next step: ([^"]+)"', text) == [after][: bool(after)]

    async def test_a_page_holds_a_bounded_piece(self, client: httpx.AsyncClient) -> None:
        """Of two megabytes a page holds the beginning, cut between two characters, and says how much that is."""
        pipeline = await Pipeline.create(client)
        await pipeline.submit(await pipeline.dispatch("s"), "x" + "é" * 2**19)
        await pipeline.output("many", [["y" * 100] * 10] * 1_700)
        for view, told in (
            ("raw", "1.0 MiB, the first 64.0 KiB shown"),
            ("rendered", "Rendered are the first 128 KiB of 1.0 MiB"),
            ("tree", "Shown are the first 64.0 KiB of 1.0 MiB"),
        ):
            page = await text_of(pipeline, "step", name="s", view=view)
            assert told in page
            assert len(page.encode()) < 140_000
            assert "\ufffd" not in page
        for view in ("raw", "rendered", "tree", "pointer"):
            assert len((await shown(pipeline, "step", name="many", view=view)).content) < 200_000

    async def test_many_attempts_are_offered_in_short(self, client: httpx.AsyncClient) -> None:
        """Nine occurrences are all linked; of more the first, the last and those around the one that is shown."""
        pipeline = await Pipeline.create(client)
        for number in range(9):
            await pipeline.output("s", number)
        assert "1 2 3 4 5 6 7 8 9 of 9" in await text_of(pipeline, "step", name="s")
        for number in range(3):
            await pipeline.output("s", number)
        page = await text_of(pipeline, "step", name="s", occurrence=6)
        assert "1 … 4 5 6 7 8 … 12 of 12" in page

    @one_database
    async def test_curl_lines_name_the_configured_server(self, database_url: str) -> None:
        """With a base URL the lines are whole; without one they name a variable; none asks for a token in vain."""
        for base_url, server in (("https://debug.example/x", "https://debug.example/x"), (None, '"$STEPPLANE_SERVER')):
            async with serving(Settings(database_url=database_url, base_url=base_url)) as http:
                pipeline = await Pipeline.create(http)
                await pipeline.output("s", [1])
                answer = await shown(pipeline, "step", name="s", view="rendered")
                lines = re.findall(r'id="curl-\d"[^>]*>(.*?)</pre>', answer.text, re.DOTALL)
                lines = [unescape(re.sub("<[^>]*>", "", line)).strip() for line in lines]
                assert lines[0].startswith(f"curl -s {server}{pipeline.steps_url}/s/content"), lines
                assert "Authorization" not in "".join(lines)

    async def test_a_curl_line_fetches_what_its_tab_shows(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """The tree's is the JSON, the raw one a text's own bytes, the others what answers; each with its own tag."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        await pipeline.output("s", "a text")
        for view, query in (
            ("tree", {"format": "json"}),
            ("raw", {"format": "raw"}),
            ("rendered", {}),
            ("pointer", {}),
        ):
            text = unescape(re.sub("<[^>]*>", "", (await shown(pipeline, "step", name="s", view=view)).text))
            answer = await pipeline.get("s", "/content", **query)
            assert f'$STEPPLANE_SERVER{answer.request.url.raw_path.decode()}"' in text, view
            assert f"-H 'If-None-Match: {answer.headers['etag']}'" in text, view

    async def test_what_is_served_beside_the_page_is_what_the_api_serves(self, client: httpx.AsyncClient) -> None:
        """The bytes, outlines and tags that a browser gets for the name ``..`` are those that the API gives."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("..", {"a": ["x" * 1_900_000, "é"], "b": 1})
        for query in ({}, {"path": "$.a[1]"}, {"path": "$.a[1]", "format": "raw"}, {"attempt": 1, "occurrence": 1}):
            beside = await shown(pipeline, "step/content", name="..", **query)
            served = await pipeline.get("..", "/content", **query)
            for header in ("etag", "content-type", "cache-control", "content-security-policy"):
                assert beside.headers[header] == served.headers[header]
            assert beside.content == served.content
        for query in ({}, {"path": "$.a"}):
            beside = await shown(pipeline, "step/outline", name="..", **query)
            served = await pipeline.get("..", "/outline", **query)
            assert (beside.content, beside.headers["etag"]) == (served.content, served.headers["etag"])
        for query, status in (({"path": "$.no"}, 404), ({"format": "x"}, 400), ({"format": "file"}, 404)):
            assert (await shown(pipeline, "step/content", name="..", **query)).status_code == status


class TestCompare:
    async def test_equal_outputs_are_not_loaded(
        self, client: httpx.AsyncClient, app: FastAPI, database_url: str
    ) -> None:
        """Equal digests are told as identical without reading a body; others are read."""
        pipeline = await Pipeline.create(client)
        statements = Statements(app, database_url)
        first = await pipeline.output("s", {"a": 1})
        await pipeline.result(await pipeline.retry(first), {"a": 1})
        await pipeline.output("s", {"a": 2})
        base = f"/ui/tasks/{pipeline.task_id}/runs/latest/compare?name=s"
        run = pipeline.run_id
        sent, answer = await statements.of(client, f"{base}&from={run}:1:1&to={run}:1:2")
        assert "<h2>Identical</h2>" in answer.text
        assert not any(map(BODIES.search, sent))
        sent, answer = await statements.of(client, base)
        assert "Changed paths" in answer.text
        assert any(map(BODIES.search, sent))

    async def test_texts_are_compared_by_their_own_lines(self, client: httpx.AsyncClient) -> None:
        """A text's lines are those that it has, not those of its JSON; against another kind of value, that one's."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", "one\ntwo\nthree")
        await pipeline.output("s", "one\n2\nthree")
        page = await text_of(pipeline, "compare", name="s")
        assert "1 1 one 2 \N{MINUS SIGN} two 2 + 2 3 3 three" in page
        assert "Changed paths" not in page
        await pipeline.output("s", {"two": 2})
        page = await text_of(pipeline, "compare", name="s")
        assert "changed $" in page
        assert '+ "two": 2' in page

    async def test_what_came_before_is_chosen(self, client: httpx.AsyncClient) -> None:
        """Without a choice an output is compared with the one before it: attempt, occurrence, then another run."""
        pipeline = await Pipeline.create(client)
        older = await pipeline.another_run()
        await older.output("s", "elsewhere")
        first = await pipeline.output("s", "first")
        for expected, make in (
            (f"Run {older.run_id}", None),
            ("Occurrence 1, attempt 1", pipeline.retry(first)),
            ("Occurrence 1, attempt 2", pipeline.dispatch("s")),
        ):
            if make is not None:
                await pipeline.result(await make, expected)
            assert f"Before {expected} " in await text_of(pipeline, "compare", name="s")

    async def test_artifacts_are_compared_as_their_step_put_them_out(self, client: httpx.AsyncClient) -> None:
        """An artifact of a retry is compared with that of the attempt before."""
        pipeline = await Pipeline.create(client)
        first = await pipeline.dispatch("s")
        await pipeline.stage(first, "notes.txt", "before")
        await pipeline.result(first, 1)
        again = await pipeline.retry(first)
        await pipeline.stage(again, "notes.txt", "after")
        await pipeline.result(again, 2)
        assert "1 \N{MINUS SIGN} before 1 + after" in await text_of(pipeline, "compare", name="notes.txt")
