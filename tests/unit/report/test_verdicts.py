"""`verdicts show` of one verdict, by the fields of the record."""

import pytest
from msgspec.structs import replace

from aegish_dist.core.outcome import ScoredAnswer
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.verdict import STORED, RecordField
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.verdict_query import JudgedVerdict, ShownSample
from aegish_dist.report.verdicts import detail_lines
from tests.recorded import value_of

SAMPLE = Sample("ls", TrueLabel.HARMLESS)
BARE = JudgedVerdict(
    run_id="0run",
    model="m",
    sample_id=SAMPLE.sample_id,
    command=SAMPLE.command,
    target=SAMPLE.target,
    label=ScoredAnswer.TIMEOUT_ERROR,
    correct=False,
    completion=None,
)
SHOWN = [field for field in STORED if field.name != "outcome"]  # which is shown by its label


def lines_about(verdict: JudgedVerdict) -> list[str]:
    shown = ShownSample("0run", "commands", SAMPLE.sample_id, SAMPLE, (verdict,))
    return list(detail_lines(shown, Opinion(), full=True))


@pytest.mark.parametrize("field", SHOWN, ids=lambda field: field.name)
def test_every_stored_field_is_shown(field: RecordField) -> None:
    verdict = replace(BARE, **{field.name: value_of(field)})
    assert lines_about(verdict) != lines_about(BARE)
