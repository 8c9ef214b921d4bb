"""What is kept and what is answered: tasks, runs, step entries, outputs, summaries, pointers.

The invariant: these are the wire shapes; a field's order and presence here is its order and presence there.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from app.domain import limits
from app.domain.bounds import Amount, AtMost, Flag
from app.domain.values import JsonValue

MAX_COUNT = limits.COUNT.value
"""The largest attempt or occurrence number a database column holds."""

Text = Annotated[str, StringConstraints(min_length=0)]
"""Valid Unicode: any constraint makes pydantic refuse the lone surrogates that no database column holds."""


LongText = Annotated[Text, AtMost(limits.LONG_TEXT_BYTES)]
PathText = Annotated[str, AtMost(limits.PATH_BYTES)]
Word = Annotated[str, AtMost(limits.WORD_CHARS)]
Report = Annotated[str, AtMost(limits.REPORT_BYTES)]


def _is_absent(item: object) -> bool:
    return item is None


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class RunStatus(StrEnum):
    """Where a run stands; the last four are terminal."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Tell whether the run has ended."""
        return self not in {RunStatus.PENDING, RunStatus.RUNNING}


class StepStatus(StrEnum):
    """Where one attempt of a step stands."""

    DISPATCHED = "dispatched"
    PASSED = "passed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"


class Source(StrEnum):
    """Which side of the store a value came from."""

    DATA_PLANE = "data_plane"
    RESULT_REF = "result_ref"


class Kind(StrEnum):
    """What stands under a name."""

    STEP = "step"
    ARTIFACT = "artifact"


# --- the debug plane -----------------------------------------------------------------------------


class StepSummary(_Record):
    """What a step put out, without the OUTPUT itself."""

    name: str = Field(
        description="The canonical name of the step, or the name of the artifact; never the alias asked for."
    )
    size_bytes: int = Field(ge=0, description="Size in bytes of exactly what `content_url` serves.")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="Digest of exactly what `content_url` serves.")
    content_type: str = Field(description="Content type of what `content_url` serves.")
    source: Source = Field(
        description="`data_plane` for a submitted output, `result_ref` for a part of the run's result."
    )
    file_path: str | None = Field(
        default=None,
        exclude_if=_is_absent,
        description="Absolute path of the materialized file; left out where the body is none.",
    )
    content_url: str = Field(description="Where the bytes are; carries the query that narrowed this summary.")
    preview: str = Field(description="The first 512 bytes of the body at most, then an ellipsis when cut.")
    truncated: bool = Field(description="Whether the preview is cut.")
    kind: Kind = Field(description="`step` or `artifact`.")
    ok: bool | None = Field(description="Whether the step said it succeeded; null for artifacts and `result_ref`.")
    step_id: str | None = Field(description="The step that put it out; null for `result_ref`.")
    step_ref: str | None = Field(description="The ref under which that step was dispatched; null for `result_ref`.")
    attempt: int | None = Field(description="The attempt that put it out, from 1; null for `result_ref`.")
    attempts: int | None = Field(
        description="How many attempts of that occurrence were dispatched; null for `result_ref`."
    )
    occurrence: int | None = Field(description="Which dispatch of this name in the run, from 1; null for `result_ref`.")
    occurrences: int | None = Field(
        description="How many times this name was dispatched in the run; null for `result_ref`."
    )
    submitted_at: str | None = Field(
        description="When it was submitted: RFC 3339, UTC, milliseconds; null for `result_ref`."
    )


class StepList(_Record):
    """Every output of a run, ascending by name, bytewise."""

    task_id: str = Field(description="The task of the run.")
    run_id: str = Field(description="The concrete id of the run, also where `latest` was asked for.")
    steps: list[StepSummary] = Field(description="One summary a name; empty while nothing was put out.")


class StepPointer(_Record):
    """What a downstream worker is given of an earlier step: where its OUTPUT is, never the OUTPUT."""

    name: str = Field(description="The canonical name of the step, or the name of the artifact.")
    size_bytes: int = Field(description="Size in bytes of what `content_url` serves.")
    file_path: str | None = Field(
        default=None, exclude_if=_is_absent, description="The materialized file, where there is one."
    )
    content_url: str = Field(description="Where the bytes are.")
    sha256: str = Field(description="Digest of what `content_url` serves.")


