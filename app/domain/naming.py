"""Naming: the table that maps every name of a step to its ONE canonical name.

The invariant: a canonical name is unique and resolves to itself, and no name belongs to two steps.

Source: contract §3, "Naming"; ``tests/vectors/step_naming.json``, ``tests/vectors/result_ref.json``.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from app.domain.errors import InvalidBlueprint, StepNamingCollision
from app.domain.flow import FlowNode, PathExpression, iter_steps
from app.domain.ids import CTX_NAME, is_name
from app.domain.paths import format_path, parse_flow_path, quoted, walk
from app.domain.values import Found, JsonValue


class StepName(BaseModel):
    """One step's names.

    Attributes:
        canonical: the one name under which it is listed.
        step_ref: how the flow refers to it.
        aliases: the other names that it owns, its ref among them, in bytewise order.
        out_paths: where its nodes write, in flow order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    canonical: str
    step_ref: str
    aliases: tuple[str, ...]
    out_paths: tuple[str, ...]


class NamingWarning(BaseModel):
    """Two steps claim one name and neither declares any; the owner keeps it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    first_step_ref: str
    second_step_ref: str
    owner: str

    @property
    def sentence(self) -> str:
        """What happened, and what to do."""
        first, second, owner = quoted(self.first_step_ref), quoted(self.second_step_ref), quoted(self.owner)
        return (
            f"the steps {first} and {second} both claim the name {quoted(self.name)}: it leads to {owner}; "
            "declare a projection_name to tell them apart"
        )


class StepNaming(BaseModel):
    """The names of all steps of a flow, in flow order. Built once from a Blueprint, and stored as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entries: tuple[StepName, ...] = ()
    warnings: tuple[NamingWarning, ...] = ()

    @classmethod
    def from_blueprint(cls, flow: FlowNode, projection_names: Mapping[str, str]) -> "StepNaming":
        """Build the table.

        Args:
            flow: of the Blueprint.
            projection_names: the declared names, by agent.

        Raises:
            InvalidBlueprint: a declared name is empty.
            StepNamingCollision: two steps claim one name, and one of them declares a projection_name.
        """
        for agent, name in projection_names.items():
            if not name:
                place = format_path(("agents", agent, "meta", "projection_name"))
                raise InvalidBlueprint([(place, "must be a non-empty string")], reason="empty")
        steps = _claims_of(flow, projection_names)
        owners, warnings = _settle(steps)
        entries = [
            StepName(
                canonical=step.canonical,
                step_ref=step.ref,
                aliases=tuple(sorted(name for name in {**step.exact, **step.weak} if owners.get(name) == step.ref)),
                out_paths=tuple(step.out_paths),
            )
            for step in steps
        ]
        return cls(entries=tuple(entries), warnings=tuple(warnings))

    def resolve(self, name: str) -> str | None:
        """Find the canonical name of a name or alias."""
        return self._canonical_by_name.get(name)

    def canonical_of(self, step_ref: str) -> str | None:
        """Find the canonical name of the step that the flow refers to so."""
        return self._canonical_by_ref.get(step_ref)

    @property
    def names(self) -> list[str]:
        """The canonical names, in bytewise order."""
        return sorted(entry.canonical for entry in self.entries)

    @cached_property
    def _canonical_by_name(self) -> dict[str, str]:
        return {name: entry.canonical for entry in self.entries for name in (*entry.aliases, entry.canonical)}

    @cached_property
    def _canonical_by_ref(self) -> dict[str, str]:
        return {entry.step_ref: entry.canonical for entry in self.entries}


# --- claims --------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """What one ref claims, over all its nodes. The dicts are sets in flow order."""

    ref: str
    canonical: str
    is_declared: bool
    exact: dict[str, None]
    """Its ref, and the key of each out path that is exactly one key: with the canonical name, its strong claims."""
    weak: dict[str, None]
    """The first key of each deeper out path."""
    out_paths: dict[str, None]


