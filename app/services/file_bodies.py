"""File bodies: ``@file:`` submits, where a worker names a file in place of sending its bytes.

The invariant: nothing outside the step's work_dir is read, and no answer tells whether anything is there.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from app.domain.errors import FileSubmitRefused, TooLarge
from app.domain.grants import Grant
from app.domain.limits import PATH_BYTES, PATH_PART_BYTES
from app.domain.values import JsonValue, parse_json
from app.storage.files.states import read_inside

_PREFIX = "@file:"
_REFUSED = (
    "an @file: body needs extra.allow_file_submit = true in the step's context, and the absolute path of a regular "
    "file below its work_dir: submit the content itself instead"
)


class FileBodies:
    """Reads bodies that are named by a file.

    Args:
        max_bytes: the largest file that is read.
        allowed_roots: the directories under which files may be read; None allows any.
    """

    def __init__(self, max_bytes: int, allowed_roots: Sequence[Path] | None) -> None:
        self._max_bytes = max_bytes
        self._allowed_roots = allowed_roots

    def named_by(self, text: str) -> str | None:
        """Return the path that a whole body names; None where the body is its own content."""
        return text.removeprefix(_PREFIX) if text.startswith(_PREFIX) and "\n" not in text else None

    async def read(self, path: str, grant: Grant, extra: dict[str, JsonValue]) -> bytes:
        """Read the file that a body names.

        Raises:
            FileSubmitRefused: the step does not allow it, or the file is none that may be read.
            TooLarge: it is over the limit.
        """
        if not _is_short(path):
            raise FileSubmitRefused(_REFUSED)
        work_dir = parse_json(grant.view).get("work_dir")
        if extra.get("allow_file_submit") is not True or not work_dir or "\x00" in path or not path.startswith("/"):
            raise FileSubmitRefused(_REFUSED)
        body = await asyncio.to_thread(read_inside, path, work_dir, self._allowed_roots, self._max_bytes)
        if body is None:
            raise FileSubmitRefused(_REFUSED)
        if len(body) > self._max_bytes:
            raise TooLarge(self._max_bytes, None)
        return body


def _is_short(path: str) -> bool:
    """Tell whether a file system would take a path, at a cost that is linear in its length and asks no system."""
    body = path.encode("utf-8", "surrogatepass")
    return len(body) <= PATH_BYTES.value and all(len(part) <= PATH_PART_BYTES.value for part in body.split(b"/"))
