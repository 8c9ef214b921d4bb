"""Large runs: their page stays small, news of it smaller, and whatever it leaves out is counted and reached."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.contract.pipeline import Pipeline, one_database
from tests.contract.test_queries import Statements, multiplied
from tests.contract.test_run_pages import page_of, rows_of, url_of

KIB = 1024
PAGE_BYTES = 300 * KIB
NEWS_BYTES = 30 * KIB

pytestmark = one_database


@pytest.fixture
def statements(app: FastAPI, database_url: str) -> Statements:
    return Statements(app, database_url)


@pytest.fixture
async def pipeline(client: httpx.AsyncClient) -> Pipeline:
    """A run without a Blueprint."""
    return await Pipeline.create(client)


async def looped(pipeline: Pipeline, statements: Statements, count: int) -> None:
    """Dispatch one name very often, and let each of it pass."""
    dispatched = await pipeline.output("loop", {"a": 1})
    await multiplied(statements, ("dispatches",), dispatched["step_id"], count)


async def fanned_out(pipeline: Pipeline, statements: Statements, count: int) -> None:
    """Dispatch very many names once, and let each of them pass."""
    await pipeline.output("item-00000", {"a": 1})
    await multiplied(statements, ("dispatches", "outputs", "projections"), "item-00000", count)


def shown_by(page: str) -> dict[str, str]:
    """Write the header that a page's script sends: the marks of its rows, each list's together."""
    lists: list[list[str]] = []
    for tag, mark in re.findall(r'<(tbody|ol|ul|svg|/tbody|/ol|/ul|/svg)\b|data-mark="([\w-]{8})"', page):
        if (tag and not tag.startswith("/")) or tag:
            lists.append([])
        elif mark:
            lists[-1].append(mark)
    return {"Stepplane-Shown": ".".join("".join(marks) for marks in lists if marks)}


def marks_of(page: str, known: list[str]) -> Iterator[str]:
    """List the marks of a page's rows in their order, those that stay in their place."""
    for mark, first, last in re.findall(r'data-mark="([\w-]{8})"|data-same="([\w-]{8}) ([\w-]{8})"', page):
        if mark:
            yield mark
        else:
            yield from known[known.index(first) : known.index(last) + 1]


class TestOccurrences:
    async def test_ten_thousand_make_a_small_page(
        self, client: httpx.AsyncClient, pipeline: Pipeline, statements: Statements
    ) -> None:
        """The page of a run with 10,000 occurrences has under 300 KiB, counts them all, and shows the newest."""
        await looped(pipeline, statements, 10_000)
        text = await page_of(client, url_of(pipeline))
        assert len(text.encode()) < PAGE_BYTES
        assert "10,000 dispatches" in text
        assert "9,951 to 10,000 of 10,000 dispatches" in text

    async def test_a_change_is_small_news(
        self, client: httpx.AsyncClient, pipeline: Pipeline, statements: Statements
    ) -> None:
        """Whoever shows that page gets, after a dispatch and after its submit, under 30 KiB: the rows that changed."""
        await looped(pipeline, statements, 10_000)
        before = await page_of(client, url_of(pipeline))
        waiting = await pipeline.dispatch("loop")
        news = await client.get(url_of(pipeline), headers=shown_by(before))
        assert len(news.content) < NEWS_BYTES
        assert waiting["step_id"] in news.text
        await pipeline.submit(waiting, "no", ok="false")
        news = await client.get(url_of(pipeline), headers=shown_by(before))
        assert len(news.content) < NEWS_BYTES
        assert "1 blocked" in news.text

    async def test_every_dispatch_is_reached(
        self, client: httpx.AsyncClient, pipeline: Pipeline, statements: Statements
    ) -> None:
        """From the newest dispatches a link leads to those before them, down to the first, and back."""
        await looped(pipeline, statements, 120)
        url: str | None = url_of(pipeline)
        seen: list[list[str]] = []
        text = ""
        while url:
            text = await page_of(client, url)
            assert (" open>" in text) == bool(seen)  # without scripts, what was asked for is in view
            seen.append([row[0] for row in await rows_of(client, url, table=1)])
            found = re.search(r'href="([^"]+)" data-soft rel="prev">Earlier', text)
            url = unescape(found[1]).partition("#")[0] if found else None
        assert [len(page) for page in seen] == [50, 50, 50]  # the last one has some that were on the one before
        assert len({step for page in seen for step in page}) == 120
        assert "1 to 50 of 120 dispatches" in text
        later = re.search(r'href="([^"]+)" data-soft rel="next">Later', text)
        assert later is not None
        assert "51 to 100 of 120" in await page_of(client, unescape(later[1]).partition("#")[0])


