"""The base path: what comes in loses it, where it still has it; what goes out gets it."""

import pytest
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from app.config import Settings
from app.web.base_path import BasePath
from app.web.urls import at, run_url


@pytest.mark.parametrize(
    ("sent", "within"),
    [
        ("/plane/ui", "/ui"), ("/ui", "/ui"), ("/plane", "/"), ("/plane/", "/"), ("/", "/"),
        ("/planes/ui", "/planes/ui"), ("/%70lane/ui", "/ui"),
        ("/plane/v1/tasks/T/runs/R/steps/a%2Fb", "/v1/tasks/T/runs/R/steps/a%2Fb"),
        ("/plane/plane/ui", "/plane/ui"), ("/plane%2Fui", "/plane%2Fui"), ("//plane/ui", "//plane/ui"),
    ],
)  # fmt: skip
async def test_a_path_loses_the_base_path_once(sent: str, within: str) -> None:
    """Both kinds of proxy lead to the same path, and an encoded slash stays a part of its name."""
    assert await _seen("/plane", sent) == (within, "/plane/ui/tasks/T-1/runs/R-1")


@pytest.mark.parametrize(
    ("base", "sent"), [("/a/b", "/a/b/ui"), ("/%C3%A4%20b", "/ä b/ui"), ("/%C3%A4%20b", "/%c3%a4%20b/ui")]
)
async def test_a_base_path_may_be_deep_or_encoded(base: str, sent: str) -> None:
    """Its segments are compared by what they spell."""
    assert (await _seen(base, sent))[0] == "/ui"


async def test_the_base_path_ends_with_its_request() -> None:
    """What is written afterwards has none: two servers may live in one process."""
    await _seen("/plane", "/ui")
    assert at("/ui") == "/ui"


@pytest.mark.parametrize(
    "given",
    [
        "https://h/ui",
        "https://h/v1/x",
        "https://h/metrics",
        "https://h/plane?x=1",
        "https://h/plane#x",
        "ftp://h/plane",
    ],
)
def test_a_base_url_that_cannot_work_is_refused(given: str) -> None:
    """One that begins like a path of ours, or that is no URL of a server alone, is told at the start."""
    with pytest.raises(ValidationError):
        Settings(base_url=given)


async def _seen(base: str, sent: str) -> tuple[str, str]:
    """Ask for a path, and tell what arrives within and what a page would hand out."""
    seen: list[tuple[str, str]] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append((scope["raw_path"].decode(), run_url("T-1", "R-1")))

    async def never() -> None:
        raise AssertionError

    scope = {"type": "http", "path": sent, "raw_path": sent.encode()}
    await BasePath(app, base)(scope, never, never)  # type: ignore[arg-type]
    return seen[0]
