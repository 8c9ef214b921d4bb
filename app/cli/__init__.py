"""The command ``stepplane``: serve, try, read and write from a shell.

The invariant: whatever goes wrong is one line on standard error and an exit status, never a traceback: 1 it did not
work, 2 the command line or a setting is wrong, 3 no server answers, 130 Ctrl-C.
"""

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from app import __version__
from app.cli import blueprints, reading, serving, writing
from app.cli.options import HANDLE_VARIABLE, TOKEN_VARIABLE
from app.cli.output import complain, say
from app.client import ClientError, ServerError, Unreachable

FAILED, MISUSED, UNREACHABLE, INTERRUPTED = 1, 2, 3, 130

program = typer.Typer(
    help="A debug plane for what the steps of a pipeline put out.",
    epilog="Exit status: 1 it did not work, 2 the command line or a setting is wrong, 3 no server answers.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help is the same in a pipe, a narrow terminal and a test
)
serving.add_to(program)
reading.add_to(program)
writing.add_to(program)
blueprints.add_to(program)


def _say_version(asked: bool) -> None:  # noqa: FBT001  # typer calls it with the option's value
    if asked:
        say(f"stepplane {__version__}")
        raise typer.Exit


@program.callback(invoke_without_command=True)
def _without_a_command(
    context: typer.Context,
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(MISUSED)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever called: what would be written there is wanted by nobody
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # where a character cannot be shown, the rest still is
    sys.exit(_status(arguments))


def _status(arguments: Sequence[str] | None) -> int:
    try:
        returned = program(args=arguments, prog_name="stepplane", standalone_mode=False)
    except (TyperException, ClientError, UnicodeEncodeError, OSError) as error:
        return _told(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    return returned if isinstance(returned, int) else 0


def _told(error: Exception) -> int:
    """Say what went wrong; return its exit status."""
    match error:
        case TyperException():
            context: typer.Context | None = getattr(error, "ctx", None)
            hint = f" (try '{context.command_path} --help')" if context else ""
            complain(error.format_message() + hint)
            return error.exit_code
        case UnicodeEncodeError():
            complain("an argument is not valid UTF-8")
            return MISUSED
        case OSError():  # standard output: a full disk, for instance
            complain(error.strerror or "the output could not be written")
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python tries once more at its end
            return FAILED
        case ServerError(status=401):
            secrets = f"{TOKEN_VARIABLE} or --token-file, a worker's is {HANDLE_VARIABLE} or --handle-file"
            complain(f"{error} (the operator's bearer is {secrets})")
            return FAILED
        case _:
            complain(str(error))
            return UNREACHABLE if isinstance(error, Unreachable) else FAILED
