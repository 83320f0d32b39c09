"""Recorded verdicts of real models, which the simulator answers with."""

from collections.abc import Iterable, Mapping

from aegish_dist.core.recording import Recording
from aegish_dist.core.verdict import Verdict

VerdictsByCommand = Mapping[str, tuple[Verdict, ...]]
"""A model's recorded verdicts by command, in the order of their epochs."""


class Replay:
    """Recorded verdicts by model and command; of several generations the last one counts."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        latest: dict[tuple[str, str, int], Recording] = {}
        for recording in recordings:
            key = (recording.model, recording.sample.command, recording.epoch)
            known = latest.get(key)
            if known is None or recording.generation >= known.generation:
                latest[key] = recording
        self._models: dict[str, dict[str, tuple[Verdict, ...]]] = {}
        for (model, command, _), recording in sorted(latest.items(), key=lambda entry: entry[0][2]):
            verdicts = self._models.setdefault(model, {})
            verdicts[command] = (*verdicts.get(command, ()), recording.verdict)

    def __bool__(self) -> bool:
        return bool(self._models)

    def of(self, model: str) -> VerdictsByCommand:
        """Return what was recorded of a model.

        Args:
            model: A canonical id, or what is left of one after a slash; the longest match wins.

        Returns:
            An empty mapping when no recorded model fits, or several fit equally well.
        """
        if model in self._models:
            return self._models[model]
        matches = [known for known in self._models if known.endswith(f"/{model}")]
        nearest = min((known.count("/") for known in matches), default=0)
        best = [known for known in matches if known.count("/") == nearest]
        return self._models[best[0]] if len(best) == 1 else {}
