"""Every fact that can go wrong, as a type that writes its own sentence.

An error takes the ids it is about, knows no HTTP, and carries a stable ``code``. The edge maps the
nearest ancestor in this tree to a status; clients match on the code, people read the sentence::

    StepplaneError
    ├── Malformed            the request cannot be read            (400)
    │   ├── InvalidId  InvalidJson  InvalidParameter  UnknownParameter  InvalidKey  VerdictConflict
    │   ├── FileSubmitRefused
    ├── Unauthenticated      no bearer, or none that is known      (401)
    ├── Forbidden            a bearer, but not for this            (403)
    ├── TooManyAttempts      too many wrong bearers                (429)
    ├── NotFound             nothing has that name                 (404)
    │   ├── TaskNotFound  RunNotFound  StepNotFound  StepNotSubmitted  PathNotFound  FileNotMaterialized
    │   ├── AttemptNotFound  OccurrenceNotFound  OutputNotFound  DispatchNotFound  ProjectionNotFound
    ├── Conflict             it stands against what is there       (409)
    │   ├── RunAlreadyFinished  RunStillRunning  PartNameTaken
    ├── Gone                 it was there and is over              (410)
    │   └── RunFinished
    ├── TooLarge             over a limit that the answer names    (413)
    │   └── IndentedTooLarge
    ├── Unprocessable        readable, but not acceptable          (422)
    │   ├── InvalidBlueprint  StepNamingCollision  InvalidPlacement  NameTaken  InvalidName  InvalidRequest
    │   ├── InvalidText  NotJson  UnknownRetry  UnknownParent  NestedTooDeep  TooManyValues  TooManyParts
    ├── Unavailable          the store cannot answer just now      (503)
    │   ├── StorageFull  StorageGone
    │   └── Busy
    └── ProjectionFault      an adapter could not do its work      (500)
        ├── ProjectionIo  ProjectionSerialize
"""

import difflib
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple


class StepplaneError(Exception):
    """The root of every error that this product raises on purpose.

    Attributes:
        code: the stable name of the kind, in snake case; part of the contract.
        details: what a program can use beyond the sentence; JSON values only.
    """

    code: ClassVar[str] = "internal_error"

    def __init__(self, sentence: str, details: Any = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.details = details


# --- 400 -----------------------------------------------------------------------------------------


class Malformed(StepplaneError):
    """The request cannot be read as what it should be."""

    code = "malformed_request"


class InvalidId(Malformed):
    """An id without its prefix, or with characters that no id has."""

    code = "invalid_id"

    def __init__(self, kind: str, prefix: str, given: str) -> None:
        super().__init__(
            f"{_shown(given)} is no {kind} id: one is {prefix!r} and then 1 to 64 of A-Z a-z 0-9 . _ -",
        )


class InvalidJson(Malformed):
    """The body should be JSON (or YAML) and is not."""

    code = "invalid_json"


class InvalidParameter(Malformed):
    """A query or path parameter has a value that it cannot have."""

    code = "invalid_parameter"


class UnknownParameter(Malformed):
    """A query parameter that the route does not know; names that begin with ``_`` are let through."""

    code = "unknown_parameter"

    def __init__(self, name: str, known: Collection[str]) -> None:
        names = sorted(known)
        if names:
            nearest = difflib.get_close_matches(name[:_SHOWN_CHARS], names, n=1, cutoff=0.0)[0]
            rest = f"the nearest that it knows is {nearest!r}, of {', '.join(names)}"
        else:
            rest = "it takes none"
        super().__init__(f"this route has no parameter {_shown(name)}: {rest}", {"known": names})


class InvalidKey(Malformed):
    """A projection key, or a name that should become a file name, that cannot be one."""

    code = "invalid_key"


class VerdictConflict(Malformed):
    """``verdict`` and ``ok`` contradict each other, or the verdict is unknown."""

    code = "invalid_verdict"


class FileSubmitRefused(Malformed):
    """An ``@file:`` body that is not allowed; the sentence never says whether the file exists."""

    code = "file_submit_refused"


# --- 401, 403 ------------------------------------------------------------------------------------


class Unauthenticated(StepplaneError):
    """No bearer, or one that is malformed, unknown or expired."""

    code = "unauthenticated"


class Forbidden(StepplaneError):
    """The bearer is known, and may not do this."""

    code = "forbidden"


class TooManyAttempts(StepplaneError):
    """A wrong bearer, while the answers to many others are being delayed already; a right one is always let in."""

    code = "too_many_attempts"

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(
            f"too many wrong bearers are shown at the same time: try again in {retry_after_seconds} s",
            {"retry_after_seconds": retry_after_seconds},
        )
        self.retry_after_seconds = retry_after_seconds


# --- 404 -----------------------------------------------------------------------------------------


class NotFound(StepplaneError):
    """Nothing has this name or address."""

    code = "not_found"


class TaskNotFound(NotFound):
    """No task has this id."""

    code = "task_not_found"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"no task has the id {_shown(task_id)}")


