"""The view of two outputs compared.

The invariant: what cannot be compared is said in a sentence, on a page that offers what can.
"""

from typing import NamedTuple

from app.domain.comparing import Change
from app.domain.errors import InvalidParameter, NotFound
from app.domain.ids import check_id
from app.domain.records import StepStatus, StepSummary
from app.domain.rendering import Narrowing
from app.services.catalog import Catalog
from app.services.comparisons import Comparison, Comparisons, Side
from app.services.query import McpQueryAdapter
from app.web.formats import shortened
from app.web.step_address import StepAddress, read_count
from app.web.urls import with_query

_RUNS_OFFERED = 30
_SHOWN_LINES = 2_000


class SideView(NamedTuple):
    """One of the two outputs; without a summary where there is none."""

    spelled: str
    label: str
    url: str
    summary: StepSummary | None


class Option(NamedTuple):
    """An output that can be chosen."""

    spelled: str
    label: str


class ChangeLine(NamedTuple):
    """A path that changed, and where to look at what it leads to: afterwards, or before where that is gone."""

    change: Change
    url: str


class CompareView(NamedTuple):
    """The page of a comparison; without one where a side is missing.

    Of two texts there is one path, which tells nothing that their lines do not tell.
    """

    address: StepAddress
    before: SideView | None
    after: SideView
    options: list[Option]
    swap_url: str | None
    fault: str | None
    comparison: Comparison | None
    changes: list[ChangeLine]
    tells_paths: bool
    most_lines: int


def spell(side: Side) -> str:
    """Write a side as one word of a query: ``R-…``, or ``R-…:occurrence:attempt``."""
    if side.occurrence is None and side.attempt is None:
        return side.run_id
    return f"{side.run_id}:{side.occurrence or ''}:{side.attempt or ''}"


def read_side(text: str) -> Side:
    """Read a side.

    Raises:
        InvalidId, InvalidParameter: it is none.
    """
    run_id, _, numbers = text.partition(":")
    occurrence, _, attempt = numbers.partition(":")
    given = {"occurrence": occurrence, "attempt": attempt}
    return Side(check_id("run", run_id), read_count("occurrence", given), read_count("attempt", given))


def compare_url(address: StepAddress, before: Side | None, after: Side) -> str:
    """Write where a comparison is."""
    query = {"name": address.name, "from": None if before is None else spell(before), "to": spell(after)}
    return with_query(f"{address.run_url}/compare", query)


class CompareViews:
    """Makes the views of comparisons.

    Args:
        query: finds outputs.
        catalog: knows what was dispatched.
        comparisons: compare.
    """

    def __init__(self, query: McpQueryAdapter, catalog: Catalog, comparisons: Comparisons) -> None:
        self._query = query
        self._catalog = catalog
        self._comparisons = comparisons

    async def make(self, address: StepAddress, before: Side | None, after: Side | None) -> CompareView:
        """Make the view of a comparison; a side that is not given is the newest, or what came before it.

        Raises:
            TaskNotFound, RunNotFound: there is no such task or run.
        """
        listing = await self._query.list_json(address.task_id, address.run_id)
        address = address._replace(run_id=listing.run_id)
        after = after or Side(listing.run_id)
        summary, fault = await self._find(address, after)
        offered = await self._offered(address, listing.run_id, None if summary is None else summary.step_id)
        if summary is not None:
            address = address._replace(name=summary.name)
            if after.run_id == listing.run_id:
                after = Side(after.run_id, summary.occurrence, summary.attempt)
        before = before or _before(after, offered)
        old, old_fault = (None, None) if before is None else await self._find(address, before)
        comparison = None
        if before is not None and old is not None and summary is not None:
            comparison = await self._comparisons.compare(address.task_id, address.name, before, after)
        changes = _lines(address, before, after, comparison)
        return CompareView(
            address=address,
            before=None if before is None else _side(address, before, old),
            after=_side(address, after, summary),
            options=[Option(spell(side), _label(side, listing.run_id)) for side in _with(offered, before, after)],
            swap_url=None if before is None else compare_url(address, after, before),
            fault=fault or old_fault,
            comparison=comparison,
            changes=changes,
            tells_paths=not (len(changes) == 1 and _is_of_texts(changes[0].change)),
            most_lines=_SHOWN_LINES,
        )

    async def _offered(self, address: StepAddress, run_id: str, step_id: str | None) -> list[Side]:
        """List what can be compared: what this run put out, oldest first, then its task's other runs.

        An artifact is offered as often as the step that put it out, though it may not have done so each time.
        """
        entries = await self._catalog.list_dispatches(run_id)
        names = {await self._query.resolve_step_name(address.task_id, address.name)}
        names |= {entry.name for entry in entries if entry.step_id == step_id}
        ended = [entry for entry in entries if entry.name in names and entry.status is not StepStatus.DISPATCHED]
        page = await self._catalog.list_runs(_RUNS_OFFERED, task_id=address.task_id)
        sides = sorted(Side(run_id, entry.occurrence, entry.attempt) for entry in ended)
        return sides + [Side(run.id) for run in page.runs if run.id != run_id]

    async def _find(self, address: StepAddress, side: Side) -> tuple[StepSummary | None, str | None]:
        narrowing = Narrowing(None, None, side.attempt, side.occurrence)
        try:
            return await self._query.summary(address.task_id, side.run_id, address.name, narrowing), None
        except NotFound as error:
            return None, error.sentence


