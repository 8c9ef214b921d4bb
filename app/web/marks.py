"""Marks: a status as a word and the tone that colours it; never the one without the other."""

from typing import NamedTuple

from app.domain.records import RunStatus, StepStatus


class Mark(NamedTuple):
    """A status for people.

    Attributes:
        word: what it says.
        tone: ``ok``, ``run``, ``bad``, ``warn`` or ``idle``; the stylesheet knows its colour.
    """

    word: str
    tone: str


RUN_MARKS = {
    RunStatus.PENDING: Mark("pending", "idle"),
    RunStatus.RUNNING: Mark("running", "run"),
    RunStatus.DONE: Mark("done", "ok"),
    RunStatus.FAILED: Mark("failed", "bad"),
    RunStatus.INTERRUPTED: Mark("interrupted", "warn"),
    RunStatus.CANCELLED: Mark("cancelled", "idle"),
}
STEP_MARKS = {
    StepStatus.DISPATCHED: Mark("in flight", "run"),
    StepStatus.PASSED: Mark("passed", "ok"),
    StepStatus.BLOCKED: Mark("blocked", "bad"),
    StepStatus.SKIPPED: Mark("skipped", "idle"),
}
LOST = Mark("never submitted", "idle")
"""Of an attempt that was in flight when its run ended."""
