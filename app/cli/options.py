"""The arguments and options that several commands share.

The invariant: no option takes a secret, since everybody on a machine can read the arguments of a process.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_PORT = 7777
DEFAULT_SERVER = f"http://127.0.0.1:{DEFAULT_PORT}"
TOKEN_VARIABLE = "STEPPLANE_OPERATOR_TOKEN"  # noqa: S105  # the name of a variable
HANDLE_VARIABLE = "STEPPLANE_WORKER_HANDLE"


class Format(StrEnum):
    """The forms in which a content can be had."""

    JSON = "json"
    RAW = "raw"
    FILE = "file"


TaskArgument = Annotated[str, typer.Argument(help="A task's id.")]
RunArgument = Annotated[str, typer.Argument(help="A run's id.")]
NameArgument = Annotated[
    str,
    typer.Argument(help="A step's name or alias, an artifact's name, or _ctx for the run's result."),
]

ServerOption = Annotated[
    str, typer.Option("--server", envvar="STEPPLANE_SERVER", metavar="URL", help="The server to talk to.")
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"File that holds the operator token; else {TOKEN_VARIABLE} does, if it is set."),
]
HandleFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help=f"File that holds the worker handle; else {HANDLE_VARIABLE} does.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the server's JSON, on one line.")]

LimitOption = Annotated[int | None, typer.Option(min=1, max=500, help="How many at most.")]
CursorOption = Annotated[str | None, typer.Option(metavar="CURSOR", help="Where the page before this one ended.")]

RunOption = Annotated[str, typer.Option("--run", metavar="RUN", help="A run's id, or latest.")]
PathOption = Annotated[
    str | None, typer.Option("--path", metavar="PATH", help='Narrow the value: $.key, $.list[0], $["any key"].')
]
FormatOption = Annotated[
    Format | None,
    typer.Option("--format", help="json: the value; raw: a string as its own text; file: the materialized file."),
]
AttemptOption = Annotated[int | None, typer.Option(min=1, help="An attempt of the step, from 1 (default: the newest).")]
OccurrenceOption = Annotated[
    int | None, typer.Option(min=1, help="A dispatch of this name, from 1 (default: the newest).")
]
