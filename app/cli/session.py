"""The client that a command talks through, and the secrets that it has from the environment or a file."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import typer

from app.cli.options import HANDLE_VARIABLE, TOKEN_VARIABLE
from app.client import ClientError, StepplaneClient

Answer = TypeVar("Answer")


def ask(client: StepplaneClient, call: Callable[[StepplaneClient], Awaitable[Answer]]) -> Answer:
    """Make one call, or several, with a client that is closed afterwards."""

    async def opened() -> Answer:
        async with client:
            return await call(client)

    return asyncio.run(opened())


def operator_client(server: str, token_file: Path | None) -> StepplaneClient:
    """Make a client that has the operator token, where there is one."""
    return _client(server, operator_token(token_file))


def operator_token(token_file: Path | None = None) -> str | None:
    """Find the operator token; None where none is configured."""
    return os.environ.get(TOKEN_VARIABLE) or None if token_file is None else _secret_in(token_file)


def worker_client(server: str, handle_file: Path | None) -> StepplaneClient:
    """Make a client that is one step's worker."""
    handle = os.environ.get(HANDLE_VARIABLE) if handle_file is None else _secret_in(handle_file)
    if not handle:
        raise typer.BadParameter(f"no worker handle: set {HANDLE_VARIABLE}, or name a file with --handle-file")
    return _client(server, handle)


def _client(server: str, bearer: str | None) -> StepplaneClient:
    try:
        return StepplaneClient(server, bearer)
    except ClientError as error:  # nothing was sent: the URL or the bearer cannot be
        raise typer.BadParameter(str(error)) from error


def _secret_in(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:  # not chained: it would carry the file's bytes
        raise typer.BadParameter(f"{path} cannot be read: it is not ASCII") from None
