"""Looks: what a read of the debug plane finds, and how it is narrowed.

The invariant: a look's size and digest are those of the bytes that are served for it.
"""

from typing import NamedTuple

from app.domain.answers import (
    Answer,
    BodyForm,
    Chunks,
    Place,
    value_of,
)
from app.domain.errors import (
    AttemptNotFound,
    OccurrenceNotFound,
    PathNotFound,
    RunNotFound,
    TaskNotFound,
)
from app.domain.ids import LATEST
from app.domain.paths import explain_miss, parse_path, walk
from app.domain.records import Kind, Source
from app.domain.rendering import (
    JSON_TYPE,
    TEXT_TYPE,
    Narrowing,
    render_json,
    text_bytes,
)
from app.storage.projection_reads import RunAddress
from app.storage.stores import ReadStores


class Listing(NamedTuple):
    """The outputs of a run, each as the JSON of its summary, ascending by name."""

    task_id: str
    run_id: str
    summaries: list[bytes]
    is_stored: bool
    """Whether the database alone decides it, and no file on disk has a say."""

    def body(self) -> bytes:
        """Render the answer of the list."""
        head = f'{{"task_id":"{self.task_id}","run_id":"{self.run_id}","steps":['.encode()
        return b"".join((head, b",".join(self.summaries), b"]}"))


class Look(NamedTuple):
    """What stands under a name, in the form that was asked for.

    ``body`` is there where it took the body to tell, ``stored`` where the body as it is stored came along.
    """

    answer: Answer
    form: BodyForm
    place: Place
    narrowing: Narrowing
    body: bytes | None = None
    stored: bytes | None = None

    @property
    def is_stored(self) -> bool:
        """Tell whether the database alone decides it, and no file on disk has a say."""
        return self.answer.file_path is None


class ToldSummary(NamedTuple):
    """A summary as JSON; ``is_stored`` as that of :class:`Listing`."""

    body: bytes
    is_stored: bool


class Served(NamedTuple):
    """A body with what is told of it. One in chunks must be closed."""

    look: Look
    body: bytes | Chunks


def require_run(address: RunAddress, task_id: str, run_id: str | None) -> str:
    """Return the id of a run that was found.

    Raises:
        TaskNotFound, RunNotFound: it was not; the task is judged first.
    """
    if not address.task_exists:
        raise TaskNotFound(task_id)
    if address.run_id is None:
        raise RunNotFound(run_id or LATEST, task_id)
    return address.run_id


async def find_narrowed(stores: ReadStores, run_id: str, answer: Answer, narrowing: Narrowing) -> Answer:
    """Find an earlier output of what answers for a name."""
    if answer.source is Source.RESULT_REF:
        if narrowing.occurrence is not None:
            raise OccurrenceNotFound(answer.name, narrowing.occurrence, 0)
        raise AttemptNotFound(answer.name, narrowing.attempt or 0, 0)
    find = stores.outputs.find_part if answer.kind is Kind.ARTIFACT else stores.outputs.find_final
    of_occurrence = answer
    if narrowing.occurrence is not None:
        found = await find(run_id, answer.name, narrowing.occurrence, None)
        if found is None:
            raise OccurrenceNotFound(answer.name, narrowing.occurrence, answer.occurrences or 0)
        of_occurrence = found
    if narrowing.attempt is None:
        return of_occurrence
    narrowed = await find(run_id, answer.name, narrowing.occurrence, narrowing.attempt)
    if narrowed is None:
        raise AttemptNotFound(answer.name, narrowing.attempt, of_occurrence.attempts or 0)
    return narrowed


def walk_body(answer: Answer, stored: bytes, narrowing: Narrowing) -> tuple[bytes, str]:
    """Narrow a stored body along a path, and name the type of what that leads to.

    Raises:
        PathNotFound: it leads nowhere.
    """
    path = narrowing.path or ""
    if not path and answer.encoding == "json" and narrowing.format != "raw":
        return stored, JSON_TYPE
    value = value_of(answer.encoding, stored)
    segments = parse_path(path)
    found = None if segments is None else walk(value, segments)
    if found is None:
        raise PathNotFound(answer.name, path, explain_miss(value, path))
    if narrowing.format == "raw" and isinstance(found.value, str):
        return text_bytes(found.value), TEXT_TYPE
    return render_json(found.value), JSON_TYPE
