"""Runs: list them, look at one, dispatch its steps, finish or delete it."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from app.api.answers import AnswerResponse
from app.api.bodies import SIZE_KEY, BodyRoute
from app.api.errors import documented
from app.api.json_answers import json_response, no_content
from app.api.tasks import ACCESS_ERRORS, BODY_ERRORS, VALUE_ERRORS, Cursor, Limit
from app.domain.errors import (
    InvalidId,
    InvalidName,
    InvalidParameter,
    NameTaken,
    RunAlreadyFinished,
    RunFinished,
    RunNotFound,
    RunStillRunning,
    TaskNotFound,
    UnknownRetry,
)
from app.domain.ids import check_id
from app.domain.records import RunOutcome, RunRecord, RunStatus, RunSummary
from app.domain.requests import Dispatched, DispatchList, DispatchRequest
from app.services.catalog import DEFAULT_LIMIT, Catalog
from app.services.engine import Engine
from app.services.threads import run_beside

RunPath = Annotated[str, Path(description="Id of the run.", examples=["R-0123456789abcdef"])]


class RunListBody(BaseModel):
    """Runs, newest first."""

    runs: list[RunSummary] = Field(description="One page of runs.")
    next_cursor: str | None = Field(description="Where the next page begins; null on the last one.")


def runs_router(engine: Engine, catalog: Catalog) -> APIRouter:
    """Make the routes of runs."""
    router = APIRouter(tags=["orchestrator"], prefix="/v1/runs", route_class=BodyRoute)
    of_run = (*ACCESS_ERRORS, InvalidId, RunNotFound)

    @router.get(
        "", response_model=RunListBody, responses=documented(*ACCESS_ERRORS, InvalidId, InvalidParameter, TaskNotFound)
    )
    async def list_runs(
        task_id: Annotated[str | None, Query(description="Only runs of this task.")] = None,
        status: Annotated[RunStatus | None, Query(description="Only runs of this status.")] = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Any:
        """List runs, newest first."""
        of_task = None if task_id is None else check_id("task", task_id)
        page = await catalog.list_runs(limit, cursor, task_id=of_task, status=status)
        return json_response({"runs": page.runs, "next_cursor": page.next_cursor})

    @router.get("/{run}", response_model=RunRecord, responses=documented(*of_run))
    async def get_run(run: RunPath) -> Any:
        """Look at a run: its dispatches, its degradations and its result."""
        record, result_bytes = await catalog.get_run(check_id("run", run))
        return await run_beside(result_bytes, _whole, record)

    @router.get("/{run}/steps", response_model=DispatchList, responses=documented(*of_run))
    async def list_dispatches(run: RunPath) -> Any:
        """List every dispatch of a run, in order, in-flight ones too."""
        run_id = check_id("run", run)
        return json_response({"run_id": run_id, "steps": await catalog.list_dispatches(run_id)})

    @router.post(
        "/{run}/steps",
        status_code=201,
        response_model=Dispatched,
        responses=documented(*of_run, *BODY_ERRORS, RunFinished, NameTaken, InvalidName, UnknownRetry),
    )
    async def dispatch_step(run: RunPath, request: DispatchRequest) -> Any:
        """Dispatch a step, or another attempt of one; the answer holds the worker's handle, this once."""
        return json_response(await engine.dispatch(check_id("run", run), request), 201)

    @router.post(
        "/{run}/finish", response_model=RunSummary, responses=documented(*of_run, *VALUE_ERRORS, RunAlreadyFinished)
    )
    async def finish_run(request: Request, run: RunPath, outcome: RunOutcome) -> Any:
        """End a run and set its result; with the same outcome again it is no error."""
        return json_response(await engine.finish(check_id("run", run), outcome, size_bytes=request.scope[SIZE_KEY]))

    @router.delete(
        "/{run}", status_code=204, response_model=None, responses=documented(*of_run, InvalidParameter, RunStillRunning)
    )
    async def delete_run(
        run: RunPath,
        *,
        force: Annotated[bool, Query(description="Delete it even while it is running.")] = False,
    ) -> Any:
        """Remove a run and its outputs; materialized files stay where they are."""
        await engine.delete_run(check_id("run", run), force=force)
        return no_content()

    return router


def _whole(record: RunRecord) -> AnswerResponse:
    # The result is left out of the dump, which would copy it in one call, however large it is.
    return json_response(record.model_dump(exclude={"result_ref"}) | {"result_ref": record.result_ref})
