"""The pages of runs: what they show of what was put in, and what they cost, on each database."""

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI

from app.domain.visible import visible
from app.storage import overviews
from app.web.pages import CONTENT_SECURITY_POLICY
from tests.contract.pipeline import Pipeline, bearer, blueprint_of, dumped, one_database
from tests.contract.test_queries import BODIES, Statements, multiplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NONE = "\u2013"
"""What stands in a cell that has nothing to say."""

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "..",
    "a/b",
    "{{ 7 * 7 }}",
    "計画",
    "\x00\x01",
)


@pytest.fixture
def statements(app: FastAPI, database_url: str) -> Statements:
    return Statements(app, database_url)


class _Reader(HTMLParser):
    """Reads a page as a browser does: its elements, and the text of each cell of its tables."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag == "td":
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag == "td" and self._cell is not None:
            self.tables[-1][-1].append(" ".join("".join(self._cell).split()))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)


async def page_of(client: httpx.AsyncClient, url: str, **query: Any) -> str:
    answer = await client.get(url, params=query or None)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


async def rows_of(client: httpx.AsyncClient, url: str, table: int = 0, **query: Any) -> list[list[str]]:
    """Read the rows of one of a page's tables, in their order, without its head; no table has none."""
    tables = read(await page_of(client, url, **query)).tables
    return [row for row in tables[table] if row] if tables else []


def read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    return reader


def is_harmless(text: str) -> bool:
    """Tell whether a page has no script, style or picture but those of our own files, and no handler."""
    for tag, attributes in read(text).elements:
        own = str(attributes.get("src", attributes.get("href"))).startswith(("/ui", "/openapi.json", "#"))
        if tag in {"script", "link", "img", "a"} and not own:
            return False
        if tag in {"style", "base", "iframe", "object"} or any(n.startswith("on") or n == "style" for n in attributes):
            return False
    return True


def url_of(pipeline: Pipeline) -> str:
    return f"/ui/tasks/{pipeline.task_id}/runs/{pipeline.run_id}"


