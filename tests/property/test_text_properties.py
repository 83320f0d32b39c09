"""The escape that lets PostgreSQL hold any text."""

from hypothesis import given
from hypothesis import strategies as st

from aegish_dist.db.text import decode_text, encode_text

SPECIAL = st.sampled_from("\x00\ud800\udbff\udc00\udfff\ue0000d8a")
ANY_TEXT = st.text(st.characters(exclude_categories=()) | SPECIAL)


@given(ANY_TEXT)
def test_decoding_undoes_encoding(original: str) -> None:
    """Every Python string survives."""
    assert decode_text(encode_text(original)) == original


@given(ANY_TEXT)
def test_encoded_text_is_storable(original: str) -> None:
    """The encoded form is valid UTF-8 without U+0000."""
    assert b"\x00" not in encode_text(original).encode("utf-8")


@given(ANY_TEXT, ANY_TEXT)
def test_encoding_keeps_texts_apart(one: str, other: str) -> None:
    """Different texts are stored differently, and a text is stored as its parts are."""
    assert (encode_text(one) == encode_text(other)) == (one == other)
    assert encode_text(one + other) == encode_text(one) + encode_text(other)


@given(st.text(st.characters(exclude_categories=("Cs", "Co"), exclude_characters="\x00")))
def test_ordinary_text_is_left_alone(original: str) -> None:
    """Text without U+0000, surrogates and private-use characters is stored as it is."""
    assert encode_text(original) == original
