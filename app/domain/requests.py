"""What an orchestrator and a worker ask for: the bodies of the API's writes.

The invariant: an unknown field is refused, so that a typing error is told and never silently ignored.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from app.domain import limits
from app.domain.bounds import AtMost, Count, Flag, Ordinal, Ttl
from app.domain.records import LongText, OutputEvent, Report, StepEntry, Text, Usage, Word
from app.domain.rendering import compact_json
from app.domain.values import JsonValue

Model = Annotated[Text, AtMost(limits.WORD_CHARS)]
Metadata = Annotated[JsonValue, AtMost(limits.KEYS)]
Ctx = Annotated[dict[str, Any], AtMost(limits.KEYS)]
Root = Annotated[Text, AtMost(limits.PATH_BYTES)]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NewTask(_Request):
    """A piece of work to create."""

    goal: LongText | None = Field(default=None, description="What it is for, in a sentence.")
    blueprint: JsonValue = Field(
        default=None,
        description='A Blueprint, or `{"kind": "inline", "value": <Blueprint>}`. Absent: a ref is a name.',
    )
    init_ctx: JsonValue = Field(
        default=None, description="The flow's initial ctx, any JSON value; kept, not interpreted."
    )
    project_root: Root | None = Field(default=None, description="Absolute path of the project that the task works on.")
    work_dir: Root | None = Field(default=None, description="Absolute path of the directory that its workers work in.")
    task_metadata: Metadata = Field(default=None, description="Anything to attach; shown to workers.")
    start: Flag = Field(default=True, description="Kick the first run at once.")


class StepNames(_Request):
    """The names of one step of a Blueprint."""

    step_ref: str = Field(description="How the flow refers to the step.")
    name: str = Field(description="Its canonical name.")
    aliases: list[str] = Field(description="The other names that it can be reached by, sorted.")


class CreatedTask(_Request):
    """A task that was created."""

    task_id: str = Field(description="Its id.")
    run_id: str | None = Field(description="The run that was kicked; null with `start: false`.")
    status: str = Field(description="Where that run stands; `pending` with `start: false`.")
    steps: list[StepNames] = Field(description="The steps of its Blueprint, in flow order.")
    warnings: list[str] = Field(description="What is odd about the Blueprint, a sentence each.")


class DispatchRequest(_Request):
    """A step to dispatch."""

    ref: str = Field(description="The step's ref: one of the Blueprint's, or any other, which then is its name.")
    directive: Any = Field(description="What the worker is to do: any JSON value; a string is the prompt as it is.")
    system: Annotated[str, AtMost(limits.SYSTEM_BYTES)] | None = Field(default=None, description="The system prompt.")
    ctx: Ctx | None = Field(default=None, description="Context for this dispatch alone.")
    retry_of: str | None = Field(default=None, description="A step id of this run: the same step, next attempt.")
    ttl_seconds: Ttl | None = Field(default=None, description="How long the worker handle is good for.")


class Dispatched(_Request):
    """A step that was dispatched. The handle is told this once and never again."""

    step_id: str = Field(description="Its id.")
    attempt: int = Field(description="Which attempt this is, from 1.")
    step_ref: str = Field(description="Its ref.")
    name: str = Field(description="Its canonical name.")
    worker_handle: str = Field(description="The worker's bearer: a secret, bound to this step and attempt.")
    expires_at: str = Field(description="When the handle ends.")
    prompt_url: str = Field(description="Where the worker fetches its prompt.")
    submit_url: str = Field(description="Where the worker submits its OUTPUT.")
    ctx_projection: str | None = Field(
        default=None,
        exclude_if=lambda path: path is None,
        description="The file that the worker's view was written to.",
    )


class DispatchList(_Request):
    """Every dispatch of a run, in order."""

    run_id: str = Field(description="The run.")
    steps: list[StepEntry] = Field(description="One entry an attempt, in the order of dispatch.")


class ResultRequest(_Request):
    """A worker's OUTPUT as JSON."""

    task_id: str = Field(description="The step (a step id) that the handle is bound to.")
    value: Any = Field(description="The OUTPUT, any JSON value, kept as it is sent.")
    ok: Flag = Field(default=True, description="Whether the step succeeded.")
    attempt: Ordinal | None = Field(default=None, description="The attempt that the handle is bound to.")


class DegradationRequest(_Request):
    """Something a worker did in a lesser way than it should have."""

    tool: Word = Field(description="What did not work.")
    error: Report = Field(description="How it failed.")
    fallback: Report = Field(description="What was done instead.")
    note: Report | None = Field(default=None, description="More about it.")


class StatsRequest(_Request):
    """What a worker says of itself."""

    worker_kind: Model | None = Field(default=None, description="What kind of worker ran the step.")
    model: Model | None = Field(default=None, description="Which model it used.")
    usage: Usage | None = Field(default=None, description="What it used.")
    num_turns: Count | None = Field(default=None, description="How many turns it took.")
    adapter_data: JsonValue = Field(
        default=None, description="Whatever else the worker's adapter wants to keep: any JSON value, 64 KiB at most."
    )

    @field_validator("adapter_data")
    @classmethod
    def _adapter_data_is_short(cls, given: JsonValue) -> JsonValue:
        size_bytes = len(compact_json(given))
        if size_bytes > limits.ADAPTER_DATA_BYTES.value:
            message = f"is {size_bytes} bytes of JSON; the limit is {limits.ADAPTER_DATA_BYTES.value}"
            raise PydanticCustomError("too_large", message)
        return given


class NamedEmitRequest(_Request):
    """An event to append to the store, its producer named elsewhere."""

    task_id: str = Field(description="The step (a step id) that the handle is bound to.")
    attempt: Ordinal = Field(description="The attempt that the handle is bound to.")
    event: OutputEvent = Field(description="The event.")
    parent_refs: Annotated[list[str], AtMost(limits.PARENTS)] = Field(
        default_factory=list, description="Ids of the outputs it was made from."
    )

    def under(self, producer_agent: str) -> "EmitRequest":
        """Name the producer."""
        return EmitRequest.model_construct(**dict(self), producer_agent=producer_agent)


class EmitRequest(NamedEmitRequest):
    """An event to append to the store."""

    producer_agent: str = Field(description="The producer name to emit under.")
