"""A report in each of its formats: sections, the page, and three forms for programs, unrounded.

What one format alone needs is imported when that format is drawn: the page brings its charts. JSON
is one document; CSV (RFC 4180) has a row for each number or, wide, for each model. The last form is
that of the result file of the reference benchmark's `benchmark.compare`, for scripts that read
`comparison_*.json`. Its keys `gtfobins` and `harmless` stand for malicious and harmless commands,
whatever the datasets are called. A model without a score is no `success`, and what is undefined is
absent: the reference would write 0.0.
"""

from collections.abc import Collection, Iterator
from itertools import chain

from msgspec import to_builtins
from msgspec.structs import asdict

from aegish_dist.core.metric import NUMBERS, Metric
from aegish_dist.core.model import ModelSpec, Price
from aegish_dist.core.run import COT, Prompt, Run
from aegish_dist.core.text import JsonObject, known, printable_json
from aegish_dist.errors import ReportError
from aegish_dist.findings.leaderboard import RankedModel
from aegish_dist.opinions.opinion import Opinion, record_of
from aegish_dist.report.comparison import comparison_document
from aegish_dist.report.csv import csv_text, failures_document, in_json_types, spreadsheet_safe
from aegish_dist.report.data import ReportData
from aegish_dist.report.first_screen import recommendation_document
from aegish_dist.report.operations import SERVICE_STATISTICS, reasons
from aegish_dist.report.origins import policies_document
from aegish_dist.report.provenance import reproduction
from aegish_dist.report.sections import BRIEF, SECTION_NAMES, build_report, one_screen
from aegish_dist.report.table import draw_table
from aegish_dist.report.thresholds import calibration_document, threshold_document

IN_SECTIONS = {"table": BRIEF, "markdown": SECTION_NAMES, "latex": BRIEF}
"""The formats whose sections can be chosen, and those that they have by themselves; a table has
them only with run columns, and else one screen."""
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
        sections: Of `SECTION_NAMES`; None for those that the format has by itself. Only formats
            of `IN_SECTIONS` use it.
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
    if format == "table" and sections is None:
        return draw_table(one_screen(data), width, color)
    report = build_report(data, IN_SECTIONS[format] if sections is None else sections)
    if format == "table":
        return draw_table(report, width, color)
    if format == "markdown":
        from aegish_dist.report.markdown import draw_markdown  # noqa: PLC0415  for pages of others

        return draw_markdown(report)
    from aegish_dist.report.latex import draw_latex  # noqa: PLC0415  for papers alone

    return draw_latex(report)


def render_json(data: ReportData) -> str:
    """Return a report as JSON in ASCII, keys sorted.

    Texts are exact. Whatever a terminal might obey is escaped, so the document is safe to look at.
    """
    snapshot, opinion = data.snapshot, data.snapshot.opinion
    entries = data.ranked
    plain = (
        *("scoring", "scoring_version", "metrics_version", "parser_versions", "code_version"),
        *("verdicts", "verdicts_hash"),
    )
    document = {
        "run": _run(data.run),
        "snapshot": {
            **{name: getattr(snapshot, name) for name in plain},
            "id": snapshot.snapshot_id,
            "opinion": None if opinion is None else record_of(opinion),
            "created_at": snapshot.created_at.isoformat(),
            "is_current": data.is_current,
        },
        "policies": [] if opinion is None else policies_document(opinion, data.overlaps),
        "models": snapshot.document["models"],
        "ranking": snapshot.document["ranking"],
        "failures": [in_json_types(failure) for failure in data.failures],
        "halted": [asdict(halted) for halted in data.halted],
        "failure_times": {
            "stretch_s": data.failure_stretch_s or None,
            **failures_document(data.failure_times),
        },
        "recommendation": {
            **recommendation_document(data),
            "threshold": None if data.thresholds is None else threshold_document(data.thresholds),
        },
        "judgements": {entry.model: entry.judgements(data.targets) for entry in entries},
        "reasons": reasons(data),
        "comparison": None if data.comparison is None else comparison_document(data.comparison),
        "scores": None if data.scores is None else calibration_document(data.scores),
        "overlay_effect": list(data.effect),
        "commands": [command for _, command in reproduction(data)],
    }
    return printable_json(document, sort_keys=True) + "\n"


