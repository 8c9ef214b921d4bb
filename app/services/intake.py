"""Intake: how many bytes of long bodies are held at the same time, and how many of those are worked on.

The invariant: whatever a request was given here is given back when it has been answered, however it ended.
"""

import asyncio
from collections import deque

from app.domain.errors import Busy
from app.domain.limits import HELD_BYTES, LONG_BODY_BYTES, WORKED_BYTES


class Intake:
    """Counts what is held, and lets the next body in when there is room.

    A body takes some five times its size while it is worked on: as bytes, text, value, and rendered. So few are worked
    on, and the others wait as the bytes that they are.

    Args:
        held_bytes: of how many bytes bodies are held.
        worked_bytes: of how many of those are worked on; a body that alone is longer is worked on alone.
    """

    def __init__(self, held_bytes: int = HELD_BYTES.value, worked_bytes: int = WORKED_BYTES.value) -> None:
        self._held_limit = held_bytes
        self._worked_limit = worked_bytes
        self._held = 0
        self._worked = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def hold(self, size_bytes: int) -> None:
        """Count bytes that came in.

        Raises:
            Busy: there is no room for them.
        """
        if self._held + size_bytes > self._held_limit:
            raise Busy
        self._held += size_bytes

    async def start(self, size_bytes: int) -> None:
        """Wait until a body may be worked on; the first that came is the first."""
        if not self._waiting and self._has_room(size_bytes):
            self._worked += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size_bytes, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            else:  # its turn came in the same moment
                self.end(size_bytes)
            raise

    def end(self, size_bytes: int) -> None:
        """Let those in that there is room for by now."""
        self._worked -= size_bytes
        while self._waiting and self._has_room(self._waiting[0][0]):
            size_bytes, turn = self._waiting.popleft()
            self._worked += size_bytes
            turn.set_result(None)

    def let_go(self, size_bytes: int) -> None:
        """Count bytes that are held no more."""
        self._held -= size_bytes

    def _has_room(self, size_bytes: int) -> bool:
        return self._worked == 0 or self._worked + size_bytes <= self._worked_limit


class Load:
    """What one request holds of an intake."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._held = 0
        self._worked = 0

    def grow(self, size_bytes: int) -> None:
        """Count the whole of what came in so far; a short body is not counted.

        Raises:
            Busy: there is no room for it.
        """
        if size_bytes >= LONG_BODY_BYTES.value:
            self._intake.hold(size_bytes - self._held)
            self._held = size_bytes

    async def start(self) -> None:
        """Wait until the body may be worked on."""
        if self._held:
            await self._intake.start(self._held)
            self._worked = self._held

    def release(self) -> None:
        """Give back what is held."""
        if self._held:
            self._intake.let_go(self._held)
            self._held = 0
        if self._worked:
            self._intake.end(self._worked)
            self._worked = 0
