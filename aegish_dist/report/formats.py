"""A report in each of its formats.

For people it is drawn as sections or as the page. What one format alone needs is imported when that
format is drawn: the page brings its charts.

For programs numbers are not rounded:

- JSON is one document.
- CSV (RFC 4180) has a row for each number or, wide, for each model.
- Reference JSON is the result file of the reference benchmark's `benchmark.compare`, for scripts
  that read `comparison_*.json`. Its keys `gtfobins` and `harmless` stand for malicious and harmless
  commands, whatever the datasets are called. A model without a score is no `success`. What is
  undefined is absent, where the reference would write 0.0.
"""

from collections.abc import Collection, Iterator

from msgspec import to_builtins
from msgspec.structs import asdict

from aegish_dist.core.metric import NUMBERS, Metric
from aegish_dist.core.model import ModelSpec, Price, Rate
from aegish_dist.core.run import COT, Prompt, Run
from aegish_dist.core.text import (
    JsonObject,
    as_number,
    csv_text,
    known,
    printable_json,
    spreadsheet_safe,
)
from aegish_dist.errors import ReportError
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.opinions.opinion import Opinion, record_of
from aegish_dist.opinions.policy import may_be_judged
from aegish_dist.report.comparison import comparison_document
from aegish_dist.report.data import ReportData
from aegish_dist.report.drawing import drawn
from aegish_dist.report.first_screen import recommendation_document
from aegish_dist.report.operations import (
    FITTED,
    SERVICE_STATISTICS,
    failures_document,
    in_json_types,
    reasons,
)
from aegish_dist.report.origins import policies_document
from aegish_dist.report.provenance import reproduction
from aegish_dist.report.sections import BRIEF, SECTION_NAMES, build_report, one_screen
from aegish_dist.report.thresholds import calibration_document, threshold_document

# The formats whose sections can be chosen, each with the sections that it has if none are chosen.
# A table without chosen sections is one screen instead.
IN_SECTIONS = {"table": BRIEF, "markdown": SECTION_NAMES, "latex": BRIEF}
FORMATS = (*IN_SECTIONS, "json", "csv", "csv-wide", "reference-json", "html")


def render(
    data: ReportData,
    format: str,
    *,
    sections: Collection[str] | None = None,
    width: int | None = None,
    color: bool = False,
) -> str:
    """Return a report as text that ends with a line break.

    Args:
        sections: Of `SECTION_NAMES`; None for those of `IN_SECTIONS`, whose formats alone use it.
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.
    """
    if format in IN_SECTIONS:
        return _in_sections(data, format, sections, width, color=color)
    match format:
        case "csv":
            return csv_text(COLUMNS, csv_rows(data))
        case "csv-wide":
            return render_wide_csv(data)
        case "json":
            return render_json(data)
        case "reference-json":
            return render_reference_json(data)
        case "html":
            from aegish_dist.report.page import render_page  # noqa: PLC0415

            return "".join(render_page(data))
    raise ReportError(f"unknown report format '{format}': choose one of {', '.join(FORMATS)}")


def _in_sections(
    data: ReportData,
    format: str,
    sections: Collection[str] | None,
    width: int | None,
    *,
    color: bool,
) -> str:
    """Return a report in a format of `IN_SECTIONS`."""
    if sections is not None:
        report = build_report(data, sections)
    elif format == "table":
        report = one_screen(data)
    else:
        report = build_report(data, IN_SECTIONS[format])
    if format != "latex":
        return drawn(report, format, width, color)
    from aegish_dist.report.latex import draw_latex  # noqa: PLC0415  for papers alone

    return draw_latex(report)


