"""Fixtures of every test: a fresh database, the settings on it, the app with its lifespan, and a client on the app.

Tests that take ``database_url`` run once on SQLite, and once on PostgreSQL where TEST_DATABASE_URL names a server.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest
import structlog
from fastapi import FastAPI
from sqlalchemy import make_url

from app.config import Settings
from app.main import create_app
from app.running import migrate
from app.storage.urls import parse_database_url

POSTGRES = os.environ.get("TEST_DATABASE_URL")
DIALECTS = ["sqlite", "postgresql"] if POSTGRES else ["sqlite"]


def pytest_configure() -> None:
    """Keep the settings of whoever runs the tests out of them, and hold CI to both databases."""
    for variable in [name for name in os.environ if name.startswith("STEPPLANE_")]:
        del os.environ[variable]
    os.environ["STEPPLANE_LOGIN_DELAY_SECONDS"] = "0"  # hundreds of tests show wrong bearers
    # A line for each request of each test costs as much as the request, and would bury what a failing test shows.
    structlog.configure(
        processors=[
            _drop_what_is_usual,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["level", "event"]),
        ]
    )
    if os.environ.get("CI") and not POSTGRES:
        pytest.exit("CI runs the tests on PostgreSQL too: TEST_DATABASE_URL is not set", returncode=1)


def _drop_what_is_usual(_: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if method in {"debug", "info"}:
        raise structlog.DropEvent
    return event


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """The database under test."""
    return str(request.param)


@pytest.fixture
async def empty_database_url(dialect: str, tmp_path: Path) -> AsyncIterator[str]:
    """A database of this test alone: empty, not even migrated."""
    if dialect == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    async with _postgres_database() as url:
        yield url


@pytest.fixture
async def database_url(dialect: str, tmp_path: Path, template_url: str) -> AsyncIterator[str]:
    """A database of this test alone, migrated: a copy of one that was migrated once."""
    if dialect == "sqlite":
        path = tmp_path / "stepplane.db"
        shutil.copy(parse_database_url(template_url).path, path)
        yield f"sqlite:///{path}"
        return
    async with _postgres_database(template=make_url(template_url).database) as url:
        yield url


@pytest.fixture
def template_url(dialect: str, templates: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The database that those of the tests are copied from."""
    if dialect not in templates:
        if dialect == "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('template') / 'template.db'}"
        else:
            assert POSTGRES is not None
            name = f"stepplane_template_{secrets.token_hex(6)}"
            asyncio.run(_administer(f'CREATE DATABASE "{name}"'))
            url = make_url(POSTGRES).set(drivername="postgresql", database=name).render_as_string(hide_password=False)
        migrate(Settings(database_url=url))
        templates[dialect] = url
    return templates[dialect]


@pytest.fixture(scope="session")
def templates() -> Iterator[dict[str, str]]:
    """The template of each dialect that was needed; dropped when the tests have ended."""
    made: dict[str, str] = {}
    yield made
    if "postgresql" in made:
        asyncio.run(_administer(f'DROP DATABASE "{make_url(made["postgresql"]).database}" WITH (FORCE)'))


@asynccontextmanager
async def _postgres_database(template: str | None = None) -> AsyncIterator[str]:
    assert POSTGRES is not None
    name = f"stepplane_test_{secrets.token_hex(6)}"
    copied = "" if template is None else f' TEMPLATE "{template}"'
    await _administer(f'CREATE DATABASE "{name}"{copied}')
    yield make_url(POSTGRES).set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    await _administer(f'DROP DATABASE "{name}" WITH (FORCE)')


async def _administer(statement: str) -> None:
    assert POSTGRES is not None
    server = make_url(POSTGRES).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Settings of a server on the database of this test."""
    return Settings(database_url=database_url)


@pytest.fixture
async def app(settings: Settings) -> AsyncIterator[FastAPI]:
    """The application, started: its database is migrated."""
    application = create_app(settings)
    async with application.router.lifespan_context(application):
        yield application


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client on the application itself."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        yield http


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    """A directory that workers work in."""
    directory = tmp_path / "work"
    directory.mkdir()
    return directory