class TestFanOut:
    async def test_a_thousand_names_make_a_small_page(
        self, client: httpx.AsyncClient, pipeline: Pipeline, statements: Statements
    ) -> None:
        """The page of a fan-out of 1,000 names has under 300 KiB, counts them all and leads to each."""
        await fanned_out(pipeline, statements, 1_000)
        text = await page_of(client, url_of(pipeline))
        assert len(text.encode()) < PAGE_BYTES
        assert "Page 1 of 10, 1,000 names" in text
        assert "940 more names not drawn" in text

    async def test_a_change_is_small_news(
        self, client: httpx.AsyncClient, pipeline: Pipeline, statements: Statements
    ) -> None:
        """One output more is under 30 KiB of news, on whichever page of the names one stands."""
        await fanned_out(pipeline, statements, 1_000)
        for query in ("", "?page=5", "?sort=-submitted"):
            before = await page_of(client, url_of(pipeline) + query)
            another = await pipeline.output(f"one-more {query}", 1)
            news = await client.get(url_of(pipeline) + query, headers=shown_by(before))
            assert len(news.content) < NEWS_BYTES, query
            assert another["step_id"] in news.text

    async def test_what_is_blocked_is_a_click_away(
        self, client: httpx.AsyncClient, pipeline: Pipeline, statements: Statements
    ) -> None:
        """However many names there are, blocked ones are counted, drawn, and listed by the link of their count."""
        blocked = await pipeline.dispatch("blocked-one")
        await pipeline.submit(blocked, "no", ok="false")
        await fanned_out(pipeline, statements, 1_000)
        text = await page_of(client, url_of(pipeline))
        assert 'data-key="blocked-one"' in text
        link = re.search(r'href="([^"]+)" data-soft>1 blocked<', text)
        assert link is not None
        url = unescape(link[1])
        assert [row[0] for row in await rows_of(client, url)] == ["blocked-one"]
        assert [row[0].split()[0] for row in await rows_of(client, url, table=1)] == ["blocked-one"]
        assert "Only blocked: show all" in await page_of(client, url)
        retried = await pipeline.retry(blocked)
        await pipeline.submit(retried, "yes")
        assert "stands so now: blocked" in await page_of(client, url)


class TestNews:
    async def test_rows_that_stay_and_new_ones_are_the_whole_page(
        self, client: httpx.AsyncClient, pipeline: Pipeline, statements: Statements
    ) -> None:
        """What one shows, with the news put in, is what one who comes now gets: the same rows in order."""
        await fanned_out(pipeline, statements, 300)
        changes: list[Any] = [("item-00007", 2), ("new", 1), ("item-00299", 3)]
        before = await page_of(client, url_of(pipeline))
        for name, value in changes:
            await pipeline.output(name, value)
            news = await client.get(url_of(pipeline), headers=shown_by(before))
            after = await page_of(client, url_of(pipeline))
            known = re.findall(r'data-mark="([\w-]{8})"', before)
            lanes = re.compile(r"<svg class=.*?</svg>", re.DOTALL)  # a lane that stays has its bars within it
            told, whole, had = (lanes.sub("", text) for text in (news.text, after, before))
            known = re.findall(r'data-mark="([\w-]{8})"', had)
            assert list(marks_of(told, known)) == re.findall(r'data-mark="([\w-]{8})"', whole)
            before = after

    async def test_news_have_the_etag_of_the_page(
        self, client: httpx.AsyncClient, pipeline: Pipeline, statements: Statements
    ) -> None:
        """Whoever took the news shows the page of this ETag: nothing more is sent until something changes."""
        await looped(pipeline, statements, 100)
        for url in (url_of(pipeline), "/ui"):
            whole = await client.get(url)
            news = await client.get(url, headers=shown_by(whole.text))
            assert news.headers["etag"] == whole.headers["etag"]
            assert len(news.content) < len(whole.content)
            tag = {"If-None-Match": news.headers["etag"]}
            assert (await client.get(url, headers=shown_by(whole.text) | tag)).status_code == 304

    async def test_a_header_that_is_none_gets_the_whole_page(
        self, client: httpx.AsyncClient, pipeline: Pipeline
    ) -> None:
        """Marks that nobody gave out, and whatever else stands there, are rows that are not shown."""
        await pipeline.output("a", 1)
        whole = await page_of(client, url_of(pipeline))
        for told in ("", "x" * 30_000, "....", "AAAAAAAA.BBBBBBBB"):
            news = await client.get(url_of(pipeline), headers={"Stepplane-Shown": told})
            assert "data-same" not in news.text
            marks = re.compile(r'data-mark="([\w-]{8})"')
            assert marks.findall(news.text) == marks.findall(whole)
