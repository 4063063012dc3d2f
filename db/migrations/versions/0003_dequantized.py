"""The time of dequantize + matmul beside those of the default and of cuBLAS."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0002: it was not measured for any stored winner."""
    op.add_column("winner", sa.Column("dequantized_us", sa.Double(), nullable=True))
