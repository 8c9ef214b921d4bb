"""Data: events of any kind, appended and read back by id or producer name; and what workers say of themselves.

The invariant: a worker appends for its own attempt alone, and reads back nothing of another run.
"""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from app.domain.answers import rendered_value, value_of
from app.domain.bounds import KEPT
from app.domain.errors import Forbidden, OutputNotFound
from app.domain.events import CutEvent, join_event
from app.domain.grants import Grant
from app.domain.ids import check_id, check_name, is_output_id
from app.domain.records import Artifact, Final, OutputRecord, wire_time
from app.domain.rendering import compact_json
from app.domain.requests import DegradationRequest, EmitRequest, StatsRequest
from app.domain.values import parse_json
from app.services.appender import Appender, Emission, require_alive, require_bound
from app.services.scopes import Scope
from app.services.submissions import check_part_name
from app.services.threads import run_beside
from app.storage.database import Database
from app.storage.outputs import KeptOutput
from app.storage.stores import WriteStores


class RenderedContent(NamedTuple):
    """The value of one output as rendered JSON."""

    body: bytes
    sha256: str


class Data:
    """The append-only store, as workers and operators reach it.

    Args:
        database: where outputs are kept.
        appender: keeps them.
        clock: tells the time, with its zone.
    """

    def __init__(self, database: Database, appender: Appender, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._appender = appender
        self._clock = clock

    async def emit(
        self, grant: Grant, request: EmitRequest, *, traceparent: str | None = None, size_bytes: int = 0
    ) -> str:
        """Append an event and return the id of the output.

        Raises:
            Forbidden: it is for another step or attempt than the bearer's, or a Final under another step's name.
            InvalidName, InvalidParameter: a name could not be kept, or is not a part's.
            InvalidId, UnknownParent: a parent ref is no output's id.
            RunFinished: the run has ended.
        """
        require_bound(grant, request.task_id, request.attempt)
        check_name(request.producer_agent)
        if isinstance(request.event, Final) and request.producer_agent not in {grant.step_ref, grant.name}:
            raise Forbidden(f"a final is emitted under the step's own name, {grant.name!r}")
        if isinstance(request.event, Artifact):
            check_part_name(grant, request.event.name)
        for parent in request.parent_refs:
            check_id("output", parent)
        emission = Emission(
            request.event,
            request.producer_agent,
            parent_refs=request.parent_refs,
            traceparent=traceparent,
            size_bytes=size_bytes,
        )
        return await self._appender.append(grant, emission)

    async def get(self, key: str, scope: Scope) -> OutputRecord:
        """Return an output: by its id, else the newest of that producer name, over all runs.

        A worker reaches outputs of its own run alone, and of the steps that its policy allows.

        Raises:
            OutputNotFound: there is none, or the scope does not show it.
        """
        kept = await self._find(key, scope)
        return await run_beside(len(kept.body), _record, kept)

    async def get_content(self, output_id: str, scope: Scope) -> RenderedContent:
        """Return the value of an output as rendered JSON; it never changes.

        Raises:
            OutputNotFound: there is none, or the scope does not show it.
        """
        kept = await self._find(check_id("output", output_id), scope)
        body = await run_beside(len(kept.body), rendered_value, kept.encoding, kept.body)
        return RenderedContent(body, kept.json_sha256)

    async def add_degradation(self, grant: Grant, request: DegradationRequest) -> None:
        """Keep on the run what a worker did in a lesser way than it should have.

        Raises:
            RunFinished: the run has ended.
        """
        at = wire_time(self._clock())
        whose = {"step_id": grant.step_id, "attempt": grant.attempt, "name": grant.name, "reported_at": at}

        def work(stores: WriteStores) -> None:
            require_alive(stores, grant)
            stores.runs.add_degradation(grant.run_id, request.model_dump(exclude_none=True) | whose)
            stores.runs.touch(grant.run_id, at)

        await self._database.write(work)

    async def add_stats(self, grant: Grant, request: StatsRequest) -> None:
        """Keep on the step entry what a worker says of itself; what it leaves out stays as it was.

        Raises:
            RunFinished: the run has ended.
        """
        at = wire_time(self._clock())
        usage = None if request.usage is None else compact_json(request.usage.model_dump(exclude_none=True)).decode()

        def work(stores: WriteStores) -> None:
            require_alive(stores, grant)
            stores.dispatches.add_stats(grant.step_id, grant.attempt, request, usage)
            stores.runs.touch(grant.run_id, at)

        await self._database.write(work)

    async def _find(self, key: str, scope: Scope) -> KeptOutput:
        run_id = None if scope.grant is None else scope.grant.run_id
        async with self._database.point() as stores:
            kept = await stores.outputs.get(key) if is_output_id(key) else None
            if kept is None:
                kept = await stores.outputs.get_latest_by_name(key, run_id)
        if kept is None or not _shows(scope, kept):
            raise OutputNotFound(key)
        return kept


def _shows(scope: Scope, kept: KeptOutput) -> bool:
    if scope.grant is None:
        return True
    return kept.run_id == scope.grant.run_id and scope.allows(kept.name, kept.step_name)


def _record(kept: KeptOutput) -> OutputRecord:
    cut = CutEvent(parse_json(kept.event), value_of(kept.encoding, kept.body))
    return OutputRecord.model_validate(
        {
            "id": kept.id,
            "task_id": kept.step_id,
            "run_id": kept.run_id,
            "attempt": kept.attempt,
            "producer_agent": kept.producer,
            "event": join_event(cut),
            "parent_refs": parse_json(kept.parent_refs),
            "created_at": kept.created_at,
            "traceparent": kept.traceparent,
        },
        context=KEPT,
    )
