"""Bars: the dispatches of one name as lines on tracks, those that overlap one below the other.

The invariant: a lane has a bounded number of bars, however often its name was dispatched: the newest dispatches have
one each, the others share one, which counts them by how they stand and looks like the worst of them.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from app.domain.records import RunSummary, StepEntry, StepStatus, elapsed_ms
from app.web.formats import duration
from app.web.marks import LOST, STEP_MARKS, Mark
from app.web.run_dispatches import mark_of, output_url
from app.web.urls import run_url

TRACK_PX = 14

_MAX_TRACKS = 24
_OWN_SHARE = 4
"""Of the bars of a crowded lane, every fourth is of a single dispatch."""


class Numbered(NamedTuple):
    """A dispatch, and the how manieth of its run it is, from 1."""

    number: int
    entry: StepEntry


class Bar(NamedTuple):
    """One dispatch, or several that followed one another.

    Attributes:
        key: tells it from all others.
        url: what it put out, or where the several are listed; None while there is nothing.
        label: what it is, in words.
        mark: how it stands.
        start_ms: from the start of the timeline.
        end_ms: the same; None while it is in flight.
        y: the middle of its track, in pixels.
    """

    key: str
    url: str | None
    label: str
    mark: Mark
    start_ms: int
    end_ms: int | None
    y: int


def bars_of(run: RunSummary, dispatches: Sequence[Numbered], origin: str, most: int) -> tuple[list[Bar], int]:
    """Put the bars of a lane on tracks, each on the first where the one before it has ended; the height goes along."""
    free_from: list[float] = []
    bars = []
    for number, group in enumerate(_groups(dispatches, most)):
        start = min(elapsed_ms(origin, entry.started_at) for _, entry in group)
        ends = [None if entry.completed_at is None else elapsed_ms(origin, entry.completed_at) for _, entry in group]
        end = None if None in ends else max(filter(None, ends), default=0)
        track = next((track for track, free in enumerate(free_from) if free <= start), None)
        if track is None:
            track = len(free_from) if len(free_from) < _MAX_TRACKS else number % _MAX_TRACKS
            free_from += [0.0] * (track + 1 - len(free_from))
        free_from[track] = float("inf") if end is None else end
        y = track * TRACK_PX + TRACK_PX // 2
        bar = _bar(run, group[0].entry) if len(group) == 1 else _shared_bar(run, group)
        bars.append(bar._replace(start_ms=start, end_ms=end, y=y))
    return bars, len(free_from) * TRACK_PX


def _groups(dispatches: Sequence[Numbered], most: int) -> list[Sequence[Numbered]]:
    """Cut dispatches into as many groups as there may be bars: the newest of one each, the others of equal size.

    The size is a power of two, so that of the groups before the newest nothing changes while dispatches come in.
    """
    if len(dispatches) <= most:
        return [[each] for each in dispatches]
    own = max(1, most // _OWN_SHARE)
    older, newest = dispatches[:-own], dispatches[-own:]
    size = 2
    while -(-len(older) // size) > max(1, most - own):
        size *= 2
    return [*(older[at : at + size] for at in range(0, len(older), size)), *([each] for each in newest)]


def _bar(run: RunSummary, entry: StepEntry) -> Bar:
    mark = mark_of(run, entry)
    took = "" if entry.duration_ms is None else f", {duration(entry.duration_ms)}"
    return Bar(
        key=f"{entry.step_id}/{entry.attempt}",
        url=output_url(run, entry),
        label=f"{entry.name}, occurrence {entry.occurrence}, attempt {entry.attempt}: {mark.word}{took}",
        mark=mark,
        start_ms=0,
        end_ms=None,
        y=0,
    )


def _shared_bar(run: RunSummary, group: Sequence[Numbered]) -> Bar:
    """Draw several as the worst of them; whoever follows it comes to the blocked ones, or to the list of them all."""
    number, first = group[0]
    counted = Counter(mark_of(run, entry) for _, entry in group)
    worst = min(counted, key=_WORST_FIRST.index)
    words = ", ".join(f"{counted[mark]:,} {mark.word}" for mark in _WORST_FIRST if mark in counted)
    if worst == STEP_MARKS[StepStatus.BLOCKED]:
        url = run_url(run.task_id, run.id, q=first.name, status=StepStatus.BLOCKED)
    else:
        url = run_url(run.task_id, run.id, first=number)
    return Bar(
        key=f"{first.step_id}/{first.attempt} and more",
        url=f"{url}#dispatches",
        label=f"{first.name}, {len(group):,} dispatches: {words}",
        mark=worst,
        start_ms=0,
        end_ms=None,
        y=0,
    )


_WORST_FIRST = (
    STEP_MARKS[StepStatus.BLOCKED],
    STEP_MARKS[StepStatus.DISPATCHED],
    LOST,
    STEP_MARKS[StepStatus.SKIPPED],
    STEP_MARKS[StepStatus.PASSED],
)
