"""The timeline: every dispatch of a run as a bar, one lane a name, bars that overlap one below the other.

The invariant: positions are shares of the time from the run's first dispatch to its last moment; while a run goes on
its last moment is now, and the page's script moves the bars as the server would.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from app.domain.records import RunSummary, StepEntry, elapsed_ms, wire_time
from app.web.formats import duration, round_times
from app.web.marks import Mark
from app.web.run_dispatches import mark_of, output_url
from app.web.urls import step_url

MAX_LANES = 200
TRACK_PX = 14

_MAX_TRACKS = 24
_MAX_FOCUSED = 60


class Bar(NamedTuple):
    """One dispatch.

    Attributes:
        key: tells it from all others.
        url: what it put out; None while there is nothing.
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


class Lane(NamedTuple):
    """The dispatches of one name; ``url`` is None while it has put out nothing."""

    name: str
    url: str | None
    bars: list[Bar]
    height: int


class Timeline(NamedTuple):
    """The dispatches of a run.

    Attributes:
        lanes: in the order of their first dispatch.
        more_lanes: how many are left out.
        origin_at: when the first was dispatched.
        total_ms: the whole time, where that is known; None while the run goes on.
        marks: which statuses there are, for the key.
        is_focusable: whether each bar is a stop of the tab key; many would be in the way.
    """

    lanes: list[Lane]
    more_lanes: int
    origin_at: str
    total_ms: int | None
    marks: list[Mark]
    is_focusable: bool


class Scale(NamedTuple):
    """A timeline at one moment: how to place its bars."""

    total_ms: int

    def x(self, at_ms: int | None) -> str:
        """Write where a moment stands, in percent; None stands at the end."""
        share = 1.0 if at_ms is None else min(1.0, max(0.0, at_ms / self.total_ms))
        return f"{share * 100:.3f}%"

    @property
    def ticks(self) -> list[tuple[str, str]]:
        """Where round times stand, and their words."""
        return [(self.x(at_ms), word) for at_ms, word in round_times(self.total_ms)]


def timeline_of(
    run: RunSummary,
    dispatches: Sequence[StepEntry],
    answered: Collection[str],
    names: Collection[str] | None = None,
) -> Timeline | None:
    """Lay out dispatches, in their order; None where there are none.

    Args:
        run: whose they are.
        dispatches: attempts of steps, all of the run: its time is the same whichever are drawn.
        answered: the names that an output answers for.
        names: those that are drawn; None for all.
    """
    drawn = [entry for entry in dispatches if names is None or entry.name in names]
    if not drawn:
        return None
    origin = min(entry.started_at for entry in dispatches)
    lanes: dict[str, list[StepEntry]] = {}
    for entry in drawn:
        lanes.setdefault(entry.name, []).append(entry)
    ended = [entry.completed_at for entry in dispatches if entry.completed_at is not None]
    last = max(ended, default=origin)
    if any(entry.completed_at is None for entry in dispatches):
        last = max(last, run.updated_at)
    shown = list(lanes.items())[:MAX_LANES]
    laid = [
        Lane(name, step_url(run.task_id, run.id, name) if name in answered else None, *_bars(run, entries, origin))
        for name, entries in shown
    ]
    marks = list(dict.fromkeys(bar.mark for lane in laid for bar in lane.bars))
    return Timeline(
        lanes=laid,
        more_lanes=len(lanes) - len(laid),
        origin_at=origin,
        total_ms=max(1, elapsed_ms(origin, last)) if run.status.is_terminal else None,
        marks=marks,
        is_focusable=sum(len(lane.bars) for lane in laid) <= _MAX_FOCUSED,
    )


def scale_of(timeline: Timeline, now: datetime) -> Scale:
    """Scale a timeline as it stands at a moment."""
    if timeline.total_ms is not None:
        return Scale(timeline.total_ms)
    return Scale(max(1, elapsed_ms(timeline.origin_at, wire_time(now))))


def _bars(run: RunSummary, entries: Sequence[StepEntry], origin: str) -> tuple[list[Bar], int]:
    """Put the bars of a lane on tracks, each on the first where the one before it has ended; the height goes along."""
    free_from: list[float] = []
    bars = []
    for number, entry in enumerate(entries):
        start = elapsed_ms(origin, entry.started_at)
        end = None if entry.completed_at is None else elapsed_ms(origin, entry.completed_at)
        track = next((track for track, free in enumerate(free_from) if free <= start), None)
        if track is None:
            track = len(free_from) if len(free_from) < _MAX_TRACKS else number % _MAX_TRACKS
            free_from += [0.0] * (track + 1 - len(free_from))
        free_from[track] = float("inf") if end is None else end
        bars.append(_bar(run, entry, start, end, track))
    return bars, len(free_from) * TRACK_PX


def _bar(run: RunSummary, entry: StepEntry, start: int, end: int | None, track: int) -> Bar:
    mark = mark_of(run, entry)
    took = "" if entry.duration_ms is None else f", {duration(entry.duration_ms)}"
    return Bar(
        key=f"{entry.step_id}/{entry.attempt}",
        url=output_url(run, entry),
        label=f"{entry.name}, occurrence {entry.occurrence}, attempt {entry.attempt}: {mark.word}{took}",
        mark=mark,
        start_ms=start,
        end_ms=end,
        y=track * TRACK_PX + TRACK_PX // 2,
    )
