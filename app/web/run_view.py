"""A run, as its page shows it: what it is, its timeline, its steps, and what went less well.

The invariant: a view holds what the store holds and no moment of its own, so equal views are equal pages.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from app.domain.ids import CTX_NAME
from app.domain.records import Kind, StepEntry, StepStatus, StepSummary, elapsed_ms
from app.domain.rendering import render_json
from app.domain.values import JsonValue
from app.services.overviews import RunStory
from app.web.formats import shortened
from app.web.marks import LOST, RUN_MARKS, STEP_MARKS, Mark
from app.web.timeline import Timeline, timeline_of
from app.web.urls import run_url, runs_url, step_url

PAGE_STEPS = 200
MAX_DEGRADATIONS = 100

_SHOWN_CHARS = 2_000

_TYPES = {"application/json": "JSON", "text/markdown": "Markdown", "text/plain": "text"}


class StepLine(NamedTuple):
    """One name of the run: what answers for it now, or that nothing does yet."""

    name: str
    url: str | None
    aliases: list[str]
    kind: str
    mark: Mark | None
    is_again: bool
    type: str | None
    size_bytes: int | None
    attempts: int | None
    occurrences: int | None
    source: str | None
    submitted_at: str | None


class Column(NamedTuple):
    """A head of the table of steps, and where its order leads."""

    word: str
    is_number: bool
    order: str
    url: str


class ResultView(NamedTuple):
    """The beginning of the run's result."""

    url: str
    size_bytes: int
    preview: str
    is_cut: bool


class DegradationView(NamedTuple):
    """What a worker reported as done in a lesser way: its fields, or the whole of it where it has others."""

    tool: str
    error: str
    fallback: str
    note: str | None


class RunView(NamedTuple):
    """The page of one run."""

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
    dispatched: int
    in_flight: int
    outputs: int
    size_bytes: int
    search: str
    sort: str
    columns: list[Column]
    lines: list[StepLine]
    matching: int
    page: int
    pages: int
    previous_url: str | None
    next_url: str | None
    timeline: Timeline | None
    result: ResultView | None
    degradations: list[DegradationView]
    more_degradations: int


class Asked(NamedTuple):
    """How the steps shall be shown: which, in what order, and which page of them."""

    search: str = ""
    sort: str = ""
    page: int = 1


