"""Blueprints: the document that describes a pipeline, read once and kept as it came.

The invariant: a Blueprint that :func:`parse_blueprint` returns can be dispatched from. Whatever is
wrong with a document is found here, all at once, each fault with its JSON path.

Source: contract §3, "Blueprint".
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

from pydantic import Field, PrivateAttr

from app.domain.context import EVERYTHING, ContextPolicy, find_ctx_faults
from app.domain.errors import InvalidBlueprint
from app.domain.faults import Fault, Place, must_be, read, refuse, told
from app.domain.flow import FlowNode, Name, Part, StepName, read_flow
from app.domain.paths import quoted
from app.domain.placement import ProjectionPlacement, find_fault
from app.domain.values import JsonValue

# --- the document --------------------------------------------------------------------------------


class AgentMeta(Part):
    """What a Blueprint says about an agent: how its steps are named, and what its workers see."""

    projection_name: StepName | None = Field(
        default=None, description="The canonical name of the agent's step; absent: its ref."
    )
    context_policy: ContextPolicy | None = Field(
        default=None, description="What its workers may see, in place of `default_context_policy`."
    )
    ctx: dict[str, JsonValue] | None = Field(default=None, description="Context for its workers.")
    meta_ref: str | None = Field(default=None, description="The entry of `metas` whose ctx lies below its own.")
    description: JsonValue = None
    version: JsonValue = None
    tags: JsonValue = None


class AgentDef(Part):
    """An agent that steps refer to by its name."""

    name: Name = Field(description="Its name: what the `ref` of a step says.")
    meta: AgentMeta | None = Field(default=None, description="How its steps are named, and what its workers see.")
    kind: JsonValue = None
    spec: JsonValue = None
    profile: JsonValue = None
    runner: JsonValue = None
    runner_ref: JsonValue = None
    verdict: JsonValue = None
    lints: JsonValue = None


class MetaDef(Part):
    """A context that agents share by its name."""

    name: Name = Field(description="What a `meta_ref` says.")
    ctx: dict[str, JsonValue] = Field(description="Context for the workers of each agent that refers to it.")


class BlueprintMetadata(Part):
    """What describes the Blueprint itself."""

    project_name_alias: str | None = Field(
        default=None, description="What the project is called; workers see it in their context."
    )
    description: JsonValue = None
    origin: JsonValue = None
    tags: JsonValue = None
    version_label: JsonValue = None
    default_run_ttl_secs: JsonValue = None
    strict_verdict_handling: JsonValue = None
    lints: JsonValue = None


class Blueprint(Part):
    """A pipeline's description. Fields of type ``JsonValue`` mean something to others and are only kept."""

    id: Name = Field(description="What the Blueprint is called.")
    flow: FlowNode = Field(repr=False, description="The tree of nodes that says which steps there are.")
    agents: tuple[AgentDef, ...] = Field(default=(), description="The agents that the steps refer to.")
    metas: tuple[MetaDef, ...] = Field(default=(), description="Contexts that agents share.")
    default_agent_ctx: dict[str, JsonValue] | None = Field(
        default=None, description="Context for the workers of every agent, below all others."
    )
    default_context_policy: ContextPolicy | None = Field(
        default=None,
        description="What the workers of agents without a policy of their own may see; absent: everything.",
    )
    projection_placement: ProjectionPlacement = Field(
        default=ProjectionPlacement.DEFAULT, description="Where the files of the steps go."
    )
    metadata: BlueprintMetadata = Field(default=BlueprintMetadata(), description="What describes the Blueprint.")
    schema_version: JsonValue = None
    operators: JsonValue = None
    hints: JsonValue = None
    strategy: JsonValue = None
    spawner_hints: JsonValue = None
    default_agent_kind: JsonValue = None
    default_operator_kind: JsonValue = None
    default_init_ctx: JsonValue = None
    audits: JsonValue = None
    degradation_policy: JsonValue = None
    runners: JsonValue = None
    default_runner: JsonValue = None
    subprocesses: JsonValue = None
    check_policy: JsonValue = None
    blueprint_ref_includes: JsonValue = None

    _document: JsonValue = PrivateAttr(default=None)

    @property
    def document(self) -> JsonValue:
        """The document as it came, every field included."""
        return self._document

    @cached_property
    def projection_names(self) -> dict[str, str]:
        """The declared step names by agent."""
        names = {agent.name: agent.meta.projection_name for agent in self.agents if agent.meta is not None}
        return {agent: name for agent, name in names.items() if name is not None}

    def agent(self, name: str) -> AgentDef | None:
        """Find the agent that a step's ref names; a ref may name none."""
        return self._agents.get(name)

    def agent_ctx(self, ref: str) -> dict[str, JsonValue]:
        """Build the agent's tier of a view: its own ``ctx`` over that of the meta it refers to; shallow."""
        meta = self._meta_of(ref)
        shared = self._metas[meta.meta_ref] if meta.meta_ref is not None else {}
        return {**shared, **(meta.ctx or {})}

    def policy_for(self, ref: str) -> ContextPolicy:
        """Choose what the agent's workers may see: its own policy, else the default, else everything."""
        return self._meta_of(ref).context_policy or self.default_context_policy or EVERYTHING

    def _meta_of(self, ref: str) -> AgentMeta:
        agent = self.agent(ref)
        return (agent.meta if agent is not None else None) or AgentMeta()

    @cached_property
    def _agents(self) -> dict[str, AgentDef]:
        return {agent.name: agent for agent in self.agents}

    @cached_property
    def _metas(self) -> dict[str, dict[str, JsonValue]]:
        return {meta.name: meta.ctx for meta in self.metas}


