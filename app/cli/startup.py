"""What ``serve`` and the commands on its database need: settings, and failures in one line.

The invariant: only the commands that run a server import this module, since the whole server comes with it.
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError
from typer.exceptions import TyperException

from app import running
from app.cli import output
from app.cli.variables import unknown_variables
from app.config import Settings
from app.domain.errors import StepplaneError
from app.main import StartupError


def serve(**given: Any) -> None:
    """Serve with the settings given, over those of the environment."""
    for warning in unknown_variables(os.environ):
        output.complain(warning)
    settings = _settings(given)
    try:
        running.serve(settings)
    except StartupError as error:
        raise TyperException(str(error)) from error


def migrate(**given: Any) -> str:
    """Migrate the database of the settings given, over those of the environment; say what was done."""
    settings = _settings(given)
    try:
        return running.migrate(settings)
    except StartupError as error:
        raise TyperException(str(error)) from error


def prune(older_than: timedelta, *, keep_last: int, dry_run: bool, **given: Any) -> str:
    """Remove runs that ended long ago from the database of the settings given; say what was removed."""
    settings = _settings(given)
    try:
        return running.prune(settings, older_than, keep_last=keep_last, dry_run=dry_run)
    except (StartupError, StepplaneError) as error:
        raise TyperException(str(error)) from error


def backup(target: Path, **given: Any) -> str:
    """Copy the database of the settings given to a file; say what was copied."""
    settings = _settings(given)
    try:
        return running.backup(settings, target)
    except StartupError as error:
        raise TyperException(str(error)) from error


def vacuum(**given: Any) -> str:
    """Write the database file of the settings given anew; say what that gave back."""
    settings = _settings(given)
    try:
        return running.vacuum(settings)
    except StartupError as error:
        raise TyperException(str(error)) from error


class _SettingError(TyperException):
    """A setting that cannot be; from the command line or the environment."""

    exit_code = 2


def _settings(given: dict[str, Any]) -> Settings:
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        reason = fault["msg"].removeprefix("Value error, ")
        name = str(fault["loc"][0]) if fault["loc"] else ""
        raise _SettingError(f"{_named(name, given)}: {reason}" if name else reason) from None
    except SettingsError as error:  # a list in the environment that is no JSON
        named = (name for name in Settings.model_fields if f'"{name}"' in str(error))
        raise _SettingError(f"{_named(next(named, 'setting'), given)}: it is not valid JSON") from None


def _named(name: str, given: dict[str, Any]) -> str:
    """Name a setting as its giver knows it: as an option, or as a variable."""
    if given.get(name) is not None:
        return "--" + name.removesuffix("s" if name == "projection_roots" else "").replace("_", "-")
    return f"STEPPLANE_{name.upper()}"
