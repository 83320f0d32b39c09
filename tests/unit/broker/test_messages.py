"""Messages and names of queues, and the messages that are refused."""

import json
from typing import Any

import pytest

from aegish_dist.broker.messages import (
    AGGREGATE,
    AGGREGATION_QUEUE,
    EVALUATE,
    decode,
    decode_aggregation,
    encode,
    is_pin,
    is_pinned,
    model_of,
    pin_name,
    queue_name,
    task_of,
)
from aegish_dist.core.verdict import Item
from tests.recorded import lines_of

ITEM = Item("0abcdefgh", "openai/gpt-x", sample_key=2**63 - 1, epoch=3, generation=1)
ARGUMENTS = ["0abcdefgh", "openai/gpt-x", 2**63 - 1, 3, 1]


def test_a_message_carries_identifiers_only() -> None:
    assert encode(ITEM) == ARGUMENTS
    assert decode(json.loads(json.dumps(ARGUMENTS))) == ITEM
    assert decode(("r", "m", 0, 1, 0)) == Item("r", "m", 0)


@pytest.mark.parametrize(
    "arguments",
    [*lines_of("forged_arguments.jsonl"), ["0abcdefgh", b"openai/gpt-x", *ARGUMENTS[2:]]],
    ids=lambda arguments: str(arguments)[:60],
)
def test_a_forged_message_is_refused(arguments: Any) -> None:
    with pytest.raises(ValueError, match="does not name an item"):
        decode(arguments)


@pytest.mark.parametrize("model", ["openrouter/org/m:free", "lab/c#", "#", "aegish."])
def test_every_model_of_a_run_has_a_queue_of_its_own(model: str) -> None:
    queue = queue_name(model, "0abcdefgh")
    assert (queue, model_of(queue)) == (f"aegish.{model}#0abcdefgh", model)


@pytest.mark.parametrize(
    "queue", ["aegish-idle", AGGREGATION_QUEUE, "celery", "other#0abcdefgh", "aegish.m", "", "#"]
)
def test_queues_of_other_kinds(queue: str) -> None:
    assert model_of(queue) is None


@pytest.mark.parametrize("model", ["openai/gpt-x", "lab/c#terse"])
def test_pins(model: str) -> None:
    queue = queue_name(model, "0abcdefgh")
    assert is_pin(pin_name(model))
    assert is_pinned(queue, {pin_name("other"), pin_name(model)})
    assert is_pinned(queue, {queue})
    assert not is_pinned(queue, {queue_name(model, "0abcdefgj")})
    assert not is_pinned(queue, {pin_name(f"{model}-mini"), pin_name(model[:-1])})
    assert not is_pin("celery")


def test_a_model_stands_for_the_queues_of_its_arms() -> None:
    queue = queue_name("lab/c#low+terse", "0abcdefgh")
    assert is_pinned(queue, {pin_name("lab/c")})
    assert not is_pinned(queue, {pin_name("lab/c#low")})


def test_the_queue_of_aggregations() -> None:
    assert task_of(AGGREGATION_QUEUE) == AGGREGATE
    assert task_of(queue_name("openai/gpt-x", "0abcdefgh")) == EVALUATE
    assert is_pin(AGGREGATION_QUEUE)
    assert not is_pinned(queue_name("openai/gpt-x", "0abcdefgh"), {AGGREGATION_QUEUE})


@pytest.mark.parametrize(
    "arguments",
    [[], [0], [-1], [2**31], [True], [1.0], ["1"], [None], [[1]], [1, 2], "1", {"1": 1}],
)
def test_a_forged_aggregation_is_refused(arguments: Any) -> None:
    assert decode_aggregation([2**31 - 1]) == 2**31 - 1
    with pytest.raises(ValueError, match="does not name an aggregation"):
        decode_aggregation(arguments)
