"""The view: the task-level context that one worker may see, and the policy of what it may see.

The invariant: identity (task_id, agent, attempt) is never filtered, and no context that a client
supplies can forge it or the run.

Source: contract §4, "View"; ``tests/vectors/context.json``.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from app.domain.rendering import compact_json
from app.domain.values import JsonValue, kind_of


class Identity(NamedTuple):
    """Whose view it is. ``task_id`` is the STEP's id: a worker's task is one step."""

    task_id: str
    agent: str
    attempt: int
    run_id: str | None = None


class AgentContextView(BaseModel):
    """What one worker sees of its task. Its pointers to other steps are added at each fetch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str
    agent: str
    attempt: int
    project_root: str | None = None
    work_dir: str | None = None
    task_metadata: JsonValue = None
    run_id: str | None = None
    project_name_alias: str | None = None
    extra: dict[str, JsonValue] | None = None

    def shown(self) -> dict[str, JsonValue]:
        """Write the view as a JSON object, in the order of its fields, absent ones left out."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: item for name, item in fields.items() if item is not None}


def build_view(  # noqa: PLR0917 -- one tier a parameter: their order is the rule
    identity: Identity,
    launch: Mapping[str, JsonValue],
    dispatch_ctx: Mapping[str, JsonValue] | None = None,
    agent_ctx: Mapping[str, JsonValue] | None = None,
    blueprint_ctx: Mapping[str, JsonValue] | None = None,
    project_name_alias: str | None = None,
) -> AgentContextView:
    """Build a view: the launch input over the dispatch's ctx, over the agent's, over the Blueprint's; shallow.

    A field that is null says nothing, so a lower tier answers; nor does one of the wrong type (see
    :func:`find_ctx_faults`). Keys that are no fields of a view go to ``extra``; an object under
    ``extra`` itself brings its keys there.

    Args:
        identity: whose view it is; nothing in a ctx overrides it.
        launch: ``project_root``, ``work_dir`` and ``task_metadata`` of the task.
        dispatch_ctx: the ``ctx`` of the dispatch.
        agent_ctx: the tier of the agent (see ``Blueprint.agent_ctx``).
        blueprint_ctx: the Blueprint's ``default_agent_ctx``.
        project_name_alias: of the Blueprint's metadata; any tier may override it.
    """
    fields: dict[str, JsonValue] = {"project_name_alias": project_name_alias}
    extra: dict[str, JsonValue] = {}
    for tier in (blueprint_ctx or {}, agent_ctx or {}, dispatch_ctx or {}, launch):
        fields |= {name: item for name, item in tier.items() if _is_field(name, item)}
        extra |= _extra_of(tier)
    return AgentContextView(**identity._asdict(), **fields, extra=extra or None)


def find_ctx_faults(ctx: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Find what a ctx gives in the wrong type: each field's name, and what is wrong with it."""
    for name in _TEXT_FIELDS:
        item = ctx.get(name)
        if item is not None and not isinstance(item, str):
            yield name, f"must be a string, not {_with_article(kind_of(item))}"
    item = ctx.get("extra")
    if item is not None and not isinstance(item, dict):
        yield "extra", f"must be an object, not {_with_article(kind_of(item))}"


_TEXT_FIELDS = ("project_root", "work_dir", "project_name_alias")
_RESERVED = frozenset(AgentContextView.model_fields) | {"steps"}
"""Names that never go to ``extra``: fields of the view, and what the server adds to it."""


def _is_field(name: str, item: JsonValue) -> bool:
    return (name in _TEXT_FIELDS and isinstance(item, str)) or (name == "task_metadata" and item is not None)


