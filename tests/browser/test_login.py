"""The login in a browser: once, with the operator token, and back to where one wanted to go."""

import pytest
from playwright.async_api import Page, expect

from app.services.sessions import SESSION_COOKIE
from tests.browser.conftest import TOKEN, AxeCheck, OpenPage
from tests.e2e.conftest import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def log_in(page: Page, token: str = TOKEN) -> None:
    await page.get_by_label("Operator token").fill(token)
    await page.get_by_role("button", name="Log in").click()


async def test_once_and_back_to_where_one_wanted_to_go(guarded_server: Server, page: Page) -> None:
    """A page asked for leads to the login, the token leads back to it, and logging out closes every page again."""
    wanted = f"{guarded_server.url}/ui?q=some%20goal&status=done"
    await page.goto(wanted)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    await expect(page.get_by_label("Operator token")).to_be_focused()
    await log_in(page)
    await expect(page).to_have_url(wanted)
    await expect(page.locator("#live-word")).to_have_text("Live")
    (cookie,) = await page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (SESSION_COOKIE, True, "Strict")
    assert await page.evaluate("document.cookie") == ""
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    await page.goto(wanted)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_wrong_token_is_told_in_words(
    guarded_server: Server, open_page: OpenPage, axe: AxeCheck, complaints: list[str], scheme: str
) -> None:
    """A wrong token gets the page again with words at the field; the token is not in it."""
    page = await open_page(color_scheme=scheme, viewport={"width": 375, "height": 700})
    await page.goto(f"{guarded_server.url}/ui/login")
    await axe(page)
    await log_in(page, "wrong")
    await expect(page.get_by_role("alert")).to_have_text("This is not the operator token of this server.")
    field = page.get_by_label("Operator token")
    await expect(field).to_have_value("")
    await expect(field).to_have_accessible_description("This is not the operator token of this server.")
    await axe(page)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "401" in complaints.pop()


async def test_a_link_from_another_site_needs_no_second_login(guarded_server: Server, page: Page) -> None:
    """Whoever has logged in and follows a link from elsewhere, which comes without the cookie, is let in at once."""
    await page.goto(f"{guarded_server.url}/ui")
    await log_in(page)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    # localhost is another site than 127.0.0.1, and its server asks for no cookie of the other.
    elsewhere = guarded_server.url.replace("127.0.0.1", "localhost")
    await page.goto(f"{elsewhere}/ui/login")
    await page.evaluate("url => { location.href = url; }", f"{guarded_server.url}/ui?q=from-elsewhere")
    await expect(page).to_have_url(f"{guarded_server.url}/ui?q=from-elsewhere")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Runs")


async def test_a_page_says_when_its_session_has_ended(guarded_server: Server, page: Page) -> None:
    """A page whose session is over stays as it is, and says that one has to log in again."""
    await page.goto(f"{guarded_server.url}/ui")
    await log_in(page)
    await expect(page.locator("#live-word")).to_have_text("Live")
    await page.context.clear_cookies()
    await expect(page.locator("#live-word")).to_have_text("Logged out: reload to log in")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
