"""Bounds: how the fields of a request are held to their rows in :mod:`app.domain.limits`.

The invariant: only what comes in is judged. What is kept was judged by the rules of its day, and is read by none:
whoever reads it validates in the context ``KEPT``.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from app.domain.limits import AMOUNT, COUNT, TTL_SECONDS, Limit

KEPT: dict[str, bool] = {"is_kept": True}
"""The context of a validation whose values come from the store."""

OUT_OF_BOUNDS = "out_of_bounds"
"""The kind of a fault whose sentence was written here."""


@dataclass(frozen=True)
class AtMost:
    """Holds a text, a list or an object to its limit: of bytes of UTF-8, of characters, or of items."""

    limit: Limit

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Judge after the type was."""
        return core_schema.with_info_after_validator_function(self._judge, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Tell the limit where JSON Schema has a word for it; a text has no more characters than bytes."""
        schema = handler(core)
        word = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}.get(schema.get("type", ""))
        return schema if word is None else schema | {word: self.limit.value}

    def _judge(self, given: Any, info: ValidationInfo) -> Any:
        if info.context is KEPT or not isinstance(given, str | list | dict):
            return given
        if isinstance(given, str) and self.limit.unit == "bytes":
            size = len(given.encode("utf-8", "surrogatepass"))
        else:
            size = len(given)
        if size > self.limit.value:
            raise PydanticCustomError(
                OUT_OF_BOUNDS,
                "has {size} {unit}, and at most {most} are taken: {mend}",
                {"size": size, "unit": self.limit.unit, "most": self.limit.value, "mend": _mend(given)},
            )
        return given


def _mend(given: Any) -> str:
    return "shorten it, or keep the whole as an output" if isinstance(given, str) else "send fewer"


Flag = Annotated[bool, Strict()]
"""``true`` or ``false``, and no word or number that stands for one."""

Count = Annotated[int, Strict(), Field(ge=0, le=COUNT.value)]
"""A number of things, as a database column holds it."""

Ordinal = Annotated[int, Strict(), Field(ge=1, le=COUNT.value)]
"""The number of an attempt."""

Amount = Annotated[int, Strict(), Field(ge=0, le=AMOUNT.value)]
"""An amount that every reader of JSON reads back as it was."""

Ttl = Annotated[int, Strict(), Field(ge=1, le=TTL_SECONDS.value)]
"""How long a handle is good for."""
