"""The route of outlines: what is inside an output, told before any of it is fetched.

The invariant: what content would refuse, the outline refuses with the same error; both read their query alike.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from app.api.answers import JSON_HEADERS, Answer, AnswerResponse, header_values, matches, not_modified
from app.api.errors import documented
from app.api.paths import decode_segment
from app.api.plane_docs import NOT_MODIFIED, STEP_ERRORS, STEP_PARAMETERS
from app.api.steps import SCOPE_KEY, read_narrowing
from app.api.tasks import Cursor
from app.domain.errors import FileNotMaterialized
from app.domain.ids import LATEST, check_id
from app.domain.outline import DEFAULT_CHILDREN, MAX_CHILDREN, Outline
from app.domain.rendering import compact_json
from app.routes import KnownRoute
from app.services.outlines import Outlines, Page, Sight
from app.services.scopes import OPERATOR, Scope

Children = Annotated[int, Query(ge=1, le=MAX_CHILDREN, description="How many children at most.")]


def outlines_router(outlines: Outlines) -> APIRouter:
    """Make the route of outlines."""
    router = APIRouter(tags=["debug plane"], route_class=KnownRoute, prefix="/v1/tasks/{task}/runs/{run}/steps")

    async def answer(request: Request, limit: int, cursor: str | None) -> Answer:
        sight = await _find(outlines, request, limit, cursor)
        etag = sight.etag.encode()
        headers = [*JSON_HEADERS, (b"etag", etag), (b"cache-control", b"private, no-cache")]
        tags = header_values(request.scope, b"if-none-match")
        # Only a page that was answered has a tag, so one that matches needs no body; a star may ask for a miss.
        if matches([tag for tag in tags if tag.strip() != b"*"], etag):
            return not_modified(headers)
        body = compact_json((await outlines.read(sight)).model_dump())
        return not_modified(headers) if matches(tags, etag) else Answer(200, headers, body)

    @router.head("/{step}/outline", include_in_schema=False, openapi_extra={"parameters": _PARAMETERS})  # noqa: FAST003 - read as it was sent, in _find
    @router.get(
        "/{step}/outline",
        response_model=Outline,
        responses=NOT_MODIFIED | documented(*_ERRORS),
        openapi_extra={"parameters": _PARAMETERS},
    )
    async def get_outline(request: Request, limit: Children = DEFAULT_CHILDREN, cursor: Cursor = None) -> Any:
        """Tell what is inside one step's output, a level at a time: types, sizes, and the paths to fetch it by."""
        return AnswerResponse(await answer(request, limit, cursor))

    return router


_PARAMETERS = [parameter for parameter in STEP_PARAMETERS if parameter["name"] != "format"]
_ERRORS = [kind for kind in STEP_ERRORS if kind is not FileNotMaterialized]


async def _find(outlines: Outlines, request: Request, limit: int, cursor: str | None) -> Sight:
    task, run, step = (decode_segment(request.path_params[key]) for key in ("task", "run", "step"))
    task_id = check_id("task", task)
    run_id = None if run == LATEST else check_id("run", run)
    narrowing = read_narrowing(request.scope["query_string"])
    reader: Scope = request.scope.get(SCOPE_KEY, OPERATOR)
    page = Page(narrowing.path or "", limit, cursor)
    return await outlines.find(task_id, run_id, step, narrowing, page, scope=reader)
