"""Errors: one JSON shape for everything that goes wrong, and the one table from kinds to statuses.

The invariant: every answer of 400 or above has this shape, routing, validation and crashes included.
"""

from collections import defaultdict
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from app.api.answers import JSON_HEADERS, Answer
from app.domain.errors import (
    Conflict,
    Forbidden,
    Gone,
    InvalidRequest,
    Malformed,
    NotFound,
    ProjectionFault,
    StepplaneError,
    StorageFull,
    StorageGone,
    TooLarge,
    TooManyAttempts,
    Unauthenticated,
    Unavailable,
    UnknownParameter,
    Unprocessable,
)
from app.domain.errors import InvalidParameter as _InvalidParameter
from app.domain.faults import known_fields, must_be, unknown_field
from app.domain.rendering import compact_json

STATUSES: dict[type[Exception], int] = {
    Malformed: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Gone: 410,
    TooLarge: 413,
    Unprocessable: 422,
    TooManyAttempts: 429,
    Unavailable: 503,
    StorageFull: 507,
    ProjectionFault: 500,
    StepplaneError: 500,
}
RETRY_AFTER_SECONDS = 2


class ErrorBody(BaseModel):
    """What every error answers."""

    error: str = Field(description="What is wrong and how to mend it, in a sentence for people.")
    code: str = Field(description="The stable name of the kind of error, for programs.")
    request_id: str = Field(description="The id of the request, also in the log and in the header `X-Request-ID`.")
    details: Any = Field(
        default=None, description="What a program can use beyond the sentence; absent where there is nothing."
    )


class RouteNotFound(NotFound):
    """No route has this path."""

    code = "route_not_found"


class MethodNotAllowed(StepplaneError):
    """The route exists, for other methods."""

    code = "method_not_allowed"

    def __init__(self, allowed: str) -> None:
        super().__init__(f"this route takes {allowed} only")
        self.allowed = allowed


class HeadTooLarge(StepplaneError):
    """The head of the request is over its limit; the connection is closed."""

    code = "head_too_large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the head of a request takes at most {limit_bytes} bytes", {"limit_bytes": limit_bytes})


class UrlTooLong(StepplaneError):
    """The URL alone is over the limit of a head; the connection is closed."""

    code = "url_too_long"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"a URL takes at most {limit_bytes} bytes, its head included", {"limit_bytes": limit_bytes})


class UnsupportedEncoding(StepplaneError):
    """The body is compressed or coded otherwise; nothing of it is kept."""

    code = "unsupported_encoding"

    def __init__(self, coding: str) -> None:
        super().__init__(
            f"bodies are taken as they are, and this one has the Content-Encoding {coding[:40]!r}: send it without",
            {"taken": ["identity"]},
        )


class UnsupportedMediaType(StepplaneError):
    """The body is a form, and a form's frame is no output; nothing of it is kept."""

    code = "unsupported_media_type"

    def __init__(self, media_type: str) -> None:
        super().__init__(
            f"the body is a form ({media_type}), and would be kept with its frame: send the bytes alone, "
            "as curl --data-binary @x does, and text that only looks like a form with -H 'Content-Type: text/plain'",
            {"taken": ["any other type, the body being the bytes themselves"]},
        )


class RequestTimeout(StepplaneError):
    """The client took too long to send its head, or the next bytes of its body; the connection is closed."""

    code = "request_timeout"


class TooManyConnections(Unavailable):
    """Every connection that the server can hold is busy; this one is closed."""

    code = "too_many_connections"

    def __init__(self) -> None:
        super().__init__("the server has as many busy connections as it can hold: try again")


class Stopping(Unavailable):
    """The server is being stopped, and the request was not whole by then."""

    code = "stopping"

    def __init__(self) -> None:
        super().__init__("the server is being stopped, and waited for the rest of the request as long as it could")


class InternalError(StepplaneError):
    """A fault of ours; the log has it under the request id."""

    code = "internal_error"

    def __init__(self) -> None:
        super().__init__("the server made a mistake; its log tells more under this request id")


STATUSES |= {
    MethodNotAllowed: 405,
    RequestTimeout: 408,
    UrlTooLong: 414,
    UnsupportedEncoding: 415,
    UnsupportedMediaType: 415,
    HeadTooLarge: 431,
}


def status_of(kind: type[StepplaneError]) -> int:
    """Return the status of a kind of error: that of its nearest ancestor in the table."""
    return next(STATUSES[ancestor] for ancestor in kind.__mro__ if ancestor in STATUSES)


