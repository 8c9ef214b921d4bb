"""The pages of runs in a browser: what a person sees, and what stays while it changes."""

import asyncio
import re

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, Request, Response, expect

from app.web import formats
from tests.browser.conftest import AxeCheck, OpenPage
from tests.browser.showcase import fill
from tests.contract.pipeline import Pipeline
from tests.e2e.conftest import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = (
    "<script>document.title='owned'</script>", '"><img src=x onerror=alert(1)>', "..", "a/b", "計画 🙂", "a&amp;b",
)  # fmt: skip
"""Names that would do harm if they were markup, or lead elsewhere if they were paths."""


def url_of(server: Server, pipeline: Pipeline) -> str:
    return f"{server.url}/ui/tasks/{pipeline.task_id}/runs/{pipeline.run_id}"


class TestRuns:
    async def test_a_new_run_appears_by_itself(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """The list takes in a run that is created while it is looked at, and its end, without a reload."""
        await page.goto(f"{server.url}/ui")
        await expect(page.locator("#live-word")).to_have_text("Live")
        await page.evaluate("window.kept = true")
        pipeline = await Pipeline.create(http, goal="Appears by itself")
        row = page.get_by_role("row").filter(has_text=pipeline.run_id)
        await expect(row).to_contain_text("running")
        await expect(page.locator("#announcer")).to_contain_text("Appears by itself: running")
        await pipeline.finish()
        await expect(row).to_contain_text("done")
        assert await page.evaluate("window.kept")

    async def test_search_and_status_without_a_reload(
        self, server: Server, http: httpx.AsyncClient, page: Page
    ) -> None:
        """Typing finds, choosing a status filters, the address says so, and the field keeps the focus."""
        wanted = await Pipeline.create(http, goal="Wanted goal")
        other = await Pipeline.create(http, goal="Other goal")
        await other.finish()
        await page.goto(f"{server.url}/ui")
        field = page.get_by_role("searchbox", name="Search by goal or id")
        await field.press_sequentially("wanted")
        await expect(page.get_by_role("row").filter(has_text=wanted.run_id)).to_be_visible()
        await expect(page.get_by_role("row").filter(has_text=other.run_id)).to_have_count(0)
        await expect(page).to_have_url(f"{server.url}/ui?q=wanted")
        await expect(field).to_be_focused()
        await page.get_by_label("Status").select_option("done")
        await expect(page.get_by_role("heading", name="No run matches")).to_be_visible()
        await field.fill("")
        await expect(page.get_by_role("row").filter(has_text=other.run_id)).to_be_visible()
        await page.reload()
        await expect(page.get_by_label("Status")).to_have_value("done")

    async def test_by_keyboard_alone(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """The first stop skips to the content; from the list a run opens, and its first step from there, by Enter."""
        pipeline = await Pipeline.create(http, goal="By keyboard alone")
        await pipeline.output("only-step", {"a": 1})
        await page.goto(f"{server.url}/ui")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("searchbox")).to_be_focused()
        await page.keyboard.type(pipeline.run_id)
        link = page.get_by_role("link", name="By keyboard alone")
        await expect(page.get_by_role("row")).to_have_count(2)
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        await expect(link).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(url_of(server, pipeline))
        for _ in range(30):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.matches('td a.title')"):
                break
        await expect(page.get_by_role("cell").get_by_role("link", name="only-step")).to_be_focused()

    async def test_without_scripts(self, server: Server, http: httpx.AsyncClient, open_page: OpenPage) -> None:
        """Everything can be read, searched and sorted with scripts off; times then name UTC."""
        pipeline = await Pipeline.create(http, goal="Without scripts")
        await pipeline.output("b", 1)
        await pipeline.output("a", 2)
        page = await open_page(java_script_enabled=False)
        await page.goto(f"{server.url}/ui")
        await page.get_by_role("searchbox").fill("without")
        await page.get_by_role("button", name="Search").click()
        await expect(page.locator("tbody time").first).to_contain_text("UTC")
        await page.get_by_role("link", name="Without scripts").click()
        await expect(page.locator(".lane")).to_have_count(2)
        assert await page.locator(".steps td .title").all_inner_texts() == ["b", "a"]
        await page.get_by_role("link", name="Name").click()
        assert await page.locator(".steps td .title").all_inner_texts() == ["a", "b"]


class TestLive:
    async def test_a_step_shows_and_nothing_else_moves(
        self, server: Server, http: httpx.AsyncClient, page: Page
    ) -> None:
        """The next look after a submit shows the step, and looks are a second apart; what one looks at stays put."""
        pipeline = await Pipeline.create(http, goal="Live")
        for number in range(40):
            await pipeline.output(f"step-{number:02}", number)
        waiting = await pipeline.dispatch("the-news")
        await page.goto(url_of(server, pipeline))
        row = page.locator(".steps tr").filter(has_text="the-news")
        await expect(row).to_contain_text("in flight")
        await page.get_by_text("dispatches, one by one").click()
        await expect(page.get_by_role("table", name="Dispatches")).to_be_visible()
        await page.locator("td").get_by_role("link", name="step-20", exact=True).first.focus()
        await page.evaluate("""() => {
            const cells = [...document.querySelectorAll(".steps td .title")];
            const cell = cells.find((each) => each.textContent === "step-21");
            getSelection().selectAllChildren(cell);
            window.row = cell.closest("tr");
            window.row.scrollIntoView({ block: "center" });
        }""")
        before = await page.evaluate("window.row.getBoundingClientRect().top")
        looks: list[Request] = []

        def noted(request: Request) -> None:
            looks.append(request)

        page.on("request", noted)
        await pipeline.result(waiting, "the output")
        looks.clear()
        await expect(row).to_contain_text("passed")
        await expect(page.locator("#announcer")).to_contain_text("the-news put out 12 B")
        seen = [response for look in looks[:2] if (response := await look.response()) and response.status == 200]
        assert seen  # the one that was under way may have come too early, the one after it has not
        assert "the-news put out 12 B" in await seen[-1].text()
        await expect(page.locator("main")).to_have_attribute("data-poll", "1000")
        another = await pipeline.output("one-more", 1)
        await expect(page.locator(".steps tr").filter(has_text=another["name"])).to_be_visible()
        after = await page.evaluate("window.row.getBoundingClientRect().top")
        assert abs(after - before) < 1  # what is above may have changed; what is looked at stands still
        assert 0 < after < 800
        assert await page.evaluate("getSelection().toString()") == "step-21"
        assert await page.evaluate("document.activeElement.textContent") == "step-20"
        assert await page.evaluate("window.row.isConnected")
        panel = page.get_by_role("table", name="Dispatches")
        await expect(panel.get_by_role("row").filter(has_text="one-more")).to_be_visible()

    async def test_only_what_changed_travels(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """Of a large run a change comes alone, into its place; scroll, focus and all other rows stay what they are."""
        pipeline = await Pipeline.create(http, goal="Large")
        waiting = [await pipeline.dispatch(f"item-{number:03}") for number in range(120)]
        for dispatched in waiting[:100]:
            await pipeline.result(dispatched, "x")
        await page.goto(url_of(server, pipeline))
        await page.get_by_text("120 dispatches, one by one").click()
        await page.locator("td").get_by_role("link", name="item-050", exact=True).first.focus()
        await page.evaluate("""() => {
            window.rows = new Map([...document.querySelectorAll("[data-key]")].map((row) => [row.dataset.key, row]));
            document.activeElement.scrollIntoView({ block: "center" });
            window.top_ = document.activeElement.getBoundingClientRect().top;
        }""")
        bodies: list[int] = []

        async def noted(response: Response) -> None:
            if response.status == 200 and response.request.resource_type == "fetch":
                bodies.append(len(await response.body()))

        page.on("response", noted)
        await pipeline.submit(waiting[110], "no", ok="false")
        dispatch = page.get_by_role("table", name="Dispatches").get_by_role("row").filter(has_text="item-110")
        await expect(dispatch).to_contain_text("blocked")
        another = await pipeline.output("one-more", 1)
        await expect(page.locator(f'[data-key="{another["step_id"]}/1"]').first).to_be_attached()
        await expect(page.locator('.lane[data-key="one-more"]')).to_be_attached()
        assert await page.evaluate("document.activeElement.textContent") == "item-050"
        assert abs(await page.evaluate("document.activeElement.getBoundingClientRect().top - window.top_")) < 1
        assert bodies
        assert max(bodies) < 30 * 1024
        marks = "(page) => [...page.querySelectorAll('[data-live] [data-mark]')].map((row) => row.dataset.mark)"
        told = await page.evaluate(f"""async () => {{
            const marks = {marks};
            const text = await (await fetch(location.href)).text();
            const whole = new DOMParser().parseFromString(text, "text/html");
            const kept = [...window.rows].filter(([key, row]) => row.isConnected).length;
            return [marks(document), marks(whole), kept, document.querySelectorAll("[data-same]").length];
        }}""")
        assert told[0] == told[1]
        assert told[3] == 0
        assert told[2] > 200  # rows, lanes and bars are the very elements that they were

    async def test_a_page_that_lost_a_row_gets_it_back(
        self, server: Server, http: httpx.AsyncClient, page: Page
    ) -> None:
        """Where something else took a row out of the page, the next change brings it back."""
        pipeline = await Pipeline.create(http)
        for name in ("a", "b", "c"):
            await pipeline.output(name, 1)
        await page.goto(url_of(server, pipeline))
        await page.evaluate("""() => {
            const row = document.querySelector('.steps [data-key="step b"]');
            window.fetch = new Proxy(window.fetch, { apply: (target, self, given) => {
                const answered = Reflect.apply(target, self, given);
                return answered.then((answer) => { row.remove(); return answer; });
            } });
        }""")
        await pipeline.output("d", 1)
        await expect(page.locator(".steps td .title")).to_have_text(["a", "b", "c", "d"])

    async def test_bars_in_flight_grow(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """A bar in flight reaches to now; the ended ones give way to it; at the end of the run all stand still."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("ended", 1)
        await pipeline.dispatch("growing")
        await page.goto(url_of(server, pipeline))
        growing = page.locator('.lane[data-key="growing"] line')
        await expect(growing).to_have_attribute("x2", "100%")
        first = float((await growing.get_attribute("x1") or "").rstrip("%"))
        await page.wait_for_function(
            "first => parseFloat(document.querySelector('.lane[data-key=growing] line').getAttribute('x1')) < first",
            arg=first,
        )
        await pipeline.finish()
        await expect(page.locator("#live")).to_be_hidden()
        await expect(page.locator(".timeline")).to_have_attribute("data-total", re.compile(r"\d+"))
        await expect(page.locator(".key")).to_contain_text("never submitted")

    async def test_scripts_write_what_the_server_writes(self, server: Server, page: Page) -> None:
        """Durations and the axis of a timeline have the same words, whoever draws them."""
        await page.goto(f"{server.url}/ui")
        spans = [
            base + more for base in (0, 450, 59_900, 100_000, 3_599_400, 86_369_900) for more in (1, 49, 50, 99, 100)
        ]
        said = await page.evaluate(
            """async (spans) => {
                const app = document.querySelector('script[src$="app.js"]').src;
                const { duration, roundTimes } = await import(new URL("formats.js", app));
                return spans.map((ms) => [duration(ms), roundTimes(ms)]);
            }""",
            spans,
        )
        assert said == [[formats.duration(ms), list(map(list, formats.round_times(ms)))] for ms in spans]

    async def test_the_server_may_go_and_come_back(
        self, server: Server, http: httpx.AsyncClient, page: Page, complaints: list[str]
    ) -> None:
        """While the server is away the page says so and stays; when it is back the page goes on by itself."""
        pipeline = await Pipeline.create(http, goal="Goes and comes back")
        waiting = await pipeline.dispatch("later")
        await page.goto(url_of(server, pipeline))
        await expect(page.locator("#live-word")).to_have_text("Live")
        server.kill()
        await expect(page.locator("#live-word")).to_have_text("Server away, trying again")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Goes and comes back")
        await asyncio.to_thread(server.start)
        await pipeline.result(waiting, "the output")
        await expect(page.get_by_role("row").filter(has_text="later")).to_contain_text("passed")
        await expect(page.locator("#live-word")).to_have_text("Live")
        assert complaints
        complaints.clear()

    async def test_sorting_and_filtering_go_on_live(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """An order and a filter hold for what comes in later, in the table and in the timeline."""
        pipeline = await Pipeline.create(http)
        await pipeline.output("small-1", 1)
        await pipeline.output("large-1", "x" * 500)
        await page.goto(url_of(server, pipeline))
        await page.get_by_role("link", name="Size").click()
        await expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "descending")
        await expect(page.locator(".steps td .title")).to_have_text(["large-1", "small-1"])
        await pipeline.output("large-2", "x" * 900)
        await expect(page.locator(".steps td .title")).to_have_text(["large-2", "large-1", "small-1"])
        await page.get_by_role("searchbox").fill("large")
        await expect(page.locator(".steps td .title")).to_have_text(["large-2", "large-1"])
        await expect(page.locator(".lane-name")).to_have_text(["large-1", "large-2"])
        await pipeline.output("small-2", 1)
        await pipeline.output("large-3", "x")
        await expect(page.locator(".steps td .title")).to_have_text(["large-2", "large-1", "large-3"])
        await expect(page).to_have_url(f"{url_of(server, pipeline)}?q=large&sort=-size")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def showcase(server: Server) -> list[str]:
    """Pages with much on them: all runs, none found, one that goes on with names of every kind."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        going_on = await fill(http)
        for name in (*HOSTILE, "a-very-long-name-" * 20):
            await going_on.output(name, name)
    return [f"{server.url}/ui", f"{server.url}/ui?q=nothing-has-this", url_of(server, going_on)]


class TestLooks:
    @pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 375), ("dark", 2560)])
    async def test_axe_finds_nothing_and_nothing_sticks_out(
        self, showcase: list[str], open_page: OpenPage, axe: AxeCheck, scheme: str, width: int
    ) -> None:
        """In light and dark, on a phone and on a wall, axe finds nothing serious and no page scrolls sideways."""
        page = await open_page(color_scheme=scheme, viewport={"width": width, "height": 800})
        for url in showcase:
            await page.goto(url)
            await axe(page)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), url
            await expect(page.get_by_role("heading", level=1)).to_have_count(1)

    async def test_hostile_names_are_text(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """Names and goals full of markup show as what they are, run nothing, and their links lead to them."""
        pipeline = await Pipeline.create(http, goal=HOSTILE[0])
        for name in HOSTILE:
            await pipeline.output(name, "x")
        await page.goto(url_of(server, pipeline))
        await expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE[0])
        assert await page.locator(".steps td .title").all_inner_texts() == list(HOSTILE)
        assert await page.locator("img, main script").count() == 0
        assert "owned" not in (await page.title()).replace(HOSTILE[0], "")
        for name in HOSTILE:
            link = page.get_by_role("cell").get_by_role("link", name=name, exact=True)
            assert await link.evaluate("link => new URL(link.href).searchParams.get('name')") == name
            assert await link.evaluate("link => new URL(link.href).pathname.endsWith('/step')")

    async def test_times_are_local_with_their_zone(self, server: Server, http: httpx.AsyncClient, page: Page) -> None:
        """A time is the reader's own and names its zone; UTC to the millisecond is behind it."""
        pipeline = await Pipeline.create(http)
        await page.goto(url_of(server, pipeline))
        started = page.locator("time").first
        await expect(started).to_have_text(re.compile(r"CES?T$|GMT\+[12]$"))
        title = await started.get_attribute("title")
        assert title == (await pipeline.record())["created_at"].replace("T", " ").replace("Z", " UTC")

    async def test_ids_are_copied(self, server: Server, http: httpx.AsyncClient, open_page: OpenPage) -> None:
        """One click copies an id, and says so."""
        pipeline = await Pipeline.create(http)
        page = await open_page(permissions=["clipboard-read", "clipboard-write"])
        await page.goto(url_of(server, pipeline))
        await page.get_by_role("button", name=f"Copy the run id {pipeline.run_id}").click()
        await expect(page.locator("#announcer")).to_have_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == pipeline.run_id
