"""The list of runs, as its page shows it."""

from typing import NamedTuple

from app.domain.limits import LISTED_CHARS
from app.domain.records import RunStatus, elapsed_ms
from app.services.overviews import OverviewPage, RunOverview
from app.web.formats import shortened
from app.web.marks import RUN_MARKS, Mark
from app.web.urls import run_url, runs_url

_SHOWN_CHARS = LISTED_CHARS.value


class Choice(NamedTuple):
    """One of the values that a filter can have."""

    value: str
    word: str
    is_chosen: bool


class RunLine(NamedTuple):
    """One run of the list; ``duration_ms`` is None while it goes on."""

    url: str
    run_id: str
    task_id: str
    task_url: str
    goal: str | None
    mark: Mark
    error: str | None
    created_at: str
    duration_ms: int | None
    dispatched: int
    done: int
    blocked: int
    outputs: int
    size_bytes: int


class RunListView(NamedTuple):
    """The page of runs.

    Attributes:
        lines: newest first.
        statuses: what can be filtered by.
        search: what was searched for.
        is_filtered: whether runs may be hidden by a filter.
        next_url: the next page; None on the last one.
        first_url: the first page, where this is a later one.
        cut_at: how many runs a search looked at before it stopped.
    """

    lines: list[RunLine]
    statuses: list[Choice]
    search: str
    is_filtered: bool
    next_url: str | None
    first_url: str | None
    cut_at: int | None


def run_list_view(page: OverviewPage, *, status: RunStatus | None, search: str, cursor: str | None) -> RunListView:
    """Make the page of runs out of what was found under its filters."""
    chosen = "" if status is None else status.value
    statuses = [Choice("", "Any status", is_chosen=status is None)]
    statuses += [Choice(each.value, each.value.capitalize(), is_chosen=each is status) for each in RunStatus]
    return RunListView(
        lines=[_line(overview) for overview in page.runs],
        statuses=statuses,
        search=search,
        is_filtered=bool(search) or status is not None,
        next_url=runs_url(q=search, status=chosen, cursor=page.next_cursor) if page.next_cursor else None,
        first_url=runs_url(q=search, status=chosen) if cursor else None,
        cut_at=page.cut_at,
    )


def _line(overview: RunOverview) -> RunLine:
    run, steps, outputs = overview
    return RunLine(
        url=run_url(run.task_id, run.id),
        run_id=run.id,
        task_id=run.task_id,
        task_url=runs_url(q=run.task_id),
        goal=None if run.goal is None else shortened(run.goal, _SHOWN_CHARS),
        mark=RUN_MARKS[run.status],
        error=None if run.error is None else shortened(run.error, _SHOWN_CHARS),
        created_at=run.created_at,
        duration_ms=elapsed_ms(run.created_at, run.updated_at) if run.status.is_terminal else None,
        dispatched=steps.dispatched,
        done=steps.done,
        blocked=steps.blocked,
        outputs=outputs.outputs,
        size_bytes=outputs.size_bytes,
    )
