"""News of a step: what became of it since its page was opened.

The invariant: nothing that is shown is exchanged; the page tells what is newer, and its reader goes there or stays.
"""

from collections.abc import Iterable
from typing import NamedTuple

from app.domain.answers import Answer
from app.domain.records import Kind, StepEntry, StepStatus, StepSummary
from app.domain.rendering import Narrowing
from app.services.catalog import Catalog
from app.services.query import McpQueryAdapter
from app.web.run_steps import list_silent
from app.web.step_address import StepAddress
from app.web.urls import with_query


class News(NamedTuple):
    """What is newer than what a page shows.

    Attributes:
        sentence: what it is; empty where there is nothing newer.
        is_there: whether it can be shown already.
        is_over: whether its run has ended, so that no more news will come.
    """

    sentence: str
    is_there: bool
    is_over: bool


class StepNews:
    """Tells news.

    Args:
        query: finds outputs.
        catalog: knows what was dispatched.
    """

    def __init__(self, query: McpQueryAdapter, catalog: Catalog) -> None:
        self._query = query
        self._catalog = catalog

    async def tell(self, address: StepAddress, known: str) -> News:
        """Tell what is newer under an address than what is known, as :func:`known_by` wrote it.

        Raises:
            NotFound: there is nothing under the address any more.
        """
        narrowing = Narrowing(attempt=address.attempt, occurrence=address.occurrence)
        look = await self._query.look(address.task_id, address.run_id, address.name, narrowing)
        run = await self._catalog.get_run_summary(look.place.run_id)
        entries = await self._catalog.list_dispatches(look.place.run_id)
        sentences = [] if known_by(look.answer) == known else [_newer(look.answer, known, entries)]
        awaited = "" if run.status.is_terminal else tell_awaited(address, look.answer, entries)
        return News(" ".join([*sentences, awaited]).strip(), bool(sentences), run.status.is_terminal)


def known_by(shown: Answer | StepSummary) -> str:
    """Write which output it is: its occurrence, its attempt, and when it was submitted."""
    return f"{shown.occurrence}.{shown.attempt}.{shown.submitted_at}"


def news_url(address: StepAddress, summary: StepSummary) -> str:
    """Write where a page asks for news of what it shows."""
    query = {
        "name": address.name,
        "occurrence": address.occurrence,
        "attempt": address.attempt,
        "known": known_by(summary),
    }
    return with_query(f"{address.run_url}/step/news", query)


def tell_awaited(address: StepAddress, shown: Answer | StepSummary, entries: list[StepEntry]) -> str:
    """Tell what of a step's name is in flight while something of it is shown; empty where nothing is.

    Whoever looks at one attempt by its number awaits no other.
    """
    if shown.kind is not Kind.STEP or address.attempt is not None:
        return ""
    awaited = [
        entry
        for entry in list_silent(entries)
        if entry.name == shown.name and address.occurrence in {None, entry.occurrence}
    ]
    if not awaited:
        return ""
    if len(awaited) > 1:
        return f"Again in flight: {len(awaited)} occurrences."
    return f"Again in flight: {_number(awaited[0], shown.occurrence)}."


def _newer(answer: Answer, known: str, entries: Iterable[StepEntry]) -> str:
    """Tell what answers now in place of what is known, and how it stands."""
    if answer.kind is not Kind.STEP or known.startswith(f"{answer.occurrence}.{answer.attempt}."):
        return "There is a newer output."
    whose = (answer.step_id, answer.attempt)
    entry = next((each for each in entries if (each.step_id, each.attempt) == whose), None)
    if entry is None:
        return "There is a newer output."
    known_occurrence = known.partition(".")[0]
    number = _number(entry, int(known_occurrence) if known_occurrence.isdecimal() else None)
    return f"{number.capitalize()} {_STANDS[entry.status]}."


def _number(entry: StepEntry, shown_occurrence: int | None) -> str:
    """Name a dispatch by what tells it from the occurrence that is shown."""
    if entry.occurrence == shown_occurrence:
        return f"attempt {entry.attempt}"
    of_attempt = f"attempt {entry.attempt} of " if entry.attempt > 1 else ""
    return f"{of_attempt}occurrence {entry.occurrence}"


_STANDS = {
    StepStatus.DISPATCHED: "is there",
    StepStatus.PASSED: "has passed",
    StepStatus.BLOCKED: "is blocked",
    StepStatus.SKIPPED: "was skipped",
}
