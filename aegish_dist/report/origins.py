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
        out_of_fold: Whether numbers on seen commands are left out, but for those out of fold.
    """
    for policy, found in overlaps.items():
        yield f"{names[policy]}: {_origin_in_words(found, out_of_fold=out_of_fold)}"


def _origin_in_words(found: Overlap, *, out_of_fold: bool) -> str:
    where = printable(found.run or "")
    too_good = "its numbers are too good if it was chosen on these commands."
    if found.kind is OriginKind.UNKNOWN:
        return f"origin unknown; {too_good}"
    if found.kind is OriginKind.CHANGED:
        return f"its file has changed since `policies search` wrote it: origin unknown; {too_good}"
    if found.kind is OriginKind.FRESH:
        return f"chosen in run {where}, on commands of other clusters."
    titles = [title for name, title in HEADLINES.items() if name in found.out_of_fold]
    better = "Its numbers here are too good."
    if out_of_fold:
        better = "Its rates here would be too good, and are left out."
    if titles and out_of_fold:
        better = f"{', '.join(titles)} and FPR are out of fold, other rates are left out."
    return f"{fitted_in_words(found)}. {better}"


def policies_document(opinion: Opinion, overlaps: Mapping[str, Overlap]) -> list[JsonObject]:
    """Return the policies of an opinion and what they were chosen on, in JSON types."""
    return [
        {**document, "origin": to_builtins(overlaps[name])}
        for name, document in policy_documents(opinion).items()
    ]


def fitted_in_words(found: Overlap) -> str:
    """Say why a policy is not judged here, and what to type instead."""
    seen, asked = format_count(found.seen), format_count(found.commands)
    models, where = ",".join(map(printable, found.guards)), printable(found.run or "")
    return (
        f"chosen in run {where} on {seen} of these {asked} commands or their"
        f" clusters: ask about fresh ones, `aegish-dist submit --models {models} --dataset FRESH`"
    )
