"""Alembic's script folder; run by db.migrate alone."""
