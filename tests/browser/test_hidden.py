"""Hidden characters in a browser: what scripts write shows them too, and what is copied is what is there."""

import httpx
import pytest
from playwright.async_api import Page, expect

from app.domain.visible import visible
from tests.browser.conftest import OpenPage
from tests.browser.test_runs import url_of
from tests.contract.pipeline import Pipeline
from tests.e2e.conftest import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "pay\u202eexe.fdp\u200b"
SHOWN = "pay\\u202eexe.fdp\\u200b"


async def test_scripts_and_server_agree(server: Server, page: Page) -> None:
    """For every character, alone and between others, the pages' script writes what the server writes."""
    await page.goto(f"{server.url}/ui")
    script = await page.locator('script[type="module"]').first.get_attribute("src")
    assert script is not None
    texts = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    lines = [
        "".join(f"a{char}b" for char in texts[at : at + 4_096]) for at in range(0, len(texts), 4_096)
    ] + ["❤\ufe0f \U0001f469\u200d\U0001f4bb \u0645\u06cc\u200c\u062e a\ufe0f \U0001f469\u200d"]  # fmt: skip
    told = await page.evaluate(
        "async ([url, lines]) => { const { visible } = await import(url); return lines.map(visible); }",
        [script.replace("app.js", "visible.js"), lines],
    )
    assert told == [visible(line) for line in lines]


async def test_a_tree_shows_what_its_keys_hide(server: Server, http: httpx.AsyncClient, open_page: OpenPage) -> None:
    """A key or value that a script writes shows the escape; its path is copied as it is."""
    page = await open_page(permissions=["clipboard-read", "clipboard-write"])
    pipeline = await Pipeline.create(http)
    await pipeline.output("s", {"outer": {KEY: KEY}})
    await page.goto(f"{url_of(server, pipeline)}/step?name=s")
    await page.get_by_role("treeitem", name="outer").click()
    node = page.locator("#tree li li.node")
    await expect(node.locator(".node-key")).to_have_text(SHOWN)
    await expect(node.locator(".node-preview")).to_have_text(f'"{SHOWN}"')
    assert SHOWN in (await node.get_attribute("aria-label") or "")
    await node.hover()
    await node.get_by_role("button", name="Copy path").click()
    await expect(page.locator("#announcer")).to_have_text("Copied")
    assert KEY in await page.evaluate("navigator.clipboard.readText()")


async def test_a_raw_text_marks_what_it_hides(server: Server, http: httpx.AsyncClient, page: Page) -> None:
    """Each hidden character of a raw text has its mark; a selection takes the text as it is."""
    pipeline = await Pipeline.create(http)
    await pipeline.output("s", f"before {KEY} after\nsecond")
    await page.goto(f"{url_of(server, pipeline)}/step?name=s&view=raw")
    row = page.locator(".raw-row").first
    await expect(row.locator(".hidden-char")).to_have_count(2)
    mark = row.locator(".hidden-char").first
    assert await mark.evaluate("(each) => getComputedStyle(each, '::before').content") == '"\\\\u202e"'
    assert await row.text_content() == f"before {KEY} after"
    lefts = await row.evaluate("""(row) => {
        const place = (node) => { const range = document.createRange(); range.selectNodeContents(node);
            return range.getBoundingClientRect().left; };
        return [...row.childNodes].map(place);
    }""")
    assert lefts == sorted(lefts)  # the override turns nothing around


async def test_a_name_from_right_to_left_turns_nothing(server: Server, http: httpx.AsyncClient, page: Page) -> None:
    """What stands beside a name in Hebrew stays where it would stand beside another."""
    pipeline = await Pipeline.create(http)
    await pipeline.output("\u05e9\u05dc\u05d5\u05dd 1", {"a": 1})
    await page.goto(url_of(server, pipeline))
    isolated = await page.locator(".title, .lane-name, code, .status").evaluate_all(
        "(all) => all.map((each) => getComputedStyle(each).unicodeBidi)"
    )
    assert set(isolated) == {"isolate"}
