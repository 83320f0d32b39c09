"""Shared by all tables: names of constraints, column types, enumerations as checks, locks."""

from datetime import datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any, ClassVar

from sqlalchemy import CheckConstraint, DateTime, Double, MetaData, Numeric, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Declarative base with the naming convention and the type map."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar = {
        str: Text,
        float: Double,
        Decimal: Numeric,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[dict[str, Any]]: JSONB,
    }


class AdvisoryLock(IntEnum):
    """PostgreSQL's advisory locks of this package; no other program takes these numbers."""

    MIGRATING = 0x61656769736801
    CLOSING = 0x61656769736802
    """Held by the one worker that looks for finished models; the others do not wait for it."""
    ADDING = 0x61656769736803
    """Held by a transaction from looking whether a dataset or a prompt is there to adding it."""
    BATCHING = 0x6165676974000000
    """Plus the key of a model of a run: held by the one worker that plans batches of that model."""


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    """Constrain a text column to the values of an enumeration."""
    allowed = ", ".join(f"'{value.value}'" for value in values)
    return CheckConstraint(f"{column} IN ({allowed})", name=column)
