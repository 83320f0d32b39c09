"""The header of a log of Inspect AI: one model, one dataset, and how they were put together."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from aegish_dist.core.model import ModelSpec
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.recordings.inspect_conversation import text_id
from aegish_dist.recordings.inspect_facts import LAYOUT, MARK, PREFIX
from aegish_dist.recordings.inspect_scores import METRICS

LAYOUT_VERSION = 2
MAX_NAME_CHARS = 60
"""Of a part of the name of a file."""


@dataclass(frozen=True, slots=True)
class LogHead:
    """Facts about a log that are known before its first sample."""

    run: Run
    spec: ModelSpec
    dataset: RunDataset
    opinions: Sequence[Opinion]

    @classmethod
    def of(cls, run: Run, model: str, dataset: str, opinions: Sequence[Opinion]) -> Self:
        """Return the head of a log."""
        (spec,) = (each for each in run.models if each.id == model)
        (chosen,) = (each for each in run.datasets if each.name == dataset)
        return cls(run, spec, chosen, opinions)

    @property
    def model(self) -> str:
        """Canonical id of the model."""
        return self.spec.id

    @property
    def planned(self) -> int:
        """Samples times epochs."""
        return self.dataset.samples * self.run.epochs

    @property
    def task_id(self) -> str:
        """Tells the logs of a run apart; the same in every export."""
        return text_id(self.run.run_id, self.model, self.dataset.name)

    @property
    def file_name(self) -> str:
        """Return `TIME_DATASET_MODEL_ID.eval`, as Inspect AI names its logs."""
        parts = (self.run.created_at.isoformat(timespec="seconds"), self.dataset.name, self.model)
        names = [re.sub(r"[^A-Za-z0-9.+-]+", "-", each)[:MAX_NAME_CHARS] for each in parts]
        return "_".join([*names, self.task_id]) + ".eval"

    def start(self, sample_ids: Sequence[str]) -> dict[str, Any]:
        """Return what a log says of itself when it begins.

        Args:
            sample_ids: Of its samples, in their order.
        """
        return {"version": LAYOUT_VERSION, "eval": self._eval(sample_ids), "plan": self._plan()}

    def _eval(self, sample_ids: Sequence[str]) -> dict[str, Any]:
        run, arguments = self.run, self._arguments()
        return {
            "eval_id": text_id("eval", self.task_id),
            "run_id": run.run_id,
            "created": run.created_at.isoformat(),
            "task": self.dataset.name,
            "task_id": self.task_id,
            "task_version": 0,
            "task_attribs": {},
            "task_args": arguments,
            "task_args_passed": arguments,
            "dataset": {
                "name": self.dataset.name,
                "location": self.dataset.source or None,
                "samples": self.dataset.samples,
                "sample_ids": sample_ids,
                "shuffled": False,
            },
            "model": self.model,
            "model_generate_config": self.config,
            "model_args": {},
            "config": {"epochs": run.epochs, "epochs_reducer": ["mean"], "log_samples": True},
            "packages": {"aegish_dist": run.package_version},
            "metadata": self._metadata(),
            "scorers": [_scorer(each) for each in self.opinions],
        }

    def _arguments(self) -> dict[str, Any]:
        run = self.run
        arguments: dict[str, Any] = {"dataset": self.dataset.name}
        if run.prompt is not None:
            arguments |= {
                "prompt": run.prompt.name,
                "prompt_fingerprint": run.prompt.fingerprint,
            }
        if run.parameters is not None:
            arguments["time_limit_s"] = run.parameters.time_limit_s
        return arguments

    @property
    def config(self) -> dict[str, Any]:
        """Parameters of the calls, in Inspect AI's words."""
        parameters = self.run.parameters
        if parameters is None:
            return {}
        config = {
            "max_tokens": parameters.max_output_tokens,
            "temperature": parameters.temperature,
            "seed": parameters.seed,
        }
        return {name: value for name, value in config.items() if value is not None}

    def _metadata(self) -> dict[str, Any]:
        run = self.run
        found = {
            "run_id": run.run_id,
            "run_name": run.name,
            "origin": run.origin,
            "version": run.package_version,
            "prompt_fingerprint": None if run.prompt is None else run.prompt.fingerprint,
            "dataset_fingerprint": self.dataset.fingerprint,
            "dataset_licence": self.dataset.licence or None,
            "simulated": self.spec.simulated,
        }
        given = {PREFIX + name: value for name, value in found.items() if value is not None}
        return {MARK: LAYOUT} | given

    def _plan(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = []
        prompt = self.run.prompt
        if prompt is not None:
            if prompt.system:
                steps.append({"solver": "system_message", "params": {"template": prompt.system}})
            steps.append({"solver": "prompt_template", "params": {"template": prompt.template}})
        steps.append({"solver": "generate", "params": {}})
        return {"name": "plan", "steps": steps, "config": self.config}


def _scorer(opinion: Opinion) -> dict[str, Any]:
    metrics = ["accuracy", "stderr", *METRICS.values()]
    return {
        "name": opinion.rule.name,
        "options": {},
        "metrics": [{"name": metric, "options": {}} for metric in metrics],
        "metadata": {f"{PREFIX}opinion": opinion.provenance},
    }