def error_answer(error: StepplaneError, request_id: str) -> Answer:
    """Write an error as the answer that it gets."""
    body: dict[str, Any] = {"error": error.sentence, "code": error.code, "request_id": request_id}
    if error.details is not None:
        body["details"] = error.details
    headers = [*JSON_HEADERS, (b"cache-control", b"no-store")]
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed.encode()))
    if isinstance(error, TooManyAttempts):
        headers.append((b"retry-after", str(error.retry_after_seconds).encode()))
    if isinstance(error, Unavailable) and status_of(type(error)) == STATUSES[Unavailable]:
        headers.append((b"retry-after", str(RETRY_AFTER_SECONDS).encode()))
    return Answer(status_of(type(error)), headers, compact_json(body))


def domain_error(error: Exception, body: type[BaseModel] | None = None) -> StepplaneError:
    """Tell what the framework raised as one of our own kinds; ``body`` is what the route takes for one."""
    cause = error.__cause__ if isinstance(error, HTTPException) else error  # it wraps what a body's reader raises
    if isinstance(cause, StepplaneError):
        return cause
    if isinstance(error, RequestValidationError):
        return _validation_error(error, body)
    return _routing_error(error) if isinstance(error, HTTPException) else InternalError()


def _routing_error(error: HTTPException) -> StepplaneError:
    if error.status_code == STATUSES[NotFound]:
        return RouteNotFound("no route has this path: see /openapi.json for those that exist")
    if error.status_code == STATUSES[MethodNotAllowed]:
        return MethodNotAllowed((error.headers or {}).get("Allow", ""))
    return Malformed(str(error.detail)) if error.status_code < STATUSES[StepplaneError] else InternalError()


ERROR_SCHEMA = ErrorBody.__name__
"""Where the document keeps the one schema of all errors."""


def documented(*kinds: type[StepplaneError]) -> dict[int | str, dict[str, Any]]:
    """List errors for the OpenAPI document, by status, with their codes.

    The schema is referred to, not given: the framework would build a validator of it for every status of every route.
    """
    by_status: dict[int, list[str]] = defaultdict(list)
    every: tuple[type[StepplaneError], ...] = (
        *kinds,
        UnknownParameter,
        _InvalidParameter,
        InternalError,
        Unavailable,
        StorageGone,
    )
    for kind in every:
        by_status[status_of(kind)].append(f"`{kind.code}`: {(kind.__doc__ or '').splitlines()[0]}")
    return {
        status: {"content": {"application/json": {"schema": _REF}}, "description": "  \n".join(dict.fromkeys(lines))}
        for status, lines in sorted(by_status.items())
    }


_REF = {"$ref": f"#/components/schemas/{ERROR_SCHEMA}"}


def _validation_error(error: RequestValidationError, body: type[BaseModel] | None) -> StepplaneError:
    faults = [_fault(details, body) for details in error.errors()]
    sentence = f"{faults[0]['path']}: {faults[0]['message']}"
    if len(faults) > 1:
        sentence += f" (and {len(faults) - 1} more)"
    is_body = all(details["loc"][:1] == ("body",) for details in error.errors())
    return InvalidRequest(sentence, faults) if is_body else _InvalidParameter(sentence, faults)


def _fault(details: Any, body: type[BaseModel] | None) -> dict[str, str]:
    where, *inner = details["loc"]
    place = "$" if where == "body" else f"{where} parameter "
    for step in inner:
        named = str(step) if len(str(step)) <= _SHOWN_CHARS else f"{str(step)[:_SHOWN_CHARS]}…"
        place += f"[{named}]" if isinstance(step, int) else f".{named}" if where == "body" else named
    return {"path": place, "message": _message(details, body)}


def _message(details: Any, body: type[BaseModel] | None) -> str:
    *outer, name = details["loc"]
    if details["type"] == "extra_forbidden" and body is not None:
        return unknown_field(str(name), known_fields(body, outer[1:]))
    told = _MESSAGES.get(details["type"])
    if told is not None:
        return told.format(**details.get("ctx", {}))
    expected = _EXPECTED.get(details["type"])
    is_json = outer[:1] == ["body"]  # else it came as text, and its type tells nothing
    return must_be(expected, details["input"]) if expected is not None and is_json else str(details["msg"])


_SHOWN_CHARS = 100


_MESSAGES = {
    "missing": "is missing",
    "extra_forbidden": "is no known field",
    "model_attributes_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "string_unicode": "must be valid Unicode, without lone surrogates",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}
_EXPECTED = {"int_type": "an integer", "bool_type": "true or false", "string_type": "a string", "list_type": "an array"}
