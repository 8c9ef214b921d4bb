"""Names that look like others: every page shows what is hidden in a text, and keeps it where a machine reads it."""

from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from app.domain.visible import HIDDEN
from tests.contract.pipeline import Pipeline, bearer, dumped, one_database
from tests.contract.test_run_pages import page_of, url_of

NAME = "report\u202efdp\u200b.exe"
SHOWN = "report\\u202efdp\\u200b.exe"
MACHINES = {"value", "data-copy", "data-key", "data-path"}
"""Attributes that no one sees: what a field sends, what a button copies, what a row is recognised by."""

pytestmark = one_database


class _Texts(HTMLParser):
    """Collects all that a reader, or somebody who listens, gets of a page; marked characters of bodies apart."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.marks: list[str] = []
        self.exact: list[str] = []
        self._is_mark = False

    def handle_starttag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_mark = ("class", "hidden-char") in attrs
        for name, value in attrs:
            (self.exact if name in MACHINES else self.texts).append(value or "")

    def handle_endtag(self, _: str) -> None:
        self._is_mark = False

    def handle_data(self, data: str) -> None:
        (self.marks if self._is_mark else self.texts).append(data)


async def texts_of(client: httpx.AsyncClient, url: str, **query: Any) -> _Texts:
    reader = _Texts()
    reader.feed(await page_of(client, url, **query))
    return reader


@pytest.fixture
async def pipeline(client: httpx.AsyncClient) -> Pipeline:
    """A run in which all that a client can name or say holds hidden characters."""
    pipeline = await Pipeline.create(client, goal=f"goal {NAME}")
    dispatched = await pipeline.output(NAME, {NAME: NAME, "inner": {"\u2067": 1}})
    await pipeline.stage(dispatched, f"part {NAME}", f"# {NAME}\n\n[{NAME}](http://x.example '{NAME}')")
    for route, said in (
        ("stats", {"worker_kind": f"kind {NAME}", "model": f"model {NAME}"}),
        ("degradation", {"tool": NAME, "error": NAME, "fallback": NAME, "note": NAME}),
    ):
        answer = await client.post(f"/v1/worker/{route}", content=dumped(said), headers=bearer(dispatched))
        assert answer.status_code == 204
    await pipeline.retry(dispatched)
    await pipeline.output(f"text {NAME}", f"text of\n{NAME}")
    await pipeline.dispatch(f"silent {NAME}")
    await pipeline.finish("failed", error=f"error {NAME}", result={f"result {NAME}": NAME})
    return pipeline


class TestPages:
    async def test_no_page_hides_anything(self, client: httpx.AsyncClient, pipeline: Pipeline) -> None:
        """In no page's text, title or label stands a hidden character, but in the marks of bodies; its escape does."""
        run, step = url_of(pipeline), f"{url_of(pipeline)}/step"
        names = (NAME, f"part {NAME}", f"text {NAME}", f"silent {NAME}", "_ctx", f"result {NAME}")
        views = ("tree", "rendered", "raw", "pointer")
        pages: list[tuple[str, dict[str, Any]]] = [("/ui", {}), ("/ui", {"q": NAME}), (run, {}), (run, {"q": NAME})]
        pages += [(step, {"name": name, "view": view}) for name in names for view in views]
        pages += [(step, {"name": NAME, "path": f'$["{NAME}"]'}), (step, {"name": NAME, "path": f"$.{NAME}"})]
        pages += [(f"{run}/compare", {"name": NAME, "to": pipeline.run_id})]
        for url, query in pages:
            page = await texts_of(client, url, **query)
            assert [text for text in page.texts if HIDDEN.search(text)] == [], (url, query)
            assert SHOWN in "".join(page.texts) or query.get("name") == "_ctx" or page.marks, (url, query)

    async def test_each_place_of_a_run_tells_it(self, client: httpx.AsyncClient, pipeline: Pipeline) -> None:
        """Title, heading, timeline, table, worker, model, report, error and result each show the escape."""
        text = "\n".join((await texts_of(client, url_of(pipeline))).texts)
        for words in ("goal", "error", "part", "kind", "model", "silent"):
            assert f"{words} {SHOWN}" in text
        assert f"{SHOWN}, occurrence 1, attempt 1: passed" in text

    async def test_what_machines_take_stays_as_it_is(self, client: httpx.AsyncClient, pipeline: Pipeline) -> None:
        """Fields, copied texts and keys hold the true name; a body copies as it is, with its marks beside it."""
        page = await texts_of(client, f"{url_of(pipeline)}/step", name=NAME)
        assert NAME in page.exact
        assert f'$["{NAME}"]' in page.exact
        raw = await texts_of(client, f"{url_of(pipeline)}/step", name=f"text {NAME}", view="raw")
        assert raw.marks == ["\u202e", "\u200b"]
        assert "\\u202e" in raw.texts
        search = await texts_of(client, url_of(pipeline), q=NAME)
        assert NAME in search.exact

    async def test_two_names_that_look_alike_are_two_lines(self, client: httpx.AsyncClient) -> None:
        """Of five names that all read ``build``, each line shows which it is."""
        pipeline = await Pipeline.create(client)
        names = ["build", "build\u200b", "build\u2060", "\ufeffbuild", "bu\xadild"]
        for name in names:
            await pipeline.output(name, name)
        texts = (await texts_of(client, url_of(pipeline))).texts
        shown = {"build", "build\\u200b", "build\\u2060", "\\ufeffbuild", "bu\\xadild"}
        assert shown <= set(texts)

    async def test_a_download_is_saved_under_a_name_that_shows(self, pipeline: Pipeline) -> None:
        """The file name that a download suggests has the escape, and the ending that it claims."""
        answer = await pipeline.get(NAME, "/content")
        assert "report%5Cu202efdp%5Cu200b.exe.json" in answer.headers["content-disposition"]