class TestRuns:
    async def test_a_line_tells_how_far_a_run_is(self, client: httpx.AsyncClient) -> None:
        """Goal, status, steps done and dispatched by their newest attempts, blocked ones, outputs and their size."""
        pipeline = await Pipeline.create(client, goal="Plan & build")
        blocked = await pipeline.dispatch("a")
        await pipeline.submit(blocked, "no", ok="false")
        await pipeline.output("b", "x" * 98)
        await pipeline.dispatch("c")
        retried = await pipeline.dispatch("d")
        await pipeline.submit(retried, "no", ok="false")
        await pipeline.retry(retried)
        await pipeline.stage(retried, "part.md", "1234")
        ((title, status, steps, outputs, _, started),) = await rows_of(client, "/ui")
        assert title == f"Plan & build {pipeline.run_id}{pipeline.task_id}"
        assert (status, steps) == ("running", "2 / 41 blocked")
        assert outputs == "112 B4 outputs"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", started)
        await pipeline.finish("failed", error="<b>broke</b>")
        ((title, status, *_),) = await rows_of(client, "/ui")
        assert (title.partition(pipeline.task_id)[2].strip(), status) == ("<b>broke</b>", "failed")

    async def test_newest_first_a_page_at_a_time(self, client: httpx.AsyncClient) -> None:
        """Pages follow one another by their cursor, without a run twice or left out, while new runs come in."""
        first = await Pipeline.create(client, goal="many")
        runs = [first.run_id] + [(await first.another_run()).run_id for _ in range(overviews.PAGE_RUNS)]
        text, seen = await page_of(client, "/ui"), []
        while True:
            seen += re.findall(r'data-key="(R-\w+)"', text)
            following = re.search(r'href="([^"]+)" rel="next"', text)
            if following is None:
                break
            await first.another_run()
            text = await page_of(client, unescape(following[1]))
        assert seen == runs[::-1]
        assert "Newest runs" in text

    async def test_search_by_goal_and_ids(self, client: httpx.AsyncClient) -> None:
        """A search finds goal, run id and task id by any part, whatever its case; its signs mean themselves."""
        one = await Pipeline.create(client, goal="100% of Invoices_2026 \\ done")
        two = await Pipeline.create(client, goal="1000 mails")
        for search, found in (
            ("invoices", [one]), ("INVOICES_2026", [one]), ("100%", [one]), ("%", [one]), ("_", [one]), ("\\", [one]),
            (one.run_id, [one]), (two.task_id[5:].upper(), [two]), ("T-", [two, one]), ("100", [two, one]),
            ("nothing", []), ("' OR 1=1 --", []), ("  mails ", [two]), ("\x00", []),
        ):  # fmt: skip
            shown = re.findall(r'data-key="(R-\w+)"', await page_of(client, "/ui", q=search))
            assert shown == [each.run_id for each in found], search
        other = await Pipeline.create(client, goal="Übung 計画")
        for search in ("Übung", "計画", "BUNG", "Übung 計"):
            assert other.run_id in await page_of(client, "/ui", q=search), search
        assert "No run matches" in await page_of(client, "/ui", q="nothing")
        assert (await client.get("/ui", params={"q": "x" * 201})).status_code == 400

    async def test_filter_by_status(self, client: httpx.AsyncClient) -> None:
        """A status shows its runs alone, together with a search; a word that is none is an error."""
        done = await Pipeline.create(client, goal="one")
        await done.finish()
        going_on = await Pipeline.create(client, goal="two")
        for query, found in (
            ({"status": "done"}, [done.run_id]), ({"status": "running"}, [going_on.run_id]), ({"status": "failed"}, []),
            ({"status": "done", "q": "one"}, [done.run_id]), ({"status": "done", "q": "two"}, []),
            ({"status": ""}, [going_on.run_id, done.run_id]),
        ):  # fmt: skip
            assert re.findall(r'data-key="(R-\w+)"', await page_of(client, "/ui", **query)) == found, query
        assert (await client.get("/ui", params={"status": "odd"})).status_code == 400
        assert (await client.get("/ui", params={"cursor": "odd"})).status_code == 400

    async def test_a_search_says_how_far_it_looked(
        self, client: httpx.AsyncClient, statements: Statements, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A search over very many runs stops at its bound, says so, and its next page goes on from there."""
        old = await Pipeline.create(client, goal="the old one")
        new = await Pipeline.create(client, goal="new")
        await multiplied(statements, ("runs",), new.run_id, 30)
        monkeypatch.setattr(overviews, "SEARCHED_RUNS", 20)
        text = await page_of(client, "/ui", q="the old")
        assert old.run_id not in text
        assert "Nothing among the newest" in text
        following = re.search(r'href="([^"]+)" rel="next"', text)
        assert following is not None
        text = await page_of(client, unescape(following[1]))
        assert old.run_id in text

    async def test_nothing_yet(self, client: httpx.AsyncClient) -> None:
        """Without a run the page says what to do."""
        text = await page_of(client, "/ui")
        assert "No runs yet" in text
        assert "/v1/tasks -d" in text


class TestRun:
    async def test_a_line_a_name(self, client: httpx.AsyncClient) -> None:
        """Every name with its aliases, status, type, size and counts; names in flight are there before."""
        pipeline = await Pipeline.create(client, blueprint_of(("plan", "$.the_plan"), ("next", "$.n")), goal="g")
        first = await pipeline.output("plan", [1, 2])
        await pipeline.stage(first, "notes.md", "# hi")
        await pipeline.dispatch("plan")
        await pipeline.dispatch("next")
        rows = {row[0].split()[0]: row[1:] for row in await rows_of(client, url_of(pipeline))}
        assert list(rows) == ["plan", "next", "notes.md"]
        assert rows["plan"][:5] == ["passed again in flight", "JSON", "12 B", "1", "2"]
        assert rows["notes.md"][:5] == [NONE, "Markdown", "4 B", "1", "2"]
        assert rows["next"] == ["in flight", NONE, NONE, "1", "1", NONE]
        assert "3 steps of 2 names, 2 in flight" in (await page_of(client, url_of(pipeline)))
        assert "also the_plan" in (await rows_of(client, url_of(pipeline)))[0][0]
        await pipeline.finish(result={"extra": [True]})
        rows = {row[0].split()[0]: row[1:] for row in await rows_of(client, url_of(pipeline))}
        assert (rows["plan"][0], rows["next"][0]) == ("passed never submitted", "never submitted")
        text = await page_of(client, url_of(pipeline))
        assert "name=_ctx" in text
        assert "&#34;extra&#34;" in text

    async def test_the_list_and_the_run_tell_one_size(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """Files around values change neither the sum nor the type of the values; a badge tells that they are there."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        await pipeline.output("a", {"k": 1})
        await pipeline.output("b", "# not from a file")
        rows = await rows_of(client, url_of(pipeline))
        assert [row[2] for row in rows] == ["JSON file", "text file"]
        ((_, _, _, outputs, *_),) = await rows_of(client, "/ui")
        assert outputs == "31 B2 outputs"
        assert "2 outputs, 31 B" in await page_of(client, url_of(pipeline))
        await pipeline.finish(result={"c": True})
        assert (await rows_of(client, url_of(pipeline)))[-1][:3] == ["c from the result", NONE, "JSON"]
        assert "3 outputs, 35 B" in await page_of(client, url_of(pipeline))

    async def test_a_row_hides_no_blocked_occurrence(self, client: httpx.AsyncClient) -> None:
        """What an earlier occurrence ended with in the end stands beside the newest; what a retry mended does not."""
        pipeline = await Pipeline.create(client)
        first = await pipeline.output("a", 1)
        mended = await pipeline.dispatch("b")
        await pipeline.submit(mended, "no", ok="false")
        await pipeline.result(await pipeline.retry(mended), 1)
        await pipeline.output("a", 2)
        assert [row[1] for row in await rows_of(client, url_of(pipeline))] == ["passed", "passed"]
        await pipeline.submit(await pipeline.retry(first), "no", ok="false")
        assert [row[1] for row in await rows_of(client, url_of(pipeline))] == ["passed also blocked", "passed"]
        assert "3 steps of 2 names, 5 dispatches" in await page_of(client, url_of(pipeline))

    async def test_what_is_kept_is_shown_as_text(self, client: httpx.AsyncClient) -> None:
        """A goal, a name, an error, a report or a result full of markup is text, and its links lead to it."""
        goal = HOSTILE[0] + HOSTILE[1]
        pipeline = await Pipeline.create(client, goal=goal)
        for name in HOSTILE:
            dispatched = await pipeline.output(name, HOSTILE[1])
            report = dumped({"tool": name, "error": HOSTILE[1], "fallback": HOSTILE[0], "note": HOSTILE[1]})
            answer = await client.post("/v1/worker/degradation", content=report, headers=bearer(dispatched))
            assert answer.status_code == 204
        await pipeline.finish("failed", error=HOSTILE[0], result={HOSTILE[0]: HOSTILE[1]})
        for url in ("/ui", url_of(pipeline), f"/ui?q={HOSTILE[0]}", f"{url_of(pipeline)}?q={HOSTILE[1]}"):
            text = await page_of(client, url)
            assert is_harmless(text), url
            assert "{{ 7" in text or url.startswith("/ui?") or url == "/ui"
        rows = await rows_of(client, url_of(pipeline))
        assert {row[0] for row in rows} == {visible(name) for name in HOSTILE}
        text = await page_of(client, url_of(pipeline))
        for name in ("..", "a%2Fb", "%3Cscript%3E", "%00%01"):
            assert f'href="{url_of(pipeline)}/step?name={name}' in text

    async def test_a_line_a_dispatch(self, client: httpx.AsyncClient) -> None:
        """Every attempt with its id, status and time, and what its worker said it was and used."""
        pipeline = await Pipeline.create(client)
        first = await pipeline.dispatch("a")
        usage = {"input_tokens": 1200, "output_tokens": 7}
        for stats in ({"worker_kind": "agent", "model": "m-1", "num_turns": 1, "usage": usage}, {"model": "m-2"}):
            await client.post("/v1/worker/stats", content=dumped(stats), headers=bearer(first))
        await pipeline.submit(first, "no", ok="false")
        second = await pipeline.retry(first)
        stats = {"usage": {"total_tokens": 30}, "num_turns": 2}
        await client.post("/v1/worker/stats", content=dumped(stats), headers=bearer(second))
        quiet = await Pipeline.create(client)
        await quiet.dispatch("a")
        assert [len(row) for row in await rows_of(client, url_of(quiet), table=1)] == [6]
        rows = await rows_of(client, url_of(pipeline), table=1)
        assert [row[0] for row in rows] == [f"a {first['step_id']}"] * 2
        assert [row[1:4] for row in rows] == [["blocked", "1", "1"], ["in flight", "1", "2"]]
        assert [row[6:] for row in rows] == [
            ["agent, m-2", "1 turn, tokens: 1,200 in / 7 out"], [NONE, "2 turns, tokens: 30 in all"]
        ]  # fmt: skip

    async def test_a_dispatch_says_what_it_is_doing(self, client: httpx.AsyncClient) -> None:
        """Below its status a dispatch has its newest stage and note, cut where they are long, and their time."""
        pipeline = await Pipeline.create(client)
        busy = await pipeline.dispatch("busy")
        await pipeline.dispatch("silent")
        await pipeline.emit(busy, {"type": "progress", "stage": "reading"})
        await pipeline.emit(busy, {"type": "progress", "stage": "<b>", "note": "n" * 200})
        first, second = await rows_of(client, url_of(pipeline), table=1)
        assert first[1].startswith(f"in flight<b>: {'n' * 95}")
        assert "n" * 97 not in first[1]
        assert second[1] == "in flight"

    async def test_long_texts_and_many_reports_are_cut(self, client: httpx.AsyncClient) -> None:
        """A goal, an error or a report of any length makes no page of its own; what is left out is told."""
        pipeline = await Pipeline.create(client, goal="g" * 60_000)
        dispatched = await pipeline.dispatch("a")
        for _ in range(103):
            report = dumped({"tool": "t", "error": "e" * 4_000, "fallback": "f"})
            await client.post("/v1/worker/degradation", content=report, headers=bearer(dispatched))
        await pipeline.finish("failed", error="e" * 60_000)
        assert len(await page_of(client, "/ui")) < 10_000
        text = await page_of(client, url_of(pipeline))
        assert len(text) < 300_000
        assert "The first 100; 3 more in" in text

    async def test_order_and_filter(self, client: httpx.AsyncClient) -> None:
        """Steps are sorted by any column, both ways, filtered by name or alias, and stand in the order they came."""
        pipeline = await Pipeline.create(client, blueprint_of(("b", "$.zeta"), ("a", "$.a"), ("c", "$.c")))
        for name, size in (("b", 10), ("a", 300), ("c", 20)):
            await pipeline.output(name, "x" * size)
        queries: tuple[tuple[dict[str, Any], str], ...] = (
            ({}, "bac"), ({"sort": "name"}, "abc"), ({"sort": "-name"}, "cba"), ({"sort": "size"}, "bca"),
            ({"sort": "-size"}, "acb"), ({"sort": "odd"}, "bac"), ({"q": "ZET"}, "b"), ({"q": "a"}, "ba"),
            ({"q": "nothing"}, ""), ({"sort": "-submitted"}, "cab"), ({"page": "99"}, "bac"), ({"page": "x"}, "bac"),
        )  # fmt: skip
        for query, names in queries:
            rows = await rows_of(client, url_of(pipeline), **query)
            assert "".join(row[0][0] for row in rows) == names, query
        assert "No step, alias or artifact" in await page_of(client, url_of(pipeline), q="nothing")

    async def test_many_steps_come_in_pages(self, client: httpx.AsyncClient, statements: Statements) -> None:
        """Hundreds of steps are paged; a filter reaches those of every page."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("step-00000", 1)
        await multiplied(statements, ("dispatches", "outputs", "projections"), "step-00000", 450)
        for page, count in ((1, 100), (2, 100), (5, 50), (6, 50)):
            assert len(await rows_of(client, url_of(pipeline), page=page, sort="name")) == count
        assert [row[0] for row in await rows_of(client, url_of(pipeline), q="00449")] == ["step-00449"]
        assert "390 more names not drawn" in await page_of(client, url_of(pipeline))

    async def test_a_page_that_did_not_change_is_not_sent_again(self, client: httpx.AsyncClient) -> None:
        """A page has an ETag: 304 while nothing changes, another one after anything that it shows did."""
        pipeline = await Pipeline.create(client)
        tags = []

        async def look(url: str) -> str:
            answer = await client.get(url)
            again = await client.get(url, headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == answer.headers["etag"]
            return str(answer.headers["etag"])

        changes: list[Callable[[], Awaitable[Any]]] = [
            lambda: pipeline.dispatch("a"),
            lambda: pipeline.output("b", 1),
            lambda: pipeline.output("b", 2),
            pipeline.finish,
        ]
        for change in changes:
            await change()
            tags += [await look("/ui"), await look(url_of(pipeline)), await look(url_of(pipeline) + "?sort=name")]
        assert len(set(tags)) == len(tags)

    @one_database
    async def test_addresses(self, client: httpx.AsyncClient) -> None:
        """``latest`` leads to the run it is now, a task to its runs; what is not there is a page that says so."""
        pipeline = await Pipeline.create(client)
        url = f"/ui/tasks/{pipeline.task_id}"
        assert (await client.get(f"{url}/runs/latest")).headers["location"] == url_of(pipeline)
        assert (await client.get(url)).headers["location"] == f"/ui?q={pipeline.task_id}"
        assert (await client.get("/")).headers["location"] == "/ui"
        run = pipeline.run_id
        for guessed, page in (
            ("/ui/tasks", "/ui"), ("/ui/runs", "/ui"), (f"/ui/runs/{run}", url_of(pipeline)),
            (f"/ui/runs/{run}/steps", url_of(pipeline)), (f"{url}/runs", f"/ui?q={pipeline.task_id}"),
            (f"{url}/runs/{run}/steps", url_of(pipeline)), (f"{url}/runs/latest/steps", f"{url}/runs/latest"),
            (f"{url}/runs/{run}/steps/a%2Fb%20%E8%A8%88", f"{url_of(pipeline)}/step?name=a%2Fb%20%E8%A8%88"),
        ):  # fmt: skip
            assert (await client.get(guessed)).headers["location"] == page, guessed
        assert "/openapi.json" not in (await client.get("/ui/x")).text
        other = await Pipeline.create(client)
        for wrong, status in (
            ("/ui/runs/R-0", 404), ("/ui/runs/x", 400),
            ("/ui/tasks/T-0/runs/R-0", 404), (f"{url}/runs/R-0", 404), (f"{url}/runs/{other.run_id}", 404),
            ("/ui/tasks/x/runs/R-0", 400), (f"{url}/runs/x", 400), (f"{url}/runs/%2e%2e", 400), ("/ui/x", 404),
        ):  # fmt: skip
            answer = await client.get(wrong)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), wrong
        assert (await client.delete("/ui")).status_code == 405
        assert (await client.head(url_of(pipeline))).status_code == 200


class TestCost:
    async def test_pages_take_as_many_statements_whatever_they_show(
        self, client: httpx.AsyncClient, statements: Statements
    ) -> None:
        """One run or a full page of them, ten steps or a thousand: the same few statements, and no body is read."""
        few, many = await Pipeline.create(client, goal="few"), await Pipeline.create(client, goal="many")
        for run, marker, count in ((few, "few-00000", 10), (many, "step-00000", 1000)):
            await run.output(marker, {"a": "body"})
            await multiplied(statements, ("dispatches", "outputs", "projections"), marker, count)
        await client.get(url_of(few))
        sent = {run.run_id: (await statements.of(client, url_of(run)))[0] for run in (few, many)}
        assert len(sent[few.run_id]) == len(sent[many.run_id]) <= 12, sent
        urls = ("/ui", "/ui?q=a", "/ui?status=running", "/ui?status=running&q=many")
        before = [len((await statements.of(client, url))[0]) for url in urls]
        extra = await Pipeline.create(client, goal="many")
        await multiplied(statements, ("runs",), extra.run_id, 40)
        lists = [(await statements.of(client, url))[0] for url in urls]
        assert all(len(after) <= few for after, few in zip(lists, before, strict=True)), lists
        assert max(before) <= 7
        assert not any(BODIES.search(each) for statements_sent in [*lists, *sent.values()] for each in statements_sent)


@one_database
class TestHeaders:
    async def test_every_page_has_the_policy(self, client: httpx.AsyncClient) -> None:
        """Pages, errors among them, run no script and take no style but ours, and are kept by no cache."""
        pipeline = await Pipeline.create(client)
        for url in ("/ui", url_of(pipeline), "/ui/nowhere", "/ui/tasks/x/runs/y"):
            answer = await client.get(url)
            assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert "unsafe" not in CONTENT_SECURITY_POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"
            assert answer.headers["cache-control"] == "no-store"
            assert is_harmless(answer.text)

    async def test_static_files_are_kept_for_good(self, client: httpx.AsyncClient) -> None:
        """A URL with today's digest is immutable; one of another version is asked for again; others are 404."""
        text = await page_of(client, "/ui")
        urls = re.findall(r'(?:href|src)="(/ui/static/[^"]+)"', text)
        assert len(urls) >= 3
        for url in urls:
            answer = await client.get(url)
            assert answer.status_code == 200
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
            again = await client.get(url, headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            older = await client.get(re.sub(r"static/\w+/", "static/0000/", url))
            assert (older.content, older.headers["cache-control"]) == (answer.content, "no-cache")
        icon = await client.get("/favicon.ico", follow_redirects=True)
        assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
        for name in ("nothing.js", "..%2fpages.py", "%2e%2e%2f%2e%2e%2fmain.py", "app.css%00"):
            assert (await client.get(f"/ui/static/0000/{name}")).status_code == 404
