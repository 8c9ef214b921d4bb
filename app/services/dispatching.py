"""Dispatching: what is snapshotted for an attempt of a step, and how it is numbered.

The invariant: naming, view, policy and placement are settled in the transaction that keeps the dispatch.
"""

from datetime import datetime
from typing import NamedTuple

from app.domain.context import AgentContextView, ContextPolicy, Identity, build_view
from app.domain.errors import InvalidRequest, NameTaken, RunFinished, UnknownRetry
from app.domain.ids import check_name
from app.domain.naming import StepNaming
from app.domain.records import wire_time
from app.domain.rendering import compact_json
from app.domain.requests import DispatchRequest
from app.services.launches import Launch
from app.storage.dispatches import NewDispatch
from app.storage.runs import RunState
from app.storage.stores import WriteStores


class Draft(NamedTuple):
    """A dispatch before the run has numbered it."""

    run_id: str
    step_id: str
    name: str
    request: DispatchRequest
    handle_sha256: str
    expires_at: datetime
    started_at: datetime


def keep_dispatch(stores: WriteStores, launch: Launch, draft: Draft) -> tuple[NewDispatch, AgentContextView]:
    """Number a draft, snapshot what its worker may see, and keep it.

    Raises:
        RunNotFound, RunFinished: there is no such run, or it has ended.
        UnknownRetry: ``retry_of`` is no step of this run, or one of another ref.
        InvalidRequest: a root that the view resolves to is no absolute path.
    """
    request = draft.request
    _require_alive(stores.runs.lock(draft.run_id))
    attempt, occurrence = _numbers(stores, draft)
    view = _view(launch, request, Identity(draft.step_id, request.ref, attempt, draft.run_id))
    check_root("ctx.work_dir", view.work_dir)
    check_root("ctx.project_root", view.project_root)
    dispatch = NewDispatch(
        run_id=draft.run_id,
        step_id=draft.step_id,
        attempt=attempt,
        step_ref=request.ref,
        name=draft.name,
        occurrence=occurrence,
        handle_sha256=draft.handle_sha256,
        expires_at=wire_time(draft.expires_at),
        started_at=wire_time(draft.started_at),
        projection_root=launch.placement.resolve_root(view.work_dir, view.project_root),
        dir_template=launch.placement.dir_template,
        policy=policy_of(launch, request.ref).model_dump_json(exclude_none=True),
        view=compact_json(view.shown()).decode(),
        directive=compact_json(request.directive).decode(),
        system=None if request.system is None else compact_json(request.system).decode(),
    )
    stores.dispatches.add(dispatch)
    projections = stores.projections(launch.task.id, draft.run_id)
    counts = stores.dispatches.count(draft.run_id, draft.name, occurrence)
    projections.recount(draft.step_id, draft.name, counts.attempts, counts.occurrences)
    projections.shadow(draft.name)
    stores.runs.touch(draft.run_id, dispatch.started_at)
    return dispatch, view


def check_root(field: str, given: str | None) -> None:
    """Hold a root to an absolute path.

    Raises:
        InvalidRequest: it is none.
    """
    if given and (not given.startswith("/") or "\x00" in given or given.encode("utf-8", "ignore").decode() != given):
        fault = {"path": f"$.{field}", "message": "must be an absolute path"}
        raise InvalidRequest(f"{field} must be an absolute path", [fault])


def name_of(request: DispatchRequest, naming: StepNaming | None) -> str:
    """Return the canonical name of what is dispatched.

    Raises:
        NameTaken: the ref is no step's, but a name or alias of one.
        InvalidName: the ref could be no name.
    """
    check_name(request.ref)
    if naming is None:
        return request.ref
    canonical = naming.canonical_of(request.ref)
    if canonical is not None:
        return canonical
    owner = naming.resolve(request.ref)
    if owner is not None:
        raise NameTaken(request.ref, owner)
    return request.ref


def _numbers(stores: WriteStores, draft: Draft) -> tuple[int, int]:
    """Number a dispatch: its attempt and its occurrence."""
    if draft.request.retry_of is None:
        return 1, stores.dispatches.count(draft.run_id, draft.name, 0).occurrences + 1
    newest = stores.dispatches.find_newest_attempt(draft.run_id, draft.step_id)
    if newest is None:
        raise UnknownRetry(f"retry_of={draft.step_id}: run {draft.run_id} has no such step")
    attempt, step_ref, _, occurrence = newest
    if step_ref != draft.request.ref:
        raise UnknownRetry(f"retry_of={draft.step_id}: that step's ref is {step_ref!r}, not {draft.request.ref!r}")
    return attempt + 1, occurrence


def _require_alive(run: RunState) -> None:
    if run.status.is_terminal:
        raise RunFinished(run.id, run.status)


def _view(launch: Launch, request: DispatchRequest, identity: Identity) -> AgentContextView:
    blueprint = launch.blueprint
    return build_view(
        identity,
        launch.input,
        request.ctx,
        blueprint.agent_ctx(request.ref) if blueprint else None,
        blueprint.default_agent_ctx if blueprint else None,
        blueprint.metadata.project_name_alias if blueprint else None,
    )


def policy_of(launch: Launch, ref: str) -> ContextPolicy:
    """Return the policy of a step, its steps by canonical name: what they are called can then never change."""
    policy = launch.blueprint.policy_for(ref) if launch.blueprint else ContextPolicy()

    def canonical(given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if given is None or launch.naming is None:
            return given
        return tuple(launch.naming.resolve(name) or name for name in given)

    return policy.model_copy(
        update={"steps": canonical(policy.steps), "steps_exclude": canonical(policy.steps_exclude)}
    )