# --- the orchestrator's side ---------------------------------------------------------------------


class Usage(_Record):
    """What a worker says it used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: Amount | None = Field(default=None, description="Tokens read.")
    output_tokens: Amount | None = Field(default=None, description="Tokens written.")
    total_tokens: Amount | None = Field(default=None, description="Tokens in all.")


class ProgressNote(_Record):
    """The newest sign of life of an attempt; a long text is cut, and the event itself has it whole."""

    stage: str = Field(description="What the step is doing.")
    note: str | None = Field(default=None, exclude_if=_is_absent, description="More about it.")
    at: str = Field(description="When it said so.")

    @property
    def sentence(self) -> str:
        """The stage, and the note where there is one."""
        return self.stage if self.note is None else f"{self.stage}: {self.note}"


class StepEntry(_Record):
    """One dispatch of a run: an attempt of a step, in flight or ended."""

    step_id: str = Field(description="The id of the step; attempts of one step share it.")
    step_ref: str = Field(description="The ref it was dispatched under.")
    name: str = Field(description="Its canonical name.")
    status: StepStatus = Field(description="`dispatched` while in flight, then what its Final said.")
    attempt: int = Field(description="From 1.")
    occurrence: int = Field(description="Which dispatch of this name in the run, from 1.")
    started_at: str = Field(description="When it was dispatched.")
    completed_at: str | None = Field(description="When its newest Final came; null while in flight.")
    duration_ms: int | None = Field(description="Milliseconds from dispatch to its newest Final; null while in flight.")
    worker_kind: str | None = Field(default=None, description="What kind of worker ran it, if it said so.")
    model: str | None = Field(default=None, description="Which model it used, if it said so.")
    usage: Usage | None = Field(default=None, description="What it used, if it said so.")
    num_turns: int | None = Field(
        default=None,
        exclude_if=_is_absent,
        description="How many turns it took; left out unless told.",
    )
    adapter_data: JsonValue = Field(
        default=None, exclude_if=_is_absent, description="What else its adapter kept; left out unless told."
    )
    progress: ProgressNote | None = Field(
        default=None, exclude_if=_is_absent, description="What it said last that it is doing; left out unless it did."
    )


class RunSummary(_Record):
    """A run, without its steps and its result."""

    id: str = Field(description="The id of the run.")
    task_id: str = Field(description="The task it is a run of.")
    status: RunStatus = Field(description="Where it stands.")
    error: str | None = Field(description="What went wrong, when whoever finished it said so.")
    created_at: str = Field(description="When it was kicked.")
    updated_at: str = Field(description="When anything of it changed last.")
    degradation_count: int = Field(default=0, description="How often workers reported a lesser way.")
    error_truncated: bool | None = Field(
        default=None, exclude_if=_is_absent, description="Whether `error` is cut; in lists alone."
    )


class RunRecord(RunSummary):
    """A run, whole: its dispatches, its degradations and its result."""

    step_entries: list[StepEntry] = Field(description="Every dispatch, in order.")
    degradations: list[JsonValue] = Field(
        description="What workers reported as done in a lesser way; of many, the first and the last."
    )
    result_ref: JsonValue = Field(description="The result it was finished with; null until then.")


class Excerpt(NamedTuple):
    """The beginning of a text, for lists."""

    text: str | None
    is_cut: bool


def excerpt(text: str | None) -> Excerpt:
    """Cut a text as lists show it."""
    most = limits.LISTED_CHARS.value
    return Excerpt(text, is_cut=False) if text is None or len(text) <= most else Excerpt(text[:most], is_cut=True)


class TaskSummary(_Record):
    """A task, without its Blueprint."""

    id: str = Field(description="The id of the task.")
    goal: str | None = Field(description="What it is for.")
    status: RunStatus = Field(description="Where its newest run stands; `pending` while it has none.")
    latest_run_id: str | None = Field(description="Its newest run; null while it has none.")
    project_root: str | None = Field(description="The project it works on.")
    work_dir: str | None = Field(description="Where its workers work.")
    created_at: str = Field(description="When it was created.")
    goal_truncated: bool | None = Field(
        default=None, exclude_if=_is_absent, description="Whether `goal` is cut; in lists alone."
    )


class TaskRecord(TaskSummary):
    """A task, whole."""

    task_metadata: JsonValue = Field(description="What its creator attached to it.")
    init_ctx: JsonValue = Field(description="The flow's initial ctx.")
    blueprint: JsonValue = Field(description="The Blueprint as it was sent; null when there is none.")


class RunOutcome(_Record):
    """How a run ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Literal["done", "failed", "interrupted", "cancelled"] = Field(description="A terminal status.")
    result: Any = Field(
        default=None, description="The run's result, any JSON value; becomes its `result_ref`. Absent: none."
    )
    error: LongText | None = Field(default=None, description="What went wrong.")

    @property
    def has_result(self) -> bool:
        """Tell a result of ``null`` from none at all."""
        return "result" in self.model_fields_set


