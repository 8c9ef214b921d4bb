"""Alembic's entry: runs the scripts on the connection that ``app.storage.migrations`` has opened."""

from alembic import context

from app.storage.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    compare_type=True,
    render_as_batch=connection.dialect.name == "sqlite",  # SQLite alters a table by making it anew
    transaction_per_migration=False,
)
context.run_migrations()
