"""The pages below a path of their host, in a browser, behind a real nginx."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import TOKEN
from tests.browser.test_login import log_in
from tests.contract.pipeline import Pipeline
from tests.e2e.clusters import Nginx, home_of
from tests.e2e.conftest import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(params=["stripped", "kept"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL below which a server with an operator token is reached."""
    with home_of("nginx") as home:
        nginx = Nginx(home, strips=request.param == "stripped")
        environment = {"STEPPLANE_BASE_URL": nginx.url, "STEPPLANE_OPERATOR_TOKEN": TOKEN}
        server = Server(f"sqlite:///{tmp_path}/stepplane.db", tmp_path / "server.log", environment)
        try:
            nginx.start(server.url)
            yield nginx.url
        finally:
            nginx.stop()
            server.stop()


async def test_pages_work_below_a_path(url: str, page: Page) -> None:
    """One logs in, sees a run go on live, opens a step and its tree, and copies curl lines that have the path."""
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        pipeline = await Pipeline.create(http)
        await page.goto(f"{url}/ui/tasks/{pipeline.task_id}/runs/latest")
        await log_in(page)
        await expect(page).to_have_url(f"{url}/ui/tasks/{pipeline.task_id}/runs/{pipeline.run_id}")
        await expect(page.locator("#live-word")).to_have_text("Live")
        await expect(page.locator("#first-step")).to_contain_text(f"{url}/v1/runs/{pipeline.run_id}/steps")
        await pipeline.output("plan", {"outer": {"inner": {"deep": "value"}}})
        await page.get_by_role("link", name="plan", exact=True).first.click()
        tree = page.locator("#tree")
        await expect(tree).to_contain_text("outer")
        await tree.get_by_role("treeitem").first.focus()
        await page.keyboard.press("ArrowRight")
        await expect(tree).to_contain_text("inner")
        await expect(page.locator("body")).to_contain_text(f"{url}/v1/tasks/{pipeline.task_id}")
