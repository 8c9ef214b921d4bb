"""The materializer: writes outputs and views to files, and never lets that fail a submit.

The invariant: fail-open. No root, a name that cannot be a file, a full disk: the output is in the store all the
same; the failure is logged with its ids and counted.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from app.domain.answers import Answer
from app.domain.errors import InvalidKey, ProjectionFault, RunNotFound, Unavailable
from app.domain.grants import Grant
from app.domain.placement import ProjectionPlacement
from app.domain.projection import ProjectionKey, ProjectionRef
from app.domain.records import Kind
from app.domain.rendering import preview_of
from app.domain.values import JsonValue
from app.observability import MATERIALIZE_FAILURES
from app.storage.database import Database
from app.storage.files.adapter import FileProjectionAdapter, PreparedFile
from app.storage.files.opening import PRIVATE_MODE
from app.storage.projections import MaterializedFile
from app.storage.stores import WriteStores

log = structlog.get_logger(__name__)


class Submitted(NamedTuple):
    """An output that was just committed."""

    grant: Grant
    answer: Answer
    output_seq: int
    value: JsonValue


class Materializer:
    """Writes files after the commit of what they hold, and before that is acknowledged.

    Args:
        database: where the written file is noted.
        allowed_roots: the directories under which files may be written; None allows any.
        file_mode: who may read and write the files.
    """

    def __init__(self, database: Database, allowed_roots: Sequence[Path] | None, file_mode: int = PRIVATE_MODE) -> None:
        self._file_mode = file_mode
        self._database = database
        self._allowed_roots = allowed_roots

    async def project_view(
        self, root: str | None, dir_template: str | None, key: ProjectionKey, view: JsonValue
    ) -> str | None:
        """Write a worker's view to ``_ctx.md`` and return that file's path; None where it could not be written."""
        adapter = self._adapter(root, dir_template)
        if adapter is None:
            return None
        try:
            return _path(await adapter.project(key, view))
        except Exception as error:  # noqa: BLE001 - the dispatch is committed: nothing may turn it into an error
            _report("view", error, step_id=key.task_id)
            return None

    async def materialize(self, submitted: Submitted) -> None:
        """Write an output to its file, unless a newer one of the step stands there already."""
        grant, answer = submitted.grant, submitted.answer
        adapter = self._adapter(grant.projection_root, grant.dir_template)
        if adapter is None:
            return
        try:
            await self._write_and_attach(adapter, submitted)
        except Exception as error:  # noqa: BLE001 - the output is kept: nothing may turn it into an error
            _report(answer.kind, error, step_id=grant.step_id, run_id=grant.run_id, name=answer.name)

    async def _write_and_attach(self, adapter: FileProjectionAdapter, submitted: Submitted) -> None:
        prepared = await _prepare(adapter, submitted)
        try:
            await self._database.write(lambda stores: _attach(stores, submitted, prepared))
        finally:
            await asyncio.to_thread(prepared.written.close)

    def _adapter(self, root: str | None, dir_template: str | None) -> FileProjectionAdapter | None:
        if root is None or dir_template is None:
            return None
        return FileProjectionAdapter(
            root, ProjectionPlacement(dir_template=dir_template), self._allowed_roots, self._file_mode
        )


async def _prepare(adapter: FileProjectionAdapter, submitted: Submitted) -> PreparedFile:
    grant, answer = submitted.grant, submitted.answer
    if answer.kind is Kind.ARTIFACT:
        return await adapter.prepare_part(grant.step_id, answer.name, submitted.value, canonical=grant.name)
    key = ProjectionKey(task_id=grant.step_id, step=answer.name)
    return await adapter.prepare_submission(key, submitted.value, grant.attempt, ok=bool(answer.ok))


def _newest(stores: WriteStores, submitted: Submitted) -> int | None:
    type_ = "artifact" if submitted.answer.kind is Kind.ARTIFACT else "final"
    return stores.outputs.find_newest(submitted.grant.step_id, type_, submitted.answer.name)


def _attach(stores: WriteStores, submitted: Submitted, prepared: PreparedFile) -> None:
    """Put a file in its place and note it, if its output is the newest still.

    Both under the run's lock: whichever process is faster, the newest output's file is the last to take the place, and
    from the commit of an output to that of its file the record names no file, so that the kept value is served.
    """
    grant = submitted.grant
    try:
        stores.runs.lock(grant.run_id)
    except RunNotFound:  # deleted meanwhile
        return
    if _newest(stores, submitted) != submitted.output_seq:
        return
    prepared.take_place()
    file = MaterializedFile(prepared.path, prepared.size_bytes, prepared.sha256, preview_of(prepared.head))
    stores.outputs.attach_file(submitted.output_seq, file.path, file.sha256)
    stores.projections(grant.task_id, grant.run_id).attach_file(submitted.output_seq, submitted.answer, file)


def _path(ref: ProjectionRef) -> str:
    return ref.File.path if ref.File is not None else ""


def _report(what: str, error: Exception, **ids: str) -> None:
    MATERIALIZE_FAILURES.labels(what).inc()
    is_foreseen = isinstance(error, ProjectionFault | InvalidKey | Unavailable)
    # What nobody foresaw is a fault of ours, and is only found by where it happened.
    log.warning("materialize_failed", what=what, error=str(error), exc_info=None if is_foreseen else error, **ids)
