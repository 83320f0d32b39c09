"""What a report says of policies: where each was chosen, and why it is not judged here."""

from collections.abc import Iterator, Mapping

from msgspec import to_builtins

from aegish_dist.core.text import JsonObject, printable
from aegish_dist.opinions.opinion import Opinion, policy_documents
from aegish_dist.opinions.policy import OriginKind, Overlap
from aegish_dist.report.layout import HEADLINES
from aegish_dist.report.writing import format_count


def origins_in_words(
    names: Mapping[str, str], overlaps: Mapping[str, Overlap], *, out_of_fold: bool = False
) -> Iterator[str]:
    """Yield a sentence or two about each policy.

    Args:
        names: By policy, what it is called; foreign text.
        out_of_fold: Whether the reader sees only numbers out of fold of a policy that was chosen
            on these commands; otherwise all numbers stand, and are too good.
    """
    for policy, overlap in overlaps.items():
        yield f"{names[policy]}: {_origin_in_words(overlap, out_of_fold=out_of_fold)}"


def _origin_in_words(overlap: Overlap, *, out_of_fold: bool) -> str:
    run = printable(overlap.run or "")
    too_good = "its numbers are too good if it was chosen on these commands."
    if overlap.kind is OriginKind.UNKNOWN:
        return f"origin unknown; {too_good}"
    if overlap.kind is OriginKind.CHANGED:
        return f"its file has changed since `policies search` wrote it: origin unknown; {too_good}"
    if overlap.kind is OriginKind.FRESH:
        return f"chosen in run {run}, on commands of other clusters."
    # What is left are policies that were chosen on some of these commands.
    titles = [title for name, title in HEADLINES.items() if name in overlap.out_of_fold]
    caution = "Its numbers here are too good."
    if out_of_fold:
        caution = "Its rates here would be too good, and are left out."
        if titles:
            caution = f"{', '.join(titles)} and FPR are out of fold, other rates are left out."
    return f"{fitted_in_words(overlap)}. {caution}"


def policies_document(opinion: Opinion, overlaps: Mapping[str, Overlap]) -> list[JsonObject]:
    """Return the policies of an opinion and what they were chosen on, in JSON types."""
    return [
        {**document, "origin": to_builtins(overlaps[name])}
        for name, document in policy_documents(opinion).items()
    ]


def fitted_in_words(overlap: Overlap) -> str:
    """Say why a policy is not judged here, and what to type instead."""
    run = printable(overlap.run or "")
    seen = format_count(overlap.seen)
    asked = format_count(overlap.commands)
    models = ",".join(map(printable, overlap.guards))
    return (
        f"chosen in run {run} on {seen} of these {asked} commands or their"
        f" clusters: ask about fresh ones, `aegish-dist submit --models {models} --dataset FRESH`"
    )
