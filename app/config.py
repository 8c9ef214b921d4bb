"""Settings: what can be configured, with its defaults and its bounds.

Built by ``create_app``'s default and by the command line alone; nothing reads the environment on import.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from platformdirs import user_data_path
from pydantic import AnyHttpUrl, Field, SecretStr, TypeAdapter, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.domain.limits import POINTERS, TOKEN_CHARS

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})

_OWN_ROOTS = frozenset({"v1", "ui", "metrics", "openapi.json", "favicon.ico"})
"""How our own paths begin: below such a base path, none could be told from one whose proxy has stripped it."""


def default_database_url() -> str:
    """Name the SQLite file in the user's data directory."""
    return f"sqlite:///{user_data_path('stepplane', appauthor=False) / 'stepplane.db'}"


class Settings(BaseSettings):
    """Each field is also the environment variable ``STEPPLANE_<FIELD>``; the command line wins over it."""

    model_config = SettingsConfigDict(env_prefix="STEPPLANE_", frozen=True, env_ignore_empty=True)

    database_url: str = Field(
        default_factory=default_database_url,
        repr=False,  # it may hold a password
        description="SQLite file (`sqlite:///path`) or PostgreSQL (`postgresql://user:password@host/name`).",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=7777, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    base_url: str | None = Field(
        default=None,
        description="Public URL of the server, with its path where a proxy serves it below one; "
        "unset: `content_url`s start at `/`.",
    )
    operator_token: SecretStr | None = Field(
        default=None,
        description="Bearer that every route but health and the workers' needs, of at least 16 characters; "
        "unset: loopback only.",
    )
    login_delay_seconds: int = Field(
        default=10,
        ge=0,
        le=60,
        description="How long the answer to a wrong bearer may wait, where its address has shown many; 0: never.",
    )
    insecure: bool = Field(default=False, description="Listen beyond loopback without an operator token.")
    worker_token_ttl_seconds: int = Field(
        default=1800,
        ge=1,
        le=365 * 86_400,
        description="How long a worker handle is good for, unless its dispatch says.",
    )
    max_output_bytes: int = Field(
        default=2 * 1024 * 1024, ge=1024, le=1024**3, description="Largest body that a worker may submit, in bytes."
    )
    max_pointers: int = Field(
        default=POINTERS.value,
        ge=1,
        le=100_000,
        description="How many earlier outputs a prompt points at: those submitted last; the others are counted.",
    )
    projection_roots: list[Path] | None = Field(
        default=None,
        description="JSON list of directories under which files may be written or read; "
        "unset: any while listening on loopback, none otherwise.",
    )
    keep_alive_seconds: int = Field(
        default=75, ge=1, le=3600, description="How long a connection may be silent between two requests."
    )
    file_mode: str = Field(
        default="0600",
        pattern="^0?6[046][046]$",
        description="Who may read and write the files of outputs, in octal; "
        "who may read them may enter their directories.",
    )
    retention_days: float | None = Field(
        default=None,
        gt=0,
        le=36_500,
        description="Remove runs that ended this many days ago, in the background; unset: never.",
    )
    retention_keep_last: int = Field(
        default=0, ge=0, le=2**31 - 1, description="How many of the newest runs of each task stay, whatever their age."
    )
    stale_run_after_seconds: int = Field(
        default=86_400,
        ge=0,
        le=3_650 * 86_400,
        description="End runs as interrupted that nothing was written to for this long; 0: never.",
    )
    log_format: Literal["console", "json"] = Field(
        default="console", description="`console` for people, `json` for machines."
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Least level that is logged.")
    ] = "info"

    @field_validator("base_url")
    @classmethod
    def _base_url_is_http(cls, given: str | None) -> str | None:
        if given is None:
            return given
        url = TypeAdapter(AnyHttpUrl).validate_python(given)
        if url.query is not None or url.fragment is not None:
            message = "is the URL of the server alone: it has no ? and no #"
            raise ValueError(message)
        if (url.path or "/").split("/")[1] in _OWN_ROOTS:
            message = f"may not begin with a path of the server's own: {', '.join(sorted(_OWN_ROOTS))}"
            raise ValueError(message)
        return str(url)  # encoded: it is written into JSON and headers

    @field_validator("operator_token")
    @classmethod
    def _token_is_a_bearer(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None and len(given.get_secret_value()) < TOKEN_CHARS.value:
            message = f"must be at least {TOKEN_CHARS.value} characters long: openssl rand -hex 32 makes a good one"
            raise ValueError(message)
        if given is not None and not all("!" <= char <= "~" for char in given.get_secret_value()):
            message = "must be printable ASCII without spaces, since it travels in a header"
            raise ValueError(message)
        return given

    @model_validator(mode="after")
    def _roots_are_absolute(self) -> Self:
        for root in self.projection_roots or ():
            if not root.is_absolute():
                message = f"projection_roots: {str(root)!r} is not an absolute path"
                raise ValueError(message)
        return self

    @property
    def file_mode_bits(self) -> int:
        """The mode of files as a number."""
        return int(self.file_mode, 8)

    @property
    def listens_on_loopback(self) -> bool:
        """Tell whether only this machine can reach the server."""
        return self.host in LOOPBACK_HOSTS

    @property
    def allowed_roots(self) -> tuple[Path, ...] | None:
        """The directories under which files may be written or read; None allows any."""
        if self.projection_roots is not None:
            return tuple(self.projection_roots)
        return None if self.listens_on_loopback else ()