def run_view(story: RunStory, outputs: list[StepSummary], result: StepSummary | None, asked: Asked) -> RunView:
    """Make the page of a run.

    Args:
        story: what happened in it.
        outputs: what answers for its names.
        result: what it was finished with; None for nothing.
        asked: how the steps shall be shown.
    """
    run = story.run
    found = [line for line in _lines(story, outputs) if _matches(line, asked.search)]
    lines = _sorted(found, asked.sort)
    pages = max(1, -(-len(lines) // PAGE_STEPS))
    page = min(max(1, asked.page), pages)
    names = {line.name for line in found}
    dispatches = [entry for entry in story.dispatches if entry.name in names]

    def url(**changes: Any) -> str:
        return run_url(run.task_id, run.id, **{"q": asked.search, "sort": asked.sort, **changes})

    return RunView(
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
        dispatched=len({entry.step_id for entry in story.dispatches}),
        in_flight=0 if run.status.is_terminal else len(_silent(story.dispatches)),
        outputs=len(outputs),
        size_bytes=sum(summary.size_bytes for summary in outputs),
        search=asked.search,
        sort=asked.sort,
        columns=_columns(asked.sort, url),
        lines=lines[(page - 1) * PAGE_STEPS : page * PAGE_STEPS],
        matching=len(lines),
        page=page,
        pages=pages,
        previous_url=url(page=page - 1) if page > 1 else None,
        next_url=url(page=page + 1) if page < pages else None,
        timeline=timeline_of(run, dispatches, {line.name for line in found if line.url is not None}),
        result=None if result is None else _result(story, result),
        degradations=list(map(_degradation, story.degradations[:MAX_DEGRADATIONS])),
        more_degradations=max(0, len(story.degradations) - MAX_DEGRADATIONS),
    )


def _silent(dispatches: list[StepEntry]) -> list[StepEntry]:
    """List the newest attempts that have put out nothing yet."""
    newest = {entry.step_id: entry for entry in dispatches}
    return [entry for entry in newest.values() if entry.status is StepStatus.DISPATCHED]


# --- lines -----------------------------------------------------------------------------------------


def _lines(story: RunStory, outputs: list[StepSummary]) -> list[StepLine]:
    """List what answers, and the names that were dispatched and have put out nothing yet."""
    aliases: dict[str, list[str]] = {}
    for alias, canonical in sorted(story.aliases.items()):
        if alias != canonical:
            aliases.setdefault(canonical, []).append(alias)
    statuses = {(entry.step_id, entry.attempt): entry.status for entry in story.dispatches}
    silent = {entry.name: entry for entry in _silent(story.dispatches)}
    is_over = story.run.status.is_terminal
    lines = [_line(story, each, aliases, statuses, is_again=each.name in silent and not is_over) for each in outputs]
    answered = {summary.name for summary in outputs if summary.kind is Kind.STEP}
    counts: dict[str, int] = {}
    for entry in story.dispatches:
        counts[entry.name] = max(counts.get(entry.name, 0), entry.occurrence)
    mark = LOST if is_over else STEP_MARKS[StepStatus.DISPATCHED]
    lines += [
        StepLine(
            name=name,
            url=None,
            aliases=aliases.get(name, []),
            kind="step",
            mark=mark,
            is_again=False,
            type=None,
            size_bytes=None,
            attempts=entry.attempt,
            occurrences=counts[name],
            source=None,
            submitted_at=None,
        )
        for name, entry in silent.items()
        if name not in answered
    ]
    return lines


def _line(
    story: RunStory,
    summary: StepSummary,
    aliases: dict[str, list[str]],
    statuses: dict[tuple[str, int], StepStatus],
    *,
    is_again: bool,
) -> StepLine:
    mark = None
    if summary.kind is Kind.STEP and summary.step_id is not None and summary.attempt is not None:
        said = STEP_MARKS[StepStatus.PASSED if summary.ok else StepStatus.BLOCKED]
        mark = STEP_MARKS.get(statuses.get((summary.step_id, summary.attempt), StepStatus.DISPATCHED), said)
        mark = said if mark == STEP_MARKS[StepStatus.DISPATCHED] else mark
    return StepLine(
        name=summary.name,
        url=step_url(story.run.task_id, story.run.id, summary.name),
        aliases=aliases.get(summary.name, []) if summary.kind is Kind.STEP else [],
        kind=summary.kind.value,
        mark=mark,
        is_again=is_again and summary.kind is Kind.STEP,
        type=_TYPES.get(summary.content_type.partition(";")[0], summary.content_type),
        size_bytes=summary.size_bytes,
        attempts=summary.attempts,
        occurrences=summary.occurrences,
        source=summary.source.value.replace("_", " "),
        submitted_at=summary.submitted_at,
    )


def _matches(line: StepLine, search: str) -> bool:
    text = search.casefold()
    return any(text in name.casefold() for name in (line.name, *line.aliases))


# --- order -----------------------------------------------------------------------------------------

_ORDERS: dict[str, tuple[str, bool, Callable[[StepLine], Any]]] = {
    "name": ("Name", False, lambda line: line.name.casefold()),
    "status": ("Status", False, lambda line: "" if line.mark is None else line.mark.word),
    "type": ("Type", False, lambda line: line.type or ""),
    "size": ("Size", True, lambda line: line.size_bytes or 0),
    "attempts": ("Attempts", True, lambda line: line.attempts or 0),
    "occurrences": ("Occurrences", True, lambda line: line.occurrences or 0),
    "source": ("Source", False, lambda line: line.source or ""),
    "submitted": ("Submitted", False, lambda line: line.submitted_at or "~"),
}
"""The columns: word, whether it holds numbers, and what it is sorted by. Text sorts upwards first, numbers down."""

SORTS = frozenset(_ORDERS) | {f"-{name}" for name in _ORDERS}


def _sorted(lines: list[StepLine], sort: str) -> list[StepLine]:
    """Sort lines; without a wish in the order in which they came, the ones that are still awaited last."""
    named = sorted(lines, key=lambda line: line.name)
    name, is_down = (sort.removeprefix("-"), sort.startswith("-")) if sort in SORTS else ("submitted", False)
    return sorted(named, key=_ORDERS[name][2], reverse=is_down)


def _columns(sort: str, url: Callable[..., str]) -> list[Column]:
    columns = []
    for name, (word, is_number, _) in _ORDERS.items():
        first, second = (f"-{name}", name) if is_number else (name, f"-{name}")
        order = "" if sort.removeprefix("-") != name else "descending" if sort.startswith("-") else "ascending"
        columns.append(Column(word, is_number, order, url(sort=second if sort == first else first)))
    return columns


# --- the rest --------------------------------------------------------------------------------------


def _result(story: RunStory, result: StepSummary) -> ResultView:
    url = step_url(story.run.task_id, story.run.id, CTX_NAME)
    return ResultView(url, result.size_bytes, result.preview, result.truncated)


def _degradation(record: JsonValue) -> DegradationView:
    """Read a worker's report; whatever else was kept is shown as it is."""
    if isinstance(record, dict):
        tool, error, fallback, note = (record.get(key) for key in ("tool", "error", "fallback", "note"))
        if isinstance(tool, str) and isinstance(error, str) and isinstance(fallback, str):
            tool, error, fallback = (shortened(text, _SHOWN_CHARS) for text in (tool, error, fallback))
            return DegradationView(
                tool, error, fallback, shortened(note, _SHOWN_CHARS) if isinstance(note, str) else None
            )
    return DegradationView("", shortened(render_json(record).decode(), _SHOWN_CHARS), "", None)
