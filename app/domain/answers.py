"""Answers: what stands under a name of a run, in which forms its bytes can be had, and its summary.

The invariant: a summary's size and digest are those of the very bytes that its ``content_url`` serves.
"""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Protocol

import orjson

from app.domain.records import Kind, Source, StepSummary
from app.domain.rendering import (
    JSON_TYPE,
    MARKDOWN_TYPE,
    TEXT_TYPE,
    WHOLE,
    Narrowing,
    Preview,
    artifact_type,
    compact_json,
    content_path,
    preview_of,
    render_json,
    require_renderable,
    sha256_hex,
    text_bytes,
)
from app.domain.values import JsonValue, parse_rendered


class RenderedOutput(NamedTuple):
    """An output as it is stored: one body, and the size and digest of both forms it can be served in."""

    body: bytes
    encoding: str
    json_size: int
    json_sha256: str
    raw_size: int
    raw_sha256: str
    preview: str
    truncated: bool


def render_output(value: JsonValue, kind: Kind) -> RenderedOutput:
    """Render a value for the store: a step's as JSON, an artifact's text as itself.

    Raises:
        ProjectionSerialize: the value is no JSON value.
        IndentedTooLarge: its rendering would be many times the value.
    """
    require_renderable(value)
    rendered = render_json(value)
    raw = text_bytes(value) if isinstance(value, str) else rendered
    # A text with a lone surrogate has no exact UTF-8: its JSON form is kept, so that nothing is lost.
    as_text = kind is Kind.ARTIFACT and isinstance(value, str) and raw.decode() == value
    preview = preview_of(raw if kind is Kind.ARTIFACT else rendered)
    return RenderedOutput(
        body=raw if as_text else rendered,
        encoding="text" if as_text else "json",
        json_size=len(rendered),
        json_sha256=sha256_hex(rendered),
        raw_size=len(raw),
        raw_sha256=sha256_hex(raw),
        preview=preview.text,
        truncated=preview.truncated,
    )


class Answer(NamedTuple):
    """Everything about what stands under a name, except its body."""

    name: str
    kind: Kind
    source: Source
    ok: bool | None
    step_id: str | None
    step_ref: str | None
    attempt: int | None
    attempts: int | None
    occurrence: int | None
    occurrences: int | None
    submitted_at: str | None
    body_id: int
    encoding: str
    json_size: int
    json_sha256: str
    raw_size: int
    raw_sha256: str
    preview: str
    truncated: bool
    file_path: str | None = None
    file_sha256: str | None = None
    step_name: str | None = None

    @property
    def stored_sha256(self) -> str:
        """The digest of the body as it is stored."""
        return self.json_sha256 if self.encoding == "json" else self.raw_sha256

    @property
    def is_text(self) -> bool:
        """Tell whether the value is a string: only a string's raw form differs from its JSON."""
        return self.raw_sha256 != self.json_sha256


class Origin(NamedTuple):
    """Where an answer comes from, as the step that put it out; all None for a part of a run's result."""

    ok: bool | None = None
    step_id: str | None = None
    step_ref: str | None = None
    attempt: int | None = None
    occurrence: int | None = None
    submitted_at: str | None = None


def answer_with(
    rendered: RenderedOutput, body_id: int, *, name: str, kind: Kind, source: Source, origin: Origin
) -> Answer:
    """Make the answer of a rendered output whose body is kept; how often its step was dispatched is not yet known."""
    return Answer(
        name=name,
        kind=kind,
        source=source,
        ok=origin.ok,
        step_id=origin.step_id,
        step_ref=origin.step_ref,
        attempt=origin.attempt,
        attempts=None,
        occurrence=origin.occurrence,
        occurrences=None,
        submitted_at=origin.submitted_at,
        body_id=body_id,
        encoding=rendered.encoding,
        json_size=rendered.json_size,
        json_sha256=rendered.json_sha256,
        raw_size=rendered.raw_size,
        raw_sha256=rendered.raw_sha256,
        preview=rendered.preview,
        truncated=rendered.truncated,
    )


class Chunks(Protocol):
    """A body too large to be held whole."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body, piece by piece."""
        ...

    def close(self) -> None:
        """Let go of what it is read from."""
        ...


class BodyForm(NamedTuple):
    """One form of a value's bytes; ``preview`` is None where it takes the body to tell."""

    size_bytes: int
    sha256: str
    content_type: str
    preview: Preview | None = None
    file_path: str | None = None


def json_form(answer: Answer) -> BodyForm:
    """The value as rendered JSON."""
    told = answer.kind is Kind.STEP or not answer.is_text
    known = Preview(answer.preview, answer.truncated) if told else None
    return BodyForm(answer.json_size, answer.json_sha256, JSON_TYPE, known)


def raw_form(answer: Answer) -> BodyForm:
    """A string as its own bytes, any other value as rendered JSON."""
    if not answer.is_text:
        return json_form(answer)
    known = Preview(answer.preview, answer.truncated) if answer.kind is Kind.ARTIFACT else None
    return BodyForm(answer.raw_size, answer.raw_sha256, TEXT_TYPE, known)


def stored_form(answer: Answer) -> BodyForm:
    """The form without any narrowing, where no file stands for it."""
    if answer.kind is Kind.ARTIFACT:
        return raw_form(answer)._replace(content_type=artifact_type(answer.name))
    return json_form(answer)


