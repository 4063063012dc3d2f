"""Alembic environment: runs the steps on the connection that db.migrate passes in."""

from __future__ import annotations

from alembic import context

from db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=context.config.get_main_option("version_table"),
    render_as_batch=True,  # SQLite cannot alter most things in place
    transactional_ddl=True,  # ours begins the transaction itself, also on SQLite
)
with context.begin_transaction():
    context.run_migrations()
