"""One worker of the demo, in a process of its own: it knows a server and a handle, and learns the rest by asking.

The invariant: what it reads of earlier steps comes through the pointers in its prompt, digest checked; the handle comes
in by the environment, since everybody on a machine can read the arguments of a process.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from app.client import ClientError, Content, StepplaneClient
from app.demo.folder import scan_folder
from app.demo.measures import longest_functions, measure_language
from app.demo.report import review_report, write_report
from app.domain.rendering import MARKDOWN_TYPE, Narrowing, compact_json, read_submission
from app.domain.values import parse_json

SERVER_VARIABLE = "STEPPLANE_SERVER"
HANDLE_VARIABLE = "STEPPLANE_WORKER_HANDLE"
PART = "report.md"


class Output(NamedTuple):
    """What a role puts out: a body to submit with its verdict, and a part to stage before."""

    body: bytes
    verdict: str = "pass"
    part: bytes | None = None


class Assignment:
    """A worker's prompt, and the outputs that it points at."""

    def __init__(self, client: StepplaneClient, prompt: dict[str, Any]) -> None:
        self._client = client
        self._context: dict[str, Any] = prompt.get("context") or {}
        self._pointers = {pointer["name"]: pointer for pointer in self._context.get("steps", [])}
        self.agent: str = prompt["agent"]
        self.directive: dict[str, Any] = parse_json(prompt["prompt"])
        self.folder = Path(self._context["project_root"])

    def has(self, name: str) -> bool:
        """Tell whether an earlier step put something out under this name, and this worker may see it."""
        return name in self._pointers

    async def text(self, name: str) -> str:
        """Read a part, as it is."""
        return (await self._client.follow(self._pointers[name])).body.decode()

    async def value(self, name: str) -> Any:
        """Read the newest OUTPUT of an earlier step."""
        return _value_in(await self._client.follow(self._pointers[name]))

    async def values(self, name: str) -> list[Any]:
        """Read the OUTPUT of every occurrence of an earlier step, in order."""
        url = self._pointers[name]["content_url"]
        newest = await self._client.get_step_at(url)
        summaries = [
            await self._client.get_step_at(url, Narrowing(occurrence=occurrence))
            for occurrence in range(1, newest["occurrences"] + 1)
        ]
        return [_value_in(await self._client.follow(summary)) for summary in summaries]


def main() -> int:
    """Do the one step that the handle in the environment is for."""
    try:
        asyncio.run(_work(os.environ[SERVER_VARIABLE], os.environ[HANDLE_VARIABLE]))
    except ClientError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _work(server_url: str, handle: str) -> None:
    async with StepplaneClient(server_url, handle) as client:
        assignment = Assignment(client, await client.worker_prompt())
        output = await _ROLES[assignment.agent](assignment)
        if output.part is not None:
            await client.stage_artifact(PART, output.part)
        await client.submit(output.body, verdict=output.verdict)


async def _scan(assignment: Assignment) -> Output:
    return Output(compact_json(scan_folder(assignment.folder)))


async def _measure(assignment: Assignment) -> Output:
    inventory = await assignment.value("inventory")
    return Output(compact_json(measure_language(assignment.folder, inventory, assignment.directive["language"])))


async def _functions(assignment: Assignment) -> Output:
    return Output(compact_json(longest_functions(assignment.folder, await assignment.value("inventory"))))


async def _report(assignment: Assignment) -> Output:
    opinion = await assignment.value("review") if assignment.has("review") else {"missing_sections": []}
    text = write_report(
        await assignment.value("inventory"),
        await assignment.values("measure"),
        await assignment.value("longest-functions"),
        opinion["missing_sections"],
    ).encode()
    return Output(text, part=text)


async def _review(assignment: Assignment) -> Output:
    opinion = review_report(
        await assignment.value("source-report"),
        await assignment.text(PART),
        await assignment.value("inventory"),
        assignment.directive["languages"],
    )
    return Output(compact_json(opinion), verdict=opinion["verdict"])


_ROLES: dict[str, Callable[[Assignment], Awaitable[Output]]] = {
    "scan": _scan,
    "measure": _measure,
    "functions": _functions,
    "report": _report,
    "review": _review,
}


def _value_in(content: Content) -> Any:
    """Take the value out of what a pointer led to: rendered JSON, or the materialized file around it."""
    return parse_json(read_submission(content.body) if content.content_type == MARKDOWN_TYPE else content.body)


if __name__ == "__main__":
    sys.exit(main())
