"""Opening: which stack a database URL stands for."""

from app.storage.database import Database
from app.storage.postgres.database import PostgresDatabase
from app.storage.sqlite.database import SqliteDatabase
from app.storage.urls import DatabaseUrl


def open_database(url: DatabaseUrl) -> Database:
    """Open a database; it must be migrated before it is used."""
    return SqliteDatabase(url) if url.is_sqlite else PostgresDatabase(url)
