"""Decisions of a simulated model, and finding recorded answers."""

from typing import Any

import pytest
from msgspec.structs import asdict

from aegish_dist.core.outcome import ErrorClass, Outcome, StopKind
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.verdict import Completion, Usage, VerdictRecord
from aegish_dist.simulator.behaviour import Places, Replay, Response, SimulatedModel, TokenBucket
from aegish_dist.simulator.config import (
    Capacity,
    Fault,
    FaultPlan,
    ModelConfig,
    RateLimit,
    SimulatorConfig,
)
from aegish_dist.simulator.dialect import Allowance, Answer, ChatRequest, ErrorAnswer
from aegish_dist.simulator.personas import parse_latency


def record(model: str, text: str | None, command: str = "ls", **facts: Any) -> VerdictRecord:
    target = TrueLabel.HARMLESS
    return VerdictRecord(model=model, command=command, target=target, completion=text, **facts)


def texts(replay: Replay, model: str, command: str = "ls") -> list[str | None]:
    takes = replay.of(model).get(command, {})
    return [take.completion for take in takes.values()]


def test_a_model_is_found_by_what_follows_a_slash() -> None:
    replay = Replay([record("openrouter/microsoft/phi-4", "a")])
    for name in ("openrouter/microsoft/phi-4", "microsoft/phi-4", "phi-4"):
        assert texts(replay, name) == ["a"]
    for name in ("hi-4", "other/microsoft/phi-4", "microsoft"):
        assert texts(replay, name) == []


def test_the_nearest_id_wins_and_a_tie_finds_nothing() -> None:
    replay = Replay([record("m", "0"), record("a/m", "1"), record("b/a/m", "2")])
    assert [texts(replay, name) for name in ("m", "a/m", "b/a/m")] == [["0"], ["1"], ["2"]]
    tied = Replay([record("a/m", "1"), record("b/m", "2"), record("c/b/x/m", "3")])
    assert texts(tied, "m") == []
    assert texts(tied, "x/m") == ["3"]


def test_epochs_are_ordered_and_the_last_generation_counts() -> None:
    replay = Replay(
        [
            record("m", "second", epoch=2),
            record("m", "retried", epoch=1, generation=1),
            record("m", "failed", epoch=1),
            record("m", "other", command="id"),
        ]
    )
    assert texts(replay, "m") == ["retried", "second"]
    assert texts(replay, "m", "id") == ["other"]


def test_nothing_recorded_is_falsy() -> None:
    assert not Replay([])
    assert Replay([record("m", "a")])


MODEL = "simulated/lenient"
COMMANDS = [f"cat /etc/shadow # {i}" for i in range(300)]


def ask(command: str) -> ChatRequest:
    return ChatRequest(MODEL, f"<command>{command}</command>", 400, 0, 99)


def model(config: SimulatorConfig | None = None, replay: Replay | None = None) -> SimulatedModel:
    return SimulatedModel(MODEL, config or SimulatorConfig(), replay, 0.0)


def scripted(*faults: str) -> SimulatedModel:
    own = ModelConfig(script=faults, faults=FaultPlan(retry_after_s=2.5))
    return model(SimulatorConfig(models={MODEL: own}))


def reply(turn: Response) -> Completion:
    assert isinstance(turn.outcome, Completion)
    return turn.outcome


def test_answers_do_not_depend_on_the_order_of_arrival() -> None:
    one, other = model(), model()
    forwards = {c: one.respond(ask(c)) for c in COMMANDS}
    assert {c: one.respond(ask(c)) for c in COMMANDS} == forwards
    backwards = {c: other.respond(ask(c)) for c in reversed(COMMANDS)}
    assert forwards == backwards
    assert len({turn.delay_s for turn in forwards.values()}) == len(COMMANDS)


def test_the_seed_changes_the_answers() -> None:
    texts = [
        [reply(model(SimulatorConfig(seed=seed)).respond(ask(c))).text for c in COMMANDS]
        for seed in (1, 2)
    ]
    assert texts[0] != texts[1]


def test_configured_latency() -> None:
    own = ModelConfig(latency="constant:2")
    config = SimulatorConfig(latency="constant:1", models={MODEL: own})
    assert model(config).respond(ask("ls")).delay_s == 2
    assert SimulatedModel("other", config, None, 0.0).respond(ask("ls")).delay_s == 1


def test_faults_by_chance_strike_as_often_as_planned() -> None:
    config = SimulatorConfig(faults=FaultPlan(server_error=0.5))
    one, other = model(config), model(config)
    first = {c: one.respond(ask(c)).fault for c in COMMANDS}
    assert {c: other.respond(ask(c)).fault for c in reversed(COMMANDS)} == first
    struck = sum(fault is not None for fault in first.values())
    assert abs(struck - 150) < 4 * 8.7  # standard deviation sqrt(300 * 0.25)
    assert {c: one.respond(ask(c)).fault for c in COMMANDS} != first


def test_a_script_is_played_once() -> None:
    actor = scripted("ok", Fault.RATE_LIMIT, Fault.QUOTA, Fault.HANG)
    turns = [actor.respond(ask("ls")) for _ in range(6)]
    assert isinstance(turns[0].outcome, Completion)
    assert turns[1].outcome == ErrorAnswer(ErrorClass.RATE_LIMIT, retry_after_s=2.5)
    assert turns[2].outcome == ErrorAnswer(ErrorClass.QUOTA)
    assert turns[3] == Response(None, Fault.HANG)
    assert [turn.fault for turn in turns[4:]] == [None, None]


