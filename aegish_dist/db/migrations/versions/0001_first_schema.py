"""The first schema.

Old workers may keep running: there are none.

Revision ID: 0001
Revises: nothing
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("licence", sa.Text(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("malicious", sa.Integer(), nullable=False),
        sa.Column("selectable", sa.Boolean(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("name", "fingerprint", name=op.f("uq_datasets_name_fingerprint")),
    )
    op.create_table(
        "prompts",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("system", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prompts")),
        sa.UniqueConstraint("fingerprint", name=op.f("uq_prompts_fingerprint")),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("in_flight", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("package_version", sa.Text(), nullable=False),
        sa.Column("prompt_id", sa.Integer(), nullable=True),
        sa.Column("parameters", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("epochs", sa.SmallInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("origin IN ('submit', 'import')", name=op.f("ck_runs_origin")),
        sa.CheckConstraint("epochs >= 1", name=op.f("ck_runs_epochs")),
        sa.ForeignKeyConstraint(
            ["prompt_id"], ["prompts.id"], name=op.f("fk_runs_prompt_id_prompts")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_table(
        "samples",
        sa.Column("key", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("sample_id", sa.Text(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("cluster", sa.Text(), nullable=True),
        sa.Column("details", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint("target IN ('malicious', 'harmless')", name=op.f("ck_samples_target")),
        sa.ForeignKeyConstraint(
            ["dataset_id"],
            ["datasets.id"],
            name=op.f("fk_samples_dataset_id_datasets"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_samples")),
        sa.UniqueConstraint(
            "dataset_id", "sample_id", name=op.f("uq_samples_dataset_id_sample_id")
        ),
    )
    op.create_table(
        "run_datasets",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_run_datasets_dataset_id_datasets")
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_run_datasets_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "dataset_id", name=op.f("pk_run_datasets")),
    )
    op.create_table(
        "run_models",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_run_models_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_models")),
        sa.UniqueConstraint("run_id", "model", name=op.f("uq_run_models_run_id_model")),
    )
    op.create_index(
        "ix_run_models_open",
        "run_models",
        ["queue"],
        unique=False,
        postgresql_where=sa.text("open"),
    )
    op.create_table(
        "snapshots",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("scoring", sa.Text(), nullable=False),
        sa.Column("scoring_version", sa.Integer(), nullable=False),
        sa.Column("parser_versions", sa.Text(), nullable=False),
        sa.Column("verdicts", sa.BigInteger(), nullable=False),
        sa.Column("verdicts_hash", sa.Text(), nullable=False),
        sa.Column("code_version", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_snapshots_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshots")),
    )
    op.create_index(op.f("ix_snapshots_run_id"), "snapshots", ["run_id"], unique=False)
    op.create_table(
        "snapshot_metrics",
        sa.Column("snapshot_id", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("stderr", sa.Double(), nullable=True),
        sa.Column("stderr_clustered", sa.Double(), nullable=True),
        sa.Column("ci_low", sa.Double(), nullable=True),
        sa.Column("ci_high", sa.Double(), nullable=True),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("clusters", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["snapshot_id"],
            ["snapshots.id"],
            name=op.f("fk_snapshot_metrics_snapshot_id_snapshots"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "snapshot_id", "model", "metric", "category", name=op.f("pk_snapshot_metrics")
        ),
    )
    op.create_table(
        "verdicts",
        sa.Column("run_model_id", sa.Integer(), nullable=False),
        sa.Column("sample_key", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.SmallInteger(), nullable=False),
        sa.Column("generation", sa.SmallInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("completion", sa.Text(), nullable=True),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("stop_kind", sa.Text(), nullable=True),
        sa.Column("refusal", sa.Text(), nullable=True),
        sa.Column("model_returned", sa.Text(), nullable=True),
        sa.Column("upstream", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("confidence", sa.Double(), nullable=True),
        sa.Column("parser_version", sa.SmallInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cache_read_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost_usd", sa.Numeric(), nullable=True),
        sa.Column("queue_ms", sa.Double(), nullable=True),
        sa.Column("limiter_ms", sa.Double(), nullable=True),
        sa.Column("backoff_ms", sa.Double(), nullable=True),
        sa.Column("service_ms", sa.Double(), nullable=True),
        sa.Column("total_ms", sa.Double(), nullable=True),
        sa.Column("attempts", sa.SmallInteger(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "stored_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.CheckConstraint(
            "error_class IN ('deadline', 'rate_limit', 'quota', 'auth', 'bad_request', 'not_found', 'overloaded', 'server', 'connection', 'malformed')",
            name=op.f("ck_verdicts_error_class"),
        ),
        sa.CheckConstraint(
            "outcome IN ('ALLOW', 'WARN', 'BLOCK', 'TIMEOUT_ERROR', 'FORMAT_ERROR', 'API_ERROR')",
            name=op.f("ck_verdicts_outcome"),
        ),
        sa.CheckConstraint(
            "stop_kind IN ('stop', 'max_tokens', 'content_filter', 'other')",
            name=op.f("ck_verdicts_stop_kind"),
        ),
        sa.CheckConstraint(
            "LEAST(input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens) >= 0",
            name=op.f("ck_verdicts_tokens"),
        ),
        sa.CheckConstraint(
            "LEAST(queue_ms, limiter_ms, backoff_ms, service_ms, total_ms) >= 0",
            name=op.f("ck_verdicts_timing"),
        ),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_verdicts_attempts")),
        sa.CheckConstraint("confidence BETWEEN 0 AND 1", name=op.f("ck_verdicts_confidence")),
        sa.CheckConstraint("cost_usd >= 0", name=op.f("ck_verdicts_cost_usd")),
        sa.CheckConstraint("epoch >= 1", name=op.f("ck_verdicts_epoch")),
        sa.CheckConstraint("generation >= 0", name=op.f("ck_verdicts_generation")),
        sa.ForeignKeyConstraint(
            ["run_model_id"],
            ["run_models.id"],
            name=op.f("fk_verdicts_run_model_id_run_models"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["sample_key"], ["samples.key"], name=op.f("fk_verdicts_sample_key_samples")
        ),
        sa.PrimaryKeyConstraint(
            "run_model_id", "sample_key", "epoch", "generation", name=op.f("pk_verdicts")
        ),
    )
    op.create_index(
        "ix_verdicts_retried",
        "verdicts",
        ["run_model_id"],
        unique=False,
        postgresql_where=sa.text("generation > 0"),
    )
    op.create_table(
        "call_errors",
        sa.Column("run_model_id", sa.Integer(), nullable=False),
        sa.Column("sample_key", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.SmallInteger(), nullable=False),
        sa.Column("generation", sa.SmallInteger(), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=False),
        sa.Column("status", sa.SmallInteger(), nullable=True),
        sa.Column("retry_after_s", sa.Double(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "error_class IN ('deadline', 'rate_limit', 'quota', 'auth', 'bad_request', 'not_found', 'overloaded', 'server', 'connection', 'malformed')",
            name=op.f("ck_call_errors_error_class"),
        ),
        sa.ForeignKeyConstraint(
            ["run_model_id", "sample_key", "epoch", "generation"],
            [
                "verdicts.run_model_id",
                "verdicts.sample_key",
                "verdicts.epoch",
                "verdicts.generation",
            ],
            name="fk_call_errors_verdicts",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "run_model_id",
            "sample_key",
            "epoch",
            "generation",
            "attempt",
            name=op.f("pk_call_errors"),
        ),
    )


def downgrade() -> None:
    op.drop_table("call_errors")
    op.drop_index(
        "ix_verdicts_retried", table_name="verdicts", postgresql_where=sa.text("generation > 0")
    )
    op.drop_table("verdicts")
    op.drop_table("snapshot_metrics")
    op.drop_index(op.f("ix_snapshots_run_id"), table_name="snapshots")
    op.drop_table("snapshots")
    op.drop_index("ix_run_models_open", table_name="run_models", postgresql_where=sa.text("open"))
    op.drop_table("run_models")
    op.drop_table("run_datasets")
    op.drop_table("samples")
    op.drop_table("runs")
    op.drop_table("workers")
    op.drop_table("prompts")
    op.drop_table("datasets")
