"""Data: append an event, read one back by its id or its producer's name."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from app.api.answers import JSON_HEADERS, Answer, AnswerResponse, header_values, matches, not_modified
from app.api.bodies import SIZE_KEY, BodyRoute
from app.api.errors import documented
from app.api.json_answers import json_response
from app.api.paths import decode_segment
from app.api.steps import SCOPE_KEY
from app.api.tasks import ACCESS_ERRORS, VALUE_ERRORS
from app.api.worker import GrantDep
from app.api.worker_plane import find_traceparent
from app.domain.errors import (
    InvalidId,
    InvalidName,
    InvalidParameter,
    OutputNotFound,
    PartNameTaken,
    RunFinished,
    TooManyParts,
    UnknownParent,
)
from app.domain.grants import Grant
from app.domain.records import OutputRecord
from app.domain.rendering import etag_of
from app.domain.requests import EmitRequest, NamedEmitRequest
from app.services.data import Data
from app.services.scopes import OPERATOR, Scope

_IMMUTABLE = (b"cache-control", b"private, max-age=31536000, immutable")


class EmittedBody(BaseModel):
    """An event that was appended."""

    out_id: str = Field(description="The id of the output.")


def data_router(data: Data) -> APIRouter:
    """Make the routes of the append-only store."""
    router = APIRouter(tags=["data"], prefix="/v1/data", route_class=BodyRoute)
    emit_errors = (
        *ACCESS_ERRORS,
        *VALUE_ERRORS,
        InvalidId,
        InvalidName,
        InvalidParameter,
        PartNameTaken,
        RunFinished,
        UnknownParent,
        TooManyParts,
    )

    async def append(request: Request, grant: Grant, emission: EmitRequest) -> AnswerResponse:
        traceparent, size_bytes = find_traceparent(request.scope), request.scope[SIZE_KEY]
        return json_response(
            {"out_id": await data.emit(grant, emission, traceparent=traceparent, size_bytes=size_bytes)}
        )

    @router.post("/emit", response_model=EmittedBody, responses=documented(*emit_errors))
    async def emit(request: Request, grant: GrantDep, emission: EmitRequest) -> Any:
        """Append an event of the bearer's own step and attempt."""
        return await append(request, grant, emission)

    @router.post("/{key}", response_model=EmittedBody, responses=documented(*emit_errors))
    async def emit_named(
        request: Request,
        grant: GrantDep,
        key: Annotated[str, Path(description="The producer name to emit under; percent-encoded.")],
        emission: NamedEmitRequest,
    ) -> Any:
        """Append an event as `emit` does, the producer named by the URL."""
        return await append(request, grant, emission.under(decode_segment(key)))

    @router.get(
        "/{key}", response_model=OutputRecord, responses=documented(*ACCESS_ERRORS, InvalidParameter, OutputNotFound)
    )
    async def get_output(
        request: Request,
        key: Annotated[str, Path(description="An output's id, else a producer's name for its newest output.")],
    ) -> Any:
        """Read an output back with its event. A worker handle reaches its own run alone."""
        return json_response(await data.get(decode_segment(key), _scope(request)))

    @router.get(
        "/{out_id}/content", response_model=None, responses=documented(*ACCESS_ERRORS, InvalidId, OutputNotFound)
    )
    async def get_output_content(
        request: Request, out_id: Annotated[str, Path(description="The id of the output.")]
    ) -> Response:
        """Fetch the value of one output as rendered JSON; it never changes."""
        content = await data.get_content(decode_segment(out_id), _scope(request))
        etag = etag_of(content.sha256).encode()
        headers = [*JSON_HEADERS, (b"etag", etag), _IMMUTABLE]
        if matches(header_values(request.scope, b"if-none-match"), etag):
            return AnswerResponse(not_modified(headers))
        return AnswerResponse(Answer(200, headers, content.body))

    return router


def _scope(request: Request) -> Scope:
    scope: Scope = request.scope.get(SCOPE_KEY, OPERATOR)
    return scope
