"""The read path: what each step of a run put out, listed, looked at, and served byte for byte.

The invariant: the size and digest that are told are those of the bytes that are served, and a value comes from the
run that was asked for or from none.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from app.domain.answers import (
    Answer,
    BodyForm,
    Place,
    file_form,
    form_of,
    json_form,
    raw_body,
    raw_form,
    rendered_value,
    stored_form,
    summarize,
    summary_json,
    value_of,
)
from app.domain.errors import (
    FileNotMaterialized,
    InvalidKey,
    InvalidParameter,
    ProjectionNotFound,
    RunNotFound,
)
from app.domain.ids import CTX_NAME
from app.domain.projection import ProjectionKey, ProjectionRef
from app.domain.records import Kind, StepList, StepSummary
from app.domain.rendering import (
    PREVIEW_BYTES,
    WHOLE,
    Narrowing,
    content_path,
    preview_of,
)
from app.domain.values import JsonValue
from app.services.absences import Absence, explain_absence
from app.services.looks import Listing, Look, Served, ToldSummary, find_narrowed, require_run, walk_body
from app.services.scopes import OPERATOR, Scope
from app.services.threads import run_beside
from app.storage.database import Database
from app.storage.files.states import FileState, FileStates
from app.storage.projection_reads import ListedRow

FORMATS = ("json", "raw", "file")
_NARROWED_REMEMBERED = 512
_SHORT_BYTES = 128 * 1024
"""Up to this size a body comes along with what is told of it: one statement less than asking for it."""


class McpQueryAdapter:
    """Reads the OutputStore first, then the run's ``result_ref``; the ``mcp-query`` projection adapter.

    Args:
        database: where outputs are kept.
        files: what is known of materialized files.
        base_url: the public URL of the server, without a trailing slash; empty for none.
    """

    name: Literal["mcp-query"] = "mcp-query"

    def __init__(self, database: Database, files: FileStates, base_url: str = "") -> None:
        self._database = database
        self._files = files
        self._base_url = base_url
        # What a path narrows a value to depends on nothing but the two: by digest, this can never be stale.
        self._narrowed: OrderedDict[tuple[str, str, str | None], BodyForm] = OrderedDict()

    # --- the adapter -----------------------------------------------------------------------------

    async def project(self, key: ProjectionKey, ctx: JsonValue) -> ProjectionRef:
        """Point at the endpoint that answers the key; see :class:`app.domain.projection.ProjectionAdapter`.

        The reference names the concrete run, so that it still means the same when another run has been kicked.
        """
        key.require(ctx)
        async with self._database.point() as stores:
            address = await stores.projections.find_run(key.task_id, key.run_id)
        run_id = require_run(address, key.task_id, key.run_id)
        path = content_path(key.task_id, run_id, key.step if key.step is not None else CTX_NAME, Narrowing(key.path))
        return ProjectionRef.to_query(self._base_url + path, key.model_copy(update={"run_id": run_id}))

    async def fetch(self, key: ProjectionKey) -> JsonValue:
        """Return a value of the key's run, or of the latest; see :class:`app.domain.projection.ProjectionAdapter`."""
        if not key.task_id:
            raise InvalidKey("a projection key needs a task_id")
        look = await self.look(key.task_id, key.run_id, CTX_NAME if key.step is None else key.step, WHOLE)
        value = await self.load_value(look)
        found = ProjectionKey(task_id=key.task_id, path=key.path).resolve(value)
        if found is None:
            raise ProjectionNotFound(f"nothing is at step={key.step!r} path={key.path!r} of {key.task_id}")
        return found.value

    def pointer_line(self, ref: ProjectionRef) -> str:
        """Say where the value can be pulled."""
        if ref.Query is None:
            raise InvalidKey("a query projection points at an endpoint")
        return f"projection(mcp-query): {ref.Query.endpoint} task_id={ref.Query.key.task_id}"

    # --- the debug plane -------------------------------------------------------------------------

    async def list_steps(self, task_id: str, run_id: str | None, scope: Scope = OPERATOR) -> StepList:
        """List what a run's names answer with; ``run_id`` None is the run created last.

        Raises:
            TaskNotFound, RunNotFound: no such task, or no such run of it.
            Forbidden: the scope is another run's.
        """
        return StepList.model_validate_json((await self.list_json(task_id, run_id, scope)).body())

    async def list_steps_by_run_id(self, run_id: str) -> StepList:
        """List what a run's names answer with, by the run's id alone.

        Raises:
            RunNotFound: no such run.
        """
        async with self._database.point() as stores:
            run = await stores.runs.find_summary(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return await self.list_steps(run.task_id, run_id)

    async def resolve_step_name(self, task_id: str, name: str) -> str:
        """Return the canonical name that a name or alias leads to; an unknown one leads to itself."""
        async with self._database.point() as stores:
            return await stores.projections.resolve_name(task_id, name)

    async def list_json(self, task_id: str, run_id: str | None, scope: Scope = OPERATOR) -> Listing:
        """List as :meth:`list_steps`, each summary already as JSON: what the hot path serves.

        A constant number of queries, whatever the number of steps, and no body is loaded.
        """
        scope.require_run(task_id, run_id)
        base_url = self._base_url.encode()
        async with self._database.point() as stores:
            if scope.sees_all:
                address, summaries = await stores.projections.list_summaries(task_id, run_id, base_url)
                found = require_run(address, task_id, run_id)
                scope.require_run(task_id, found)
                if summaries is not None:
                    return Listing(task_id, found, summaries, is_stored=True)
            address, rows = await stores.projections.list_by_name(task_id, run_id)
        found = require_run(address, task_id, run_id)
        scope.require_run(task_id, found)
        if not scope.sees_all:
            rows = [row for row in rows if scope.allows(*row.names)]
        on_disk = [row for row in rows if row.file_path is not None]
        changed = await self._rewritten(on_disk, Place(task_id, found, self._base_url)) if on_disk else {}
        summaries = [row.summary(base_url) for row in rows]
        if changed:
            summaries = [changed.get(row.name, told) for row, told in zip(rows, summaries, strict=True)]
        return Listing(task_id, found, summaries, is_stored=not on_disk)

    async def summary(
        self, task_id: str, run_id: str | None, name: str, narrowing: Narrowing, scope: Scope = OPERATOR
    ) -> StepSummary:
        """Summarise what stands under a name of a run; raises as :meth:`look`."""
        _, summary = await self.look_summarized(task_id, run_id, name, narrowing, scope)
        return summary

    async def look_summarized(
        self, task_id: str, run_id: str | None, name: str, narrowing: Narrowing, scope: Scope = OPERATOR
    ) -> tuple[Look, StepSummary]:
        """Find what stands under a name of a run, and summarise it; raises as :meth:`look`."""
        look = await self.look(task_id, run_id, name, narrowing, scope)
        form = look.form
        if form.preview is None:
            form = form._replace(preview=preview_of(await self._body_of(look)))
        return look, summarize(look.answer, form, look.place, narrowing)

    async def summary_json(
        self, task_id: str, run_id: str | None, name: str, narrowing: Narrowing, scope: Scope = OPERATOR
    ) -> ToldSummary:
        """Summarise as :meth:`summary`, already as JSON: as it is stored where nothing narrows it; raises alike."""
        if narrowing == WHOLE:
            scope.require_run(task_id, run_id)
            async with self._database.point() as stores:
                address, canonical, listed = await stores.projections.find_summary(task_id, run_id, name)
            found = require_run(address, task_id, run_id)
            scope.require_run(task_id, found)
            scope.require(canonical, canonical if listed is None else listed.owner)
            if listed is None:
                raise await explain_absence(self._database, Absence(task_id, found, name, canonical), scope)
            if listed.file_path is None:
                return ToldSummary(listed.summary(self._base_url.encode()), is_stored=True)
        look, summary = await self.look_summarized(task_id, run_id, name, narrowing, scope)
        return ToldSummary(summary_json(summary), look.is_stored)

    async def look(
        self,
        task_id: str,
        run_id: str | None,
        name: str,
        narrowing: Narrowing,
        scope: Scope = OPERATOR,
        *,
        with_body: bool = False,
    ) -> Look:
        """Find what stands under a name, and its size and digest, without its body where that is possible.

        ``with_body`` says that its body is wanted next: one that is short comes along.

        Raises:
            TaskNotFound, RunNotFound, StepNotFound: nothing is there; the task is judged first.
            StepNotSubmitted: the step was dispatched, and has put nothing out yet.
            AttemptNotFound, OccurrenceNotFound, FileNotMaterialized: the narrowing leads to nothing.
            PathNotFound: the path does.
            InvalidParameter: a path with ``format=file``.
            Forbidden: the scope does not show it.
        """
        if narrowing.format == "file" and narrowing.path is not None:
            raise InvalidParameter("a path narrows the value, which format=file does not serve: leave one of them away")
        scope.require_run(task_id, run_id)
        async with self._database.point() as stores:
            body_up_to = _SHORT_BYTES if with_body else 0
            address, canonical, answer, stored = await stores.projections.find(task_id, run_id, name, body_up_to)
            found = require_run(address, task_id, run_id)
            scope.require_run(task_id, found)
            scope.require(canonical, canonical if answer is None else answer.step_name)
            if answer is not None and (narrowing.attempt is not None or narrowing.occurrence is not None):
                answer, stored = await find_narrowed(stores, found, answer, narrowing), None
                scope.require(canonical, answer.step_name)  # an earlier part may be another step's
        if answer is None:
            raise await explain_absence(self._database, Absence(task_id, found, name, canonical), scope)
        place = Place(task_id, found, self._base_url)
        if narrowing.path is not None:
            look = Look(answer, stored_form(answer), place, narrowing, stored=stored)
            return await self._along(look, narrowing.path)
        form = await self._form(answer, narrowing.format)
        return Look(answer, form, place, narrowing, stored=stored)

    async def serve(self, look: Look) -> Served:
        """Load the body of a look. A file is told by the bytes that are read now.

        Raises:
            RunNotFound: the run was deleted meanwhile.
            FileNotMaterialized: the file was removed meanwhile.
        """
        if look.form.file_path is None:
            is_as_stored = look.body is None and look.form.sha256 == look.answer.stored_sha256
            if is_as_stored and look.stored is not None:
                return Served(look, look.stored)
            chunks = self._database.stream(look.answer.body_id, look.form.size_bytes) if is_as_stored else None
            return Served(look, chunks or await self._body_of(look))
        loaded = await asyncio.to_thread(self._files.load, look.form.file_path)
        if loaded is not None:
            form = look.form._replace(size_bytes=loaded.state.size_bytes, sha256=loaded.state.sha256)
            return Served(look._replace(form=form), loaded.body)
        if look.narrowing.format == "file":
            raise FileNotMaterialized(look.answer.name)
        look = look._replace(form=stored_form(look.answer))
        return Served(look, await self._body_of(look))

    async def load_value(self, look: Look) -> JsonValue:
        """Load the value of a look, whole, whatever its narrowing.

        Raises:
            RunNotFound: the run was deleted meanwhile.
        """
        body = await self._stored_body(look)
        return await run_beside(len(body), value_of, look.answer.encoding, body)

    # --- forms -----------------------------------------------------------------------------------

    async def _form(self, answer: Answer, asked: str | None) -> BodyForm:
        if asked == "json":
            return json_form(answer)
        if asked == "raw":
            return raw_form(answer)
        if answer.file_path is not None:
            state = await self._state(answer.file_path)
            if state is not None:
                return file_form(answer, *state)
        if asked == "file":
            raise FileNotMaterialized(answer.name)
        return stored_form(answer)

    async def _body_of(self, look: Look) -> bytes:
        """Return the bytes of a look; of a file only the beginning, for its preview."""
        if look.body is not None:
            return look.body
        if look.form.file_path is not None:
            return self._files.head(look.form.file_path, PREVIEW_BYTES + 1)
        body = await self._stored_body(look)
        if look.narrowing.path is not None:
            return (await run_beside(len(body), walk_body, look.answer, body, look.narrowing))[0]
        is_raw = look.narrowing.format == "raw" or (look.answer.kind is Kind.ARTIFACT and look.narrowing.format is None)
        if is_raw:
            return await run_beside(len(body), raw_body, look.answer, body)
        return await run_beside(len(body), rendered_value, look.answer.encoding, body)

    async def _along(self, look: Look, path: str) -> Look:
        key = (look.answer.json_sha256, path, look.narrowing.format)
        known = self._narrowed.get(key)
        if known is not None:
            self._narrowed.move_to_end(key)
            return look._replace(form=known)
        stored = await self._stored_body(look)
        # A value of two megabytes takes some 30 ms to parse, narrow and digest.
        body, form = await run_beside(len(stored), _narrowed_form, look, stored)
        self._narrowed[key] = form
        while len(self._narrowed) > _NARROWED_REMEMBERED:
            self._narrowed.popitem(last=False)
        return look._replace(form=form, body=body)

    async def _stored_body(self, look: Look) -> bytes:
        if look.stored is not None:
            return look.stored
        async with self._database.point() as stores:
            body = await stores.outputs.body(look.answer.body_id)
        if body is None:
            raise RunNotFound(look.place.run_id, look.place.task_id)
        return body

    async def _state(self, path: str) -> FileState | None:
        """Tell what a file is now: at once where it is remembered, else from a thread that reads it."""
        return self._files.recall(path) or await asyncio.to_thread(self._files.find, path)

    async def _rewritten(self, rows: Sequence[ListedRow], place: Place) -> dict[str, bytes]:
        """Write anew the summaries whose file is no longer what was written to it."""
        states = {row.name: await self._state(row.file_path) for row in rows if row.file_path is not None}
        changed = [row for row in rows if (state := states[row.name]) is None or state.sha256 != row.file_sha256]
        if not changed:
            return {}
        async with self._database.point() as stores:
            answers = await stores.projections.list_answers_with_files(place.run_id)
        return {
            row.name: await self._rewrite(answers[shown], place)
            for row in changed
            if (shown := row.names[0]) in answers
        }

    async def _rewrite(self, answer: Answer, place: Place) -> bytes:
        form = await self._form(answer, None)
        if form.file_path is not None:
            form = form._replace(preview=preview_of(self._files.head(form.file_path, PREVIEW_BYTES + 1)))
        return summary_json(summarize(answer, form, place))


def _narrowed_form(look: Look, stored: bytes) -> tuple[bytes, BodyForm]:
    body, content_type = walk_body(look.answer, stored, look.narrowing)
    return body, form_of(body, content_type)
