"""The dispatches of a run, one a line: what each attempt took, and what its worker said of itself.

The invariant: the lines stand in the order of dispatch, and what is left out is counted.
"""

from collections.abc import Sequence
from typing import NamedTuple

from app.domain.records import RunSummary, StepEntry, StepStatus, Usage
from app.web.formats import shortened
from app.web.marks import LOST, STEP_MARKS, Mark
from app.web.urls import step_url

MAX_DISPATCHES = 200

_SHOWN_CHARS = 100


class DispatchLine(NamedTuple):
    """One attempt of a step; ``duration_ms`` is None while it is in flight, ``url`` while it has put out nothing.

    ``progress`` is what it said last that it is doing, and ``progress_at`` when; None where it never said anything.
    """

    key: str
    step_id: str
    name: str
    url: str | None
    mark: Mark
    attempt: int
    occurrence: int
    started_at: str
    duration_ms: int | None
    is_in_flight: bool
    worker: str
    used: str
    progress: str | None
    progress_at: str | None


class DispatchesView(NamedTuple):
    """The first dispatches of a run, how many there are, and what any worker of those that are shown told."""

    lines: list[DispatchLine]
    total: int
    tells_workers: bool
    tells_used: bool


def dispatches_view(run: RunSummary, dispatches: Sequence[StepEntry]) -> DispatchesView:
    """Make the lines of dispatches, in their order."""
    lines = [_line(run, entry) for entry in dispatches[:MAX_DISPATCHES]]
    tells_workers, tells_used = any(line.worker for line in lines), any(line.used for line in lines)
    return DispatchesView(lines, len(dispatches), tells_workers, tells_used)


def mark_of(run: RunSummary, entry: StepEntry) -> Mark:
    """Tell how an attempt stands: one that is in flight when its run has ended never comes down."""
    is_lost = entry.status is StepStatus.DISPATCHED and run.status.is_terminal
    return LOST if is_lost else STEP_MARKS[entry.status]


def output_url(run: RunSummary, entry: StepEntry) -> str | None:
    """Write where the output of an attempt is; None while there is none."""
    if entry.status is StepStatus.DISPATCHED:
        return None
    return step_url(run.task_id, run.id, entry.name, occurrence=entry.occurrence, attempt=entry.attempt)


def _line(run: RunSummary, entry: StepEntry) -> DispatchLine:
    said = [shortened(word, _SHOWN_CHARS) for word in (entry.worker_kind, entry.model) if word]
    turns = [] if entry.num_turns is None else [f"{entry.num_turns:,} turn{'' if entry.num_turns == 1 else 's'}"]
    return DispatchLine(
        key=f"{entry.step_id}/{entry.attempt}",
        step_id=entry.step_id,
        name=entry.name,
        url=output_url(run, entry),
        mark=mark_of(run, entry),
        attempt=entry.attempt,
        occurrence=entry.occurrence,
        started_at=entry.started_at,
        duration_ms=entry.duration_ms,
        is_in_flight=entry.status is StepStatus.DISPATCHED and not run.status.is_terminal,
        worker=", ".join(said),
        used=", ".join([*turns, *_tokens(entry.usage)]),
        progress=None if entry.progress is None else shortened(entry.progress.sentence, _SHOWN_CHARS),
        progress_at=None if entry.progress is None else entry.progress.at,
    )


def _tokens(usage: Usage | None) -> list[str]:
    """Tell what a worker used: tokens in and out, else in all."""
    if usage is None:
        return []
    pairs = [("in", usage.input_tokens), ("out", usage.output_tokens)]
    told = [f"{tokens:,} {way}" for way, tokens in pairs if tokens is not None]
    total = [] if usage.total_tokens is None else [f"{usage.total_tokens:,} in all"]
    return [f"tokens: {' / '.join(told or total)}"] if told or total else []
