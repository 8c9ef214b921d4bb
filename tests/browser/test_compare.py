"""The page that compares: what differs between two outputs, and nothing where nothing does."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import AxeCheck, OpenPage
from tests.contract.pipeline import Pipeline
from tests.e2e.conftest import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


def compare_url(server: Server, pipeline: Pipeline, name: str, **query: Any) -> str:
    pairs = "&".join(f"{key}={quote(str(given), safe='')}" for key, given in {"name": name, **query}.items())
    return f"{server.url}/ui/tasks/{pipeline.task_id}/runs/{pipeline.run_id}/compare?{pairs}"


async def test_a_retry_is_compared_with_what_came_before(
    server: Server, http: httpx.AsyncClient, page: Page, axe: AxeCheck
) -> None:
    """From a step's page one click shows the changed paths, then the changed lines; the sides can be swapped."""
    pipeline = await Pipeline.create(http)
    first = await pipeline.output("s", {"a": 1, "gone": None, "same": "x", "<b id=evil>": 1})
    await pipeline.result(await pipeline.retry(first), {"a": True, "new": [2], "same": "x", "<b id=evil>": 2})
    await page.goto(f"{compare_url(server, pipeline, 's').replace('/compare?', '/step?')}")
    await page.get_by_role("link", name="Compare").click()
    rows = page.locator(".changes tbody tr")
    told = [" ".join((await row.inner_text()).split()) for row in await rows.all()]
    assert told == [
        'changed $["<b id=evil>"] 1 2',
        "changed $.a 1 true",
        "removed $.gone null nothing",
        "added $.new nothing [ 2 ]",
    ]
    await expect(page.locator(".diff .added")).to_have_count(5)
    await expect(page.locator(".diff .removed")).to_have_count(3)
    assert await page.locator("#evil").count() == 0
    await axe(page)
    await page.get_by_role("link", name="Swap").click()
    await expect(page.locator(".diff .added")).to_have_count(3)
    await page.get_by_role("link", name="$.gone").click()
    await expect(page.locator("pre.tall")).to_have_text("null")


async def test_equal_outputs_are_identical(server: Server, http: httpx.AsyncClient, page: Page, axe: AxeCheck) -> None:
    """Two runs that put out the same say so, whatever their size, and show no lines."""
    pipeline = await Pipeline.create(http)
    other = await pipeline.another_run()
    for run in (pipeline, other):
        await run.output("s", ["x" * 100_000])
    await page.goto(compare_url(server, other, "s"))
    await expect(page.get_by_role("heading", name="Identical")).to_have_count(1)
    await expect(page.locator("main")).to_contain_text(f"Run {pipeline.run_id}")
    await expect(page.locator("table")).to_have_count(0)
    await axe(page)


async def test_what_cannot_be_compared_says_why(
    server: Server, http: httpx.AsyncClient, page: Page, axe: AxeCheck
) -> None:
    """A single output has nothing to compare with; one that is missing, or too large, is said to be."""
    pipeline = await Pipeline.create(http)
    await pipeline.output("s", 1)
    await page.goto(compare_url(server, pipeline, "s"))
    await expect(page.get_by_role("heading", name="Nothing to compare with")).to_have_count(1)
    await axe(page)
    other = await pipeline.another_run()
    await page.goto(compare_url(server, pipeline, "s", **{"from": other.run_id}))
    await expect(page.get_by_role("alert")).to_contain_text("has no output under the name 's'")
    for run, letter in ((pipeline, "a"), (other, "b")):
        await run.finish(result={"large": letter * 5 * 2**20})
    await page.goto(compare_url(server, pipeline, "large"))
    await expect(page.get_by_role("heading", name="Different, and too large to compare here")).to_have_count(1)
    await expect(page.get_by_role("link", name="Download before")).to_have_count(1)


async def test_two_megabytes_are_compared_on_a_telephone(
    server: Server, http: httpx.AsyncClient, open_page: OpenPage, axe: AxeCheck
) -> None:
    """Large outputs that differ everywhere are compared as far as a page bears, and what was left out is told."""
    pipeline = await Pipeline.create(http)
    first = await pipeline.output("s", [{"row": row, "text": "x" * 150} for row in range(9_000)])
    await pipeline.result(await pipeline.retry(first), [{"row": -row, "text": "y" * 150} for row in range(9_000)])
    page = await open_page(viewport={"width": 375, "height": 700}, color_scheme="dark")
    await page.goto(compare_url(server, pipeline, "s"))
    await expect(page.locator(".note").first).to_contain_text("the first 200 of 17,999 paths")
    await expect(page.locator(".note").nth(1)).to_contain_text("Left out of the comparison: 34,997 lines before")
    await expect(page.locator(".changes tbody tr")).to_have_count(200)
    widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    assert await page.evaluate(widths) == [375, 375]
    await page.goto(compare_url(server, pipeline, "s", to=f"{pipeline.run_id}:1:1"))
    await axe(page)
