"""Take the screenshots of the README: ``make screenshots``.

The invariant: each shows what a server shows after the showcase went in by its API; nothing is drawn or retouched.
"""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
from playwright.async_api import Browser, async_playwright

from tests.browser.showcase import fill
from tests.contract.pipeline import Pipeline
from tests.e2e.conftest import Server

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
SCHEMES = ("light", "dark")

_PACE_SECONDS = 0.8
_WIDTH, _HEIGHT = 1280, 800


class Shot(NamedTuple):
    """One picture: its name, what it is of, and how high it is in pixels."""

    name: str
    url: str
    height: int = _HEIGHT


async def _take(browser: Browser, shot: Shot, scheme: str) -> None:
    page = await browser.new_page(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": _WIDTH, "height": shot.height},
        locale="en-GB",
        timezone_id="Europe/Berlin",
    )
    await page.goto(shot.url, wait_until="networkidle")
    await page.mouse.move(0, 0)
    await page.screenshot(path=FOLDER / f"{shot.name}-{scheme}.png")
    await page.close()


def _shots(server: Server, going_on: Pipeline, done: str) -> Iterator[Shot]:
    run = f"{server.url}/ui/tasks/{going_on.task_id}/runs/{going_on.run_id}"
    yield Shot("runs", f"{server.url}/ui", 560)
    yield Shot("run", run, 860)
    yield Shot("step-tree", f"{done}/step?name=planner")
    yield Shot("step-rendered", f"{done}/step?name=draft-answers&view=rendered")
    yield Shot("compare", f"{done}/compare?name=reviewer")


async def _take_all(server: Server, guarded: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        going_on = await fill(http, _PACE_SECONDS)
        (ended,) = (await http.get("/v1/runs", params={"status": "done"})).json()["runs"]
    done = f"{server.url}/ui/tasks/{ended['task_id']}/runs/{ended['id']}"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        login = Shot("login", f"{guarded.url}/ui/login", 520)
        for shot in (login, *_shots(server, going_on, done)):
            for scheme in SCHEMES:
                await _take(browser, shot, scheme)
        await browser.close()


def main() -> None:
    """Take them all anew."""
    if shutil.which("chromium") is None:
        sys.exit("screenshots need Chromium: apt-get install chromium")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        servers = [
            Server(f"sqlite:///{home / name}.db", home / f"{name}.log", {"STEPPLANE_OPERATOR_TOKEN": token})
            for name, token in (("open", ""), ("guarded", "a-token"))
        ]
        try:
            asyncio.run(_take_all(*servers))
        finally:
            for server in servers:
                server.stop()


if __name__ == "__main__":
    main()
