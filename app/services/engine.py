"""The engine: creates tasks, kicks runs, dispatches steps, finishes and deletes runs.

The invariant: what a worker will see, may do and is called is decided here, at its dispatch, and written down.
"""

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta

from app.domain.blueprint import Blueprint, parse_blueprint
from app.domain.context import AgentContextView, find_ctx_faults
from app.domain.errors import (
    InvalidRequest,
    RunAlreadyFinished,
    RunNotFound,
    RunStillRunning,
)
from app.domain.ids import check_id, check_name, new_run_id, new_step_id, new_task_id, new_worker_handle
from app.domain.naming import StepName, StepNaming
from app.domain.projection import ProjectionKey
from app.domain.records import RunOutcome, RunStatus, RunSummary, TaskRecord, wire_time
from app.domain.requests import CreatedTask, Dispatched, DispatchRequest, NewTask, StepNames
from app.domain.values import JsonValue
from app.services.dispatching import Draft, check_root, keep_dispatch, name_of, policy_of
from app.services.launches import Launch, Launches
from app.services.materializer import Materializer
from app.services.removals import Removals
from app.services.results import RenderedResult, keep_result, outcome_digest, render_result
from app.services.threads import LONG_BYTES, run_beside
from app.storage.database import Database
from app.storage.dispatches import NewDispatch
from app.storage.runs import RunState
from app.storage.stores import WriteStores

PROMPT_PATH = "/v1/worker/prompt"
SUBMIT_PATH = "/v1/worker/submit"


