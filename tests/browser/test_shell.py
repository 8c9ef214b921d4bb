"""The shell of every page: what stands around it, errors as pages, and how it fits a window."""

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import AxeCheck
from tests.e2e.conftest import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_error_is_a_page_for_people(server: Server, page: Page, axe: AxeCheck, complaints: list[str]) -> None:
    """A page that does not exist says so with its code and request id, and leads back to all runs."""
    answer = await page.goto(f"{server.url}/ui/nowhere")
    assert answer is not None
    assert answer.status == 404
    await expect(page.get_by_role("heading", level=1)).to_have_text("Not Found")
    await expect(page.locator("dl")).to_contain_text("route_not_found")
    await axe(page)
    assert "404" in complaints.pop()
