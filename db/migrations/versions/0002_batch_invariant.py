"""Batch-invariant winners beside the ordinary ones of the same problem, M and protocol."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0001: every stored winner is an ordinary one."""
    with op.batch_alter_table("winner") as batch:
        batch.add_column(
            sa.Column("batch_invariant", sa.Boolean(), nullable=False, server_default=sa.false())
        )
        batch.drop_constraint("uq_winner_device_key_problem_id_m_protocol_predicted", "unique")
        batch.create_unique_constraint(
            "uq_winner_cell",
            ["device_key", "problem_id", "m", "protocol", "predicted", "batch_invariant"],
        )
