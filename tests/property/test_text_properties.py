"""Text from elsewhere is cleaned where it enters."""

import json
import re

from hypothesis import example, given
from hypothesis import strategies as st

from aegish_dist.core.text import clean_json, clean_text

ANY_TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from("\x00\ud800\udbff\udfff"))


@given(ANY_TEXT)
def test_nothing_but_what_no_store_holds_is_replaced(text: str) -> None:
    assert clean_text(text) == re.sub("[\0\ud800-\udfff]", "\ufffd", text)


@given(ANY_TEXT, st.booleans())
@example("\ud800", False)
def test_json_is_cleaned_keys_included(text: str, as_ascii: bool) -> None:
    encoded = json.dumps({text: [text, 1]}, ensure_ascii=as_ascii)
    for document in (encoded, encoded.encode(errors="surrogatepass")):
        ((key, value),) = clean_json(document, json.loads(document)).items()
        # Two halves that stand side by side are one character once they are decoded.
        assert value == [key, 1]
        assert key == clean_text(json.loads(encoded and json.dumps(text)))
