"""Leftovers: temporary files of processes that were killed while they wrote.

The invariant: only what bears the form of our own temporary names, and is too old to be written yet, is removed.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import structlog

from app.domain.errors import InvalidKey
from app.domain.placement import ProjectionPlacement
from app.storage.database import Database
from app.storage.dispatches import FilePlace
from app.storage.files.adapter import FileProjectionAdapter

log = structlog.get_logger(__name__)

OLD_SECONDS = 600.0
"""No write of a file takes as long."""

_PAGE = 200
_PAUSE_SECONDS = 0.02
_NEWEST_PAGES = 25


class Leftovers:
    """Removes them from the directories that steps were dispatched with.

    Args:
        database: knows the directories.
        allowed_roots: the directories under which files may be touched; None allows any.
    """

    def __init__(self, database: Database, allowed_roots: Sequence[Path] | None) -> None:
        self._database = database
        self._allowed_roots = allowed_roots

    async def sweep(self, pages: int | None = None) -> int:
        """Remove the leftovers of the newest dispatches, or of all, and return how many there were.

        Args:
            pages: how many pages of 200 dispatches are looked at; None looks at all.
        """
        removed, before, page = 0, None, 0
        while pages is None or page < pages:
            async with self._database.point() as stores:
                places = await stores.dispatches.list_file_places(before, _PAGE)
            removed += await asyncio.to_thread(self._sweep, places)
            if len(places) < _PAGE:
                break
            before, page = places[-1].seq, page + 1
            await asyncio.sleep(_PAUSE_SECONDS)
        if removed:
            log.info("leftovers_removed", files=removed)
        return removed

    async def keep_sweeping(self, every: timedelta) -> None:
        """Sweep the newest 5,000 dispatches again and again until cancelled; a failure is logged."""
        while True:
            try:
                await self.sweep(_NEWEST_PAGES)
            except Exception:
                log.exception("sweep_failed")
            await asyncio.sleep(every.total_seconds())

    def _sweep(self, places: Sequence[FilePlace]) -> int:
        removed = 0
        for place in places:
            placement = ProjectionPlacement(dir_template=place.dir_template)
            adapter = FileProjectionAdapter(place.root, placement, self._allowed_roots)
            try:
                removed += adapter.remove_leftovers(place.step_id, OLD_SECONDS)
            except (OSError, ValueError, InvalidKey):  # it is gone, or was never one that we may touch
                continue
        return removed
