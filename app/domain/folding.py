"""Folding: what value a worker's raw body stands for, and what its words about success mean.

The invariant: folding loses nothing; a body that is no JSON container stays the text that it was.
"""

import re
from typing import NamedTuple

from app.domain.errors import InvalidJson, InvalidText, NestedTooDeep, NotJson, TooManyValues, VerdictConflict
from app.domain.records import StepStatus
from app.domain.slices import is_well_nested
from app.domain.values import BYTE_ORDER_MARK, MAX_DEPTH_TAKEN, Found, JsonValue, parse_json

# The characters of the Unicode property White_Space. str.rstrip() would take U+001C to U+001F as well.
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)

# Possessive: else a body of a million tildes and a million line ends would be searched once for each of the tildes.
_FENCE = re.compile(r"\s*+(`{3,}+|~{3,}+)[^\n`]*\n(.*)\n\1\s*", re.DOTALL)


def trim_end(text: str) -> str:
    """Remove the white space at the end of a submitted body: a shell's newline is no part of an OUTPUT."""
    return text.rstrip(_WHITE_SPACE)


def decode_body(raw: bytes) -> str:
    """Decode a body.

    Raises:
        InvalidText: it is not UTF-8.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidText(
            f"the body is not UTF-8: {error.reason} at byte {error.start}; to submit binary data, encode it (base64)"
        ) from error


def fold_body(text: str, submit_format: JsonValue = None) -> JsonValue:
    """Return the value that a submitted text stands for.

    By default a JSON object or array is that value, also inside one markdown fence, and anything else is a
    string. A byte order mark ahead of JSON is dropped; in a string it stays. ``json`` takes any JSON value, ``text``
    always the string; any other format is the default.

    Raises:
        NotJson: the format is ``json`` and the text is none.
        NestedTooDeep, TooManyValues: it is JSON, and over a bound of it.

    Source: contract §4, submit.
    """
    if submit_format == "text":
        return text
    if submit_format == "json":
        found = _parsed(text)
        if found is None:
            raise NotJson("this step takes JSON (submit_format: json), and the body is none")
        return found.value
    begins = text.removeprefix(BYTE_ORDER_MARK).lstrip()[:1]
    found = _parsed(text) if begins and begins in "{[`~" else None
    return found.value if found is not None and isinstance(found.value, dict | list) else text


class Verdict(NamedTuple):
    """What a Final says of its step."""

    ok: bool
    status: StepStatus


_VERDICTS = {
    "pass": Verdict(ok=True, status=StepStatus.PASSED),
    "blocked": Verdict(ok=False, status=StepStatus.BLOCKED),
    "skip": Verdict(ok=True, status=StepStatus.SKIPPED),
}


def settle_verdict(*, ok: bool | None, verdict: str | None) -> Verdict:
    """Settle what ``ok`` and ``verdict`` say together; saying nothing is a pass.

    Raises:
        VerdictConflict: the word is unknown, or the two contradict each other.
    """
    if verdict is None:
        return _VERDICTS["blocked" if ok is False else "pass"]
    settled = _VERDICTS.get(verdict)
    if settled is None:
        raise VerdictConflict(f"{verdict[:40]!r} is no verdict: one is pass, blocked or skip")
    if ok is not None and ok is not settled.ok:
        raise VerdictConflict(f"ok={str(ok).lower()} contradicts verdict={verdict}: leave one of them away")
    return settled


def _parsed(text: str) -> Found | None:
    """Parse a text, or what stands inside the one fence that it is."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    fence = _FENCE.fullmatch(text)
    inner = text if fence is None else fence[2]
    try:
        return Found(parse_json(inner, MAX_DEPTH_TAKEN))
    except InvalidJson:
        return None
    except (NestedTooDeep, TooManyValues):
        if is_well_nested(inner):
            raise
        return None  # it only begins like JSON