def _claims_of(flow: FlowNode, projection_names: Mapping[str, str]) -> list[_Step]:
    steps: dict[str, _Step] = {}
    for node in iter_steps(flow):
        declared = projection_names.get(node.ref)
        claims = _Step(node.ref, declared or node.ref, declared is not None, {node.ref: None}, {}, {})
        step = steps.setdefault(node.ref, claims)
        if isinstance(node.out, PathExpression):
            step.out_paths[node.out.at] = None
            top, is_exact = _top_key(node.out.at)
            if top is not None and _can_be_listed(top):
                (step.exact if is_exact else step.weak)[top] = None
    return list(steps.values())


def _top_key(out_path: str) -> tuple[str | None, bool]:
    """Name the key of the flow's context that an out path writes, and whether it writes all of it."""
    segments = parse_flow_path(out_path)
    if not segments or not isinstance(segments[0], str):
        return None, False
    return segments[0], len(segments) == 1


def _settle(steps: Sequence[_Step]) -> tuple[dict[str, str], list[NamingWarning]]:
    """Give each claimed name to at most one step, by ref.

    Raises:
        StepNamingCollision: two claim it strongly, and one of them declares a projection_name.
    """
    strong, weak = defaultdict[str, list[_Step]](list), defaultdict[str, list[_Step]](list)
    for step in steps:
        for name in {**step.exact, step.canonical: None}:
            strong[name].append(step)
        for name in step.weak:
            weak[name].append(step)
    owners = {name: claimants[0].ref for name, claimants in weak.items() if len(claimants) == 1}
    warnings: list[NamingWarning] = []
    for name, claimants in strong.items():
        first = claimants[0]
        owners[name] = name if any(step.ref == name for step in claimants) else first.ref
        for second in claimants[1:]:
            if first.is_declared or second.is_declared:
                raise StepNamingCollision(name, first.ref, second.ref)
            warning = NamingWarning(name=name, first_step_ref=first.ref, second_step_ref=second.ref, owner=owners[name])
            warnings.append(warning)
    return owners, warnings


# --- values --------------------------------------------------------------------------------------


def result_values(naming: StepNaming | None, dispatched: Sequence[str], result_ref: JsonValue) -> dict[str, JsonValue]:
    """Choose which value each canonical name has out of a run's ``result_ref``; names without one are left out.

    With a table, a step's value is where its own out path leads (of several, the last in flow order
    that leads somewhere), else under a name that it owns; a key that another step's out path writes
    is that step's. A dispatched name that is not in the table has its own key. Without a table every
    key is a step.

    Source: contract §2, rule 2.
    """
    values: dict[str, JsonValue] = {}
    by_key = result_ref if isinstance(result_ref, dict) else {}
    if naming is None:
        return {name: item for name, item in by_key.items() if _can_be_listed(name)}
    writers = _writers_of(naming)
    for entry in naming.entries:
        found = _found_by_path(entry, result_ref) or _found_by_name(entry, by_key, writers)
        if found is not None:
            values[entry.canonical] = found.value
    for name in dispatched:
        if name in by_key and name not in writers and naming.resolve(name) is None:
            values[name] = by_key[name]
    return values


def _can_be_listed(name: str) -> bool:
    return is_name(name) and name != CTX_NAME


def _writers_of(naming: StepNaming) -> dict[str, set[str]]:
    """List, by key of ``result_ref``, the steps whose out paths lead there."""
    writers = defaultdict[str, set[str]](set)
    for entry in naming.entries:
        for out_path in entry.out_paths:
            top, _ = _top_key(out_path)
            if top is not None:
                writers[top].add(entry.canonical)
    return dict(writers)


def _found_by_path(entry: StepName, result_ref: JsonValue) -> Found | None:
    for out_path in reversed(entry.out_paths):
        segments = parse_flow_path(out_path)
        found = walk(result_ref, segments) if segments is not None else None
        if found is not None:
            return found
    return None


def _found_by_name(entry: StepName, by_key: Mapping[str, JsonValue], writers: Mapping[str, set[str]]) -> Found | None:
    for name in (*entry.aliases, entry.canonical):
        if name in by_key and writers.get(name, set()) <= {entry.canonical}:
            return Found(by_key[name])
    return None
