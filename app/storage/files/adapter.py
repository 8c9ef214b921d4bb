"""Files: outputs and views as files that the next step can read, and what is known of them.

The invariant: nothing is read or written outside the directory that a placement names, whatever the name and
whatever links stand in the way; a reader of a final name sees one whole content or the other.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from app.domain.errors import (
    IndentedTooLarge,
    InvalidJson,
    InvalidKey,
    ProjectionIo,
    ProjectionNotFound,
    ProjectionSerialize,
)
from app.domain.ids import CTX_NAME
from app.domain.placement import ProjectionPlacement, check_file_name, find_namesake
from app.domain.projection import ProjectionKey, ProjectionRef
from app.domain.rendering import (
    PREVIEW_BYTES,
    read_submission,
    render_json,
    render_submission,
    require_renderable,
    text_bytes,
)
from app.domain.values import JsonValue, parse_json
from app.storage.files.opening import (
    PRIVATE_MODE,
    Opened,
    WrittenFile,
    lies_in,
    opened_below,
    opened_directory,
    read_file,
    real_paths,
    remove_leftovers,
)


class FileProjectionAdapter:
    """Writes the outputs of one root to files, and reads them back.

    Args:
        root: the directory that the placement's template is relative to.
        placement: where below it the files of a step go.
        allowed_roots: the directories under which files may be touched; None allows any.
        file_mode: who may read and write the files; who may read them may go into the directories made for them.
    """

    name: Literal["file"] = "file"

    def __init__(
        self,
        root: str | Path,
        placement: ProjectionPlacement,
        allowed_roots: Sequence[Path] | None = None,
        file_mode: int = PRIVATE_MODE,
    ) -> None:
        self._file_mode = file_mode
        self._root = Path(root)
        self._placement = placement
        self._allowed_roots = allowed_roots

    async def project(self, key: ProjectionKey, ctx: JsonValue) -> ProjectionRef:
        """Write the step that the key addresses to its file, whole; see :class:`ProjectionAdapter`."""
        key.require(ctx)
        value = key.model_copy(update={"path": None}).require(ctx)
        front = {"task_id": key.task_id} | ({"step": key.step} if key.step is not None else {})
        return await _take_place(await self._prepare(key.task_id, _file_name(key), lambda: _render_view(front, value)))

    async def fetch(self, key: ProjectionKey) -> JsonValue:
        """Read a materialized value back, and narrow it along the key's path; see :class:`ProjectionAdapter`."""
        path = self._target(key.task_id, _file_name(key))
        try:
            body = await asyncio.to_thread(self._read, key.task_id, path.name)
        except FileNotFoundError as error:
            raise ProjectionNotFound(f"no file is materialized at {path}") from error
        except (OSError, ValueError) as error:  # ValueError: a root with a NUL in it
            raise ProjectionIo(f"{path} cannot be read: {_reason(error)}") from error
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
        """Write a Final to ``<dir>/<canonical>.md``; raises as :meth:`prepare_submission`."""
        return await _take_place(await self.prepare_submission(key, value, attempt, ok=ok))

    async def materialize_part(
        self, task_id: str, name: str, value: JsonValue, *, canonical: str | None = None
    ) -> ProjectionRef:
        """Write a part to ``<dir>/<name>``; raises as :meth:`prepare_part`."""
        return await _take_place(await self.prepare_part(task_id, name, value, canonical=canonical))

    async def prepare_submission(
        self, key: ProjectionKey, value: JsonValue, attempt: int, *, ok: bool
    ) -> "PreparedFile":
        """Write a Final beside ``<dir>/<canonical>.md``.

        Raises:
            InvalidKey: the task id or the step's name cannot be a file name, or the name is taken by the view.
            ProjectionIo: the disk refused.
            ProjectionSerialize: the value is no JSON value.
        """
        if key.step is None or key.step == CTX_NAME:
            raise InvalidKey(f"a submission needs a step's name other than {CTX_NAME!r}")
        front = {"task_id": key.task_id, "step": key.step, "attempt": attempt, "ok": ok}
        return await self._prepare(key.task_id, _file_name(key), lambda: render_submission(front, value))

    async def prepare_part(
        self, task_id: str, name: str, value: JsonValue, *, canonical: str | None = None
    ) -> "PreparedFile":
        """Write a part beside ``<dir>/<name>``: a string as its bytes, any other value as rendered JSON.

        Raises:
            InvalidKey: the name cannot be a file name, or is the one of the step's own file or of the view.
            ProjectionIo: the disk refused.
        """
        if find_namesake(name, CTX_NAME if canonical is None else canonical, ()) is not None:
            raise InvalidKey(f"a part may not be called {name!r}: that file is the step's own")
        render = text_bytes if isinstance(value, str) else render_json
        return await self._prepare(task_id, check_file_name(name), lambda: render(value))

    def remove_leftovers(self, task_id: str, older_than_seconds: float) -> int:
        """Remove the temporary files that a killed process left in a step's directory, and return how many.

        It lists a directory: not on the event loop.

        Raises:
            InvalidKey: nothing of this root may be touched.
            OSError: there is no such directory, or the disk refused.
        """
        with self._opened(task_id, make=False) as directory:
            return remove_leftovers(directory.handle, older_than_seconds)

    def _target(self, task_id: str, file_name: str) -> Path:
        if not self._root.is_absolute():
            raise InvalidKey(f"{self._root} is no absolute path")
        return Path(self._placement.target_dir(str(self._root), check_file_name(task_id))) / file_name

    async def _prepare(self, task_id: str, file_name: str, render: Callable[[], bytes]) -> "PreparedFile":
        target = self._target(task_id, file_name)

        def prepare() -> PreparedFile:  # renders too: a large value takes seconds
            body = render()  # before any directory is made
            sha256, head = hashlib.sha256(body).hexdigest(), body[: PREVIEW_BYTES + 1]
            with self._opened(task_id, make=True) as directory:
                path = f"{directory.path}/{target.name}"
                written = WrittenFile(directory.handle, target.name, body, self._file_mode)
                return PreparedFile(path, len(body), sha256, head, written)

        try:
            return await asyncio.to_thread(prepare)
        except (OSError, ValueError) as error:  # ValueError: a root with a NUL in it
            raise ProjectionIo(_refusal(target, error)) from error

    def _read(self, task_id: str, file_name: str) -> bytes:
        with self._opened(task_id, make=False) as directory:
            return read_file(directory.handle, file_name)

    @contextlib.contextmanager
    def _opened(self, task_id: str, *, make: bool) -> Iterator[Opened]:
        """Open the directory of a step. The root is judged as it was opened, and may be reached through links."""
        components = self._placement.relative_dir(task_id)
        with opened_directory(str(self._root)) as root:
            if not lies_in(root.path, real_paths(self._allowed_roots)):
                raise InvalidKey(f"{self._root} lies under none of the projection_roots")
            with opened_below(root.handle, components, self._file_mode if make else None) as directory:
                yield Opened(directory, "/".join([root.path.rstrip("/"), *components]))


