"""The one definition of what is kept of a verdict."""

from msgspec.inspect import StrType

from aegish_dist.core.verdict import FIELDS, Completion


def test_text_of_a_provider_may_be_any_text() -> None:
    """A limit on it, as a name has, would let one odd answer be refused by the database."""
    kinds = {each.name: each.kind for each in FIELDS if each.part is Completion}
    texts = {name: kind.max_length for name, kind in kinds.items() if isinstance(kind, StrType)}
    assert {"completion", "refusal", "request_id", "upstream"} <= texts.keys()
    assert set(texts.values()) == {None}
