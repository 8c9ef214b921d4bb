"""Fixtures of every test: a fresh database, the settings on it, the app with its lifespan, and a client on the app.

Tests that take ``database_url`` run once on SQLite, and once on PostgreSQL where TEST_DATABASE_URL names a server.
"""

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import make_url

from app.config import Settings
from app.main import create_app

POSTGRES = os.environ.get("TEST_DATABASE_URL")
DIALECTS = ["sqlite", "postgresql"] if POSTGRES else ["sqlite"]


def pytest_configure() -> None:
    """Keep the settings of whoever runs the tests out of them, and hold CI to both databases."""
    for variable in [name for name in os.environ if name.startswith("STEPPLANE_")]:
        del os.environ[variable]
    if os.environ.get("CI") and not POSTGRES:
        pytest.exit("CI runs the tests on PostgreSQL too: TEST_DATABASE_URL is not set", returncode=1)


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """The database under test."""
    return str(request.param)


@pytest.fixture
async def database_url(dialect: str, tmp_path: Path) -> AsyncIterator[str]:
    """A database of this test alone: empty, not even migrated."""
    if dialect == "sqlite":
        yield f"sqlite:///{tmp_path / 'stepplane.db'}"
        return
    assert POSTGRES is not None
    server = make_url(POSTGRES).set(drivername="postgresql")
    name = f"stepplane_test_{secrets.token_hex(6)}"
    await _administer(server.render_as_string(hide_password=False), f'CREATE DATABASE "{name}"')
    yield server.set(database=name).render_as_string(hide_password=False)
    await _administer(server.render_as_string(hide_password=False), f'DROP DATABASE "{name}" WITH (FORCE)')


async def _administer(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
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