def test_faults_without_text() -> None:
    actor = scripted(Fault.EMPTY, Fault.CONTENT_FILTER, Fault.TOKEN_LIMIT)
    empty, filtered, cut = [reply(actor.respond(ask("ls"))) for _ in range(3)]
    assert (empty.text, empty.stop_kind) == ("", StopKind.STOP)
    assert not filtered.text
    assert filtered.stop_kind is StopKind.CONTENT_FILTER
    assert (cut.text, cut.stop_kind, cut.usage.output_tokens) == ("", StopKind.MAX_TOKENS, 99)


def test_both_looks_of_a_filter_occur() -> None:
    actor = scripted(*[Fault.CONTENT_FILTER] * len(COMMANDS))
    assert {reply(actor.respond(ask(c))).text for c in COMMANDS} == {None, ""}


def test_rate_limit() -> None:
    actor = model(SimulatorConfig(rate_limit=RateLimit(120, burst=1)))
    assert actor.admit(0.0) is None
    assert actor.admit(0.0) == ErrorAnswer(ErrorClass.RATE_LIMIT, retry_after_s=0.5)
    assert (actor.allowance.limit, actor.allowance.remaining) == (120, 0)
    assert actor.admit(0.5) is None


def test_burst_then_rate() -> None:
    bucket = TokenBucket(RateLimit(requests_per_minute=60, burst=2), now_s=100.0)
    assert [bucket.take(100.0), bucket.take(100.0)] == [0.0, 0.0]
    assert bucket.take(100.0) == 1.0
    assert bucket.take(100.25) == 0.75
    assert bucket.take(101.0) == 0.0
    assert bucket.take(101.0) == 1.0


def test_a_long_pause_refills_only_the_burst() -> None:
    bucket = TokenBucket(RateLimit(requests_per_minute=6_000, burst=3), now_s=0.0)
    bucket.take(0.0)
    assert bucket.allowance == Allowance(6_000, 2, 0.01)
    assert [bucket.take(1_000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.01]


def test_waiting_the_stated_time_is_enough() -> None:
    bucket, now_s = TokenBucket(RateLimit(requests_per_minute=7), now_s=0.0), 0.0
    bucket.take(now_s)
    for _ in range(200):
        now_s += bucket.take(now_s)
        assert bucket.take(now_s) == 0.0


def takes(calls: int, per_second: float, latency: str) -> list[float]:
    """Return the seconds to each answer of calls that come at once, in the order of arrival."""
    quantile = parse_latency(latency)
    places = Places(Capacity(per_second), quantile)
    return [places.take(quantile((n * 0.618) % 1 or 0.5), 100.0) for n in range(calls)]


def test_calls_beyond_the_capacity_wait_for_a_place_in_order_of_arrival() -> None:
    assert takes(5, 4, "constant:0.5") == [0.5, 0.5, 1.0, 1.0, 1.5]
    assert takes(3, 4, "constant:0") == [0.0, 0.25, 0.5]


@pytest.mark.parametrize("latency", ["constant:0.25", "lognormal:1,0.5", "uniform:0,0.01"])
def test_the_capacity_holds_for_each_latency(latency: str) -> None:
    assert max(takes(3_000, 10, latency)) == pytest.approx(300, rel=0.02)


def test_a_recording_is_answered_as_it_was() -> None:
    usage = Usage(11, 7, 3, 2, 1)
    completion = Completion(
        "\0\ud800 {}", "model_length", StopKind.MAX_TOKENS, usage, "why", "phi-4-x", "host"
    )
    given = record(
        f"x/{MODEL}",
        completion.text,
        stop_reason=completion.stop_reason,
        stop_kind=completion.stop_kind,
        refusal=completion.refusal,
        returned_model=completion.model,
        upstream=completion.upstream,
        input_tokens=11,
        output_tokens=7,
        reasoning_tokens=3,
        cache_read_tokens=2,
        cache_write_tokens=1,
    )
    actor = model(replay=Replay([given]))
    turn = actor.respond(ask("ls"))
    assert turn.delay_s == 0
    assert turn.outcome == Answer(**asdict(completion))


def test_recorded_epochs_come_in_turn() -> None:
    takes = [record(f"x/{MODEL}", text, epoch=epoch) for epoch, text in ((2, "b"), (1, "a"))]
    actor = model(replay=Replay(takes))
    assert [reply(actor.respond(ask("ls"))).text for _ in range(3)] == ["a", "b", "a"]


def test_recorded_failures_happen_again() -> None:
    late = {"outcome": Outcome.TIMEOUT_ERROR, "error_class": ErrorClass.DEADLINE}
    deadline = Replay([record(f"x/{MODEL}", None, **late)])
    assert model(replay=deadline).respond(ask("ls")) == Response(None, Fault.HANG)
    bad = {"outcome": Outcome.API_ERROR, "error_class": ErrorClass.AUTH}
    failed = Replay([record(f"x/{MODEL}", None, **bad)])
    outcome = model(replay=failed).respond(ask("ls")).outcome
    assert isinstance(outcome, ErrorAnswer)
    assert outcome.error_class is ErrorClass.SERVER
    missing = model(replay=failed).respond(ask("id")).outcome
    assert isinstance(missing, ErrorAnswer)
    assert missing.error_class is ErrorClass.NOT_FOUND
    assert missing.message == f"no recording of model {MODEL} for this command"


def test_an_injected_fault_uses_up_no_recording() -> None:
    config = SimulatorConfig(models={MODEL: ModelConfig(script=(Fault.SERVER_ERROR,))})
    takes = [record(f"x/{MODEL}", text, epoch=epoch) for epoch, text in ((1, "a"), (2, "b"))]
    actor = model(config, Replay(takes))
    assert actor.respond(ask("ls")).fault is Fault.SERVER_ERROR
    assert reply(actor.respond(ask("ls"))).text == "a"