class Engine:
    """The orchestrator's side.

    Args:
        database: where everything is kept.
        materializer: writes the views of steps to files.
        clock: tells the time, with its zone.
        handle_ttl_seconds: how long a worker handle is good for when its dispatch does not say.
        base_url: the public URL of the server, without a trailing slash; empty for none.
    """

    def __init__(
        self,
        database: Database,
        materializer: Materializer,
        *,
        clock: Callable[[], datetime],
        handle_ttl_seconds: int,
        base_url: str = "",
    ) -> None:
        self._database = database
        self._launches = Launches(database)
        self._removals = Removals(database)
        self._materializer = materializer
        self._clock = clock
        self._handle_ttl_seconds = handle_ttl_seconds
        self._base_url = base_url

    async def create_task(self, new: NewTask) -> CreatedTask:
        """Create a task, its table of names, and its first run unless that is not wanted.

        Raises:
            InvalidBlueprint, InvalidPlacement: the Blueprint is none; says where and what.
            StepNamingCollision: two of its steps claim one name.
            InvalidName: one of its names could not be kept.
            InvalidRequest: a root is no absolute path.
        """
        for field in ("project_root", "work_dir"):
            check_root(field, getattr(new, field))
        inline = _inline(new.blueprint)
        blueprint = None if new.blueprint is None else await run_beside(LONG_BYTES, parse_blueprint, inline)
        naming = None if blueprint is None else _naming_of(blueprint)
        run_id = new_run_id() if new.start else None
        at = self._now()
        task = TaskRecord(
            id=new_task_id(),
            goal=new.goal,
            status=RunStatus.RUNNING if run_id else RunStatus.PENDING,
            latest_run_id=run_id,
            project_root=new.project_root,
            work_dir=new.work_dir,
            created_at=at,
            task_metadata=new.task_metadata,
            init_ctx=new.init_ctx,
            blueprint=None if blueprint is None else blueprint.document,
        )

        def work(stores: WriteStores) -> None:
            stores.tasks.add(task, naming)
            if run_id is not None:
                stores.runs.add(run_id, task.id, at)

        await self._database.write(work)
        return CreatedTask(
            task_id=task.id,
            run_id=run_id,
            status=task.status,
            steps=[] if naming is None else [_names(entry) for entry in naming.entries],
            warnings=[] if naming is None else [warning.sentence for warning in naming.warnings],
        )

    async def start_run(self, task_id: str) -> RunSummary:
        """Kick another run of a task.

        Raises:
            TaskNotFound: no such task.
        """
        await self._launches.get(task_id)
        run_id, at = new_run_id(), self._now()
        await self._database.write(lambda stores: stores.runs.add(run_id, task_id, at))
        return RunSummary(
            id=run_id, task_id=task_id, status=RunStatus.RUNNING, error=None, created_at=at, updated_at=at
        )

    async def dispatch(self, run_id: str, request: DispatchRequest) -> Dispatched:
        """Dispatch a step, or another attempt of one, and make the handle of its worker.

        Raises:
            RunNotFound: no such run.
            RunFinished: the run has ended.
            NameTaken: the ref is no step's, but a name or alias of one.
            UnknownRetry: ``retry_of`` is no step of this run, or one of another ref.
            InvalidRequest: the ctx gives a field of the view in a wrong type.
        """
        launch = await self._launch_of(run_id)
        name = name_of(request, launch.naming)
        faults = [
            {"path": f"$.ctx.{field}", "message": message} for field, message in find_ctx_faults(request.ctx or {})
        ]
        if faults:
            raise InvalidRequest(f"{faults[0]['path']} {faults[0]['message']}", faults)
        handle, moment = new_worker_handle(), self._clock()
        draft = Draft(
            run_id=run_id,
            step_id=new_step_id() if request.retry_of is None else check_id("step", request.retry_of),
            name=name,
            request=request,
            handle_sha256=hashlib.sha256(handle.encode()).hexdigest(),
            expires_at=moment + timedelta(seconds=request.ttl_seconds or self._handle_ttl_seconds),
            started_at=moment,
        )
        dispatch, view = await self._database.write(lambda stores: keep_dispatch(stores, launch, draft))
        return Dispatched(
            step_id=draft.step_id,
            attempt=dispatch.attempt,
            step_ref=request.ref,
            name=name,
            worker_handle=handle,
            expires_at=dispatch.expires_at,
            prompt_url=f"{self._base_url}{PROMPT_PATH}?task_id={draft.step_id}",
            submit_url=self._base_url + SUBMIT_PATH,
            ctx_projection=await self._project_view(dispatch, policy_of(launch, request.ref).filter(view)),
        )

    async def finish(self, run_id: str, outcome: RunOutcome, *, size_bytes: int = LONG_BYTES) -> RunSummary:
        """End a run and set its result; what the data plane has nothing of is answered from it.

        Args:
            run_id: the run.
            outcome: how it ended.
            size_bytes: how large that is, as far as known.

        Raises:
            RunNotFound: no such run.
            RunAlreadyFinished: it ended before, with another outcome.
        """
        launch = await self._launch_of(run_id)
        digest = await run_beside(size_bytes, outcome_digest, outcome)
        rendered = await self._render_result(run_id, launch, outcome, size_bytes)
        at = self._now()

        def work(stores: WriteStores) -> None:
            run = stores.runs.lock(run_id)
            if run.outcome_sha256 is not None:
                if run.outcome_sha256 != digest:
                    raise RunAlreadyFinished(run_id, run.status)
                return
            body_id = None
            if rendered is not None:
                names = stores.dispatches.list_names(run_id)
                is_current = rendered.dispatched.issuperset(names)  # else a step was dispatched meanwhile
                result = rendered if is_current else render_result(launch.naming, names, outcome.result)
                body_id = keep_result(stores, run, result)
            stores.runs.finish(run, outcome.status, outcome.error, result_body_id=body_id, outcome_sha256=digest, at=at)

        await self._database.write(work)
        async with self._database.point() as stores:
            run = await stores.runs.find_summary(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    async def delete_run(self, run_id: str, *, force: bool) -> None:
        """Remove a run and its outputs; materialized files stay where they are.

        Raises:
            RunNotFound: no such run.
            RunStillRunning: it has not ended, and ``force`` is not set.
        """

        def judge(run: RunState) -> None:
            if not (force or run.status.is_terminal):
                raise RunStillRunning(run_id)

        await self._removals.remove(run_id, judge)
        await self._database.shrink()

    async def _launch_of(self, run_id: str) -> Launch:
        async with self._database.point() as stores:
            run = await stores.runs.find_summary(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return await self._launches.get(run.task_id)

    async def _render_result(
        self, run_id: str, launch: Launch, outcome: RunOutcome, size_bytes: int
    ) -> RenderedResult | None:
        if not outcome.has_result:
            return None
        async with self._database.point() as stores:
            dispatched = await stores.dispatches.list_names(run_id)
        return await run_beside(size_bytes, render_result, launch.naming, dispatched, outcome.result)

    async def _project_view(self, dispatch: NewDispatch, view: AgentContextView) -> str | None:
        key = ProjectionKey(task_id=dispatch.step_id)
        return await self._materializer.project_view(dispatch.projection_root, dispatch.dir_template, key, view.shown())

    def _now(self) -> str:
        return wire_time(self._clock())


def _inline(document: JsonValue) -> JsonValue:
    """Unwrap ``{"kind": "inline", "value": Blueprint}``."""
    if isinstance(document, dict) and document.get("kind") == "inline" and "value" in document:
        return document["value"]
    return document


def _naming_of(blueprint: Blueprint) -> StepNaming:
    naming = StepNaming.from_blueprint(blueprint.flow, blueprint.projection_names)
    for entry in naming.entries:
        for name in (entry.canonical, entry.step_ref, *entry.aliases):
            check_name(name)
    return naming


def _names(entry: StepName) -> StepNames:
    return StepNames(step_ref=entry.step_ref, name=entry.canonical, aliases=list(entry.aliases))
