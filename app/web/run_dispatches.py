"""The dispatches of a run, one a line: what each attempt took, and what its worker said of itself.

The invariant: the lines stand in the order of dispatch, a bounded number of them, and lead to those before and after.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.domain.records import RunSummary, StepEntry, StepStatus, Usage
from app.web.formats import shortened
from app.web.marks import LOST, STEP_MARKS, Mark
from app.web.urls import step_url

PAGE_DISPATCHES = 50

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
    """Some of a run's dispatches: the newest, or those from one on.

    Attributes:
        lines: in the order of dispatch.
        total: how many there are.
        first: the how manieth of them the first line is, from 1.
        earlier_url: those before it; None where there are none.
        later_url: those after the last line; None where there are none.
        is_asked_for: whether the address names the first, so that they are what its reader came for.
        tells_workers: whether any worker of the lines told what it is.
        tells_used: whether any told what it used.
    """

    lines: list[DispatchLine]
    total: int
    first: int
    earlier_url: str | None
    later_url: str | None
    is_asked_for: bool
    tells_workers: bool
    tells_used: bool


def dispatches_view(
    run: RunSummary, dispatches: Sequence[StepEntry], asked: int | None, url: Callable[[int | None], str]
) -> DispatchesView:
    """Make the lines of dispatches, in their order.

    Args:
        run: whose they are.
        dispatches: those that are not filtered out.
        asked: the how manieth shall be the first; None asks for the newest.
        url: writes where those from a number on are, or the newest.
    """
    newest = max(1, len(dispatches) - PAGE_DISPATCHES + 1)
    first = newest if asked is None else min(max(1, asked), newest)
    lines = [_line(run, entry) for entry in dispatches[first - 1 : first - 1 + PAGE_DISPATCHES]]
    later = first + PAGE_DISPATCHES
    return DispatchesView(
        lines=lines,
        total=len(dispatches),
        first=first,
        earlier_url=url(max(1, first - PAGE_DISPATCHES)) if first > 1 else None,
        later_url=None if first >= newest else url(later if later < newest else None),
        is_asked_for=asked is not None,
        tells_workers=any(line.worker for line in lines),
        tells_used=any(line.used for line in lines),
    )


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