# --- reading -------------------------------------------------------------------------------------


def parse_blueprint(document: JsonValue) -> Blueprint:
    """Read a Blueprint and keep its document.

    Raises:
        InvalidBlueprint: with each fault that was found, a hundred at most.
    """
    if not isinstance(document, dict):
        raise InvalidBlueprint([("$", must_be("an object", document))])
    faults: list[Fault] = []
    fields = {name: item for name, item in document.items() if item is not None}
    if "flow" in fields:
        fields["flow"], flow_faults = read_flow(fields["flow"], ("flow",))
        faults += flow_faults
    if "projection_placement" in fields:
        fields["projection_placement"] = _read_placement(fields["projection_placement"], faults)
    blueprint = read(Blueprint, fields, (), faults)
    if blueprint is None:
        refuse(faults)
    faults += _cross_faults(blueprint)
    if faults:
        refuse(faults)
    blueprint._document = document  # noqa: SLF001 -- private, so that no document can bring a field of that name
    return blueprint


def _read_placement(spec: JsonValue, faults: list[Fault]) -> ProjectionPlacement:
    place: Place = ("projection_placement",)
    if not isinstance(spec, dict):
        faults.append(told(place, must_be("an object", spec)))
        return ProjectionPlacement.DEFAULT
    fault = find_fault(spec)
    if fault is not None:
        faults.append(told((*place, fault.field), fault.message))
        return ProjectionPlacement.DEFAULT
    return ProjectionPlacement.from_spec(spec)


def _cross_faults(blueprint: Blueprint) -> Iterator[Fault]:
    """Find what no part alone can tell: names that two bear, references that lead nowhere, fields of a ctx."""
    metas = [meta.name for meta in blueprint.metas]
    yield from _doubles("agents", [agent.name for agent in blueprint.agents])
    yield from _doubles("metas", metas)
    hint = f"; there are {', '.join(map(quoted, metas[:_MOST_HINTS]))}" if metas else ""
    known_metas = frozenset(metas)
    for index, agent in enumerate(blueprint.agents):
        meta = agent.meta or AgentMeta()
        if meta.meta_ref is not None and meta.meta_ref not in known_metas:
            yield told(("agents", index, "meta", "meta_ref"), f"names no meta: {quoted(meta.meta_ref)}{hint}")
        yield from _ctx_faults(meta.ctx, ("agents", index, "meta", "ctx"))
    for index, shared in enumerate(blueprint.metas):
        yield from _ctx_faults(shared.ctx, ("metas", index, "ctx"))
    yield from _ctx_faults(blueprint.default_agent_ctx, ("default_agent_ctx",))


_MOST_HINTS = 10


def _doubles(field: str, names: list[str]) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            yield told(
                (field, index, "name"), f"must be another name: {field}[{first[name]}] is {quoted(name)} already"
            )


def _ctx_faults(ctx: Mapping[str, JsonValue] | None, place: Place) -> Iterator[Fault]:
    for name, message in find_ctx_faults(ctx or {}):
        yield told((*place, name), message)
