"""A server below a path of its host, behind a real nginx that strips the path and behind one that does not."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from app.client import StepplaneClient
from tests.contract.pipeline import Pipeline, bearer, dumped, parsed
from tests.e2e.clusters import Nginx, home_of
from tests.e2e.conftest import Server

_TOKEN = "an-operators-token-0815"
_LINKS = re.compile(r'\s(?:href|src|action|data-url|data-watch|data-outline|data-content|data-page)="([^"]*)"')


@pytest.fixture(params=["stripped", "kept"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL below which a server with an operator token is reached."""
    with home_of("nginx") as home:
        nginx = Nginx(home, strips=request.param == "stripped")
        environment = {"STEPPLANE_BASE_URL": nginx.url, "STEPPLANE_OPERATOR_TOKEN": _TOKEN}
        server = Server(f"sqlite:///{tmp_path}/stepplane.db", tmp_path / "server.log", environment)
        try:
            nginx.start(server.url)
            yield nginx.url
        finally:
            nginx.stop()
            server.stop()


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """An operator's client on the server, through nginx."""
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {_TOKEN}"}, timeout=30) as client:
        yield client


async def test_every_url_that_the_api_hands_out_leads_back(url: str, http: httpx.AsyncClient) -> None:
    """Location, the workers' URLs, each ``content_url`` and the document's server carry the path, and are served."""
    created = await http.post("/v1/tasks", content=dumped({"goal": "g"}))
    assert created.json()["task_id"] in (await http.get(urljoin(url, created.headers["location"]))).text
    pipeline = Pipeline(http, created.json())
    run = await http.post(f"/v1/tasks/{pipeline.task_id}/runs")
    assert parsed(await http.get(urljoin(url, run.headers["location"])))["id"] == run.json()["id"]
    for name in ("plan", "a/b", "..", "計画"):
        step = await pipeline.dispatch(name)
        assert (await http.get(step["prompt_url"], headers=bearer(step))).status_code == 200
        assert (await http.post(step["submit_url"], content=dumped([name]), headers=bearer(step))).status_code == 204
    for summary in await pipeline.steps():
        assert summary["content_url"].startswith(f"{url}/v1/tasks/")
        if summary["name"] != "..":  # httpx, as every browser, takes it for a directory
            assert (await http.get(summary["content_url"])).json() == [summary["name"]]
    document = parsed(await http.get("/openapi.json"))
    assert [server["url"] for server in document["servers"]] == [url]


async def test_the_client_needs_the_url_alone(url: str) -> None:
    """Our own client works below the path as anywhere."""
    async with StepplaneClient(url, _TOKEN) as operator:
        task = await operator.create_task({"goal": "g"})
        step = await operator.dispatch(task["run_id"], "plan", "Plan it.")
        async with StepplaneClient(url, step["worker_handle"]) as worker:
            await worker.submit(b'{"a": 1}')
        assert json.loads((await operator.get_content(task["task_id"], "plan")).body) == {"a": 1}


async def test_every_link_of_every_page_leads_somewhere(url: str, http: httpx.AsyncClient) -> None:
    """From the list of runs on, whatever a page links to, loads or asks for begins with the path and is answered."""
    pipeline = await Pipeline.create(http)
    first = await pipeline.output("plan", {"a": {"b": "# A text"}})
    await pipeline.result(await pipeline.retry(first), {"a": 2})
    await pipeline.output("a/b", "# Markdown\n\n[a link](https://elsewhere.example/)\n" * 20)
    root = url.removesuffix("/plane")
    waiting, seen = [f"{url}/ui", f"{url}/ui?status=done", f"{url}/ui/nowhere"], set[str]()
    while waiting:
        page = waiting.pop()
        answer = await http.get(page, follow_redirects=True)
        assert answer.status_code == (404 if page.endswith("nowhere") else 200), page
        assert str(answer.url).startswith(f"{url}/")
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        for link in map(unescape, _LINKS.findall(answer.text)):
            target = urljoin(page, link)
            if link.startswith("#") or "elsewhere.example" in link or target.endswith("/ui/logout"):
                continue
            assert target.startswith(f"{url}/"), (page, link)
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    assert {f"{url}/ui", f"{url}/openapi.json"} < seen
    assert {target.rsplit("/", 1)[1] for target in seen} >= {"app.css", "app.js", "step.js", "icon.svg"}
    assert any("/step/news?" in target for target in seen)
    assert any("/compare?" in target for target in seen)
    assert root not in {target.rstrip("/") for target in seen}


@pytest.mark.parametrize("path", ["", "/", "/ui/", "/ui/runs", "/ui/tasks", "/ui/tasks/T-1", "/favicon.ico"])
async def test_a_redirect_stays_below_the_path(url: str, http: httpx.AsyncClient, path: str) -> None:
    """Wherever a path of ours sends to, it is below the path."""
    answer = await http.get(url + path, headers={"Accept": "text/html"})
    assert answer.status_code in {301, 303, 307}
    assert urljoin(f"{url}{path}", answer.headers["location"]).startswith(f"{url}/")


async def test_a_login_holds_below_the_path_alone(url: str) -> None:
    """A page asked for leads to the login and back; the cookie is of the path, and logging out ends it."""
    async with httpx.AsyncClient(base_url=url, follow_redirects=True) as browser:
        asked = await browser.get("/ui?q=goal")
        assert str(asked.url) == f"{url}/ui/login?next=%2Fplane%2Fui%3Fq%3Dgoal"
        form = {"token": _TOKEN, "next": "/plane/ui?q=goal"}
        done = await browser.post("/ui/login", data=form)
        assert (done.status_code, str(done.url)) == (200, f"{url}/ui?q=goal")
        assert [cookie.path for cookie in browser.cookies.jar] == ["/plane/"]
        assert str((await browser.post("/ui/logout")).url) == f"{url}/ui/login"
        assert list(browser.cookies.jar) == []
