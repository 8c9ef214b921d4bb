"""Faults: what is wrong with a document, each with its JSON path and a sentence that reads well.

pydantic finds them; its words are for programmers, so each is told again here in the words of JSON.
A sentence is written only when it is asked for: a document may hold more faults than anybody reads.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from app.domain.errors import InvalidBlueprint
from app.domain.paths import Segment, format_path, quoted
from app.domain.values import JsonValue, kind_of

Place = tuple[Segment, ...]
"""Where in a document: the segments of a path from its root."""

MOST_FAULTS = 100
"""How many faults one error lists."""

TOLD = "told"
"""The kind of a fault whose sentence was written where it was found; validators raise it as a custom error."""

UNKNOWN_WORD = "unknown_word"
"""The kind of a fault where one of a few words should stand; its context is those words."""

ModelT = TypeVar("ModelT", bound=BaseModel)


class Fault(NamedTuple):
    """One thing that is wrong, and where."""

    place: Place
    kind: str
    """A kind of pydantic's error, or ``TOLD`` where the context is the sentence itself."""
    given: JsonValue = None
    context: Any = None

    @property
    def message(self) -> str:
        """What is wrong, as a clause whose subject is the place."""
        if self.kind == TOLD:
            return str(self.context)
        if self.kind == "extra_forbidden":
            return unknown_field(str(self.place[-1]), self.context)
        if self.kind == UNKNOWN_WORD:
            close = nearest(self.given, self.context)
            return f"must be one of {', '.join(self.context)}; the nearest to {quoted(self.given)} is {close}"
        if self.kind in _SENTENCES:
            return _SENTENCES[self.kind]
        return must_be(_EXPECTED.get(self.kind, "valid"), self.given)


def told(place: Place, message: str) -> Fault:
    """Make a fault whose sentence is at hand."""
    return Fault(place, TOLD, context=message)


def read(model: type[ModelT], fields: Mapping[str, Any], place: Place, faults: list[Fault]) -> ModelT | None:
    """Build a value from a JSON object, or add what is wrong with it to the faults."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            loc, kind = details["loc"], details["type"]
            context = known_fields(model, loc[:-1]) if kind == "extra_forbidden" else details["msg"]
            faults.append(Fault((*place, *loc), kind, details["input"], context))
        return None


def refuse(faults: list[Fault]) -> NoReturn:
    """Refuse the document for its faults, of which there is one at least.

    Raises:
        InvalidBlueprint: with the first hundred of them.
    """
    raise InvalidBlueprint([(_format_place(fault.place), fault.message) for fault in faults[:MOST_FAULTS]])


def must_be(expected: str, given: JsonValue) -> str:
    """Say what should stand in a place, and what does."""
    kind = kind_of(given)
    actual = {"object": "an object", "array": "an array", "null": "null"}.get(kind, f"a {kind}")
    return f"must be {expected}, not {actual}"


def unknown_field(name: str, known: Iterable[str]) -> str:
    """Say that a field is not known, and which one may have been meant."""
    return f"is no known field; the nearest is {quoted(nearest(name, known))}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Find the known name that is most like this one."""
    return difflib.get_close_matches(name[:_LONGEST_KEY], list(known), n=1, cutoff=0.0)[0]


_SENTENCES = {
    "missing": "is missing",
    "string_too_short": "must be a non-empty string",
    "string_unicode": "must be valid Unicode, without lone surrogates",
}
_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
}
_LONGEST_KEY = 80


def known_fields(model: type[BaseModel], loc: Iterable[int | str]) -> list[str]:
    """List the fields of the model that stands at this place inside another.

    Args:
        model: the outermost.
        loc: as pydantic tells it: fields and indices, and the tag of a model where one of several may stand.
    """
    models = [model]
    for key in loc:
        fields = [field for each in models for name, field in _aliased(each).items() if name == key]
        if fields:
            models = [found for field in fields for found in _models_in((field.annotation, *field.metadata))]
        elif isinstance(key, str):
            models = [each for each in models if _has_tag(each, key)]
    return [name for each in models for name in _aliased(each)]


def _aliased(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Find the models in an annotation such as ``tuple[Model, ...]`` or ``Model | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    inner = annotation if isinstance(annotation, tuple) else get_args(annotation)
    return [found for each in inner for found in _models_in(each)]


def _has_tag(model: type[BaseModel], tag: str) -> bool:
    return any(get_args(field.annotation) == (tag,) for field in model.model_fields.values())


def _format_place(place: Place) -> str:
    return format_path(key if isinstance(key, int) else _shortened(key) for key in place)


def _shortened(key: str) -> str:
    return key if len(key) <= _LONGEST_KEY else key[:_LONGEST_KEY] + "…"
