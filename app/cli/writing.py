"""The commands that write: create a task, start a run, dispatch, submit, finish, delete."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli import output
from app.cli.options import (
    DEFAULT_SERVER,
    HANDLE_VARIABLE,
    HandleFileOption,
    JsonOption,
    RunArgument,
    ServerOption,
    TaskArgument,
    TokenFileOption,
)
from app.cli.session import ask, operator_client, worker_client
from app.domain.errors import InvalidJson
from app.domain.records import ProgressNote
from app.domain.rendering import JSON_TYPE
from app.domain.values import Found, JsonValue, parse_json

YAML_TYPE = "application/yaml"

FileArgument = Annotated[typer.FileBinaryRead, typer.Argument(help="A file; - is standard input.")]


def add_to(program: typer.Typer) -> None:
    """Give a program these commands."""
    task = typer.Typer(help="Create a task, or show one.", rich_markup_mode=None)
    task.command("create")(create_task)
    task.command("show")(show_task)
    program.add_typer(task, name="task")
    run = typer.Typer(help="Start a run, show or delete one.", rich_markup_mode=None)
    run.command("start")(start_run)
    run.command("show")(show_run)
    run.command("delete")(delete_run)
    program.add_typer(run, name="run")
    for command in (dispatch, submit, finish):
        program.command()(command)


def create_task(
    file: FileArgument,
    *,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """Create a task from a JSON or YAML file: goal, blueprint, project_root, work_dir, task_metadata, start."""
    body = file.read()
    media_type = JSON_TYPE if body.lstrip()[:1] == b"{" else YAML_TYPE
    created = ask(operator_client(server, token_file), lambda client: client.create_task(body, media_type))
    if as_json:
        return output.show_json(created)
    output.show_fields((key, created[key]) for key in ("task_id", "run_id", "status"))
    for warning in created["warnings"]:
        output.complain(f"warning: {warning}")
    return output.show_table(
        ("STEP", "NAME", "ALIASES"),
        [(step["step_ref"], step["name"], " ".join(step["aliases"])) for step in created["steps"]],
        empty="The task has no Blueprint: any ref can be dispatched.",
    )


def show_task(
    task: TaskArgument,
    *,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """Show a task and its runs."""
    shown = ask(operator_client(server, token_file), lambda client: client.get_task(task))
    if as_json:
        return output.show_json(shown)
    output.show_fields((key, item) for key, item in shown["task"].items() if key not in {"blueprint", "init_ctx"})
    return output.show_table(
        ("RUN", "STATUS", "CREATED", "UPDATED"),
        [[run[key] for key in ("id", "status", "created_at", "updated_at")] for run in shown["runs"]],
        empty="It has no runs.",
    )


def start_run(
    task: TaskArgument,
    *,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """Start a new run of a task, and print its id."""
    started = ask(operator_client(server, token_file), lambda client: client.start_run(task))
    return output.show_json(started) if as_json else output.say(started["id"])


def show_run(
    run: RunArgument,
    *,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """Show a run and every dispatch of it, those in flight too."""
    shown = ask(operator_client(server, token_file), lambda client: client.get_run(run))
    if as_json:
        return output.show_json(shown)
    output.show_fields((key, shown[key]) for key in ("id", "task_id", "status", "error", "created_at", "updated_at"))
    keys = ("step_id", "name", "status", "attempt", "occurrence", "duration_ms", "started_at")
    heads: tuple[str, ...] = ("STEP", "NAME", "STATUS", "ATTEMPT", "OCCURRENCE", "MS", "STARTED")
    progress = [_progress_of(entry) for entry in shown["step_entries"]]
    rows = [[entry[key] for key in keys] for entry in shown["step_entries"]]
    if any(progress):
        heads, rows = (*heads, "PROGRESS"), [[*row, said] for row, said in zip(rows, progress, strict=True)]
    return output.show_table(heads, rows, empty="Nothing was dispatched in it.")


def _progress_of(entry: dict[str, JsonValue]) -> str | None:
    """Tell what an attempt said last that it is doing, and when; None where it said nothing."""
    if "progress" not in entry:
        return None
    progress = ProgressNote.model_validate(entry["progress"])
    return f"{progress.sentence} ({progress.at})"


def delete_run(
    run: RunArgument,
    *,
    force: Annotated[bool, typer.Option("--force", help="Also a run that is not finished.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """Delete a run and what it put out."""
    ask(operator_client(server, token_file), lambda client: client.delete_run(run, force=force))


def dispatch(
    run: RunArgument,
    ref: Annotated[str, typer.Argument(help="The step to dispatch.")],
    directive: Annotated[str, typer.Argument(help="What its worker is to do.")],
    *,
    directive_json: Annotated[bool, typer.Option("--directive-json", help="The directive is JSON, not text.")] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The worker's system prompt.")] = None,
    ctx: Annotated[
        str | None, typer.Option(metavar="JSON", help="Context for this dispatch alone: a JSON object.")
    ] = None,
    retry_of: Annotated[
        str | None, typer.Option(metavar="STEP", help="The step id that this is a new attempt of.")
    ] = None,
    ttl_seconds: Annotated[int | None, typer.Option(min=1, help="How long the worker handle is good for.")] = None,
    handle_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the worker handle there, and do not print it.")
    ] = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """Dispatch a step of a run. The answer holds the handle that its worker needs, this once."""
    given = _json_of(directive, "the directive") if directive_json else directive
    context = None if ctx is None else _json_of(ctx, "--ctx")
    dispatched = ask(
        operator_client(server, token_file),
        lambda client: client.dispatch(
            run, ref, given, system=system, ctx=context, retry_of=retry_of, ttl_seconds=ttl_seconds
        ),
    )
    if handle_out is not None:
        _keep_secret(handle_out, dispatched.pop("worker_handle"))
    return output.show_json(dispatched) if as_json else output.show_fields(dispatched.items())


def submit(
    file: FileArgument,
    *,
    verdict: Annotated[
        Literal["pass", "blocked", "skip"] | None, typer.Option(help="What the step says of itself (default: pass).")
    ] = None,
    part: Annotated[
        str | None, typer.Option(metavar="NAME", help="Stage the body as a part of this name; it does not submit.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    handle_file: HandleFileOption = None,
) -> None:
    """Submit a file as a step's OUTPUT, being its worker."""
    if part is not None and verdict is not None:
        raise typer.BadParameter("a part has no verdict: give --part or --verdict")
    client, body = worker_client(server, handle_file), file.read()
    if part is None:
        ask(client, lambda opened: opened.submit(body, verdict=verdict))
    else:
        ask(client, lambda opened: opened.stage_artifact(part, body))


def finish(
    run: RunArgument,
    status: Annotated[
        Literal["done", "failed", "interrupted", "cancelled"], typer.Argument(help="How it ended.")
    ] = "done",
    *,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="The run's result.")] = None,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="What went wrong.")] = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    token_file: TokenFileOption = None,
) -> None:
    """End a run, and set its result."""
    found = None if result is None else Found(_json_of(result, "--result"))
    finished = ask(operator_client(server, token_file), lambda client: client.finish(run, status, found, error))
    if as_json:
        return output.show_json(finished)
    return output.show_fields((key, finished[key]) for key in ("id", "task_id", "status", "error", "updated_at"))


def _json_of(text: str, what: str) -> JsonValue:
    try:
        return parse_json(text)
    except InvalidJson as error:
        raise typer.BadParameter(f"{what} is no JSON: {error}") from error


def _keep_secret(path: Path, secret: str) -> None:
    """Write a secret to a file that only its owner reads."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secret + "\n")
    except OSError as error:
        output.say(f"{HANDLE_VARIABLE}={secret}")  # it is told this once: better shown than lost
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}") from error
