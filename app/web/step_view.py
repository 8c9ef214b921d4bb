"""The view of a step's page: what it tells of an output, and every link from it to another.

The invariant: an address that leads nowhere still shows what there is and how to get there; only a task, run or step
that does not exist is an error page.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.domain.answers import read_summary
from app.domain.errors import AttemptNotFound, OccurrenceNotFound, PathNotFound, StepNotFound, StepNotSubmitted
from app.domain.ids import CTX_NAME
from app.domain.records import Kind, StepEntry, StepSummary
from app.domain.rendering import TEXT_TYPE, WHOLE, Narrowing, etag_of
from app.services.catalog import Catalog
from app.services.comparisons import Side
from app.services.query import McpQueryAdapter
from app.web.compare_view import compare_url
from app.web.curl import curl_line
from app.web.marks import STEP_MARKS, Mark
from app.web.step_address import VIEWS, StepAddress
from app.web.step_bodies import Body, StepBodies
from app.web.step_news import news_url, tell_awaited
from app.web.step_order import StepOrder


class Choice(NamedTuple):
    """One of several addresses; the one that is shown is chosen, a gap has no URL."""

    word: str
    url: str | None
    is_chosen: bool = False


class Switch(NamedTuple):
    """A choice of attempts or occurrences: how many there are, which is shown, and where the others are."""

    noun: str
    shown: int | None
    total: int
    choices: list[Choice]


class StepView(NamedTuple):
    """A step's page.

    Attributes:
        summary: of what is shown; None while the step has put out nothing.
        entry: the attempt that put it out; None for artifacts and the result.
        fault: why the address leads nowhere, where the nearest that is there is shown.
        dispatched: how often a step was dispatched that has put out nothing.
        is_over: whether its run has ended, so that nothing more will come.
        awaited: what of the same name is in flight again; empty for nothing.
        news_url: where the page asks what became of the step; empty while it has put out nothing.
        whole_url: the address without its path.
    """

    name: str
    title: str
    address: StepAddress
    summary: StepSummary | None
    mark: Mark | None
    fault: str | None
    entry: StepEntry | None
    dispatched: int
    is_over: bool
    awaited: str
    news_url: str
    switches: list[Switch]
    tabs: list[Choice]
    before: Choice | None
    after: Choice | None
    curls: list[tuple[str, str]]
    download_url: str
    file_url: str
    permalink: str
    compare_url: str
    whole_url: str
    view: str
    body: Body | None


class StepViews:
    """Makes the views of steps.

    Args:
        query: finds and serves outputs.
        catalog: knows what was dispatched.
        bodies: make what stands below the head of the page.
        needs_token: whether the server asks for the operator's bearer.
    """

    def __init__(self, query: McpQueryAdapter, catalog: Catalog, bodies: StepBodies, *, needs_token: bool) -> None:
        self._query = query
        self._catalog = catalog
        self._bodies = bodies
        self._needs_token = needs_token

    async def make(self, address: StepAddress) -> StepView:
        """Make the view of a step.

        Raises:
            TaskNotFound, RunNotFound, StepNotFound: there is no such step, not even one in flight.
            InvalidParameter: the cursor is none of this value.
        """
        listing = await self._query.list_json(address.task_id, address.run_id)
        address = address._replace(run_id=listing.run_id)
        is_over = (await self._catalog.get_run_summary(listing.run_id)).status.is_terminal
        entries = await self._catalog.list_dispatches(listing.run_id)
        names = _ordered(listing.summaries, entries)
        try:
            summary, fault = await self._summary(address)
        except (StepNotFound, StepNotSubmitted):
            address = address._replace(name=await self._query.resolve_step_name(address.task_id, address.name))
            dispatched = sum(entry.name == address.name for entry in entries)
            if not dispatched:
                raise
            return self._view(address, names, None, None)._replace(dispatched=dispatched, is_over=is_over)
        address = address._replace(name=summary.name)
        whose = (summary.step_id, summary.attempt)
        entry = next((each for each in entries if (each.step_id, each.attempt) == whose), None)
        awaited = "" if is_over else tell_awaited(address, summary, entries)
        view = self._view(address, names, summary, fault)._replace(is_over=is_over, awaited=awaited)
        if entry is not None and summary.kind is Kind.STEP:
            view = view._replace(entry=entry, mark=STEP_MARKS[entry.status])
        if fault is not None:
            return view
        return view._replace(
            body=await self._bodies.make(address),
            curls=await self._curls(address, summary),
            download_url=await self._download_url(address),
        )

    async def _summary(self, address: StepAddress) -> tuple[StepSummary, str | None]:
        """Look at the output; where the address leads nowhere, at the nearest that is there, with the reason."""
        asked = address.narrowing
        fault: str | None = None
        for narrowing in (asked, asked._replace(path=None), Narrowing(occurrence=asked.occurrence), WHOLE):
            try:
                return await self._query.summary(address.task_id, address.run_id, address.name, narrowing), fault
            except (PathNotFound, AttemptNotFound, OccurrenceNotFound) as error:
                fault = fault or error.sentence
        raise StepNotFound(address.name, address.run_id or "")

    def _view(self, address: StepAddress, names: list[str], summary: StepSummary | None, fault: str | None) -> StepView:
        before, after = _neighbours(address, names)
        return StepView(
            name=address.name,
            title="The whole result" if address.name == CTX_NAME else address.name,
            address=address,
            summary=summary,
            mark=None,
            fault=fault,
            entry=None,
            dispatched=0,
            is_over=False,
            awaited="",
            news_url="" if summary is None else news_url(address, summary),
            switches=[] if summary is None or summary.attempt is None else _switches(address, summary),
            tabs=[Choice(view, address._replace(view=view, cursor=None).url, view == address.view) for view in VIEWS],
            before=before,
            after=after,
            curls=[],
            download_url=address.content_url(),
            file_url=address._replace(path="").content_url("file"),
            permalink=_pinned(address, summary).url,
            compare_url="" if summary is None else compare_url(address, None, _side(address, summary)),
            whole_url=(address if fault is None else _pinned(address, summary))._replace(path="", cursor=None).url,
            view=address.view,
            body=None,
        )

    async def _download_url(self, address: StepAddress) -> str:
        """Write where the output is saved from: a text as itself, all else as the API serves it."""
        narrowing = address.narrowing._replace(format="raw")
        look = await self._query.look(address.task_id, address.run_id, address.name, narrowing)
        return address.content_url("raw" if look.form.content_type == TEXT_TYPE else None)

    async def _curls(self, address: StepAddress, summary: StepSummary) -> list[tuple[str, str]]:
        """Write the lines that fetch what the tab shows: the tree is of the JSON, raw is a text's own bytes."""
        url, sha256, form = summary.content_url, summary.sha256, _FORMS.get(address.view)
        if form is not None:
            narrowing = address.narrowing._replace(format=form)
            look = await self._query.look(address.task_id, address.run_id, address.name, narrowing)
            url, sha256 = look.place.url(address.name, narrowing), look.form.sha256
        etag = etag_of(sha256)
        return [
            ("Fetch it", curl_line(url, needs_token=self._needs_token)),
            ("Fetch it if it changed", curl_line(url, needs_token=self._needs_token, etag=etag)),
        ]


