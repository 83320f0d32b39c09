"""The one definition of what is kept of a verdict."""

import pytest
from msgspec.inspect import StrType

from aegish_dist.core.verdict import Completion
from aegish_dist.core.verdict_record import FIELDS, RecordField

FROM_PROVIDERS = [
    each for each in FIELDS if each.part is Completion and isinstance(each.kind, StrType)
]


@pytest.mark.parametrize("field", FROM_PROVIDERS, ids=lambda field: field.name)
def test_text_of_a_provider_may_be_any_text(field: RecordField) -> None:
    """A limit on it, as a name has, would let one odd answer be refused by the database."""
    assert isinstance(field.kind, StrType)
    assert field.kind.max_length is None


def test_text_of_a_provider_is_found() -> None:
    assert {"completion", "refusal", "request_id", "upstream"} <= {f.name for f in FROM_PROVIDERS}