class RunNotFound(NotFound):
    """No run has this id, it belongs to another task, or the task has no runs."""

    code = "run_not_found"

    def __init__(self, run_id: str, task_id: str | None = None) -> None:
        if task_id is None:
            sentence = f"no run has the id {_shown(run_id)}"
        elif run_id == "latest":
            sentence = f"task {task_id} has no runs yet"
        else:
            sentence = f"task {task_id} has no run with the id {_shown(run_id)}"
        super().__init__(sentence)


class StepNotFound(NotFound):
    """The run has no output under this name, alias or artifact name."""

    code = "step_not_found"

    def __init__(self, name: str, run_id: str, close_names: Sequence[str] = ()) -> None:
        close = " or ".join(map(_shown, close_names))
        rest = f"did you mean {close}?" if close else "list its steps to see the names it has"
        super().__init__(
            f"run {run_id} has no output under the name {_shown(name)}: {rest}", {"names": list(close_names)}
        )


class InFlight(NamedTuple):
    """The newest attempt of a step that has put nothing out: which it is, and how its run stands.

    Attributes:
        ended_as: the status of the run, where it has ended.
    """

    step_id: str
    attempt: int
    occurrence: int
    dispatched_at: str
    ended_as: str | None


class StepNotSubmitted(NotFound):
    """The step was dispatched, and has put nothing out yet; ``details`` says which attempt, and when."""

    code = "step_not_submitted"

    def __init__(self, name: str, run_id: str, flight: InFlight) -> None:
        super().__init__(
            f"{_shown(name)} was dispatched at {flight.dispatched_at}, attempt {flight.attempt}, and put nothing out "
            + ("yet" if flight.ended_as is None else f"before run {run_id} ended as {flight.ended_as}"),
            {
                "step_id": flight.step_id,
                "attempt": flight.attempt,
                "occurrence": flight.occurrence,
                "dispatched_at": flight.dispatched_at,
            },
        )


class DispatchNotFound(NotFound):
    """No step has this id, or it is not one of this run."""

    code = "step_id_not_found"

    def __init__(self, step_id: str) -> None:
        super().__init__(f"no step has the id {_shown(step_id)}")


class PathNotFound(NotFound):
    """The path does not lead to a value inside this step's OUTPUT."""

    code = "path_not_found"

    def __init__(self, name: str, path: str, reached: str) -> None:
        super().__init__(
            f"the path {_shown(path)} leads nowhere in the output of {_shown(name)}: {reached}",
            {"path": path},
        )


class AttemptNotFound(NotFound):
    """The answering occurrence has no output of this attempt."""

    code = "attempt_not_found"

    def __init__(self, name: str, attempt: int, attempts: int) -> None:
        super().__init__(
            f"{_shown(name)} has no output of attempt {attempt}; attempts dispatched: {attempts} "
            "(of that occurrence; occurrence=… asks for another)",
            {"attempts": attempts},
        )


