"""The page of a step: any output, under any name, by mouse and by keyboard, as a person looks at it."""

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import TOKEN, AxeCheck, OpenPage
from tests.contract.pipeline import Pipeline
from tests.e2e.conftest import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

TREE = {
    "plan": {"steps": ["dig", {"then": "build"}], "done": True},
    "a b": None,
    "count": 12,
    "rows": [{"row": row} for row in range(250)],
    "text": "hello",
}


def step_url(server: Server, pipeline: Pipeline, name: str, **query: Any) -> str:
    """Write where the page of a step is, by the rules of URLs and not by the server's code."""
    pairs = "&".join(f"{key}={quote(str(given), safe='')}" for key, given in {"name": name, **query}.items())
    return f"{server.url}/ui/tasks/{pipeline.task_id}/runs/{pipeline.run_id}/step?{pairs}"


async def focused_key(page: Page) -> str:
    """Return the path of the tree's node that has the focus."""
    return str(await page.evaluate("document.activeElement.dataset.path ?? document.activeElement.className"))


class TestTree:
    async def test_it_opens_level_by_level(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """A click opens a node and fetches its children then; each node is a link to a page of its own."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("s", TREE)
        await page.goto(step_url(server, pipeline, "s"))
        tree = page.get_by_role("tree")
        await expect(tree.get_by_role("treeitem")).to_have_count(5)
        await tree.get_by_role("treeitem", name="plan: object, 2 inside").click()
        await expect(tree.get_by_role("treeitem")).to_have_count(7)
        await tree.get_by_role("treeitem", name="steps: array").click()
        node = tree.get_by_role("treeitem", name="1: object, 1 inside")
        await expect(node).to_have_attribute("aria-level", "3")
        await node.get_by_role("link").click()
        await expect(page).to_have_url(step_url(server, pipeline, "s", path="$.plan.steps[1]"))
        await expect(page.get_by_role("treeitem", name="then")).to_have_count(1)

    async def test_many_children_come_in_pages(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """Of thousands of children a hundred are shown, and a hundred more whenever they are asked for."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("s", TREE)
        await page.goto(step_url(server, pipeline, "s", path="$.rows"))
        nodes = page.locator("#tree > li.node")
        await expect(nodes).to_have_count(100)
        await page.get_by_role("treeitem", name="Show 100 more of 250").click()
        await expect(nodes).to_have_count(200)
        await page.get_by_role("treeitem", name="Show 50 more of 250").click()
        await expect(nodes).to_have_count(250)
        await expect(page.locator("#tree > li.more")).to_have_count(0)

    async def test_all_opens_and_closes_within_a_bound(
        self, server: Server, http: httpx.AsyncClient, page: Page
    ) -> None:
        """Everything of a small value opens at once; of a large one as much as a page bears, which is said."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("small", TREE["plan"])
        await pipeline.output("large", [[[row]] * 30 for row in range(99)])
        await page.goto(step_url(server, pipeline, "small"))
        await page.get_by_role("button", name="Expand all").click()
        await expect(page.get_by_role("treeitem")).to_have_count(5)
        await page.get_by_role("button", name="Collapse all").click()
        await expect(page.get_by_role("treeitem")).to_have_count(2)
        await page.goto(step_url(server, pipeline, "large"))
        await page.get_by_role("button", name="Expand all").click()
        await expect(page.locator("#tree-said")).to_contain_text("200 nodes are open", timeout=60_000)
        assert await page.locator('#tree [aria-expanded="true"]').count() == 200

    async def test_the_keyboard_goes_everywhere(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """Arrows, Home, End, letters, Enter and the star do what the pattern of a tree says; Tab reaches the tools."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("s", TREE)
        await page.goto(step_url(server, pipeline, "s"))
        await page.locator("#tree > li").first.focus()
        for key, expected in (
            ("ArrowDown", "$.count"),
            ("ArrowDown", "$.plan"),
            ("ArrowUp", "$.count"),
            ("End", "$.text"),
            ("Home", '$["a b"]'),
            ("p", "$.plan"),
        ):
            await page.keyboard.press(key)
            assert await focused_key(page) == expected, key
        await page.keyboard.press("ArrowRight")
        await expect(page.locator('#tree [data-path="$.plan"]')).to_have_attribute("aria-expanded", "true")
        assert await focused_key(page) == "$.plan"
        for key, expected in (("ArrowRight", "$.plan.done"), ("ArrowDown", "$.plan.steps"), ("ArrowLeft", "$.plan")):
            await page.keyboard.press(key)
            assert await focused_key(page) == expected, key
        await page.keyboard.press("ArrowLeft")
        await expect(page.locator('#tree [data-path="$.plan"]')).to_have_attribute("aria-expanded", "false")
        await page.keyboard.press("Enter")
        await expect(page.locator('#tree [data-path="$.plan"]')).to_have_attribute("aria-expanded", "true")
        await page.keyboard.press("*")
        await expect(page.locator('#tree [data-path="$.rows"]')).to_have_attribute("aria-expanded", "true")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        await expect(page.locator(":focus")).to_have_text("Copy value")
        await page.keyboard.press("ArrowDown")
        assert await focused_key(page) == "$.plan.done"

    async def test_values_and_paths_are_copied(
        self, server: Server, http: httpx.AsyncClient, open_page: OpenPage
    ) -> None:
        """A node's value comes to the clipboard as it is served, a text without quotes; so does its path."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("s", TREE)
        page = await open_page(permissions=["clipboard-read", "clipboard-write"])
        await page.goto(step_url(server, pipeline, "s"))
        for key, tool, expected in (
            ("text", "Copy value", "hello"),
            ("a b", "Copy value", "null"),
            ("a b", "Copy path", '$["a b"]'),
            ("plan", "Copy value", json.dumps(TREE["plan"], indent=2, sort_keys=True)),
        ):
            node = page.get_by_role("treeitem", name=f"{key}: ")
            await node.hover()
            await node.get_by_role("button", name=tool).click()
            await page.wait_for_function(
                "expected => navigator.clipboard.readText().then(text => text === expected)", arg=expected
            )


class TestAnyOutput:
    @pytest.mark.parametrize("view", ["tree", "rendered", "raw", "pointer"])
    async def test_every_value_has_every_view(
        self, server: Server, http: httpx.AsyncClient, page: Page, axe: AxeCheck, view: str
    ) -> None:
        """Scalars, null, what is empty, and text that is no JSON are shown in each view, and axe is content."""
        pipeline = await Pipeline.create(http)
        values: dict[str, Any] = {
            "null": None,
            "true": True,
            "number": 10**400,
            "float": -0.0,
            "object": {},
            "array": [],
            "string": "",
            "text": "no {json",
            "surrogate": {"\ud800": "\udc00"},
            "controls": "\n\t\x00\x1b[31m\r\n",
            "whole": TREE,
        }
        for name, value in values.items():
            await pipeline.output(name, value)
        dispatched = await pipeline.dispatch("artifact")
        await pipeline.stage(dispatched, "notes.txt", "an artifact")
        for name in (*values, "notes.txt"):
            answer = await page.goto(step_url(server, pipeline, name, view=view))
            assert answer is not None
            assert answer.status == 200, name
            await expect(page.get_by_role("heading", level=1)).to_have_text(name)
        await axe(page)
        await page.goto(step_url(server, pipeline, "whole", view=view))
        await axe(page)

    async def test_nothing_hostile_is_markup(
        self, server: Server, http: httpx.AsyncClient, page: Page, axe: AxeCheck
    ) -> None:
        """Names, keys and bodies full of HTML are shown as the text that they are, in each view and each link."""
        bad = "<script>alert(1)</script>"
        attack = f"{bad}<img src=x onerror=alert(1)><b id=evil>"
        names = (bad, "..", ".", "a/b", "🙂", '" onmouseover="alert(1)', "{{ 7*7 }}", "javascript:alert(1)")
        pipeline = await Pipeline.create(http)
        for name in names:
            await pipeline.output(name, {attack: [attack], "x": attack})
        fired: list[str] = []
        page.on("dialog", lambda dialog: fired.append(dialog.message))
        for name in names:
            for view in ("tree", "rendered", "raw", "pointer"):
                await page.goto(step_url(server, pipeline, name, view=view))
                await expect(page.get_by_role("heading", level=1)).to_have_text(name)
                assert await page.locator("#evil").count() == 0
                assert await page.locator("main script").count() == 0
        await page.goto(step_url(server, pipeline, bad))
        await page.get_by_role("button", name="Expand all").click()
        await expect(page.get_by_role("treeitem")).to_have_count(3)
        await page.goto(step_url(server, pipeline, bad, path="$.nope<b id=evil>"))
        await expect(page.get_by_role("alert")).to_contain_text("<b id=evil>")
        await axe(page)
        await page.goto(step_url(server, pipeline, ".."))
        await page.get_by_role("link", name="Next step").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(names[names.index("..") + 1])
        for name in (".", ".."):
            await page.goto(step_url(server, pipeline, name))
            await page.get_by_role("treeitem", name="array, 1 inside").click()
            await expect(page.get_by_role("treeitem")).to_have_count(3)
            await page.goto(step_url(server, pipeline, name, view="raw", path="$.x"))
            await expect(page.locator(".raw-row")).to_have_text(attack)
            async with page.expect_download() as coming:
                await page.get_by_role("link", name="Download").click()
            assert (await (await coming.value).path()).read_bytes() == attack.encode()
        assert fired == []

    async def test_markdown_is_rendered_and_harmless(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """Markdown shows as such; HTML in it stays text, scripts are no links, and no image is loaded."""
        pipeline = await Pipeline.create(http)
        await pipeline.output(
            "s",
            "# Title\n\n**bold** [ok](https://example.org/a) [bad](javascript:alert(1)) [data](data:text/html,x) "
            '[own](/ui/logout) ![pic](https://example.org/x.png)\n\n<script>alert(1)</script> <b id="evil">x</b>\n\n'
            "| a |\n|--|\n| 1 |\n",
        )
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(step_url(server, pipeline, "s", view="rendered"))
        prose = page.locator(".prose")
        await expect(prose.get_by_role("heading", name="Title")).to_have_count(1)
        await expect(prose.locator("strong")).to_have_text("bold")
        await expect(prose.locator("td")).to_have_text("1")
        await expect(prose).to_contain_text('<script>alert(1)</script> <b id="evil">x</b>')
        for link in await prose.locator("a[href]").all():
            assert str(await link.get_attribute("href")).startswith("https://example.org/")
            assert set(str(await link.get_attribute("rel")).split()) >= {"noopener", "nofollow"}
        assert await prose.locator("a[href]").all_inner_texts() == ["ok", "image: pic"]
        assert all(url.startswith(server.url) for url in asked)


class TestPath:
    async def test_the_box_narrows_and_tells_a_miss(
        self, server: Server, http: httpx.AsyncClient, page: Page, axe: AxeCheck
    ) -> None:
        """A path leads to its value; one that leads nowhere says where it ends, and back to what there is."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("s", TREE)
        await page.goto(step_url(server, pipeline, "s"))
        await page.get_by_label("Path").fill("$.plan.steps[-1].then")
        await page.keyboard.press("Enter")
        await expect(page.locator("pre.tall")).to_have_text("build")
        await page.get_by_label("Path").fill("$.plan.nope")
        await page.get_by_role("button", name="Go").click()
        await expect(page.get_by_role("alert")).to_contain_text('$.plan is an object without the key "nope"')
        await axe(page)
        await page.get_by_role("link", name="Show the whole output").click()
        await expect(page.get_by_role("treeitem")).to_have_count(5)

    async def test_earlier_ones_are_a_click_away(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """Attempts and occurrences say how many there are and lead to each; one that is missing says so."""
        pipeline = await Pipeline.create(http)
        first = await pipeline.output("s", "first")
        await pipeline.result(await pipeline.retry(first), "retry")
        await pipeline.output("s", "second")
        await pipeline.retry(first)
        await page.goto(step_url(server, pipeline, "s"))
        await expect(page.locator("pre.tall")).to_have_text("second")
        await page.get_by_role("link", name="Occurrence 1").click()
        await expect(page.get_by_role("group", name="Attempt 2 of 3")).to_have_count(1)
        await expect(page.locator("pre.tall")).to_have_text("retry")
        await page.get_by_role("link", name="Attempt 1").click()
        await expect(page.locator("pre.tall")).to_have_text("first")
        await page.get_by_role("link", name="Attempt 3").click()
        await expect(page.get_by_role("alert")).to_contain_text("no output of attempt 3")

    async def test_a_step_in_flight_shows_its_output_when_it_comes(
        self, server: Server, http: httpx.AsyncClient, page: Page
    ) -> None:
        """The page of a step that has put out nothing yet waits, and becomes that of its output."""
        pipeline = await Pipeline.create(http)
        dispatched = await pipeline.dispatch("s")
        await page.goto(step_url(server, pipeline, "s"))
        await expect(page.get_by_role("heading", name="Nothing yet")).to_have_count(1)
        await pipeline.result(dispatched, TREE)
        await expect(page.get_by_role("treeitem")).to_have_count(5)
        await page.get_by_role("treeitem", name="plan").click()
        await expect(page.get_by_role("treeitem")).to_have_count(7)

    @pytest.mark.parametrize("name", ["s", ".."])
    async def test_a_newer_output_is_told(
        self, server: Server, http: httpx.AsyncClient, page: Page, axe: AxeCheck, name: str
    ) -> None:
        """While a run goes on, a page says that a retry began and what became of it, and stays as it is."""
        pipeline = await Pipeline.create(http)
        dispatched = await pipeline.output(name, TREE)
        await page.goto(step_url(server, pipeline, name))
        await page.get_by_role("treeitem", name="plan").click()
        await expect(page.get_by_role("treeitem")).to_have_count(7)
        async with page.expect_response(lambda response: "/step/news" in response.url):
            pass
        await expect(page.locator("#newer")).to_be_hidden()
        retry = await pipeline.retry(dispatched)
        await expect(page.locator("#newer")).to_contain_text("Again in flight: attempt 2.", timeout=15_000)
        await expect(page.get_by_role("link", name="Show it")).to_be_hidden()
        await pipeline.result(retry, {"only": 1}, ok=False)
        await expect(page.locator("#newer")).to_contain_text("Attempt 2 is blocked. Show it", timeout=15_000)
        await expect(page.locator("#announcer")).to_have_text("Attempt 2 is blocked.")
        await expect(page.get_by_role("treeitem")).to_have_count(7)
        await axe(page)
        await page.get_by_role("link", name="Show it").click()
        await expect(page.get_by_role("treeitem")).to_have_count(1)
        await pipeline.finish()
        await page.reload()
        assert await page.locator("#newer").count() == 0


class TestShell:
    async def test_curl_lines_name_the_secret_and_never_hold_it(
        self, guarded_server: Server, open_page: OpenPage
    ) -> None:
        """A line fetches what is shown, with the variable of the token in it; the page holds no secret."""
        async with httpx.AsyncClient(base_url=guarded_server.url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            pipeline = await Pipeline.create(http)
            await pipeline.output("a/b", {"it's": 1})
        page = await open_page(extra_http_headers={"Authorization": f"Bearer {TOKEN}"})
        await page.goto(step_url(guarded_server, pipeline, "a/b", path='$["it\'s"]'))
        url = f"{guarded_server.url}{pipeline.steps_url}/a%2Fb/content?path=%24%5B%22it%27s%22%5D&format=json"
        lines = await page.locator(".curl pre").all_inner_texts()
        assert lines[0] == f'curl -s -H "Authorization: Bearer $STEPPLANE_OPERATOR_TOKEN" "{url}"'
        assert "-H 'If-None-Match: \"sha256:" in lines[1]
        assert TOKEN not in await page.content()

    async def test_a_download_has_the_right_ending(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """What is downloaded is named by the step and by what it is; a text is saved as itself, and no JSON string."""
        pipeline = await Pipeline.create(http)
        dispatched = await pipeline.output("s", {"a": "b"})
        await pipeline.stage(dispatched, "notes.md", "# x")
        await pipeline.output("prose", '"é"\n# Title')
        downloads = (
            ("s", "", "s.json", b'{\n  "a": "b"\n}'),
            ("s", "$.a", "s.txt", b"b"),
            ("notes.md", "", "notes.md", b"# x"),
            ("prose", "", "prose.txt", '"é"\n# Title'.encode()),
        )
        for name, path, file_name, body in downloads:
            await page.goto(step_url(server, pipeline, name, path=path))
            async with page.expect_download() as coming:
                await page.get_by_role("link", name="Download").click()
            download = await coming.value
            assert download.suggested_filename == file_name
            assert (await download.path()).read_bytes() == body

    async def test_the_pointer_is_what_a_worker_is_given(
        self, server: Server, http: httpx.AsyncClient, page: Page
    ) -> None:
        """The pointer view shows the very pointer that stands in the prompt of a later worker."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("s", TREE)
        prompt = await pipeline.prompt(await pipeline.dispatch("later"))
        await page.goto(step_url(server, pipeline, "s", view="pointer"))
        shown = json.loads(await page.locator("#pointer").inner_text())
        assert [shown] == prompt["context"]["steps"]
        assert list(shown) == list(prompt["context"]["steps"][0])


async def test_a_session_is_enough_for_all_of_it(guarded_server: Server, open_page: OpenPage) -> None:
    """Whoever has logged in opens nodes, reads raw, copies, downloads and compares, without a bearer."""
    async with httpx.AsyncClient(base_url=guarded_server.url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        pipeline = await Pipeline.create(http)
        await pipeline.output("s", TREE)
        await pipeline.output("s", TREE | {"count": 13})
    page = await open_page()
    url = step_url(guarded_server, pipeline, "s")
    await page.goto(url)
    await page.get_by_label("Operator token").fill(TOKEN)
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(url)
    await page.get_by_role("treeitem", name="plan").click()
    await expect(page.get_by_role("treeitem")).to_have_count(7)
    async with page.expect_download() as coming:
        await page.get_by_role("link", name="Download").click()
    assert (await (await coming.value).path()).read_bytes() == await _content(guarded_server, pipeline)
    await page.get_by_role("link", name="Raw").click()
    await expect(page.locator("#raw[data-shown=whole]")).to_be_visible()
    await page.get_by_role("link", name="Compare").click()
    await expect(page.locator(".changes tbody tr")).to_have_count(1)


async def _content(server: Server, pipeline: Pipeline) -> bytes:
    async with httpx.AsyncClient(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        return (await http.get(pipeline.url("s", "/content"))).content


async def first_node_ms(page: Page, url: str) -> float:
    """Return how long it takes from the start of a navigation until the first node of the tree is painted."""
    await page.goto(url)
    await expect(page.locator("#tree > li").first).to_be_visible()
    return float(await page.evaluate(_FIRST_PAINT))


# What is laid out is painted only some time after.
_FIRST_PAINT = """() => new Promise((resolve) => {
  new PerformanceObserver((list) => {
    for (const entry of list.getEntriesByName("first-contentful-paint")) resolve(entry.startTime);
  }).observe({ type: "paint", buffered: true });
})"""


Opening = Callable[[str], Awaitable[float]]


class TestLarge:
    async def test_the_tree_is_there_whatever_the_size(
        self, server: Server, http: httpx.AsyncClient, page: Page
    ) -> None:
        """The first node of two megabytes is painted about as soon as that of twenty kilobytes."""
        pipeline = await Pipeline.create(http)
        for name, count in (("small", 90), ("large", 9_300)):
            await pipeline.output(name, [{"row": row, "text": "x" * 190} for row in range(count)])
        times: dict[str, list[float]] = {"small": [], "large": []}
        await first_node_ms(page, step_url(server, pipeline, "small"))
        for turn in range(5):
            for name, taken in times.items():
                taken.append(await first_node_ms(page, step_url(server, pipeline, name, path="$" if turn else "")))
        assert min(times["large"]) < 4 * min(times["small"]), times

    async def test_two_megabytes_are_read_raw(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """A line of two megabytes, and ten thousand lines, are scrolled to their end with few rows in the document."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("line", "x" * (2 * 2**20 - 100) + "END")
        await pipeline.output("lines", "\n".join(f"line {number}" for number in range(1, 100_001)))
        for name in ("line", "lines"):
            await page.goto(step_url(server, pipeline, name, view="raw"))
            raw = page.locator("#raw[data-shown=whole]")
            await expect(raw).to_be_visible()
            for is_wrapped in (True, False):
                if not is_wrapped:
                    await page.get_by_role("button", name="Wrap lines").click()
                await raw.evaluate("box => { box.scrollTop = box.scrollHeight }")
                await expect(page.locator(".raw-row").last).to_contain_text("END" if name == "line" else "line 100000")
                assert await page.locator(".raw-row").count() < 120
                if name == "lines":
                    await expect(page.locator(".raw-row").last).to_have_attribute("data-line", "100000")
                await raw.evaluate("box => { box.scrollTop = 0 }")
                await expect(page.locator(".raw-row").first).to_have_attribute("data-line", "1")

    async def test_long_markdown_is_cut_and_says_so(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """Of a text that is too long to render, the beginning is rendered, with the way to all of it."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("s", "A *line* of text.\n\n" * 20_000)
        await page.goto(step_url(server, pipeline, "s", view="rendered"))
        note = page.locator('.note[data-tone="warn"]')
        await expect(note).to_contain_text("Rendered are the first 128 KiB of 371 KiB")
        await page.get_by_role("link", name="Raw shows all of it").click()
        await expect(page.locator("#raw-said")).to_contain_text("40,001 lines")


class TestLooks:
    @pytest.mark.parametrize("view", ["tree", "rendered", "raw", "pointer"])
    async def test_it_fits_a_telephone_in_the_dark(
        self, server: Server, http: httpx.AsyncClient, open_page: OpenPage, axe: AxeCheck, view: str
    ) -> None:
        """At 375 px nothing makes the page scroll sideways; in the dark contrast holds."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("n" * 200, TREE | {"k" * 300: "v" * 3000, "deep": [[[[[[[[1]]]]]]]]})
        page = await open_page(viewport={"width": 375, "height": 700}, color_scheme="dark")
        await page.goto(step_url(server, pipeline, "n" * 200, view=view))
        if view == "tree":
            await page.get_by_role("button", name="Expand all").click()
            await expect(page.get_by_role("treeitem", name="then")).to_have_count(1, timeout=60_000)
        widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        assert await page.evaluate(widths) == [375, 375]
        await axe(page)

    async def test_it_is_read_without_scripts(
        self, server: Server, http: httpx.AsyncClient, open_page: OpenPage
    ) -> None:
        """With scripts switched off the first level, further pages, and every view can be read by following links."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("s", TREE)
        page = await open_page(java_script_enabled=False)
        await page.goto(step_url(server, pipeline, "s"))
        await page.get_by_role("link", name="rows").click()
        await page.get_by_role("link", name="Show more").click()
        await expect(page.locator("#tree > li.node").first).to_contain_text("100")
        await page.get_by_role("link", name="Raw").click()
        await expect(page.locator("#raw")).to_contain_text('"row": 0')
