"""The worker's side: fetch the prompt, stage parts, submit the OUTPUT."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from app.api.answers import Answer, AnswerResponse
from app.api.bodies import SIZE_KEY, BodyRoute, read_body
from app.api.errors import UnsupportedEncoding, UnsupportedMediaType, documented
from app.api.forms import refuse_form
from app.api.json_answers import no_content
from app.api.tasks import BODY_ERRORS, VALUE_ERRORS
from app.api.worker_plane import GRANT_KEY, Said, answer_prompt, answer_submit, find_traceparent
from app.domain.errors import (
    FileSubmitRefused,
    Forbidden,
    IndentedTooLarge,
    InvalidId,
    InvalidName,
    InvalidParameter,
    InvalidText,
    NestedTooDeep,
    NotFound,
    NotJson,
    PartNameTaken,
    RunFinished,
    TooLarge,
    TooManyParts,
    TooManyValues,
    Unauthenticated,
    VerdictConflict,
)
from app.domain.grants import Grant
from app.domain.ids import check_id
from app.domain.records import Final, Inline
from app.domain.rendering import TEXT_TYPE, etag_of, sha256_hex
from app.domain.requests import DegradationRequest, ResultRequest, StatsRequest
from app.services.data import Data
from app.services.prompts import Prompts, WorkerPrompt
from app.services.submissions import Submissions


def grant_of(request: Request) -> Grant:
    """Return what the guard found the bearer to stand for."""
    grant: Grant = request.scope[GRANT_KEY]
    return grant


GrantDep = Annotated[Grant, Depends(grant_of)]
StepIdQuery = Annotated[
    str | None, Query(alias="task_id", description="The step (a step id) that the handle is bound to.")
]
_BEARER_ERRORS = (Unauthenticated, Forbidden, InvalidId)
_SYSTEM: dict[int | str, dict[str, Any]] = {
    200: {"description": "The system prompt, whole.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}
_RAW_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "description": "The bytes, UTF-8."}}},
    }
}


def worker_router(prompts: Prompts, submissions: Submissions, data: Data) -> APIRouter:
    """Make the routes of workers; each needs the worker handle as its bearer."""
    router = APIRouter(tags=["worker"], prefix="/v1/worker", route_class=BodyRoute)

    @router.get("/prompt", response_model=WorkerPrompt, responses=documented(*_BEARER_ERRORS))
    async def get_prompt(grant: GrantDep, step_id: StepIdQuery = None) -> Any:
        """Fetch what to do: the directive, the view, and pointers to earlier outputs."""
        return AnswerResponse(await answer_prompt(prompts, grant, _checked(step_id)))

    @router.get(
        "/prompt/system",
        response_class=Response,
        responses=_SYSTEM | documented(*_BEARER_ERRORS, InvalidParameter, NotFound),
    )
    async def get_system_prompt(
        grant: GrantDep,
        step_id: StepIdQuery = None,
        attempt: Annotated[int | None, Query(ge=1, description="The attempt that the handle is bound to.")] = None,
        ticket: Annotated[  # noqa: ARG001 - the guard has judged it
            str | None, Query(description="Opens this one prompt in a bearer's place; stands in its `uri`.")
        ] = None,
    ) -> Response:
        """Fetch a long system prompt, which the prompt only refers to; with its ticket, or with the bearer."""
        body = await prompts.fetch_system(grant, _checked(step_id), attempt)
        headers = [
            (b"content-type", TEXT_TYPE.encode()),
            (b"etag", etag_of(sha256_hex(body)).encode()),
            (b"cache-control", b"private, no-cache"),
            (b"x-content-type-options", b"nosniff"),
        ]
        return AnswerResponse(Answer(200, headers, body))

    @router.post(
        "/submit",
        status_code=204,
        response_model=None,
        openapi_extra=_RAW_BODY,
        responses=documented(
            *_BEARER_ERRORS,
            VerdictConflict,
            InvalidParameter,
            FileSubmitRefused,
            RunFinished,
            TooLarge,
            UnsupportedEncoding,
            UnsupportedMediaType,
            IndentedTooLarge,
            InvalidText,
            NotJson,
            NestedTooDeep,
            TooManyValues,
        ),
    )
    async def submit(
        request: Request,
        ok: Annotated[bool | None, Query(description="Whether the step succeeded; absent is a pass.")] = None,
        verdict: Annotated[str | None, Query(description="`pass`, `blocked` or `skip`.")] = None,
    ) -> Any:
        """Submit the OUTPUT: the body is it. A JSON object or array is that value, anything else text."""
        return AnswerResponse(await answer_submit(submissions, request.scope, request.receive, Said(ok, verdict)))

    @router.post(
        "/result",
        status_code=204,
        response_model=None,
        responses=documented(*_BEARER_ERRORS, *VALUE_ERRORS, RunFinished),
    )
    async def post_result(request: Request, grant: GrantDep, result: ResultRequest) -> Any:
        """Submit the OUTPUT as a JSON value, kept as it is sent."""
        step_id = check_id("step", result.task_id)
        final = Final(content=Inline(value=result.value), ok=result.ok)
        await submissions.result(
            grant,
            step_id,
            result.attempt,
            final,
            traceparent=find_traceparent(request.scope),
            size_bytes=request.scope[SIZE_KEY],
        )
        return no_content()

    @router.post(
        "/artifact",
        status_code=204,
        response_model=None,
        openapi_extra=_RAW_BODY,
        responses=documented(
            *_BEARER_ERRORS,
            InvalidParameter,
            FileSubmitRefused,
            PartNameTaken,
            RunFinished,
            TooLarge,
            InvalidName,
            InvalidText,
            UnsupportedEncoding,
            UnsupportedMediaType,
            TooManyParts,
        ),
    )
    async def stage_artifact(
        request: Request, grant: GrantDep, name: Annotated[str, Query(description="The name of the part.")]
    ) -> Any:
        """Stage a named part of the OUTPUT; the newest of a name wins."""
        body = await read_body(request.scope, request.receive)
        refuse_form(request.scope, body)
        await submissions.stage(grant, name, body, traceparent=find_traceparent(request.scope))
        return no_content()

    said = documented(*_BEARER_ERRORS, *BODY_ERRORS, RunFinished)

    @router.post("/degradation", status_code=204, response_model=None, responses=said)
    async def report_degradation(grant: GrantDep, degradation: DegradationRequest) -> Any:
        """Report that something was done in a lesser way; kept on the run, never an output."""
        await data.add_degradation(grant, degradation)
        return no_content()

    @router.post("/stats", status_code=204, response_model=None, responses=said)
    async def report_stats(grant: GrantDep, stats: StatsRequest) -> Any:
        """Report what ran the step and what that used; shown on the step entry."""
        await data.add_stats(grant, stats)
        return no_content()

    return router


def _checked(step_id: str | None) -> str | None:
    return None if step_id is None else check_id("step", step_id)
