"""Projections: serving a slice of run data by pull, with a key, a locator and an adapter.

The invariant: a locator never carries the value it points to.
"""

from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from app.domain.errors import InvalidKey, ProjectionNotFound
from app.domain.paths import parse_path, walk
from app.domain.values import Found, JsonValue


def _is_absent(item: object) -> bool:
    return item is None


class ProjectionKey(BaseModel):
    """Which slice: a task, a run of it, one of its steps or the whole, and a path into that value.

    What is absent is left out of its JSON and YAML.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str = Field(description="The task (a file projection: the step id) that the slice belongs to.")
    run_id: str | None = Field(
        default=None, exclude_if=_is_absent, description="The run of that task; absent addresses the latest."
    )
    step: str | None = Field(
        default=None, exclude_if=_is_absent, description="A name of a step; absent addresses the whole."
    )
    path: str | None = Field(
        default=None, exclude_if=_is_absent, description="A path into the value; absent addresses all of it."
    )

    def resolve(self, ctx: JsonValue) -> Found | None:
        """Find the slice inside a ctx: one direct look-up of the step, then a walk along the path.

        The step and the path alone count. A miss, and also a path that cannot be read, is ``None`` and never an error.

        Source: ``tests/vectors/key_resolve.json``.
        """
        if self.step is not None:
            if not isinstance(ctx, dict) or self.step not in ctx:
                return None
            ctx = ctx[self.step]
        if self.path is None:
            return Found(ctx)
        segments = parse_path(self.path)
        return None if segments is None else walk(ctx, segments)

    def require(self, ctx: JsonValue) -> JsonValue:
        """Return the slice.

        Raises:
            InvalidKey: the task id is empty.
            ProjectionNotFound: the key leads to no value.
        """
        if not self.task_id:
            raise InvalidKey("a projection key needs a task_id")
        found = self.resolve(ctx)
        if found is None:
            raise ProjectionNotFound(f"nothing is at step={self.step!r} path={self.path!r} of {self.task_id}")
        return found.value


class FileLocator(BaseModel):
    """A projection that lies in a file."""

    model_config = ConfigDict(frozen=True)

    path: str = Field(description="The absolute path of the file.")


class QueryLocator(BaseModel):
    """A projection that an endpoint answers."""

    model_config = ConfigDict(frozen=True)

    endpoint: str = Field(description="The percent-encoded URL that serves the value.")
    key: ProjectionKey = Field(description="The key that the endpoint answers.")


class ProjectionRef(BaseModel):
    """A locator: ``{"File": {…}}`` or ``{"Query": {…}}``, exactly one of the two."""

    model_config = ConfigDict(frozen=True)

    File: FileLocator | None = Field(default=None, exclude_if=lambda locator: locator is None)
    Query: QueryLocator | None = Field(default=None, exclude_if=lambda locator: locator is None)

    @classmethod
    def to_file(cls, path: str) -> "ProjectionRef":
        """Point at a file."""
        return cls(File=FileLocator(path=path))

    @classmethod
    def to_query(cls, endpoint: str, key: ProjectionKey) -> "ProjectionRef":
        """Point at an endpoint."""
        return cls(Query=QueryLocator(endpoint=endpoint, key=key))


class ProjectionAdapter(Protocol):
    """A way to put a slice of run data where a worker can pull it."""

    @property
    def name(self) -> Literal["file", "mcp-query"]:
        """The name of the adapter."""
        ...

    async def project(self, key: ProjectionKey, ctx: JsonValue) -> ProjectionRef:
        """Make the slice available, and say where.

        Raises:
            InvalidKey: the task id is empty, or a name cannot be a file name.
            ProjectionNotFound: the key leads to no value in this ctx.
            ProjectionIo: the disk refused.
        """
        ...

    async def fetch(self, key: ProjectionKey) -> JsonValue:
        """Return the value that the key addresses.

        Raises:
            NotFound: there is none.
            ProjectionIo, ProjectionSerialize: it cannot be read (back).
        """
        ...

    def pointer_line(self, ref: ProjectionRef) -> str:
        """Say in one to three lines where the value can be pulled, never the value."""
        ...
