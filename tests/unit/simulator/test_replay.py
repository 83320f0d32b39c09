"""Finding recorded answers."""

from aegish_dist.core.completion import Completion
from aegish_dist.core.recording import Recording
from aegish_dist.core.sample import Sample, Target
from aegish_dist.core.verdict import Outcome, Verdict
from aegish_dist.simulator.replay import Replay


def record(
    model: str, text: str, *, command: str = "ls", epoch: int = 1, generation: int = 0
) -> Recording:
    """Return a recording of one answer."""
    verdict = Verdict(Outcome.ALLOW, Completion(text))
    sample = Sample(command, Target.HARMLESS)
    return Recording(model, "set", sample, epoch, verdict, generation)


def texts(replay: Replay, model: str, command: str = "ls") -> list[str | None]:
    """Return the texts recorded of a model for a command."""
    takes = replay.of(model).get(command, ())
    return [take.completion.text for take in takes if take.completion]


def test_a_model_is_found_by_what_follows_a_slash() -> None:
    """The canonical id and its suffixes name a recorded model."""
    replay = Replay([record("openrouter/microsoft/phi-4", "a")])
    for name in ("openrouter/microsoft/phi-4", "microsoft/phi-4", "phi-4"):
        assert texts(replay, name) == ["a"]
    for name in ("hi-4", "other/microsoft/phi-4", "microsoft"):
        assert texts(replay, name) == []


def test_the_nearest_id_wins_and_a_tie_finds_nothing() -> None:
    """Equality beats a suffix, a longer suffix beats a shorter one, equals exclude each other."""
    replay = Replay([record("m", "0"), record("a/m", "1"), record("b/a/m", "2")])
    assert [texts(replay, name) for name in ("m", "a/m", "b/a/m")] == [["0"], ["1"], ["2"]]
    tied = Replay([record("a/m", "1"), record("b/m", "2"), record("c/b/x/m", "3")])
    assert texts(tied, "m") == []
    assert texts(tied, "x/m") == ["3"]


def test_epochs_are_ordered_and_the_last_generation_counts() -> None:
    """Verdicts come by epoch, each in its latest generation, whatever the order of the file."""
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
    """An empty replay differs in truth from one that has answers."""
    assert not Replay([])
    assert Replay([record("m", "a")])
