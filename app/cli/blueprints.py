"""The command that checks a Blueprint: where it is wrong, and what its steps are called.

The invariant: it finds what ``POST /v1/tasks`` would find, by the same parser.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import typer
import yaml

from app.cli import output
from app.cli.locations import START, Location, locate_in_json, locate_in_yaml
from app.cli.writing import FileArgument
from app.domain.blueprint import Blueprint, parse_blueprint
from app.domain.errors import InvalidBlueprint, StepNamingCollision, StepplaneError
from app.domain.naming import StepNaming
from app.domain.paths import Segment, format_path, parse_path
from app.domain.values import MAX_DEPTH_TAKEN, JsonValue, parse_json

FAILED = 1
_STDIN = "<stdin>"


def add_to(program: typer.Typer) -> None:
    """Give a program these commands."""
    blueprint = typer.Typer(help="Check a Blueprint.", rich_markup_mode=None)
    blueprint.command("check")(check)
    program.add_typer(blueprint, name="blueprint")


def check(file: FileArgument) -> None:
    """Check a Blueprint in a JSON or YAML file, or in a task's: each finding with file, line, column and JSON path."""
    name = str(getattr(file, "name", _STDIN))
    name = "standard input" if name == _STDIN else name
    try:
        source = _read(file.read())
    except _NoDocument as error:
        output.say(_line(name, error.location, "error", "$", error.sentence))
        raise typer.Exit(FAILED) from None
    findings, naming = _judge(source.value)
    for finding in findings:
        place = (*source.prefix, *finding.place)
        location = source.locate(place)
        output.say(_line(name, location, finding.severity, format_path(place), finding.message))
    if naming is None:
        raise typer.Exit(FAILED)
    steps = ", ".join(_names(entry.canonical, entry.aliases) for entry in naming.entries)
    count = f"{len(naming.entries)} step{'' if len(naming.entries) == 1 else 's'}"
    output.say(f"{name}: OK, {count}{': ' if steps else ''}{steps}")


def _line(name: str, location: Location, severity: str, path: str, message: str) -> str:
    return f"{name}:{location.line}:{location.column}: {severity}: {path} {message}"


def _names(canonical: str, aliases: Sequence[str]) -> str:
    others = [alias for alias in aliases if alias != canonical]
    return f"{canonical} (also {', '.join(others)})" if others else canonical


# --- reading -------------------------------------------------------------------------------------


class _Source(NamedTuple):
    """A Blueprint's document, where it stands in that of the file, and how a place of the file is found."""

    value: JsonValue
    prefix: tuple[Segment, ...]
    locate: Callable[[Sequence[Segment]], Location]


class _NoDocument(Exception):
    def __init__(self, sentence: str, location: Location = START) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.location = location


def _read(body: bytes) -> _Source:
    from app.api.bodies import parse_yaml  # noqa: PLC0415  # brings the whole server, which no other command waits for

    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _NoDocument(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        if text.lstrip()[:1] in {"{", "["}:
            document, locate = parse_json(text, MAX_DEPTH_TAKEN), locate_in_json
        else:
            document, locate = parse_yaml(body), locate_in_yaml
    except StepplaneError as error:  # no JSON or YAML, or more of it than is taken
        raise _NoDocument(error.sentence, _location_of(error)) from error
    value, prefix = _inner(document)
    return _Source(value, prefix, lambda place: locate(text, place))


def _location_of(error: Exception) -> Location:
    cause = error.__cause__
    if isinstance(cause, yaml.MarkedYAMLError) and cause.problem_mark is not None:
        return Location(cause.problem_mark.line + 1, cause.problem_mark.column + 1)
    line, column = getattr(cause, "lineno", 1), getattr(cause, "colno", 1)
    return Location(line, column)


def _inner(document: JsonValue) -> tuple[JsonValue, tuple[Segment, ...]]:
    """Find the Blueprint in a document: itself, that of a task, or what is wrapped as inline."""
    prefix: tuple[Segment, ...] = ()
    if isinstance(document, dict) and "blueprint" in document and "flow" not in document:
        document, prefix = document["blueprint"], ("blueprint",)
    if isinstance(document, dict) and document.get("kind") == "inline" and "value" in document:
        document, prefix = document["value"], (*prefix, "value")
    return document, prefix


# --- judging -------------------------------------------------------------------------------------


class _Finding(NamedTuple):
    """What is wrong, or odd, and where in the Blueprint."""

    severity: str
    place: tuple[Segment, ...]
    message: str


def _judge(document: JsonValue) -> tuple[list[_Finding], StepNaming | None]:
    """Find what is wrong with a Blueprint; the names of its steps are there where nothing is an error."""
    try:
        blueprint = parse_blueprint(document)
    except InvalidBlueprint as error:
        return [_Finding("error", parse_path(each["path"]) or (), each["message"]) for each in error.details], None
    try:
        naming = StepNaming.from_blueprint(blueprint.flow, blueprint.projection_names)
    except StepNamingCollision as error:
        return [_Finding("error", _place_of(blueprint, error.second_step_ref), error.sentence)], None
    warnings = [
        _Finding("warning", _place_of(blueprint, warning.second_step_ref), warning.sentence)
        for warning in naming.warnings
    ]
    return warnings, naming


def _place_of(blueprint: Blueprint, ref: str) -> tuple[Segment, ...]:
    """Tell where the flow refers to a step first."""
    return next((place for place, node in _nodes_of(blueprint.document) if node.get("ref") == ref), ("flow",))


def _nodes_of(document: JsonValue) -> Iterator[tuple[tuple[Segment, ...], dict[str, JsonValue]]]:
    """Walk the nodes of a document's flow that refer to a step, in its order; it was parsed, and so is one."""
    waiting: list[tuple[tuple[Segment, ...], JsonValue]] = [(("flow",), document["flow"])]
    while waiting:
        place, node = waiting.pop()
        if node["kind"] == "step":
            yield (*place, "ref"), node
        below = [((*place, "children", index), child) for index, child in enumerate(node.get("children", ()))]
        below += [((*place, field), node[field]) for field in ("then", "else", "body", "catch") if field in node]
        waiting.extend(reversed(below))
