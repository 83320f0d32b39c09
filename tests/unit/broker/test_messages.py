"""Messages and names of queues, and the messages that are refused."""

import json
from typing import Any

import pytest

from aegish_dist.broker.messages import (
    decode,
    encode,
    is_pin,
    is_pinned,
    model_of,
    pin_name,
    queue_name,
)
from aegish_dist.core.verdict import Item

ITEM = Item("0abcdefgh", "openai/gpt-x", sample_key=2**63 - 1, epoch=3, generation=1)
ARGUMENTS = ["0abcdefgh", "openai/gpt-x", 2**63 - 1, 3, 1]


def test_a_message_carries_identifiers_only() -> None:
    """Run, model, sample key, epoch and generation, in this order."""
    assert encode(ITEM) == ARGUMENTS


def test_an_item_survives_json() -> None:
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
def test_a_forged_message_is_refused(arguments: Any) -> None:
    """Wrong types, truth values, numbers out of range and missing or further fields."""
    with pytest.raises(ValueError, match="does not name an item"):
        decode(arguments)


def test_every_model_of_a_run_has_a_queue_of_its_own() -> None:
    """The name says whose it is."""
    assert queue_name("openai/gpt-x", "0abcdefgh") == "aegish.openai/gpt-x#0abcdefgh"


@pytest.mark.parametrize(
    "model", ["openai/gpt-x", "openrouter/org/m:free", "lab/c#", "#", "aegish."]
)
def test_the_model_of_a_queue(model: str) -> None:
    """It is read from the name, whatever characters it has."""
    assert model_of(queue_name(model, "0abcdefgh")) == model


@pytest.mark.parametrize("queue", ["aegish-idle", "celery", "other#0abcdefgh", "aegish.m", "", "#"])
def test_queues_of_other_kinds(queue: str) -> None:
    """They have no model."""
    assert model_of(queue) is None


@pytest.mark.parametrize("model", ["openai/gpt-x", "lab/c#"])
def test_pins(model: str) -> None:
    """A pin of a model takes its queues of all runs; the name of a queue takes that queue."""
    queue = queue_name(model, "0abcdefgh")

    assert is_pin(pin_name(model))
    assert is_pinned(queue, {pin_name("other"), pin_name(model)})
    assert is_pinned(queue, {queue})
    assert not is_pinned(queue, {queue_name(model, "0abcdefgj")})
    assert not is_pinned(queue, {pin_name(f"{model}-mini"), pin_name(model[:-1])})
    assert not is_pin("celery")