class OccurrenceNotFound(NotFound):
    """The step has no output of this occurrence."""

    code = "occurrence_not_found"

    def __init__(self, name: str, occurrence: int, occurrences: int) -> None:
        super().__init__(
            f"{_shown(name)} has no output of occurrence {occurrence}; occurrences dispatched: {occurrences}",
            {"occurrences": occurrences},
        )


class FileNotMaterialized(NotFound):
    """``format=file`` where no file of this output is on disk."""

    code = "file_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"the output of {_shown(name)} is not materialized as a file: leave format=file away")


class OutputNotFound(NotFound):
    """No output has this id, and no producer this name."""

    code = "output_not_found"

    def __init__(self, key: str) -> None:
        super().__init__(f"no output has the id or the producer name {_shown(key)}")


class ProjectionNotFound(NotFound):
    """The projection key leads to no value."""

    code = "projection_not_found"


# --- 409, 410 ------------------------------------------------------------------------------------


class Conflict(StepplaneError):
    """The request stands against what is already there."""

    code = "conflict"


class RunAlreadyFinished(Conflict):
    """The run ended before, with another outcome."""

    code = "run_finished"

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(f"run {run_id} has already finished as {status}, with another outcome")


class RunStillRunning(Conflict):
    """A running run is not deleted by accident."""

    code = "run_running"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} is still running: finish it first, or delete it with force=true")


class PartNameTaken(Conflict):
    """A part whose file would be another one of its step, on a disk that tells fewer names apart than others."""

    code = "name_taken"

    def __init__(self, name: str, taken: str | None) -> None:
        if taken is None:
            why = "some disks keep that name for a device"
        elif taken == name:
            why = "that file is the step's own"
        else:
            why = f"on some disks that is the file {_shown(taken)} of the same step"
        super().__init__(f"a part may not be called {_shown(name)}: {why}; choose another name")


class Gone(StepplaneError):
    """What the request is about is over."""

    code = "gone"


class RunFinished(Gone):
    """A terminal run takes no more dispatches and no worker's writes."""

    code = "run_finished"

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(f"run {run_id} has finished as {status} and takes no more dispatches or outputs")


# --- 413, 422, 503, 507 -------------------------------------------------------------------------------


class TooLarge(StepplaneError):
    """A body over the limit; nothing of it is kept."""

    code = "output_too_large"

    def __init__(self, limit_bytes: int, size_bytes: int | None) -> None:
        size = "more than that" if size_bytes is None else f"{size_bytes} bytes"
        super().__init__(
            f"the body is {size}; the limit is {limit_bytes} bytes (STEPPLANE_MAX_OUTPUT_BYTES): nothing was kept",
            {"limit_bytes": limit_bytes, "size_bytes": size_bytes},
        )


class IndentedTooLarge(TooLarge):
    """A value that is nested so deep that its indented rendering would be a multiple of the body."""

    code = "nested_too_deep"

    def __init__(self, limit_bytes: int, size_bytes: int) -> None:
        StepplaneError.__init__(
            self,
            f"the value nests so deep that indenting it takes {size_bytes} bytes; the limit is {limit_bytes} bytes: "
            "nothing was kept. Nest it less, or send it as a string",
            {"limit_bytes": limit_bytes, "size_bytes": size_bytes},
        )


class Unprocessable(StepplaneError):
    """Readable, but not acceptable as it is."""

    code = "unprocessable"


class InvalidRequest(Unprocessable):
    """A body of the wrong shape; ``details`` lists each place and what is wrong there."""

    code = "invalid_request"


class InvalidBlueprint(Unprocessable):
    """The document is no Blueprint; ``details`` lists each JSON path and what is wrong there.

    Attributes:
        reason: ``empty`` where a step's name is; else None.
    """

    code = "invalid_blueprint"

    def __init__(self, faults: Sequence[tuple[str, str]], reason: str | None = None) -> None:
        first_path, first_message = faults[0]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(
            f"the blueprint is not valid at {first_path}: {first_message}{more}",
            [{"path": path, "message": message} for path, message in faults],
        )
        self.reason = reason


