"""The steps of a run, as a table: which of them, in what order, a page at a time.

The invariant: a name that was dispatched is in the table, whether it has put out something or not.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from app.domain.records import Kind, RunSummary, Source, StepEntry, StepStatus, StepSummary
from app.services.overviews import RunStory
from app.web.marks import LOST, STEP_MARKS, Mark
from app.web.step_order import Place, StepOrder, newest_attempts
from app.web.urls import run_url, step_url

PAGE_STEPS = 100

_TYPES = {"application/json": "JSON", "text/markdown": "Markdown", "text/plain": "text"}


class StepLine(NamedTuple):
    """One name of the run: what answers for it now, or that nothing does yet.

    Attributes:
        name: the canonical one.
        place: where it stands without another order.
        url: what it put out; None while there is nothing.
        aliases: its other names.
        kind: ``step`` or ``artifact``.
        badge: what it is where that is no step of its own; None for a step.
        mark: how the attempt stands that answers; None for what has no status.
        others: how other steps of the name stand, where that is another way.
        type: of the value, whatever file holds it.
        has_file: whether its URL serves a file.
        size_bytes: of what its URL serves.
        attempts: of the occurrence that answers.
        occurrences: how often the name was dispatched.
        submitted_at: when the output that answers was submitted.
    """

    name: str
    place: Place
    url: str | None
    aliases: list[str]
    kind: str
    badge: str | None
    mark: Mark | None
    others: list[str]
    type: str | None
    has_file: bool
    size_bytes: int | None
    attempts: int | None
    occurrences: int | None
    submitted_at: str | None


class Column(NamedTuple):
    """A head of the table of steps, and where its order leads."""

    word: str
    is_number: bool
    order: str
    url: str


class Asked(NamedTuple):
    """How a run shall be shown.

    Attributes:
        search: only names and aliases with this text in them.
        sort: the order of the steps.
        page: which page of them.
        status: only names with a step whose newest attempt stands so, and only dispatches that do; None for all.
        first: which dispatch is the first of those that are listed; None for the newest ones.
    """

    search: str = ""
    sort: str = ""
    page: int = 1
    status: StepStatus | None = None
    first: int | None = None


class StepsView(NamedTuple):
    """A page of the table.

    Attributes:
        search: what the names were filtered by.
        sort: the column that orders them, with a ``-`` in front where it orders downwards.
        status: the one that is asked for, as its mark; None for any.
        status_word: the same as the address has it; empty for any.
        any_status_url: the page without that filter.
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
    status: Mark | None
    status_word: str
    any_status_url: str
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
        given = {"q": asked.search, "sort": asked.sort, "status": asked.status or ""}
        return run_url(run.task_id, run.id, **{**given, **changes})

    return StepsView(
        search=asked.search,
        sort=asked.sort,
        status=None if asked.status is None else STEP_MARKS[asked.status],
        status_word=asked.status or "",
        any_status_url=url(status=""),
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
    return [entry for entry in newest_attempts(dispatches) if entry.status is StepStatus.DISPATCHED]


# --- lines -----------------------------------------------------------------------------------------


def find_lines(story: RunStory, outputs: list[StepSummary], asked: Asked) -> list[StepLine]:
    """List the names of a run that were asked for: what answers, and what was dispatched and put out nothing yet."""
    aliases: dict[str, list[str]] = {}
    for alias, canonical in sorted(story.aliases.items()):
        if alias != canonical:
            aliases.setdefault(canonical, []).append(alias)
    newest: dict[str, dict[str, StepEntry]] = {}
    for entry in story.dispatches:
        newest.setdefault(entry.name, {})[entry.step_id] = entry
    order = StepOrder(story.dispatches)
    statuses = {(entry.step_id, entry.attempt): entry.status for entry in story.dispatches}
    lines = []
    for summary in outputs:
        line = _line(story, summary, order, statuses)
        if summary.kind is Kind.STEP:
            others = _others(story, line.mark, newest.get(summary.name, {}).values())
            line = line._replace(aliases=aliases.get(summary.name, []), others=others)
        lines.append(line)
    answered = {summary.name for summary in outputs if summary.kind is Kind.STEP}
    lines += [
        _silent_line(story, order, aliases.get(name, []), list(steps.values()))
        for name, steps in newest.items()
        if name not in answered
    ]
    standing = {name for name, steps in newest.items() if asked.status in {step.status for step in steps.values()}}
    found = [
        line
        for line in lines
        if _matches(line, asked.search) and (asked.status is None or (line.name in standing and line.badge is None))
    ]
    return sorted(found, key=lambda line: line.place)


def _line(
    story: RunStory, summary: StepSummary, order: StepOrder, statuses: dict[tuple[str, int], StepStatus]
) -> StepLine:
    mark = None
    if summary.kind is Kind.STEP and summary.step_id is not None and summary.attempt is not None:
        said = STEP_MARKS[StepStatus.PASSED if summary.ok else StepStatus.BLOCKED]
        mark = STEP_MARKS.get(statuses.get((summary.step_id, summary.attempt), StepStatus.DISPATCHED), said)
        mark = said if mark == STEP_MARKS[StepStatus.DISPATCHED] else mark
    return StepLine(
        name=summary.name,
        place=order.place(summary.name, summary.kind, summary.source),
        url=step_url(story.run.task_id, story.run.id, summary.name),
        aliases=[],
        kind=summary.kind.value,
        badge=badge_of(summary),
        mark=mark,
        others=[],
        type=_type(summary, is_text=summary.name in story.texts),
        has_file=summary.file_path is not None,
        size_bytes=summary.size_bytes,
        attempts=summary.attempts,
        occurrences=summary.occurrences,
        submitted_at=summary.submitted_at,
    )


def badge_of(summary: StepSummary) -> str | None:
    """Tell what an output is where it is not what a step submitted as its own."""
    if summary.kind is Kind.ARTIFACT:
        return "artifact"
    return "from the result" if summary.source is Source.RESULT_REF else None


def _others(story: RunStory, mark: Mark | None, steps: Iterable[StepEntry]) -> list[str]:
    """Tell of a name's other steps what its one mark would hide: those in flight, without an output, or blocked."""
    statuses = {step.status for step in steps}
    words = []
    if StepStatus.DISPATCHED in statuses:
        words.append(LOST.word if story.run.status.is_terminal else "again in flight")
    if StepStatus.BLOCKED in statuses and mark != STEP_MARKS[StepStatus.BLOCKED]:
        words.append("also blocked")
    return words


def _type(summary: StepSummary, *, is_text: bool) -> str:
    """Name the type of a value: a step's is JSON unless it is a text, an artifact's is told by its name."""
    if summary.kind is Kind.STEP:
        return "text" if is_text else "JSON"
    return _TYPES.get(summary.content_type.partition(";")[0], summary.content_type)


def _silent_line(story: RunStory, order: StepOrder, aliases: list[str], steps: list[StepEntry]) -> StepLine:
    """Make the line of a name that has put out nothing yet."""
    newest = steps[-1]
    return StepLine(
        name=newest.name,
        place=order.place(newest.name, Kind.STEP, None),
        url=None,
        aliases=aliases,
        kind=Kind.STEP.value,
        badge=None,
        mark=LOST if story.run.status.is_terminal else STEP_MARKS[StepStatus.DISPATCHED],
        others=[],
        type=None,
        has_file=False,
        size_bytes=None,
        attempts=newest.attempt,
        occurrences=max(step.occurrence for step in steps),
        submitted_at=None,
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
    "submitted": ("Submitted", False, lambda line: line.submitted_at or "~"),
}
"""The columns: word, whether it holds numbers, and what it is sorted by. Text sorts upwards first, numbers down."""

SORTS = frozenset(_ORDERS) | {f"-{name}" for name in _ORDERS}


def _sorted(lines: list[StepLine], sort: str) -> list[StepLine]:
    """Sort lines; without a wish they stay in the order of their first dispatch."""
    if sort not in SORTS:
        return lines
    name, is_down = sort.removeprefix("-"), sort.startswith("-")
    return sorted(sorted(lines, key=lambda line: line.name), key=_ORDERS[name][2], reverse=is_down)


def _columns(sort: str, url: Callable[..., str]) -> list[Column]:
    columns = []
    for name, (word, is_number, _) in _ORDERS.items():
        first, second = (f"-{name}", name) if is_number else (name, f"-{name}")
        order = "" if sort.removeprefix("-") != name else "descending" if sort.startswith("-") else "ascending"
        columns.append(Column(word, is_number, order, url(sort=second if sort == first else first)))
    return columns