def render_json(data: ReportData) -> str:
    """Return a report as JSON in ASCII, keys sorted.

    Texts are exact. Characters that a terminal might obey are escaped, so that the document is safe
    to look at.
    """
    opinion = data.snapshot.opinion
    recommendation = recommendation_document(data)
    recommendation["threshold"] = data.thresholds and threshold_document(data.thresholds)
    document = {
        "run": _run(data.run),
        "snapshot": _snapshot(data),
        "policies": [] if opinion is None else policies_document(opinion, data.overlaps),
        "models": data.snapshot.document["models"],
        "ranking": data.snapshot.document["ranking"],
        "failures": [in_json_types(failure) for failure in data.failures],
        "halted": [asdict(halted) for halted in data.halted],
        "failure_times": {
            "stretch_s": data.failure_stretch_s or None,
            **failures_document(data.failure_times),
        },
        "recommendation": recommendation,
        "judgements": {entry.model: entry.judgements(data.targets) for entry in data.ranked},
        "reasons": reasons(data),
        "comparison": data.comparison and comparison_document(data.comparison),
        "scores": data.scores and calibration_document(data.scores),
        "overlay_effect": list(data.effect),
        "commands": [command for _, command in reproduction(data)],
    }
    return printable_json(document, sort_keys=True) + "\n"


# The fields of a snapshot that documents hold under their own names.
_OF_SNAPSHOT = (
    "scoring",
    "scoring_version",
    "metrics_version",
    "parser_versions",
    "code_version",
    "verdicts",
    "verdicts_hash",
)


def _snapshot(data: ReportData) -> JsonObject:
    snapshot = data.snapshot
    return {
        **{name: getattr(snapshot, name) for name in _OF_SNAPSHOT},
        "id": snapshot.snapshot_id,
        "opinion": snapshot.opinion and record_of(snapshot.opinion),
        "created_at": snapshot.created_at.isoformat(),
        "is_current": data.is_current,
    }


def _run(run: Run) -> JsonObject:
    parameters = run.parameters and asdict(run.parameters)
    # Reports are shared, and a cap says what the owner of the run can pay.
    for name in ("max_cost_usd", "max_cost_per_model_usd"):
        if parameters:
            del parameters[name]
    document = {
        "id": run.run_id,
        "name": run.name,
        "origin": run.origin,
        "package_version": run.package_version,
        "epochs": run.epochs,
        "created_at": run.created_at.isoformat(),
        "pruned_completions": run.pruned.completions if run.pruned else 0,
        "prompt": run.prompt and _prompt(run.prompt),
        "parameters": parameters,
        "datasets": [asdict(dataset) for dataset in run.datasets],
        "models": [_model(spec) for spec in run.models],
        "batched": sorted(run.batched),
    }
    if run.prompts:
        document["prompts"] = {model: _prompt(prompt) for model, prompt in run.prompts.items()}
    return document


def _prompt(prompt: Prompt) -> dict[str, str]:
    return asdict(prompt) | {"fingerprint": prompt.fingerprint}


def _model(spec: ModelSpec) -> JsonObject:
    """Return what tells two set-ups of a model apart, but no endpoint: reports are shared."""
    output = known({"output": to_builtins(spec.output), "structured": spec.structured})
    return output | {
        "id": spec.id,
        "name": spec.name,
        "wire": spec.wire.value,
        "simulated": spec.simulated,
        "parameters": dict(spec.parameters),
        "price": spec.price and _price(spec.price),
        "batch_share": as_number(spec.batch_share),
    }


def _price(price: Price) -> JsonObject:
    """Return prices in USD as of submit: of tokens per million of them."""
    per_call = as_number(price.per_call)
    document: JsonObject = {"per_call_usd": per_call}
    if price.per_hour is not None:
        document["per_hour_usd"] = float(price.per_hour)
    for name in ("input", "output", "cache_read", "cache_write", "cache_write_1h"):
        rate: Rate | None = getattr(price, name)
        document[name] = rate and {
            "usd_per_million": float(rate.base),
            "above_input_tokens": {str(tokens): float(usd) for tokens, usd in rate.tiers},
        }
    return document


# The same in every row, so that files of several reports can be stacked.
_SOURCE = (
    "run_id",
    "run_name",
    "snapshot_id",
    "scoring",
    "scoring_version",
    *(f"{part}_fingerprint" for part in Opinion().provenance),
)
COLUMNS = (
    *_SOURCE,
    "model",
    "metric",
    "category",
    *NUMBERS,
    "message",
    "judgement",
)


def csv_rows(data: ReportData) -> Iterator[JsonObject]:
    """Yield a row for each number of each model, the best model first; see `COLUMNS`."""
    source = _source(data)
    opinion = data.snapshot.opinion
    if opinion is not None:
        for kind, part in opinion.provenance.items():
            if part is not None:
                source[f"{kind}_fingerprint"] = part["fingerprint"]
    why_no_score = reasons(data)
    for entry in data.ranked:
        for row in _rows_of_model(data, entry, why_no_score.get(entry.model, "")):
            yield source | {"model": entry.model} | row