def _before(after: Side, offered: list[Side]) -> Side | None:
    """Choose what came before: an earlier attempt or occurrence, else another run."""
    numbered = [side for side in offered if side.occurrence is not None and side < after]
    others = [side for side in offered if side.occurrence is None and side.run_id != after.run_id]
    return numbered[-1] if numbered else others[0] if others else None


def _with(offered: list[Side], *chosen: Side | None) -> list[Side]:
    """Offer what is chosen as well, though it was not among the rest."""
    return [side for side in chosen if side is not None and side not in offered] + offered


def _lines(address: StepAddress, before: Side | None, after: Side, comparison: Comparison | None) -> list[ChangeLine]:
    if before is None or comparison is None or comparison.changes is None:
        return []
    lines = []
    for change in comparison.changes.shown:
        there = _at(address, before if change.kind == "removed" else after)
        is_short = len(change.path) <= _PATH_CHARS  # an address of more than this no server takes
        url = there._replace(path=change.path).url if is_short else there.url
        lines.append(ChangeLine(change._replace(path=shortened(change.path, _SHOWN_CHARS)), url))
    return lines


_SHOWN_CHARS = 500
_PATH_CHARS = 4_000


def _is_of_texts(change: Change) -> bool:
    return change.path == "$" and all((text or "").startswith('"') for text in (change.before, change.after))


def _at(address: StepAddress, side: Side) -> StepAddress:
    return address._replace(run_id=side.run_id, occurrence=side.occurrence, attempt=side.attempt)


def _side(address: StepAddress, side: Side, summary: StepSummary | None) -> SideView:
    return SideView(spell(side), _label(side, address.run_id or ""), _at(address, side).url, summary)


def _label(side: Side, run_id: str) -> str:
    numbers = [
        f"{noun} {number}"
        for noun, number in (("occurrence", side.occurrence), ("attempt", side.attempt))
        if number is not None
    ]
    where = [] if side.run_id == run_id else [f"run {side.run_id}"]
    words = ", ".join([*where, *numbers]) or "the newest of this run"
    return words[:1].upper() + words[1:]


def read_sides(query: dict[str, str]) -> tuple[Side | None, Side | None]:
    """Read both sides of a request.

    Raises:
        InvalidId, InvalidParameter: one is none that it could be.
    """
    given = [query.get(parameter) for parameter in ("from", "to")]
    if any(text is not None and len(text) > _SIDE_CHARS for text in given):
        raise InvalidParameter("a side to compare is a run's id, then :occurrence:attempt if one is meant")
    before, after = (read_side(text) if text else None for text in given)
    return before, after


_SIDE_CHARS = 120
