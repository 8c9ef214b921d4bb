"""Files: outputs and views as files that the next step can read, and what is known of them.

The invariant: nothing is read or written outside the directory that a placement names, whatever the name and
whatever links stand in the way; a reader of a final name sees one whole content or the other.
"""

import asyncio
import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from app.domain.errors import (
    IndentedTooLarge,
    InvalidJson,
    InvalidKey,
    ProjectionIo,
    ProjectionNotFound,
    ProjectionSerialize,
)
from app.domain.ids import CTX_NAME
from app.domain.placement import ProjectionPlacement, check_file_name
from app.domain.projection import ProjectionKey, ProjectionRef
from app.domain.rendering import read_submission, render_json, render_submission, require_renderable, text_bytes
from app.domain.values import JsonValue, parse_json


class FileProjectionAdapter:
    """Writes the outputs of one root to files, and reads them back.

    Args:
        root: the directory that the placement's template is relative to.
        placement: where below it the files of a step go.
        allowed_roots: the directories under which files may be touched; None allows any.
    """

    name: Literal["file"] = "file"

    def __init__(
        self, root: str | Path, placement: ProjectionPlacement, allowed_roots: Sequence[Path] | None = None
    ) -> None:
        self._root = Path(root)
        self._placement = placement
        self._allowed_roots = allowed_roots

    async def project(self, key: ProjectionKey, ctx: JsonValue) -> ProjectionRef:
        """Write the step that the key addresses to its file, whole; see :class:`ProjectionAdapter`."""
        key.require(ctx)
        value = key.model_copy(update={"path": None}).require(ctx)
        front = {"task_id": key.task_id} | ({"step": key.step} if key.step is not None else {})
        return await self._write(key.task_id, _file_name(key), lambda: _render_view(front, value))

    async def fetch(self, key: ProjectionKey) -> JsonValue:
        """Read a materialized value back, and narrow it along the key's path; see :class:`ProjectionAdapter`."""
        path = self._target(key.task_id, _file_name(key))
        try:
            body = await asyncio.to_thread(_read_file, self._root, self._placement.relative_dir(key.task_id), path.name)
        except FileNotFoundError as error:
            raise ProjectionNotFound(f"no file is materialized at {path}") from error
        except (OSError, ValueError) as error:  # ValueError: a root with a NUL in it
            raise ProjectionIo(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
        try:
            value = parse_json(read_submission(body))
        except InvalidJson as error:
            raise ProjectionSerialize(f"{path} does not hold rendered JSON") from error
        return ProjectionKey(task_id=key.task_id, path=key.path).require(value)

    def pointer_line(self, ref: ProjectionRef) -> str:
        """Say where the file is."""
        if ref.File is None:
            raise InvalidKey("a file projection points at a file")
        return f"projection(file): {ref.File.path}"

    async def materialize_submission(
        self, key: ProjectionKey, value: JsonValue, attempt: int, *, ok: bool
    ) -> ProjectionRef:
        """Write a Final to ``<dir>/<canonical>.md``.

        Raises:
            InvalidKey: the task id or the step's name cannot be a file name, or the name is taken by the view.
            ProjectionIo: the disk refused.
            ProjectionSerialize: the value is no JSON value.
        """
        if key.step is None or key.step == CTX_NAME:
            raise InvalidKey(f"a submission needs a step's name other than {CTX_NAME!r}")
        front = {"task_id": key.task_id, "step": key.step, "attempt": attempt, "ok": ok}
        return await self._write(key.task_id, _file_name(key), lambda: render_submission(front, value))

    async def materialize_part(
        self, task_id: str, name: str, value: JsonValue, *, canonical: str | None = None
    ) -> ProjectionRef:
        """Write a part to ``<dir>/<name>``: a string as its bytes, any other value as rendered JSON.

        Raises:
            InvalidKey: the name cannot be a file name, or is the one of the step's own file or of the view.
            ProjectionIo: the disk refused.
        """
        if name in {f"{CTX_NAME}.md", f"{canonical}.md"}:
            raise InvalidKey(f"a part may not be called {name!r}: that file is the step's own")
        render = text_bytes if isinstance(value, str) else render_json
        return await self._write(task_id, check_file_name(name), lambda: render(value))

    def _target(self, task_id: str, file_name: str) -> Path:
        directory = Path(self._placement.target_dir(str(self._root), check_file_name(task_id)))
        _check_allowed(self._root, self._allowed_roots)
        return directory / file_name

    async def _write(self, task_id: str, file_name: str, render: Callable[[], bytes]) -> ProjectionRef:
        target = self._target(task_id, file_name)

        def write() -> str:  # renders too: a large value takes seconds
            return _replace_file(self._root, self._placement.relative_dir(task_id), target.name, render())

        try:
            path = await asyncio.to_thread(write)
        except (OSError, ValueError) as error:  # ValueError: a root with a NUL in it
            raise ProjectionIo(f"{target} cannot be written: {getattr(error, 'strerror', None) or error}") from error
        return ProjectionRef.to_file(path)


def _render_view(front: dict[str, JsonValue], value: JsonValue) -> bytes:
    # An output was held to this before it was kept; a view comes from contexts, which are kept on one line.
    try:
        require_renderable(value)
    except IndentedTooLarge as error:
        raise ProjectionSerialize(error.sentence) from error
    return render_submission(front, value)


def _file_name(key: ProjectionKey) -> str:
    return f"{check_file_name(CTX_NAME if key.step is None else key.step)}.md"


def _check_allowed(root: Path, allowed_roots: Sequence[Path] | None) -> None:
    if not root.is_absolute():
        raise InvalidKey(f"{root} is no absolute path")
    if allowed_roots is None:
        return
    real = Path(os.path.realpath(root))
    if not any(real.is_relative_to(os.path.realpath(allowed)) for allowed in allowed_roots):
        raise InvalidKey(f"{root} lies under none of the projection_roots")


@contextlib.contextmanager
def _directory(root: Path, components: Sequence[str], *, make: bool) -> Iterator[int]:
    """Open a directory below a root, and make it where it is missing if that is wanted.

    Every directory below the root is opened relative to the one above and never through a link, so a link that
    stands there, or is put there meanwhile, is refused by the kernel.
    """
    with contextlib.ExitStack() as stack:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, directory)
        for component in components:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(component, dir_fd=directory)
            directory = os.open(component, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            stack.callback(os.close, directory)
        yield directory


def _replace_file(root: Path, components: Sequence[str], file_name: str, body: bytes) -> str:
    """Write a file below a root by an atomic replace, and return its real path."""
    with _directory(root, components, make=True) as directory:
        temporary = f".{secrets.token_hex(8)}.tmp"
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=directory)
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, file_name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
    return "/".join([os.path.realpath(root).rstrip("/"), *components, file_name])


def _read_file(root: Path, components: Sequence[str], file_name: str) -> bytes:
    """Read a regular file below a root."""
    with _directory(root, components, make=False) as directory, contextlib.ExitStack() as stack:
        # Without O_NONBLOCK a named pipe put in the file's place would be waited for.
        handle = os.open(file_name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        stack.callback(os.close, handle)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