def _source(data: ReportData) -> JsonObject:
    """Return run, snapshot and rule set, which tell several reports apart."""
    run, snapshot = data.run, data.snapshot
    return {
        "run_id": run.run_id,
        "run_name": run.name,
        "snapshot_id": snapshot.snapshot_id,
        "scoring": snapshot.scoring,
        "scoring_version": snapshot.scoring_version,
    }


# The columns that a wide table has for each metric, as they end; that of the value has no ending.
_OF_METRIC = (
    "value",
    "stderr",
    "stderr_clustered",
    "ci_low",
    "ci_high",
    "n",
    "judgement",
    "message",
)


def render_wide_csv(data: ReportData) -> str:
    """Return a report as CSV with a row for each model, the best one first.

    The columns after run and rule set are named `aegish_score`, `aegish_score_stderr`,
    `aegish_score_stderr_clustered`, ... and `malicious_detection_rate_stderr.upload`.
    """
    rows: dict[str, JsonObject] = {}
    columns: dict[str, None] = {}
    for long_row in csv_rows(data):
        about = {name: long_row.get(name) for name in ("model", *_SOURCE)}
        row = rows.setdefault(long_row["model"], about)
        category = long_row.get("category")
        of_category = spreadsheet_safe(f".{category}") if category else ""
        for name in _OF_METRIC:
            # An empty text is no message and no judgement.
            if long_row.get(name, "") != "":
                ending = "" if name == "value" else f"_{name}"
                row[f"{long_row['metric']}{ending}{of_category}"] = long_row[name]
    # Models have different metrics: the table has the columns of all, in the order they came.
    for row in rows.values():
        columns |= dict.fromkeys(row)
    return csv_text(list(columns), rows.values())


def _rows_of_model(data: ReportData, entry: RankedModel, reason: str) -> Iterator[JsonObject]:
    """Yield a model's rows; the reason why it has no score is the message of the score."""
    judgements = entry.judgements(data.targets)
    for name, numbers in sorted(entry.metrics.items()):
        yield {
            "metric": name,
            **numbers,
            "message": reason if name == Metric.SCORE else "",
            "judgement": judgements.get(name, ""),
        }
    for category, numbers in sorted(entry.categories.items()):
        yield {"metric": Metric.DETECTION_RATE, "category": category, **numbers}
    for effect in data.effect:
        if effect["model"] == entry.model:
            for name, moved in sorted(effect["metrics"].items()):
                yield {"metric": f"{name}_without_overlay", "value": moved["without"]}
    for metric, value in _single_numbers(entry):
        yield {"metric": metric, "value": value}
    for failure in data.failures:
        if failure.model == entry.model:
            about = {"category": failure.error_class.value, "message": failure.message}
            yield {"metric": "failed_verdicts", "value": failure.verdicts, **about}
            yield {"metric": "failed_attempts", "value": failure.attempts, **about}


def _single_numbers(entry: RankedModel) -> Iterator[tuple[str, float | None]]:
    """Yield the numbers without an interval, by names that say where each comes from."""
    yield from sorted(entry.counts.items())
    for target, labels in sorted(entry.actions.items()):
        for label, verdicts in sorted(labels.items()):
            yield f"{target}_{label.lower()}_count", verdicts
    for part, statistics in sorted(entry.latency_parts_ms.items()):
        for statistic, value_ms in sorted(statistics.items()):
            yield f"latency_{part}_{statistic}_ms", value_ms
    for group, numbers in (("cost", entry.cost), ("tokens", entry.tokens)):
        for name, number in sorted(numbers.items()):
            yield f"{group}_{name}", number


def render_reference_json(data: ReportData) -> str:
    """Return a report as the reference benchmark writes comparisons: JSON in ASCII."""
    run = data.run
    results: JsonObject = {}
    ranking: list[JsonObject] = []
    for entry in data.ranked:
        cot = _scaffolding(run.prompt_of(entry.model)) == "cot"
        results[entry.model] = _result(entry, cot)
        if entry.is_ranked:
            place = {
                "rank": len(ranking) + 1,
                "model": entry.model,
                "aegish_score": entry.score.value,
                "cost_per_1000": entry.price_per_1000_usd,
            }
            ranking.append(known(place))
    document = {
        "metadata": _metadata(data, _scaffolding(run.prompt)),
        "results": results,
        "ranking": ranking,
    }
    return printable_json(document) + "\n"