_FORMS = {"tree": "json", "raw": "raw"}

_ALL_UP_TO = 9
_CHOICES_AROUND = 2


def _switches(address: StepAddress, summary: StepSummary) -> list[Switch]:
    """Offer the occurrences of the name, and the attempts of the occurrence that is shown."""
    plain = address._replace(cursor=None)

    def of_occurrence(number: int) -> StepAddress:
        return plain._replace(occurrence=number, attempt=None)

    def of_attempt(number: int) -> StepAddress:
        return plain._replace(occurrence=summary.occurrence, attempt=number)

    return [
        _switch("occurrence", summary.occurrence, summary.occurrences or 0, of_occurrence),
        _switch("attempt", summary.attempt, summary.attempts or 0, of_attempt),
    ]


def _switch(noun: str, shown: int | None, total: int, of: Callable[[int], StepAddress]) -> Switch:
    choices = [
        Choice("…", None) if number is None else Choice(str(number), of(number).url, number == shown)
        for number in _shown_numbers(shown, total)
    ]
    return Switch(noun, shown, total, choices)


def _shown_numbers(shown: int | None, total: int) -> list[int | None]:
    """Choose all of a few, else the first, the last and those around the one that is shown; None stands for a gap."""
    if total <= _ALL_UP_TO:
        return list(range(1, total + 1))
    around = range((shown or total) - _CHOICES_AROUND, (shown or total) + _CHOICES_AROUND + 1)
    numbers: list[int | None] = []
    for number in sorted({1, total, *(each for each in around if 1 <= each <= total)}):
        if numbers and number - 1 != numbers[-1]:
            numbers.append(None)
        numbers.append(number)
    return numbers


def _pinned(address: StepAddress, summary: StepSummary | None) -> StepAddress:
    """Name the attempt and occurrence that are shown now, so that the address leads to this output for good."""
    if summary is None:
        return address._replace(cursor=None)
    return address._replace(occurrence=summary.occurrence, attempt=summary.attempt, cursor=None)


def _side(address: StepAddress, summary: StepSummary) -> Side:
    return Side(address.run_id or "", summary.occurrence, summary.attempt)


def _ordered(summaries: Sequence[bytes], entries: list[StepEntry]) -> list[str]:
    """List the names of a run in the order of its page."""
    order = StepOrder(entries)
    told = [read_summary(summary) for summary in summaries]
    return [place[-1] for place in sorted(order.place(each["name"], each["kind"], each["source"]) for each in told)]


def _neighbours(address: StepAddress, names: list[str]) -> tuple[Choice | None, Choice | None]:
    if address.name not in names:
        return None, None
    at = names.index(address.name)

    def choice(index: int) -> Choice | None:
        if not 0 <= index < len(names):
            return None
        plain = StepAddress(address.task_id, address.run_id, names[index], view=address.view)
        return Choice(names[index], plain.url)

    return choice(at - 1), choice(at + 1)
