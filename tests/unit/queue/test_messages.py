"""What travels through the broker, and what is refused when it comes back."""

import json
from typing import Any

import pytest

from aegish_dist.core.verdict import Item
from aegish_dist.queue.messages import decode, encode, queue_name

ITEM = Item("0abcdefgh", "openai/gpt-x", sample_key=2**63 - 1, epoch=3, generation=1)
ARGUMENTS = ["0abcdefgh", "openai/gpt-x", 2**63 - 1, 3, 1]


def test_a_message_carries_identifiers_only():
    """Run, model, sample key, epoch and generation, in this order."""
    assert encode(ITEM) == ARGUMENTS


def test_an_item_survives_json():
    """Decoding what a broker brings gives the item that was sent."""
    assert decode(json.loads(json.dumps(encode(ITEM)))) == ITEM
    assert decode(("r", "m", 0, 1, 0)) == Item("r", "m", 0)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ARGUMENTS[:4],
        [*ARGUMENTS, 0],
        [*ARGUMENTS, "rm -rf /"],
        [[*ARGUMENTS]],
        "abcde",
        *(
            [*ARGUMENTS[:position], value, *ARGUMENTS[position + 1 :]]
            for position, values in {
                0: (None, 7, ["0abcdefgh"], {"id": "0abcdefgh"}, True),
                1: (None, 7, [], b"openai/gpt-x"),
                2: (None, "1", 1.0, True, False, -1, 2**63, 10**400, float("nan")),
                3: (None, "1", 1.0, True, 0, -1, 2**15),
                4: (None, "0", 0.0, False, True, -1, 2**15),
            }.items()
            for value in values
        ),
    ],
    ids=lambda arguments: str(arguments)[:60],
)
def test_a_forged_message_is_refused(arguments: Any):
    """Wrong types, truth values, numbers out of range and missing or further fields."""
    with pytest.raises(ValueError, match="does not name an item"):
        decode(arguments)


def test_every_model_has_a_queue_of_its_own():
    """The name says whose it is."""
    assert queue_name("openai/gpt-x") == "aegish.openai/gpt-x"