def _scaffolding(prompt: Prompt | None) -> str | None:
    """Return the reference's word for a prompt: `cot` where it asks for reasoning first."""
    if prompt is None:
        return None
    return "cot" if prompt.name.endswith(COT) else "standard"


def _metadata(data: ReportData, scaffolding: object) -> JsonObject:
    run, snapshot = data.run, data.snapshot
    malicious = sum(dataset.malicious for dataset in run.datasets)
    sizes = {"gtfobins": malicious, "harmless": run.samples - malicious}
    return known(
        {
            "timestamp": f"{snapshot.created_at:%Y-%m-%dT%H:%M:%SZ}",
            "models_evaluated": len(run.models),
            "datasets": [kind for kind, size in sizes.items() if size],
            "scaffolding": scaffolding,
            "gtfobins_count": sizes["gtfobins"],
            "harmless_count": sizes["harmless"],
            "skipped_models": [],
            "source": {
                "tool": "aegish-dist",
                "version": snapshot.code_version,
                **_source(data),
                "datasets": {dataset.name: dataset.fingerprint for dataset in run.datasets},
            },
            "note": "latency is the service time of all commands of the model, in ms, under both"
            " data sets and as avg_latency_ms; the reference counts queueing as well, and each data"
            " set alone",
        }
    )


def _result(entry: RankedModel, cot: bool) -> JsonObject:
    """Return a model's results as the reference does: one part for either kind of command."""
    categories = {}
    for name in sorted(entry.categories):
        rate = entry.category(name)
        if rate.value is not None:
            categories[name] = {"count": rate.n, "malicious_detection_rate": rate.value}
    macro = Metric.DETECTION_RATE_MACRO
    accepted = entry.metric(Metric.ACCEPTANCE_RATE).value or 0.0
    datasets = {
        "gtfobins": _one_kind(
            entry,
            Metric.DETECTION_RATE,
            known({macro: entry.metric(macro).value}),
            categories,
        ),
        "harmless": _one_kind(
            entry,
            Metric.ACCEPTANCE_RATE,
            {"false_positive_rate": 1 - accepted},  # as the reference defines it
            {},
        ),
    }
    # None, one or both of the parts have a rate.
    defined = sum(rates is not None for rates in datasets.values())
    result = {
        "model": entry.model,
        "cot": cot,
        "status": ("error", "partial", "success")[defined],
        "datasets": datasets,
        "composite": known(
            {
                "aegish_score": entry.score.value,
                "aegish_score_se": entry.score.stderr,
                "total_cost_usd": entry.cost.get("total_usd"),
                "cost_per_1000_combined": entry.price_per_1000_usd,
                "avg_latency_ms": entry.latency("service", "mean"),
            }
        ),
    }
    if not defined:
        result["error"] = "no verdict of it is scored"
        if not may_be_judged(entry.origin):
            result["error"] = FITTED
    return result


def _one_kind(
    entry: RankedModel,
    name: Metric,
    more: JsonObject,
    categories: JsonObject,
) -> JsonObject | None:
    """Return a model's rate for one kind of command with the numbers that the reference adds.

    Args:
        more: Numbers that only this kind has.
        categories: The rates by category; of harmless commands there are none.
    """
    rate = entry.metric(name)
    if rate.value is None:
        return None
    correct = rate.value * rate.n
    # Where epochs disagree about a command, a part of it is right: there is no number to give.
    is_whole = abs(correct - round(correct)) < 1e-6
    latency = {statistic: entry.latency("service", statistic) for statistic in SERVICE_STATISTICS}
    numbers = {
        "accuracy": rate.value,
        "stderr": rate.stderr,
        "total_commands": rate.n,
        "correct": round(correct) if is_whole else None,
        "latency": known(latency) or None,
    }
    return {
        name: rate.value,
        **more,
        **known(numbers),
        "per_category_malicious_detection_rates": categories,
    }
