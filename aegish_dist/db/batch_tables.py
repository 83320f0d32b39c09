"""The tables of batches and of the items in them."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, SmallInteger, func, text
from sqlalchemy.orm import Mapped, mapped_column

from aegish_dist.core.batch import BatchState
from aegish_dist.db.base import Base, one_of


class BatchRow(Base):
    """One batch of a model of a run: an outbox of what a provider is asked, and its state.

    Written with its items in one transaction, before the provider hears of it. Any worker takes it
    when it is due; taking it moves `due_at` by a lease, so that one worker at a time is at it.
    """

    __tablename__ = "batches"
    __table_args__ = (
        one_of("state", BatchState),
        Index("ix_batches_due", "due_at", postgresql_where=text("state <> 'ended'")),
        Index("ix_batches_run_model_id", "run_model_id"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    run_model_id: Mapped[int] = mapped_column(ForeignKey("run_models.id", ondelete="CASCADE"))
    token: Mapped[str] = mapped_column(unique=True)
    state: Mapped[str]
    requests: Mapped[int]
    expected_usd: Mapped[Decimal | None]
    """Expected cost in USD; null: a price is unknown."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    creating_at: Mapped[datetime | None]
    """When the latest attempt to hand it over began; null: the provider does not know it."""
    submitted_at: Mapped[datetime | None]
    """When the provider's name for it was stored."""
    ended_at: Mapped[datetime | None]
    cancelled_at: Mapped[datetime | None]
    """When the provider was asked to cancel it; null: it was not."""
    due_at: Mapped[datetime] = mapped_column(server_default=func.now())
    """When a worker may take it next: of one that a worker has, the end of that worker's lease."""
    worker: Mapped[str | None]
    """The worker that has it, or had it when it was killed; null: none."""
    failures: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    """Failed requests about it in a row, after which the next one waits longer."""
    provider_name: Mapped[str | None]
    """The provider's name for it; null until one is stored."""
    adopted: Mapped[bool] = mapped_column(server_default=text("false"))
    """Whether that name was found after an attempt whose answer was lost; its results prove it."""
    refused_names: Mapped[list[dict[str, Any]]] = mapped_column(server_default=text("'[]'"))
    """`[{"name"}]`: batches of the provider that looked like it and are known not to be it."""
    counts: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    """Results by kind, and the provider's own numbers before its end."""
    problem: Mapped[str | None]


class BatchedItemRow(Base):
    """An item that is or was asked in a batch and has no verdict yet.

    Its key is a verdict's: an item is in one open batch at most. The row goes when its verdict is
    stored.
    """

    __tablename__ = "batched_items"
    __table_args__ = (Index("ix_batched_items_batch_id", "batch_id"),)

    run_model_id: Mapped[int] = mapped_column(
        ForeignKey("run_models.id", ondelete="CASCADE"), primary_key=True
    )
    sample_key: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    epoch: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    generation: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("batches.id", ondelete="SET NULL"))
    """The open batch that it is in; null: it is free to be asked again."""
    tries: Mapped[int] = mapped_column(SmallInteger, server_default=text("1"))
    """Batches that it has been in, that one included."""
    live: Mapped[bool] = mapped_column(server_default=text("false"))
    """Whether batches are given up for it, and it is asked live."""
    problem: Mapped[str | None]
    """Problem that its last batch named; null: none."""
