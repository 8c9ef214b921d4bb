"""The two requests that every worker makes, fetching its prompt and submitting, answered ahead of the framework.

The invariant: only the plain spellings are answered here, by the very functions that the framework's routes call; a
request with any other query goes to those, and so is judged and answered by them alone.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.answers import Answer, header_values
from app.api.bodies import read_body
from app.api.forms import refuse_form
from app.api.json_answers import json_answer
from app.api.steps import ROUTE_KEY
from app.domain.errors import Unauthenticated
from app.domain.grants import Grant
from app.domain.ids import check_id
from app.services.prompts import SYSTEM_PATH, Prompts
from app.services.submissions import Submissions

GRANT_KEY = "stepplane.grant"
"""Where the guard leaves what a worker handle stands for."""


class WorkerPlane:
    """Answers the plain ones of the two requests itself and passes all else on."""

    def __init__(self, app: ASGIApp, prompts: Prompts, submissions: Submissions) -> None:
        self._app = app
        self._prompts = prompts
        self._submissions = submissions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] == "http":
            answer = await self._answer(scope, receive)
            if answer is not None:
                await answer.send(scope, send)
                return
        await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer | None:
        method, path, query = scope["method"], scope["path"], scope["query_string"]
        if method == "POST" and path == SUBMIT_PATH and query in _PLAIN_SUBMITS:
            scope[ROUTE_KEY] = path
            return await answer_submit(self._submissions, scope, receive, _PLAIN_SUBMITS[query])
        if method == "GET" and path == PROMPT_PATH and not query:
            scope[ROUTE_KEY] = path
            return await answer_prompt(self._prompts, scope[GRANT_KEY], None)
        return None


SUBMIT_PATH = "/v1/worker/submit"
PROMPT_PATH = "/v1/worker/prompt"


class Said(NamedTuple):
    """What the query of a submit says of the step."""

    ok: bool | None = None
    verdict: str | None = None


_PLAIN_SUBMITS = {
    b"": Said(),
    b"ok=true": Said(ok=True),
    b"ok=false": Said(ok=False),
    b"verdict=pass": Said(verdict="pass"),
    b"verdict=blocked": Said(verdict="blocked"),
    b"verdict=skip": Said(verdict="skip"),
}


async def answer_submit(submissions: Submissions, scope: Scope, receive: Receive, said: Said) -> Answer:
    """Keep the body of a request as the OUTPUT of its bearer's step."""
    grant: Grant = scope[GRANT_KEY]
    body = await read_body(scope, receive)
    refuse_form(scope, body)
    traceparent = find_traceparent(scope)
    await submissions.submit(grant, body, ok=said.ok, verdict=said.verdict, traceparent=traceparent)
    return Answer(204, [])


async def answer_prompt(prompts: Prompts, grant: Grant, step_id: str | None) -> Answer:
    """Tell a worker what to do."""
    return json_answer(await prompts.fetch_json(grant, step_id))


def find_ticket(scope: Scope) -> tuple[str, int, str] | None:
    """Return step, attempt and ticket of a request for a system prompt, if it shows a ticket.

    Raises:
        Unauthenticated: it does, and names no attempt of a step along with it.
        InvalidId: what it names is no step's id.
    """
    if scope["path"] != SYSTEM_PATH or scope["method"] not in {"GET", "HEAD"}:
        return None
    given = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    if "ticket" not in given:
        return None
    step_id, attempt = given.get("task_id", ""), given.get("attempt", "")
    if not (step_id and _ATTEMPT.fullmatch(attempt)):
        raise Unauthenticated("a ticket opens one system prompt: task_id and attempt name it")
    return check_id("step", step_id), int(attempt), given["ticket"]


_ATTEMPT = re.compile(r"[1-9][0-9]{0,8}")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def find_traceparent(scope: Scope) -> str | None:
    """Return the trace context of a request, when it is well-formed.

    Source: W3C Trace Context §3.2.
    """
    for given in header_values(scope, b"traceparent")[:1]:
        return given.decode() if _TRACEPARENT.fullmatch(given) else None
    return None
