"""Tasks: create one, list them, look at one, kick a run of one."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app.api.answers import AnswerResponse
from app.api.bodies import YamlBodyRoute
from app.api.errors import UnsupportedEncoding, documented
from app.api.json_answers import json_response
from app.api.plane_docs import TaskId
from app.domain.errors import (
    Forbidden,
    IndentedTooLarge,
    InvalidBlueprint,
    InvalidId,
    InvalidJson,
    InvalidName,
    InvalidParameter,
    InvalidRequest,
    NestedTooDeep,
    StepNamingCollision,
    TaskNotFound,
    TooLarge,
    TooManyValues,
    Unauthenticated,
)
from app.domain.ids import check_id
from app.domain.limits import CURSOR_CHARS
from app.domain.records import RunSummary, TaskRecord, TaskSummary
from app.domain.requests import CreatedTask, NewTask
from app.services.catalog import DEFAULT_LIMIT, MAX_LIMIT, Catalog
from app.services.engine import Engine

ACCESS_ERRORS = (Unauthenticated, Forbidden)
BODY_ERRORS = (InvalidJson, InvalidRequest, TooLarge, NestedTooDeep, TooManyValues, UnsupportedEncoding)
VALUE_ERRORS = (*BODY_ERRORS, IndentedTooLarge)
"""Where the body holds a value that is kept as an output."""

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many at most.")]
Cursor = Annotated[
    str | None,
    Query(max_length=CURSOR_CHARS.value, description="The `next_cursor` of the page before."),
]


class TaskListBody(BaseModel):
    """Tasks, newest first."""

    tasks: list[TaskSummary] = Field(description="One page of tasks.")
    next_cursor: str | None = Field(description="Where the next page begins; null on the last one.")


class TaskBody(BaseModel):
    """A task and its runs."""

    task: TaskRecord = Field(description="The task, whole.")
    runs: list[RunSummary] = Field(description="Its newest runs, newest first; 500 at most.")


def tasks_router(engine: Engine, catalog: Catalog, base_path: str = "") -> APIRouter:
    """Make the routes of tasks.

    Args:
        engine: creates them.
        catalog: lists them.
        base_path: where the server's root is on its public host, without a trailing slash.
    """
    router = APIRouter(tags=["orchestrator"], prefix="/v1/tasks", route_class=YamlBodyRoute)

    @router.post(
        "",
        status_code=201,
        response_model=CreatedTask,
        responses=documented(*ACCESS_ERRORS, *BODY_ERRORS, InvalidBlueprint, StepNamingCollision, InvalidName),
        openapi_extra={
            "requestBody": {"content": {"application/yaml": {"schema": {"$ref": "#/components/schemas/NewTask"}}}}
        },
    )
    async def create_task(new: NewTask) -> AnswerResponse:
        """Create a task, and kick its first run unless `start` is false."""
        created = await engine.create_task(new)
        return json_response(created, 201, location=f"{base_path}/v1/tasks/{created.task_id}")

    @router.get("", response_model=TaskListBody, responses=documented(*ACCESS_ERRORS, InvalidParameter))
    async def list_tasks(limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> Any:
        """List tasks, newest first."""
        page = await catalog.list_tasks(limit, cursor)
        return json_response({"tasks": page.tasks, "next_cursor": page.next_cursor})

    @router.get("/{task}", response_model=TaskBody, responses=documented(*ACCESS_ERRORS, InvalidId, TaskNotFound))
    async def get_task(task: TaskId) -> Any:
        """Look at a task and its runs."""
        record, runs = await catalog.get_task(check_id("task", task))
        return json_response({"task": record, "runs": runs})

    @router.post(
        "/{task}/runs",
        status_code=201,
        response_model=RunSummary,
        responses=documented(*ACCESS_ERRORS, InvalidId, TaskNotFound),
    )
    async def start_run(task: TaskId) -> Any:
        """Kick another run of a task."""
        run = await engine.start_run(check_id("task", task))
        return json_response(run, 201, location=f"{base_path}/v1/runs/{run.id}")

    return router