def file_form(answer: Answer, path: str, size_bytes: int, sha256: str, preview: Preview | None = None) -> BodyForm:
    """The materialized file, as it is on disk."""
    kind = artifact_type(answer.name) if answer.kind is Kind.ARTIFACT else MARKDOWN_TYPE
    return BodyForm(size_bytes, sha256, kind, preview, path)


def form_of(body: bytes, content_type: str) -> BodyForm:
    """The form of bytes that are at hand."""
    return BodyForm(len(body), sha256_hex(body), content_type, preview_of(body))


def value_of(encoding: str, body: bytes) -> JsonValue:
    """Return the value that a stored body holds."""
    return body.decode() if encoding == "text" else parse_rendered(body)


def rendered_value(encoding: str, body: bytes) -> bytes:
    """Turn a stored body into the value as rendered JSON."""
    return body if encoding == "json" else render_json(body.decode())


def raw_body(answer: Answer, body: bytes) -> bytes:
    """Turn a stored body into a string's own bytes, or rendered JSON."""
    if answer.encoding == "text" or not answer.is_text:
        return body
    return text_bytes(parse_rendered(body))


class Place(NamedTuple):
    """Where an answer stands: its run, and the public URL of the server."""

    task_id: str
    run_id: str
    base_url: str = ""

    def url(self, name: str, narrowing: Narrowing = WHOLE) -> str:
        """Write the ``content_url`` of a name of this run."""
        return self.base_url + content_path(self.task_id, self.run_id, name, narrowing)


def summarize(answer: Answer, form: BodyForm, place: Place, narrowing: Narrowing = WHOLE) -> StepSummary:
    """Write the summary of one form of an answer; the form must know its preview."""
    preview = form.preview or Preview("", truncated=False)
    return StepSummary.model_construct(  # every part was validated when it was written
        name=answer.name,
        size_bytes=form.size_bytes,
        sha256=form.sha256,
        content_type=form.content_type,
        source=answer.source,
        file_path=form.file_path,
        content_url=place.url(answer.name, narrowing),
        preview=preview.text,
        truncated=preview.truncated,
        kind=answer.kind,
        ok=answer.ok,
        step_id=answer.step_id,
        step_ref=answer.step_ref,
        attempt=answer.attempt,
        attempts=answer.attempts,
        occurrence=answer.occurrence,
        occurrences=answer.occurrences,
        submitted_at=answer.submitted_at,
    )


def summary_json(summary: StepSummary) -> bytes:
    """Render a summary as answers carry it: compact, fields in order."""
    return compact_json(summary.model_dump(mode="json"))


def read_summary(rendered: bytes) -> dict[str, Any]:
    """Read back what :func:`summary_json` wrote."""
    summary: dict[str, Any] = orjson.loads(rendered)
    return summary


def summary_start(name: str) -> bytes:
    """Return how the rendered summary of a name begins, and no other's does."""
    return b'{"name":%b,' % compact_json(name)


def pointer_json(summary: bytes) -> bytes:
    """Cut a rendered summary down to the pointer that a downstream worker is given; see :class:`StepPointer`.

    Nothing is parsed: a prompt may have a thousand of them. A quote inside a text is escaped, so that the first
    ``,"sha256":"`` can only be the key, and so on.
    """
    name_and_size, _, rest = summary.partition(_DIGEST_KEY)
    start = rest.find(_FILE_KEY, 0, rest.index(_URL_KEY))
    if start < 0:
        start = rest.index(_URL_KEY) - 1
    return b"".join((name_and_size, rest[start : rest.index(_PREVIEW_KEY)], _DIGEST_KEY, rest[:_DIGEST_LENGTH], b'"}'))


def submission_key(summary: bytes) -> bytes:
    """Return what orders rendered summaries by their submission; the parts of a run's result come last, as it does."""
    return summary.rpartition(_SUBMITTED_KEY)[2]  # a quoted time, or null: a letter sorts behind a quote


_SUBMITTED_KEY = b'"submitted_at":'
_DIGEST_KEY = b',"sha256":"'
_DIGEST_LENGTH = 64
_FILE_KEY = b',"file_path":"'
_PREVIEW_KEY = b',"preview":"'
_URL_KEY = b'"content_url":"'


def split_summary(summary: StepSummary) -> tuple[bytes, bytes]:
    """Cut a rendered summary where the base URL goes, so that it can be stored without knowing it.

    Raises:
        ValueError: the summary's ``content_url`` has a base already.
    """
    text = summary_json(summary)
    # The URL is percent-encoded, so its key cannot occur inside it; before it stand only name, type, source and path,
    # in which a quote is escaped: the first hit is the key.
    cut = text.index(_URL_KEY + b"/") + len(_URL_KEY)
    return text[:cut], text[cut:]


def recount_summary(tail: bytes, attempts: int | None, occurrences: int | None) -> bytes:
    """Write other counts into the second piece of a rendered summary: how often its step was dispatched by now."""
    cut = tail.rindex(_COUNTS_KEY)  # after it stand only numbers and a time
    counts = read_summary(b"{" + tail[cut:]) | {"attempts": attempts, "occurrences": occurrences}
    return tail[:cut] + compact_json(counts)[1:]


_COUNTS_KEY = b'"attempts":'
