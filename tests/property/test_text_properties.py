"""Text from elsewhere is cleaned where it enters."""

import json

from hypothesis import given
from hypothesis import strategies as st

from aegish_dist.core.text import clean_json, clean_text

ANY_TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from("\x00\ud800\udbff\udfff"))


@given(ANY_TEXT)
def test_cleaned_text_is_storable(text: str) -> None:
    clean = clean_text(text)
    assert b"\x00" not in clean.encode()
    assert len(clean) == len(text)
    assert clean_text(clean) == clean


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")))
def test_storable_text_is_left_alone(text: str) -> None:
    assert clean_text(text) == text


@given(ANY_TEXT, st.booleans())
def test_json_is_cleaned_keys_included(text: str, as_ascii: bool) -> None:
    encoded = json.dumps({text: [text, 1]}, ensure_ascii=as_ascii)
    for document in (encoded, encoded.encode(errors="surrogatepass")):
        ((key, value),) = clean_json(document, json.loads(document)).items()
        # Two halves that stand side by side are one character once they are decoded.
        assert value == [key, 1]
        assert key == clean_text(json.loads(encoded and json.dumps(text)))