class StepNamingCollision(Unprocessable):
    """Two steps claim one name, and at least one of them declared it.

    Attributes:
        name: the name that both claim.
        first_step_ref, second_step_ref: the two steps, in flow order.
    """

    code = "step_naming_collision"

    def __init__(self, name: str, first_step_ref: str, second_step_ref: str) -> None:
        super().__init__(
            f"the steps {_shown(first_step_ref)} and {_shown(second_step_ref)} both claim the name {_shown(name)}: "
            "give one of them another projection_name",
            {"name": name, "first_step_ref": first_step_ref, "second_step_ref": second_step_ref},
        )
        self.name = name
        self.first_step_ref = first_step_ref
        self.second_step_ref = second_step_ref


class InvalidPlacement(Unprocessable):
    """A ``projection_placement`` that could not be followed safely.

    Attributes:
        reason: which rule it breaks, in snake case (see ``tests/vectors/placement.json``).
    """

    code = "invalid_blueprint"

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence, {"reason": reason})
        self.reason = reason


class NameTaken(Unprocessable):
    """An undeclared ref whose name is another step's name or alias."""

    code = "name_taken"

    def __init__(self, ref: str, owner: str) -> None:
        super().__init__(f"{_shown(ref)} is already a name or alias of the step {_shown(owner)}: dispatch another ref")


class InvalidName(Unprocessable):
    """A name that no store and no URL could carry."""

    code = "invalid_name"


class UnknownRetry(Unprocessable):
    """``retry_of`` names no step of this run, or one of another ref."""

    code = "unknown_retry"


class InvalidText(Unprocessable):
    """A submitted body that is not UTF-8."""

    code = "invalid_utf8"


class NotJson(Unprocessable):
    """The step asked for JSON (``submit_format: json``) and the body is none."""

    code = "not_json"


class UnknownParent(Unprocessable):
    """A ``parent_refs`` entry names no output."""

    code = "unknown_parent"


class NestedTooDeep(Unprocessable):
    """A body whose arrays and objects nest deeper than is taken."""

    code = "nested_too_deep"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the body nests deeper than {limit} levels: nest it less, or send what is deep as a string",
            {"limit": limit},
        )


class TooManyValues(Unprocessable):
    """A body that holds more values than is taken."""

    code = "too_many_values"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the body holds over {limit} values: send fewer at a time, or what is large as a string or a file",
            {"limit": limit},
        )


class TooManyParts(Unprocessable):
    """A step that has as many parts as are taken."""

    code = "too_many_parts"

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(
            f"the step {_shown(name)} has {limit} parts, and no more are taken: put several into one",
            {"limit": limit},
        )


class Unavailable(StepplaneError):
    """The store cannot answer just now; the same request may succeed later."""

    code = "unavailable"

    def __init__(self, sentence: str = "the database cannot be reached just now: try again") -> None:
        super().__init__(sentence)


class StorageFull(Unavailable):
    """The disk of the database has no room for a write; nothing of it is kept, and reads go on."""

    code = "storage_full"

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"no room is left on the disk of {directory}: nothing was kept. Make room there, or remove old runs "
            "(stepplane prune)"
        )


class StorageGone(Unavailable):
    """The database file was deleted or replaced under the server, which ends."""

    code = "storage_gone"

    def __init__(self, path: str) -> None:
        super().__init__(f"the database file {path} was deleted or replaced while the server ran: the server ends")


class Busy(Unavailable):
    """As many long bodies are held as there is room for; the same request may succeed later."""

    code = "busy"

    def __init__(self) -> None:
        super().__init__("the server holds as many long bodies as it has room for: try again")


# --- 500 -----------------------------------------------------------------------------------------


class ProjectionFault(StepplaneError):
    """A projection adapter could not do its work."""

    code = "projection_failed"


class ProjectionIo(ProjectionFault):
    """The disk refused to read or write a projection."""

    code = "projection_io"


class ProjectionSerialize(ProjectionFault):
    """A value that cannot be rendered, or a file that cannot be read back."""

    code = "projection_serialize"


def _shown(text: str) -> str:
    """Quote what a client sent: bounded, and on one line."""
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")


_SHOWN_CHARS = 200
