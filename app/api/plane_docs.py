"""The debug plane's routes as the OpenAPI document tells them.

The invariant: nothing is answered here that :mod:`app.api.steps` would answer otherwise; a test holds both together.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from app.api.answers import AnswerResponse
from app.api.errors import documented
from app.api.steps import answer_plane, find_address
from app.domain.errors import (
    AttemptNotFound,
    FileNotMaterialized,
    Forbidden,
    InvalidId,
    InvalidParameter,
    OccurrenceNotFound,
    PathNotFound,
    RunNotFound,
    StepNotFound,
    StepNotSubmitted,
    TaskNotFound,
    Unauthenticated,
)
from app.domain.records import MAX_COUNT, StepList, StepSummary
from app.routes import KnownRoute
from app.services.query import FORMATS, McpQueryAdapter

TaskId = Annotated[str, Path(description="Id of the task.", examples=["T-0123456789abcdef"])]


def debug_plane_router(query: McpQueryAdapter) -> APIRouter:
    """Make the documented routes of the debug plane."""
    router = APIRouter(tags=["debug plane"], route_class=KnownRoute, prefix="/v1/tasks/{task}/runs/{run}/steps")

    async def answer(request: Request) -> AnswerResponse:
        address = find_address(request.scope["path"])
        assert address is not None  # noqa: S101 - the framework has matched the same path
        return AnswerResponse(await answer_plane(query, request.scope, address))

    @router.get(
        "",
        response_model=StepList,
        responses=NOT_MODIFIED | documented(*_READ_ERRORS),
        openapi_extra={"parameters": [_TASK, _RUN, _IF_NONE_MATCH]},
    )
    async def list_steps(request: Request) -> Any:
        """List what every step of a run put out: sizes, digests, previews and where the bytes are."""
        return await answer(request)

    @router.get(
        "/{step}",  # noqa: FAST003 - the handler reads the path as it was sent
        response_model=StepSummary,
        responses=NOT_MODIFIED | documented(*STEP_ERRORS),
        openapi_extra={"parameters": STEP_PARAMETERS},
    )
    async def get_step(request: Request) -> Any:
        """Look at one step's output without fetching it."""
        return await answer(request)

    @router.get(
        "/{step}/content",  # noqa: FAST003 - as above
        response_model=None,
        responses=_BODY | NOT_MODIFIED | documented(*STEP_ERRORS),
        openapi_extra={"parameters": STEP_PARAMETERS},
    )
    async def get_content(request: Request) -> Any:
        """Fetch one step's output: the exact bytes, with their type and digest; answers 304 to who has them."""
        return await answer(request)

    return router


def _parameter(name: str, where: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    required = {"required": True} if where == "path" else {}
    return {"name": name, "in": where, "description": description, "schema": schema, **required}


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 1, "maximum": MAX_COUNT}
_TASK = _parameter("task", "path", "Id of the task.", _TEXT)
_RUN = _parameter("run", "path", "Id of the run, or `latest` for the one created last.", _TEXT)
_IF_NONE_MATCH = _parameter("If-None-Match", "header", "Entity tags that the client has; a match answers 304.", _TEXT)
STEP_PARAMETERS: list[dict[str, Any]] = [
    _TASK,
    _RUN,
    _parameter(
        "step",
        "path",
        "Canonical name, alias, artifact name, or `_ctx` for the whole result; percent-encoded, a `/` in it too.",
        _TEXT,
    ),
    _parameter("path", "query", 'Narrows the JSON value: `$.key`, `["any key"]`, `[0]`, `[-1]`.', _TEXT),
    _parameter(
        "format",
        "query",
        "`json`: the rendered value even where a file exists; `raw`: a string's own bytes; `file`: the file or 404.",
        {"type": "string", "enum": list(FORMATS)},
    ),
    _parameter("attempt", "query", "An earlier attempt, from 1.", _COUNT),
    _parameter("occurrence", "query", "An earlier occurrence, from 1.", _COUNT),
    _IF_NONE_MATCH,
]
_READ_ERRORS = (InvalidId, InvalidParameter, Unauthenticated, Forbidden, TaskNotFound, RunNotFound)
STEP_ERRORS = (
    *_READ_ERRORS,
    StepNotFound,
    StepNotSubmitted,
    PathNotFound,
    AttemptNotFound,
    OccurrenceNotFound,
    FileNotMaterialized,
)
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "What the client has is still right."}}
_BODY: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The exact bytes, whole.",
        "content": {
            "application/json": {"schema": {}},
            "text/markdown": {"schema": _TEXT},
            "text/plain": {"schema": _TEXT},
        },
        "headers": {
            "ETag": {"description": '`"sha256:<hex>"` of the body.', "schema": _TEXT},
            "Content-Disposition": {"description": "A file name with the right ending.", "schema": _TEXT},
        },
    }
}
