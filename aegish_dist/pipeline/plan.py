"""Planning a run: from what a user asks for to what is asked of whom, and at what price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.printable import counted
from aegish_dist.core.prompt import Prompt
from aegish_dist.core.sample import Dataset
from aegish_dist.datasets.bundled import bundled_names
from aegish_dist.errors import ConfigError
from aegish_dist.models import RunEstimate, estimate
from aegish_dist.pipeline.batch_prices import (
    at_batch_price,
    batch_line,
    require_batches,
    takes_batches,
)
from aegish_dist.pipeline.datasets import choose_dataset, narrow, require_categories
from aegish_dist.pipeline.runs import checked_name, require_free
from aegish_dist.prompts.loading import load_prompt

if TYPE_CHECKING:
    from aegish_dist.pipeline.workspace import Workspace

ASSUMED_CALL_S = 2.0
"""Seconds that a call is taken to last, for the least duration of a run."""


@dataclass(frozen=True, slots=True)
class Request:
    """A run in the words of a user: nothing of it is looked up yet."""

    models: tuple[str, ...]
    parameters: CallParameters
    """Sent with each call, and the caps on the cost."""
    datasets: tuple[str, ...] = ()
    """Names, `NAME@RUN` for those of a run; the bundled ones when empty."""
    categories: tuple[str, ...] = ()
    """Categories of malicious samples to keep; all when empty."""
    limit: int | None = None
    """Samples of each dataset at most; None for all."""
    epochs: int = 1
    """Times that every sample is asked, at least 1."""
    prompt: str = "guard"
    """Name of a bundled prompt, or a file."""
    cot: bool = False
    """Whether the prompt asks for step-by-step reasoning first."""
    name: str = ""
    """Name of the run; may be empty."""
    keys_on_workers: bool = False
    """Whether the API keys are elsewhere, so that a missing one stops nothing here."""
    preflight: bool = True
    """Whether each model is asked one harmless question beforehand."""
    dry_run: bool = False
    wait: bool = False
    """Whether to wait for workers elsewhere to end the run."""
    batch_after_s: float | None = None
    """Seconds after which all that is not answered yet is asked in batches, at their price; 0 for
    all of it, None for nothing."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A run before anything is stored or spent, complete and checked."""

    models: tuple[ModelSpec, ...]
    datasets: tuple[Dataset, ...]
    prompt: Prompt
    parameters: CallParameters
    epochs: int
    """Times that every sample is asked, at least 1."""
    name: str = ""
    """Name of the run; may be empty."""
    batch_after_s: float | None = None
    """Seconds after which it is asked in batches; None: never."""

    @property
    def samples(self) -> int:
        """Samples over all datasets."""
        return sum(len(dataset.samples) for dataset in self.datasets)

    @property
    def tasks(self) -> int:
        """Items that will be enqueued."""
        return len(self.models) * self.epochs * self.samples

    def estimate(self) -> RunEstimate:
        """Return the expected tokens and cost; for a while live, then in batches: at most."""
        return self._estimate(in_batches=self.batch_after_s == 0)

    def batch_estimate(self) -> RunEstimate | None:
        """Return the same if all that can be is asked in batches; None of a run that is not."""
        return None if self.batch_after_s is None else self._estimate(in_batches=True)

    def batch_note(self) -> str | None:
        """Return a line about its batches and what they save; None without any."""
        if self.batch_after_s is None:
            return None
        live, batched = (self._estimate(in_batches=each) for each in (False, True))
        return batch_line(self.models, self.batch_after_s, live, batched)

    def _estimate(self, *, in_batches: bool) -> RunEstimate:
        lengths = [len(sample.command) for d in self.datasets for sample in d.samples]
        models = at_batch_price(self.models) if in_batches else self.models
        return estimate(models, self.prompt, lengths, self.epochs)