class PreparedFile(NamedTuple):
    """A file that is on disk, whole, but has not yet the name that it is for; it must be closed.

    Attributes:
        path: the real path that it is to have.
        size_bytes: how long it is.
        sha256: the digest of its bytes.
        head: its beginning, for a preview.
        written: the file.
    """

    path: str
    size_bytes: int
    sha256: str
    head: bytes
    written: WrittenFile

    def take_place(self) -> None:
        """Put it in place of what stands there; once is enough.

        Raises:
            ProjectionIo: the disk refused.
        """
        try:
            self.written.take_place()
        except OSError as error:
            raise ProjectionIo(_refusal(self.path, error)) from error


async def _take_place(prepared: PreparedFile) -> ProjectionRef:
    def take_place() -> None:
        try:
            prepared.take_place()
        finally:
            prepared.written.close()

    await asyncio.to_thread(take_place)
    return ProjectionRef.to_file(prepared.path)


def _refusal(path: Path | str, error: Exception) -> str:
    return f"{path} cannot be written: {_reason(error)}"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _render_view(front: dict[str, JsonValue], value: JsonValue) -> bytes:
    # An output was held to this before it was kept; a view comes from contexts, which are kept on one line.
    try:
        require_renderable(value)
    except IndentedTooLarge as error:
        raise ProjectionSerialize(error.sentence) from error
    return render_submission(front, value)


def _file_name(key: ProjectionKey) -> str:
    return f"{check_file_name(CTX_NAME if key.step is None else key.step)}.md"
