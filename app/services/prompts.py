"""Prompts: what a worker is given. Its directive, the view it may see, and pointers to earlier outputs.

The invariant: a pointer never carries content, and agrees with what the debug plane tells of the same step now; a
prompt has a bounded number of them, whatever its run has put out.
"""

from heapq import nlargest
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.domain.answers import pointer_json, submission_key, summary_start
from app.domain.context import AgentContextView
from app.domain.errors import DispatchNotFound, NotFound
from app.domain.grants import Grant, ticket_of
from app.domain.rendering import compact_json, sha256_hex, steps_path
from app.domain.values import parse_json
from app.services.appender import require_bound
from app.services.query import McpQueryAdapter
from app.services.recent import Recent
from app.services.scopes import Scope, scope_of
from app.storage.database import Database
from app.storage.dispatches import KeptPrompt

MAX_INLINE_SYSTEM_BYTES = 25_600
SYSTEM_PATH = "/v1/worker/prompt/system"


class SystemRef(BaseModel):
    """Where a long system prompt is."""

    model_config = ConfigDict(frozen=True)

    uri: str = Field(description="Where to fetch it; its ticket is good in a bearer's place, as long as the handle is.")
    sha256: str = Field(description="Digest of its bytes.")
    size_bytes: int = Field(description="Its size in bytes.")
    mode: str = Field(default="http", description="How to fetch it.")


class WorkerPrompt(BaseModel):
    """What a worker is to do."""

    model_config = ConfigDict(frozen=True)

    task_id: str = Field(description="The step (a step id).")
    attempt: int = Field(description="Which attempt of it this is.")
    agent: str = Field(description="The ref it was dispatched under.")
    system: str | None = Field(
        default=None, exclude_if=lambda item: item is None, description="The system prompt, unless it is long."
    )
    prompt: str = Field(description="The directive: a string as it is, any other value as compact JSON.")
    context: dict[str, Any] = Field(
        description="The view that the step's policy shows: task_id, agent, attempt, project_root?, work_dir?, "
        "task_metadata?, run_id?, project_name_alias?, extra?, and steps: a pointer to each earlier output, ascending "
        "by name. Where those are too many, steps has the ones submitted last, and steps_omitted says how many more "
        "there are (count) and where all are listed (list_url), for the same bearer."
    )
    system_ref: SystemRef | None = Field(
        default=None, exclude_if=lambda item: item is None, description="Where the system prompt is, when it is long."
    )


class Prompts:
    """Assembles prompts at each fetch.

    Args:
        database: where the snapshots of dispatches are kept.
        query: the one enumeration of a run's outputs.
        recent: remembers the pointers of a run that did not change.
        max_pointers: how many earlier outputs a prompt points at.
        base_url: the public URL of the server, without a trailing slash; empty for none.
    """

    def __init__(
        self,
        database: Database,
        query: McpQueryAdapter,
        recent: Recent[bytes],
        *,
        max_pointers: int,
        base_url: str = "",
    ) -> None:
        self._database = database
        self._query = query
        self._recent = recent
        self._max_pointers = max_pointers
        self._base_url = base_url

    async def fetch_json(self, grant: Grant, step_id: str | None) -> bytes:
        """Return the prompt of the bearer's attempt: a :class:`WorkerPrompt`, rendered.

        Raises:
            Forbidden: the request names another step.
        """
        require_bound(grant, step_id)
        directive, system, handle_sha256 = await self._find(grant)
        scope = scope_of(grant)
        view = AgentContextView.model_validate(parse_json(grant.view))
        policy = scope.policy
        context = (view if policy is None else policy.filter(view)).shown()
        text = parse_json(directive)
        reference = None if system is None else self._reference(grant, system, handle_sha256)
        head = {"task_id": grant.step_id, "attempt": grant.attempt, "agent": grant.step_ref}
        if system is not None and reference is None:
            head["system"] = system
        head["prompt"] = text if isinstance(text, str) else directive
        steps = await self._pointers(grant, scope)
        parts = [_opened(head), b'"context":', _opened(context), steps, b"}"]
        if reference is not None:
            parts += [b',"system_ref":', compact_json(reference.model_dump())]
        return b"".join((*parts, b"}"))

    async def fetch_system(self, grant: Grant, step_id: str | None, attempt: int | None) -> bytes:
        """Return the system prompt of the bearer's attempt, whole.

        Raises:
            Forbidden: the request names another step or attempt.
            NotFound: the step has none.
        """
        require_bound(grant, step_id, attempt)
        system = (await self._find(grant)).system
        if system is None:
            raise NotFound("this step has no system prompt")
        return system.encode("utf-8", "replace")

    async def _find(self, grant: Grant) -> KeptPrompt:
        async with self._database.point() as stores:
            found = await stores.dispatches.find_prompt(grant.step_id, grant.attempt)
        if found is None:
            raise DispatchNotFound(grant.step_id)
        return found if found.system is None else found._replace(system=parse_json(found.system))

    async def _pointers(self, grant: Grant, scope: Scope) -> bytes:
        """Point at the outputs of the run that the policy shows, but the worker's own: the fields of the context."""
        key = (grant.run_id, grant.policy, grant.name)
        known = self._recent.find(key)
        if known is not None:
            return known
        version = self._recent.version
        listing = await self._query.list_json(grant.task_id, grant.run_id, scope)
        own = summary_start(grant.name)
        summaries = [summary for summary in listing.summaries if not summary.startswith(own)]
        omitted = len(summaries) - self._max_pointers
        told = b'"steps":[%b]' % b",".join(map(pointer_json, summaries if omitted <= 0 else self._newest(summaries)))
        if omitted > 0:
            list_url = self._base_url + steps_path(grant.task_id, grant.run_id)
            told += b',"steps_omitted":' + compact_json({"count": omitted, "list_url": list_url})
        if listing.is_stored:
            self._recent.keep(key, told, len(told), version)
        return told

    def _newest(self, summaries: list[bytes]) -> list[bytes]:
        """Choose those that were submitted last, and leave them in their order."""
        newest = nlargest(self._max_pointers, range(len(summaries)), key=lambda at: submission_key(summaries[at]))
        return [summaries[at] for at in sorted(newest)]

    def _reference(self, grant: Grant, system: str, handle_sha256: str) -> SystemRef | None:
        body = system.encode("utf-8", "replace")
        if len(body) <= MAX_INLINE_SYSTEM_BYTES:
            return None
        ticket = ticket_of(handle_sha256, grant.step_id, grant.attempt)
        uri = f"{self._base_url}{SYSTEM_PATH}?task_id={grant.step_id}&attempt={grant.attempt}&ticket={ticket}"
        return SystemRef(uri=uri, sha256=sha256_hex(body), size_bytes=len(body))


def _opened(document: dict[str, Any]) -> bytes:
    """Render an object with room for more behind its last field."""
    return compact_json(document)[:-1] + b"," if document else b"{"
