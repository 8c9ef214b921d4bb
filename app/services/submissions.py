"""Submissions: what workers put out with a raw body or a JSON value, kept before it is acknowledged.

The invariant: folding decides what a body stands for, the appender decides whether it is kept.
"""

from app.domain.errors import InvalidParameter
from app.domain.folding import decode_body, fold_body, settle_verdict, trim_end
from app.domain.grants import Grant
from app.domain.ids import check_name
from app.domain.records import Artifact, Final, Inline
from app.domain.values import JsonValue, parse_json
from app.services.appender import Appender, Emission, require_bound
from app.services.file_bodies import FileBodies
from app.services.threads import run_beside


class Submissions:
    """The worker's outputs.

    Args:
        appender: keeps them.
        file_bodies: reads bodies that are named by a file.
    """

    def __init__(self, appender: Appender, file_bodies: FileBodies) -> None:
        self._appender = appender
        self._file_bodies = file_bodies

    async def submit(
        self, grant: Grant, raw: bytes, *, ok: bool | None, verdict: str | None, traceparent: str | None = None
    ) -> None:
        """Keep a raw body as the Final of the bearer's attempt.

        Raises:
            VerdictConflict: ``verdict`` is unknown, or contradicts ``ok``.
            InvalidText, NotJson: the body is no UTF-8, or no JSON where the step takes only that.
            FileSubmitRefused, TooLarge: an ``@file:`` body that is not allowed, or too large.
            RunFinished: the run has ended.
        """
        settled = settle_verdict(ok=ok, verdict=verdict)
        extra = _extra(grant)
        text, submit_format = trim_end(await self._text(grant, raw, extra)), extra.get("submit_format")
        value = await run_beside(len(text), fold_body, text, submit_format)
        event = Final(content=Inline(value=value), ok=settled.ok)
        emission = Emission(event, grant.step_ref, settled.status, traceparent=traceparent, size_bytes=len(text))
        await self._appender.append(grant, emission)

    async def result(
        self,
        grant: Grant,
        step_id: str,
        attempt: int | None,
        event: Final,
        *,
        traceparent: str | None = None,
        size_bytes: int = 0,
    ) -> None:
        """Keep a JSON value as the Final of the bearer's attempt.

        Raises:
            Forbidden: the body names another step or attempt than the bearer's.
            RunFinished: the run has ended.
        """
        require_bound(grant, step_id, attempt)
        emission = Emission(event, grant.step_ref, traceparent=traceparent, size_bytes=size_bytes)
        await self._appender.append(grant, emission)

    async def stage(self, grant: Grant, name: str, raw: bytes, *, traceparent: str | None = None) -> None:
        """Keep a raw body as a named part of the bearer's step.

        Raises:
            InvalidName: the name could not be kept.
            InvalidParameter: the name is the step's own.
            InvalidText, FileSubmitRefused, TooLarge: as for :meth:`submit`.
            RunFinished: the run has ended.
        """
        check_part_name(grant, name)
        value = await self._text(grant, raw, _extra(grant))
        event = Artifact(name=name, content=Inline(value=value))
        await self._appender.append(grant, Emission(event, name, traceparent=traceparent, size_bytes=len(value)))

    async def _text(self, grant: Grant, raw: bytes, extra: dict[str, JsonValue]) -> str:
        text = decode_body(raw)
        named = self._file_bodies.named_by(trim_end(text))
        return text if named is None else decode_body(await self._file_bodies.read(named, grant, extra))


def check_part_name(grant: Grant, name: str) -> None:
    """Hold a part to a name that it can be found under.

    Raises:
        InvalidName: the name could not be kept.
        InvalidParameter: the name is the step's own.
    """
    check_name(name)
    if name == grant.name:
        raise InvalidParameter(f"a part may not bear the name of its own step, {name!r}")


def _extra(grant: Grant) -> dict[str, JsonValue]:
    """The keys of the unfiltered view that are the server's own switches."""
    if _EXTRA_KEY not in grant.view:  # most views have none, and some are long
        return {}
    extra: dict[str, JsonValue] | None = parse_json(grant.view).get("extra")
    return extra or {}


_EXTRA_KEY = '"extra"'  # as `compact_json` writes it
