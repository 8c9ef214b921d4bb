"""The commands that read: tasks, runs, steps, step, outline, content, and what stands behind one task or run."""

import sys
from contextlib import aclosing
from typing import Annotated

import typer

from app.cli import output
from app.cli.options import (
    DEFAULT_SERVER,
    AttemptOption,
    CursorOption,
    Format,
    FormatOption,
    JsonOption,
    LimitOption,
    NameArgument,
    OccurrenceOption,
    PathOption,
    RunOption,
    ServerOption,
    TaskArgument,
    TokenFileOption,
)
from app.cli.session import ask, operator_client
from app.client import StepplaneClient
from app.domain.ids import LATEST
from app.domain.outline import MAX_CHILDREN
from app.domain.records import RunStatus
from app.domain.rendering import TEXT_TYPE, Narrowing
from app.domain.values import JsonValue


def add_to(program: typer.Typer) -> None:
    """Give a program these commands."""
    for command in (tasks, runs, steps, step, outline, content):
        program.command()(command)


def tasks(
    *,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """List the tasks, newest first."""
    page = ask(operator_client(server, token_file), lambda client: client.list_tasks(limit=limit, cursor=cursor))
    if as_json:
        return output.show_json(page)
    output.show_table(
        ("TASK", "STATUS", "LATEST RUN", "CREATED", "GOAL"),
        [[task[key] for key in ("id", "status", "latest_run_id", "created_at", "goal")] for task in page["tasks"]],
        empty="There are no tasks.",
    )
    return _say_what_is_left(page)


def runs(
    task: Annotated[str | None, typer.Argument(help="Only the runs of this task.")] = None,
    *,
    status: Annotated[RunStatus | None, typer.Option(help="Only the runs that stand so.")] = None,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """List the runs, newest first."""
    page = ask(
        operator_client(server, token_file),
        lambda client: client.list_runs(task_id=task, status=status, limit=limit, cursor=cursor),
    )
    if as_json:
        return output.show_json(page)
    output.show_table(
        ("RUN", "TASK", "STATUS", "CREATED", "UPDATED", "ERROR"),
        [
            [run[key] for key in ("id", "task_id", "status", "created_at", "updated_at", "error")]
            for run in page["runs"]
        ],
        empty="There are no such runs." if task or status else "There are no runs.",
    )
    return _say_what_is_left(page)


def steps(
    task: TaskArgument,
    run: Annotated[str, typer.Argument(help="A run's id, or latest.")] = LATEST,
    *,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """List what a run put out, by name."""
    listed = ask(operator_client(server, token_file), lambda client: client.list_steps(task, run))
    if as_json:
        return output.show_json(listed)
    return output.show_table(
        ("NAME", "KIND", "OK", "ATTEMPT", "OCCURRENCE", "BYTES", "SOURCE", "SUBMITTED"),
        [
            (
                summary["name"],
                summary["kind"],
                summary["ok"],
                _of(summary["attempt"], summary["attempts"]),
                _of(summary["occurrence"], summary["occurrences"]),
                summary["size_bytes"],
                summary["source"],
                summary["submitted_at"],
            )
            for summary in listed["steps"]
        ],
        empty=f"The run {listed['run_id']} has put nothing out yet. What was dispatched: "
        f"stepplane run show {listed['run_id']}",
    )


def step(
    task: TaskArgument,
    name: NameArgument,
    *,
    run: RunOption = LATEST,
    path: PathOption = None,
    form: FormatOption = None,
    attempt: AttemptOption = None,
    occurrence: OccurrenceOption = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """Show one output of a run: where it is, its digest, how it begins."""
    narrowing = _narrowing(path, form, attempt, occurrence)
    summary = ask(operator_client(server, token_file), lambda client: client.get_step(task, name, run, narrowing))
    if as_json:
        return output.show_json(summary)
    output.show_fields((key, item) for key, item in summary.items() if key != "preview")
    return output.say("\n" + summary["preview"])


def content(
    task: TaskArgument,
    name: NameArgument,
    *,
    run: RunOption = LATEST,
    path: PathOption = None,
    form: FormatOption = None,
    attempt: AttemptOption = None,
    occurrence: OccurrenceOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """Write the bytes of one output to standard output, exactly: a text as itself, unless --format asks otherwise."""
    asked = _narrowing(path, form, attempt, occurrence)

    async def written(client: StepplaneClient) -> None:
        narrowing = asked
        if form is None:
            of_text = asked._replace(format=Format.RAW)
            is_text = (await client.get_step(task, name, run, of_text))["content_type"] == TEXT_TYPE
            narrowing = of_text if is_text else asked
        async with aclosing(client.stream_content(task, name, run, narrowing)) as chunks:
            async for chunk in chunks:
                sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()

    ask(operator_client(server, token_file), written)


def outline(
    task: TaskArgument,
    name: NameArgument,
    *,
    run: RunOption = LATEST,
    path: PathOption = None,
    attempt: AttemptOption = None,
    occurrence: OccurrenceOption = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MAX_CHILDREN, help="How many children at most.")] = None,
    cursor: CursorOption = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """List what is inside one output: types, sizes, and the paths to narrow it by."""
    narrowing = _narrowing(path, None, attempt, occurrence)
    page = ask(
        operator_client(server, token_file),
        lambda client: client.get_outline(task, name, run, narrowing, limit=limit, cursor=cursor),
    )
    if as_json:
        return output.show_json(page)
    output.show_table(
        ("PATH", "TYPE", "BYTES", "CHILDREN", "PREVIEW"),
        [
            (child["path"], child["type"], child["size_bytes"], child["child_count"], child["preview"])
            for child in page["children"]
        ],
        empty=f"Nothing is inside {page['path']}: it is a {page['type']} of {page['size_bytes']} bytes.",
    )
    return _say_what_is_left(page)


def _narrowing(path: str | None, form: Format | None, attempt: int | None, occurrence: int | None) -> Narrowing:
    return Narrowing(path, None if form is None else form.value, attempt, occurrence)


def _of(number: int | None, count: int | None) -> str | None:
    return None if number is None else f"{number} of {count}"


def _say_what_is_left(page: JsonValue) -> None:
    if page["next_cursor"] is not None:
        output.complain(f"there are more: --cursor {page['next_cursor']}")
