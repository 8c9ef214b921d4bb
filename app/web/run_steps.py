"""The steps of a run, as a table: which of them, in what order, a page at a time.

The invariant: a name that was dispatched is in the table, whether it has put out something or not.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from app.domain.records import Kind, RunSummary, StepEntry, StepStatus, StepSummary
from app.services.overviews import RunStory
from app.web.marks import LOST, STEP_MARKS, Mark
from app.web.urls import run_url, step_url

PAGE_STEPS = 200

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


class Asked(NamedTuple):
    """How the steps shall be shown: which, in what order, and which page of them."""

    search: str = ""
    sort: str = ""
    page: int = 1


class StepsView(NamedTuple):
    """A page of the table.

    Attributes:
        search: what the names were filtered by.
        sort: the column that orders them, with a ``-`` in front where it orders downwards.
        columns: the heads of the table.
        lines: the page.
        matching: how many there are on all pages.
        page: its number, from 1.
        pages: how many there are.
        previous_url: the page before; None on the first.
        next_url: the page after; None on the last.
    """

    search: str
    sort: str
    columns: list[Column]
    lines: list[StepLine]
    matching: int
    page: int
    pages: int
    previous_url: str | None
    next_url: str | None


def steps_view(run: RunSummary, found: list[StepLine], asked: Asked) -> StepsView:
    """Make the page that was asked for; past the last one it is the last."""
    pages = max(1, -(-len(found) // PAGE_STEPS))
    page = min(max(1, asked.page), pages)

    def url(**changes: Any) -> str:
        return run_url(run.task_id, run.id, **{"q": asked.search, "sort": asked.sort, **changes})

    return StepsView(
        search=asked.search,
        sort=asked.sort,
        columns=_columns(asked.sort, url),
        lines=_sorted(found, asked.sort)[(page - 1) * PAGE_STEPS : page * PAGE_STEPS],
        matching=len(found),
        page=page,
        pages=pages,
        previous_url=url(page=page - 1) if page > 1 else None,
        next_url=url(page=page + 1) if page < pages else None,
    )


def list_silent(dispatches: list[StepEntry]) -> list[StepEntry]:
    """List the newest attempts that have put out nothing yet."""
    newest = {entry.step_id: entry for entry in dispatches}
    return [entry for entry in newest.values() if entry.status is StepStatus.DISPATCHED]


# --- lines -----------------------------------------------------------------------------------------


def find_lines(story: RunStory, outputs: list[StepSummary], search: str) -> list[StepLine]:
    """List the names of a run with a text in them: what answers, and what was dispatched and put out nothing yet."""
    aliases: dict[str, list[str]] = {}
    for alias, canonical in sorted(story.aliases.items()):
        if alias != canonical:
            aliases.setdefault(canonical, []).append(alias)
    statuses = {(entry.step_id, entry.attempt): entry.status for entry in story.dispatches}
    silent = {entry.name: entry for entry in list_silent(story.dispatches)}
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
    return [line for line in lines if _matches(line, search)]


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