def _run(run: Run) -> JsonObject:
    plain = ("name", "origin", "package_version", "epochs")
    return {
        **{name: getattr(run, name) for name in plain},
        "id": run.run_id,
        "created_at": run.created_at.isoformat(),
        "pruned_completions": 0 if run.pruned is None else run.pruned.completions,
        "prompt": run.prompt and _prompt(run.prompt),
        **({"prompts": {m: _prompt(p) for m, p in run.prompts.items()}} if run.prompts else {}),
        "parameters": run.parameters
        and {n: v for n, v in asdict(run.parameters).items() if not n.startswith("max_cost")},
        "datasets": [asdict(dataset) for dataset in run.datasets],
        "models": [_model(spec) for spec in run.models],
        "batched": sorted(run.batched),
    }


def _prompt(prompt: Prompt) -> dict[str, str]:
    return asdict(prompt) | {"fingerprint": prompt.fingerprint}


def _model(spec: ModelSpec) -> JsonObject:
    """Return what tells two set-ups of a model apart, but no endpoint: reports are shared."""
    own = known({"output": to_builtins(spec.output), "structured": spec.structured})
    return own | {
        "id": spec.id,
        "name": spec.name,
        "wire": spec.wire.value,
        "simulated": spec.simulated,
        "parameters": dict(spec.parameters),
        "price": spec.price and _price(spec.price),
        "batch_share": None if spec.batch_share is None else float(spec.batch_share),
    }


def _price(price: Price) -> JsonObject:
    """Return prices in USD as of submit, tokens per million."""
    per_call = None if price.per_call is None else float(price.per_call)
    shown: JsonObject = {"per_call_usd": per_call}
    if price.per_hour is not None:
        shown["per_hour_usd"] = float(price.per_hour)
    for name in ("input", "output", "cache_read", "cache_write", "cache_write_1h"):
        rate = getattr(price, name)
        shown[name] = rate and {
            "usd_per_million": float(rate.base),
            "above_input_tokens": {str(tokens): float(usd) for tokens, usd in rate.tiers},
        }
    return shown


COLUMNS = (
    *("run_id", "run_name", "snapshot_id", "scoring", "scoring_version"),
    *(f"{part}_fingerprint" for part in Opinion().provenance),
    *("model", "metric", "category", *NUMBERS, "message", "judgement"),
)
"""All before `model` are the same in every row, so that files of several reports can be stacked."""


def csv_rows(data: ReportData) -> Iterator[JsonObject]:
    """Yield a row for each number of each model, the best model first; see `COLUMNS`."""
    snapshot = data.snapshot
    made = {} if snapshot.opinion is None else snapshot.opinion.provenance
    source = {
        **_source(data),
        **{f"{name}_fingerprint": part["fingerprint"] for name, part in made.items() if part},
    }
    why = reasons(data)
    for entry in data.ranked:
        for row in _rows_of_model(data, entry, why.get(entry.model, "")):
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
"""What a wide table has of each metric."""


def render_wide_csv(data: ReportData) -> str:
    """Return a report as CSV with a row for each model, the best one first.

    The columns after run and rule set are named `aegish_score`, `aegish_score_stderr`,
    `aegish_score_stderr_clustered`, ... and `malicious_detection_rate_stderr.upload`.
    """
    source, rows = COLUMNS[: COLUMNS.index("model")], dict[str, JsonObject]()
    for each in csv_rows(data):
        row = rows.setdefault(each["model"], {name: each.get(name) for name in ("model", *source)})
        end = spreadsheet_safe(f".{each['category']}") if each.get("category") else ""
        for name in _OF_METRIC:
            if each.get(name, "") != "":
                part = "" if name == "value" else f"_{name}"
                row[f"{each['metric']}{part}{end}"] = each[name]
    return csv_text(list(dict.fromkeys(chain.from_iterable(rows.values()))), rows.values())