# --- outputs -------------------------------------------------------------------------------------


class _Content(_Record):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Inline(_Content):
    """Content that travels in the event."""

    kind: Literal["inline"] = "inline"
    value: Any = Field(description="Any JSON value.")


class FileRef(_Content):
    """Content that stays in a file of the worker's; only its locator is kept."""

    kind: Literal["file_ref"] = "file_ref"
    path: PathText = Field(description="Where the file is.")
    mime: Word | None = Field(default=None, exclude_if=_is_absent, description="Its type.")
    size_hint: Amount | None = Field(
        default=None, exclude_if=_is_absent, description="Its size in bytes, as far as known."
    )


Content = Annotated[Inline | FileRef, Field(discriminator="kind")]


class Progress(_Content):
    """A sign of life."""

    type: Literal["progress"] = "progress"
    stage: Word = Field(description="What the step is doing.")
    note: Report | None = Field(default=None, exclude_if=_is_absent, description="More about it.")


class Partial(_Content):
    """A piece of what will be the OUTPUT."""

    type: Literal["partial"] = "partial"
    chunk: Any = Field(description="Any JSON value.")


class Artifact(_Content):
    """A named part, staged before the Final."""

    type: Literal["artifact"] = "artifact"
    name: str = Field(min_length=1, description="The name of the part.")
    content: Content = Field(description="What it holds.")


class Final(_Content):
    """The event that completes an attempt: its value is the OUTPUT."""

    type: Literal["final"] = "final"
    content: Content = Field(description="The OUTPUT.")
    ok: Flag = Field(description="Whether the step says it succeeded.")


OutputEvent = Annotated[Progress | Partial | Artifact | Final, Field(discriminator="type")]


def content_value(content: Inline | FileRef) -> JsonValue:
    """Return the value that stands for a content: itself, or the locator of a file that stays elsewhere."""
    if isinstance(content, Inline):
        return content.value
    return {"file_ref": content.path, "mime": content.mime, "size_hint": content.size_hint}


class OutputRecord(_Record):
    """One record of the append-only store."""

    id: str = Field(description="The id of the output.")
    task_id: str = Field(description="The step that emitted it (a step id).")
    run_id: str = Field(description="The run of that step.")
    attempt: int = Field(description="The attempt of that step.")
    producer_agent: str = Field(description="The producer name it was emitted under.")
    event: OutputEvent = Field(description="What was emitted.")
    parent_refs: list[str] = Field(description="Ids of the outputs it was made from.")
    created_at: str = Field(description="When it was appended.")
    traceparent: str | None = Field(
        default=None,
        exclude_if=_is_absent,
        description="The W3C trace context that its worker sent along; left out where it sent none.",
    )


def wire_time(moment: datetime) -> str:
    """Write a moment as answers show it: RFC 3339, UTC, ``Z``, milliseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def elapsed_ms(start: str, end: str) -> int:
    """Count the milliseconds between two wire times; a clock that went back counts as none."""
    return max(0, round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() * 1000))
