"""A run, as its page shows it: what it is, its timeline, its steps, and what went less well.

The invariant: a view holds what the store holds and no moment of its own, so equal views are equal pages.
"""

from typing import NamedTuple

from app.domain.ids import CTX_NAME
from app.domain.records import StepStatus, StepSummary, elapsed_ms
from app.domain.rendering import render_json
from app.domain.values import JsonValue
from app.services.overviews import RunStory
from app.web.formats import shortened
from app.web.marks import RUN_MARKS, Mark
from app.web.run_dispatches import DispatchesView, dispatches_view
from app.web.run_steps import Asked, StepsView, find_lines, list_silent, steps_view
from app.web.step_order import newest_attempts
from app.web.timeline import Timeline, timeline_of
from app.web.urls import run_url, runs_url, step_url

MAX_DEGRADATIONS = 100

_SHOWN_CHARS = 2_000


class RunHead(NamedTuple):
    """What a run is; ``duration_ms`` is None while it goes on.

    A name that is dispatched again is another step, and each attempt of a step another dispatch. The size of the
    outputs is that of the values, as the list of runs counts it: files are as large as somebody made them.
    """

    run_id: str
    task_id: str
    task_url: str
    goal: str | None
    mark: Mark
    is_live: bool
    error: str | None
    created_at: str
    updated_at: str
    duration_ms: int | None
    names: int
    steps: int
    dispatches: int
    in_flight: int
    blocked: int
    blocked_url: str
    outputs: int
    size_bytes: int


class ResultView(NamedTuple):
    """The beginning of the run's result."""

    url: str
    size_bytes: int
    preview: str
    is_cut: bool


class DegradationView(NamedTuple):
    """What a worker reported as done in a lesser way: its fields, or the whole of it where it has others."""

    number: int
    tool: str
    error: str
    fallback: str
    note: str | None


class RunView(NamedTuple):
    """The page of one run."""

    head: RunHead
    timeline: Timeline | None
    steps: StepsView
    dispatches: DispatchesView
    result: ResultView | None
    degradations: list[DegradationView]
    more_degradations: int


def run_view(story: RunStory, outputs: list[StepSummary], result: StepSummary | None, asked: Asked) -> RunView:
    """Make the page of a run.

    Args:
        story: what happened in it.
        outputs: what answers for its names.
        result: what it was finished with; None for nothing.
        asked: how the steps shall be shown; the timeline shows the same ones.
    """
    found = find_lines(story, outputs, asked)
    names = {line.name for line in found}
    dispatches = [entry for entry in story.dispatches if entry.name in names and asked.status in {None, entry.status}]

    def dispatches_url(first: int | None) -> str:
        words = {"q": asked.search, "sort": asked.sort, "status": asked.status or ""}
        return run_url(story.run.task_id, story.run.id, page=asked.page, first=first, **words) + "#dispatches"

    return RunView(
        head=_head(story),
        timeline=timeline_of(story.run, story.dispatches, {line.name for line in found if line.url is not None}, names),
        steps=steps_view(story.run, found, asked),
        dispatches=dispatches_view(story.run, dispatches, asked.first, dispatches_url),
        result=None if result is None else _result(story, result),
        degradations=[
            _degradation(number, record) for number, record in enumerate(story.degradations[:MAX_DEGRADATIONS], start=1)
        ],
        more_degradations=max(0, story.run.degradation_count - MAX_DEGRADATIONS),
    )


def _head(story: RunStory) -> RunHead:
    run = story.run
    return RunHead(
        run_id=run.id,
        task_id=run.task_id,
        task_url=runs_url(q=run.task_id),
        goal=None if story.goal is None else shortened(story.goal, _SHOWN_CHARS),
        mark=RUN_MARKS[run.status],
        is_live=not run.status.is_terminal,
        error=None if run.error is None else shortened(run.error, _SHOWN_CHARS),
        created_at=run.created_at,
        updated_at=run.updated_at,
        duration_ms=elapsed_ms(run.created_at, run.updated_at) if run.status.is_terminal else None,
        names=len({entry.name for entry in story.dispatches}),
        steps=len({entry.step_id for entry in story.dispatches}),
        dispatches=len(story.dispatches),
        blocked=len([entry for entry in newest_attempts(story.dispatches) if entry.status is StepStatus.BLOCKED]),
        blocked_url=run_url(run.task_id, run.id, status=StepStatus.BLOCKED),
        in_flight=0 if run.status.is_terminal else len(list_silent(story.dispatches)),
        outputs=story.outputs.outputs,
        size_bytes=story.outputs.size_bytes,
    )


def _result(story: RunStory, result: StepSummary) -> ResultView:
    url = step_url(story.run.task_id, story.run.id, CTX_NAME)
    return ResultView(url, result.size_bytes, result.preview, result.truncated)


def _degradation(number: int, record: JsonValue) -> DegradationView:
    """Read a worker's report; whatever else was kept is shown as it is."""
    if isinstance(record, dict):
        tool, error, fallback, note = (record.get(key) for key in ("tool", "error", "fallback", "note"))
        if isinstance(tool, str) and isinstance(error, str) and isinstance(fallback, str):
            tool, error, fallback = (shortened(text, _SHOWN_CHARS) for text in (tool, error, fallback))
            told = shortened(note, _SHOWN_CHARS) if isinstance(note, str) else None
            return DegradationView(number, tool, error, fallback, told)
    return DegradationView(number, "", shortened(render_json(record).decode(), _SHOWN_CHARS), "", None)