def _rows_of_model(data: ReportData, entry: RankedModel, reason: str) -> Iterator[JsonObject]:
    judgements = entry.judgements(data.targets)
    for name, numbers in sorted(entry.metrics.items()):
        said = {"message": reason if name == "aegish_score" else ""}
        yield {"metric": name, **numbers, **said, "judgement": judgements.get(name, "")}
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
    yield from sorted(entry.counts.items())
    for target, labels in sorted(entry.actions.items()):
        for label, verdicts in sorted(labels.items()):
            yield f"{target}_{label.lower()}_count", verdicts
    for part, statistics in sorted(entry.latency_parts_ms.items()):
        for name, value in sorted(statistics.items()):
            yield f"latency_{part}_{name}_ms", value
    for name, amount in sorted(entry.cost.items()):
        yield f"cost_{name}", amount
    for kind, tokens in sorted(entry.tokens.items()):
        yield f"tokens_{kind}", tokens


def render_reference_json(data: ReportData) -> str:
    """Return a report as the reference benchmark writes comparisons: JSON in ASCII."""
    entries = data.ranked
    run = data.run
    scored = [entry for entry in entries if entry.metric("aegish_score").value is not None]
    document = {
        "metadata": _metadata(data, _scaffolding(run.prompt)),
        "results": {
            entry.model: _result(entry, _scaffolding(run.prompt_of(entry.model)) == "cot")
            for entry in entries
        },
        "ranking": [
            {
                "rank": place,
                "model": entry.model,
                "aegish_score": entry.metric("aegish_score").value,
                **known({"cost_per_1000": entry.cost.get("per_1000_usd")}),
            }
            for place, entry in enumerate(scored, 1)
        ],
    }
    return printable_json(document) + "\n"


def _scaffolding(prompt: Prompt | None) -> str | None:
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
            "datasets": [side for side, size in sizes.items() if size],
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
    score, macro = entry.metric("aegish_score"), "malicious_detection_rate_macro"
    accepted = entry.metric("harmless_acceptance_rate").value
    false_positives = 1 - (accepted or 0.0)  # as the reference defines it
    rates = {name: entry.category(name) for name in sorted(entry.categories)}
    categories = {
        name: {"count": rate.n, "malicious_detection_rate": rate.value}
        for name, rate in rates.items()
        if rate.value is not None
    }
    more = known({macro: entry.metric(macro).value})
    sides = {
        "gtfobins": _side(entry, "malicious_detection_rate", more, categories),
        "harmless": _side(
            entry, "harmless_acceptance_rate", {"false_positive_rate": false_positives}, {}
        ),
    }
    defined = sum(side is not None for side in sides.values())
    result = {
        "model": entry.model,
        "cot": cot,
        "status": ("error", "partial", "success")[defined],
        "datasets": sides,
        "composite": known(
            {
                "aegish_score": score.value,
                "aegish_score_se": score.stderr,
                "total_cost_usd": entry.cost.get("total_usd"),
                "cost_per_1000_combined": entry.cost.get("per_1000_usd"),
                "avg_latency_ms": entry.latency("service", "mean"),
            }
        ),
    }
    return result if defined else result | {"error": "no verdict of it is scored"}


def _side(
    entry: RankedModel, name: str, more: JsonObject, categories: JsonObject
) -> JsonObject | None:
    """Return a rate of one kind of command with what the reference says beside it."""
    seen = entry.metric(name)
    if seen.value is None:
        return None
    correct = seen.value * seen.n
    whole = abs(correct - round(correct)) < 1e-6  # otherwise epochs disagree about some command
    numbers = {
        "accuracy": seen.value,
        "stderr": seen.stderr,
        "total_commands": seen.n,
        "correct": round(correct) if whole else None,
        "latency": known({n: entry.latency("service", n) for n in SERVICE_STATISTICS}) or None,
    }
    categories_of = {"per_category_malicious_detection_rates": categories}
    return {name: seen.value, **more, **known(numbers), **categories_of}