def plan_run(workspace: Workspace, request: Request) -> Submission:
    """Look up all that a request names.

    Raises:
        ConfigError: The name is taken, or none; or a model that is to be asked in batches cannot.
        DatasetError: A dataset or a category is unknown, nothing is left of one, or the prompt
            cannot be read.
    """
    name = checked_name(request.name)
    require_free(workspace.engine, name)
    models = workspace.catalog.resolve(request.models, workspace.environ)
    if request.batch_after_s is not None:
        require_batches(models)
    prompt = load_prompt(request.prompt, cot=request.cot)
    names = dict.fromkeys(request.datasets or bundled_names())
    chosen = [choose_dataset(workspace.engine, name) for name in names]
    require_categories(chosen, request.categories)
    datasets = tuple(narrow(each, request.categories, request.limit) for each in chosen)
    return Submission(
        models,
        datasets,
        prompt,
        request.parameters,
        request.epochs,
        name,
        request.batch_after_s,
    )


def require_prices(estimated: RunEstimate, parameters: CallParameters) -> None:
    """Refuse a cap on the cost of models whose price is unknown."""
    capped = parameters.max_cost_usd or parameters.max_cost_per_model_usd
    if estimated.unpriced and capped:
        raise ConfigError(
            f"the cost of {', '.join(estimated.unpriced)} cannot be bounded, its price is unknown:"
            " give it one in your catalog, or leave it out"
        )


def summary(submission: Submission, estimated: RunEstimate, calls: int) -> list[str]:
    """Return lines about the size of a run and its expected cost and duration.

    Args:
        calls: Calls that a worker process has in flight at most.
    """
    size = (
        f"{counted(submission.tasks, 'call')}: {counted(len(submission.models), 'model')} x"
        f" {counted(submission.samples, 'sample')} x {counted(submission.epochs, 'epoch')}"
    )
    timed = [m for m in submission.models if submission.batch_after_s != 0 or not takes_batches(m)]
    lines = [size, cost_summary(estimated, timed, calls)]
    if (batches := submission.batch_note()) is not None:
        lines.append(batches)
    return lines


def cost_summary(estimated: RunEstimate, models: Sequence[ModelSpec], calls: int) -> str:
    """Return a line about the expected tokens, cost and least duration of calls.

    Args:
        models: The models that are called one by one; those of batches are not timed.
        calls: Calls that a worker process has in flight at most.
    """
    tokens_and_cost = (
        f"estimated: {estimated.input_tokens:,} input and {estimated.output_tokens:,} output"
        f" tokens, ${estimated.known_cost_usd:.2f}{_if_cached(estimated)}{_unpriced(estimated)}"
    )
    if not models:
        return tokens_and_cost
    shortest = _shortest_s(estimated, models, calls)
    return f"{tokens_and_cost}, at least {shortest:.0f} s with one worker process"


def _shortest_s(estimated: RunEstimate, models: Sequence[ModelSpec], calls: int) -> float:
    """Return the least duration with one worker process, in seconds."""
    of = {each.model: each.calls for each in estimated.models}
    slowest = max(of[spec.id] / min(spec.max_in_flight or calls, calls) for spec in models)
    return max(slowest, sum(of[spec.id] for spec in models) / calls) * ASSUMED_CALL_S


def _if_cached(estimated: RunEstimate) -> str:
    if estimated.cached_cost_usd == estimated.known_cost_usd:
        return ""
    return f" (${estimated.cached_cost_usd:.2f} if the prompt is cached)"


def _unpriced(estimated: RunEstimate) -> str:
    return f" plus {', '.join(estimated.unpriced)} at unknown price" if estimated.unpriced else ""


def with_higher_caps(
    parameters: CallParameters, run_cap: Decimal | None, model_cap: Decimal | None
) -> CallParameters:
    """Return parameters with higher caps.

    Raises:
        ConfigError: They hold no such cap, or one that is as high.
    """
    return replace(
        parameters,
        max_cost_usd=_higher("--max-cost", parameters.max_cost_usd, run_cap),
        max_cost_per_model_usd=_higher(
            "--max-cost-per-model", parameters.max_cost_per_model_usd, model_cap
        ),
    )


def _higher(option: str, cap: Decimal | None, wanted: Decimal | None) -> Decimal | None:
    if wanted is None:
        return cap
    if cap is None:
        raise ConfigError(f"the run was submitted without {option}: nothing holds it back")
    if wanted <= cap:
        raise ConfigError(f"the run's {option} is ${cap:f} already: name a higher one")
    return wanted
