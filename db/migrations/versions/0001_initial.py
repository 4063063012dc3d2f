"""The first schema: devices, toolchains, problems, configs, runs, trials, winners."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
TIME = sa.DateTime(timezone=True)


def _create_config() -> None:
    op.create_table(
        "config",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=1000), nullable=False),
        sa.Column("family", sa.String(length=40), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_config"),
        sa.UniqueConstraint("key", name="uq_config_key"),
    )


def _create_device() -> None:
    op.create_table(
        "device",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device_key", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("capability", sa.String(length=16), nullable=False),
        sa.Column("num_sms", sa.Integer(), nullable=False),
        sa.Column("smem_optin_bytes", sa.Integer(), nullable=False),
        sa.Column("l2_bytes", sa.BigInteger(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("uuid", sa.String(length=64), nullable=False),
        sa.Column("power_limit_w", sa.Integer(), nullable=False),
        sa.Column("read_gbps", sa.Double(), nullable=False),
        sa.Column("copy_gbps", sa.Double(), nullable=False),
        sa.Column("tensor_tflops", sa.Double(), nullable=False),
        sa.Column("launch_us", sa.Double(), nullable=False),
        sa.Column("measured", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_device"),
        sa.UniqueConstraint("device_key", "uuid", name="uq_device_device_key_uuid"),
    )
    op.create_index("ix_device_capability", "device", ["capability"])


def _create_problem() -> None:
    op.create_table(
        "problem",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=120), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("k", sa.Integer(), nullable=False),
        sa.Column("group_size", sa.Integer(), nullable=False),
        sa.Column("dtype", sa.String(length=8), nullable=False),
        sa.Column("zero", sa.String(length=8), nullable=False),
        sa.Column("bias", sa.Boolean(), nullable=False),
        sa.CheckConstraint("dtype IN ('fp16', 'bf16')", name="ck_problem_dtype"),
        sa.CheckConstraint("zero IN ('sym', 'int')", name="ck_problem_zero"),
        sa.PrimaryKeyConstraint("id", name="pk_problem"),
        sa.UniqueConstraint("key", name="uq_problem_key"),
    )


def _create_ptxtune_meta() -> None:
    meta = op.create_table(
        "ptxtune_meta",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_ptxtune_meta"),
    )
    op.bulk_insert(meta, [{"key": "application", "value": "ptxtune"}])


def _create_toolchain() -> None:
    op.create_table(
        "toolchain",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("driver", sa.String(length=64), nullable=False),
        sa.Column("nvrtc", sa.String(length=64), nullable=False),
        sa.Column("ptxtune", sa.String(length=64), nullable=False),
        sa.Column("torch", sa.String(length=64), nullable=False),
        sa.Column("source_commit", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_toolchain"),
        sa.UniqueConstraint(
            "driver",
            "nvrtc",
            "ptxtune",
            "torch",
            "source_commit",
            name="uq_toolchain_driver_nvrtc_ptxtune_torch_source_commit",
        ),
    )


def _create_run() -> None:
    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("toolchain_id", sa.Integer(), nullable=False),
        sa.Column("settings", JSON, nullable=False),
        sa.Column("owner", sa.String(length=300), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name="fk_run_device_id_device"),
        sa.ForeignKeyConstraint(
            ["toolchain_id"], ["toolchain.id"], name="fk_run_toolchain_id_toolchain"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
    )
    op.create_index("ix_run_device_id", "run", ["device_id"])


def _create_trial() -> None:
    op.create_table(
        "trial",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("config_id", sa.Integer(), nullable=True),
        sa.Column("m", sa.Integer(), nullable=False),
        sa.Column("protocol", sa.String(length=16), nullable=False),
        sa.Column("protocol_version", sa.Integer(), nullable=False),
        sa.Column("layout_version", sa.Integer(), nullable=False),
        sa.Column("contender", sa.String(length=40), nullable=False),
        sa.Column("source_digest", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("time_us", sa.Double(), nullable=True),
        sa.Column("spread", sa.Double(), nullable=True),
        sa.Column("samples_us", JSON, nullable=False),
        sa.Column("rel_err", sa.Double(), nullable=True),
        sa.Column("floor_us", sa.Double(), nullable=True),
        sa.Column("clock_mhz", sa.Integer(), nullable=True),
        sa.Column("evidence", JSON, nullable=True),
        sa.Column("registers", sa.Integer(), nullable=True),
        sa.Column("spill_bytes", sa.Integer(), nullable=True),
        sa.Column("smem_bytes", sa.Integer(), nullable=True),
        sa.Column("compile_ms", sa.Double(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=300), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.CheckConstraint("(ended_at IS NULL) = (status = 'started')", name="ck_trial_ended"),
        sa.CheckConstraint(
            "(time_us IS NOT NULL) = (status IN ('ok', 'predicted'))", name="ck_trial_time"
        ),
        sa.CheckConstraint(
            "contender <> 'ptxtune' OR config_id IS NOT NULL", name="ck_trial_config"
        ),
        sa.CheckConstraint("protocol IN ('plain', 'chained')", name="ck_trial_protocol"),
        sa.CheckConstraint(
            "status IN ('started', 'ok', 'predicted', 'invalid', 'compile_error', "
            "'compile_timeout', 'spilled', 'load_error', 'launch_error', 'crash', 'hang', "
            "'wrong', 'noisy')",
            name="ck_trial_status",
        ),
        sa.ForeignKeyConstraint(["config_id"], ["config.id"], name="fk_trial_config_id_config"),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_trial_problem_id_problem"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_trial_run_id_run"),
        sa.PrimaryKeyConstraint("id", name="pk_trial"),
    )
    op.create_index("ix_trial_problem_id_m_protocol", "trial", ["problem_id", "m", "protocol"])
    op.create_index("ix_trial_run_id", "trial", ["run_id"])
    op.create_index("ix_trial_source_digest", "trial", ["source_digest"])
    op.create_index("ix_trial_status", "trial", ["status"])


def _create_winner() -> None:
    op.create_table(
        "winner",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device_key", sa.String(length=200), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("m", sa.Integer(), nullable=False),
        sa.Column("protocol", sa.String(length=16), nullable=False),
        sa.Column("predicted", sa.Boolean(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("default_us", sa.Double(), nullable=True),
        sa.Column("cublas_us", sa.Double(), nullable=True),
        sa.Column("ties", JSON, nullable=False),
        sa.Column("proof", JSON, nullable=True),
        sa.Column("updated_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["problem_id"], ["problem.id"], name="fk_winner_problem_id_problem"
        ),
        sa.ForeignKeyConstraint(["trial_id"], ["trial.id"], name="fk_winner_trial_id_trial"),
        sa.PrimaryKeyConstraint("id", name="pk_winner"),
        sa.UniqueConstraint(
            "device_key",
            "problem_id",
            "m",
            "protocol",
            "predicted",
            name="uq_winner_device_key_problem_id_m_protocol_predicted",
        ),
    )
    op.create_index("ix_winner_problem_id", "winner", ["problem_id"])


def upgrade() -> None:
    """From nothing to 0001."""
    _create_config()
    _create_device()
    _create_problem()
    _create_ptxtune_meta()
    _create_toolchain()
    _create_run()
    _create_trial()
    _create_winner()
