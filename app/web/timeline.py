"""The timeline: the dispatches of a run as bars, one lane a name.

The invariant: lanes and bars are bounded, and what is left out is counted; positions are shares of the time from the
run's first dispatch to its last moment; while a run goes on its last moment is now, and the page's script moves the
bars as the server would.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from app.domain.records import RunSummary, StepEntry, StepStatus, elapsed_ms, wire_time
from app.web.bars import Bar, Numbered, bars_of
from app.web.formats import round_times
from app.web.marks import Mark
from app.web.step_order import newest_attempts
from app.web.urls import step_url

MAX_LANES = 60

_MAX_BARS = 240
_BARS_OF_A_LANE = (64, 48, 32, 24, 16, 12, 8, 6, 4)
_MAX_FOCUSED = 60


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
        more_blocked: how many of those have a step that is blocked.
        origin_at: when the first was dispatched.
        total_ms: the whole time, where that is known; None while the run goes on.
        marks: which statuses there are, for the key.
        is_focusable: whether each bar is a stop of the tab key; many would be in the way.
    """

    lanes: list[Lane]
    more_lanes: int
    more_blocked: int
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
    lanes: dict[str, list[Numbered]] = {}
    for number, entry in enumerate(dispatches, start=1):
        if names is None or entry.name in names:
            lanes.setdefault(entry.name, []).append(Numbered(number, entry))
    if not lanes:
        return None
    origin = min(entry.started_at for entry in dispatches)
    ended = [entry.completed_at for entry in dispatches if entry.completed_at is not None]
    last = max(ended, default=origin)
    if any(entry.completed_at is None for entry in dispatches):
        last = max(last, run.updated_at)
    shown, blocked = _chosen(lanes)
    most = _most_bars([len(lanes[name]) for name in shown])
    laid = [
        Lane(
            name,
            step_url(run.task_id, run.id, name) if name in answered else None,
            *bars_of(run, lanes[name], origin, most),
        )
        for name in shown
    ]
    marks = list(dict.fromkeys(bar.mark for lane in laid for bar in lane.bars))
    return Timeline(
        lanes=laid,
        more_lanes=len(lanes) - len(laid),
        more_blocked=len(blocked - set(shown)),
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


def _chosen(lanes: Mapping[str, list[Numbered]]) -> tuple[list[str], set[str]]:
    """Choose the names to draw, in their order: those that are blocked, then those that were dispatched last.

    All that are blocked are returned as well.
    """
    blocked = {
        name
        for name, numbered in lanes.items()
        if StepStatus.BLOCKED in {entry.status for entry in newest_attempts(entry for _, entry in numbered)}
    }
    ranked = sorted(lanes, key=lambda name: (name in blocked, lanes[name][-1].number), reverse=True)
    chosen = set(ranked[:MAX_LANES])
    return [name for name in lanes if name in chosen], blocked


def _most_bars(counts: Sequence[int]) -> int:
    """Tell how many bars each lane may have, so that all together are not too many."""
    fitting = (most for most in _BARS_OF_A_LANE if sum(min(most, count) for count in counts) <= _MAX_BARS)
    return next(fitting, _BARS_OF_A_LANE[-1])