def _extra_of(tier: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    inner = tier.get("extra")
    keys = {**inner, **tier} if isinstance(inner, dict) else tier
    return {name: item for name, item in keys.items() if name not in _RESERVED}


def _with_article(kind: str) -> str:
    return {"null": "null", "object": "an object", "array": "an array"}.get(kind, f"a {kind}")


# --- policy --------------------------------------------------------------------------------------


class NamingTable(Protocol):
    """What knows the canonical name of a name or alias: ``StepNaming``."""

    def resolve(self, name: str) -> str | None:
        """Find the canonical name."""
        ...


class ContextPolicy(BaseModel):
    """What a worker may see. An absent list allows everything, an empty one nothing; exclusion wins.

    ``include`` and ``exclude`` name fields of the view, or keys of its ``extra``; ``steps`` and
    ``steps_exclude`` name steps, by canonical name or alias.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    include: tuple[str, ...] | None = Field(default=None, description="The fields of the view that are shown.")
    exclude: tuple[str, ...] | None = Field(default=None, description="The fields that are not.")
    steps: tuple[str, ...] | None = Field(default=None, description="The steps whose outputs are shown.")
    steps_exclude: tuple[str, ...] | None = Field(default=None, description="The steps whose outputs are not.")

    def filter(self, view: AgentContextView) -> AgentContextView:
        """Leave only what may be seen. ``extra`` in a list stands for all its keys; identity always stays."""
        included = None if self.include is None else frozenset(self.include)
        excluded = frozenset(self.exclude or ())

        def shows(name: str) -> bool:
            return (included is None or name in included) and name not in excluded

        shows_extra = "extra" not in excluded
        every_extra = included is None or "extra" in included
        kept = {
            name: item
            for name, item in (view.extra or {}).items()
            if shows_extra and name not in excluded and (every_extra or shows(name))
        }
        gone = {name: None for name in _FILTERED if not shows(name)}
        return view.model_copy(update={**gone, "extra": kept or None})

    @property
    def shows_every_step(self) -> bool:
        """Tell whether no step is hidden."""
        return self.steps is None and not self.steps_exclude

    def allows(self, name: str, names_of_step: Collection[str] = ()) -> bool:
        """Tell whether a step may be seen, by its canonical name and all its other names."""
        names = {name, *names_of_step}
        is_included = self.steps is None or not names.isdisjoint(self.steps)
        return is_included and names.isdisjoint(self.steps_exclude or ())


EVERYTHING = ContextPolicy()
"""The policy where a Blueprint declares none."""


class StepFilter(NamedTuple):
    """A policy's steps by canonical name, for many look-ups."""

    included: frozenset[str] | None
    excluded: frozenset[str]

    def allows(self, canonical: str) -> bool:
        """Tell whether the step of this canonical name may be seen."""
        return (self.included is None or canonical in self.included) and canonical not in self.excluded


def resolve_steps(policy: ContextPolicy, naming: NamingTable | None) -> StepFilter:
    """Resolve the names and aliases in a policy; one that the table does not know stands for itself."""

    def canonical(name: str) -> str:
        return (naming.resolve(name) if naming is not None else None) or name

    included = None if policy.steps is None else frozenset(map(canonical, policy.steps))
    return StepFilter(included, frozenset(map(canonical, policy.steps_exclude or ())))


_FILTERED = ("project_root", "work_dir", "task_metadata", "run_id", "project_name_alias")


# --- directive -----------------------------------------------------------------------------------


def directive_header(view: AgentContextView) -> str:
    """Write a view as the lines before a directive: alias, roots, metadata, then ``extra`` by key.

    No value and no key can forge a line: what would end one is written as its escape.
    """
    plain = {name: getattr(view, name) for name in ("project_name_alias", "project_root", "work_dir")}
    lines = [f"{name}: {item}" for name, item in plain.items() if item is not None]
    if view.task_metadata is not None:
        lines.append(f"task_metadata: {_json(view.task_metadata)}")
    lines += [f"{_header_key(name)}: {_json(item)}" for name, item in sorted((view.extra or {}).items())]
    return "".join(_LINE_END.sub(_escape, line) + "\n" for line in lines)


_LINE_END = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN_KEY = re.compile(r"[\w./-]+")


def _header_key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) else _json(name)


def _json(value: JsonValue) -> str:
    return compact_json(value).decode()


def _escape(match: re.Match[str]) -> str:
    return _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}"


_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
