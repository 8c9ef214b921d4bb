"""JSON answers: domain values as they are, rendered by the one renderer.

The invariant: what the framework cannot say exactly (integers of any size, lone surrogates) is said exactly here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from app.api.answers import JSON_HEADERS, Answer, AnswerResponse
from app.domain.rendering import compact_json


def json_response(content: Any, status: int = 200, *, location: str | None = None) -> AnswerResponse:
    """Answer with a domain value, or a mapping or list of them."""
    return AnswerResponse(json_answer(compact_json(_plain(content)), status, location=location))


def json_answer(rendered: bytes, status: int = 200, *, location: str | None = None) -> Answer:
    """Answer with JSON that is rendered already."""
    headers = [*JSON_HEADERS, (b"cache-control", b"no-store")]
    if location is not None:
        headers.append((b"location", location.encode()))
    return Answer(status, headers, rendered)


def no_content() -> AnswerResponse:
    """Answer that it is done."""
    return AnswerResponse(Answer(204, []))


def _plain(content: Any) -> Any:
    if isinstance(content, BaseModel):
        return content.model_dump()
    if isinstance(content, Mapping):
        return {key: _plain(item) for key, item in content.items()}
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [_plain(item) for item in content]
    return content
