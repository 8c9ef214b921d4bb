"""Fixtures of the browser tests: a real server process and the system's Chromium, both one a module.

The invariant: a test that leaves an error in the console, or a refused script or style, fails. Test modules say
``pytestmark = pytest.mark.asyncio(loop_scope="module")``: browser and tests share one event loop.
"""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

from tests.e2e.clusters import NGINX
from tests.e2e.conftest import Server

expect.set_options(timeout=20_000)  # a condition is waited for; a machine that is busy only takes longer

# nginx may be missing where somebody works on something else; CI has it.
collect_ignore = [] if NGINX or os.environ.get("CI") else ["test_base_path.py"]

TOKEN = "an-operators-token-0815"
GRAVE = {"serious", "critical"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server on a database of this module alone, without a token."""
    folder = tmp_path_factory.mktemp("server")
    running = Server(f"sqlite:///{folder / 'stepplane.db'}", folder / "server.log")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server that asks for the operator token."""
    folder = tmp_path_factory.mktemp("guarded")
    running = Server(f"sqlite:///{folder / 'stepplane.db'}", folder / "server.log", {"STEPPLANE_OPERATOR_TOKEN": TOKEN})
    yield running
    running.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """The system's Chromium."""
    executable = shutil.which("chromium")
    assert executable is not None, "the browser tests need Chromium: apt-get install chromium"
    async with async_playwright() as playwright:
        # Without its own sandbox, which needs rights that a container's root does not have; it sees our server alone.
        launched = await playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield launched
        await launched.close()


@pytest_asyncio.fixture(loop_scope="module")
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client on the server, to put in what a page shall show."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        yield client


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What the browser complained about: a test that provokes a complaint clears it; any other must have none."""
    said: list[str] = []
    yield said
    assert said == []


OpenPage = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(loop_scope="module")
async def open_page(browser: Browser, complaints: list[str]) -> AsyncIterator[OpenPage]:
    """Open a page in a fresh browser profile; options are those of a Playwright context."""
    contexts: list[BrowserContext] = []

    async def opened(**options: Any) -> Page:
        given = {"locale": "en-GB", "timezone_id": "Europe/Berlin", "viewport": {"width": 1280, "height": 800}}
        context = await browser.new_context(**{**given, **options})
        contexts.append(context)
        page = await context.new_page()
        page.on("console", lambda message: _note(message, complaints))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield opened
    for context in contexts:
        await context.close()


def _note(message: ConsoleMessage, complaints: list[str]) -> None:
    if message.type in {"error", "warning"}:
        complaints.append(f"{message.type}: {message.text}")


@pytest_asyncio.fixture(loop_scope="module")
async def page(open_page: OpenPage) -> Page:
    """A page in a browser of 1,280 by 800 in Berlin, that speaks English."""
    return await open_page()


AxeCheck = Callable[[Page], Awaitable[None]]


@pytest.fixture
def axe() -> AxeCheck:
    """Assert that axe finds nothing serious on a page as it is shown now."""

    async def check(page: Page) -> None:
        results = await Axe().run(page)
        found = [
            (each["id"], each["help"], [node["html"] for node in each["nodes"]][:3])
            for each in results.response["violations"]
            if each["impact"] in GRAVE
        ]
        assert found == []

    return check
