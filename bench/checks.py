"""Checks: before anything is measured, the right bytes come back, with the right digest.

The invariant: what is expected was computed without the product's own code.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import httpx

_TIMEOUT_SECONDS = 30


class WrongAnswer(Exception):
    """A server answered something else than it must; nothing of it is worth measuring."""


def check_content(url: str, body: bytes) -> None:
    """Check that a body is served byte for byte, under the tag of its digest."""
    answer = _get(url)
    _hold(url, answer.content == body, "another body")
    _hold(url, answer.headers["etag"] == etag(body), "another ETag")


def check_not_modified(url: str, body: bytes) -> None:
    """Check that who has the body already is told so, and gets none."""
    answer = _get(url, 304, {"If-None-Match": etag(body)})
    _hold(url, not answer.content and answer.headers["etag"] == etag(body), "a body, or another ETag")


def check_summary(url: str, body: bytes) -> None:
    """Check that a summary tells the size and digest of a body."""
    _hold(url, _tells(_get(url).json(), body), "another size or digest")


def check_list(url: str, bodies: Mapping[str, bytes]) -> None:
    """Check that a list has these names, in their order, and tells the size and digest of each body."""
    steps = _get(url).json()["steps"]
    _hold(url, [step["name"] for step in steps] == sorted(bodies), "other names")
    _hold(url, all(_tells(step, bodies[step["name"]]) for step in steps), "another size or digest")


def check_value(url: str, value: Any) -> None:
    """Check that a narrowed body is this value."""
    _hold(url, _get(url).json() == value, "another value")


def check_prompt(url: str, handle: str, bodies: Mapping[str, bytes]) -> None:
    """Check that a prompt points at each of these bodies."""
    pointers = _get(url, headers=bearer(handle)).json()["context"]["steps"]
    _hold(url, sorted(pointer["name"] for pointer in pointers) == sorted(bodies), "other pointers")
    _hold(url, all(_tells(pointer, bodies[pointer["name"]]) for pointer in pointers), "another size or digest")


def check_submit(url: str, handle: str, body: bytes, content_url: str) -> None:
    """Check that what is submitted can be read back once that was acknowledged."""
    answer = httpx.post(url, content=body, headers=bearer(handle), timeout=_TIMEOUT_SECONDS)
    _hold(url, answer.status_code == httpx.codes.NO_CONTENT, f"status {answer.status_code}")
    check_content(content_url, body)


def check_file(url: str, body: bytes) -> None:
    """Check that a static file is served byte for byte."""
    _hold(url, _get(url).content == body, "another body")


def etag(body: bytes) -> str:
    """Write the tag of a body."""
    return f'"sha256:{hashlib.sha256(body).hexdigest()}"'


def bearer(handle: str) -> dict[str, str]:
    """Write the header of a worker."""
    return {"Authorization": f"Bearer {handle}"}


def _get(url: str, status: int = 200, headers: dict[str, str] | None = None) -> httpx.Response:
    answer = httpx.get(url, headers=headers, timeout=_TIMEOUT_SECONDS)
    _hold(url, answer.status_code == status, f"status {answer.status_code}: {answer.text[:200]}")
    return answer


def _tells(summary: dict[str, Any], body: bytes) -> bool:
    told: tuple[int, str] = (summary["size_bytes"], summary["sha256"])
    return told == (len(body), hashlib.sha256(body).hexdigest())


def _hold(url: str, right: bool, otherwise: str) -> None:  # noqa: FBT001 - reads like an assertion
    if not right:
        raise WrongAnswer(f"{url} answered {otherwise}")
