"""Plain records in columns: what `plain` checks record by record, Arrow checks in one go."""

from collections.abc import Sequence
from typing import Any

from aegish_dist.core.parsing import outcome_of, parse
from aegish_dist.core.recording import Cells
from aegish_dist.recordings.fields import MAX_COUNT, MAX_NUMBER, MAX_TOKENS
from aegish_dist.recordings.plain import (
    AMOUNT,
    PARSER,
    STOP_KINDS,
    NotPlain,
    holds_texts,
    is_worker,
)

Texts = list[str | None]


class PlainBatches:
    """Turns batches of flat records, as our own exports are, into cells."""

    def __init__(self, arrow: Any) -> None:
        """Take pyarrow."""
        self._arrow = arrow

    def cells(self, batch: Any) -> list[Cells | None]:
        """Return the cells of each record, None for one that needs a second look.

        Raises:
            NotPlain: All need it: a column has an unusual type, or something in it is unusual.
        """
        read = _Columns(self._arrow, batch)
        plain = read.plain()
        read.check_flags("answered")
        read.check_flags("simulated")
        read.check_each("metadata", holds_texts)
        read.check_each("worker", is_worker)
        rows = zip(
            plain,
            read.counts("epoch", 1, MAX_COUNT),
            read.counts("generation", 0, MAX_COUNT),
            read.texts("completion"),
            read.texts("stop_reason"),
            read.stop_kinds(),
            read.texts("refusal"),
            read.texts("returned_model"),
            read.texts("upstream"),
            read.texts("request_id"),
            read.counts("input_tokens", 0, MAX_TOKENS),
            read.counts("output_tokens", 0, MAX_TOKENS),
            read.counts("reasoning_tokens", 0, MAX_TOKENS),
            read.counts("cache_read_tokens", 0, MAX_TOKENS),
            read.counts("cache_write_tokens", 0, MAX_TOKENS),
            read.costs("cost_usd"),
            read.numbers("queue_ms"),
            read.numbers("limiter_ms"),
            read.numbers("backoff_ms"),
            read.numbers("latency_ms"),
            read.numbers("total_ms"),
            read.counts("attempts", 0, MAX_COUNT),
            read.texts("worker"),
            read.moments("created_at"),
            strict=True,
        )
        return [_cells(row[1:]) if row[0] else None for row in rows]


def _cells(row: Sequence[Any]) -> Cells:
    epoch, generation, text, *answer = row[:9]
    *spent, attempts, worker, moment = row[9:]
    parsed = parse(text)
    confidence = None if parsed.confidence is None else repr(parsed.confidence)
    return [
        *(epoch or "1", generation or "0", outcome_of(text, parsed), None, text, *answer),
        *(parsed.reason, confidence, PARSER, *spent, attempts or "1", worker, moment),
    ]


class _Columns:
    """The columns of one batch as text."""

    def __init__(self, arrow: Any, batch: Any) -> None:
        self._arrow, self._compute, self._types = arrow, arrow.compute, arrow.types
        self._batch = batch
        self._nothing: Texts = [None] * len(batch)

    def _column(self, name: str) -> Any:
        """Return a column; None when there is nothing in it."""
        if name not in self._batch.schema.names:
            return None
        column = self._batch.column(name)
        return None if column.null_count == len(column) else column

    def _typed(self, name: str, is_type: Any) -> Any:
        column = self._column(name)
        if column is not None and not is_type(column.type):
            raise NotPlain
        return column

    def _text(self, name: str) -> Any:
        return self._typed(name, self._types.is_string)

    def _require(self, holds: Any) -> None:
        if self._compute.all(holds).as_py() is False:
            raise NotPlain

    def plain(self) -> list[bool]:
        """Tell which records have an answer and no trouble before it."""
        compute, texts = self._compute, self._text("completion")
        if texts is None:
            raise NotPlain
        plain = compute.is_valid(texts)
        if (errors := self._column("error_class")) is not None:
            plain = compute.and_(plain, compute.is_null(errors))
        if (failed := self._text("call_errors")) is not None:
            none = compute.fill_null(compute.equal(failed, "[]"), True)
            plain = compute.and_(plain, none)
        if (escaped := self._typed("escaped", self._types.is_list)) is not None:
            lengths = compute.fill_null(compute.list_value_length(escaped), 0)
            plain = compute.and_(plain, compute.equal(lengths, 0))
        flags: list[bool] = plain.to_pylist()
        return flags

    def texts(self, name: str) -> Texts:
        """Any text."""
        column = self._text(name)
        return self._nothing if column is None else _listed(column)

    def stop_kinds(self) -> Texts:
        """The known ones, given wherever there is a reason."""
        reasons, kinds = self._column("stop_reason"), self._text("stop_kind")
        if kinds is None:
            if reasons is not None:
                raise NotPlain
            return self._nothing
        known = self._compute.is_in(kinds, self._arrow.array(sorted(STOP_KINDS)))
        self._require(self._compute.or_(known, self._compute.is_null(kinds)))
        if reasons is not None:
            given = self._compute.or_(self._compute.is_valid(kinds), self._compute.is_null(reasons))
            self._require(given)
        return _listed(kinds)

    def counts(self, name: str, lowest: int, highest: int) -> Texts:
        """Whole numbers within limits."""
        column = self._typed(name, self._types.is_integer)
        if column is None:
            return self._nothing
        ends = self._compute.min_max(column).as_py()
        if not lowest <= ends["min"] <= ends["max"] <= highest:
            raise NotPlain
        return _listed(column.cast(self._arrow.string()))

    def numbers(self, name: str) -> Texts:
        """Times."""
        column = self._typed(name, self._types.is_float64)
        if column is None:
            return self._nothing
        compute = self._compute
        self._require(
            compute.and_(compute.greater_equal(column, 0), compute.less_equal(column, MAX_NUMBER))
        )
        return _listed(column.cast(self._arrow.string()))

    def costs(self, name: str) -> Texts:
        """Amounts in digits."""
        column = self._text(name)
        if column is None:
            return self._nothing
        self._require(self._compute.match_substring_regex(column, f"^{AMOUNT.pattern}$"))
        return _listed(column)

    def moments(self, name: str) -> Texts:
        """Points in time, to the microsecond."""
        column = self._typed(name, self._types.is_timestamp)
        if column is None:
            return self._nothing
        if column.type.tz is None or column.type.unit == "ns":
            raise NotPlain
        moments = column.cast(self._arrow.timestamp(column.type.unit, "UTC"))
        self._compute.min_max(moments).as_py()  # overflows beyond the year 9999, and before 1
        return _listed(moments.cast(self._arrow.string()))

    def check_flags(self, name: str) -> None:
        """Refuse what is neither true nor false."""
        self._typed(name, self._types.is_boolean)

    def check_each(self, name: str, holds: Any) -> None:
        """Check every text that occurs, once."""
        column = self._text(name)
        if column is not None:
            for text in column.unique().to_pylist():
                if text is not None and not holds(text):
                    raise NotPlain


def _listed(column: Any) -> Texts:
    texts: Texts = column.to_pylist()
    return texts
